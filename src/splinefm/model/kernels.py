"""The fused loops of the CPU engine, on raw arrays. Importing this module loads Numba.

A batch goes through three steps, each a serial loop without the GIL that threads run on disjoint parts:

1. `gradient_rows`, over rows: P = the unit vectors, score, loss, and dP = the gradient by the unit vectors.
2. `scatter_field`, over fields: dP is added to the gradients of the table rows of one field.
3. `update_group`, over groups of table rows: penalties, then the optimizer, on touched rows only.

Rows of a field belong to no other field, so that steps 2 and 3 need no locks, and every sum has one order: the
result does not depend on the number of threads.

Letters: P unit vectors (units, width), T table (rows, width + 1) with the linear weight last, R weights between
units (symmetric, zero diagonal), M matrices between units, S and Q work space. `kt` is a tuple of k numbers:
its length is known when the code is compiled, which lets the inner loops become vector instructions.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

# NaN and infinity keep their meaning, so that a diverging run is seen.
FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}
_compiled: Any = njit(nogil=True, cache=True, fastmath=FASTMATH)
_inlined: Any = njit(nogil=True, cache=True, fastmath=FASTMATH, inline="never")

FM, FWFM, FMFM, FFM, HIGHER = range(5)
LOGISTIC, SQUARED, POISSON = range(3)


@_inlined
def reduce_row(start: Any, weight: Any, weight_ptr: Any, window_unit: Any, T: Any, P: Any) -> Any:
    """P[u] = Σ weight T[row, :width] over the windows of u; returns Σ weight T[row, width]."""
    width = P.shape[1]
    P[:] = 0.0
    linear = np.float32(0.0)
    for w in range(len(window_unit)):
        unit = P[window_unit[w]]
        row = start[w]
        for j in range(weight_ptr[w], weight_ptr[w + 1]):
            x = weight[j]
            if x != 0.0:
                values = T[row]
                linear += x * values[width]
                for c in range(width):
                    unit[c] += x * values[c]
            row += 1
    return linear


@_inlined
def _fm_score(kt: Any, P: Any, S: Any) -> Any:
    """½ (|Σ p|² - Σ |p|²); S = Σ p."""
    k = len(kt)
    squares = np.float32(0.0)
    for c in range(k):
        S[c] = 0.0
    for u in range(P.shape[0]):
        for c in range(k):
            S[c] += P[u, c]
            squares += P[u, c] * P[u, c]
    total = np.float32(0.0)
    for c in range(k):
        total += S[c] * S[c]
    return np.float32(0.5) * (total - squares)


@_inlined
def _fm_gradient(kt: Any, P: Any, S: Any, slope: Any, dP: Any) -> None:
    """dP_u = slope (S - p_u)."""
    for u in range(P.shape[0]):
        for c in range(len(kt)):
            dP[u, c] = slope * (S[c] - P[u, c])


@_inlined
def _fwfm_score(kt: Any, P: Any, unit_field: Any, R: Any, Q: Any) -> Any:
    """½ Σ_u p_u' q_u with q_u = Σ_{v≠u} R_{f(u) f(v)} p_v; R is symmetric."""
    k = len(kt)
    score = np.float32(0.0)
    for u in range(P.shape[0]):
        q, weights = Q[u], R[unit_field[u]]
        for c in range(k):
            q[c] = 0.0
        for v in range(P.shape[0]):
            if v != u:
                r = weights[unit_field[v]]
                for c in range(k):
                    q[c] += r * P[v, c]
        for c in range(k):
            score += q[c] * P[u, c]
    return np.float32(0.5) * score


@_inlined
def _fwfm_gradient(kt: Any, P: Any, unit_field: Any, Q: Any, slope: Any, dP: Any, dR: Any) -> None:
    """dP = slope Q; dR_{f(u) f(v)} += slope p_u' p_v for u < v."""
    n_units = P.shape[0]
    for u in range(n_units):
        row = dR[unit_field[u]]
        for c in range(len(kt)):
            dP[u, c] = slope * Q[u, c]
        for v in range(u + 1, n_units):
            product = np.float32(0.0)
            for c in range(len(kt)):
                product += P[u, c] * P[v, c]
            row[unit_field[v]] += slope * product


@_inlined
def _fmfm_score(kt: Any, P: Any, unit_field: Any, M: Any, Q: Any) -> Any:
    """Σ_{u<v} p_u' M_{f(u) f(v)} p_v; q_v = Σ_{u<v} M_{f(u) f(v)}' p_u."""
    k = len(kt)
    score = np.float32(0.0)
    for v in range(P.shape[0]):
        q = Q[v]
        for c in range(k):
            q[c] = 0.0
        for u in range(v):
            matrix = M[unit_field[u], unit_field[v]]
            for i in range(k):
                p = P[u, i]
                for c in range(k):
                    q[c] += p * matrix[i, c]
        for c in range(k):
            score += q[c] * P[v, c]
    return score


