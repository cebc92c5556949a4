"""What each model does with a tile of rows: scores, and the derivatives by the unit vectors.

P are the unit vectors, `padded(units)` of them per row; D is what the derivatives are, or follow from:

| model | D of a row |
|---|---|
| FM | s = Σ p; the derivative by p_u is s - p_u |
| FwFM, FmFM, HigherOrderFM | the derivative by every p_u |
| FFM | D[f, e] = Σ_{u of field e} p_u[f]; that by p_u[e] is D[f(u), e], less p_u[f(u)] if e = f(u) |

The model is part of the type of `spec`, so that Numba compiles only the code of the model in use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import config, njit
from numba.extending import overload

from splinefm.model.vectors import add, axpy, fetch, fill, fma, load, multiply, number, scale, store, subtract, total

# NaN and infinity keep their meaning, so that a diverging run is seen.
FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}
# No reference counts: the kernels allocate nothing, and counting takes longer than adding a vector. Functions that are
# called by kernels alone become part of them, and need no way in from Python.
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": FASTMATH,
    "_nrt": False,
    "no_cfunc_wrapper": True,
    "error_model": "numpy",
}
_INSIDE: dict[str, Any] = {**OPTIONS, "forceinline": True, "no_cpython_wrapper": True}


def inlined(function: Callable[..., Any]) -> Any:
    """A function that becomes part of the kernels that call it."""
    return njit(**_INSIDE)(function)


# Rows that are scored together: enough to reuse weights between fields from the cache, few enough to stay in it.
TILE = 8  # the same as in workspace.py
_JIT_OFF: bool = config.DISABLE_JIT  # type: ignore[attr-defined]  # set at run time
_ZERO = np.float32(0.0)
_HALF = np.float32(0.5)


@inlined
def padded(n_units: int) -> int:
    """Units are handled four at a time; those beyond the last have vectors of zeros."""
    return (n_units + 3) // 4 * 4


@inlined
def unit_vector(kt: Any, shape: Any, T: Any, width: int, c: int, start: Any, weight: Any, i: int, u: int) -> Any:
    """Numbers c .. c + k - 1 of p_u = Σ weight T[row] of row i, over the windows of u."""
    p = fill(_ZERO, kt)
    for w in range(shape.unit_ptr[u], shape.unit_ptr[u + 1]):
        at = start[i, w] * width + c
        for j in range(shape.weight_ptr[w], shape.weight_ptr[w + 1]):
            p = axpy(weight[i, j], load(T, at, kt), p)
            at += width
    return p


@inlined
def _units(kt: Any, shape: Any, T: Any, data: Any, i: int, P: Any, at: int) -> None:
    """P of row i."""
    k = len(kt)
    for u in range(len(shape.unit_field)):
        store(P, at + u * k, unit_vector(kt, shape, T, k, 0, data.start, data.weight, i, u))


@inlined
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


@inlined
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


@inlined
def _scale_rows(kt: Any, P: Any, slopes: Any, row: int, Z: Any) -> None:
    """Z = slope P, and zeros where a tile is not full."""
    for i in range(TILE):
        slope = slopes[i] if i < len(slopes) else _ZERO
        for at in range(i * row, (i + 1) * row, len(kt)):
            store(Z, at, scale(slope, load(P, at, kt)))


@inlined
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


@inlined
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


@inlined
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


@inlined
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


@inlined
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


@inlined
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


@inlined
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


@inlined
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


def scores(spec: Any, shape: Any, weights: Any, data: Any, rows: Any, scratch: Any, D: Any, at: int, out: Any) -> Any:
    """The interactions of a tile of rows; D from place `at` on is what the model says above."""
    return _SCORES[type(spec)](spec, shape, weights, data, rows, scratch, D, at, out)


def pairs(
    spec: Any, shape: Any, weights: Any, scratch: Any, D: Any, at: int, slopes: Any, work: Any, shard: int
) -> Any:
    """What is left to do for the gradient of a tile: the rest of D, and dR or dM of a shard."""
    return _PAIRS[type(spec)](spec, shape, weights, scratch, D, at, slopes, work, shard)


def derivative_at(spec: Any, shape: Any, i: int, u: int) -> Any:
    """Where D has the derivative of the score of row i of a block by p_u, with the part of p_u itself."""
    return _PLACES[type(spec)](spec, shape, i, u)


def own_part(spec: Any, shape: Any, u: int) -> Any:
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
_PLACES: dict[Any, Any] = {
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
    _PLACES[_spec] = lambda spec, shape, i, u: (i * padded(len(shape.unit_field)) + u) * len(spec.kt)
    _OWNS[_spec] = lambda spec, shape, u: -1


if not _JIT_OFF:  # lambdas without annotations: Numba wants the signatures to be the same to the letter
    _options: Any = {"jit_options": _INSIDE}
    overload(scores, **_options)(
        lambda spec, shape, weights, data, rows, scratch, D, at, out: _SCORES[spec.instance_class]
    )
    overload(pairs, **_options)(
        lambda spec, shape, weights, scratch, D, at, slopes, work, shard: _PAIRS[spec.instance_class]
    )
    overload(derivative_at, **_options)(lambda spec, shape, i, u: _PLACES[spec.instance_class])
    overload(own_part, **_options)(lambda spec, shape, u: _OWNS[spec.instance_class])
