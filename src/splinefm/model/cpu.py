"""The CPU engine: step, scores, params."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from splinefm.encode.encoder import count_threads
from splinefm.encode.slots import Layout, Slots
from splinefm.model.bundles import COUNTERS, Batches, Course, Data, Memory, Penalty, Scoring, Shape, State, Weights
from splinefm.model.family import FFM, AnyModel, Params, check_model_room, init_params
from splinefm.model.memory import Float64, Int64, addresses
from splinefm.model.optimizers import Group, Optimizer
from splinefm.model.workspace import (
    BETWEEN,
    aligned,
    aligned_copy,
    make_columns,
    make_data,
    make_dense,
    make_penalty,
    make_scratch,
    make_shape,
    make_spec,
    make_state,
    make_touch,
    make_weights,
    make_work,
    room_for,
)

TABLES = ("factors", "linear")
# How much a call of the kernels gets to do, in numbers of unit vectors and in rows: see `rows_at_once`.
NUMBERS_AT_ONCE, LEAST_AT_ONCE, MOST_AT_ONCE = 1 << 25, 1 << 13, 1 << 16


class CpuEngine:
    """Holds parameters and optimizer state, and trains on batches of slots.

    Parameters
    ----------
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM
        The model.
    layout : Layout
        Of the slots that it will see.
    params : dict of arrays
        Start values; they are copied.
    loss : {"logistic", "squared", "poisson"}
        What is minimized.
    optimizer : Optimizer
        How.
    groups : list of lists of Group, optional
        For each field its groups of rows, end to end; no penalty by default.
    batch_size : int
        Most rows per step.
    threads : int, optional
        All cores by default. The result does not depend on it.
    """

    def __init__(
        self,
        model: AnyModel,
        layout: Layout,
        params: Params,
        loss: str = "logistic",
        optimizer: Optimizer | None = None,
        groups: list[list[Group]] | None = None,
        batch_size: int = 256,
        threads: int | None = None,
    ) -> None:
        check_model_room(model, layout)
        self.model, self.batch_size, self.number = model, batch_size, 0
        self.optimizer = optimizer or Optimizer()
        self.threads = count_threads(threads)
        self.pool = ThreadPoolExecutor(self.threads - 1) if self.threads > 1 else None
        self.spec = make_spec(model, len(layout.fields), loss)
        values = {name: aligned_copy(values) for name, values in params.items()}
        self.state = self._make_states(values)
        self._set(layout, values, groups or [[Group(field.n_rows)] for field in layout.fields])

    def _set(self, layout: Layout, values: Params, groups: list[list[Group]]) -> None:
        """Take parameters, and make room for batches."""
        self.layout, self.values, self.shape = layout, values, make_shape(layout)
        self.weights = make_weights(self.model, self.shape, values)
        self.penalty = make_penalty(layout, groups)
        self.work = make_work(self.model, self.spec, layout, self.batch_size)
        self.touch = make_touch(self.model, layout, self.width, self.batch_size, self.penalty, self.work)
        self.columns = make_columns(layout, self.work.block)
        self.scratch = [make_scratch(self.model, self.spec, layout) for _ in range(self.threads)]
        pairs = len(layout.fields) ** 2  # a LowRankFwFM needs the gradient of every weight as well
        self.dense = [make_dense(names, values, self.state, pairs) for names in (BETWEEN, ("field_scales",))]
        self.scratch_places = [addresses(scratch) for scratch in self.scratch]
        self._locate()

    def _locate(self) -> None:
        """Write down where the kernels find everything."""
        vectors, linear, bias = (self.state[name] for name in ("factors", "linear", "bias"))
        room = (self.columns, self.work, self.touch, self.penalty)
        between, scales = self.dense
        self.places = addresses(Memory(self.shape, self.weights, *room, vectors, linear, bias, between, scales))

    def set_penalty(self, penalty: Penalty) -> None:
        """Other penalties on the same groups of rows."""
        self.penalty = penalty
        self._locate()

    @property
    def width(self) -> int:
        """Numbers in the vector of a table row."""
        return int(self.values["factors"].shape[1])

    @property
    def rows_at_once(self) -> int:
        """Rows that a call of `steps` should get: enough that calling does not matter, done within tenths of a second.

        It does not depend on the machine, since sums over what is done at once do not have the same bits as others.
        """
        return min(max(NUMBERS_AT_ONCE // (self.layout.n_units * self.width), LEAST_AT_ONCE), MOST_AT_ONCE)

    def _make_states(self, values: Params) -> dict[str, State]:
        n_rows = len(values["linear"])
        states = {name: make_state(array, self.optimizer, n_rows) for name, array in values.items()}
        states["linear"] = states["linear"]._replace(last=states["factors"].last)
        return states

    def step(
        self,
        slots: Slots,
        y: npt.NDArray[np.float64],
        sample_weight: npt.NDArray[np.float64],
        rows: npt.NDArray[np.int64] | None = None,
        learning_rate: float | None = None,
    ) -> float:
        """One optimizer step on a batch (`rows` of the slots); returns its mean loss before the step."""
        rows = np.arange(len(slots)) if rows is None else rows
        if len(rows) > self.batch_size:
            raise ValueError(f"a batch has at most {self.batch_size} rows (batch_size), got {len(rows)}")
        rate = self.optimizer.learning_rate if learning_rate is None else learning_rate
        losses = self.steps(slots, y, sample_weight, rows, np.array([rate]))
        return float(losses[0]) if len(losses) else 0.0

    def steps(
        self,
        slots: Slots,
        y: Float64,
        sample_weight: Float64,
        rows: Int64,
        learning_rates: Float64,
        batch_size: int | None = None,
    ) -> Float64:
        """A step on every batch of `batch_size` rows, one after another; there is a learning rate for each.

        Returns the mean loss of every batch before its step. A batch without weight has loss 0 and makes no step.
        """
        size = self.batch_size if batch_size is None else batch_size
        if not 1 <= size <= self.batch_size:
            raise ValueError(f"a batch has from 1 to {self.batch_size} rows (batch_size of the engine), got {size}")
        starts = np.arange(0, len(rows), size)
        if not len(starts):
            return np.zeros(0)
        total = np.add.reduceat(sample_weight[rows], starts)
        if not (total >= 0.0).all() or not (total < np.inf).all():
            raise ValueError(f"sample weights must be finite and at least 0; those of a batch sum to {total.min()}")
        losses = np.zeros(len(starts))
        alone = not total.all()  # a batch without weight is left out
        for part in [slice(b, b + 1) for b in range(len(starts))] if alone else [slice(None)]:
            if total[part].all():
                chosen = rows[part.start * size : part.stop * size] if alone else rows
                data = make_data(slots, y, sample_weight, chosen)
                losses[part] = self._train(data, size, total[part], learning_rates[part])
        return losses

    def _train(self, data: Data, batch_size: int, total: Float64, learning_rates: Float64) -> Float64:
        """The kernels, on as many threads as there is work for; returns the losses."""
        from splinefm.model.kernels import train_ffm, train_rows

        train = train_ffm if isinstance(self.model, FFM) else train_rows
        batches = Batches(data, self._course(len(data.rows), batch_size, total, learning_rates))
        self.number += len(total)
        batch_places, constants = addresses(batches), self.optimizer.step(self.number, 0.0)

        def work(thread: int, alive: Batches = batches) -> None:  # a thread may come late, and look at the counters
            train(self.spec, self.places, batch_places, self.scratch_places[thread], constants)

        others = []
        if self.pool is not None and min(len(data.rows), batch_size) > self.work.shard:
            others = [self.pool.submit(work, thread) for thread in range(1, self.threads)]
        work(0)  # it does what the others do not come to do, and returns when all is done
        for other in others:
            other.cancel()  # one that has not begun would find nothing to do
        return batches.course.loss

    def _course(self, n: int, batch_size: int, total: Float64, learning_rates: Float64) -> Course:
        """The next steps."""
        number = self.number + 1 + np.arange(len(total))
        rates, correct1, correct2 = self.optimizer.course(number, learning_rates)
        counters = np.zeros(COUNTERS * len(total) * (-(-batch_size // self.work.block) + 1), np.int64)
        return Course(n, batch_size, total, np.zeros(len(total)), number, rates, correct1, correct2, counters)

    def scores(self, slots: Slots, threads: int | None = None) -> npt.NDArray[np.float32]:
        """Scores of all rows, with the weights as they are now."""
        return score_slots(self.model, self.shape, self.weights, slots, threads or self.threads)

    def grow(self, layout: Layout, groups: list[list[Group]], rng: np.random.Generator) -> None:
        """Go on with a layout whose fields have more rows at their ends; the old rows keep values and state."""
        pairs = zip(layout.row_ptr[:-1], self.layout.fields, strict=True)
        kept = np.concatenate([first + np.arange(field.n_rows) for first, field in pairs])
        values = {**self.values, **init_params(self.model, layout, rng)}
        for name in self.values:
            if name not in TABLES:
                values[name] = self.values[name]
        for name in TABLES:
            values[name][kept] = self.values[name]
        values = {name: aligned_copy(array) for name, array in values.items()}
        states = self._make_states(values)
        for name, state in states.items():
            rows = kept if name in TABLES else slice(None)
            for mine, old in zip(state[:3], self.state[name][:3], strict=True):
                if old.size == self.values[name].size:
                    mine.reshape(values[name].shape)[rows] = old.reshape(self.values[name].shape)
        last = states["factors"].last
        if len(last) == len(values["linear"]):
            last[:] = self.number
            last[kept] = self.state["factors"].last
        self.state = states
        self._set(layout, values, groups)

    def scores_of(self, params: Params, slots: Slots) -> npt.NDArray[np.float32]:
        """Scores of all rows with other parameters of the same model."""
        return predict_scores(self.model, params, slots, self.threads)

    def params(self, averaged: bool = False) -> Params:
        """Copies of the parameters; averaged: the moving average of table rows instead of their last values."""
        values = {name: array.copy() for name, array in self.values.items()}
        if averaged and self.optimizer.ema > 0.0 and self.number:
            # While a row is not touched it does not change, and its average approaches it.
            untouched = self.number - self.state["factors"].last
            keep = (self.optimizer.ema**untouched).astype(np.float32)
            for name in TABLES:
                average, array = self.state[name].average.reshape(values[name].shape), values[name]
                array += (keep if array.ndim == 1 else keep[:, None]) * (average - array)
        return values


def predict_scores(
    model: AnyModel, params: Params, slots: Slots, threads: int | None = None
) -> npt.NDArray[np.float32]:
    """Scores of all rows."""
    shape = make_shape(slots.layout)
    return score_slots(model, shape, make_weights(model, shape, params), slots, count_threads(threads))


def score_slots(model: AnyModel, shape: Shape, weights: Weights, slots: Slots, threads: int) -> npt.NDArray[np.float32]:
    """Scores of all rows; a single row takes no thread."""
    from splinefm.model.kernels import score_rows

    out, none = np.empty(len(slots), np.float32), np.zeros(1)
    data = make_data(slots, none, none, np.arange(len(slots)))
    spec = make_spec(model, len(slots.layout.fields))
    spec = spec._replace(tile=min(spec.tile, max(1, -(-len(slots) // 4)) * 4))  # little room for a single row
    room = room_for(model, slots.layout, len(spec.kt), spec.tile)

    def work(part: slice) -> None:
        own = make_columns(slots.layout, spec.tile), make_scratch(model, spec, slots.layout)
        scoring = Scoring(shape, weights, data, *own, out, aligned(room))
        score_rows(spec, addresses(scoring), part.start, part.stop - part.start)

    n_parts = max(1, min(threads, len(slots) // 512))
    cuts = np.linspace(0, len(slots), n_parts + 1).astype(int)
    parts = [slice(a, b) for a, b in pairwise(cuts.tolist())]
    if n_parts == 1:
        work(parts[0])
    else:
        with ThreadPoolExecutor(n_parts) as pool:
            list(pool.map(work, parts))
    return out
