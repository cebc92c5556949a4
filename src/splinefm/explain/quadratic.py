"""The score as a quadratic function of the vectors of the fields, in NumPy.

Z are vectors of fields, shape (n, fields, width).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from splinefm.learn.fitted import Fitted
from splinefm.model.between import field_weights
from splinefm.model.family import FFM, FmFM, FwFM, LowRankFwFM

FloatArray = npt.NDArray[np.float64]


def size(fitted: Fitted) -> tuple[int, int]:
    """Fields, and the length of their vectors."""
    return len(fitted.encoder.layout.fields), fitted.params["factors"].shape[1]


def between_fields(fitted: Fitted) -> FloatArray:
    """R of M_fe = R_fe I, symmetric; not for an FmFM or an FFM."""
    model, n_fields = fitted.model, size(fitted)[0]
    if isinstance(model, FwFM | LowRankFwFM):
        return field_weights(model, fitted.params)
    return np.ones((n_fields, n_fields))


def toward(fitted: Fitted, Z: npt.NDArray[np.floating], f: int) -> FloatArray:
    """Σ_{e≠f} M_fe z_e: the derivative of the products by z_f, shape (n, width)."""
    if isinstance(fitted.model, FFM):
        parts = Z.reshape(*Z.shape[:2], -1, fitted.model.k)[:, :, f].astype(np.float64)
        parts[:, f] = 0.0
        return parts.reshape(len(Z), -1)
    if isinstance(fitted.model, FmFM):
        M = fitted.params["field_matrices"].astype(np.float64)
        later = np.tensordot(Z[:, f + 1 :], M[f, f + 1 :], axes=((1, 2), (0, 2)))
        return np.asarray(later + np.tensordot(Z[:, :f], M[:f, f], axes=((1, 2), (0, 1))))
    R = between_fields(fitted)[f]
    R[f] = 0.0
    return np.asarray(np.tensordot(Z, R, axes=(1, 0)))
