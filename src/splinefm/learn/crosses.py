"""Crosses that a fit finds by itself: screened on rows that a model has not seen, and kept if they help there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Schema
from splinefm.encode.tables.arrow import to_arrow
from splinefm.learn.chunks import Chunks, row_randoms
from splinefm.learn.losses import Loss
from splinefm.learn.screening import MOST_ROWS, Candidate, screen
from splinefm.learn.training import Chunk, Crosses
from splinefm.model.cpu import predict_scores
from splinefm.model.family import AnyModel, Params

FloatArray = npt.NDArray[np.float64]
# The most crosses that "auto" adds.
MOST_CROSSES = 3
# A cross is kept if the mean loss of held-out rows falls by this share of it, and by as many standard errors.
LEAST_FALL, STANDARD_ERRORS = 0.001, 2.0


class Halves(NamedTuple):
    """Training rows in two halves: a model learns from one, the other judges."""

    learned: Chunk
    judged: Chunk
    rows: npt.NDArray[np.int64]
    """Positions of the judged rows among all training rows."""


def candidates_for(schema: Schema, crosses: Crosses) -> list[str]:
    """Return the fields that may become parts of crosses: with "auto", those of columns that were inferred."""
    if not crosses or schema.crosses:
        return []
    fields = (item for item in schema if isinstance(item, Numerical | Categorical))
    return [item.name for item in fields if crosses != "auto" or item.name in schema.reasons]


def split_halves(kept: Chunk, seed: int) -> Halves:
    """Return two random halves of the training rows."""
    n = len(kept.y)
    first = row_randoms(seed + 1, np.arange(n)) < 0.5
    judged = np.flatnonzero(~first)
    return Halves(take_rows(kept, np.flatnonzero(first)), take_rows(kept, judged), judged)


def find_candidates(
    chunks: Chunks, halves: Halves, model: AnyModel, params: Params, names: Sequence[str], seed: int
) -> list[Candidate]:
    """Return candidates for crosses, given a model that learned from the first half."""
    rows = halves.rows
    judged = halves.judged
    if len(rows) > MOST_ROWS:
        some = np.linspace(0, len(rows) - 1, MOST_ROWS).astype(np.int64)
        rows, judged = rows[some], take_rows(judged, some)
    score = predict_scores(model, params, judged.slots).astype(np.float64)
    residual = -chunks.loss.slope(judged.y, score) * np.sqrt(judged.sample_weight)
    values = read_values(chunks, names, rows)
    return screen(chunks.encoder, values, residual, score, seed)


def read_values(chunks: Chunks, names: Sequence[str], rows: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
    """Return numbers, or features of categories, of some training rows."""
    encoder: Encoder = chunks.encoder
    parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in names}
    first = 0
    for batch in chunks.source.batches(chunks.rows_per_chunk):
        numbers = np.arange(first, first + batch.num_rows)
        first += batch.num_rows
        trained = ~chunks.held_out.has(numbers)
        batch = batch if trained.all() else batch.filter(to_arrow(trained))
        for name in names:
            item = encoder.schema[name]
            assert isinstance(item, Numerical | Categorical)
            column = batch.column(item.column)
            parts[name].append(item.read(column) if isinstance(item, Numerical) else item.encode(column)[0][:, 0])
    return {name: np.concatenate(arrays)[rows] for name, arrays in parts.items()}


def loss_fall(loss: Loss, judged: Sequence[Chunk], before: Sequence[FloatArray], after: Sequence[FloatArray]) -> float:
    """Return by which share the loss of held-out rows falls; 0 if the fall is small or may be chance.

    `before` and `after` are the scores of the rows of each chunk.
    """
    differences, weights, total = [], [], 0.0
    for chunk, old, new in zip(judged, before, after, strict=True):
        value = loss.value(chunk.y, old)
        differences.append(value - loss.value(chunk.y, new))
        weights.append(chunk.sample_weight)
        total += float(chunk.sample_weight @ value) - loss.floor(chunk.y, chunk.sample_weight)
    difference, weight = np.concatenate(differences), np.concatenate(weights)
    mean = float(np.average(difference, weights=weight))
    error = math.sqrt(float(np.sum((weight * (difference - mean)) ** 2))) / float(weight.sum())
    share = mean * float(weight.sum()) / total if total > 0.0 else 0.0
    return share if share >= LEAST_FALL and mean > STANDARD_ERRORS * error else 0.0


def with_cross(schema: Schema, candidate: Candidate, fall: float = 0.0) -> Schema:
    """Return the schema with a cross at its end, and the reason for it."""
    cross = candidate.cross
    kept = [item for item in schema.fields if item.name != cross.name]
    return Schema((*kept, cross), {**schema.reasons, cross.name: reason_of(candidate, fall)})


def with_reasons(encoder: Encoder, schema: Schema) -> Encoder:
    """Return the encoder with the reason of each cross in its notes."""
    reasons = {cross.name: schema.reasons[cross.name] for cross in schema.crosses if cross.name in schema.reasons}
    if not reasons:
        return encoder
    notes = {name: f"{note}; {reasons[name]}" if name in reasons else note for name, note in encoder.notes.items()}
    return replace(encoder, notes=notes)


def reason_of(candidate: Candidate, fall: float) -> str:
    """Say why a cross was added.

    Examples
    --------
    >>> reason_of(Candidate(Cross("month", "day"), 0.08), 0.25)
    'found: explains 8.0% of the residuals, and lowers the loss of held-out rows by 25.0%'
    """
    found = f"found: explains {candidate.gain:.1%} of the residuals"
    return f"{found}, and lowers the loss of held-out rows by {fall:.1%}"


def take_rows(chunk: Chunk, rows: npt.NDArray[np.int64]) -> Chunk:
    return Chunk(chunk.slots[rows], chunk.y[rows], chunk.sample_weight[rows])
