"""Columns of a table as the inputs of an exported graph."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from splinefm._arrays import Array
from splinefm._checks import check_fitted
from splinefm.encode.fields.categorical import Categorical, MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Single
from splinefm.encode.tables.columns import as_numbers, one_array
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.spelling import canonical
from splinefm.train.fitted import Fitted

NO_INTEGER = int(np.iinfo(np.int64).min)
"""A missing value of a column of integers."""


def onnx_inputs(fitted: Fitted, table: object, *, integers: Collection[str] = ()) -> dict[str, Array]:
    """The columns of a table as the graph of `export_onnx` takes them, to check an export or to see the formats.

    Parameters
    ----------
    fitted : Fitted
        The model.
    table : table
        Anything that `Fitted.scores` takes.
    integers : names of fields
        As for `export_onnx`.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, None] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c")])
    >>> training = sf.Training(epochs=2, threads=1)
    >>> fitted = sf.fit_model(table, "y", loss="squared", schema=schema, model=sf.FM(k=2), training=training)
    >>> sf.onnx_inputs(fitted, {"x": [None, 3.0], "c": ["new", None]})
    {'x': array([nan,  3.]), 'c': array(['new', ''], dtype=object)}
    """
    check_export(fitted, integers)
    source = open_table(table, types=fitted.column_types())
    fitted.encoder.schema.check_columns(source.names)
    if fitted.offset is not None:
        fitted.offset.check_columns(source.names)
    chunks = list(source.chunks(fitted.columns, 1 << 17))
    columns: dict[str, Array] = {}
    for name, given in column_inputs(fitted, integers).items():
        parts = [chunk.column(name) for chunk in chunks]
        column = one_array(pa.chunked_array(parts)) if parts else pa.nulls(0)
        columns[name] = _as_input(given, column)
    if fitted.offset is not None and fitted.offset.column not in columns:
        name = fitted.offset.column
        parts = [as_numbers(chunk.column(name), name) for chunk in chunks]
        columns[name] = np.concatenate(parts) if parts else np.zeros(0)
    return columns


class ColumnInput(NamedTuple):
    """How a graph reads a column: a field that does so, the type (object for text), and how missing text is spelled.

    `unseen` replaces text that has the spelling of missing values: it is not a category, so that any such name will do.
    """

    item: Single
    dtype: type
    missing: str = ""
    unseen: str = ""


def column_inputs(fitted: Fitted, integers: Collection[str]) -> dict[str, ColumnInput]:
    """The inputs of a graph by column, which several fields and parts of crosses may read."""
    readers: dict[str, list[Single]] = {}
    for item in fitted.encoder.schema.column_readers:
        readers.setdefault(item.column, []).append(item)
    return {column: _column_input(column, items, integers) for column, items in readers.items()}


def _column_input(column: str, items: list[Single], integers: Collection[str]) -> ColumnInput:
    numbers = [item for item in items if isinstance(item, Numerical)]
    if numbers:
        for item in items:
            if not item.is_numerical and not all(_reads_alike(item, number) for number in numbers):
                raise ValueError(
                    f"column {column!r} is read by fields of different kinds, and an input of a graph has one type: "
                    f"{numbers[0].name!r} as numbers, {item.name!r} as text; give each of them a different column"
                )
        return ColumnInput(numbers[0], np.float64)
    _check_spellings(column, items)
    names = {name for item in items for name in item.vocabulary.names.to_pylist()}  # type: ignore[union-attr]
    whole = [item for item in items if item.name in integers]
    for name in names if whole else ():
        if not _is_integer(name):
            raise ValueError(f"column {column!r} has the category {name!r}, which is not an integer; leave it out")
    # In lists "" is padding.
    missing = _new_name("" if not items[0].holds_lists and "" not in names else "<missing>", names)
    return ColumnInput(items[0], np.int64 if whole else object, missing, _new_name("<unseen>", names))


def _check_spellings(column: str, items: list[Any]) -> None:
    """Raise if categories of a column are spelled in several ways: an input of a graph has one text per row."""
    first, *others = items
    for item in others:
        if item.spelling != first.spelling:
            raise ValueError(
                f"column {column!r} is read by fields whose categories are spelled differently, and an input of a "
                f"graph has one spelling: {first.name!r} with values={first.spelling!r}, {item.name!r} with "
                f"values={item.spelling!r}; give them the same values, or each of them a different column"
            )


def _reads_alike(item: Single, number: Numerical) -> bool:
    """Whether the categories of a field are numbers, all of them different as doubles."""
    if not isinstance(item, Categorical) or item.spelling != "numbers" or number.part is not None:
        return False
    names = item.vocabulary.names.to_pylist()  # type: ignore[union-attr]  # fitted
    plain = number.text == "error" and number.decimal == "."
    return plain and len({float(name) for name in names}) == len(names)


def _as_input(given: ColumnInput, column: pa.Array) -> Array:
    item: Any = given.item
    if isinstance(item, Numerical):
        return item.read(column) if item.part is None else item.seconds(column)
    if item.holds_lists:
        return _padded(item, column, given)
    names, codes = item.read(column)
    listed = canonical(names, item.spelling).to_pylist()
    if codes is not None:
        listed = [listed[code] if code >= 0 else None for code in codes]
    if given.dtype is object:
        spelled = {None: given.missing, given.missing: given.unseen}
        return np.array([spelled.get(name, name) for name in listed], object)
    try:
        return np.array([NO_INTEGER if name is None else int(name) for name in listed], np.int64)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"column {item.name!r} holds something other than integers: {error}") from error


def _padded(item: MultiValued, column: pa.Array, given: ColumnInput) -> Array:
    lists = item.read(column)
    names = canonical(lists.names, item.spelling)
    counts = np.diff(lists.offsets)
    width = list_length(item) if item.reduction == "identity" else max(1, int(counts.max(initial=0)))
    padded = np.full((len(column), width), "", object)
    row, position = lists.positions()
    kept = position < width
    padded[row[kept], position[kept]] = np.array(names.to_pylist(), object)[kept]
    padded[padded == given.missing] = given.unseen
    padded[lists.missing, 0] = given.missing
    return padded


def _new_name(text: str, names: Collection[str]) -> str:
    """A name that differs from all others."""
    while text in names:
        text = f"<{text}>"
    return text


def list_length(item: MultiValued) -> int:
    """Elements per row that a field reads."""
    return max(len(item.layout.widths), 1)


def check_export(fitted: Fitted, integers: Collection[str]) -> None:
    """Raise for what ONNX cannot express, and for fields that cannot be read as integers."""
    check_fitted(fitted)
    if isinstance(integers, str):
        raise ValueError(f"integers takes a list of names; write integers=[{integers!r}]")
    schema = fitted.encoder.schema
    for name in integers:
        item = schema[name] if name in schema.names else None
        if not isinstance(item, Categorical):
            categorical = [other.name for other in schema if isinstance(other, Categorical)]
            raise ValueError(f"integers names categorical fields, which are {categorical}; got {name!r}")
        for category in item.vocabulary.names.to_pylist():  # type: ignore[union-attr]  # fitted
            if not _is_integer(category):
                raise ValueError(
                    f"field {name!r} has the category {category!r}, which is not an integer; leave it out of integers"
                )
    for item in schema.singles:
        if item.hashes_unseen:
            raise ValueError(
                f"field {item.name!r}: ONNX has no operator for the hash of unseen categories; "
                'fit it with unseen="rare"'
            )


def _is_integer(category: str) -> bool:
    """Whether a name is an integer, in the one form that the encoder gives it."""
    return re.fullmatch("0|-?[1-9][0-9]{0,18}", category) is not None and NO_INTEGER < int(category) < 1 << 63
