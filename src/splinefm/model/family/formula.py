"""The score by its formula: the oracle of every engine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from splinefm.encode.slots import Slots
from splinefm.model.family.contract import FloatArray, Model, Params
from splinefm.model.family.parameters import count_outputs, params_of


def unit_sums(table: npt.NDArray[np.floating], slots: Slots) -> FloatArray:
    """Σ_{windows of u} Σ_j weight_j table[start + j]: shape (n, units, ...)."""
    layout = slots.layout
    sums = np.zeros((len(slots), layout.n_units, *table.shape[1:]))
    for window, unit in enumerate(layout.window_unit):
        first, last = layout.weight_ptr[window], layout.weight_ptr[window + 1]
        for j in range(last - first):
            weight = slots.weight[:, first + j].astype(np.float64)
            features = table[slots.start[:, window] + j]
            sums[:, unit] += weight.reshape(-1, *[1] * (table.ndim - 1)) * features
    return sums


def formula_scores(model: Model, params: Params, slots: Slots) -> FloatArray:
    """The score of every row by the formula, in float64: what every engine is tested against.

    With parameters of several outputs, the scores have shape (n, outputs).
    """
    if (n_outputs := count_outputs(params)) > 1:
        return np.stack([formula_scores(model, params_of(params, i), slots) for i in range(n_outputs)], axis=1)
    P = unit_sums(params["factors"], slots)
    # DIFFERS: the linear part of the authors' FwFM is a dense vector on all field vectors, not a weight per feature.
    linear = unit_sums(params["linear"], slots).sum(axis=1)
    return np.asarray(params["bias"][0] + linear + model.interaction(P, params, slots.layout.unit_field))
