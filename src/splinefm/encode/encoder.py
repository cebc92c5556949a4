"""Encoder: collects statistics in one mergeable pass, then encodes tables as slots."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from splinefm._arrays import FloatArray
from splinefm._cached import cached_property
from splinefm._memory import check_memory
from splinefm._parallel import count_threads, in_order, prefetch
from splinefm.encode.fields.categorical import CategoricalStatistics, MultiValuedStatistics
from splinefm.encode.fields.cross import Cross, CrossStatistics
from splinefm.encode.fields.numerical import NumericalStatistics, naming_rows, rows_from
from splinefm.encode.interactions import Interactions
from splinefm.encode.plans import Columns, compile_columns
from splinefm.encode.schema import (
    AnyField,
    Provenance,
    Schema,
    check_crosses,
    check_interactions,
    check_schema,
    check_shapes,
)
from splinefm.encode.slots import SlotLayout, Slots, concatenate_slots, empty_slots
from splinefm.encode.starvation import BasisStarvation
from splinefm.encode.tables.arrow import cut_batch, numbered
from splinefm.encode.tables.names import counted
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.table import Table

if TYPE_CHECKING:
    from splinefm.encode.drift import Watch

FieldStatistics = NumericalStatistics | CategoricalStatistics | MultiValuedStatistics | CrossStatistics
# Rows per task: fitting takes a column of a chunk at a time, encoding all columns of a block.
CHUNK = 131_072
BLOCK = 16_384
# Work on shorter arrays is mostly Python, where threads wait for each other.
FEW_ROWS = 10_000
# Memory that fitting a field takes: counts and weights per feature and copies of them, and a few float64 arrays of
# weights for a summary of this many values.
FEATURE_BYTES, WEIGHT_BYTES, POINTS = 48, 32, 4096


@dataclass(eq=False)
class EncoderStatistics:
    """What fitting an encoder needs to know about a table, collected in one pass.

    Statistics of parts of a table, collected one after the other, in other processes or on other machines, can be
    merged: categories, counts and ranges are exactly as for the whole table, quantiles within
    `QuantileSketch.rank_error`.

    Parameters
    ----------
    schema : Schema
        The fields.
    threads : int, optional
        Columns to read at the same time; all cores by default. The result does not depend on it.

    Examples
    --------
    >>> from splinefm import Numerical, Schema
    >>> first, second = EncoderStatistics(Schema([Numerical("x")])), EncoderStatistics(Schema([Numerical("x")]))
    >>> first.update({"x": [1.0, 2.0]})
    >>> second.update({"x": [3.0]})
    >>> first.merge(second)
    >>> first.encoder().n_rows
    3
    """

    schema: Schema = field(repr=False)
    threads: int | None = None
    n_rows: int = 0
    fields: list[FieldStatistics] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        check_schema(self.schema)
        count_threads(self.threads)  # raises for less than one
        self.fields = [item.collect() for item in self.schema.resolved]

    def update(self, table: object, *, target: str | None = None) -> None:
        """Add the rows of a table, chunk by chunk."""
        for batch in prefetch(_open(self.schema, table, target).chunks(self.schema.columns, CHUNK)):
            self.update_batch(batch)

    def update_batch(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch of an open table that has the columns of the fields, and maybe others."""
        columns = _by_field(self.schema, batch.select(self.schema.columns))
        threads = 1 if batch.num_rows < FEW_ROWS else self.threads
        with naming_rows(self.n_rows):
            for _ in in_order(lambda work: work[0].update(work[1]), zip(self.fields, columns, strict=True), threads):
                pass
        self.n_rows += batch.num_rows

    def merge(self, other: EncoderStatistics) -> None:
        """Add the rows of other statistics."""
        if other.schema != self.schema:
            raise ValueError("statistics can be merged only when they were collected with the same schema")
        self.n_rows += other.n_rows
        for mine, theirs in zip(self.fields, other.fields, strict=True):
            mine.merge(theirs)  # type: ignore[arg-type]  # equal schemas: the two are of one kind

    def encoder(self) -> Encoder:
        """The encoder that these statistics determine."""
        if not self.n_rows:
            raise ValueError("the table has no rows; fit an encoder to at least one")
        threads = 1 if self.n_rows < FEW_ROWS else self.threads
        fitted = list(in_order(_fit, zip(self.schema.resolved, self.fields, strict=True), threads))
        fields, notes, counts, weights = zip(*fitted, strict=True)
        known, given = self.schema.provenance, Provenance("given")
        provenance = {
            name: Provenance(known.get(name, given).source, note)
            for name, note in zip(self.schema.names, notes, strict=True)
        }
        ranges = np.array(list(map(_range, self.fields)))
        return Encoder(fields, self.n_rows, provenance, counts, weights, ranges, self.schema.interactions)


