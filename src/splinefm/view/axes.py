"""Axes in the unit of a column: which range to show, on which scale, at which points, with which ticks.

A grid that is even in u = T(z) leaves gaps on the axis. One that is even on the axis skips detail where a short range
of values holds much of the data. So curves are drawn on both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.bases.bins import Bins
from splinefm.encode.bases.functions import Polynomial
from splinefm.encode.bases.splines import BSpline, MultiResolution
from splinefm.encode.fields.curves import pieces, unit_range
from splinefm.encode.fields.numerical import ORDINARY, Numerical
from splinefm.encode.schema import Schema
from splinefm.encode.tables.open import open_table
from splinefm.encode.transforms.bestfit import BestFitCDF
from splinefm.view.formats import NUMBERS, AxisFormat, axis_format, number

FloatArray = npt.NDArray[np.float64]

# Share of a distribution that is cut off at an unbounded end.
TAIL = 0.001
# An axis is hard to read if a window of this size holds more than this share of u.
_WINDOW, _CROWDED = 0.05, 1.0 / 3.0
_POINTS, _MOST_POINTS = 300, 2000
BARS = 50
_FEW_VALUES, _MANY_VALUES = 20, 500
# Width of the linear part of a symlog scale in decades: with this value the scale has no kink.
_LINEAR = 1.0 / float(np.log(10.0))
# The same, as matplotlib counts it.
SYMLOG_WIDTH = 0.9 * _LINEAR
# Steps are drawn between two points at this distance, as a share of the axis.
_RISER = 1e-6


@dataclass(frozen=True)
class Scale:
    """How values are spread over an axis, as in matplotlib; `threshold` ends the linear part of a symlog scale.

    Examples
    --------
    >>> Scale("log").forward(np.array([1.0, 10.0, 100.0]))
    array([0., 1., 2.])
    >>> scale = Scale("symlog", threshold=2.0)
    >>> scale.backward(scale.forward(np.array([-50.0, 0.0, 1.0, 2.0, 300.0]))).round(9)
    array([-50.,   0.,   1.,   2., 300.])
    """

    kind: Literal["linear", "log", "symlog"] = "linear"
    threshold: float = 1.0

    def forward(self, x: FloatArray) -> FloatArray:
        """Positions on the axis."""
        if self.kind == "linear":
            return x
        if self.kind == "log":
            return np.asarray(np.log10(x))
        size = np.abs(x) / self.threshold
        return np.asarray(np.sign(x) * np.where(size <= 1.0, size * _LINEAR, _LINEAR + np.log10(np.maximum(size, 1.0))))

    def backward(self, position: FloatArray) -> FloatArray:
        """Values at positions on the axis."""
        if self.kind == "linear":
            return position
        if self.kind == "log":
            return np.asarray(10.0**position)
        size = np.abs(position)
        size = np.where(size <= _LINEAR, size / _LINEAR, 10.0 ** (size - _LINEAR))
        return np.asarray(np.sign(position) * self.threshold * size)

    def between(self, low: float, high: float, n: int) -> FloatArray:
        """Values at even distances on the axis, both ends included."""
        first, last = self.forward(np.array([low, high]))
        inner = self.backward(np.linspace(first, last, n)[1:-1])
        return np.concatenate([[low], np.clip(inner, low, high), [high]])


@dataclass(frozen=True)
class RawAxis:
    """The range of a column to show, its scale, and the format of its values."""

    low: float
    high: float
    scale: Scale
    format: AxisFormat = NUMBERS

    @staticmethod
    def of(fields: Sequence[Numerical], data: FloatArray | None = None) -> RawAxis:
        """The axis for fitted fields of one name; `data` are ordinary values to show with them."""
        ends = np.array([_ends(item, data) for item in fields])
        low, high = _widened(float(ends[:, 0].min()), float(ends[:, 1].max()))
        style = axis_format(fields[0])
        if style.ticks(low, high, 2) is not None:  # a calendar and a clock are even
            return RawAxis(low, high, Scale(), style)
        u = (np.arange(200) + 0.5) / 200
        x = np.concatenate([_inverse(item, u) for item in fields])
        return RawAxis(low, high, choose_scale(np.clip(x, low, high), low, high), style)

    def grid(self, fields: Sequence[Numerical]) -> FloatArray:
        """Ordinary values at which to draw curves, in increasing order."""
        n = min(max(_POINTS, *(6 * sum(item.basis.sizes) for item in fields)), _MOST_POINTS)
        parts = [self.scale.between(self.low, self.high, n)]
        for item in fields:  # about as many points in total for any number of models
            parts.append(_inverse(item, np.linspace(0.0, 1.0, max(20, n // len(fields)))))
            if has_steps(item) or len(fields) == 1:
                parts.append(self._borders(item))
        x = np.concatenate(parts)
        x = np.unique(x[(x >= self.low) & (x <= self.high)])
        return self._ordinary(fields, x)

    def middles(self, item: Numerical, n: int) -> FloatArray:
        """Ordinary values in the middle of n equal parts of the axis."""
        return self._ordinary([item], self.scale.between(self.low, self.high, 2 * n + 1)[1::2])

    def ticks(self, most: int) -> tuple[FloatArray, list[str]] | None:
        """Positions and names of ticks, from the format or for a scale that is not linear.

        On such scales matplotlib's ticks crowd, or are powers of ten. None leaves the ticks of a linear scale to
        matplotlib.
        """
        ticks = self.format.ticks(self.low, self.high, most)
        if ticks is not None or self.scale.kind == "linear":
            return ticks
        positions = _log_ticks(self.low, self.high, most) if self.scale.kind == "log" else self._symlog_ticks(most)
        return positions, [number(position) for position in positions]

    def histogram(self, values: FloatArray, weight: FloatArray | None = None) -> tuple[FloatArray, FloatArray]:
        """Heights of bars, as the share of rows per 1/50 of the axis, and their edges in raw units.

        Bars have equal widths, and values beyond the range count at its ends. Where values recur, as integers do, some
        bars would hold two of them and some three, which would look like a pattern in the data. There the edges are
        between values.
        """
        first, last = self.scale.forward(np.array([self.low, self.high]))
        positions = self.scale.forward(np.clip(values, self.low, self.high))
        edges = _edges_between_values(positions, (last - first) / BARS)
        if edges is None:
            edges = np.linspace(first, last, BARS + 1)
        share = np.histogram(positions, edges, weights=weight)[0]
        total = len(values) if weight is None else weight.sum()
        return share / total * (last - first) / BARS / np.diff(edges), self.scale.backward(edges)

    def cells(self, n: int) -> FloatArray:
        """Edges of n equal parts of the axis."""
        return self.scale.between(self.low, self.high, n + 1)

    def _borders(self, item: Numerical) -> FloatArray:
        """Where the pieces of a basis meet, on both sides where it jumps."""
        if not isinstance(item.basis, BSpline | MultiResolution | Bins | Polynomial):
            return np.empty(0)
        x = _inverse(item, pieces(item)[0])
        if not has_steps(item):
            return x
        x = x[(x > self.low) & (x < self.high)]
        position = self.scale.forward(x)
        shift = _RISER * float(np.ptp(self.scale.forward(np.array([self.low, self.high]))))
        return self.scale.backward(np.concatenate([position - shift, position + shift]))

    def _ordinary(self, fields: Sequence[Numerical], x: FloatArray) -> FloatArray:
        """The values without special ones: those move to a neighbor, or are left out if that is special too."""
        beside = x
        for step in (np.inf, -np.inf):
            beside = np.where(_special(fields, beside), np.nextafter(x, step), beside)
        kept: FloatArray = np.unique(beside[~_special(fields, beside)])
        return kept

    def _symlog_ticks(self, most: int) -> FloatArray:
        """0 and powers of ten, outward from 0, skipping those that are too close to the one before."""
        first, last = self.scale.forward(np.array([self.low, self.high]))
        largest = max(abs(self.low), abs(self.high), self.scale.threshold)
        size = self.scale.threshold * 10.0 ** np.arange(np.floor(np.log10(largest / self.scale.threshold) + 1e-9) + 1)
        kept = [0.0] if self.low <= 0 <= self.high else []
        for side in (1.0, -1.0):
            before = 0.0 if kept else -np.inf
            for value in side * size:
                position = abs(float(self.scale.forward(np.array([value]))[0]))
                if self.low <= value <= self.high and position - before >= (last - first) / (most + 1):
                    kept.append(float(value))
                    before = position
        return np.sort(np.array(kept))


def choose_scale(x: FloatArray, low: float, high: float) -> Scale:
    """The scale for values that are even in u: linear, unless a twentieth of the axis holds a third of them.

    Examples
    --------
    >>> u = (np.arange(200) + 0.5) / 200
    >>> choose_scale(u, 0.0, 1.0).kind
    'linear'
    >>> choose_scale(np.exp(8 * u), 1.0, np.exp(8)).kind
    'log'
    >>> choose_scale(np.expm1(8 * u), 0.0, np.exp(8) - 1).kind
    'symlog'
    """
    linear = Scale()
    crowd = _crowd(linear, x, low, high)
    if crowd <= _CROWDED:
        return linear
    if low > 0 and _crowd(Scale("log"), x, low, high) < 0.75 * crowd:
        return Scale("log")
    sizes = np.abs(x[x != 0.0])
    if not len(sizes):
        return linear
    first, last = np.floor(np.log10([np.quantile(sizes, 0.1), sizes.max()])).astype(int)
    candidates = [Scale("symlog", 10.0 ** float(power)) for power in range(max(first, last - 8), last)]
    crowds = [_crowd(candidate, x, low, high) for candidate in candidates]
    return candidates[int(np.argmin(crowds))] if crowds and min(crowds) < 0.75 * crowd else linear


def column_values(data: object, item: Numerical) -> FloatArray:
    """The values of a field from a table or an array of values; NaN where missing."""
    column = data
    if _is_table(data):
        source = open_table(data, types=Schema([item]).column_types())
        batches = source.chunks([item.column])
        column = pa.chunked_array([batch.column(0) for batch in batches], source.schema.field(item.column).type)
    try:
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        array = column if isinstance(column, pa.Array) else pa.array(np.asarray(column).ravel(), from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"data: {error}; give a table with the column {item.name!r}, or its values") from error
    values = item.read(array) if _is_table(data) else item.on_axis(array)
    if not len(values):
        raise ValueError(f"data: the column {item.name!r} has no rows; give at least one, or leave data out")
    return values


def split_tokens(item: Numerical, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ordinary values, and the share of rows at each token."""
    token = item.tokens(values)
    if token is None:
        return values, np.zeros(item.n_tokens)
    counts = np.bincount(token[token != ORDINARY], minlength=item.n_tokens)
    return values[token == ORDINARY], counts / len(values)


