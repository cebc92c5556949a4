"""The training loop: passes over the rows, the choice of the best epoch, and the concurrent run on all rows."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from splinefm._arrays import FloatArray, Int64Array
from splinefm._parallel import Cancellation, count_threads
from splinefm._wording import setting
from splinefm.bounds.shapes import Shapes
from splinefm.encode.encoder import Encoder
from splinefm.encode.schema import Schema
from splinefm.model.engine import Engine, start_engine
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params
from splinefm.model.family.parameters import init_params
from splinefm.model.optimizers import Optimizer
from splinefm.train.chunks import Chunks
from splinefm.train.losses import Loss
from splinefm.train.penalties import AdaptivePenalties, make_groups, unsmoothed_fields
from splinefm.train.progress import SILENT, Progress
from splinefm.train.results import RUNS, Callback, Epoch, Evidence, Run, StopReason, TrainingResult
from splinefm.train.rows import Chunk
from splinefm.train.settings import L2, SMOOTHNESS, Penalty, Training, penalties_by_field, seeded
from splinefm.train.targets import mean_and_error

# What to say about a run that diverged.

# Settings that exceed their defaults by this factor are the first suspects when a run diverges.
SUSPICIOUS_FACTORS = {"learning_rate": 20.0, "l2": 1e3, "smoothness": 1e3}


class Diverged(ValueError):
    """Training diverged: the loss is NaN or infinite. The message says which setting to change.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> training = sf.Training(epochs=2, learning_rate=1e30, threads=1)
    >>> sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=training)
    Traceback (most recent call last):
    splinefm.train.loop.Diverged: training diverged in epoch 1: ... lower learning_rate (now 1e+30; ...)
    """


def divergence_advice(training: Training) -> str:
    """Say what to change after a divergence: the settings far from their defaults, or else the usual ones."""
    defaults = {"learning_rate": Training.learning_rate, "l2": L2, "smoothness": SMOOTHNESS}
    now = {name: _largest(name, getattr(training, name), default) for name, default in defaults.items()}
    too_large = [name for name, (_, value) in now.items() if value > SUSPICIOUS_FACTORS[name] * defaults[name]]
    described = {name: f"{label} (now {value:g}; usually {defaults[name]:g})" for name, (label, value) in now.items()}
    if too_large:
        return "lower " + " and ".join(described[name] for name in too_large)
    return f"lower {described['learning_rate']}, or raise {described['l2']} or {described['smoothness']}"


def _largest(name: str, penalty: Penalty, default: float) -> tuple[str, float]:
    """Return the name of a setting (with the field, if given by field) and its largest value."""
    found = penalties_by_field(penalty)
    if not found:
        return setting(name), penalty if isinstance(penalty, float) else default
    field = max(found, key=found.__getitem__)
    return f"{setting(name)} of {field!r}", found[field]


def divergence_message(training: Training, epoch: int) -> str:
    """Return the message of `Diverged` for an epoch, counted from 0."""
    advice = divergence_advice(training)
    return f"training diverged in epoch {epoch + 1}: the loss is not finite; {advice}"


# The judge of epochs: which one is the best, and which later one is as good.

# Standard errors by which the validation loss of an epoch may exceed the best one.
TIE = 0.25


class EpochSelector:
    """Compares epochs by the losses of the validation rows.

    Where a few rows have most of the loss, the best epoch may be an early one by chance. A later epoch with a loss that
    is larger by less than TIE standard errors is tied: it has seen the rows more often, at a lower learning rate.

    Attributes
    ----------
    last_tied_epoch : int
        The last epoch that is tied with the best one, counted from 1.
    """

    def __init__(self, validation: Chunk | None) -> None:
        self.validation, self.n_epochs, self.last_tied_epoch = validation, 0, 0
        self._least, self._losses = math.inf, np.zeros(0)

    def update(self, engine: Engine, params: Params, loss: Loss) -> tuple[float, bool]:
        """Return the validation loss of the next epoch, and whether the epoch is the best so far.

        Without validation rows, the loss is NaN, and every epoch is better than those before.
        """
        self.n_epochs += 1
        if self.validation is None:
            self.last_tied_epoch = self.n_epochs
            return math.nan, True
        score = engine.scores_of(params, self.validation.slots).astype(np.float64)
        losses, weight = loss.value(self.validation.y, score), self.validation.sample_weight
        value = float(np.average(losses, weights=weight))
        is_best = value < self._least
        if is_best:
            self._least, self._losses = value, losses
        if is_best or self._ties(losses, weight):
            self.last_tied_epoch = self.n_epochs
        return value, is_best

    def evidence(self, loss: Loss, start: float | FloatArray, training_loss: float) -> Evidence | None:
        """Return the evidence of the validation rows on the best epoch, whose training rows had this loss."""
        if self.validation is None or not len(self._losses):
            return None
        y, weight = self.validation.y, self.validation.sample_weight
        constant = loss.value(y, self.validation.constant_scores(start))
        value, error = mean_and_error(self._losses, weight)
        gain, gain_error = mean_and_error(constant - self._losses, weight)
        floor = loss.floor(y, weight) / float(weight.sum())
        numbers = (training_loss, value, error, value + gain, gain_error, floor)
        return Evidence(len(y), *numbers) if all(map(math.isfinite, numbers)) else None

    def _ties(self, losses: FloatArray, weight: FloatArray) -> bool:
        """Return whether the losses of an epoch differ from the best epoch's by chance."""
        if not len(self._losses):
            return False
        with np.errstate(over="ignore", invalid="ignore"):  # an epoch that diverges does not tie
            mean, error = mean_and_error(losses - self._losses, weight)
        return math.isfinite(error) and mean <= TIE * error


