"""The bias of a trained model, set so that the model is right on average.

The parameters of a model are moving averages. The steps around an average move the vectors of a row together, and the
product of two averages does not have what their products had in common: the scores of averages are shifted against
those that training saw. The bias, which has no penalty, makes up for it.

Slopes of the loss that add up to zero mean that predictions and targets have the same total, except with the gamma and
Tweedie losses, whose slopes weigh rows by their predictions: a sum of predicted expenses could be 10 % too low. Totals
count there, too, and the slopes are those of the Poisson loss, which has the same link.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from splinefm.learn.formulas import find_root
from splinefm.learn.losses import Loss
from splinefm.learn.training import Chunk
from splinefm.model.family import AnyModel, Params
from splinefm.model.scores import predict_scores

FloatArray = npt.NDArray[np.float64]
# The most rows that are scored, and the largest shift that is believed: beyond it, something else is wrong.
MOST_ROWS, LARGEST_SHIFT = 200_000, 4.0
# Rounds for the classes of a softmax, whose biases depend on each other; halvings of the interval of other shifts.
ROUNDS, HALVINGS = 10, 24


def center(model: AnyModel, params: Params, rows: Chunk, loss: Loss) -> Params:
    """Return the parameters with a bias for which the model is right on average over these rows."""
    some = np.arange(0, len(rows.y), max(1, -(-len(rows.y) // MOST_ROWS)))
    score = predict_scores(model, params, rows.slots[some]).astype(np.float64)
    shift = find_shift(loss, rows.y[some], score, rows.sample_weight[some])
    return params | {"bias": (params["bias"] + shift.reshape(params["bias"].shape)).astype(np.float32)}


def find_shift(loss: Loss, y: FloatArray, score: FloatArray, weight: FloatArray) -> FloatArray:
    """Return what to add to the scores, for each class, so that weighted slopes add up to zero; 0 if nothing does.

    Examples
    --------
    >>> y, score = np.array([0.0, 1.0, 1.0]), np.zeros(3)
    >>> find_shift(Loss("logistic"), y, score, np.ones(3)).round(3).tolist()  # log(2 / 1)
    0.693
    """
    return _shifts_of_classes(loss, y, score, weight) if score.ndim > 1 else np.array(_shift(loss, y, score, weight))


def _shift(loss: Loss, y: FloatArray, score: FloatArray, weight: FloatArray) -> float:
    totals = Loss("poisson") if loss.link == "log" else loss

    def total(by: float) -> float:
        return float(np.sum(weight * totals.slope(y, score + by)))

    ends = (total(-LARGEST_SHIFT), total(LARGEST_SHIFT))
    if not np.isfinite(ends).all() or np.sign(ends[0]) * np.sign(ends[1]) >= 0.0:  # tiny weights: no plain product
        return 0.0
    return find_root(total, -LARGEST_SHIFT, LARGEST_SHIFT, HALVINGS)


def _shifts_of_classes(loss: Loss, y: FloatArray, score: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the shifts of all classes: by turns, each moves by the logarithm of its share over the predicted one."""
    share = np.bincount(y.astype(np.int64), weight, score.shape[1])
    present, shift = share > 0.0, np.zeros(score.shape[1])
    for _ in range(ROUNDS):
        # The slopes are p - 1 for a row's class, else p.
        predicted = share + np.sum(weight[:, None] * loss.slope(y, score + shift), axis=0)
        if not np.isfinite(predicted).all() or (predicted[present] <= 0.0).any():
            return np.zeros_like(shift)
        shift[present] += np.log(share[present] / predicted[present])
    return shift if np.abs(shift).max() <= LARGEST_SHIFT else np.zeros_like(shift)
