"""The two sides of a ranking: fields of items and of contexts, their encoding, and the vectors of contexts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any, cast

import numpy as np
import pyarrow as pa

from splinefm._arrays import Float32Array, FloatArray, Int32Array
from splinefm._cached import cached_property
from splinefm._core import ContextSide, ContextSlots, QueryMap, map_queries
from splinefm._wording import for_reader
from splinefm.encode.drift import Watch
from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.categorical import MultiValued
from splinefm.encode.plans import RowFields
from splinefm.encode.schema import AnyField, Single
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.encode.tables.arrow import convert_column
from splinefm.encode.tables.names import missing_column_message, nearest_hint, quoted
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.table import Table
from splinefm.model.scores import row_padding, row_params
from splinefm.model.split import MapArrays, Split, map_arrays
from splinefm.train.fitted import Fitted


class ContextQueries:
    """Vectors of contexts, and the constants that they add to all scores, to the bit as in the C library.

    `Split.context_side` is the formula.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"user": ["a", "b"] * 50, "ad": ["x", "y", "y", "z"] * 25, "click": [0, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", model=sf.FM(k=2), training=sf.Training(epochs=1, threads=1))
    >>> split = Split(fitted.model, fitted.params, fitted.encoder.layout, items=(1,))
    >>> queries, constants = ContextQueries(split)(split.part(fitted.encoder.encode(table), (0,)))
    >>> queries.shape, constants.shape
    ((100, 2), (100,))
    """

    def __init__(self, split: Split) -> None:
        self.split = split

    def __call__(self, slots: Slots) -> tuple[Float32Array, Float32Array]:
        """Queries of shape (n, length) and constants; raise if one is not finite."""
        queries = np.zeros((len(slots), self.split.length), np.float32)
        constants = np.full(len(slots), self.split.bias, np.float32)
        finite = bool(np.isfinite(constants).all())
        if self.split.context:
            start, weight = np.ascontiguousarray(slots.start), np.ascontiguousarray(slots.weight)
            finite = self._side.queries(start, weight, queries, constants)
        if not finite:
            raise ValueError(
                "the vector of a context is not finite: the model's parameters contain NaN or infinity; refit it"
            )
        return queries, constants

    def feature_queries(self, queries: Float32Array) -> list[Float32Array]:
        """For each field of an item, what multiplies the numbers of its features; see `Split.feature_queries`."""
        out = []
        for own in self.item_maps:
            out.append(np.zeros((len(queries), own.length), np.float32))
            map_queries(own.blocks, own.weights, np.ascontiguousarray(queries), out[-1])
        return out

    @cached_property
    def context_map(self) -> MapArrays:
        """The map from sums of units, as they are in `row_tables`, to a query."""
        split, n_fields = self.split, len(self.split.layout.fields)
        padding = row_padding(split.model, n_fields)
        return map_arrays(split.context_blocks(), split.length, padding.padded_width, padding.columns)

    @cached_property
    def item_maps(self) -> list[MapArrays]:
        """For each field of an item, the map from a query to what multiplies its features."""
        split = self.split
        sizes = [len(split.feature_columns(f)) for f in split.items]
        every = np.arange(split.length)
        return [
            map_arrays(blocks, n, split.length, every) for blocks, n in zip(split.item_blocks(), sizes, strict=True)
        ]

    @cached_property
    def _side(self) -> ContextSide:
        split, n_fields = self.split, len(self.split.layout.fields)
        layout = SlotLayout(tuple(split.layout.fields[f] for f in split.context))
        blocks, weights, length = self.context_map
        return ContextSide(
            slots=ContextSlots(
                weight_ptr=np.ascontiguousarray(layout.weight_ptr, np.int32),
                window_unit=np.ascontiguousarray(layout.window_unit, np.int32),
                unit_field=np.ascontiguousarray(split.context_units, np.int32),
                n_fields=n_fields,
                n_features=split.layout.n_features,
            ),
            params=row_params(split.model, split.params, n_fields),
            map=QueryMap(blocks=blocks, weights=weights, products=split.products, length=length),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_side"}


class FieldSubset:
    """Some fields of a model: reads their columns and encodes them with the features of the full model."""

    def __init__(self, fitted: Fitted, fields: tuple[int, ...]) -> None:
        full = fitted.encoder
        self.types = full.schema.column_types()
        self.fields = tuple(full.fields[f] for f in fields)
        self.names = tuple(item.name for item in self.fields)
        self.columns = tuple(dict.fromkeys(name for item in self.fields for name in item.columns))
        self.other_columns = tuple(name for name in full.schema.columns if name not in self.columns)
        self.layout = SlotLayout(tuple(item.layout for item in self.fields))
        self.first_feature = full.layout.feature_ptr[list(fields)] if fields else np.zeros(0, np.int32)
        windows = np.diff(self.layout.window_ptr)
        self.shift = np.repeat(self.first_feature - self.layout.feature_ptr[:-1], windows).astype(np.int32)
        provenance = {name: full.provenance[name] for name in self.names}
        counts = tuple(full.feature_counts[f] for f in fields)
        self.encoder = Encoder(self.fields, full.n_rows, provenance, counts, ranges=full.ranges[list(fields)])

    def open(self, table: object, what: str, more: Mapping[str, pa.DataType] | None = None) -> Table:
        """Open a table, which must have the columns of all fields; `more` are types of other columns."""
        source = open_table(table, types={**(more or {}), **self.types})
        for name in self.columns:
            if name not in source.names:
                raise ValueError(f"{what}: {missing_column_message(name, source.names)}")
        return source

    def encode(self, table: object, watch: Watch | None = None) -> Slots:
        """Encode a table."""
        if not self.fields:  # an encoder needs at least one field
            n = _count_rows(open_table(table))
            return Slots(np.zeros((n, 0), np.int32), np.zeros((n, 0), np.float32), self.layout)
        slots = self.encoder.encode(table, threads=1, watch=watch)
        np.add(slots.start, self.shift, out=slots.start)
        return slots

    def encode_any(self, context: object) -> Slots:
        """Encode a dict of values or a table."""
        if isinstance(context, Mapping):
            missing = [name for name in self.columns if name not in context]
            if missing:
                raise ValueError(
                    f"the context has no {quoted(missing)}; give a value for every field "
                    f"({quoted(self.columns)}), or None if it is missing"
                )
            if is_row(self.fields, context):
                self._refuse_others(context)
                return self.encode_row(context)
        watch = Watch(self.encoder)
        slots = self.encode(self.open(context, "the context"), watch)
        watch.warn()
        return slots

    def _refuse_others(self, context: Mapping[str, object]) -> None:
        """Raise where one context, which has a value for every column, has others: they would change nothing."""
        if len(context) == len(self.columns):
            return
        name = next(name for name in context if name not in self.columns)
        if name in self.other_columns:
            raise ValueError(
                f"the context has {name!r}, which is a column of the items, and their values are used; leave it out "
                "of the context, or out of the items"
            )
        raise ValueError(
            f"the context has {name!r}, which no field reads{nearest_hint(name, self.columns)}; "
            + (f"it takes {quoted(self.columns)}" if self.columns else "all fields belong to the items: give {}")
        )

    def check_row(self, values: Mapping[str, object]) -> None:
        """Raise unless a dict has one value for every column, so that `encode_any` does not take it for a table."""
        plain = [item for item in self.fields if not item.holds_lists]
        several = [item.name for item in plain if not is_row([item], values)]
        if several or not is_row(self.fields, values):
            raise ValueError(
                f"a context has one value for every column, got several of {quoted(several or self.columns)}; "
                "ask for one context at a time"
            )

    def encode_row(self, values: Mapping[str, object]) -> Slots:
        """Encode one row, without a table, which would take longer than everything else."""
        try:
            features, weights, ends, owners = self._row_fields.encoder.encode(
                values, self._row_fields.columns, self._row_fields.readers
            )
        except Exception:  # encoding columns of one value raises a clear message
            return self._encode_columns(values)
        field = np.repeat(owners, np.diff(ends))
        index = self.layout.weight_ptr[self.layout.window_ptr[field]] + np.arange(len(field))
        index -= np.searchsorted(field, field)  # in each field, terms are counted from 0
        feature, weight = self._default_features.copy(), np.zeros((1, self.layout.n_weights), np.float32)
        feature[index], weight[0, index] = features, weights
        return Slots(feature[None, self.layout.weight_ptr[:-1]], weight, self.layout)

    @cached_property
    def _row_fields(self) -> RowFields:
        return RowFields(self.fields, self.first_feature.tolist())

    @cached_property
    def _default_features(self) -> Int32Array:
        """A feature of the field for every weight, used for weights that are zero."""
        n_weights = [sum(item.layout.widths) for item in self.fields]
        return np.repeat(self.first_feature, n_weights).astype(np.int32)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_row_fields"}

    def _encode_columns(self, values: Mapping[str, object]) -> Slots:
        starts, weights = [np.zeros((1, 0), np.int32)], [np.zeros((1, 0))]
        for item, first in zip(self.fields, self.first_feature, strict=True):
            start, weight = _encode_one(item, values)
            starts.append(start + first)
            weights.append(weight)
        return Slots(
            np.concatenate(starts, axis=1, dtype=np.int32),
            np.concatenate(weights, axis=1, dtype=np.float32),
            self.layout,
        )


def is_row(fields: Sequence[AnyField], values: Mapping[str, object]) -> bool:
    """Whether a dict has one value per field, not a column. A list is a value of a multi-valued field only.

    Examples
    --------
    >>> tags = MultiValued("tags")
    >>> is_row([tags], {"tags": ["a", "b"]}), is_row([tags], {"tags": [["a", "b"], ["c"]]})
    (True, False)
    """
    for item in fields:
        if not item.holds_lists:
            return not any(_is_column(values[name]) for name in item.columns)
    for item in fields:
        if isinstance(item, MultiValued) and _is_column(value := values[item.column]):
            # A column of lists, or of text to split.
            return not any(_is_column(part) or item.separator is not None for part in cast(Iterable[object], value))
    return True


def _is_column(value: object) -> bool:
    if isinstance(value, str | bytes | Mapping):
        return False
    known = isinstance(value, Sequence | Set | np.ndarray | pa.Array | pa.ChunkedArray)
    return known or (hasattr(value, "__array__") and getattr(value, "ndim", 0) > 0)


def _encode_one(item: AnyField, values: Mapping[str, object]) -> tuple[Int32Array, FloatArray]:
    """Features inside the field and weights of one row."""
    return item.encode(item.as_input([_one_column(single, values[single.column]) for single in item.singles]))


def _one_column(item: Single, value: object) -> pa.Array:
    """A value as an Arrow column of one row."""
    if _is_column(value):
        if not item.holds_lists:
            raise ValueError(
                f"a context must have one value per field, but {item.name!r} is {type(value).__name__} {value!r}; "
                "for several contexts, give a table with a list for every field"
            )
        value = value.tolist() if hasattr(value, "tolist") else list(cast(Iterable[object], value))
    return convert_column(item.column, [value])


def _count_rows(source: Table) -> int:
    if source.n_rows is not None:
        return source.n_rows
    return sum(chunk.num_rows for chunk in source.chunks(source.names[:1]))


def fields_of_items(fitted: Fitted, names: Sequence[str]) -> tuple[int, ...]:
    """Numbers of the fields whose columns are columns of the items; raise where a cross has only some of them."""
    found = []
    for f, item in enumerate(fitted.encoder.fields):
        of_item = [name for name in item.columns if name in names]
        if 0 < len(of_item) < len(item.columns):
            of_context = [name for name in item.columns if name not in names]
            raise ValueError(
                f"the cross {item.name!r} joins {quoted(of_item)} of the items with {quoted(of_context)} of the "
                "context: no vector of an item serves all contexts, so the items cannot be indexed. "
                "Fit the model without this cross"
                + for_reader(" (training with crosses=None, or a schema without it)", " (--crosses none)")
                + f", or score all items for each context with {for_reader('fitted.scores', 'splinefm predict')}"
                + ", which takes one row per item and context"
            )
        if of_item:
            found.append(f)
    if not found:
        raise ValueError(
            f"items must have at least one of the model's fields, {quoted(fitted.encoder.schema.names)}; "
            f"its columns: {quoted(names)}"
        )
    return tuple(found)
