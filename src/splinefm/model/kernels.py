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
    number,
    scale,
    sqrt,
    store,
    subtract,
    total,
)

# NaN and infinity keep their meaning, so that a diverging run is seen.
FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}
# No reference counts: the kernels allocate nothing, and counting takes longer than adding a vector. Functions that are
# called by kernels alone become part of them, and need no way in from Python.
_OPTIONS = {
    "nogil": True,
    "fastmath": FASTMATH,
    "_nrt": False,
    "no_cfunc_wrapper": True,
    "error_model": "numpy",
}
_INSIDE = {**_OPTIONS, "forceinline": True, "no_cpython_wrapper": True}
_compiled: Any = njit(cache=True, **_OPTIONS)
_inlined: Any = njit(**_INSIDE)

LOGISTIC, SQUARED, POISSON = range(3)
# Rows that are scored together: enough to reuse weights between fields from the cache, few enough to stay in it.
TILE = 8  # the same as in workspace.py
AHEAD = 8  # how many table rows ahead memory is asked for
_JIT_OFF: bool = config.DISABLE_JIT  # type: ignore[attr-defined]  # set at run time
_ZERO = np.float32(0.0)
_HALF = np.float32(0.5)


@_compiled
def padded(n_units: int) -> int:
    """Units are handled four at a time; those beyond the last have vectors of zeros."""
    return (n_units + 3) // 4 * 4


@_inlined
def _linear(shape: Any, L: Any, start: Any, weight: Any, i: int) -> Any:
    """Σ weight · linear weight of row i."""
    linear = _ZERO
    for w in range(start.shape[1]):
        row = start[i, w]
        for j in range(shape.weight_ptr[w], shape.weight_ptr[w + 1]):
            linear += weight[i, j] * L[row]
            row += 1
    return linear


@_inlined
def _unit(kt: Any, shape: Any, T: Any, width: int, c: int, start: Any, weight: Any, i: int, u: int) -> Any:
    """Numbers c .. c + k - 1 of p_u = Σ weight T[row] of row i, over the windows of u."""
    p = fill(_ZERO, kt)
    for w in range(shape.unit_ptr[u], shape.unit_ptr[u + 1]):
        at = start[i, w] * width + c
        for j in range(shape.weight_ptr[w], shape.weight_ptr[w + 1]):
            p = axpy(weight[i, j], load(T, at, kt), p)
            at += width
    return p


@_inlined
def _units(kt: Any, shape: Any, T: Any, data: Any, i: int, P: Any, at: int) -> None:
    """P of row i."""
    k = len(kt)
    for u in range(len(shape.unit_field)):
        store(P, at + u * k, _unit(kt, shape, T, k, 0, data.start, data.weight, i, u))


@_inlined
def _fetch_vector(T: Any, width: int, first: int) -> None:
    """Ask for the beginning of a vector; the rest of a long one follows by itself."""
    for at in range(first, first + min(width, 64), 16):
        fetch(T, at)


@_inlined
def _fetch_all(T: Any, width: int, first: int) -> None:
    """Ask for a whole vector."""
    for at in range(first, first + width, 16):
        fetch(T, at)


@_inlined
def _fetch_row(T: Any, L: Any, width: int, start: Any, i: int) -> None:
    """Ask for the table rows of a row of data that comes up soon."""
    for w in range(start.shape[1]):
        _fetch_vector(T, width, start[i, w] * width)
        fetch(L, start[i, w])


@_inlined
def _fm_scores(kt: Any, shape: Any, weights: Any, data: Any, rows: Any, P: Any, D: Any, at: int, scores: Any) -> None:
    """½ (|s|² - Σ |p|²) with s = Σ p, which is kept in D."""
    k = len(kt)
    for i in range(len(rows)):
        _units(kt, shape, weights.T, data, rows[i], P, 0)
        both, squares = fill(_ZERO, kt), fill(_ZERO, kt)
        for u in range(len(shape.unit_field)):
            p = load(P, u * k, kt)
            both = add(both, p)
            squares = fma(p, p, squares)
        store(D, at + i * k, both)
        scores[i] = _HALF * total(subtract(multiply(both, both), squares))


