"""Unit vectors p_u = Σ weight T[row] and linear parts of rows, and how functions become parts of kernels.

Rows come as `columns`, sixteen after sixteen: see `column`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from splinefm.encode.pipeline import Part, Short
from splinefm.model.vectors import (
    add,
    axpy,
    column,
    fetch,
    fill,
    four,
    load,
    multiply,
    number,
    scale,
    store,
    sum_four,
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
    "pipeline_class": Short,
}
INSIDE: dict[str, Any] = {**OPTIONS, "forceinline": True, "no_cpython_wrapper": True, "pipeline_class": Part}
AHEAD = 16  # how many rows of data ahead memory is asked for
_ZERO = np.float32(0.0)
FOUR = (np.int64(0),) * 4  # a 0 would have a type of its own, and everything would be compiled for it again


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


@inlined
def fetch_columns(columns: Any, i: int, w: int, j: int, end: int) -> None:
    """Every sixteen rows, ask for the columns of window w and of weights j to end - 1, two lines ahead.

    The lines of a column are far from each other, so that the processor does not foresee them.
    """
    if i & 15 == 0:
        fetch(columns.start, column(i + 32 + AHEAD, w, columns.n_windows))
        for m in range(j, end):
            fetch(columns.weight, column(i + 32, m, columns.n_weights))


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
def spline(kt: Any, weights: Any, columns: Any, i: int, w: int, j: int) -> Any:
    """The same for a unit of kind 4, whose table rows are few and near."""
    row, x = start_of(columns, i, w), four(columns.weight, column(i, j, columns.n_weights))
    return sum_four(x, weights.T, row * len(kt), kt), total(multiply(x, load(weights.L, row, FOUR)))


@inlined
def any_unit(kt: Any, shape: Any, weights: Any, columns: Any, i: int, u: int) -> Any:
    """The same for a unit with any windows, as that of a spline of several resolutions."""
    k, T, L, p, linear = len(kt), weights.T, weights.L, fill(_ZERO, kt), _ZERO
    for w in range(shape.unit_ptr[u], shape.unit_ptr[u + 1]):
        row, j, end = start_of(columns, i, w), shape.weight_ptr[w], shape.weight_ptr[w + 1]
        at = column(i, j, columns.n_weights)
        if end - j == 4:
            x = four(columns.weight, at)
            p = add(p, sum_four(x, T, row * k, kt))
            linear += total(multiply(x, load(L, row, FOUR)))
        else:
            for m in range(end - j):
                weight = number(columns.weight, at + 16 * m)
                p = axpy(weight, load(T, (row + m) * k, kt), p)
                linear += weight * number(L, row + m)
    return p, linear


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
                p, linear = any_unit(kt, shape, weights, columns, at + i, u)
                store(P, i * length + to, p)
                scores[i] += linear