# Passes over the rows: an engine, the order of its rows, and penalties that follow what it learns.

Rows = Callable[[int], Iterable[Chunk]]


class EpochResult(NamedTuple):
    """What a run has after an epoch: its parameters, and the mean loss of the rows before it learned from them.

    There are no parameters if training has diverged.
    """

    params: Params
    loss: float
    n_rows: int
    rate: float
    """The learning rate of the last step."""

    @property
    def is_finite(self) -> bool:
        """Whether training has not diverged."""
        return math.isfinite(self.loss)


@dataclass
class TrainingRun:
    """A model that learns from some rows, in another order in every epoch.

    `rows(epoch)` yields the chunks of an epoch, counted from 0, each of which must fit in memory; there are `n_rows`
    rows. `training` has the learning rate for the number of fields. `rng` draws the order of the rows.
    """

    engine: Engine
    rows: Rows
    n_rows: int
    loss: Loss
    training: Training
    rng: np.random.Generator

    shapes: Shapes

    def __post_init__(self) -> None:
        self.penalties = AdaptivePenalties(self.engine)

    @classmethod
    def begin(cls, model: AnyModel, chunks: Chunks, training: Training, rows: Chunk | None = None) -> TrainingRun:
        """Return a run with initial parameters; without `rows`, it learns from the training rows of the table."""
        n_rows = chunks.n_rows if rows is None else len(rows.y)
        epoch_rows: Rows = chunks.epoch if rows is None else lambda epoch: [rows]
        rng, paced = seeded(training.seed), training.for_fields(len(chunks.encoder.fields))
        engine = make_engine(model, chunks.encoder, chunks.loss, paced, n_rows, rng, chunks.start)
        return cls(engine, epoch_rows, n_rows, chunks.loss, paced, rng, Shapes(chunks.encoder, model))

    def learn(self, epoch: int, progress: Progress = SILENT, cancellation: Cancellation | None = None) -> EpochResult:
        """Take the steps of an epoch; penalties then follow what was learned."""
        rates, batches = self.training.rates(epoch, self.n_rows), _batches(self.rows(epoch), self.engine, self.rng)
        loss, floor, seen, rate = _pass(self.engine, batches, self.loss, rates, progress, cancellation)
        if not math.isfinite(loss):
            return EpochResult({}, loss, seen, rate)
        params = self._shaped_params()
        self.penalties.adapt(params["factors"], self.loss.dispersion(loss - floor))
        return EpochResult(params, loss, seen, rate)

    def _shaped_params(self) -> Params:
        """Impose the shapes on the parameters that training goes on with, and return the epoch's parameters."""
        averaged = self.training.average
        if self.shapes.fields:
            own = self.shapes.impose(self.engine.params())
            self.engine.set_features(own)
            return self.shapes.impose(self.engine.params(averaged=True)) if averaged else own
        return self.engine.params(averaged=averaged)


