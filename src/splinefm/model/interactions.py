"""What each model does with a tile of rows: scores, and the derivatives by the unit vectors.

P are the unit vectors, `row_length` numbers per row; D is what the derivatives are, or follow from:

| model | D of a row |
|---|---|
| FM | s = Σ p; the derivative by p_u is s - p_u |
| FwFM, FmFM, HigherOrderFM | the derivative by every p_u |
| FFM | D[f, e] = Σ_{u of field e} p_u[f]; that by p_u[e] is D[f(u), e], less p_u[f(u)] if e = f(u) |

Rows come as `columns`, sixteen after sixteen: see `column`. Most models go through a tile unit by unit, not row by row:
what is met often in one field stays in the cache.

The model is part of the type of `spec`, so that Numba compiles only the code of the model in use.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import config, njit
from numba.extending import overload

from splinefm.model.vectors import (
    add,
    axpy,
    column,
    fetch,
    fill,
    fma,
    load,
    multiply,
    number,
    scale,
    store,
    subtract,
    total,
)

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
INSIDE: dict[str, Any] = {**OPTIONS, "forceinline": True, "no_cpython_wrapper": True}


def inlined(function: Callable[..., Any]) -> Any:
    """A function that becomes part of the kernels that call it."""
    return njit(**INSIDE)(function)


_FOUR, _SIXTEEN = (0,) * 4, (0,) * 16
_JIT_OFF: bool = config.DISABLE_JIT  # type: ignore[attr-defined]  # set at run time
AHEAD = 16  # how many rows of data ahead memory is asked for
PAIR_ROWS = 16  # rows whose unit vectors stay in the nearest cache while all pairs are multiplied
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
def kind_of(shape: Any, u: int) -> int:
    """The number of weights of a unit with one window of one or four weights, which are quick to read; else 0."""
    w = shape.unit_ptr[u]
    n_weights = shape.weight_ptr[w + 1] - shape.weight_ptr[w]
    return n_weights if shape.unit_ptr[u + 1] == w + 1 and (n_weights == 1 or n_weights == 4) else 0


@inlined
def start_of(columns: Any, i: int, w: int) -> Any:
    """The first table row of window w of row i."""
    return np.int64(number(columns.start, column(i, w, columns.n_windows)))


@inlined
def quick_vector(kt: Any, shape: Any, kind: int, T: Any, columns: Any, i: int, u: int) -> Any:
    """p_u of row i."""
    k, w = len(kt), shape.unit_ptr[u]
    if kind == 0:
        return long_vector(kt, shape, T, k, 0, columns, i, u)
    at, x = start_of(columns, i, w) * k, column(i, shape.weight_ptr[w], columns.n_weights)
    p = scale(number(columns.weight, x), load(T, at, kt))
    if kind == 4:
        p = axpy(number(columns.weight, x + 16), load(T, at + k, kt), p)
        p = axpy(number(columns.weight, x + 32), load(T, at + 2 * k, kt), p)
        p = axpy(number(columns.weight, x + 48), load(T, at + 3 * k, kt), p)
    return p


@inlined
def long_vector(kt: Any, shape: Any, T: Any, width: int, c: int, columns: Any, i: int, u: int) -> Any:
    """Numbers c .. c + k - 1 of p_u of row i, for any windows."""
    p = fill(_ZERO, kt)
    for w in range(shape.unit_ptr[u], shape.unit_ptr[u + 1]):
        at = start_of(columns, i, w) * width + c
        for j in range(shape.weight_ptr[w], shape.weight_ptr[w + 1]):
            p = axpy(number(columns.weight, column(i, j, columns.n_weights)), load(T, at, kt), p)
            at += width
    return p


@inlined
def _linear(shape: Any, kind: int, L: Any, columns: Any, i: int, u: int) -> Any:
    """Σ weight · linear weight of unit u of row i."""
    linear = _ZERO
    for w in range(shape.unit_ptr[u], shape.unit_ptr[u + 1]):
        row, x = start_of(columns, i, w), column(i, shape.weight_ptr[w], columns.n_weights)
        if kind == 1:
            return number(columns.weight, x) * number(L, row)
        for m in range(shape.weight_ptr[w + 1] - shape.weight_ptr[w]):
            linear += number(columns.weight, x + 16 * m) * number(L, row + m)
    return linear


@inlined
def _fetch_ahead(kt: Any, shape: Any, weights: Any, columns: Any, i: int, end: int, u: int) -> None:
    """Ask for the table row that comes up soon."""
    if i + AHEAD < end:
        row = start_of(columns, i + AHEAD, shape.unit_ptr[u])
        fetch(weights.T, row * len(kt))
        fetch(weights.L, row)


@inlined
def _units(kt: Any, shape: Any, weights: Any, columns: Any, at: int, P: Any, length: int, scores: Any) -> None:
    """P of a tile, `length` numbers per row; linear parts are added to the scores."""
    n = len(scores)
    for u in range(len(shape.unit_field)):
        kind = kind_of(shape, u)
        for i in range(n):
            _fetch_ahead(kt, shape, weights, columns, at + i, at + n, u)
            store(P, i * length + u * len(kt), quick_vector(kt, shape, kind, weights.T, columns, at + i, u))
            scores[i] += _linear(shape, kind, weights.L, columns, at + i, u)


@inlined
def _fm_scores(kt: Any, shape: Any, weights: Any, columns: Any, at: int, P: Any, D: Any, d: int, scores: Any) -> None:
    """½ (|s|² - Σ |p|²) with s = Σ p, which is kept in D; the squares are summed in P."""
    k, n = len(kt), len(scores)
    for i in range(n):
        store(D, d + i * k, fill(_ZERO, kt))
        store(P, i * k, fill(_ZERO, kt))
    for u in range(len(shape.unit_field)):
        kind = kind_of(shape, u)
        for i in range(n):
            _fetch_ahead(kt, shape, weights, columns, at + i, at + n, u)
            p = quick_vector(kt, shape, kind, weights.T, columns, at + i, u)
            store(D, d + i * k, add(load(D, d + i * k, kt), p))
            store(P, i * k, fma(p, p, load(P, i * k, kt)))
            scores[i] += _linear(shape, kind, weights.L, columns, at + i, u)
    for i in range(n):
        both = load(D, d + i * k, kt)
        scores[i] += _HALF * total(subtract(multiply(both, both), load(P, i * k, kt)))


@inlined
def _fwfm_scores(kt: Any, shape: Any, weights: Any, columns: Any, at: int, P: Any, D: Any, d: int, scores: Any) -> None:
    """½ Σ_u p_u' q_u with q_u = Σ_{v≠u} R_{f(u) f(v)} p_v, which is the derivative by p_u."""
    k, n_units = len(kt), len(shape.unit_field)
    row = padded(n_units) * k
    _units(kt, shape, weights, columns, at, P, row, scores)
    for i in range(len(scores)):
        mine = i * row
        score = fill(_ZERO, kt)
        r = 0
        for u in range(0, n_units, 4):  # four sums in registers share every load of p
            q0, q1, q2, q3 = fill(_ZERO, kt), fill(_ZERO, kt), fill(_ZERO, kt), fill(_ZERO, kt)
            for v in range(n_units):
                p = load(P, mine + v * k, kt)
                q0, q1 = axpy(number(weights.R, r), p, q0), axpy(number(weights.R, r + 1), p, q1)
                q2, q3 = axpy(number(weights.R, r + 2), p, q2), axpy(number(weights.R, r + 3), p, q3)
                r += 4
            p, q = mine + u * k, d + mine + u * k
            store(D, q, q0)
            store(D, q + k, q1)
            store(D, q + 2 * k, q2)
            store(D, q + 3 * k, q3)
            score = fma(load(P, p, kt), q0, fma(load(P, p + k, kt), q1, score))
            score = fma(load(P, p + 2 * k, kt), q2, fma(load(P, p + 3 * k, kt), q3, score))
        scores[i] += _HALF * total(score)


