"""The training loop: chunks of slots in, the best parameters and a history out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm._checks import check_size
from splinefm._wording import setting
from splinefm.encode.bases.basis import smoothing
from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Field
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.encode.tables.names import nearest_hint, quoted
from splinefm.learn.losses import Loss
from splinefm.learn.progress import SILENT, Progress
from splinefm.model.cpu import CpuEngine
from splinefm.model.family import AnyModel, Params, init_params, pace_of
from splinefm.model.optimizers import Group, Optimizer

FloatArray = npt.NDArray[np.float64]
_NUMBERS = int | float | np.integer | np.floating
# Where nothing is given: see docs/decisions.md.
L2, SMOOTHNESS = 1e-4, 1e-2
# Settings so many times their defaults are the first suspects where a run diverges.
FAR = {"learning_rate": 20.0, "l2": 1e3, "smoothness": 1e3}
# Vectors shorter than this count as so long, which bounds their penalty.
SHORTEST = 0.01
# A number for all fields, numbers by field (kept as pairs, sorted), or None: the default.
Penalty = float | Mapping[str, float] | tuple[tuple[str, float], ...] | None


class Trained(NamedTuple):
    """What a run of training leaves."""

    params: Params
    history: list[Epoch]
    interrupted: bool


class Chunk(NamedTuple):
    """Encoded rows with targets and sample weights."""

    slots: Slots
    y: FloatArray
    sample_weight: FloatArray


Run = Literal["first", "by column", "all rows", "update"]
RUNS: dict[Run, str] = {
    "first": "first run",
    "by column": "run with resolutions by column",
    "all rows": "run on all rows",
    "update": "update",
}


class Epoch(NamedTuple):
    """What an epoch of training came to: one row of the history, and what callbacks are called with.

    Parameters
    ----------
    epoch : int
        Its number, counted from 1 in every run.
    train_loss : float
        Mean loss of the training rows, each before it was learned from.
    validation_loss : float
        Mean loss of the validation rows after the epoch; NaN where there are none.
    learning_rate : float
        That of the last step.
    rows_per_second : float
        The speed of training.
    seconds : float
        Since the run began.
    run : {"first", "by column", "all rows", "update"}
        Which of the runs of a fit: the first one, the one with resolutions by column, the last one on all rows; or a
        `partial_fit`.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "click": [0, 0, 1, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> [(epoch.epoch, epoch.run) for epoch in fitted.history]
    [(1, 'first'), (2, 'first')]
    """

    epoch: int
    train_loss: float
    validation_loss: float
    learning_rate: float
    rows_per_second: float
    seconds: float
    run: Run = "first"


Callback = Callable[[Epoch], object]


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
        Its highest value. With n > 50 fields, which move the score of a row all at once, it is `pace_of(n)` times what
        is given: (50 / n)², and 25 / n from 100 fields on.
    schedule : {"cosine", "constant"}
        The course of the learning rate: it rises over the first `warmup` of all steps and then falls along half a
        cosine; or it is the same in all steps.
    optimizer : {"adamw", "adagrad"}
        Lazy versions: a step changes only the rows that its batch touches.
    l2 : float or mapping of str to float, optional
        Penalty φ l2 (½ |v|² / r + w² / 20) for every row that a batch touches; 1e-4 by default. r is the root mean
        square length of the vectors of the row's group (a resolution of a spline, or the categories of a field) after
        the epoch before, times the number of fields in an FFM, and 1 in the first epoch: groups that help little shrink
        towards zero, as with a group lasso. φ is the noise: residual variance (squared loss), deviance per row
        (Poisson) or 1 (logistic).
    smoothness : float or mapping of str to float, optional
        Penalty φ smoothness ∫ |s''(t)|² dt on the spline s of a column's vectors, and on that of its linear weights,
        with t = 20 u, in the form (m / 20)³ Σ |Δ²v|² for m segments; 1e-2 by default. It means the same for any number
        of segments; beyond 100 its weight stays that of 100. Every resolution of a `MultiResolution` has the penalty of
        20 segments. Bases other than splines, such as bins, are not smoothed. Both penalties may be given by field
        name; fields that are not named get the default.
    smoothness_order : {2, 1, 3}
        Order of the derivative: much smoothness makes a curve a constant (1), a straight line (2) or a parabola (3)
        in the transformed column.
    warmup : float
        Share of all steps over which the learning rate rises, if it is not constant.
    average : bool
        Keep a moving average of the weights, over about half an epoch, and use it.
    patience : int, optional
        Stop after so many epochs without a better validation loss.
    refit_on_all : bool
        Train again on all rows, those of the validation part included, for as many epochs as were best. Only where the
        validation part was cut from a table that is kept in memory.
    select_resolutions : bool
        Train a second time with resolutions by column, and take what is better on the validation part: resolutions
        that the first run made little use of are dropped, finer ones are added where the finest was of much use. Only
        for columns with several resolutions that were inferred, and tables of up to 200,000 rows that are kept in
        memory.
    seed : int
        For start values and the order of the rows.
    threads : int, optional
        All cores by default; the result does not depend on it.

    Examples
    --------
    >>> Training(epochs=3).rate_at(0, 100) < Training(epochs=3).rate_at(10, 100)
    True
    >>> Training(l2={"price": 1e-3, "country": 1e-5}).l2
    (('country', 1e-05), ('price', 0.001))
    """

    epochs: int = 20
    batch_size: int | None = None
    learning_rate: float = 0.005
    schedule: str = "cosine"
    optimizer: str = "adamw"
    l2: Penalty = None
    smoothness: Penalty = None
    smoothness_order: int = 2
    warmup: float = 0.05
    average: bool = True
    patience: int | None = 5
    refit_on_all: bool = True
    select_resolutions: bool = True
    seed: int = 0
    threads: int | None = None

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "patience", "threads"):
            if getattr(self, name) is not None or name == "epochs":
                check_size(name, getattr(self, name))
        check_size("seed", self.seed, 0)
        _checked_number("learning_rate", self.learning_rate)
        for name in ("l2", "smoothness"):
            object.__setattr__(self, name, _checked_penalty(name, getattr(self, name)))
        if self.schedule not in ("cosine", "constant"):
            raise ValueError(f'schedule must be "cosine" or "constant", got {self.schedule!r}')
        if self.smoothness_order not in (1, 2, 3):
            raise ValueError(f"smoothness_order must be 1, 2 or 3, got {self.smoothness_order}")
        if not 0.0 <= self.warmup <= 1.0:
            raise ValueError(f"warmup is a share of all steps, from 0 to 1; got {self.warmup}")

    def check_fields(self, names: Sequence[str]) -> None:
        """Raise where a penalty is given for a field that does not exist."""
        known = set(names)
        for penalty in ("l2", "smoothness"):
            for name in _by_name(getattr(self, penalty)):
                if name not in known:
                    hint = nearest_hint(name, names)
                    raise ValueError(
                        f"{penalty} is given for {name!r}, which is no field{hint}. Fields: {quoted(names)}"
                    )

    def with_penalties(self, names: Sequence[str], l2: float = L2, smoothness: float = SMOOTHNESS) -> Training:
        """The same with penalties filled in where they were left out, for the fields of these names."""
        self.check_fields(names)
        return replace(self, l2=_filled(self.l2, names, l2), smoothness=_filled(self.smoothness, names, smoothness))

    def for_fields(self, n_fields: int) -> Training:
        """The same with the learning rate for so many fields."""
        return replace(self, learning_rate=self.learning_rate * pace_of(n_fields))

    def rows_per_step(self, n_rows: int) -> int:
        """The batch size for a table: as given, or a power of two near a 250th of the rows."""
        if self.batch_size is not None:
            return min(self.batch_size, max(1, n_rows))  # a step on more than all rows is one on all
        return int(min(4096, max(32, 2 ** round(math.log2(max(1, n_rows) / 250)))))

    def rate_at(self, step: float, n_steps: float) -> float:
        """The learning rate of a step, counted from 0."""
        if self.schedule == "constant":
            return self.learning_rate
        rising = self.warmup * n_steps
        if step < rising:
            return self.learning_rate * (step + 1) / (rising + 1)
        done = (step - rising) / max(1.0, n_steps - rising)
        return self.learning_rate * 0.5 * (1.0 + math.cos(math.pi * min(1.0, done)))

    def rates(self, epoch: int, n_rows: int) -> Callable[[int], float]:
        """The learning rate of an epoch, counted from 0, after so many of its rows: batches may be of any size."""
        size = self.rows_per_step(n_rows)
        return lambda seen: self.rate_at((epoch * n_rows + seen) / size, self.epochs * n_rows / size)


