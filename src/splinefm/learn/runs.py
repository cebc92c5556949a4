"""Runs: a model trained on the rows of a table, with the penalties of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from splinefm.encode.schema import Schema
from splinefm.learn.loop import train
from splinefm.learn.penalties import make_groups, unsmoothed_fields
from splinefm.learn.progress import SILENT, Progress
from splinefm.learn.rows.chunks import Chunks
from splinefm.learn.training import Callback, Chunk, Epoch, Run, Trained, Training
from splinefm.model.family import AnyModel

# The most rows of a table that is trained on again with other fields.
MOST_ROWS = 200_000


def run_training(
    model: AnyModel,
    chunks: Chunks,
    training: Training,
    rows: int,
    epoch: Callable[[int], Iterable[Chunk]],
    **options: Any,
) -> Trained:
    """Train on the chunks of every epoch, `rows` rows in all; `options` are those of `train`."""
    groups = make_groups(chunks.encoder, training)
    return train(
        model, chunks.encoder.layout, groups, epoch, rows, chunks.loss, training, start=chunks.start, **options
    )


def train_part(
    model: AnyModel,
    chunks: Chunks,
    training: Training,
    callbacks: Sequence[Callback] = (),
    progress: Progress = SILENT,
    run: Run = "first",
) -> Trained:
    """Train on the training rows, and choose the best epoch on the validation rows."""
    options = {"validation": chunks.validation, "callbacks": callbacks, "progress": progress, "run": run}
    return run_training(model, chunks, training, chunks.n_rows, chunks.epoch, **options)


def best_epoch(trained: Trained) -> Epoch:
    """Return the epoch whose parameters were kept."""
    return min(trained.history, key=lambda epoch: epoch.validation_loss)


def settings_for(training: Training, schema: Schema, n_rows: int) -> Training:
    """Return the settings of training with the defaults filled in for a table of `n_rows` rows with these fields."""
    return training.for_table(schema.names, n_rows, unsmoothed_fields(schema.resolved))
