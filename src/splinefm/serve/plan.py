"""The compiled scorer of a fitted model."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm._core import RowScorer
from splinefm.encode.rows.fields import RowFields
from splinefm.learn.fitted import Fitted
from splinefm.model.family import AnyModel, Params, each_output

Float32 = npt.NDArray[np.float32]


def make_scorer(fitted: Fitted, fields: RowFields) -> RowScorer:
    """The compiled scorer; it shares the parameters with the model if vectors need no padding."""
    model, params = fitted.model, fitted.params
    n_fields = len(fitted.encoder.fields)
    k = model.part_size(n_fields)
    padded = 4 if k <= 4 else -(-k // 8) * 8
    return RowScorer(
        encoder=fields.encoder,
        model=model.kind,
        k=padded,
        order=model.order,
        factors=_padded(params["factors"].reshape(-1, params["factors"].shape[-1]), k, padded),
        linear=np.ascontiguousarray(params["linear"], np.float32).reshape(-1),
        between=np.concatenate([_between_fields(model, own, n_fields, padded) for own in each_output(params)]),
        bias=np.ascontiguousarray(params["bias"], np.float32).reshape(-1),
        link=fitted.loss.link,
        center=fitted.loss.center,
        scale=fitted.loss.scale,
    )


def _padded(factors: npt.NDArray[Any], k: int, padded: int) -> Float32:
    """The vectors, with zeros appended to every k numbers."""
    if k == padded:
        return np.ascontiguousarray(factors, np.float32)
    n = len(factors)
    wide = np.zeros((n, factors.shape[1] // k, padded), np.float32)
    wide[:, :, :k] = factors.reshape(n, -1, k)
    return wide.reshape(n, -1)


def _between_fields(model: AnyModel, params: Params, n_fields: int, padded: int) -> Float32:
    """Weights or matrices between fields, flat; matrices by their second field."""
    if not model.field_shapes(n_fields):
        return np.zeros(1, np.float32)
    between = model.between_all(params, n_fields)
    if between.ndim > 2:
        more = (0, padded - between.shape[2])
        between = np.pad(between.transpose(1, 0, 2, 3), ((0, 0), (0, 0), more, more))
    return np.ascontiguousarray(between, np.float32).ravel()
