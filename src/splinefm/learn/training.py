"""The training loop: chunks of slots in, the best parameters and a history out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm.encode.encoder import Encoder
from splinefm.encode.numerical import Numerical
from splinefm.encode.slots import Layout, Slots
from splinefm.learn.losses import Loss
from splinefm.model.cpu import CpuEngine
from splinefm.model.family import AnyModel, Params, init_params
from splinefm.model.optimizers import Group, Optimizer

FloatArray = npt.NDArray[np.float64]


class Chunk(NamedTuple):
    """Encoded rows with targets and sample weights."""

    slots: Slots
    y: FloatArray
    sample_weight: FloatArray


class Epoch(NamedTuple):
    """One row of the history."""

    epoch: int
    train_loss: float
    validation_loss: float
    learning_rate: float
    rows_per_second: float
    seconds: float


@dataclass(frozen=True)
class Training:
    """How to train.

    Parameters
    ----------
    epochs : int
        Passes over the data, at most.
    batch_size : int, optional
        Rows per step; by default about 250 steps per epoch, with 32 to 4096 rows each.
    learning_rate : float
        Its highest value: it rises over the first `warmup` of all steps and then falls along half a cosine.
    optimizer : {"adamw", "adagrad"}
        Lazy versions: a step changes only the rows that its batch touches.
    l2 : float, optional
        Penalty ½ l2 |v|² + ½ (l2 / 10) w² for every row that a batch touches.
    smoothness : float, optional
        Penalty on squared second differences of neighboring basis functions' vectors and weights. Where one of the
        two is left out, short runs on the validation part choose it (1e-4 and 1e-3 for tables that are read from
        disk and without a validation part).
    average : bool
        Keep a moving average of the weights, over about half an epoch, and use it.
    patience : int, optional
        Stop after so many epochs without a better validation loss.
    seed : int
        For start values and the order of the rows.
    threads : int, optional
        All cores by default; the result does not depend on it.

    Examples
    --------
    >>> Training(epochs=3).rate_at(0, 100) < Training(epochs=3).rate_at(10, 100)
    True
    """

    epochs: int = 30
    batch_size: int | None = None
    learning_rate: float = 0.01
    optimizer: str = "adamw"
    l2: float | None = None
    smoothness: float | None = None
    warmup: float = 0.05
    average: bool = True
    patience: int | None = 5
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "l2", "smoothness"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < math.inf:
                raise ValueError(f"{name} must be at least 0, got {value}")
        if not 0.0 <= self.warmup <= 1.0:
            raise ValueError(f"warmup is a share of all steps, from 0 to 1; got {self.warmup}")

    def with_penalties(self, l2: float = 1e-4, smoothness: float = 1e-3) -> Training:
        """The same with penalties filled in where they were left out."""
        return replace(
            self,
            l2=l2 if self.l2 is None else self.l2,
            smoothness=smoothness if self.smoothness is None else self.smoothness,
        )

    def rows_per_step(self, n_rows: int) -> int:
        """The batch size for a table: as given, or a power of two near a 250th of the rows."""
        if self.batch_size is not None:
            return self.batch_size
        return int(min(4096, max(32, 2 ** round(math.log2(max(1, n_rows) / 250)))))

    def rate_at(self, step: int, n_steps: int) -> float:
        """The learning rate of a step, counted from 0."""
        rising = self.warmup * n_steps
        if step < rising:
            return self.learning_rate * (step + 1) / (rising + 1)
        done = (step - rising) / max(1.0, n_steps - rising)
        return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))


def seeded(*seeds: int) -> np.random.Generator:
    """A generator of our own: synthetic data are often made by `default_rng(0)`, and the rows to hold back must not
    follow from the numbers that made them.
    """
    return np.random.default_rng([0x73706C696E65, *seeds])


class Diverged(ValueError):
    """Training left the range of finite numbers."""


def make_groups(encoder: Encoder, training: Training) -> list[list[Group]]:
    """Penalties of each field's rows: tokens and categories are shrunk, basis functions are smoothed as well."""
    training = training.with_penalties()
    l2, smoothness = training.l2 or 0.0, training.smoothness or 0.0
    plain = Group(1, l2, 0.1 * l2)
    groups: list[list[Group]] = []
    for item, layout in zip(encoder.fields, encoder.layout.fields, strict=True):
        if not isinstance(item, Numerical):
            groups.append([replace(plain, size=layout.n_rows)])
            continue
        own = [replace(plain, size=item.n_tokens)] if item.n_tokens else []
        periodic = bool(getattr(item.basis, "periodic", False))
        own += [
            replace(plain, size=size, smoothness=smoothness if size > 2 else 0.0, periodic=periodic)
            for size in item.basis.sizes
        ]
        groups.append(own)
    return groups


