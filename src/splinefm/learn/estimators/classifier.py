"""SplineFMClassifier: the models as a classifier of two classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.base import ClassifierMixin

from splinefm.encode.tables.names import quoted
from splinefm.learn.estimators.base import FloatArray, SplineFMBase, check_one_target
from splinefm.learn.estimators.inputs import Labels, read_labels, two_classes
from splinefm.learn.estimators.parameters import EstimatorSettings, shared_parameters
from splinefm.learn.labels import ClassWeight, class_weights
from splinefm.learn.losses import Loss
from splinefm.model.family import AnyModel


@shared_parameters
class SplineFMClassifier(ClassifierMixin, SplineFMBase):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier of two classes: a factorization machine with splines for numerical columns.

    Parameters
    ----------
    {model}
    class_weight : "balanced" or dict of labels to numbers, optional
        Weights of the two classes in training and validation, multiplied by the sample weights; 1 for a class that is
        not named. "balanced" gives both classes the same total weight, which shifts probabilities toward the rare one.
    {settings}

    Attributes
    ----------
    {attributes}
    classes_ : array of shape (2,)
        The labels, sorted; probabilities and scores are those of the second one.

    See Also
    --------
    Training : The same settings in more detail.

    Examples
    --------
    >>> import splinefm as sf
    >>> X = {"recency": [0.5, 1.0, 20.0, 40.0] * 50, "country": ["US", "FR"] * 100}
    >>> y = ["yes", "yes", "no", "no"] * 50
    >>> model = sf.SplineFMClassifier(sf.FM(k=2), epochs=5, n_jobs=1).fit(X, y)
    >>> model.predict({"recency": [0.7, 35.0], "country": ["US", "FR"]})
    array(['yes', 'no'], dtype='<U3')
    """

    classes_: Labels
    _sibling = "SplineFMRegressor"

    def __init__(
        self, model: AnyModel | None = None, *, class_weight: ClassWeight = None, **settings: Unpack[EstimatorSettings]
    ) -> None:
        super().__init__(model, **settings)
        self.class_weight = class_weight

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def partial_fit(
        self,
        X: object,
        y: object = None,
        classes: object = None,
        sample_weight: object = None,
        *,
        target: str | None = None,
    ) -> Self:
        """Continue training: one pass over new rows, with a tenth of the learning rate.

        New categories get features; transforms and bases do not change. The first call of an unfitted estimator is the
        same as `fit`. The optimizer keeps its state between calls, but pickle does not.

        Parameters
        ----------
        X, y, sample_weight, target
            As in `fit`.
        classes : array of shape (2,), optional
            The labels, for a first call whose rows all have the same class.

        Returns
        -------
        self
            The fitted estimator.
        """
        if hasattr(self, "fitted_"):
            if classes is not None:
                self._check_classes(np.asarray(classes))
            check_one_target(self, y, target)
            return self._update(X, y, sample_weight, target)
        known = None if classes is None or target is not None else two_classes(np.asarray(classes))
        return self._fit(X, y, sample_weight, target, classes=known)

    def decision_function(self, X: object) -> npt.NDArray[np.float32]:
        """Return the score of every row, in order: the log-odds of `classes_[1]`."""
        return self._scores(X)

    def predict_proba(self, X: object) -> FloatArray:
        """Return the probabilities of both classes for every row, in order."""
        second = self._predict(X)
        return np.column_stack([1.0 - second, second])

    def predict_log_proba(self, X: object) -> FloatArray:
        """Return the logarithms of the probabilities of both classes, finite even if a probability rounds to 0."""
        scores = self._scores(X).astype(np.float64)
        return -np.column_stack([np.logaddexp(0.0, scores), np.logaddexp(0.0, -scores)])

    def predict(self, X: object) -> Labels:
        """Return the more probable label of every row."""
        scores = self._scores(X)
        return self.classes_[(scores > 0.0).astype(np.intp)]

    @staticmethod
    def _predicts(loss: Loss) -> bool:
        return loss.name == "logistic"

    @staticmethod
    def _settings_of_loss(loss: Loss) -> dict[str, Any]:
        weights = loss.class_weights
        return {"class_weight": None if weights is None else dict(zip(loss.classes or (0, 1), weights, strict=True))}

    def _loss(self) -> Loss:
        return Loss("logistic")

    def _find_classes(self, y: object) -> Labels | None:
        return two_classes(read_labels(y))

    def _set_classes(self, classes: Labels | None) -> None:
        self.classes_ = np.array(self.fitted_.classes or (0, 1)) if classes is None else classes

    def _check_classes(self, classes: Labels) -> None:
        if not np.array_equal(two_classes(classes), self.classes_):
            raise ValueError(
                f"classes {quoted(classes.tolist())} differ from those of the fit, {quoted(self.classes_.tolist())}"
            )

    def _class_weight(self, classes: Labels | None) -> ClassWeight:
        if classes is None or not isinstance(self.class_weight, Mapping):
            return self.class_weight
        first, second = classes.tolist()
        return dict(enumerate(class_weights(self.class_weight, (first, second))))

    def _numbers(self, y: object, classes: Labels | None) -> FloatArray:
        labels = read_labels(y)
        assert classes is not None
        known = classes.tolist()
        unknown = [label for label in np.unique(labels).tolist() if label not in known]  # to NumPy, "1" equals 1
        if unknown:
            raise ValueError(f"y has the label {unknown[0]!r}; the classes are {quoted(known)}")
        return np.asarray(labels == classes[1], np.float64)

    def _column(self, numbers: FloatArray) -> pa.Array:
        if self.fitted_.classes is None:
            return pa.array(numbers)
        return pa.array(self.fitted_.classes).take(pa.array(numbers.astype(np.int8)))
