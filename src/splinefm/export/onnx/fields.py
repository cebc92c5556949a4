"""Fields in ONNX graphs: each becomes a tensor of shape (N, units, 1 + width), with the linear weights first.

Several outputs have 1 + width columns each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splinefm._arrays import Array
from splinefm.encode.fields.categorical import Categorical, MultiValued
from splinefm.encode.fields.cross import MULTIPLIERS, PRIME, Cross
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.tables.spelling import other_spellings
from splinefm.export.onnx.bases import GraphWindow, graph_windows
from splinefm.export.onnx.inputs import NO_INTEGER, ColumnInput, list_length
from splinefm.export.onnx.transforms import count_up_to, date_part
from splinefm.model.family.parameters import each_output
from splinefm.train.fitted import Fitted

if TYPE_CHECKING:
    from splinefm.export.onnx.graph import Graph


_COMPARE = {"<=": "LessOrEqual", ">=": "GreaterOrEqual", "==": "Equal", "<": "Less", ">": "Greater"}


def read_number(g: Graph, item: Numerical) -> str:
    """The numbers of a field, NaN where missing."""
    x = g.input(item.column, np.float64, ("N",))
    return x if item.part is None else date_part(g, x, item.part)


def number_token(g: Graph, item: Numerical, x: str, refused: int) -> str:
    """The token of each value, or -1; `refused` for a missing value, or one out of range, where it is an error."""
    missing = refused if item.missing_token is None else item.missing_token
    token = g("Where", g("IsNaN", x), missing, -1)
    if item.outside != "clip":
        low, high = item.value_limits
        beyond = g("Or", g("Less", x, low), g("Greater", x, high))
        token = g("Where", beyond, refused if item.outside == "error" else missing, token)
    for position, rule in reversed(list(enumerate(item.rules))):
        token = g("Where", g(_COMPARE[rule.sign], x, rule.number), position, token)
    return token


OUTSIDE = 1 << 40
"""A feature that no table has: looking it up is an error, as ONNX defines it."""


def category_feature(g: Graph, item: Categorical, given: ColumnInput, unseen: int) -> str:
    """The feature of each value inside the field; `unseen` for a value of no category."""
    column = g.input(item.column, given.dtype, ("N",))
    if given.dtype is np.float64:
        return _numbers(g, item, column, unseen)
    known = category_keys(item, given)
    return g.look_up(column, list(known), list(known.values()), unseen)


def category_keys(item: Any, given: ColumnInput) -> dict[Any, int]:
    """The missing value and all spellings of the categories of a field, or of the elements of its lists: features."""
    names = item.vocabulary.names.to_pylist()
    features = range(item.n_tokens, item.n_tokens + len(names))
    missing = OUTSIDE if item.missing_token is None else item.missing_token
    if given.dtype is np.int64:
        return {NO_INTEGER: missing, **dict(zip(map(int, names), features, strict=True))}
    known = {given.missing: missing, **dict(zip(names, features, strict=True))}
    for name in names:
        for other in other_spellings(name, item.spelling):
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


class _Rows(NamedTuple):
    """Rows of data: which combination of categories each has, and whether there is one; None stands for all."""

    cell: str | None
    inside: str | None
    refused: str | None
    """Values that the encoder refuses, whose features do not exist."""


def cross_units(g: Graph, item: Cross, table: Array, inputs: Mapping[str, ColumnInput]) -> str:
    """The vector of the cross, shape (N, 1, 1 + width); zero where a row has no features."""
    rows = _cells(g, item, inputs)
    windows: list[list[GraphWindow]] = []
    for i in item.numbers:
        part = item.number(i)
        x = read_number(g, part)
        # A missing value that the field refuses gets a token that the field does not have.
        token = number_token(g, part, x, part.n_tokens)
        rows = rows._replace(inside=_logical_and(g, rows.inside, g("Less", token, 0)))
        if part.missing_token is None or part.outside == "error":
            rows = rows._replace(refused=_logical_or(g, rows.refused, g("GreaterOrEqual", token, part.n_tokens)))
        windows.append(graph_windows(g, part, g("Where", g("GreaterOrEqual", token, 0), 0.0, x)))
    first: Any = 0
    if rows.cell is not None:
        first = rows.cell if rows.inside is None else g("Where", rows.inside, rows.cell, 0)
    if rows.refused is not None:
        first = g("Where", rows.refused, OUTSIDE, first)
    units = _products(g, item, table, first, windows)
    if rows.inside is None:
        return units
    return g("Where", g("Unsqueeze", rows.inside, np.array([1, 2])), units, np.float32(0.0))


def _products(g: Graph, item: Cross, table: Array, first: Any, windows: list[list[GraphWindow]]) -> str:
    """The sum of the vectors of all products of functions, over all resolutions, in the block of a combination."""
    if not windows:
        return g("Unsqueeze", g("Gather", table, first), np.array([1]))
    begin = first if isinstance(first, int) else g("Unsqueeze", g("Mul", first, item.block), np.array([1]))
    total, offset = "", 0
    for level, sizes in enumerate(item.level_sizes):
        index: Any = None
        weight: Any = None
        for levels, size in zip(windows, sizes, strict=True):
            one, values = _functions(g, levels, level)
            if index is None:
                index, weight = one, values
                continue
            wide = g("Add", g("Mul", g("Unsqueeze", index, np.array([2])), size), g("Unsqueeze", one, np.array([1])))
            index = g("Flatten", wide, axis=1)
            product = g("Mul", g("Unsqueeze", weight, np.array([2])), g("Unsqueeze", values, np.array([1])))
            weight = g("Flatten", product, axis=1)
        features = g("Add", index, offset) if isinstance(begin, int) else g("Add", g("Add", index, begin), offset)
        rows = g("Gather", table, features)
        part = g("ReduceSum", g("Mul", rows, g("Unsqueeze", weight, np.array([2]))), np.array([1]))
        total = g("Add", total, part) if total else part
        offset += math.prod(sizes)
    return total


def _functions(g: Graph, levels: list[GraphWindow], level: int) -> tuple[str, str]:
    """Functions of a number at one resolution, counted from 0, and their weights; both of shape (N, width)."""
    window = levels[min(level, len(levels) - 1)]
    functions = window.functions - window.functions.min()
    if window.weight is None:  # a step
        index = g("Unsqueeze", g("Gather", functions, str(window.start)), np.array([1]))
        return index, g("Add", g("Mul", g.cast(index, np.float32), np.float32(0.0)), np.float32(1.0))
    if window.start is None:
        zero = g("Mul", g.cast(window.weight, np.int64), 0)
        return g("Add", zero, functions[None]), window.weight
    at = g("Add", g("Unsqueeze", window.start, np.array([1])), np.arange(window.width)[None])
    return g("Gather", functions, at), window.weight


def _cells(g: Graph, item: Cross, inputs: Mapping[str, ColumnInput]) -> _Rows:
    if not item.categories:
        return _Rows(None, None, None)
    parts: list[Any] = [item.fields[i] for i in item.categories]
    sizes = [part.layout.n_features for part in parts]  # an unseen category is one more feature
    features, refused = [], None
    for part, size in zip(parts, sizes, strict=True):
        unseen = OUTSIDE if part.unseen == "error" else size
        features.append(category_feature(g, part, inputs[part.column], unseen))
        if part.unseen == "error" or part.missing == "error":
            refused = _logical_or(g, refused, g("GreaterOrEqual", features[-1], OUTSIDE))
    if item.buckets is not None:
        cell, inside = _bucket(g, item.buckets, features, sizes)
    else:
        cell = _kept(g, item, features, sizes)
        inside = g("GreaterOrEqual", cell, 0)
    return _Rows(cell, inside, refused)


def _kept(g: Graph, item: Cross, features: list[str], sizes: list[int]) -> str:
    """The position of each combination, -1 where it is not kept, by a key of all features."""
    if math.prod(size + 1 for size in sizes) >= 1 << 63:
        raise ValueError(
            f"cross {item.name!r}: the joined key of {' and '.join(f'{size:,}' for size in sizes)} categories does not "
            "fit into 64 bits, so that ONNX cannot look it up; raise min_count of its parts"
        )
    key = features[0]
    cells = np.zeros((0, len(sizes)), np.int64) if item.cells is None else item.cells.features.astype(np.int64)
    keys = cells[:, 0].copy()
    for part in range(1, len(sizes)):
        key = g("Add", g("Mul", key, sizes[part] + 1), features[part])
        keys = keys * (sizes[part] + 1) + cells[:, part]
    known = dict(zip(keys.tolist(), range(len(keys)), strict=True)) or {-1: -1}
    return g.look_up(key, list(known), list(known.values()), -1)


def _bucket(g: Graph, buckets: int, features: list[str], sizes: list[int]) -> tuple[str, str]:
    """The hash of each combination, see `hash_cells`, and whether all categories are known."""
    total, inside = "", ""
    for feature, size, multiplier in zip(features, sizes, MULTIPLIERS, strict=False):
        known = g("Less", feature, size)
        more = g("Mul", g("Add", g("Where", known, feature, 0), 1), multiplier)
        total = g("Mod", g("Add", total, more) if total else more, PRIME)
        inside = g("And", inside, known) if inside else known
    return g("Mod", total, buckets), inside


def _logical_and(g: Graph, one: str | None, other: str) -> str:
    return other if one is None else g("And", one, other)


def _logical_or(g: Graph, one: str | None, other: str) -> str:
    return other if one is None else g("Or", one, other)


def field_units(g: Graph, fitted: Fitted, f: int, inputs: Mapping[str, ColumnInput]) -> str:
    item: Any = fitted.encoder.fields[f]
    first, last = fitted.encoder.layout.feature_ptr[f : f + 2]
    # The columns of several outputs are adjacent, so that features are looked up once.
    own = [(params["linear"][first:last, None], params["factors"][first:last]) for params in each_output(fitted.params)]
    table = np.concatenate([part for pair in own for part in pair], axis=1)
    with g.scope(item.name):
        if item.is_numerical:
            return _numerical(g, item, table)
        if f in fitted.encoder.crosses:
            return cross_units(g, item, table, inputs)
        # The last row is for categories that have no effect.
        table = np.concatenate([table, np.zeros_like(table[:1])])
        given, unseen = inputs[item.column], _unseen(item, len(table) - 1)
        if item.holds_lists:
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
    return {"rare": item.first_unseen, "neutral": nothing}.get(item.unseen, OUTSIDE)
