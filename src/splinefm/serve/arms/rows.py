"""Rows of a request: dicts, or a body that becomes dicts only if somebody needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from splinefm._arrays import Float32Array
from splinefm._cached import cached_property
from splinefm._core import JsonRows
from splinefm.serve.arms.faults import ROW_ERRORS, Names, check_names
from splinefm.serve.arms.loaded import Loaded
from splinefm.serve.scorer import Row


class RequestRows(Protocol):
    """What is asked of rows."""

    def __len__(self) -> int:
        """How many there are."""

    @property
    def dicts(self) -> Sequence[Row]:
        """A dict for each."""

    def check(self, names: Names) -> None:
        """Raise where a row lacks a column or has an unknown one."""

    def column(self, name: str) -> list[Any]:
        """The values of a column; None where a row has none."""

    def scores(self, model: Loaded, at: Sequence[int] | None) -> Float32Array:
        """The scores of all rows, or of some."""


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

    def scores(self, model: Loaded, at: Sequence[int] | None) -> Float32Array:
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

    def scores(self, model: Loaded, at: Sequence[int] | None) -> Float32Array:
        """The scores of all rows, or of some."""
        try:
            return model.json_scores(self._rows, np.arange(len(self)) if at is None else np.asarray(at, np.int64))
        except ROW_ERRORS:  # dicts have the same error, and say where it is
            return ListedRows(self.dicts).scores(model, at)
