"""Which loss a target asks for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from splinefm._arrays import FloatArray
from splinefm._wording import number
from splinefm.encode.inference import LOOK_AT
from splinefm.encode.tables.table import Table
from splinefm.train.losses import Loss

# From this skewness on, and from this standard deviation over the mean, a mean that is linear in the score tends to
# become negative. Counts are skewed by nature, the less the larger they are.
_SKEWED, _VARIABLE, _SKEWED_COUNTS = 1.0, 0.5, 0.5
_LARGEST_COUNT = 10_000  # larger integers are rather amounts


class Choice(NamedTuple):
    """A loss and the reason for it."""

    loss: Loss
    reason: str


def suggest_loss(table: Table, target: str) -> Choice | None:
    """Suggest a loss with positive predictions for counts and for skewed amounts, by the first rows of a table."""
    kind = table.schema.field(target).type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    parts, rows = [], 0
    for batch in table.chunks([target]):
        parts.append(batch.column(0).cast(pa.float64()).to_numpy(zero_copy_only=False))
        rows += batch.num_rows
        if rows >= LOOK_AT:
            break
    y = np.concatenate(parts)
    return suggest_for(target, y[np.isfinite(y)])


def suggest_for(target: str, y: FloatArray) -> Choice | None:
    """Suggest a loss for numbers, or None if the squared loss is fine.

    Examples
    --------
    >>> suggest_for("paid", np.array([0.0, 0, 0, 0, 0, 0, 2.5, 30, 200])).loss.name
    'tweedie'
    """
    if len(y) < 3 or y.min() < 0.0 or y.max() == y.min():
        return None
    mean, spread = float(y.mean()), float(y.std())
    skewness = float(np.mean(((y - mean) / spread) ** 3))
    brief = f"mean {number(mean, '.4g')}, median {number(float(np.median(y)), '.4g')}"
    if y.max() <= _LARGEST_COUNT and (y == np.floor(y)).all():
        is_count = skewness > _SKEWED_COUNTS and spread > _VARIABLE * mean
        return Choice(Loss("poisson"), f"{target!r} looks like a count ({brief})") if is_count else None
    if skewness <= _SKEWED or spread <= _VARIABLE * mean:
        return None
    zeros = float(np.mean(y == 0.0))
    if zeros > 0.0:
        return Choice(Loss("tweedie"), f"{target!r} is skewed, with {zeros:.1%} zeros and no negative values ({brief})")
    return Choice(Loss("gamma"), f"{target!r} is positive and skewed ({brief})")
