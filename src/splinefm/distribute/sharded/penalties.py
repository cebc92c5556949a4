"""Penalties that adapt to what was learned, for tables that are divided among ranks."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
import numpy.typing as npt
import torch

from splinefm.distribute.sharded.model import PIECE_ROWS, ParallelModel
from splinefm.learn.loop.penalties import MIN_LENGTH

FloatArray = npt.NDArray[np.float64]


def adapt_penalties(model: ParallelModel, dispersion: float) -> None:
    """Set the penalties of the next epoch as `AdaptivePenalties` does: larger for groups of short vectors."""
    flat = [group for parts in model.groups for group in parts]
    sizes = np.array([max(1, group.size) for group in flat], np.float64) * model.shape.outputs
    squares = model.ranks.sums(_squares(model)) / sizes
    parts = (model.shape.width - model.model.third) // model.model.part_size(len(model.layout.fields))
    length, length_third = math.sqrt(parts) * np.sqrt(squares[0]), np.sqrt(squares[1])
    third = np.array([group.l2 if group.l2_third is None else group.l2_third for group in flat])
    set_penalties(
        model,
        dispersion * np.array([group.l2 for group in flat]) / np.maximum(length, MIN_LENGTH),
        dispersion * third / np.maximum(length_third, MIN_LENGTH),
        dispersion * np.array([group.l2_linear for group in flat]),
        dispersion * np.array([group.smoothness for group in flat]),
    )


def first_penalties(model: ParallelModel) -> None:
    """Set the penalties of the first epoch: those of the groups."""
    flat = [group for parts in model.groups for group in parts]
    third = np.array([group.l2 if group.l2_third is None else group.l2_third for group in flat])
    others = (np.array([getattr(group, name) for group in flat]) for name in ("l2_linear", "smoothness"))
    set_penalties(model, np.array([group.l2 for group in flat]), third, *others)


def set_penalties(
    model: ParallelModel, l2: FloatArray, l2_third: FloatArray, l2_linear: FloatArray, smoothness: FloatArray
) -> None:
    """Set the penalties of all groups. Those of a large table have one: the mean by number of features."""
    model.penalties = np.stack([l2, l2_third, l2_linear, smoothness])
    small, large, at = [], [], 0
    for table, parts in zip(model.tables, model.groups, strict=True):
        own = np.arange(at, at + len(parts))
        at += len(parts)
        if table.small:
            small.append(own)
        else:
            weights = np.array([max(1, group.size) for group in parts], np.float64)
            means = np.average(model.penalties[:3, own], axis=1, weights=weights)
            large += [means] * len(table.units)
    chosen = model.penalties[:, np.concatenate([np.zeros(0, int), *small])]
    model.dense.set_penalties(*chosen)
    if large:
        model.formula.l2[:] = torch.from_numpy(np.stack(large, 1)).to(model.formula.l2)


def _squares(model: ParallelModel) -> FloatArray:
    """Sums of squares of the vectors of every group, for pairs and for products of three, in this process."""
    ends = [list(accumulate(group.size for group in parts)) for parts in model.groups]
    first = [0, *accumulate(len(parts) for parts in model.groups)]
    sums, third = np.zeros((2, first[-1])), model.model.third
    for f, begin, end, vectors in model.local_rows():
        for g, stop in enumerate(ends[f]):
            start = ends[f][g - 1] if g else 0
            for at in range(max(begin, start), min(end, stop), PIECE_ROWS):
                rows = vectors[at - begin : min(at + PIECE_ROWS, end, stop) - begin]
                factors = model.shape.split(rows)[0]
                paired = factors.shape[-1] - third
                sums[0, first[f] + g] += float(factors[..., :paired].square().sum(dtype=torch.float64))
                sums[1, first[f] + g] += float(factors[..., paired:].square().sum(dtype=torch.float64))
    return sums
