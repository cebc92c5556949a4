"""A race: settings are fitted to the same parts of the rows, and judged by the rows that they have not learned from."""

from __future__ import annotations

import threading
import time
from collections.abc import Container, Iterable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from splinefm._arrays import FloatArray, Int64Array
from splinefm._parallel import Cancellation, count_threads
from splinefm.model.scores import predict_scores
from splinefm.search.setting import Setting, seconds_of_epoch
from splinefm.train.chunks import Chunks, join_chunks, take_rows
from splinefm.train.loop import Diverged, settings_for, train
from splinefm.train.progress import Progress
from splinefm.train.results import TrainingResult
from splinefm.train.rows import Chunk, row_randoms
from splinefm.train.settings import Training
from splinefm.train.targets import mean_and_error

# Encoded parts of the rows that are kept for the next fit.
MAX_PARTS = 8
# The share of its epochs that early stopping leaves of a fit, before any fit is known, and how many epochs that counts.
SHARE_OF_EPOCHS, PRIOR_EPOCHS = 0.7, 300


class Fold(NamedTuple):
    """Positions of rows among the training rows, followed by the validation rows: some to learn from, some to judge."""

    learned: Int64Array
    judged: Int64Array


@dataclass(frozen=True)
class FoldResult:
    """A setting after its fit to one fold."""

    trained: TrainingResult | None
    """None if the fit diverged."""
    losses: FloatArray
    """The loss of every judged row."""
    scores: FloatArray
    seconds: float


def make_folds(chunks: Chunks, n: int, seed: int) -> list[Fold]:
    """Return `n` folds: the validation rows are judged first, then as many others by turns.

    They begin again when all rows have been judged. Copies of a row are in the same fold. Validation rows from another
    table are judged in all folds.
    """
    assert chunks.kept is not None and chunks.validation is not None
    n_rows, n_judged = len(chunks.kept.y), len(chunks.validation.y)
    every = np.arange(n_rows + n_judged)
    folds = [Fold(every[:n_rows], every[n_rows:])]
    if not chunks.held_out.n_rows:
        return folds * max(n, 1)
    share, position = n_judged / n_rows, row_randoms(seed + 1, chunks.kept_numbers())
    for i in range(min(n - 1, int(1.0 / share))):
        is_judged = np.concatenate([(position >= i * share) & (position < (i + 1) * share), np.zeros(n_judged, bool)])
        folds.append(Fold(every[~is_judged], every[is_judged]))
    return [folds[i % len(folds)] for i in range(max(n, 1))]


def draw_sample(fold: Fold, n_learned: int, n_judged: int, seed: int) -> Fold:
    """Return a fold of some of its rows.

    Examples
    --------
    >>> some = draw_sample(Fold(np.arange(100), np.arange(100, 110)), 20, 50, seed=0)
    >>> len(some.learned), len(some.judged)
    (20, 10)
    """
    rng = np.random.default_rng([0x73616D, seed])

    def some(rows: Int64Array, n: int) -> Int64Array:
        return rows if len(rows) <= n else np.sort(rng.choice(rows, n, replace=False))

    return Fold(some(fold.learned, n_learned), some(fold.judged, n_judged))


