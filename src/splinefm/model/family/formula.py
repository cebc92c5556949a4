"""The score by its formula: the oracle of every engine."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from splinefm._arrays import FloatArray
from splinefm.encode.slots import Slots
from splinefm.model.family.contract import Model, Params
from splinefm.model.family.parameters import count_outputs, params_of

_BLOCK_SIZE = 1 << 22  # numbers in memory at a time


def unit_sums(table: npt.NDArray[np.floating], slots: Slots) -> FloatArray:
    """Σ_{windows of u} Σ_j weight_j table[start + j]: shape (n, units, ...)."""
    layout = slots.layout
    window = np.repeat(np.arange(layout.n_windows), np.diff(layout.weight_ptr))
    j = np.arange(layout.n_weights) - layout.weight_ptr[window]
    unit = layout.window_unit[window]
    order = np.argsort(unit, kind="stable")
    window, j, begins = window[order], j[order], np.flatnonzero(np.diff(unit[order], prepend=-1))
    sums = np.zeros((len(slots), layout.n_units, *table.shape[1:]))
    block = max(1, _BLOCK_SIZE // max(1, layout.n_weights * table[:1].size))
    for at in range(0, len(slots), block):
        rows = slice(at, at + block)
        weight = slots.weight[rows][:, order].astype(np.float64)
        terms = weight.reshape(*weight.shape, *[1] * (table.ndim - 1)) * table[slots.start[rows, window] + j]
        sums[rows] = np.add.reduceat(terms, begins, axis=1)
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
    scores = np.asarray(params["bias"][0] + linear + model.interaction(P, params, slots.layout.unit_field))
    return scores if slots.offset is None else scores + slots.offset
