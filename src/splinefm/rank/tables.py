"""Tables of items and contexts, or one context as a dict, on their way to slots."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.drift import Watch
from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.multivalued import MultiValued
from splinefm.encode.rows.fields import RowFields
from splinefm.encode.schema import Field
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.encode.tables.names import missing_column_message, quoted
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.table import Table
from splinefm.learn.fitted import Fitted


class Part:
    """Some fields of a model: reads their columns, and gives slots that count the rows of the whole table.

    Parameters
    ----------
    fitted : Fitted
        The model.
    fields : tuple of int
        Numbers of the fields.
    """

    def __init__(self, fitted: Fitted, fields: tuple[int, ...]) -> None:
        whole = fitted.encoder
        self.types = whole.schema.column_types()
        self.items = tuple(whole.fields[f] for f in fields)
        self.names = tuple(item.name for item in self.items)
        self.columns = tuple(dict.fromkeys(item.column for item in self.items))
        self.layout = SlotLayout(tuple(item.layout for item in self.items))
        self.first_feature = whole.layout.feature_ptr[list(fields)] if fields else np.zeros(0, np.int32)
        windows = np.diff(self.layout.window_ptr)
        self.shift = np.repeat(self.first_feature - self.layout.feature_ptr[:-1], windows).astype(np.int32)
        notes = {name: whole.notes.get(name, "") for name in self.names}
        counts = tuple(whole.feature_counts[f] for f in fields)
        self.encoder = Encoder(self.items, whole.n_rows, notes, counts, ranges=whole.ranges[list(fields)])

    def open(self, table: object, what: str) -> Table:
        """A table that has all fields."""
        source = open_table(table, types=self.types)
        for name in self.columns:
            if name not in source.names:
                raise ValueError(f"{what}: {missing_column_message(name, source.names)}")
        return source

    def encode(self, table: object, watch: Watch | None = None) -> Slots:
        """Slots of a table."""
        if not self.items:  # there is no encoder without fields
            n = _count_rows(open_table(table))
            return Slots(np.zeros((n, 0), np.int32), np.zeros((n, 0), np.float32), self.layout)
        slots = self.encoder.encode(table, threads=1, watch=watch)
        np.add(slots.start, self.shift, out=slots.start)
        return slots

    def encode_any(self, context: object) -> Slots:
        """Slots of a dict of values or a table."""
        if isinstance(context, Mapping):
            missing = [name for name in self.columns if name not in context]
            if missing:
                raise ValueError(
                    f"the context lacks {quoted(missing)}; give the value of every field "
                    f"({quoted(self.columns)}), None where it is missing"
                )
            if is_row(self.items, context):
                return self.encode_row(context)
        watch = Watch(self.encoder)
        slots = self.encode(self.open(context, "the context"), watch)
        watch.warn()
        return slots

    def encode_row(self, values: Mapping[str, object]) -> Slots:
        """Slots of one row; a single row is encoded without a table, which would take longer than the rest."""
        try:
            rows, weights, ends, owners = self._row_fields.encoder.encode(
                values, self._row_fields.columns, self._row_fields.readers
            )
        except Exception:  # whatever it is, columns of one value say what is wrong
            return self._encode_columns(values)
        field = np.repeat(owners, np.diff(ends))
        place = self.layout.weight_ptr[self.layout.window_ptr[field]] + np.arange(len(field))
        place -= np.searchsorted(field, field)  # of each field, terms are counted from 0
        row, weight = self._some_rows.copy(), np.zeros((1, self.layout.n_weights), np.float32)
        row[place], weight[0, place] = rows, weights
        return Slots(row[None, self.layout.weight_ptr[:-1]], weight, self.layout)

    @cached_property
    def _row_fields(self) -> RowFields:
        return RowFields(self.items, self.first_feature.tolist())

    @cached_property
    def _some_rows(self) -> npt.NDArray[np.int32]:
        """For every weight a feature of its field, for those that are zero."""
        n_weights = [sum(item.layout.widths) for item in self.items]
        return np.repeat(self.first_feature, n_weights).astype(np.int32)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name != "_row_fields"}

    def _encode_columns(self, values: Mapping[str, object]) -> Slots:
        starts, weights = [np.zeros((1, 0), np.int32)], [np.zeros((1, 0))]
        for item, first in zip(self.items, self.first_feature, strict=True):
            start, weight = item.encode(_one_column(item, values[item.column]))
            starts.append(start + first)
            weights.append(weight)
        return Slots(
            np.concatenate(starts, axis=1, dtype=np.int32),
            np.concatenate(weights, axis=1, dtype=np.float32),
            self.layout,
        )


def is_row(fields: Sequence[Field], values: Mapping[str, object]) -> bool:
    """Whether a dict has a value per field, not a column. A list is a value only of a multi-valued field.

    Examples
    --------
    >>> tags = MultiValued("tags")
    >>> is_row([tags], {"tags": ["a", "b"]}), is_row([tags], {"tags": [["a", "b"], ["c"]]})
    (True, False)
    """
    for item in fields:
        if not isinstance(item, MultiValued):
            return not _is_column(values[item.column])
    for item in fields:
        value = values[item.column]
        if isinstance(item, MultiValued) and _is_column(value):
            # A column of lists, or of texts to be cut.
            return not any(_is_column(part) or item.separator is not None for part in cast(Iterable[object], value))
    return True


def _is_column(value: object) -> bool:
    if isinstance(value, str | bytes | Mapping):
        return False
    known = isinstance(value, Sequence | Set | np.ndarray | pa.Array | pa.ChunkedArray)
    return known or (hasattr(value, "__array__") and getattr(value, "ndim", 0) > 0)


def _one_column(item: Field, value: object) -> pa.Array:
    """A value as an Arrow column of one row."""
    if _is_column(value):
        if not isinstance(item, MultiValued):
            raise ValueError(
                f"a context has one value per field, {item.name!r} has {type(value).__name__} {value!r}; "
                "for several contexts give a table, with a list for every field"
            )
        value = value.tolist() if hasattr(value, "tolist") else list(cast(Iterable[object], value))
    if isinstance(item, Categorical):
        if type(value) is int:  # the same category, and a text is looked up in half the time
            value = str(value)
        if type(value) is str:
            return pa.array([value], pa.large_string())
    try:
        return pa.array([value], from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"the value of {item.name!r} in the context: {error}") from error


def _count_rows(source: Table) -> int:
    if source.n_rows is not None:
        return source.n_rows
    return sum(chunk.num_rows for chunk in source.chunks(source.names[:1]))
