"""What a model of one half of the rows leaves unexplained in the other one: where crosses are looked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm.learn.progress import Progress
from splinefm.learn.rows.chunks import Chunks, take_rows
from splinefm.learn.rows.held_out import row_randoms
from splinefm.learn.runs import run_training, settings_for
from splinefm.learn.search.screening import MOST_SCREENED
from splinefm.learn.search.setting import Setting
from splinefm.learn.search.values import read_values
from splinefm.learn.training import FloatArray, Training
from splinefm.model.scores import predict_scores

# The most epochs of a run on half of the rows, and how many without a better validation loss end it: it only has to
# tell what is missing.
HALF_EPOCHS, HALF_PATIENCE = 10, 2
# Classes whose residuals are screened.
MAX_CLASSES = 3


class Unexplained(NamedTuple):
    """Rows that a model has not learned from, and what it leaves unexplained of each class."""

    values: dict[str, npt.NDArray[Any]]
    residuals: list[FloatArray]
    scores: list[FloatArray]
    dispersion: float
    """The noise φ of the target."""
    rows: npt.NDArray[np.int64]
    """Positions of the rows among all training rows."""


def find_unexplained(
    setting: Setting, chunks: Chunks, training: Training, names: Sequence[str], max_learned: int, progress: Progress
) -> Unexplained | None:
    """Fit a setting to one half of the training rows, and return what it leaves unexplained in the other half.

    None if one of the halves has no weight.

    Parameters
    ----------
    setting : Setting
        The setting.
    chunks : Chunks
        The rows, encoded with its schema. Copies of a row are in the same half.
    training : Training
        Seed and threads.
    names : sequence of str
        The fields whose values are returned.
    max_learned : int
        The most rows to learn from.
    progress : Progress
        Where to report.
    """
    kept = chunks.kept
    assert kept is not None
    is_first = row_randoms(training.seed + 1, chunks.kept_numbers()) < 0.5
    has_weight = kept.sample_weight > 0
    learned, rows = spread_rows(is_first, max_learned), spread_rows(~is_first & has_weight, MOST_SCREENED)
    if not has_weight[learned].any() or not len(rows):
        return None
    half, judged = take_rows(kept, learned), take_rows(kept, rows)
    settings = replace(
        settings_for(setting.training, setting.schema, chunks.encoder.n_rows),
        epochs=HALF_EPOCHS,
        patience=HALF_PATIENCE,
        threads=training.threads,
        engine="cpu",
        device=None,
    )
    options = {"validation": chunks.validation, "progress": progress, "run": "search"}
    params = run_training(setting.model, chunks, settings, len(half.y), lambda epoch: [half], **options).params
    score = predict_scores(setting.model, params, judged.slots, training.threads).astype(np.float64)
    loss, weight = chunks.loss, judged.sample_weight
    slope = loss.slope(judged.y, score).reshape(len(rows), -1)
    # Steps divide by the weight of a batch: multiples of all weights give the same model, and the same residuals here.
    residuals = -slope * np.sqrt(weight / weight.mean())[:, None]
    # Of several classes, those that leave the most unexplained.
    strongest = np.argsort(-np.square(residuals).sum(axis=0), kind="stable")[:MAX_CLASSES].tolist()
    excess = float(np.sum(weight * loss.value(judged.y, score))) - loss.floor(judged.y, weight)
    by_class = score.reshape(len(rows), -1)
    return Unexplained(
        read_values(chunks, names, rows),
        [residuals[:, i] for i in strongest],
        [by_class[:, i] for i in strongest],
        loss.dispersion(excess / float(weight.sum())),
        rows,
    )


def spread_rows(chosen: npt.NDArray[np.bool_], most: int) -> npt.NDArray[np.int64]:
    """Return the positions of at most `most` chosen rows, evenly spaced among them.

    Examples
    --------
    >>> spread_rows(np.array([False, True, True, False, True]), 2).tolist()
    [1, 4]
    """
    rows = np.flatnonzero(chosen)
    return rows if len(rows) <= most else rows[np.linspace(0, len(rows) - 1, most).astype(np.int64)]
