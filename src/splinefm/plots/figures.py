"""Figures and axes of matplotlib, which no other module imports: `pip install 'splinefm[plots]'`.

Plots draw on an `Axes` and return it, so that they can be combined. Without one they create a figure, `ax.figure`, that
needs no display: `ax.figure.savefig("plot.png")`.
"""

from __future__ import annotations

try:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
except ModuleNotFoundError as error:
    if error.name is None or error.name.split(".")[0] != "matplotlib":
        raise
    raise ModuleNotFoundError(
        "plots need matplotlib, which is not installed: pip install 'splinefm[plots]'", name=error.name
    ) from error


def use_axes(ax: object, *, lines: int | None = None, width: float = 6.4) -> Axes:
    """The given axes, or the axes of a new figure that is high enough for this number of lines of text."""
    if ax is None:
        height = 4.0 if lines is None else min(100.0, max(2.0, 0.9 + 0.26 * lines))
        return Figure(figsize=(width, height), layout="constrained").subplots()
    if not isinstance(ax, Axes):
        raise TypeError(f"ax must be a matplotlib Axes, got {type(ax).__name__}")
    return ax


def make_panels(rows: int, columns: int) -> tuple[Figure, list[Axes]]:
    """A figure and its panels, row by row, with shared axes.

    Examples
    --------
    >>> figure, panels = make_panels(2, 4)
    >>> len(panels)
    8
    """
    figure = Figure(figsize=(3.0 * columns, 2.7 * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)


def add_figure_legend(figure: Figure, ax: Axes) -> None:
    """Add one legend for all panels, above them, with the lines of one panel.

    Examples
    --------
    >>> from splinefm.plots.curves import lines
    >>> figure, panels = make_panels(1, 2)
    >>> add_figure_legend(figure, lines([0, 1], {"spline": [0.1, 0.3]}, panels[0]))
    >>> [text.get_text() for text in figure.legends[0].get_texts()]
    ['spline']
    """
    handles, names = ax.get_legend_handles_labels()
    figure.legend(handles, names, loc="outside upper center", ncols=len(names), frameon=False)


def make_column_panels(n_panels: int, per_column: int) -> list[Axes]:
    """Panels in rows of one table column each, or of two if there are many."""
    width = per_column * (2 if per_column == 2 and n_panels > 6 else 1)
    n_rows = -(-n_panels // width)
    figure = Figure(figsize=(2.7 * width, 2.2 * n_rows), layout="constrained")
    panels = list(figure.subplots(n_rows, width, squeeze=False).flat)
    for spare in panels[n_panels:]:
        spare.remove()
    return panels[:n_panels]


def make_wide_and_small_panels(n_small: int) -> list[Axes]:
    """A panel as wide as the figure, and small ones below it, in rows of three."""
    n_rows = -(-n_small // 3)
    figure = Figure(figsize=(8.4, 3.0 + 2.2 * n_rows), layout="constrained")
    grid = figure.add_gridspec(1 + n_rows, 3, height_ratios=[1.3, *[1.0] * n_rows])
    small = [figure.add_subplot(grid[1 + i // 3, i % 3]) for i in range(n_small)]
    return [figure.add_subplot(grid[0, :]), *small]


def check_kind(name: str, value: object, kind: type, hint: str) -> None:
    """Raise unless an argument is of a class; `hint` says what makes such objects."""
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "AEIOU" else "a"
        raise TypeError(f"{name} must be {article} {kind.__name__}, {hint}; got {type(value).__name__}")
