"""What each model does with a tile of rows: scores, and the derivatives by the unit vectors.

P are the unit vectors, `row_length` numbers per row; D is what the derivatives are, or follow from:

| model | D of a row |
|---|---|
| FM | s = Σ p; the derivative by p_u is s - p_u |
| FwFM, FmFM, HigherOrderFM | the derivative by every p_u |

Rows come as `columns`, sixteen after sixteen: see `column`. Most models go through a tile unit by unit, not row by row:
what is met often in one field stays in the cache. An FFM has a module of its own.

The model is part of the type of `spec`, so that Numba compiles only the code of the model in use.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import config
from numba.extending import overload

from splinefm.model.ffm import score_row
from splinefm.model.pointers import behind
from splinefm.model.units import (
    INSIDE,
    all_units,
    any_unit,
    category,
    kind_of,
    lines,
    merged,
    padded,
    spline,
)
from splinefm.model.vectors import (
    add,
    axpy,
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

_FOUR, _SIXTEEN = (0,) * 4, (0,) * 16
_JIT_OFF: bool = config.DISABLE_JIT  # type: ignore[attr-defined]  # set at run time
PAIR_ROWS = 16  # rows whose unit vectors stay in the nearest cache while all pairs are multiplied
_ZERO = np.float32(0.0)
_HALF = np.float32(0.5)


def _fm_scores(
    spec: Any, shape: Any, weights: Any, columns: Any, at: int, n: int, scratch: Any, D: Any, d: int, out: Any
) -> None:
    """½ (|s|² - Σ |p|²) with s = Σ p, which is kept in D; the squares are summed in P."""
    kt, k, P = spec.kt, len(spec.kt), scratch.P
    for i in range(n):
        store(D, d + i * k, fill(_ZERO, kt))
        store(P, i * k, fill(_ZERO, kt))
    u = 0
    while u < shape.n_units:
        kind, w, end = kind_of(shape, u), shape.unit_ptr[u], at + n
        j = shape.weight_ptr[w]
        if kind == 1 and u + 1 < shape.n_units and kind_of(shape, u + 1) == 1:  # two share what is read and written
            for i in range(n):
                p, first = category(kt, weights, columns, at + i, end, w, j)
                q, second = category(kt, weights, columns, at + i, end, w + 1, j + 1)
                store(D, d + i * k, add(add(load(D, d + i * k, kt), p), q))
                store(P, i * k, fma(q, q, fma(p, p, load(P, i * k, kt))))
                out[i] = out[i] + first + second
            u += 2
        elif kind == 4:
            for i in range(n):
                p, linear = spline(kt, weights, columns, at + i, w, j)
                store(D, d + i * k, add(load(D, d + i * k, kt), p))
                store(P, i * k, fma(p, p, load(P, i * k, kt)))
                out[i] += linear
            u += 1
        else:
            for i in range(n):
                p, linear = any_unit(kt, shape, weights, columns, at + i, u)
                store(D, d + i * k, add(load(D, d + i * k, kt), p))
                store(P, i * k, fma(p, p, load(P, i * k, kt)))
                out[i] += linear
            u += 1
    for i in range(n):
        both = load(D, d + i * k, kt)
        out[i] += _HALF * total(subtract(multiply(both, both), load(P, i * k, kt)))


def _fwfm_scores(
    spec: Any, shape: Any, weights: Any, columns: Any, at: int, n: int, scratch: Any, D: Any, d: int, out: Any
) -> None:
    """½ Σ_u p_u' q_u with q_u = Σ_{v≠u} R_{f(u) f(v)} p_v, which is the derivative by p_u."""
    kt, k, n_units, P = spec.kt, len(spec.kt), shape.n_units, scratch.P
    row = padded(n_units) * k
    all_units(kt, shape, weights, columns, at, n, P, row, out)
    for i in range(n):
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
        out[i] += _HALF * total(score)


