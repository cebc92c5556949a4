"""The items of an index: written, published, replaced and removed; a change is made as a whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._parallel import in_order
from splinefm.encode.drift import Watch
from splinefm.encode.tables.names import missing_column_message
from splinefm.encode.tables.table import Table
from splinefm.learn.fitted import Fitted
from splinefm.model.split import Split
from splinefm.rank.effects import Effects
from splinefm.rank.effects_error import EffectMeter
from splinefm.rank.error import Maxima, Meter
from splinefm.rank.ids import Groups, Ids, Keys, first_repeated, join_keys, read_groups, read_keys
from splinefm.rank.store import Dtype, Float32, Form, Rows, Store, Vectors
from splinefm.rank.tables import Part

Array = npt.NDArray[Any]

_CHUNK = 8192  # items that are read and encoded at a time
BLOCK = 1024  # items or contexts whose vectors are in memory in float64 at a time


class _Block(NamedTuple):
    """Some items, ready to be written."""

    packed: Any
    offsets: Float32
    maxima: Maxima


class Staged(NamedTuple):
    """Items that are written but not published; groups are None where the index has none."""

    rows: Rows
    keys: Keys
    offsets: Float32
    groups: list[str | None] | None


class Catalog:
    """The items of an index by row: vectors or what stands for them, ids and groups.

    Parameters
    ----------
    fitted : Fitted
        The model.
    own : tuple of int
        Numbers of the fields of an item.
    form : {"vectors", "effects"}
        What is stored of an item.
    dtype : {"float32", "float16", "int8"}
        How vectors are stored.
    id_column, group_column : str, optional
        Columns of ids and groups, where a table does not say otherwise.
    has_groups : bool
        Whether items have groups.
    """

    def __init__(
        self,
        fitted: Fitted,
        own: tuple[int, ...],
        form: Form,
        dtype: Dtype,
        id_column: str | None,
        group_column: str | None,
        has_groups: bool,
    ) -> None:
        self.split = Split(fitted.model, fitted.params, fitted.encoder.layout, own)
        self.part = Part(fitted, own)
        effects = form == "effects"
        self.store: Store = Effects(self.split, self.part.items) if effects else Vectors(self.split.length, dtype)
        self.ids = Ids(self.store.used)
        self.groups = Groups()
        self.meter = (EffectMeter if effects else Meter).of(fitted, self.split)
        self.id_column, self.group_column, self.has_groups = id_column, group_column, has_groups

    def stage(self, source: Table, ids: object, groups: object, threads: int | None) -> Staged:
        """Encode items chunk by chunk, and write them to rows that are not in use."""
        ids, groups = self._columns(source, ids, groups)
        keys: list[Keys] = []
        names: list[str | None] = []
        rows: list[Rows] = [np.zeros(0, np.int64)]
        offsets: list[Float32] = [np.zeros(0, np.float32)]
        watch = Watch(self.part.encoder)
        try:
            with _one_blas_thread(source):
                chunks = self._chunks(source, ids, groups, keys, names)
                for block in in_order(partial(self._fold, watch), chunks, threads):
                    rows.append(self.store.reserve(len(block.offsets)))
                    self.store.write(rows[-1], block.packed)
                    self.meter.maxima.update(block.maxima)
                    offsets.append(block.offsets)
            every_key = join_keys(keys) if isinstance(ids, str) else read_keys(ids, "ids")
            if groups is not None and not isinstance(groups, str):
                names = read_groups(groups, "groups")
            staged = Staged(
                np.concatenate(rows), every_key, np.concatenate(offsets), names if self.has_groups else None
            )
            _check_lengths(staged)
            watch.warn()
        except BaseException:
            self.store.release(np.concatenate(rows))
            raise
        return staged

    def commit(self, staged: Staged, *, replace: bool) -> None:
        """Publish staged items in the place of those with the same ids, or without any; or release them and raise."""
        try:
            old = self._replaced(staged.keys, replace)
        except BaseException:
            self.store.release(staged.rows)
            raise
        self.ids.erase(old)
        self.store.release(old)
        self.ids.assign(staged.rows, staged.keys, self.store.capacity)
        if staged.groups is not None:
            self.groups.assign(staged.rows, staged.groups, self.store.capacity)
        self.store.publish(staged.rows, staged.offsets)

    def remove(self, ids: object) -> None:
        """Take items out."""
        keys = read_keys(ids, "ids")
        rows = np.unique(self._present(keys))
        self.ids.erase(rows)
        self.store.release(rows)

    def known_rows(self, ids: object, what: str) -> Rows:
        """Rows of those ids that are there."""
        keys = read_keys(ids, what)
        self.ids.check(keys, what)
        rows = self.ids.find(keys)
        return rows[rows >= 0]

    def _columns(self, source: Table, ids: object, groups: object) -> tuple[object, object]:
        """The column or values of ids and groups, as given or as they were when the index was built."""
        ids = self.id_column if ids is None else ids
        groups = self.group_column if groups is None else groups
        if ids is None:
            raise ValueError("the ids of the items are missing: ids= takes the name of their column, or an array")
        if groups is None and self.has_groups:
            raise ValueError("the index has groups: give those of the items, too, as groups=")
        if groups is not None and not self.has_groups:
            raise ValueError("the index was built without groups; build it anew with groups=")
        for what, name in (("ids", ids), ("groups", groups)):
            if isinstance(name, str) and name not in source.names:
                raise ValueError(f"{what}: {missing_column_message(name, source.names)}")
        return ids, groups

    def _chunks(
        self, source: Table, ids: object, groups: object, keys: list[Keys], names: list[str | None]
    ) -> Iterator[pa.RecordBatch]:
        """Chunks with the columns of the fields; ids and groups are put aside."""
        extra = [name for name in (ids, groups) if isinstance(name, str)]
        for chunk in source.chunks(list(dict.fromkeys([*self.part.columns, *extra])), _CHUNK):
            if isinstance(ids, str):
                keys.append(read_keys(chunk.column(ids), f"ids, column {ids!r}"))
            if isinstance(groups, str):
                names += read_groups(chunk.column(groups), f"groups, column {groups!r}")
            yield chunk.select(list(self.part.columns))

    def _fold(self, watch: Watch, chunk: pa.RecordBatch) -> _Block:
        """Some items as they are stored, and their offsets."""
        slots = self.part.encode(chunk, watch)
        parts: list[Any] = []
        offsets: list[Float32] = []
        maxima = Maxima.none(len(self.meter.maxima.size))
        for at in range(0, len(slots), BLOCK):
            block = slots[at : at + BLOCK]
            side = self.split.item_side(block)
            check_finite(side.vectors, side.own, "an item", self.store.dtype)
            parts.append(self.store.pack(block, side.vectors))
            offsets.append(side.own.astype(np.float32))
            maxima.update(self.meter.measure(side, parts[-1]))
        return _Block(self.store.join(parts), np.concatenate(offsets), maxima)

    def _replaced(self, keys: Keys, replace: bool) -> Rows:
        """Rows whose place new items take; raise where one is there that should not be, or the other way round."""
        self.ids.check(keys, "ids")
        repeated = first_repeated(keys)
        if repeated >= 0:
            raise ValueError(f"ids: {keys.named(repeated)!r} is there twice; every item needs an id of its own")
        if replace:
            return self._present(keys)
        known = np.flatnonzero(self.ids.find(keys) >= 0)
        if len(known):
            raise ValueError(f"ids: the index has {keys.named(int(known[0]))!r} already; to replace items use update")
        return np.zeros(0, np.int64)

    def _present(self, keys: Keys) -> Rows:
        """Rows of ids, all of which must be there."""
        self.ids.check(keys, "ids")
        rows = self.ids.find(keys)
        absent = np.flatnonzero(rows < 0)
        if len(absent):
            more = f" (and {len(absent) - 1:,} more)" if len(absent) > 1 else ""
            raise ValueError(f"ids: {keys.named(int(absent[0]))!r}{more} is not in the index; to add items use add")
        return rows


def check_finite(vectors: Array, own: Array, what: str, dtype: str = "float32") -> None:
    """Raise where a number cannot be stored."""
    largest, limit = np.abs(vectors).max(initial=0.0), np.finfo(np.float32).max
    if not (largest <= limit and np.abs(own).max(initial=0.0) <= limit):
        raise ValueError(f"the vector of {what} is not finite: the parameters of the model are not sound; fit it anew")
    if dtype == "float16" and largest > np.finfo(np.float16).max:
        raise ValueError(f"the vector of {what} has the number {largest:.3g}, too large for float16; use float32")


def _one_blas_thread(source: Table) -> AbstractContextManager[object]:
    """Chunks are folded by several threads; if each product took several as well, they would wait for each other."""
    if source.n_rows is not None and source.n_rows <= _CHUNK:  # one chunk, and looking for libraries takes a while
        return nullcontext()
    try:
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]  # comes with scikit-learn
    except ImportError:
        return nullcontext()
    return threadpool_limits(1, user_api="blas")  # type: ignore[no-any-return]  # as above


def _check_lengths(staged: Staged) -> None:
    for what, values in (("ids", staged.keys), ("groups", staged.groups)):
        if values is not None and len(values) != len(staged.rows):
            raise ValueError(
                f"{what} has {len(values):,} values, items has {len(staged.rows):,} rows; give one for each item"
            )
