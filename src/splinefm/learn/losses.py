"""Losses of a raw score: value, slope, the link to a prediction, and the best constant."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from splinefm._wording import setting
from splinefm.learn.formulas import EFFICIENT, FORMULAS, FloatArray, Link, LossFormula, from_score
from splinefm.learn.targets.labels import Classes, Label, listed

LossName = Literal["logistic", "squared", "poisson", "gamma", "tweedie", "quantile", "huber", "softmax"]
LOSSES: tuple[LossName, ...] = get_args(LossName)
_DEFAULTS = {"quantile": 0.5, "power": 1.5, "delta": None}
# Sums of squares of larger targets overflow, and those of smaller ones are 0.
_LARGEST, _SMALLEST = 1e100, 1e-100
_RANGES = {"quantile": (0.0, 1.0), "power": (1.0, 2.0), "delta": (0.0, math.inf)}


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
        Class weights in training. Probabilities are those of a table with this many times the rows of each class.
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
        own = FORMULAS[self.name].named
        for parameter, default in _DEFAULTS.items():
            value = getattr(self, parameter)
            if parameter == own:
                object.__setattr__(self, parameter, default if value is None else _checked(parameter, value))
            elif value is not None:
                raise ValueError(_of_another_loss(parameter, value, self.name))
        for values in (self.classes, self.class_weights):
            if values is not None and not 2 <= len(values) <= self.most_classes:
                raise ValueError(f"the {self.name} loss is not for {len(values)} classes")
        if self.classes is not None and len(set(self.classes)) < len(self.classes):
            raise ValueError(f"classes must differ from each other, got {listed(self.classes)}")
        if self.of_class is not None and (self.name != "softmax" or self.of_class not in (self.classes or ())):
            raise ValueError(f"of_class must be one of the classes of a softmax, got {self.of_class!r}")

    @property
    def most_classes(self) -> int:
        """The most labels that a target can have; 0 if targets are always numbers."""
        return FORMULAS[self.name].most_classes

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
        if not self.most_classes and 0.0 < (largest := float(np.abs(y).max(initial=0.0))) < _SMALLEST:
            raise ValueError(f"all targets are below {_SMALLEST:g}, such as {largest:g}; multiply them by a constant")
        center, scale = self.formula.fit(y, weight)
        found = replace(self, center=center, scale=scale)
        return replace(found, delta=EFFICIENT * scale) if self.name == "huber" and self.delta is None else found

    def standardize(self, y: FloatArray) -> FloatArray:
        """Return the target as the model sees it."""
        return (y - self.center) / self.scale

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
            The targets, which may be a part of those of a table.
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


def _missing_message(missing: npt.NDArray[np.bool_], name: str | None, rows_before: int | None) -> str:
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
        raise ValueError(f"{setting(name)}={value!r} is given beside a Loss; write it into the Loss")
    return loss


def _checked(name: str, value: object) -> float:
    low, high = _RANGES[name]
    number = float(value) if isinstance(value, int | float | np.number) and not isinstance(value, bool) else math.nan
    if not low < number < high:
        limits = "be above 0" if high == math.inf else f"lie between {low:g} and {high:g}, both excluded"
        raise ValueError(f"{setting(name)} must {limits}, got {value!r}")
    return number


def _of_another_loss(parameter: str, value: object, name: str) -> str:
    owner = next(loss for loss, formula in FORMULAS.items() if formula.named == parameter)
    return f"{setting(parameter)} belongs to the {owner} loss, got {value!r} with the {name} loss"
