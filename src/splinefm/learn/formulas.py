"""The formula of each loss: value, slope, link, the best constant, and the noise that penalties are scaled by."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from splinefm._wording import for_reader, other_losses
from splinefm.learn.sums import weighted_sum
from splinefm.learn.targets.labels import MOST_CLASSES

FloatArray = npt.NDArray[np.float64]
Link = Literal["logistic", "identity", "log", "softmax"]
ParameterName = Literal["quantile", "power", "delta"]

SMALLEST = 1e-6
"""The least probability or relative mean that training starts from."""
EFFICIENT = 1.345
"""Huber's threshold in standard deviations: 95 % as efficient as the squared loss if the noise is normal."""
_MAD = 1.4826  # the standard deviation of a normal distribution over its median absolute deviation


def from_score(link: Link, score: FloatArray) -> FloatArray:
    """Return the standardized prediction for scores; those of a softmax have the shape (n, classes).

    Examples
    --------
    >>> from_score("log", np.array([0.0])), from_score("logistic", np.array([0.0]))
    (array([1.]), array([0.5]))
    """
    if link == "logistic":
        # The argument of exp is never positive, so it cannot overflow.
        small = np.exp(-np.abs(score))
        return np.asarray(np.where(score >= 0, 1.0, small) / (1.0 + small))
    if link == "softmax":
        return softmax(score)
    return np.exp(np.minimum(score, 700.0)) if link == "log" else np.asarray(score)


def softmax(score: FloatArray) -> FloatArray:
    """Return exp(s_c) / Σ exp(s), the probabilities of classes, for scores of shape (n, classes).

    Examples
    --------
    >>> softmax(np.array([[0.0, 0.0], [1000.0, 0.0]]))
    array([[0.5, 0.5],
           [1. , 0. ]])
    """
    power = np.exp(score - score.max(axis=-1, keepdims=True))
    return np.asarray(power / power.sum(axis=-1, keepdims=True))


def log_softmax(score: FloatArray) -> FloatArray:
    """Return the logarithms of the probabilities of classes, finite even if a probability rounds to 0.

    Examples
    --------
    >>> log_softmax(np.array([[1000.0, 0.0]]))
    array([[    0., -1000.]])
    """
    below = score - score.max(axis=-1, keepdims=True)
    return np.asarray(below - np.log(np.exp(below).sum(axis=-1, keepdims=True)))


def weighted_quantile(y: FloatArray, weight: FloatArray, level: float) -> float:
    """Return the smallest value with at least this share of the weight at or below it.

    Examples
    --------
    >>> weighted_quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]), 0.5)
    2.0
    """
    if y.shape != weight.shape:
        raise ValueError(f"targets and weights must have one length, got {len(y)} and {len(weight)}")
    order = np.argsort(y, kind="stable")
    below = np.cumsum(weight[order])
    if not below[-1:].any():
        raise ZeroDivisionError("Weights sum to zero, can't be normalized")
    # Rounding of the sum must not move an exact share past its value.
    found = int(np.searchsorted(below, level * below[-1] * (1.0 - 1e-12)))
    return float(y[order[min(found, len(y) - 1)]])


