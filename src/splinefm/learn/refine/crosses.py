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
from splinefm.learn.chunks import Chunks, prepare_chunks, row_randoms
from splinefm.learn.loop import Diverged
from splinefm.learn.losses import Loss
from splinefm.learn.progress import SILENT, Progress
from splinefm.learn.refine.screening import MOST_SCREENED, Candidate, screen
from splinefm.learn.runs import MOST_ROWS, run_training, settings_for, train_part
from splinefm.learn.training import Callback, Chunk, Crosses, Trained, Training
from splinefm.model.cpu import predict_scores
from splinefm.model.family import AnyModel, Params

FloatArray = npt.NDArray[np.float64]
# The most crosses that "auto" adds, and the fewest training rows: smaller halves do not tell crosses from noise.
MOST_CROSSES, FEWEST_ROWS = 3, 1_000
# Epochs without a better validation loss that end a run on half of the rows: it only has to tell crosses from noise.
HALF_PATIENCE = 3
# Encoded rows: a search has up to four times as much in memory.
MOST_BYTES = 1 << 28
# Classes whose residuals are screened.
MOST_CLASSES = 3
# A cross is kept if the mean loss of held-out rows falls by this share of it, and by as many standard errors. A large
# fall needs fewer: where a few rows have most of the loss, such as days that hardly exist, standard errors are large.
LEAST_FALL, STANDARD_ERRORS = 0.001, 2.0
LARGE_FALL, STANDARD_ERRORS_OF_LARGE = 0.04, 1.0


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
    if len(rows) > MOST_SCREENED:
        some = np.linspace(0, len(rows) - 1, MOST_SCREENED).astype(np.int64)
        rows, judged = rows[some], take_rows(judged, some)
    score = predict_scores(model, params, judged.slots).astype(np.float64)
    slope = chunks.loss.slope(judged.y, score).reshape(len(rows), -1)
    residuals = -slope * np.sqrt(judged.sample_weight)[:, None]
    values = read_values(chunks, names, rows)
    # Of several classes, those that leave the most unexplained.
    strongest = np.argsort(-np.square(residuals).sum(axis=0), kind="stable")[:MOST_CLASSES]
    moved = score.reshape(len(rows), -1)
    found = [screen(chunks.encoder, values, residuals[:, i], moved[:, i], seed) for i in strongest.tolist()]
    best: dict[str, Candidate] = {}
    for candidate in (each for of_class in found for each in of_class):
        known = best.get(candidate.cross.name)
        best[candidate.cross.name] = candidate if known is None or known.gain < candidate.gain else known
    return sorted(best.values(), key=lambda candidate: (-candidate.gain, candidate.cross.name))


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
    if not weight.any():
        return 0.0
    mean = float(np.average(difference, weights=weight))
    error = math.sqrt(float(np.sum((weight * (difference - mean)) ** 2))) / float(weight.sum())
    share = mean * float(weight.sum()) / total if total > 0.0 else 0.0
    needed = STANDARD_ERRORS_OF_LARGE if share >= LARGE_FALL else STANDARD_ERRORS
    return share if share >= LEAST_FALL and mean > needed * error else 0.0


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
    >>> import splinefm as sf
    >>> reason_of(Candidate(sf.Cross("month", "day"), 0.08), 0.25)
    'found: explains 8.0% of the residuals, and lowers the loss of held-out rows by 25.0%'
    """
    found = f"found: explains {candidate.gain:.1%} of the residuals"
    return f"{found}, and lowers the loss of held-out rows by {fall:.1%}"


def _takes_little(kept: Chunk | None) -> bool:
    """Return whether the rows are in memory, and halves of them may be, too."""
    return kept is not None and kept.slots.start.nbytes + kept.slots.weight.nbytes <= MOST_BYTES


def _has_rows_of(other: Chunks, chunks: Chunks) -> bool:
    """Return whether the same rows are in memory, and held out."""
    parts = ((other.kept, chunks.kept), (other.validation, chunks.validation))
    return all(mine is not None and theirs is not None and len(mine.y) == len(theirs.y) for mine, theirs in parts)


def take_rows(chunk: Chunk, rows: npt.NDArray[np.int64]) -> Chunk:
    return Chunk(chunk.slots[rows], chunk.y[rows], chunk.sample_weight[rows])


def add_crosses(
    model: AnyModel,
    chunks: Chunks,
    first: Trained,
    given: Training,
    training: Training,
    validation: float | object,
    callbacks: Sequence[Callback] = (),
    progress: Progress = SILENT,
) -> tuple[Chunks, Trained, Training]:
    """Look for crosses, and train again with those that lower the loss of held-out rows; see `Training`.

    `given` are the settings before the defaults of the table were filled in.
    """
    unchanged = (chunks, first, training)
    names = candidates_for(chunks.source.schema, training.crosses)
    is_small = FEWEST_ROWS <= chunks.n_rows <= MOST_ROWS and _takes_little(chunks.kept)
    if len(names) < 2 or not is_small or chunks.validation is None or first.interrupted:
        return unchanged
    with progress.within("crosses"):
        try:
            found = _find_crosses(model, chunks, names, given, training, validation, progress)
            if found is None:
                return unchanged
            other, training = found
            second = train_part(model, other, training, callbacks, progress, "crosses")
        except (KeyboardInterrupt, Diverged) as error:
            return chunks, first._replace(interrupted=isinstance(error, KeyboardInterrupt)), unchanged[2]
    if second.interrupted:
        return chunks, first._replace(interrupted=True), unchanged[2]
    return other, second, training


def _find_crosses(
    model: AnyModel,
    chunks: Chunks,
    names: Sequence[str],
    given: Training,
    training: Training,
    validation: object,
    progress: Progress,
) -> tuple[Chunks, Training] | None:
    """Return the rows encoded with the crosses that help, or None if none do."""
    assert chunks.kept is not None and chunks.validation is not None
    halves = split_halves(chunks.kept, training.seed)
    judged = (halves.judged, chunks.validation)
    before = _train_half(model, chunks, halves.learned, training, progress)
    candidates = find_candidates(chunks, halves, model, before, names, training.seed)
    most = MOST_CROSSES if training.crosses == "auto" else int(training.crosses or 0)
    scores = _scores(model, before, judged)
    best: tuple[Chunks, Training] | None = None
    for candidate in candidates[:most]:
        schema = with_cross(chunks.source.schema if best is None else best[0].source.schema, candidate)
        penalties = settings_for(given, schema, chunks.encoder.n_rows)
        other = prepare_chunks(replace(chunks.source, schema=schema), chunks.loss, validation, penalties, progress)
        if not _has_rows_of(other, chunks):  # longer rows may leave room for fewer of them
            break
        assert other.kept is not None and other.validation is not None
        halves = split_halves(other.kept, training.seed)
        after = _train_half(model, other, halves.learned, penalties, progress)
        new = _scores(model, after, (halves.judged, other.validation))
        fall = loss_fall(chunks.loss, judged, scores, new)
        if fall > 0.0:
            other.source = replace(other.source, schema=with_cross(schema, candidate, fall))
            best, scores = (other, penalties), new
    return best


def _scores(model: AnyModel, params: Params, judged: Sequence[Chunk]) -> list[FloatArray]:
    return [predict_scores(model, params, chunk.slots).astype(np.float64) for chunk in judged]


def _train_half(model: AnyModel, chunks: Chunks, half: Chunk, training: Training, progress: Progress) -> Params:
    if training.patience is not None:
        training = replace(training, patience=min(training.patience, HALF_PATIENCE))
    trained = run_training(
        model,
        chunks,
        training,
        len(half.y),
        lambda epoch: [half],
        validation=chunks.validation,
        progress=progress,
        run="half",
    )
    if trained.interrupted:
        raise KeyboardInterrupt
    return trained.params
