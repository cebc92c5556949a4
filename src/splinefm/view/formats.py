"""How to write the values of a numerical field, and where to put the ticks of its axis: numbers, dates, clock times.

Everything that prints or draws values of a column asks `axis_format`. A field with a `part` holds a part of a date:
"trend" (seconds since 1970), "hour" (0 to 24), "weekday" (0 is Monday) or "yearday" (1 to 366, as in a leap year).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm._wording import number as plain_number

FloatArray = npt.NDArray[np.float64]
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


def number(value: float) -> str:
    """A tick of an axis, in a few characters.

    Examples
    --------
    >>> [number(value) for value in (0.05, 200, 20_000, 3e6, -1e10)]
    ['0.05', '200', '20k', '3M', '−1e10']
    """
    size = abs(value)
    thousands, unit = (
        (value, "") if size < 1e4 or size >= 1e9 else (value / 1e3, "k") if size < 1e6 else (value / 1e6, "M")
    )
    text = f"{thousands:g}{unit}".replace("e+", "e").replace("e-0", "e-")
    return text.replace("-", "−")  # as on matplotlib's axes
