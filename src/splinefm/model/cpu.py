"""The CPU engine: step, scores, params."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from splinefm.encode.encoder import count_threads
from splinefm.encode.slots import Layout, Slots
from splinefm.model.family import AnyModel, FmFM, FwFM, LowRankFwFM, Params, init_params
from splinefm.model.optimizers import Group, Optimizer, Step
from splinefm.model.workspace import (
    TILE,
    Data,
    Float32,
    Shape,
    State,
    Weights,
    aligned,
    aligned_copy,
    make_penalty,
    make_room,
    make_scratch,
    make_shape,
    make_spec,
    make_state,
    make_touch,
    make_weights,
    make_work,
    room_per_row,
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
        self.model, self.layout = model, layout
        self.optimizer = optimizer or Optimizer()
        self.threads = count_threads(threads)
        self.spec = make_spec(model, len(layout.fields), loss)
        self.shape = make_shape(layout)
        self.values = {name: aligned_copy(values) for name, values in params.items()}
        self.weights = make_weights(model, self.shape, self.values)
        self.penalty = make_penalty(layout, groups or [[Group(field.n_rows)] for field in layout.fields])
        self.state = self._make_states(self.values)
        self.touch = make_touch(layout, self.width, batch_size, self.penalty)
        self.work = make_work(model, len(self.spec.kt), layout, batch_size)
        self.batch_size, self.number = batch_size, 0
        self.pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        self.field_parts = _balanced(layout, self.threads)
        n_parts = 4 * self.threads if self.pool else 1
        self.scratch = [make_scratch(self.spec, layout.n_units) for _ in range(n_parts)]
        self.rooms = [make_room(len(self.work.slopes)) for _ in self.field_parts]

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
        data, room = Data(slots.start, slots.weight, y, sample_weight), len(self.work.slopes)
        loss = d_bias = 0.0
        gradients: list[Float32] = []
        for at in range(0, len(rows), room):
            block = rows[at : at + room]
            gradients.append(self._gradients(data, block, total))
            with np.errstate(all="ignore"):  # a diverging run is told by its loss
                loss += float(self.work.losses[: len(block)].sum())
                d_bias += float(self.work.slopes[: len(block)].sum(dtype=np.float64))
            self._scatter(len(block), step if at + room >= len(rows) else None)
        self._update_dense(d_bias, functools.reduce(np.add, gradients), step)
        return loss / total

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
        self.layout, self.values, self.state = layout, values, states
        self.shape, self.penalty = make_shape(layout), make_penalty(layout, groups)
        self.touch = make_touch(layout, self.width, self.batch_size, self.penalty)
        self.weights = make_weights(self.model, self.shape, values)

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

    def _gradients(self, data: Data, block: npt.NDArray[np.int64], total: float) -> Float32:
        """The first step of the kernels; returns the gradient of the parameters between fields, if there are any."""
        from splinefm.model.kernels import gradient_shards

        n_shards = -(-len(block) // self.work.shard)
        between = self.work.dM if isinstance(self.model, FmFM) else self.work.dR
        between[:n_shards] = 0.0

        def work(part: int) -> None:
            cut = part * n_shards // n_parts, (part + 1) * n_shards // n_parts
            gradient_shards(
                self.spec, self.shape, self.weights, data, block, total, *cut, self.work, self.scratch[part]
            )

        n_parts = min(len(self.scratch), n_shards)
        self._run(work, n_parts)
        return np.asarray(between[:n_shards].sum(axis=0))

    def _scatter(self, n_rows: int, step: Step | None) -> None:
        """The second step of the kernels, and after the last block of a batch the third."""
        from splinefm.model.kernels import scatter_fields, update_fields

        parts = self.field_parts if self.work.shard < n_rows else [(0, len(self.layout.fields))]

        def work(part: int) -> None:
            fields, room = parts[part], self.rooms[part]
            scatter_fields(self.spec, self.shape, self.weights, n_rows, *fields, self.work, self.touch, room)
            if step is not None:
                table, state = (self.weights.T, self.weights.L), (self.state["factors"], self.state["linear"])
                update_fields(self.spec.kt, *table, *fields, self.touch, self.penalty, *state, step)

        self._run(work, len(parts))

    def _run(self, function: Callable[[int], None], n_parts: int) -> None:
        if self.pool is None or n_parts == 1:
            for part in range(n_parts):
                function(part)
            return
        parts = iter(range(n_parts))

        def drain() -> None:
            for part in parts:
                function(part)

        # This thread works too: one that is woken up for little work costs more than it brings.
        others = [self.pool.submit(drain) for _ in range(min(self.threads, n_parts) - 1)]
        drain()
        for other in others:
            other.result()

    def _refresh_fields(self) -> None:
        if any(name.startswith("field_") for name in self.values):
            self.weights = make_weights(self.model, self.shape, self.values)

    def _update_dense(self, d_bias: float, between: Float32, step: Step) -> None:
        from splinefm.model.kernels import update_dense

        if isinstance(self.model, FwFM | LowRankFwFM):
            between = self._by_field(between)
        gradients = field_gradients(self.model, self.values, between)
        gradients["bias"] = np.array([d_bias], np.float32)
        step = step._replace(decay=np.float32(0.0), ema=0.0)
        for name, gradient in gradients.items():
            update_dense(self.values[name].reshape(-1), gradient.reshape(-1), self.state[name], step)

    def _by_field(self, dR: Float32) -> Float32:
        """Gradients of R_fe, f ≤ e, from those of pairs of units, which are not summed over the k numbers yet."""
        n_units = self.layout.n_units
        padded = -(-n_units // 4) * 4
        pairs = np.triu(dR.reshape(padded, padded, -1).sum(axis=2)[:n_units, :n_units], 1)
        field = (self.shape.unit_field[:, None] == np.arange(len(self.layout.fields))).astype(np.float32)
        with np.errstate(all="ignore"):
            return np.asarray(field.T @ pairs @ field)


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
    data = Data(slots.start, slots.weight, none, none)
    rows, spec = np.arange(len(slots)), make_spec(model, len(slots.layout.fields))
    room = room_per_row(model, slots.layout, len(spec.kt))

    def work(part: slice) -> None:
        scratch, D = make_scratch(spec, slots.layout.n_units), aligned(TILE * room)
        score_rows(spec, shape, weights, data, rows[part], scratch, D, out[part])

    n_parts = max(1, min(threads, len(slots) // 512))
    cuts = np.linspace(0, len(slots), n_parts + 1).astype(int)
    parts = [slice(a, b) for a, b in pairwise(cuts.tolist())]
    if n_parts == 1:
        work(parts[0])
    else:
        with ThreadPoolExecutor(n_parts) as pool:
            list(pool.map(work, parts))
    return out


def _balanced(layout: Layout, threads: int) -> list[tuple[int, int]]:
    """Consecutive fields in a few parts per thread, with about the same work each.

    A window costs a cache miss, the further weights of a window little.
    """
    load = np.cumsum([len(field.widths) + sum(field.widths) / 4 for field in layout.fields])
    n_parts = min(len(load), 4 * threads)
    cuts = np.searchsorted(load, load[-1] * np.arange(1, n_parts) / n_parts) + 1
    edges = [0, *cuts.tolist(), len(load)]
    return [(a, b) for a, b in pairwise(edges) if a < b]
