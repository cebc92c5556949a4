"""The step of an FFM, whose vectors are so long that memory decides: row by row, all of a row while it is near.

S[f] is the sum of the unit vectors of field f, and S[f, e] what of it is meant for field e. The score of a row is
Σ_{f<e} S[f, e]' S[e, f], and the derivative by p_u[e] of a unit of field f is S[e, f], less p_u[f] if e = f.

Every weight of a batch has a *place*, where the gradient of its table row is added up. A table row that several shards
touch has a place for each of them, the next one pointing to the one before: so no two threads write to the same memory,
and the order of sums does not depend on threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from splinefm.model.pointers import behind
from splinefm.model.rows import set_slope, turn
from splinefm.model.threads import take, wait_for
from splinefm.model.units import AHEAD, inlined, kind_of, merged, start_of
from splinefm.model.vectors import add, axpy, column, fetch, fill, fma, join, load, number, scale, store, total

# What `touch.place` has for a weight of zero, and, from there on downward, for a place that is new and to be cleared.
NONE, NEW = -1, -2
_ZERO = np.float32(0.0)


@merged
def prepare_batch(data: Any, first: int, n: int, n_shards: int, memory: Any, counters: Any, at: int) -> None:
    """Columns and places of the n rows of a batch, from row `first` of all on."""
    shape, columns, work, touch = memory.shape, memory.columns, memory.work, memory.touch
    part = take(counters, at)
    while part < n_shards:
        begin = part * work.shard
        turn(data, first + begin, min(work.shard, n - begin), columns, begin)
        take(counters, at + 1)
        part = take(counters, at)
    wait_for(counters, at + 1, n_shards)
    field = take(counters, at + 2)
    while field < shape.n_fields:
        _give_places(shape, n, field, columns, work, touch)
        take(counters, at + 3)
        field = take(counters, at + 2)
    wait_for(counters, at + 3, shape.n_fields)


@merged
def _give_places(shape: Any, n: int, field: int, columns: Any, work: Any, touch: Any) -> None:
    """Places for the weights of a field, shard by shard."""
    begin = end = touch.ptr[field]
    next_shard = np.int64(0)
    for i in range(n):
        if i == next_shard:
            begin, next_shard = end, next_shard + work.shard
        for w in range(shape.window_ptr[field], shape.window_ptr[field + 1]):
            j, row = shape.weight_ptr[w], start_of(columns, i, w)
            if i + AHEAD < n:
                fetch(touch.slot, start_of(columns, i + AHEAD, w))
            for m in range(shape.weight_ptr[w + 1] - j):
                at, place = column(i, j + m, columns.n_weights), np.int64(NONE)
                if number(columns.weight, at) != _ZERO:
                    place = touch.slot[row + m]
                    if place < begin:  # none so far, or that of another shard
                        touch.before[end] = place
                        if place >= 0:
                            touch.rows[place] = -1  # its gradient goes to the next one
                        touch.rows[end] = row + m
                        touch.slot[row + m] = end
                        place = NEW - end
                        end += 1
                touch.place[at] = place
    touch.n_places[16 * field] = end - touch.ptr[field]


@inlined
def score_row(kt: Any, shape: Any, weights: Any, columns: Any, i: int, scratch: Any) -> Any:
    """Linear part and interactions of row i of the columns; its S is left in `scratch.P`.

    Where a field has several units their p_u[f] are left in `scratch.A`.
    """
    k, n_fields, T, S = len(kt), shape.n_fields, weights.T, scratch.P
    width, linear, score = n_fields * k, _ZERO, fill(_ZERO, kt)
    for u in range(shape.n_units):
        kind, field = kind_of(shape, u), shape.unit_field[u]
        if kind == 1:
            _fetch_row(T, start_of(columns, i + 1, shape.unit_ptr[u]) * width, width)
            fetch(weights.L, start_of(columns, i + 1, shape.unit_ptr[u]))
        linear += _linear_part(shape, weights.L, columns, i, u)
        is_first = u == 0 or shape.unit_field[u - 1] != field
        if not _only(shape, u):
            own = _part_of_unit(kt, shape, T, width, field * k, columns, i, u)
            store(scratch.A, u * k, own)
            if not is_first:
                score = fma(own, load(S, field * (width + k), kt), score)
        if kind == 4 and is_first:
            w = shape.unit_ptr[u]
            x = column(i, shape.weight_ptr[w], columns.n_weights)
            _set_four(kt, T, width, start_of(columns, i, w) * width, columns.weight, x, behind(S, field * width))
        else:
            _add_unit(kt, shape, T, width, columns, i, u, behind(S, field * width), is_first)
    return linear + total(score) + _pairs(kt, n_fields, S)


@merged
def _part_of_unit(kt: Any, shape: Any, T: Any, width: int, c: int, columns: Any, i: int, u: int) -> Any:
    """Numbers c .. c + k - 1 of p_u of row i, for any windows."""
    p = fill(_ZERO, kt)
    for w in range(shape.unit_ptr[u], shape.unit_ptr[u + 1]):
        at = start_of(columns, i, w) * width + c
        for j in range(shape.weight_ptr[w], shape.weight_ptr[w + 1]):
            p = axpy(number(columns.weight, column(i, j, columns.n_weights)), load(T, at, kt), p)
            at += width
    return p


@merged
def _linear_part(shape: Any, L: Any, columns: Any, i: int, u: int) -> Any:
    """Σ weight · linear weight of unit u of row i."""
    linear = _ZERO
    for w in range(shape.unit_ptr[u], shape.unit_ptr[u + 1]):
        row, x = start_of(columns, i, w), column(i, shape.weight_ptr[w], columns.n_weights)
        for m in range(shape.weight_ptr[w + 1] - shape.weight_ptr[w]):
            linear += number(columns.weight, x + 16 * m) * number(L, row + m)
    return linear


@merged
def _only(shape: Any, u: int) -> bool:
    """Whether a unit is the only one of its field."""
    field = shape.unit_field[u]
    before = u > 0 and shape.unit_field[u - 1] == field
    return not before and (u + 1 == shape.n_units or shape.unit_field[u + 1] != field)


@merged
def _fetch_row(x: Any, first: int, width: int) -> None:
    """Ask for a whole vector."""
    for at in range(first, first + width, 16):
        fetch(x, at)


@inlined
def _set_four(kt: Any, T: Any, width: int, at: int, weight: Any, x: int, S: Any) -> None:
    """S = the sum of four neighboring table rows times their weights, as those of a cubic spline."""
    x0, x1, x2, x3 = number(weight, x), number(weight, x + 16), number(weight, x + 32), number(weight, x + 48)
    for c in range(0, width, len(kt)):
        t = at + c
        s = axpy(x1, load(T, t + width, kt), scale(x0, load(T, t, kt)))
        s = axpy(x2, load(T, t + 2 * width, kt), s)
        store(S, c, axpy(x3, load(T, t + 3 * width, kt), s))


@inlined
def _add_unit(kt: Any, shape: Any, T: Any, width: int, columns: Any, i: int, u: int, S: Any, is_first: bool) -> None:
    """S = p_u for the first unit of a field, else S += p_u; a pass per weight."""
    wide, step, first = kt + kt + kt + kt, 4 * len(kt), is_first
    whole = width // step * step
    for w in range(shape.unit_ptr[u], shape.unit_ptr[u + 1]):
        at = start_of(columns, i, w) * width
        for j in range(shape.weight_ptr[w], shape.weight_ptr[w + 1]):
            x = number(columns.weight, column(i, j, columns.n_weights))
            for c in range(0, whole, step):
                s = fill(_ZERO, wide) if first else load(S, c, wide)
                store(S, c, axpy(x, load(T, at + c, wide), s))
            for c in range(whole, width, len(kt)):
                s = fill(_ZERO, kt) if first else load(S, c, kt)
                store(S, c, axpy(x, load(T, at + c, kt), s))
            first, at = False, at + width


@inlined
def _pairs(kt: Any, n_fields: int, S: Any) -> Any:
    """Σ_{f<e} S[f, e]' S[e, f]; sums of their own, since one addition would wait for the other."""
    k, two = len(kt), kt + kt
    width, a, b, rest = n_fields * k, fill(_ZERO, two), fill(_ZERO, two), fill(_ZERO, kt)
    for f in range(1, n_fields):
        e = 0
        while e + 4 <= f:
            row, turned = f * width + e * k, e * width + f * k
            a = fma(load(S, row, two), join(load(S, turned, kt), load(S, turned + width, kt)), a)
            turned += 2 * width
            b = fma(load(S, row + 2 * k, two), join(load(S, turned, kt), load(S, turned + width, kt)), b)
            e += 4
        while e < f:
            rest = fma(load(S, f * width + e * k, kt), load(S, e * width + f * k, kt), rest)
            e += 1
    return total(add(a, b)) + total(rest)


