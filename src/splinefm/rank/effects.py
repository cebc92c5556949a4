"""Items as the features that they have: what each row adds to a score is computed once for a context.

Where the vector of an item is a sum over its features, so is its product with the vector of a context:

    score(context, item) = constant(context) + offset(item) + Σ weight · effect(row), effect(row) = query · vector(row)

An item is then a number for each category and a few weights for each numerical field, however long vectors are, and a
request computes the effects of all features that items have before it sums up those of each item.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from splinefm._core import TOGETHER, TopK
from splinefm.encode.bases.bins import Bins
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.multivalued import MultiValued
from splinefm.encode.schema import Field
from splinefm.encode.slots import MAX_FEATURES, SlotLayout, Slots, concatenate_slots
from splinefm.model.split import Split
from splinefm.rank.store import STEP, Array, Filter, Float32, FloatArray, Panels, Rows, Store

# A looked-up effect takes as long as so many float32 numbers of vectors that are read one after the other.
_LOOKUP = 4
# Small catalogs are fast in either form, but they may grow.
_LEAST_ITEMS = 100_000
_BLOCK = 1024  # items whose vectors are in memory in float64 at a time

IntArray = npt.NDArray[np.int32]


def effects_pay(split: Split, n_items: int | None) -> bool:
    """Whether a request for the best of some items (None: of many) takes less time with effects than with vectors.

    Either form reads memory from end to end, and that is its time. Vectors: `length` numbers an item. Effects: a few
    numbers an item, which lead to as many effects in a cache, and before that the numbers of all features in use.
    Every row may be in use, but not more of them than items have.
    """
    n, rows, lookups = max(n_items or 0, _LEAST_ITEMS), 0, 0
    for f in split.items:
        layout = split.layout.fields[f]
        rows += min(layout.n_features, n * sum(layout.widths)) * len(split.row_columns(f))
        lookups += n * sum(layout.widths)
    return split.is_linear and rows + _LOOKUP * lookups < n * split.length


class Table:
    """The rows of a field's table that items have, each with the numbers that meet a context.

    A field whose windows have one row each gets the rows that are in use only, and one in front of them that stands for
    none. Windows of several rows need them in their order: their fields, which have few, keep all.

    Parameters
    ----------
    factors : array of shape (rows, width)
        Of all fields.
    first, n_rows : int
        Which of them are the field's.
    columns : array of int
        The numbers of a row that meet a context.
    is_compact : bool
        Whether only the rows in use are kept.
    """

    def __init__(self, factors: Float32, first: int, n_rows: int, columns: Array, is_compact: bool) -> None:
        self.factors, self.first, self.n_field_rows = factors, first, n_rows
        self.columns, self.is_compact = columns, is_compact
        self.panels = Panels(len(columns), np.float32)
        self.rows: Rows = np.zeros(0, np.int64)  # of the field, -1 for none
        self._numbers: IntArray | None = None  # places in `rows` by row of the field, -1 where it is not in use
        self._append(np.array([-1]) if is_compact else np.arange(n_rows))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def n_kernel_rows(self) -> int:
        """Rows that kernels look at."""
        return -(-len(self) // STEP) * STEP

    def restore(self, rows: Rows, values: Float32) -> None:
        """Take over rows in use and their numbers."""
        self.rows, self.panels.values, self._numbers = rows, values, None

    def places(self, start: IntArray, weight: Float32) -> IntArray:
        """Places of rows of the whole table, which are added where they are not in use yet."""
        if not self.is_compact:
            return start - np.int32(self.first)
        own = np.where(weight == 0.0, -1, start - self.first)
        if self._numbers is None:
            self._numbers = np.full(self.n_field_rows + 1, -1, np.int32)  # the last place is that of -1
            self._numbers[self.rows] = np.arange(len(self))
        places = self._numbers[own]
        if (places < 0).any():
            self._append(np.unique(own[places < 0]))
            places = self._numbers[own]
        return places

    def starts(self, places: IntArray) -> tuple[IntArray, npt.NDArray[np.bool_]]:
        """Rows of the whole table, and whether there is one."""
        own = self.rows[places]
        return (self.first + np.maximum(own, 0)).astype(np.int32), own >= 0

    def _append(self, rows: Rows) -> None:
        n = len(self)
        if n + len(rows) > self.panels.capacity:
            self.panels.resize(max(n + len(rows), 2 * self.panels.capacity))
        numbers = self.factors[self.first + np.maximum(rows, 0)][:, self.columns]
        self.panels.write(np.arange(n, n + len(rows)), np.where(rows[:, None] < 0, np.float32(0.0), numbers))
        self.rows = np.concatenate([self.rows, rows])
        if self._numbers is not None:
            self._numbers[rows] = np.arange(n, n + len(rows))


class Effects(Store):
    """The features of each item, and the tables that they point into.

    Parameters
    ----------
    split : Split
        The model; its `is_linear` must hold.
    fields : tuple of Field
        Those of an item.
    """

    form = "effects"
    dtype = "float32"

    def __init__(self, split: Split, fields: tuple[Field, ...]) -> None:
        self.split, self.layout = split, SlotLayout(tuple(item.layout for item in fields))
        self.tables = [self._table(f, item) for f, item in zip(split.items, fields, strict=True)]
        # All weights of a field of categories are 1, or 0 where nothing stands: they need not be kept.
        kept = [np.full(sum(item.layout.widths), _has_weights(item)) for item in fields]
        self.kept = np.flatnonzero(np.concatenate(kept))
        self.lists = [i for i, item in enumerate(fields) if isinstance(item, MultiValued)]
        self.starts, self.weights = Panels(self.layout.n_windows, np.int32), Panels(len(self.kept), np.float32)
        super().__init__(self.starts, self.weights)

    def _table(self, f: int, item: Field) -> Table:
        first, n_rows, factors = (
            int(self.split.layout.feature_ptr[f]),
            item.layout.n_features,
            self.split.params["factors"],
        )
        return Table(factors, first, n_rows, self.split.row_columns(f), set(item.layout.widths) == {1})

    @property
    def numbers_per_item(self) -> int:
        """Starts and weights that an item has."""
        return self.layout.n_windows + len(self.kept)

    def pack(self, slots: Slots, vectors: FloatArray) -> Slots:
        """Slots as they are, but for the order inside lists: equal items must have equal scores."""
        start, weight = slots.start, slots.weight
        parts = self._parts()
        for _, windows, weights in (parts[i] for i in self.lists):
            order = np.argsort(
                np.where(weight[:, weights] == 0.0, MAX_FEATURES, start[:, windows]), axis=1, kind="stable"
            )
            start[:, windows] = np.take_along_axis(start[:, windows], order, axis=1)
            weight[:, weights] = np.take_along_axis(weight[:, weights], order, axis=1)
        return slots

    def join(self, parts: list[Slots]) -> Slots:
        """The items of several parts."""
        return concatenate_slots(parts)

    def write(self, rows: Rows, packed: Slots) -> None:
        """Put items into reserved rows, and what they point at into the tables."""
        places = np.empty_like(packed.start)
        for table, windows, weights in self._parts():
            places[:, windows] = table.places(packed.start[:, windows], packed.weight[:, weights])
        self.starts.write(rows, places)
        self.weights.write(rows, packed.weight[:, self.kept])

    def vectors(self, rows: Rows) -> Float32:
        """The vectors of rows, made anew."""
        out = np.empty((len(rows), self.split.length), np.float32)
        for at in range(0, len(rows), _BLOCK):
            part = slice(at, at + _BLOCK)
            out[part] = self.split.item_vectors(self._slots(rows[part]))
        return out

    def _slots(self, rows: Rows) -> Slots:
        """The slots that were written."""
        places, start = self.starts.read(rows), np.empty((len(rows), self.layout.n_windows), np.int32)
        weight = np.ones((len(rows), self.layout.n_weights), np.float32)
        weight[:, self.kept] = self.weights.read(rows)
        for table, windows, weights in self._parts():
            start[:, windows], exists = table.starts(places[:, windows])
            if table.is_compact:
                weight[:, weights] *= exists
        return Slots(start, weight, self.layout)

    def _parts(self) -> list[tuple[Table, slice, slice]]:
        """Tables with their windows and weights."""
        windows = self.layout.window_ptr
        weights = self.layout.weight_ptr[windows]
        return [
            (table, slice(windows[i], windows[i + 1]), slice(weights[i], weights[i + 1]))
            for i, table in enumerate(self.tables)
        ]

    # Search

    def _items(self) -> TopK:
        layout, n_windows = self.layout, np.diff(self.layout.window_ptr)
        widths = np.diff(layout.weight_ptr)
        kept = np.zeros(layout.n_weights, bool)
        kept[self.kept] = True
        first_weights = layout.weight_ptr[:-1]
        windows = [
            np.repeat(self._first_effects()[:-1], n_windows),
            np.repeat([len(table) for table in self.tables], n_windows) - widths,
            widths,
            np.where(kept[first_weights], (np.cumsum(kept) - kept)[first_weights], -1),
        ]
        plan = np.stack(windows, axis=1).astype(np.int64)
        return TopK.effects(self.starts.values, self.weights.values, plan, self.offsets, self.n_kernel_rows)

    def _first_effects(self) -> Rows:
        """Where the effects of each table begin."""
        return np.cumsum([0, *(table.n_kernel_rows for table in self.tables)])

    def _requests(self, queries: Float32) -> Float32:
        """Effects of the rows of all tables, end to end, shape (rows, queries); several queries are filled up."""
        n = len(queries)
        queries = queries if n == 1 else queries[np.arange(TOGETHER) % n]
        first = self._first_effects()
        out = np.empty((first[-1], len(queries)), np.float32)
        parts = self.split.row_queries(queries.astype(np.float64))
        for table, part, at in zip(self.tables, parts, first, strict=False):
            TopK.effects_of(table.panels.values, table.n_kernel_rows, part.astype(np.float32), out[at:])
        return out

    def search(
        self, queries: Float32, constants: Float32, k: int, only: Filter, visit: Rows | None, threads: int
    ) -> list[tuple[Float32, Rows]]:
        """See `Store`."""
        few = len(queries) % TOGETHER  # a pass for many takes about as long as four for one
        alone = len(queries) - few if 2 * few <= TOGETHER else len(queries)
        found = super().search(queries[:alone], constants[:alone], k, only, visit, threads)
        for q in range(alone, len(queries)):
            found += super().search(queries[q : q + 1], constants[q : q + 1], k, only, visit, threads)
        return found

    def _batch(self, k: int) -> int:
        return TOGETHER


def _has_weights(item: Field) -> bool:
    """Whether weights of a field are other than 0 and 1."""
    if isinstance(item, MultiValued):
        return item.reduction == "mean"
    return not isinstance(item, Categorical) and not isinstance(item.basis, Bins)