def _is_table(data: object) -> bool:
    if isinstance(data, pa.Array | pa.ChunkedArray):
        return False
    if isinstance(data, list | tuple):
        return bool(data) and all(isinstance(value, str) or hasattr(value, "__fspath__") for value in data)
    return getattr(data, "ndim", None) != 1 and not (hasattr(data, "to_numpy") and hasattr(data, "dtype"))


def special_values(item: Numerical, x: FloatArray) -> npt.NDArray[np.bool_]:
    """Whether values are special or missing."""
    token = item.tokens(x)
    return np.zeros(len(x), bool) if token is None else np.asarray(token != ORDINARY)


def _special(fields: Sequence[Numerical], x: FloatArray) -> npt.NDArray[np.bool_]:
    return np.asarray(np.any([special_values(item, x) for item in fields], axis=0))


def has_steps(item: Numerical) -> bool:
    """Whether the curves along a field are step functions."""
    return isinstance(item.basis, Bins) or getattr(item.basis, "degree", None) == 0


def _inverse(item: Numerical, u: FloatArray) -> FloatArray:
    x = np.asarray(item.fitted_transform.inverse(u), np.float64)
    return x[np.isfinite(x)]


def _ends(item: Numerical, data: FloatArray | None) -> tuple[float, float]:
    """The smallest and the largest ordinary value to show."""
    transform = item.fitted_transform
    first, last = unit_range(item, None, None)
    # A parametric distribution is unbounded, or its bounds are beyond the data.
    tails = np.array([TAIL, 1.0 - TAIL])
    ends = np.asarray(transform.inverse(np.array([first, last])), np.float64)
    open_ends = ~np.isfinite(ends) | isinstance(transform, BestFitCDF) & (np.array([first, last]) == [0.0, 1.0])
    low, high = np.where(open_ends, transform.inverse(tails), ends).tolist()
    if data is not None and len(data) and open_ends.any():
        smallest, largest = max(low, float(data.min())), min(high, float(data.max()))
        low, high = (smallest, largest) if smallest < largest else (low, high)
    return low, high