@inlined
def _scale_rows(P: Any, slopes: Any, length: int, Z: Any) -> None:
    """Z = slope P."""
    for i in range(len(slopes)):
        for at in range(i * length, (i + 1) * length, 4):
            store(Z, at, scale(slopes[i], load(P, at, _FOUR)))


@inlined
def _fwfm_pairs(kt: Any, n_units: int, P: Any, slopes: Any, Z: Any, dR: Any) -> None:
    """dR_uv += slope p_u p_v, number by number: summed up later. Two by two, so that loads are shared."""
    k, units = len(kt), padded(n_units)
    _scale_rows(P, slopes, units * k, Z)
    for first in range(0, len(slopes), PAIR_ROWS):
        last = min(first + PAIR_ROWS, len(slopes))
        for u in range(0, n_units, 2):
            for v in range(u, n_units, 2):
                at = (u * units + v) * k
                d00, d01 = load(dR, at, kt), load(dR, at + k, kt)
                d10, d11 = load(dR, at + units * k, kt), load(dR, at + (units + 1) * k, kt)
                for i in range(first, last):
                    z, p = (i * units + u) * k, (i * units + v) * k
                    z0, z1, p0, p1 = load(Z, z, kt), load(Z, z + k, kt), load(P, p, kt), load(P, p + k, kt)
                    d00, d01 = fma(z0, p0, d00), fma(z0, p1, d01)
                    d10, d11 = fma(z1, p0, d10), fma(z1, p1, d11)
                store(dR, at, d00)
                store(dR, at + k, d01)
                store(dR, at + units * k, d10)
                store(dR, at + (units + 1) * k, d11)