@_inlined
def _fwfm_scores(kt: Any, shape: Any, weights: Any, data: Any, rows: Any, P: Any, D: Any, at: int, scores: Any) -> None:
    """½ Σ_u p_u' q_u with q_u = Σ_{v≠u} R_{f(u) f(v)} p_v, which is the derivative by p_u."""
    k, n_units = len(kt), len(shape.unit_field)
    row = padded(n_units) * k
    for i in range(len(rows)):
        mine = i * row
        _units(kt, shape, weights.T, data, rows[i], P, mine)
        score = fill(_ZERO, kt)
        r = 0
        for u in range(0, n_units, 4):  # four sums in registers share every load of p
            q0, q1, q2, q3 = fill(_ZERO, kt), fill(_ZERO, kt), fill(_ZERO, kt), fill(_ZERO, kt)
            for v in range(n_units):
                p = load(P, mine + v * k, kt)
                q0, q1 = axpy(number(weights.R, r), p, q0), axpy(number(weights.R, r + 1), p, q1)
                q2, q3 = axpy(number(weights.R, r + 2), p, q2), axpy(number(weights.R, r + 3), p, q3)
                r += 4
            p, q = mine + u * k, at + mine + u * k
            store(D, q, q0)
            store(D, q + k, q1)
            store(D, q + 2 * k, q2)
            store(D, q + 3 * k, q3)
            score = fma(load(P, p, kt), q0, fma(load(P, p + k, kt), q1, score))
            score = fma(load(P, p + 2 * k, kt), q2, fma(load(P, p + 3 * k, kt), q3, score))
        scores[i] = _HALF * total(score)


@_inlined
def _scale_rows(kt: Any, P: Any, slopes: Any, row: int, Z: Any) -> None:
    """Z = slope P, and zeros where a tile is not full."""
    for i in range(TILE):
        slope = slopes[i] if i < len(slopes) else _ZERO
        for at in range(i * row, (i + 1) * row, len(kt)):
            store(Z, at, scale(slope, load(P, at, kt)))


@_inlined
def _fwfm_pairs(kt: Any, n_units: int, P: Any, slopes: Any, Z: Any, dR: Any) -> None:
    """dR_uv += slope p_u p_v, number by number: summed up later. Two by two, so that loads are shared."""
    k, units = len(kt), padded(n_units)
    _scale_rows(kt, P, slopes, units * k, Z)
    for u in range(0, n_units, 2):
        for v in range(u, n_units, 2):
            at = (u * units + v) * k
            d00, d01 = load(dR, at, kt), load(dR, at + k, kt)
            d10, d11 = load(dR, at + units * k, kt), load(dR, at + (units + 1) * k, kt)
            for i in range(len(slopes)):
                z, p = (i * units + u) * k, (i * units + v) * k
                z0, z1, p0, p1 = load(Z, z, kt), load(Z, z + k, kt), load(P, p, kt), load(P, p + k, kt)
                d00, d01 = fma(z0, p0, d00), fma(z0, p1, d01)
                d10, d11 = fma(z1, p0, d10), fma(z1, p1, d11)
            store(dR, at, d00)
            store(dR, at + k, d01)
            store(dR, at + units * k, d10)
            store(dR, at + (units + 1) * k, d11)


@_inlined
def _fmfm_scores(kt: Any, shape: Any, weights: Any, data: Any, rows: Any, P: Any, D: Any, at: int, scores: Any) -> None:
    """Σ_v q_v' p_v with q_v = Σ_{u<v} M_{f(u) f(v)}' p_u; the q are kept in D."""
    k, n_units = len(kt), len(shape.unit_field)
    row, n_fields = padded(n_units) * k, shape.unit_field[-1] + 1
    for i in range(len(rows)):
        _units(kt, shape, weights.T, data, rows[i], P, i * row)
        for v in range(n_units):
            store(D, at + i * row + v * k, fill(_ZERO, kt))
        scores[i] = _ZERO
    for v in range(n_units):
        for u in range(v):
            matrix = (shape.unit_field[u] * n_fields + shape.unit_field[v]) * k * k
            _times_matrix(kt, P, u * k, weights.M, matrix, D, at + v * k, row, len(rows))
        for i in range(len(rows)):
            scores[i] += total(multiply(load(D, at + i * row + v * k, kt), load(P, i * row + v * k, kt)))


