"""What losses are fitted to: moments, a sample and class totals of the targets, which can be merged."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.train.losses import SMALLEST, Loss, find_root, from_score
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
        self.rows = np.zeros((4, 0))
        """Position in [0, 1), target, weight and offset of each row."""

    def add(self, first: int, y: FloatArray, weight: FloatArray, offset: FloatArray | None = None) -> None:
        """Add rows, of which the first has this number in the table."""
        position = np.modf(np.arange(first, first + len(y)) * _GOLDEN)[0]
        self._append(np.stack([position, y, weight, np.zeros(len(y)) if offset is None else offset])[:, weight > 0.0])

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


def moments_of(loss: Loss, y: FloatArray, weight: FloatArray, offset: FloatArray | None) -> Moments:
    """Return the moments of the targets that a loss is fitted to, if they do without a sample."""
    if offset is not None and loss.link != "logistic":
        y, weight = loss.formula.without_offset(y, weight, offset)
    return Moments.of(y, weight)


def needs_sample(loss: Loss, has_offset: bool) -> bool:
    """Return whether moments of the targets do not determine what a loss is fitted to."""
    return not loss.formula.by_mean or (has_offset and loss.link == "logistic")


def sampled(
    loss: Loss, y: FloatArray, weight: FloatArray, offset: FloatArray | None
) -> tuple[FloatArray, FloatArray, FloatArray | None]:
    """Return targets, weights and offsets of a sample; targets other than log-odds have their offset subtracted."""
    if offset is not None and loss.link != "logistic":
        return *loss.formula.without_offset(y, weight, offset), None
    return y, weight, offset


def _start_of_log_odds(y: FloatArray, weight: FloatArray, offset: FloatArray) -> float:
    """Return the constant for which log-odds of constant + offset predict as many positive rows as there are."""
    total = float(weight.sum())
    positive = min(max(weighted_sum(weight, y) / total, SMALLEST), 1.0 - SMALLEST) * total
    farthest = float(np.abs(offset).max()) - math.log(SMALLEST)
    return find_root(
        lambda score: weighted_sum(weight, from_score("logistic", score + offset)) - positive, -farthest, farthest
    )


class TargetSummary:
    """What losses are fitted to: mean and standard deviation of all targets, a sample for quantiles, totals of classes.

    Parameters
    ----------
    loss : Loss
        The loss that will be fitted.
    has_offset : bool
        Whether the rows have an offset.
    """

    def __init__(self, loss: Loss, has_offset: bool = False) -> None:
        self.loss, self.has_offset = loss, has_offset
        self.moments, self.sample, self.n_rows = Moments(), TargetSample(), 0
        self.totals = np.zeros(loss.n_outputs)

    def add(self, y: FloatArray, weight: FloatArray, offset: FloatArray | None = None) -> None:
        """Add the next rows of the table."""
        self.moments = self.moments.merge(moments_of(self.loss, y, weight, offset))
        if needs_sample(self.loss, self.has_offset):
            self.sample.add(self.n_rows, *sampled(self.loss, y, weight, offset))
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
        if self.has_offset and loss.link == "logistic":
            return loss, _start_of_log_odds(*self.sample.rows[1:])
        if self.has_offset and loss.link == "log":  # means per unit of exposure can be as small as the unit
            mean = float(loss.standardize(y)[0])
            return loss, math.log(mean if mean > 0.0 else SMALLEST)
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
