"""One Arrow column -> numbers, category names, or lists of them; with errors in the user's terms."""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from splinefm._arrays import BoolArray, FloatArray, IndexArray, Int32Array, Int64Array
from splinefm._wording import as_field, for_reader
from splinefm.encode.tables.arrow import from_strings, matches, scalar, to_arrow, to_numpy
from splinefm.encode.tables.dates import ISO, parse_times, to_seconds
from splinefm.encode.tables.spelling import float_names

# Numbers that are written as text: `3.5`, `1,234`, `5%`, `$5`, and `3,5` where the comma is the decimal sign.

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
            text[:_FIRST].cast(pa.float64())  # Arrow writes a message for every value that is not a number: it is slow
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


Stray = Literal["error", "missing", "auto"]
"""What is done with text that is not a number or a date; "auto" is "missing" until a fit sees whether there is any."""
STRAY: tuple[Stray, ...] = ("error", "missing", "auto")


def as_numbers(column: pa.Array, name: str, *, text: Stray = "error", decimal: Decimal = ".") -> FloatArray:
    """Values as float64; missing (null or NaN) as NaN. Dates and times become seconds since 1970.

    The result may share memory with the column: do not write to it.

    Parameters
    ----------
    column : array
        Numbers, booleans, dates, times, durations, or text that holds numbers; see `parse_numbers`.
    name : str
        Name of the column, for messages.
    text : {"error", "missing", "auto"}
        Whether text that is not a number is an error or a missing value.
    decimal : {".", ","}
        The decimal sign of text.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return as_numbers(column.dictionary_decode(), name, text=text, decimal=decimal)
    if pa.types.is_null(kind):
        return np.full(len(column), np.nan)
    if is_text(kind):
        values, stray = parse_numbers(column.cast(pa.large_string()), decimal)
        if stray is not None and text == "error":
            raise ValueError(_stray_number(column, stray, name))
        return values
    if is_date(kind):
        return to_seconds(column)
    if pa.types.is_duration(kind):
        per_second = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}[kind.unit]
        return as_numbers(column.cast(pa.int64()), name) / per_second
    if not (is_number(kind) or pa.types.is_boolean(kind)):
        raise ValueError(_not_numbers(column, name))
    if column.null_count:
        column = pc.fill_null(column.cast(pa.float64(), safe=False), scalar(np.nan, np.float64))
    return np.asarray(to_numpy(column), np.float64)


def as_seconds(
    column: pa.Array, name: str, *, text: Stray = "error", format: str | None = None, zone: str | None = None
) -> FloatArray:
    """Dates and times as seconds since 1970; missing ones as NaN.

    Parameters
    ----------
    column : array
        Dates, times, text that holds them, or numbers, which are such seconds already.
    name : str
        Name of the column, for messages.
    text : {"error", "missing", "auto"}
        Whether text that is not a date is an error or a missing value.
    format : str, optional
        How text is written; ISO 8601 by default.
    zone : str, optional
        Times that have a zone become what a clock in this one shows; UTC by default.

    Examples
    --------
    >>> as_seconds(pa.array(["1970-01-02", None]), "seen_at")
    array([86400.,    nan])
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return as_seconds(column.dictionary_decode(), name, text=text, format=format, zone=zone)
    if is_date(kind):
        return to_seconds(column, zone)
    if not is_text(kind):
        return as_numbers(column, name)
    times, stray = parse_times(column.cast(pa.large_string()), format, zone)
    if text == "error" and stray.any():
        raise ValueError(_stray_date(column, stray, name, format))
    return to_seconds(times)


