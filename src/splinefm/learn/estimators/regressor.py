"""SplineFMRegressor: the models as a regressor for numbers, counts, amounts and quantiles."""

from __future__ import annotations

from typing import Any, Self, Unpack

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, column_or_1d

from splinefm.learn.estimators.base import FloatArray, SplineFMBase
from splinefm.learn.estimators.inputs import Labels, check_one_target, refuse_missing
from splinefm.learn.estimators.parameters import EstimatorSettings, shared_parameters
from splinefm.learn.losses import LOSSES, Loss, as_loss
from splinefm.learn.metrics import is_missing
from splinefm.model.family import AnyModel


@shared_parameters
class SplineFMRegressor(RegressorMixin, SplineFMBase):  # type: ignore[misc]  # scikit-learn has no types
    """A regressor for numbers or counts: a factorization machine with splines for numerical columns.

    Parameters
    ----------
    {model}
    loss : {"squared", "poisson", "gamma", "tweedie", "quantile", "huber"} or Loss
        The loss to minimize. "squared" predicts the mean, and so do three losses with positive predictions: "poisson"
        for counts and rates, "gamma" for positive and skewed amounts, "tweedie" for amounts that can be 0. "quantile"
        predicts a quantile, and "huber" a mean that outliers barely change.
    quantile : float, optional
        The quantile that `loss="quantile"` predicts, between 0 and 1; 0.5, the median, by default.
    power : float, optional
        The power of `loss="tweedie"`, between 1 and 2; 1.5 by default. The variance of a target with mean m is
        proportional to m to this power.
    delta : float, optional
        The distance from the target, in its unit, from which `loss="huber"` is linear. By default 1.345 times the
        spread of the training targets (1.4826 times their median distance from the median).
    {settings}

    Attributes
    ----------
    {attributes}

    See Also
    --------
    Training : The same settings in more detail.

    Examples
    --------
    >>> import splinefm as sf
    >>> X = {"hour": [0.0, 6.0, 12.0, 18.0] * 50, "day": ["Mon", "Sun"] * 100}
    >>> y = [10.0, 40.0, 90.0, 60.0] * 50
    >>> model = sf.SplineFMRegressor(sf.FM(k=2), epochs=5, n_jobs=1).fit(X, y)
    >>> model.predict({"hour": [12.0], "day": ["Mon"]}).shape
    (1,)
    """

    _sibling = "SplineFMClassifier"

    def __init__(
        self,
        model: AnyModel | None = None,
        *,
        loss: str | Loss = "squared",
        quantile: float | None = None,
        power: float | None = None,
        delta: float | None = None,
        **settings: Unpack[EstimatorSettings],
    ) -> None:
        super().__init__(model, **settings)
        self.loss = loss
        self.quantile = quantile
        self.power = power
        self.delta = delta

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = getattr(self.loss, "name", self.loss) in ("poisson", "gamma", "tweedie")
        return tags

    def partial_fit(
        self, X: object, y: object = None, sample_weight: object = None, *, target: str | None = None
    ) -> Self:
        """Continue training: one pass over new rows, with a tenth of the learning rate.

        New categories get features; transforms and bases do not change. The first call of an unfitted estimator is the
        same as `fit`. The optimizer keeps its state between calls, but pickle does not.

        Parameters
        ----------
        X, y, sample_weight, target
            As in `fit`.

        Returns
        -------
        self
            The fitted estimator.
        """
        check_one_target(self, y, target)
        if not hasattr(self, "fitted_"):
            return self._fit(X, y, sample_weight, target)
        return self._update(X, y, sample_weight, target)

    def predict(self, X: object) -> FloatArray:
        """Return the expected target of every row, or the quantile of the quantile loss."""
        return self._predict(X)

    @staticmethod
    def _predicts(loss: Loss) -> bool:
        return loss.most_classes == 0

    @staticmethod
    def _settings_of_loss(loss: Loss) -> dict[str, Any]:
        return {"loss": loss.name, **loss.parameters}

    def _loss(self) -> Loss:
        known = [name for name in LOSSES if not Loss(name).most_classes]
        if getattr(self.loss, "name", self.loss) not in known:
            raise ValueError(
                f"loss must be one of {', '.join(known)}, got {self.loss!r}; for labels, use SplineFMClassifier"
            )
        return as_loss(self.loss, quantile=self.quantile, power=self.power, delta=self.delta)

    def _numbers(self, y: object, classes: Labels | None) -> FloatArray:
        numbers = np.asarray(column_or_1d(y, warn=True))
        if numbers.dtype.kind in "USO" and any(isinstance(value, str) for value in numbers.tolist()):
            raise ValueError(f"y holds text, such as {numbers.tolist()[0]!r}; for labels, use SplineFMClassifier")
        missing = np.isnan(numbers) if numbers.dtype.kind == "f" else [is_missing(value) for value in numbers.tolist()]
        refuse_missing(int(np.sum(missing)), len(numbers), "targets")
        return np.asarray(check_array(numbers, ensure_2d=False, dtype=np.float64, input_name="y"))
