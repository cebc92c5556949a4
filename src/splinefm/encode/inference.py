"""Infer a schema from a table, with the reason for every choice."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from splinefm._arrays import BoolArray, FloatArray, Int64Array
from splinefm._checks import check_column_name
from splinefm._wording import number_of
from splinefm.encode.bases import BSpline, MultiResolution
from splinefm.encode.fields.categorical import Categorical, MultiValued
from splinefm.encode.fields.numerical import Numerical, Timestamp
from splinefm.encode.fields.vocabulary import CategoryCounts
from splinefm.encode.schema import AnyField, Provenance, Schema
from splinefm.encode.tables.arrow import matches, to_arrow
from splinefm.encode.tables.columns import (
    Decimal,
    Lists,
    Stray,
    as_categories,
    as_lists,
    as_numbers,
    as_seconds,
    as_text,
    find_decimal,
    is_date,
    is_number,
    is_text,
    one_array,
    parse_numbers,
)
from splinefm.encode.tables.dates import DAY, Part, find_format, look_like_dates, parse_times, to_seconds, to_times
from splinefm.encode.tables.names import missing_column_message
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.spelling import find_values
from splinefm.encode.transforms.transform import FEW_VALUES as SPREAD_BY_RANK

# Columns of identifiers, recognized by their names: integers that are names rather than quantities.

# Names such as user_id, movieId, ID and zip_code: their integers are names, if they recur.
_IDENTIFIER = re.compile(r"(^|[^a-zA-Z])(id|ID|Id|code|zip|zipcode)s?$|[a-z](Id|ID|Code)$")
# What a column of names is called: its last word, which a word such as "number" may follow. Plurals are counts.
_OWNERS = re.compile(
    "account|advertiser|article|artist|author|bidder|buyer|campaign|card|client|contract|creative|customer|device|"
    "driver|employee|film|guest|household|item|listing|member|merchant|movie|passenger|patient|person|player|policy|"
    "product|property|publisher|restaurant|seller|session|shop|sku|song|station|store|student|subscriber|supplier|"
    "team|title|track|user|vehicle|vendor|visitor"
)
_NUMBERS = re.compile("no|nr|num|number")
_NAMES = re.compile("id|key|uid|uuid|guid|no|nr|hash|asin|isbn|ean|gtin|upc")
_COUNTS = re.compile("n|num|number|count|total|sum|avg|mean|min|max|per|rate|share|price|amount|cost|age|size")
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
# Integers that may be names: nearly all numbers of their range occur, or they are large. They recur, too.
DENSE, LARGE_CODE, RECURRING = 0.5, 10_000, 1.5
# With fewer distinct values, a spline has about as many functions as there are values.
MANY = 128


def are_called_identifiers(name: str) -> bool:
    """Return whether the name of a column of integers suggests identifiers or codes."""
    return _IDENTIFIER.search(name) is not None


def name_words(name: str, value: FloatArray, count: Int64Array) -> str:
    """Return a question about integers that were read as numbers, if they may be names, such as user ids."""
    is_asked = _may_be_names(name, value, count)
    return f"; if these are names rather than a quantity, use sf.Categorical({name!r})" if is_asked else ""


def _may_be_names(name: str, value: FloatArray, count: Int64Array) -> bool:
    """Whether integers are names rather than a quantity, by the name of their column and by their values."""
    if not _is_called_a_name(name) or len(value) <= MANY or value[0] < 0.0:
        return False
    is_dense = len(value) >= DENSE * (value[-1] - value[0] + 1.0)
    is_large = float(np.median(value)) >= LARGE_CODE
    return bool((is_dense or is_large) and count.sum() >= RECURRING * len(value))


def _is_called_a_name(name: str) -> bool:
    """Whether the name of a column suggests that its values are names.

    Examples
    --------
    >>> names = ("user", "n_users", "itemNo", "year", "price_per_item", "store_key")
    >>> [name for name in names if _is_called_a_name(name)]
    ['user', 'itemNo', 'store_key']
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    *before, last = words
    if before and _OWNERS.fullmatch(before[-1]) and _NUMBERS.fullmatch(last):
        before.pop()
    elif not (_OWNERS.fullmatch(last) or _NAMES.fullmatch(last) or are_called_identifiers(name)):
        return False
    return not any(map(_COUNTS.fullmatch, before))