@dataclass
class Race:
    """Fits of settings to folds, several at a time, each with one thread.

    Results do not depend on the number of threads.

    Parameters
    ----------
    chunks : Chunks
        The rows, encoded with the first schema.
    training : Training
        Seed and threads.
    progress : Progress
        Where to report.
    deadline : float, optional
        When the race ends, on the clock of `time.monotonic`.
    """

    chunks: Chunks
    training: Training
    progress: Progress
    deadline: float | None = None
    results: dict[tuple[Setting, int], FoldResult] = field(default_factory=dict)
    folds: list[Fold] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._encoded = {self.chunks.source.schema: self.chunks}
        self._parts: dict[tuple[object, int], tuple[Chunk, Chunk]] = {}
        self._lock = threading.Lock()
        self._epochs = self._max_epochs = 0

    def encoded(self, setting: Setting) -> Chunks:
        """Return the rows, encoded with the schema of a setting."""
        schema = setting.schema
        if schema not in self._encoded:
            source = replace(self.chunks.source, schema=schema)
            self._encoded[schema] = self.chunks.encode_again(source, self.training, self.progress)
        return self._encoded[schema]

    def has_same_rows(self, setting: Setting) -> bool:
        """Return whether the rows of a setting are in memory, and the same ones are held out."""
        mine, other = self.chunks, self.encoded(setting)
        pairs = ((mine.kept, other.kept), (mine.validation, other.validation))
        return all(a is not None and b is not None and len(a.y) == len(b.y) for a, b in pairs)

    def forget(self, kept: Iterable[Setting]) -> None:
        """Release the rows that are encoded with the schemas of other settings."""
        schemas = {self.chunks.source.schema, *(setting.schema for setting in kept)}
        self._encoded = {schema: chunks for schema, chunks in self._encoded.items() if schema in schemas}
        self._parts = {}

    def has(self, setting: Setting, fold: int) -> bool:
        """Return whether a setting was fitted to a fold, and its parameters are known if it did not diverge."""
        found = self.results.get((setting, fold))
        return found is not None and (found.trained is None or bool(found.trained.params))

    def drop_params(self, kept: Container[Setting]) -> None:
        """Release the parameters of the fits of other settings, which can be large."""
        for key, entrant in self.results.items():
            if key[0] not in kept and entrant.trained is not None and entrant.trained.params:
                self.results[key] = replace(entrant, trained=entrant.trained._replace(params={}))

    def seconds_of_epoch(self, setting: Setting, fold: int) -> float:
        """Estimate the seconds that an epoch of a fit takes on one core; see `seconds_of_epoch`."""
        chunks, n_rows = self.encoded(setting), len(self.folds[fold].learned)
        batch_size = self.settings(setting, fold).rows_per_step(n_rows)
        return seconds_of_epoch(setting.model, chunks.encoder.layout, chunks.loss.n_outputs, n_rows, batch_size)

    def seconds(self, setting: Setting, fold: int) -> float:
        """Estimate the seconds of a fit, which stops as early as the fits before it."""
        share = (SHARE_OF_EPOCHS * PRIOR_EPOCHS + self._epochs) / (PRIOR_EPOCHS + self._max_epochs)
        return max(1.0, share * self._max_epochs_of(setting, fold)) * self.seconds_of_epoch(setting, fold)

    def work(self, setting: Setting, fold: int) -> float:
        """Estimate the seconds that a fit has taken, given its epochs."""
        trained = self.results[setting, fold].trained
        n_epochs = self._max_epochs_of(setting, fold) if trained is None else len(trained.history)
        return n_epochs * self.seconds_of_epoch(setting, fold)

    def _max_epochs_of(self, setting: Setting, fold: int) -> int:
        return self.settings(setting, fold).max_epochs(len(self.folds[fold].learned))

    def settings(self, setting: Setting, fold: int) -> Training:
        """Return the settings of training on a fold, with all defaults filled in; folds have seeds of their own."""
        training = replace(setting.training, seed=self.training.seed + fold)
        return settings_for(training, setting.schema, self.encoded(setting).encoder.n_rows)

    def run(self, settings: Sequence[Setting], folds: Sequence[int]) -> None:
        """Fit settings to folds, unless that was done before and the parameters are still known."""
        todo = [(each, fold) for fold in folds for each in settings if not self.has(each, fold)]
        todo = list(dict.fromkeys(todo))
        for setting in dict.fromkeys(setting for setting, _ in todo):
            self.encoded(setting)  # one after the other: tables are read
        cancellation = Cancellation(self.deadline)
        n_threads = min(len(todo), count_threads(self.training.threads))
        if not n_threads:
            return
        runs: dict[Future[FoldResult], tuple[Setting, int]] = {}
        try:
            with ThreadPoolExecutor(n_threads, "race") as pool:
                runs |= {pool.submit(self._fit, setting, fold, cancellation): (setting, fold) for setting, fold in todo}
                try:
                    _wait(runs)
                finally:
                    cancellation.cancel()
                    for run in runs:
                        run.cancel()
        finally:  # those that are done are known after Ctrl-C and at the deadline, too
            for run, key in runs.items():
                if not run.cancelled() and run.exception() is None:
                    self._keep(key, run.result())

    def _keep(self, key: tuple[Setting, int], entrant: FoldResult) -> None:
        self.results[key] = entrant
        if entrant.trained is not None:
            self._epochs += len(entrant.trained.history)
            self._max_epochs += self._max_epochs_of(*key)

    def _fit(self, setting: Setting, fold: int, cancellation: Cancellation) -> FoldResult:
        begin, chunks = time.perf_counter(), self.encoded(setting)
        learned, judged = self._part(chunks, fold)
        training = replace(self.settings(setting, fold), threads=1, engine="cpu", device=None)
        try:
            trained = train(setting.model, chunks, training, rows=learned, validation=judged, cancellation=cancellation)
        except Diverged:
            n = len(judged.y)
            return FoldResult(None, np.full(n, np.inf), np.zeros(n), time.perf_counter() - begin)
        score = predict_scores(setting.model, trained.params, judged.slots, 1).astype(np.float64)
        losses = chunks.loss.value(judged.y, score)
        is_finite = bool(np.isfinite(losses).all())
        if not is_finite:
            losses = np.full(len(judged.y), np.inf)
        return FoldResult(trained if is_finite else None, losses, score, time.perf_counter() - begin)

    def _part(self, chunks: Chunks, fold: int) -> tuple[Chunk, Chunk]:
        """Return the rows of a fold to learn from and to judge."""
        with self._lock:
            key = (chunks.source.schema, fold)
            if key not in self._parts:
                if len(self._parts) >= MAX_PARTS:
                    del self._parts[next(iter(self._parts))]
                learned, judged = self.folds[fold]
                self._parts[key] = _rows_at(chunks, learned), _rows_at(chunks, judged)
            return self._parts[key]

    # Comparisons

    def loss(self, setting: Setting, folds: Sequence[int]) -> float:
        """Return the mean loss of the judged rows of some folds."""
        return mean_and_error(self._losses(setting, folds), self._weights(folds))[0]

    def loss_and_error(self, setting: Setting, folds: Sequence[int]) -> tuple[float, float]:
        """Return the mean loss of the judged rows of some folds, and its standard error."""
        return mean_and_error(self._losses(setting, folds), self._weights(folds))

    def ranked(self, settings: Iterable[Setting], folds: Sequence[int]) -> list[Setting]:
        """Return settings without repetitions, the best first; of equal ones, those that came first."""
        return sorted(dict.fromkeys(settings), key=lambda setting: self.loss(setting, folds))

    def gain(self, setting: Setting, other: Setting, folds: Sequence[int]) -> tuple[float, float]:
        """Return how much lower the mean loss of a setting is than another one's, and the standard error."""
        difference = self._losses(other, folds) - self._losses(setting, folds)
        return mean_and_error(difference, self._weights(folds))

    def folds_of(self, setting: Setting) -> list[int]:
        """Return the folds that a setting was fitted to."""
        return [fold for each, fold in self.results if each == setting]

    def loss_of_mean_score(self, settings: Sequence[Setting], folds: Sequence[int]) -> float:
        """Return the mean loss of the mean score of settings, of which one may be there several times."""
        losses = []
        for fold in folds:
            _, judged = self._part(self.chunks, fold)
            score = np.mean([self.results[each, fold].scores for each in settings], axis=0)
            losses.append(self.chunks.loss.value(judged.y, score))
        return mean_and_error(np.concatenate(losses), self._weights(folds))[0]

    def _losses(self, setting: Setting, folds: Sequence[int]) -> FloatArray:
        return np.concatenate([self.results[setting, fold].losses for fold in folds])

    def _weights(self, folds: Sequence[int]) -> FloatArray:
        whole = _weights_of(self.chunks)
        return np.concatenate([whole[self.folds[fold].judged] for fold in folds])


