"""Plots of views along two fields: surfaces."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Single
from splinefm.inspect.axes import RawAxis, column_values, has_steps, shown_values, special_values, tick_text
from splinefm.inspect.curves import Surface
from splinefm.plots.captions import captions, percent, value_label
from splinefm.plots.decorations import (
    axis_name,
    inches,
    label_columns,
    percents,
    set_raw_axis,
    two_digits,
    use_percent,
    write_cells,
)
from splinefm.plots.figures import Axes, check_kind, use_axes

_CELLS, _MIN_CELLS = 150, 48  # along a numerical field
_SCORES = 1 << 18  # of single segments; a mean over many segments that crosses make has fewer cells
# A label needs this many points of its line on either side, and this distance from other labels in axes coordinates.
_STRAIGHT, _APART = 5, 0.15
_MAX_CATEGORIES, _MAX_NUMBERS, _MAX_DOTS = 20, 100, 800


class _Side(NamedTuple):
    """One field of a surface: values in the middle of cells, the edges of the cells, and the number of hidden ones."""

    name: str
    points: list[Any]
    edges: FloatArray
    axis: RawAxis | None = None
    categories: tuple[str, ...] = ()
    n_hidden: int = 0


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
    ax = use_axes(ax, lines=max(12, _name_lines(surface)))
    columns = {} if data is None else _read(surface, data)
    known = [surface.known_values(side) for side in (0, 1)]
    both = zip(surface.fields, surface.counts, known, strict=True)
    cells = _n_cells(surface)
    first, second = (_side(item, columns.get(item.name), counts, values, cells) for item, counts, values in both)
    n, m = len(first.points), len(second.points)
    if surface.fields[0].holds_lists:  # lists do not broadcast
        values = surface([x for x in first.points for _ in range(m)], second.points * n, link=link)
    else:
        values = surface(np.array(first.points)[:, None], second.points, link=link)
    values = values.reshape(n, m).T
    shares = link and surface.loss.name == "logistic"
    mesh = ax.pcolormesh(first.edges, second.edges, values, cmap="viridis", rasterized=True)
    bar = ax.figure.colorbar(mesh, ax=ax, label=value_label(surface.loss, link))
    if shares:
        use_percent(bar.ax.yaxis)
    for letter, side in (("x", first), ("y", second)):
        _set_side(ax, letter, side)
    if first.axis is not None and second.axis is not None:
        stepped = any(has_steps(item) for item in surface.fields)
        if not stepped and all(values is None for values in known):
            _draw_contours(ax, first, second, values, shares)
        _draw_rows(ax, list(columns.values()))
    elif first.axis is None and second.axis is None and n * m <= _MAX_NUMBERS:
        write_cells(ax, values, percents(values) if shares else two_digits(values), dark_is_low=True)
    return ax


def _name_lines(surface: Surface) -> int:
    """Lines of text beside the plot, plus some for names below it."""
    second = surface.fields[1]
    return 0 if second.is_numerical else min(second.n_categories, _MAX_CATEGORIES) + 5


def _read(surface: Surface, data: object) -> dict[str, FloatArray]:
    """Columns of the numerical fields, with NaN at special values."""
    columns = {}
    for item in surface.fields:
        if isinstance(item, Numerical):
            values = column_values(data, item)
            columns[item.name] = np.where(special_values(item, values), np.nan, values)
    return columns


def _side(
    item: Single, column: FloatArray | None, counts: FloatArray | None, known: FloatArray | None, cells: int
) -> _Side:
    if isinstance(item, Numerical):
        axis = RawAxis.of([item], None if column is None else column[~np.isnan(column)])
        middles = np.empty(0) if known is None else shown_values(known, axis.low, axis.high, cells)
        if len(middles) > 1:
            return _known_side(item.name, axis, middles)
        return _Side(item.name, axis.middles(item, cells).tolist(), axis.cells(cells), axis)
    categories: list[str] = [] if item.vocabulary is None else item.vocabulary.names.to_pylist()
    if not categories:
        raise ValueError(f"{item.name!r} has no categories to plot")
    drawn: list[Any] = [categories[i] for i in item.most_frequent(counts, _MAX_CATEGORIES)]
    points = list(map(item.holding, drawn))
    hidden = len(categories) - len(drawn)
    return _Side(item.name, points, np.arange(-0.5, len(drawn)), None, tuple(drawn), hidden)


def _n_cells(surface: Surface) -> int:
    """Cells along a numerical field; every cell of a mean with crosses takes the score of every segment."""
    n_segments = 1 if surface.crossed is None else len(surface.crossed.level)
    return int(np.clip(np.sqrt(_SCORES / n_segments), _MIN_CELLS, _CELLS))


def _known_side(name: str, axis: RawAxis, points: FloatArray) -> _Side:
    """Known values, each with the part of the axis that is nearest to it; the axis has room for the first and last."""
    positions = axis.scale.forward(points)
    between = (positions[:-1] + positions[1:]) / 2
    ends = 2 * positions[[0, -1]] - between[[0, -1]]
    edges = axis.scale.backward(np.concatenate([ends[:1], between, ends[1:]]))
    return _Side(name, points.tolist(), edges, replace(axis, low=float(edges[0]), high=float(edges[-1])))


def _set_side(ax: Any, letter: str, side: _Side) -> None:
    if side.axis is not None:
        set_raw_axis(ax, letter, side.axis, side.name)
        return
    texts = captions(side.categories, 16)
    if letter == "x":
        label_columns(ax, texts)
    else:
        height = 72.0 * inches(ax, "y") / len(texts)
        ax.set_yticks(range(len(texts)), texts, fontsize=float(np.clip(0.7 * height, 3.0, 10.0)))
    note = f"\n{side.n_hidden:,} rarer not shown" if side.n_hidden else ""
    getattr(ax, f"set_{letter}label")(axis_name(ax, letter, side.name) + note)


def _draw_contours(ax: Any, first: _Side, second: _Side, values: FloatArray, shares: bool) -> None:
    low, high = float(values.min()), float(values.max())
    levels = nice_levels(low, high)
    if not len(levels):
        return
    # The colors of the map go from dark to light.
    colors = ["white" if level < low + 0.6 * (high - low) else "black" for level in levels]
    lines = ax.contour(first.points, second.points, values, levels=levels, colors=colors, linewidths=0.8, alpha=0.8)
    positions = _label_positions(lines.allsegs, first, second)
    ax.clabel(lines, fmt=(lambda value: percent(value, 9)) if shares else tick_text, fontsize="small", manual=positions)


def _label_positions(segments: list[list[FloatArray]], first: _Side, second: _Side) -> list[tuple[float, float]]:
    """A point of the longest line of every level where it is straight, as far from other labels as possible."""
    chosen = np.empty((0, 2))
    positions: list[tuple[float, float]] = []
    for lines in segments:
        points = max(lines, key=len, default=np.empty((0, 2)))
        if len(points) < 2 * _STRAIGHT + 1:
            continue
        xy = np.stack([_axes_position(side, points[:, i]) for i, side in enumerate((first, second))], axis=1)
        bend = np.full(len(xy), np.inf)
        middle = 2 * xy[_STRAIGHT:-_STRAIGHT] - xy[: -2 * _STRAIGHT] - xy[2 * _STRAIGHT :]
        bend[_STRAIGHT:-_STRAIGHT] = np.linalg.norm(middle, axis=1)
        free = np.all((xy > 0.08) & (xy < 0.92), axis=1) & np.isfinite(bend)
        if not free.any():
            continue
        candidates = np.flatnonzero(free & (bend <= np.median(bend[free])))
        others = chosen if len(chosen) else np.array([[0.0, 0.0]])
        distance = np.linalg.norm(xy[candidates, None] - others, axis=2).min(axis=1)
        best = candidates[int(np.argmax(distance))]
        if len(chosen) and distance.max() < _APART:
            continue
        chosen = np.append(chosen, xy[best : best + 1], axis=0)
        positions.append((float(points[best, 0]), float(points[best, 1])))
    return positions


def _axes_position(side: _Side, values: FloatArray) -> FloatArray:
    """Values of a numerical field in axes coordinates."""
    assert side.axis is not None
    first, last = side.axis.scale.forward(np.array([side.axis.low, side.axis.high]))
    return np.asarray((side.axis.scale.forward(values) - first) / (last - first))


def nice_levels(low: float, high: float, most: int = 7) -> FloatArray:
    """Round numbers strictly between two numbers.

    Examples
    --------
    >>> nice_levels(0.03, 0.97)
    array([0.2, 0.4, 0.6, 0.8])
    """
    width = high - low
    if not width > 1e-9 * max(abs(low), abs(high)):
        return np.empty(0)
    power = 10.0 ** np.floor(np.log10(width / most))
    step = power * min(digit for digit in (1, 2, 5, 10) if width / (digit * power) <= most)
    levels = step * np.arange(np.ceil(low / step), np.floor(high / step) + 1)
    rounded: FloatArray = np.round(levels[(levels > low) & (levels < high)] / power) * power
    return rounded


def _draw_rows(ax: Any, columns: list[FloatArray]) -> None:
    """Draw some rows of the data: where there are none, the surface is an extrapolation."""
    if not columns:
        return
    rows = np.stack(columns, axis=1)
    rows = rows[np.isfinite(rows).all(axis=1)]
    rows = rows[np.random.default_rng(0).permutation(len(rows))[:_MAX_DOTS]]
    ax.plot(*rows.T, ".", color="white", markersize=2.5, alpha=0.5, markeredgewidth=0, scalex=False, scaley=False)
