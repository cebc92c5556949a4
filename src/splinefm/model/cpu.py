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
    Weights,
    make_penalty,
    make_shape,
    make_spec,
    make_state,
    make_touch,
    make_weights,
    make_work,
)

# Below so many numbers in the unit vectors of a block, threads cost more than they bring.
LARGE = 1 << 20


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
        self.fields = {
            name: np.array(values, np.float32) for name, values in params.items() if name.startswith("field_")
        }
        self.table = np.concatenate([params["factors"], params["linear"][:, None]], axis=1).astype(np.float32)
        self.bias = params["bias"].astype(np.float32)
        self.weights = make_weights(model, self.table, self.bias, self.fields)
        self.penalty = make_penalty(layout, groups or [[Group(field.n_rows)] for field in layout.fields])
        self.state = make_state(self.table, self.optimizer)
        dense = {"bias": self.bias, **self.fields}
        self.dense_state = {name: make_state(values.reshape(-1, 1), self.optimizer) for name, values in dense.items()}
        self.touch = make_touch(layout, self.table.shape[1], batch_size, self.penalty)
        self.work = make_work(model, len(self.spec.kt), layout, self.table.shape[1] - 1, batch_size)
        self.batch_size, self.number = batch_size, 0
        self.pool = ThreadPoolExecutor(self.threads) if self.threads > 1 else None
        self.field_parts = _balanced(layout, self.threads)

    def step(
        self,
        slots: Slots,
        y: npt.NDArray[np.float64],
        sample_weight: npt.NDArray[np.float64],
        rows: npt.NDArray[np.int64] | None = None,
        learning_rate: float | None = None,
    ) -> float:
        """One optimizer step on a batch (`rows` of the slots); returns its mean loss before the step."""
        from splinefm.model.kernels import scatter_fields, update_fields

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
                kt, stride = self.spec.kt, self.table.shape[1]
                scatter_fields(kt, self.shape, data, block, *part, self.work, self.touch)
                if last:
                    update_fields(kt, self.weights.T, stride, *part, self.touch, self.penalty, self.state, step)

            self._run(scatter, self.field_parts if self._is_large(len(block)) else [(0, len(self.layout.fields))])
        self._update_dense(d_bias, d_fields, step)
        return loss / total

    def scores(self, slots: Slots, threads: int | None = None) -> npt.NDArray[np.float32]:
        """Scores of all rows, with the weights as they are now."""
        self._refresh_fields()
        return score_slots(self.spec, self.shape, self.weights, slots, threads or self.threads)

    def grow(self, layout: Layout, groups: list[list[Group]], rng: np.random.Generator) -> None:
        """Go on with a layout whose fields have more rows at their ends; the old rows keep values and state."""
        pairs = zip(layout.row_ptr[:-1], self.layout.fields, strict=True)
        kept = np.concatenate([first + np.arange(field.n_rows) for first, field in pairs])
        params = init_params(self.model, layout, rng)
        table = np.concatenate([params["factors"], params["linear"][:, None]], axis=1)
        table[kept] = self.table
        state = make_state(table, self.optimizer)
        for name in ("m", "v", "average"):
            old, new = getattr(self.state, name), getattr(state, name)
            if old.size == self.table.size:
                new.reshape(table.shape)[kept] = old.reshape(self.table.shape)
        if len(state.last) == len(table):
            state.last[:] = self.number
            state.last[kept] = self.state.last
        self.layout, self.table, self.state = layout, table, state
        self.shape, self.penalty = make_shape(layout), make_penalty(layout, groups)
        self.touch = make_touch(layout, table.shape[1], self.batch_size, self.penalty)
        self._refresh_fields()

    def scores_of(self, params: Params, slots: Slots) -> npt.NDArray[np.float32]:
        """Scores of all rows with other parameters of the same model."""
        return predict_scores(self.model, params, slots, self.threads)

    def params(self, averaged: bool = False) -> Params:
        """Copies of the parameters; averaged: the moving average of table rows instead of their last values."""
        table = self.table
        if averaged and self.optimizer.ema > 0.0 and self.number:
            from splinefm.model.kernels import finish_average

            table = np.empty_like(self.table)
            step = self.optimizer.step(self.number, 0.0)
            finish_average(self.table.reshape(-1), table.shape[1], self.state, step, table.reshape(-1))
        fields = {name: values.copy() for name, values in self.fields.items()}
        return {"bias": self.bias.copy(), "linear": table[:, -1].copy(), "factors": table[:, :-1].copy(), **fields}

    def _is_large(self, n_rows: int) -> bool:
        return self.pool is not None and n_rows * self.layout.n_units * self.table.shape[1] >= LARGE

    def _run(self, function: Callable[[Any], None], parts: Iterable[Any]) -> None:
        parts = list(parts)
        if self.pool is None or len(parts) == 1:
            for part in parts:
                function(part)
        else:
            for _ in self.pool.map(function, parts):
                pass

    def _gradients(self, data: Data, block: npt.NDArray[np.int64], total: float, d_fields: list[Float32]) -> None:
        from splinefm.model.kernels import gradient_shards

        n_shards = -(-len(block) // self.work.shard)
        for array in (self.work.dR, self.work.dM):
            array[:n_shards] = 0.0
        n_parts = min(4 * self.threads, n_shards) if self._is_large(len(block)) else 1
        cuts = np.linspace(0, n_shards, n_parts + 1).astype(int)

        def work(part: tuple[int, int]) -> None:
            gradient_shards(self.spec, self.shape, self.weights, data, block, total, *part, self.work)

        self._run(work, zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True))
        for shard in range(n_shards):
            for whole, parts in zip(d_fields, (self.work.dR, self.work.dM), strict=True):
                whole += parts[shard]

    def _refresh_fields(self) -> None:
        self.weights = make_weights(self.model, self.table, self.bias, self.fields)

    def _update_dense(self, d_bias: float, d_fields: list[Float32], step: Step) -> None:
        from splinefm.model.kernels import update_dense

        dR, dM = d_fields
        if isinstance(self.model, FwFM | LowRankFwFM):
            dR = dR.reshape(len(self.layout.fields), len(self.layout.fields), -1).sum(axis=2)
        fields = field_gradients(self.model, self.fields, dR, dM)
        step = step._replace(decay=np.float32(0.0), ema=0.0)
        for name, gradient in {"bias": np.array([d_bias], np.float32), **fields}.items():
            values = self.bias if name == "bias" else self.fields[name]
            update_dense(values.reshape(-1), gradient.reshape(-1), self.dense_state[name], step)


def predict_scores(
    model: AnyModel, params: Params, slots: Slots, threads: int | None = None
) -> npt.NDArray[np.float32]:
    """Scores of all rows."""
    table = np.concatenate([params["factors"], params["linear"][:, None]], axis=1)
    weights = make_weights(model, table, params["bias"], params)
    spec = make_spec(model, len(slots.layout.fields))
    return score_slots(spec, make_shape(slots.layout), weights, slots, count_threads(threads))


def field_gradients(model: AnyModel, fields: dict[str, Float32], dR: Float32, dM: Float32) -> dict[str, Float32]:
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


def score_slots(spec: Any, shape: Shape, weights: Weights, slots: Slots, threads: int) -> npt.NDArray[np.float32]:
    """Scores of all rows; a single row takes no thread."""
    from splinefm.model.kernels import score_rows

    out = np.empty(len(slots), np.float32)
    width = weights.T.size // slots.layout.n_rows - 1

    def work(part: slice) -> None:
        score_rows(spec, shape, weights, width, slots.start[part], slots.weight[part], out[part])

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
