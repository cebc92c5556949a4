"""One name per category, however its value is spelled: `2` and `2.0`, `True` and `true`, a date with and without time.

A text file says `2.0` where a DataFrame has the number 2, and `True` where it has a boolean. What the names of a
column spell is found out once, when its field is fitted; from then on every spelling of a value leads to the same name.
"""

from __future__ import annotations

import re
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from splinefm.encode.tables.arrow import from_strings, matches, scalar, to_arrow, to_numpy
from splinefm.encode.tables.dates import ISO, parse_times

Values = Literal["text", "numbers", "booleans", "dates"]
VALUES: tuple[Values, ...] = ("text", "numbers", "booleans", "dates")

_NUMBER = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
_WHOLE = r"^\s*[+-]?\d+(\.0*)?\s*$"
_SIGN_AND_DIGITS = r"^\s*\+?(-?)0*(\d+?)(?:\.0*)?\s*$"
_BOOLEAN = r"(?i)^\s*(true|false)\s*$"
# This many names show what most columns of text are.
_HEAD = 64


def find_values(names: pa.LargeStringArray) -> Values:
    """What the distinct names of a column spell.

    Numbers that differ in more than a trailing ".0", such as the versions 9.1 and 9.10 or the codes 07 and 7, are text.

    Examples
    --------
    >>> find_values(from_strings(["1", "2.0"])), find_values(from_strings(["9.1", "9.10"]))
    ('numbers', 'text')
    >>> find_values(from_strings(["True", "false"])), find_values(from_strings(["2024-01-01"]))
    ('booleans', 'dates')
    """
    if not len(names):
        return "text"
    for head in (names[:_HEAD], names):
        found = _spelled(head)
        if found == "text":
            return found
    return "text" if found == "numbers" and _merges_many_names(names) else found


def canonical(names: pa.LargeStringArray, values: Values) -> pa.LargeStringArray:
    """The one name of each category; what does not spell such a value is left as it is.

    Examples
    --------
    >>> canonical(from_strings(["2.0", "+2", "2.50", "1e3", "x", "TRUE"]), "numbers").to_pylist()
    ['2', '2', '2.5', '1000', 'x', '1']
    >>> canonical(from_strings(["True", "1.0", "0", "maybe"]), "booleans").to_pylist()
    ['true', 'true', 'false', 'maybe']
    >>> canonical(from_strings(["2024-01-01T00:00", "2024-01-01 12:30:00.500000"]), "dates").to_pylist()
    ['2024-01-01', '2024-01-01 12:30:00.5']
    """
    if values == "text":
        return names
    if values == "dates":
        return _canonical_dates(names)
    names = _canonical_numbers(names)
    if values == "numbers":
        return _swap(names, {"true": "1", "false": "0"}, matches(names, _BOOLEAN))
    names = pc.if_else(matches(names, _BOOLEAN), pc.utf8_lower(pc.utf8_trim_whitespace(names)), names)
    return _swap(names, {"1": "true", "0": "false"}, None)


def other_spellings(name: str, values: Values) -> list[str]:
    """Common spellings of a category other than its name, for exact lookups.

    Examples
    --------
    >>> other_spellings("2", "numbers"), other_spellings("true", "booleans")
    (['2.0'], ['True', 'TRUE', '1', '1.0'])
    """
    if values == "numbers":
        return [f"{name}.0"] if name.lstrip("-").isdigit() else []
    if values == "booleans":
        number = {"true": "1", "false": "0"}[name] if name in ("true", "false") else None
        return [] if number is None else [name.capitalize(), name.upper(), number, f"{number}.0"]
    return [f"{name} 00:00:00", f"{name}T00:00:00"] if values == "dates" and len(name) == len("2024-01-01") else []


def float_names(values: pa.DoubleArray) -> pa.LargeStringArray:
    """Numbers as names, integers without a decimal point, so that 3 and 3.0 agree; NaN is null.

    Examples
    --------
    >>> float_names(to_arrow(np.array([3.0, 2.5, np.nan]))).to_pylist()
    ['3', '2.5', None]
    """
    x = to_numpy(pc.fill_null(values.cast(pa.float64()), scalar(np.nan, np.float64)))
    whole = (np.abs(x) < 2.0**53) & (x == np.floor(x))
    as_int = to_arrow(np.where(whole, x, 0.0).astype(np.int64)).cast(pa.large_string())
    names = pc.if_else(to_arrow(whole), as_int, values.cast(pa.large_string()))
    return pc.if_else(to_arrow(np.isnan(x)), pa.nulls(1, pa.large_string())[0], names)


def _spelled(names: pa.LargeStringArray) -> Values:
    first = names[0].as_py()  # mostly enough: Python takes all that Arrow does, and has the patterns compiled
    for values, pattern in (("numbers", _NUMBER), ("booleans", _BOOLEAN), ("dates", ISO)):
        if first is not None and re.match(pattern, first) and pc.all(matches(names, pattern)).as_py():
            return values  # type: ignore[return-value]  # one of the three
    return "text"


def _merges_many_names(names: pa.LargeStringArray) -> bool:
    """Whether names that differ in more than a trailing ".0" would become one."""
    trimmed = pc.replace_substring_regex(names, pattern=r"\.0*\s*$", replacement="")
    trimmed = _swap(trimmed, {"-0": "0"}, None).unique()  # a zero after rounding: pandas writes its sign
    return len(canonical(trimmed, "numbers").unique()) < len(trimmed)


def _canonical_numbers(names: pa.LargeStringArray) -> pa.LargeStringArray:
    """Integers by their digits, which may be many; others by way of a float, as numbers of a table are named."""
    whole = matches(names, _WHOLE)
    digits = pc.replace_substring_regex(names, pattern=_SIGN_AND_DIGITS, replacement=r"\1\2")
    names = pc.if_else(whole, _swap(digits, {"-0": "0"}, None), names)
    others = np.flatnonzero(to_numpy(pc.and_(matches(names, _NUMBER), pc.invert(whole))))
    if not len(others):
        return names
    floats = pc.utf8_trim_whitespace(pc.replace_substring_regex(names.take(to_arrow(others)), r"^\s*\+", ""))
    is_other = np.zeros(len(names), bool)
    is_other[others] = True
    return pc.replace_with_mask(names, to_arrow(is_other), float_names(floats.cast(pa.float64())))


def _canonical_dates(names: pa.LargeStringArray) -> pa.LargeStringArray:
    times, stray = parse_times(names)
    text = times.cast(pa.large_string())
    for pattern, shorter in ((r"(\.\d*?)0+$", r"\1"), (r"\.$", ""), (r" 00:00:00$", "")):
        text = pc.replace_substring_regex(text, pattern=pattern, replacement=shorter)
    return pc.if_else(to_arrow(stray), names, text)


def _swap(names: pa.LargeStringArray, pairs: dict[str, str], where: pa.BooleanArray | None) -> pa.LargeStringArray:
    """Other names for some; `where` chooses those that are compared by their lower case."""
    compared = names if where is None else pc.if_else(where, pc.utf8_lower(pc.utf8_trim_whitespace(names)), names)
    index = pc.index_in(compared, from_strings(list(pairs)))
    return pc.if_else(pc.is_valid(index), from_strings(list(pairs.values())).take(index), names)
