"""Dates and times: text to seconds since 1970, and the parts of a date that repeat."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from splinefm._arrays import BoolArray, FloatArray, Int64Array
from splinefm.encode.tables.arrow import matches, scalar, to_arrow, to_numpy

Part = Literal["trend", "hour", "weekday", "yearday"]
PARTS: tuple[Part, ...] = ("trend", "hour", "weekday", "yearday")

DAY = 86_400.0
_TIME = r"[ T]\d{2}:\d{2}(:\d{2}(\.\d+)?)?"
ISO = rf"^\s*\d{{4}}-\d{{2}}-\d{{2}}({_TIME}\s?(Z|[+-]\d{{2}}(:?\d{{2}})?)?)?\s*$"
_PLAIN_ISO = rf"^\d{{4}}-\d{{2}}-\d{{2}}({_TIME})?$"
_EPOCH = datetime(1970, 1, 1)
_US = pa.timestamp("us")
_LAST_SECOND = 253_402_300_799.0  # of the year 9999
_UNITS = ((1e3, "milliseconds", "ms"), (1e6, "microseconds", "us"), (1e9, "nanoseconds", "ns"))
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EXACT = 2**53
# The year 2037 in seconds since 1970, and 400 years of the Gregorian calendar.
_LATE, _ERA = 2_114_380_800, 146_097 * 86_400
# How dates are written elsewhere; with these times of day behind them, or none.
_DATE_FORMATS = (
    *("%m/%d/%Y", "%d/%m/%Y", "%m/%d/%y", "%d/%m/%y", "%Y/%m/%d"),
    *("%d.%m.%Y", "%d.%m.%y", "%d-%m-%Y", "%m-%d-%Y"),
    *("%d %b %Y", "%d-%b-%Y", "%b %d, %Y"),  # which read whole names of months, too
)
_TIME_FORMATS = ("", " %H:%M:%S", " %H:%M", " %I:%M:%S %p", " %I:%M %p", "T%H:%M:%S")
_LOOKS_LIKE_DATE = (
    r"(?i)^\s*(\d{1,4}[/.-]\d{1,2}[/.-]\d{2,4}|\d{1,2}[ -][a-z]{3,9}[ -]\d{4}|[a-z]{3,9} \d{1,2}, \d{4})\b"
)


def parse_times(
    text: pa.LargeStringArray, format: str | None = None, zone: str | None = None
) -> tuple[pa.Array, BoolArray]:
    """Times without a zone, null where there is none, and which rows hold text that is no time.

    Parameters
    ----------
    text : array of strings
        ISO 8601 dates with or without time and zone, unless there is a format.
    format : str, optional
        As for `datetime.strptime`.
    zone : str, optional
        The zone to convert to: a time that has a zone becomes the time in this one, by default in UTC.

    Examples
    --------
    >>> text = pa.array(["2024-01-01", "2024-01-01T02:00+02:00", "soon"], pa.large_string())
    >>> times, stray = parse_times(text)
    >>> times.to_pylist(), stray.tolist()
    ([datetime.datetime(2024, 1, 1, 0, 0), datetime.datetime(2024, 1, 1, 0, 0), None], [False, False, True])
    """
    text = pc.utf8_trim_whitespace(text)
    times = _iso_times(text, zone) if format is None else pc.strptime(text, format, "us", error_is_null=True)
    return times, to_numpy(pc.and_(pc.is_null(times), pc.is_valid(text)))


def as_written(text: str, format: str | None, zone: str | None = None) -> str:
    """An ISO 8601 date in the format of a column; other text, and any text of a column of ISO dates, unchanged.

    Examples
    --------
    >>> as_written("2012-07-04", "%m/%d/%Y"), as_written("7/4/2012", "%m/%d/%Y")
    ('07/04/2012', '7/4/2012')
    """
    if format is None or not re.match(ISO, text) or not parse_times(pa.array([text], pa.large_string()), format)[1][0]:
        return text
    time = _iso_time(text.strip(), zone)
    return text if time is None else time.replace(tzinfo=find_zone(zone)).strftime(format)  # %z needs a zone


def _iso_times(text: pa.LargeStringArray, zone: str | None) -> pa.Array:
    dates, plain = (
        pc.if_else(matches(text, pattern), text, pa.nulls(1, text.type)[0]) for pattern in (ISO, _PLAIN_ISO)
    )
    if plain.null_count == dates.null_count:
        try:
            return plain.cast(_US)
        except pa.ArrowInvalid:
            pass  # such as the 30th of February
    coded = dates.dictionary_encode()
    # Distinct ones are parsed one by one: zones may differ, and text that is not a date must not affect the others.
    times = pa.array([_iso_time(value.as_py(), zone) for value in coded.dictionary], _US)
    return times.take(coded.indices)


def _iso_time(text: str, zone: str | None) -> datetime | None:
    try:
        return wall_time(datetime.fromisoformat(text), zone)
    except (ValueError, OverflowError):
        return None


def wall_time(time: datetime, zone: str | None) -> datetime:
    """What a clock in the zone shows, by default one in UTC; a time without a zone is that already.

    Examples
    --------
    >>> wall_time(datetime.fromisoformat("2024-07-01T10:00Z"), "Europe/Paris")
    datetime.datetime(2024, 7, 1, 12, 0)
    """
    if time.tzinfo is None:
        return time
    # By way of UTC: to its own zone, `astimezone` leaves a time as it is, even one that the clocks there skip.
    return time.astimezone(UTC).astimezone(find_zone(zone)).replace(tzinfo=None)


def find_zone(zone: str | None) -> Any:
    """The time zone of a name such as "Europe/Paris" or "+02:00"; UTC by default."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    if zone is None:
        return UTC
    try:
        return datetime.strptime(zone, "%z").tzinfo
    except ValueError:
        pass
    try:
        return ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise ValueError(
            f'zone must be a name such as "Europe/Paris" or an offset such as "+02:00", got {zone!r}'
        ) from error