def seeded(*seeds: int) -> np.random.Generator:
    """A generator of our own: synthetic data are often made by `default_rng(0)`, and the rows to hold back must not
    follow from the numbers that made them.
    """
    return np.random.default_rng([0x73706C696E65, *seeds])


class Diverged(ValueError):
    """Training left the range of finite numbers; the message says which setting to change.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> training = sf.Training(epochs=2, learning_rate=1e30, threads=1)
    >>> sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=training)
    Traceback (most recent call last):
    splinefm.learn.training.Diverged: training diverged in epoch 1: ... lower learning_rate (now 1e+30; ...)
    """


def make_groups(encoder: Encoder, training: Training) -> list[list[Group]]:
    """Penalties of each field's rows: tokens and categories are shrunk, the functions of splines smoothed as well."""
    names, order = encoder.layout.names, training.smoothness_order
    training = training.with_penalties(names)
    penalties = (_per_field(penalty, encoder.fields) for penalty in (training.l2, training.smoothness))
    groups: list[list[Group]] = []
    for item, layout, l2, smoothness in zip(encoder.fields, encoder.layout.fields, *penalties, strict=True):
        plain = Group(layout.n_features, l2, 0.1 * l2)
        if not isinstance(item, Numerical):
            groups.append([plain])
            continue
        own = [replace(plain, size=item.n_tokens)] if item.n_tokens else []
        smooth = replace(plain, order=order, periodic=bool(getattr(item.basis, "periodic", False)))
        for size, weight in zip(item.basis.sizes, smoothing(item.basis, order), strict=True):
            is_smooth = size > order and weight > 0.0
            block = replace(smooth, smoothness=smoothness * weight) if is_smooth else plain
            own.append(replace(block, size=size))
        groups.append(own)
    return groups


