"""The training loop: chunks of slots in, the best parameters and a history out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from splinefm._wording import setting
from splinefm.encode.slots import SlotLayout
from splinefm.learn.losses import Loss
from splinefm.learn.metrics import mean_and_error
from splinefm.learn.penalties import AdaptivePenalties
from splinefm.learn.progress import SILENT, Progress
from splinefm.learn.training import (
    L2,
    RUNS,
    SMOOTHNESS,
    Callback,
    Chunk,
    Epoch,
    FloatArray,
    Penalty,
    Run,
    Trained,
    Training,
    by_name,
    seeded,
)
from splinefm.model.engine import Engine, start_engine
from splinefm.model.family import AnyModel, Params, init_params
from splinefm.model.optimizers import Group, Optimizer

# Settings that exceed their defaults by this factor are the first suspects when a run diverges.
SUSPICIOUS_FACTORS = {"learning_rate": 20.0, "l2": 1e3, "smoothness": 1e3}
# Standard errors by which the validation loss of an epoch may exceed the best one.
TIE = 0.25


def train(
    model: AnyModel,
    layout: SlotLayout,
    groups: list[list[Group]],
    chunks: Callable[[int], Iterable[Chunk]],
    n_rows: int,
    loss: Loss,
    training: Training,
    validation: Chunk | None = None,
    start: float | FloatArray = 0.0,
    callbacks: Sequence[Callback] = (),
    progress: Progress = SILENT,
    stop_after: int | None = None,
    run: Run = "first",
) -> Trained:
    """Train a model on the chunks of every epoch.

    `chunks(epoch)` yields the chunks of an epoch, counted from 0, with standardized targets; an epoch has `n_rows`
    rows, and each chunk must fit in memory. The bias starts at `start`. `stop_after` ends the run after this many
    epochs without changing the learning rate schedule.

    Returns the parameters of the epoch with the best validation loss (of the last epoch without validation rows), and
    the history. Ctrl-C stops training within tenths of a second or 8,192 rows and keeps the best parameters so far.
    A callback that returns True stops training after its epoch.
    """
    rng = seeded(training.seed)
    paced = training.for_fields(len(layout.fields))
    engine = make_engine(model, layout, groups, loss, paced, n_rows, rng, start)
    penalties = AdaptivePenalties(engine)
    best, history, since, begin = None, [], 0, time.perf_counter()
    judge = Judge(validation)
    n_epochs, interrupted, left = stop_after or training.most_epochs(n_rows), False, ""
    try:
        for epoch in range(n_epochs):
            progress.begin_epoch(epoch + 1, n_epochs, n_rows)
            started = time.perf_counter()
            rates = paced.rates(epoch, n_rows)
            train_loss, floor, seen, rate = _pass(engine, _batches(chunks(epoch), engine, rng), loss, rates, progress)
            if not math.isfinite(train_loss):
                raise Diverged(divergence_message(training, epoch))
            params = engine.params(averaged=training.average)
            penalties.adapt(params["factors"], loss.dispersion(train_loss - floor))
            now = time.perf_counter()
            value, is_best = judge.look(engine, params, loss)
            history.append(Epoch(epoch + 1, train_loss, value, rate, seen / (now - started), now - begin, run))
            progress.end_epoch(history[-1], loss)
            best, since = (params, 0) if is_best else (best, since + 1)
            if call_all(callbacks, history[-1]):
                interrupted = True
                progress.say(f"{RUNS[run]} stopped by a callback; keeping the best epoch")
                break
            if training.patience is not None and since >= training.patience:
                progress.say(f"{RUNS[run]} stopped: no better validation loss since epoch {epoch + 1 - since}")
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        interrupted, left = True, f"the best epoch so far is kept ({len(history) - since} of {n_epochs})"
    if best is None:
        raise Diverged(divergence_message(training, len(history) - 1))
    return Trained(best, history, interrupted, judge.as_good, left)


def call_all(callbacks: Sequence[Callback], epoch: Epoch) -> bool:
    """Call every callback, and return whether one of them asks to stop.

    Only True does: many functions happen to return something else.
    """
    answers = [callback(epoch) for callback in callbacks]
    return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)


def make_engine(
    model: AnyModel,
    layout: SlotLayout,
    groups: list[list[Group]],
    loss: Loss,
    training: Training,
    n_rows: int,
    rng: np.random.Generator,
    start: float | FloatArray = 0.0,
) -> Engine:
    """Return an engine with initial parameters."""
    batch_size = training.rows_per_step(n_rows)
    steps_per_epoch = max(1, n_rows // batch_size)
    ema = math.exp(-2.0 / steps_per_epoch) if training.average else 0.0
    optimizer = Optimizer(training.optimizer, training.learning_rate, ema=min(ema, 0.9999))
    params = init_params(model, layout, rng, n_outputs=loss.n_outputs)
    params["bias"][:] = np.reshape(start, (-1, 1)) if loss.n_outputs > 1 else start
    return start_engine(
        training.engine,
        training.device,
        model,
        layout,
        params,
        loss.name,
        optimizer,
        groups,
        batch_size,
        training.threads,
        loss.parameter,
    )


def _pass(
    engine: Engine,
    batches: Iterable[tuple[Chunk, npt.NDArray[np.int64]]],
    loss: Loss,
    rates: Callable[[int], float],
    progress: Progress,
) -> tuple[float, float, int, float]:
    """Take a step on every batch, until the loss is no longer finite.

    Returns the mean loss and its floor, the number of rows, and the last learning rate.
    """
    total, floor, weights, seen, rate = 0.0, 0.0, 0.0, 0, math.nan
    for chunk, rows in batches:
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
    rows: npt.NDArray[np.int64],
    rates: FloatArray,
    batch_size: int,
    loss: Loss,
) -> tuple[float, float, float]:
    """Train on some rows of a chunk; return their weight, their loss before the steps, and the floor of that loss."""
    losses = engine.steps(chunk.slots, chunk.y, chunk.sample_weight, rows, rates, batch_size)
    y, weight = chunk.y[rows], chunk.sample_weight[rows]
    totals = np.add.reduceat(weight, np.arange(0, len(rows), batch_size))
    return float(weight.sum()), float(losses @ totals), loss.floor(y, weight)


def _batches(
    chunks: Iterable[Chunk], engine: Engine, rng: np.random.Generator
) -> Iterator[tuple[Chunk, npt.NDArray[np.int64]]]:
    """Yield the rows of every chunk in random order, several batches at a time."""
    for chunk in chunks:
        order = rng.permutation(len(chunk.slots))
        for rows in in_groups(order, engine.batch_size, engine):
            yield chunk, rows


def in_groups(order: npt.NDArray[np.int64], batch_size: int, engine: Engine) -> Iterator[npt.NDArray[np.int64]]:
    """Yield whole batches, as many as the engine takes per call.

    Between two calls, progress is reported and Ctrl-C is noticed.
    """
    size = batch_size * max(1, engine.rows_at_once // batch_size)
    for at in range(0, len(order), size):
        yield order[at : at + size]


class Judge:
    """Compares epochs by the losses of the validation rows.

    Where a few rows have most of the loss, the best epoch may be an early one by chance. A later epoch with a loss that
    is larger by less than TIE standard errors is as good: it has seen the rows more often, at a lower learning rate.

    Attributes
    ----------
    as_good : int
        The last epoch that is as good as the best one, counted from 1.
    """

    def __init__(self, validation: Chunk | None) -> None:
        self.validation, self.n_epochs, self.as_good = validation, 0, 0
        self._least, self._losses = math.inf, np.zeros(0)

    def look(self, engine: Engine, params: Params, loss: Loss) -> tuple[float, bool]:
        """Return the validation loss of the next epoch, and whether the epoch is the best so far.

        Without validation rows, the loss is NaN, and every epoch is better than those before.
        """
        self.n_epochs += 1
        if self.validation is None:
            self.as_good = self.n_epochs
            return math.nan, True
        score = engine.scores_of(params, self.validation.slots).astype(np.float64)
        losses, weight = loss.value(self.validation.y, score), self.validation.sample_weight
        value = float(np.average(losses, weights=weight))
        is_best = value < self._least
        if is_best:
            self._least, self._losses = value, losses
        if is_best or self._ties(losses, weight):
            self.as_good = self.n_epochs
        return value, is_best

    def _ties(self, losses: FloatArray, weight: FloatArray) -> bool:
        """Return whether the losses of an epoch differ from those of the best one by chance."""
        if not len(self._losses):
            return False
        with np.errstate(over="ignore", invalid="ignore"):  # an epoch that diverges does not tie
            mean, error = mean_and_error(losses - self._losses, weight)
        return math.isfinite(error) and mean <= TIE * error


class Diverged(ValueError):
    """Training diverged: the loss is NaN or infinite. The message says which setting to change.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> training = sf.Training(epochs=2, learning_rate=1e30, threads=1)
    >>> sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=training)
    Traceback (most recent call last):
    splinefm.learn.loop.Diverged: training diverged in epoch 1: ... lower learning_rate (now 1e+30; ...)
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
    found = by_name(penalty)
    if not found:
        return setting(name), penalty if isinstance(penalty, float) else default
    field = max(found, key=found.__getitem__)
    return f"{setting(name)} of {field!r}", found[field]


def divergence_message(training: Training, epoch: int) -> str:
    """Return the message of `Diverged` for an epoch, counted from 0."""
    advice = divergence_advice(training)
    return f"training diverged in epoch {epoch + 1}: the loss is not finite; {advice}"
