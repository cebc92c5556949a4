"""Draw importance, training and calibration on a matplotlib `ax`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm._arrays import FloatArray
from splinefm.inspect.axes import RawAxis, Scale, choose_scale
from splinefm.inspect.importance import Importance
from splinefm.plots.captions import captions
from splinefm.plots.decorations import (
    GRAY,
    PALETTE,
    RED,
    draw_strip,
    label_bars,
    set_raw_axis,
    two_digits,
    use_percent,
    write_cells,
)
from splinefm.train.fitted import Fitted
from splinefm.train.settings import Epoch

# Half the width of the interval with 90 % of a normal distribution, in standard deviations.
Z90 = 1.6448536269514722
_FEW_FIELDS, _FEW_EPOCHS = 9, 30


def draw_importance(ax: Any, importance: Importance, *, most: int) -> None:
    """Draw a bar per field, the largest on top."""
    ranked = importance.ranked_fields()
    drawn, rest = ranked[:most], ranked[most:]
    position = np.arange(len(drawn))
    ax.barh(position, [value for _, value in drawn], color=PALETTE[0], height=0.75)
    label_bars(ax, position, captions(name for name, _ in drawn))
    note = f"\n{len(rest)} more fields, each at most {rest[0][1]:.2g}" if rest else ""
    ax.set_xlabel("mean |Shapley value|, in units of the score" + note)


def draw_pairs(ax: Any, importance: Importance, *, most: int) -> None:
    """Draw the lower triangle of the matrix of pair effects, for the fields with the strongest ones."""
    n = len(importance.fields)
    if n < 2:
        raise ValueError(f"a model with one field, {importance.fields[0]!r}, has no pairs of fields")
    order = np.argsort(-importance.pairs.sum(axis=1), kind="stable")[:most]
    values = np.where(np.tri(len(order), k=-1, dtype=bool), importance.pairs[np.ix_(order, order)], np.nan)[1:, :-1]
    mesh = ax.imshow(values, cmap="Blues", vmin=0.0, vmax=float(np.nanmax(values)) or 1.0, aspect="auto")
    names = captions((importance.fields[f] for f in order), 18)
    ax.set_xticks(range(len(order) - 1), names[:-1], rotation=45, ha="right", rotation_mode="anchor")
    ax.set_yticks(range(len(order) - 1), names[1:])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    if len(order) <= _FEW_FIELDS:
        write_cells(ax, values, two_digits(values), dark_is_low=False)
    ax.figure.colorbar(mesh, ax=ax, label="pair effect (standard deviation)")
    if n > len(order):
        ax.set_xlabel(f"{n - len(order)} fields with weaker pairs are not shown")


def find_history(source: object) -> tuple[list[Epoch], str]:
    """The epochs of a model, an estimator or a list, and what their losses are."""
    fitted = getattr(source, "fitted_", source)
    found: Any = getattr(source, "history_", getattr(source, "history", source))
    if not isinstance(found, Sequence) or not all(isinstance(epoch, Epoch) for epoch in found):
        raise TypeError(f"history must be a Fitted, a fitted estimator or a list of Epoch, got {type(source).__name__}")
    if not found:
        raise ValueError("the history has no epochs; fit the model first")
    return list(found), fitted.loss.formula.title if isinstance(fitted, Fitted) else "loss"


def draw_history(ax: Any, epochs: Sequence[Epoch], title: str) -> None:
    """Draw the losses by epoch, with the best one marked."""
    epoch = np.array([row.epoch for row in epochs])
    validation = np.array([row.validation_loss for row in epochs])
    dots = {"marker": "o" if len(epochs) <= _FEW_EPOCHS else None, "markersize": 3}
    ax.plot(epoch, [row.train_loss for row in epochs], color=GRAY, label="training", **dots)
    known = np.isfinite(validation)
    if known.any():
        ax.plot(epoch[known], validation[known], color=PALETTE[0], label="validation", **dots)
        best = int(np.nanargmin(np.where(known, validation, np.nan)))
        text = f"best: epoch {epoch[best]}, {validation[best]:.4g}"
        ax.plot(epoch[best], validation[best], "o", color=RED, markersize=9, fillstyle="none", label=text)
    ax.set(xlabel="epoch", ylabel=title)
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="best", frameon=False)


class Calibration(NamedTuple):
    """Bins of predictions: their means, the means of the targets, and 90 % intervals of the latter."""

    predicted: FloatArray
    measured: FloatArray
    low: FloatArray
    high: FloatArray


def calibration_arrays(
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


def calibration_bins(y: FloatArray, p: FloatArray, weight: FloatArray, bins: int) -> Calibration:
    """Bins with equal weights of rows, in order of the prediction; equal predictions share a bin.

    Examples
    --------
    >>> found = calibration_bins(np.array([0.0, 1, 1, 1]), np.array([0.2, 0.4, 0.8, 1.0]), np.ones(4), 2)
    >>> found.predicted.round(2), found.measured
    (array([0.3, 0.9]), array([0.5, 1. ]))
    """
    order = np.argsort(p, kind="stable")
    y, p, weight = y[order], p[order], weight[order]
    middle = (np.cumsum(weight) - weight / 2) / weight.sum()
    first = np.searchsorted(p, p, side="left")  # equal predictions share the bin of the first
    code = np.unique(np.floor(middle[first] * bins), return_inverse=True)[1]
    total = np.bincount(code, weight)
    predicted, measured = np.bincount(code, weight * p) / total, np.bincount(code, weight * y) / total
    rows = total**2 / np.bincount(code, weight**2)  # effective number of rows
    if np.isin(y, (0.0, 1.0)).all():
        return Calibration(predicted, measured, *_wilson(measured, rows))
    variance = np.bincount(code, weight * (y - measured[code]) ** 2) / total
    # A single row has no standard error: its interval has no width.
    error = Z90 * np.sqrt(np.divide(variance, rows - 1, out=np.zeros(len(rows)), where=rows > 1 + 1e-9))
    return Calibration(predicted, measured, measured - error, measured + error)


def _wilson(share: FloatArray, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Wilson's interval of a share: unlike the normal interval, it has a width at 0 and at 1."""
    share = np.clip(share, 0.0, 1.0)
    center = (share + Z90**2 / (2 * rows)) / (1 + Z90**2 / rows)
    half = Z90 / (1 + Z90**2 / rows) * np.sqrt(share * (1 - share) / rows + Z90**2 / (4 * rows**2))
    return np.clip(center - half, 0.0, share), np.clip(center + half, share, 1.0)


