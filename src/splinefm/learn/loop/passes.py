"""Passes over the rows: an engine, the order of its rows, and penalties that follow what it learns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm.encode.slots import SlotLayout
from splinefm.learn.loop.penalties import AdaptivePenalties
from splinefm.learn.losses import Loss
from splinefm.learn.progress import Progress
from splinefm.learn.training import Chunk, FloatArray, Training, seeded
from splinefm.model.engine import Engine, start_engine
from splinefm.model.family import AnyModel, Params, init_params
from splinefm.model.optimizers import Group, Optimizer

Rows = Callable[[int], Iterable[Chunk]]


class Problem(NamedTuple):
    """What is learned, whatever the rows: the model, the fields with their penalties, and the loss."""

    model: AnyModel
    layout: SlotLayout
    groups: list[list[Group]]
    loss: Loss
    start: float | FloatArray = 0.0
    """What the bias starts at."""


class Lesson(NamedTuple):
    """What a trainee has after an epoch: its parameters, and the mean loss of the rows before it learned from them.

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
class Trainee:
    """A model that learns from some rows, in another order in every epoch.

    Parameters
    ----------
    engine : Engine
        The engine with its parameters.
    rows : callable
        `rows(epoch)` yields the chunks of an epoch, counted from 0; each must fit in memory.
    n_rows : int
        Rows of an epoch.
    loss : Loss
        The loss to minimize.
    training : Training
        The settings, with the learning rate for the number of fields.
    rng : Generator
        Draws the order of the rows.
    """

    engine: Engine
    rows: Rows
    n_rows: int
    loss: Loss
    training: Training
    rng: np.random.Generator

    def __post_init__(self) -> None:
        self.penalties = AdaptivePenalties(self.engine)

    @classmethod
    def begin(cls, problem: Problem, rows: Rows, n_rows: int, training: Training) -> Trainee:
        """Return a trainee with initial parameters."""
        rng, paced = seeded(training.seed), training.for_fields(len(problem.layout.fields))
        return cls(make_engine(problem, paced, n_rows, rng), rows, n_rows, problem.loss, paced, rng)

    def learn(self, epoch: int, progress: Progress) -> Lesson:
        """Take the steps of an epoch; penalties then follow what was learned."""
        rates, batches = self.training.rates(epoch, self.n_rows), _batches(self.rows(epoch), self.engine, self.rng)
        loss, floor, seen, rate = _pass(self.engine, batches, self.loss, rates, progress)
        if not math.isfinite(loss):
            return Lesson({}, loss, seen, rate)
        params = self.engine.params(averaged=self.training.average)
        self.penalties.adapt(params["factors"], self.loss.dispersion(loss - floor))
        return Lesson(params, loss, seen, rate)


def make_engine(problem: Problem, training: Training, n_rows: int, rng: np.random.Generator) -> Engine:
    """Return an engine with initial parameters."""
    batch_size = training.rows_per_step(n_rows)
    steps_per_epoch = max(1, n_rows // batch_size)
    ema = math.exp(-2.0 / steps_per_epoch) if training.average else 0.0
    optimizer = Optimizer(training.optimizer, training.learning_rate, ema=min(ema, 0.9999))
    model, layout, groups, loss, start = problem
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
