"""Logarithms, exponentials and the like with the same bits on every processor.

NumPy computes them with other code on processors with AVX-512, and rounds some values differently there. That moved
values on the border of two bins, where T(z) is exactly the cut, into the other bin: a model that was fitted on one
machine scored them differently on another. So transforms take these functions from the machine's C library, on their
way from z to u.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from splinefm._core import elementary
from splinefm._core import power as _power

Float = npt.NDArray[np.float64]


def _by_element(compute: Callable[[Float], Float], x: npt.ArrayLike) -> Float:
    x = np.asarray(x, np.float64)
    return compute(np.ascontiguousarray(x.reshape(-1))).reshape(x.shape)


def log(x: npt.ArrayLike) -> Float:
    return _by_element(lambda z: elementary("log", z), x)


def log1p(x: npt.ArrayLike) -> Float:
    return _by_element(lambda z: elementary("log1p", z), x)


def exp(x: npt.ArrayLike) -> Float:
    return _by_element(lambda z: elementary("exp", z), x)


def expm1(x: npt.ArrayLike) -> Float:
    return _by_element(lambda z: elementary("expm1", z), x)


def arcsinh(x: npt.ArrayLike) -> Float:
    return _by_element(lambda z: elementary("asinh", z), x)


def arctan(x: npt.ArrayLike) -> Float:
    return _by_element(lambda z: elementary("atan", z), x)


def power(x: npt.ArrayLike, exponent: float) -> Float:
    return _by_element(lambda z: _power(z, exponent), x)
