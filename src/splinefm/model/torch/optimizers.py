"""Penalties and optimizers on tensors: the updates of cpp/kernels, in torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from splinefm.model.optimizers import MAX_AXES, Optimizer, Penalty

# Penalties on tensors: L2 by group of features, and smoothness of neighboring features along the axes of blocks.


class _Blocks(NamedTuple):
    """Blocks of one shape, each with its first feature and the strength of its smoothness."""

    lengths: tuple[int, ...]
    order: int
    periodic: tuple[bool, ...]
    first: Tensor
    strength: Tensor

    @property
    def features(self) -> Tensor:
        """All of their features."""
        size = math.prod(self.lengths)
        return (self.first[:, None] + torch.arange(size, device=self.first.device)).reshape(-1)

    def gradient(self, values: Tensor) -> Tensor:
        """Return the gradient of strength Σ |Δ^order v|² along all axes by the values of `features`."""
        shaped = values.reshape(len(self.first), *self.lengths, -1)
        total = torch.zeros_like(shaped)
        for axis, (length, periodic) in enumerate(zip(self.lengths, self.periodic, strict=True), 1):
            if length > (1 if periodic else self.order):
                total += _curvature(shaped, axis, self.order, periodic)
        return (2.0 * self.strength.reshape(-1, *[1] * (total.ndim - 1)) * total).reshape(values.shape)


class _Group(NamedTuple):
    """A smoothed group of several blocks, of which those with active features are smoothed."""

    blocks: _Blocks
    begin: int
    end: int

    def active(self, features: Tensor) -> _Blocks:
        """Return the blocks that have one of some features."""
        size = math.prod(self.blocks.lengths)
        own = features[(features >= self.begin) & (features < self.end)]
        number = torch.unique((own - self.begin) // size)
        return self.blocks._replace(first=self.begin + number * size, strength=self.blocks.strength.expand(len(number)))


class Penalties:
    """The penalties of an engine on its device.

    Parameters
    ----------
    penalty : Penalty
        Groups of features, from `make_penalty`.
    width : int
        Coordinates of a feature: those that meet in pairs, then those for products of three, then the linear weight.
    third : int
        Coordinates for products of three.
    device : torch.device
        Where the parameters are.
    """

    def __init__(self, penalty: Penalty, width: int, third: int, device: torch.device) -> None:
        by_part = (np.repeat(penalty.l2[:, None], width - 1 - third, 1), np.repeat(penalty.l2_third[:, None], third, 1))
        self._l2 = torch.from_numpy(np.concatenate([*by_part, penalty.l2_linear[:, None]], axis=1)).to(device)
        self._end = torch.from_numpy(penalty.end).to(device)
        whole: dict[tuple[object, ...], list[int]] = {}
        self._groups: list[_Group] = []
        for group in np.flatnonzero(penalty.smoothness > 0.0).tolist():
            begin, end, lengths = int(penalty.begin[group]), int(penalty.end[group]), penalty.lengths[group].tolist()
            if math.prod(lengths) == end - begin:
                key = (*lengths, int(penalty.order[group]), int(penalty.periodic[group]))
                whole.setdefault(key, []).append(group)
            elif end > begin:
                self._groups.append(_Group(_blocks(penalty, [group], device), begin, end))
        self._whole = [_blocks(penalty, groups, device) for groups in whole.values()]

    def blocks(self, features: Tensor) -> Iterator[_Blocks]:
        """Yield what is smoothed in a batch with some active features."""
        yield from self._whole
        for group in self._groups:
            found = group.active(features)
            if len(found.first):
                yield found

    def l2(self, features: Tensor) -> Tensor:
        """Return the L2 penalty of every coordinate of some features."""
        return self._l2[torch.searchsorted(self._end, features, right=True)]


def _blocks(penalty: Penalty, groups: list[int], device: torch.device) -> _Blocks:
    group = groups[0]
    bits = int(penalty.periodic[group])  # the last axis first
    return _Blocks(
        tuple(penalty.lengths[group].tolist()),
        int(penalty.order[group]),
        tuple(bool(bits >> axis & 1) for axis in reversed(range(MAX_AXES))),
        torch.from_numpy(penalty.begin[groups]).to(device),
        torch.from_numpy(penalty.smoothness[groups]).to(device),
    )


def _curvature(values: Tensor, axis: int, order: int, periodic: bool) -> Tensor:
    """Return D'D v along an axis, where D takes differences of an order."""
    for _ in range(order):
        values = values.roll(-1, axis) - values if periodic else values.diff(dim=axis)
    for _ in range(order):
        if periodic:
            values = values.roll(1, axis) - values
        else:
            zeros = torch.zeros_like(values.narrow(axis, 0, 1))
            values = -values.diff(dim=axis, prepend=zeros, append=zeros)
    return values


# Lazy AdamW and Adagrad on tensors, with a moving average: the updates of cpp/kernels/update.hpp.


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
    n_steps: int,
    rate: float,
    active: Tensor | None = None,
    missed: Tensor | None = None,
) -> None:
    """Update the rows `active` of some values (default: all) in place, given their gradient and the number of steps.

    Only values of features, which have `active`, decay. `missed` says how many steps each of them was inactive before.
    """
    where = slice(None) if active is None else active
    before = values[where]
    change = _change(moments, gradient, optimizer, n_steps, where)
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
    moments: OptimizerMoments, gradient: Tensor, optimizer: Optimizer, n_steps: int, where: Tensor | slice
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
    correct = 1.0 / (1.0 - optimizer.beta1**n_steps), 1.0 / math.sqrt(1.0 - optimizer.beta2**n_steps)
    return correct[0] * m / (correct[1] * v.sqrt() + optimizer.eps)


def _exact(values: Tensor) -> torch.dtype:
    """Return the most exact type of numbers of a device."""
    return torch.float32 if values.device.type == "mps" else torch.float64
