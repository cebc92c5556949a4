"""Slots: what crosses from data to model, and the layout that says how to read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from splinefm._arrays import Array, Float32Array, IndexArray, Int32Array, Int64Array
from splinefm._cached import cached_property
from splinefm._memory import check_memory
from splinefm.encode.tables.names import counted

if TYPE_CHECKING:
    import scipy.sparse

MAX_FEATURES = np.iinfo(np.int32).max


@dataclass(frozen=True)
class FieldLayout:
    """How one field's slots are laid out.

    Parameters
    ----------
    name : str
        Name of the field.
    n_features : int
        Features of the field: rows of the parameter table.
    widths : tuple of int
        Weights per window.
    units : tuple of int
        For each window the unit, counted from 0 inside the field, that it is summed into.
    """

    name: str
    n_features: int
    widths: tuple[int, ...]
    units: tuple[int, ...]


@dataclass(frozen=True)
class SlotLayout:
    """Fields laid end to end: which features, windows and units belong to which field.

    A row of data activates *windows* of neighboring features. All windows of a *unit* are summed into
    one vector; a field has one unit (sum reduction) or one per active feature (identity reduction).

    Parameters
    ----------
    fields : tuple of FieldLayout
        The fields, in schema order.
    apart : tuple of pairs of int
        Pairs f < e of fields whose units must not interact: training keeps what is between them at zero.

    Examples
    --------
    >>> layout = SlotLayout((FieldLayout("price", 8, (4,), (0,)), FieldLayout("country", 3, (1,), (0,))))
    >>> layout.n_features, layout.feature_ptr.tolist(), layout.weight_ptr.tolist()
    (11, [0, 8, 11], [0, 4, 5])
    """

    fields: tuple[FieldLayout, ...]
    apart: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if self.n_features > MAX_FEATURES:
            largest = max(self.fields, key=lambda field: field.n_features)
            raise ValueError(
                f"the fields need {self.n_features:,} features, at most {MAX_FEATURES:,} are possible; "
                f"{largest.name!r} alone needs {largest.n_features:,}: give it fewer basis functions or buckets, "
                "or raise its min_count"
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the fields."""
        return tuple(field.name for field in self.fields)

    @property
    def n_features(self) -> int:
        """Features of all fields: rows of the parameter table."""
        return sum(field.n_features for field in self.fields)

    @property
    def n_windows(self) -> int:
        """Windows per row of data."""
        return sum(len(field.widths) for field in self.fields)

    @property
    def n_weights(self) -> int:
        """Weights per row of data."""
        return sum(sum(field.widths) for field in self.fields)

    @property
    def n_units(self) -> int:
        """Units, the vectors that interact, per row of data."""
        return sum(max(field.units) + 1 for field in self.fields)

    @cached_property
    def apart_indices(self) -> tuple[IndexArray, IndexArray]:
        """The fields f and e of all pairs apart, in both orders."""
        pairs = np.array(self.apart, np.intp).reshape(-1, 2)
        return np.concatenate([pairs[:, 0], pairs[:, 1]]), np.concatenate([pairs[:, 1], pairs[:, 0]])

    @cached_property
    def feature_ptr(self) -> Int32Array:
        """Field f has features `feature_ptr[f]` to `feature_ptr[f + 1] - 1`."""
        return offsets(field.n_features for field in self.fields)

    @cached_property
    def window_ptr(self) -> Int32Array:
        """Field f has windows `window_ptr[f]` to `window_ptr[f + 1] - 1`."""
        return offsets(len(field.widths) for field in self.fields)

    @cached_property
    def weight_ptr(self) -> Int32Array:
        """Window w has weights `weight_ptr[w]` to `weight_ptr[w + 1] - 1`."""
        return offsets(width for field in self.fields for width in field.widths)

    @cached_property
    def window_unit(self) -> Int32Array:
        """The unit that each window is summed into."""
        first = offsets(max(field.units) + 1 for field in self.fields)
        return np.array([first[f] + unit for f, field in enumerate(self.fields) for unit in field.units], np.int32)

    @cached_property
    def unit_field(self) -> Int32Array:
        """The field that each unit belongs to."""
        units = [max(field.units) + 1 for field in self.fields]
        return np.repeat(np.arange(len(units), dtype=np.int32), units)


