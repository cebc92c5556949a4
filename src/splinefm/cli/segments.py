"""Segments on the command line: country=US, several values of a field, or one segment per category."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from splinefm.encode.fields.categorical import Categorical, MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Schema, Single, Sources
from splinefm.encode.tables.names import missing_column_message, quoted
from splinefm.inspect.values import LIST_SEPARATOR, Value, category_counts, no_category, value_text, vocabulary_names
from splinefm.train.fitted import Fitted

MAX_EACH, MAX_SEGMENTS = 12, 24


@dataclass(frozen=True)
class Segments:
    """Values of fields for one or several segments; all have the same fields."""

    rows: list[dict[str, Value]]
    remarks: list[str] = field(default_factory=list)

    @property
    def fields(self) -> list[str]:
        """The fields of the segments."""
        return list(self.rows[0])

    @property
    def names(self) -> list[str]:
        """The values in which each segment differs from the others, such as "country=US"; all for a single segment."""
        first = self.rows[0]
        shown = [name for name in first if len(self.rows) == 1 or any(row[name] != first[name] for row in self.rows)]
        return [", ".join(f"{name}={value_text(row[name])}" for name in shown) for row in self.rows]

    def columns(self, schema: Schema) -> dict[str, pa.Array]:
        """The segments as a table."""
        sources = schema.sources
        return {name: pa.array([row[name] for row in self.rows], _arrow_type(name, sources)) for name in self.fields}


def parse_segments(
    fitted: Fitted, along: Sequence[str], given: Sequence[str] = (), each: str | None = None
) -> Segments:
    """The segments of the options: every combination of the values.

    The fields `along` vary, and must not have values. Each of `given` is NAME=VALUE; several values of one field give
    several segments. "NAME=" is a missing value, and NAME may be a column of dates, with a date as the value of all of
    its parts. The most frequent categories of the field `each` give a segment each.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=1, threads=1))
    >>> parse_segments(fitted, ["x"], ["c=a", "c="]).rows
    [{'c': 'a'}, {'c': None}]
    >>> parse_segments(fitted, ["x"], each="c").names
    ['c=a', 'c=b']
    """
    sources = fitted.encoder.schema.sources
    values: dict[str, list[Value]] = {}
    remarks: list[str] = []
    for text in given:
        name, value = _read(text, sources, remarks)
        _check_free(f"--segment {text}", name, along)
        if value in values.setdefault(name, []):
            raise ValueError(f"--segment {text} is given twice; remove one")
        values[name].append(value)
    if each is not None:
        if each in values:
            raise ValueError(f"--each {each} and --segment {each}=... both choose values of {each!r}; remove one")
        values[each] = _most_frequent(fitted, each, along, remarks)
    rows = [dict(zip(values, combination, strict=True)) for combination in product(*values.values())]
    if len(rows) > MAX_SEGMENTS:
        raise ValueError(f"got {len(rows)} segments, but at most {MAX_SEGMENTS} can be shown; give fewer values")
    return Segments(rows, remarks)


def unknown_field(name: str, sources: Sources) -> str:
    """The message about a field that the model does not have, or that is a cross."""
    if name in sources.of:
        return f"{name!r} is a cross, which has no values of its own; use its columns, {quoted(sources.of[name])}"
    return missing_column_message(name, list(sources.fields), "field", "the model")


def _read(text: str, sources: Sources, remarks: list[str]) -> tuple[str, Value]:
    """Name and value; the name itself may contain "="."""
    parts = text.split("=")
    for cut in range(1, len(parts)):
        name = "=".join(parts[:cut])
        on_column = [item for item in sources.fields.values() if item.column == name]
        if name in sources.fields or on_column:
            item = sources.fields[name] if name in sources.fields else on_column[0]
            return name, _value(text, item, "=".join(parts[cut:]), remarks, is_column=name != item.name)
    raise ValueError(f"--segment {text}: {unknown_field(parts[0], sources)}")


def _value(option: str, item: Single, text: str, remarks: list[str], is_column: bool) -> Value:
    if not text:
        if item.missing == "error":
            raise ValueError(f"--segment {option}: {item.name!r} cannot be missing in this model; give a value")
        return None
    if isinstance(item, Numerical):
        is_date = item.part is not None and not _is_number(text)
        return _date(option, item, text, is_column) if is_date else _number(option, item, text)
    if isinstance(item, Categorical):
        return _category(option, item, text, remarks)
    elements = [part.strip() for part in text.split(item.separator or LIST_SEPARATOR) if part.strip()]
    return [_category(option, item, element, remarks) for element in elements]


def _arrow_type(name: str, sources: Sources) -> pa.DataType:
    """The type of values of a field, or of a column of dates."""
    return sources.fields[name].value_type if name in sources.fields else pa.large_string()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _date(option: str, item: Numerical, text: str, is_column: bool) -> Value:
    """The date itself if it is the value of a column, otherwise the part of the date that is the field."""
    text = item.as_written(text)
    try:
        number = replace(item, text="error").read(pa.array([text]))[0]
    except ValueError as error:
        raise ValueError(f"--segment {option}: {error}") from error
    return text if is_column else float(number)


def _number(option: str, item: Numerical, text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        raise ValueError(
            f"--segment {option}: {item.name!r} is numerical, but {text!r} is not a number; "
            f"write {item.name}=1.5, or {item.name}= for a missing value"
        ) from None
    return number if number == number else None


def _category(option: str, item: Categorical | MultiValued, text: str, remarks: list[str]) -> str:
    names = vocabulary_names(item)
    if pc.index(names, pa.scalar(text, pa.large_string())).as_py() >= 0:
        return text
    if item.unseen == "hash":
        remarks.append(f"{text!r} is not in the vocabulary of {item.name!r}: it shares a feature with other categories")
        return text
    more = f", ... and {len(names) - 10:,} more" if len(names) > 10 else ""
    raise ValueError(
        f"--segment {option}: {no_category(item, text)}. It has {quoted(names.slice(0, 10).to_pylist())}{more}"
    )


def _most_frequent(fitted: Fitted, name: str, along: Sequence[str], remarks: list[str]) -> list[Value]:
    sources = fitted.encoder.schema.sources
    if name not in sources.fields:
        raise ValueError(f"--each {name}: {unknown_field(name, sources)}")
    _check_free(f"--each {name}", name, along)
    item: Any = sources.fields[name]
    if item.is_numerical:
        raise ValueError(
            f"--each {name}: {name!r} is numerical and has no categories; "
            f"give values instead: --segment {name}=1 --segment {name}=2"
        )
    names, _ = category_counts(fitted, name, MAX_EACH)
    if not names:
        raise ValueError(f"--each {name}: {name!r} has no categories in this model")
    if (total := len(vocabulary_names(item))) > MAX_EACH:
        remarks.append(
            f"--each {name}: showing the {MAX_EACH} most frequent of {total:,} categories of {name!r}; "
            f"to choose others, repeat --segment {name}=VALUE"
        )
    return list(map(item.holding, names))


def _check_free(option: str, name: str, along: Sequence[str]) -> None:
    if name in along:
        raise ValueError(f"{option}: {name!r} varies (--along {name}); remove one of the two")
