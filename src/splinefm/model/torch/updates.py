"""Lazy AdamW and Adagrad on tensors, with a moving average: the updates of cpp/kernels/update.hpp."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from splinefm.model.optimizers import Optimizer


@dataclass
class OptimizerMoments:
    """Optimizer state of some values, by feature on the first axis; `m` and `average` are None if they are not used."""

    v: Tensor
    m: Tensor | None = None
    average: Tensor | None = None

    @staticmethod
    def of(values: Tensor, optimizer: Optimizer, *, averaged: bool = False) -> OptimizerMoments:
        """Return the initial state."""
        return OptimizerMoments(
            torch.zeros_like(values),
            torch.zeros_like(values) if optimizer.name == "adamw" else None,
            values.clone() if averaged and optimizer.ema > 0.0 else None,
        )


def update(
    values: Tensor,
    moments: OptimizerMoments,
    gradient: Tensor,
    optimizer: Optimizer,
    number: int,
    rate: float,
    active: Tensor | None = None,
    missed: Tensor | None = None,
) -> None:
    """Take step `number` in place on the rows `active` of some values, whose gradient is given; on all without them.

    Only values of features, which have `active`, decay. `missed` says how many steps each of them was inactive before.
    """
    where = slice(None) if active is None else active
    before = values[where]
    change = _change(moments, gradient, optimizer, number, where)
    decay = 0.0 if active is None else optimizer.weight_decay
    after = before - rate * (decay * before + change)
    values[where] = after
    if moments.average is not None and missed is not None:
        # A feature does not change while it is inactive, and its average approaches it.
        keep = torch.pow(optimizer.ema, missed.to(_exact(values))).to(values.dtype)
        keep = keep.reshape(-1, *[1] * (values.ndim - 1))
        average = before + keep * (moments.average[where] - before)
        moments.average[where] = after + optimizer.ema * (average - after)


def _change(
    moments: OptimizerMoments, gradient: Tensor, optimizer: Optimizer, number: int, where: Tensor | slice
) -> Tensor:
    v = moments.v[where]
    if moments.m is None:
        v = v + gradient.square()
        moments.v[where] = v
        return gradient / (v.sqrt() + optimizer.eps)
    m = moments.m[where]
    m = m + (1.0 - optimizer.beta1) * (gradient - m)
    v = v + (1.0 - optimizer.beta2) * (gradient.square() - v)
    moments.m[where], moments.v[where] = m, v
    correct = 1.0 / (1.0 - optimizer.beta1**number), 1.0 / math.sqrt(1.0 - optimizer.beta2**number)
    return correct[0] * m / (correct[1] * v.sqrt() + optimizer.eps)


def _exact(values: Tensor) -> torch.dtype:
    """Return the most exact type of numbers of a device."""
    return torch.float32 if values.device.type == "mps" else torch.float64