@dataclass(frozen=True, eq=False)
class Slots:
    """Encoded rows: window w of row i has features `start[i, w] + j` with weights `weight[i, weight_ptr[w] + j]`.

    Parameters
    ----------
    start : array of int32, shape (n, windows)
        First feature of each window.
    weight : array of float32, shape (n, weights)
        Weights of the windows, end to end.
    layout : SlotLayout
        Maps windows to units and units to fields.
    offset : array of float32, shape (n,), optional
        What is added to the scores of the rows; None for a model without an offset.

    Examples
    --------
    >>> import splinefm as sf
    >>> slots = sf.fit_encoder(sf.Schema([sf.Categorical("c")]), {"c": ["a", "b", "a"]}).encode({"c": ["b", None]})
    >>> slots.start.tolist(), slots.weight.tolist()
    ([[3], [0]], [[1.0], [1.0]])
    """

    start: Int32Array
    weight: Float32Array
    layout: SlotLayout
    offset: Float32Array | None = None

    def __repr__(self) -> str:
        return f"Slots({len(self):,} rows, {counted('field', [item.name for item in self.layout.fields])})"

    def __len__(self) -> int:
        return len(self.start)

    def __getitem__(self, rows: slice | Array) -> Slots:
        """Slots of some rows; a slice shares memory."""
        offset = None if self.offset is None else self.offset[rows]
        return Slots(self.start[rows], self.weight[rows], self.layout, offset)

    def add_offset(self, scores: Float32Array) -> Float32Array:
        """Scores of the rows with their offset, if they have one."""
        return scores if self.offset is None else scores + self.offset

    def grown(self, layout: SlotLayout) -> Slots:
        """The same rows for a layout whose fields have more features at their ends."""
        windows = np.diff(self.layout.window_ptr)
        moved = np.repeat(layout.feature_ptr[:-1] - self.layout.feature_ptr[:-1], windows)
        return replace(self, start=self.start + moved, layout=layout)

    def compact(self) -> tuple[Int64Array, Slots]:
        """The features that some rows use, sorted, and the rows on a table that has only these.

        Neighbors stay neighbors, because all features of a window are used. For tables of parameters that are not in
        memory.
        """
        layout = self.layout
        # Starts first, window by window: the same ones recur, and sorting all features takes four times as long.
        distinct = [np.unique(column, return_inverse=True) for column in self.start.T]
        widths = np.diff(layout.weight_ptr).tolist()
        used = [starts[:, None] + np.arange(n) for (starts, _), n in zip(distinct, widths, strict=True)]
        features = np.unique(np.concatenate([windows.ravel() for windows in used]))
        sizes = np.diff(np.searchsorted(features, layout.feature_ptr)).tolist()
        small = [replace(field, n_features=size) for field, size in zip(layout.fields, sizes, strict=True)]
        start = np.empty_like(self.start)
        for w, (starts, inverse) in enumerate(distinct):
            start[:, w] = np.searchsorted(features, starts)[inverse]
        return features.astype(np.int64), replace(self, start=start, layout=SlotLayout(tuple(small)))

    def matrix(self) -> scipy.sparse.csr_array:
        """The encoding as a sparse matrix, shape (n, features), for models from elsewhere."""
        from scipy.sparse import csr_array

        columns = expand_windows(self.start, np.diff(self.layout.weight_ptr))
        row_ptr = np.arange(len(self) + 1) * self.layout.n_weights
        # A copy: the lines below rearrange the values in place.
        matrix = csr_array((self.weight.flatten(), columns.ravel(), row_ptr), shape=(len(self), self.layout.n_features))
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
        return matrix


def empty_slots(n: int, layout: SlotLayout) -> Slots:
    """Slots for n rows, with arbitrary content."""
    needed = 4 * n * (layout.n_windows + layout.n_weights)
    check_memory(needed, f"a table of {n:,} encoded rows", "use fewer rows or columns, or bases with fewer functions")
    return Slots(np.empty((n, layout.n_windows), np.int32), np.empty((n, layout.n_weights), np.float32), layout)


def concatenate_slots(parts: Sequence[Slots]) -> Slots:
    """The rows of several slots, which must share one layout, and must all have an offset or none."""
    offset = [part.offset for part in parts if part.offset is not None]
    if len(offset) not in (0, len(parts)):
        raise ValueError("some of these rows have an offset and others have none")
    return Slots(
        np.concatenate([part.start for part in parts]),
        np.concatenate([part.weight for part in parts]),
        parts[0].layout,
        np.concatenate(offset) if offset else None,
    )


def offsets(sizes: Iterable[int]) -> Int32Array:
    """0, s0, s0 + s1, ..."""
    return np.concatenate([[0], np.cumsum(list(sizes), dtype=np.int64)]).astype(np.int32)


def expand_windows(start: Int32Array, widths: Sequence[int] | Int32Array) -> Int32Array:
    """The feature of every weight: starts of windows repeated, plus the position inside the window.

    Examples
    --------
    >>> expand_windows(np.array([[3, 8]], np.int32), (2, 1))
    array([[3, 4, 8]], dtype=int32)
    """
    inside = np.concatenate([np.arange(width, dtype=np.int32) for width in widths])
    features: Int32Array = np.repeat(start, widths, axis=1) + inside
    return features
