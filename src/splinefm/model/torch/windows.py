"""From slots to unit vectors on a device: weighted sums of the features of windows, unit by unit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

from splinefm.encode.slots import SlotLayout
from splinefm.model.workspace import make_shape


class Used(NamedTuple):
    """The weights of some rows that are not zero: their features, and where those of each unit begin."""

    features: Tensor
    weights: Tensor
    units: Tensor
    begin: Tensor


class Windows(torch.nn.Module):
    """A layout as tensors, which move to a device with the module that they are part of.

    Parameters
    ----------
    layout : SlotLayout
        The layout of the slots.
    """

    window: Tensor
    inside: Tensor
    unit: Tensor
    begin: Tensor

    def __init__(self, layout: SlotLayout) -> None:
        super().__init__()
        make_shape(layout)  # which checks it: units follow each other
        widths, pointers = np.diff(layout.weight_ptr), layout.weight_ptr[:-1]
        window = np.repeat(np.arange(layout.n_windows), widths)
        unit = layout.window_unit[window]
        arrays = {
            "window": window.astype(np.int64),
            "inside": (np.arange(layout.n_weights) - pointers[window]).astype(np.int32),
            "unit": unit.astype(np.int32),
            "begin": np.searchsorted(unit, np.arange(layout.n_units)).astype(np.int64),
        }
        for name, array in arrays.items():
            self.register_buffer(name, torch.from_numpy(array), persistent=False)  # the layout has them already
        self.n_units = layout.n_units

    def features(self, start: Tensor) -> Tensor:
        """Return the feature of every weight, shape (n, weights), for starts of shape (n, windows)."""
        return start[:, self.window] + self.inside

    def sums(self, table: Tensor, start: Tensor, weight: Tensor) -> Tensor:
        """Return the sums of the rows of a table, shape (n, units, columns): the unit vectors.

        They are differentiable by the table and by the weights.
        """
        n, n_weights = len(start), len(self.window)
        features = self.features(start).reshape(-1)
        begin = (torch.arange(n, device=start.device)[:, None] * n_weights + self.begin).reshape(-1)
        sums = bag_sums(table, features, begin.to(features.dtype), weight.reshape(-1))
        return sums.reshape(n, self.n_units, table.shape[1])

    def used(self, start: Tensor, weight: Tensor) -> Used:
        """Return what is not zero in some rows; `begin` has an entry for every unit of every row."""
        is_used = weight != 0
        row = torch.arange(len(start), dtype=torch.int32, device=start.device)
        units = row[:, None] * self.n_units + self.unit
        before = torch.nn.functional.pad(is_used.reshape(-1).cumsum(0), (1, 0))
        first = torch.arange(len(start), device=start.device)[:, None] * weight.shape[1] + self.begin
        return Used(self.features(start)[is_used], weight[is_used], units[is_used], before[first.reshape(-1)].int())


def bag_sums(table: Tensor, rows: Tensor, begin: Tensor, weights: Tensor) -> Tensor:
    """Return Σ weight table[row] for rows in bags, of which each begins at an index."""
    return embedding_bag(rows, table, begin, mode="sum", per_sample_weights=weights)
