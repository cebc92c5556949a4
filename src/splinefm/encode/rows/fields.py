"""Fitted fields as compiled code reads them, one row at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from splinefm._core import RowEncoder
from splinefm.encode.fields.cells import MULTIPLIERS, PRIME
from splinefm.encode.fields.cross import Cross
from splinefm.encode.rows.plans import (
    CrossPlan,
    ListPlan,
    NamesPlan,
    NumberPlan,
    SlowPlan,
    add_number,
    plan_field,
)
from splinefm.encode.rows.readers import (
    ASK,
    NO_FEATURE,
    Reader,
    category_reader,
    cross_reader,
    list_reader,
    number_reader,
    part_reader,
    slow_reader,
    unseen_feature,
)
from splinefm.encode.schema import Field


class RowFields:
    """Fields that encode single rows.

    Parameters
    ----------
    fields : sequence of fields
        Fitted fields, in the order of the model.
    first_features : sequence of int
        The first feature of each.

    Attributes
    ----------
    columns, readers : tuples
        For `RowEncoder`: the column of each field, of a cross that of each part, and what reads values that compiled
        code does not.
    slow : tuple of str
        Numerical fields and crosses that are not compiled.

    Examples
    --------
    >>> from splinefm.encode.fields.numerical import Numerical
    >>> from splinefm.encode.transforms.scaling import MinMax
    >>> from splinefm.encode.bases.splines import BSpline
    >>> fields = RowFields([Numerical("x", MinMax(low=0.0, high=1.0), BSpline(1, degree=1))], [0])
    >>> features, weights, _, _ = fields.encoder.encode({"x": 0.25}, fields.columns, fields.readers)
    >>> features.tolist(), weights.tolist()
    ([1, 2], [0.75, 0.25])
    """

    def __init__(self, fields: Sequence[Field], first_features: Sequence[int]) -> None:
        self.encoder = RowEncoder()
        self.slow: tuple[str, ...] = ()
        self.columns = tuple(name for item in fields for name in item.columns)
        self.readers: tuple[Reader, ...] = ()
        for item, first in zip(fields, first_features, strict=True):
            plan = plan_field(item, first)
            if isinstance(plan, SlowPlan):
                self.slow = (*self.slow, item.name)
                self.readers += self._add_slow(plan)
            elif isinstance(plan, CrossPlan):
                self.readers += add_cross(self.encoder, plan)
            else:
                self.readers += (self._add(plan),)

    def _add(self, plan: NumberPlan | NamesPlan | ListPlan) -> Reader:
        item, first = plan.item, plan.first
        if isinstance(plan, NamesPlan):
            self.encoder.add_names(*_names(plan, unseen_feature(plan.item, first)))
            return category_reader(plan.item, first)
        if isinstance(plan, ListPlan):
            apart = item.reduction == "identity"
            if plan.item.separator is None:
                names = _names(plan.elements, unseen_feature(plan.elements.item, first))
                self.encoder.add_lists(*names, length=plan.length, averages=item.reduction == "mean", apart=apart)
            else:  # Python strips the white space around names
                self.encoder.add_given(plan.length, apart)
            return list_reader(plan.item, first)
        add_number(self.encoder, plan)
        return number_reader(plan.item)

    def _add_slow(self, plan: SlowPlan) -> tuple[Reader, ...]:
        item, first, length = plan.item, plan.first, sum(plan.item.layout.widths)
        if isinstance(item, Cross):
            self.encoder.add_given(length, False, len(item.fields))
            return (cross_reader(item, first),) * len(item.fields)
        self.encoder.add_given(length, item.reduction == "identity")
        return (slow_reader(item, first),)


def add_cross(encoder: RowEncoder, plan: CrossPlan) -> tuple[Reader, ...]:
    """Add a cross, whose parts are the fields of an encoder of their own; a reader for each."""
    parts = RowEncoder()
    readers: list[Reader] = []
    for part in plan.parts:
        if isinstance(part, NamesPlan):
            parts.add_names(*_names(part, ASK if part.unseen == "error" else NO_FEATURE))
            readers.append(part_reader(part.item))
        else:
            add_number(parts, part)
            readers.append(number_reader(part.item))
    encoder.add_cross(
        first=plan.first,
        parts=parts,
        sizes=plan.sizes,
        cells=plan.cells,
        buckets=plan.item.buckets or 0,
        multipliers=np.array(MULTIPLIERS[: len(plan.item.categories)], np.int64),
        prime=PRIME,
    )
    return tuple(readers)


def _names(plan: NamesPlan, unseen: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8], int, int, int]:
    """Names of a field, the features of the first of them, of those that are unseen, and of missing values."""
    unseen = unseen if plan.item.spelling == "text" else ASK  # it may be another spelling
    return *plan.names, plan.first_name, unseen, ASK if plan.missing is None else plan.missing
