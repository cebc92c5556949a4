"""Penalties on the parameters: which features share one, and how penalties follow what was learned."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from splinefm._arrays import Float32Array, FloatArray
from splinefm.encode.encoder import Encoder
from splinefm.encode.schema import Schema
from splinefm.model.engine import Engine
from splinefm.model.optimizers import Group
from splinefm.train.settings import LINEAR_L2, Training, penalty_by_field

# Lower bound of the vector length that a penalty is divided by: it bounds the penalty.
MIN_LENGTH = 0.01


def unsmoothed_fields(schema: Schema) -> list[str]:
    """Return the names of fields that are not smoothed by default: tensor products.

    Their resolutions and the L2 penalty shrink them. Smoothness made them worse on all tables: decision 38.
    """
    return [cross.name for cross in schema.crosses if cross.is_tensor]


def make_groups(encoder: Encoder, training: Training) -> list[list[Group]]:
    """Return the groups of each field's features with their penalties.

    Tokens and categories have an L2 penalty; the basis functions of splines are smoothed as well.
    """
    names, order = encoder.layout.names, training.smoothness_order
    training = training.with_penalties(names, unsmoothed=unsmoothed_fields(encoder.schema))
    penalties = (penalty_by_field(penalty, names) for penalty in (training.l2, training.smoothness))
    groups: list[list[Group]] = []
    for item, l2, smoothness in zip(encoder.fields, *penalties, strict=True):
        of_field = []
        for block in item.penalty_blocks(order):
            group = Group(block.size, l2, LINEAR_L2 * l2)
            if block.smoothness > 0.0:
                weight = smoothness * block.smoothness
                group = replace(group, smoothness=weight, order=order, periodic=block.periodic, shape=block.shape)
            of_field.append(group)
        groups.append(of_field)
    return groups


class AdaptivePenalties:
    """Penalties that adapt to what was learned: larger for groups of short vectors, all proportional to the noise.

    Parameters
    ----------
    engine : Engine
        The engine to set penalties of. Its current penalties are the base values.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine, self.base = engine, engine.penalty

    def adapt(self, factors: Float32Array, dispersion: float) -> None:
        """Set the engine's penalties for the next epoch."""
        base, model = self.base, self.engine.model
        end = factors.shape[-1] - model.third
        # A feature of an FFM has one vector per field, and each of them learns from one field only, whereas other
        # models have one vector for all fields. Its penalty is therefore divided by the number of fields.
        parts = end // model.part_size(len(self.engine.layout.fields))
        # The penalty of a mean is the mean of its members' penalties: of its vectors, each has a share. The root of
        # the number of members is in the length.
        parts *= model.members
        length, length_third = math.sqrt(parts) * self._lengths(factors[..., :end]), self._lengths(factors[..., end:])
        penalty = base._replace(
            l2=(dispersion * base.l2 / np.maximum(length, MIN_LENGTH)).astype(np.float32),
            l2_third=(dispersion * base.l2_third / np.maximum(length_third, MIN_LENGTH)).astype(np.float32),
            l2_linear=(dispersion * base.l2_linear).astype(np.float32),
            smoothness=(dispersion / model.members * base.smoothness).astype(np.float32),
        )
        self.engine.set_penalty(penalty)

    def _lengths(self, factors: Float32Array) -> FloatArray:
        """Return the root mean square length of the vectors in each group, over all classes of a softmax."""
        # Not the sum of an array of squares, which would be as large as the array of vectors.
        squares = np.einsum("...k,...k->...", factors, factors, dtype=np.float64).reshape(-1, factors.shape[-2])
        begin, size = self.base.begin, self.base.end - self.base.begin
        mean = np.zeros(len(begin))
        # Groups follow each other without gaps, but some may be empty, which `reduceat` does not know.
        filled = size > 0
        if filled.any():
            mean[filled] = np.add.reduceat(squares.mean(axis=0), begin[filled]) / size[filled]
        return np.sqrt(mean)
