"""Parameters as the kernel for single rows reads them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm.model.family import AnyModel, Params, each_output

Float32 = npt.NDArray[np.float32]


class RowTables(NamedTuple):
    """Parameters of features, of all outputs one after the other, padded to whole registers."""

    k: int
    """Numbers of a vector that meet in pairs (FFM: for each field): 4, or a multiple of 8."""
    factors: Float32
    """Shape (outputs * features, width)."""
    linear: Float32


def row_tables(model: AnyModel, params: Params, n_fields: int) -> RowTables:
    """Return the parameters of features; they are shared with the model if vectors need no padding.

    Examples
    --------
    >>> from splinefm.model.family import FM
    >>> params = {"factors": np.ones((2, 3), np.float32), "linear": np.zeros(2), "bias": np.zeros(1)}
    >>> row_tables(FM(k=3), params, 2).factors.tolist()
    [[1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]]
    """
    k, padded = _sizes(model, n_fields)
    return RowTables(
        k=model.parts * padded,
        factors=_padded(params["factors"].reshape(-1, params["factors"].shape[-1]), k, padded, model.third),
        linear=np.ascontiguousarray(params["linear"], np.float32).reshape(-1),
    )


def row_between(model: AnyModel, params: Params, n_fields: int) -> Float32:
    """Return the weights or matrices between fields, of all outputs, flat."""
    padded = _sizes(model, n_fields)[1]
    return np.concatenate([_between_fields(model, own, n_fields, padded) for own in each_output(params)])


def row_columns(model: AnyModel, n_fields: int) -> npt.NDArray[np.intp]:
    """Where each number of a feature's vector is in `RowTables.factors`.

    Examples
    --------
    >>> from splinefm.model.family import FwFM
    >>> row_columns(FwFM(k=4, members=2), 2).tolist()
    [0, 1, 8, 9]
    """
    k, padded = _sizes(model, n_fields)
    width = model.width(n_fields)
    column = np.arange(width, dtype=np.intp)
    end = width - model.third
    return np.where(column < end, column // k * padded + column % k, end // k * padded + column - end)


def row_width(model: AnyModel, n_fields: int) -> int:
    """Return the width of `RowTables.factors`."""
    k, padded = _sizes(model, n_fields)
    return (model.width(n_fields) - model.third) // k * padded + -(-model.third // 8) * 8


def is_padded(model: AnyModel, n_fields: int) -> bool:
    """Whether vectors are copied because they do not fill whole registers."""
    k, padded = _sizes(model, n_fields)
    return k != padded or model.third % 8 != 0


def _sizes(model: AnyModel, n_fields: int) -> tuple[int, int]:
    """Numbers of a part of a vector, and with padding."""
    k = model.part_size(n_fields) // model.parts
    return k, 4 if k <= 4 and not model.third and model.parts == 1 else -(-k // 8) * 8


def _padded(factors: npt.NDArray[Any], k: int, padded: int, third: int) -> Float32:
    """The vectors, with zeros appended to every k numbers, and to the `third` numbers at the end."""
    padded_third = -(-third // 8) * 8
    if (k, third) == (padded, padded_third):
        return np.ascontiguousarray(factors, np.float32)
    n, end = len(factors), factors.shape[1] - third
    wide = np.zeros((n, end // k * padded + padded_third), np.float32)
    pairs = wide[:, : end // k * padded].reshape(n, -1, padded)
    pairs[:, :, :k] = factors[:, :end].reshape(n, -1, k)
    wide[:, : end // k * padded] = pairs.reshape(n, -1)
    wide[:, wide.shape[1] - padded_third :][:, :third] = factors[:, end:]
    return wide


def _between_fields(model: AnyModel, params: Params, n_fields: int, padded: int) -> Float32:
    """Weights or matrices between fields, flat; matrices by their second field."""
    if not model.field_shapes(n_fields):
        return np.zeros(1, np.float32)
    between = model.between_all(params, n_fields)
    if between.ndim == 3:  # a weight for each member
        between = between[:, :, :: between.shape[2] // model.parts].transpose(2, 0, 1)
    if between.ndim == 4:
        more = (0, padded - between.shape[2])
        between = np.pad(between.transpose(1, 0, 2, 3), ((0, 0), (0, 0), more, more))
    return np.ascontiguousarray(between, np.float32).ravel()
