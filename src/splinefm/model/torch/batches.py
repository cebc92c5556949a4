"""What an engine is given, checked before the first step: a call with a wrong row changes nothing."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from splinefm.encode.slots import SlotLayout, Slots
from splinefm.model.workspace import LOSSES, Float64, Int64

_RANGES = {"tweedie": (1.0, 2.0), "quantile": (0.0, 1.0), "huber": (0.0, math.inf)}


class ChosenLoss(NamedTuple):
    """A loss as an engine knows it."""

    name: str
    parameter: float


class DeviceBatch(NamedTuple):
    """Rows on a device; the sample weights are divided by their sum."""

    start: torch.Tensor
    weight: torch.Tensor
    y: torch.Tensor
    share: torch.Tensor

    def part(self, first: int, n: int) -> DeviceBatch:
        """Return n rows, from `first` on."""
        return DeviceBatch(*(tensor[first : first + n] for tensor in self))


def make_batch(
    slots: Slots, y: Float64, sample_weight: Float64, rows: Int64, device: torch.device, exact: torch.dtype
) -> DeviceBatch:
    """Return some rows on a device."""
    share = sample_weight[rows] / sample_weight[rows].sum()
    return DeviceBatch(
        on_device(slots.start[rows], torch.int32, device),
        on_device(slots.weight[rows], torch.float32, device),
        on_device(y[rows], exact, device),
        on_device(share, exact, device),
    )


def on_device(array: npt.NDArray[Any], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return a copy of an array on a device."""
    return torch.tensor(array, dtype=dtype, device=device)


def check_loss(name: str, parameter: float, n_outputs: int) -> ChosenLoss:
    """Return a loss; raise if it does not exist, or does not fit its parameter or the number of scores per row."""
    if name not in LOSSES:
        raise ValueError(f"loss must be one of {', '.join(LOSSES)}, got {name!r}")
    low, high = _RANGES.get(name, (0.0, 0.0))
    if not (low < parameter < high if name in _RANGES else parameter == 0.0):
        raise ValueError(f"the parameter of the {name} loss is out of range: {parameter}")
    if (name == "softmax") != (n_outputs > 1):
        raise ValueError(f"softmax needs a bias for each of two or more classes, other losses one; got {n_outputs}")
    return ChosenLoss(name, parameter)


def check_slots(layout: SlotLayout, slots: Slots, rows: Int64 | slice) -> None:
    """Raise unless slots have the shape of a layout, and all windows of some rows begin inside of their fields."""
    n = len(slots.start)
    if slots.start.shape != (n, layout.n_windows) or slots.weight.shape != (n, layout.n_weights):
        raise ValueError("start and weight do not have the shape of the layout")
    field = layout.unit_field[layout.window_unit]
    start, highest = slots.start[rows], layout.feature_ptr[field + 1] - np.diff(layout.weight_ptr)
    if not ((start >= layout.feature_ptr[field]) & (start <= highest)).all():
        raise ValueError("start has features outside of the field of their window")


def check_rows(n: int, y: Float64, sample_weight: Float64, rows: Int64) -> None:
    """Raise unless every row has a target and a weight, and all rows that are asked for exist."""
    if y.shape != (n,) or sample_weight.shape != (n,):
        raise ValueError("y and sample_weight must have a number for every row")
    if len(rows) and not (rows.min() >= 0 and rows.max() < n):
        raise IndexError("rows has numbers of rows that are not there")


def check_labels(y: Float64, n_classes: int) -> None:
    """Raise if the target of a softmax is not the number of a class."""
    wrong = ~((y >= 0.0) & (y < n_classes) & (y == np.floor(y)))
    if wrong.any():
        raise ValueError(
            f"the targets of a softmax must be integers from 0 to {n_classes - 1}, got {float(y[wrong][0])}"
        )


def total_weights(sample_weight: Float64, batch_size: int) -> Float64:
    """Return the sum of the weights of every batch; raise if one cannot be a weight."""
    n = len(sample_weight)
    totals: Float64 = np.add.reduceat(sample_weight, np.arange(0, n, batch_size)) if n else np.zeros(0)
    for total in totals:
        if not 0.0 <= total < math.inf:
            raise ValueError(f"sample weights must be finite and at least 0; those of a batch sum to {total}")
    return totals
