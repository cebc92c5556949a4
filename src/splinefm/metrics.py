"""Metrics of predictions with sample weights, and calibration overall and by group: `sf.metrics`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm._arrays import FloatArray, IndexArray
from splinefm.train.targets import Labels, is_missing, listed

__all__ = [
    "GroupCalibration",
    "accuracy",
    "auc",
    "calibration_by",
    "calibration_error",
    "class_auc",
    "class_logloss",
    "coverage",
    "gamma_deviance",
    "huber_loss",
    "logloss",
    "mae",
    "normalized_entropy",
    "pinball_loss",
    "r2",
    "rmse",
    "tweedie_deviance",
]

_PASS_CLASSES = "for labels, pass classes=model.classes_, or fitted.classes of a sf.Fitted"


def logloss(y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> float:
    """Return the mean cross-entropy of probabilities p; y can be a share.

    Examples
    --------
    >>> round(logloss([1, 0], [0.9, 0.2]), 4)
    0.1643
    """
    target, prediction, w = _arrays(y, p, weight)
    _check_shares(target, prediction)
    inside = np.clip(prediction, 1e-15, 1.0 - 1e-15)
    return _mean(-(target * np.log(inside) + (1.0 - target) * np.log1p(-inside)), w)


def normalized_entropy(y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> float:
    """Return the log-loss divided by the log-loss of the mean target; below 1 is better than a constant.

    Examples
    --------
    >>> normalized_entropy([1, 0], [0.5, 0.5])
    1.0
    """
    target, prediction, w = _arrays(y, p, weight)
    _check_shares(target, prediction)
    constant = logloss(target, np.full(len(target), _mean(target, w)), w)
    if constant < 1e-12:
        raise ValueError("normalized entropy needs targets of both classes; all are the same")
    return logloss(target, prediction, w) / constant


def auc(y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> float:
    """Return the probability that a positive row ranks above a negative one; ties count half.

    Examples
    --------
    >>> auc([1, 0, 1], [0.8, 0.3, 0.3])
    0.75
    """
    target, prediction, w = _arrays(y, p, weight)
    w = _scaled(w)
    order = np.argsort(prediction, kind="stable")
    first = np.flatnonzero(np.concatenate([[True], np.diff(prediction[order]) > 0]))
    positive = np.add.reduceat((w * target)[order], first)
    negative = np.add.reduceat((w * (1.0 - target))[order], first)
    pairs = positive.sum() * negative.sum()
    if not pairs > 0:
        raise ValueError("AUC needs targets of both classes; all are the same")
    below = np.cumsum(negative) - negative / 2.0
    return float((positive * below).sum() / pairs)


def class_logloss(
    y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None, *, classes: Labels | None = None
) -> float:
    """Return the mean cross-entropy of the probabilities p of classes, shape (n, classes).

    y holds the numbers of the classes, 0, 1, ..., or labels if `classes`, such as `model.classes_`, has them in the
    order of the columns of p.

    Examples
    --------
    >>> round(class_logloss([0, 2], [[0.7, 0.2, 0.1], [0.1, 0.1, 0.8]]), 4)
    0.2899
    """
    target, probability, w = _class_arrays(y, p, weight, classes)
    return _mean(-np.log(np.maximum(probability[np.arange(len(target)), target], 1e-15)), w)


def accuracy(
    y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None, *, classes: Labels | None = None
) -> float:
    """Return the share of rows whose class is the most probable one; y and `classes` as in `class_logloss`.

    Examples
    --------
    >>> accuracy([0, 2], [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1]])
    0.5
    >>> accuracy(["red", "blue"], [[0.7, 0.3], [0.2, 0.8]], classes=["blue", "red"])
    0.0
    """
    target, probability, w = _class_arrays(y, p, weight, classes)
    return _mean((probability.argmax(axis=1) == target).astype(np.float64), w)


def class_auc(
    y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None, *, classes: Labels | None = None
) -> float:
    """Return the mean AUC of each class against the rest; y and `classes` as in `class_logloss`.

    Classes without rows do not count.

    Examples
    --------
    >>> class_auc([0, 1, 2], [[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.4, 0.3]])
    1.0
    """
    target, probability, w = _class_arrays(y, p, weight, classes)
    present = np.unique(target[w > 0.0])
    return float(np.mean([auc(target == c, probability[:, c], w) for c in present]))


def rmse(y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> float:
    """Return the root mean squared error.

    Examples
    --------
    >>> rmse([1.0, 2.0], [1.0, 4.0]).__round__(4)
    1.4142
    """
    target, prediction, w = _arrays(y, p, weight)
    errors = target - prediction
    unit = float(np.ldexp(1.0, int(np.frexp(np.abs(errors).max())[1])))  # squares of errors above 1e154 overflow
    return unit * float(np.sqrt(_mean((errors / unit) ** 2, w)))


def mae(y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> float:
    """Return the mean absolute error.

    Examples
    --------
    >>> mae([1.0, 2.0], [1.0, 4.0])
    1.0
    """
    target, prediction, w = _arrays(y, p, weight)
    return _mean(np.abs(target - prediction), w)


def r2(y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> float:
    """Return the share of variance explained.

    Examples
    --------
    >>> r2([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    1.0
    """
    target, prediction, w = _arrays(y, p, weight)
    spread = _mean((target - _mean(target, w)) ** 2, w)
    # The mean of equal numbers can differ from them by rounding.
    if spread <= (1e-14 * np.abs(target).max()) ** 2:
        raise ValueError("R² needs targets that differ; all are the same")
    return 1.0 - _mean((target - prediction) ** 2, w) / spread


def gamma_deviance(y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> float:
    """Return the mean gamma deviance, 2 (log(p / y) + y / p - 1), of positive predictions p.

    Examples
    --------
    >>> gamma_deviance([1.0, 2.0], [1.0, 4.0]).__round__(4)
    0.1931
    """
    target, prediction, w = _arrays(y, p, weight)
    _check_positive("targets", target)
    _check_positive("predictions", prediction)
    return 2.0 * _mean(np.log(prediction / target) + target / prediction - 1.0, w)


def tweedie_deviance(
    y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None, *, power: float = 1.5
) -> float:
    """Return the mean Tweedie deviance of positive predictions p; targets can be 0.

    Examples
    --------
    >>> tweedie_deviance([0.0, 1.0], [1.0, 1.0])
    2.0
    """
    if not 1.0 < power < 2.0:
        raise ValueError(f"power must lie between 1 and 2, both excluded, got {power!r}")
    target, prediction, w = _arrays(y, p, weight)
    _check_positive("targets", target, or_zero=True)
    _check_positive("predictions", prediction)
    one, two = 1.0 - power, 2.0 - power
    best = target**two / (one * two)
    return 2.0 * _mean(best - target * prediction**one / one + prediction**two / two, w)


def pinball_loss(
    y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None, *, quantile: float = 0.5
) -> float:
    """Return the mean pinball loss of predicted quantiles p; half the mean absolute error for the median.

    Examples
    --------
    >>> pinball_loss([1.0, 2.0], [1.0, 4.0], quantile=0.9).__round__(6)
    0.1
    """
    if not 0.0 < quantile < 1.0:
        raise ValueError(f"quantile must lie between 0 and 1, both excluded, got {quantile!r}")
    target, prediction, w = _arrays(y, p, weight)
    over = prediction - target
    return _mean(np.maximum((1.0 - quantile) * over, -quantile * over), w)


def huber_loss(y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None, *, delta: float) -> float:
    """Return the mean Huber loss: half the squared error up to `delta`, linear beyond it.

    Examples
    --------
    >>> huber_loss([1.0, 2.0], [1.5, 4.0], delta=1.0)
    0.8125
    """
    if not 0.0 < delta < np.inf:
        raise ValueError(f"delta must be above 0, got {delta!r}")
    target, prediction, w = _arrays(y, p, weight)
    size = np.abs(target - prediction)
    return _mean(np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta)), w)


def coverage(y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> float:
    """Return the share of targets at or below their prediction; for predicted quantiles, it should be the quantile.

    Examples
    --------
    >>> coverage([1.0, 2.0, 3.0, 4.0], [3.5, 3.5, 3.5, 3.5])
    0.75
    """
    target, prediction, w = _arrays(y, p, weight)
    return _mean((target <= prediction).astype(np.float64), w)


def calibration_error(y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> float:
    """Return average prediction / average target - 1, the paper's online metric; 0 is perfect.

    Examples
    --------
    >>> calibration_error([1, 0, 0, 1], [0.6, 0.6, 0.6, 0.6]).__round__(6)
    0.2
    """
    target, prediction, w = _arrays(y, p, weight)
    mean = _mean(target, w)
    if mean == 0:
        raise ValueError("calibration needs a target whose mean is not zero")
    return _mean(prediction, w) / mean - 1.0


@dataclass(frozen=True)
class GroupCalibration:
    """Calibration of one group: total weight, average prediction, average target, and their ratio - 1.

    Parameters
    ----------
    group : object
        The value of the column.
    weight : float
        Total weight of the rows.
    predicted, measured : float
        Average prediction and average target.

    Examples
    --------
    >>> GroupCalibration("a", 2.0, predicted=0.5, measured=0.4).error.__round__(6)
    0.25
    """

    group: object
    weight: float
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Average prediction / average target - 1; NaN if the target is always 0."""
        return self.predicted / self.measured - 1.0 if self.measured else float("nan")


def calibration_by(
    groups: Sequence[object], y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None = None
) -> list[GroupCalibration]:
    """Return the calibration for every value of a column, such as the hour, in sorted order.

    Examples
    --------
    >>> [(c.group, round(c.error, 2)) for c in calibration_by(["a", "b"], [1, 1], [0.5, 1.5])]
    [('a', -0.5), ('b', 0.5)]
    """
    target, prediction, w = _arrays(y, p, weight)
    values = _group_values(groups)
    if len(values) != len(target):
        raise ValueError(f"groups and targets must have the same length, got {len(values)} and {len(target)}")
    distinct = dict.fromkeys(values)
    # Missing values last; values that cannot be compared are sorted as text.
    comparable = len({type(value) for value in distinct if value is not None}) <= 1
    sortable = {value: value if comparable else str(value) for value in distinct if value is not None}
    names = sorted(distinct, key=lambda value: (value is None, sortable.get(value, 0)))
    index = {name: i for i, name in enumerate(names)}
    code = np.array([index[value] for value in values])
    total = np.bincount(code, w, len(names))
    sums = np.bincount(code, w * prediction, len(names)), np.bincount(code, w * target, len(names))
    means = [np.divide(part, total, out=np.full(len(names), np.nan), where=total > 0).tolist() for part in sums]
    return [GroupCalibration(*row) for row in zip(names, total.tolist(), *means, strict=True)]


def _group_values(groups: Sequence[object]) -> list[Any]:
    """Return the values of a column as objects of Python; missing ones are None."""
    given = np.asarray(groups)
    if given.dtype.kind == "M":  # of nanoseconds, Python would get numbers
        return [None if np.isnat(value) else value.item() for value in given.astype("datetime64[us]")]
    return [None if is_missing(value) else value for value in np.asarray(groups, dtype=object).tolist()]


def _arrays(
    y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    target, prediction = np.asarray(y, np.float64), np.asarray(p, np.float64)
    w = np.ones(target.shape) if weight is None else np.asarray(weight, np.float64)
    if target.ndim != 1 or target.shape != prediction.shape or target.shape != w.shape:
        raise ValueError(
            "targets, predictions and weights must be arrays of one length, "
            f"got shapes {target.shape}, {prediction.shape} and {w.shape}"
        )
    if not len(target):
        raise ValueError("a metric needs at least one row, got none")
    for name, values in (("targets", target), ("predictions", prediction), ("weights", w)):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} must be finite numbers, got {values[~np.isfinite(values)][0]}")
    if (w < 0).any() or not w.sum() > 0:
        raise ValueError("weights must be at least 0 and not all 0")
    return target, prediction, w


def _class_arrays(
    y: npt.ArrayLike, p: npt.ArrayLike, weight: npt.ArrayLike | None, classes: Labels | None
) -> tuple[IndexArray, FloatArray, FloatArray]:
    probability = np.asarray(p, np.float64)
    if probability.ndim != 2 or not probability.shape[1]:
        raise ValueError(f"probabilities of classes must have the shape (n, classes), got {probability.shape}")
    target, _, w = _arrays(_class_numbers(y, probability.shape[1], classes), probability[:, 0], weight)
    _check_shares(np.zeros(1), probability.ravel())
    wrong = (target != np.floor(target)) | (target < 0) | (target >= probability.shape[1])
    if wrong.any():
        got = f"{target[wrong][0]:g}; {_PASS_CLASSES}"
        raise ValueError(f"targets must be numbers of the {probability.shape[1]} classes, got {got}")
    return target.astype(np.intp), probability, w


def _class_numbers(y: npt.ArrayLike, n_classes: int, classes: Labels | None) -> npt.ArrayLike:
    """Return labels in an array as their positions in `classes`, and without `classes` numbers as they are.

    Text needs `classes`: some rows need not have the labels of all classes, so theirs do not tell the numbers.

    Examples
    --------
    >>> _class_numbers(["yes", "no"], 2, ("no", "yes"))
    array([1., 0.])
    """
    if classes is None and np.asarray(y).dtype.kind in "biuf":
        return y  # at once, since tables can be long
    given = np.asarray(y, dtype=object)
    labels = given.ravel().tolist()
    if classes is None:
        for label in labels:
            if isinstance(label, str):
                raise ValueError(f"targets must be numbers of classes, got {label!r}; {_PASS_CLASSES}")
        return y
    if len(classes) != n_classes:
        raise ValueError(f"classes must have a label for each of the {n_classes} columns of p, got {len(classes)}")
    known = np.asarray([*classes], dtype=object).tolist()
    position = {label: float(i) for i, label in enumerate(known)}
    unknown = [label for label in labels if label not in position]
    if unknown:
        raise ValueError(f"targets must be labels among classes: {listed(tuple(known))}, got {unknown[0]!r}")
    return np.array([position[label] for label in labels]).reshape(given.shape)


def _check_shares(target: FloatArray, prediction: FloatArray) -> None:
    for name, values in (("targets", target), ("predictions", prediction)):
        outside = values[~((values >= 0) & (values <= 1))]
        if len(outside):
            raise ValueError(f"{name} must lie between 0 and 1, got {outside[0]:g}")


def _check_positive(name: str, values: FloatArray, *, or_zero: bool = False) -> None:
    outside = values[values < 0.0] if or_zero else values[values <= 0.0]
    if len(outside):
        raise ValueError(f"{name} must be {'at least' if or_zero else 'above'} 0, got {outside[0]:g}")


def _mean(values: FloatArray, weight: FloatArray) -> float:
    return float(np.average(values, weights=_scaled(weight)))


def _scaled(weight: FloatArray) -> FloatArray:
    """Return weights of size 1, so that sums and products of huge and tiny ones are finite; the factor is exact."""
    return np.asarray(np.ldexp(weight, -int(np.frexp(weight.max())[1])))
