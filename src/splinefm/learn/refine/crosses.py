"""Crosses that a fit finds by itself: screened on rows that a model has not seen, and kept if they help there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cross import SEPARATOR, VALUES, Cross
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Schema
from splinefm.encode.tables.names import quoted
from splinefm.learn.loop.divergence import Diverged
from splinefm.learn.progress import SILENT, Progress
from splinefm.learn.refine.halves import (
    Learned,
    Unexplained,
    find_unexplained,
    halves_weigh,
    learn_half,
    loss_fall,
)
from splinefm.learn.refine.recurring import MIN_COUNT, Recurring, find_recurring
from splinefm.learn.refine.resolutions import is_better, suggest_resolutions
from splinefm.learn.refine.screening import Candidate, screen
from splinefm.learn.refine.values import read_names
from splinefm.learn.rows.chunks import Chunks
from splinefm.learn.runs import MOST_ROWS, settings_for
from splinefm.learn.training import LINEAR_L2, Chunk, Crosses, Penalty, Trained, Training, by_name
from splinefm.model.family import AnyModel

# The most pairs that "auto" tries and the most crosses of recurring values that it adds, and the fewest training rows:
# smaller halves do not tell crosses from noise.
MOST_CROSSES, MOST_RECURRING, FEWEST_ROWS = 3, 2, 1_000
# Encoded rows: a search has up to four times as much in memory.
MOST_BYTES = 1 << 28
# The share of the best penalty for linear weights that recurring values get: vectors, whose penalty is ten times that
# of linear weights, should not vanish where they help. See docs/decisions.md.
RECURRING_SHARE = 0.2
FOUND = "found: "  # how the reason of what a search has added begins

FloatArray = npt.NDArray[np.float64]


def candidates_for(schema: Schema, crosses: Crosses) -> list[str]:
    """Return the fields that may become parts of crosses: with "auto", those of columns that were inferred."""
    if not crosses or schema.crosses:
        return []
    fields = (item for item in schema if isinstance(item, Numerical | Categorical))
    return [item.name for item in fields if crosses != "auto" or item.name in schema.reasons]


def without_found(training: Training, schema: Schema, progress: Progress = SILENT) -> Training:
    """Return settings without penalties of crosses that the search of an earlier fit has added.

    The settings of a fitted model have them. The search of another fit chooses its own.
    """
    known = schema.names if candidates_for(schema, training.crosses) else ()
    given = {name for penalty in (training.l2, training.smoothness) for name in by_name(penalty)}
    found = sorted(name for name in given if _may_be_found(name, known))
    if not found:
        return training
    progress.say(f"the search for crosses chooses their penalties; those given for {quoted(found)} are left out")

    def kept(penalty: Penalty) -> Penalty:
        if penalty is None or isinstance(penalty, float):
            return penalty
        return {name: value for name, value in by_name(penalty).items() if name not in found}

    return replace(training, l2=kept(training.l2), smoothness=kept(training.smoothness))


def _may_be_found(name: str, known: Collection[str]) -> bool:
    """Return whether this is a name that a search gives to a cross of these fields."""
    parts = name.removesuffix(VALUES).split(SEPARATOR)
    return name not in known and all(part in known for part in parts)


def find_candidates(encoder: Encoder, left: Unexplained, seed: int) -> list[Candidate]:
    """Return pairs of columns whose cells explain what is left, the best first."""
    parts = zip(left.residuals, left.scores, strict=True)
    found = [screen(encoder, left.values, residual, score, seed) for residual, score in parts]
    best: dict[str, Candidate] = {}
    for candidate in (each for of_class in found for each in of_class):
        known = best.get(candidate.cross.name)
        best[candidate.cross.name] = candidate if known is None or known.gain < candidate.gain else known
    return sorted(best.values(), key=lambda candidate: (-candidate.gain, candidate.cross.name))


def with_cross(schema: Schema, candidate: Candidate, fall: float = 0.0) -> Schema:
    """Return the schema with a cross at its end, and the reason for it."""
    cross = candidate.cross
    kept = [item for item in schema.fields if not (isinstance(item, Cross) and item.name == cross.name)]
    return Schema((*kept, cross), {**schema.reasons, cross.name: reason_of(candidate, fall)})


def with_names(schema: Schema, name: str, gain: float, fall: float = 0.0) -> Schema:
    """Return the schema with features for more names of a column, and the reason for them."""
    fields = [
        replace(item, min_count=MIN_COUNT) if item.name == name and isinstance(item, Categorical) else item
        for item in schema.fields
    ]
    before = schema.reasons.get(name, "").split(f"; {FOUND}")[0]
    return Schema(fields, {**schema.reasons, name: f"{before}; {_reason(gain, fall)}"})


def with_reasons(encoder: Encoder, schema: Schema) -> Encoder:
    """Return the encoder with the reason of what was found in its notes."""
    reasons = {name: FOUND + reason.split(FOUND)[1] for name, reason in schema.reasons.items() if FOUND in reason}
    notes = {name: f"{note}; {reasons[name]}" if name in reasons else note for name, note in encoder.notes.items()}
    return replace(encoder, notes=notes) if reasons else encoder


def reason_of(candidate: Candidate, fall: float) -> str:
    """Say why a cross was added.

    Examples
    --------
    >>> import splinefm as sf
    >>> reason_of(Candidate(sf.Cross("month", "day"), 0.08), 0.25)
    'found: explains 8.0% of the residuals, and lowers the loss of held-out rows by 25.0%'
    """
    return _reason(candidate.gain, fall)


def _reason(gain: float, fall: float) -> str:
    return f"{FOUND}explains {gain:.1%} of the residuals, and lowers the loss of held-out rows by {fall:.1%}"


def has_one_name_per_number(schema: Schema, name: str) -> bool:
    """Return whether the numbers that a fitted cross takes as names have one name each, however they are spelled.

    A number in a text such as "$1,200" is read as one by its own field, but has the whole text for a name.
    """
    numbers, cross = {item.column for item in schema.fields if isinstance(item, Numerical)}, schema[name]
    parts = cross.category_parts if isinstance(cross, Cross) else ()
    return all(part.values == "numbers" for part in parts if part.column in numbers)


def _takes_little(kept: Chunk | None) -> bool:
    """Return whether the rows are in memory, and halves of them may be, too."""
    return kept is not None and kept.slots.start.nbytes + kept.slots.weight.nbytes <= MOST_BYTES


def _has_rows_of(other: Chunks, chunks: Chunks) -> bool:
    """Return whether the same rows are in memory, and held out."""
    parts = ((other.kept, chunks.kept), (other.validation, chunks.validation))
    return all(mine is not None and theirs is not None and len(mine.y) == len(theirs.y) for mine, theirs in parts)


class Found(NamedTuple):
    """The rows encoded with the crosses that were found, and the settings with their penalties.

    If there was a search, it has chosen the resolutions by column as well, and has a model of half of the rows; it is
    interrupted if the user stopped the search.
    """

    chunks: Chunks
    training: Training
    half: Trained | None = None


def add_crosses(
    model: AnyModel,
    chunks: Chunks,
    given: Training,
    training: Training,
    progress: Progress = SILENT,
) -> Found:
    """Look for crosses that lower the loss of held-out rows; see `Training`.

    `given` are the settings before the defaults of the table were filled in.
    """
    names = candidates_for(chunks.source.schema, training.crosses)
    is_small = FEWEST_ROWS <= chunks.n_rows <= MOST_ROWS and _takes_little(chunks.kept)
    if len(names) < 2 or not is_small or chunks.validation is None or not halves_weigh(chunks, training.seed):
        return Found(chunks, training)
    search = Search(model, given, progress)
    with progress.within("crosses"):
        try:
            best = search.run(chunks, training, names)
        except Diverged:  # the run on all training rows says what to change, if it diverges too
            return Found(chunks, training)
        except KeyboardInterrupt:
            if search.best is None:
                raise
            best = search.best
            return Found(best.chunks, best.training, best.trained.without_next())
    return Found(best.chunks, best.training, best.trained)


@dataclass
class Search:
    """Tries crosses one by one, each with a model of half of the rows.

    Parameters
    ----------
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM
        The model.
    given : Training
        The settings before the defaults of the table were filled in; crosses that are added may bring penalties.
    progress : Progress
        Where to report.
    """

    model: AnyModel
    given: Training
    progress: Progress
    best: Learned | None = None
    n_added: int = 0

    def run(self, chunks: Chunks, training: Training, names: Sequence[str]) -> Learned:
        """Return the best model; if the user stops the search, `best` has the best one so far, or None."""
        best = self.learn(chunks, training)
        candidates = find_candidates(chunks.encoder, find_unexplained(best, names), training.seed)
        most = MOST_CROSSES if training.crosses == "auto" else int(training.crosses or 0)
        for candidate in candidates[:most]:
            best = self.try_cross(best, candidate) or best
        most_recurring = MOST_RECURRING if training.crosses == "auto" else most - self.n_added
        for _ in range(most_recurring):
            tried = self.try_recurring(best, names)
            if tried is None:
                break
            best = tried
        return self.try_resolutions(best)

    def learn(self, chunks: Chunks, training: Training) -> Learned:
        """Return a model of half of the rows."""
        learned = learn_half(self.model, chunks, training, self.progress)
        self.best = self.best or learned
        if learned.trained.interrupted:
            raise KeyboardInterrupt
        return learned

    def try_cross(self, before: Learned, candidate: Candidate, l2: float | None = None) -> Learned | None:
        """Return a model with one more cross, or None if the loss of held-out rows does not fall."""
        schema, name = before.chunks.source.schema, candidate.cross.name
        if name in schema.names and not isinstance(schema[name], Cross):
            return None  # a column has this name
        return self.try_schema(before, name, l2, lambda fall: with_cross(schema, candidate, fall))

    def try_schema(
        self, before: Learned, name: str, l2: float | None, change: Callable[[float], Schema]
    ) -> Learned | None:
        """Return a model with another field of this name, or None if the loss of held-out rows does not fall.

        `change` returns the schema, given by how much the loss fell.
        """
        chunks, schema = before.chunks, change(0.0)
        given = self.given if l2 is None else self.given.with_l2(name, l2)
        training = settings_for(given, schema, chunks.encoder.n_rows)
        other = chunks.again(replace(chunks.source, schema=schema), training, self.progress)
        # Longer rows may leave room for fewer of them.
        if not _has_rows_of(other, chunks) or not has_one_name_per_number(other.encoder.schema, name):
            return None
        try:
            after = self.learn(other, training)
        except Diverged:
            return None
        fall = loss_fall(chunks.loss, before.judged, before.scores, after.scores)
        if fall == 0.0:
            return None
        other.source = replace(other.source, schema=change(fall))
        self.given, self.n_added, self.best = given, self.n_added + 1, after
        return after

    def try_resolutions(self, before: Learned) -> Learned:
        """Return a model with the resolutions by column that the last one suggests, or the last one if it is better."""
        chunks = before.chunks
        schema = suggest_resolutions(self.model, chunks, before.trained.params, before.training)
        if schema is None:
            return before
        other = chunks.again(replace(chunks.source, schema=schema), before.training, self.progress)
        if not _has_rows_of(other, chunks):
            return before
        try:
            after = self.learn(other, before.training)
        except Diverged:
            return before
        return after if is_better(before.loss(), after.loss(), chunks, other) else before

    def try_recurring(self, before: Learned, names: Sequence[str]) -> Learned | None:
        """Return a model with a cross of values that recur, or None if there is none that helps."""
        encoder, left = before.chunks.encoder, find_unexplained(before, names)
        inferred = [name for name in names if name in before.chunks.source.schema.reasons]  # others stay as given
        rare = read_names(before.chunks, inferred, left.rows, MIN_COUNT)
        found = [(each, r) for r in left.residuals for each in find_recurring(encoder, left.values, r, rare)]
        if not found:
            return None
        # Pairs of values have the effects of each of them, too: single values come first.
        best, residual = max(found, key=lambda pair: (pair[0].has_one_column, pair[0].gain))
        n_rows = before.chunks.n_rows
        l2 = recurring_l2(best, n_rows, residual, left.dispersion, before.training.rows_per_step(n_rows))
        if isinstance(best.field, Cross):
            return self.try_cross(before, Candidate(best.field, best.gain), l2)
        schema, name = before.chunks.source.schema, best.field.name
        return self.try_schema(before, name, l2, lambda fall: with_names(schema, name, best.gain, fall))


def recurring_l2(found: Recurring, n_rows: int, residual: FloatArray, dispersion: float, batch_size: int) -> float:
    """Return the L2 penalty of a cross of recurring values.

    A value whose effect has the variance σ_b² is best estimated with the penalty ½ h w² σ² / σ_b² beside the sum of all
    losses, where σ² is the variance of the residuals and h = σ² / φ the mean curvature of the loss. Steps take the mean
    loss of a batch, add a penalty per active value, and multiply it by φ.
    """
    variance = float(np.square(residual).mean())
    per_value = found.rows_per_value * n_rows / len(residual)
    best = variance / dispersion * found.shrinkage / (dispersion * batch_size * per_value)
    return RECURRING_SHARE * best / LINEAR_L2