@merged
def step_rows(
    spec: Any, data: Any, total_weight: float, first: int, n: int, part: int, memory: Any, scratch: Any
) -> None:
    """Loss, slope and gradients of the rows of shard `part` of a batch of n rows, from row `first` of all on."""
    shape, weights, columns, work = memory.shape, memory.weights, memory.columns, memory.work
    for i in range(part * work.shard, min((part + 1) * work.shard, n)):
        score = weights.bias[0] + score_row(spec.kt, shape, weights, columns, i, scratch)
        set_slope(spec.loss, data, data.rows[first + i], np.float64(score), total_weight, work, i)
        _add_gradients(spec.kt, i, work.slopes[i], scratch, memory)


@inlined
def _add_gradients(kt: Any, i: int, slope: Any, scratch: Any, memory: Any) -> None:
    """The gradients of all table rows of row i."""
    shape, columns, touch = memory.shape, memory.columns, memory.touch
    width = touch.width
    for u in range(shape.n_units):
        _fetch_gradient(i, u + 2, memory)
        only = _only(shape, u)
        for w in range(shape.unit_ptr[u], shape.unit_ptr[u + 1]):
            j, end = shape.weight_ptr[w], shape.weight_ptr[w + 1]
            if only and j + 4 == end and _all_placed(columns, i, j, touch):
                _add_four(kt, shape.n_fields, i, j, shape.unit_field[u], slope, columns, scratch.P, touch)
            else:
                for at in range(column(i, j, columns.n_weights), column(i, end, columns.n_weights), 16):
                    if touch.place[at] != NONE:
                        factor = slope * number(columns.weight, at)
                        gradient = behind(touch.gradient, _ready(kt, width, at, factor, touch))
                        _add(kt, shape.n_fields, scratch, shape.unit_field[u], u, only, factor, gradient)