@inlined
def lines(n: int) -> int:
    """n numbers and zeros up to a multiple of sixteen."""
    return (n + 15) // 16 * 16


@inlined
def _fmfm_scores(kt: Any, shape: Any, weights: Any, columns: Any, at: int, P: Any, D: Any, d: int, scores: Any) -> None:
    """½ Σ_u p_u' q_u with q_u = Σ_{v≠u} M_{f(u) f(v)} p_v, the derivative by p_u: one product of matrices."""
    n, n_rows = len(shape.unit_field) * len(kt), len(scores)
    length = lines(n)
    _units(kt, shape, weights, columns, at, P, length, scores)
    for c in range(0, length, 16):
        for i in range(0, n_rows, 4):
            _times_panel(P, i * length, length, weights.M, c * n, n, D, d + i * length + c)
        for i in range(n_rows):
            both = multiply(load(P, i * length + c, _SIXTEEN), load(D, d + i * length + c, _SIXTEEN))
            scores[i] += _HALF * total(both)


@inlined
def _times_panel(P: Any, p: int, length: int, M: Any, panel: int, n: int, D: Any, d: int) -> None:
    """Sixteen columns of P M for four rows, in registers; there is room for rows beyond the last."""
    q0, q1, q2, q3 = fill(_ZERO, _SIXTEEN), fill(_ZERO, _SIXTEEN), fill(_ZERO, _SIXTEEN), fill(_ZERO, _SIXTEEN)
    for r in range(n):
        m = load(M, panel + 16 * r, _SIXTEEN)
        q0, q1 = axpy(number(P, p + r), m, q0), axpy(number(P, p + length + r), m, q1)
        q2, q3 = axpy(number(P, p + 2 * length + r), m, q2), axpy(number(P, p + 3 * length + r), m, q3)
    store(D, d, q0)
    store(D, d + length, q1)
    store(D, d + 2 * length, q2)
    store(D, d + 3 * length, q3)


