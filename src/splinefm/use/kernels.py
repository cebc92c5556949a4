"""The loops of exact explanations, on raw arrays. Importing this module loads Numba.

With s_f the sum of the unit vectors of field f, m_f its mean over a background and z_f = s_f - m_f, the score is

    score = const + Σ_f (a_f + z_f' h_f + ½ z_f' q_f),    q_f = Σ_{e≠f} M_fe z_e,    h_f = Σ_{e≠f} M_fe m_e

where a_f is what a field adds on its own: its linear part and the products inside it. The terms of the sum, less their
means, are the Shapley values. Z holds the z of a row, field by field; `width` is the length of a z. The letters are
those of the kernels of the CPU engine.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from splinefm.model.compiled import compiled
from splinefm.model.units import OPTIONS, inlined
from splinefm.model.vectors import add, axpy, fetch, fill, fma, load, multiply, number, scale, store, subtract, total

FOUR = 4  # rows that share the loads of a matrix, and fields that share those of a vector
_ZERO = np.float32(0.0)
_HALF = np.float32(0.5)
_TWO = np.float32(2.0)
_compiled = compiled("use/kernels model/units model/pointers model/vectors", **OPTIONS)


class Shape(NamedTuple):
    """The layout as arrays: the first unit, window and weight of every field, unit and window, and the end."""

    first_unit: Any
    window_ptr: Any
    unit_ptr: Any
    weight_ptr: Any


class Weights(NamedTuple):
    """Parameters, flat; `center` is m, `slope` is h, `inside` are the M_ff, `room` belongs to one thread."""

    T: Any
    L: Any
    R: Any
    M: Any
    inside: Any
    center: Any
    slope: Any
    room: Any


@inlined
def _unit_vector(kt: Any, shape: Any, T: Any, width: int, c: int, start: Any, weight: Any, i: int, u: int) -> Any:
    """Numbers c .. c + k - 1 of p_u = Σ weight T[row] of row i, over the windows of u."""
    p = fill(_ZERO, kt)
    for w in range(shape.unit_ptr[u], shape.unit_ptr[u + 1]):
        at = start[i, w] * width + c
        for j in range(shape.weight_ptr[w], shape.weight_ptr[w + 1]):
            p = axpy(weight[i, j], load(T, at, kt), p)
            at += width
    return p


@inlined
def _own(kt: Any, shape: Any, weights: Any, width: int, start: Any, weight: Any, i: int, f: int) -> Any:
    """a_f: the linear part of a field, and Σ_{u<v} p_u' M_ff p_v over its units."""
    own, k = 0.0, len(kt)
    for w in range(shape.window_ptr[f], shape.window_ptr[f + 1]):
        row = start[i, w]
        for j in range(shape.weight_ptr[w], shape.weight_ptr[w + 1]):
            own += weight[i, j] * weights.L[row]
            row += 1
    part = f * k if width > k else 0  # an FFM has a part for the field itself
    first, last = shape.first_unit[f], shape.first_unit[f + 1]
    if last - first > 1:
        before = _unit_vector(kt, shape, weights.T, width, part, start, weight, i, first)
        for v in range(first + 1, last):
            store(weights.room, 0, before)
            turned = fill(_ZERO, kt)
            for j in range(k):
                turned = axpy(number(weights.room, j), load(weights.inside, (f * k + j) * k, kt), turned)
            p = _unit_vector(kt, shape, weights.T, width, part, start, weight, i, v)
            own += total(multiply(turned, p))
            before = add(before, p)
    return own


@inlined
def _center(kt: Any, shape: Any, weights: Any, width: int, start: Any, weight: Any, i: int, Z: Any, at: int) -> None:
    """Z from place `at` on = s_f - m_f of row i for all fields."""
    k, wide = len(kt), kt + kt + kt + kt
    n_fields = len(shape.first_unit) - 1
    for f in range(n_fields):
        first, last = shape.first_unit[f], shape.first_unit[f + 1]
        if width > k and f + 1 < n_fields:
            ahead = start[i, shape.window_ptr[f + 1]] * width
            for c in range(0, width, 16):
                fetch(weights.T, ahead + c)
        c = 0
        while c + 4 * k <= width:
            z = scale(np.float32(-1.0), load(weights.center, f * width + c, wide))
            for u in range(first, last):
                z = add(z, _unit_vector(wide, shape, weights.T, width, c, start, weight, i, u))
            store(Z, at + f * width + c, z)
            c += 4 * k
        while c < width:
            z = scale(np.float32(-1.0), load(weights.center, f * width + c, kt))
            for u in range(first, last):
                z = add(z, _unit_vector(kt, shape, weights.T, width, c, start, weight, i, u))
            store(Z, at + f * width + c, z)
            c += k


