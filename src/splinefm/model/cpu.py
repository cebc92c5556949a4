"""The CPU engine: step, scores, params."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from splinefm.encode.encoder import count_threads
from splinefm.encode.slots import Layout, Slots
from splinefm.model.family import FFM, AnyModel, FmFM, FwFM, LowRankFwFM, Params, init_params
from splinefm.model.optimizers import Group, Optimizer, Step
from splinefm.model.workspace import (
    Data,
    Float32,
    Shape,
    State,
    Weights,
    aligned,
    aligned_copy,
    make_columns,
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
        self.touch = make_touch(layout, self.width, self.batch_size, self.penalty, isinstance(self.model, FFM))
        self.work = make_work(self.model, self.spec, layout, self.batch_size)
        self.columns = make_columns(layout, self.work.block)
        self.scratch = [make_scratch(self.spec, layout) for _ in range(self.threads)]

    @property
    def width(self) -> int:
        """Numbers in the vector of a table row."""
        return int(self.values["factors"].shape[1])

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
        total = float(sample_weight[rows].sum())
        if not 0.0 <= total < np.inf:
            raise ValueError(f"sample weights must be finite and at least 0; those of a batch sum to {total}")
        if total == 0.0:
            return 0.0
        self.number += 1
        step = self.optimizer.step(
            self.number, self.optimizer.learning_rate if learning_rate is None else learning_rate
        )
        self._refresh_fields()
        start, weight = np.ascontiguousarray(slots.start), np.ascontiguousarray(slots.weight)
        self._train(Data(start, weight, y, sample_weight), rows, total, step)
        with np.errstate(all="ignore"):  # a diverging run is told by its loss
            loss = float(self.work.losses[: len(rows)].sum())
            d_bias = float(self.work.slopes[: len(rows)].sum(dtype=np.float64))
        self._update_dense(d_bias, step)
        return loss / total

    def _train(self, data: Data, rows: npt.NDArray[np.int64], total: float, step: Step) -> None:
        """The kernels, on as many threads as there is work for."""
        from splinefm.model.kernels import train_rows

        counters = np.zeros(4 * -(-len(rows) // self.work.block) + 2, np.int64)

        def work(thread: int) -> None:
            train_rows(
                self.spec,
                self.shape,
                self.weights,
                data,
                rows,
                total,
                self.columns,
                self.work,
                self.scratch[thread],
                self.touch,
                self.penalty,
                self.state["factors"],
                self.state["linear"],
                step,
                counters,
            )

        others = []
        if self.pool is not None and len(rows) > self.work.shard:
            others = [self.pool.submit(work, thread) for thread in range(1, self.threads)]
        work(0)  # it does what the others do not come to do, and returns when all is done
        for other in others:
            other.cancel()  # one that has not begun would find nothing to do

    def scores(self, slots: Slots, threads: int | None = None) -> npt.NDArray[np.float32]:
        """Scores of all rows, with the weights as they are now."""
        self._refresh_fields()
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

    def _refresh_fields(self) -> None:
        if any(name.startswith("field_") for name in self.values):
            self.weights = make_weights(self.model, self.shape, self.values)

    def _update_dense(self, d_bias: float, step: Step) -> None:
        from splinefm.model.kernels import update_dense

        gradients = field_gradients(self.model, self.values, self._between_fields())
        gradients["bias"] = np.array([d_bias], np.float32)
        step = step._replace(decay=np.float32(0.0), ema=0.0)
        for name, gradient in gradients.items():
            update_dense(self.values[name].reshape(-1), gradient.reshape(-1), self.state[name], step)

    def _between_fields(self) -> Float32:
        """Gradients of R_fe or M_fe, f ≤ e, from those of pairs of units that the shards have left."""
        if not isinstance(self.model, FwFM | LowRankFwFM | FmFM):
            return np.zeros(1, np.float32)
        with np.errstate(all="ignore"):
            if isinstance(self.model, FmFM):
                return self._matrices(self.work.dM[0])
            n_units, dR = self.layout.n_units, self.work.dR[0]  # not summed over the k numbers yet
            padded = -(-n_units // 4) * 4
            pairs = np.triu(dR.reshape(padded, padded, -1).sum(axis=2)[:n_units, :n_units], 1)
            field = (self.shape.unit_field[:, None] == np.arange(len(self.layout.fields))).astype(np.float32)
            return np.asarray(field.T @ pairs @ field)

    def _matrices(self, dM: Float32) -> Float32:
        """The gradient of a field's matrices, summed over its pairs of units."""
        n_units, n_fields, k = self.layout.n_units, len(self.layout.fields), self.width
        n, length = n_units * k, int(np.sqrt(dM.size))
        pairs = dM.reshape(length, length)[:n, :n].reshape(n_units, k, n_units, k).transpose(0, 2, 1, 3)
        gradient = np.zeros((n_fields, n_fields, k, k), np.float32)
        for u, f in enumerate(self.shape.unit_field[:-1]):
            if n_units == n_fields:
                gradient[f, f + 1 :] = pairs[u, u + 1 :]
            else:
                np.add.at(gradient[f], self.shape.unit_field[u + 1 :], pairs[u, u + 1 :])
        return gradient


def predict_scores(
    model: AnyModel, params: Params, slots: Slots, threads: int | None = None
) -> npt.NDArray[np.float32]:
    """Scores of all rows."""
    shape = make_shape(slots.layout)
    return score_slots(model, shape, make_weights(model, shape, params), slots, count_threads(threads))


def field_gradients(model: AnyModel, params: Params, gradient: Float32) -> dict[str, Float32]:
    """Gradients of the parameters between fields, from those of R_fe (f ≤ e) or M_fe."""
    if isinstance(model, FwFM):
        return {"field_weights": gradient}
    if isinstance(model, FmFM):
        return {"field_matrices": gradient}
    if isinstance(model, LowRankFwFM):
        U, d = params["field_factors"], params["field_scales"]
        dR = np.triu(gradient, 1)
        return {"field_factors": d[:, None] * (U @ (dR + dR.T)), "field_scales": np.einsum("rf,fe,re->r", U, dR, U)}
    return {}


def score_slots(model: AnyModel, shape: Shape, weights: Weights, slots: Slots, threads: int) -> npt.NDArray[np.float32]:
    """Scores of all rows; a single row takes no thread."""
    from splinefm.model.kernels import score_rows

    out = np.empty(len(slots), np.float32)
    none = np.zeros(1)
    data = Data(np.ascontiguousarray(slots.start), np.ascontiguousarray(slots.weight), none, none)
    rows, spec = np.arange(len(slots)), make_spec(model, len(slots.layout.fields))
    spec = spec._replace(tile=min(spec.tile, max(1, -(-len(slots) // 4)) * 4))  # little room for a single row
    room = room_for(model, slots.layout, len(spec.kt), spec.tile)

    def work(part: slice) -> None:
        scratch, columns = make_scratch(spec, slots.layout), make_columns(slots.layout, spec.tile)
        score_rows(spec, shape, weights, data, rows[part], columns, scratch, aligned(room), out[part])

    n_parts = max(1, min(threads, len(slots) // 512))
    cuts = np.linspace(0, len(slots), n_parts + 1).astype(int)
    parts = [slice(a, b) for a, b in pairwise(cuts.tolist())]
    if n_parts == 1:
        work(parts[0])
    else:
        with ThreadPoolExecutor(n_parts) as pool:
            list(pool.map(work, parts))
    return out