@_inlined
def _fmfm_gradient(kt: Any, P: Any, unit_field: Any, M: Any, Q: Any, slope: Any, dP: Any, dM: Any) -> None:
    """dP_u = slope (q_u + Σ_{v>u} M_{f(u) f(v)} p_v); dM_{f(u) f(v)} += slope p_u p_v'."""
    k = len(kt)
    for v in range(P.shape[0]):
        for c in range(k):
            dP[v, c] = slope * Q[v, c]
    for u in range(P.shape[0]):
        for v in range(u + 1, P.shape[0]):
            matrix, d_matrix = M[unit_field[u], unit_field[v]], dM[unit_field[u], unit_field[v]]
            for i in range(k):
                p = slope * P[u, i]
                product = np.float32(0.0)
                for c in range(k):
                    product += matrix[i, c] * P[v, c]
                    d_matrix[i, c] += p * P[v, c]
                dP[u, i] += slope * product


@_inlined
def _ffm_score(kt: Any, P: Any, unit_field: Any) -> Any:
    """Σ_{u<v} p_u[f(v)]' p_v[f(u)]."""
    k = len(kt)
    score = np.float32(0.0)
    for u in range(P.shape[0]):
        at_u = unit_field[u] * k
        p = P[u]
        for v in range(u + 1, P.shape[0]):
            at_v = unit_field[v] * k
            other = P[v]
            for c in range(k):
                score += p[at_v + c] * other[at_u + c]
    return score


@_inlined
def _ffm_gradient(kt: Any, P: Any, unit_field: Any, slope: Any, dP: Any) -> None:
    """dP_u[e] = slope Σ_{v of field e, v ≠ u} p_v[f(u)]."""
    k = len(kt)
    dP[:] = 0.0
    for u in range(P.shape[0]):
        at_u = unit_field[u] * k
        d = dP[u]
        for v in range(P.shape[0]):
            if v != u:
                at_v = unit_field[v] * k
                other = P[v]
                for c in range(k):
                    d[at_v + c] += slope * other[at_u + c]


@_inlined
def _higher_score(kt: Any, P: Any, A: Any) -> Any:
    """Σ_t A[U, t] for t ≥ 2, with A[u + 1, t] = A[u, t] + p_u A[u, t - 1] and A[., 0] = 1."""
    n_units, order = P.shape[0], A.shape[1] - 1
    for t in range(order + 1):
        for c in range(len(kt)):
            A[0, t, c] = 1.0 if t == 0 else 0.0
    for u in range(n_units):
        for c in range(len(kt)):
            A[u + 1, 0, c] = 1.0
        for t in range(1, order + 1):
            for c in range(len(kt)):
                A[u + 1, t, c] = A[u, t, c] + P[u, c] * A[u, t - 1, c]
    score = np.float32(0.0)
    for t in range(2, order + 1):
        for c in range(len(kt)):
            score += A[n_units, t, c]
    return score


@_inlined
def _higher_gradient(kt: Any, P: Any, A: Any, D: Any, slope: Any, dP: Any) -> None:
    """The recursion of `_higher_score` backwards; D[t] is the derivative by A[u + 1, t]."""
    order = A.shape[1] - 1
    for t in range(order + 1):
        for c in range(len(kt)):
            D[t, c] = slope if t >= 2 else 0.0
    for u in range(P.shape[0] - 1, -1, -1):
        for c in range(len(kt)):
            dP[u, c] = 0.0
        for t in range(1, order + 1):  # D[t - 1] is used up before it gets its share of D[t]
            for c in range(len(kt)):
                dP[u, c] += D[t, c] * A[u, t - 1, c]
                D[t - 1, c] += D[t, c] * P[u, c]


@_inlined
def _score(spec: Any, P: Any, unit_field: Any, weights: Any, S: Any, Q: Any, A: Any) -> Any:
    """The interaction of the model."""
    if spec.model == FM:
        return _fm_score(spec.kt, P, S)
    if spec.model == FWFM:
        return _fwfm_score(spec.kt, P, unit_field, weights.R, Q)
    if spec.model == FFM:
        return _ffm_score(spec.kt, P, unit_field)
    if spec.model == FMFM:
        return _fmfm_score(spec.kt, P, unit_field, weights.M, Q)
    return _higher_score(spec.kt, P, A)