@dataclass(frozen=True)
class LossFormula:
    """A loss of a standardized target y and a score s.

    Parameters
    ----------
    parameter : float
        Level of the quantile loss, power of the Tweedie loss, threshold of the Huber loss in units of the scale; 0 for
        losses without a parameter.
    n_classes : int
        The classes of a softmax.
    """

    parameter: float = 0.0
    n_classes: int = 0

    link: ClassVar[Link] = "identity"
    metric_name: ClassVar[str]
    title: ClassVar[str]
    named: ClassVar[ParameterName | None] = None
    """The setting of `Loss` that is its parameter."""
    by_mean: ClassVar[bool] = True
    """Whether mean and standard deviation of the target determine center, scale and start."""
    predicts_mean: ClassVar[bool] = True
    most_classes: ClassVar[int] = 0
    """The most labels that a target can have; 0 if targets are always numbers."""
    has_floor: ClassVar[bool] = False
    """Whether perfect predictions have a loss other than 0."""

    def value(self, y: FloatArray, score: FloatArray) -> FloatArray:
        """Return the loss of each row."""
        raise NotImplementedError

    def slope(self, y: FloatArray, score: FloatArray) -> FloatArray:
        """Return the derivative of the loss by the score."""
        return np.asarray(from_score(self.link, score) - y)

    def fit(self, y: FloatArray, weight: FloatArray) -> tuple[float, float]:
        """Return center and scale of targets."""
        return 0.0, 1.0

    def start(self, y: FloatArray, weight: FloatArray) -> float | FloatArray:
        """Return the best constant score; for softmax, one per class."""
        mean = float(np.average(y, weights=weight))
        return math.log(max(mean, SMALLEST)) if self.link == "log" else mean

    def floor(self, y: FloatArray, weight: FloatArray) -> float:
        """Return the weighted sum of the losses of perfect predictions."""
        return 0.0

    def dispersion(self, excess: float) -> float:
        """Return the noise φ, given the mean loss above the floor.

        It is the variance of the slope over the mean curvature: a penalty of φ/2 times the square of a parameter is
        then the prior of a parameter of size one.
        """
        return 2.0 * max(excess, 1e-9)

    def metric(self, mean_loss: float, scale: float) -> float:
        """Return a mean loss as it is reported, in the unit of the target."""
        return mean_loss

    def check(self, y: FloatArray) -> None:
        """Raise an error if a target is outside the range of the loss."""


class Logistic(LossFormula):
    """log(1 + exp s) - y s."""

    link, metric_name, title, most_classes = "logistic", "logloss", "log-loss", 2

    def value(self, y: FloatArray, score: FloatArray) -> FloatArray:
        return np.asarray(np.logaddexp(0.0, score) - y * score)

    def start(self, y: FloatArray, weight: FloatArray) -> float:
        mean = min(max(float(np.average(y, weights=weight)), SMALLEST), 1 - SMALLEST)
        return float(np.log(mean / (1 - mean)))

    def dispersion(self, excess: float) -> float:
        return 1.0

    def check(self, y: FloatArray) -> None:
        _demand(y, (y >= 0) & (y <= 1), "a logistic target must lie between 0 and 1", other_losses())


class Squared(LossFormula):
    """½ (s - y)²."""

    metric_name, title = "RMSE", "squared loss (standardized target)"

    def value(self, y: FloatArray, score: FloatArray) -> FloatArray:
        return np.asarray(0.5 * (score - y) ** 2)

    def fit(self, y: FloatArray, weight: FloatArray) -> tuple[float, float]:
        center = float(np.average(y, weights=weight))
        spread = float(np.sqrt(np.average((y - center) ** 2, weights=weight)))
        return center, _size(spread, center)

    def metric(self, mean_loss: float, scale: float) -> float:
        # DIFFERS: the paper reports the RMSE of the standardized target.
        return scale * math.sqrt(2.0 * mean_loss)


class Poisson(LossFormula):
    """exp s - y s, for y ≥ 0."""

    link, metric_name, title, has_floor = "log", "loss", "Poisson loss", True

    def value(self, y: FloatArray, score: FloatArray) -> FloatArray:
        return np.asarray(from_score("log", score) - y * score)

    def floor(self, y: FloatArray, weight: FloatArray) -> float:
        return weighted_sum(weight, y - y * np.log(np.maximum(y, 1e-300)))

    def check(self, y: FloatArray) -> None:
        _demand(y, y >= 0, "a Poisson target must be at least 0")


