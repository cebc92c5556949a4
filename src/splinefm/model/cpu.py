"""The CPU engine: step, scores, params. Its loops are compiled: see cpp/."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from splinefm import _core
from splinefm._arrays import Float32Array, FloatArray, Int64Array
from splinefm._parallel import count_threads
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.model.engine import Engine
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params
from splinefm.model.family.parameters import by_output, check_model_memory, count_outputs, init_params
from splinefm.model.optimizers import (
    Group,
    Optimizer,
    OptimizerState,
    OptimizerStates,
    Penalty,
    aligned_copy,
    make_penalty,
    make_state,
)
from splinefm.model.scores import TABLES, predict_scores
from splinefm.model.workspace import (
    Padding,
    check_between_memory,
    make_copies,
    make_shape,
    make_sizes,
    model_settings,
    tile_of,
)

BETWEEN = ("field_weights", "field_matrices", "field_factors")
# Work per call of the loops, in coordinates of unit vectors and in rows: see `rows_at_once`.
NUMBERS_AT_ONCE, MIN_AT_ONCE, MAX_AT_ONCE = 1 << 25, 1 << 13, 1 << 16


class CpuEngine(Engine):
    """Holds parameters and optimizer state, and trains on batches of slots.

    Parameters
    ----------
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM
        The model.
    layout : SlotLayout
        Layout of the slots to train on.
    params : dict of arrays
        Initial parameters; the engine copies them.
    loss : {"logistic", "squared", "poisson", "gamma", "tweedie", "quantile", "huber", "softmax"}
        Loss to minimize. The parameters of a softmax have a first axis for the classes, and its targets are numbers
        of classes.
    optimizer : Optimizer
        Optimizer and its settings.
    groups : list of lists of Group, optional
        Penalties: for each field, groups that cover its features in order. No penalty by default.
    batch_size : int
        Largest number of rows per step.
    threads : int, optional
        Number of threads; all cores by default. The result does not depend on it.
    loss_parameter : float
        The power of the Tweedie loss, the level of the quantile loss, or the threshold of the Huber loss.
    """

    def __init__(
        self,
        model: AnyModel,
        layout: SlotLayout,
        params: Params,
        loss: str = "logistic",
        optimizer: Optimizer | None = None,
        groups: list[list[Group]] | None = None,
        batch_size: int = 256,
        threads: int | None = None,
        loss_parameter: float = 0.0,
    ) -> None:
        self.n_outputs = count_outputs(params)
        check_model_memory(model, layout, self.n_outputs)
        self._loss = _core.Loss(loss, loss_parameter)
        self.model, self.batch_size = model, batch_size
        self.optimizer = optimizer or Optimizer()
        self.threads = count_threads(threads)
        self.padding = Padding.of(model, len(layout.fields), model.members)
        self._settings = model_settings(model, self.padding)
        padded = self._pad(params)
        groups = groups or [[Group(field.n_features)] for field in layout.fields]
        self._set(layout, padded, self._make_states(padded), groups, 0)

    def _set(
        self, layout: SlotLayout, padded: Params, states: OptimizerStates, groups: list[list[Group]], n_steps: int
    ) -> None:
        """Set parameters and optimizer state, and allocate the workspace of batches.

        The first axis of padded parameters counts the outputs, even if there is one.
        """
        self.layout, self._padded, self._states, self._groups = layout, padded, states, groups
        self.sizes = make_sizes(self.model, layout, self.batch_size, self.n_outputs)
        check_between_memory(self.model, layout, self.sizes, self.n_outputs)
        self._shape = make_shape(layout)
        self._copies = make_copies(self.model, layout, padded)
        between = next((name for name in BETWEEN if name in padded), None)
        R, M = self._copies
        optimizer = self.optimizer
        self.core = _core.Engine(
            shape=self._shape,
            model=self._settings,
            loss=self._loss,
            optimizer=_core.OptimizerSettings(
                name=optimizer.name,
                beta1=optimizer.beta1 if optimizer.name == "adamw" else 0.0,
                beta2=optimizer.beta2 if optimizer.name == "adamw" else 0.0,
                eps=optimizer.eps,
                weight_decay=optimizer.weight_decay,
                ema=optimizer.ema,
            ),
            sizes=_core.BatchSizes(**self.sizes._asdict(), batch_size=self.batch_size),
            arrays=_core.EngineArrays(
                bias=self._parameter("bias"),
                linear=self._parameter("linear"),
                factors=self._parameter("factors"),
                between=None if between is None else self._parameter(between),
                scales=self._parameter("field_scales") if "field_scales" in padded else None,
                R=R,
                M=M,
                last=states["factors"].last,
            ),
            threads=self.threads,
            n_steps=n_steps,
        )
        self.set_penalty(make_penalty(layout, groups))

    def _pad(self, params: Params) -> Params:
        return {name: aligned_copy(self._padded_values(name, values)) for name, values in by_output(params).items()}

    def _padded_values(self, name: str, values: Float32Array) -> Float32Array:
        if name == "field_matrices":
            return self.padding.pad_matrices(values)
        return self.padding.pad(values) if name == "factors" else values

    def _cut_values(self, name: str, values: Float32Array) -> Float32Array:
        """Undo `_padded_values`."""
        if name == "field_matrices":
            return values[..., : self.padding.k, : self.padding.k]
        return self.padding.cut(values) if name == "factors" else values

    def _cut(self, name: str, values: Float32Array) -> Float32Array:
        """Undo `_pad`."""
        cut = self._cut_values(name, values)
        return cut if self.n_outputs > 1 else cut[0]

    def _parameter(self, name: str) -> _core.Parameter:
        state = self._states[name]
        return _core.Parameter(self._padded[name].reshape(-1), state.m, state.v, state.average)

    def set_penalty(self, penalty: Penalty) -> None:
        self.penalty = penalty
        self.core.set_penalty(**penalty._asdict())

    @property
    def n_steps(self) -> int:
        return self.core.n_steps

    @property
    def values(self) -> Params:
        """The current parameters; copies if the loops work on padded vectors."""
        return {name: self._cut(name, array) for name, array in self._padded.items()}

    @property
    def state(self) -> OptimizerStates:
        """The current optimizer state, flat; copies if the loops work on padded vectors."""
        return {name: self._cut_state(name) for name in self._states}

    def _cut_state(self, name: str) -> OptimizerState:
        state, shape = self._states[name], self._padded[name].shape
        if not self.padding.is_padded:
            return state
        m, v, average = (
            values if values.size == 1 else self._cut(name, values.reshape(shape)).reshape(-1) for values in state[:3]
        )
        return OptimizerState(m, v, average, state.last)

    def restore(self, state: Mapping[str, OptimizerState], n_steps: int) -> None:
        states = self._make_states(self._padded)
        for name, own in states.items():
            padded = self._padded[name]
            shape = self._cut_values(name, padded).shape
            for new, old in zip(own[:3], state[name][:3], strict=True):
                if new.size == padded.size:
                    new[:] = self._padded_values(name, old.reshape(shape)).reshape(-1)
        if self.optimizer.ema > 0.0:
            states["factors"].last[:] = state["factors"].last
        penalty = self.penalty
        self._set(self.layout, self._padded, states, self._groups, n_steps)
        self.set_penalty(penalty)

    @property
    def rows_at_once(self) -> int:
        """Rows per call of `steps`: enough to make the overhead of calls negligible, done within tenths of a second.

        The number does not depend on the machine, because it affects how sums round.
        """
        numbers = self.n_outputs * self.layout.n_units * self.width
        return min(max(NUMBERS_AT_ONCE // numbers, MIN_AT_ONCE // self.n_outputs), MAX_AT_ONCE)

    def _make_states(self, padded: Params) -> OptimizerStates:
        n_features = padded["linear"].size
        states = {name: make_state(array, self.optimizer, n_features) for name, array in padded.items()}
        states["linear"] = states["linear"]._replace(last=states["factors"].last)
        return states

    def steps(
        self,
        slots: Slots,
        y: FloatArray,
        sample_weight: FloatArray,
        rows: Int64Array,
        learning_rates: FloatArray,
        batch_size: int | None = None,
    ) -> FloatArray:
        return self.core.steps(
            np.ascontiguousarray(slots.start, np.int32),
            np.ascontiguousarray(slots.weight, np.float32),
            np.ascontiguousarray(y, np.float64),
            np.ascontiguousarray(sample_weight, np.float64),
            np.ascontiguousarray(rows, np.int64),
            np.ascontiguousarray(learning_rates, np.float64),
            self.batch_size if batch_size is None else batch_size,
            None if slots.offset is None else np.ascontiguousarray(slots.offset, np.float32),
        )

    def shift_bias(self, shift: FloatArray) -> None:
        bias = self._padded["bias"]  # which the loops read
        bias += shift.reshape(bias.shape).astype(np.float32)

    def set_features(self, params: Params) -> None:
        """Continue with the linear weights and vectors of these parameters; the optimizer state stays."""
        padded = self._pad(params)
        for name in TABLES:
            self._padded[name][...] = padded[name]  # which the loops read

    def scores(self, slots: Slots, threads: int | None = None) -> Float32Array:
        return self._score(self._padded, self._copies, slots, threads or self.threads)

    def grow(self, layout: SlotLayout, groups: list[list[Group]], rng: np.random.Generator) -> None:
        pairs = zip(layout.feature_ptr[:-1], self.layout.fields, strict=True)
        kept = np.concatenate([first + np.arange(field.n_features) for first, field in pairs])
        padded = self._pad(init_params(self.model, layout, rng, n_outputs=self.n_outputs))
        for name, values in self._padded.items():
            padded[name][:, kept if name in TABLES else slice(None)] = values
        states = self._make_states(padded)
        for name, state in states.items():
            features = kept if name in TABLES else slice(None)
            for new, old in zip(state[:3], self._states[name][:3], strict=True):
                if old.size == self._padded[name].size:
                    new.reshape(padded[name].shape)[:, features] = old.reshape(self._padded[name].shape)
        last = states["factors"].last
        if len(last) == padded["linear"].size:
            last[:] = self.n_steps
            last.reshape(self.n_outputs, -1)[:, kept] = self._states["factors"].last.reshape(self.n_outputs, -1)
        self._set(layout, padded, states, groups, self.n_steps)

    def scores_of(self, params: Params, slots: Slots) -> Float32Array:
        """Scores of all rows with other parameters of the same model.

        The loops of training score many rows in half the time, but need a copy of all parameters.
        """
        if len(slots) * self.layout.n_weights < self.layout.n_features:
            return predict_scores(self.model, params, slots, self.threads)
        padded = self._pad(params)
        return self._score(padded, make_copies(self.model, self.layout, padded), slots, self.threads)

    def _score(
        self, padded: Params, copies: tuple[Float32Array, Float32Array], slots: Slots, threads: int
    ) -> Float32Array:
        R, M = copies
        scores = _core.score(
            shape=self._shape,
            model=self._settings,
            tile=tile_of(self.model, self.n_outputs),
            weights=_core.WeightArrays(
                **{name: padded[name].reshape(-1) for name in ("bias", "linear", "factors")}, R=R, M=M
            ),
            start=np.ascontiguousarray(slots.start, np.int32),
            weight=np.ascontiguousarray(slots.weight, np.float32),
            threads=threads,
        )
        if self.n_outputs == 1:
            return slots.add_offset(scores)
        return np.ascontiguousarray(scores.reshape(self.n_outputs, -1).T)

    def params(self, averaged: bool = False) -> Params:
        values = {name: np.array(array) for name, array in self.values.items()}
        if averaged and self.optimizer.ema > 0.0 and self.n_steps:
            # A feature does not change while it is inactive, and its average approaches it.
            inactive = self.n_steps - self._states["factors"].last
            keep = (self.optimizer.ema**inactive).astype(np.float32)
            for name in TABLES:
                average, array = self._cut_state(name).average.reshape(values[name].shape), values[name]
                array += keep.reshape(values["linear"].shape + (1,) * (name == "factors")) * (average - array)
        return values