@merged
def _all_placed(columns: Any, i: int, j: int, touch: Any) -> bool:
    """Whether all of four weights have a place."""
    at, placed = column(i, j, columns.n_weights), True
    for m in range(4):
        place = touch.place[at + 16 * m]
        placed = placed and place != NONE
    return placed


@merged
def _ready(kt: Any, width: int, at: int, factor: Any, touch: Any) -> Any:
    """The place of a weight, cleared if it is new; the linear part is added."""
    place = touch.place[at]
    if place < 0:
        place = NEW - place
        _clear(kt, touch.gradient, place * width, width)
        touch.linear[place] = _ZERO
    touch.linear[place] += factor
    return place * width


@inlined
def _add_four(kt: Any, n_fields: int, i: int, j: int, field: int, slope: Any, columns: Any, S: Any, touch: Any) -> None:
    """The gradients of four weights of the only unit of a field together: what they have in common is read once."""
    k, at, G = len(kt), column(i, j, columns.n_weights), touch.gradient
    width, d = n_fields * k, field * k
    x0, x1 = slope * number(columns.weight, at), slope * number(columns.weight, at + 16)
    x2, x3 = slope * number(columns.weight, at + 32), slope * number(columns.weight, at + 48)
    g0, g1 = _ready(kt, width, at, x0, touch), _ready(kt, width, at + 16, x1, touch)
    g2, g3 = _ready(kt, width, at + 32, x2, touch), _ready(kt, width, at + 48, x3, touch)
    m0, m1, m2, m3 = load(G, g0 + d, kt), load(G, g1 + d, kt), load(G, g2 + d, kt), load(G, g3 + d, kt)
    for c in range(0, width, k):
        s = load(S, c * n_fields + field * k, kt)
        store(G, g0 + c, axpy(x0, s, load(G, g0 + c, kt)))
        store(G, g1 + c, axpy(x1, s, load(G, g1 + c, kt)))
        store(G, g2 + c, axpy(x2, s, load(G, g2 + c, kt)))
        store(G, g3 + c, axpy(x3, s, load(G, g3 + c, kt)))
    store(G, g0 + d, m0)
    store(G, g1 + d, m1)
    store(G, g2 + d, m2)
    store(G, g3 + d, m3)


@merged
def _fetch_gradient(i: int, u: int, memory: Any) -> None:
    """Ask for what the gradient of a unit goes to, if that is a single row: those of splines are near anyway."""
    shape, columns = memory.shape, memory.columns
    if u < shape.n_units and kind_of(shape, u) == 1:
        w, width = shape.unit_ptr[u], memory.touch.width
        place = memory.touch.place[column(i, shape.weight_ptr[w], columns.n_weights)]
        if place != NONE:
            _fetch_row(memory.touch.gradient, (place if place >= 0 else NEW - place) * width, width)


@merged
def _clear(kt: Any, x: Any, first: int, width: int) -> None:
    for at in range(first, first + width, len(kt)):
        store(x, at, fill(_ZERO, kt))


@inlined
def _add(kt: Any, n_fields: int, scratch: Any, field: int, u: int, only: bool, factor: Any, gradient: Any) -> None:
    """gradient[e] += factor S[e, f], less p_u[f] for e = f, of which nothing is left in a field with one unit."""
    k, two, S = len(kt), kt + kt, scratch.P
    width, at, mine = n_fields * k, field * k, load(gradient, field * k, kt)
    for c in range(0, n_fields // 2 * 2 * k, 2 * k):
        d = join(load(S, at, kt), load(S, at + width, kt))
        store(gradient, c, axpy(factor, d, load(gradient, c, two)))
        at += 2 * width
    if n_fields % 2:
        store(gradient, width - k, axpy(factor, load(S, at, kt), load(gradient, width - k, kt)))
    if not only:
        others = axpy(np.float32(-1.0), load(scratch.A, u * k, kt), load(S, field * (width + k), kt))
        mine = axpy(factor, others, mine)
    store(gradient, field * k, mine)


@merged
def sum_places(kt: Any, field: int, touch: Any) -> None:
    """Add the gradients of the places of a table row up to that of the last one."""
    width, first = touch.width, touch.ptr[field]
    for place in range(first, first + touch.n_places[16 * field]):
        before = touch.before[place] if touch.rows[place] >= 0 else np.int64(-1)
        while before >= 0:
            for c in range(0, width, len(kt)):
                g = add(load(touch.gradient, place * width + c, kt), load(touch.gradient, before * width + c, kt))
                store(touch.gradient, place * width + c, g)
            touch.linear[place] += touch.linear[before]
            before = touch.before[before]
