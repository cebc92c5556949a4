"""Losses of a raw score: value, slope, the link to a prediction, and the best constant."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import ClassVar, Literal, get_args

import numpy as np

from splinefm import _core
from splinefm._arrays import BoolArray, FloatArray
from splinefm._wording import for_reader, other_losses, setting
from splinefm.train.targets import MAX_CLASSES, Classes, Label, listed, weighted_sum

# The formula of each loss: value, slope, link, the best constant, and the noise that penalties are scaled by.

Link = Literal["logistic", "identity", "log", "softmax"]
ParameterName = Literal["quantile", "power", "delta"]

SMALLEST = 1e-6
"""The least probability or relative mean that training starts from."""
EFFICIENT = 1.345
"""Huber's threshold in standard deviations: 95 % as efficient as the squared loss if the noise is normal."""
_MAD = 1.4826  # the standard deviation of a normal distribution over its median absolute deviation


def from_score(link: Link, score: FloatArray) -> FloatArray:
    """Return the standardized prediction for scores; scores of a softmax have the shape (n, classes).

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


_LINK_FORMULAS = {
    "logistic": "1 / (1 + exp(-score))",
    "identity": "center + scale * score",
    "log": "scale * exp(score)",
    "softmax": "exp(score) / sum of exp(scores of all classes)",
}


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
    meaning: ClassVar[str | None] = None
    """What the reported metric is; the parameter and the loss are filled in. None for metrics that people know."""
    named: ClassVar[ParameterName | None] = None
    """The setting of `Loss` that is its parameter; its range is in `splinefm._core.losses`."""
    default: ClassVar[float | None] = None
    """The value of that setting if none is given; None if the fit finds it."""
    by_mean: ClassVar[bool] = True
    """Whether mean and standard deviation of the target determine center, scale and start."""
    predicts_mean: ClassVar[bool] = True
    max_classes: ClassVar[int] = 0
    """The most labels that a target can have; 0 if targets are always numbers."""
    has_floor: ClassVar[bool] = False
    """Whether perfect predictions have a loss other than 0."""

    @property
    def variance_power(self) -> float:
        """The power of the mean that the variance is proportional to, of losses with a log link."""
        return 2.0

    def without_offset(self, y: FloatArray, weight: FloatArray, offset: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return targets and weights of rows without an offset that have the same best constant score.

        The logistic loss has none: see `TargetSummary`.
        """
        if self.link == "log":
            factor = np.exp(offset)
            return y / factor, weight * factor ** (2.0 - self.variance_power)
        return y - offset, weight

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

    link, metric_name, title, max_classes = "logistic", "logloss", "log-loss", 2

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
    meaning = "mean Poisson loss, rate - y log(rate); lower is better"

    @property
    def variance_power(self) -> float:
        return 1.0

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
    meaning = "mean gamma deviance, 2 (log(mean / y) + y / mean - 1); lower is better"

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

    metric_name, title = "Tweedie deviance", "half the Tweedie deviance (targets over their mean)"
    meaning = "mean Tweedie deviance of power {parameter:g}; lower is better"
    named, default = "power", 1.5

    @property
    def variance_power(self) -> float:
        return self.parameter

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

    metric_name, title = "pinball loss", "pinball loss (standardized target)"
    meaning = "mean pinball loss of quantile {parameter:g}, in the unit of the target; lower is better"
    named, default = "quantile", 0.5

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
    meaning = "mean Huber loss with delta {parameter:.6g}; lower is better"

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
        # Outliers raise the mean loss without limit, but not the variance of the slope. The noise is at most
        # the spread of the targets around their center, which is one.
        return min(2.0 * max(excess, 1e-9), 1.0)

    def metric(self, mean_loss: float, scale: float) -> float:
        return scale**2 * mean_loss


class Softmax(LossFormula):
    """log Σ_c exp s_c - s_y, for a score per class and y the number of a class."""

    link, metric_name, title, max_classes = "softmax", "logloss", "log-loss", MAX_CLASSES

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


LossName = Literal["logistic", "squared", "poisson", "gamma", "tweedie", "quantile", "huber", "softmax"]
LOSSES: tuple[LossName, ...] = get_args(LossName)
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


def _demand(y: FloatArray, inside: BoolArray, rule: str, advice: str = "") -> None:
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


_PARAMETERS: tuple[ParameterName, ...] = get_args(ParameterName)
# Sums of squares of larger targets overflow, and of smaller ones they are 0.
_LARGEST, _SMALLEST = 1e100, 1e-100


