"""The loops of a search through a catalog, on raw arrays. Importing this module loads Numba.

Items are columns of *panels*: `panels[p, j, c]` is number j of the vector of row p * size + c. Products with a query
are then sums of whole lines, four at a time, and memory is read in long runs. A row that is not in use has the offset
-inf, so that it is never among the best. Scores are compared with the least that still matters as soon as a panel has
them: they never leave the cache.
"""

# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from splinefm.model.compiled import compiled

LANES = 64  # scores that are compared at a time
TILE = 1024  # columns of a panel that a batch of queries shares
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "error_model": "numpy",
    # Fused products, but in the order that is written: equal items must have equal scores wherever they are stored.
    "fastmath": {"contract"},
}
_compiled = compiled("use/ranking_kernels", **OPTIONS)
_ZERO = np.float32(0.0)
_LOWEST = np.finfo(np.float32).min
_MORE = 128  # rows beyond k that are worth sorting out, at least


class Items(NamedTuple):
    """The catalog: panels, scales (empty unless the panels are int8), offsets, and rows that may be in use.

    The number of rows is a multiple of `LANES`: loops without a rest give equal items equal scores.
    """

    panels: Any
    scales: Any
    offsets: Any
    n_rows: int


class Filter(NamedTuple):
    """Which rows may be found: `keep[row]`, and `wanted[codes[row]]`; an empty array lets all pass."""

    keep: Any
    codes: Any
    wanted: Any


class Found(NamedTuple):
    """The best rows so far of every query, in no order, and from which score on a row joins them.

    All rows with the k-th best score are kept as well, as long as there is room; `spilled` is the score of which some
    were left out.
    """

    scores: Any  # (queries, room)
    rows: Any  # (queries, room)
    count: Any
    limit: Any  # from which count on the best are sorted out: soon, since that raises `least`
    least: Any
    spilled: Any


def make_found(n_queries: int, k: int, room: int) -> Found:
    """Nothing found yet, of k rows that are asked for; there must be room for more."""
    return Found(
        np.empty((n_queries, room), np.float32),
        np.empty((n_queries, room), np.int64),
        np.zeros(n_queries, np.int64),
        np.full(n_queries, min(room, k + max(k, _MORE)), np.int64),
        np.full(n_queries, _LOWEST, np.float32),
        np.full(n_queries, np.nan, np.float32),
    )