class _Positive(LossFormula):
    """A loss with a log link whose targets are in units of their mean: it does not see the unit of the target."""

    link = "log"

    def fit(self, y: FloatArray, weight: FloatArray) -> tuple[float, float]:
        mean = float(np.average(y, weights=weight))
        return 0.0, mean if mean > 0.0 else 1.0


class Gamma(_Positive):
    """Half the gamma deviance, y/μ - 1 - log(y/μ) with μ = exp s, for y > 0."""

    metric_name, title = "gamma deviance", "half the gamma deviance"

    def value(self, y: FloatArray, score: FloatArray) -> FloatArray:
        return np.asarray(y * np.exp(np.minimum(-score, 700.0)) - 1.0 + score - np.log(y))

    def slope(self, y: FloatArray, score: FloatArray) -> FloatArray:
        return np.asarray(1.0 - y * np.exp(np.minimum(-score, 700.0)))

    def metric(self, mean_loss: float, scale: float) -> float:
        return 2.0 * mean_loss

    def check(self, y: FloatArray) -> None:
        tweedie = for_reader('loss="tweedie"', "--loss tweedie")
        _demand(y, y > 0, "a gamma target must be above 0", f"with zeros, use {tweedie}")


class Tweedie(_Positive):
    """Half the Tweedie deviance of a power p between 1 and 2, for y ≥ 0.

    With μ = exp s, it is μ^(2-p) / (2-p) - y μ^(1-p) / (1-p) + y^(2-p) / ((1-p) (2-p)).
    """

    metric_name, title, named = "Tweedie deviance", "half the Tweedie deviance (targets over their mean)", "power"

    def value(self, y: FloatArray, score: FloatArray) -> FloatArray:
        one, two = 1.0 - self.parameter, 2.0 - self.parameter
        expected, seen = self._terms(y, score)
        return np.asarray(expected / two - seen / one + y**two / (one * two))

    def slope(self, y: FloatArray, score: FloatArray) -> FloatArray:
        expected, seen = self._terms(y, score)
        return np.asarray(expected - seen)

    def _terms(self, y: FloatArray, score: FloatArray) -> tuple[FloatArray, FloatArray]:
        one, two = 1.0 - self.parameter, 2.0 - self.parameter
        return np.exp(np.minimum(two * score, 700.0)), y * np.exp(np.minimum(one * score, 700.0))

    def metric(self, mean_loss: float, scale: float) -> float:
        return 2.0 * math.pow(scale, 2.0 - self.parameter) * mean_loss

    def check(self, y: FloatArray) -> None:
        _demand(y, y >= 0, "a Tweedie target must be at least 0")


class _Robust(LossFormula):
    """A loss with a center and a scale that outliers do not change."""

    by_mean, predicts_mean = False, False

    @property
    def level(self) -> float:
        """The quantile of the targets that is their center."""
        return 0.5

    def fit(self, y: FloatArray, weight: FloatArray) -> tuple[float, float]:
        center = weighted_quantile(y, weight, self.level)
        away = np.abs(y - center)
        spread = _MAD * weighted_quantile(away, weight, 0.5) or float(np.average(away, weights=weight))
        return center, _size(spread, center)


class Pinball(_Robust):
    """The pinball loss: τ (y - s) below the target, (1 - τ) (s - y) above it."""

    metric_name, title, named = "pinball loss", "pinball loss (standardized target)", "quantile"

    @property
    def level(self) -> float:
        """The quantile that is predicted."""
        return self.parameter

    def value(self, y: FloatArray, score: FloatArray) -> FloatArray:
        over = score - y
        return np.asarray(np.maximum((1.0 - self.parameter) * over, -self.parameter * over))

    def slope(self, y: FloatArray, score: FloatArray) -> FloatArray:
        over = score - y
        return np.asarray(np.where(over > 0, 1.0 - self.parameter, np.where(over < 0, -self.parameter, over)))

    def start(self, y: FloatArray, weight: FloatArray) -> float:
        return weighted_quantile(y, weight, self.parameter)

    def dispersion(self, excess: float) -> float:
        # The slope has variance τ (1 - τ) and the mean loss has the density of the target as its curvature. If the
        # noise is normal with standard deviation σ, the density is d / σ and the mean loss d σ, for a constant d.
        level, normal = self.parameter, NormalDist()
        density = normal.pdf(normal.inv_cdf(level))
        return level * (1.0 - level) / density**2 * max(excess, 1e-9)

    def metric(self, mean_loss: float, scale: float) -> float:
        return scale * mean_loss