@merged
def _scale_rows(P: Any, n: int, slopes: Any, length: int, Z: Any) -> None:
    """Z = slope P of n rows."""
    for i in range(n):
        for at in range(i * length, (i + 1) * length, 4):
            store(Z, at, scale(slopes[i], load(P, at, _FOUR)))


def _fwfm_pairs(
    spec: Any, shape: Any, scratch: Any, D: Any, d: int, n: int, slopes: Any, work: Any, shard: int
) -> None:
    """dR_uv += slope p_u p_v, number by number: summed up later. Two by two, so that loads are shared."""
    kt, k, n_units, P, Z = spec.kt, len(spec.kt), shape.n_units, scratch.P, scratch.Z
    units, dR = padded(n_units), behind(work.between, shard * work.n_between)
    _scale_rows(P, n, slopes, units * k, Z)
    for first in range(0, n, PAIR_ROWS):
        last = min(first + PAIR_ROWS, n)
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


def _fmfm_scores(
    spec: Any, shape: Any, weights: Any, columns: Any, at: int, n: int, scratch: Any, D: Any, d: int, out: Any
) -> None:
    """½ Σ_u p_u' q_u with q_u = Σ_{v≠u} M_{f(u) f(v)} p_v, the derivative by p_u: one product of matrices."""
    size, P = shape.n_units * len(spec.kt), scratch.P
    length = lines(size)
    all_units(spec.kt, shape, weights, columns, at, n, P, length, out)
    for c in range(0, length, 16):
        for i in range(0, n, 4):
            _times_panel(P, i * length, length, weights.M, c * size, size, D, d + i * length + c)
        for i in range(n):
            both = multiply(load(P, i * length + c, _SIXTEEN), load(D, d + i * length + c, _SIXTEEN))
            out[i] += _HALF * total(both)


@merged
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