def _as_float(typing: Any, stored: Any) -> Any:
    """A stored number as float32: half floats come as uint16, which Numba can hold."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        (value,) = arguments
        if signature.args[0] == types.uint16:
            return builder.fpext(builder.bitcast(value, ir.HalfType()), ir.FloatType())
        return builder.sitofp(value, ir.FloatType()) if signature.args[0] == types.int8 else value

    return types.float32(stored), generate


_number: Any = intrinsic(_as_float)


@njit(**OPTIONS)
def place(index: int) -> Any:
    """An index that cannot be negative: what might count from the end keeps a loop from being vectorized."""
    return np.uintp(index)


@njit(**OPTIONS)
def multiply(panels: Any, p: int, width: int, query: Any, out: Any) -> None:
    """out = Σ_j query_j panels[p, j]."""
    out[:width] = _ZERO
    length = panels.shape[1]
    whole = length - length % 4
    for j in range(0, whole, 4):
        a, b, c, d = query[j], query[j + 1], query[j + 2], query[j + 3]
        for i in range(width):
            first = a * _number(panels[p, j, i]) + b * _number(panels[p, j + 1, i])
            out[i] += first + (c * _number(panels[p, j + 2, i]) + d * _number(panels[p, j + 3, i]))
    for j in range(whole, length):
        a = query[j]
        for i in range(width):
            out[i] += a * _number(panels[p, j, i])


@njit(**OPTIONS)
def _unpack(panels: Any, p: int, first: int, width: int, tile: Any) -> None:
    """tile[j] = a piece of panels[p, j], as float32 and close together, for queries that share it."""
    for j in range(panels.shape[1]):
        for i in range(width):
            tile[j, i] = _number(panels[p, j, place(first + i)])


@njit(**OPTIONS)
def _multiply_two(tile: Any, width: int, one: Any, two: Any, out: Any, out_two: Any) -> None:
    """The products of two queries with a tile, which is read once for both."""
    out[:width] = _ZERO
    out_two[:width] = _ZERO
    length = tile.shape[0]
    whole = length - length % 4
    for j in range(0, whole, 4):
        a, b, c, d = one[j], one[j + 1], one[j + 2], one[j + 3]
        e, f, g, h = two[j], two[j + 1], two[j + 2], two[j + 3]
        for i in range(width):
            t, u, v, w = tile[j, i], tile[j + 1, i], tile[j + 2, i], tile[j + 3, i]
            out[i] += (a * t + b * u) + (c * v + d * w)
            out_two[i] += (e * t + f * u) + (g * v + h * w)
    for j in range(whole, length):
        a, e = one[j], two[j]
        for i in range(width):
            out[i] += a * tile[j, i]
            out_two[i] += e * tile[j, i]


@njit(**OPTIONS)
def finish(products: Any, width: int, scales: Any, offsets: Any, constant: Any, first: int) -> None:
    """Products with rows from `first` on become scores."""
    if len(scales) > 0:
        for i in range(width):
            row = place(first + i)
            products[i] = products[i] * scales[row] + (offsets[row] + constant)
    else:
        for i in range(width):
            products[i] = products[i] + (offsets[place(first + i)] + constant)


@njit(**OPTIONS)
def _any_from(scores: Any, at: int, least: Any) -> Any:
    """Whether one of `LANES` scores is that large."""
    hits = np.int32(0)
    for i in range(LANES):
        hits |= np.int32(scores[place(at + i)] >= least)
    return hits > 0


@njit(**OPTIONS)
def passes(keep: Any, codes: Any, wanted: Any, row: int) -> bool:
    if len(keep) > 0 and keep[row] == 0:
        return False
    return len(wanted) == 0 or (codes[row] >= 0 and wanted[codes[row]] != 0)


@njit(**OPTIONS)
def _compact(found: Any, query: int, k: int) -> None:
    """Keep the k best rows of a query and those that are as good as the last of them."""
    scores, rows, count = found.scores[query], found.rows[query], found.count[query]
    kth = np.partition(scores[:count], count - k)[count - k]
    n_above, n_equal = 0, 0
    for i in range(count):
        n_above += scores[i] > kth
        n_equal += scores[i] == kth
    # Half of the room must be free afterwards, or the next row would bring the next compaction.
    if n_above + n_equal > k + (len(scores) - k) // 2:
        n_equal = k - n_above
        found.spilled[query] = kth
    found.least[query] = np.nextafter(kth, np.float32(np.inf)) if found.spilled[query] == kth else kth
    kept = 0
    for i in range(count):
        tied = scores[i] == kth
        if scores[i] > kth or (tied and n_equal > 0):
            n_equal -= tied
            scores[kept], rows[kept] = scores[i], rows[i]
            kept += 1
    found.count[query] = kept
    found.limit[query] = min(len(scores), kept + max(k, _MORE))


@njit(**OPTIONS)
def collect(scores: Any, width: int, first: int, only: Any, found: Any, query: int, k: int) -> None:
    """Add those of rows first .. first + width - 1 that may be among the best."""
    least = found.least[query]
    for at in range(0, width, LANES):
        if not _any_from(scores, at, least):
            continue
        for i in range(at, at + LANES):
            if scores[i] >= least and passes(only.keep, only.codes, only.wanted, first + i):
                if found.count[query] == found.limit[query]:
                    _compact(found, query, k)
                    least = found.least[query]
                    if scores[i] < least:
                        continue
                found.scores[query, found.count[query]] = scores[i]
                found.rows[query, found.count[query]] = first + i
                found.count[query] += 1


@_compiled
def search(items: Any, visit: Any, query: Any, constant: Any, only: Any, k: int, found: Any) -> None:
    """The best k rows of the panels to visit, for one query."""
    size = items.panels.shape[2]
    scores = np.empty(size, np.float32)
    for p in visit:
        first = p * size
        width = min(size, items.n_rows - first)
        multiply(items.panels, p, width, query, scores)
        finish(scores, width, items.scales, items.offsets, constant, first)
        collect(scores, width, first, only, found, 0, k)


@_compiled
def search_batch(items: Any, visit: Any, queries: Any, constants: Any, only: Any, k: int, found: Any) -> None:
    """The best k rows of the panels to visit, for an even number of queries."""
    length, size = items.panels.shape[1:]
    tile = np.empty((length, TILE), np.float32)
    one, two = np.empty(TILE, np.float32), np.empty(TILE, np.float32)
    for p in visit:
        for at in range(0, min(size, items.n_rows - p * size), TILE):
            first = p * size + at
            width = min(TILE, size - at, items.n_rows - first)
            _unpack(items.panels, p, at, width, tile)
            for q in range(0, len(queries), 2):
                _multiply_two(tile, width, queries[q], queries[q + 1], one, two)
                finish(one, width, items.scales, items.offsets, constants[q], first)
                collect(one, width, first, only, found, q, k)
                finish(two, width, items.scales, items.offsets, constants[q + 1], first)
                collect(two, width, first, only, found, q + 1, k)


@_compiled
def ties(items: Any, visit: Any, query: Any, constant: Any, only: Any, score: Any, out: Any) -> int:
    """Write all rows of one score to `out`, and return their number."""
    size = items.panels.shape[2]
    scores = np.empty(size, np.float32)
    count = 0
    for p in visit:
        first = p * size
        width = min(size, items.n_rows - first)
        multiply(items.panels, p, width, query, scores)
        finish(scores, width, items.scales, items.offsets, constant, first)
        for i in range(width):
            if scores[i] == score and passes(only.keep, only.codes, only.wanted, first + i):
                out[count] = first + i
                count += 1
    return count


@_compiled
def insert_ids(words: Any, rows: Any, table: Any) -> Any:
    """Enter rows into a hash table of the ids `words`; the first row whose id was there already, or -1."""
    mask = len(table) - 1
    repeated = -1
    for row in rows:
        at, known = _hash(words[row]) & mask, False
        while table[at] != -1 and not known:
            known = table[at] >= 0 and _same(words[table[at]], words[row])
            at = at if known else (at + 1) & mask
        if known:
            repeated = row if repeated < 0 else repeated
        else:
            table[at] = row
    return repeated


@_compiled
def find_ids(words: Any, table: Any, wanted: Any, out: Any) -> None:
    """out = the rows of the ids `wanted`, -1 where there is none."""
    mask = len(table) - 1
    for i in range(len(wanted)):
        at = _hash(wanted[i]) & mask
        out[i] = -1
        while table[at] != -1:
            if table[at] >= 0 and _same(words[table[at]], wanted[i]):
                out[i] = table[at]
                break
            at = (at + 1) & mask


@_compiled
def erase_ids(words: Any, rows: Any, table: Any) -> None:
    """Take rows out of a hash table; their places stay taken (-2), so that others are still found."""
    mask = len(table) - 1
    for row in rows:
        at = _hash(words[row]) & mask
        while table[at] != row and table[at] != -1:
            at = (at + 1) & mask
        if table[at] == row:
            table[at] = -2


@njit(**OPTIONS)
def _hash(words: Any) -> Any:
    mixed = np.uint64(0x9E3779B97F4A7C15)
    for word in words:
        mixed = (mixed ^ word) * np.uint64(0xD6E8FEB86659FD93)
        mixed ^= mixed >> np.uint64(32)
    return np.int64(mixed >> np.uint64(1))


@njit(**OPTIONS)
def _same(one: Any, two: Any) -> bool:
    equal = True
    for i in range(len(one)):
        equal &= one[i] == two[i]
    return equal
