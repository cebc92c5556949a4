"""What is wrong with rows: which row, which column, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from splinefm.encode.plans import one_value
from splinefm.encode.tables.names import missing_column_message, quoted
from splinefm.serve.arms.loaded import Loaded
from splinefm.train.fitted import Fitted

MOST = 10
"""Faults that an answer lists."""
_MAX_NAMES = 50  # that a missing one is compared with: a row may have any number
# What scoring can raise for values that it does not take.
ROW_ERRORS = (TypeError, ValueError, LookupError, ArithmeticError, pa.ArrowException, RecursionError)


class Fault(NamedTuple):
    """One thing that is wrong."""

    row: int | None
    column: str | None
    detail: str


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
        """What is wrong with the names of a row, or of a table."""
        found = [
            Fault(row, name, _absent(name, list(islice(names, _MAX_NAMES))))
            for name in self.needed
            if name not in names
        ]
        if not self._allow_extra:
            found += [
                Fault(row, name, f"unknown column {name!r}; leave it out, the columns are {quoted(self.needed)}")
                for name in names
                if name not in self._known
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
        if len(found) >= MOST:
            break
    if found:
        raise FaultyRows(found[:MOST])


def faults_of(loaded: Loaded, names: Names, rows: Sequence[Mapping[str, Any]]) -> list[Fault]:
    """Faults of the rows that a model refused, at most `MOST`."""
    found: list[Fault] = []
    for i, row in enumerate(rows):
        of_row = names.faults(row, i)
        if not of_row:
            try:
                loaded.scorer(row)
            except ROW_ERRORS as error:
                of_row = [fault_of_values(loaded.fitted, row, i, error)]
        found += of_row
        if len(found) >= MOST:
            break
    return found[:MOST]


def fault_of_values(fitted: Fitted, row: Mapping[str, Any], i: int, error: Exception) -> Fault:
    """Which value of a row made an error; the first that its field refuses."""
    for item in fitted.encoder.schema.resolved:
        for single in item.singles:
            try:
                single.encode(one_value(single.column, row[single.column]))
            except ROW_ERRORS as own:
                return Fault(i, single.column, _told(own))
    return Fault(i, None, _told(error))


def check_finite(values: Any, what: str) -> None:
    """Raise where scores or predictions are beyond all numbers: JSON could not say so."""
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))[0])
        raise FaultyRows([Fault(row, None, f"its {what} is too large for a number; check its values")])


def _told(error: Exception) -> str:
    return str(error) or type(error).__name__
