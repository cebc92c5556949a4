"""Items stored as their features: the effect of each feature on the score is computed once per context.

If the vector of an item is a sum over its features, so is its product with the vector of a context:

    score(context, item) = constant(context) + offset(item) + Σ weight · effect(feature)
    effect(feature) = query(context) · vector(feature)

An item is then an integer per category and a few weights per numerical field, regardless of the length of vectors. A
request first computes the effects of all features that items have, and then adds up the effects of each item.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from splinefm._arrays import Array, BoolArray, Float32Array, FloatArray, Int32Array
from splinefm._core import TOGETHER, TopK
from splinefm.encode.schema import AnyField
from splinefm.encode.slots import MAX_FEATURES, SlotLayout, Slots, concatenate_slots
from splinefm.model.split import MapArrays, Split
from splinefm.rank.sides import ContextQueries
from splinefm.rank.store import STEP, Filter, Form, Panels, Positions, Store
from splinefm.store.container import require, take_array
from splinefm.store.scorer_image import ImageWriter

# The lookup of an effect takes as long as reading this many consecutive float32 numbers of vectors.
_LOOKUP = 4
# Small catalogs are fast in either form, but they may grow.
_MIN_ITEMS = 100_000
_BLOCK = 1024  # items whose float64 vectors are in memory at a time

Features = npt.NDArray[np.int64]


def prefer_effects(split: Split, n_items: int | None) -> bool:
    """Whether a request for the best of `n_items` (None: many) items is faster with effects than with vectors.

    Both forms are bound by sequential memory reads. Vectors: `length` numbers per item. Effects: a few numbers per
    item, each with a lookup of an effect in a cache, and before that the numbers of all features in use. All features
    may be in use, but no more than items have.
    """
    n, reads, lookups = max(n_items or 0, _MIN_ITEMS), 0, 0
    for f in split.items:
        layout = split.layout.fields[f]
        reads += min(layout.n_features, n * sum(layout.widths)) * len(split.feature_columns(f))
        lookups += n * sum(layout.widths)
    return split.is_linear and reads + _LOOKUP * lookups < n * split.length


def choose_form(form: str, dtype: str, split: Split, n_items: int | None) -> Form:
    """The form to store items in."""
    if form == "effects":
        if dtype != "float32":
            raise ValueError(f'form="effects" needs dtype="float32", got {dtype!r}; use form="vectors"')
        if not split.is_linear:
            raise ValueError(
                f'form="effects" needs vectors that are sums over features, but {split.model} multiplies several '
                'features of an item; use form="vectors"'
            )
        return "effects"
    return "effects" if form == "auto" and dtype == "float32" and prefer_effects(split, n_items) else "vectors"


class FeatureTable:
    """The features of a field that items have, each with the numbers that are multiplied with a context.

    A compact table, of a field whose windows have width 1, has only the features in use, after a first one that stands
    for none. Wider windows need their features in order: these fields, which have few features, keep all.
    """

    def __init__(self, factors: Float32Array, first: int, n_features: int, columns: Array, is_compact: bool) -> None:
        self.factors, self.first, self.n_field_features = factors, first, n_features
        self.columns, self.is_compact = columns, is_compact
        self.panels = Panels(len(columns), np.float32)
        self.features: Features = np.zeros(0, np.int64)  # numbers within the field, -1 for none
        self._indices: Int32Array | None = None  # index in `features` by feature of the field, -1 if not in use
        self._append(np.array([-1]) if is_compact else np.arange(n_features))

    def __len__(self) -> int:
        return len(self.features)

    @property
    def n_padded(self) -> int:
        """Number of features that kernels read, a multiple of STEP."""
        return -(-len(self) // STEP) * STEP

    def restore(self, values: Array, features: Features, number: int) -> None:
        """Take the features in use and their numbers from a file."""
        known = (features[1:] >= 0) & (features[1:] < self.n_field_features)
        is_valid = len(features) > 0 and features[0] == -1 and bool(known.all())
        is_valid = is_valid and len(np.unique(features)) == len(features)
        require(is_valid, f"table {number} has features unknown to the model")
        self.panels.restore(values)
        require(len(features) <= self.panels.capacity, f"table {number} is truncated")
        self.features, self._indices = features, None

    def find_or_add(self, start: Int32Array, weight: Float32Array) -> Int32Array:
        """Indices of features of the model, which are added if they are not in use yet."""
        if not self.is_compact:
            return start - np.int32(self.first)
        wanted = np.where(weight == 0.0, -1, start - self.first)
        if self._indices is None:
            self._indices = np.full(self.n_field_features + 1, -1, np.int32)  # the last element is for -1
            self._indices[self.features] = np.arange(len(self))
        indices = self._indices[wanted]
        if (indices < 0).any():
            self._append(np.unique(wanted[indices < 0]))
            indices = self._indices[wanted]
        return indices

    def starts(self, indices: Int32Array) -> tuple[Int32Array, BoolArray]:
        """Features of the model, and whether there is one."""
        features = self.features[indices]
        return (self.first + np.maximum(features, 0)).astype(np.int32), features >= 0

    def _append(self, features: Features) -> None:
        n = len(self)
        if n + len(features) > self.panels.capacity:
            self.panels.resize(max(n + len(features), 2 * self.panels.capacity))
        numbers = self.factors[self.first + np.maximum(features, 0)][:, self.columns]
        values = np.where(features[:, None] < 0, np.float32(0.0), numbers)
        self.panels.write(np.arange(n, n + len(features)), values)
        self.features = np.concatenate([self.features, features])
        if self._indices is not None:
            self._indices[features] = np.arange(n, n + len(features))


class EffectStore(Store):
    """Stores the features of each item, as indices into tables; for models whose vectors are sums over features."""

    form = "effects"
    dtype = "float32"

    def __init__(self, split: Split, fields: tuple[AnyField, ...], queries: ContextQueries) -> None:
        self.queries = queries
        self.split, self.layout = split, SlotLayout(tuple(item.layout for item in fields))
        self.tables = [self._table(f, item) for f, item in zip(split.items, fields, strict=True)]
        # All weights of a categorical field are 1, or 0 for none: they need not be stored.
        kept = [np.full(sum(item.layout.widths), not item.has_binary_weights) for item in fields]
        self.kept = np.flatnonzero(np.concatenate(kept))
        self.lists = [i for i, item in enumerate(fields) if item.holds_lists]
        self.starts, self.weights = Panels(self.layout.n_windows, np.int32), Panels(len(self.kept), np.float32)
        super().__init__(self.starts, self.weights)

    def _table(self, f: int, item: AnyField) -> FeatureTable:
        first, factors = int(self.split.layout.feature_ptr[f]), self.split.params["factors"]
        is_compact = set(item.layout.widths) == {1}
        return FeatureTable(factors, first, item.layout.n_features, self.split.feature_columns(f), is_compact)

    @property
    def numbers_per_item(self) -> int:
        """Number of starts and weights of an item."""
        return self.layout.n_windows + len(self.kept)

    def pack(self, slots: Slots, vectors: FloatArray) -> Slots:
        """Sort the elements of lists, so that equal items have equal scores."""
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
        """Concatenate items."""
        return concatenate_slots(parts)

    def write(self, positions: Positions, packed: Slots) -> None:
        """Write items to reserved positions, and their features to the tables."""
        indices = np.empty_like(packed.start)
        for table, windows, weights in self._parts():
            indices[:, windows] = table.find_or_add(packed.start[:, windows], packed.weight[:, weights])
        self.starts.write(positions, indices)
        self.weights.write(positions, packed.weight[:, self.kept])

    def vectors(self, positions: Positions) -> Float32Array:
        """The vectors at positions, recomputed."""
        out = np.empty((len(positions), self.split.length), np.float32)
        for at in range(0, len(positions), _BLOCK):
            part = slice(at, at + _BLOCK)
            out[part] = self.split.item_vectors(self._slots(positions[part]))
        return out

    def _slots(self, positions: Positions) -> Slots:
        """The slots that were written."""
        self.check_indices(positions)
        indices, start = self.starts.read(positions), np.empty((len(positions), self.layout.n_windows), np.int32)
        weight = np.ones((len(positions), self.layout.n_weights), np.float32)
        weight[:, self.kept] = self.weights.read(positions)
        for table, windows, weights in self._parts():
            start[:, windows], exists = table.starts(indices[:, windows])
            if table.is_compact:
                weight[:, weights] *= exists
        return Slots(start, weight, self.layout)

    def arrays(self) -> dict[str, Array]:
        """Features and weights as arrays of an index file."""
        n = self.n_positions
        arrays: dict[str, Array] = {"starts": self.starts.first(n).view(np.uint8), "weights": self.weights.first(n)}
        for i, table in enumerate(self.tables):
            if table.is_compact:  # others are copies of the model's parameters
                arrays[table_name(i)] = table.panels.first(len(table))
                arrays[f"table_rows/{i}"] = table.features
        return arrays

    def sections(self, writer: ImageWriter, positions: Positions) -> dict[str, Array]:
        """Features and weights at positions as sections of a scorer file."""
        self.check_indices(positions)
        features = [np.zeros(0, np.float32)]
        for table, own in zip(self.tables, self.queries.item_maps, strict=True):
            writer.integers(len(table), table.panels.size, own.length)
            write_map(writer, own)
            features.append(table.panels.first(len(table)).ravel())
        writer.array(self.windows(), np.int64)
        writer.integers(len(self.kept))
        starts, weights = self.starts.reordered(positions), self.weights.reordered(positions)
        return {"panels": starts, "weights": weights, "features": np.concatenate(features)}

    def check_numbers(self) -> None:
        """Raise for numbers that are not finite, and for features that do not exist."""
        self.check_indices(self.published())
        numbers = [self.weights.values, *(table.panels.values for table in self.tables)]
        require(all(bool(np.isfinite(part).all()) for part in numbers), "its vectors contain NaN or infinity")

    def _restore_items(self, tensors: dict[str, Array]) -> None:
        starts = take_array(tensors, "starts", "U8", 3)
        require(starts.shape[2] % self.starts.values.itemsize == 0, "a panel is truncated")
        self.starts.restore(starts.view(self.starts.values.dtype))  # the kernels check the bounds of the indices
        self.weights.restore(take_array(tensors, "weights", "F32", 3))
        sizes = [(part.values.shape[0], part.size) for part in (self.starts, self.weights)]
        require(sizes[0] == sizes[1], "indices and weights do not match")
        for i, table in enumerate(self.tables):
            if table.is_compact:
                table.restore(
                    take_array(tensors, table_name(i), "F32", 3), take_array(tensors, f"table_rows/{i}", "I64", 1), i
                )

    def check_indices(self, positions: Positions) -> None:
        """Raise unless the features of items exist; a mapped file is not verified when it is loaded."""
        sizes = np.repeat([len(table) for table in self.tables], np.diff(self.layout.window_ptr))
        last = sizes - np.diff(self.layout.weight_ptr)
        for at in range(0, len(positions), _BLOCK):
            indices = self.starts.read(positions[at : at + _BLOCK])
            if ((indices < 0) | (indices > last)).any():
                raise ValueError(
                    "the index is damaged: an item has a feature that its field does not have; "
                    "load the index again with mmap=False, or save it again"
                )

    def _parts(self) -> list[tuple[FeatureTable, slice, slice]]:
        """Tables with their slices of windows and weights."""
        windows = self.layout.window_ptr
        weights = self.layout.weight_ptr[windows]
        return [
            (table, slice(windows[i], windows[i + 1]), slice(weights[i], weights[i + 1]))
            for i, table in enumerate(self.tables)
        ]

    # Search

    def windows(self) -> npt.NDArray[np.int64]:
        """Of each window the first effect, the largest start, the number of weights, and the line of the first."""
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
        return np.stack(windows, axis=1).astype(np.int64)

    def _kernel(self) -> TopK:
        return TopK.effects(self.starts.values, self.weights.values, self.windows(), self.offsets, self.n_padded)

    def _first_effects(self) -> npt.NDArray[np.int64]:
        """Index of the first effect of each table."""
        return np.cumsum([0, *(table.n_padded for table in self.tables)])

    def _requests(self, queries: Float32Array) -> Float32Array:
        """Effects of the features of all tables, end to end, shape (features, queries); several queries are padded."""
        n = len(queries)
        queries = queries if n == 1 else queries[np.arange(TOGETHER) % n]
        first = self._first_effects()
        out = np.empty((first[-1], len(queries)), np.float32)
        parts = self.queries.feature_queries(queries)
        for table, part, at in zip(self.tables, parts, first, strict=False):
            TopK.effects_of(table.panels.values, table.n_padded, part, out[at:])
        return out

    def search(
        self,
        queries: Float32Array,
        constants: Float32Array,
        k: int,
        filter: Filter,
        panels: Positions | None,
        threads: int,
    ) -> list[tuple[Float32Array, Positions]]:
        """See `Store`."""
        n_rest = len(queries) % TOGETHER  # a pass for many queries takes about as long as four passes for one
        n_batched = len(queries) - n_rest if 2 * n_rest <= TOGETHER else len(queries)
        results = super().search(queries[:n_batched], constants[:n_batched], k, filter, panels, threads)
        for q in range(n_batched, len(queries)):
            results += super().search(queries[q : q + 1], constants[q : q + 1], k, filter, panels, threads)
        return results

    def _batch(self, k: int) -> int:
        return TOGETHER


def table_name(i: int) -> str:
    """The name of the table of field i of an item in index files."""
    return f"tables/{i}"


def write_map(writer: ImageWriter, own: MapArrays) -> None:
    """Add a map of vectors to a scorer file."""
    writer.array(own.blocks, np.int64)
    writer.array(own.weights, np.float64)
