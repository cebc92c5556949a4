"""Parts that plots share: colors, axes of columns and of shares, strips beside and below, legends, numbers in cells.

Functions take a matplotlib `ax`; matplotlib is not imported here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm._arrays import FloatArray
from splinefm.inspect.axes import SYMLOG_WIDTH, RawAxis, tick_text
from splinefm.plots.captions import caption, captions, percent, row_share, value_label
from splinefm.train.losses import Loss

# The Okabe-Ito palette, which readers with any color vision can tell apart, without yellow, which is hard to see on
# white.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
RED, GRAY, LIGHT = PALETTE[4], "#666666", "#C8C8C8"
# Strips beside and below an axes, in axes coordinates.
_GAP, _HEIGHT, _TOKEN_WIDTH = 0.03, 0.12, 0.05
_CELL_WIDTH, _CELL_HEIGHT = 0.45, 0.2  # inches
_LETTER_WIDTH, _LETTER_HEIGHT = 0.085, 0.15  # inches, of ten points
_BESIDE = 4  # with this many names or more, the legend is beside the axes


def set_raw_axis(ax: Any, side: str, axis: RawAxis, name: str, keep: bool = False) -> None:
    """Set scale, limits, ticks and name of a column's axis; `keep` extends existing limits."""
    low, high = axis.low, axis.high
    if keep:
        before = getattr(ax, f"get_{side}lim")()
        low, high = min(low, before[0]), max(high, before[1])
    else:
        set_ticks(ax, side, axis)
    getattr(ax, f"set_{side}lim")(low, high)
    getattr(ax, f"set_{side}label")(axis_name(ax, side, name))


def axis_name(ax: Any, side: str, name: str) -> str:
    """The name of a column, shortened to fit the axis."""
    return caption(name, int(np.clip(8 * inches(ax, side), 12, 60)))


def inches(ax: Any, side: str) -> float:
    """Width or height of an axes, as known before the layout of its figure."""
    return float(getattr(ax.bbox, "width" if side == "x" else "height") / ax.figure.dpi)


def max_ticks(ax: Any, side: str) -> int:
    """Number of ticks that fit."""
    return int(np.clip(inches(ax, side) / (0.7 if side == "x" else 0.35), 2, 7))


def set_ticks(ax: Any, side: str, axis: RawAxis) -> None:
    """Set scale and ticks of a column's axis."""
    ticks = axis.ticks(max_ticks(ax, side))
    if axis.scale.kind != "linear":
        symlog = {"linthresh": axis.scale.threshold, "linscale": SYMLOG_WIDTH} if axis.scale.kind == "symlog" else {}
        getattr(ax, f"set_{side}scale")(axis.scale.kind, **symlog)
    if ticks is None:
        _set_linear_ticks(ax, side, axis.low, axis.high)
        return
    getattr(ax, f"set_{side}ticks")(*ticks)
    getattr(ax, f"set_{side}ticks")([], minor=True)


def _set_linear_ticks(ax: Any, side: str, low: float, high: float) -> None:
    """Fewer ticks in a small plot, and thousands as 20k."""
    if inches(ax, side) < 3.0:
        ax.locator_params(axis=side, nbins=max_ticks(ax, side))
    size = max(abs(low), abs(high))
    if 1e4 <= size < 1e9 and high - low > 1e-3 * size:
        getattr(ax, f"{side}axis").set_major_formatter(lambda value, position: tick_text(round(value, 6)))


def set_values_axis(ax: Any, side: str, loss: Loss, link: bool) -> None:
    """Set name and ticks of the axis of scores or predictions."""
    getattr(ax, f"set_{side}label")(value_label(loss, link))
    if side == "x":
        ax.locator_params(axis="x", nbins=max_ticks(ax, "x"))
    if link and loss.name == "logistic":
        use_percent(getattr(ax, f"{side}axis"))
    ax.spines[["top", "right"]].set_visible(False)


def use_percent(side: Any, *, even: bool = True) -> None:
    """Format ticks in percent, with the digits that their distance needs, or that each tick needs if not even."""

    def write(value: float, position: object) -> str:
        if not even:
            return percent(value, 9)
        low, high = side.get_view_interval()
        width = 100.0 * abs(high - low)
        return percent(value, int(np.clip(2 - np.floor(np.log10(width)), 0, 9)) if width > 0 else 2)

    side.set_major_formatter(write)


def find_strip(ax: Any, name: str) -> Any:
    """The strip of this name that was drawn before, or None."""
    return next((child for child in ax.child_axes if child.get_label() == name), None)


