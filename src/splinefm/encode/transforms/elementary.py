"""Logarithms, exponentials and the like with the same bits on every processor.

NumPy computes them with other code on processors with AVX-512, and rounds some values differently there. That moved
values on the border of two bins, where T(z) is exactly the cut, into the other bin: a model that was fitted on one
machine scored them differently on another. So transforms take these functions from the machine's C library, on their
way from z to u; but for arcsinh, for which new versions of glibc have other code, too.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import numpy.typing as npt

from splinefm._core import elementary
from splinefm._core import power as _power

Float = npt.NDArray[np.float64]


def _by_element(compute: Callable[[Float], Float], x: npt.ArrayLike) -> Float:
    x = np.asarray(x, np.float64)
    return compute(np.ascontiguousarray(x.reshape(-1))).reshape(x.shape)


log = partial(_by_element, partial(elementary, "log"))
log1p = partial(_by_element, partial(elementary, "log1p"))
exp = partial(_by_element, partial(elementary, "exp"))
expm1 = partial(_by_element, partial(elementary, "expm1"))
arcsinh = partial(_by_element, partial(elementary, "asinh"))
arctan = partial(_by_element, partial(elementary, "atan"))


def power(x: npt.ArrayLike, exponent: float) -> Float:
    """Each x to the power of the exponent."""
    return _by_element(lambda z: _power(z, exponent), x)
