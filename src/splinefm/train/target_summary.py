"""What losses are fitted to: moments, a sample and class totals of the targets, which can be merged."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.train.losses import Loss
from splinefm.train.targets import check_total_weight, class_totals, weighted_sum

# Targets that are kept to find quantiles of them: all of a table, or a sample of at least half as many.
_MAX_TARGETS = 1 << 18
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


class Moments(NamedTuple):
    """Total weight, weighted mean, and weighted sum of squares around it; parts can be merged.

    Examples
    --------
    >>> Moments.of(np.array([1.0, 3.0]), np.ones(2)).merge(Moments.of(np.array([5.0]), np.ones(1)))
    Moments(weight=3.0, mean=3.0, squares=8.0)
    """

    weight: float = 0.0
    mean: float = 0.0
    squares: float = 0.0

    @staticmethod
    def of(y: FloatArray, weight: FloatArray) -> Moments:
        """Return the moments of some rows."""
        total = float(weight.sum())
        if not total > 0.0:
            return Moments()
        mean = float(np.average(y, weights=weight))
        return Moments(total, mean, weighted_sum(weight, (y - mean) ** 2))

    def merge(self, other: Moments) -> Moments:
        """Return the moments of the rows of both."""
        if not other.weight > 0.0:
            return self
        gap, share = other.mean - self.mean, other.weight / (self.weight + other.weight)
        squares = self.squares + (other.squares + gap**2 * self.weight * share)
        return Moments(self.weight + other.weight, self.mean + gap * share, squares)


class TargetSample:
    """A part of the targets, with weights; which rows depends only on their numbers, and follows no period of a table.

    Samples of parts of a table can be merged: the result is the sample of the whole.
    """

    def __init__(self) -> None:
        self.share = 1.0
        self.rows = np.zeros((3, 0))
        """Position in [0, 1), target and weight of each row."""

    def add(self, first: int, y: FloatArray, weight: FloatArray) -> None:
        """Add rows, of which the first has this number in the table."""
        position = np.modf(np.arange(first, first + len(y)) * _GOLDEN)[0]
        self._append(np.stack([position, y, weight])[:, weight > 0.0])

    def merge(self, other: TargetSample) -> None:
        """Add the sample of later rows."""
        self.share = min(self.share, other.share)
        self.rows = self.rows[:, self.rows[0] < self.share]
        self._append(other.rows)

    def _append(self, rows: FloatArray) -> None:
        self.rows = np.concatenate([self.rows, rows[:, rows[0] < self.share]], axis=1)
        while self.rows.shape[1] > _MAX_TARGETS:
            self.share /= 2.0
            self.rows = self.rows[:, self.rows[0] < self.share]


class TargetSummary:
    """What losses are fitted to: mean and standard deviation of all targets, a sample for quantiles, totals of classes.

    Parameters
    ----------
    loss : Loss
        The loss that will be fitted.
    """

    def __init__(self, loss: Loss) -> None:
        self.loss = loss
        self.moments, self.sample, self.n_rows = Moments(), TargetSample(), 0
        self.totals = np.zeros(loss.n_outputs)

    def add(self, y: FloatArray, weight: FloatArray) -> None:
        """Add the next rows of the table."""
        self.moments = self.moments.merge(Moments.of(y, weight))
        if not self.loss.formula.by_mean:
            self.sample.add(self.n_rows, y, weight)
        if self.loss.link == "softmax":
            self.totals += class_totals(y, weight, len(self.totals))
        self.n_rows += len(y)

    def fit_loss(self) -> tuple[Loss, float | FloatArray]:
        """Return the loss with the center and scale of the target, and the score of the best constant: see `start`."""
        if self.moments.weight == 0.0:
            raise ValueError("all sample weights are 0; at least one row must have a positive weight")
        check_total_weight(self.moments.weight)
        y, weight = self._targets()
        loss = self.loss.fit(y, weight)
        return loss, loss.start(loss.standardize(y), weight)

    def _targets(self) -> tuple[FloatArray, FloatArray]:
        if not self.loss.formula.by_mean:
            return self.sample.rows[1], self.sample.rows[2]
        if self.loss.link == "softmax":  # a row per class
            return np.arange(len(self.totals), dtype=np.float64), self.totals
        if self.loss.link != "identity":
            return np.array([self.moments.mean]), np.ones(1)
        # Two targets with the mean and standard deviation of all.
        spread = math.sqrt(self.moments.squares / self.moments.weight)
        return self.moments.mean + spread * np.array([-1.0, 1.0]), np.ones(2)
