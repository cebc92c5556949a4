"""Plots of views along one field: curves, bars and lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm._arrays import FloatArray
from splinefm._checks import check_size
from splinefm.encode.fields.numerical import Numerical
from splinefm.inspect.axes import RawAxis, column_values, shown_values, split_tokens
from splinefm.inspect.curves import Bars, Curve
from splinefm.plots.captions import captions, legend_name, legend_names
from splinefm.plots.decorations import (
    GRAY,
    LIGHT,
    PALETTE,
    add_legend,
    axis_name,
    draw_strip,
    label_bars,
    set_raw_axis,
    set_values_axis,
    token_strip,
)
from splinefm.plots.figures import Axes, Figure, check_kind, use_axes
from splinefm.train.losses import Loss

COLORS, TRUTH = (*PALETTE[:4], PALETTE[-1]), "#BBBBBB"
# Below this number of curves, a band goes from the smallest to the largest; otherwise from 5 % to 95 %.
FEW_CURVES = 20
# Lines with names, in two styles per color.
MAX_LINES = 2 * len(PALETTE)
# Known values: a line through more of them would hide them, and more than most are not drawn.
_FEW_VALUES, _MAX_VALUES = 60, 2000


def curve(
    curve: Curve | Sequence[Curve],
    ax: Axes | None = None,
    *,
    data: object = None,
    link: bool = False,
    names: Sequence[object] | None = None,
    label: str | None = None,
    marks: bool = True,
) -> Axes:
    """Plot the score along a numerical field, in the unit of its column.

    The axis is logarithmic if most of the data would crowd into a small part of a linear one. A second call with the
    same `ax` adds to the plot.

    Parameters
    ----------
    curve : Curve or sequence of Curve
        A curve; a family of curves (made by `sf.segments`), plotted as one line each; or a list of curves along the
        same field by several models, such as over seeds or bootstrap samples, plotted as their mean and a band from the
        smallest to the largest (from 5 % to 95 % for 20 curves or more).
    ax : Axes, optional
        Axes to draw on. By default a new figure is created, `ax.figure`.
    data : table or array, optional
        A table with the column, or its values. Adds a histogram below the curve, and the share of special and missing
        values.
    link : bool
        Plot predictions (probability, mean or rate) instead of scores.
    names : sequence of str, optional
        Names of the lines of a family.
    label : str, optional
        Name of a single curve, or of the mean of several.
    marks : bool
        Whether to mark the scores of special and missing values beside the curve; with `data`, only of those that occur
        in it.

    Examples
    --------
    >>> import numpy as np
    >>> import splinefm as sf
    >>> from splinefm.train.losses import Loss
    >>> x = sf.Numerical("x", sf.MinMax(0, 10), sf.BSpline(2, 1))
    >>> ax = curve(Curve(x, np.array([5.0, 0, 1, 0]), 1.0, Loss("squared")))
    >>> ax.get_xlabel(), ax.get_lines()[0].get_ydata().max().item()
    ('x', 2.0)
    """
    curves = [curve] if isinstance(curve, Curve) else _several(curve)
    family = curves[0].effects.ndim > 1 and 3 < len(curves[0]) <= MAX_LINES  # these have a legend beside the axes
    axes = use_axes(ax, width=8.4 if family else 6.4)
    _draw_curves(axes, curves, data=data, link=link, names=names, label=label, marks=marks)
    if ax is None and family and isinstance(axes.figure, Figure):
        axes.figure.draw_without_rendering()  # the layout needs more than one pass to fit both
    return axes


def steps(
    step_curve: Curve,
    spline_curve: Curve,
    ax: Axes | None = None,
    *,
    data: object = None,
    link: bool = False,
    names: Sequence[object] = ("bins", "splines"),
    marks: bool = False,
) -> Axes:
    """Plot the step function of a model with bins, and over it the curve of a model with splines.

    Parameters
    ----------
    step_curve, spline_curve : Curve
        The two curves, along the same field.
    ax, data, link, marks
        As in `curve`.
    names : pair of str
        Their names in the legend.

    Examples
    --------
    >>> import numpy as np
    >>> import splinefm as sf
    >>> from splinefm.train.losses import Loss
    >>> bins = sf.Numerical("x", sf.MinMax(0, 10), sf.Bins(2), missing="error")
    >>> spline = sf.Numerical("x", sf.MinMax(0, 10), sf.BSpline(1, 1), missing="error")
    >>> loss = Loss("squared")
    >>> ax = steps(Curve(bins, np.array([0.0, 1.0]), 1.0, loss), Curve(spline, np.array([0.0, 1.0]), 1.0, loss))
    >>> [line.get_label() for line in ax.get_lines()]
    ['bins', 'splines']
    """
    for which, curve in (("step_curve", step_curve), ("spline_curve", spline_curve)):
        check_kind(which, curve, Curve, "made by fitted.segment")
    curves = _several([step_curve, spline_curve])
    if isinstance(names, str) or len(names) != 2:
        raise ValueError(f"names must have one name for each of the two curves, got {names!r}")
    ax = use_axes(ax)
    for i, (curve, name, color) in enumerate(zip(curves, names, (COLORS[1], COLORS[0]), strict=True)):
        shown = data if i == 0 else None
        _draw_curves(ax, [curve], data=shown, link=link, names=[name], label=None, marks=marks, color=color)
    return ax


def _several(curves: object) -> list[Curve]:
    """Curves of several models along the same field."""
    if not isinstance(curves, Sequence) or not curves or not all(isinstance(curve, Curve) for curve in curves):
        found = f"{curves!r}" if isinstance(curves, list | tuple) else type(curves).__name__
        raise TypeError(f"curve must be a Curve or a list of curves, made by fitted.segment; got {found}")
    for curve in curves:
        if curve.effects.ndim > 1:
            raise ValueError(f"got a family of {len(curve)} curves where one is needed; choose one, such as curve[0]")
    fields = sorted({curve.field.name for curve in curves})
    if len(fields) > 1:
        raise ValueError(f"curves in one plot must be along the same field, got {', '.join(map(repr, fields))}")
    return list(curves)


def _draw_curves(
    ax: Any,
    curves: Sequence[Curve],
    *,
    data: object,
    link: bool,
    names: Sequence[object] | None,
    label: str | None,
    marks: bool,
    color: str | None = None,
) -> None:
    """Draw one curve, a family, or the mean and the band of several."""
    fields: list[Numerical] = [curve.field for curve in curves]
    ordinary, share = (None, None) if data is None else split_tokens(fields[0], column_values(data, fields[0]))
    axis = RawAxis.of(fields, ordinary)
    known = _known(axis, curves)
    x = axis.grid(fields) if known is None else known
    y = np.stack([curve(x, link=link) for curve in curves])
    before = len(ax.get_lines())
    if len(curves) > 1:
        found = legend_names(names, 1, "line, the mean")
        colors = [color or PALETTE[before % len(PALETTE)]]
        _draw_band(ax, x, y, found[0] if found else legend_name(label or f"mean of {len(curves)} curves"), colors[0])
    else:
        lines = np.atleast_2d(y[0])
        colors = _draw_lines(ax, x, lines, _line_names(names, label, len(lines)), color)
    if known is not None:
        _show_points(ax.get_lines()[before:], len(x))
    set_raw_axis(ax, "x", axis, fields[0].name, keep=before > 0)
    set_values_axis(ax, "y", curves[0].loss, link)
    if marks:
        _draw_tokens(ax, curves, link, share, colors)
    if ordinary is not None:
        draw_strip(ax, axis, ordinary)
    add_legend(ax)


def _known(axis: RawAxis, curves: Sequence[Curve]) -> FloatArray | None:
    """The values on the axis to which the curves are restricted; None for a range."""
    found = [curve.known_values for curve in curves if curve.known_values is not None]
    if not found:
        return None
    shown = shown_values(np.unique(np.concatenate(found)), axis.low, axis.high, _MAX_VALUES)
    return shown if len(shown) else None


def _show_points(lines: Sequence[Any], n: int) -> None:
    """Mark the values of curves with nothing in between: a line only guides the eye, where there are few of them."""
    for line in lines:
        line.set(marker=".", **({} if n <= _FEW_VALUES else {"linestyle": "none", "markersize": 3}))


def _line_names(names: Sequence[object] | None, label: str | None, n: int) -> list[str] | None:
    """Names of the lines; None without names, or for too many lines to tell apart."""
    if label is not None and n > 1:
        raise ValueError(f"label names one line, but there are {n}; give names instead")
    if names is None and label is None:
        return [f"segment {i}" for i in range(n)] if 1 < n <= len(PALETTE) else None
    found = legend_names([label] if names is None else names, n, "lines" if n > 1 else "line")
    if n > MAX_LINES:
        raise ValueError(
            f"at most {MAX_LINES} lines with names fit one plot, got {n}; leave out names, or use several plots"
        )
    return found


def _draw_lines(ax: Any, x: FloatArray, y: FloatArray, names: list[str] | None, color: str | None) -> list[str]:
    """Draw the lines, with names if there are any, and return their colors."""
    if names is None and len(y) > 1:
        alpha = float(np.clip(20 / len(y), 0.15, 0.6))
        ax.plot(x, y.T, color=color or GRAY, linewidth=0.7, alpha=alpha)
        return [color or GRAY] * len(y)
    before = len(ax.get_lines())
    colors = [color or PALETTE[(before + i) % len(PALETTE)] for i in range(len(y))]
    for i, values in enumerate(y):
        style = "-" if i < len(PALETTE) else "--"
        ax.plot(x, values, style, color=colors[i], linewidth=1.8, label=names[i] if names else None)
    return colors


def _draw_band(ax: Any, x: FloatArray, y: FloatArray, label: str, color: str) -> None:
    low, high = _band(y)
    text = "smallest to largest" if len(y) < FEW_CURVES else "5 % to 95 %"
    ax.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0, label=text)
    ax.plot(x, y.mean(axis=0), color=color, linewidth=1.8, label=label)


def _band(y: FloatArray) -> FloatArray:
    """Lower and upper end of the band of curves."""
    return np.quantile(y, (0.0, 1.0) if len(y) < FEW_CURVES else (0.05, 0.95), axis=0)


def _draw_tokens(ax: Any, curves: Sequence[Curve], link: bool, share: FloatArray | None, colors: list[str]) -> None:
    """Draw special and missing values beside the curve, with their names, since they are not on it."""
    known = [curve.met_tokens for curve in curves]
    tokens = {
        name: i for i, name in enumerate(curves[0].field.feature_names()) if all(name in others for others in known)
    }
    tokens = {name: i for name, i in tokens.items() if share is None or share[i] > 0}
    if not tokens:
        return
    strip, positions = token_strip(ax, list(tokens), None if share is None else [share[i] for i in tokens.values()])
    for name in tokens:
        values = np.array(
            [_as_shown(curve.loss, others[name], link) for curve, others in zip(curves, known, strict=True)]
        )
        if len(curves) > 1:
            strip.plot(
                [positions[name]] * 2, _band(values), color=colors[0], linewidth=5, alpha=0.3, solid_capstyle="butt"
            )
            values = values.mean(axis=0)
        many = values.size > len(PALETTE)
        for value, color in zip(values.ravel(), colors, strict=True):
            strip.plot(
                [positions[name]], [value], "D", color=color, markersize=3 if many else 5, alpha=0.4 if many else 1.0
            )


def _as_shown(loss: Loss, scores: Any, link: bool) -> FloatArray:
    values = np.asarray(scores, np.float64)
    return loss.predict(values) if link else values


def bars(
    bars: Bars, ax: Axes | None = None, *, link: bool = False, most: int = 20, names: Sequence[object] | None = None
) -> Axes:
    """Plot the score of each category, the largest on top; missing and rare below, if training data had any.

    Categories that are numbers, booleans, days, months or dates keep their natural order instead.

    Parameters
    ----------
    bars : Bars
        Made by `fitted.segment`. A family (made by `sf.segments`) is plotted as dots, with a color per segment.
    ax : Axes, optional
        Axes to draw on. By default a new figure is created, `ax.figure`.
    link : bool
        Plot predictions instead of scores.
    most : int
        Maximum number of categories to plot, the most frequent ones. A note gives the number of the others.
    names : sequence of str, optional
        Names of the segments of a family.

    Examples
    --------
    >>> import numpy as np
    >>> import splinefm as sf
    >>> from splinefm.train.losses import Loss
    >>> view = Bars(sf.Categorical("c", vocabulary=["a", "b"]), np.array([9.0, 8.0, 1.0, 2.0]), 0.5, Loss("squared"))
    >>> [text.get_text() for text in bars(view).get_yticklabels()]
    ['b', 'a', '(missing)', '(rare)']
    """
    check_kind("bars", bars, Bars, "made by fitted.segment along a categorical field")
    check_size("most", most)
    ax = use_axes(ax, lines=min(most, len(bars.names)) + len(bars.shown_tokens))
    values = np.atleast_2d(bars.predictions if link else bars.scores)
    found = legend_names(names, len(values), "segments")
    if len(values) > len(PALETTE):
        raise ValueError(f"at most {len(PALETTE)} segments fit one plot, got {len(values)}; choose some of them")
    categories = bars.names
    chosen = bars.field.most_frequent(bars.counts, most)
    kept = len(chosen)
    order = bars.field.display_order(chosen[np.argsort(-values[:, chosen].mean(axis=0), kind="stable")])
    tokens = bars.shown_tokens
    extra = [np.atleast_1d(_as_shown(bars.loss, scores, link)) for scores in tokens.values()]
    drawn = np.concatenate([values[:, order], np.stack(extra, axis=1)], axis=1) if extra else values[:, order]
    if not drawn.size:
        raise ValueError(f"{bars.field.name!r} has no categories to plot")
    position = np.arange(drawn.shape[1]) + 0.5 * ((np.arange(drawn.shape[1]) >= kept) & (kept > 0))
    notes = [f"{len(categories) - kept:,} rarer not shown"] if len(categories) > kept else []
    if bars.effects.ndim > 1:
        _draw_dots(ax, drawn, position, found or [f"segment {i}" for i in range(len(values))])
    else:
        shares = link and bars.loss.link != "identity"
        base = 0.0 if shares else float(drawn[0, : kept or None].mean())
        colors = [PALETTE[0]] * kept + [LIGHT] * len(tokens)
        ax.barh(position, drawn[0] - base, left=base, color=colors, height=0.75, label=found[0] if found else None)
        ax.axvline(base, color=GRAY, linewidth=0.8)
        notes = notes if shares else ["bars start at their mean", *notes]
    label_bars(ax, position, captions(categories[i] for i in order) + [f"({name})" for name in tokens])
    set_values_axis(ax, "x", bars.loss, link)
    ax.set_ylabel(axis_name(ax, "y", bars.field.name))
    ax.set_xlabel("\n".join([ax.get_xlabel(), *notes]))
    add_legend(ax)
    return ax


def _draw_dots(ax: Any, values: FloatArray, position: FloatArray, names: list[str]) -> None:
    ax.hlines(position, values.min(axis=0), values.max(axis=0), color=LIGHT, linewidth=2, zorder=1)
    for row, name, color in zip(values, names, PALETTE, strict=False):
        ax.plot(row, position, "o", color=color, label=name, markersize=6)


def lines(
    x: npt.ArrayLike,
    curves: Mapping[str, npt.ArrayLike],
    ax: Axes | None = None,
    *,
    truth: npt.ArrayLike | None = None,
    x_name: str = "",
    y_name: str = "",
    title: str = "",
) -> Axes:
    """Plot curves over a column in its unit.

    Parameters
    ----------
    x : array
        Values of the column, in increasing order.
    curves : mapping of str to array
        The name of each curve, and its values at x; the first is on top. At most five.
    ax : Axes, optional
        Axes to draw on. By default a new figure is created, `ax.figure`.
    truth : array, optional
        The true curve, a broad gray band behind the others.
    x_name, y_name, title : str
        Names of the axes, and the title.

    Examples
    --------
    >>> ax = lines([0, 1, 2], {"spline": [0.1, 0.3, 0.2]}, truth=[0.1, 0.25, 0.2], x_name="recency")
    >>> [line.get_label() for line in ax.get_lines()]
    ['truth', 'spline']
    >>> ax.get_xlabel()
    'recency'
    """
    if len(curves) > len(COLORS):
        raise ValueError(f"at most {len(COLORS)} curves fit one plot, got {len(curves)}; use several plots")
    ax = Figure(layout="constrained").subplots() if ax is None else ax
    if truth is not None:
        ax.plot(x, truth, color=TRUTH, linewidth=5, solid_capstyle="round", label="truth")
    for i, (name, values) in enumerate(curves.items()):
        ax.plot(x, values, color=COLORS[i], linewidth=1.6, label=name, zorder=3 - i / 10)
    ax.set(xlabel=x_name, ylabel=y_name)
    ax.set_title(title, fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
