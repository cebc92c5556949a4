"""How much single columns explain: which ones a wide table can lose, and which one gives the target away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.encode.schema import Schema
from splinefm.encode.slots import Slots
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params
from splinefm.model.scores import BatchScorer
from splinefm.search.screening import SINGLE_COLUMN, Folds, code_column, evenly_spaced_rows, explained, read_values
from splinefm.train.chunks import Chunks, take_rows
from splinefm.train.losses import Loss
from splinefm.train.results import Evidence
from splinefm.train.rows import Chunk
from splinefm.train.settings import Training, seeded

# Which columns explain something alone: the order in which a wide table may lose the others.

# Rows that are looked at: cells of columns that explain something stand out early.
MAX_RANKED = 20_000


def rank_columns(chunks: Chunks, schema: Schema, training: Training) -> list[str]:
    """Return the names of the fields, those first whose cells explain most of the target in other rows.

    Fields of lists, which have no cells, come first.
    """
    kept = chunks.kept
    assert kept is not None
    rows = evenly_spaced_rows(kept.sample_weight > 0, MAX_RANKED)
    some = take_rows(kept, rows)
    weight = some.sample_weight
    slope = chunks.loss.slope(some.y, some.constant_scores(chunks.start)).reshape(len(rows), -1)
    residuals = -slope * np.sqrt(weight / weight.mean())[:, None]
    read = [item.name for item in schema.singles if not item.holds_lists]
    values = read_values(chunks, read, rows)
    coded = [column for name in read if (column := code_column(chunks.encoder, name, values[name])) is not None]
    position = np.random.default_rng([0x636F6C, training.seed]).random(len(rows))
    pairs = [(i, SINGLE_COLUMN) for i in range(len(coded))]
    gains = np.zeros(len(coded))
    for residual in residuals.T:
        gains += explained(coded, pairs, residual, Folds(position, 2), training.threads)
    gain_of = {column.name: float(gain) for column, gain in zip(coded, gains, strict=True)}
    unread = [item.name for item in schema.fields if item.name not in read]
    return unread + sorted(read, key=lambda name: -gain_of.get(name, -np.inf))


# How much one column explains by itself: the sign of a column that knows the target.

# The share that a model has to explain for its columns to be looked at.
MIN_SHARE = 0.98
# Held-out rows that are scored for every column, DRAWS times: rows x draws x columns x fields <= MAX_WORK.
MAX_ROWS, MIN_ROWS, DRAWS, MAX_WORK = 500, 50, 8, 50_000_000


def with_column(evidence: Evidence | None, model: AnyModel, params: Params, chunks: Chunks) -> Evidence | None:
    """Return the evidence with the column that explains most by itself, if the model explains nearly everything.

    The fields of a column keep their values. All others, crosses included, take another row's; the score is the mean
    over several draws of that row.
    """
    validation, layout = chunks.validation, chunks.encoder.layout
    if evidence is None or validation is None or evidence.share < MIN_SHARE:
        return evidence
    fields = chunks.encoder.schema.positions_by_column
    most = min(MAX_ROWS, MAX_WORK // (DRAWS * len(fields) * len(layout.fields)))
    if len(fields) < 2 or most < MIN_ROWS:
        return evidence
    rows = take_rows(validation, evenly_spaced_rows(validation.sample_weight > 0, most))
    rng = seeded(chunks.training.seed)
    others = [rows.slots[rng.permutation(len(rows.y))] for _ in range(DRAWS)]
    scorer = BatchScorer(model, params, layout, chunks.training.threads)
    shares = {}
    for column, own in fields.items():
        scores = [scorer(_mix_slots(rows.slots, other, own)) for other in others]
        score = np.asarray(np.mean(scores, axis=0, dtype=float))
        shares[column] = _share(rows, score, chunks.loss, chunks.start)
    column = max(shares, key=shares.__getitem__)
    return replace(evidence, column=column, column_share=shares[column])


def _mix_slots(slots: Slots, others: Slots, own: list[int]) -> Slots:
    """Return slots with some fields of their own, and the others of other rows."""
    layout, start, weight = slots.layout, others.start.copy(), others.weight.copy()
    for f in own:
        windows = slice(*layout.window_ptr[f : f + 2])
        weights = slice(*layout.weight_ptr[[windows.start, windows.stop]])
        start[:, windows], weight[:, weights] = slots.start[:, windows], slots.weight[:, weights]
    return replace(slots, start=start, weight=weight)


def _share(rows: Chunk, score: FloatArray, loss: Loss, start: float | FloatArray) -> float:
    """Return the share of what the constant leaves that some scores explain."""
    constant = rows.constant_scores(start)
    unexplained, all_of_it = (
        float(np.average(loss.value(rows.y, each), weights=rows.sample_weight)) for each in (score, constant)
    )
    floor = loss.floor(rows.y, rows.sample_weight) / float(rows.sample_weight.sum())
    return (all_of_it - unexplained) / (all_of_it - floor) if all_of_it > floor else 0.0
