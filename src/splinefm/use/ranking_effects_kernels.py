"""The loops of a search through items that are table rows, on raw arrays. Importing this module loads Numba.

The layout is that of `ranking_kernels`: items are columns of panels, here of the places and weights of their windows.
Window by window, the effects of a panel's items are looked up and summed. The places in a panel's line are read one
after the other, and the effects of a field, which have no order, lie close together in a cache.

Places may come from a file that is mapped into memory and not verified: they are cut off at the end of the effects.
"""

# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from splinefm.model.compiled import compiled
from splinefm.model.vectors import add, axpy, load, store
from splinefm.use.ranking_kernels import OPTIONS, collect, finish, multiply, passes, place

FIRST, LAST, WIDTH, PLACE = range(4)  # of a window: effects, the largest place, weights, and where these are (-1: none)
TOGETHER = 8  # queries whose effects of a row are neighbors
TILE = 512  # items that they share, as many as the first cache has room for
_KT = (0,) * TOGETHER
_compiled = compiled("use/ranking_effects_kernels use/ranking_kernels model/pointers model/vectors", **OPTIONS)
_ZERO = np.float32(0.0)


class Items(NamedTuple):
    """The catalog: places and weights in panels, the windows, offsets, and rows that may be in use (see there)."""

    starts: Any
    weights: Any
    windows: Any
    offsets: Any
    n_rows: int


@_compiled
def row_effects(panels: Any, n_rows: int, queries: Any, out: Any) -> None:
    """out[row, q] = queries[q] · the numbers of the row."""
    size = panels.shape[2]
    products = np.empty(size, np.float32)
    for first in range(0, n_rows, size):
        width = min(size, n_rows - first)
        for q in range(len(queries)):
            multiply(panels, first // size, width, queries[q], products)
            for i in range(width):
                out[first + i, q] = products[i]


@njit(**OPTIONS)
def _at(starts: Any, i: int, first: int, last: int) -> Any:
    """Where the effect of a window's first row is."""
    return place(first) + place(min(np.uint32(starts[place(i)]), np.uint32(last)))


@njit(**OPTIONS)
def _add(starts: Any, first: int, last: int, effects: Any, out: Any) -> None:
    """Effects of rows whose weights are 1."""
    for i in range(len(out)):
        out[i] += effects[_at(starts, i, first, last)]


@njit(**OPTIONS)
def _add_weighted(starts: Any, weights: Any, first: int, last: int, effects: Any, out: Any) -> None:
    """Effects of rows with weights."""
    for i in range(len(out)):
        out[i] += weights[i] * effects[_at(starts, i, first, last)]


@njit(**OPTIONS)
def _add_four(starts: Any, weights: Any, j: int, first: int, last: int, effects: Any, out: Any) -> None:
    """Effects of four neighboring rows with weights, the windows of cubic splines: places are looked up once."""
    a, b, c, d = weights[j], weights[j + 1], weights[j + 2], weights[j + 3]
    for i in range(len(out)):
        at = _at(starts, i, first, last)
        one = a[i] * effects[at] + b[i] * effects[at + place(1)]
        out[i] += one + (c[i] * effects[at + place(2)] + d[i] * effects[at + place(3)])


@njit(**OPTIONS)
def _sum(items: Any, p: int, effects: Any, out: Any) -> None:
    """out = Σ weight · effect over the windows of the items of a panel, as many as there are scores."""
    out[:] = _ZERO
    weights = items.weights[p]
    for w in range(len(items.windows)):
        starts = items.starts[p, w]
        first, last, width, at = items.windows[w]
        if at < 0:
            _add(starts, first, last, effects, out)
            continue
        whole = width - width % 4
        for j in range(0, whole, 4):
            _add_four(starts, weights, at + j, first + j, last, effects, out)
        for j in range(whole, width):
            _add_weighted(starts, weights[at + j], first + j, last, effects, out)


@_compiled
def search(items: Any, visit: Any, effects: Any, constant: Any, only: Any, k: int, found: Any) -> None:
    """The best k rows of the panels to visit, for one query."""
    size = items.starts.shape[2]
    scores = np.empty(size, np.float32)
    no_scales = np.empty(0, np.float32)
    for p in visit:
        first = p * size
        width = min(size, items.n_rows - first)
        _sum(items, p, effects, scores[:width])
        finish(scores, width, no_scales, items.offsets, constant, first)
        collect(scores, width, first, only, found, 0, k)


@_compiled
def ties(items: Any, visit: Any, effects: Any, constant: Any, only: Any, score: Any, out: Any) -> int:
    """Write all rows of one score to `out`, and return their number."""
    size = items.starts.shape[2]
    scores = np.empty(size, np.float32)
    no_scales = np.empty(0, np.float32)
    count = 0
    for p in visit:
        first = p * size
        width = min(size, items.n_rows - first)
        _sum(items, p, effects, scores[:width])
        finish(scores, width, no_scales, items.offsets, constant, first)
        for i in range(width):
            if scores[i] == score and passes(only.keep, only.codes, only.wanted, first + i):
                out[count] = first + i
                count += 1
    return count


@njit(**OPTIONS)
def _sum_together(items: Any, p: int, begin: int, effects: Any, tile: Any) -> None:
    """tile[i] = Σ weight · effect of item `begin` + i of a panel, for `TOGETHER` queries at once."""
    tile[:] = _ZERO
    width = len(tile) // TOGETHER
    for w in range(len(items.windows)):
        starts = items.starts[p, w, begin : begin + width]
        first, last, n_weights, weight_at = items.windows[w]
        for i in range(width):
            at = np.int64(_at(starts, i, first, last)) * TOGETHER
            total = load(tile, i * TOGETHER, _KT)
            if weight_at < 0:
                total = add(total, load(effects, at, _KT))
            for j in range(n_weights if weight_at >= 0 else 0):
                weight = items.weights[p, weight_at + j, begin + i]
                total = axpy(weight, load(effects, at + j * TOGETHER, _KT), total)
            store(tile, i * TOGETHER, total)


@_compiled
def search_batch(items: Any, visit: Any, effects: Any, constants: Any, only: Any, k: int, found: Any) -> None:
    """The best k rows of the panels to visit, for `TOGETHER` queries."""
    size = items.starts.shape[2]
    flat = effects.reshape(effects.size)
    tile, scores = np.empty(TILE * TOGETHER, np.float32), np.empty(TILE, np.float32)
    no_scales = np.empty(0, np.float32)
    for p in visit:
        for begin in range(0, min(size, items.n_rows - p * size), TILE):
            first = p * size + begin
            width = min(TILE, size - begin, items.n_rows - first)
            _sum_together(items, p, begin, flat, tile[: width * TOGETHER])
            for q in range(TOGETHER):
                for i in range(width):
                    scores[i] = tile[place(i * TOGETHER + q)]
                finish(scores, width, no_scales, items.offsets, constants[q], first)
                collect(scores, width, first, only, found, q, k)