def train(
    model: AnyModel,
    layout: Layout,
    groups: list[list[Group]],
    chunks: Callable[[np.random.Generator], Iterable[Chunk]],
    n_rows: int,
    loss: Loss,
    training: Training,
    validation: Chunk | None = None,
    start: float = 0.0,
    report: Callable[[Epoch], None] = lambda epoch: None,
) -> tuple[Params, list[Epoch]]:
    """Train a model; `chunks(rng)` gives the chunks of one epoch, each fitting in memory, with standardized targets.

    The bias starts at `start`.

    Returns the parameters of the best epoch by validation loss (of the last one without a validation part), and the
    history. Ctrl-C ends training after the present batch and keeps the best parameters so far.
    """
    rng = seeded(training.seed)
    batch_size = training.rows_per_step(n_rows)
    steps = training.epochs * max(1, math.ceil(n_rows / batch_size))
    engine = make_engine(model, layout, groups, loss, training, n_rows, rng, start)
    best, best_loss, history, number = None, math.inf, [], 0
    begin = time.perf_counter()
    try:
        for epoch in range(training.epochs):
            losses, weights, seen, started = 0.0, 0.0, 0, time.perf_counter()
            for chunk, rows in _batches(chunks(rng), batch_size, rng):
                rate = training.rate_at(number, steps)
                weight = float(chunk.sample_weight[rows].sum())
                losses += weight * engine.step(chunk.slots, chunk.y, chunk.sample_weight, rows, rate)
                weights, seen, number = weights + weight, seen + len(rows), number + 1
            train_loss = losses / max(weights, 1e-300)
            if not math.isfinite(train_loss):
                raise Diverged(_divergence_message(training, epoch))
            params = engine.params(averaged=training.average)
            now = time.perf_counter()
            value = _validation_loss(engine, params, validation, loss) if validation is not None else math.nan
            history.append(Epoch(epoch + 1, train_loss, value, rate, seen / (now - started), now - begin))
            report(history[-1])
            if validation is None or value < best_loss:
                best, best_loss, since = params, value, 0
            else:
                since += 1
                if training.patience is not None and since >= training.patience:
                    break
    except KeyboardInterrupt:
        if best is None:
            raise
    if best is None:
        raise Diverged(_divergence_message(training, len(history) - 1))
    return best, history


def make_engine(
    model: AnyModel,
    layout: Layout,
    groups: list[list[Group]],
    loss: Loss,
    training: Training,
    n_rows: int,
    rng: np.random.Generator,
    start: float = 0.0,
) -> CpuEngine:
    """An engine at the start values."""
    batch_size = training.rows_per_step(n_rows)
    steps_per_epoch = max(1, n_rows // batch_size)
    ema = math.exp(-2.0 / steps_per_epoch) if training.average else 0.0
    optimizer = Optimizer(training.optimizer, training.learning_rate, ema=min(ema, 0.9999))
    params = init_params(model, layout, rng)
    params["bias"][:] = start
    return CpuEngine(model, layout, params, loss.name, optimizer, groups, batch_size, training.threads)


def _batches(
    chunks: Iterable[Chunk], batch_size: int, rng: np.random.Generator
) -> Iterator[tuple[Chunk, npt.NDArray[np.int64]]]:
    for chunk in chunks:
        order = rng.permutation(len(chunk.slots))
        for at in range(0, len(order), batch_size):
            yield chunk, order[at : at + batch_size]


def _validation_loss(engine: CpuEngine, params: Params, validation: Chunk, loss: Loss) -> float:
    score = engine.scores_of(params, validation.slots).astype(np.float64)
    value = loss.value(validation.y, score)
    return float(np.average(value, weights=validation.sample_weight))


def _divergence_message(training: Training, epoch: int) -> str:
    return (
        f"training diverged in epoch {epoch + 1}: the loss is not a finite number; "
        f"lower learning_rate (now {training.learning_rate:g}), or raise l2 (now {training.l2})"
    )