def train(
    model: AnyModel,
    layout: SlotLayout,
    groups: list[list[Group]],
    chunks: Callable[[int], Iterable[Chunk]],
    n_rows: int,
    loss: Loss,
    training: Training,
    validation: Chunk | None = None,
    start: float = 0.0,
    callbacks: Sequence[Callback] = (),
    progress: Progress = SILENT,
    stop_after: int | None = None,
    run: Run = "first",
) -> Trained:
    """Train a model; `chunks(epoch)` gives the chunks of an epoch, counted from 0, with standardized targets.

    An epoch has `n_rows` rows, of which each chunk must fit in memory. The bias starts at `start`. `stop_after` epochs
    end the run without changing the course of the learning rate.

    Returns the parameters of the best epoch by validation loss (of the last one without a validation part), and the
    history. Ctrl-C ends training within tenths of a second or 8,192 rows and keeps the best parameters so far; so does,
    after an epoch, a callback that returns True.
    """
    rng = seeded(training.seed)
    paced = training.for_fields(len(layout.fields))
    engine = make_engine(model, layout, groups, loss, paced, n_rows, rng, start)
    penalties = AdaptivePenalties(engine)
    best, best_loss, history, since, begin = None, math.inf, [], 0, time.perf_counter()
    n_epochs, interrupted = stop_after or training.epochs, False
    try:
        for epoch in range(n_epochs):
            progress.begin_epoch(epoch + 1, n_epochs, n_rows)
            started = time.perf_counter()
            rates = paced.rates(epoch, n_rows)
            train_loss, floor, seen, rate = _pass(engine, _groups(chunks(epoch), engine, rng), loss, rates, progress)
            if not math.isfinite(train_loss):
                raise Diverged(_divergence_message(training, epoch))
            params = engine.params(averaged=training.average)
            penalties.adapt(params["factors"], loss.dispersion(train_loss - floor))
            now = time.perf_counter()
            value = _validation_loss(engine, params, validation, loss) if validation is not None else math.nan
            history.append(Epoch(epoch + 1, train_loss, value, rate, seen / (now - started), now - begin, run))
            progress.end_epoch(history[-1], loss)
            if validation is None or value < best_loss:
                best, best_loss, since = params, value, 0
            else:
                since += 1
            if call_all(callbacks, history[-1]):
                interrupted = True
                progress.say(f"{RUNS[run]} stopped by a callback; the best epoch is kept")
                break
            if training.patience is not None and since >= training.patience:
                progress.say(f"{RUNS[run]} stopped: no better validation loss since epoch {epoch + 1 - since}")
                break
    except KeyboardInterrupt:
        if best is None:
            raise
        interrupted = True
        progress.say("stopped by Ctrl-C; the best epoch is kept")
    if best is None:
        raise Diverged(_divergence_message(training, len(history) - 1))
    return Trained(best, history, interrupted)


