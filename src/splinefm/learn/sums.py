"""Weighted sums over rows, without BLAS."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def weighted_sum(weight: FloatArray, values: FloatArray) -> float:
    """Return Σ weight · value.

    A product of long vectors would start the threads of BLAS. They keep their cores busy for some time when they have
    nothing to do, while a fit could use them.

    Examples
    --------
    >>> weighted_sum(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    11.0
    """
    return float(np.sum(weight * values))
