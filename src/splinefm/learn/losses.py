"""Losses of a raw score: value, slope, the link to a prediction, and the best constant."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from splinefm._wording import other_losses
from splinefm.learn.labels import Classes

FloatArray = npt.NDArray[np.float64]
LossName = Literal["logistic", "squared", "poisson"]
LOSSES: tuple[LossName, ...] = ("logistic", "squared", "poisson")


@dataclass(frozen=True)
class Loss:
    """A loss of target y and score s.

    | name | loss | prediction |
    |---|---|---|
    | logistic | log(1 + exp s) - y s, with y in [0, 1] | probability 1 / (1 + exp -s) |
    | squared | ½ (s - t)² with t = (y - center) / scale | center + scale s |
    | poisson | exp s - y s, with y ≥ 0 | rate exp s |

    A logistic target can be a share, such as clicks out of impressions with the impressions as sample weights. The rows
    do not have to be expanded.

    Parameters
    ----------
    name : {"logistic", "squared", "poisson"}
        The loss.
    center, scale : float
        Center and scale of the target of the squared loss, so that scores have size one in any unit of the target.
    classes : pair of labels, optional
        The labels that the logistic targets 0 and 1 have in the table.
    class_weights : pair of float, optional
        Class weights in training. Probabilities are those of a table with this many times the rows of each class.

    Examples
    --------
    >>> Loss("logistic").value(np.array([1.0]), np.array([0.0])).round(4)
    array([0.6931])
    """

    name: LossName = "logistic"
    center: float = 0.0
    scale: float = 1.0
    classes: Classes | None = None
    class_weights: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.name not in LOSSES:
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {self.name!r}")

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
        if self.name == "logistic":
            return np.asarray(np.logaddexp(0.0, score) - y * score)
        if self.name == "squared":
            return np.asarray(0.5 * (score - y) ** 2)
        return np.asarray(np.exp(np.minimum(score, 700.0)) - y * score)

    def slope(self, y: FloatArray, score: FloatArray) -> FloatArray:
        """Return the derivative of the loss with respect to the score: mean - y for all three."""
        return np.asarray(self.mean(score) - y)

    def predict(self, score: FloatArray) -> FloatArray:
        """Return the predictions for scores, in the unit of the target."""
        return self.center + self.scale * self.mean(score)

    def mean(self, score: FloatArray) -> FloatArray:
        """Return the expected standardized target."""
        if self.name == "logistic":
            # The argument of exp is never positive, so it cannot overflow.
            small = np.exp(-np.abs(score))
            return np.asarray(np.where(score >= 0, 1.0, small) / (1.0 + small))
        return np.exp(np.minimum(score, 700.0)) if self.name == "poisson" else np.asarray(score)

    def start(self, y: FloatArray, weight: FloatArray) -> float:
        """Return the score of the best constant prediction, which is the initial bias."""
        mean = float(np.average(y, weights=weight))
        if self.name == "logistic":
            mean = min(max(mean, 1e-6), 1 - 1e-6)
            return float(np.log(mean / (1 - mean)))
        return float(np.log(max(mean, 1e-6))) if self.name == "poisson" else mean

    def floor(self, y: FloatArray, weight: FloatArray) -> float:
        """Return the weighted sum of the losses of perfect predictions; 0 for the logistic loss."""
        if self.name != "poisson":
            return 0.0
        return float(weight @ (y - y * np.log(np.maximum(y, 1e-300))))

    def dispersion(self, excess: float) -> float:
        """Return the noise, given the mean loss above the floor.

        It is the residual variance (squared), the deviance per row (Poisson), or 1 (logistic).
        """
        return 1.0 if self.name == "logistic" else 2.0 * max(excess, 1e-9)

    @property
    def metric_name(self) -> str:
        """The name of the metric that a mean loss is reported as."""
        return {"squared": "RMSE", "logistic": "logloss", "poisson": "loss"}[self.name]

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
