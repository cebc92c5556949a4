"""The fused loops of the CPU engine, on raw arrays. Importing this module loads Numba.

A batch goes through three steps, each a serial loop without the GIL that threads run on disjoint parts:

1. `gradient_shards`, over rows, a few at a time: P = the unit vectors, score, loss and its slope, and D = the
   derivatives of the score by the unit vectors, or what they follow from.
2. `scatter_fields`, over fields: slope · D is added to the gradients of the table rows of a field.
3. `update_fields`, over fields: penalties, then the optimizer, on touched rows only.

Rows of a field belong to no other field, so that steps 2 and 3 need no locks, and every sum has one order: the
result does not depend on the number of threads.

Letters: P unit vectors, T table of vectors, L linear weights, R weights and M matrices between fields. All are flat
arrays: the vector of table row r starts at r · width. The width is k; in an FFM it is k for every field.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from splinefm.model.interactions import OPTIONS, TILE, derivative_at, inlined, own_part, pairs, scores, unit_vector
from splinefm.model.vectors import (
    add,
    axpy,
    divide,
    fetch,
    fill,
    fma,
    load,
    multiply,
    number,
    scale,
    sqrt,
    store,
    subtract,
)

LOGISTIC, SQUARED, POISSON = range(3)
AHEAD = 8  # how many table rows ahead memory is asked for
_ZERO = np.float32(0.0)


def _digest() -> str:
    """Of all sources that the kernels are made of."""
    folder = Path(__file__).parent
    sources = ("kernels.py", "interactions.py", "vectors.py", "workspace.py", "optimizers.py")
    return hashlib.sha256(b"".join((folder / name).read_bytes() for name in sources)).hexdigest()[:12]


_DIGEST = _digest()


def _compiled(function: Callable[..., Any]) -> Any:
    """Compile and keep the result on disk, in a file that is named after all sources.

    Numba looks at the file of the function alone, and reads what it kept before it looks; a kernel of an older version
    of this package, or one that is made of other files that have changed, must not be found.
    """
    function.__qualname__ = f"{function.__name__}_{_DIGEST}"
    return njit(cache=True, **OPTIONS)(function)


@inlined
def _linear(shape: Any, L: Any, start: Any, weight: Any, i: int) -> Any:
    """Σ weight · linear weight of row i."""
    linear = _ZERO
    for w in range(start.shape[1]):
        row = start[i, w]
        for j in range(shape.weight_ptr[w], shape.weight_ptr[w + 1]):
            linear += weight[i, j] * L[row]
            row += 1
    return linear


@inlined
def _fetch_vector(T: Any, width: int, first: int) -> None:
    """Ask for the beginning of a vector; the rest of a long one follows by itself."""
    for at in range(first, first + min(width, 64), 16):
        fetch(T, at)


@inlined
def _fetch_all(T: Any, width: int, first: int) -> None:
    """Ask for a whole vector."""
    for at in range(first, first + width, 16):
        fetch(T, at)


@inlined
def _fetch_row(T: Any, L: Any, width: int, start: Any, i: int) -> None:
    """Ask for the table rows of a row of data that comes up soon."""
    for w in range(start.shape[1]):
        _fetch_vector(T, width, start[i, w] * width)
        fetch(L, start[i, w])


@_compiled
def score_rows(spec: Any, shape: Any, weights: Any, data: Any, rows: Any, scratch: Any, D: Any, out: Any) -> None:
    """out[i] = score of row rows[i]; D has room for a tile."""
    for at in range(0, len(rows), TILE):
        tile, values = rows[at : at + TILE], out[at : at + TILE]
        scores(spec, shape, weights, data, tile, scratch, D, 0, values)
        for i in range(len(tile)):
            linear = _linear(shape, weights.L, data.start, data.weight, tile[i])
            values[i] += weights.bias[0] + linear


@inlined
def _loss(loss: int, y: float, score: float) -> Any:
    """Loss of one row, and the prediction; the slope is prediction - y for all three losses."""
    if loss == LOGISTIC:
        small = np.exp(-abs(score))
        return max(score, 0.0) + np.log1p(small) - y * score, (1.0 if score >= 0.0 else small) / (1.0 + small)
    if loss == SQUARED:
        return 0.5 * (score - y) ** 2, score
    rate = np.exp(score)
    return rate - y * score, rate


@_compiled
def gradient_shards(
    spec: Any,
    shape: Any,
    weights: Any,
    data: Any,
    rows: Any,
    total_weight: float,
    first: int,
    last: int,
    work: Any,
    scratch: Any,
) -> None:
    """For the rows of shards first .. last - 1: loss, slope by the score over `total_weight`, and D.

    Every shard adds to a dR and dM of its own.
    """
    width, room = len(weights.T) // len(weights.L), len(work.D) // len(work.slopes)
    end = min(last * work.shard, len(rows))
    for at in range(first * work.shard, end, TILE):
        tile = rows[at : min(at + TILE, end)]
        for row in rows[at + TILE : min(at + 2 * TILE, end)]:
            _fetch_row(weights.T, weights.L, width, data.start, row)
        slopes = work.slopes[at : at + len(tile)]
        _turn(data, tile, work, at)
        scores(spec, shape, weights, data, tile, scratch, work.D, at * room, slopes)
        for i in range(len(tile)):
            row = tile[i]
            linear = _linear(shape, weights.L, data.start, data.weight, row)
            loss, prediction = _loss(spec.loss, data.y[row], np.float64(weights.bias[0] + linear + slopes[i]))
            work.losses[at + i] = data.sample_weight[row] * loss
            slopes[i] = np.float32(data.sample_weight[row] * (prediction - data.y[row]) / total_weight)
        pairs(spec, shape, weights, scratch, work.D, at * room, slopes, work, at // work.shard)


@inlined
def _turn(data: Any, tile: Any, work: Any, at: int) -> None:
    """Copy starts and weights of a tile column by column: the next step goes through them field by field."""
    for w in range(len(work.start)):
        for i in range(len(tile)):
            work.start[w, at + i] = data.start[tile[i], w]
    for j in range(len(work.weight)):
        for i in range(len(tile)):
            work.weight[j, at + i] = data.weight[tile[i], j]


@_compiled
def scatter_fields(
    spec: Any, shape: Any, weights: Any, n: int, first: int, last: int, work: Any, touch: Any, room: Any
) -> None:
    """Add weight slope D and weight slope of n rows to the gradients of the table rows of fields first .. last - 1.

    `touch.slot[r]` is the place of table row r in `touch.rows` and `touch.gradient`, or -1 if not met before. Rows of
    data that start at the same table row form a chain, so that their gradients are summed in registers.
    """
    width = len(weights.T) // len(weights.L)
    for field in range(first, last):
        for w in range(shape.window_ptr[field], shape.window_ptr[field + 1]):
            n_weights = shape.weight_ptr[w + 1] - shape.weight_ptr[w]
            n_starts = _link(spec, shape, n, field, w, n_weights, work, touch, room)
            for s in range(n_starts):
                if s + AHEAD < n_starts:
                    _fetch_vector(weights.T, width, touch.rows[room.starts[s + AHEAD]] * width)
                place = room.starts[s]
                head = touch.head[place]
                touch.head[place] = -1
                if n_weights == 1:
                    _add_one(spec, shape, weights, w, place, head, work, touch, room.chain)
                else:
                    row = touch.rows[place]
                    for j in range(0, n_weights, 4):
                        _add_four(spec, shape, weights, field, w, j, row + j, head, work, touch, room)


@inlined
def _link(spec: Any, shape: Any, n: int, field: int, w: int, n_weights: int, work: Any, touch: Any, room: Any) -> Any:
    """Chain the rows by the start of window w; returns the number of different ones."""
    n_starts, j, u = 0, shape.weight_ptr[w], shape.window_unit[w]
    width = len(touch.gradient) // len(touch.rows)
    for i in range(n):
        if i + 2 * AHEAD < n:
            fetch(touch.slot, work.start[w, i + 2 * AHEAD])
        if n_weights > 1 or work.weight[j, i] != _ZERO:
            _fetch_all(work.D, width, derivative_at(spec, shape, i, u))
            place = _place(spec.kt, touch, field, work.start[w, i])
            if touch.head[place] < 0:
                room.starts[n_starts] = place
                n_starts += 1
            room.chain[i] = touch.head[place]
            touch.head[place] = i
    return n_starts


@inlined
def _place(kt: Any, touch: Any, field: int, row: int) -> Any:
    """The place of a table row; a new one has gradient zero."""
    place = np.int64(touch.slot[row])
    if place < 0:
        place = touch.ptr[field] + touch.count[field]
        touch.count[field] += 1
        touch.slot[row] = place
        touch.rows[place] = row
        touch.linear[place] = _ZERO
        width = len(touch.gradient) // len(touch.rows)
        for c in range(place * width, (place + 1) * width, len(kt)):
            store(touch.gradient, c, fill(_ZERO, kt))
    return place


@inlined
def _alone(unit_field: Any, u: int) -> bool:
    """Whether u is the only unit of its field."""
    field = unit_field[u]
    return (u == 0 or unit_field[u - 1] != field) and (u + 1 == len(unit_field) or unit_field[u + 1] != field)


@inlined
def _add_one(
    spec: Any, shape: Any, weights: Any, w: int, place: int, head: int, work: Any, touch: Any, chain: Any
) -> None:
    """The gradient of the only row of a window, summed over a chain."""
    k, width = len(spec.kt), len(touch.gradient) // len(touch.rows)
    j, u = shape.weight_ptr[w], shape.window_unit[w]
    own, wide = own_part(spec, shape, u), spec.kt + spec.kt + spec.kt + spec.kt
    # The part of p_u itself is summed apart, and overwrites what the rest has left there.
    g, linear = load(touch.gradient, place * width + max(own, 0), spec.kt), touch.linear[place]
    i = head
    while i >= 0:
        x, d = work.slopes[i] * work.weight[j, i], derivative_at(spec, shape, i, u)
        linear += x
        if own < 0:
            g = axpy(x, load(work.D, d, spec.kt), g)
        elif width == k or not _alone(shape.unit_field, u):
            p = unit_vector(spec.kt, shape, weights.T, width, own, work.start.T, work.weight.T, i, u)
            g = axpy(x, subtract(load(work.D, d + own, spec.kt), p), g)
        if width > k:
            at, end = place * width, (place + 1) * width
            while at + 4 * k <= end:
                store(touch.gradient, at, axpy(x, load(work.D, d, wide), load(touch.gradient, at, wide)))
                at, d = at + 4 * k, d + 4 * k
            while at < end:
                store(touch.gradient, at, axpy(x, load(work.D, d, spec.kt), load(touch.gradient, at, spec.kt)))
                at, d = at + k, d + k
        i = chain[i]
    store(touch.gradient, place * width + max(own, 0), g)
    touch.linear[place] = linear


@inlined
def _add_four(
    spec: Any,
    shape: Any,
    weights: Any,
    field: int,
    w: int,
    first: int,
    row: int,
    head: int,
    work: Any,
    touch: Any,
    room: Any,
) -> None:
    """The gradients of up to four neighboring rows of a window, from table row `row` on, summed over a chain."""
    k, width = len(spec.kt), len(touch.gradient) // len(touch.rows)
    u, j = shape.window_unit[w], shape.weight_ptr[w] + first
    n, own = min(4, shape.weight_ptr[w + 1] - j), own_part(spec, shape, u)
    room.places[:] = -1
    i, length = head, 0
    while i >= 0:
        room.order[length] = i
        for m in range(4):
            x = work.slopes[i] * work.weight[j + m, i] if m < n else _ZERO
            room.x[4 * length + m] = x
            if m < n and work.weight[j + m, i] != _ZERO:
                if room.places[m] < 0:
                    room.places[m] = _place(spec.kt, touch, field, row + m)
                touch.linear[room.places[m]] += x
        i = room.chain[i]
        length += 1
    for c in range(0, width, k):
        if c == own and width > k and _alone(shape.unit_field, u):
            continue
        g0, g1, g2, g3 = fill(_ZERO, spec.kt), fill(_ZERO, spec.kt), fill(_ZERO, spec.kt), fill(_ZERO, spec.kt)
        for at in range(length):
            i = room.order[at]
            d = load(work.D, derivative_at(spec, shape, i, u) + c, spec.kt)
            if c == own:
                d = subtract(d, unit_vector(spec.kt, shape, weights.T, width, own, work.start.T, work.weight.T, i, u))
            g0, g1 = axpy(number(room.x, 4 * at), d, g0), axpy(number(room.x, 4 * at + 1), d, g1)
            g2, g3 = axpy(number(room.x, 4 * at + 2), d, g2), axpy(number(room.x, 4 * at + 3), d, g3)
        for m in range(n):
            if room.places[m] >= 0:
                g = g0 if m == 0 else g1 if m == 1 else g2 if m == 2 else g3
                at = room.places[m] * width + c
                store(touch.gradient, at, add(g, load(touch.gradient, at, spec.kt)))


@_compiled
def update_fields(
    kt: Any, T: Any, L: Any, first: int, last: int, touch: Any, penalty: Any, state: Any, linear: Any, step: Any
) -> None:
    """Penalties, then one step of the optimizer on the touched rows of fields first .. last - 1.

    `state` is the optimizer's memory of the vectors T, `linear` that of the weights L.
    """
    width, wide = len(T) // len(L), kt + kt + kt + kt
    for field in range(first, last):
        for group in range(penalty.group_ptr[field], penalty.group_ptr[field + 1]):
            if penalty.smoothness[group] > 0.0:
                for row in range(penalty.begin[group], penalty.end[group]):  # it changes as a whole
                    _place(kt, touch, field, row)
                _smooth(kt, T, width, touch.gradient, group, touch.slot, penalty)
                _smooth((0,), L, 1, touch.linear, group, touch.slot, penalty)
        end = touch.ptr[field] + touch.count[field]
        for place in range(touch.ptr[field], end):
            row = touch.rows[place]
            touch.slot[row] = -1
            if place + AHEAD < end:
                ahead = touch.rows[place + AHEAD]
                _fetch_vector(T, width, ahead * width)
                _fetch_vector(state.v, width, ahead * width)
                fetch(L, ahead)
                fetch(linear.v, ahead)
            group = penalty.group_ptr[field]
            while row >= penalty.end[group]:
                group += 1
            keep = _ZERO
            if step.ema > 0.0:
                # While a row is not touched it does not change, and its average approaches it.
                keep = np.float32(step.ema ** (step.number - 1 - state.last[row]))
                state.last[row] = step.number
            at, g, end = row * width, place * width, (row + 1) * width
            while at + 4 * len(kt) <= end:
                d = axpy(penalty.l2[group], load(T, at, wide), load(touch.gradient, g, wide))
                _optimize(wide, T, at, d, keep, state, step)
                at, g = at + 4 * len(kt), g + 4 * len(kt)
            while at < end:
                d = axpy(penalty.l2[group], load(T, at, kt), load(touch.gradient, g, kt))
                _optimize(kt, T, at, d, keep, state, step)
                at, g = at + len(kt), g + len(kt)
            d_linear = touch.linear[place] + penalty.l2_linear[group] * L[row]
            _optimize((0,), L, row, fill(d_linear, (0,)), keep, linear, step)
        touch.count[field] = 0


@inlined
def _smooth(kt: Any, T: Any, width: int, gradient: Any, group: int, slot: Any, penalty: Any) -> None:
    """Add the gradient of λ Σ |Δ^order v|² by all rows of a group; a periodic group wraps around."""
    begin, size, order = penalty.begin[group], penalty.end[group] - penalty.begin[group], penalty.order[group]
    for i in range(size if penalty.periodic[group] else size - order):
        for c in range(0, width, len(kt)):
            difference = fill(_ZERO, kt)
            for j in range(order + 1):
                row = begin + (i + j) % size
                difference = axpy(penalty.signed[group, j], load(T, row * width + c, kt), difference)
            difference = scale(np.float32(2.0) * penalty.smoothness[group], difference)
            for j in range(order + 1):
                at = slot[begin + (i + j) % size] * width + c
                store(gradient, at, axpy(penalty.signed[group, j], difference, load(gradient, at, kt)))


@inlined
def _optimize(kt: Any, T: Any, at: int, g: Any, keep: Any, state: Any, step: Any) -> None:
    """One step of lazy AdamW or Adagrad, and of the average, for k numbers of the table."""
    values = load(T, at, kt)
    before = values
    if step.adam:
        m = load(state.m, at, kt)
        m = axpy(step.rate1, subtract(g, m), m)
        v = load(state.v, at, kt)
        v = axpy(step.rate2, subtract(multiply(g, g), v), v)
        store(state.m, at, m)
        change = divide(scale(step.correct1, m), axpy(step.correct2, sqrt(v), fill(step.eps, kt)))
    else:
        v = fma(g, g, load(state.v, at, kt))
        change = divide(g, add(sqrt(v), fill(step.eps, kt)))
    store(state.v, at, v)
    values = axpy(-step.lr, axpy(step.decay, values, change), values)
    store(T, at, values)
    if step.ema > 0.0:
        average = axpy(keep, subtract(load(state.average, at, kt), before), before)
        store(state.average, at, axpy(np.float32(step.ema), subtract(average, values), values))


@_compiled
def update_dense(values: Any, g: Any, state: Any, step: Any) -> None:
    """One step on parameters that every row touches, flattened; there is no average of them."""
    for at in range(len(values)):
        _optimize((0,), values, at, fill(g[at], (0,)), _ZERO, state, step)
