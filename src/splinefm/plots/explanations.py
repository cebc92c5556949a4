"""Plots of explanations: the importance of fields and of their pairs."""

from __future__ import annotations

import numpy as np

from splinefm._checks import check_size
from splinefm.inspect.importance import Importance
from splinefm.plots.captions import captions
from splinefm.plots.decorations import PALETTE, label_bars, two_digits, write_cells
from splinefm.plots.figures import Axes, check_kind, use_axes

_FEW_FIELDS = 9


def importance(importance: Importance, ax: Axes | None = None, *, most: int = 20) -> Axes:
    """Plot how much each field contributes to the score: mean absolute Shapley values, the largest on top.

    Parameters
    ----------
    importance : Importance
        Made by `sf.importance`.
    ax : Axes, optional
        Axes to draw on. By default a new figure is created, `ax.figure`.
    most : int
        Maximum number of fields to plot. A note gives the number of the others.

    Examples
    --------
    >>> import numpy as np
    >>> found = Importance(("x", "c"), np.array([0.1, 0.7]), np.array([0.1, 0.6]), np.zeros((2, 2)))
    >>> [text.get_text() for text in importance(found).get_yticklabels()]
    ['c', 'x']
    """
    check_kind("importance", importance, Importance, "made by sf.importance")
    check_size("most", most)
    ax = use_axes(ax, lines=min(most, len(importance.fields)))
    ranked = importance.ranked_fields()
    drawn, rest = ranked[:most], ranked[most:]
    position = np.arange(len(drawn))
    ax.barh(position, [value for _, value in drawn], color=PALETTE[0], height=0.75)
    label_bars(ax, position, captions(name for name, _ in drawn))
    note = f"\n{len(rest)} more fields, each at most {rest[0][1]:.2g}" if rest else ""
    ax.set_xlabel("mean |Shapley value|, in units of the score" + note)
    return ax


def pairs(importance: Importance, ax: Axes | None = None, *, most: int = 15) -> Axes:
    """Plot how much each pair of fields contributes to the score: standard deviations of pair effects, as a matrix.

    Parameters
    ----------
    importance : Importance
        Made by `sf.importance`, with two or more fields.
    ax : Axes, optional
        Axes to draw on. By default a new figure is created, `ax.figure`.
    most : int
        Maximum number of fields to plot, those with the strongest pairs.

    Examples
    --------
    >>> import numpy as np
    >>> found = Importance(("x", "c"), np.array([0.1, 0.7]), np.array([0.1, 0.6]), np.array([[0.0, 0.2], [0.2, 0.0]]))
    >>> [text.get_text() for text in pairs(found).texts]
    ['0.20']
    """
    check_kind("importance", importance, Importance, "made by sf.importance")
    check_size("most", most, 2)
    ax = use_axes(ax)
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
    return ax