def _widened(low: float, high: float) -> tuple[float, float]:
    """The range, or one of positive width for a constant column."""
    if high - low > 1e-9 * max(abs(low), abs(high)):
        return low, high
    half = 0.5 * max(1.0, 0.1 * abs(low))
    return low - half, high + half


def _crowd(scale: Scale, x: FloatArray, low: float, high: float) -> float:
    """The largest share of the values in a window of the axis."""
    first, last = scale.forward(np.array([low, high]))
    position = np.sort((scale.forward(x) - first) / (last - first))
    return float((np.searchsorted(position, position + _WINDOW) - np.arange(len(position))).max() / len(position))


def _edges_between_values(positions: FloatArray, width: float) -> FloatArray | None:
    """Edges of bars between values that recur; None if they do not recur or are too close to each other.

    A few values get a bar each. More values are grouped into bars of equally many neighbors.
    """
    distinct = np.unique(positions)
    if not len(distinct) <= min(_MANY_VALUES, len(positions) / 3):
        return None
    if len(distinct) <= _FEW_VALUES:
        edges = np.stack([distinct - width / 2, distinct + width / 2], axis=1).ravel()
        return edges if (np.diff(edges) > 1e-9 * width).all() else None
    ends = distinct[[0, -1]] - (distinct[[1, -1]] - distinct[[0, -2]]) * [0.5, -0.5]
    step = -(-len(distinct) // BARS)
    middle = (distinct[:-1] + distinct[1:]) / 2
    edges = np.concatenate([ends[:1], middle[step - 1 :: step], ends[1:]])
    return edges if np.diff(edges[:-1]).min() > width / 2 else None


def _log_ticks(low: float, high: float, most: int) -> FloatArray:
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    positions = np.empty(0)
    for digits in ((1.0, 2.0, 5.0), (1.0, 3.0), (1.0,)):
        fewer = np.array([digit * 10.0**decade for decade in range(first, last + 1) for digit in digits])
        fewer = fewer[(fewer >= low * (1 - 1e-9)) & (fewer <= high * (1 + 1e-9))]
        if len(fewer) < 2 < len(positions):  # one tick says little: thin out the previous ones instead
            break
        positions = fewer
        if len(positions) <= most:
            break
    return positions[:: max(1, -(-len(positions) // most))]
