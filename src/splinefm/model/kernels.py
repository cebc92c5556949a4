"""The fused loops of the CPU engine, on raw arrays. Importing this module loads Numba.

A batch goes through three steps, each a serial loop without the GIL that threads run on disjoint parts:

1. `gradient_shards`, over rows: P = the unit vectors, score, loss, and dP = the gradient by the unit vectors.
2. `scatter_fields`, over fields: dP is added to the gradients of the table rows of a field.
3. `update_fields`, over fields: penalties, then the optimizer, on touched rows only.

Rows of a field belong to no other field, so that steps 2 and 3 need no locks, and every sum has one order: the
result does not depend on the number of threads.

Letters: P unit vectors, T table of rows (vector, linear weight), R weights and M matrices between fields. All are flat
arrays: unit u starts at u · width, table row r at r · stride with stride = width + 1. The width is k; in an FFM
it is k for every field.
"""

# One file on purpose: Numba compiles a function again when the file of its caller changes, not that of its callees.
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import config, njit
from numba.extending import overload

from splinefm.model.vectors import (
    add,
    axpy,
    divide,
    fetch,
    fill,
    fma,
    load,
    multiply,
    scale,
    sqrt,
    store,
    subtract,
    total,
)

# NaN and infinity keep their meaning, so that a diverging run is seen.
FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}
_compiled: Any = njit(nogil=True, cache=True, fastmath=FASTMATH)

LOGISTIC, SQUARED, POISSON = range(3)
_JIT_OFF: bool = config.DISABLE_JIT  # type: ignore[attr-defined]  # set at run time
_ZERO = np.float32(0.0)
_HALF = np.float32(0.5)


@_compiled
def _reduce(kt: Any, shape: Any, T: Any, start: Any, weight: Any, P: Any) -> Any:
    """P_u = Σ weight T[row] over the windows of u; returns Σ weight · linear weight."""
    k, width = len(kt), len(P) // len(shape.unit_field)
    linear = _ZERO
    for u in range(len(shape.unit_field)):
        first, last = shape.unit_ptr[u], shape.unit_ptr[u + 1]
        for w in range(first, last):
            row = start[w]
            for j in range(shape.weight_ptr[w], shape.weight_ptr[w + 1]):
                linear += weight[j] * T[row * (width + 1) + width]
                row += 1
        for at in range(0, width, k):
            p = fill(_ZERO, kt)
            for w in range(first, last):
                row = start[w]
                for j in range(shape.weight_ptr[w], shape.weight_ptr[w + 1]):
                    p = axpy(weight[j], load(T, row * (width + 1) + at, kt), p)
                    row += 1
            store(P, u * width + at, p)
    return linear


@_compiled
def _fetch_row(shape: Any, T: Any, width: int, start: Any) -> None:
    """Ask for the table rows of a row of data that comes up soon."""
    for w in range(len(start)):
        first = start[w] * (width + 1)
        for at in range(0, min(width + 1, 64), 16):
            fetch(T, first + at)


@_compiled
def _fm_score(kt: Any, P: Any) -> Any:
    """½ (|Σ p|² - Σ |p|²)."""
    k = len(kt)
    both, squares = fill(_ZERO, kt), fill(_ZERO, kt)
    for at in range(0, len(P), k):
        p = load(P, at, kt)
        both = add(both, p)
        squares = fma(p, p, squares)
    return _HALF * total(subtract(multiply(both, both), squares))


@_compiled
def _fm_gradient(kt: Any, P: Any, slope: Any, dP: Any, at: int, step: int) -> None:
    """dP_u = slope (Σ p - p_u)."""
    k = len(kt)
    both = fill(_ZERO, kt)
    for u in range(0, len(P), k):
        both = add(both, load(P, u, kt))
    for u in range(0, len(P), k):
        store(dP, at, scale(slope, subtract(both, load(P, u, kt))))
        at += step


@_compiled
def _fwfm_score(kt: Any, P: Any, unit_field: Any, R: Any, Q: Any) -> Any:
    """½ Σ_u p_u' q_u with q_u = Σ_{v≠u} R_{f(u) f(v)} p_v; R is symmetric."""
    k, n_units = len(kt), len(unit_field)
    score = fill(_ZERO, kt)
    for u in range(n_units):
        weights = R[unit_field[u]]
        p = load(P, u * k, kt)
        q = scale(-weights[unit_field[u]], p)
        for v in range(n_units):
            q = axpy(weights[unit_field[v]], load(P, v * k, kt), q)
        store(Q, u * k, q)
        score = fma(p, q, score)
    return _HALF * total(score)


