"""Axes in the unit of a column: which range to show, on which scale, with which ticks and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from splinefm._arrays import BoolArray, FloatArray
from splinefm._wording import number as plain_number
from splinefm.encode.bases import Bins, BSpline, MultiResolution, Polynomial
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cross import Part
from splinefm.encode.fields.numerical import ORDINARY, Numerical
from splinefm.encode.schema import Schema, Single
from splinefm.encode.tables.open import open_table
from splinefm.encode.transforms.bestfit import BestFitCDF

# Numbers that stand by themselves: days of the week, and values that a cross reads as categories.
#
# Between two such numbers there is nothing to show: a cross has no feature for values that training did not have.


def known_values(item: Single, parts: Iterable[Part] = ()) -> FloatArray | None:
    """The values of a field that views show, in increasing order and without special ones; None if it has a range.

    Parameters
    ----------
    item : field
        The field along which a view runs.
    parts : iterable of fields
        The parts of crosses that read the same values; see `Sources.parts`.

    Examples
    --------
    >>> hour = Numerical("hour")
    >>> known_values(hour), known_values(hour, [Categorical("hour", vocabulary=["10", "9", "n/a"])])
    (None, array([ 9., 10.]))
    >>> known_values(Numerical("day", part="weekday"))
    array([0., 1., 2., 3., 4., 5., 6.])
    """
    if not isinstance(item, Numerical):
        return None
    found = [_numbers(part) for part in parts if isinstance(part, Categorical)]
    if axis_format(item).integers:
        found.append(np.arange(7.0))
    every = np.unique(np.concatenate([np.empty(0), *found]))
    ordinary: FloatArray = every[~special_values(item, every)]
    return ordinary if len(ordinary) else None


def shown_values(known: FloatArray, low: float, high: float, n: int) -> FloatArray:
    """At most n > 1 of the values from low to high: the first, the last, and others evenly spread over their ranks.

    Examples
    --------
    >>> shown_values(np.arange(24.0), 0.0, 30.0, 4), shown_values(np.arange(24.0), 0.5, 2.5, 4)
    (array([ 0.,  8., 15., 23.]), array([1., 2.]))
    """
    return spread_values(known[(known >= low) & (known <= high)], n)


def spread_values(known: FloatArray, n: int) -> FloatArray:
    """At most n > 1 of all values, likewise.

    Examples
    --------
    >>> spread_values(np.arange(24.0), 3)
    array([ 0., 12., 23.])
    """
    return known[np.linspace(0, len(known) - 1, min(n, len(known))).round().astype(np.intp)]


def _numbers(part: Categorical) -> FloatArray:
    """The names of the categories that are finite numbers."""
    names = pa.array([], pa.large_string()) if part.vocabulary is None else part.vocabulary.names
    numbers = np.array([_number(name) for name in names.to_pylist()], np.float64)
    return numbers[np.isfinite(numbers)]


def _number(name: str) -> float:
    try:
        return float(name)
    except ValueError:
        return np.nan


# How to write the values of a numerical field, and where to put the ticks of its axis: numbers, dates, clock times.
#
# Everything that prints or draws values of a column asks `axis_format`. A field with a `part` holds a part of a date:
# "trend" (seconds since 1970), "hour" (0 to 24), "weekday" (0 is Monday) or "yearday" (1 to 366, as in a leap year).

Ticks = tuple[FloatArray, list[str]]

_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NEW_YEAR = date(2024, 1, 1)  # of a leap year
_MINUTE, _HOUR, _DAY = 60.0, 3600.0, 86400.0
# Distances of ticks: seconds for those that divide a day, then days, then months.
_SECONDS = [1.0, 5.0, 15.0, 30.0, *(_MINUTE * n for n in (1, 5, 15, 30)), *(_HOUR * n for n in (1, 3, 6, 12))]
_RESOLUTION = 200  # values that a reader can tell apart in a range
_DAY_STEPS = (1, 2, 7, 14)
_MONTH_STEPS = (1, 2, 3, 6, *(12 * n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)))


class AxisFormat:
    """Plain numbers; the classes below are for calendars and clocks."""

    integers = False
    """Whether all values are integers."""

    def text(self, value: float, digits: int = 6, span: float = 0.0) -> str:
        """A single value: a number with at most `digits` digits, or a date as exact as a range of `span` seconds needs.

        Examples
        --------
        >>> AxisFormat().text(1234567.0), AxisFormat().text(0.125)
        ('1234570', '0.125')
        """
        return plain_number(value, f".{digits}g")

    def texts(self, values: Sequence[float] | FloatArray) -> list[str]:
        """Several values; dates have only as much detail as it takes to tell them apart."""
        return [self.text(value) for value in values]

    def ticks(self, low: float, high: float, most: int) -> Ticks | None:
        """Positions and names of at most `most` ticks; None leaves them to the scale of the axis."""
        return None


class Weekdays(AxisFormat):
    """Days of the week, Monday is 0.

    Examples
    --------
    >>> Weekdays().texts([0.0, 6.0]), Weekdays().ticks(-0.5, 6.5, 4)[1]
    (['Mon', 'Sun'], ['Mon', 'Wed', 'Fri', 'Sun'])
    """

    integers = True

    def text(self, value: float, digits: int = 6, span: float = 0.0) -> str:
        return _DAYS[min(max(round(value), 0), 6)]

    def ticks(self, low: float, high: float, most: int) -> Ticks | None:
        return _thinned(np.arange(7.0), low, high, most, self.text)


class Clock(AxisFormat):
    """Hours of the day.

    Examples
    --------
    >>> Clock().text(13.5), Clock().ticks(0.0, 24.0, 5)[1]
    ('13:30', ['00:00', '06:00', '12:00', '18:00', '24:00'])
    """

    def text(self, value: float, digits: int = 6, span: float = 0.0) -> str:
        minutes = round(60.0 * value)
        return f"{minutes // 60:02d}:{minutes % 60:02d}"

    def ticks(self, low: float, high: float, most: int) -> Ticks | None:
        positions = np.empty(0)
        for step in (0.25, 0.5, 1.0, 2.0, 3.0, 6.0, 12.0):
            fewer = _multiples(low, high, step)
            if len(fewer) < 2 < len(positions):  # one tick says little: thin out the previous ones instead
                break
            positions = fewer
            if len(positions) <= most:
                break
        return _thinned(positions, low, high, most, self.text)


class Yeardays(AxisFormat):
    """Days of a leap year, January 1 is 1.

    Examples
    --------
    >>> Yeardays().text(186.0), Yeardays().ticks(1.0, 366.0, 4)[1]
    ('Jul 4', ['Jan', 'Apr', 'Jul', 'Oct'])
    """

    def text(self, value: float, digits: int = 6, span: float = 0.0) -> str:
        day = _NEW_YEAR + timedelta(min(max(int(value), 1), 366) - 1)
        return f"{_MONTHS[day.month - 1]} {day.day}"

    def ticks(self, low: float, high: float, most: int) -> Ticks | None:
        firsts = np.array([(date(2024, month, 1) - _NEW_YEAR).days + 1 for month in range(1, 13)], np.float64)
        positions, names = _thinned(firsts, low, high, most, lambda value: self.text(value).split()[0])
        if len(positions) < 2:  # a part of a month
            return _thinned(_multiples(low, high, 1.0), low, high, most, self.text)
        return positions, names


class Dates(AxisFormat):
    """Seconds since 1970, as ISO dates, with the time of day where it matters.

    Examples
    --------
    >>> Dates().text(1.7e9), Dates().texts([1.7e9, 1.8e9])
    ('2023-11-14 22:13:20', ['2023-11-14', '2027-01-15'])
    >>> Dates().ticks(1.6e9, 1.7e9, 5)[1]
    ['2021', '2022', '2023']
    """

    def text(self, value: float, digits: int = 6, span: float = 0.0) -> str:
        return _written(value, max(1.0 if value % _MINUTE else _MINUTE if value % _DAY else _DAY, span / _RESOLUTION))

    def texts(self, values: Sequence[float] | FloatArray) -> list[str]:
        steps = np.diff(np.unique(np.asarray(values, np.float64)))
        if not len(steps):
            return super().texts(values)
        return [_written(value, float(steps.min())) for value in values]

    def ticks(self, low: float, high: float, most: int) -> Ticks | None:
        for step in _SECONDS:
            if (high - low) / step <= most:
                return _time_ticks(low, high, step)
        for days in _DAY_STEPS:
            if (high - low) / (days * _DAY) <= most:
                return _day_ticks(low, high, days)
        return _month_ticks(low, high, most)


NUMBERS = AxisFormat()
_PARTS: dict[str | None, AxisFormat] = {
    None: NUMBERS,
    "trend": Dates(),
    "hour": Clock(),
    "weekday": Weekdays(),
    "yearday": Yeardays(),
}


def axis_format(item: Any) -> AxisFormat:
    """How to write values of a numerical field.

    Examples
    --------
    >>> from splinefm import Numerical
    >>> axis_format(Numerical("price")).text(2.5)
    '2.5'
    """
    return _PARTS[getattr(item, "part", None)]


def _multiples(low: float, high: float, step: float) -> FloatArray:
    """The multiples of a step from low to high."""
    return step * np.arange(np.ceil(low / step - 1e-9), np.floor(high / step + 1e-9) + 1) + 0.0  # no -0.0


def _thinned(positions: FloatArray, low: float, high: float, most: int, write: Callable[[float], str]) -> Ticks:
    """Every position, or every second, third, .. one, so that at most `most` remain."""
    slack = 1e-9 * max(abs(low), abs(high))
    inside = positions[(positions >= low - slack) & (positions <= high + slack)]
    kept = inside[:: max(1, -(-len(inside) // most))]
    return kept, [write(float(position)) for position in kept]


def _time_ticks(low: float, high: float, step: float) -> Ticks:
    positions = _multiples(low, high, step)
    end = 16 if step >= _MINUTE else 19
    return positions, _named(
        positions, lambda moment: moment.isoformat()[11:end], lambda moment: moment.isoformat()[:10]
    )


def _day_ticks(low: float, high: float, days: int) -> Ticks:
    shift = 4 * _DAY if days % 7 == 0 else 0.0  # weeks begin on Mondays, and 1970 on a Thursday
    positions = _multiples(low - shift, high - shift, days * _DAY) + shift
    return positions, _named(positions, lambda moment: f"{_MONTHS[moment.month - 1]} {moment.day}", _year)


def _month_ticks(low: float, high: float, most: int) -> Ticks:
    positions = np.empty(0)
    for months in _MONTH_STEPS:
        if (high - low) / (31 * _DAY * months) > most:
            continue  # far too many to list
        positions = _months(low, high, months)
        if len(positions) <= most:
            break
    if months >= 12:
        return positions, [_year(_moment(position)) for position in positions]
    return positions, _named(positions, lambda moment: _MONTHS[moment.month - 1], _year)


def _months(low: float, high: float, step: int) -> FloatArray:
    """The first moments of every `step` months from low to high, counted from January of the year 0."""
    first, last = (_month(value) for value in (low, high))
    numbers = range(-(-first // step) * step, last + 1, step)
    starts = [datetime(max(n // 12, 1), n % 12 + 1, 1, tzinfo=UTC) for n in numbers if n // 12 < 10_000]
    positions = np.array([(start - _EPOCH).total_seconds() for start in starts], np.float64)
    return positions[(positions >= low) & (positions <= high)]


def _month(value: float) -> int:
    moment = _moment(value)
    return 12 * moment.year + moment.month - 1


def _moment(value: float) -> datetime:
    """The date of a number of seconds, clipped to the dates that `datetime` can hold."""
    lowest, highest = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC, microsecond=0)
    seconds = min(max(value, (lowest - _EPOCH).total_seconds()), (highest - _EPOCH).total_seconds())
    return _EPOCH + timedelta(seconds=seconds)


def _written(value: float, step: float) -> str:
    """An ISO date with as much of the time of day as values `step` seconds apart need."""
    length, rounding = (10, 0.0) if step >= _DAY else (16, _MINUTE / 2) if step >= _MINUTE else (19, 0.5)
    return _moment(value + rounding).isoformat(" ")[:length]


def _named(positions: FloatArray, name: Callable[[datetime], str], above: Callable[[datetime], str]) -> list[str]:
    """Names of ticks, with the group that they belong to below the first tick of every group."""
    moments = [_moment(position) for position in positions]
    groups = [above(moment) for moment in moments]
    new = [i == 0 or group != groups[i - 1] for i, group in enumerate(groups)]
    return [
        f"{name(moment)}\n{group}" if first else name(moment)
        for moment, group, first in zip(moments, groups, new, strict=True)
    ]


def _year(moment: datetime) -> str:
    return moment.isoformat()[:4]


def tick_text(value: float) -> str:
    """A tick of an axis, in a few characters.

    Examples
    --------
    >>> [tick_text(value) for value in (0.05, 200, 20_000, 3e6, -1e10)]
    ['0.05', '200', '20k', '3M', '−1e10']
    """
    size = abs(value)
    thousands, unit = (
        (value, "") if size < 1e4 or size >= 1e9 else (value / 1e3, "k") if size < 1e6 else (value / 1e6, "M")
    )
    text = f"{thousands:g}{unit}".replace("e+", "e").replace("e-0", "e-")
    return text.replace("-", "−")  # as on matplotlib's axes


# Axes in the unit of a column: which range to show, on which scale, at which points, with which ticks.
#
# A grid that is even in u = T(z) leaves gaps on the axis. One that is even on the axis skips detail where a short range
# of values holds much of the data. So curves are drawn on both.


# Share of a distribution that is cut off at an unbounded end.
TAIL = 0.001
# An axis is hard to read if a window of this size holds more than this share of u.
_WINDOW, _CROWDED = 0.05, 1.0 / 3.0
_POINTS, _MAX_POINTS = 300, 2000
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
        n = min(max(_POINTS, *(6 * sum(item.basis.sizes) for item in fields)), _MAX_POINTS)
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
        return positions, [tick_text(position) for position in positions]

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
        x = _inverse(item, item.pieces()[0])
        if not has_steps(item):
            return x
        x = x[(x > self.low) & (x < self.high)]
        position = self.scale.forward(x)
        shift = _RISER * float(np.ptp(self.scale.forward(np.array([self.low, self.high]))))
        return self.scale.backward(np.concatenate([position - shift, position + shift]))

    def _ordinary(self, fields: Sequence[Numerical], x: FloatArray) -> FloatArray:
        """The values without special ones: those move to a neighbor, or are left out if that is special too."""
        neighbor = x
        for step in (np.inf, -np.inf):
            neighbor = np.where(_special(fields, neighbor), np.nextafter(x, step), neighbor)
        kept: FloatArray = np.unique(neighbor[~_special(fields, neighbor)])
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
    crowd = _max_window_share(linear, x, low, high)
    if crowd <= _CROWDED:
        return linear
    if low > 0 and _max_window_share(Scale("log"), x, low, high) < 0.75 * crowd:
        return Scale("log")
    sizes = np.abs(x[x != 0.0])
    if not len(sizes):
        return linear
    first, last = np.floor(np.log10([np.quantile(sizes, 0.1), sizes.max()])).astype(int)
    candidates = [Scale("symlog", 10.0 ** float(power)) for power in range(max(first, last - 8), last)]
    crowds = [_max_window_share(candidate, x, low, high) for candidate in candidates]
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
    values = item.read(array) if _is_table(data) else item.read_axis(array)
    if not len(values):
        raise ValueError(f"data: the column {item.name!r} has no rows; give at least one, or leave data out")
    return values


def split_tokens(item: Numerical, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Ordinary values, and the share of rows at each token."""
    token = item.find_tokens(values)
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