def seconds_of(time: datetime, zone: str | None = None) -> float:
    """Seconds since 1970 by the clock of a zone.

    Examples
    --------
    >>> seconds_of(datetime(1970, 1, 2))
    86400.0
    """
    return (wall_time(time, zone) - _EPOCH).total_seconds()


def to_seconds(times: pa.Array, zone: str | None = None) -> FloatArray:
    """Seconds since 1970 of an Arrow column of dates or times, NaN where it is null."""
    kind = times.type
    if pa.types.is_date(kind):
        times = times.cast(pa.timestamp("s" if pa.types.is_date32(kind) else "ms"))
    elif zone is not None and kind.tz is not None:
        times = _local_times(times, zone)
    count = to_numpy(pc.fill_null(times.cast(pa.int64()), scalar(0, np.int64)))
    seconds = _divide(count, _PER_SECOND[times.type.unit])
    if times.null_count:
        seconds[to_numpy(times.is_null())] = np.nan
    return seconds


def check_unit(numbers: FloatArray, name: str) -> None:
    """Raise if numbers that are read as seconds since 1970 lie beyond the year 9999, because their unit is smaller.

    A few numbers may, such as those that stand for a missing time.

    Parameters
    ----------
    numbers : array
        Numbers of a column that a fit or an update reads; NaN where missing.
    name : str
        Name of the column, for the message.

    Examples
    --------
    >>> check_unit(np.array([1.7e12, np.nan]), "seen_at")
    Traceback (most recent call last):
    ValueError: column 'seen_at' holds numbers such as 1700000000000, which are milliseconds and not seconds since ...
    """
    known = np.abs(numbers[np.isfinite(numbers)])
    middle = float(np.median(known)) if len(known) else 0.0
    if middle <= _LAST_SECOND:
        return
    per_second, unit, short = next(each for each in _UNITS if middle / each[0] <= _LAST_SECOND or each is _UNITS[-1])
    raise ValueError(
        f"column {name!r} holds numbers such as {middle:.0f}, which are {unit} and not seconds since 1970: as seconds "
        f"they lie beyond the year 9999; divide them by {per_second:,.0f}, for predictions too, or make the column a "
        f'column of times, such as pandas.to_datetime(column, unit="{short}")'
    )


def _divide(count: Int64Array, per_second: int) -> FloatArray:
    """Seconds, rounded once: a float does not hold every count, and rows have the time itself."""
    if per_second == _PER_SECOND["ns"] and not (count % 1000).any():  # such as columns of pandas
        count, per_second = count // 1000, _PER_SECOND["us"]
    seconds = np.asarray(count / per_second, np.float64)
    inexact = (count > _EXACT) | (count < -_EXACT)
    if per_second > 1 and inexact.any():
        seconds[inexact] = [value / per_second for value in count[inexact].tolist()]  # Python's integers are exact
    return seconds


