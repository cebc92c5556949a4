"""The rows that a model learns from: their source, the held-out ones, and copies of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from numbers import Real
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._arrays import BoolArray, Float32Array, FloatArray, Int32Array, Int64Array
from splinefm._cached import cached_property
from splinefm._parallel import prefetch
from splinefm.encode.encoder import CHUNK, Encoder
from splinefm.encode.inference import infer_schema
from splinefm.encode.interactions import InteractionCst
from splinefm.encode.schema import Schema
from splinefm.encode.slots import Slots, concatenate_slots
from splinefm.encode.tables.arrow import to_arrow
from splinefm.encode.tables.names import missing_column_message
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.table import Table
from splinefm.train.losses import Loss
from splinefm.train.offsets import Offset
from splinefm.train.settings import Training, seeded
from splinefm.train.targets import (
    BALANCED,
    SMALLEST_TOTAL,
    Classes,
    ClassWeight,
    as_targets,
    as_weights,
    balanced_weights,
    class_totals,
    class_weights,
    find_classes,
    weights_of_rows,
)

STREAM_ROWS = 131_072
"""Rows per chunk of a table that is streamed."""


class Chunk(NamedTuple):
    """Encoded rows with targets and sample weights."""

    slots: Slots
    y: FloatArray
    sample_weight: FloatArray

    def constant_scores(self, constant: float | FloatArray) -> FloatArray:
        """Return the scores of a model without fields: a constant, or one for each class, and the offset of each row.

        Examples
        --------
        >>> from splinefm.encode.slots import SlotLayout
        >>> slots = Slots(np.zeros((2, 0), np.int32), np.zeros((2, 0), np.float32), SlotLayout(()))
        >>> Chunk(slots, np.zeros(2), np.ones(2)).constant_scores(0.5)
        array([0.5, 0.5])
        """
        scores = np.full((len(self.y), *np.shape(constant)), constant)
        return scores if self.slots.offset is None else scores + self.slots.offset


@dataclass(frozen=True)
class LabeledTable:
    """A table with its fields, and its target and weight columns.

    Parameters
    ----------
    schema : Schema
        The fields.
    target : str
        The target column.
    sample_weight : str, optional
        The column of weights.
    table : table, path or dataset
        Anything that `open_table` takes; None if batches come from elsewhere.
    classes : tuple of labels, optional
        The labels of the target; None for numbers.
    class_weights : tuple of float, optional
        Their weights.
    has_read_classes : bool
        Whether `classes` is known to be complete.
    offset : Offset, optional
        The column that is a known part of the score.
    """

    schema: Schema
    target: str
    sample_weight: str | None
    table: object
    classes: Classes | None = None
    class_weights: tuple[float, ...] | None = None
    has_read_classes: bool = False
    offset: Offset | None = None

    @staticmethod
    def of(
        table: Table, target: str, sample_weight: str | None, schema: Schema | None, offset: Offset | None = None
    ) -> LabeledTable:
        """Return an open table with its columns; the fields are inferred if they are not given."""
        if schema is None:
            not_fields = (sample_weight, None if offset is None else offset.column)
            schema = infer_schema(table, target=target).without(*not_fields)
        return LabeledTable(schema, target, sample_weight, table, offset=offset)

    def with_interactions(self, interaction_cst: InteractionCst) -> LabeledTable:
        """Return a copy whose schema has these constraints on interactions; None leaves it as it is."""
        if interaction_cst is None:
            return self
        return replace(self, schema=self.schema.with_interactions(interaction_cst))

    def with_classes(self, max_classes: int = 2, shares: bool = True) -> LabeledTable:
        """Return a copy with the labels of the target, unless `shares` and it holds numbers between 0 and 1."""
        table = open_table(self.table, types=self.schema.column_types())
        if self.target not in table.names:
            raise ValueError(missing_column_message(self.target, table.names))
        columns = (batch.column(0) for batch in table.chunks([self.target], STREAM_ROWS))
        return replace(self, classes=find_classes(columns, self.target, max_classes, shares), has_read_classes=True)

    def find_class_weights(self, given: ClassWeight) -> tuple[float, ...] | None:
        """Return the weights of all classes; "balanced" reads the targets and sample weights."""
        if given is None:
            return None
        if given != BALANCED:
            return class_weights(given, self.classes or (0, 1))
        totals = np.zeros(len(self.classes or (0, 1)))
        for batch in self.target_batches(STREAM_ROWS):
            y, weight = self.targets(batch)
            known = np.isfinite(y)  # the scan reports missing targets
            totals += class_totals(y[known], weight[known], len(totals))
        return balanced_weights(*totals.tolist())

    @cached_property
    def opened(self) -> Table:
        """The table, with text files read by the types of the schema."""
        target = {str: pa.string(), bool: pa.bool_()}.get(
            type(self.classes[0]) if self.classes else float, pa.float64()
        )
        table = open_table(self.table, types={**self.schema.column_types(), self.target: target})
        for name in self._target_names:
            if name not in table.names:
                raise ValueError(missing_column_message(name, table.names))
        self.schema.check_columns(table.names, self.target)
        return table

    @property
    def names(self) -> list[str]:
        """The columns of the fields, the target, the sample weights and the offset, each once."""
        return list(dict.fromkeys([*self.schema.columns, *self._target_names]))

    @property
    def _target_names(self) -> list[str]:
        named = (self.target, self.sample_weight, None if self.offset is None else self.offset.column)
        return [name for name in dict.fromkeys(named) if name]

    def target_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches of targets, sample weights and offsets only, in table order."""
        return self.opened.chunks(self._target_names, rows)

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches in table order."""
        return self.opened.chunks(self.names, rows)

    def targets(self, batch: pa.RecordBatch) -> tuple[FloatArray, FloatArray]:
        """Return the targets and sample weights of a batch."""
        y = as_targets(batch.column(self.target), self.target, self.classes)
        if self.sample_weight is None:
            return self._weigh(y, np.ones(len(y)))
        return self._weigh(y, as_weights(batch.column(self.sample_weight), self.sample_weight))

    def offsets(self, batch: pa.RecordBatch, first: int | None = None) -> FloatArray | None:
        """Return the offsets of a batch in the unit of the link; see `Offset.values`."""
        return None if self.offset is None else self.offset.of_batch(batch, first)

    def _weigh(self, y: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Apply the class weights; a share y counts as y rows of the second class and 1 - y rows of the first."""
        if self.class_weights is None:
            return y, weight
        if len(self.class_weights) > 2:
            return y, weight * weights_of_rows(y, self.class_weights)
        first, second = self.class_weights[0] * (1.0 - y), self.class_weights[1] * y
        both = first + second
        return np.divide(second, both, out=y.copy(), where=both > 0.0), weight * both

    def encode(self, batch: pa.RecordBatch, encoder: Encoder, loss: Loss, threads: int | None = None) -> Chunk:
        """Return the slots, standardized targets and sample weights of a batch."""
        y, weight = self.targets(batch)
        loss.check(y, self.target)
        slots = encoder.encode_batch(batch, threads=threads)
        if self.offset is not None:
            slots = replace(slots, offset=self.offset.in_scores(self.offset.of_batch(batch), loss))
        return Chunk(slots, np.ascontiguousarray(loss.standardize(y)), np.ascontiguousarray(weight))


