"""Tensor products of bases: all products of their functions, the last basis fastest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.encode.bases.basis import Basis
from splinefm.encode.bases.bins import Bins
from splinefm.encode.bases.functions import Polynomial
from splinefm.encode.bases.splines import BSpline, MultiResolution
from splinefm.encode.slots import expand_windows

FloatArray = npt.NDArray[np.float64]
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