@_inlined
def _times_matrix(kt: Any, P: Any, p: int, M: Any, matrix: int, D: Any, d: int, row: int, n: int) -> None:
    """D += P M for the same unit of n rows, four at a time: there is room for more, and they share the loads of M."""
    k = len(kt)
    for i in range(0, n, 4):
        at, to = p + i * row, d + i * row
        q0, q1 = load(D, to, kt), load(D, to + row, kt)
        q2, q3 = load(D, to + 2 * row, kt), load(D, to + 3 * row, kt)
        for j in range(k):
            m = load(M, matrix + j * k, kt)
            q0, q1 = axpy(number(P, at + j), m, q0), axpy(number(P, at + row + j), m, q1)
            q2, q3 = axpy(number(P, at + 2 * row + j), m, q2), axpy(number(P, at + 3 * row + j), m, q3)
        store(D, to, q0)
        store(D, to + row, q1)
        store(D, to + 2 * row, q2)
        store(D, to + 3 * row, q3)


@_inlined
def _fmfm_pairs(
    kt: Any, unit_field: Any, transposed: Any, P: Any, D: Any, at: int, slopes: Any, Z: Any, dM: Any
) -> None:
    """D_u += Σ_{v>u} M p_v; dM_{f(u) f(v)} += slope p_u p_v'."""
    k, n_units = len(kt), len(unit_field)
    row, n_fields = padded(n_units) * k, unit_field[-1] + 1
    _scale_rows(kt, P, slopes, row, Z)
    for u in range(n_units):
        for v in range(u + 1, n_units):
            matrix = (unit_field[u] * n_fields + unit_field[v]) * k * k
            _times_matrix(kt, P, v * k, transposed, matrix, D, at + u * k, row, len(slopes))
            for i in range(0, len(slopes), 4):
                z, p = i * row + u * k, i * row + v * k
                p0, p1 = load(P, p, kt), load(P, p + row, kt)
                p2, p3 = load(P, p + 2 * row, kt), load(P, p + 3 * row, kt)
                for j in range(k):
                    d = load(dM, matrix + j * k, kt)
                    d = axpy(number(Z, z + row + j), p1, axpy(number(Z, z + j), p0, d))
                    d = axpy(number(Z, z + 3 * row + j), p3, axpy(number(Z, z + 2 * row + j), p2, d))
                    store(dM, matrix + j * k, d)


@_inlined
def _block(kt: Any, shape: Any, T: Any, width: int, start: Any, weight: Any, i: int, u: int, P: Any) -> None:
    """P = the whole of p_u, which is long in an FFM: a pass per four weights."""
    first = True
    for w in range(shape.unit_ptr[u], shape.unit_ptr[u + 1]):
        at, end = start[i, w] * width, shape.weight_ptr[w + 1]
        j = shape.weight_ptr[w]
        while j < end:
            if j + 4 <= end:
                x0, x1, x2, x3 = weight[i, j], weight[i, j + 1], weight[i, j + 2], weight[i, j + 3]
                for c in range(0, width, len(kt)):
                    p = fill(_ZERO, kt) if first else load(P, c, kt)
                    t = at + c
                    p = axpy(x1, load(T, t + width, kt), axpy(x0, load(T, t, kt), p))
                    p = axpy(x3, load(T, t + 3 * width, kt), axpy(x2, load(T, t + 2 * width, kt), p))
                    store(P, c, p)
                j, at = j + 4, at + 4 * width
            else:
                for c in range(0, width, len(kt)):
                    store(P, c, axpy(weight[i, j], load(T, at + c, kt), fill(_ZERO, kt) if first else load(P, c, kt)))
                j, at = j + 1, at + width
            first = False


@_inlined
def _ffm_scores(kt: Any, shape: Any, weights: Any, data: Any, rows: Any, P: Any, D: Any, at: int, scores: Any) -> None:
    """Σ_{u<v} p_u[f(v)]' p_v[f(u)]. D[f, e] = Σ_{u of field e} p_u[f]: turned around, these are the derivatives."""
    k, n_units, n_fields = len(kt), len(shape.unit_field), shape.unit_field[-1] + 1
    width = n_fields * k
    for i in range(len(rows)):
        mine = at + i * n_fields * width
        score = fill(_ZERO, kt)
        for u in range(n_units):
            if u + 1 < n_units:
                ahead = data.start[rows[i], shape.unit_ptr[u + 1]] * width
                for c in range(0, width, 16):
                    fetch(weights.T, ahead + c)
            _block(kt, shape, weights.T, width, data.start, data.weight, rows[i], u, P)
            field = shape.unit_field[u]
            theirs, place = mine + field * width, mine + field * k
            for f in range(field):  # what the units before u left for this field
                score = fma(load(P, f * k, kt), load(D, theirs + f * k, kt), score)
            if u == 0 or shape.unit_field[u - 1] != field:
                for f in range(n_fields):
                    store(D, place + f * width, load(P, f * k, kt))
            else:
                score = fma(load(P, field * k, kt), load(D, theirs + field * k, kt), score)
                for f in range(n_fields):
                    store(D, place + f * width, add(load(P, f * k, kt), load(D, place + f * width, kt)))
        scores[i] = total(score)


