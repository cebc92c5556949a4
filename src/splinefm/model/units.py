"""Unit vectors p_u = Σ weight T[row] and linear parts of rows, and how functions become parts of kernels.

Rows come as `columns`, sixteen after sixteen: see `column`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from splinefm.encode.pipeline import Part, Short
from splinefm.model.vectors import axpy, column, fetch, fill, load, number, scale, store

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
    "pipeline_class": Short,
}
INSIDE: dict[str, Any] = {**OPTIONS, "forceinline": True, "no_cpython_wrapper": True, "pipeline_class": Part}
AHEAD = 16  # how many rows of data ahead memory is asked for
_ZERO = np.float32(0.0)


def inlined(function: Callable[..., Any]) -> Any:
    """A function that becomes part of its callers when these are optimized."""
    return njit(**INSIDE)(function)


def merged(function: Callable[..., Any]) -> Any:
    """A function that becomes part of its callers before types are inferred.

    Code below several levels of inlined functions is optimized, and even translated to machine code, once per level;
    merging saves that. It takes time that grows with the square of the function's size, hence is for small ones.
    """
    return njit(**OPTIONS, inline="always")(function)


@merged
def padded(n_units: int) -> int:
    """Units are handled four at a time; those beyond the last have vectors of zeros."""
    return (n_units + 3) // 4 * 4


@merged
def lines(n: int) -> int:
    """n numbers and zeros up to a multiple of sixteen."""
    return (n + 15) // 16 * 16


@merged
def kind_of(shape: Any, u: int) -> int:
    """The number of weights of a unit with one window of one or four weights, which are quick to read; else 0."""
    w = shape.unit_ptr[u]
    n_weights = shape.weight_ptr[w + 1] - shape.weight_ptr[w]
    return n_weights if shape.unit_ptr[u + 1] == w + 1 and (n_weights == 1 or n_weights == 4) else 0


@merged
def start_of(columns: Any, i: int, w: int) -> Any:
    """The first table row of window w of row i."""
    return columns.start[column(i, w, columns.n_windows)]


@merged
def fetch_columns(columns: Any, i: int, w: int, j: int, n_weights: int) -> None:
    """Every sixteen rows, ask for the columns of window w and its weights, two lines ahead.

    The lines of a column are far from each other, so that the processor does not foresee them.
    """
    if i & 15 == 0:
        fetch(columns.start, column(i + 32 + AHEAD, w, columns.n_windows))
        for m in range(n_weights):
            fetch(columns.weight, column(i + 32, j + m, columns.n_weights))


@merged
def long_vector(kt: Any, shape: Any, T: Any, width: int, c: int, columns: Any, i: int, u: int) -> Any:
    """Numbers c .. c + k - 1 of p_u of row i, for any windows."""
    p = fill(_ZERO, kt)
    for w in range(shape.unit_ptr[u], shape.unit_ptr[u + 1]):
        at = start_of(columns, i, w) * width + c
        for j in range(shape.weight_ptr[w], shape.weight_ptr[w + 1]):
            p = axpy(number(columns.weight, column(i, j, columns.n_weights)), load(T, at, kt), p)
            at += width
    return p


@merged
def linear_part(shape: Any, L: Any, columns: Any, i: int, u: int) -> Any:
    """Σ weight · linear weight of unit u of row i."""
    linear = _ZERO
    for w in range(shape.unit_ptr[u], shape.unit_ptr[u + 1]):
        row, x = start_of(columns, i, w), column(i, shape.weight_ptr[w], columns.n_weights)
        for m in range(shape.weight_ptr[w + 1] - shape.weight_ptr[w]):
            linear += number(columns.weight, x + 16 * m) * number(L, row + m)
    return linear


@merged
def category(kt: Any, weights: Any, columns: Any, i: int, end: int, w: int, j: int) -> Any:
    """p_u and linear part of row i for a unit of kind 1, window w, weight j; asks for a row that comes up soon."""
    if i + AHEAD < end:
        ahead = start_of(columns, i + AHEAD, w)
        fetch(weights.T, ahead * len(kt))
        fetch(weights.L, ahead)
    row, x = start_of(columns, i, w), number(columns.weight, column(i, j, columns.n_weights))
    return scale(x, load(weights.T, row * len(kt), kt)), x * number(weights.L, row)


@merged
def four_weights(columns: Any, i: int, j: int) -> Any:
    """The weights of row i from weight j on, as those of a cubic spline."""
    x, at = columns.weight, column(i, j, columns.n_weights)
    return number(x, at), number(x, at + 16), number(x, at + 32), number(x, at + 48)


@merged
def four_rows(kt: Any, T: Any, at: int, x0: Any, x1: Any, x2: Any, x3: Any) -> Any:
    """The sum of four neighboring table rows times their weights."""
    k = len(kt)
    p = axpy(x1, load(T, at + k, kt), scale(x0, load(T, at, kt)))
    return axpy(x3, load(T, at + 3 * k, kt), axpy(x2, load(T, at + 2 * k, kt), p))


@merged
def spline(kt: Any, weights: Any, columns: Any, i: int, w: int, j: int) -> Any:
    """The same for a unit of kind 4, whose table rows are few and near."""
    L, row, (x0, x1, x2, x3) = weights.L, start_of(columns, i, w), four_weights(columns, i, j)
    p = four_rows(kt, weights.T, row * len(kt), x0, x1, x2, x3)
    linear = x0 * number(L, row) + x1 * number(L, row + 1)
    return p, linear + x2 * number(L, row + 2) + x3 * number(L, row + 3)


@merged
def all_units(
    kt: Any, shape: Any, weights: Any, columns: Any, at: int, n: int, P: Any, length: int, scores: Any
) -> None:
    """P of n rows, `length` numbers per row; linear parts are added to the scores."""
    k = len(kt)
    for u in range(shape.n_units):
        kind, w, to = kind_of(shape, u), shape.unit_ptr[u], u * k
        j = shape.weight_ptr[w]
        if kind == 1:
            for i in range(n):
                p, linear = category(kt, weights, columns, at + i, at + n, w, j)
                store(P, i * length + to, p)
                scores[i] += linear
        elif kind == 4:
            for i in range(n):
                p, linear = spline(kt, weights, columns, at + i, w, j)
                store(P, i * length + to, p)
                scores[i] += linear
        else:
            for i in range(n):
                store(P, i * length + to, long_vector(kt, shape, weights.T, k, 0, columns, at + i, u))
                scores[i] += linear_part(shape, weights.L, columns, at + i, u)