def draw_strip(ax: Any, axis: RawAxis, values: FloatArray, weight: FloatArray | None = None) -> None:
    """Draw a histogram between the axes and its ticks."""
    if find_strip(ax, "rows") is not None or not len(values):
        return
    strip = ax.inset_axes([0, -_GAP - _HEIGHT, 1, _HEIGHT], sharex=ax, label="rows")
    strip.stairs(*axis.histogram(values, weight), fill=True, color=LIGHT)
    strip.set_ylim(bottom=0.0)
    strip.set_yticks([])
    strip.tick_params(bottom=False, labelbottom=False, which="both")
    strip.spines[:].set_visible(False)
    strip.set_ylabel("rows", fontsize="small", color=GRAY, rotation=0, ha="right", va="center")
    ax.spines["bottom"].set_position(("axes", -_GAP - _HEIGHT))


def token_strip(ax: Any, names: Sequence[str], share: Sequence[float] | None) -> tuple[Any, dict[str, int]]:
    """The strip on the right of the axes, with a position for each token, and the positions."""
    strip = find_strip(ax, "tokens")
    if strip is None:
        # Wide enough for a line of small letters per token.
        width = max(_TOKEN_WIDTH, 0.2 / inches(ax, "x")) * max(len(names), 1.5)
        strip = ax.inset_axes([1 + _GAP, 0, width, 1], sharey=ax, label="tokens")
        strip.splinefm_end = 1 + _GAP + width
        strip.tick_params(left=False, labelleft=False, bottom=False)
        strip.spines[["left", "right", "top"]].set_visible(False)
        strip.splinefm_tokens = {}
    known = strip.splinefm_tokens
    for i, name in enumerate(names):
        known.setdefault(name, "" if share is None else f", {row_share(share[i])}")
    texts = [text + end for text, end in zip(captions(known, 14), known.values(), strict=True)]
    strip.set_xticks(range(len(known)), texts, rotation=90, fontsize="small", color=GRAY)
    strip.set_xlim(-0.6, len(known) - 0.4)
    return strip, {name: position for position, name in enumerate(known)}


def add_legend(ax: Any) -> None:
    """Add a legend if something has a name: inside for a few names, beside the axes otherwise."""
    handles, labels = ax.get_legend_handles_labels()
    if not labels:
        return
    if len(labels) < _BESIDE:
        ax.legend(handles, labels, loc="best", frameon=False)
        return
    strip = find_strip(ax, "tokens")
    right = 1.0 if strip is None else strip.splinefm_end
    ax.legend(handles, labels, loc="upper left", bbox_to_anchor=(right + 0.01, 1.0), frameon=False)


def label_bars(ax: Any, positions: npt.ArrayLike, names: Sequence[str]) -> None:
    """Label horizontal bars, the first on top, in a font size that fits their number."""
    at = np.asarray(positions, np.float64)
    height = 72.0 * inches(ax, "y") / (np.ptp(at) + 1.2)
    ax.set_yticks(at, names, fontsize=float(np.clip(0.7 * height, 3.0, 10.0)))
    ax.set_ylim(at[-1] + 0.6, at[0] - 0.6)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right"]].set_visible(False)


def label_columns(ax: Any, names: Sequence[str]) -> None:
    """Label columns below an axes: horizontally if the names fit, else rotated, and in small letters if need be."""
    width = inches(ax, "x") / max(len(names), 1)
    style: dict[str, Any] = {}
    if _LETTER_WIDTH * (1 + max(map(len, names), default=0)) > width:
        diagonal = width > 1.5 * _LETTER_HEIGHT
        style = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if diagonal else {"rotation": 90}
        style["fontsize"] = float(np.clip(10.0 * width / _LETTER_HEIGHT, 3.0, 10.0))
    ax.set_xticks(range(len(names)), names, **style)


def write_cells(ax: Any, values: FloatArray, write: Callable[[float], str], *, dark_is_low: bool) -> None:
    """Write the number of each cell of a table, in black or white, whichever contrasts with its color, if it fits."""
    if inches(ax, "x") / values.shape[1] < _CELL_WIDTH or inches(ax, "y") / values.shape[0] < _CELL_HEIGHT:
        return
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    for (row, column), value in np.ndenumerate(values):
        if np.isnan(value):
            continue
        part = (value - low) / (high - low) if high > low else 0.0
        dark = part < 0.6 if dark_is_low else part > 0.6
        color = "white" if dark else "black"
        ax.text(column, row, write(float(value)), ha="center", va="center", fontsize="small", color=color)


def percents(values: FloatArray) -> Callable[[float], str]:
    """A formatter of shares in percent, the largest with at least three digits.

    Examples
    --------
    >>> write = percents(np.array([0.0206, 0.5649]))
    >>> write(0.0206), write(0.11)
    ('2.1 %', '11.0 %')
    """
    write = two_digits(10.0 * values)
    return lambda value: f"{write(100.0 * value)} %"


def two_digits(values: FloatArray) -> Callable[[float], str]:
    """A formatter of numbers, the largest with at least two digits."""
    size = float(np.nanmax(np.abs(values), initial=0.0))
    digits = int(np.clip(1 - np.floor(np.log10(size)), 0, 6)) if size > 0 else 2
    return lambda value: f"{value:.{digits}f}"