@_compiled
def _fwfm_gradient(kt: Any, P: Any, unit_field: Any, Q: Any, slope: Any, dP: Any, at: int, step: int, dR: Any) -> None:
    """dP_u = slope q_u; dR_{f(u) f(v)} += slope p_u p_v for u < v, number by number: summed up later."""
    k, n_units = len(kt), len(unit_field)
    n_fields = unit_field[-1] + 1
    for u in range(n_units):
        store(dP, at, scale(slope, load(Q, u * k, kt)))
        at += step
        p = scale(slope, load(P, u * k, kt))
        for v in range(u + 1, n_units):
            place = (unit_field[u] * n_fields + unit_field[v]) * k
            store(dR, place, fma(p, load(P, v * k, kt), load(dR, place, kt)))


@_compiled
def _fmfm_score(kt: Any, P: Any, unit_field: Any, M: Any, Q: Any) -> Any:
    """Σ_{u<v} p_u' M_{f(u) f(v)} p_v = Σ_v q_v' p_v with q_v = Σ_{u<v} M' p_u."""
    k, n_units = len(kt), len(unit_field)
    n_fields = unit_field[-1] + 1
    score = fill(_ZERO, kt)
    for v in range(n_units):
        q = fill(_ZERO, kt)
        for u in range(v):
            matrix = (unit_field[u] * n_fields + unit_field[v]) * k * k
            for i in range(k):
                q = axpy(P[u * k + i], load(M, matrix + i * k, kt), q)
        store(Q, v * k, q)
        score = fma(q, load(P, v * k, kt), score)
    return total(score)


@_compiled
def _fmfm_gradient(
    kt: Any, P: Any, unit_field: Any, transposed: Any, Q: Any, slope: Any, dP: Any, at: int, step: int, dM: Any
) -> None:
    """dP_u = slope (q_u + Σ_{v>u} M p_v); dM_{f(u) f(v)} += slope p_u p_v'."""
    k, n_units = len(kt), len(unit_field)
    n_fields = unit_field[-1] + 1
    for u in range(n_units):
        d = load(Q, u * k, kt)
        for v in range(u + 1, n_units):
            matrix = (unit_field[u] * n_fields + unit_field[v]) * k * k
            p = load(P, v * k, kt)
            for i in range(k):
                d = axpy(P[v * k + i], load(transposed, matrix + i * k, kt), d)
                store(dM, matrix + i * k, axpy(slope * P[u * k + i], p, load(dM, matrix + i * k, kt)))
        store(dP, at, scale(slope, d))
        at += step


@_compiled
def _ffm_score(kt: Any, P: Any, unit_field: Any) -> Any:
    """Σ_{u<v} p_u[f(v)]' p_v[f(u)]."""
    k, n_units = len(kt), len(unit_field)
    width = len(P) // n_units
    score = fill(_ZERO, kt)
    for u in range(n_units):
        for v in range(u + 1, n_units):
            mine, theirs = u * width + unit_field[v] * k, v * width + unit_field[u] * k
            score = fma(load(P, mine, kt), load(P, theirs, kt), score)
    return total(score)


@_compiled
def _ffm_gradient(kt: Any, P: Any, unit_field: Any, slope: Any, dP: Any, at: int, step: int) -> None:
    """dP_u[e] = slope Σ_{v of field e, v ≠ u} p_v[f(u)]."""
    k, n_units = len(kt), len(unit_field)
    width = len(P) // n_units
    for u in range(n_units):
        for c in range(0, width, k):
            store(dP, at + c, fill(_ZERO, kt))
        for v in range(n_units):
            if v != u:
                place = at + unit_field[v] * k
                theirs = load(P, v * width + unit_field[u] * k, kt)
                store(dP, place, axpy(slope, theirs, load(dP, place, kt)))
        at += step


@_compiled
def _higher_score(kt: Any, P: Any, A: Any, order: int) -> Any:
    """Σ_t A[U, t] for t ≥ 2, with A[u + 1, t] = A[u, t] + p_u A[u, t - 1] and A[., 0] = 1."""
    k, n_units = len(kt), len(P) // len(kt)
    row = (order + 1) * k
    for u in range(n_units + 1):
        store(A, u * row, fill(np.float32(1.0), kt))
    for t in range(1, order + 1):
        store(A, t * k, fill(_ZERO, kt))
    for u in range(n_units):
        p = load(P, u * k, kt)
        for t in range(1, order + 1):
            store(A, (u + 1) * row + t * k, fma(p, load(A, u * row + (t - 1) * k, kt), load(A, u * row + t * k, kt)))
    score = fill(_ZERO, kt)
    for t in range(2, order + 1):
        score = add(score, load(A, n_units * row + t * k, kt))
    return total(score)