@dataclass(frozen=True)
class Loss:
    """A loss of target y and score s.

    | name | loss | prediction |
    |---|---|---|
    | logistic | log(1 + exp s) - y s, with y in [0, 1] | probability 1 / (1 + exp -s) |
    | squared | ½ (s - t)² with t = (y - center) / scale | mean, center + scale s |
    | poisson | exp s - y s, with y ≥ 0 | rate exp s |
    | gamma | half the gamma deviance, with y > 0 | mean scale exp s |
    | tweedie | half the Tweedie deviance, with y ≥ 0 | mean scale exp s |
    | quantile | max(τ (t - s), (τ - 1) (t - s)) | quantile center + scale s |
    | huber | ½ (s - t)² near t, linear farther than δ / scale | center + scale s |
    | softmax | log Σ_c exp s_c - s_y, with a score per class | probabilities exp s_c / Σ exp s |

    A logistic target can be a share, such as clicks out of impressions with the impressions as sample weights. The rows
    do not have to be expanded.

    Parameters
    ----------
    name : {"logistic", "squared", "poisson", "gamma", "tweedie", "quantile", "huber", "softmax"}
        The loss.
    center, scale : float
        What a fit finds, so that scores have size one in any unit of the target: mean and standard deviation (squared),
        0 and the mean (gamma, tweedie), the quantile or median and the median distance from it (quantile, huber).
    classes : tuple of labels, optional
        The labels that the targets 0, 1, ... have in the table: two for the logistic loss, at least two for softmax.
    class_weights : tuple of float, optional
        Class weights in training. Probabilities are as for a table with this many times each class's rows.
    quantile : float, optional
        For the quantile loss: the quantile τ to predict, between 0 and 1. The default is 0.5, the median.
    power : float, optional
        For the Tweedie loss: the power p between 1 and 2; the variance of a target with mean μ is proportional to μ^p.
        The default is 1.5.
    delta : float, optional
        For the Huber loss: the distance between target and prediction, in the unit of the target, from which the loss
        is linear. By default, the fit takes 1.345 times the spread of the training targets, which is 1.4826 times their
        median distance from the median.
    of_class : label, optional
        One of the classes of a softmax, if a model has the score of this class only. It predicts that score:
        probabilities need the scores of all classes.

    Examples
    --------
    >>> Loss("logistic").value(np.array([1.0]), np.array([0.0])).round(4)
    array([0.6931])
    >>> Loss("quantile", quantile=0.9).value(np.array([1.0]), np.array([0.0]))
    array([0.9])
    """

    name: LossName = "logistic"
    center: float = 0.0
    scale: float = 1.0
    classes: Classes | None = None
    class_weights: tuple[float, ...] | None = None
    quantile: float | None = None
    power: float | None = None
    delta: float | None = None
    of_class: Label | None = None

    def __post_init__(self) -> None:
        if self.name not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {self.name!r}")
        formula = FORMULAS[self.name]
        for parameter in _PARAMETERS:
            value = getattr(self, parameter)
            if parameter == formula.named:
                value = formula.default if value is None else _checked(self.name, parameter, value)
                object.__setattr__(self, parameter, value)
            elif value is not None:
                raise ValueError(_of_another_loss(parameter, value, self.name))
        for values in (self.classes, self.class_weights):
            if values is not None and not 2 <= len(values) <= self.max_classes:
                raise ValueError(f"the {self.name} loss is not for {len(values)} classes")
        if self.classes is not None and len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes must differ from each other, got {listed(self.classes)}")
        if self.of_class is not None and (self.name != "softmax" or self.of_class not in (self.classes or ())):
            raise ValueError(f"of_class must be one of the classes of a softmax, got {self.of_class!r}")

    @property
    def max_classes(self) -> int:
        """The most labels that a target can have; 0 if targets are always numbers."""
        return FORMULAS[self.name].max_classes

    @property
    def n_outputs(self) -> int:
        """Scores per row: one for each class of a softmax, otherwise 1."""
        return 1 if self.name != "softmax" or self.of_class is not None else len(self.classes or ())

    @property
    def formula(self) -> LossFormula:
        """The formula, with its parameter in units of the scale."""
        formula, n_classes = FORMULAS[self.name], len(self.classes or ())
        if formula.named == "delta":
            return formula(EFFICIENT if self.delta is None else self.delta / self.scale, n_classes)
        return formula(0.0 if formula.named is None else getattr(self, formula.named), n_classes)

    @property
    def parameter(self) -> float:
        """The parameter of the formula; 0 if it has none."""
        return self.formula.parameter

    @property
    def parameters(self) -> dict[str, float | None]:
        """The parameter of the loss by its name, as `Loss` and the estimators take it; empty if it has none.

        Examples
        --------
        >>> Loss("tweedie").parameters, Loss("squared").parameters
        ({'power': 1.5}, {})
        """
        named = FORMULAS[self.name].named
        return {} if named is None else {named: getattr(self, named)}

    @property
    def link(self) -> Link:
        """How a prediction follows from a score: center + scale f(score), with f the logistic function, 1, or exp.

        It is softmax for the scores of all classes. One class alone has the link of its score, the identity.
        """
        return FORMULAS[self.name].link if self.of_class is None else "identity"

    def link_formula(self, *, numbers: bool = False) -> str:
        """Return the formula of a prediction, with the names of `center` and `scale` or with their numbers.

        Examples
        --------
        >>> Loss("squared").link_formula(), Loss("gamma", scale=2.5).link_formula(numbers=True)
        ('center + scale * score', '2.5 * exp(score)')
        """
        formula = _LINK_FORMULAS[self.link]
        if numbers:
            formula = formula.replace("center", repr(float(self.center))).replace("scale", repr(float(self.scale)))
        return formula

    @property
    def predicts_mean(self) -> bool:
        """Whether a prediction is the expected target."""
        return FORMULAS[self.name].predicts_mean and self.of_class is None

    def __str__(self) -> str:
        """Return the name, with the parameter if there is one.

        Examples
        --------
        >>> str(Loss("squared")), str(Loss("quantile", quantile=0.9))
        ('squared', 'quantile (quantile=0.9)')
        """
        given = [f"{name}={value:.6g}" for name, value in self.parameters.items() if value is not None]
        return f"{self.name} ({given[0]})" if given else self.name

    def fit(self, y: FloatArray, weight: FloatArray) -> Loss:
        """Return the loss with the center and scale of the target."""
        self.check(y)
        if not self.max_classes and 0.0 < (largest := float(np.abs(y).max(initial=0.0))) < _SMALLEST:
            raise ValueError(f"all targets are below {_SMALLEST:g}, such as {largest:g}; multiply them by a constant")
        center, scale = self.formula.fit(y, weight)
        found = replace(self, center=center, scale=scale)
        return replace(found, delta=EFFICIENT * scale) if self.name == "huber" and self.delta is None else found

    def standardize(self, y: FloatArray) -> FloatArray:
        """Return the target as the model sees it."""
        return (y - self.center) / self.scale

    @property
    def score_unit(self) -> float:
        """What a score of one adds: the scale for losses that predict center + scale * score, otherwise 1.

        Examples
        --------
        >>> Loss("squared", scale=10.0).score_unit, Loss("gamma", scale=10.0).score_unit
        (10.0, 1.0)
        """
        return self.scale if self.link == "identity" and self.of_class is None else 1.0

    def value(self, y: FloatArray, score: FloatArray) -> FloatArray:
        """Return the loss of each row for standardized targets."""
        self._check_all_classes()
        return self.formula.value(y, score)

    def slope(self, y: FloatArray, score: FloatArray) -> FloatArray:
        """Return the derivative of the loss with respect to the score; for softmax, to the scores of all classes."""
        self._check_all_classes()
        return self.formula.slope(y, score)

    def predict(self, score: FloatArray) -> FloatArray:
        """Return the predictions for scores, in the unit of the target."""
        return self.center + self.scale * self.mean(score)

    def mean(self, score: FloatArray) -> FloatArray:
        """Return the standardized prediction."""
        return from_score(self.link, score)

    def start(self, y: FloatArray, weight: FloatArray) -> float | FloatArray:
        """Return the score of the best constant prediction, which is the initial bias; for softmax, one per class."""
        return self.formula.start(y, weight)

    def floor(self, y: FloatArray, weight: FloatArray) -> float:
        """Return the weighted sum of the losses of perfect predictions; 0 for all losses but Poisson."""
        return self.formula.floor(y, weight)

    @property
    def has_floor(self) -> bool:
        """Whether perfect predictions have a loss other than 0."""
        return self.formula.has_floor

    def dispersion(self, excess: float) -> float:
        """Return the noise, given the mean loss above the floor.

        It is 1 (logistic, softmax), the residual variance (squared), the deviance per row (Poisson, gamma, Tweedie), or
        what normal noise with this loss would have (quantile, Huber).
        """
        return self.formula.dispersion(excess)

    def compared(self, y: FloatArray, prediction: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return what predictions expect and what was measured; their means agree if the model is calibrated.

        These are prediction and target; for a quantile, its level and whether the target is at most the prediction.

        Examples
        --------
        >>> Loss("quantile", quantile=0.9).compared(np.array([1.0, 3.0]), np.array([2.0, 2.0]))
        (array([0.9, 0.9]), array([1., 0.]))
        """
        if self.quantile is None:
            return prediction, y
        return np.full(len(y), self.quantile), np.where(np.isnan(y), np.nan, y <= prediction)

    @property
    def metric_name(self) -> str:
        """The name of the metric that a mean loss is reported as."""
        return self.formula.metric_name

    @property
    def metric_meaning(self) -> str | None:
        """What that metric is; None for those that people know.

        Examples
        --------
        >>> Loss("quantile", quantile=0.9).metric_meaning
        'mean pinball loss of quantile 0.9, in the unit of the target; lower is better'
        """
        formula = self.formula
        unit = self.scale if formula.named == "delta" else 1.0
        return None if formula.meaning is None else formula.meaning.format(parameter=unit * formula.parameter)

    def metric(self, mean_loss: float) -> float:
        """Return a mean loss as it is reported, such as the RMSE in the unit of the target for the squared loss.

        Examples
        --------
        >>> Loss("squared", scale=10.0).metric(0.5)
        10.0
        """
        return self.formula.metric(mean_loss, self.scale)

    def check(self, y: FloatArray, name: str | None = None, rows_before: int | None = None) -> None:
        """Raise an error if a target is outside the range of the loss.

        Parameters
        ----------
        y : array
            The targets of a table, or of a part of it.
        name : str, optional
            Name of the column, for the message.
        rows_before : int, optional
            Rows of the table before this part, for the message; without it, no row is named.
        """
        if (missing := ~np.isfinite(y)).any():
            raise ValueError(_missing_message(missing, name, rows_before))
        self._check_all_classes()
        try:
            self.formula.check(y)
        except ValueError as error:
            raise error if name is None else ValueError(f"the target {name!r}: {error}") from None
        if (outside := np.abs(y) > _LARGEST).any():
            target = "a target" if name is None else f"the target {name!r}"
            raise ValueError(
                f"{target} must lie between -{_LARGEST:g} and {_LARGEST:g}, got {y[outside][0]:g}; "
                "divide it by a constant"
            )

    def _check_all_classes(self) -> None:
        if self.of_class is not None:
            raise ValueError(
                f"this model has the score of class {self.of_class!r} only, which has no loss; use the model of all "
                "classes, from which for_class took it"
            )


def _missing_message(missing: BoolArray, name: str | None, rows_before: int | None) -> str:
    target = "the target" if name is None else f"the target {name!r}"
    where = f"{int(missing.sum()):,} of {len(missing):,} rows"
    if rows_before is not None:
        first, read = rows_before + int(missing.argmax()), rows_before + len(missing)
        where = f"{int(missing.sum()):,} of the first {read:,} rows, beginning with row {first:,} (counted from 0)"
    return f"{target} has missing or infinite values: {where}; drop those rows"


def as_loss(loss: object, **parameters: float | None) -> Loss:
    """Return a loss, given its name or a `Loss`, and parameters that the user gave for it.

    Examples
    --------
    >>> as_loss("quantile", quantile=0.9, power=None).quantile
    0.9
    """
    given = {name: value for name, value in parameters.items() if value is not None}
    if not isinstance(loss, Loss):
        return Loss(loss, **given)  # type: ignore[arg-type]  # which checks the name
    for name, value in given.items():
        raise ValueError(f"{setting(name)}={value!r} conflicts with Loss(...); write it into the Loss")
    return loss


def _checked(loss: str, name: str, value: object) -> float:
    low, high = _core.losses[loss]
    number = float(value) if isinstance(value, int | float | np.number) and not isinstance(value, bool) else math.nan
    if not low < number < high:
        limits = "be above 0" if high == math.inf else f"lie between {low:g} and {high:g}, both excluded"
        raise ValueError(f"{setting(name)} must {limits}, got {value!r}")
    return number


def _of_another_loss(parameter: str, value: object, name: str) -> str:
    owner = next(loss for loss, formula in FORMULAS.items() if formula.named == parameter)
    return f"{setting(parameter)} belongs to the {owner} loss, got {value!r} with the {name} loss"