def holds_dates(column: pa.Array) -> bool:
    """Whether a column has dates and times: by its type, or because all of its text is written as ISO 8601 says.

    Examples
    --------
    >>> holds_dates(pa.array(["2024-01-01", None])), holds_dates(pa.array(["2024"]))
    (True, False)
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary
    if not is_text(column.type):
        return is_date(column.type)
    text = column.cast(pa.large_string()).drop_null()
    return bool(len(text)) and bool(pc.all(matches(text, ISO)).as_py())


class Categories(NamedTuple):
    """Category names of a column: row i has `names[codes[i]]`; a negative code is a missing value."""

    names: pa.LargeStringArray
    codes: Int32Array | None
    """None where `names` has an entry per row, nulls included."""


def as_categories(column: pa.Array, name: str, *, widened: bool = False) -> Categories:
    """Names of the categories: text as it is, integers without a decimal point, so that 3 and 3.0 agree.

    Numbers of 32 bits are named by the digits that tell them apart, or as numbers of 64 bits if they are `widened`.
    """
    if pa.types.is_dictionary(column.type) and len(column.dictionary) > len(column):
        column = column.dictionary_decode()  # of a part of a table: most names of the dictionary are not in these rows
    kind = column.type
    if pa.types.is_nested(kind):
        raise ValueError(_nested(column, name))
    if is_text(kind):
        return Categories(_wide(column), None)
    if pa.types.is_null(kind):
        return Categories(pa.nulls(len(column), pa.large_string()), None)
    if not pa.types.is_dictionary(kind):
        column = column.dictionary_encode()
    codes = to_numpy(pc.fill_null(column.indices.cast(pa.int32()), scalar(-1, np.int32)))
    names = _names(column.dictionary, name, widened)
    # The dictionary itself may hold a missing value, such as NaN.
    if names.null_count:
        absent = np.flatnonzero(to_numpy(names.is_null()))
        codes = np.where(np.isin(codes, absent), np.int32(-1), codes)
    return Categories(names, codes)


class Lists(NamedTuple):
    """Lists of category names: row i has `names[offsets[i]:offsets[i + 1]]`."""

    names: pa.LargeStringArray
    offsets: Int64Array
    missing: BoolArray

    def positions(self) -> tuple[IndexArray, Int64Array]:
        """The row of each name, and its position in the list there.

        Examples
        --------
        >>> as_lists(pa.array([["a"], ["b", "c"]]), "tags", None).positions()
        (array([0, 1, 1]), array([0, 0, 1]))
        """
        row = np.repeat(np.arange(len(self.missing)), np.diff(self.offsets))
        return row, np.arange(len(self.names)) - self.offsets[row]


def as_lists(column: pa.Array, name: str, separator: str | None) -> Lists:
    """Elements of a list column, or of text cut at a separator; missing and empty elements are left out."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if is_text(column.type):
        if separator is None:
            raise ValueError(
                f"column {name!r} holds text, not lists; say how to cut it: "
                + as_field("MultiValued", name, 'separator="|"')
                + f"; or {as_field('Categorical', name)}"
            )
        column = pc.split_pattern(column.cast(pa.large_string()), separator)
    elif pa.types.is_null(column.type):
        column = column.cast(pa.large_list(pa.large_string()))
    elif pa.types.is_nested(column.type) and not _is_list(column.type):
        raise ValueError(_nested(column, name))
    elif not _is_list(column.type):
        raise ValueError(
            f"column {name!r} should hold lists but is of type {column.type}; {as_field('Categorical', name)}"
        )
    if pa.types.is_nested(column.type.value_type):
        raise ValueError(f"column {name!r} holds lists of {column.type.value_type}; make them lists of text or numbers")
    column = column.cast(pa.large_list(column.type.value_type))
    missing = to_numpy(column.is_null())
    lengths = to_numpy(pc.fill_null(pc.list_value_length(column), scalar(0, np.int64)))
    names = _every_name(column.flatten(), name)
    if separator is not None:
        names = pc.utf8_trim_whitespace(names)
    keep = to_numpy(pc.fill_null(pc.not_equal(names, from_strings([""])[0]), scalar(False, np.bool_)))
    row = np.repeat(np.arange(len(column)), lengths)[keep]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(column)))]).astype(np.int64)
    return Lists(names.filter(to_arrow(keep)), offsets, missing)


