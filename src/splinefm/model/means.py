"""Mean vectors of fields."""

from __future__ import annotations

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.model.family.contract import Params

_BLOCK_SIZE = 1 << 21  # coordinates of vectors that are converted to float64 at a time


def mean_vector(params: Params, first: int, share: FloatArray) -> tuple[FloatArray, float]:
    """Mean vector and mean linear weight of a field, from the mean weights of its features.

    Only features with a weight are read.
    """
    used = np.flatnonzero(share)
    vector = np.zeros(params["factors"].shape[1])
    most = max(1, _BLOCK_SIZE // len(vector))
    for at in range(0, len(used), most):
        block = used[at : at + most]
        vector += share[block] @ params["factors"][first + block].astype(np.float64)
    return vector, float(share[used] @ params["linear"][first + used].astype(np.float64))
