"""Combinations of categories: counts that can be merged, and the ones that a cross keeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from splinefm._arrays import BoolArray, Int32Array, Int64Array
from splinefm._cached import cached_property
from splinefm.encode.tables.arrow import to_arrow, to_numpy
from splinefm.encode.tables.columns import Categories, one_array

# Of the hash: products of a feature and a multiplier stay below 2**62.
PRIME, MULTIPLIERS = 2_147_483_647, (1_000_003, 998_244_353, 1_367_130_551)


@dataclass(frozen=True, eq=False)
class Cells:
    """Combinations of features, one per row of an array, with a table that finds them.

    Parameters
    ----------
    features : array of int32, shape (cells, parts)
        The features of each part, inside its field.

    Examples
    --------
    >>> cells = Cells(np.array([[2, 1], [3, 3]], np.int32))
    >>> cells.find(np.array([[3, 3], [2, 2]], np.int32))
    array([ 1, -1], dtype=int32)
    """

    features: Int32Array

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
        return f"<{len(self):,} combinations>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cells) and np.array_equal(self.features, other.features)

    def __hash__(self) -> int:
        return hash((len(self), self.features[:1].tobytes()))

    def find(self, features: Int32Array) -> Int32Array:
        """Position of each combination, -1 where it is not kept."""
        if not len(self):
            return np.full(len(features), -1, np.int32)
        inside: BoolArray = np.all(features < self._sizes, axis=1)
        keys = self._keys(np.where(inside[:, None], features, 0))
        if self._direct is not None:
            found = self._direct[keys]
        else:
            ordered, order = self._sorted
            position = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
            found = np.where(ordered[position] == keys, order[position], np.int32(-1))
        return np.where(inside, found, np.int32(-1)).astype(np.int32)

    @cached_property
    def _sizes(self) -> Int64Array:
        return np.asarray(self.features.max(axis=0), np.int64) + 1

    def _keys(self, features: Int32Array) -> Int64Array:
        keys: Int64Array = features[:, 0].astype(np.int64)
        for part in range(1, features.shape[1]):
            keys = keys * self._sizes[part] + features[:, part]
        return keys.astype(np.int64, copy=False)

    @cached_property
    def _direct(self) -> Int32Array | None:
        """Position by key, where that is a small table."""
        n_keys = math.prod(self._sizes.tolist())
        if n_keys >= 1 << 63:
            raise ValueError(
                f"combinations of {' and '.join(f'{size:,}' for size in self._sizes)} categories cannot be told apart "
                "by 64 bits; give the cross buckets, such as buckets=1_000_000"
            )
        if n_keys > max(1 << 16, 8 * len(self)):
            return None
        table = np.full(n_keys, -1, np.int32)
        table[self._keys(self.features)] = np.arange(len(self), dtype=np.int32)
        return table

    @cached_property
    def _sorted(self) -> tuple[Int64Array, Int32Array]:
        keys = self._keys(self.features)
        order = np.argsort(keys, kind="stable").astype(np.int32)
        return keys[order], order

    def __getstate__(self) -> dict[str, Int32Array]:
        """The features, without what is derived from them on demand."""
        return {"features": self.features}


def listed_cells(cells: Sequence[Sequence[int]], name: str) -> Cells:
    """The combinations of a list of lists, as in a schema file."""
    try:
        features = np.array(list(cells))
        valid = not len(features) or (features.ndim == 2 and features.dtype.kind == "i" and features.min() >= 0)
        valid = valid and len(np.unique(features, axis=0)) == len(features) and features.max(initial=0) < 2**31
    except ValueError:  # lists of different lengths
        valid = False
    if not valid:
        raise ValueError(f"cells of cross {name!r} must be different lists of features, got {cells!s:.60}")
    return Cells(features.astype(np.int32) if len(features) else np.zeros((0, 2), np.int32))


def hash_cells(features: Int32Array, buckets: int) -> Int32Array:
    """A bucket for each combination of features, the same on every machine.

    Examples
    --------
    >>> hash_cells(np.array([[1, 2], [2, 1]], np.int32), 100)
    array([18, 15], dtype=int32)
    """
    total = np.zeros(len(features), np.int64)
    for part, multiplier in zip(features.T.astype(np.int64), MULTIPLIERS, strict=False):
        total = (total + (part + 1) * multiplier) % PRIME
    return (total % buckets).astype(np.int32)


@dataclass
class CellCounts:
    """Rows per combination of categories, exactly, from any number of pieces in any order.

    Examples
    --------
    >>> counts = CellCounts(2)
    >>> counts.update([Categories(pa.array(["a", "b", "a"], pa.large_string()), None)] * 2)
    >>> names, rows = counts.every()
    >>> sorted(zip(names[0].to_pylist(), rows.tolist()))
    [('a', 2), ('b', 1)]
    """

    n_parts: int
    pieces: list[pa.Table] = field(default_factory=list)

    def update(self, parts: Sequence[Categories]) -> None:
        """Add the rows of a chunk."""
        names, codes = zip(*map(_coded, parts), strict=True)
        key = np.zeros(len(codes[0]), np.int64)
        for part_names, part_codes in zip(names, codes, strict=True):
            key = key * (len(part_names) + 1) + (part_codes + 1)
        distinct, count = np.unique(key, return_counts=True)
        columns: dict[str, pa.Array] = {}
        for part in reversed(range(self.n_parts)):
            distinct, code = np.divmod(distinct, len(names[part]) + 1)
            known = pa.array(code - 1, mask=code == 0)
            columns[str(part)] = names[part].take(known)
        columns["count"] = to_arrow(count.astype(np.int64))
        self._add(pa.table(columns))

    def merge(self, other: CellCounts) -> None:
        """Add the rows of other counts."""
        for piece in other.pieces:
            self._add(piece)

    def every(self) -> tuple[list[pa.LargeStringArray], Int64Array]:
        """All combinations, one array of names per part with nulls for missing values, and their rows."""
        if not self.pieces:
            return [pa.nulls(0, pa.large_string())] * self.n_parts, np.zeros(0, np.int64)
        self._shrink()
        whole = self.pieces[0]
        return [one_array(whole[str(part)]) for part in range(self.n_parts)], to_numpy(one_array(whole["count"]))

    def _add(self, piece: pa.Table) -> None:
        self.pieces.append(piece)
        # Merging only when as much is pending as was merged before keeps the cost linear.
        if sum(part.num_rows for part in self.pieces[1:]) > max(1 << 16, self.pieces[0].num_rows):
            self._shrink()

    def _shrink(self) -> None:
        if len(self.pieces) > 1:
            whole = pa.concat_tables([piece.select(self._names) for piece in self.pieces])
            summed = whole.group_by(self._names[:-1], use_threads=False).aggregate([("count", "sum")])
            self.pieces = [summed.rename_columns([*self._names[:-1], "count"]).combine_chunks()]

    @property
    def _names(self) -> list[str]:
        return [*map(str, range(self.n_parts)), "count"]


@dataclass
class CrossStatistics:
    """What one pass over the columns of a cross keeps; statistics of parts of a table can be merged."""

    spec: Any
    n_rows: int = 0
    parts: list[Any] = field(init=False)
    cells: CellCounts = field(init=False)

    def __post_init__(self) -> None:
        self.parts = [part.collect() for part in self.spec.fields]
        self.cells = CellCounts(len(self.spec.categories))

    def update(self, columns: Sequence[pa.Array]) -> None:
        """Add the rows of a chunk."""
        for statistics, column in zip(self.parts, columns, strict=True):
            statistics.update(column)
        self.n_rows = self.parts[0].n_rows
        if self.spec.categories and self.spec.buckets is None:
            fields = self.spec.fields
            self.cells.update([fields[i].read(columns[i]) for i in self.spec.categories])

    def merge(self, other: CrossStatistics) -> None:
        """Add the rows of other statistics of the same field."""
        self.n_rows += other.n_rows
        for mine, theirs in zip(self.parts, other.parts, strict=True):
            mine.merge(theirs)
        self.cells.merge(other.cells)


def _coded(categories: Categories) -> tuple[pa.LargeStringArray, Int64Array]:
    """Distinct names, and the code of each row: -1 for missing values."""
    if categories.codes is not None:
        if len(categories.names) <= len(categories.codes):
            return categories.names, categories.codes.astype(np.int64)
        # The dictionary of a long column: keys of three of them may have more than 64 bits.
        used, codes = np.unique(np.maximum(categories.codes, 0), return_inverse=True)
        names = categories.names.take(to_arrow(used))
        return names, np.where(categories.codes < 0, -1, codes.ravel()).astype(np.int64)
    coded = categories.names.dictionary_encode()
    return coded.dictionary, to_numpy(coded.indices.cast(pa.int64()).fill_null(pa.scalar(-1, pa.int64())))