@inlined
def _fmfm_pairs(n: int, P: Any, slopes: Any, Z: Any, dM: Any) -> None:
    """dM_uv += slope p_u p_v' for u ≤ v (what is below is garbage), four by sixteen numbers in registers."""
    length = lines(n)
    _scale_rows(P, slopes, length, Z)
    for r in range(0, n, 4):
        for c in range(r // 16 * 16, length, 16):
            at = r * length + c
            d0, d1 = load(dM, at, _SIXTEEN), load(dM, at + length, _SIXTEEN)
            d2, d3 = load(dM, at + 2 * length, _SIXTEEN), load(dM, at + 3 * length, _SIXTEEN)
            for i in range(len(slopes)):
                z, p = i * length + r, load(P, i * length + c, _SIXTEEN)
                d0, d1 = axpy(number(Z, z), p, d0), axpy(number(Z, z + 1), p, d1)
                d2, d3 = axpy(number(Z, z + 2), p, d2), axpy(number(Z, z + 3), p, d3)
            store(dM, at, d0)
            store(dM, at + length, d1)
            store(dM, at + 2 * length, d2)
            store(dM, at + 3 * length, d3)


@inlined
def _block(kt: Any, shape: Any, T: Any, width: int, columns: Any, i: int, u: int, P: Any) -> None:
    """P = the whole of p_u, which is long in an FFM: a pass per four weights."""
    first = True
    for w in range(shape.unit_ptr[u], shape.unit_ptr[u + 1]):
        at, end = start_of(columns, i, w) * width, shape.weight_ptr[w + 1]
        j = shape.weight_ptr[w]
        while j < end:
            x = column(i, j, columns.n_weights)
            if j + 4 <= end:
                x0, x1 = number(columns.weight, x), number(columns.weight, x + 16)
                x2, x3 = number(columns.weight, x + 32), number(columns.weight, x + 48)
                for c in range(0, width, len(kt)):
                    p = fill(_ZERO, kt) if first else load(P, c, kt)
                    t = at + c
                    p = axpy(x1, load(T, t + width, kt), axpy(x0, load(T, t, kt), p))
                    p = axpy(x3, load(T, t + 3 * width, kt), axpy(x2, load(T, t + 2 * width, kt), p))
                    store(P, c, p)
                j, at = j + 4, at + 4 * width
            else:
                x0 = number(columns.weight, x)
                for c in range(0, width, len(kt)):
                    store(P, c, axpy(x0, load(T, at + c, kt), fill(_ZERO, kt) if first else load(P, c, kt)))
                j, at = j + 1, at + width
            first = False


@inlined
def _ffm_scores(kt: Any, shape: Any, weights: Any, columns: Any, at: int, P: Any, D: Any, d: int, scores: Any) -> None:
    """Σ_{u<v} p_u[f(v)]' p_v[f(u)]. D[f, e] = Σ_{u of field e} p_u[f]: turned around, these are the derivatives."""
    k, n_units, n_fields = len(kt), len(shape.unit_field), shape.unit_field[-1] + 1
    width = n_fields * k
    for i in range(len(scores)):
        mine = d + i * n_fields * width
        score = fill(_ZERO, kt)
        for u in range(n_units):
            if u + 1 < n_units:
                ahead = start_of(columns, at + i, shape.unit_ptr[u + 1])
                fetch(weights.L, ahead)
                for c in range(ahead * width, (ahead + 1) * width, 16):
                    fetch(weights.T, c)
            _block(kt, shape, weights.T, width, columns, at + i, u, P)
            scores[i] += _linear(shape, kind_of(shape, u), weights.L, columns, at + i, u)
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
        scores[i] += total(score)


@inlined
def _higher_scores(
    kt: Any, shape: Any, weights: Any, columns: Any, at: int, order: int, P: Any, A: Any, scores: Any
) -> None:
    """Σ_t A[U, t] for t ≥ 2, with A[u + 1, t] = A[u, t] + p_u A[u, t - 1] and A[., 0] = 1."""
    k, n_units = len(kt), len(shape.unit_field)
    sums = (order + 1) * k
    _units(kt, shape, weights, columns, at, P, padded(n_units) * k, scores)
    for i in range(len(scores)):
        mine, a = i * padded(n_units) * k, i * (n_units + 1) * sums
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
        scores[i] += total(score)


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
    """What is fixed for a run of an FM; `kt` has k numbers, `tile` is how many rows are scored together."""

    kt: tuple[int, ...]
    loss: int
    order: int
    tile: int


class FwFMSpec(NamedTuple):
    """The same for an FwFM, of any rank."""

    kt: tuple[int, ...]
    loss: int
    order: int
    tile: int


class FmFMSpec(NamedTuple):
    """The same for an FmFM."""

    kt: tuple[int, ...]
    loss: int
    order: int
    tile: int


class FFMSpec(NamedTuple):
    """The same for an FFM."""

    kt: tuple[int, ...]
    loss: int
    order: int
    tile: int


class HigherSpec(NamedTuple):
    """The same for a HigherOrderFM."""

    kt: tuple[int, ...]
    loss: int
    order: int
    tile: int


def scores(spec: Any, shape: Any, weights: Any, columns: Any, at: Any, scratch: Any, D: Any, d: Any, out: Any) -> Any:
    """Add linear parts and interactions of a tile of rows, from row `at` on, to `out`; D is filled from place d on."""
    return _SCORES[type(spec)](spec, shape, weights, columns, at, scratch, D, d, out)


def pairs(spec: Any, shape: Any, scratch: Any, D: Any, d: int, slopes: Any, work: Any, shard: int) -> Any:
    """What is left to do for the gradient of a tile: the rest of D, and dR or dM of a shard."""
    return _PAIRS[type(spec)](spec, shape, scratch, D, d, slopes, work, shard)


def derivative(spec: Any, shape: Any, T: Any, columns: Any, work: Any, kind: int, i: int, u: Any) -> Any:
    """The derivative of the score of row i of a block by p_u; not for an FFM."""
    return _DERIVATIVES[type(spec)](spec, shape, T, columns, work, kind, i, u)


def fetch_derivative(spec: Any, T: Any, work: Any, i: int, u: Any, row: int) -> Any:
    """Ask for what `derivative` reads; `row` is the first table row of u."""
    return _FETCHES[type(spec)](spec, T, work, i, u, row)


_SCORES: dict[Any, Any] = {
    FMSpec: lambda spec, shape, weights, columns, at, scratch, D, d, out: _fm_scores(
        spec.kt, shape, weights, columns, at, scratch.P, D, d, out
    ),
    FwFMSpec: lambda spec, shape, weights, columns, at, scratch, D, d, out: _fwfm_scores(
        spec.kt, shape, weights, columns, at, scratch.P, D, d, out
    ),
    FmFMSpec: lambda spec, shape, weights, columns, at, scratch, D, d, out: _fmfm_scores(
        spec.kt, shape, weights, columns, at, scratch.P, D, d, out
    ),
    FFMSpec: lambda spec, shape, weights, columns, at, scratch, D, d, out: _ffm_scores(
        spec.kt, shape, weights, columns, at, scratch.P, D, d, out
    ),
    HigherSpec: lambda spec, shape, weights, columns, at, scratch, D, d, out: _higher_scores(
        spec.kt, shape, weights, columns, at, spec.order, scratch.P, scratch.A, out
    ),
}
_PAIRS: dict[Any, Any] = {
    FMSpec: lambda spec, shape, scratch, D, d, slopes, work, shard: None,
    FwFMSpec: lambda spec, shape, scratch, D, d, slopes, work, shard: _fwfm_pairs(
        spec.kt, len(shape.unit_field), scratch.P, slopes, scratch.Z, work.dR[shard]
    ),
    FmFMSpec: lambda spec, shape, scratch, D, d, slopes, work, shard: _fmfm_pairs(
        len(shape.unit_field) * len(spec.kt), scratch.P, slopes, scratch.Z, work.dM[shard]
    ),
    FFMSpec: lambda spec, shape, scratch, D, d, slopes, work, shard: None,
    HigherSpec: lambda spec, shape, scratch, D, d, slopes, work, shard: _higher_pairs(
        spec.kt, len(shape.unit_field), spec.order, scratch.P, scratch.A, scratch.Z, D, d, len(slopes)
    ),
}


@inlined
def _others(kt: Any, shape: Any, T: Any, columns: Any, work: Any, kind: int, i: int, u: int) -> Any:
    """s - p_u."""
    return subtract(load(work.D, i * len(kt), kt), quick_vector(kt, shape, kind, T, columns, i, u))


@inlined
def _kept(kt: Any, work: Any, i: int, u: int) -> Any:
    """Where D has the derivative by p_u."""
    return i * (len(work.D) // work.block) + u * len(kt)


_DERIVATIVES: dict[Any, Any] = {
    FMSpec: lambda spec, shape, T, columns, work, kind, i, u: _others(spec.kt, shape, T, columns, work, kind, i, u),
}
_FETCHES: dict[Any, Any] = {
    FMSpec: lambda spec, T, work, i, u, row: fetch(T, row * len(spec.kt)),
}
for _spec in (FwFMSpec, FmFMSpec, HigherSpec):
    _DERIVATIVES[_spec] = lambda spec, shape, T, columns, work, kind, i, u: load(
        work.D, _kept(spec.kt, work, i, u), spec.kt
    )
    _FETCHES[_spec] = lambda spec, T, work, i, u, row: fetch(work.D, _kept(spec.kt, work, i, u))


if not _JIT_OFF:  # lambdas without annotations: Numba wants the signatures to be the same to the letter
    _options: Any = {"jit_options": INSIDE}
    overload(scores, **_options)(
        lambda spec, shape, weights, columns, at, scratch, D, d, out: _SCORES[spec.instance_class]
    )
    overload(pairs, **_options)(lambda spec, shape, scratch, D, d, slopes, work, shard: _PAIRS[spec.instance_class])
    overload(derivative, **_options)(
        lambda spec, shape, T, columns, work, kind, i, u: _DERIVATIVES[spec.instance_class]
    )
    overload(fetch_derivative, **_options)(lambda spec, T, work, i, u, row: _FETCHES[spec.instance_class])
