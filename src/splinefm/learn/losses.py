"""Losses of a raw score: value, slope, the link to a prediction, and the best constant."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from splinefm._wording import other_losses
from splinefm.learn.labels import Classes, Label

FloatArray = npt.NDArray[np.float64]
LossName = Literal["logistic", "squared", "poisson", "softmax"]
LOSSES: tuple[LossName, ...] = ("logistic", "squared", "poisson")
"""Those with one score per row; softmax has one per class."""


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


def one_against_rest(score: FloatArray, output: int) -> FloatArray:
    """Return the log-odds of one class against all others, given the scores of all.

    Examples
    --------
    >>> one_against_rest(np.array([[0.0, 0.0, 0.0]]), 0).round(4)  # 1 to 2
    array([-0.6931])
    """
    others = np.delete(score, output, axis=1)
    largest = others.max(axis=1)
    return np.asarray(score[:, output] - largest - np.log(np.exp(others - largest[:, None]).sum(axis=1)))


@dataclass(frozen=True)
class Loss:
    """A loss of target y and score s.

    | name | loss | prediction |
    |---|---|---|
    | logistic | log(1 + exp s) - y s, with y in [0, 1] | probability 1 / (1 + exp -s) |
    | squared | ½ (s - t)² with t = (y - center) / scale | center + scale s |
    | poisson | exp s - y s, with y ≥ 0 | rate exp s |
    | softmax | log Σ_c exp s_c - s_y, with a score per class | probabilities exp s_c / Σ exp s |

    A logistic target can be a share, such as clicks out of impressions with the impressions as sample weights. The rows
    do not have to be expanded.

    Parameters
    ----------
    name : {"logistic", "squared", "poisson", "softmax"}
        The loss.
    center, scale : float
        Center and scale of the target of the squared loss, so that scores have size one in any unit of the target.
    classes : tuple of labels, optional
        The labels that the targets 0, 1, ... have in the table: two for the logistic loss, at least two for softmax.
    class_weights : tuple of float, optional
        Class weights in training. Probabilities are those of a table with this many times the rows of each class.
    of_class : label, optional
        One of the classes of a softmax, if a model has the score of this class only. It predicts that score:
        probabilities need the scores of all classes.

    Examples
    --------
    >>> Loss("logistic").value(np.array([1.0]), np.array([0.0])).round(4)
    array([0.6931])
    """

    name: LossName = "logistic"
    center: float = 0.0
    scale: float = 1.0
    classes: Classes | None = None
    class_weights: tuple[float, ...] | None = None
    of_class: Label | None = None

    def __post_init__(self) -> None:
        if self.name not in (*LOSSES, "softmax"):
            raise ValueError(f"loss must be one of {', '.join((*LOSSES, 'softmax'))}, got {self.name!r}")
        least, most = (2, math.inf) if self.name == "softmax" else (2, 2)
        for values in (self.classes, self.class_weights):
            if values is not None and not least <= len(values) <= most:
                raise ValueError(f"the {self.name} loss is not for {len(values)} classes")
        if self.of_class is not None and (self.name != "softmax" or self.of_class not in (self.classes or ())):
            raise ValueError(f"of_class must be one of the classes of a softmax, got {self.of_class!r}")

    @property
    def n_outputs(self) -> int:
        """Scores per row: one for each class of a softmax, otherwise 1."""
        return 1 if self.name != "softmax" or self.of_class is not None else len(self.classes or ())

    def fit(self, y: FloatArray, weight: FloatArray) -> Loss:
        """Return the loss with the center and scale of the target."""
        self.check(y)
        if self.name != "squared":
            return self
        center = float(np.average(y, weights=weight))
        spread = float(np.sqrt(np.average((y - center) ** 2, weights=weight)))
        # The mean of equal numbers can differ from them by rounding.
        return replace(self, center=center, scale=spread if spread > 1e-14 * abs(center) else 1.0)

    def standardize(self, y: FloatArray) -> FloatArray:
        """Return the target as the model sees it."""
        return (y - self.center) / self.scale if self.name == "squared" else y

    def value(self, y: FloatArray, score: FloatArray) -> FloatArray:
        """Return the loss of each row for standardized targets."""
        if self.name == "softmax":
            self._check_all_classes()
            return np.asarray(-log_softmax(score)[np.arange(len(y)), y.astype(np.intp)])
        if self.name == "logistic":
            return np.asarray(np.logaddexp(0.0, score) - y * score)
        if self.name == "squared":
            return np.asarray(0.5 * (score - y) ** 2)
        return np.asarray(np.exp(np.minimum(score, 700.0)) - y * score)

    def slope(self, y: FloatArray, score: FloatArray) -> FloatArray:
        """Return the derivative of the loss with respect to the score: mean - y, where a class y is an indicator."""
        if self.name == "softmax":
            self._check_all_classes()
            return self.mean(score) - np.eye(self.n_outputs)[y.astype(np.intp)]
        return np.asarray(self.mean(score) - y)

    def predict(self, score: FloatArray) -> FloatArray:
        """Return the predictions for scores, in the unit of the target."""
        return self.center + self.scale * self.mean(score)

    def mean(self, score: FloatArray) -> FloatArray:
        """Return the expected standardized target."""
        if self.name == "softmax":
            return softmax(score) if self.of_class is None else np.asarray(score)
        if self.name == "logistic":
            # The argument of exp is never positive, so it cannot overflow.
            small = np.exp(-np.abs(score))
            return np.asarray(np.where(score >= 0, 1.0, small) / (1.0 + small))
        return np.exp(np.minimum(score, 700.0)) if self.name == "poisson" else np.asarray(score)

    def start(self, y: FloatArray, weight: FloatArray) -> float:
        """Return the score of the best constant prediction, which is the initial bias; see `class_starts`."""
        mean = float(np.average(y, weights=weight))
        if self.name == "logistic":
            mean = min(max(mean, 1e-6), 1 - 1e-6)
            return float(np.log(mean / (1 - mean)))
        return float(np.log(max(mean, 1e-6))) if self.name == "poisson" else mean

    @staticmethod
    def class_starts(totals: FloatArray) -> FloatArray:
        """Return the initial biases of a softmax, given the total weights of the classes.

        Examples
        --------
        >>> softmax(Loss.class_starts(np.array([30.0, 10.0]))).round(2)
        array([0.75, 0.25])
        """
        return np.asarray(np.log(np.maximum(totals / totals.sum(), 1e-6)))

    def floor(self, y: FloatArray, weight: FloatArray) -> float:
        """Return the weighted sum of the losses of perfect predictions; 0 for the logistic loss."""
        if self.name != "poisson":
            return 0.0
        return float(weight @ (y - y * np.log(np.maximum(y, 1e-300))))

    def dispersion(self, excess: float) -> float:
        """Return the noise, given the mean loss above the floor.

        It is the residual variance (squared), the deviance per row (Poisson), or 1 (logistic and softmax).
        """
        return 1.0 if self.name in ("logistic", "softmax") else 2.0 * max(excess, 1e-9)

    @property
    def metric_name(self) -> str:
        """The name of the metric that a mean loss is reported as."""
        return {"squared": "RMSE", "logistic": "logloss", "poisson": "loss", "softmax": "logloss"}[self.name]

    def metric(self, mean_loss: float) -> float:
        """Return a mean loss as it is reported: for the squared loss, an RMSE in the unit of the target.

        Examples
        --------
        >>> Loss("squared", scale=10.0).metric(0.5)
        10.0
        """
        # DIFFERS: the paper reports the RMSE of the standardized target.
        return self.scale * math.sqrt(2.0 * mean_loss) if self.name == "squared" else mean_loss

    def check(self, y: FloatArray) -> None:
        """Raise an error if a target is outside the range of the loss."""
        if not np.isfinite(y).all():
            raise ValueError("the target has missing or infinite values; drop those rows")
        if self.name == "logistic" and ((y < 0) | (y > 1)).any():
            raise ValueError(
                f"a logistic target must lie between 0 and 1, got {y[(y < 0) | (y > 1)][0]:g}; " + other_losses()
            )
        if self.name == "poisson" and (y < 0).any():
            raise ValueError(f"a Poisson target must be at least 0, got {y[y < 0][0]:g}")
        if self.name == "softmax":
            self._check_all_classes()
            wrong = (y < 0) | (y >= self.n_outputs) | (y != np.floor(y))
            if wrong.any():
                raise ValueError(f"a softmax target must be an integer below {self.n_outputs}, got {y[wrong][0]:g}")

    def _check_all_classes(self) -> None:
        if self.of_class is not None:
            raise ValueError(
                f"this model has the score of class {self.of_class!r} only, which has no loss; use the model of all "
                "classes, from which for_class took it"
            )
