"""What a model has between two fields."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from splinefm.model.family import FwFM, LowRankFwFM, Params

FloatArray = npt.NDArray[np.float64]


def field_weights(model: FwFM | LowRankFwFM, params: Params) -> FloatArray:
    """R of M_fe = R_fe I, the same in both directions; the diagonal is for units of one field."""
    if isinstance(model, LowRankFwFM):
        U = params["field_factors"].astype(np.float64)
        R = U.T @ (params["field_scales"][:, None] * U)
        np.fill_diagonal(R, 0.0)
        return np.asarray(R)
    R = np.triu(params["field_weights"].astype(np.float64))
    return np.asarray(R + np.triu(R, 1).T)
