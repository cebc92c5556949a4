"""Sums over the rows that judge an update: losses, predictions and outcomes; those of several processes add up."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.learn.losses import Loss
from splinefm.learn.rows.source import Source

FloatArray = npt.NDArray[np.float64]
# A difference that chance explains refuses no update: so many standard errors.
DEVIATIONS = 3.0


@dataclass(frozen=True)
class Judgment:
    """How well a model predicts some rows.

    Parameters
    ----------
    rows : int
        Number of rows.
    loss : float
        Their mean loss.
    predicted, measured : float
        Mean prediction and mean target; of the class that is farthest off, if there are more than two.
    error : float
        Predicted / measured - 1, or (predicted - measured) / standard deviation for the squared loss; NaN where it says
        nothing, as for the Huber loss.
    """

    rows: int
    loss: float
    predicted: float
    measured: float
    error: float


class Rise(NamedTuple):
    """How much the losses of rows rise by an update: the sum over rows, and the sum of squares."""

    total: float
    squares: float

    @staticmethod
    def between(before: FloatArray, after: FloatArray) -> Rise:
        """From the losses of the same rows before and after the update."""
        rise = after - before
        return Rise(float(rise.sum()), float((rise**2).sum()))

    @property
    def is_sure(self) -> bool:
        """Whether chance does not explain it; written so that NaN is sure."""
        return not self.total <= DEVIATIONS * math.sqrt(self.squares)


@dataclass(frozen=True)
class Calibration:
    """Means of one output, the ratio that is judged, and whether chance explains their difference."""

    predicted: float
    measured: float
    ratio: float
    is_sure: bool
    where: str
    scale: float | None  # of the target, if the difference counts and not the ratio

    @property
    def measure(self) -> str:
        return "predicted / measured - 1" if self.scale is None else "(predicted - measured) / standard deviation"

    @property
    def error(self) -> float:
        return self.ratio - 1.0 if self.scale is None else (self.predicted - self.measured) / self.scale

    def lowest(self, bound: float) -> float:
        return 1.0 / (1.0 + bound) - 1.0 if self.scale is None else -bound


class Sums:
    """Sums over the rows of batches, for one model; `by_row` keeps the loss of each row, to compare two models."""

    def __init__(self, loss: Loss, *, by_row: bool = True) -> None:
        self.loss = loss
        self.rows, self.weight, self.total, self.floor = 0, 0.0, 0.0, 0.0
        self._losses: list[FloatArray] | None = [] if by_row else None
        n = loss.n_outputs
        self.expected, self.measured = np.zeros(n), np.zeros(n)
        self.squares, self.spread = np.zeros(n), np.zeros(n)  # variance of the difference: as seen, and as expected

    def add(self, y: FloatArray, weight: FloatArray, score: FloatArray) -> None:
        """Add rows: their targets, weights and scores."""
        t = self.loss.standardize(y)
        losses = weight * self.loss.value(t, score)
        if self._losses is not None:
            self._losses.append(losses)
        self.total += float(losses.sum())
        self.floor += self.loss.floor(t, weight)
        expected, measured = self._compared(y, score)
        self.expected += weight @ expected
        self.measured += weight @ measured
        self.squares += (weight**2) @ (expected - measured) ** 2
        self.spread += (weight**2) @ self._variance(expected)
        self.rows, self.weight = self.rows + len(y), self.weight + float(weight.sum())

    def to_array(self) -> FloatArray:
        """Return all sums; those of several processes add up. The losses of rows are not among them."""
        single = [self.rows, self.weight, self.total, self.floor]
        return np.concatenate([single, self.expected, self.measured, self.squares, self.spread])

    @staticmethod
    def from_array(loss: Loss, values: FloatArray) -> Sums:
        """Return the sums that `to_array` returned."""
        sums = Sums(loss, by_row=False)
        sums.rows, (sums.weight, sums.total, sums.floor) = int(values[0]), values[1:4].tolist()
        sums.expected, sums.measured, sums.squares, sums.spread = values[4:].reshape(4, -1)
        return sums

    def _compared(self, y: FloatArray, score: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what was predicted and what was measured, a column for each class."""
        prediction = self.loss.predict(score)
        if self.loss.link == "softmax":
            return prediction, (y[:, None] == np.arange(prediction.shape[1])).astype(np.float64)
        expected, measured = self.loss.compared(y, prediction)
        return expected[:, None], np.asarray(measured, np.float64)[:, None]

    def _variance(self, expected: FloatArray) -> FloatArray:
        """Return the least variance of a target with this mean: few rows without a click differ from it by chance."""
        if self.loss.link in ("logistic", "softmax") or self.loss.quantile is not None:
            return expected * (1.0 - expected)
        if self.loss.link == "log":
            return expected if self.loss.name == "poisson" else expected**2
        return np.zeros_like(expected)

    @property
    def row_losses(self) -> FloatArray:
        return np.concatenate([np.empty(0), *(self._losses or ())])

    @property
    def mean_loss(self) -> float:
        return self.total / max(self.weight, 1e-300)

    @property
    def excess(self) -> float:
        """The mean loss above that of perfect predictions."""
        return self.mean_loss - self.floor / max(self.weight, 1e-300)

    def farthest(self) -> Calibration | None:
        """Return the output whose means differ the most; None if they say nothing."""
        if not self.weight or not (self.loss.predicts_mean or self.loss.quantile is not None):
            return None
        found = [self._calibration(i) for i in range(len(self.expected))]
        return max(found, key=lambda item: (item.is_sure, abs(math.log(max(item.ratio, 1e-300)))))

    def _calibration(self, i: int) -> Calibration:
        total_p, total_y = float(self.expected[i]), float(self.measured[i])
        predicted, measured = total_p / self.weight, total_y / self.weight
        scale = None
        if self.loss.link == "identity" and self.loss.quantile is None:  # a mean may be zero or negative
            scale = self.loss.scale
            distance = (predicted - measured) / scale
            ratio = 1.0 + distance if distance >= 0.0 else 1.0 / (1.0 - distance)
        else:
            ratio = total_p / total_y if total_y > 0.0 else math.inf if total_p > 0.0 else 1.0
        variance = float(np.maximum(self.squares[i], self.spread[i]))
        is_sure = not abs(total_p - total_y) <= DEVIATIONS * math.sqrt(variance)
        where = "" if self.loss.classes is None or len(self.expected) == 1 else f" for class {self.loss.classes[i]!r}"
        return Calibration(predicted, measured, ratio, is_sure, where, scale)

    def judgment(self) -> Judgment:
        off = self.farthest()
        if off is None:
            return Judgment(self.rows, self.mean_loss, math.nan, math.nan, math.nan)
        return Judgment(self.rows, self.mean_loss, off.predicted, off.measured, off.error)


def score_rows(
    sums: Sums, score: Callable[[object], npt.NDArray[np.float32]], source: Source, batch: pa.RecordBatch
) -> None:
    """Add the rows of a batch as a model scores them."""
    y, weight = source.targets(batch)
    sums.loss.check(y, source.target)
    sums.add(y, weight, score(batch).astype(np.float64))
