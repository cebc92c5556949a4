"""SplineFMRegressor: the models as a regressor for numbers and counts."""

from __future__ import annotations

from typing import Any, Self, Unpack

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, column_or_1d

from splinefm.learn.estimators.base import FloatArray, SplineFMBase, check_one_target
from splinefm.learn.estimators.inputs import Labels
from splinefm.learn.estimators.parameters import EstimatorSettings, shared_parameters
from splinefm.learn.fitting import OF_CLASSES
from splinefm.learn.losses import Loss, LossName
from splinefm.model.family import AnyModel


@shared_parameters
class SplineFMRegressor(RegressorMixin, SplineFMBase):  # type: ignore[misc]  # scikit-learn has no types
    """A regressor for numbers or counts: a factorization machine with splines for numerical columns.

    Parameters
    ----------
    {model}
    loss : {"squared", "poisson"}
        The squared loss, or the Poisson loss for counts and rates, whose predictions are positive.
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
        self, model: AnyModel | None = None, *, loss: str = "squared", **settings: Unpack[EstimatorSettings]
    ) -> None:
        super().__init__(model, **settings)
        self.loss = loss

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self.loss == "poisson"
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
        """Return the expected target of every row."""
        return self._predict(X)

    @staticmethod
    def _predicts(loss: Loss) -> bool:
        return loss.name not in OF_CLASSES

    @staticmethod
    def _settings_of_loss(loss: Loss) -> dict[str, Any]:
        return {"loss": loss.name}

    def _loss(self) -> LossName:
        if self.loss == "squared":
            return "squared"
        if self.loss == "poisson":
            return "poisson"
        raise ValueError(f'loss must be "squared" or "poisson", got {self.loss!r}; for labels, use SplineFMClassifier')

    def _numbers(self, y: object, classes: Labels | None) -> FloatArray:
        numbers = np.asarray(column_or_1d(y, warn=True))
        if numbers.dtype.kind in "USO" and any(isinstance(value, str) for value in numbers.tolist()):
            raise ValueError(f"y holds text, such as {numbers.tolist()[0]!r}; for labels, use SplineFMClassifier")
        return np.asarray(check_array(numbers, ensure_2d=False, dtype=np.float64, input_name="y"))
