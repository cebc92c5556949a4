"""Numbers that are written as text: `3.5`, `1,234`, `5%`, `$5`, and `3,5` where the comma is the decimal sign."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from splinefm.encode.tables.arrow import matches, scalar, to_numpy

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]
Decimal = Literal[".", ","]
DECIMALS: tuple[Decimal, ...] = (".", ",")
_FIRST = 256  # values that tell a column of numbers from other text

_PLAIN = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_MONEY = "[$€£¥]"
_WITH_COMMAS = r",|\..*\."  # other text is not a number with decimal commas that is none with points
_DIGITS = r"((?:[1-9]\d{0,2}(?:,\d{3})+|\d+)?(?:\.\d*)?)"  # in groups of three or not
# Sign, currency, digits, exponent, currency or percent sign.
_DECORATED = rf"^([+-]?)\s*{_MONEY}?\s*([+-]?){_DIGITS}((?:[eE][+-]?\d+)?)\s*(?:%|{_MONEY})?$"


def parse_numbers(text: pa.LargeStringArray, decimal: Decimal = ".") -> tuple[FloatArray, BoolArray | None]:
    """Numbers of a column of text, NaN where there is none, and which rows hold other text (None: no row).

    White space around a number, a currency sign, commas between groups of three digits and a percent sign do not
    matter (`5%` is 5), and a number in parentheses is negative.

    Parameters
    ----------
    text : array of strings
        The column.
    decimal : {".", ","}
        The decimal sign; the other one separates groups of three digits.

    Examples
    --------
    >>> from splinefm.encode.tables.arrow import from_strings
    >>> values, stray = parse_numbers(from_strings(["3.5", " 1,234", "$5", "5%", "(2)", "foo"]))
    >>> values.tolist(), np.flatnonzero(stray).tolist()
    ([3.5, 1234.0, 5.0, 5.0, -2.0, nan], [5])
    >>> parse_numbers(from_strings(["1.234,5"]), decimal=",")[0].tolist()
    [1234.5]
    """
    if decimal == ".":
        try:
            text[:_FIRST].cast(pa.float64())  # Arrow writes a message for every value that is no number: it takes long
            return _floats(text.cast(pa.float64())), None
        except pa.ArrowInvalid:
            pass  # not all are plain numbers
    encoded = text.dictionary_encode()  # each spelling is parsed once
    values, stray = _parse_spellings(encoded.dictionary, decimal)
    index = to_numpy(pc.fill_null(encoded.indices, len(values)))
    values, stray = np.append(values, np.nan)[index], np.append(stray, False)[index]
    return values, stray if stray.any() else None


def _parse_spellings(text: pa.LargeStringArray, decimal: Decimal) -> tuple[FloatArray, BoolArray]:
    """Numbers of text without nulls, NaN where there is none, and which rows are no number."""
    clean = pc.utf8_trim_whitespace(text)
    if decimal == ",":
        clean = _points_and_commas(clean)
    plain = matches(clean, _PLAIN)
    if not pc.all(plain, min_count=0).as_py():
        clean = pc.if_else(plain, clean, _undecorated(clean))
        plain = matches(clean, _PLAIN)
    values = _floats(pc.if_else(plain, clean, pa.nulls(1, pa.large_string())[0]).cast(pa.float64()))
    return values, np.asarray(to_numpy(pc.invert(plain)))


def find_decimal(text: pa.LargeStringArray) -> Decimal:
    """The decimal sign with which more of the column are numbers; the point where both fit equally.

    Examples
    --------
    >>> from splinefm.encode.tables.arrow import from_strings
    >>> find_decimal(from_strings(["3,14", "2,7"])), find_decimal(from_strings(["1,234", "5"]))
    (',', '.')
    """
    if not pc.any(matches(text, _WITH_COMMAS), min_count=0).as_py():
        return "."
    misses = {sign: _n_stray(text, sign) for sign in DECIMALS}
    return "," if misses[","] < misses["."] else "."


def _n_stray(text: pa.LargeStringArray, decimal: Decimal) -> int:
    _, stray = parse_numbers(text, decimal)
    return 0 if stray is None else int(stray.sum())


def _points_and_commas(text: pa.LargeStringArray) -> pa.LargeStringArray:
    """The text with points and commas exchanged."""
    for old, new in ((".", "\0"), (",", "."), ("\0", ",")):
        text = pc.replace_substring(text, old, new)
    return text


def _undecorated(text: pa.LargeStringArray) -> pa.LargeStringArray:
    negative = pc.replace_substring_regex(text, pattern=r"^\((.*)\)$", replacement=r"-\1")
    bare = pc.replace_substring_regex(negative, pattern=_DECORATED, replacement=r"\1\2\3\4")
    # A comma that is left stands between groups, or in text that no pattern fits.
    return pc.if_else(matches(negative, _DECORATED), pc.replace_substring(bare, ",", ""), text)


def _floats(values: pa.DoubleArray) -> FloatArray:
    return np.asarray(to_numpy(pc.fill_null(values, scalar(np.nan, np.float64))), np.float64)
