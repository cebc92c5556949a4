"""A schema from a look at the table, with the reason for every choice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.auto import FEW_VALUES as SPREAD_BY_RANK
from splinefm.encode.categorical import Categorical, MultiValued
from splinefm.encode.columns import as_categories, as_lists, as_numbers, is_text, one_array
from splinefm.encode.numerical import Numerical
from splinefm.encode.schema import Field, Schema
from splinefm.encode.splines import BSpline, MultiResolution
from splinefm.encode.table import missing_column_message, open_table
from splinefm.encode.vocabulary import CategoryCounts

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
# Only so many rows are looked at: the choice hardly changes after that, the fit reads all of them.
LOOK_AT = 500_000
# Whole numbers with at most this many distinct values are codes or grades more often than quantities.
FEW_VALUES = 10
# A value with this share of the rows (zeros, caps, sentinels) would leave a gap in the transform: it gets a row.
ATOM = 0.1
MOST_ATOMS = 3
MANY_CATEGORIES, MIN_COUNT = 1_000, 10
# Few values in a wide range, far apart next to the closest two, each with several rows: amounts that recur exactly.
MOST_AMOUNTS, GAP, ROWS_PER_AMOUNT = 256, 4.0, 10
# With more distinct values than this, splines of several resolutions find the detail that the data support.
FINE = 128
# With more columns than these each has one resolution: three would take thrice the time and memory.
MANY_COLUMNS = 256
# Rows per segment there, from 8 to the 20 segments of `BSpline()`.
ROWS_PER_SEGMENT, LEAST_SEGMENTS = 100, 8


def infer_schema(table: object, *, target: str | None = None) -> Schema:
    """A schema that suits a table.

    The rules, in this order: lists become multi-valued fields; text, booleans and whole numbers with at most 10
    distinct values become categories (with `min_count=10` where there are more than 1,000 of them), and so do up to 256
    distinct numbers that recur (ten rows each or more) and lie on no grid, such as tariffs; other numbers, dates and
    times become numerical fields with `transform="auto"`, with splines of three resolutions where there are
    more than 128 distinct values; a value that makes up a tenth of the rows or more is special. Where that makes more
    than 256 fields, numbers get one resolution: a segment for 100 rows, at least 8 and at most 20. Columns without any
    value or without a name are left out. The first 500,000 rows are looked at.

    Parameters
    ----------
    table : table, path or dataset
        Anything that `open_table` takes.
    target : str, optional
        The column to leave out because it is to be predicted.

    Returns
    -------
    Schema
        Its `reasons` say why each field is as it is, and which columns were left out.

    Examples
    --------
    >>> schema = infer_schema({"age": list(range(20, 60)), "sex": ["f", "m"] * 20, "y": [0, 1] * 20}, target="y")
    >>> print(schema.reasons["sex"])
    text with 2 distinct values
    """
    source = open_table(table)
    if target is not None and target not in source.names:
        raise ValueError(missing_column_message(target, source.names))
    names = [name for name in source.names if name != target]
    if not names:
        raise ValueError(f"no column is left to make a field of: the table has only the target {target!r}")
    head = _head(source.chunks(names), source.schema, names)
    if not head.num_rows:
        raise ValueError("the table has no rows; a schema is inferred from at least one")
    choices = {name: _choose(name, one_array(head[name])) for name in names}
    fields = tuple(field for field, _ in choices.values() if field is not None)
    if len(fields) > MANY_COLUMNS:
        fields = _with_one_resolution(fields, head.num_rows)
    if not fields:
        raise ValueError("no column is left to make a field of: all are empty")
    return Schema(fields, {name: reason for name, (_, reason) in choices.items()})


def _with_one_resolution(fields: tuple[Field, ...], n_rows: int) -> tuple[Field, ...]:
    """The fields of a wide table: one spline for each number, of few segments where there are few rows."""
    most = BSpline().segments
    basis = BSpline(min(most, max(LEAST_SEGMENTS, n_rows // ROWS_PER_SEGMENT)))
    usual = (BSpline(), MultiResolution())
    return tuple(
        replace(item, basis=basis) if isinstance(item, Numerical) and item.basis in usual else item for item in fields
    )


def _head(chunks: Any, schema: pa.Schema, names: list[str]) -> pa.Table:
    batches = []
    rows = 0
    for batch in chunks:
        batches.append(batch)
        rows += batch.num_rows
        if rows >= LOOK_AT:
            break
    wanted = pa.schema([schema.field(name) for name in names])
    return pa.Table.from_batches(batches, batches[0].schema if batches else wanted)


def _choose(name: str, column: pa.Array) -> tuple[Field | None, str]:
    kind = column.type
    if not name:
        return None, "left out: it has no name, as the index has in a text file that pandas wrote"
    if column.null_count == len(column):
        return None, "left out: it has no values"
    if pa.types.is_nested(kind):
        longest = int(np.diff(as_lists(column, name, None).offsets).max(initial=0))
        return MultiValued(name), f"lists of up to {longest} values"
    if is_text(kind) or pa.types.is_boolean(kind) or pa.types.is_dictionary(kind):
        return _categorical(name, column, "truth values" if pa.types.is_boolean(kind) else "text")
    if not (pa.types.is_primitive(kind) or pa.types.is_decimal(kind)) or pa.types.is_time(kind):
        return _categorical(name, column, f"values of type {kind}")
    return _number(name, column)


def _categorical(name: str, column: pa.Array, what: str) -> tuple[Field, str]:
    counts = CategoryCounts()
    counts.update(as_categories(column, name))
    distinct = counts.n_distinct()
    reason = f"{what} with {distinct:,} distinct values"
    if distinct <= MANY_CATEGORIES:
        return Categorical(name), reason
    if distinct > 0.9 * len(column):
        reason += ", nearly one per row: an identifier? It cannot help on new rows; consider leaving it out"
    return Categorical(name, min_count=MIN_COUNT), reason


def _are_amounts(value: FloatArray, count: IntArray) -> bool:
    """Whether a column has few distinct numbers off any grid, such as tariffs, each on many rows."""
    if not SPREAD_BY_RANK < len(value) <= MOST_AMOUNTS:
        return False
    gaps = np.diff(value)
    # Without the most frequent one, which may be a zero that stands for "none".
    recurring = count.sum() - count.max() >= ROWS_PER_AMOUNT * (len(count) - 1)
    return bool(recurring and np.median(gaps) >= GAP * gaps.min())


def _number(name: str, column: pa.Array) -> tuple[Field | None, str]:
    x = as_numbers(column, name)
    value, count = np.unique(x[np.isfinite(x)], return_counts=True)
    if not len(value):
        return None, "left out: it has no values"
    if len(value) <= FEW_VALUES and (value == np.floor(value)).all():
        return Categorical(name), f"whole numbers with only {len(value)} distinct values"
    if _are_amounts(value, count):
        return Categorical(name), f"{len(value):,} distinct numbers that recur exactly, far apart"
    what = "dates or times, as seconds since 1970" if pa.types.is_temporal(column.type) else "numbers"
    atoms = np.flatnonzero(count >= ATOM * count.sum())
    basis = MultiResolution() if len(value) > FINE else BSpline()
    # Heavy values of a coarse grid are no exceptions; the transform gives each of them its place by rank.
    if not 0 < len(atoms) <= MOST_ATOMS or len(value) <= SPREAD_BY_RANK:
        return Numerical(name, basis=basis), f"{what} with {len(value):,} distinct values"
    shares = ", ".join(f"{value[i]:g} ({count[i] / count.sum():.0%} of the rows)" for i in atoms)
    return (
        Numerical(name, basis=basis, special=tuple(value[atoms].tolist())),
        f"{what} with {len(value):,} distinct values; {shares} too frequent to be a quantity: special",
    )
