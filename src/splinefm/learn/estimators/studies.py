"""Fits of estimators on behalf of a study."""

from __future__ import annotations

import warnings

from splinefm.learn.estimators.base import SplineFMBase
from splinefm.learn.estimators.inputs import Labels, check_one_target
from splinefm.learn.fitting import Task, fit_task
from splinefm.learn.progress import make_progress
from splinefm.learn.search.search import Found
from splinefm.learn.tuning.study import StudySummary


def open_task(
    estimator: SplineFMBase, X: object, y: object, sample_weight: object, target: str | None, eval_set: object
) -> tuple[Task, Labels | None]:
    """Return what `estimator.fit` with these arguments would learn, and the classes of y.

    The estimator remembers the columns.
    """
    check_one_target(estimator, y, target)
    classes = estimator._find_classes(y) if target is None else None
    return estimator._task(X, y, sample_weight, target, eval_set, classes), classes


def fit_from_study(
    estimator: SplineFMBase, task: Task, classes: Labels | None, study: StudySummary, found: Found
) -> None:
    """Fit an estimator with the setting that a study found; its model keeps the study.

    Ctrl-C is a warning here: the caller returns the estimator, which would be lost otherwise.
    """
    with make_progress(bool(estimator.verbose)) as progress:
        left = estimator._take(fit_task(task, estimator.model, (), progress, study, found), classes)
    if left:
        warnings.warn(f"interrupted: {left}", stacklevel=4)