@_compiled
def _higher_gradient(kt: Any, P: Any, A: Any, D: Any, order: int, slope: Any, dP: Any, at: int, step: int) -> None:
    """The recursion of `_higher_score` backwards; D[t] is the derivative by A[u + 1, t]."""
    k, n_units = len(kt), len(P) // len(kt)
    row = (order + 1) * k
    for t in range(order + 1):
        store(D, t * k, fill(slope if t >= 2 else _ZERO, kt))
    for u in range(n_units - 1, -1, -1):
        p, d = load(P, u * k, kt), fill(_ZERO, kt)
        for t in range(1, order + 1):  # D[t - 1] is used up before it gets its share of D[t]
            derivative = load(D, t * k, kt)
            d = fma(derivative, load(A, u * row + (t - 1) * k, kt), d)
            store(D, (t - 1) * k, fma(derivative, p, load(D, (t - 1) * k, kt)))
        store(dP, at + u * step, d)


# The model is part of the type of `spec`: Numba compiles only the code of the model in use.


class FMSpec(NamedTuple):
    """What is fixed for a run of an FM; `kt` has k numbers."""

    kt: tuple[int, ...]
    loss: int
    order: int


class FwFMSpec(NamedTuple):
    """The same for an FwFM, of any rank."""

    kt: tuple[int, ...]
    loss: int
    order: int


class FmFMSpec(NamedTuple):
    """The same for an FmFM."""

    kt: tuple[int, ...]
    loss: int
    order: int


class FFMSpec(NamedTuple):
    """The same for an FFM."""

    kt: tuple[int, ...]
    loss: int
    order: int


class HigherSpec(NamedTuple):
    """The same for a HigherOrderFM."""

    kt: tuple[int, ...]
    loss: int
    order: int


def _score(spec: Any, P: Any, unit_field: Any, weights: Any, Q: Any, A: Any) -> Any:
    """The interaction of the model."""
    return _SCORES[type(spec)](spec, P, unit_field, weights, Q, A)


def _gradient(
    spec: Any,
    P: Any,
    unit_field: Any,
    weights: Any,
    Q: Any,
    A: Any,
    D: Any,
    slope: Any,
    work: Any,
    shard: int,
    at: int,
    step: int,
) -> Any:
    """dP of one row, from what `_score` left in Q and A; adds to dR or dM of a shard."""
    return _GRADIENTS[type(spec)](spec, P, unit_field, weights, Q, A, D, slope, work, shard, at, step)


_SCORES: dict[Any, Any] = {
    FMSpec: lambda spec, P, unit_field, weights, Q, A: _fm_score(spec.kt, P),
    FwFMSpec: lambda spec, P, unit_field, weights, Q, A: _fwfm_score(spec.kt, P, unit_field, weights.R, Q),
    FmFMSpec: lambda spec, P, unit_field, weights, Q, A: _fmfm_score(spec.kt, P, unit_field, weights.M, Q),
    FFMSpec: lambda spec, P, unit_field, weights, Q, A: _ffm_score(spec.kt, P, unit_field),
    HigherSpec: lambda spec, P, unit_field, weights, Q, A: _higher_score(spec.kt, P, A, spec.order),
}
_GRADIENTS: dict[Any, Any] = {
    FMSpec: lambda spec, P, unit_field, weights, Q, A, D, slope, work, shard, at, step: _fm_gradient(
        spec.kt, P, slope, work.dP, at, step
    ),
    FwFMSpec: lambda spec, P, unit_field, weights, Q, A, D, slope, work, shard, at, step: _fwfm_gradient(
        spec.kt, P, unit_field, Q, slope, work.dP, at, step, work.dR[shard]
    ),
    FmFMSpec: lambda spec, P, unit_field, weights, Q, A, D, slope, work, shard, at, step: _fmfm_gradient(
        spec.kt, P, unit_field, weights.transposed, Q, slope, work.dP, at, step, work.dM[shard]
    ),
    FFMSpec: lambda spec, P, unit_field, weights, Q, A, D, slope, work, shard, at, step: _ffm_gradient(
        spec.kt, P, unit_field, slope, work.dP, at, step
    ),
    HigherSpec: lambda spec, P, unit_field, weights, Q, A, D, slope, work, shard, at, step: _higher_gradient(
        spec.kt, P, A, D, spec.order, slope, work.dP, at, step
    ),
}


