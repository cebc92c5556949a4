"""Columns of numbers by the code that encodes single rows: a value has the same weights in a table and alone."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from splinefm._core import RowEncoder
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.rows.fields import add_cross
from splinefm.encode.rows.plans import CrossPlan, NumberPlan, add_number, plan_field
from splinefm.encode.schema import Field
from splinefm.encode.slots import IntArray
from splinefm.encode.transforms.sketch import FloatArray


class NumberColumn:
    """A numerical field whose columns are encoded by compiled code."""

    def __init__(self, plan: NumberPlan) -> None:
        self._item, self._widths = plan.item, np.array(plan.item.layout.widths, np.int64)
        self._encoder = RowEncoder()
        add_number(self._encoder, plan)

    def encode_into(self, x: FloatArray, start: IntArray, weight: Any) -> None:
        """Write features and weights of numbers into some columns of slots."""
        x = np.ascontiguousarray(x, np.float64)
        refused = self._encoder.encode_column(x, self._widths, start, weight)
        if refused >= 0:
            self._item.tokens(x)  # which raises, and says why
            raise ValueError(f"column {self._item.column!r} does not take {x[refused]}")


class CrossColumns:
    """A cross whose columns are encoded by compiled code."""

    def __init__(self, plan: CrossPlan) -> None:
        self._item, self._widths = plan.item, np.array(plan.item.layout.widths, np.int64)
        self._encoder = RowEncoder()
        add_cross(self._encoder, plan)

    def encode_into(self, values: list[Any], start: IntArray, weight: Any) -> None:
        """Write features and weights of the values of its parts into some columns of slots."""
        item, n = self._item, len(start)
        cells = np.zeros(n, np.int32)
        if item.categories:
            cells = item.cell(np.stack([item.category(i, values[i]) for i in item.categories], axis=1))
        x = np.array([values[i] for i in item.numbers], np.float64).reshape(len(item.numbers), n)
        refused = self._encoder.encode_columns(np.ascontiguousarray(cells, np.int32), x, self._widths, start, weight)
        if refused >= 0:
            item.positions(values)  # which raises, and says why
            raise ValueError(f"cross {item.name!r} does not take row {refused}")


class OtherColumns:
    """A field that has one way to be encoded, which is its own."""

    def __init__(self, item: Field, first: int) -> None:
        self._item: Any = item
        self._first = first

    def encode_into(self, values: Any, start: IntArray, weight: Any) -> None:
        """Write features and weights of values into some columns of slots, whose weights are 1 before."""
        self._item.encode_into(values, self._first, start, weight)


Columns: TypeAlias = NumberColumn | CrossColumns | OtherColumns


def compile_columns(item: Field, first: int) -> Columns:
    """What encodes columns of a fitted field whose first feature is given: compiled code, for those with numbers.

    Examples
    --------
    >>> from splinefm.encode.bases.splines import BSpline
    >>> from splinefm.encode.transforms.scaling import MinMax
    >>> column = compile_columns(Numerical("x", MinMax(low=0.0, high=1.0), BSpline(1, degree=1)), 0)
    >>> start, weight = np.empty((2, 1), np.int32), np.empty((2, 2), np.float32)
    >>> column.encode_into(np.array([0.25, np.nan]), start, weight)
    >>> start.tolist(), weight.tolist()
    ([[1], [0]], [[0.75, 0.25], [1.0, 0.0]])
    """
    plan = plan_field(item, first) if isinstance(item, Numerical | Cross) else None
    if isinstance(plan, CrossPlan):
        return CrossColumns(plan)
    return NumberColumn(plan) if isinstance(plan, NumberPlan) else OtherColumns(item, first)