def call_all(callbacks: Sequence[Callback], epoch: Epoch) -> bool:
    """Call every callback; whether one of them asks to stop, which only True does: many functions return something."""
    answers = [callback(epoch) for callback in callbacks]
    return any(isinstance(answer, bool | np.bool_) and bool(answer) for answer in answers)


class AdaptivePenalties:
    """Penalties that follow what was learned: more for groups of short vectors, and all in proportion to the noise.

    Parameters
    ----------
    engine : CpuEngine
        Whose penalties are set; as they are now, they are the units.
    """

    def __init__(self, engine: CpuEngine) -> None:
        self.engine, self.base = engine, engine.penalty

    def adapt(self, factors: npt.NDArray[np.float32], dispersion: float) -> None:
        """Set the engine's penalties for the next epoch."""
        base = self.base
        ranges = zip(base.begin, base.end, strict=True)
        length = np.array([self._length(factors[begin:end]) for begin, end in ranges])
        penalty = base._replace(
            l2=(dispersion * base.l2 / np.maximum(length, SHORTEST)).astype(np.float32),
            l2_linear=(dispersion * base.l2_linear).astype(np.float32),
            smoothness=(dispersion * base.smoothness).astype(np.float32),
        )
        self.engine.set_penalty(penalty)

    def _length(self, factors: npt.NDArray[np.float32]) -> float:
        """Root mean square length of vectors.

        The rows of an FFM hold one for each of its fields, and what it learns from is one field, where other models
        have one vector for all: as many times the length makes its penalty as many times smaller.
        """
        model, n_fields = self.engine.model, len(self.engine.layout.fields)
        parts = model.width(n_fields) // model.part_size(n_fields)
        flat = factors.reshape(-1)
        return math.sqrt(parts * float(np.dot(flat, flat)) / max(1, len(factors)))


