"""Fits of estimators on behalf of a study."""

from __future__ import annotations

import warnings

from splinefm.learn.estimators.base import SplineFMBase
from splinefm.learn.estimators.inputs import check_one_target
from splinefm.learn.fitting import Task
from splinefm.learn.tuning.study import StudySummary


def open_task(
    estimator: SplineFMBase, X: object, y: object, sample_weight: object, target: str | None, eval_set: object
) -> Task:
    """Return what `estimator.fit` with these arguments would learn; the estimator remembers the columns."""
    check_one_target(estimator, y, target)
    classes = estimator._find_classes(y) if target is None else None
    return estimator._task(X, y, sample_weight, target, eval_set, classes)


def fit_from_study(
    estimator: SplineFMBase,
    X: object,
    y: object,
    sample_weight: object,
    target: str | None,
    eval_set: object,
    study: StudySummary,
) -> None:
    """Fit an estimator whose settings a study found; its model keeps the study.

    Ctrl-C is a warning here: the caller returns the estimator, which would be lost otherwise.
    """
    left = estimator._learn(X, y, sample_weight, target, eval_set, study=study)
    if left:
        warnings.warn(f"interrupted: {left}", stacklevel=4)