def make_engine(
    model: AnyModel,
    encoder: Encoder,
    loss: Loss,
    training: Training,
    n_rows: int,
    rng: np.random.Generator,
    start: float | FloatArray = 0.0,
) -> Engine:
    """Return an engine with initial parameters, whose bias is `start`."""
    batch_size = training.rows_per_step(n_rows)
    steps_per_epoch = max(1, n_rows // batch_size)
    ema = math.exp(-2.0 / steps_per_epoch) if training.average else 0.0
    optimizer = Optimizer(training.optimizer, training.learning_rate, ema=min(ema, 0.9999))
    params = init_params(model, encoder.layout, rng, n_outputs=loss.n_outputs)
    params["bias"][:] = np.reshape(start, (-1, 1)) if loss.n_outputs > 1 else start
    return start_engine(
        training.engine,
        training.device,
        model,
        encoder.layout,
        params,
        loss.name,
        optimizer,
        make_groups(encoder, training),
        batch_size,
        training.threads,
        loss.parameter,
    )


def _pass(
    engine: Engine,
    batches: Iterable[tuple[Chunk, Int64Array]],
    loss: Loss,
    rates: Callable[[int], float],
    progress: Progress,
    cancellation: Cancellation | None = None,
) -> tuple[float, float, int, float]:
    """Take a step on every batch, until the loss is no longer finite.

    Returns the mean loss and its floor, the number of rows, and the last learning rate.
    """
    total, floor, weights, seen, rate = 0.0, 0.0, 0.0, 0, math.nan
    for chunk, rows in batches:
        if cancellation is not None:
            cancellation.check()
        schedule = np.array([rates(seen + at) for at in range(0, len(rows), engine.batch_size)])
        weight, part, part_floor = train_on(engine, chunk, rows, schedule, engine.batch_size, loss)
        total, floor, weights = total + part, floor + part_floor, weights + weight
        seen, rate = seen + len(rows), float(schedule[-1])
        progress.advance(len(rows), total / max(weights, 1e-300))
        if not math.isfinite(total):
            break
    weights = max(weights, 1e-300)
    return total / weights, floor / weights, seen, rate


def train_on(
    engine: Engine,
    chunk: Chunk,
    rows: Int64Array,
    rates: FloatArray,
    batch_size: int,
    loss: Loss,
) -> tuple[float, float, float]:
    """Train on some rows of a chunk; return their weight, their loss before the steps, and the floor of that loss."""
    losses = engine.steps(chunk.slots, chunk.y, chunk.sample_weight, rows, rates, batch_size)
    y, weight = chunk.y[rows], chunk.sample_weight[rows]
    totals = np.add.reduceat(weight, np.arange(0, len(rows), batch_size))
    return float(weight.sum()), float(losses @ totals), loss.floor(y, weight)


def _batches(chunks: Iterable[Chunk], engine: Engine, rng: np.random.Generator) -> Iterator[tuple[Chunk, Int64Array]]:
    """Yield the rows of every chunk in random order, several batches at a time."""
    for chunk in chunks:
        order = rng.permutation(len(chunk.slots))
        for rows in in_groups(order, engine.batch_size, engine):
            yield chunk, rows


def in_groups(order: Int64Array, batch_size: int, engine: Engine) -> Iterator[Int64Array]:
    """Yield whole batches, as many as the engine takes per call.

    Between two calls, progress is reported and Ctrl-C is noticed.
    """
    size = batch_size * max(1, engine.rows_at_once // batch_size)
    for at in range(0, len(order), size):
        yield order[at : at + size]


# The run on all rows, at the same time as the run that chooses its number of epochs.


class ConcurrentRefit:
    """Takes the epochs of a run on all rows in a thread of its own, while another run takes the same epochs.

    The other run holds rows out and decides which epoch is to be kept. Steps on few rows hardly gain by a second
    thread, and two runs do: both together take little longer than one, as opposed to one after the other. Parameters
    are the same to the bit.
    """

    def __init__(self, run: TrainingRun) -> None:
        self.run = run
        self.params: Params | None = None
        self._diverged = False
        self._cancellation = Cancellation()
        self._pool = ThreadPoolExecutor(1, "all-rows")
        self._learning: Future[EpochResult] | None = None

    def __enter__(self) -> ConcurrentRefit:
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread, whatever it is doing."""
        self._cancellation.cancel()
        self._pool.shutdown(cancel_futures=True)

    def begin(self, epoch: int) -> None:
        """Begin an epoch, counted from 0, and return at once."""
        self._learning = (
            None if self._diverged else self._pool.submit(self.run.learn, epoch, SILENT, self._cancellation)
        )

    def end(self, keep: bool) -> None:
        """Wait for the end of the epoch, and keep its parameters if the other run says so.

        There are none of a run that has diverged before: `params` is None, and a run of its own will tell why.
        """
        result = None if self._learning is None else self._learning.result()
        self._diverged = result is None or not result.is_finite
        if keep:
            self.params = None if result is None or self._diverged else result.params


# The training loop: chunks of slots in, the best parameters and a history out.


def train(
    model: AnyModel,
    chunks: Chunks,
    training: Training,
    *,
    rows: Chunk | None = None,
    validation: Chunk | None = None,
    all_rows: Chunk | None = None,
    callbacks: Sequence[Callback] = (),
    progress: Progress = SILENT,
    cancellation: Cancellation | None = None,
    stop_after: int | None = None,
    run: Run = "first",
) -> TrainingResult:
    """Train a model on encoded rows; return the best parameters and the history.

    The best epoch is the one with the lowest validation loss, or the last one without validation rows. Ctrl-C stops
    training within tenths of a second or 8,192 rows and keeps the best parameters so far. A callback that returns True
    stops training after its epoch.

    Parameters
    ----------
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM
        The model.
    chunks : Chunks
        The table.
    training : Training
        The settings, with the defaults for the table filled in.
    rows : Chunk, optional
        The rows to learn from; by default the training rows of the table.
    validation : Chunk, optional
        The rows that choose the best epoch.
    all_rows : Chunk, optional
        Training and validation rows: a second model learns from them at the same time; see `ConcurrentRefit`.
    callbacks : sequence of callable
        Functions that are called after every epoch.
    progress : Progress
        Where to report.
    cancellation : Cancellation, optional
        Ends the run with `Cancelled`.
    stop_after : int, optional
        Ends the run after this many epochs, without a change of the learning rate schedule.
    run : {"first", "search", "all rows"}
        The name of the run in the history.
    """
    best, history, since, begin = None, list[Epoch](), 0, time.perf_counter()
    main_run, refit = _begin(model, chunks, training, rows, all_rows)
    judge, loss = EpochSelector(validation), chunks.loss
    n_epochs = stop_after or training.max_epochs(main_run.n_rows)
    patience = training.max_epochs_without_gain(main_run.n_rows)
    stop, kept = None, ""
    try:
        with refit or nullcontext():
            for epoch in range(n_epochs):
                progress.begin_epoch(epoch + 1, n_epochs, main_run.n_rows)
                started = time.perf_counter()
                if refit is not None:
                    refit.begin(epoch)
                result = main_run.learn(epoch, progress, cancellation)
                if not result.is_finite:
                    raise Diverged(divergence_message(training, epoch))
                now = time.perf_counter()
                value, is_best = judge.update(main_run.engine, result.params, loss)
                speed = result.n_rows / (now - started)
                history.append(Epoch(epoch + 1, result.loss, value, result.rate, speed, now - begin, run))
                best, since = (result.params, 0) if is_best else (best, since + 1)
                if refit is not None:
                    refit.end(keep=judge.last_tied_epoch == epoch + 1)
                progress.end_epoch(history[-1], loss)
                if call_all(callbacks, history[-1]):
                    stop = StopReason.CALLBACK
                    progress.say(f"{RUNS[run]} stopped by a callback; keeping the best epoch")
                    break
                if patience is not None and since >= patience:
                    if run != "search":  # there are many, whose epochs are not shown
                        progress.say(f"{RUNS[run]} stopped: no better validation loss since epoch {epoch + 1 - since}")
                    break
    except KeyboardInterrupt:
        if best is None:
            raise
        stop, kept = StopReason.INTERRUPT, f"the best epoch so far is kept ({len(history) - since} of {n_epochs})"
    if best is None:
        raise Diverged(divergence_message(training, len(history) - 1))
    evidence = judge.evidence(loss, chunks.start, history[len(history) - 1 - since].train_loss)
    refit_params = None if refit is None else refit.params
    return TrainingResult(best, history, judge.last_tied_epoch, stop, kept, refit_params, evidence)


def _begin(
    model: AnyModel, chunks: Chunks, training: Training, rows: Chunk | None, all_rows: Chunk | None
) -> tuple[TrainingRun, ConcurrentRefit | None]:
    """Return the run, and the one on all rows at the same time; they share the threads."""
    if all_rows is None:
        return TrainingRun.begin(model, chunks, training, rows), None
    threads = count_threads(training.threads)
    mine, other = (replace(training, threads=max(1, share)) for share in (-(-threads // 2), threads // 2))
    refit = ConcurrentRefit(TrainingRun.begin(model, chunks, other, all_rows))
    return TrainingRun.begin(model, chunks, mine, rows), refit


def call_all(callbacks: Sequence[Callback], epoch: Epoch) -> bool:
    """Call every callback, and return whether one of them asks to stop.

    Only True does: many functions happen to return something else.
    """
    answers = [callback(epoch) for callback in callbacks]
    return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)


# Whether the run on all rows takes place at the same time.

# The most rows of a batch at which two runs at a time, with half of the threads each, take less time than one after the
# other. Larger batches gain by threads, and the run on all rows also takes the epochs that are then thrown away.
MAX_CONCURRENT_BATCH = 256
# Two runs take twice the memory: the most numbers in the vectors of a model, and the most bytes of encoded rows.
MAX_CONCURRENT_NUMBERS, MAX_CONCURRENT_BYTES = 1 << 24, 1 << 26


def rows_of_concurrent_refit(
    model: AnyModel, chunks: Chunks, training: Training, callbacks: Sequence[Callback]
) -> Chunk | None:
    """Return all rows if a run on them should take place at the same time as the first run, else None.

    Callbacks hear of one run after the other.
    """
    kept, layout = chunks.kept, chunks.encoder.layout
    if not training.refit_on_all or callbacks or kept is None:
        return None
    n_numbers = chunks.loss.n_outputs * layout.n_features * model.width(len(layout.fields))
    should_run = (
        training.engine == "cpu"
        and count_threads(training.threads) > 1
        and training.rows_per_step(chunks.n_rows) <= MAX_CONCURRENT_BATCH
        and n_numbers <= MAX_CONCURRENT_NUMBERS
        and kept.slots.start.nbytes + kept.slots.weight.nbytes <= MAX_CONCURRENT_BYTES
    )
    return chunks.whole() if should_run else None


def settings_for(training: Training, schema: Schema, n_rows: int) -> Training:
    """Return the settings of training with the defaults filled in for a table of `n_rows` rows with these fields."""
    return training.for_table(schema.names, n_rows, unsmoothed_fields(schema))
