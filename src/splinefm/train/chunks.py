"""Chunks: the rows of a table for training, kept in memory or read again for every epoch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import starmap
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from splinefm._arrays import BoolArray, FloatArray, Int64Array
from splinefm._parallel import prefetch
from splinefm._wording import for_reader
from splinefm.encode.encoder import CHUNK, Encoder, EncoderStatistics
from splinefm.encode.fields.numerical import naming_rows
from splinefm.encode.interactions import Interactions
from splinefm.encode.schema import Schema, check_crosses, check_interactions, check_shapes
from splinefm.encode.slots import SlotLayout, Slots, concatenate_slots, empty_slots
from splinefm.encode.tables.arrow import to_arrow
from splinefm.train.losses import Loss
from splinefm.train.progress import SILENT, Progress
from splinefm.train.rows import (
    MAX_VALIDATION_ROWS,
    STREAM_ROWS,
    Chunk,
    LabeledTable,
    ValidationSample,
    as_share,
    chance_of_equal_rows,
    find_copies,
    row_keys,
    sample_validation,
    without_dictionaries,
)
from splinefm.train.settings import Training, seeded
from splinefm.train.target_summary import TargetSummary
from splinefm.train.targets import ClassWeight

# The same rows for another schema: fields that both schemas have are neither fitted nor encoded again.


class Origin(NamedTuple):
    """Where a field of a new encoder comes from: an encoder, and the number of the field there."""

    encoder: Encoder
    field: int


def find_origins(source: LabeledTable, old: LabeledTable, encoder: Encoder, threads: int | None) -> list[Origin]:
    """Return where each field of the new schema comes from: the old encoder, or one of the new fields alone.

    The old encoder has the fields of the old schema, fitted.
    """
    known = {item.name: (item, f) for f, item in enumerate(old.schema.resolved)}
    fresh = [item for item in source.schema.resolved if item.name not in known or known[item.name][0] != item]
    numbers = {item.name: f for f, item in enumerate(fresh)}
    more = _fit(Schema(fresh), source, threads) if fresh else encoder
    return [
        Origin(more, numbers[name]) if name in numbers else Origin(encoder, known[name][1])
        for name in source.schema.names
    ]


def _fit(schema: Schema, source: LabeledTable, threads: int | None) -> Encoder:
    statistics = EncoderStatistics(schema, threads)
    for batch in prefetch(source.opened.chunks(schema.columns, CHUNK)):
        statistics.update_batch(batch)
    return statistics.encoder()


def join_encoder(origins: Sequence[Origin], interactions: Interactions | None) -> Encoder:
    """Return an encoder of fields from several encoders, which were fitted to the same rows."""
    fields = tuple(encoder.fields[f] for encoder, f in origins)
    return Encoder(
        fields,
        origins[0].encoder.n_rows,
        {item.name: encoder.provenance[item.name] for item, (encoder, _) in zip(fields, origins, strict=True)},
        tuple(encoder.feature_counts[f] for encoder, f in origins),
        tuple(encoder.feature_weights[f] for encoder, f in origins),
        np.array([encoder.ranges[f] for encoder, f in origins]),
        interactions,
    )


def join_slots(origins: Sequence[Origin], encoder: Encoder, parts: Sequence[tuple[Encoder, Slots]]) -> Slots:
    """Return the slots of a joined encoder, given the slots of its origins for the same rows."""
    slots = empty_slots(len(parts[0][1]), encoder.layout)
    new = encoder.layout
    for f, (origin, g) in enumerate(origins):
        part = next(found for known, found in parts if known is origin)
        old = part.layout
        to, of = (slice(*layout.window_ptr[i : i + 2]) for layout, i in ((new, f), (old, g)))
        slots.start[:, to] = part.start[:, of] + (new.feature_ptr[f] - old.feature_ptr[g])
        to, of = (slice(*layout.weight_ptr[[w.start, w.stop]]) for layout, w in ((new, to), (old, of)))
        slots.weight[:, to] = part.weight[:, of]
    return slots


def encode_fresh(
    encoder: Encoder,
    source: LabeledTable,
    held_out: BoolArray,
    threads: int | None,
    progress: Progress = SILENT,
) -> tuple[Slots, Slots]:
    """Return the slots of the training rows and of the rows that are held out."""
    parts, first = [], 0
    for batch in prefetch(source.opened.chunks(encoder.schema.columns, CHUNK)):
        with naming_rows(first):
            parts.append(encoder.encode_batch(batch, threads=threads))
        first += batch.num_rows
        progress.advance(batch.num_rows)
    slots = concatenate_slots(parts)
    return slots[~held_out], slots[held_out]


# If the encoded rows are wide, these limits count, not those in rows: for chunks, and for validation rows.
STREAM_BYTES, VALIDATION_BYTES = 1 << 26, 1 << 27
# Encoded tables up to this size stay in memory from one epoch to the next.
MEMORY_BYTES = 1 << 30
# Limits of a sample of encoded rows.
SAMPLE_BYTES, MIN_SAMPLED = 1 << 24, 50


def scan_table(
    source: LabeledTable, loss: Loss, held_out: ValidationSample, training: Training, progress: Progress = SILENT
) -> tuple[EncoderStatistics, TargetSummary]:
    """Read a table once, and hold rows out; invalid targets and weights raise an error before training begins."""
    statistics, targets = (
        EncoderStatistics(source.schema, training.threads),
        TargetSummary(loss, source.offset is not None),
    )
    progress.begin("reading the table", source.opened.n_rows)
    for batch in prefetch(source.batches(CHUNK)):
        y, weight = source.targets(batch)
        loss.check(y, source.target, statistics.n_rows)
        offset = source.offsets(batch, statistics.n_rows)
        held_out.add(statistics.n_rows, batch)
        statistics.update_batch(batch)
        targets.add(y, weight, offset)
        progress.advance(batch.num_rows)
    return statistics, targets


def prepare_chunks(
    source: LabeledTable,
    loss: Loss,
    validation: float | object,
    training: Training,
    progress: Progress = SILENT,
    class_weight: ClassWeight = None,
) -> Chunks:
    """Return everything that training needs from a table; `validation` is a share of its rows or another table.

    If many rows are copies of others, the table is read again, and copies are held out together.
    """
    check_crosses(source.schema)
    check_shapes(source.schema)
    check_interactions(source.schema)
    if (shaped := [item.name for item in source.schema.numerical if item.shape]) and loss.name == "softmax":
        raise ValueError(
            f"a shape is for one score per row; field {shaped[0]!r} has one, and several classes have several"
        )
    if not loss.max_classes and class_weight is not None:
        raise ValueError(f"class_weight requires the logistic loss or softmax, got {loss.name}; use sample_weight")
    if loss.max_classes and source.classes is None and not source.has_read_classes:
        source = source.with_classes(loss.max_classes, shares=loss.name == "logistic")
    weights = source.find_class_weights(class_weight)
    source, loss = replace(source, class_weights=weights), replace(loss, classes=source.classes, class_weights=weights)
    chunks = _prepare(source, loss, validation, training, progress)
    if (copies := chunks.find_copies()) is None:
        return chunks
    del chunks  # and its rows
    share = float(np.mean(copies != np.arange(len(copies))))
    progress.say(f"{share:.0%} of the rows are copies of others; copies are held out together")
    return _prepare(source, loss, validation, training, progress, copies)


def _prepare(
    source: LabeledTable,
    loss: Loss,
    validation: float | object,
    training: Training,
    progress: Progress,
    copies: Int64Array | None = None,
) -> Chunks:
    share = as_share(validation)
    if share is not None and not 0.0 <= share < 1.0:
        raise ValueError(f"validation must be a share of at least 0 and below 1, or a table; got {share}")
    given = replace(source, table=validation) if share is None else None
    held_out = ValidationSample(share or 0.0, training.seed, MAX_VALIDATION_ROWS, copies)
    statistics, targets = scan_table(source, loss, held_out, training, progress)
    progress.begin("fitting the encoder")
    encoder = statistics.encoder()
    loss, start = targets.fit_loss()
    sample = held_out if given is None else sample_validation(given, training)
    sample.limit(VALIDATION_BYTES // _bytes_per_row(encoder.layout))
    chunks = Chunks(source, encoder, loss, training, held_out, start, validation)
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
        The score of the best constant prediction; an array of scores for the classes of a softmax.
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
        source: LabeledTable,
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
        slots = empty_slots(self.n_rows, self.encoder.layout)
        if self.source.offset is not None:
            slots = replace(slots, offset=np.empty(self.n_rows, np.float32))
        chunk = Chunk(slots, np.empty(self.n_rows), np.empty(self.n_rows))
        at = first = 0
        for batch in prefetch(self.source.batches(self.rows_per_chunk)):
            part = self._encode(np.arange(first, first + batch.num_rows), batch)
            rows = slice(at, at + len(part.y))
            chunk.slots.start[rows], chunk.slots.weight[rows] = part.slots.start, part.slots.weight
            if slots.offset is not None:
                slots.offset[rows] = part.slots.offset
            chunk.y[rows], chunk.sample_weight[rows] = part.y, part.sample_weight
            at, first = rows.stop, first + batch.num_rows
            progress.advance(len(part.y))
        self.kept = chunk

    def encode_again(self, source: LabeledTable, training: Training, progress: Progress = SILENT) -> Chunks:
        """Return the same rows, with the same ones held out, encoded for another schema.

        The loss has the classes and class weights of these chunks. Fields that the schemas share are taken over.
        """
        other = self._reuse(source, training, progress)
        return other or _prepare(source, self.loss, self.split, training, progress, self.held_out.copies)

    def _reuse(self, source: LabeledTable, training: Training, progress: Progress) -> Chunks | None:
        """Return the same rows, or None if not all are in memory, or would no longer be."""
        if self.kept is None or self.validation is None or not self.held_out.n_rows:
            return None
        progress.begin("encoding", self.encoder.n_rows)
        origins = find_origins(source, self.source, self.encoder, training.threads)
        encoder = join_encoder(origins, source.schema.interactions)
        other = Chunks(source, encoder, self.loss, training, self.held_out, self.start, self.split)
        sizes = ((self.n_rows, MEMORY_BYTES), (self.held_out.n_rows, VALIDATION_BYTES))
        if any(rows * _bytes_per_row(encoder.layout) > most for rows, most in sizes):
            return None
        chunks = (self.kept, self.validation)
        parts = [[(self.encoder, chunk.slots)] for chunk in chunks]
        fresh = next((origin for origin, _ in origins if origin is not self.encoder), None)
        if fresh is not None:
            held_out = self.held_out.has(np.arange(encoder.n_rows))
            encoded = encode_fresh(fresh, source, held_out, training.threads, progress)
            for part, slots in zip(parts, encoded, strict=True):
                part.append((fresh, slots))
        other.kept, other.validation = (
            chunk._replace(slots=replace(join_slots(origins, encoder, part), offset=chunk.slots.offset))
            for chunk, part in zip(chunks, parts, strict=True)
        )
        return other

    def find_copies(self) -> Int64Array | None:
        """Return the first row of the table that each row is a copy of; None if hardly any are, or unknown."""
        if self.kept is None or self.validation is None or not self.held_out.n_rows:
            return None
        held_out = self.held_out.has(np.arange(self.encoder.n_rows))
        keys, y = np.empty(len(held_out), np.uint64), np.empty(len(held_out))
        for rows, chunk in ((~held_out, self.kept), (held_out, self.validation)):
            keys[rows], y[rows] = row_keys(chunk.slots), chunk.y
        columns = self.encoder.schema.positions_by_column
        slots = (self.kept.slots, self.validation.slots)
        return find_copies(keys, y, lambda: chance_of_equal_rows(slots, columns.values()))

    def kept_numbers(self) -> Int64Array:
        """Return a number for each row in memory, and the same one for its copies."""
        assert self.kept is not None
        if self.held_out.copies is None:
            return np.arange(len(self.kept.y))
        return self.held_out.copies[~self.held_out.has(np.arange(self.encoder.n_rows))]

    def epoch(self, number: int) -> Iterable[Chunk]:
        """Return the chunks of an epoch."""
        return [self.kept] if self.kept is not None else prefetch(self._read(number))

    def whole(self) -> Chunk | None:
        """Return training and validation rows together, if they come from one table and are in memory."""
        if self.kept is None or self.validation is None or not self.held_out.n_rows:
            return None
        return join_chunks([self.kept, self.validation])

    def sample(self, max_rows: int) -> Slots | pa.Table:
        """Return a copy of some encoded rows, spread over the table if they are in memory.

        If there are crosses, return rows of the table instead: explanations need the values of their columns.
        """
        if self.encoder.schema.crosses:
            columns, rng = self.source.schema.columns, seeded(self.training.seed)
            _, batch = next(self.source.opened.shuffled(columns, max(max_rows, STREAM_ROWS), rng=rng))
            rows = pa.Table.from_batches([without_dictionaries(batch)])
            return rows.take(np.arange(0, len(rows), -(-len(rows) // max_rows)))
        chunk = self.kept or self.validation or next(iter(self.epoch(0)))
        max_rows = min(max_rows, max(MIN_SAMPLED, SAMPLE_BYTES // _bytes_per_row(self.encoder.layout)))
        return chunk.slots[np.arange(0, len(chunk.slots), -(-len(chunk.slots) // max_rows))]

    def _read(self, number: int) -> Iterator[Chunk]:
        rng = seeded(self.training.seed, number)
        batches = self.source.opened.shuffled(self.source.names, self.rows_per_chunk, rng=rng)
        # A loop would keep a batch in memory until the next one has been read.
        return filter(lambda chunk: len(chunk.y) > 0, starmap(self._encode, batches))

    def _encode(self, numbers: Int64Array, batch: pa.RecordBatch) -> Chunk:
        held_out = self.held_out.has(numbers)
        if held_out.any():
            batch = batch.filter(to_arrow(~held_out))
        return self.source.encode(batch, self.encoder, self.loss, self.training.threads)


def _bytes_per_row(layout: SlotLayout) -> int:
    """Return the size of a row in a chunk: slots, target and sample weight."""
    return 4 * (layout.n_windows + layout.n_weights) + 16


def take_rows(chunk: Chunk, rows: Int64Array) -> Chunk:
    """Return some rows of a chunk."""
    return Chunk(chunk.slots[rows], chunk.y[rows], chunk.sample_weight[rows])


def join_chunks(chunks: Sequence[Chunk]) -> Chunk:
    """Return the rows of several chunks in one."""
    slots, y, weight = zip(*chunks, strict=True)
    return Chunk(concatenate_slots(slots), np.concatenate(y), np.concatenate(weight))
