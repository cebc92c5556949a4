"""Chunks: the rows of a table for training, kept in memory or read again for every epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import starmap
from numbers import Real
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._wording import for_reader
from splinefm.encode.encoder import CHUNK, Encoder, EncoderStatistics
from splinefm.encode.schema import Schema
from splinefm.encode.slots import SlotLayout, Slots, concatenate_slots, empty_slots
from splinefm.encode.tables.arrow import to_arrow
from splinefm.encode.tables.names import missing_column_message
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.table import Table
from splinefm.learn.copies import find_copies, row_keys
from splinefm.learn.losses import Loss
from splinefm.learn.progress import SILENT, Progress
from splinefm.learn.targets.labels import (
    BALANCED,
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
from splinefm.learn.targets.summary import TargetSummary
from splinefm.learn.training import Chunk, FloatArray, Training, seeded

# Rows per chunk of a table that is streamed, and the most validation rows. If the encoded rows are wide, the limit in
# bytes counts.
STREAM_ROWS, STREAM_BYTES = 131_072, 1 << 26
MOST_VALIDATION_ROWS, VALIDATION_BYTES = 200_000, 1 << 27
# Encoded tables up to this size stay in memory from one epoch to the next.
MEMORY_BYTES = 1 << 30
# Limits of a sample of encoded rows.
SAMPLE_BYTES, MIN_SAMPLED = 1 << 24, 50

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Source:
    """A table with its schema and the names of its target and weight columns."""

    schema: Schema
    target: str
    sample_weight: str | None
    table: object
    classes: Classes | None = None
    class_weights: tuple[float, ...] | None = None

    def with_classes(self, most: int = 2, shares: bool = True) -> Source:
        """Return a copy with the labels of the target, unless `shares` and it holds numbers between 0 and 1."""
        table = open_table(self.table, types=self.schema.column_types())
        if self.target not in table.names:
            raise ValueError(missing_column_message(self.target, table.names))
        columns = (batch.column(0) for batch in table.chunks([self.target], STREAM_ROWS))
        return replace(self, classes=find_classes(columns, self.target, most, shares))

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
        for name in (self.target, self.sample_weight):
            if name is not None and name not in table.names:
                raise ValueError(missing_column_message(name, table.names))
        self.schema.check_columns(table.names, self.target)
        return table

    @property
    def names(self) -> list[str]:
        """The columns of the fields, the target and the sample weights."""
        return [*self.schema.columns, *self._target_names]

    @property
    def _target_names(self) -> list[str]:
        return [self.target, *([self.sample_weight] if self.sample_weight else [])]

    def target_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches of targets and sample weights only, in table order."""
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
        slots = encoder.encode(batch, threads=threads)
        return Chunk(slots, np.ascontiguousarray(loss.standardize(y)), np.ascontiguousarray(weight))