def _fmfm_pairs(
    spec: Any, shape: Any, scratch: Any, D: Any, d: int, n: int, slopes: Any, work: Any, shard: int
) -> None:
    """dM_uv += slope p_u p_v' for u ≤ v (what is below is garbage), four by sixteen numbers in registers."""
    size, P, Z = shape.n_units * len(spec.kt), scratch.P, scratch.Z
    length, dM = lines(size), behind(work.between, shard * work.n_between)
    _scale_rows(P, n, slopes, length, Z)
    for r in range(0, size, 4):
        for c in range(r // 16 * 16, length, 16):
            at = r * length + c
            d0, d1 = load(dM, at, _SIXTEEN), load(dM, at + length, _SIXTEEN)
            d2, d3 = load(dM, at + 2 * length, _SIXTEEN), load(dM, at + 3 * length, _SIXTEEN)
            for i in range(n):
                z, p = i * length + r, load(P, i * length + c, _SIXTEEN)
                d0, d1 = axpy(number(Z, z), p, d0), axpy(number(Z, z + 1), p, d1)
                d2, d3 = axpy(number(Z, z + 2), p, d2), axpy(number(Z, z + 3), p, d3)
            store(dM, at, d0)
            store(dM, at + length, d1)
            store(dM, at + 2 * length, d2)
            store(dM, at + 3 * length, d3)


def _ffm_scores(
    spec: Any, shape: Any, weights: Any, columns: Any, at: int, n: int, scratch: Any, D: Any, d: int, out: Any
) -> None:
    """Row by row: see `ffm`."""
    for i in range(n):
        out[i] += score_row(spec.kt, shape, weights, columns, at + i, scratch)


def _higher_scores(
    spec: Any, shape: Any, weights: Any, columns: Any, at: int, n: int, scratch: Any, D: Any, d: int, out: Any
) -> None:
    """Σ_t A[U, t] for t ≥ 2, with A[u + 1, t] = A[u, t] + p_u A[u, t - 1] and A[., 0] = 1."""
    kt, k, n_units, order, P, A = spec.kt, len(spec.kt), shape.n_units, spec.order, scratch.P, scratch.A
    sums = (order + 1) * k
    all_units(kt, shape, weights, columns, at, n, P, padded(n_units) * k, out)
    for i in range(n):
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
        out[i] += total(score)


def _higher_pairs(
    spec: Any, shape: Any, scratch: Any, D: Any, d: int, n: int, slopes: Any, work: Any, shard: int
) -> None:
    """The recursion of `_higher_scores` backwards; E[t] is the derivative by A[u + 1, t]."""
    kt, k, n_units, order = spec.kt, len(spec.kt), shape.n_units, spec.order
    P, A, E, sums, row = scratch.P, scratch.A, scratch.Z, (order + 1) * k, padded(n_units) * k
    for i in range(n):
        for t in range(order + 1):
            store(E, t * k, fill(np.float32(1.0) if t >= 2 else _ZERO, kt))
        for u in range(n_units - 1, -1, -1):
            p, own = load(P, i * row + u * k, kt), fill(_ZERO, kt)
            for t in range(1, order + 1):  # E[t - 1] is used up before it gets its share of E[t]
                derivative = load(E, t * k, kt)
                own = fma(derivative, load(A, (i * (n_units + 1) + u) * sums + (t - 1) * k, kt), own)
                store(E, (t - 1) * k, fma(derivative, p, load(E, (t - 1) * k, kt)))
            store(D, d + i * row + u * k, own)


# The model is part of the type of `spec`: Numba compiles only the code of the model in use.


class FMSpec(NamedTuple):
    """What is fixed for a run of an FM; `kt` has k numbers, `tile` is how many rows are scored together."""

    kt: tuple[int, ...]
    loss: int
    order: int
    tile: int


class FwFMSpec(NamedTuple):
    """The same for an FwFM."""

    kt: tuple[int, ...]
    loss: int
    order: int
    tile: int


class LowRankSpec(NamedTuple):
    """The same for a LowRankFwFM: an FwFM whose weights come from fewer numbers."""

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


def scores(
    spec: Any, shape: Any, weights: Any, columns: Any, at: int, n: int, scratch: Any, D: Any, d: int, out: Any
) -> None:
    """Add linear parts and interactions of n rows, from row `at` on, to `out`; D is filled from place d on."""
    _SCORES[type(spec)](spec, shape, weights, columns, at, n, scratch, D, d, out)


def pairs(spec: Any, shape: Any, scratch: Any, D: Any, d: int, n: int, slopes: Any, work: Any, shard: int) -> None:
    """What is left to do for the gradient of n rows: the rest of D, and dR or dM of a shard."""
    _PAIRS[type(spec)](spec, shape, scratch, D, d, n, slopes, work, shard)


def _no_pairs(spec: Any, shape: Any, scratch: Any, D: Any, d: int, n: int, slopes: Any, work: Any, shard: int) -> None:
    """D follows from P alone."""


_SCORES: dict[Any, Any] = {
    FMSpec: _fm_scores,
    FwFMSpec: _fwfm_scores,
    LowRankSpec: _fwfm_scores,
    FmFMSpec: _fmfm_scores,
    FFMSpec: _ffm_scores,
    HigherSpec: _higher_scores,
}
_PAIRS: dict[Any, Any] = {
    FMSpec: _no_pairs,
    FwFMSpec: _fwfm_pairs,
    LowRankSpec: _fwfm_pairs,
    FmFMSpec: _fmfm_pairs,
    HigherSpec: _higher_pairs,
}
KEPT = (FwFMSpec, LowRankSpec, FmFMSpec, HigherSpec)


def dispatched(door: Callable[..., Any], choices: dict[Any, Any]) -> None:
    """Let Numba take the function of the model, whose signature is that of the door to the letter."""

    def choose(spec: Any, *others: Any) -> Any:
        return choices[spec.instance_class]

    if not _JIT_OFF:
        choose.__signature__ = inspect.signature(door)  # type: ignore[attr-defined]  # looked up by inspect
        options: Any = {"jit_options": INSIDE}
        overload(door, **options)(choose)


dispatched(scores, _SCORES)
dispatched(pairs, _PAIRS)