# Held-out rows: a random sample that does not depend on the order of reading.

MAX_VALIDATION_ROWS = 200_000


@dataclass
class ValidationSample:
    """A random share of a table's rows, at most `max_rows` of them, spread over the whole table.

    A row is included if its random number, which depends only on the seed and the row number, is below the share. If
    there are too many rows, the share is halved. The sample therefore does not depend on the order of reading. Copies
    of a row (`copies` of `find_copies`) have its number, so that they are included together.
    """

    share: float
    seed: int
    max_rows: int
    copies: Int64Array | None = None
    n_rows: int = 0
    parts: list[tuple[FloatArray, pa.RecordBatch]] = field(default_factory=list)

    def has(self, numbers: Int64Array) -> BoolArray:
        """Return whether rows are in the sample."""
        return self._randoms(numbers) < self.share

    def _randoms(self, numbers: Int64Array) -> FloatArray:
        return row_randoms(self.seed, numbers if self.copies is None else self.copies[numbers])

    def add(self, first: int, batch: pa.RecordBatch) -> None:
        """Keep the rows of a batch that are in the sample; `first` is the number of its first row."""
        if self.share == 0.0:
            return
        randoms = self._randoms(np.arange(first, first + batch.num_rows))
        randoms, batch = _below(self.share, randoms, batch)
        self.parts.append((randoms, without_dictionaries(batch)))
        self.n_rows += len(randoms)
        self.limit(self.max_rows)

    def limit(self, max_rows: int) -> None:
        """Halve the share until there are at most this many rows."""
        while self.n_rows > max_rows:
            self.lower(self.share / 2)

    def lower(self, share: float) -> None:
        """Lower the share, such as to the lowest of several processes."""
        self.share = min(self.share, share)
        self.parts = [_below(self.share, *part) for part in self.parts]
        self.n_rows = sum(len(randoms) for randoms, _ in self.parts)

    def encode(self, source: LabeledTable, encoder: Encoder, loss: Loss, threads: int | None = None) -> Chunk | None:
        """Return the encoded rows, or None if their weights are 0 or next to it, and release the raw rows."""
        parts, self.parts = self.parts, []
        chunks = [source.encode(batch, encoder, loss, threads) for randoms, batch in parts if len(randoms)]
        if not sum(float(chunk.sample_weight.sum()) for chunk in chunks) >= SMALLEST_TOTAL:
            return None
        slots, y, weight = zip(*chunks, strict=True)
        return Chunk(concatenate_slots(slots), np.concatenate(y), np.concatenate(weight))


