"""Tensor products of bases: all products of their functions, the last basis fastest."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.encode.bases.basis import Basis
from splinefm.encode.bases.splines import MultiResolution
from splinefm.encode.slots import expand_windows

FloatArray = npt.NDArray[np.float64]


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
