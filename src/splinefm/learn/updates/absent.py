"""Classes that a model was fitted without, and that first occur in an update.

Their share was taken for SMALLEST. Steps of an update would need tens of thousands of rows to make up for it, so the
bias is set at once, by the share of the rows that the class has. What the class depends on is learned as usual.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from splinefm.learn.formulas import SMALLEST, find_root
from splinefm.learn.losses import Loss
from splinefm.learn.training import Chunk

FloatArray = npt.NDArray[np.float64]
# A class whose bias is lower than all shares but SMALLEST, up to what a fit adds to it, and of which the model expects
# less than so many rows among all rows that it knows, was not among them.
MARGIN, FEWEST_EXPECTED = 1.0, 0.5
# The largest shift, and rounds for several classes.
MOST, ROUNDS = 60.0, 20


def has_low(bias: FloatArray) -> bool:
    """Return whether a fit may have had no rows of a class: its bias is as low as for a share of SMALLEST.

    Examples
    --------
    >>> has_low(np.array([-14.2])), has_low(np.array([-1.0, -0.5, -6.0]))
    (True, False)
    """
    return bool((_low(bias) if len(bias) > 1 else abs(bias) > -math.log(SMALLEST) - MARGIN).any())


def _low(bias: FloatArray) -> npt.NDArray[np.bool_]:
    return np.asarray(bias - bias.max() < math.log(SMALLEST) + MARGIN)


def shift_of_absent(loss: Loss, bias: FloatArray, rows: Chunk, score: FloatArray, n_known: int) -> FloatArray | None:
    """Return what to add to the biases for classes that occur for the first time; None if there is no such class.

    Parameters
    ----------
    loss : Loss
        The loss of the model.
    bias : array
        The bias of the model, or of each class of a softmax.
    rows : Chunk
        New rows.
    score : array, shape (n,) or (n, classes)
        Their scores.
    n_known : int
        Rows that the model has learned from.
    """
    if not has_low(bias) or not rows.sample_weight.any() or not np.isfinite(score).all():
        return None
    # A row of another class beside these keeps the share of few rows below one.
    certain = len(rows.y) / (len(rows.y) + 1.0)
    if score.ndim == 1:
        return _shift_of_two(loss, float(bias[0]), rows, score, n_known, certain)
    share = certain * _mean(rows, np.eye(score.shape[1])[rows.y.astype(np.intp)])
    new = _low(bias) & (share > 0.0) & (n_known * _mean(rows, loss.predict(score)) < FEWEST_EXPECTED)
    if not new.any():
        return None
    shift = np.zeros(score.shape[1])
    for _ in range(ROUNDS):  # the share of one class depends on the bias of the others
        predicted = _mean(rows, loss.predict(score + shift))
        shift[new] += np.log(share[new] / np.maximum(predicted[new], np.finfo(np.float64).tiny))
    return shift


def _shift_of_two(
    loss: Loss, bias: float, rows: Chunk, score: FloatArray, n_known: int, certain: float
) -> FloatArray | None:
    # Of the class that the bias is far away from: the second one if it is negative.
    sign = math.copysign(1.0, -bias)
    predicted = _mean(rows, loss.predict(sign * score))
    share = certain * float(_mean(rows, rows.y if bias < 0.0 else 1.0 - rows.y))
    if n_known * float(predicted) >= FEWEST_EXPECTED or not share > 0.0:
        return None
    return np.array(sign * find_root(lambda by: float(_mean(rows, loss.predict(sign * score + by))) - share, 0.0, MOST))


def _mean(rows: Chunk, values: FloatArray) -> FloatArray:
    """Return the weighted mean over the rows."""
    return np.asarray(np.average(values, axis=0, weights=rows.sample_weight))