def _local_times(times: pa.Array, zone: str) -> pa.Array:
    """What clocks in a zone show. Arrow knows no changes of clocks after 2037: Python does, and reads those times."""
    local = pc.local_timestamp(times.cast(pa.timestamp(times.type.unit, zone)))
    per_second = _PER_SECOND[times.type.unit]
    count: Int64Array = to_numpy(pc.fill_null(times.cast(pa.int64()), scalar(0, np.int64)))
    late = count >= _LATE * per_second
    if not late.any():
        return local
    # The calendar repeats after 400 years, and Python has no year 10000.
    moments, where = np.unique(_LATE + (count[late] // per_second - _LATE) % _ERA, return_inverse=True)
    found = find_zone(zone)
    offsets = [datetime.fromtimestamp(moment, found).utcoffset() for moment in moments.tolist()]
    seconds = np.array([0 if offset is None else offset // timedelta(seconds=1) for offset in offsets])
    shown = to_numpy(pc.fill_null(local.cast(pa.int64()), scalar(0, np.int64))).copy()
    shown[late] = count[late] + seconds[where] * per_second
    return pc.if_else(times.is_valid(), to_arrow(shown).cast(local.type), pa.nulls(1, local.type)[0])


def take_part(seconds: FloatArray, part: Part) -> FloatArray:
    """A part of times that are given in seconds since 1970.

    Parameters
    ----------
    seconds : array
        Times by the clock that counts.
    part : {"trend", "hour", "weekday", "yearday"}
        The seconds themselves; hours since midnight, 0 to below 24; days since Monday, 0 to 6; or the day of the year
        as a leap year counts, 1 to 366: the same date has the same number in every year.

    Examples
    --------
    >>> noon = np.array([seconds_of(datetime(2023, 3, 1, 12)), np.nan])
    >>> [take_part(noon, part)[0].item() for part in ("hour", "weekday", "yearday")]
    [12.0, 2.0, 61.0]
    """
    if part == "trend":
        return seconds
    days = np.floor(seconds / DAY)
    if part == "hour":
        return np.asarray((seconds - days * DAY) / 3600.0)
    if part == "weekday":
        return np.asarray(np.mod(days + 3.0, 7.0))  # 1970 began on a Thursday
    return np.asarray(np.mod(_days_since_march(days) + 60.0, 366.0) + 1.0)


def _days_since_march(days: FloatArray) -> FloatArray:
    """Days since the last 1st of March, from days since 1970: leap days come last, and years have the same numbers.

    The Gregorian calendar repeats every 400 years of 146,097 days; year by year it loses a day in 4, 100 and 400 years.
    """
    of_era = np.mod(days + 719_468.0, 146_097.0)  # since the 1st of March of the year 0
    leaps = np.floor(of_era / 1_460.0) - np.floor(of_era / 36_524.0) + np.floor(of_era / 146_096.0)
    year = np.floor((of_era - leaps) / 365.0)
    return np.asarray(of_era - (365.0 * year + np.floor(year / 4.0) - np.floor(year / 100.0)))


def look_like_dates(text: pa.LargeStringArray) -> bool:
    """Whether half of the text at least is written like a date.

    Examples
    --------
    >>> look_like_dates(pa.array(["2024-01-01", "?"], pa.large_string()))
    True
    """
    alike = pc.or_(matches(text, ISO), matches(text, _LOOKS_LIKE_DATE))
    return 2 * (pc.sum(alike).as_py() or 0) >= len(text)


def find_format(text: pa.LargeStringArray) -> tuple[str | None, bool]:
    """The format of dates that are not written as ISO 8601 says, and whether two different ones fit.

    Parameters
    ----------
    text : array of strings
        Without nulls.

    Examples
    --------
    >>> find_format(pa.array(["5/28/2011", "1/2/2011"], pa.large_string()))
    ('%m/%d/%Y', False)
    >>> find_format(pa.array(["5/6/2011", "1/2/2011"], pa.large_string()))
    (None, True)
    """
    text = pc.utf8_trim_whitespace(text)
    if not pc.all(pc.match_substring_regex(text, pattern=_LOOKS_LIKE_DATE)).as_py():
        return None, False
    fitting = [
        date + time
        for date in _DATE_FORMATS
        for time in _TIME_FORMATS
        if _fits(text[:1], date + time) and _fits(text, date + time)
    ]
    # %Y reads "11" as the year 11.
    shortest = [format for format in fitting if _plausible(text, format)]
    different = {tuple(to_seconds(pc.strptime(text, format, "us")).tolist()): format for format in shortest}
    return (next(iter(different.values())), False) if len(different) == 1 else (None, len(different) > 1)


def _fits(text: pa.LargeStringArray, format: str) -> bool:
    return bool(pc.strptime(text, format, "us", error_is_null=True).null_count == 0)


def _plausible(text: pa.LargeStringArray, format: str) -> bool:
    first = to_seconds(pc.strptime(text, format, "us"))
    return bool((first > seconds_of(datetime(1000, 1, 1))).all())


def to_times(seconds: FloatArray) -> npt.NDArray[np.datetime64]:
    """Seconds since 1970 as NumPy's times, for axes and messages.

    Examples
    --------
    >>> to_times(np.array([86400.0]))
    array(['1970-01-02T00:00:00.000'], dtype='datetime64[ms]')
    """
    milliseconds = np.asarray(seconds, np.float64) * 1e3
    return np.where(np.isnan(milliseconds), np.datetime64("NaT"), np.nan_to_num(milliseconds).astype("datetime64[ms]"))
