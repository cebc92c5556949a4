"""From a table to a Fitted: schema, encoder, chunks, training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from splinefm.encode.columns import as_numbers
from splinefm.encode.encoder import Encoder, Statistics, in_order
from splinefm.encode.inference import infer_schema
from splinefm.encode.schema import Schema
from splinefm.encode.slots import concatenate_slots
from splinefm.encode.table import Table, missing_column_message, open_table
from splinefm.learn.fitted import Fitted
from splinefm.learn.losses import Loss, LossName
from splinefm.learn.training import Chunk, Epoch, Training, make_groups, seeded, train
from splinefm.model.family import FFM, AnyModel, FwFM, Params

# Rows per chunk of a table that is trained on from disk, and the most that are held back for validation.
STREAM_ROWS = 131_072
MOST_VALIDATION_ROWS = 200_000
# Encoded tables up to this size stay in memory from one epoch to the next.
MEMORY_BYTES = 1 << 30
MANY_FIELDS = 20
# L2 and smoothness to choose from: data sets differ in how much detail they support.
PENALTIES = ((1e-4, 3e-4), (1e-4, 1e-2), (1e-3, 1e-2))
SEARCH_EPOCHS = 4


def default_model(n_fields: int) -> AnyModel:
    """FFM(k=8) up to 20 fields, FwFM(k=16) beyond: the cost of an FFM grows with the square of the fields."""
    return FFM(k=8) if n_fields <= MANY_FIELDS else FwFM(k=16)


def fit_model(
    table: object,
    target: str,
    *,
    schema: Schema | None = None,
    model: AnyModel | None = None,
    loss: LossName = "logistic",
    sample_weight: str | None = None,
    validation: float | object = 0.1,
    training: Training | None = None,
    report: Callable[[Epoch], None] = lambda epoch: None,
) -> Fitted:
    """Fit a model to a table; one that does not fit in memory is read and encoded anew for every epoch.

    Parameters
    ----------
    table : table, path or dataset
        Anything that `open_table` takes and that can be read more than once.
    target : str
        The column to predict: numbers; for the logistic loss 0, 1, or a share between.
    schema : Schema, optional
        The fields; inferred from the table by default.
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM, optional
        FFM(k=8) up to 20 fields and FwFM(k=16) beyond by default.
    loss : {"logistic", "squared", "poisson"}
        What is minimized.
    sample_weight : str, optional
        A column of weights, such as impressions where the target is the share of clicks.
    validation : float or table
        The share of rows (0: none) or the table that chooses the best epoch.
    training : Training, optional
        How to train.
    report : callable, optional
        Called with every `Epoch`.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "click": [0, 0, 1, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", training=sf.Training(epochs=2, threads=1))
    >>> len(fitted.history)
    2
    """
    training = training or Training()
    schema = schema or _without(infer_schema(table, target=target), sample_weight)
    source = Source(schema, target, sample_weight, table)
    statistics = Statistics(schema, training.threads)
    statistics.update(table, target=target)
    encoder = statistics.encoder()
    share = validation if isinstance(validation, float | int) else 0.0
    held_out = None if validation is share else Source(schema, target, sample_weight, validation)
    chunks = _Chunks(source, encoder, float(share), training, Loss(loss))
    chosen = model or default_model(len(schema))
    valid = chunks.validation() if held_out is None else _read_all(held_out, encoder, chunks.loss)

    def run(training: Training, report: Callable[[Epoch], None] = lambda epoch: None) -> tuple[Params, list[Epoch]]:
        groups = make_groups(encoder, training)
        return train(
            chosen,
            encoder.layout,
            groups,
            chunks.epoch,
            statistics.n_rows,
            chunks.loss,
            training,
            valid,
            chunks.start,
            report,
        )

    training = _choose_penalties(training, run) if valid and chunks.kept is not None else training.with_penalties()
    params, history = run(training, report)
    return Fitted(encoder, chosen, params, chunks.loss, tuple(history), training)


def _choose_penalties(training: Training, run: Callable[[Training], tuple[Params, list[Epoch]]]) -> Training:
    """The penalties, of a few, whose short run has the best validation loss; what was given is kept."""
    candidates = list(dict.fromkeys(training.with_penalties(*pair) for pair in PENALTIES))
    if len(candidates) == 1:
        return candidates[0]

    def loss(candidate: Training) -> float:
        _, history = run(replace(candidate, epochs=min(SEARCH_EPOCHS, training.epochs), patience=None))
        return min(epoch.validation_loss for epoch in history)

    return min(candidates, key=loss)


@dataclass(frozen=True)
class Source:
    """A table with the names of its target and weights."""

    schema: Schema
    target: str
    sample_weight: str | None
    table: object

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Record batches of the fields, the target and the weights."""
        source = self.open()
        extra = [self.target, *([self.sample_weight] if self.sample_weight else [])]
        for name in extra:
            if name not in source.names:
                raise ValueError(missing_column_message(name, source.names))
        return source.chunks([*self.schema.names, *extra], rows)

    def open(self) -> Table:
        """The table, its text files read with the types of the schema."""
        types = {**self.schema.column_types(), self.target: pa.float64()}
        return open_table(self.table, types=types)

    def encode(self, batch: pa.RecordBatch, encoder: Encoder, loss: Loss | None = None) -> Chunk:
        """Slots, targets (standardized, if a loss is given) and weights of a batch."""
        y = as_numbers(batch.column(self.target), self.target)
        if loss is not None:
            loss.check(y)
            y = loss.standardize(y)
        weight = (
            np.ones(len(y))
            if self.sample_weight is None
            else as_numbers(batch.column(self.sample_weight), self.sample_weight)
        )
        if not (np.isfinite(weight).all() and (weight >= 0).all()):
            raise ValueError(f"the weights in column {self.sample_weight!r} must be numbers of at least 0")
        return Chunk(encoder.encode(batch, threads=1), np.ascontiguousarray(y), np.ascontiguousarray(weight))


class _Chunks:
    """The chunks of every epoch: kept in memory if they are small enough, otherwise made anew."""

    def __init__(self, source: Source, encoder: Encoder, share: float, training: Training, loss: Loss) -> None:
        if not 0.0 <= share < 1.0:
            raise ValueError(f"validation must be a share from 0 to below 1, or a table; got {share}")
        self.source, self.encoder, self.share, self.training = source, encoder, share, training
        first = source.encode(next(iter(source.batches(STREAM_ROWS))), encoder)
        self.loss = loss.fit(first.y, first.sample_weight)
        self.start = self.loss.start(self.loss.standardize(first.y), first.sample_weight)
        self.kept: list[tuple[Chunk, Chunk]] | None = None
        bytes_per_row = 4 * (encoder.layout.n_windows + encoder.layout.n_weights)
        if encoder.n_rows * bytes_per_row <= MEMORY_BYTES:
            self.kept = list(self._read())

    def epoch(self, rng: np.random.Generator) -> Iterator[Chunk]:
        """The training rows of one pass, chunks in random order where they are in memory."""
        if self.kept is None:
            yield from (train for train, _ in self._read())
        else:
            for position in rng.permutation(len(self.kept)):
                yield self.kept[position][0]

    def validation(self) -> Chunk | None:
        """The rows that were held back."""
        if self.share == 0.0:
            return None
        parts, rows = [], 0
        for _, held_out in self.kept if self.kept is not None else self._read():
            parts.append(held_out)
            rows += len(held_out.y)
            if rows >= MOST_VALIDATION_ROWS:
                break
        return _join(parts)

    def _read(self) -> Iterator[tuple[Chunk, Chunk]]:
        tasks = enumerate(self.source.batches(STREAM_ROWS))
        return in_order(self._encode, tasks, 1 if self.encoder.n_rows > STREAM_ROWS else None)

    def _encode(self, task: tuple[int, pa.RecordBatch]) -> tuple[Chunk, Chunk]:
        """Training and validation rows; which is which depends on the seed and the place in the table alone."""
        number, batch = task
        chunk = self.source.encode(batch, self.encoder, loss=self.loss)
        rng = seeded(self.training.seed, number)
        held_out = rng.random(len(chunk.y)) < self.share
        return _take(chunk, ~held_out), _take(chunk, held_out)


def _take(chunk: Chunk, rows: np.ndarray) -> Chunk:
    if rows.all():
        return chunk
    return Chunk(chunk.slots[rows], chunk.y[rows], chunk.sample_weight[rows])


def _join(parts: list[Chunk]) -> Chunk | None:
    parts = [part for part in parts if len(part.y)]
    if not parts:
        return None
    return Chunk(
        concatenate_slots([part.slots for part in parts]),
        np.concatenate([part.y for part in parts]),
        np.concatenate([part.sample_weight for part in parts]),
    )


def _read_all(source: Source, encoder: Encoder, loss: Loss) -> Chunk | None:
    return _join([source.encode(batch, encoder, loss) for batch in source.batches(STREAM_ROWS)])


def _without(schema: Schema, name: str | None) -> Schema:
    fields = tuple(item for item in schema if item.name != name)
    return Schema(fields, {key: why for key, why in schema.reasons.items() if key != name})