class Huber(_Robust):
    """½ (s - y)² up to a distance δ, and δ (|s - y| - ½ δ) beyond it."""

    metric_name, title, named = "Huber loss", "Huber loss (standardized target)", "delta"

    def value(self, y: FloatArray, score: FloatArray) -> FloatArray:
        delta, size = self.parameter, np.abs(score - y)
        return np.asarray(np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta)))

    def slope(self, y: FloatArray, score: FloatArray) -> FloatArray:
        return np.clip(score - y, -self.parameter, self.parameter)

    def start(self, y: FloatArray, weight: FloatArray) -> float:
        np.average(y, weights=weight)  # which checks them
        return find_root(
            lambda score: weighted_sum(weight, self.slope(y, np.asarray(score))), float(y.min()), float(y.max())
        )

    def dispersion(self, excess: float) -> float:
        # Outliers raise the mean loss without limit, but not the variance of the slope. The noise is at most that of
        # the targets around their center, which have size one.
        return min(2.0 * max(excess, 1e-9), 1.0)

    def metric(self, mean_loss: float, scale: float) -> float:
        return scale**2 * mean_loss


class Softmax(LossFormula):
    """log Σ_c exp s_c - s_y, for a score per class and y the number of a class."""

    link, metric_name, title, most_classes = "softmax", "logloss", "log-loss", MOST_CLASSES

    def value(self, y: FloatArray, score: FloatArray) -> FloatArray:
        return np.asarray(-log_softmax(score)[np.arange(len(score)), y.astype(np.intp)])

    def slope(self, y: FloatArray, score: FloatArray) -> FloatArray:
        return np.asarray(softmax(score) - np.eye(self.n_classes)[y.astype(np.intp)])

    def start(self, y: FloatArray, weight: FloatArray) -> FloatArray:
        shares = np.average(np.eye(self.n_classes)[y.astype(np.intp)], axis=0, weights=weight)
        return np.asarray(np.log(np.maximum(shares, SMALLEST)))

    def dispersion(self, excess: float) -> float:
        return 1.0

    def check(self, y: FloatArray) -> None:
        inside = (y >= 0) & (y < self.n_classes) & (y == np.floor(y))
        _demand(y, inside, f"a softmax target must be an integer below {self.n_classes}")


FORMULAS: dict[str, type[LossFormula]] = {
    "logistic": Logistic,
    "squared": Squared,
    "poisson": Poisson,
    "gamma": Gamma,
    "tweedie": Tweedie,
    "quantile": Pinball,
    "huber": Huber,
    "softmax": Softmax,
}


def _demand(y: FloatArray, inside: npt.NDArray[np.bool_], rule: str, advice: str = "") -> None:
    """Raise an error with the first target that breaks a rule."""
    if not inside.all():
        raise ValueError(f"{rule}, got {y[~inside][0]:g}" + (f"; {advice}" if advice else ""))


def _size(spread: float, center: float) -> float:
    """Return a spread as a scale, or 1 if all targets are the same."""
    # The mean of equal numbers can differ from them by rounding.
    return spread if spread > 1e-14 * abs(center) else 1.0


def find_root(function: Callable[[float], float], low: float, high: float, halvings: int = 60) -> float:
    """Return where a function that does not fall crosses 0, by bisection."""
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if function(middle) < 0.0 else (low, middle)
    return 0.5 * (low + high)