# Which values of a column recur, and how often: it tells quantities from names.

# A value with this share of the rows (zeros, caps, sentinels) would leave a gap in the transform: it gets a feature.
ATOM = 0.1
MAX_ATOMS = 3
# Few values in a wide range, far apart next to the closest two, so that a new row hardly ever has another one: amounts
# that recur exactly. Both the number of values and the share of rows with a known one are estimates for the whole of
# which the table is a sample, so that a larger sample comes to the same conclusion.
MAX_AMOUNTS, GAP, KNOWN, ROWS_PER_AMOUNT = 256, 10.0, 0.9, 4
# Floats hold integers up to 2^53 exactly. Times in nanoseconds are beyond it, but hardly ever as close to each other.
LARGEST_EXACT, TOLD_APART = 2.0**53, 0.9
# More distinct values than this share of all elements of lists: coordinates, such as an embedding.
COORDINATES = 0.5


def find_atoms(value: FloatArray, count: Int64Array) -> Int64Array:
    """Indices of values that are too frequent to be a quantity."""
    atoms = np.flatnonzero(count >= ATOM * count.sum())
    # Heavy values of a coarse grid are not exceptions; the transform spaces them by rank.
    return atoms if len(atoms) <= MAX_ATOMS and len(value) > SPREAD_BY_RANK else atoms[:0]


def are_amounts(value: FloatArray, count: Int64Array) -> bool:
    """Whether a column has few distinct numbers off any grid, such as tariffs, each on many rows."""
    if not SPREAD_BY_RANK < len(value) <= MAX_AMOUNTS:
        return False
    gaps = np.diff(value)
    # Without the most frequent one, which may be a zero that stands for "none".
    others = np.delete(count, count.argmax())
    once, twice = int((others == 1).sum()), int((others == 2).sum())
    in_all = len(value) + once * (once - 1) / (2 * (twice + 1))  # Chao's estimate
    known = 1.0 - once / others.sum()  # Good's and Turing's
    recurring = in_all <= MAX_AMOUNTS and known >= KNOWN and others.mean() >= ROWS_PER_AMOUNT
    return bool(recurring and np.median(gaps) >= GAP * gaps.min())


def are_too_large(column: pa.Array, x: FloatArray) -> bool:
    """Whether integers are too large for floats to tell them apart: names, not quantities.

    Parameters
    ----------
    column : array
        The integers, or text of them.
    x : array
        The same as floats.

    Examples
    --------
    >>> column = pa.array([2**60, 2**60 + 1])
    >>> are_too_large(column, np.array([2.0**60, 2.0**60]))
    True
    """
    known = x[np.isfinite(x)]
    if not len(known) or np.abs(known).max() <= LARGEST_EXACT:
        return False
    return len(np.unique(known)) < TOLD_APART * len(column.drop_null().unique())


def are_coordinates(kind: pa.DataType, lists: Lists) -> bool:
    """Whether lists hold floats that mostly do not recur: such as an embedding, whose elements are not categories."""
    return bool(pa.types.is_floating(kind) and len(lists.names.unique()) > COORDINATES * len(lists.names))


# Rows that are read: the choice hardly changes after that. The fit reads all of them.
LOOK_AT = 500_000
# Integers with at most this many distinct values are codes or grades more often than quantities.
FEW_VALUES = 10
# Integers have at most 64 bits. Floats beyond 2^53 have no fractions, which does not make them names.
LARGEST_WHOLE = 2.0**64
MANY_CATEGORIES, MIN_COUNT = 1_000, 10
ROWS_PER_IDENTIFIER = 4
# Text is numbers or dates if nearly all of it is, or if what is not has few spellings, such as "?".
NEARLY_ALL, MOSTLY, FEW_SPELLINGS = 0.99, 0.8, 3
# Text such as "Comedy|Drama": the share of rows that are cut, and how many texts there are for each of their parts.
BAR, CUT, TEXTS_PER_PART = "|", 0.1, 2
# Names of integers that may be times, and the seconds since 1970 of the years that they may lie in (1973 to 2096).
_TIME = re.compile(r"(^|[^a-z])(date|time|timestamp|ts|epoch|at)$|[a-z](Date|Time|Timestamp|At)$", re.ASCII)
YEARS = (1e8, 4e9)
EXAMPLES = 3
SAMPLE = 5_000  # values that are tried first: to go through all takes long
# With more distinct values than this, splines of several resolutions find the detail that the data support.
FINE = 128
# With more columns than these each has one resolution: three would take three times the time and memory.
MANY_COLUMNS = 256
# Rows per segment there, from 8 to the 20 segments of `BSpline()`.
ROWS_PER_SEGMENT, MIN_SEGMENTS = 100, 8
_ONE_PER_ROW = "nearly one per row: an identifier? It cannot help on new rows; consider leaving it out"


