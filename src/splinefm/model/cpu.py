"""The CPU engine: step, scores, params."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.encode.encoder import count_threads
from splinefm.encode.slots import Layout, Slots
from splinefm.model.family import AnyModel, FmFM, FwFM, LowRankFwFM, Params, init_params
from splinefm.model.optimizers import Group, Optimizer, Step
from splinefm.model.workspace import (
    Data,
    Float32,
    Shape,
    State,
    Weights,
    aligned,
    aligned_copy,
    make_penalty,
    make_shape,
    make_spec,
    make_state,
    make_touch,
    make_weights,
    make_work,
    room_per_row,
)

# Below so many numbers in the unit vectors of a block, threads cost more than they bring.
LARGE = 1 << 20
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

    @property
    def width(self) -> int:
        """Numbers in the vector of a table row."""
        return self.values["factors"].shape[1]

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
        from splinefm.model.kernels import make_room, scatter_fields, update_fields

        rows = np.arange(len(slots)) if rows is None else rows
        if len(rows) > self.batch_size:
            raise ValueError(f"a batch has at most {self.batch_size} rows (batch_size), got {len(rows)}")
        data = Data(slots.start, slots.weight, y, sample_weight)
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
        table, states = (self.weights.T, self.weights.L), (self.state["factors"], self.state["linear"])
        loss, d_bias = 0.0, 0.0
        d_fields = [np.zeros(array.shape[1:], np.float32) for array in (self.work.dR, self.work.dM)]
        for at in range(0, len(rows), len(self.work.slopes)):
            block = rows[at : at + len(self.work.slopes)]
            self._gradients(data, block, total, d_fields)
            with np.errstate(all="ignore"):  # a diverging run is told by its loss
                loss += float(self.work.losses[: len(block)].sum())
                d_bias += float(self.work.slopes[: len(block)].sum(dtype=np.float64))
            last = at + len(block) >= len(rows)

            def scatter(part: tuple[int, int], block: Any = block, last: bool = last) -> None:
                room = make_room(len(block))
                scatter_fields(self.spec, self.shape, self.weights, len(block), *part, self.work, self.touch, room)
                if last:
                    update_fields(self.spec.kt, *table, *part, self.touch, self.penalty, *states, step)

            self._run(scatter, self.field_parts if self._is_large(len(block)) else [(0, len(self.layout.fields))])
        self._update_dense(d_bias, d_fields, step)
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
        self._refresh_fields()

    def scores_of(self, params: Params, slots: Slots) -> npt.NDArray[np.float32]:
        """Scores of all rows with other parameters of the same model."""
        return predict_scores(self.model, params, slots, self.threads)

    def params(self, averaged: bool = False) -> Params:
        """Copies of the parameters; averaged: the moving average of table rows instead of their last values."""
        values = {name: array.copy() for name, array in self.values.items()}
        if averaged and self.optimizer.ema > 0.0 and self.number:
            from splinefm.model.kernels import finish_average

            step, last = self.optimizer.step(self.number, 0.0), self.state["factors"].last
            for name in TABLES:
                flat = self.values[name].reshape(-1)
                finish_average(flat, self.state[name].average, last, step, values[name].reshape(-1))
        return values

    def _is_large(self, n_rows: int) -> bool:
        return self.pool is not None and n_rows * self.layout.n_units * self.width >= LARGE

    def _run(self, function: Callable[[Any], None], parts: Iterable[Any]) -> None:
        parts = list(parts)
        if self.pool is None or len(parts) == 1:
            for part in parts:
                function(part)
        else:
            for _ in self.pool.map(function, parts):
                pass

    def _gradients(self, data: Data, block: npt.NDArray[np.int64], total: float, d_fields: list[Float32]) -> None:
        from splinefm.model.kernels import gradient_shards, make_scratch

        n_shards = -(-len(block) // self.work.shard)
        for array in (self.work.dR, self.work.dM):
            array[:n_shards] = 0.0
        n_parts = min(4 * self.threads, n_shards) if self._is_large(len(block)) else 1
        cuts = np.linspace(0, n_shards, n_parts + 1).astype(int)

        def work(part: tuple[int, int]) -> None:
            gradient_shards(
                self.spec,
                self.shape,
                self.weights,
                data,
                block,
                total,
                *part,
                self.work,
                make_scratch(self.spec, self.layout.n_units),
            )

        self._run(work, zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
        for shard in range(n_shards):
            for whole, parts in zip(d_fields, (self.work.dR, self.work.dM), strict=True):
                whole += parts[shard]

    def _refresh_fields(self) -> None:
        self.weights = make_weights(self.model, self.shape, self.values)

    def _update_dense(self, d_bias: float, d_fields: list[Float32], step: Step) -> None:
        from splinefm.model.kernels import update_dense

        dR, dM = d_fields
        if isinstance(self.model, FwFM | LowRankFwFM):
            dR = self._by_field(dR)
        gradients = field_gradients(self.model, self.values, dR, dM)
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
            return field.T @ pairs @ field


def predict_scores(
    model: AnyModel, params: Params, slots: Slots, threads: int | None = None
) -> npt.NDArray[np.float32]:
    """Scores of all rows."""
    shape = make_shape(slots.layout)
    return score_slots(model, shape, make_weights(model, shape, params), slots, count_threads(threads))


def field_gradients(model: AnyModel, fields: Params, dR: Float32, dM: Float32) -> dict[str, Float32]:
    """Gradients of the parameters between fields, from those of R_fe (f ≤ e) and M_fe."""
    if isinstance(model, FwFM):
        return {"field_weights": dR}
    if isinstance(model, FmFM):
        return {"field_matrices": dM}
    if isinstance(model, LowRankFwFM):
        U, d = fields["field_factors"], fields["field_scales"]
        dR = np.triu(dR, 1)
        both = dR + dR.T
        return {"field_factors": d[:, None] * (U @ both), "field_scales": np.einsum("rf,fe,re->r", U, dR, U)}
    return {}


def score_slots(model: AnyModel, shape: Shape, weights: Weights, slots: Slots, threads: int) -> npt.NDArray[np.float32]:
    """Scores of all rows; a single row takes no thread."""
    from splinefm.model.kernels import TILE, make_scratch, score_rows

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
