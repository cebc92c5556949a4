"""The score as a quadratic function of the vectors of the fields, in NumPy.

Z are vectors of fields, shape (n, fields, width).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from splinefm.learn.fitted import Fitted

FloatArray = npt.NDArray[np.float64]


def pair_part(fitted: Fitted) -> Fitted:
    """The model without products of more than two units: its pairs, on the first coordinates of its vectors."""
    model = fitted.model.pair_model
    if model is fitted.model:
        return fitted
    factors = np.ascontiguousarray(fitted.params["factors"][:, : model.width(len(fitted.encoder.fields))])
    return replace(fitted, model=model, params={**fitted.params, "factors": factors})


def size(fitted: Fitted) -> tuple[int, int]:
    """Fields, and the length of their vectors."""
    return len(fitted.encoder.layout.fields), fitted.params["factors"].shape[1]


def toward(fitted: Fitted, Z: npt.NDArray[np.floating], f: int) -> FloatArray:
    """Σ_{e≠f} M_fe z_e: the derivative of the products by z_f, shape (n, width)."""
    return fitted.model.slope(Z, fitted.params, np.arange(Z.shape[1], dtype=np.int32), f)
