"""The items of an index: written, published, replaced and removed, while other threads search; changes are atomic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from threading import Condition
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from splinefm._arrays import Array, Float32Array
from splinefm._parallel import in_order
from splinefm.encode.drift import Watch
from splinefm.encode.tables.names import missing_column_message
from splinefm.encode.tables.table import Table
from splinefm.model.split import Split
from splinefm.rank.effects import EffectStore
from splinefm.rank.error import EffectErrorMeter, ErrorMeter, Maxima
from splinefm.rank.ids import (
    Groups,
    Ids,
    Keys,
    first_repeated,
    integers_if_plain,
    join_keys,
    read_groups,
    read_keys,
    written_types,
)
from splinefm.rank.sides import ContextQueries, FieldSubset
from splinefm.rank.store import Dtype, Form, Positions, Store, VectorStore
from splinefm.train.fitted import Fitted

_CHUNK = 8192  # items that are read and encoded at a time
BLOCK = 1024  # items whose float64 vectors are in memory at a time


class ReadWriteLock:
    """A lock for any number of readers, or one writer; a waiting writer goes before later readers.

    Examples
    --------
    >>> lock = ReadWriteLock()
    >>> with lock.reading(), lock.reading():
    ...     pass
    >>> with lock.writing():
    ...     pass
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._n_readers = self._n_waiting = 0
        self._is_writing = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the lock, shared with other readers."""
        with self._changed:
            while self._is_writing or self._n_waiting:
                self._changed.wait()
            self._n_readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._n_readers -= 1
                if not self._n_readers:
                    self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the lock exclusively."""
        with self._changed:
            self._n_waiting += 1
            try:
                while self._is_writing or self._n_readers:
                    self._changed.wait()
                self._is_writing = True
            finally:
                self._n_waiting -= 1
        try:
            yield
        finally:
            with self._changed:
                self._is_writing = False
                self._changed.notify_all()

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadWriteLock, ()  # a copy of an index has a lock of its own


class _Block(NamedTuple):
    """Some items, ready to write."""

    packed: Any
    offsets: Float32Array
    maxima: Maxima


class Staged(NamedTuple):
    """Items that are written but not published; groups are None if the index has none."""

    positions: Positions
    keys: Keys
    offsets: Float32Array
    groups: list[str | None] | None