def infer_schema(table: object, *, target: str | None = None) -> Schema:
    """Infer a schema from a table.

    The rules, in this order:

    1. Columns without any value or without a name are left out.
    2. Lists become multi-valued fields, and so does text such as `Comedy|Drama` if a tenth of the rows has a bar, the
       number of parts varies, and there are at most half as many distinct parts as texts. Lists of floats of which
       more than half are distinct, such as the coordinates of an embedding, are left out.
    3. Dates and times, also as text, become a numerical field for each part that the range of the data bears: the
       trend always, the hour if there are times of day on two days or more, the day of the week from two weeks on, the
       day of the year from two years on. Text is dates if 99 % of it is written as ISO 8601 says, or all of it in
       another common way that has one meaning: 5/28/2011, but not 5/6/2011.
    4. Text becomes numbers if 99 % of it is numbers, or 80 % and the rest has at most three spellings, such as `?`;
       what is not counts as missing (see `text="auto"`). Integers that a typed table has as text stay text.
    5. Other text, booleans and integers with at most 10 distinct values become categories (with `min_count=10`
       where there are more than 1,000 of them), and so do about 256 distinct numbers at most that recur and lie far
       apart on no grid, such as tariffs.
       Integers under a name such as `user_id`, `movieId` or `zip_code` become categories if there are at least four
       times as many rows as distinct values, and so do integers beyond 2^53 that floats cannot tell apart.
    6. Other numbers become numerical fields with `transform="auto"`, with splines of three resolutions where there are
       more than 128 distinct values; a value that makes up a tenth of the rows or more is special. Where there are
       more than 256 fields, numbers get one resolution: a segment for 100 rows, at least 8 and at most 20. The reason
       asks about integers that may be names, such as those that recur in a column `user` or `customer_no`.

    Only the first 500,000 rows are read.

    Parameters
    ----------
    table : table, path or dataset
        Anything that `open_table` takes.
    target : str, optional
        The column to predict, which is left out.

    Returns
    -------
    Schema
        Its `reasons` explain each field, and name the columns that were left out.

    Examples
    --------
    >>> schema = infer_schema({"age": list(range(20, 60)), "sex": ["f", "m"] * 20, "y": [0, 1] * 20}, target="y")
    >>> print(schema.reasons["sex"])
    text with 2 distinct values
    """
    check_column_name("target", target)
    source = open_table(table).as_text()
    if target is not None and target not in source.names:
        raise ValueError(missing_column_message(target, source.names))
    names = [name for name in source.names if name != target]
    if not names:
        raise ValueError(f"no column is left to make a field of: the table has only the target {target!r}")
    head = _head(source.chunks(names), source.schema, names)
    if not head.num_rows:
        raise ValueError("the table has no rows; a schema is inferred from at least one")
    choices = [_choose(name, one_array(head[name]), source.untyped) for name in names]
    fields = tuple(field for chosen, _ in choices for field in chosen)
    provenance = {name: why for _, each in choices for name, why in each.items()}
    if not fields:
        why = "; ".join(f"{name!r} is {reason}" for name, reason in list(provenance.items())[:EXAMPLES])
        raise ValueError(f"no column is left to make a field of: {why}")
    schema = Schema(fields, provenance)
    return _with_one_resolution(schema, head.num_rows) if len(fields) > MANY_COLUMNS else schema


