"""Plots of the quality of predictions: calibration."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm._arrays import FloatArray
from splinefm._checks import check_size
from splinefm.inspect.axes import RawAxis, Scale, choose_scale
from splinefm.inspect.survey import Calibration, calibration_bins
from splinefm.plots.decorations import GRAY, PALETTE, draw_strip, set_raw_axis, use_percent
from splinefm.plots.figures import Axes, use_axes


def calibration(
    y: npt.ArrayLike,
    prediction: npt.ArrayLike,
    ax: Axes | None = None,
    *,
    bins: int = 10,
    sample_weight: npt.ArrayLike | None = None,
) -> Axes:
    """Plot calibration: do events with a predicted probability of 10 % happen in 10 % of the rows?

    Rows are binned by their prediction into bins of equal weight; each is a point at the mean prediction and the mean
    target. The error bars are 90 % intervals: Wilson's for targets of 0 and 1, the mean ± 1.645 standard errors for
    others. A histogram of the predictions is below.

    Parameters
    ----------
    y : array
        Targets.
    prediction : array
        Their predictions: probabilities, means or rates.
    ax : Axes, optional
        Axes to draw on. By default a new figure is created, `ax.figure`.
    bins : int
        Number of bins. Equal predictions share a bin, so there may be fewer.
    sample_weight : array, optional
        Weights of the rows.

    Examples
    --------
    >>> ax = calibration([0, 1, 1, 1], [0.2, 0.4, 0.8, 1.0], bins=2)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('mean prediction', 'mean target')
    """
    check_size("bins", bins)
    target, p, weight = _calibration_arrays(y, prediction, sample_weight)
    ax = use_axes(ax)
    summary = calibration_bins(target, p, weight, bins)
    axis = _calibration_axis(summary, p)
    ends = [axis.low, axis.high]
    ax.plot(ends, ends, color=GRAY, linewidth=1, linestyle="--", label="perfect")
    error = np.stack([summary.measured - summary.low, summary.high - summary.measured])
    style: dict[str, Any] = {"fmt": "o", "color": PALETTE[0], "markersize": 5, "capsize": 2}
    ax.errorbar(summary.predicted, summary.measured, np.maximum(error, 0.0), label="measured, 90 % interval", **style)
    set_raw_axis(ax, "x", axis, "mean prediction")
    set_raw_axis(ax, "y", axis, "mean target")
    if all(((values >= 0) & (values <= 1)).all() for values in (target, p)):
        for side in (ax.xaxis, ax.yaxis):
            use_percent(side, even=axis.scale.kind == "linear")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="best", frameon=False)
    seen = (p >= axis.low) & (p <= axis.high)
    draw_strip(ax, axis, p[seen], weight[seen])
    return ax


def _calibration_arrays(
    y: npt.ArrayLike, prediction: npt.ArrayLike, sample_weight: npt.ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Targets, predictions and weights of the rows with positive weight."""
    p = _numbers("prediction", prediction)
    target = _numbers("y", y)
    weight = np.ones(len(p)) if sample_weight is None else _numbers("sample_weight", sample_weight)
    if not len(target) == len(p) == len(weight):
        raise ValueError(
            f"y, prediction and sample_weight must have the same length, got {len(target)}, {len(p)} and {len(weight)}"
        )
    if (weight < 0).any() or not weight.sum() > 0:
        raise ValueError("sample_weight must be at least 0, and not all 0")
    counts = weight > 0
    return target[counts], p[counts], weight[counts]


def _numbers(name: str, values: npt.ArrayLike) -> FloatArray:
    try:
        array = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be numbers; give classes as 0 and 1") from None
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{name} must be a one-dimensional array with at least one row, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite numbers, got {array[~np.isfinite(array)][0]}; drop such rows")
    return array


def _calibration_axis(summary: Calibration, p: FloatArray) -> RawAxis:
    """One range for predictions and targets; logarithmic if most predictions are small."""
    low = float(min(summary.low.min(), summary.predicted.min()))
    high = float(max(summary.high.max(), summary.predicted.max()))
    margin = 0.04 * (high - low) or 0.5 * max(abs(high), 1e-3)
    smallest = float(min(summary.predicted.min(), summary.measured.min()))
    if smallest > 0:
        ends = 0.7 * smallest, 1.2 * high
        if choose_scale(np.clip(np.quantile(p, np.linspace(0, 1, 201)), *ends), *ends).kind == "log":
            return RawAxis(*ends, Scale("log"))
    return RawAxis(0.0 if 0 <= low < margin else low - margin, high + margin, Scale())
