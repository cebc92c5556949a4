"""Rows of a request: dicts, or a JSON body that is scored without them; and what is wrong with rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from splinefm._arrays import Float32Array
from splinefm._cached import cached_property
from splinefm._core import JsonRows
from splinefm.encode.plans import one_value
from splinefm.encode.tables.names import missing_column_message, quoted
from splinefm.serve.models import LoadedModel
from splinefm.serve.scorer import Row
from splinefm.train.fitted import Fitted

MAX_FAULTS = 10
"""Faults that an answer lists."""
_MAX_NAMES = 50  # that a missing one is compared with: a row may have any number
_MAX_NAME = 200  # characters of a name in a message
# What scoring can raise for values that it does not take.
ROW_ERRORS = (TypeError, ValueError, LookupError, ArithmeticError, pa.ArrowException, RecursionError)


class Fault(NamedTuple):
    """One thing that is wrong."""

    row: int | None
    column: str | None
    detail: str


class NotServed(LookupError):
    """An arm, index or page that a request asks for and the service does not have."""


class FaultyRows(ValueError):
    """Rows that cannot be scored, with their faults."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        first = faults[0]
        where = "" if first.row is None else f"row {first.row}: "
        super().__init__(f"{where}{first.detail}")
        self.faults = list(faults)


class Names:
    """Which columns a row must have, and which it may have.

    Parameters
    ----------
    needed : sequence of str
        Columns that every row must have; a missing value is null, not left out.
    known : sequence of str
        Further columns, which are not needed.
    allow_extra : bool
        Whether other columns are ignored, instead of being a fault.
    each : bool
        Whether every name has to be compared, because a model does not need all of them.
    """

    def __init__(
        self, needed: Sequence[str], known: Sequence[str] = (), *, allow_extra: bool = False, each: bool = False
    ) -> None:
        self.needed = tuple(dict.fromkeys(needed))
        self._each = each
        self._needed, self._known = frozenset(needed), frozenset(known) | frozenset(needed)
        self._allow_extra = allow_extra

    def fits(self, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Whether rows have the right columns, or at least as many: a wrong name is then one that the scorer misses."""
        if self._each:
            return all(row.keys() == self._needed for row in rows)
        n = len(self._needed)
        return self._allow_extra or all(len(row) == n for row in rows)

    def faults(self, names: Sequence[str] | Mapping[str, Any], row: int | None) -> list[Fault]:
        """What is wrong with the names of a row, or of a table: the first things, as a body may have any number."""
        found = [
            Fault(row, name, _absent(name, list(islice(names, _MAX_NAMES))))
            for name in islice((name for name in self.needed if name not in names), MAX_FAULTS)
        ]
        if not self._allow_extra:
            unknown = (name for name in names if name not in self._known)
            known = quoted(self.needed)
            found += [
                Fault(
                    row, name[:_MAX_NAME], f"unknown column {name[:_MAX_NAME]!r}; leave it out, the columns are {known}"
                )
                for name in islice(unknown, MAX_FAULTS - len(found))
            ]
        return found


def _absent(name: str, names: list[str]) -> str:
    return f"{missing_column_message(name, names, 'column', 'the row')}; a missing value is null"


def check_names(names: Names, rows: Sequence[Mapping[str, Any]]) -> None:
    """Raise where a row lacks a column or has an unknown one."""
    if names.fits(rows):
        return
    found: list[Fault] = []
    for i, row in enumerate(rows):
        found += names.faults(row, i)
        if len(found) >= MAX_FAULTS:
            break
    if found:
        raise FaultyRows(found[:MAX_FAULTS])


def faults_of(loaded: LoadedModel, names: Names, rows: Sequence[Mapping[str, Any]]) -> list[Fault]:
    """Faults of the rows that a model refused, at most `MAX_FAULTS`."""
    found: list[Fault] = []
    for i, row in enumerate(rows):
        of_row = names.faults(row, i)
        if not of_row:
            try:
                loaded.scorer(row)
            except ROW_ERRORS as error:
                of_row = [fault_of_values(loaded.fitted, partial(_column_of, row), i, error)]
        found += of_row
        if len(found) >= MAX_FAULTS:
            break
    return found[:MAX_FAULTS]


def _column_of(row: Mapping[str, Any], name: str) -> pa.Array:
    return one_value(name, row[name])


def fault_of_values(fitted: Fitted, column: Callable[[str], pa.Array], i: int, error: Exception) -> Fault:
    """Which value of a row made an error, given its columns: the first that its field refuses."""
    for item in fitted.encoder.schema.column_readers:
        try:
            item.encode(column(item.column))
        except ROW_ERRORS as own:
            return Fault(i, item.column, _told(own))
    if (offset := fitted.offset) is not None:
        try:
            offset.scores(column(offset.column), fitted.loss)
        except ROW_ERRORS as own:
            return Fault(i, offset.column, _told(own))
    return Fault(i, None, _told(error))


def check_finite(values: Any, what: str) -> None:
    """Raise where scores or predictions are beyond all numbers: JSON could not say so."""
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))[0])
        raise FaultyRows([Fault(row, None, f"its {what} is too large for a number; check its values")])


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__


class ListedRows:
    """Dicts in memory."""

    def __init__(self, dicts: Sequence[Row]) -> None:
        self.dicts = dicts

    def __len__(self) -> int:
        return len(self.dicts)

    def check(self, names: Names) -> None:
        """Raise where a row lacks a column or has an unknown one."""
        check_names(names, self.dicts)

    def column(self, name: str) -> list[Any]:
        """The values of a column; None where a row has none."""
        return [row.get(name) for row in self.dicts]

    def scores(self, model: LoadedModel, at: Sequence[int] | None) -> Float32Array:
        """The scores of all rows, or of some."""
        return model.scores(self.dicts if at is None else [self.dicts[i] for i in at])


class BodyRows:
    """Rows in a body of JSON that have exactly the columns that they need: scored without an object per value.

    Parameters
    ----------
    rows : JsonRows
        The values, as compiled code has found them.
    decode : callable
        Makes the dicts.
    """

    def __init__(self, rows: JsonRows, decode: Callable[[], Sequence[Row]]) -> None:
        self._rows, self._decode = rows, decode

    def __len__(self) -> int:
        return len(self._rows)

    @cached_property
    def dicts(self) -> Sequence[Row]:
        """A dict for each row: for logs, for a sample, and to tell what is wrong."""
        return self._decode()

    def check(self, names: Names) -> None:
        """Nothing: compiled code has compared the columns."""

    def column(self, name: str) -> list[Any]:
        """The values of a column."""
        return self._rows.column(name)

    def scores(self, model: LoadedModel, at: Sequence[int] | None) -> Float32Array:
        """The scores of all rows, or of some."""
        positions = np.arange(len(self)) if at is None else np.asarray(at, np.int64)
        try:
            return np.asarray(model.scorer.many_json(self._rows, positions), np.float32)
        except ROW_ERRORS:  # dicts have the same error, and say where it is
            return ListedRows(self.dicts).scores(model, at)


RequestRows = ListedRows | BodyRows
