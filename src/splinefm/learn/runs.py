"""Runs: a model trained on the rows of a table, with the penalties of its fields."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from splinefm._parallel import count_threads
from splinefm.encode.schema import Schema
from splinefm.learn.loop.passes import Problem
from splinefm.learn.loop.penalties import make_groups, unsmoothed_fields
from splinefm.learn.loop.train import train
from splinefm.learn.progress import SILENT, Progress
from splinefm.learn.rows.chunks import Chunks
from splinefm.learn.training import Callback, Chunk, Epoch, Run, Trained, Training
from splinefm.model.family import AnyModel

# The most rows of a table that is trained on again with other fields.
MOST_ROWS = 200_000
# The most rows of a batch at which two runs at a time, with half of the threads each, take less time than one after the
# other. Larger batches gain by threads, and the run on all rows also takes the epochs that are then thrown away.
MOST_IN_PAIRS = 256
# The most numbers in the vectors of a model, and the most bytes of encoded rows, of which two runs have two.
MOST_NUMBERS_IN_PAIRS, MOST_BYTES_IN_PAIRS = 1 << 24, 1 << 26


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
    problem = Problem(model, chunks.encoder.layout, groups, chunks.loss, chunks.start)
    return train(problem, epoch, rows, training, **options)


def train_part(
    model: AnyModel,
    chunks: Chunks,
    training: Training,
    callbacks: Sequence[Callback] = (),
    progress: Progress = SILENT,
    run: Run = "first",
    whole: Chunk | None = None,
) -> Trained:
    """Train on the training rows, and choose the best epoch on the validation rows; `whole` is that of `train`."""
    options = {
        "validation": chunks.validation,
        "callbacks": callbacks,
        "progress": progress,
        "run": run,
        "whole": whole,
    }
    return run_training(model, chunks, training, chunks.n_rows, chunks.epoch, **options)


def rows_of_twin(model: AnyModel, chunks: Chunks, training: Training, callbacks: Sequence[Callback]) -> Chunk | None:
    """Return all rows if the run on them is to be taken at the same time as the one before it, else None.

    Callbacks hear of one run after the other.
    """
    may_twin = training.refit_on_all and not callbacks
    return chunks.whole() if may_twin and pay_in_pairs(model, chunks, training, chunks.n_rows) else None


def pay_in_pairs(model: AnyModel, chunks: Chunks, training: Training, rows: int) -> bool:
    """Return whether two runs at a time on so many rows take less time than one after the other with all threads.

    They take more memory, so large models and many encoded rows are left alone.
    """
    layout, kept = chunks.encoder.layout, chunks.kept
    n_numbers = chunks.loss.n_outputs * layout.n_features * model.width(len(layout.fields))
    return (
        training.engine == "cpu"
        and count_threads(training.threads) > 1
        and training.rows_per_step(rows) <= MOST_IN_PAIRS
        and n_numbers <= MOST_NUMBERS_IN_PAIRS
        and kept is not None
        and kept.slots.start.nbytes + kept.slots.weight.nbytes <= MOST_BYTES_IN_PAIRS
    )


def best_epoch(trained: Trained) -> Epoch:
    """Return the epoch whose parameters were kept."""
    return min(trained.history, key=lambda epoch: epoch.validation_loss)


def settings_for(training: Training, schema: Schema, n_rows: int) -> Training:
    """Return the settings of training with the defaults filled in for a table of `n_rows` rows with these fields."""
    return training.for_table(schema.names, n_rows, unsmoothed_fields(schema.resolved))
