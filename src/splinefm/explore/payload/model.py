"""The formula of a model and its parameters, as answers of the model to the questions of its contract."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.explore.payload.buffers import Buffers
from splinefm.learn.fitted import Fitted
from splinefm.model.family import by_output, each_output


def describe_model(fitted: Fitted, features: npt.NDArray[np.intp], buffers: Buffers) -> dict[str, Any]:
    """What scores are made of; parameters are those of some features.

    Pairs of units add p_u[columns(e)]' M_fe p_v[columns(f)], and products of three to `order` units are added
    coordinate by coordinate, for the coordinates in `product`, times `product_weight`.
    """
    model, n_fields = fitted.model, len(fitted.encoder.fields)
    params = by_output(fitted.params)
    every = len(features) == params["linear"].shape[1]
    factors, linear = (params[name] if every else params[name][:, features] for name in ("factors", "linear"))
    between = np.stack([model.between_all(own, n_fields) for own in each_output(fitted.params)])
    product = model.product_columns
    return {
        "text": str(model),
        "kind": model.kind,
        "order": model.order,
        "width": model.width(n_fields),
        "part": model.part_size(n_fields),
        "columns": [model.columns(e).start or 0 for e in range(n_fields)],
        "product": [product.start, product.stop],
        "product_weight": model.product_weight,
        "outputs": fitted.n_outputs,
        "features": len(features),
        "factors": buffers.add("factors", factors, np.float32),
        "linear": buffers.add("linear", linear, np.float32),
        "bias": buffers.add("bias", params["bias"], np.float32),
        "between": buffers.add("between", between, np.float32),
        "between_axes": between.ndim - 3,  # 0: a weight, 1: one for each coordinate, 2: a matrix
    }


def describe_loss(fitted: Fitted) -> dict[str, Any]:
    """The link from scores to predictions, and the names of classes."""
    loss = fitted.loss
    return {
        "name": loss.name,
        "text": str(loss),
        "link": loss.link,
        "center": loss.center,
        "scale": loss.scale,
        "quantile": loss.quantile,
        "of_class": None if loss.of_class is None else str(loss.of_class),
        "classes": None if loss.classes is None else [str(label) for label in loss.classes],
    }
