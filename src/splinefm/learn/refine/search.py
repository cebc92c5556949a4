"""The search of a fit: crosses, recurring values and resolutions, each kept if it lowers the loss of held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from splinefm._parallel import count_threads
from splinefm.encode.fields.cross import Cross
from splinefm.encode.schema import Schema
from splinefm.learn.loop.divergence import Diverged
from splinefm.learn.progress import SILENT, Progress
from splinefm.learn.refine.ahead import Ahead
from splinefm.learn.refine.crosses import (
    candidates_for,
    find_candidates,
    found_reasons,
    has_one_name_per_number,
    with_cross,
    with_names,
)
from splinefm.learn.refine.halves import Learned, find_unexplained, halves_weigh, learn_half, loss_fall
from splinefm.learn.refine.recurring import MIN_COUNT, find_recurring, recurring_l2
from splinefm.learn.refine.resolutions import is_better, suggest_resolutions
from splinefm.learn.refine.screening import Candidate
from splinefm.learn.refine.values import read_names
from splinefm.learn.rows.chunks import Chunks
from splinefm.learn.runs import MOST_ROWS, pay_in_pairs, settings_for
from splinefm.learn.training import Chunk, Trained, Training
from splinefm.model.family import AnyModel

# The most pairs that "auto" tries and the most crosses of recurring values that it adds, and the fewest training rows:
# smaller halves do not tell crosses from noise.
MOST_CROSSES, MOST_RECURRING, FEWEST_ROWS = 3, 2, 1_000
# Encoded rows: a search has up to seven times as much in memory, and ten times with two runs at a time.
MOST_BYTES = 1 << 28


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
    search = Search(model, names)
    with progress.within("crosses"):
        try:
            best = search.run(chunks, given, training, progress).learned
        except Diverged:  # the run on all training rows says what to change, if it diverges too
            return Found(chunks, training)
        except KeyboardInterrupt:
            if search.best is None:
                raise
            best = search.best.learned
            return Found(best.chunks, best.training, best.trained.without_next())
    for name, reason in found_reasons(best.chunks.source.schema, chunks.source.schema).items():
        progress.say(f"{name!r} {reason}")
    return Found(best.chunks, best.training, best.trained)


def _takes_little(kept: Chunk | None) -> bool:
    """Return whether the rows are in memory, and halves of them may be, too."""
    return kept is not None and kept.slots.start.nbytes + kept.slots.weight.nbytes <= MOST_BYTES


def _has_rows_of(other: Chunks, chunks: Chunks) -> bool:
    """Return whether the same rows are in memory, and held out."""
    parts = ((other.kept, chunks.kept), (other.validation, chunks.validation))
    return all(mine is not None and theirs is not None and len(mine.y) == len(theirs.y) for mine, theirs in parts)


class Standing(NamedTuple):
    """The best model so far.

    `given` are the settings before the defaults of the table were filled in, with the penalties that crosses brought.
    """

    learned: Learned
    given: Training
    n_added: int = 0


@dataclass
class Search:
    """Tries changes one by one, each with a model of half of the rows.

    Parameters
    ----------
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM
        The model.
    names : sequence of str
        The fields that may become parts of crosses.
    """

    model: AnyModel
    names: Sequence[str]
    best: Standing | None = None
    """What is left if the user stops the search."""

    def run(self, chunks: Chunks, given: Training, training: Training, progress: Progress) -> Standing:
        """Return the best model."""
        first = self._learn(chunks, training, progress, count_threads(training.threads))
        self.best = Standing(first, given)
        most = MOST_CROSSES if training.crosses == "auto" else int(training.crosses or 0)
        found = find_candidates(chunks.encoder, find_unexplained(first, self.names), training.seed, training.threads)
        crosses = [partial(self.try_cross, candidate) for candidate in found[:most]]
        with Ahead(self._in_pairs(chunks, training)) as ahead:
            for best in ahead.take([*crosses, self.try_recurring, self.try_resolutions], self.best, progress):
                self.best = best
        return self.best

    def _learn(self, chunks: Chunks, training: Training, progress: Progress, threads: int | None = None) -> Learned:
        """Return a model of half of the rows; by default, another one may be learned beside it."""
        if threads is None:
            every = count_threads(training.threads)
            threads = max(1, every // 2) if self._in_pairs(chunks, training) else every
        learned = learn_half(self.model, chunks, training, threads, progress)
        if learned.trained.interrupted:
            self.best = self.best or Standing(learned, training)
            raise KeyboardInterrupt
        return learned

    def _in_pairs(self, chunks: Chunks, training: Training) -> bool:
        return pay_in_pairs(self.model, chunks, training, chunks.n_rows // 2)

    def try_cross(self, candidate: Candidate, before: Standing, progress: Progress) -> Standing | None:
        """Add a cross."""
        return self._try_cross(candidate, None, before, progress)

    def try_recurring(self, before: Standing, progress: Progress) -> Standing | None:
        """Add crosses of values that recur, or features for more names, one by one."""
        crosses = before.given.crosses
        most, best = MOST_RECURRING if crosses == "auto" else int(crosses or 0) - before.n_added, before
        for _ in range(most):
            try:
                found = self._try_recurring(best, progress)
            except KeyboardInterrupt:  # reaches the main thread only
                self.best = best
                raise
            if found is None:
                break
            best = found
        return None if best is before else best

    def try_resolutions(self, before: Standing, progress: Progress) -> Standing | None:
        """Take the resolutions by column that the model suggests."""
        learned = before.learned
        chunks = learned.chunks
        schema = suggest_resolutions(self.model, chunks, learned.trained.params, learned.training, progress)
        if schema is None:
            return None
        other = chunks.again(replace(chunks.source, schema=schema), learned.training, progress)
        if not _has_rows_of(other, chunks):
            return None
        try:
            after = self._learn(other, learned.training, progress)
        except Diverged:
            return None
        return before._replace(learned=after) if is_better(learned.loss(), after.loss(), chunks, other) else None

    def _try_recurring(self, before: Standing, progress: Progress) -> Standing | None:
        learned = before.learned
        chunks, left = learned.chunks, find_unexplained(learned, self.names)
        schema = chunks.source.schema
        inferred = [name for name in self.names if name in schema.reasons]  # others stay as given
        rare = read_names(chunks, inferred, left.rows, MIN_COUNT)
        search = partial(find_recurring, chunks.encoder, left.values, names=rare, progress=progress)
        found = [(each, residual) for residual in left.residuals for each in search(residual)]
        if not found:
            return None
        # Pairs of values have the effects of each of them, too: single values come first.
        best, residual = max(found, key=lambda pair: (pair[0].has_one_column, pair[0].gain))
        batch_size = learned.training.rows_per_step(chunks.n_rows)
        l2 = recurring_l2(best, chunks.n_rows, residual, left.dispersion, batch_size)
        if isinstance(best.field, Cross):
            return self._try_cross(Candidate(best.field, best.gain), l2, before, progress)
        name = best.field.name
        return self._try_schema(name, l2, lambda fall: with_names(schema, name, best.gain, fall), before, progress)

    def _try_cross(
        self, candidate: Candidate, l2: float | None, before: Standing, progress: Progress
    ) -> Standing | None:
        schema, name = before.learned.chunks.source.schema, candidate.cross.name
        if name in schema.names and not isinstance(schema[name], Cross):
            return None  # a column has this name
        return self._try_schema(name, l2, lambda fall: with_cross(schema, candidate, fall), before, progress)

    def _try_schema(
        self, name: str, l2: float | None, change: Callable[[float], Schema], before: Standing, progress: Progress
    ) -> Standing | None:
        """Return a model with another field of this name, or None if the loss of held-out rows does not fall.

        `change` returns the schema, given by how much the loss fell.
        """
        learned, schema = before.learned, change(0.0)
        chunks = learned.chunks
        given = before.given if l2 is None else before.given.with_l2(name, l2)
        training = settings_for(given, schema, chunks.encoder.n_rows)
        other = chunks.again(replace(chunks.source, schema=schema), training, progress)
        # Longer rows may leave room for fewer of them.
        if not _has_rows_of(other, chunks) or not has_one_name_per_number(other.encoder.schema, name):
            return None
        try:
            after = self._learn(other, training, progress)
        except Diverged:
            return None
        fall = loss_fall(chunks.loss, learned.judged, learned.scores, after.scores)
        if fall == 0.0:
            return None
        other.source = replace(other.source, schema=change(fall))
        return Standing(after, given, before.n_added + 1)
