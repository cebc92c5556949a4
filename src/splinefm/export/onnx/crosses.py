"""Crosses in ONNX graphs: the combination of the categories by a joined key, products of the functions of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splinefm._arrays import Array
from splinefm.encode.fields.cells import MULTIPLIERS, PRIME
from splinefm.encode.fields.cross import Cross
from splinefm.export.onnx.bases import GraphWindow, graph_windows
from splinefm.export.onnx.categories import OUTSIDE, category_feature
from splinefm.export.onnx.inputs import ColumnInput
from splinefm.export.onnx.numbers import number_token, read_number

if TYPE_CHECKING:
    from splinefm.export.onnx.graph import Graph


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
        # What is missing where it may not be gets a token that the field does not have.
        token = number_token(g, part, x, part.n_tokens)
        rows = rows._replace(inside=_both(g, rows.inside, g("Less", token, 0)))
        if part.missing_token is None:
            rows = rows._replace(refused=_either(g, rows.refused, g("GreaterOrEqual", token, part.n_tokens)))
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
            refused = _either(g, refused, g("GreaterOrEqual", features[-1], OUTSIDE))
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


def _both(g: Graph, one: str | None, other: str) -> str:
    return other if one is None else g("And", one, other)


def _either(g: Graph, one: str | None, other: str) -> str:
    return other if one is None else g("Or", one, other)