def one_array(column: pa.ChunkedArray) -> pa.Array:
    """A chunked column in one piece, without a copy where it has one chunk."""
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def is_text(kind: pa.DataType) -> bool:
    """Whether an Arrow type is text, in any of its layouts."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def as_text(column: pa.Array) -> pa.LargeStringArray:
    """A column of text, in any of its layouts, in one layout."""
    return (column.dictionary_decode() if pa.types.is_dictionary(column.type) else column).cast(pa.large_string())


def is_date(kind: pa.DataType) -> bool:
    """Whether an Arrow type is a date, or a date with a time of day."""
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def text_buffers(strings: pa.LargeStringArray) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
    """Offsets and bytes of an Arrow string array, without a copy."""
    _, offsets, text = strings.buffers()
    first = strings.offset
    begins = (
        np.frombuffer(offsets, np.int64)[first : first + len(strings) + 1] if len(strings) else np.zeros(1, np.int64)
    )
    letters = np.frombuffer(text, np.uint8) if text is not None and text.size else np.zeros(0, np.uint8)
    for array in (begins, letters):
        array.flags.writeable = False  # Arrow's buffers are shared
    return begins, letters


def _wide(text: pa.Array) -> pa.LargeStringArray:
    """Text with offsets of 64 bits.

    Arrow's cast of a slice writes a zero for every row before it, which for the blocks of a long column is most of the
    time of encoding.
    """
    if not pa.types.is_string(text.type) or not len(text):
        return text.cast(pa.large_string())
    valid, offsets, letters = text.buffers()
    begin = text.offset // 8 * 8  # a bitmap begins at a byte
    wide = np.frombuffer(offsets, np.int32)[begin : text.offset + len(text) + 1].astype(np.int64)
    buffers = [None if valid is None else valid.slice(begin // 8), pa.py_buffer(wide), letters]
    return pa.Array.from_buffers(pa.large_string(), len(text), buffers, text.null_count, text.offset - begin)


def _every_name(values: pa.Array, name: str) -> pa.LargeStringArray:
    names, codes = as_categories(values, name)
    if codes is None:
        return names
    return names.take(pc.if_else(to_arrow(codes >= 0), to_arrow(codes), pa.nulls(1, pa.int32())[0]))


def _names(values: pa.Array, name: str, widened: bool) -> pa.LargeStringArray:
    """Canonical text of distinct values of any scalar type."""
    kind = values.type
    if pa.types.is_floating(kind):
        return float_names(values if pa.types.is_float32(kind) and not widened else values.cast(pa.float64()))
    if pa.types.is_nested(kind):
        raise ValueError(_nested(values, name))
    try:
        names = values.cast(pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise ValueError(
            f"column {name!r} of type {kind} cannot be read as categories ({error}); convert it to text"
        ) from error
    if pa.types.is_time(kind):  # the same time in seconds and in microseconds
        for pattern, shorter in ((r"(\.\d*?)0+$", r"\1"), (r"\.$", "")):
            names = pc.replace_substring_regex(names, pattern=pattern, replacement=shorter)
    if is_date(kind) and pc.any(pc.starts_with(names, "<")).as_py():  # what Arrow writes for years beyond 32767
        example = names.filter(pc.starts_with(names, "<"))[0].as_py()
        raise ValueError(
            f"column {name!r} has a date that no calendar has, {example}; correct such dates, or set them to missing"
        )
    return names


def is_number(kind: pa.DataType) -> bool:
    """Whether an Arrow type is a number."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _not_numbers(column: pa.Array, name: str) -> str:
    if pa.types.is_nested(column.type):
        return _nested(column, name)
    present = column.drop_null()
    example = f", such as {present[0].as_py()!r}" if len(present) else ""
    return (
        f"column {name!r} should hold numbers but is of type {column.type}{example}; "
        f"convert it, or {as_field('Categorical', name)}"
    )


def _stray_number(column: pa.Array, stray: BoolArray, name: str) -> str:
    example = column[int(stray.argmax())].as_py()
    if holds_dates(pa.array([example])):
        return (
            f"column {name!r} holds dates such as {example!r}, not numbers; {as_field('Timestamp', name)}; "
            "or for one of its parts " + as_field("Numerical", name, 'part="trend"')
        )
    return (
        f"column {name!r} should hold numbers, but has {example!r}; correct it, or count such text as missing: "
        + as_field("Numerical", name, 'text="missing"')
        + f"; or {as_field('Categorical', name)}"
    )


def _stray_date(column: pa.Array, stray: BoolArray, name: str, format: str | None) -> str:
    example = column[int(stray.argmax())].as_py()
    written = "as ISO 8601 says, such as 2024-05-28 or 2024-05-28T13:30" if format is None else f"as {format!r}"
    if format is None and example.strip().isdigit():  # ambiguous as text: 20240528 may be a date as well
        return f"column {name!r} should hold dates written {written}, but has {example!r}; " + for_reader(
            f"for seconds since 1970 in a text file, say so: sf.open_table(path, types={{{name!r}: pyarrow.int64()}})",
            "for seconds since 1970, write the table as a Parquet file with numbers in this column",
        )
    return (
        f"column {name!r} should hold dates written {written}, but has {example!r}; correct it, "
        'give the format in its field, such as format="%m/%d/%Y", or count such text as missing: text="missing"'
    )


def _nested(column: pa.Array, name: str) -> str:
    if _is_list(column.type):
        return f"column {name!r} holds lists; {as_field('MultiValued', name)}"
    if pa.types.is_run_end_encoded(column.type):
        return f"column {name!r} is of type {column.type}; decode it with pyarrow.compute.run_end_decode"
    is_view = pa.types.is_list_view(column.type) or pa.types.is_large_list_view(column.type)
    advice = "cast it to a list" if is_view else "split its parts into columns"
    return f"column {name!r} is of the nested type {column.type}; {advice}"
