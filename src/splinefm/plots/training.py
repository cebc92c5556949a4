"""Plots of training: the history of a fit, and the trials of a search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.inspect.axes import RawAxis, Scale
from splinefm.plots.captions import caption, captions
from splinefm.plots.decorations import GRAY, PALETTE, RED, label_columns, set_ticks
from splinefm.plots.figures import Axes, make_wide_and_small_panels, use_axes
from splinefm.train.fitted import Fitted
from splinefm.train.results import Epoch, StudySummary, Value

# Trials worse than this quantile are drawn at the edge; otherwise the good ones would crowd together.
_SHOWN = 0.75
# The largest number over the smallest one, beyond which an axis is logarithmic.
_LOGARITHMIC = 4.0
_FEW_VALUES, _FEW_EPOCHS = 8, 30
# How far a trial is drawn beside its setting, of the distance to the next one.
JITTER = 0.1


def history(history: object, ax: Axes | None = None) -> Axes:
    """Plot training and validation loss by epoch; the best epoch is marked.

    Parameters
    ----------
    history : Fitted, estimator, or sequence of Epoch
        A trained model or its history.
    ax : Axes, optional
        Axes to draw on. By default a new figure is created, `ax.figure`.

    Examples
    --------
    >>> from splinefm.train.results import Epoch
    >>> ax = history([Epoch(1, 0.7, 0.6, 0.1, 1e6, 1.0), Epoch(2, 0.5, 0.55, 0.1, 1e6, 2.0)])
    >>> [line.get_label() for line in ax.get_lines()]
    ['training', 'validation', 'best: epoch 2, 0.55']
    """
    epochs, title = _find_history(history)
    ax = use_axes(ax)
    epoch = np.array([row.epoch for row in epochs])
    validation = np.array([row.validation_loss for row in epochs])
    dots: dict[str, Any] = {"marker": "o" if len(epochs) <= _FEW_EPOCHS else None, "markersize": 3}
    ax.plot(epoch, [row.train_loss for row in epochs], color=GRAY, label="training", **dots)
    known = np.isfinite(validation)
    if known.any():
        ax.plot(epoch[known], validation[known], color=PALETTE[0], label="validation", **dots)
        best = int(np.nanargmin(np.where(known, validation, np.nan)))
        text = f"best: epoch {epoch[best]}, {validation[best]:.4g}"
        ax.plot(epoch[best], validation[best], "o", color=RED, markersize=9, fillstyle="none", label=text)
    ax.set(xlabel="epoch", ylabel=title)
    ax.locator_params(axis="x", integer=True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="best", frameon=False)
    return ax


def _find_history(source: object) -> tuple[list[Epoch], str]:
    """The epochs of a model, an estimator or a list, and what their losses are."""
    fitted = getattr(source, "fitted_", source)
    found: Any = getattr(source, "history_", getattr(source, "history", source))
    if not isinstance(found, Sequence) or not all(isinstance(epoch, Epoch) for epoch in found):
        raise TypeError(f"history must be a Fitted, a fitted estimator or a list of Epoch, got {type(source).__name__}")
    if not found:
        raise ValueError("the history has no epochs; fit the model first")
    return list(found), fitted.loss.formula.title if isinstance(fitted, Fitted) else "loss"


def study(study: object, axes: Sequence[Axes] | None = None) -> list[Axes]:
    """Plot the trials of a search, and the result over each of the settings.

    The first panel shows the value of every trial and the best so far, the others the complete trials by setting. If
    good trials crowd at an edge, a wider space may help. Outliers are triangles at the edge of a panel.

    Parameters
    ----------
    study : Tuned, Fitted, estimator or StudySummary
        The result of `sf.tune`, or a model that it fitted.
    axes : sequence of Axes, optional
        Axes to draw on, one per panel; a single one gets the first panel. By default a new figure is created,
        `axes[0].figure`.

    Examples
    --------
    >>> from splinefm.train.results import StudySummary, TrialSummary
    >>> trials = [TrialSummary(i, "complete", 1.0 - 0.1 * i, 20, 0.5, (("k", 2**i),)) for i in range(3)]
    >>> axes = study(StudySummary("y", "RMSE", False, 2, tuple(trials)))
    >>> [ax.get_xlabel() for ax in axes]
    ['trial', 'k']
    """
    found = find_study(study)
    names = _searched(found)
    panels = make_wide_and_small_panels(len(names)) if axes is None else [use_axes(ax) for ax in axes]
    if len(panels) not in (1, 1 + len(names)):
        raise ValueError(f"axes must have 1 or {1 + len(names)} elements, one per panel, got {len(panels)}")
    _draw_trials(panels[0], found)
    for ax, name in zip(panels[1:], names, strict=False):
        _draw_slice(ax, found, name)
    return panels


def find_study(source: object) -> StudySummary:
    """The study of a model, an estimator or a result of `sf.tune`."""
    fitted = getattr(source, "fitted_", source)
    found = getattr(fitted, "summary", getattr(fitted, "study", source))
    if isinstance(found, StudySummary):
        return found
    if found is None:
        raise ValueError("this model has no study; only models fitted by sf.tune have one")
    raise TypeError(f"study must be a result of sf.tune, or its Fitted or estimator; got {type(source).__name__}")


def _searched(study: StudySummary) -> list[str]:
    """The names of settings that took more than one value."""
    return [name for name in study.param_names if len({value for value in study.table[name] if value is not None}) > 1]


def _draw_trials(ax: Any, study: StudySummary) -> None:
    """Draw the value of every trial and the best so far."""
    numbers, values = _column(study, "number"), _column(study, "value")
    done = np.array(study.table["state"]) == "complete"
    low, high = _limits(study, values)
    _draw_points(ax, numbers[done], values[done], (low, high), color=PALETTE[0], label="trial")
    if (cut := ~done & np.isfinite(values)).any():
        _draw_points(ax, numbers[cut], values[cut], (low, high), color=GRAY, label="pruned")
    if ((values < low) | (values > high)).any():
        ax.plot([], [], "v" if study.maximize else "^", markersize=4, alpha=0.4, color=GRAY, label="outlier")
    better = np.maximum if study.maximize else np.minimum
    ax.step(numbers[done], better.accumulate(values[done]), where="post", color=PALETTE[1], label="best so far")
    best = study.best_trial
    text = f"best: trial {best.number}, {best.value:.4g}"
    ax.plot(best.number, best.value, "o", color=RED, markersize=9, fillstyle="none", label=text)
    ax.set(xlabel="trial", ylabel=caption(study.metric), ylim=_padded(low, high))
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=5, frameon=False)


def _draw_slice(ax: Any, study: StudySummary, name: str) -> None:
    """Draw the values of all complete trials over one of the searched settings."""
    kept = [trial for trial in study.trials if trial.state == "complete" and dict(trial.params).get(name) is not None]
    values = np.array([trial.value for trial in kept], np.float64)
    limits = _limits(study, _column(study, "value"))
    positions = _set_positions(ax, [dict(trial.params)[name] for trial in kept])
    _draw_points(ax, positions, values, limits, color=PALETTE[0])
    chosen = [i for i, trial in enumerate(kept) if trial.number == study.best]
    ax.plot(positions[chosen], values[chosen], "o", color=RED, markersize=9, fillstyle="none")
    ax.set(xlabel=caption(name), ylabel=caption(study.metric), ylim=_padded(*limits))
    ax.spines[["top", "right"]].set_visible(False)


def _set_positions(ax: Any, settings: Sequence[Value]) -> FloatArray:
    """Set up the axis and return positions of settings: numbers on a scale, text and few integers side by side."""
    distinct = set(settings)
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in distinct)
    continuous = len(distinct) > 1 and any(isinstance(value, float) for value in distinct)
    if numbers and (continuous or len(distinct) > _FEW_VALUES):
        positions = np.array(settings, np.float64)
        low, high = float(positions.min()), float(positions.max())
        set_ticks(ax, "x", RawAxis(low, high, Scale("log" if low > 0.0 and high > _LOGARITHMIC * low else "linear")))
        return positions
    order: list[Any] = sorted(distinct, key=_sort_key)
    label_columns(ax, captions((f"{value:g}" if isinstance(value, float) else value for value in order), 12))
    ax.set_xlim(-0.5, len(order) - 0.5)
    # Jittered a little, since many share a setting.
    repeats = np.array([settings[:i].count(value) for i, value in enumerate(settings)], np.float64)
    return np.array([order.index(value) for value in settings]) + JITTER * np.sin(2.4 * repeats)


def _sort_key(value: Value) -> tuple[bool, list[float], str]:
    """Numbers by size, then "8+32" by its numbers, then other text."""
    parts = str(value).split("+")
    try:
        return False, [len(parts), *map(float, parts)], ""
    except ValueError:
        return True, [], str(value)


def _draw_points(ax: Any, x: FloatArray, y: FloatArray, limits: tuple[float, float], **style: Any) -> None:
    """Draw dots, and triangles at the edge for values outside the limits."""
    low, high = limits
    inside = (y >= low) & (y <= high)
    ax.plot(x[inside], y[inside], "o", markersize=4, alpha=0.8, **style)
    for outside, edge, marker in ((y > high, high, "^"), (y < low, low, "v")):
        ax.plot(x[outside], np.full(int(outside.sum()), edge), marker, markersize=4, alpha=0.4, color=style["color"])


def _limits(study: StudySummary, values: FloatArray) -> tuple[float, float]:
    known = values[np.isfinite(values)]
    share = 1.0 - _SHOWN if study.maximize else _SHOWN
    edge = float(np.quantile(known, share)) if len(known) > 4 else float(known.min() if study.maximize else known.max())
    best = float(known.max() if study.maximize else known.min())
    return min(edge, best), max(edge, best)


def _padded(low: float, high: float) -> tuple[float, float]:
    margin = 0.08 * (high - low) or 0.05 * abs(low) or 1.0
    return low - margin, high + margin


def _column(study: StudySummary, name: str) -> FloatArray:
    return np.array([np.nan if value is None else value for value in study.table[name]], np.float64)
