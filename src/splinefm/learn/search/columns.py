"""Which columns explain something alone: the order in which a wide table may lose the others."""

from __future__ import annotations

import numpy as np

from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Schema
from splinefm.learn.rows.chunks import Chunks
from splinefm.learn.search.screening import ALONE, Folds, code_column, explained
from splinefm.learn.search.unexplained import spread_rows
from splinefm.learn.search.values import read_values
from splinefm.learn.training import Training

# Rows that are looked at: cells of columns that explain something stand out early.
MAX_RANKED = 20_000


def rank_columns(chunks: Chunks, schema: Schema, training: Training) -> list[str]:
    """Return the names of the fields, those first whose cells explain most of the target in other rows.

    Fields of lists, which have no cells, come first.
    """
    kept = chunks.kept
    assert kept is not None
    rows = spread_rows(kept.sample_weight > 0, MAX_RANKED)
    y, weight = kept.y[rows], kept.sample_weight[rows]
    constant = np.full((len(rows), *np.shape(chunks.start)), chunks.start)
    slope = chunks.loss.slope(y, constant).reshape(len(rows), -1)
    residuals = -slope * np.sqrt(weight / weight.mean())[:, None]
    read = [item.name for item in schema.fields if isinstance(item, Numerical | Categorical)]
    values = read_values(chunks, read, rows)
    coded = [column for name in read if (column := code_column(chunks.encoder, name, values[name])) is not None]
    position = np.random.default_rng([0x636F6C, training.seed]).random(len(rows))
    pairs = [(i, ALONE) for i in range(len(coded))]
    gains = np.zeros(len(coded))
    for residual in residuals.T:
        gains += explained(coded, pairs, residual, Folds(position, 2), training.threads)
    gain_of = {column.name: float(gain) for column, gain in zip(coded, gains, strict=True)}
    unread = [item.name for item in schema.fields if item.name not in read]
    return unread + sorted(read, key=lambda name: -gain_of.get(name, -np.inf))