@_inlined
def _higher_scores(
    kt: Any, shape: Any, weights: Any, data: Any, rows: Any, order: int, P: Any, A: Any, scores: Any
) -> None:
    """Σ_t A[U, t] for t ≥ 2, with A[u + 1, t] = A[u, t] + p_u A[u, t - 1] and A[., 0] = 1."""
    k, n_units = len(kt), len(shape.unit_field)
    sums = (order + 1) * k
    for i in range(len(rows)):
        mine, a = i * padded(n_units) * k, i * (n_units + 1) * sums
        _units(kt, shape, weights.T, data, rows[i], P, mine)
        for u in range(n_units + 1):
            store(A, a + u * sums, fill(np.float32(1.0), kt))
        for t in range(1, order + 1):
            store(A, a + t * k, fill(_ZERO, kt))
        for u in range(n_units):
            p = load(P, mine + u * k, kt)
            for t in range(1, order + 1):
                now = a + u * sums + t * k
                store(A, now + sums, fma(p, load(A, now - k, kt), load(A, now, kt)))
        score = fill(_ZERO, kt)
        for t in range(2, order + 1):
            score = add(score, load(A, a + n_units * sums + t * k, kt))
        scores[i] = total(score)


@_inlined
def _higher_pairs(kt: Any, n_units: int, order: int, P: Any, A: Any, E: Any, D: Any, at: int, n: int) -> None:
    """The recursion of `_higher_scores` backwards; E[t] is the derivative by A[u + 1, t]."""
    k = len(kt)
    sums, row = (order + 1) * k, padded(n_units) * k
    for i in range(n):
        for t in range(order + 1):
            store(E, t * k, fill(np.float32(1.0) if t >= 2 else _ZERO, kt))
        for u in range(n_units - 1, -1, -1):
            p, d = load(P, i * row + u * k, kt), fill(_ZERO, kt)
            for t in range(1, order + 1):  # E[t - 1] is used up before it gets its share of E[t]
                derivative = load(E, t * k, kt)
                d = fma(derivative, load(A, (i * (n_units + 1) + u) * sums + (t - 1) * k, kt), d)
                store(E, (t - 1) * k, fma(derivative, p, load(E, (t - 1) * k, kt)))
            store(D, at + i * row + u * k, d)


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


def _scores(spec: Any, shape: Any, weights: Any, data: Any, rows: Any, scratch: Any, D: Any, at: int, out: Any) -> Any:
    """The interactions of a tile of rows; D from place `at` on is what the model says above."""
    return _SCORES[type(spec)](spec, shape, weights, data, rows, scratch, D, at, out)


def _pairs(
    spec: Any, shape: Any, weights: Any, scratch: Any, D: Any, at: int, slopes: Any, work: Any, shard: int
) -> Any:
    """What is left to do for the gradient of a tile: the rest of D, and dR or dM of a shard."""
    return _PAIRS[type(spec)](spec, shape, weights, scratch, D, at, slopes, work, shard)


def _first(spec: Any, shape: Any, i: int, u: int) -> Any:
    """Where D has the derivative of the score of row i of a block by p_u, with the part of p_u itself."""
    return _FIRSTS[type(spec)](spec, shape, i, u)


def _own(spec: Any, shape: Any, u: int) -> Any:
    """The place in p_u of what has to be subtracted from there, or -1."""
    return _OWNS[type(spec)](spec, shape, u)


