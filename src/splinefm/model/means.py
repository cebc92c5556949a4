"""Mean vectors of fields."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from splinefm.model.family import Params

FloatArray = npt.NDArray[np.float64]
_ROOM = 1 << 21  # numbers of the table of vectors that become float64 at a time


def mean_vector(params: Params, first: int, share: FloatArray) -> tuple[FloatArray, float]:
    """Mean vector and mean linear weight of a field from the mean weights of its features; reads those it needs."""
    used = np.flatnonzero(share)
    vector = np.zeros(params["factors"].shape[1])
    most = max(1, _ROOM // len(vector))
    for at in range(0, len(used), most):
        block = used[at : at + most]
        vector += share[block] @ params["factors"][first + block].astype(np.float64)
    return vector, float(share[used] @ params["linear"][first + used].astype(np.float64))
