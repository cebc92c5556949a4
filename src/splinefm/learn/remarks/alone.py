"""How much one column explains by itself: the sign of a column that knows the target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from splinefm.encode.fields.cross import Cross
from splinefm.encode.slots import Slots
from splinefm.learn.losses import Loss
from splinefm.learn.remarks.evidence import Evidence
from splinefm.learn.rows.chunks import Chunks, take_rows
from splinefm.learn.search.unexplained import spread_rows
from splinefm.learn.training import Chunk, FloatArray, seeded
from splinefm.model.family import AnyModel, Params
from splinefm.model.scores import BatchScorer

# The share that a model has to explain for its columns to be looked at.
LEAST = 0.98
# Held-out rows that are scored for every column, DRAWS times: rows x draws x columns x fields <= MOST_WORK.
MOST_ROWS, FEWEST_ROWS, DRAWS, MOST_WORK = 500, 50, 8, 50_000_000


def with_column(evidence: Evidence | None, model: AnyModel, params: Params, chunks: Chunks) -> Evidence | None:
    """Return the evidence with the column that explains most by itself, if the model explains nearly everything.

    The fields of a column keep their values. All others, crosses included, take those of another row; the score is the
    mean over several draws of that row.
    """
    validation, layout = chunks.validation, chunks.encoder.layout
    if evidence is None or validation is None or evidence.share < LEAST:
        return evidence
    fields: dict[str, list[int]] = {}
    for f, item in enumerate(chunks.encoder.fields):
        if not isinstance(item, Cross):
            fields.setdefault(item.column, []).append(f)
    most = min(MOST_ROWS, MOST_WORK // (DRAWS * len(fields) * len(layout.fields)))
    if len(fields) < 2 or most < FEWEST_ROWS:
        return evidence
    rows, rng = take_rows(validation, spread_rows(validation.sample_weight > 0, most)), seeded(chunks.training.seed)
    others = [rows.slots[rng.permutation(len(rows.y))] for _ in range(DRAWS)]
    scorer = BatchScorer(model, params, layout, chunks.training.threads)
    shares = {}
    for column, own in fields.items():
        score = np.asarray(np.mean([scorer(_mixed(rows.slots, other, own)) for other in others], axis=0, dtype=float))
        shares[column] = _share(rows, score, chunks.loss, chunks.start)
    column = max(shares, key=shares.__getitem__)
    return replace(evidence, column=column, column_share=shares[column])


def _mixed(slots: Slots, others: Slots, own: list[int]) -> Slots:
    """Return slots with some fields of their own, and the others of other rows."""
    layout, start, weight = slots.layout, others.start.copy(), others.weight.copy()
    for f in own:
        windows = slice(*layout.window_ptr[f : f + 2])
        weights = slice(*layout.weight_ptr[[windows.start, windows.stop]])
        start[:, windows], weight[:, weights] = slots.start[:, windows], slots.weight[:, weights]
    return Slots(start, weight, layout)


def _share(rows: Chunk, score: FloatArray, loss: Loss, start: float | FloatArray) -> float:
    """Return the share of what the constant leaves that some scores explain."""
    constant = np.full((len(rows.y), *np.shape(start)), start)
    unexplained, all_of_it = (
        float(np.average(loss.value(rows.y, each), weights=rows.sample_weight)) for each in (score, constant)
    )
    floor = loss.floor(rows.y, rows.sample_weight) / float(rows.sample_weight.sum())
    return (all_of_it - unexplained) / (all_of_it - floor) if all_of_it > floor else 0.0