_SCORES: dict[Any, Any] = {
    FMSpec: lambda spec, shape, weights, data, rows, scratch, D, at, out: _fm_scores(
        spec.kt, shape, weights, data, rows, scratch.P, D, at, out
    ),
    FwFMSpec: lambda spec, shape, weights, data, rows, scratch, D, at, out: _fwfm_scores(
        spec.kt, shape, weights, data, rows, scratch.P, D, at, out
    ),
    FmFMSpec: lambda spec, shape, weights, data, rows, scratch, D, at, out: _fmfm_scores(
        spec.kt, shape, weights, data, rows, scratch.P, D, at, out
    ),
    FFMSpec: lambda spec, shape, weights, data, rows, scratch, D, at, out: _ffm_scores(
        spec.kt, shape, weights, data, rows, scratch.P, D, at, out
    ),
    HigherSpec: lambda spec, shape, weights, data, rows, scratch, D, at, out: _higher_scores(
        spec.kt, shape, weights, data, rows, spec.order, scratch.P, scratch.A, out
    ),
}
_PAIRS: dict[Any, Any] = {
    FMSpec: lambda spec, shape, weights, scratch, D, at, slopes, work, shard: None,
    FwFMSpec: lambda spec, shape, weights, scratch, D, at, slopes, work, shard: _fwfm_pairs(
        spec.kt, len(shape.unit_field), scratch.P, slopes, scratch.Z, work.dR[shard]
    ),
    FmFMSpec: lambda spec, shape, weights, scratch, D, at, slopes, work, shard: _fmfm_pairs(
        spec.kt, shape.unit_field, weights.transposed, scratch.P, D, at, slopes, scratch.Z, work.dM[shard]
    ),
    FFMSpec: lambda spec, shape, weights, scratch, D, at, slopes, work, shard: None,
    HigherSpec: lambda spec, shape, weights, scratch, D, at, slopes, work, shard: _higher_pairs(
        spec.kt, len(shape.unit_field), spec.order, scratch.P, scratch.A, scratch.Z, D, at, len(slopes)
    ),
}


# FM: Σ p, less p_u. FFM: D[f(u), e] = Σ_{v of field e} p_v[f(u)], less p_u[f(u)]. The others store what is needed.
_FIRSTS: dict[Any, Any] = {
    FMSpec: lambda spec, shape, i, u: i * len(spec.kt),
    FFMSpec: lambda spec, shape, i, u: (
        (i * (shape.unit_field[-1] + 1) + shape.unit_field[u]) * (shape.unit_field[-1] + 1) * len(spec.kt)
    ),
}
_OWNS: dict[Any, Any] = {
    FMSpec: lambda spec, shape, u: 0,
    FFMSpec: lambda spec, shape, u: shape.unit_field[u] * len(spec.kt),
}
for _spec in (FwFMSpec, FmFMSpec, HigherSpec):
    _FIRSTS[_spec] = lambda spec, shape, i, u: (i * padded(len(shape.unit_field)) + u) * len(spec.kt)
    _OWNS[_spec] = lambda spec, shape, u: -1


if not _JIT_OFF:  # lambdas without annotations: Numba wants the signatures to be the same to the letter
    _options: Any = {"jit_options": _INSIDE}
    overload(_scores, **_options)(
        lambda spec, shape, weights, data, rows, scratch, D, at, out: _SCORES[spec.instance_class]
    )
    overload(_pairs, **_options)(
        lambda spec, shape, weights, scratch, D, at, slopes, work, shard: _PAIRS[spec.instance_class]
    )
    overload(_first, **_options)(lambda spec, shape, i, u: _FIRSTS[spec.instance_class])
    overload(_own, **_options)(lambda spec, shape, u: _OWNS[spec.instance_class])


