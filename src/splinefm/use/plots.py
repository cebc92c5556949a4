"""Pictures by matplotlib, which no other module imports: `pip install 'splinefm[plots]'`.

Functions draw on an `Axes` and return it, so that pictures can be put together from them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Colors of Okabe and Ito, which people with any color vision can tell apart.
COLORS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#000000")
TRUTH = "#BBBBBB"


def plot_curves(
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
    >>> ax = plot_curves([0, 1, 2], {"spline": [0.1, 0.3, 0.2]}, truth=[0.1, 0.25, 0.2], x_name="recency")
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
    >>> add_legend(figure, plot_curves([0, 1], {"spline": [0.1, 0.3]}, panels[0]))
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['spline']
    """
    handles, names = ax.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False)