@_compiled
def own_parts(kt: Any, shape: Any, weights: Any, start: Any, weight: Any, Z: Any, offset: Any, out: Any) -> None:
    """out[i, f] = a_f - offset_f of row i."""
    width = len(weights.T) // len(weights.L)
    for i in range(len(out)):
        for f in range(out.shape[1]):
            out[i, f] = _own(kt, shape, weights, width, start, weight, i, f) - offset[f]


@_compiled
def center_rows(kt: Any, shape: Any, weights: Any, start: Any, weight: Any, first: int, last: int, Z: Any) -> None:
    """Z = the z of rows first .. last - 1, one after the other."""
    width = len(weights.T) // len(weights.L)
    for i in range(first, last):
        at = (i - first) * (len(shape.first_unit) - 1) * width
        _center(kt, shape, weights, width, start, weight, i, Z, at)


@_compiled
def terms_fm(kt: Any, shape: Any, weights: Any, start: Any, weight: Any, Z: Any, offset: Any, out: Any) -> None:
    """out[i, f] = a_f + z_f' (h_f + ½ q_f) - offset_f, with q_f = Σ z - z_f."""
    k = len(kt)
    for i in range(len(out)):
        _center(kt, shape, weights, k, start, weight, i, Z, 0)
        both = fill(_ZERO, kt)
        for f in range(out.shape[1]):
            both = add(both, load(Z, f * k, kt))
        for f in range(out.shape[1]):
            z = load(Z, f * k, kt)
            slope = axpy(_HALF, subtract(both, z), load(weights.slope, f * k, kt))
            own = _own(kt, shape, weights, k, start, weight, i, f)
            out[i, f] = own + total(multiply(z, slope)) - offset[f]


@_compiled
def terms_fwfm(kt: Any, shape: Any, weights: Any, start: Any, weight: Any, Z: Any, offset: Any, out: Any) -> None:
    """The same with q_f = Σ_e r_fe z_e; `weights.R` is [f // 4, e, f % 4], zero for f = e."""
    k, n_fields = len(kt), out.shape[1]
    for i in range(len(out)):
        _center(kt, shape, weights, k, start, weight, i, Z, 0)
        r = 0
        for f in range(0, n_fields, FOUR):  # four sums in registers share every load of z
            q0, q1, q2, q3 = fill(_ZERO, kt), fill(_ZERO, kt), fill(_ZERO, kt), fill(_ZERO, kt)
            for e in range(n_fields):
                z = load(Z, e * k, kt)
                q0, q1 = axpy(number(weights.R, r), z, q0), axpy(number(weights.R, r + 1), z, q1)
                q2, q3 = axpy(number(weights.R, r + 2), z, q2), axpy(number(weights.R, r + 3), z, q3)
                r += FOUR
            for m in range(f, min(f + FOUR, n_fields)):
                q = q0 if m == f else q1 if m == f + 1 else q2 if m == f + 2 else q3
                slope = axpy(_HALF, q, load(weights.slope, m * k, kt))
                own = _own(kt, shape, weights, k, start, weight, i, m)
                out[i, m] = own + total(multiply(load(Z, m * k, kt), slope)) - offset[m]


@_compiled
def terms_fmfm(kt: Any, shape: Any, weights: Any, start: Any, weight: Any, Z: Any, offset: Any, out: Any) -> None:
    """The same with q_f = Σ_{e>f} M_fe z_e + Σ_{e<f} M_ef' z_e: every product of two fields counts half for each.

    Z has room for four rows, and for as many sums: twice z_f' h_f and the products, number by number.
    """
    k, n_fields = len(kt), out.shape[1]
    row = n_fields * k
    sums = FOUR * row
    for first in range(0, len(out), FOUR):
        n = min(FOUR, len(out) - first)
        for i in range(n):
            _center(kt, shape, weights, k, start, weight, first + i, Z, i * row)
            for at in range(0, row, k):
                doubled = scale(_TWO, load(weights.slope, at, kt))
                store(Z, sums + i * row + at, multiply(doubled, load(Z, i * row + at, kt)))
        for f in range(n_fields):
            for e in range(f + 1, n_fields):
                _pair_of_rows(kt, weights.M, (f * n_fields + e) * k * k, Z, f * k, e * k, row, sums)
        for i in range(n):
            for f in range(n_fields):
                own = _own(kt, shape, weights, k, start, weight, first + i, f)
                out[first + i, f] = own + _HALF * total(load(Z, sums + i * row + f * k, kt)) - offset[f]


