"""SplineFMClassifier: the models as a classifier."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self, Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.base import ClassifierMixin

from splinefm.encode.tables.names import quoted
from splinefm.learn.estimators.base import FloatArray, SplineFMBase
from splinefm.learn.estimators.inputs import Labels, check_one_target, distinct_classes, fitted_labels, read_labels
from splinefm.learn.estimators.parameters import EstimatorSettings, shared_parameters
from splinefm.learn.fitting import Task
from splinefm.learn.formulas import log_softmax
from splinefm.learn.losses import Loss
from splinefm.learn.targets.labels import MOST_CLASSES, ClassWeight, class_weights, warn_of_spellings
from splinefm.model.family import AnyModel


@shared_parameters
class SplineFMClassifier(ClassifierMixin, SplineFMBase):  # type: ignore[misc]  # scikit-learn has no types
    """A classifier of two or more classes: a factorization machine with splines for numerical columns.

    Two classes have one score per row, the log-odds of the second one. With more classes, each has a score with
    parameters of its own, and the probabilities are their softmax.

    Parameters
    ----------
    {model}
    class_weight : "balanced" or dict of labels to numbers, optional
        Weights of the classes in training and validation, multiplied by the sample weights; 1 for a class that is
        not named. "balanced" gives all classes the same total weight, which shifts probabilities toward rare ones.
    {settings}

    Attributes
    ----------
    {attributes}
    classes_ : array of shape (n_classes,)
        The labels, sorted. The score of a model with two classes is that of the second one.

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
        classes : array of shape (n_classes,), optional
            All labels, for a first call whose rows do not have all of them. Later calls cannot add classes.

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
        known = None if classes is None else distinct_classes(np.asarray(classes))
        return self._fit(X, y, sample_weight, target, classes=known)

    def decision_function(self, X: object) -> npt.NDArray[np.float32]:
        """Return the score of every row, in order: the log-odds of `classes_[1]`.

        For more than two classes, the scores of all of them: shape (n, classes).
        """
        return self._scores(X)

    def predict_proba(self, X: object) -> FloatArray:
        """Return the probabilities of all classes for every row, in order: shape (n, classes)."""
        second = self._predict(X)
        if second.ndim == 2:
            return second
        return np.column_stack([1.0 - second, second])

    def predict_log_proba(self, X: object) -> FloatArray:
        """Return the logarithms of the probabilities of all classes, finite even if a probability rounds to 0."""
        scores = self._scores(X).astype(np.float64)
        if scores.ndim == 2:
            return log_softmax(scores)
        return -np.column_stack([np.logaddexp(0.0, scores), np.logaddexp(0.0, -scores)])

    def predict(self, X: object) -> Labels:
        """Return the most probable label of every row."""
        scores = self._scores(X)
        if scores.ndim == 2:
            return np.asarray(self.classes_[scores.argmax(axis=1)])
        return self.classes_[(scores > 0.0).astype(np.intp)]

    @staticmethod
    def _predicts(loss: Loss) -> bool:
        return loss.most_classes > 0

    @staticmethod
    def _settings_of_loss(loss: Loss) -> dict[str, Any]:
        weights = loss.class_weights
        return {"class_weight": None if weights is None else dict(zip(loss.classes or (0, 1), weights, strict=True))}

    def _loss(self) -> Loss:
        return Loss("logistic")

    def _with_classes(self, task: Task, classes: Labels | None, in_column: bool) -> Task:
        if not in_column:
            assert classes is not None
            known = tuple(range(len(classes))) if len(classes) > 2 else None  # y is in the table as these numbers
            task = replace(task, classes=known, labels=fitted_labels(classes))
        elif classes is not None:
            task = replace(task, classes=fitted_labels(classes))
        else:
            task = replace(task, classes=task.source().with_classes(MOST_CLASSES).classes)
        return task if task.classes is None or len(task.classes) == 2 else replace(task, loss=Loss("softmax"))

    def _find_classes(self, y: object) -> Labels | None:
        classes = distinct_classes(read_labels(y))
        warn_of_spellings(classes.tolist(), "y")
        return classes

    def _set_classes(self, classes: Labels | None) -> None:
        self.classes_ = np.array(self.fitted_.classes or (0, 1)) if classes is None else classes

    def _check_classes(self, classes: Labels) -> None:
        if not np.array_equal(distinct_classes(classes), distinct_classes(self.classes_)):
            raise ValueError(
                f"classes {quoted(classes.tolist())} differ from those of the fit, {quoted(self.classes_.tolist())}"
            )

    def _class_weight(self, classes: Labels | None) -> ClassWeight:
        if classes is None or not isinstance(self.class_weight, Mapping):
            return self.class_weight
        return dict(enumerate(class_weights(self.class_weight, tuple(classes.tolist()))))

    def _numbers(self, y: object, classes: Labels | None) -> FloatArray:
        labels = read_labels(y)
        assert classes is not None
        known = classes.tolist()
        unknown = [label for label in np.unique(labels).tolist() if label not in known]  # to NumPy, "1" equals 1
        if unknown:
            raise ValueError(f"y has the label {unknown[0]!r}; the classes are {quoted(known)}")
        position = {label: float(i) for i, label in enumerate(known)}  # a loaded model may have them in any order
        distinct, code = np.unique(labels, return_inverse=True)
        return np.array([position[label] for label in distinct.tolist()], np.float64)[code]

    def _column(self, numbers: FloatArray) -> pa.Array:
        if self.fitted_.classes is None:
            return pa.array(numbers)
        return pa.array(self.fitted_.classes).take(pa.array(numbers.astype(np.int32)))