@dataclass
class ValidationSample:
    """A random share of a table's rows, at most `most` of them, spread over the whole table.

    A row is included if its random number, which depends only on the seed and the row number, is below the share. If
    there are too many rows, the share is halved. The sample therefore does not depend on the order of reading. Copies
    of a row have its number, so that they are included together.

    Parameters
    ----------
    share : float
        The share of rows to draw; it can decrease.
    seed : int
        Seed of the random numbers.
    most : int
        The most rows to draw.
    copies : array, optional
        The first row that each row of the table is a copy of; see `find_copies`.
    """

    share: float
    seed: int
    most: int
    copies: npt.NDArray[np.int64] | None = None
    n_rows: int = 0
    parts: list[tuple[FloatArray, pa.RecordBatch]] = field(default_factory=list)

    def has(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return whether rows are in the sample."""
        return self._randoms(numbers) < self.share

    def _randoms(self, numbers: npt.NDArray[np.int64]) -> FloatArray:
        return row_randoms(self.seed, numbers if self.copies is None else self.copies[numbers])

    def add(self, first: int, batch: pa.RecordBatch) -> None:
        """Keep the rows of a batch that are in the sample; `first` is the number of its first row."""
        if self.share == 0.0:
            return
        randoms = self._randoms(np.arange(first, first + batch.num_rows))
        randoms, batch = _below(self.share, randoms, batch)
        self.parts.append((randoms, _without_dictionaries(batch)))
        self.n_rows += len(randoms)
        self.limit(self.most)

    def limit(self, most: int) -> None:
        """Halve the share until there are at most this many rows."""
        while self.n_rows > most:
            self.lower(self.share / 2)

    def lower(self, share: float) -> None:
        """Lower the share, such as to that of several processes."""
        self.share = min(self.share, share)
        self.parts = [_below(self.share, *part) for part in self.parts]
        self.n_rows = sum(len(randoms) for randoms, _ in self.parts)

    def encode(self, source: Source, encoder: Encoder, loss: Loss, threads: int | None = None) -> Chunk | None:
        """Return the encoded rows, or None if their weights are all 0, and release the raw rows."""
        parts, self.parts = self.parts, []
        chunks = [source.encode(batch, encoder, loss, threads) for randoms, batch in parts if len(randoms)]
        if not any(chunk.sample_weight.any() for chunk in chunks):
            return None
        slots, y, weight = zip(*chunks, strict=True)
        return Chunk(concatenate_slots(slots), np.concatenate(y), np.concatenate(weight))


def sample_validation(source: Source, training: Training) -> ValidationSample:
    """Return the rows of a validation table, or a sample of a large one."""
    sample, first = ValidationSample(1.0, training.seed, MOST_VALIDATION_ROWS), 0
    for batch in ahead(source.batches(CHUNK)):
        sample.add(first, batch)
        first += batch.num_rows
    return sample


def row_randoms(seed: int, numbers: npt.NDArray[np.int64]) -> FloatArray:
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


def _without_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode dictionaries: a few rows would keep a whole dictionary in memory."""
    columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


@dataclass
class TableScan:
    """The results of the first pass over a table.

    Attributes
    ----------
    statistics : EncoderStatistics
        What the encoder is fitted to.
    held_out : ValidationSample
        The validation rows.
    targets : TargetSummary
        What the loss is fitted to.
    """

    statistics: EncoderStatistics
    held_out: ValidationSample
    targets: TargetSummary

    def add(self, batch: pa.RecordBatch, y: FloatArray, weight: FloatArray) -> None:
        """Add the next rows of the table."""
        self.held_out.add(self.statistics.n_rows, batch)
        self.statistics.update(batch)
        self.targets.add(y, weight)


def scan_table(
    source: Source, loss: Loss, held_out: ValidationSample, training: Training, progress: Progress = SILENT
) -> TableScan:
    """Read a table once; invalid targets and weights raise an error before training begins."""
    scan = TableScan(EncoderStatistics(source.schema, training.threads), held_out, TargetSummary(loss))
    progress.begin("reading the table", source.opened.n_rows)
    for batch in ahead(source.batches(CHUNK)):
        y, weight = source.targets(batch)
        loss.check(y, source.target, scan.statistics.n_rows)
        scan.add(batch, y, weight)
        progress.advance(batch.num_rows)
    return scan


def prepare_chunks(
    source: Source,
    loss: Loss,
    validation: float | object,
    training: Training,
    progress: Progress = SILENT,
) -> Chunks:
    """Return everything that training needs from a table; `validation` is a share of its rows or another table.

    If many rows are copies of others, the table is read again, and copies are held out together.
    """
    chunks = _prepare(source, loss, validation, training, progress)
    if (copies := chunks.find_copies()) is None:
        return chunks
    del chunks  # and its rows
    share = float(np.mean(copies != np.arange(len(copies))))
    progress.say(f"{share:.0%} of the rows are copies of others; copies are held out together")
    return _prepare(source, loss, validation, training, progress, copies)


def _prepare(
    source: Source,
    loss: Loss,
    validation: float | object,
    training: Training,
    progress: Progress,
    copies: npt.NDArray[np.int64] | None = None,
) -> Chunks:
    share = float(validation) if isinstance(validation, Real) else 0.0
    if not 0.0 <= share < 1.0:
        raise ValueError(f"validation must be a share of at least 0 and below 1, or a table; got {share}")
    given = None if isinstance(validation, Real) else replace(source, table=validation)
    held_out = ValidationSample(share, training.seed, MOST_VALIDATION_ROWS, copies)
    scan = scan_table(source, loss, held_out, training, progress)
    progress.begin("fitting the encoder")
    encoder = scan.statistics.encoder()
    loss, start = scan.targets.fitted()
    sample = scan.held_out if given is None else sample_validation(given, training)
    sample.limit(VALIDATION_BYTES // _bytes_per_row(encoder.layout))
    chunks = Chunks(source, encoder, loss, training, scan.held_out, start, validation)
    chunks.validation = sample.encode(given or source, encoder, loss, training.threads)
    if chunks.n_rows * _bytes_per_row(encoder.layout) <= MEMORY_BYTES:
        chunks.keep(progress)
    return chunks


class Chunks:
    """The training rows of every epoch: kept in memory if small enough, otherwise read and encoded again.

    Streamed rows come in another order in every epoch, and each chunk mixes several parts of the table. The next chunk
    is prepared while the current one is trained on.

    Attributes
    ----------
    encoder, loss
        Fitted to the table.
    start : float or array
        The score of the best constant prediction; those of all classes of a softmax.
    split : float or table
        The share of the rows that is held out, or the table of validation rows.
    validation : Chunk or None
        The rows that choose the best epoch.
    n_rows : int
        Number of training rows.
    kept : Chunk or None
        The training rows, if they are in memory.
    """

    def __init__(
        self,
        source: Source,
        encoder: Encoder,
        loss: Loss,
        training: Training,
        held_out: ValidationSample,
        start: float | FloatArray,
        split: float | object = 0.0,
    ) -> None:
        self.source, self.encoder, self.loss, self.training = source, encoder, loss, training
        self.held_out, self.start, self.split = held_out, start, split
        self.n_rows = encoder.n_rows - held_out.n_rows
        if not self.n_rows:
            raise ValueError(
                f"all {encoder.n_rows} rows are held out for validation; "
                + for_reader("pass validation=0", "add --validation 0")
            )
        self.rows_per_chunk = min(STREAM_ROWS, max(1024, STREAM_BYTES // _bytes_per_row(encoder.layout)))
        self.validation: Chunk | None = None
        self.kept: Chunk | None = None

    def keep(self, progress: Progress = SILENT) -> None:
        """Encode all rows in table order and keep them in memory."""
        progress.begin("encoding", self.n_rows)
        chunk = Chunk(empty_slots(self.n_rows, self.encoder.layout), np.empty(self.n_rows), np.empty(self.n_rows))
        at = first = 0
        for batch in ahead(self.source.batches(self.rows_per_chunk)):
            part = self._encode(np.arange(first, first + batch.num_rows), batch)
            rows = slice(at, at + len(part.y))
            chunk.slots.start[rows], chunk.slots.weight[rows] = part.slots.start, part.slots.weight
            chunk.y[rows], chunk.sample_weight[rows] = part.y, part.sample_weight
            at, first = rows.stop, first + batch.num_rows
            progress.advance(len(part.y))
        self.kept = chunk

    def again(self, source: Source, training: Training, progress: Progress = SILENT) -> Chunks:
        """Return the same rows, with the same ones held out, encoded for another schema.

        The loss has the classes and class weights of these chunks.
        """
        return _prepare(source, self.loss, self.split, training, progress, self.held_out.copies)

    def find_copies(self) -> npt.NDArray[np.int64] | None:
        """Return the first row of the table that each row is a copy of; None if hardly any are, or nobody knows."""
        if self.kept is None or self.validation is None or not self.held_out.n_rows:
            return None
        held_out = self.held_out.has(np.arange(self.encoder.n_rows))
        keys, y = np.empty(len(held_out), np.uint64), np.empty(len(held_out))
        for rows, chunk in ((~held_out, self.kept), (held_out, self.validation)):
            keys[rows], y[rows] = row_keys(chunk.slots), chunk.y
        return find_copies(keys, y)

    def kept_numbers(self) -> npt.NDArray[np.int64]:
        """Return a number for each row in memory, and the same one for its copies."""
        assert self.kept is not None
        if self.held_out.copies is None:
            return np.arange(len(self.kept.y))
        return self.held_out.copies[~self.held_out.has(np.arange(self.encoder.n_rows))]

    def epoch(self, number: int) -> Iterable[Chunk]:
        """Return the chunks of an epoch."""
        return [self.kept] if self.kept is not None else ahead(self._read(number))

    def whole(self) -> Chunk | None:
        """Return training and validation rows together, if they come from one table and are in memory."""
        if self.kept is None or self.validation is None or not self.held_out.n_rows:
            return None
        slots = concatenate_slots([self.kept.slots, self.validation.slots])
        y, weight = (np.concatenate(pair) for pair in zip(self.kept[1:], self.validation[1:], strict=True))
        return Chunk(slots, y, weight)

    def sample(self, most: int) -> Slots | pa.Table:
        """Return a copy of some encoded rows, spread over the table if they are in memory.

        If there are crosses, return rows of the table instead: explanations need the values of their columns.
        """
        if self.encoder.schema.crosses:
            columns, rng = self.source.schema.columns, seeded(self.training.seed)
            _, batch = next(self.source.opened.shuffled(columns, max(most, STREAM_ROWS), rng=rng))
            rows = pa.Table.from_batches([_without_dictionaries(batch)])
            return rows.take(np.arange(0, len(rows), -(-len(rows) // most)))
        chunk = self.kept or self.validation or next(iter(self.epoch(0)))
        most = min(most, max(MIN_SAMPLED, SAMPLE_BYTES // _bytes_per_row(self.encoder.layout)))
        return chunk.slots[np.arange(0, len(chunk.slots), -(-len(chunk.slots) // most))]

    def _read(self, number: int) -> Iterator[Chunk]:
        rng = seeded(self.training.seed, number)
        batches = self.source.opened.shuffled(self.source.names, self.rows_per_chunk, rng=rng)
        # A loop would keep a batch in memory until the next one has been read.
        return filter(lambda chunk: len(chunk.y) > 0, starmap(self._encode, batches))

    def _encode(self, numbers: npt.NDArray[np.int64], batch: pa.RecordBatch) -> Chunk:
        held_out = self.held_out.has(numbers)
        if held_out.any():
            batch = batch.filter(to_arrow(~held_out))
        return self.source.encode(batch, self.encoder, self.loss, self.training.threads)


def _bytes_per_row(layout: SlotLayout) -> int:
    """Return the size of a row in a chunk: slots, target and sample weight."""
    return 4 * (layout.n_windows + layout.n_weights) + 16


def ahead(items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield the items, and prefetch the next one in a thread."""
    iterator = iter(items)
    with ThreadPoolExecutor(1) as pool:
        upcoming = pool.submit(next, iterator, None)
        while (item := upcoming.result()) is not None:
            upcoming = pool.submit(next, iterator, None)
            yield item
