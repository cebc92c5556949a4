"""Pictures by matplotlib, which no other module imports: `pip install 'splinefm[plots]'`.

Functions draw on an `Axes` and return it, so that pictures can be put together from them. Without one they make a
figure, `ax.figure`, that needs no display: `ax.figure.savefig("picture.png")`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

try:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    if error.name is None or error.name.split(".")[0] != "matplotlib":
        raise
    raise ModuleNotFoundError(
        "pictures need matplotlib, which is not installed: pip install 'splinefm[plots]'", name=error.name
    ) from error

from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.tables.names import quoted
from splinefm.encode.transforms.transform import Transform
from splinefm.explain.importance import Importance
from splinefm.learn.fitted import Fitted
from splinefm.plots.draw.curves import MOST_LINES, draw_bars, draw_curves
from splinefm.plots.draw.fields import draw_basis, draw_raw, draw_unit, find_columns, find_encoder, find_fields
from splinefm.plots.draw.reports import (
    calibration_arrays,
    draw_calibration,
    draw_history,
    draw_importance,
    draw_pairs,
    find_history,
)
from splinefm.plots.draw.study import draw_slice, draw_trials, find_study, searched
from splinefm.plots.draw.surfaces import draw_surface, rows_of_names
from splinefm.view.curves import Bars, Curve
from splinefm.view.surfaces import Surface

# Colors of Okabe and Ito, which people with any color vision can tell apart.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#000000")
TRUTH = "#BBBBBB"


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
    """The score along a numerical field, in the unit of its column.

    The axis is logarithmic where most of the data would crowd in a small part of a linear one. A second call with the
    same `ax` adds to the picture.

    Parameters
    ----------
    curve : Curve or sequence of Curve
        A curve; a family of them (made by `sf.segments`), a line for each; or a list of curves along the same field by
        several models, such as over seeds or bootstrap samples: their mean, and a band from the smallest to the
        largest (from 5 % to 95 %, for 20 curves or more).
    ax : Axes, optional
        Where to draw; by default in a new figure, which is `ax.figure`.
    data : table or array, optional
        A table with the column, or its values: a histogram below the curve, and how many rows are special or missing.
    link : bool
        Draw predictions (probability, mean or rate) instead of scores.
    names : sequence of str, optional
        Names of the lines of a family.
    label : str, optional
        Name of a single curve, or of the mean of several.
    marks : bool
        Whether to mark the scores of special values and of missing ones, beside the curve; with `data`, of those that
        occur in it.

    Examples
    --------
    >>> import splinefm as sf
    >>> from splinefm.learn.losses import Loss
    >>> x = sf.Numerical("x", sf.MinMax(0, 10), sf.BSpline(2, 1))
    >>> ax = curve(Curve(x, np.array([5.0, 0, 1, 0]), 1.0, Loss("squared")))
    >>> ax.get_xlabel(), ax.get_lines()[0].get_ydata().max().item()
    ('x', 2.0)
    """
    curves = [curve] if isinstance(curve, Curve) else _several(curve)
    family = curves[0].effects.ndim > 1 and 3 < len(curves[0]) <= MOST_LINES  # a legend stands beside these
    own = _axes(ax, width=8.4 if family else 6.4)
    draw_curves(own, curves, data=data, link=link, names=names, label=label, marks=marks)
    if ax is None and family and isinstance(own.figure, Figure):
        own.figure.draw_without_rendering()  # the layout takes more than one turn to make room for both
    return own


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
    """The step function that a model with bins learned, and over it the curve of a model with splines.

    Parameters
    ----------
    step_curve, spline_curve : Curve
        The two curves, along the same field.
    ax, data, link, marks
        As in `curve`.
    names : pair of str
        What to call them.

    Examples
    --------
    >>> import splinefm as sf
    >>> from splinefm.learn.losses import Loss
    >>> bins = sf.Numerical("x", sf.MinMax(0, 10), sf.Bins(2), missing="error")
    >>> spline = sf.Numerical("x", sf.MinMax(0, 10), sf.BSpline(1, 1), missing="error")
    >>> loss = Loss("squared")
    >>> ax = steps(Curve(bins, np.array([0.0, 1.0]), 1.0, loss), Curve(spline, np.array([0.0, 1.0]), 1.0, loss))
    >>> [line.get_label() for line in ax.get_lines()]
    ['bins', 'splines']
    """
    for which, curve in (("step_curve", step_curve), ("spline_curve", spline_curve)):
        _check_kind(which, curve, Curve, "made by fitted.segment")
    curves = _several([step_curve, spline_curve])
    if isinstance(names, str) or len(names) != 2:
        raise ValueError(f"names must be those of the two curves, got {names!r}")
    ax = _axes(ax)
    for place, (curve, name, color) in enumerate(zip(curves, names, (COLORS[1], COLORS[0]), strict=True)):
        shown = data if place == 0 else None
        draw_curves(ax, [curve], data=shown, link=link, names=[name], label=None, marks=marks, color=color)
    return ax


def bars(
    bars: Bars, ax: Axes | None = None, *, link: bool = False, most: int = 20, names: Sequence[object] | None = None
) -> Axes:
    """The score of each category, the largest on top; missing and rare ones below, where training met them.

    Categories that are numbers, truth values, days, months or dates are in their own order instead.

    Parameters
    ----------
    bars : Bars
        Made by `fitted.segment`; a family (made by `sf.segments`) is drawn as dots, a color for each segment.
    ax : Axes, optional
        Where to draw; by default in a new figure, which is `ax.figure`.
    link : bool
        Draw predictions instead of scores.
    most : int
        Draw so many of the most frequent categories; a note counts the others.
    names : sequence of str, optional
        Names of the segments of a family.

    Examples
    --------
    >>> import splinefm as sf
    >>> from splinefm.learn.losses import Loss
    >>> view = Bars(sf.Categorical("c", vocabulary=["a", "b"]), np.array([9.0, 8.0, 1.0, 2.0]), 0.5, Loss("squared"))
    >>> [text.get_text() for text in bars(view).get_yticklabels()]
    ['b', 'a', '(missing)', '(rare)']
    """
    _check_kind("bars", bars, Bars, "made by fitted.segment along a categorical field")
    _check_count("most", most)
    ax = _axes(ax, rows=min(most, len(bars.names)) + len(bars.shown_tokens))
    draw_bars(ax, bars, link=link, most=most, names=names)
    return ax


def surface(surface: Surface, ax: Axes | None = None, *, link: bool = False, data: object = None) -> Axes:
    """The score along two fields as a map of colors, with contours where both are numerical.

    Special and missing values are left out; of a categorical field, the 20 most frequent categories are drawn, numbers
    and days of the week and the like in their own order.

    Parameters
    ----------
    surface : Surface
        Made by `fitted.segment` along two fields; of one segment.
    ax : Axes, optional
        Where to draw; by default in a new figure, which is `ax.figure`.
    link : bool
        Draw predictions instead of scores.
    data : table, optional
        For two numerical fields, up to 800 of its rows are drawn as dots: where there are none, the surface is a guess.

    Examples
    --------
    >>> import splinefm as sf
    >>> from splinefm.learn.losses import Loss
    >>> x, y = (sf.Numerical(name, sf.MinMax(0, 1), sf.BSpline(1, 1), missing="error") for name in "xy")
    >>> view = Surface((x, y), (np.zeros(2), np.zeros(2)), (np.eye(2), np.eye(2)), np.ones(2), 1.0, Loss("squared"))
    >>> ax = surface(view)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('x', 'y')
    """
    _check_kind("surface", surface, Surface, "made by fitted.segment along two fields")
    if surface.scales.ndim > 1:
        raise ValueError(f"this is a family of {len(surface)} surfaces; choose one, such as surface[0]")
    ax = _axes(ax, rows=max(12, rows_of_names(surface)))
    draw_surface(ax, surface, link=link, data=data)
    return ax


def importance(importance: Importance, ax: Axes | None = None, *, most: int = 20) -> Axes:
    """How much each field moves the score: mean absolute Shapley values, the largest on top.

    Parameters
    ----------
    importance : Importance
        Made by `sf.importance`.
    ax : Axes, optional
        Where to draw; by default in a new figure, which is `ax.figure`.
    most : int
        Draw so many fields; a note counts the others.

    Examples
    --------
    >>> found = Importance(("x", "c"), np.array([0.1, 0.7]), np.array([0.1, 0.6]), np.zeros((2, 2)))
    >>> [text.get_text() for text in importance(found).get_yticklabels()]
    ['c', 'x']
    """
    _check_kind("importance", importance, Importance, "made by sf.importance")
    _check_count("most", most)
    ax = _axes(ax, rows=min(most, len(importance.fields)))
    draw_importance(ax, importance, most=most)
    return ax


def pairs(importance: Importance, ax: Axes | None = None, *, most: int = 15) -> Axes:
    """How much each pair of fields moves the score: standard deviations of pair effects, as a matrix.

    Parameters
    ----------
    importance : Importance
        Made by `sf.importance`; of two or more fields.
    ax : Axes, optional
        Where to draw; by default in a new figure, which is `ax.figure`.
    most : int
        Draw so many fields, those with the strongest pairs.

    Examples
    --------
    >>> found = Importance(("x", "c"), np.array([0.1, 0.7]), np.array([0.1, 0.6]), np.array([[0.0, 0.2], [0.2, 0.0]]))
    >>> [text.get_text() for text in pairs(found).texts]
    ['0.20']
    """
    _check_kind("importance", importance, Importance, "made by sf.importance")
    _check_count("most", most, 2)
    ax = _axes(ax)
    draw_pairs(ax, importance, most=most)
    return ax


def history(history: object, ax: Axes | None = None) -> Axes:
    """Training and validation loss by epoch; the best epoch is marked.

    Parameters
    ----------
    history : Fitted, estimator, or sequence of Epoch
        What was trained, or its history.
    ax : Axes, optional
        Where to draw; by default in a new figure, which is `ax.figure`.

    Examples
    --------
    >>> from splinefm.learn.training import Epoch
    >>> ax = history([Epoch(1, 0.7, 0.6, 0.1, 1e6, 1.0), Epoch(2, 0.5, 0.55, 0.1, 1e6, 2.0)])
    >>> [line.get_label() for line in ax.get_lines()]
    ['training', 'validation', 'best: epoch 2, 0.55']
    """
    epochs, loss = find_history(history)
    ax = _axes(ax)
    draw_history(ax, epochs, loss)
    return ax


def study(study: object, axes: Sequence[Axes] | None = None) -> list[Axes]:
    """The trials of a search over settings, and its result over each of the settings.

    The first panel has the value of every trial and the best so far, the others the complete trials by setting: where
    good ones crowd at an edge, a wider space may help. Values far off are triangles at the edge of a panel.

    Parameters
    ----------
    study : Tuned, Fitted, estimator or StudySummary
        What `sf.tune` returned, or a model that it made.
    axes : sequence of Axes, optional
        Where to draw, one for each panel; by default in a new figure, `axes[0].figure`. One alone gets the first panel.

    Examples
    --------
    >>> import splinefm as sf
    >>> trials = [sf.TrialSummary(i, "complete", 1.0 - 0.1 * i, 20, 0.5, (("k", 2**i),)) for i in range(3)]
    >>> axes = study(sf.StudySummary("y", "RMSE", False, 2, tuple(trials)))
    >>> [ax.get_xlabel() for ax in axes]
    ['trial', 'k']
    """
    found = find_study(study)
    names = searched(found)
    panels = _wide_and_small_panels(len(names)) if axes is None else [_axes(ax) for ax in axes]
    if len(panels) not in (1, 1 + len(names)):
        raise ValueError(f"there are {1 + len(names)} panels to draw, but {len(panels)} axes")
    draw_trials(panels[0], found)
    for ax, name in zip(panels[1:], names, strict=False):
        draw_slice(ax, found, name)
    return panels


def calibration(
    y: npt.ArrayLike,
    prediction: npt.ArrayLike,
    ax: Axes | None = None,
    *,
    bins: int = 10,
    sample_weight: npt.ArrayLike | None = None,
) -> Axes:
    """Do things that are predicted with 10 % happen in 10 % of the rows?

    Rows are put in bins of equal weight by their prediction; each is a point at the mean prediction and the mean
    target. The intervals hold 90 %: Wilson's for targets of 0 and 1, the mean ± 1.645 standard errors for others.
    Predictions are counted below.

    Parameters
    ----------
    y : array
        Targets.
    prediction : array
        What was predicted for them: probabilities, means or rates.
    ax : Axes, optional
        Where to draw; by default in a new figure, which is `ax.figure`.
    bins : int
        Number of bins; equal predictions stay together, so that there may be fewer.
    sample_weight : array, optional
        Weights of the rows.

    Examples
    --------
    >>> ax = calibration([0, 1, 1, 1], [0.2, 0.4, 0.8, 1.0], bins=2)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('mean prediction', 'mean target')
    """
    _check_count("bins", bins)
    target, p, weight = calibration_arrays(y, prediction, sample_weight)
    ax = _axes(ax)
    draw_calibration(ax, target, p, weight, bins)
    return ax


def basis(
    encoder_or_field: Encoder | Fitted | Numerical,
    name: str | None = None,
    ax: Axes | None = None,
    *,
    data: object = None,
) -> Axes:
    """The basis functions of a numerical field, in the unit of its column, over a histogram of the data.

    Functions that starve, which see less than a tenth of the rows that an even spread would give them, are drawn in
    red and counted in the title. An encoder knows them from its training data; for a field alone, `data` is counted.

    Parameters
    ----------
    encoder_or_field : Encoder, Fitted or Numerical
        An encoder and the name of a field, or a fitted field.
    name : str, optional
        Name of the field; not needed where there is only one numerical field.
    ax : Axes, optional
        Where to draw; by default in a new figure, which is `ax.figure`.
    data : table or array, optional
        A table with the column, or its values.

    Examples
    --------
    >>> import splinefm as sf
    >>> schema = sf.Schema([sf.Numerical("x", sf.MinMax(), sf.BSpline(segments=4, degree=1))])
    >>> encoder = sf.fit_encoder(schema, {"x": [0.0, 1.0, 2.0, 2.5, 100.0]})
    >>> basis(encoder, "x").get_title()
    '5 functions of MinMax(x), 2 starved'
    """
    encoder = find_encoder(encoder_or_field)
    if encoder is not None:
        item, *others = find_fields(encoder, name)
        if others:
            raise ValueError(f"name one of the numerical fields: {quoted([field.name for field in (item, *others)])}")
    elif isinstance(encoder_or_field, Numerical):
        item = encoder_or_field
    else:
        raise TypeError(f"encoder_or_field must be an Encoder or a Numerical, got {type(encoder_or_field).__name__}")
    ax = _axes(ax)
    draw_basis(ax, item, encoder, data)
    return ax


def transformed(
    source: Encoder | Fitted | Numerical | Transform | Sequence[Transform],
    data: object,
    name: str | None = None,
    axes: Sequence[Axes] | None = None,
) -> list[Axes]:
    """Histograms of columns as they are, and after their transform: is the data spread over [0, 1]?

    Parameters
    ----------
    source : Encoder, Fitted, Numerical, Transform, or sequence of Transform
        Fitted fields: two panels for each. Or candidates for one column, which are fitted to the data: a panel for the
        column, and one for each.
    data : table or array
        A table with the columns; the values of a column serve for a single one.
    name : str, optional
        The field of an encoder (by default all numerical ones), or the column that candidates are for.
    axes : sequence of Axes, optional
        Where to draw, one for each panel; by default in a new figure, `axes[0].figure`.

    Returns
    -------
    list of Axes
        For each column the panel of raw values, then those of transformed ones.

    Examples
    --------
    >>> import splinefm as sf
    >>> values = np.random.default_rng(0).lognormal(size=500)
    >>> axes = transformed([sf.MinMax(), sf.Quantile()], {"price": values}, "price")
    >>> [ax.get_xlabel() for ax in axes]
    ['price', 'u = MinMax', 'u = Quantile']
    """
    columns = find_columns(source, data, name)
    n_panels = sum(1 + len(column.transforms) for column in columns)
    panels = _panels(n_panels, 1 + len(columns[0].transforms)) if axes is None else [_axes(ax) for ax in axes]
    if len(panels) != n_panels:
        raise ValueError(f"there are {n_panels} panels to draw, but {len(panels)} axes")
    places = iter(panels)
    for column in columns:
        draw_raw(next(places), column)
        for transform in column.transforms:
            draw_unit(next(places), column, transform)
    return panels


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
    """Draw curves over a column in its own unit.

    Parameters
    ----------
    x : array
        Values of the column, in increasing order.
    curves : mapping of str to array
        The name of each curve, and its values at x; the first is drawn on top. At most five.
    ax : Axes, optional
        Where to draw; by default in a new figure, which is `ax.figure`.
    truth : array, optional
        What the curves should be; a broad gray band behind them.
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
        raise ValueError(f"at most {len(COLORS)} curves can be told apart, got {len(curves)}; draw several pictures")
    ax = Figure(layout="constrained").subplots() if ax is None else ax
    if truth is not None:
        ax.plot(x, truth, color=TRUTH, linewidth=5, solid_capstyle="round", label="truth")
    for place, (name, values) in enumerate(curves.items()):
        ax.plot(x, values, color=COLORS[place], linewidth=1.6, label=name, zorder=3 - place / 10)
    ax.set(xlabel=x_name, ylabel=y_name)
    ax.set_title(title, fontsize="medium")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def make_panels(rows: int, columns: int) -> tuple[Figure, list[Axes]]:
    """A figure and its panels, row by row, which share their axes.

    Examples
    --------
    >>> figure, panels = make_panels(2, 4)
    >>> len(panels)
    8
    """
    figure = Figure(figsize=(3.0 * columns, 2.7 * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)


def add_legend(figure: Figure, ax: Axes) -> None:
    """One legend for all panels, above them, from the curves of one.

    Examples
    --------
    >>> figure, panels = make_panels(1, 2)
    >>> add_legend(figure, lines([0, 1], {"spline": [0.1, 0.3]}, panels[0]))
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['spline']
    """
    handles, names = ax.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False)