@inlined
def _pair_of_rows(kt: Any, M: Any, matrix: int, Z: Any, f: int, e: int, row: int, sums: int) -> None:
    """Add (M' z_f) z_e to the sums of f and e, for four rows."""
    t0, t1, t2, t3 = fill(_ZERO, kt), fill(_ZERO, kt), fill(_ZERO, kt), fill(_ZERO, kt)
    for j in range(len(kt)):
        m = load(M, matrix + j * len(kt), kt)
        t0, t1 = axpy(number(Z, f + j), m, t0), axpy(number(Z, f + row + j), m, t1)
        t2, t3 = axpy(number(Z, f + 2 * row + j), m, t2), axpy(number(Z, f + 3 * row + j), m, t3)
    for i in range(FOUR):
        t = t0 if i == 0 else t1 if i == 1 else t2 if i == 2 else t3
        product = multiply(t, load(Z, e + i * row, kt))
        mine, theirs = sums + i * row + f, sums + i * row + e
        store(Z, mine, add(product, load(Z, mine, kt)))
        store(Z, theirs, add(product, load(Z, theirs, kt)))


@_compiled
def terms_ffm(kt: Any, shape: Any, weights: Any, start: Any, weight: Any, Z: Any, offset: Any, out: Any) -> None:
    """The same with z_f' q_f = Σ_e z_f[e]' z_e[f]; Z has room for one row, and for a sum per field."""
    k, n_fields = len(kt), out.shape[1]
    width = n_fields * k
    sums = n_fields * width
    for i in range(len(out)):
        _center(kt, shape, weights, width, start, weight, i, Z, 0)
        for f in range(n_fields):
            mine, twice = fill(_ZERO, kt), fill(_ZERO, kt)
            for e in range(f):
                at = f * width + e * k
                z = load(Z, at, kt)
                twice = fma(z, load(weights.slope, at, kt), twice)
                product = multiply(z, load(Z, e * width + f * k, kt))
                mine = add(product, mine)
                store(Z, sums + e * k, add(product, load(Z, sums + e * k, kt)))
            for at in range(f * width + (f + 1) * k, (f + 1) * width, k):
                twice = fma(load(Z, at, kt), load(weights.slope, at, kt), twice)
            store(Z, sums + f * k, axpy(_TWO, twice, mine))
        for f in range(n_fields):
            own = _own(kt, shape, weights, width, start, weight, i, f)
            out[i, f] = own + _HALF * total(load(Z, sums + f * k, kt)) - offset[f]


@_compiled
def effects(kt: Any, shape: Any, weights: Any, start: Any, weight: Any, Z: Any, offset: Any, out: Any) -> None:
    """out[i] = a_f + z_f' h_f - offset_f of all fields, then z_f' M_fe z_e of all pairs f < e."""
    width, n_fields = len(weights.T) // len(weights.L), len(offset)
    for i in range(len(out)):
        _center(kt, shape, weights, width, start, weight, i, Z, 0)
        pair = n_fields
        for f in range(n_fields):
            main = fill(_ZERO, kt)
            for at in range(f * width, (f + 1) * width, len(kt)):
                main = fma(load(Z, at, kt), load(weights.slope, at, kt), main)
            own = _own(kt, shape, weights, width, start, weight, i, f)
            out[i, f] = own + total(main) - offset[f]
            for e in range(f + 1, n_fields):
                out[i, pair] = _product(kt, weights, n_fields, width, Z, f, e)
                pair += 1


@inlined
def _product(kt: Any, weights: Any, n_fields: int, width: int, Z: Any, f: int, e: int) -> Any:
    """z_f' M_fe z_e, by a matrix, by a weight, or of the parts that an FFM has for each other's field."""
    k = len(kt)
    if len(weights.M) > 0:
        turned, matrix = fill(_ZERO, kt), (f * n_fields + e) * k * k
        for j in range(k):
            turned = axpy(number(Z, f * k + j), load(weights.M, matrix + j * k, kt), turned)
        return total(multiply(turned, load(Z, e * k, kt)))
    if len(weights.R) > 0:
        r = number(weights.R, (f // FOUR * n_fields + e) * FOUR + f % FOUR)
        return r * total(multiply(load(Z, f * k, kt), load(Z, e * k, kt)))
    return total(multiply(load(Z, f * width + e * k, kt), load(Z, e * width + f * k, kt)))