class Catalog:
    """The items of an index by position: vectors or features, ids and groups.

    `item_fields` are numbers of fields of the model; the columns are the defaults of later changes.
    """

    def __init__(
        self,
        fitted: Fitted,
        item_fields: tuple[int, ...],
        form: Form,
        dtype: Dtype,
        id_column: str | None,
        group_column: str | None,
        has_groups: bool,
    ) -> None:
        self.split = Split(fitted.model, fitted.params, fitted.encoder.layout, item_fields)
        self.queries = ContextQueries(self.split)
        self.item_subset = FieldSubset(fitted, item_fields)
        effects = form == "effects"
        self.store: Store = (
            EffectStore(self.split, self.item_subset.fields, self.queries)
            if effects
            else VectorStore(self.split.length, dtype)
        )
        self.ids = Ids(self.store.published)
        self.groups = Groups()
        self.meter = (EffectErrorMeter if effects else ErrorMeter).of(fitted, self.split)
        self.id_column, self.group_column, self.has_groups = id_column, group_column, has_groups
        self.lock = ReadWriteLock()

    def open(self, items: object, ids: object, groups: object) -> Table:
        """Open a table of items, with the columns of ids and groups of the index unless others are named."""
        names = (self.id_column if ids is None else ids, self.group_column if groups is None else groups)
        return self.item_subset.open(items, "items", written_types(*names, self.ids.kind))

    def stage(self, source: Table, ids: object, groups: object, threads: int | None) -> Staged:
        """Encode items chunk by chunk, and write them to unused positions."""
        ids, groups = self._columns(source, ids, groups)
        keys: list[Keys] = []
        names: list[str | None] = []
        positions: list[Positions] = [np.zeros(0, np.int64)]
        offsets: list[Float32Array] = [np.zeros(0, np.float32)]
        watch = Watch(self.item_subset.encoder, each_once=True)
        try:
            with _one_blas_thread(source):
                chunks = self._chunks(source, ids, groups, keys, names)
                for block in in_order(partial(self._encode, watch), chunks, threads):
                    with self.lock.writing():  # searches may still read what was at these positions
                        positions.append(self.store.reserve(len(block.offsets)))
                        self.store.write(positions[-1], block.packed)
                        self.meter.maxima.update(block.maxima)
                    offsets.append(block.offsets)
            every_key = join_keys(keys) if isinstance(ids, str) else read_keys(ids, "ids")
            if isinstance(ids, str) and source.untyped and self.ids.kind is None:
                every_key = integers_if_plain(every_key)
            if groups is not None and not isinstance(groups, str):
                names = read_groups(groups, "groups")
            staged = Staged(
                np.concatenate(positions), every_key, np.concatenate(offsets), names if self.has_groups else None
            )
            _check_lengths(staged)
            watch.warn()
        except BaseException:
            with self.lock.writing():
                self.store.release(np.concatenate(positions))
            raise
        return staged

    def commit(self, staged: Staged, *, replace: bool) -> None:
        """Publish staged items, replacing those with the same ids or adding new ones; on an error, release them."""
        with self.lock.writing():
            try:
                old = self._replaced(staged.keys, replace)
            except BaseException:
                self.store.release(staged.positions)
                raise
            self.ids.erase(old)
            self.store.release(old)
            self.ids.assign(staged.positions, staged.keys, self.store.capacity)
            if staged.groups is not None:
                self.groups.assign(staged.positions, staged.groups, self.store.capacity)
            self.store.publish(staged.positions, staged.offsets)

    def remove(self, ids: object) -> None:
        """Remove items."""
        keys = read_keys(ids, "ids")
        with self.lock.writing():
            positions = np.unique(self._present(keys))
            self.ids.erase(positions)
            self.store.release(positions)

    def known_positions(self, ids: object, what: str) -> Positions:
        """Positions of the given ids, without those that the index does not have."""
        keys = read_keys(ids, what)
        self.ids.check(keys, what)
        positions = self.ids.find(keys)
        return positions[positions >= 0]

    def _columns(self, source: Table, ids: object, groups: object) -> tuple[object, object]:
        """The column or values of ids and groups, as given here or when the index was built."""
        ids = self.id_column if ids is None else ids
        groups = self.group_column if groups is None else groups
        if ids is None:
            raise ValueError("ids must be the name of a column or an array, got None")
        if groups is None and self.has_groups:
            raise ValueError("the index has groups; give the groups of the items as groups=")
        if groups is not None and not self.has_groups:
            raise ValueError("the index has no groups; rebuild it with groups=")
        for what, name in (("ids", ids), ("groups", groups)):
            if isinstance(name, str) and name not in source.names:
                raise ValueError(f"{what}: {missing_column_message(name, source.names)}")
        return ids, groups

    def _chunks(
        self, source: Table, ids: object, groups: object, keys: list[Keys], names: list[str | None]
    ) -> Iterator[pa.RecordBatch]:
        """Chunks with the columns of the fields; ids and groups are appended to the lists."""
        extra = [name for name in (ids, groups) if isinstance(name, str)]
        for chunk in source.chunks(list(dict.fromkeys([*self.item_subset.columns, *extra])), _CHUNK):
            if isinstance(ids, str):
                keys.append(read_keys(chunk.column(ids), f"ids, column {ids!r}"))
            if isinstance(groups, str):
                names += read_groups(chunk.column(groups), f"groups, column {groups!r}")
            yield chunk.select(list(self.item_subset.columns))

    def _encode(self, watch: Watch, chunk: pa.RecordBatch) -> _Block:
        """Convert some items to their stored form and their offsets."""
        slots = self.item_subset.encode(chunk, watch)
        parts: list[Any] = []
        offsets: list[Float32Array] = []
        maxima = Maxima.zeros(len(self.meter.maxima.size))
        for at in range(0, len(slots), BLOCK):
            block = slots[at : at + BLOCK]
            side = self.split.item_side(block)
            check_finite(side.vectors, side.scores, "an item", self.store.dtype)
            parts.append(self.store.pack(block, side.vectors))
            offsets.append(side.scores.astype(np.float32))
            maxima.update(self.meter.measure(side, parts[-1]))
        return _Block(self.store.join(parts), np.concatenate(offsets), maxima)

    def _replaced(self, keys: Keys, replace: bool) -> Positions:
        """Positions that new items replace; raise for ids that must be new but exist, or the other way around."""
        self.ids.check(keys, "ids")
        repeated = first_repeated(keys)
        if repeated >= 0:
            raise ValueError(f"ids: {keys.as_given(repeated)!r} occurs twice; a catalog has one row per item")
        if replace:
            return self._present(keys)
        known = np.flatnonzero(self.ids.find(keys) >= 0)
        if len(known):
            raise ValueError(
                f"ids: the index already has {keys.as_given(int(known[0]))!r}; use update to replace items"
            )
        return np.zeros(0, np.int64)

    def _present(self, keys: Keys) -> Positions:
        """Positions of ids, all of which must be in the index."""
        self.ids.check(keys, "ids")
        positions = self.ids.find(keys)
        absent = np.flatnonzero(positions < 0)
        if len(absent):
            more = f" (and {len(absent) - 1:,} more)" if len(absent) > 1 else ""
            raise ValueError(f"ids: {keys.as_given(int(absent[0]))!r}{more} is not in the index; use add to add items")
        return positions


def check_finite(vectors: Array, offsets: Array, what: str, dtype: str = "float32") -> None:
    """Raise if a number cannot be stored."""
    largest, limit = np.abs(vectors).max(initial=0.0), np.finfo(np.float32).max
    if not (largest <= limit and np.abs(offsets).max(initial=0.0) <= limit):
        raise ValueError(
            f"the vector of {what} is not finite: the model's parameters contain NaN or infinity; refit it"
        )
    if dtype == "float16" and largest > np.finfo(np.float16).max:
        raise ValueError(f"the vector of {what} contains {largest:.3g}, which is too large for float16; use float32")


def _one_blas_thread(source: Table) -> AbstractContextManager[object]:
    """Limit BLAS to one thread: several threads encode chunks, and threads inside each product would oversubscribe."""
    if source.n_rows is not None and source.n_rows <= _CHUNK:  # one chunk; searching for libraries takes longer
        return nullcontext()
    try:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn
    except ImportError:
        return nullcontext()
    return threadpool_limits(1, user_api="blas")  # type: ignore[no-any-return]  # as above


def _check_lengths(staged: Staged) -> None:
    for what, values in (("ids", staged.keys), ("groups", staged.groups)):
        if values is not None and len(values) != len(staged.positions):
            raise ValueError(
                f"{what} has {len(values):,} values, but items has {len(staged.positions):,} rows; give one per item"
            )