def _weights_of(chunks: Chunks) -> FloatArray:
    assert chunks.kept is not None and chunks.validation is not None
    return np.concatenate([chunks.kept.sample_weight, chunks.validation.sample_weight])


def have_weight(chunks: Chunks, folds: Iterable[Fold]) -> bool:
    """Return whether all folds have rows with a weight on both sides."""
    weight = _weights_of(chunks)
    return all(weight[rows].any() for fold in folds for rows in fold)


def _rows_at(chunks: Chunks, rows: Int64Array) -> Chunk:
    """Return rows at positions among the training rows, followed by the validation rows; whole parts are not copied."""
    kept, validation = chunks.kept, chunks.validation
    assert kept is not None and validation is not None
    n = len(kept.y)
    if len(rows) == n and rows[-1] == n - 1:
        return kept
    if len(rows) == len(validation.y) and rows[0] == n:
        return validation
    if rows[-1] < n:
        return take_rows(kept, rows)
    if rows[0] >= n:
        return take_rows(validation, rows - n)
    parts = take_rows(kept, rows[rows < n]), take_rows(validation, rows[rows >= n] - n)
    return join_chunks(parts)


def _wait(runs: Iterable[Future[FoldResult]]) -> None:
    """Wait for all runs; raise the first error of one, and notice Ctrl-C."""
    left: set[Future[FoldResult]] = set(runs)
    while left:
        done, left = wait(left, timeout=0.1, return_when=FIRST_EXCEPTION)
        for run in done:
            run.result()
