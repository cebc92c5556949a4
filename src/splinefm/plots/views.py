"""Plots of views: curves, bars, surfaces and lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy.typing as npt

from splinefm.inspect.curves import Bars, Curve, Surface
from splinefm.plots.draw.curves import MAX_LINES, draw_bars, draw_curves
from splinefm.plots.draw.surfaces import draw_surface, name_lines
from splinefm.plots.figures import COLORS, TRUTH, Axes, Figure, check_count, check_kind, use_axes


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
    draw_curves(axes, curves, data=data, link=link, names=names, label=label, marks=marks)
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
        draw_curves(ax, [curve], data=shown, link=link, names=[name], label=None, marks=marks, color=color)
    return ax


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
    check_count("most", most)
    ax = use_axes(ax, lines=min(most, len(bars.names)) + len(bars.shown_tokens))
    draw_bars(ax, bars, link=link, most=most, names=names)
    return ax


def surface(surface: Surface, ax: Axes | None = None, *, link: bool = False, data: object = None) -> Axes:
    """Plot the score along two fields as a color map, with contours if both are numerical.

    Special and missing values are left out. Of a categorical field, the 20 most frequent categories are shown; numbers,
    days of the week and the like keep their natural order.

    Parameters
    ----------
    surface : Surface
        Made by `fitted.segment` along two fields; of one segment.
    ax : Axes, optional
        Axes to draw on. By default a new figure is created, `ax.figure`.
    link : bool
        Plot predictions instead of scores.
    data : table, optional
        For two numerical fields, up to 800 of its rows are plotted as dots. Where there are none, the surface is an
        extrapolation.

    Examples
    --------
    >>> import numpy as np
    >>> import splinefm as sf
    >>> from splinefm.train.losses import Loss
    >>> x, y = (sf.Numerical(name, sf.MinMax(0, 1), sf.BSpline(1, 1), missing="error") for name in "xy")
    >>> view = Surface((x, y), (np.zeros(2), np.zeros(2)), (np.eye(2), np.eye(2)), np.ones(2), 1.0, Loss("squared"))
    >>> ax = surface(view)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('x', 'y')
    """
    check_kind("surface", surface, Surface, "made by fitted.segment along two fields")
    if surface.scales.ndim > 1:
        raise ValueError(f"this is a family of {len(surface)} surfaces; choose one, such as surface[0]")
    ax = use_axes(ax, lines=max(12, name_lines(surface)))
    draw_surface(ax, surface, link=link, data=data)
    return ax


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
