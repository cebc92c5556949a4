"""Fields in ONNX graphs: each becomes a tensor of shape (N, units, 1 + width), with the linear weights first.

Several outputs have 1 + width columns each.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from splinefm._arrays import Array
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.multivalued import MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.export.onnx.bases import GraphWindow, graph_windows
from splinefm.export.onnx.categories import OUTSIDE, category_feature, category_keys
from splinefm.export.onnx.crosses import cross_units
from splinefm.export.onnx.inputs import ColumnInput, list_length
from splinefm.export.onnx.numbers import number_token, read_number
from splinefm.model.family.parameters import each_output
from splinefm.train.fitted import Fitted

if TYPE_CHECKING:
    from splinefm.export.onnx.graph import Graph


def field_units(g: Graph, fitted: Fitted, f: int, inputs: Mapping[str, ColumnInput]) -> str:
    item: Any = fitted.encoder.fields[f]
    first, last = fitted.encoder.layout.feature_ptr[f : f + 2]
    # The columns of several outputs lie beside each other, so that features are looked up once.
    own = [(params["linear"][first:last, None], params["factors"][first:last]) for params in each_output(fitted.params)]
    table = np.concatenate([part for pair in own for part in pair], axis=1)
    with g.scope(item.name):
        if isinstance(item, Numerical):
            return _numerical(g, item, table)
        if isinstance(item, Cross):
            return cross_units(g, item, table, inputs)
        # The last row is that of categories that count for nothing.
        table = np.concatenate([table, np.zeros_like(table[:1])])
        given, unseen = inputs[item.column], _unseen(item, len(table) - 1)
        if isinstance(item, MultiValued):
            return _multi_valued(g, item, table, given, unseen)
        return g("Unsqueeze", g("Gather", table, category_feature(g, item, given, unseen)), np.array([1]))


def _numerical(g: Graph, item: Numerical, table: Array) -> str:
    x = read_number(g, item)
    tokens, functions = np.split(table, [item.n_tokens])
    n_units = max(item.layout.units) + 1
    # A token is the first unit of its field, alone. There is a row even if there are no tokens: no graph lacks one.
    rows = np.zeros((max(1, len(tokens)), n_units, table.shape[1]), np.float32)
    rows[: len(tokens), 0] = tokens
    token = number_token(g, item, x, len(rows))  # refused: outside of the table
    is_token = g("GreaterOrEqual", token, 0)
    ordinary = g("Where", is_token, 0.0, x)
    identity = item.reduction == "identity"
    parts = [_window(g, functions[window.functions], window, identity) for window in graph_windows(g, item, ordinary)]
    units = parts[0]
    if identity:
        units = g("Concat", *parts, axis=1)
    else:
        for part in parts[1:]:
            units = g("Add", units, part)
    of_token = g("Gather", rows, g("Where", is_token, token, 0))
    return g("Where", g("Unsqueeze", is_token, np.array([1, 2])), of_token, units)


def _window(g: Graph, table: Array, window: GraphWindow, identity: bool) -> str:
    """Vectors of functions times their weights, summed or as a unit each: shape (N, units, 1 + width)."""
    start, weight = window.start, window.weight
    if weight is None:  # a step: one row
        return g("Unsqueeze", g("Gather", table, str(start)), np.array([1]))
    if start is None and not identity:
        return g("Unsqueeze", g("MatMul", weight, table), np.array([1]))
    rows: str | Array = table[None]
    if start is not None:
        rows = g("Gather", table, g("Add", g("Unsqueeze", start, np.array([1])), np.arange(window.width)[None]))
    weighted = g("Mul", rows, g("Unsqueeze", weight, np.array([2])))
    return weighted if identity else g("ReduceSum", weighted, np.array([1]))


def _multi_valued(g: Graph, item: MultiValued, table: Array, given: ColumnInput, unseen: int) -> str:
    length, nothing = list_length(item), len(table) - 1
    identity = item.reduction == "identity"
    column = g.input(item.column, object, ("N", length if identity else f"length of {item.name}"))
    known = {**category_keys(item, given), "": nothing}  # no element is ever empty
    row = g.look_up(column, list(known), list(known.values()), unseen)
    if identity:
        return g("Gather", table, row)
    count = g("CumSum", g.look_up(column, [""], [0], 1), 1)
    row = g("Where", g("LessOrEqual", count, length), row, nothing)
    total = g("ReduceSum", g("Gather", table, row), np.array([1]))
    if item.reduction == "sum":
        return total
    every = g("Gather", count, np.array([-1]), axis=1)
    divisor = g.cast(g("Clip", every, 1, length), np.float32)
    return g("Div", total, g("Unsqueeze", divisor, np.array([2])))


def _unseen(item: Categorical | MultiValued, nothing: int) -> int:
    """The row of categories that are in no vocabulary."""
    return {"rare": item.elements.first_unseen, "neutral": nothing}.get(item.unseen, OUTSIDE)
