"""Penalties on the parameters: which features share one, and how penalties follow what was learned."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from splinefm.encode.bases.basis import smoothing
from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.numerical import Numerical
from splinefm.learn.training import Training, penalty_by_field
from splinefm.model.cpu import CpuEngine
from splinefm.model.optimizers import Group

# Lower bound of the vector length that a penalty is divided by: it bounds the penalty.
MIN_LENGTH = 0.01


def make_groups(encoder: Encoder, training: Training) -> list[list[Group]]:
    """Return the groups of each field's features with their penalties.

    Tokens and categories have an L2 penalty; the basis functions of splines are smoothed as well.
    """
    names, order = encoder.layout.names, training.smoothness_order
    training = training.with_penalties(names)
    penalties = (penalty_by_field(penalty, names) for penalty in (training.l2, training.smoothness))
    groups: list[list[Group]] = []
    for item, layout, l2, smoothness in zip(encoder.fields, encoder.layout.fields, *penalties, strict=True):
        plain = Group(layout.n_features, l2, 0.1 * l2)
        if not isinstance(item, Numerical):
            groups.append([plain])
            continue
        of_field = [replace(plain, size=item.n_tokens)] if item.n_tokens else []
        smooth = replace(plain, order=order, periodic=bool(getattr(item.basis, "periodic", False)))
        for size, weight in zip(item.basis.sizes, smoothing(item.basis, order), strict=True):
            is_smooth = size > order and weight > 0.0
            block = replace(smooth, smoothness=smoothness * weight) if is_smooth else plain
            of_field.append(replace(block, size=size))
        groups.append(of_field)
    return groups


class AdaptivePenalties:
    """Penalties that adapt to what was learned: larger for groups of short vectors, all proportional to the noise.

    Parameters
    ----------
    engine : CpuEngine
        The engine to set penalties of. Its current penalties are the base values.
    """

    def __init__(self, engine: CpuEngine) -> None:
        self.engine, self.base = engine, engine.penalty

    def adapt(self, factors: npt.NDArray[np.float32], dispersion: float) -> None:
        """Set the engine's penalties for the next epoch."""
        base = self.base
        ranges = zip(base.begin, base.end, strict=True)
        length = np.array([self._length(factors[..., begin:end, :]) for begin, end in ranges])
        penalty = base._replace(
            l2=(dispersion * base.l2 / np.maximum(length, MIN_LENGTH)).astype(np.float32),
            l2_linear=(dispersion * base.l2_linear).astype(np.float32),
            smoothness=(dispersion * base.smoothness).astype(np.float32),
        )
        self.engine.set_penalty(penalty)

    def _length(self, factors: npt.NDArray[np.float32]) -> float:
        """Return the root mean square length of vectors, over all classes of a softmax.

        A feature of an FFM has one vector per field, and each of them learns from one field only, whereas other models
        have one vector for all fields. Its penalty is therefore divided by the number of fields.
        """
        model, n_fields = self.engine.model, len(self.engine.layout.fields)
        parts = model.width(n_fields) // model.part_size(n_fields)
        flat = factors.reshape(-1)
        return math.sqrt(parts * float(np.dot(flat, flat)) / max(1, math.prod(factors.shape[:-1])))