@_compiled
def score_rows(spec: Any, shape: Any, weights: Any, start: Any, weight: Any, out: Any) -> None:
    """out[i] = score of row i."""
    P, Q, S, A = _work_space(spec, shape, weights)
    for i in range(len(out)):
        linear = reduce_row(start[i], weight[i], shape.weight_ptr, shape.window_unit, weights.T, P)
        out[i] = weights.bias[0] + linear + _score(spec, P, shape.unit_field, weights, S, Q, A)


@_inlined
def _work_space(spec: Any, shape: Any, weights: Any) -> Any:
    n_units, k = len(shape.unit_field), len(spec.kt)
    P = np.empty((n_units, weights.T.shape[1] - 1), np.float32)
    Q = np.empty((n_units, k), np.float32)
    A = np.empty((n_units + 1 if spec.model == HIGHER else 1, spec.order + 1, k), np.float32)
    return P, Q, np.empty(k, np.float32), A


@_compiled
def gradient_rows(
    spec: Any,
    shape: Any,
    weights: Any,
    data: Any,
    rows: Any,
    total: float,
    dP: Any,
    slopes: Any,
    losses: Any,
    dR: Any,
    dM: Any,
) -> None:
    """For each of `rows`: its weighted loss, the slope by the score over `total`, and dP; adds to dR and dM."""
    P, Q, S, A = _work_space(spec, shape, weights)
    D = np.empty((spec.order + 1, len(spec.kt)), np.float32)
    for i in range(len(rows)):
        row = rows[i]
        linear = reduce_row(data.start[row], data.weight[row], shape.weight_ptr, shape.window_unit, weights.T, P)
        score = np.float64(weights.bias[0] + linear + _score(spec, P, shape.unit_field, weights, S, Q, A))
        loss, prediction = _loss(spec.loss, data.y[row], score)
        losses[i] = data.sample_weight[row] * loss
        slope = np.float32(data.sample_weight[row] * (prediction - data.y[row]) / total)
        slopes[i] = slope
        if spec.model == FM:
            _fm_gradient(spec.kt, P, S, slope, dP[i])
        elif spec.model == FWFM:
            _fwfm_gradient(spec.kt, P, shape.unit_field, Q, slope, dP[i], dR)
        elif spec.model == FFM:
            _ffm_gradient(spec.kt, P, shape.unit_field, slope, dP[i])
        elif spec.model == FMFM:
            _fmfm_gradient(spec.kt, P, shape.unit_field, weights.M, Q, slope, dP[i], dM)
        else:
            _higher_gradient(spec.kt, P, A, D, slope, dP[i])


@_compiled
def gradient_shards(
    spec: Any, shape: Any, weights: Any, data: Any, rows: Any, total: float, first: int, last: int, size: int, work: Any
) -> None:
    """`gradient_rows` for shards first .. last - 1 of `size` rows; each adds to a dR and dM of its own."""
    for shard in range(first, last):
        begin, end = shard * size, min((shard + 1) * size, len(rows))
        gradient_rows(
            spec,
            shape,
            weights,
            data,
            rows[begin:end],
            total,
            work.dP[begin:end],
            work.slopes[begin:end],
            work.losses[begin:end],
            work.dR[shard],
            work.dM[shard],
        )


@_inlined
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
def scatter_fields(shape: Any, data: Any, rows: Any, first: int, last: int, dP: Any, slopes: Any, touch: Any) -> None:
    """Add weight dP and weight slope to the gradients of the table rows of fields first .. last - 1.

    `touch.slot[r]` is the place of table row r in `touch.rows` and `touch.gradient`, or -1 if not met before.
    """
    for field in range(first, last):
        n_touched = touch.count[field]
        for i in range(len(rows)):
            row = rows[i]
            for w in range(shape.window_ptr[field], shape.window_ptr[field + 1]):
                d = dP[i, shape.window_unit[w]]
                at = data.start[row, w]
                for j in range(shape.weight_ptr[w], shape.weight_ptr[w + 1]):
                    x = data.weight[row, j]
                    if x != 0.0:
                        place = touch.slot[at]
                        if place < 0:
                            place = touch.ptr[field] + n_touched
                            _take(touch, at, place)
                            n_touched += 1
                        _add(touch.gradient[place], x, d, slopes[i])
                    at += 1
        touch.count[field] = n_touched


@_inlined
def _take(touch: Any, row: int, place: int) -> None:
    touch.slot[row] = place
    touch.rows[place] = row
    touch.gradient[place] = 0.0


@_inlined
def _add(g: Any, x: Any, d: Any, slope: Any) -> None:
    """g += x (d, slope)."""
    width = len(d)
    for c in range(width):
        g[c] += x * d[c]
    g[width] += x * slope