@dataclass(frozen=True, eq=False)
class Encoder:
    """Encodes tables as slots; made by `fit_encoder`.

    Parameters
    ----------
    fields : tuple of fields
        The fields with transforms, bases and vocabularies filled in.
    n_rows : int
        Number of training rows.
    provenance : mapping of str to Provenance
        Where each field comes from and how it was fitted.
    feature_counts : tuple of arrays
        For each field, the number of training rows in which each of its features is active.
    feature_weights : tuple of arrays, optional
        For each field, the sum of the weight of each feature over the training rows; NaN, the default, where it is not
        known. Categorical fields always use the counts.
    ranges : array of shape (fields, 2), optional
        The smallest and the largest ordinary value of each numerical field in the training rows; NaN, the default,
        where they are not known.
    interactions : Interactions, optional
        Which columns may interact; all by default.

    Examples
    --------
    >>> from splinefm import BSpline, MinMax, Numerical, Schema, fit_encoder
    >>> schema = Schema([Numerical("x", transform=MinMax(), basis=BSpline(segments=2, degree=1))])
    >>> encoder = fit_encoder(schema, {"x": [0.0, 10.0]})
    >>> encoder.encode({"x": [5.0, None]}).weight
    array([[1., 0.], [1., 0.]], dtype=float32)
    """

    fields: tuple[AnyField, ...]
    n_rows: int
    provenance: Mapping[str, Provenance]
    feature_counts: tuple[FloatArray, ...]
    feature_weights: tuple[FloatArray, ...] = ()
    ranges: FloatArray = field(default_factory=lambda: np.zeros((0, 2)))
    interactions: Interactions | None = None

    def __repr__(self) -> str:
        return f"Encoder({self.n_rows:,} rows, {counted('field', self.schema.names)})"

    def __post_init__(self) -> None:
        if not len(self.ranges):
            object.__setattr__(self, "ranges", np.full((len(self.fields), 2), np.nan))
        if self.ranges.shape != (len(self.fields), 2):
            raise ValueError(
                f"ranges must have a pair per field, shape ({len(self.fields)}, 2); got {self.ranges.shape}"
            )
        weights = self.feature_weights or tuple(np.full(len(counts), np.nan) for counts in self.feature_counts)
        sizes = [item.layout.n_features for item in self.fields]
        for what, arrays in (("feature_counts", self.feature_counts), ("feature_weights", weights)):
            if list(map(len, arrays)) != sizes:
                raise ValueError(
                    f"{what} must have an array per field, with an entry per feature: {sizes} entries, "
                    f"got {list(map(len, arrays))}"
                )
        each = zip(self.fields, self.feature_counts, weights, strict=True)
        known = tuple(counts if item.weights_are_counts else weight for item, counts, weight in each)
        object.__setattr__(self, "feature_weights", known)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Encoder)
            and (self.fields, self.n_rows, self.provenance) == (other.fields, other.n_rows, other.provenance)
            and self.interactions == other.interactions
            and all(map(np.array_equal, self.feature_counts, other.feature_counts))
            and all(map(partial(np.array_equal, equal_nan=True), self.feature_weights, other.feature_weights))
            and np.array_equal(self.ranges, other.ranges, equal_nan=True)
        )

    __hash__ = None  # type: ignore[assignment]  # equality is by content

    @cached_property
    def schema(self) -> Schema:
        """The fitted fields as a schema."""
        return Schema(self.fields, self.provenance, self.interactions)

    @property
    def notes(self) -> dict[str, str]:
        """How each field was fitted, in plain words."""
        return self.schema.reasons

    @cached_property
    def crosses(self) -> dict[int, Cross]:
        """The crosses by their positions among the fields."""
        return {f: item for f, item in enumerate(self.fields) if isinstance(item, Cross)}

    @cached_property
    def layout(self) -> SlotLayout:
        """Features, windows and units of all fields, laid end to end."""
        apart = () if self.interactions is None else self.interactions.apart([item.columns for item in self.fields])
        return SlotLayout(tuple(item.layout for item in self.fields), apart)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but compiled code, which is made again on demand."""
        return {name: value for name, value in vars(self).items() if name != "_compiled"}

    @cached_property
    def _compiled(self) -> list[Columns]:
        firsts = self.layout.feature_ptr[:-1].tolist()
        return [compile_columns(item, first) for item, first in zip(self.fields, firsts, strict=True)]

    @property
    def feature_means(self) -> tuple[FloatArray, ...]:
        """For each field, the mean weight of each feature over the training rows; NaN where it is not known.

        Exact for categorical and multi-valued fields, and for numerical ones with up to 4,096 distinct values; beyond
        that within twice `QuantileSketch.rank_error` for the functions of a spline.
        """
        return tuple(weights / self.n_rows for weights in self.feature_weights)

    def encode(self, table: object, *, threads: int | None = None, watch: Watch | None = None) -> Slots:
        """Encode all rows of a table, in order.

        Parameters
        ----------
        table : table, path or dataset
            Anything that `open_table` takes; columns that no field reads are ignored.
        threads : int, optional
            Blocks of rows to encode at the same time; all cores by default.
        watch : Watch, optional
            Counts values that are unseen, out of range or missing.
        """
        source = _open(self.schema, table)
        if source.n_rows is None:
            self._check_block(BLOCK, threads)
            with naming_rows():
                blocks = numbered(self._blocks(source))
                parts = list(in_order(partial(self._encode_block, watch), blocks, threads))
            return concatenate_slots(parts) if parts else empty_slots(0, self.layout)
        self._check_block(min(BLOCK, source.n_rows), threads)
        # Blocks write into the result, so that it is never in memory twice.
        slots = empty_slots(source.n_rows, self.layout)
        with naming_rows():
            self._fill(slots, self._blocks(source), threads, watch)
        return slots

    def encode_chunks(
        self, table: object, *, rows: int = CHUNK, threads: int | None = None, watch: Watch | None = None
    ) -> Iterator[Slots]:
        """Encode a table in chunks of `rows` rows, for tables that do not fit in memory."""
        first = 0
        for batch in _open(self.schema, table).chunks(self.schema.columns, rows):
            with naming_rows(first):
                slots = self.encode_batch(batch, threads=threads, watch=watch)
            yield slots
            first += batch.num_rows

    def encode_batch(self, batch: pa.RecordBatch, *, threads: int | None = None, watch: Watch | None = None) -> Slots:
        """Encode a batch of an open table that has the columns of the fields, and maybe others."""
        self._check_block(min(BLOCK, batch.num_rows), threads)
        slots = empty_slots(batch.num_rows, self.layout)
        self._fill(slots, cut_batch(batch.select(self.schema.columns), BLOCK), threads, watch)
        return slots

    def extend(
        self, table: object, *, target: str | None = None, threads: int | None = None, watch: Watch | None = None
    ) -> Encoder:
        """Add the frequent new categories of a table; returns a new encoder with features appended to fields.

        Transforms, bases and the length of lists do not change. Counts and weights of the table are added to the sums
        of earlier rows, which stay as they were encoded: a category that was rare before and is frequent now starts at
        zero.
        """
        statistics = EncoderStatistics(self.schema, threads)
        statistics.update(table, target=target)
        return self.extended(statistics, watch)

    def extended(self, statistics: EncoderStatistics, watch: Watch | None = None) -> Encoder:
        """Add frequent new categories as `extend` does, given statistics for `schema`, also of many machines."""
        fields, counts, weights = [], [], []
        for f, collected in enumerate(statistics.fields):
            if watch is not None:
                watch.count_statistics(f, collected)
            extended: Any = self.fields[f].extend(collected)  # type: ignore[arg-type]  # statistics of this very field
            more, more_weights = _feature_sums(extended, collected)
            fields.append(extended)
            counts.append(_plus(self.feature_counts[f], more))
            weights.append(_plus(self.feature_weights[f], more_weights))
        n_rows = self.n_rows + statistics.n_rows
        new = np.array(list(map(_range, statistics.fields)))
        ranges = np.stack([np.fmin(self.ranges[:, 0], new[:, 0]), np.fmax(self.ranges[:, 1], new[:, 1])], axis=1)
        ranges[np.isnan(self.ranges)] = np.nan  # models of earlier versions did not keep them
        return Encoder(tuple(fields), n_rows, self.provenance, tuple(counts), tuple(weights), ranges, self.interactions)

    def starvation(self) -> BasisStarvation:
        """For every basis function, the share of training rows in its support; print it to see a table."""
        return BasisStarvation.of(self.fields, self.feature_counts, self.n_rows)

    def _blocks(self, source: Table) -> Iterator[pa.RecordBatch]:
        for chunk in source.chunks(self.schema.columns, CHUNK):
            yield from cut_batch(chunk, BLOCK)

    def _fill(self, slots: Slots, blocks: Iterable[pa.RecordBatch], threads: int | None, watch: Watch | None) -> None:
        tasks = ((block, slots, at, watch) for at, block in numbered(blocks))
        for _ in in_order(self._encode_into, tasks, threads):
            pass

    def _check_block(self, rows: int, threads: int | None) -> None:
        """Raise where the weights of a block of rows, in float64, are more than there is memory for."""
        widest = max(self.layout.fields, key=lambda item: sum(item.widths))
        check_memory(
            count_threads(threads) * rows * WEIGHT_BYTES * sum(widest.widths),
            f"encoding {rows:,} rows of field {widest.name!r}, with {sum(widest.widths):,} weights for each,",
            "give it fewer basis functions",
        )

    def _encode_block(self, watch: Watch | None, task: tuple[int, pa.RecordBatch]) -> Slots:
        at, block = task
        slots = empty_slots(block.num_rows, self.layout)
        with rows_from(at):
            self._encode_into((block, slots, 0, watch))
        return slots

    def _encode_into(self, task: tuple[pa.RecordBatch, Slots, int, Watch | None]) -> None:
        """Write the slots of a block of rows, which begins at row `at`."""
        block, slots, at, watch = task
        rows = slice(at, at + block.num_rows)
        layout = self.layout
        # Categories have this weight and do not write it: column by column, they would visit each cache line again.
        slots.weight[rows] = 1.0
        for f, column in enumerate(_by_field(self.schema, block)):
            item: Any = self.fields[f]
            windows = slice(layout.window_ptr[f], layout.window_ptr[f + 1])
            start = slots.start[rows, windows]
            weight = slots.weight[rows, layout.weight_ptr[windows.start] : layout.weight_ptr[windows.stop]]
            first, values = int(layout.feature_ptr[f]), item.read(column)
            with rows_from(at):
                self._compiled[f].encode_into(values, start, weight)
            if watch is not None:
                watch.count(f, column, values, start - np.int32(first), weight)


def fit_encoder(schema: Schema, table: object, *, target: str | None = None, threads: int | None = None) -> Encoder:
    """Fit transforms, bases and vocabularies to a table, in one pass.

    Parameters
    ----------
    schema : Schema
        The fields.
    table : table, path or dataset
        Anything that `open_table` takes.
    target : str, optional
        Name of the target; it must not be a field.
    threads : int, optional
        Columns to read at the same time; all cores by default. The result does not depend on it.

    Examples
    --------
    >>> from splinefm import Categorical, Schema
    >>> encoder = fit_encoder(Schema([Categorical("c")]), {"c": ["a", "b", "a"]})
    >>> encoder.notes
    {'c': '2 categories'}
    """
    check_schema(schema)
    check_crosses(schema)
    check_shapes(schema)
    check_interactions(schema)
    statistics = EncoderStatistics(schema, threads)
    statistics.update(table, target=target)
    return statistics.encoder()


def _open(schema: Schema, table: object, target: str | None = None) -> Table:
    source = open_table(table, types=schema.column_types())
    schema.check_columns(source.names, target)
    return source


def _by_field(schema: Schema, batch: pa.RecordBatch) -> list[Any]:
    """The column of each field, or the columns of a cross, from a batch of the schema's columns."""
    columns = batch.columns
    of_fields = zip(schema.fields, schema.column_indices, strict=True)
    return [item.as_input([columns[index] for index in indices]) for item, indices in of_fields]


