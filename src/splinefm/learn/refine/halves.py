"""A model of one half of the rows, judged by the other one: what it leaves unexplained, and if another is better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm.learn.losses import Loss
from splinefm.learn.metrics import mean_and_error
from splinefm.learn.progress import Progress
from splinefm.learn.refine.screening import MOST_SCREENED
from splinefm.learn.refine.values import read_values
from splinefm.learn.rows.chunks import Chunks
from splinefm.learn.rows.held_out import row_randoms
from splinefm.learn.runs import run_training
from splinefm.learn.training import Chunk, Trained, Training
from splinefm.model.family import AnyModel
from splinefm.model.scores import predict_scores

FloatArray = npt.NDArray[np.float64]
# The most epochs of a run on half of the rows, and those without a better validation loss that end it: it only has to
# tell crosses from noise.
HALF_EPOCHS, HALF_PATIENCE = 8, 2
# Classes whose residuals are screened.
MOST_CLASSES = 3
# A cross is kept if the mean loss of held-out rows falls by this share of it, and by as many standard errors. A large
# fall needs fewer: where a few rows have most of the loss, such as days that hardly exist, standard errors are large.
LEAST_FALL, STANDARD_ERRORS = 0.001, 2.0
LARGE_FALL, STANDARD_ERRORS_OF_LARGE = 0.04, 1.0


class Halves(NamedTuple):
    """Training rows in two halves: a model learns from one, the other judges."""

    learned: Chunk
    judged: Chunk
    rows: npt.NDArray[np.int64]
    """Positions of the judged rows among all training rows."""


def split_halves(chunks: Chunks, seed: int) -> Halves:
    """Return two random halves of the training rows; copies of a row are in the same one."""
    assert chunks.kept is not None
    first = _in_first(chunks, seed)
    judged = np.flatnonzero(~first)
    return Halves(take_rows(chunks.kept, np.flatnonzero(first)), take_rows(chunks.kept, judged), judged)


def halves_weigh(chunks: Chunks, seed: int) -> bool:
    """Return whether both halves have rows with a weight."""
    if chunks.kept is None:
        return False
    first, weight = _in_first(chunks, seed), chunks.kept.sample_weight
    return bool(weight[first].any() and weight[~first].any())


def _in_first(chunks: Chunks, seed: int) -> npt.NDArray[np.bool_]:
    return row_randoms(seed + 1, chunks.kept_numbers()) < 0.5


def take_rows(chunk: Chunk, rows: npt.NDArray[np.int64]) -> Chunk:
    return Chunk(chunk.slots[rows], chunk.y[rows], chunk.sample_weight[rows])


def spread_rows(weight: FloatArray, most: int) -> npt.NDArray[np.int64]:
    """Return the positions of at most so many rows, evenly spaced among those that have a weight.

    Examples
    --------
    >>> spread_rows(np.array([0.0, 1.0, 1.0, 0.0, 2.0]), 2).tolist()
    [1, 4]
    """
    rows = np.flatnonzero(weight)
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]


class Learned(NamedTuple):
    """A model of half of the rows, and its scores of the others and of the validation rows."""

    chunks: Chunks
    training: Training
    halves: Halves
    trained: Trained
    scores: list[FloatArray]

    @property
    def judged(self) -> tuple[Chunk, Chunk]:
        """The rows that it has not learned from."""
        assert self.chunks.validation is not None
        return self.halves.judged, self.chunks.validation

    def loss(self) -> float:
        """Return the mean loss of these rows."""
        weight = np.concatenate([chunk.sample_weight for chunk in self.judged])
        parts = zip(self.judged, self.scores, strict=True)
        values = np.concatenate([self.chunks.loss.value(chunk.y, score) for chunk, score in parts])
        return float(np.average(values, weights=weight))


def learn_half(model: AnyModel, chunks: Chunks, training: Training, threads: int, progress: Progress) -> Learned:
    """Train on one half of the rows with so many threads, and score the others."""
    assert chunks.kept is not None and chunks.validation is not None
    halves = split_halves(chunks, training.seed)
    half = halves.learned
    patience = None if training.patience is None else min(training.patience, HALF_PATIENCE)
    epochs = min(training.most_epochs(chunks.n_rows), HALF_EPOCHS)
    trained = run_training(
        model,
        chunks,
        replace(training, epochs=epochs, patience=patience, threads=threads),
        len(half.y),
        lambda epoch: [half],
        validation=chunks.validation,
        progress=progress,
        run="half",
    )
    judged = (halves.judged, chunks.validation)
    scores = [predict_scores(model, trained.params, part.slots, threads).astype(np.float64) for part in judged]
    return Learned(chunks, training, halves, trained, scores)


class Unexplained(NamedTuple):
    """Rows that a model has not learned from, and what it leaves unexplained of each class."""

    values: dict[str, npt.NDArray[Any]]
    residuals: list[FloatArray]
    scores: list[FloatArray]
    dispersion: float
    """The noise φ of the target."""
    rows: npt.NDArray[np.int64]
    """Positions of the rows among all training rows."""


def find_unexplained(learned: Learned, names: Sequence[str]) -> Unexplained:
    """Return what a model leaves unexplained in the half that it has not learned from."""
    chunks, judged, score, rows = learned.chunks, learned.halves.judged, learned.scores[0], learned.halves.rows
    if len(rows) > MOST_SCREENED:
        some = spread_rows(judged.sample_weight, MOST_SCREENED)
        rows, judged, score = rows[some], take_rows(judged, some), score[some]
    slope = chunks.loss.slope(judged.y, score).reshape(len(rows), -1)
    # Steps divide by the weight of a batch: multiples of all weights give the same model, and the same residuals here.
    residuals = -slope * np.sqrt(judged.sample_weight / judged.sample_weight.mean())[:, None]
    # Of several classes, those that leave the most unexplained.
    strongest = np.argsort(-np.square(residuals).sum(axis=0), kind="stable")[:MOST_CLASSES].tolist()
    moved = score.reshape(len(rows), -1)
    total = float(np.sum(judged.sample_weight * chunks.loss.value(judged.y, score)))
    excess = (total - chunks.loss.floor(judged.y, judged.sample_weight)) / float(judged.sample_weight.sum())
    return Unexplained(
        read_values(chunks, names, rows),
        [residuals[:, i] for i in strongest],
        [moved[:, i] for i in strongest],
        chunks.loss.dispersion(excess),
        rows,
    )


def loss_fall(loss: Loss, judged: Sequence[Chunk], before: Sequence[FloatArray], after: Sequence[FloatArray]) -> float:
    """Return by which share the loss of held-out rows falls; 0 if the fall is small or may be chance.

    `before` and `after` are the scores of the rows of each chunk.
    """
    differences, weights, total = [], [], 0.0
    for chunk, old, new in zip(judged, before, after, strict=True):
        value = loss.value(chunk.y, old)
        differences.append(value - loss.value(chunk.y, new))
        weights.append(chunk.sample_weight)
        total += float(np.sum(chunk.sample_weight * value)) - loss.floor(chunk.y, chunk.sample_weight)
    difference, weight = np.concatenate(differences), np.concatenate(weights)
    if not weight.any():
        return 0.0
    mean, error = mean_and_error(difference, weight)
    share = mean * float(weight.sum()) / total if total > 0.0 else 0.0
    needed = STANDARD_ERRORS_OF_LARGE if share >= LARGE_FALL else STANDARD_ERRORS
    return share if share >= LEAST_FALL and mean > needed * error else 0.0