def make_engine(
    model: AnyModel,
    layout: SlotLayout,
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


def _pass(
    engine: CpuEngine,
    groups: Iterable[tuple[Chunk, npt.NDArray[np.int64]]],
    loss: Loss,
    rates: Callable[[int], float],
    progress: Progress,
) -> tuple[float, float, int, float]:
    """Steps on groups of batches, until the loss is no number.

    Returns the mean loss and its floor, the number of rows, and the last learning rate.
    """
    total, floor, weights, seen, rate = 0.0, 0.0, 0.0, 0, math.nan
    for chunk, rows in groups:
        course = np.array([rates(seen + at) for at in range(0, len(rows), engine.batch_size)])
        weight, own, own_floor = train_on(engine, chunk, rows, course, engine.batch_size, loss)
        total, floor, weights = total + own, floor + own_floor, weights + weight
        seen, rate = seen + len(rows), float(course[-1])
        progress.advance(len(rows), total / max(weights, 1e-300))
        if not math.isfinite(total):
            break
    weights = max(weights, 1e-300)
    return total / weights, floor / weights, seen, rate


def train_on(
    engine: CpuEngine,
    chunk: Chunk,
    rows: npt.NDArray[np.int64],
    rates: FloatArray,
    batch_size: int,
    loss: Loss,
) -> tuple[float, float, float]:
    """Steps on some rows of a chunk; returns their weight, their loss before the steps, and the floor of that loss."""
    losses = engine.steps(chunk.slots, chunk.y, chunk.sample_weight, rows, rates, batch_size)
    y, weight = chunk.y[rows], chunk.sample_weight[rows]
    totals = np.add.reduceat(weight, np.arange(0, len(rows), batch_size))
    return float(weight.sum()), float(losses @ totals), loss.floor(y, weight)


def _groups(
    chunks: Iterable[Chunk], engine: CpuEngine, rng: np.random.Generator
) -> Iterator[tuple[Chunk, npt.NDArray[np.int64]]]:
    for chunk in chunks:
        order = rng.permutation(len(chunk.slots))
        for rows in in_groups(order, engine.batch_size, engine):
            yield chunk, rows


def in_groups(order: npt.NDArray[np.int64], batch_size: int, engine: CpuEngine) -> Iterator[npt.NDArray[np.int64]]:
    """Whole batches, as many as the engine takes at a time: between groups progress is told and Ctrl-C is noticed."""
    size = batch_size * max(1, engine.rows_at_once // batch_size)
    for at in range(0, len(order), size):
        yield order[at : at + size]


def _validation_loss(engine: CpuEngine, params: Params, validation: Chunk, loss: Loss) -> float:
    score = engine.scores_of(params, validation.slots).astype(np.float64)
    value = loss.value(validation.y, score)
    return float(np.average(value, weights=validation.sample_weight))


def divergence_advice(training: Training) -> str:
    """What to change where the loss is no number any more: what is far from its default, otherwise the usual."""
    defaults = {"learning_rate": Training.learning_rate, "l2": L2, "smoothness": SMOOTHNESS}
    now = {name: _largest(name, getattr(training, name), default) for name, default in defaults.items()}
    too_large = [name for name, (_, value) in now.items() if value > FAR[name] * defaults[name]]
    told = {name: f"{label} (now {value:g}; the default is {defaults[name]:g})" for name, (label, value) in now.items()}
    if too_large:
        return "lower " + " and ".join(told[name] for name in too_large)
    return f"lower {told['learning_rate']}, or raise {told['l2']} or {told['smoothness']}"


def _largest(name: str, penalty: Penalty, default: float) -> tuple[str, float]:
    """The largest value of a setting, and what it is called: with the field, where it is given by field."""
    by_name = _by_name(penalty)
    if not by_name:
        return setting(name), penalty if isinstance(penalty, float) else default
    field = max(by_name, key=by_name.__getitem__)
    return f"{setting(name)} of {field!r}", by_name[field]


def _divergence_message(training: Training, epoch: int) -> str:
    advice = divergence_advice(training)
    return f"training diverged in epoch {epoch + 1}: the loss is not a finite number; {advice}"


def _checked_penalty(name: str, value: Penalty) -> Penalty:
    """The penalty as it is kept: pairs instead of a mapping, which can be compared, hashed and written as JSON."""
    if value is None or isinstance(value, _NUMBERS):
        return None if value is None else _checked_number(name, value)
    try:
        given = dict(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number or a mapping from field names to numbers, got {value!r}") from None
    return tuple(sorted((str(key), _checked_number(f"{name} of {key!r}", number)) for key, number in given.items()))


def _checked_number(name: str, value: object) -> float:
    if not isinstance(value, _NUMBERS) or not 0.0 <= value < math.inf:
        raise ValueError(f"{setting(name)} must be at least 0, got {value}")
    return float(value)


def _by_name(penalty: Penalty) -> dict[str, float]:
    return {} if penalty is None or isinstance(penalty, float) else dict(penalty)


def _filled(penalty: Penalty, names: Sequence[str], value: float) -> Penalty:
    if penalty is None or isinstance(penalty, float):
        return value if penalty is None else penalty
    return dict.fromkeys(names, value) | dict(penalty)


def _per_field(penalty: Penalty, fields: Sequence[Field]) -> list[float]:
    """The penalty of each field; a mapping is made once, since there may be thousands."""
    if isinstance(penalty, float):
        return [penalty] * len(fields)
    by_name = _by_name(penalty)
    return [by_name[item.name] for item in fields]