def _with_one_resolution(schema: Schema, n_rows: int) -> Schema:
    """The schema of a wide table: one spline for each number, of few segments where there are few rows."""
    most = BSpline().segments
    basis = BSpline(min(most, max(MIN_SEGMENTS, n_rows // ROWS_PER_SEGMENT)))
    usual = (BSpline(), MultiResolution())
    return schema.with_bases({item.name: basis for item in schema.numerical if item.basis in usual})


def _head(chunks: Any, schema: pa.Schema, names: list[str]) -> pa.Table:
    batches, rows = [], 0
    for batch in chunks:
        batches.append(batch)
        rows += batch.num_rows
        if rows >= LOOK_AT:
            break
    wanted = pa.schema([schema.field(name) for name in names])
    return pa.Table.from_batches(batches, batches[0].schema if batches else wanted)


_Choice = tuple[list[AnyField], dict[str, Provenance]]
"""The fields of a column, and why each of them, or why none."""


def _choose(name: str, column: pa.Array, untyped: bool) -> _Choice:
    kind = column.type
    if not name:
        return _left_out(name, "it has no name, as the index has in a text file that pandas wrote")
    if column.null_count == len(column):
        return _left_out(name, "it has no values")
    if pa.types.is_nested(kind):
        return _lists(name, as_lists(column, name, None), kind.value_type)
    if is_date(kind):
        return _dates(name, as_seconds(column, name, zone=_zone(kind)), zone=_zone(kind))
    if is_text(kind) or (pa.types.is_dictionary(kind) and is_text(kind.value_type)):
        return _text(name, as_text(column), untyped)
    if pa.types.is_boolean(kind):
        return _categorical(name, column, "booleans")
    if not (is_number(kind) or pa.types.is_duration(kind)):
        words = _clock_words(name) if pa.types.is_time(kind) else ""
        return _categorical(name, column, f"values of type {kind}", words, asks=bool(words))
    x = as_numbers(column, name)
    if pa.types.is_integer(kind) and are_too_large(column, x):
        return _categorical(name, column, "integers too large for a quantity,")
    return _number(name, x)


def _lists(name: str, lists: Lists, kind: pa.DataType) -> _Choice:
    longest = int(np.diff(lists.offsets).max(initial=0))
    if are_coordinates(kind, lists):
        why = f"lists of up to {longest} numbers that hardly recur, such as an embedding"
        return _left_out(name, f"{why}; make a numerical column of each coordinate", asks=True)
    return _single_choice(MultiValued(name), f"lists of up to {number_of(longest, 'value')}")


def _single_choice(field: AnyField, reason: str, asks: bool = False) -> _Choice:
    return [field], {field.name: Provenance("inferred", reason, question=asks)}


def _left_out(name: str, why: str, asks: bool = False) -> _Choice:
    return [], {name: Provenance("left out", why, question=asks)}


# Text


def _text(name: str, text: pa.LargeStringArray, untyped: bool) -> _Choice:
    """Dates, numbers or categories."""
    present = text.drop_null()
    distinct = present.unique()
    booleans = find_values(distinct) == "booleans"
    if not pc.any(matches(distinct, r"\d"), min_count=0).as_py():  # no dates or numbers: most of the time of a column
        return _text_lists(name, text, distinct) or _categorical(name, text, "booleans" if booleans else "text")
    found = _text_dates(name, text, present) or _text_numbers(name, text, present, untyped)
    return (
        found
        or _text_lists(name, text, distinct)
        or _categorical(name, text, "booleans" if booleans else "text", _mixture_words(name, present))
    )


def _text_dates(name: str, text: pa.LargeStringArray, present: pa.LargeStringArray) -> _Choice | None:
    if not look_like_dates(present[:SAMPLE]):
        return None
    format, ambiguous = find_format(present.unique())
    if ambiguous:
        return _categorical(
            name,
            text,
            "text",
            f", dates such as {present[0].as_py()!r} that may be read in two ways: use "
            f'sf.Timestamp({name!r}, format="%m/%d/%Y") or "%d/%m/%Y"',
            asks=True,
        )
    times, stray = parse_times(text, format)
    if not stray.sum() <= (1.0 - NEARLY_ALL) * len(present):
        return None
    words = _stray_words(text, stray, "date")
    return _dates(name, to_seconds(times), format=format, text="auto", words=words)


def _text_lists(name: str, text: pa.LargeStringArray, distinct: pa.LargeStringArray) -> _Choice | None:
    if pc.mean(pc.match_substring(text, BAR)).as_py() < CUT:  # of the rows with text
        return None
    lists = as_lists(distinct, name, BAR)
    lengths = np.diff(lists.offsets)
    n_parts = len(lists.names.unique())
    # The same number of parts everywhere is rather one name of several, such as "US|mobile".
    if lengths.min() == lengths.max() or TEXTS_PER_PART * n_parts > len(distinct):
        return None
    reason = f"text of up to {lengths.max()} of {n_parts:,} values with {BAR!r} between them"
    reason += f"; for a category of each of the {len(distinct):,} texts use sf.Categorical({name!r})"
    return _single_choice(MultiValued(name, BAR, min_count=MIN_COUNT if n_parts > MANY_CATEGORIES else 1), reason)


def _text_numbers(name: str, text: pa.LargeStringArray, present: pa.LargeStringArray, untyped: bool) -> _Choice | None:
    decimal = find_decimal(present[:SAMPLE])
    x, stray = parse_numbers(text, decimal)
    if stray is None:
        stray = np.zeros(len(text), bool)
        if not untyped and pc.all(matches(present, r"^\d+$")).as_py():
            return None  # integers that are kept as text are names
        if are_too_large(present, x) and pc.all(matches(present, r"^-?\d+$")).as_py():
            return None
    elif not _are_few(text, x, stray, len(present)):
        return None
    return _number(name, x, decimal=decimal, text="auto", words=_stray_words(text, stray, "number"))


def _are_few(text: pa.LargeStringArray, x: FloatArray, stray: BoolArray, n_present: int) -> bool:
    """Whether a column is numbers although some of its text is not."""
    share = 1.0 - stray.sum() / n_present
    if share >= NEARLY_ALL:
        return True
    n_spellings = len(text.filter(to_arrow(stray)).unique())
    n_numbers = len(np.unique(x[~np.isnan(x)]))
    return bool(share >= MOSTLY and n_spellings <= FEW_SPELLINGS and n_numbers > FEW_VALUES)


def _stray_words(text: pa.LargeStringArray, stray: BoolArray, what: str) -> str:
    if not stray.any():
        return ""
    examples = ", ".join(map(repr, text.filter(to_arrow(stray)).unique()[:EXAMPLES].to_pylist()))
    return f"; {stray.sum():,} of {len(text):,} rows hold no {what} ({examples}) and count as missing"


def _mixture_words(name: str, present: pa.LargeStringArray) -> str:
    """A remark on text most of which is numbers."""
    _, stray = parse_numbers(present)
    share = 1.0 if stray is None else 1.0 - stray.mean()
    if not 0.5 <= share < 1.0 or stray is None:
        return ""
    example = present.filter(to_arrow(stray))[0].as_py()
    return (
        f", {share:.0%} of them numbers, others such as {example!r}: "
        f'for a quantity use sf.Numerical({name!r}, text="missing")'
    )


def _categorical(name: str, column: pa.Array, what: str, remark: str = "", asks: bool = False) -> _Choice:
    counts = CategoryCounts()
    counts.update(as_categories(column, name))
    distinct = counts.n_distinct()
    reason = f"{what} with {number_of(distinct, 'distinct value')}{remark}"
    if distinct <= MANY_CATEGORIES:
        return _single_choice(Categorical(name), reason, asks)
    if one_per_row := distinct > 0.9 * len(column):
        reason += f", {_ONE_PER_ROW}"
    return _single_choice(Categorical(name, min_count=MIN_COUNT), reason, asks or one_per_row)


# Dates


def _dates(
    name: str,
    seconds: FloatArray,
    *,
    format: str | None = None,
    zone: str | None = None,
    text: Stray = "error",
    words: str = "",
) -> _Choice:
    """A field for each part of dates that the range of the data supports."""
    known = seconds[np.isfinite(seconds)]
    n_days = (known.max() - known.min()) / DAY
    has_times = bool((np.mod(known, DAY) != 0.0).any())
    bears: dict[Part, tuple[bool, str]] = {
        "hour": (has_times and n_days >= 2, "times of day"),
        "weekday": (n_days >= 14, "days of the week"),
        "yearday": (n_days >= 2 * 365, "days of the year"),
        "trend": (True, "dates and times" if has_times else "dates"),
    }
    first, last = (str(time)[: 16 if has_times else 10] for time in to_times(np.array([known.min(), known.max()])))
    parts = [part for part, (fits, _) in bears.items() if fits]
    fields: list[AnyField] = list(Timestamp(name, parts, format=format, zone=zone, text=text).fields)
    value, count = np.unique(known, return_counts=True)
    trend: Any = fields[-1]
    fields[-1] = replace(trend, basis=_basis(len(value)), special=tuple(value[find_atoms(value, count)].tolist()))
    span = f"from {first} to {last}{words}"
    reasons = (f"{bears[part][1]}, {span}" for part in parts)
    return fields, {field.name: Provenance("inferred", why) for field, why in zip(fields, reasons, strict=True)}


def _clock_words(name: str) -> str:
    """A remark on times of day, which are read as categories."""
    field = f"sf.Numerical({name!r}, sf.MinMax(0, 24), sf.BSpline(24, periodic=True))"
    return f"; for a curve over the day, convert them to hours as a number and use {field}"


def _zone(kind: pa.DataType) -> str | None:
    """The time zone of a column; None for UTC, the default."""
    zone = getattr(kind, "tz", None)
    return None if zone in (None, "UTC", "Etc/UTC", "GMT", "Z", "+00:00") else str(zone)


# Numbers


def _number(name: str, x: FloatArray, *, decimal: Decimal = ".", text: Stray = "error", words: str = "") -> _Choice:
    value, count = np.unique(x[np.isfinite(x)], return_counts=True)
    if not len(value):
        return _left_out(name, "it has no values")
    is_whole = bool(((value == np.floor(value)) & (np.abs(value) < LARGEST_WHOLE)).all())
    if len(value) <= FEW_VALUES and is_whole:
        distinct = number_of(len(value), "distinct value")
        return _single_choice(Categorical(name), f"integers with only {distinct}{_or_quantity(name)}{words}")
    if is_whole and are_called_identifiers(name) and len(value) <= len(x) / ROWS_PER_IDENTIFIER:
        reason = f"integers with {len(value):,} distinct values, identifiers by their name{_or_quantity(name)}{words}"
        return _single_choice(Categorical(name, min_count=MIN_COUNT if len(value) > MANY_CATEGORIES else 1), reason)
    if are_amounts(value, count):
        reason = f"{len(value):,} distinct numbers that recur exactly, far apart{_or_quantity(name)}{words}"
        return _single_choice(Categorical(name), reason)
    reason = f"numbers with {number_of(len(value), 'distinct value')}"
    times = _time_words(name, value) if is_whole else ""
    if one_per_row := is_whole and not times and len(value) > max(MANY_CATEGORIES, 0.9 * len(x)):
        reason += f", {_ONE_PER_ROW}"
    names = name_words(name, value, count) if is_whole and not times and not one_per_row else ""
    atoms = find_atoms(value, count)
    if len(atoms):
        shares = ", ".join(f"{value[i]:g} ({count[i] / count.sum():.0%} of the rows)" for i in atoms)
        reason += f"; {shares} too frequent to be a quantity: special"
    basis, special = _basis(len(value)), tuple(value[atoms].tolist())
    field = Numerical(name, basis=basis, special=special, decimal=decimal, text=text)
    return _single_choice(field, reason + words + times + names, asks=bool(one_per_row or times or names))


def _time_words(name: str, value: FloatArray) -> str:
    """A remark on integers that may be times: as such they would have hours and days, too."""
    for unit, what, how in ((1.0, "seconds", ""), (1000.0, "milliseconds", "divide them by 1000 and ")):
        if _TIME.search(name) and YEARS[0] <= value[0] / unit and value[-1] / unit <= YEARS[1]:
            first, last = (str(time)[:10] for time in to_times(value[[0, -1]] / unit))
            span = f"{what} since 1970, from {first} to {last}"
            return f"; if these are {span}, {how}use sf.Timestamp({name!r}) for hours and days"
    return ""


def _or_quantity(name: str) -> str:
    return f"; for a quantity use sf.Numerical({name!r})"


def _basis(n_distinct: int) -> BSpline | MultiResolution:
    return MultiResolution() if n_distinct > FINE else BSpline()