@_compiled
def update_fields(shape: Any, T: Any, first: int, last: int, touch: Any, penalty: Any, state: Any, step: Any) -> None:
    """Penalties, then one step of the optimizer on the touched rows of fields first .. last - 1."""
    for field in range(first, last):
        for group in range(penalty.group_ptr[field], penalty.group_ptr[field + 1]):
            if penalty.smoothness[group] > 0.0:
                _touch_group(field, group, touch, penalty)
                _smooth(T, group, touch, penalty)
        for place in range(touch.ptr[field], touch.ptr[field] + touch.count[field]):
            row = touch.rows[place]
            touch.slot[row] = -1
            group = penalty.group_ptr[field]
            while row >= penalty.end[group]:
                group += 1
            _shrink(touch.gradient[place], T[row], penalty.l2[group], penalty.l2_linear[group])
            _average_before(T[row], state, row, step)
            _optimize(T[row], touch.gradient[place], state.m[row], state.v[row], step)
            _average_after(T[row], state, row, step)
        touch.count[field] = 0


@_inlined
def _touch_group(field: int, group: int, touch: Any, penalty: Any) -> None:
    """A smooth group changes as a whole: take all of its rows."""
    for row in range(penalty.begin[group], penalty.end[group]):
        if touch.slot[row] < 0:
            _take(touch, row, touch.ptr[field] + touch.count[field])
            touch.count[field] += 1


@_inlined
def _smooth(T: Any, group: int, touch: Any, penalty: Any) -> None:
    """Gradient of λ Σ |Δ^order v|² by all rows; a periodic group wraps around."""
    begin, size = penalty.begin[group], penalty.end[group] - penalty.begin[group]
    order = penalty.order[group]
    binomial = np.zeros(order + 1, np.float32)
    binomial[0] = 1.0
    for _ in range(order):
        for j in range(order, 0, -1):
            binomial[j] = binomial[j - 1] - binomial[j]
        binomial[0] = -binomial[0]
    difference = np.empty(T.shape[1], np.float32)
    scale = np.float32(2.0 * penalty.smoothness[group])
    for i in range(size if penalty.periodic[group] else size - order):
        difference[:] = 0.0
        for j in range(order + 1):
            values = T[begin + (i + j) % size]
            for c in range(len(difference)):
                difference[c] += binomial[j] * values[c]
        for j in range(order + 1):
            g = touch.gradient[touch.slot[begin + (i + j) % size]]
            for c in range(len(difference)):
                g[c] += scale * binomial[j] * difference[c]


@_inlined
def _shrink(g: Any, values: Any, l2: Any, l2_linear: Any) -> None:
    """Gradient of ½ l2 |v|² + ½ l2_linear w²."""
    width = len(values) - 1
    for c in range(width):
        g[c] += l2 * values[c]
    g[width] += l2_linear * values[width]


@_inlined
def _optimize(values: Any, g: Any, m: Any, v: Any, step: Any) -> None:
    """One step of lazy AdamW or Adagrad."""
    if step.adam:
        for c in range(len(values)):
            m[c] += step.rate1 * (g[c] - m[c])
            v[c] += step.rate2 * (g[c] * g[c] - v[c])
            change = m[c] / (np.sqrt(v[c]) * step.correct2 + step.eps)
            values[c] -= step.lr * (step.correct1 * change + step.decay * values[c])
    else:
        for c in range(len(values)):
            v[c] += g[c] * g[c]
            values[c] -= step.lr * (g[c] / (np.sqrt(v[c]) + step.eps) + step.decay * values[c])


@_inlined
def _average_before(values: Any, state: Any, row: int, step: Any) -> None:
    """Catch up with the steps since the row was last touched, in which it did not change."""
    if step.ema > 0.0:
        keep = np.float32(step.ema ** (step.number - 1 - state.last[row]))
        average = state.average[row]
        for c in range(len(values)):
            average[c] = values[c] + keep * (average[c] - values[c])


@_inlined
def _average_after(values: Any, state: Any, row: int, step: Any) -> None:
    if step.ema > 0.0:
        average = state.average[row]
        for c in range(len(values)):
            average[c] = values[c] + np.float32(step.ema) * (average[c] - values[c])
        state.last[row] = step.number


@_compiled
def finish_average(T: Any, state: Any, step: Any) -> None:
    """Bring the average of every row up to the present step."""
    for row in range(len(T)):
        keep = np.float32(step.ema ** (step.number - state.last[row]))
        for c in range(T.shape[1]):
            state.average[row, c] = T[row, c] + keep * (state.average[row, c] - T[row, c])
        state.last[row] = step.number


@_compiled
def update_dense(values: Any, g: Any, m: Any, v: Any, step: Any) -> None:
    """One step on parameters that every row touches, flattened."""
    _optimize(values, g, m, v, step)