def draw_calibration(ax: Any, y: FloatArray, p: FloatArray, weight: FloatArray, bins: int) -> None:
    """Draw mean targets over mean predictions, with intervals and the diagonal, and a histogram of the predictions."""
    found = calibration_bins(y, p, weight, bins)
    axis = _calibration_axis(found, p)
    ends = [axis.low, axis.high]
    ax.plot(ends, ends, color=GRAY, linewidth=1, linestyle="--", label="perfect")
    error = np.stack([found.measured - found.low, found.high - found.measured])
    style = {"fmt": "o", "color": PALETTE[0], "markersize": 5, "capsize": 2}
    ax.errorbar(found.predicted, found.measured, np.maximum(error, 0.0), label="measured, 90 % interval", **style)
    set_raw_axis(ax, "x", axis, "mean prediction")
    set_raw_axis(ax, "y", axis, "mean target")
    if all(((values >= 0) & (values <= 1)).all() for values in (y, p)):
        for side in (ax.xaxis, ax.yaxis):
            use_percent(side, even=axis.scale.kind == "linear")
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="best", frameon=False)
    seen = (p >= axis.low) & (p <= axis.high)
    draw_strip(ax, axis, p[seen], weight[seen])


def _calibration_axis(found: Calibration, p: FloatArray) -> RawAxis:
    """One range for predictions and targets; logarithmic if most predictions are small."""
    low = float(min(found.low.min(), found.predicted.min()))
    high = float(max(found.high.max(), found.predicted.max()))
    margin = 0.04 * (high - low) or 0.5 * max(abs(high), 1e-3)
    smallest = float(min(found.predicted.min(), found.measured.min()))
    if smallest > 0:
        ends = 0.7 * smallest, 1.2 * high
        if choose_scale(np.clip(np.quantile(p, np.linspace(0, 1, 201)), *ends), *ends).kind == "log":
            return RawAxis(*ends, Scale("log"))
    return RawAxis(0.0 if 0 <= low < margin else low - margin, high + margin, Scale())
