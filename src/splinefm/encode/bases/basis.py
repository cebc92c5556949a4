"""Function bases: u in [0, 1] -> the active functions and their weights B_i(u).

The functions that are not zero at a point form *windows* of neighboring features. A basis has

- `widths`: weights per window,
- `sizes`: functions per block of neighbors; they add up to the number of functions,
- `basis(u) -> (start, weight)`: arrays of shape (n, windows) and (n, sum of widths).

Any object with these members is a basis. A basis that learns from data (`Bins`) also has `fit`. A basis whose
neighboring functions are alike (splines) also has `smoothing(order)`: the weight of Σ |Δ^order v|² in the smoothness
penalty, by block.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from splinefm._arrays import Array, FloatArray, Int32Array
from splinefm._core import uniform_splines
from splinefm.encode.bases.functions import Bins, Fourier, Polynomial, Powers
from splinefm.encode.bases.splines import BSpline, MultiResolution, Windows, whole
from splinefm.encode.slots import expand_windows


@runtime_checkable
class Basis(Protocol):
    """What the encoder needs of a basis."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Weights per window."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Functions per block of neighbors."""

    def __call__(self, u: FloatArray) -> Windows:
        """The first function of each window, and the weights."""


BASES = (BSpline, MultiResolution, Bins, Polynomial, Fourier, Powers)
"""The bases that can be written to a file."""


def write_windows(basis: Basis, u: FloatArray, first: int, start: Int32Array, weight: Array) -> None:
    """Write the starts at u, counted from `first`, and the weights into arrays, such as some columns of slots.

    Examples
    --------
    >>> start, weight = np.empty((1, 1), np.int32), np.empty((1, 2), np.float32)
    >>> write_windows(BSpline(segments=4, degree=1), np.array([0.375]), 10, start, weight)
    >>> start, weight
    (array([[11]], dtype=int32), array([[0.5, 0.5]], dtype=float32))
    """
    # A subclass may compute something else.
    levels = basis.levels if type(basis) is MultiResolution else (basis,) if type(basis) is BSpline else ()
    if not levels or not all(level.is_uniform and not level.periodic for level in levels):
        starts, weights = basis(u)
        np.add(starts, np.int32(first), out=start)
        weight[...] = weights
        return
    u = np.ascontiguousarray(u, np.float64)
    for i, level in enumerate(levels):
        width = level.degree + 1
        uniform_splines(u, level.segments, level.degree, first, start[:, i], weight[:, i * width : (i + 1) * width])
        first += level.sizes[0]


def step_cuts(basis: Basis) -> FloatArray | None:
    """The inner borders in u of a basis with one indicator function per interval; None for any other basis.

    Examples
    --------
    >>> step_cuts(Bins(4)), step_cuts(BSpline(segments=2, degree=0)), step_cuts(BSpline(segments=2))
    (array([0.25, 0.5 , 0.75]), array([0.5]), None)
    """
    # A subclass may compute something else.
    if type(basis) is Bins and basis.cuts is not None:
        return np.array(basis.cuts, np.float64)
    if type(basis) is BSpline and basis.degree == 0:
        return basis.breaks[1:-1]
    return np.zeros(0) if type(basis) is Polynomial and basis.degree == 0 else None


def supports(basis: Basis) -> FloatArray:
    """Where each function of a basis is not zero, in u; all of [0, 1] unless the basis says otherwise."""
    known = getattr(basis, "supports", None)
    return known() if known is not None else whole(sum(basis.sizes))


def smoothing(basis: Basis, order: int) -> tuple[float, ...]:
    """The weight of Σ |Δ^order v|² in the smoothness penalty, by block; 0 unless the basis says otherwise."""
    known = getattr(basis, "smoothing", None)
    return known(order) if known is not None else (0.0,) * len(basis.sizes)


# Tensor products of bases: all products of their functions, the last basis fastest.

GRID = 2048
"""Parts of [0, 1] for functions of which only the values are known."""


def levels_of(basis: Basis) -> tuple[Basis, ...]:
    """The basis of each resolution."""
    return basis.levels if isinstance(basis, MultiResolution) else (basis,)


def product_widths(bases: Sequence[Basis]) -> tuple[int, ...]:
    """Widths of the windows of a product: those of the last basis for every function of the others."""
    if not bases:
        return (1,)
    return tuple(bases[-1].widths) * math.prod(sum(basis.widths) for basis in bases[:-1])


def tensor_product(bases: Sequence[Basis], u: Sequence[FloatArray]) -> tuple[Any, FloatArray]:
    """Windows and weights of the tensor product of bases at u; a single feature of weight 1 without bases."""
    start: Any = np.zeros((1, 1), np.int32)
    weight: Any = np.ones((1, 1))
    for basis, x in zip(bases[:-1], u[:-1], strict=True):
        windows, more = basis(x)
        function = expand_windows(windows, basis.widths)
        start = _outer(start * np.int32(sum(basis.sizes)), function, np.add)
        weight = _outer(weight, more, np.multiply)
    if bases:
        windows, more = bases[-1](u[-1])
        start = _outer(start * np.int32(sum(bases[-1].sizes)), windows, np.add)
        weight = _outer(weight, more, np.multiply)
    return start, weight


def _outer(a: Any, b: Any, combine: Any) -> Any:
    """All combinations of two arrays of shape (n, i) and (n, j), in an array of shape (n, i j)."""
    return combine(a[:, :, None], b[:, None, :]).reshape(len(b), -1)


def is_convex(basis: Basis) -> bool:
    """Whether the functions of a basis are never negative and sum to one."""
    return isinstance(basis, Bins | BSpline) or (isinstance(basis, Polynomial) and basis.family == "bernstein")


def basis_reach(basis: Basis) -> float:
    """The largest sum of absolute values of the functions of a basis, on a grid where it is not known."""
    return 1.0 if is_convex(basis) else float(np.abs(basis(np.linspace(0.0, 1.0, GRID + 1))[1]).sum(axis=1).max())