@_compiled
def score_rows(spec: Any, shape: Any, weights: Any, data: Any, rows: Any, scratch: Any, D: Any, out: Any) -> None:
    """out[i] = score of row rows[i]; D has room for a tile."""
    for at in range(0, len(rows), TILE):
        tile, scores = rows[at : at + TILE], out[at : at + TILE]
        _scores(spec, shape, weights, data, tile, scratch, D, 0, scores)
        for i in range(len(tile)):
            linear = _linear(shape, weights.L, data.start, data.weight, tile[i])
            scores[i] += weights.bias[0] + linear


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
        _scores(spec, shape, weights, data, tile, scratch, work.D, at * room, slopes)
        for i in range(len(tile)):
            row = tile[i]
            linear = _linear(shape, weights.L, data.start, data.weight, row)
            loss, prediction = _loss(spec.loss, data.y[row], np.float64(weights.bias[0] + linear + slopes[i]))
            work.losses[at + i] = data.sample_weight[row] * loss
            slopes[i] = np.float32(data.sample_weight[row] * (prediction - data.y[row]) / total_weight)
        _pairs(spec, shape, weights, scratch, work.D, at * room, slopes, work, at // work.shard)


@_inlined
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


@_inlined
def _link(spec: Any, shape: Any, n: int, field: int, w: int, n_weights: int, work: Any, touch: Any, room: Any) -> Any:
    """Chain the rows by the start of window w; returns the number of different ones."""
    n_starts, j, u = 0, shape.weight_ptr[w], shape.window_unit[w]
    width = len(touch.gradient) // len(touch.rows)
    for i in range(n):
        if i + 2 * AHEAD < n:
            fetch(touch.slot, work.start[w, i + 2 * AHEAD])
        if n_weights > 1 or work.weight[j, i] != _ZERO:
            _fetch_all(work.D, width, _first(spec, shape, i, u))
            place = _place(spec.kt, touch, field, work.start[w, i])
            if touch.head[place] < 0:
                room.starts[n_starts] = place
                n_starts += 1
            room.chain[i] = touch.head[place]
            touch.head[place] = i
    return n_starts


@_inlined
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


@_inlined
def _alone(unit_field: Any, u: int) -> bool:
    """Whether u is the only unit of its field."""
    field = unit_field[u]
    return (u == 0 or unit_field[u - 1] != field) and (u + 1 == len(unit_field) or unit_field[u + 1] != field)


@_inlined
def _add_one(
    spec: Any, shape: Any, weights: Any, w: int, place: int, head: int, work: Any, touch: Any, chain: Any
) -> None:
    """The gradient of the only row of a window, summed over a chain."""
    k, width = len(spec.kt), len(touch.gradient) // len(touch.rows)
    j, u = shape.weight_ptr[w], shape.window_unit[w]
    own = _own(spec, shape, u)
    g, linear = load(touch.gradient, place * width + max(own, 0), spec.kt), touch.linear[place]
    i = head
    while i >= 0:
        x, d = work.slopes[i] * work.weight[j, i], _first(spec, shape, i, u)
        linear += x
        if own < 0:
            g = axpy(x, load(work.D, d, spec.kt), g)
        elif width == k or not _alone(shape.unit_field, u):
            p = _unit(spec.kt, shape, weights.T, width, own, work.start.T, work.weight.T, i, u)
            g = axpy(x, subtract(load(work.D, d + own, spec.kt), p), g)
        if width > k:
            for c in range(0, width, k):
                if c != own:
                    at = place * width + c
                    store(touch.gradient, at, axpy(x, load(work.D, d + c, spec.kt), load(touch.gradient, at, spec.kt)))
        i = chain[i]
    store(touch.gradient, place * width + max(own, 0), g)
    touch.linear[place] = linear


@_inlined
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
    n, own = min(4, shape.weight_ptr[w + 1] - j), _own(spec, shape, u)
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
            d = load(work.D, _first(spec, shape, i, u) + c, spec.kt)
            if c == own:
                d = subtract(d, _unit(spec.kt, shape, weights.T, width, own, work.start.T, work.weight.T, i, u))
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
    width = len(T) // len(L)
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
                _fetch_vector(T, width, touch.rows[place + AHEAD] * width)
                _fetch_vector(state.v, width, touch.rows[place + AHEAD] * width)
            group = penalty.group_ptr[field]
            while row >= penalty.end[group]:
                group += 1
            keep = _ZERO
            if step.ema > 0.0:
                # While a row is not touched it does not change, and its average approaches it.
                keep = np.float32(step.ema ** (step.number - 1 - state.last[row]))
                state.last[row] = step.number
            for c in range(0, width, len(kt)):
                at = row * width + c
                d = axpy(penalty.l2[group], load(T, at, kt), load(touch.gradient, place * width + c, kt))
                _optimize(kt, T, at, d, keep, state, step)
            d_linear = touch.linear[place] + penalty.l2_linear[group] * L[row]
            _optimize((0,), L, row, fill(d_linear, (0,)), keep, linear, step)
        touch.count[field] = 0


@_inlined
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


@_inlined
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