def as_share(validation: float | object) -> float | None:
    """Return the share of rows to hold out, or None if validation rows are another table.

    Examples
    --------
    >>> as_share(np.float32(0.5)), as_share("other.csv")
    (0.5, None)
    """
    return float(validation) if isinstance(validation, Real) else None


def sample_validation(source: LabeledTable, training: Training) -> ValidationSample:
    """Return the rows of a validation table, or a sample of a large one."""
    sample, first = ValidationSample(1.0, training.seed, MAX_VALIDATION_ROWS), 0
    for batch in prefetch(source.batches(CHUNK)):
        sample.add(first, batch)
        first += batch.num_rows
    return sample


def row_randoms(seed: int, numbers: Int64Array) -> FloatArray:
    """Return a random number in [0, 1) for each row number: SplitMix64, which needs no state from previous rows."""
    z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += seeded(seed).integers(2**64, dtype=np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.asarray((z >> np.uint64(11)) * 2.0**-53)


def _below(share: float, randoms: FloatArray, batch: pa.RecordBatch) -> tuple[FloatArray, pa.RecordBatch]:
    chosen = randoms < share
    return randoms[chosen], batch.filter(to_arrow(chosen))


def without_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode dictionaries: a few rows would keep a whole dictionary in memory."""
    columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


# Copies: rows that occur several times, as in a bootstrap sample, after oversampling or a faulty join.
#
# If one copy of a row trains a model and another one judges it, knowing rows by heart looks like knowledge. So copies
# are held out together.
#
# Rows can also be equal because a table has few values: all combinations of a weekday and a city, say. A model should
# know these, and holding out all rows of a city would judge it by what it cannot know. `find_copies` tells the two
# apart.

Keys = npt.NDArray[np.uint64]
# Rows with copies that are too few to matter, as a share of all rows, and tables that are too small to split otherwise.
FEW_COPIES, MIN_DISTINCT = 0.05, 100
# A row that occurs more often than this is one of few values.
MAX_COPIES = 32
# How much more often than by chance rows with the same values have the same target, if they are copies: 1 is always.
MIN_AGREEMENT = 0.9
# How many times as many pairs of equal rows there are as by chance, and the share of distinct values in a numerical
# column that is too fine for any chance.
MORE_THAN_CHANCE, FINE = 10.0, 0.25
BLOCK = 1 << 22  # numbers that are converted at a time
_ODD = np.uint64(0x9E3779B97F4A7C15)


def row_keys(slots: Slots) -> Keys:
    """Return a number for each row, the same for the same slots, different for others up to rare collisions."""
    keys = _hashed(slots.start, slots.weight)
    return keys if slots.offset is None else keys + slots.offset.view(np.uint32).astype(np.uint64) * _ODD


def field_keys(slots: Slots, f: int) -> Keys:
    """Return a number for each row, the same one for rows with the same value of a field."""
    first, last = slots.layout.window_ptr[f : f + 2]
    weights = slice(*slots.layout.weight_ptr[[first, last]])
    return _hashed(slots.start[:, first:last], slots.weight[:, weights])


def _hashed(start: Int32Array, weight: Float32Array) -> Keys:
    rng = np.random.default_rng(0x636F70)
    of_start, of_weight = (rng.integers(2**64, size=part.shape[1], dtype=np.uint64) for part in (start, weight))
    keys = np.empty(len(start), np.uint64)
    n_rows = max(1, BLOCK // max(1, start.shape[1] + weight.shape[1]))  # of twice the size of the slots
    for at in range(0, len(start), n_rows):
        rows = slice(at, at + n_rows)
        bits = np.ascontiguousarray(weight[rows]).view(np.uint32)
        keys[rows] = start[rows].astype(np.uint64) @ of_start + bits.astype(np.uint64) @ of_weight
    return keys


def chance_of_equal_rows(parts: Sequence[Slots], columns: Iterable[Sequence[int]]) -> float:
    """Return how likely two rows are equal if columns are independent, or 0 if a numerical column is too fine for that.

    `columns` has the numbers of the fields that read each column, without crosses.
    """
    n_rows, chance = sum(map(len, parts)), 1.0
    for fields in columns:
        keys = np.concatenate([sum(field_keys(slots, f) for f in fields) for slots in parts])
        count = np.unique(keys, return_counts=True)[1]
        is_number = any(max(parts[0].layout.fields[f].widths) > 1 for f in fields)
        if is_number and len(count) >= FINE * n_rows:
            return 0.0
        chance *= float(np.square(count / n_rows).sum())
    return chance


def find_copies(keys: Keys, y: FloatArray, chance: Callable[[], float]) -> Int64Array | None:
    """Return the first row that each row is a copy of, or None if hardly any are copies.

    Copies have the same target, while other equal rows have different ones; there are more of them than the values of
    the columns explain; and a row has only some. `keys` come from `row_keys`; `chance` returns what
    `chance_of_equal_rows` does, and is only called for tables that may have copies.

    Examples
    --------
    >>> keys, y = np.tile(np.arange(200, dtype=np.uint64), 2), np.tile(np.linspace(0.0, 1.0, 200), 2)
    >>> find_copies(keys, y, lambda: 0.0).tolist() == [*range(200), *range(200)]
    True
    >>> find_copies(keys, np.linspace(0.0, 1.0, 400), lambda: 0.0) is None
    True
    """
    if 2 * _count_repeats(keys + np.ascontiguousarray(y).view(np.uint64) * _ODD) < FEW_COPIES * len(y):
        return None  # as for most tables
    _, value, n_values = np.unique(keys, return_inverse=True, return_counts=True)
    _, target, n_targets = np.unique(y, return_inverse=True, return_counts=True)
    both = value.astype(np.int64) * len(n_targets) + target
    _, first, row, n_rows = np.unique(both, return_index=True, return_inverse=True, return_counts=True)
    copied = (n_rows[row] > 1) & (n_values[value] <= MAX_COPIES)
    few = np.mean(copied) < FEW_COPIES or len(n_values) < MIN_DISTINCT or len(n_targets) == 1
    if few or not _agree(n_rows[row] - 1, n_values[value] - 1, n_targets):
        return None
    equal = n_values[n_values <= MAX_COPIES]
    pairs = 0.5 * float(np.sum(equal * (equal - 1.0)))
    if pairs < MORE_THAN_CHANCE * chance() * 0.5 * len(y) * (len(y) - 1.0):
        return None
    return np.where(copied, first[row], np.arange(len(y)))


def _agree(same: Int64Array, others: Int64Array, n_targets: Int64Array) -> bool:
    """Return whether rows with the same values have the same target; `same` of the `others` of a row have its own."""
    compared = (others > 0) & (others < MAX_COPIES)
    by_chance = float(np.square(n_targets / n_targets.sum()).sum())
    agreement = float(np.mean(same[compared] / others[compared]))
    return agreement - by_chance >= MIN_AGREEMENT * (1.0 - by_chance)


def _count_repeats(keys: Keys) -> int:
    """Return how many rows have the key of another one before them."""
    ordered = np.sort(keys)
    return int(np.count_nonzero(ordered[1:] == ordered[:-1]))
