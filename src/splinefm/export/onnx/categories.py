"""Categories in ONNX graphs: the feature of each value of a column of text, integers or numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.tables.spelling import other_spellings
from splinefm.export.onnx.inputs import NO_INTEGER, ColumnInput
from splinefm.export.onnx.pieces import count_up_to

if TYPE_CHECKING:
    from splinefm.export.onnx.graph import Graph

OUTSIDE = 1 << 40
"""A feature that no table has: looking it up is an error, as ONNX defines it."""


def category_feature(g: Graph, item: Categorical, given: ColumnInput, unseen: int) -> str:
    """The feature of each value inside the field; `unseen` for those of no category."""
    column = g.input(item.column, given.dtype, ("N",))
    if given.dtype is np.float64:
        return _numbers(g, item, column, unseen)
    known = category_keys(item, given)
    return g.look_up(column, list(known), list(known.values()), unseen)


def category_keys(item: Any, given: ColumnInput) -> dict[Any, int]:
    """The missing value and all spellings of the categories of a field, or of the elements of its lists: features."""
    elements: Categorical = item.elements
    names = elements.vocabulary.names.to_pylist()  # type: ignore[union-attr]  # fitted
    features = range(elements.n_tokens, elements.n_tokens + len(names))
    missing = OUTSIDE if elements.missing_token is None else elements.missing_token
    if given.dtype is np.int64:
        return {NO_INTEGER: missing, **dict(zip(map(int, names), features, strict=True))}
    known = {given.missing: missing, **dict(zip(names, features, strict=True))}
    for name in names:
        for other in other_spellings(name, elements.spelling):
            known.setdefault(other, known[name])
    return known


def _numbers(g: Graph, item: Categorical, x: str, unseen: int) -> str:
    """Categories that are numbers, in a column that other fields read as numbers."""
    names = item.vocabulary.names.to_pylist()  # type: ignore[union-attr]  # fitted
    numbers = np.array([float(name) for name in names])
    order = np.argsort(numbers)
    missing = OUTSIDE if item.missing_token is None else item.missing_token
    feature: Any = unseen
    if len(names):
        at = g("Max", g("Sub", count_up_to(g, x, numbers[order]), 1), 0)
        same = g("Equal", g("Gather", numbers[order], at), x)
        feature = g("Where", same, g("Gather", (item.n_tokens + order).astype(np.int64), at), unseen)
    return g("Where", g("IsNaN", x), missing, feature)