def _fit(task: tuple[Any, Any]) -> tuple[AnyField, str, FloatArray, FloatArray]:
    item, statistics = task
    fitted, note = item.fit(statistics)
    _check_field(fitted)
    return fitted, note, *_feature_sums(fitted, statistics)


def _check_field(item: AnyField) -> None:
    """Raise where a fitted field has more features, or more weights per row, than there is memory for."""
    layout = SlotLayout((item.layout,))
    features, weights = layout.n_features, layout.n_weights
    check_memory(
        FEATURE_BYTES * features + POINTS * WEIGHT_BYTES * weights,
        f"field {item.name!r} with {features:,} features, of which a value uses {weights:,},",
        "give it fewer basis functions or buckets, or raise its min_count",
    )


def _feature_sums(item: Any, statistics: Any) -> tuple[FloatArray, FloatArray]:
    """Counts and weights of the features of a fitted field."""
    counts = item.feature_counts(statistics)
    return counts, counts if item.weights_are_counts else item.feature_weights(statistics)


def _range(statistics: FieldStatistics) -> tuple[float, float]:
    """The smallest and the largest ordinary number."""
    summary = statistics.sketch.summary() if isinstance(statistics, NumericalStatistics) else None
    return (math.nan, math.nan) if summary is None else (float(summary.value[0]), float(summary.value[-1]))


def _plus(old: FloatArray, more: FloatArray) -> FloatArray:
    """The sum of two arrays, of which the first may be shorter: new features begin at zero."""
    return np.concatenate([old, np.zeros(len(more) - len(old))]) + more