def special_values(item: Numerical, x: FloatArray) -> BoolArray:
    """Whether values are special, missing or out of range."""
    beyond = item.is_beyond(x)
    token = item.find_tokens(np.clip(x, *item.value_limits))
    return beyond if token is None else np.asarray(beyond | (token != ORDINARY))


def _special(fields: Sequence[Numerical], x: FloatArray) -> BoolArray:
    return np.asarray(np.any([special_values(item, x) for item in fields], axis=0))


def has_steps(item: Single) -> bool:
    """Whether a field has curves, and they are step functions."""
    return isinstance(item.basis, Bins) or getattr(item.basis, "degree", None) == 0


def _inverse(item: Numerical, u: FloatArray) -> FloatArray:
    x = item.raw(u)
    return x[np.isfinite(x)]


def _ends(item: Numerical, data: FloatArray | None) -> tuple[float, float]:
    """The smallest and the largest ordinary value to show."""
    transform = item.fitted_transform
    first, last = item.unit_range(None, None)
    # A parametric distribution is unbounded, or its bounds are beyond the data.
    tails = np.array([TAIL, 1.0 - TAIL])
    ends = item.raw(np.array([first, last]))
    open_ends = ~np.isfinite(ends) | isinstance(transform, BestFitCDF) & (np.array([first, last]) == [0.0, 1.0])
    low, high = np.where(open_ends, item.raw(tails), ends).tolist()
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


def _max_window_share(scale: Scale, x: FloatArray, low: float, high: float) -> float:
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