if not _JIT_OFF:  # lambdas without annotations: Numba wants the signatures to be the same to the letter
    overload(_score)(lambda spec, P, unit_field, weights, Q, A: _SCORES[spec.instance_class])
    overload(_gradient)(
        lambda spec, P, unit_field, weights, Q, A, D, slope, work, shard, at, step: _GRADIENTS[spec.instance_class]
    )


@_compiled
def _work_space(spec: Any, shape: Any, width: int) -> Any:
    """P, Q and A."""
    n_units, k = len(shape.unit_field), len(spec.kt)
    # Only a HigherOrderFM has an order; the others need no A.
    A = np.empty((n_units + 1) * (spec.order + 1) * k if spec.order else k, np.float32)
    return np.empty(n_units * width, np.float32), np.empty(n_units * k, np.float32), A


@_compiled
def score_rows(spec: Any, shape: Any, weights: Any, width: int, start: Any, weight: Any, out: Any) -> None:
    """out[i] = score of row i."""
    P, Q, A = _work_space(spec, shape, width)
    for i in range(len(out)):
        linear = _reduce(spec.kt, shape, weights.T, start[i], weight[i], P)
        out[i] = weights.bias[0] + linear + _score(spec, P, shape.unit_field, weights, Q, A)


@_compiled
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
    spec: Any, shape: Any, weights: Any, data: Any, rows: Any, total_weight: float, first: int, last: int, work: Any
) -> None:
    """For the rows of shards first .. last - 1: loss, slope by the score over `total_weight`, and dP.

    Every shard adds to a dR and dM of its own. dP of unit u and row i is at (u · room + i) · width.
    """
    width = len(work.dP) // (len(work.slopes) * len(shape.unit_field))
    P, Q, A = _work_space(spec, shape, width)
    D = np.empty((spec.order + 1) * len(spec.kt), np.float32)
    step = len(work.slopes) * width
    for i in range(first * work.shard, min(last * work.shard, len(rows))):
        row = rows[i]
        if i + 4 < len(rows):
            _fetch_row(shape, weights.T, width, data.start[rows[i + 4]])
        linear = _reduce(spec.kt, shape, weights.T, data.start[row], data.weight[row], P)
        score = np.float64(weights.bias[0] + linear + _score(spec, P, shape.unit_field, weights, Q, A))
        loss, prediction = _loss(spec.loss, data.y[row], score)
        work.losses[i] = data.sample_weight[row] * loss
        slope = np.float32(data.sample_weight[row] * (prediction - data.y[row]) / total_weight)
        work.slopes[i] = slope
        _gradient(spec, P, shape.unit_field, weights, Q, A, D, slope, work, i // work.shard, i * width, step)


@_compiled
def scatter_fields(kt: Any, shape: Any, data: Any, rows: Any, first: int, last: int, work: Any, touch: Any) -> None:
    """Add weight dP and weight slope to the gradients of the table rows of fields first .. last - 1.

    `touch.slot[r]` is the place of table row r in `touch.rows` and `touch.gradient`, or -1 if not met before.
    """
    k, room = len(kt), len(work.slopes)
    width = len(work.dP) // (room * len(shape.unit_field))
    for field in range(first, last):
        n_touched = touch.count[field]
        for i in range(len(rows)):
            row = rows[i]
            for w in range(shape.window_ptr[field], shape.window_ptr[field + 1]):
                d = (shape.window_unit[w] * room + i) * width
                table_row = data.start[row, w]
                for j in range(shape.weight_ptr[w], shape.weight_ptr[w + 1]):
                    x = data.weight[row, j]
                    if x != _ZERO:
                        place = touch.slot[table_row]
                        if place < 0:
                            place = touch.ptr[field] + n_touched
                            _take(touch, table_row, place, width + 1)
                            n_touched += 1
                        g = place * (width + 1)
                        for c in range(0, width, k):
                            store(
                                touch.gradient,
                                g + c,
                                axpy(x, load(work.dP, d + c, kt), load(touch.gradient, g + c, kt)),
                            )
                        touch.gradient[g + width] += x * work.slopes[i]
                    table_row += 1
        touch.count[field] = n_touched


@_compiled
def _take(touch: Any, row: int, place: int, stride: int) -> None:
    """Give a table row a place, with gradient zero."""
    touch.slot[row] = place
    touch.rows[place] = row
    for c in range(place * stride, (place + 1) * stride):
        touch.gradient[c] = _ZERO


@_compiled
def update_fields(
    kt: Any, T: Any, stride: int, first: int, last: int, touch: Any, penalty: Any, state: Any, step: Any
) -> None:
    """Penalties, then one step of the optimizer on the touched rows of fields first .. last - 1."""
    width = stride - 1
    for field in range(first, last):
        for group in range(penalty.group_ptr[field], penalty.group_ptr[field + 1]):
            if penalty.smoothness[group] > 0.0:
                _touch_group(field, group, touch, penalty, stride)
                _smooth(kt, T, stride, group, touch, penalty)
        for place in range(touch.ptr[field], touch.ptr[field] + touch.count[field]):
            row = touch.rows[place]
            touch.slot[row] = -1
            group = penalty.group_ptr[field]
            while row >= penalty.end[group]:
                group += 1
            at, g = row * stride, place * stride
            keep = _ZERO
            if step.ema > 0.0:
                # While a row is not touched it does not change, and its average approaches it.
                keep = np.float32(step.ema ** (step.number - 1 - state.last[row]))
                state.last[row] = step.number
            for c in range(0, width, len(kt)):
                d = axpy(penalty.l2[group], load(T, at + c, kt), load(touch.gradient, g + c, kt))
                _optimize(kt, T, at + c, d, keep, state, step)
            last_one = touch.gradient[g + width] + penalty.l2_linear[group] * T[at + width]
            _optimize((0,), T, at + width, fill(last_one, (0,)), keep, state, step)
        touch.count[field] = 0


@_compiled
def _touch_group(field: int, group: int, touch: Any, penalty: Any, stride: int) -> None:
    """A smooth group changes as a whole: take all of its rows."""
    for row in range(penalty.begin[group], penalty.end[group]):
        if touch.slot[row] < 0:
            _take(touch, row, touch.ptr[field] + touch.count[field], stride)
            touch.count[field] += 1


@_compiled
def _smooth(kt: Any, T: Any, stride: int, group: int, touch: Any, penalty: Any) -> None:
    """Gradient of λ Σ |Δ^order v|² by all rows; a periodic group wraps around."""
    begin, size, order = penalty.begin[group], penalty.end[group] - penalty.begin[group], penalty.order[group]
    for i in range(size if penalty.periodic[group] else size - order):
        for c in range(0, stride - 1, len(kt)):
            _smooth_part(kt, T, stride, c, begin, i, size, order, group, touch, penalty)
        _smooth_part((0,), T, stride, stride - 1, begin, i, size, order, group, touch, penalty)


@_compiled
def _smooth_part(
    kt: Any,
    T: Any,
    stride: int,
    c: int,
    begin: int,
    i: int,
    size: int,
    order: int,
    group: int,
    touch: Any,
    penalty: Any,
) -> None:
    """The difference that starts at row i, and its part of the gradients, for k numbers."""
    difference = fill(_ZERO, kt)
    for j in range(order + 1):
        row = begin + (i + j) % size
        difference = axpy(penalty.signed[group, j], load(T, row * stride + c, kt), difference)
    difference = scale(np.float32(2.0) * penalty.smoothness[group], difference)
    for j in range(order + 1):
        row = begin + (i + j) % size
        place = touch.slot[row] * stride + c
        store(touch.gradient, place, axpy(penalty.signed[group, j], difference, load(touch.gradient, place, kt)))


@_compiled
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
def finish_average(T: Any, stride: int, state: Any, step: Any, out: Any) -> None:
    """out = the average of every row as it is at the present step."""
    for row in range(len(T) // stride):
        keep = np.float32(step.ema ** (step.number - state.last[row]))
        for c in range(row * stride, (row + 1) * stride):
            out[c] = T[c] + keep * (state.average[c] - T[c])


@_compiled
def update_dense(values: Any, g: Any, state: Any, step: Any) -> None:
    """One step on parameters that every row touches, flattened; there is no average of them."""
    for at in range(len(values)):
        _optimize((0,), values, at, fill(g[at], (0,)), _ZERO, state, step)