# Arguments


def _axes(ax: object, *, rows: int | None = None, width: float = 6.4) -> Axes:
    """The axes to draw on: as given, or those of a new figure, high enough for so many rows of text."""
    if ax is None:
        height = 4.0 if rows is None else min(100.0, max(2.0, 0.9 + 0.26 * rows))
        return Figure(figsize=(width, height), layout="constrained").subplots()
    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be an Axes of matplotlib, got {type(ax).__name__}")
    return ax


def _panels(n_panels: int, per_column: int) -> list[Axes]:
    """Panels in rows of one column each, or of two where there are many."""
    width = per_column * (2 if per_column == 2 and n_panels > 6 else 1)
    n_rows = -(-n_panels // width)
    figure = Figure(figsize=(2.7 * width, 2.2 * n_rows), layout="constrained")
    panels = list(figure.subplots(n_rows, width, squeeze=False).flat)
    for spare in panels[n_panels:]:
        spare.remove()
    return panels[:n_panels]


def _wide_and_small_panels(n_small: int) -> list[Axes]:
    """A panel as wide as the figure, and small ones below it, in rows of three."""
    n_rows = -(-n_small // 3)
    figure = Figure(figsize=(8.4, 3.0 + 2.2 * n_rows), layout="constrained")
    grid = figure.add_gridspec(1 + n_rows, 3, height_ratios=[1.3, *[1.0] * n_rows])
    small = [figure.add_subplot(grid[1 + i // 3, i % 3]) for i in range(n_small)]
    return [figure.add_subplot(grid[0, :]), *small]


def _several(curves: object) -> list[Curve]:
    """Curves of several models along the same field."""
    if not isinstance(curves, Sequence) or not curves or not all(isinstance(curve, Curve) for curve in curves):
        found = f"{curves!r}" if isinstance(curves, list | tuple) else type(curves).__name__
        raise TypeError(f"curve must be a Curve or a list of them, made by fitted.segment; got {found}")
    for curve in curves:
        if curve.effects.ndim > 1:
            raise ValueError(f"a family of {len(curve)} curves cannot be one of several; choose one, such as curve[0]")
    fields = sorted({curve.field.name for curve in curves})
    if len(fields) > 1:
        raise ValueError(f"curves in one picture must be along the same field, got {', '.join(map(repr, fields))}")
    return list(curves)


def _check_kind(name: str, value: object, kind: type, hint: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, {hint}; got {type(value).__name__}")


def _check_count(name: str, value: object, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
