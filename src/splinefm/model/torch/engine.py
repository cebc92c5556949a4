"""The torch engine: step, scores, params, on any device."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from splinefm import _core
from splinefm._arrays import Array, Float32Array, FloatArray, Int64Array
from splinefm._parallel import count_threads
from splinefm._wording import setting
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.model.engine import Engine
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params
from splinefm.model.family.parameters import by_output, check_model_memory, count_outputs, init_params, param_shapes
from splinefm.model.optimizers import Group, Optimizer, OptimizerState, Penalty, make_penalty
from splinefm.model.scores import TABLES, predict_scores
from splinefm.model.torch.losses import row_losses
from splinefm.model.torch.model import Windows, bag_sums, unit_scores
from splinefm.model.torch.optimizers import OptimizerMoments, Penalties, update
from splinefm.model.workspace import (
    LARGE,
    Sizes,
    check_between_memory,
)

# Devices and threads of torch.


def find_device(name: str | None) -> torch.device:
    """Return a device that computes; by default CUDA if there is one, else the CPU.

    Examples
    --------
    >>> find_device("cpu")
    device(type='cpu')
    >>> find_device("meta")
    Traceback (most recent call last):
    ValueError: device 'meta' cannot be used here: ...; use one of cpu, ...
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.ones(2, device=device).sum().item()
    except (AssertionError, NotImplementedError, RuntimeError, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
        raise ValueError(
            f"{setting('device')} {name!r} cannot be used here: {reason}; use one of {', '.join(_devices())}, or "
            "install a build of PyTorch for that device"
        ) from error
    return device


def _devices() -> list[str]:
    """Return the names of the devices of this machine."""
    found = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    return [*found, "mps"] if torch.backends.mps.is_available() else found


@contextmanager
def with_threads(threads: int) -> Iterator[None]:
    """Let torch compute with this number of threads on the CPU: it is a setting of the process."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# What an engine is given, checked before the first step: a call with a wrong row changes nothing.


class ChosenLoss(NamedTuple):
    """A loss as an engine knows it."""

    name: str
    parameter: float


class DeviceBatch(NamedTuple):
    """Rows on a device; the sample weights are divided by their sum."""

    start: torch.Tensor
    weight: torch.Tensor
    y: torch.Tensor
    share: torch.Tensor
    offset: torch.Tensor | None

    def part(self, first: int, n: int) -> DeviceBatch:
        """Return n rows, from `first` on."""
        return DeviceBatch(*(tensor if tensor is None else tensor[first : first + n] for tensor in self))

    def with_offset(self, scores: torch.Tensor) -> torch.Tensor:
        """Return scores with the offset of the rows, if they have one."""
        return scores if self.offset is None else scores + self.offset


def make_batch(
    slots: Slots, y: FloatArray, sample_weight: FloatArray, rows: Int64Array, device: torch.device, exact: torch.dtype
) -> DeviceBatch:
    """Return some rows on a device."""
    share = sample_weight[rows] / sample_weight[rows].sum()
    return DeviceBatch(
        on_device(slots.start[rows], torch.int32, device),
        on_device(slots.weight[rows], torch.float32, device),
        on_device(y[rows], exact, device),
        on_device(share, exact, device),
        None if slots.offset is None else on_device(slots.offset[rows], exact, device),
    )


def on_device(array: Array, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return a copy of an array on a device."""
    return torch.tensor(array, dtype=dtype, device=device)


def check_loss(name: str, parameter: float, n_outputs: int) -> ChosenLoss:
    """Return a loss; raise if it does not exist, or the parameter or the number of scores per row is out of range."""
    _core.Loss(name, parameter)  # which checks the name and the range of the parameter
    if (name == "softmax") != (n_outputs > 1):
        raise ValueError(f"softmax needs a bias for each of two or more classes, other losses one; got {n_outputs}")
    return ChosenLoss(name, parameter)


def check_slots(layout: SlotLayout, slots: Slots, rows: Int64Array | slice) -> None:
    """Raise unless slots have the shape of a layout, and all windows of some rows begin inside of their fields."""
    n = len(slots.start)
    if slots.start.shape != (n, layout.n_windows) or slots.weight.shape != (n, layout.n_weights):
        raise ValueError("start and weight do not have the shape of the layout")
    field = layout.unit_field[layout.window_unit]
    start, highest = slots.start[rows], layout.feature_ptr[field + 1] - np.diff(layout.weight_ptr)
    if not ((start >= layout.feature_ptr[field]) & (start <= highest)).all():
        raise ValueError("start has features outside of the field of their window")


def check_rows(n: int, y: FloatArray, sample_weight: FloatArray, rows: Int64Array) -> None:
    """Raise unless every row has a target and a weight, and all rows that are asked for exist."""
    if y.shape != (n,) or sample_weight.shape != (n,):
        raise ValueError("y and sample_weight must have a number for every row")
    if len(rows) and not (rows.min() >= 0 and rows.max() < n):
        raise IndexError("a row index is out of range")


def check_labels(y: FloatArray, n_classes: int) -> None:
    """Raise if the target of a softmax is not the number of a class."""
    wrong = ~((y >= 0.0) & (y < n_classes) & (y == np.floor(y)))
    if wrong.any():
        raise ValueError(
            f"the targets of a softmax must be integers from 0 to {n_classes - 1}, got {float(y[wrong][0])}"
        )


def total_weights(sample_weight: FloatArray, batch_size: int) -> FloatArray:
    """Return the sum of the weights of every batch; raise if one cannot be a weight."""
    n = len(sample_weight)
    totals: FloatArray = np.add.reduceat(sample_weight, np.arange(0, n, batch_size)) if n else np.zeros(0)
    for total in totals:
        if not 0.0 <= total < math.inf:
            raise ValueError(f"sample weights must be finite and at least 0, but a batch sums to {total}")
    return totals


# The torch engine: step, scores, params, on any device. It takes the same steps as the CPU engine.

# Numbers in the unit vectors of a block of rows, which are scored at once, and of the rows of one call of `steps`.
BLOCK_NUMBERS, NUMBERS_AT_ONCE, MAX_AT_ONCE = 1 << 23, 1 << 23, 1 << 15
NONE = np.zeros(1, np.float32)
# Weights or matrices between all units, their gradient, and two copies on the way.
FOUR_COPIES = Sizes(tile=1, shard=1, block=4)


class TorchEngine(Engine):
    """Holds parameters and optimizer state on a device, and trains on batches of slots.

    The vectors and linear weights of all features are one table, so that a step is one weighted sum of its rows for
    the unit vectors, and another one for the gradient of the features that are active in the batch. Only those change.

    Parameters
    ----------
    model, layout, params, loss, optimizer, groups, batch_size, loss_parameter
        As for `CpuEngine`.
    threads : int, optional
        Number of threads on the CPU; all cores by default.
    device : str, optional
        A device of torch, such as "cpu" or "cuda:1". By default CUDA if there is one, else the CPU.

    Examples
    --------
    >>> from splinefm.encode.slots import FieldLayout
    >>> from splinefm.model.family import FM
    >>> layout = SlotLayout((FieldLayout("c", 3, (1,), (0,)), FieldLayout("d", 2, (1,), (0,))))
    >>> params = init_params(FM(k=2), layout, np.random.default_rng(0))
    >>> engine = TorchEngine(FM(k=2), layout, params, device="cpu")
    >>> slots = Slots(np.array([[0, 3], [2, 4]], np.int32), np.ones((2, 2), np.float32), layout)
    >>> engine.step(slots, np.array([0.0, 1.0]), np.ones(2)) > engine.step(slots, np.array([0.0, 1.0]), np.ones(2))
    True
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
        *,
        device: str | None = None,
    ) -> None:
        self.n_outputs = count_outputs(params)
        check_model_memory(model, layout, self.n_outputs)
        check_between_memory(model, layout, FOUR_COPIES, self.n_outputs)
        _check_params(model, layout, params, self.n_outputs)
        self.model, self.batch_size = model, batch_size
        self.loss = check_loss(loss, loss_parameter, self.n_outputs)
        self.optimizer = optimizer or Optimizer()
        self.threads, self.device = count_threads(threads), find_device(device)
        self._exact = torch.float32 if self.device.type == "mps" else torch.float64  # which mps does not have
        self._n_steps = 0
        self._set(layout, groups or [[Group(field.n_features)] for field in layout.fields], params)

    def _set(self, layout: SlotLayout, groups: list[list[Group]], params: Params) -> None:
        """Set parameters and the initial state of the optimizer."""
        self.layout = layout
        self._windows = Windows(layout).to(self.device)
        each = by_output(params)
        self._table = self._joined(params)
        self._moments = OptimizerMoments.of(self._table, self.optimizer, averaged=True)
        self._last = torch.zeros(len(self._table), dtype=torch.int64, device=self.device)
        dense = {name: values for name, values in each.items() if name not in TABLES}
        self._dense = {name: on_device(values, torch.float32, self.device) for name, values in dense.items()}
        self._dense_moments = {
            name: OptimizerMoments.of(values, self.optimizer) for name, values in self._dense.items()
        }
        self.set_penalty(make_penalty(layout, groups))

    def _joined(self, params: Params) -> Tensor:
        """Return vectors and linear weights side by side, shape (features, outputs, width + 1)."""
        each = by_output(params)
        table = np.concatenate([each["factors"], each["linear"][..., None]], axis=2)  # [output, feature, coordinate]
        return on_device(table.transpose(1, 0, 2), torch.float32, self.device)

    def set_features(self, params: Params) -> None:
        """Continue with the linear weights and vectors of these parameters; the optimizer state stays."""
        self._table.copy_(self._joined(params))

    def set_penalty(self, penalty: Penalty) -> None:
        self.penalty = penalty
        self._penalties = Penalties(penalty, self.width + 1, self.model.third, self.device)

    @property
    def n_steps(self) -> int:
        return self._n_steps

    @property
    def rows_at_once(self) -> int:
        return max(1, min(NUMBERS_AT_ONCE // self._numbers, MAX_AT_ONCE))

    @property
    def _numbers(self) -> int:
        """Numbers in the unit vectors of a row."""
        return self.n_outputs * self.layout.n_units * (self.width + 1)

    @property
    def values(self) -> Params:
        return self._arrays(self._table, self._dense)

    @property
    def state(self) -> dict[str, OptimizerState]:
        """Copies of the optimizer state, flat, as in the CPU engine."""
        last = np.tile(self._last.cpu().numpy(), self.n_outputs)
        parts = {name: self._moments_as_arrays(name) for name in ("m", "v", "average")}
        each = {name: [parts[part].get(name, NONE).reshape(-1) for part in parts] for name in (*TABLES, *self._dense)}
        return {name: OptimizerState(m, v, average, last) for name, (m, v, average) in each.items()}

    def restore(self, state: Mapping[str, OptimizerState], n_steps: int) -> None:
        """Continue from the `state` of an engine of the same model and layout after `n_steps` steps."""
        n, outputs = self._table.shape[:2]
        for part in ("m", "v", "average"):
            table = getattr(self._moments, part)
            if table is not None:
                flat = [getattr(state[name], part).reshape(outputs, n, -1) for name in TABLES]
                table.copy_(on_device(np.concatenate(flat, axis=2).transpose(1, 0, 2), torch.float32, self.device))
            for name, moments in self._dense_moments.items():
                own = getattr(moments, part)
                if own is not None:
                    values = getattr(state[name], part).reshape(own.shape)
                    own.copy_(on_device(values, torch.float32, self.device))
        if self.optimizer.ema > 0.0:
            self._last = on_device(state["factors"].last[:n], torch.int64, self.device)
        self._n_steps = n_steps

    def _moments_as_arrays(self, part: str) -> Params:
        """Return a part of the optimizer state by the names of parameters, without those that do not have it."""
        table = getattr(self._moments, part)
        dense = {name: getattr(moments, part) for name, moments in self._dense_moments.items()}
        known = {name: tensor for name, tensor in dense.items() if tensor is not None}
        return {} if table is None else self._arrays(table, known)

    def _arrays(self, table: Tensor, dense: dict[str, Tensor]) -> Params:
        """Return a table and parameters between fields as arrays, by the names of parameters."""
        by_output = table.permute(1, 0, 2).cpu()
        tensors = {"linear": by_output[..., -1], "factors": by_output[..., :-1], **dense}
        arrays = {name: np.array(tensor.cpu().numpy(), order="C") for name, tensor in tensors.items()}
        ordered = {name: arrays[name] for name in ("bias", *TABLES[::-1], *dense) if name in arrays}
        return ordered if self.n_outputs > 1 else {name: values[0] for name, values in ordered.items()}

    def steps(
        self,
        slots: Slots,
        y: FloatArray,
        sample_weight: FloatArray,
        rows: Int64Array,
        learning_rates: FloatArray,
        batch_size: int | None = None,
    ) -> FloatArray:
        size = self.batch_size if batch_size is None else batch_size
        if not 1 <= size <= self.batch_size:
            raise ValueError(
                f"a batch has from 1 to {self.batch_size} rows (batch_size of the engine), got {batch_size}"
            )
        check_rows(len(slots), y, sample_weight, rows)
        check_slots(self.layout, slots, rows)
        totals = total_weights(sample_weight[rows], size)
        if self.n_outputs > 1:
            check_labels(y[rows], self.n_outputs)
        if len(learning_rates) < len(totals):
            raise ValueError("every batch needs a learning rate")
        losses = torch.zeros(len(totals), dtype=self._exact, device=self.device)
        # On small batches, threads take longer than they save.
        with self._threads(self.threads if size * self._numbers >= LARGE else 1):
            for i in np.flatnonzero(totals):
                batch = make_batch(slots, y, sample_weight, rows[i * size : (i + 1) * size], self.device, self._exact)
                losses[i] = self._step(batch, float(learning_rates[i]))
        return np.asarray(losses.cpu().numpy(), np.float64)

    def _step(self, batch: DeviceBatch, rate: float) -> Tensor:
        """Take a step on a batch; return its loss."""
        self._n_steps += 1
        dense = {name: values.detach().requires_grad_() for name, values in self._dense.items()}
        parts = [self._gradient(block, dense) for block in self._blocks(batch)]
        features = torch.cat([part[0] for part in parts])
        smoothed = list(self._penalties.blocks(features))
        active = self._distinct(torch.cat([features, *(blocks.features for blocks in smoothed)]))
        values = self._table[active]
        gradient = self._penalties.l2(active)[:, None] * values
        for own, added, _ in parts:
            gradient[torch.searchsorted(active, own)] += added
        for blocks in smoothed:
            at = torch.searchsorted(active, blocks.features)
            gradient[at] += blocks.gradient(values[at])
        missed = self._n_steps - 1 - self._last[active]
        step = (self.optimizer, self._n_steps, rate)
        update(self._table, self._moments, gradient, *step, active, missed)
        self._last[active] = self._n_steps
        for name, tensor in dense.items():
            found = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad
            update(self._dense[name], self._dense_moments[name], found, *step)
        return torch.stack([loss for _, _, loss in parts]).sum()

    def _gradient(self, block: DeviceBatch, dense: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the active features of some rows, the gradient of their loss by those, and the loss.

        The gradient by the parameters between fields is added to their own.
        """
        active, shape = self._windows.active(block.start, block.weight), (len(block.start), self._windows.n_units)
        table = self._table.flatten(1)
        sums = bag_sums(table, active.features, active.begin, active.weights).requires_grad_()
        scores = self._scores_of_units(sums.reshape(*shape, *self._table.shape[1:]), dense)
        scores = block.with_offset(scores.to(self._exact))
        loss = (block.share * row_losses(self.loss, scores, block.y)).sum()
        loss.backward()
        # Weights in the order of their features: each sum is then the gradient of a feature.
        by_feature, order = torch.sort(active.features, stable=True)
        features, counts = torch.unique_consecutive(by_feature, return_counts=True)
        begin = (counts.cumsum(0) - counts).int()
        gradient = bag_sums(sums.grad, active.units[order], begin, active.weights[order])
        return features.long(), gradient.reshape(-1, *self._table.shape[1:]), loss.detach()

    def _scores_of_units(self, sums: Tensor, dense: dict[str, Tensor]) -> Tensor:
        """Return scores, for sums of shape (n, units, outputs, width + 1)."""
        linear = sums[..., -1].sum(1) + dense["bias"][:, 0]
        scores = [
            unit_scores(
                self.model,
                sums[:, :, i, :-1],
                linear[:, i],
                {name: values[i] for name, values in dense.items()},
                self.layout,
            )
            for i in range(self.n_outputs)
        ]
        return scores[0] if self.n_outputs == 1 else torch.stack(scores, 1)

    def _distinct(self, features: Tensor) -> Tensor:
        """Return features in ascending order, each once."""
        if 4 * len(features) < len(self._table):
            return torch.unique(features)
        is_active = torch.zeros(len(self._table), dtype=torch.bool, device=self.device)
        is_active[features] = True
        return is_active.nonzero()[:, 0]

    def _blocks(self, batch: DeviceBatch) -> Iterator[DeviceBatch]:
        """Yield parts of a batch, so that the memory for unit vectors is bounded."""
        n = max(1, BLOCK_NUMBERS // self._numbers)
        for first in range(0, len(batch.start), n):
            yield batch.part(first, n)

    def _threads(self, threads: int) -> AbstractContextManager[None]:
        return with_threads(threads) if self.device.type == "cpu" else nullcontext()

    def scores(self, slots: Slots, threads: int | None = None) -> Float32Array:
        check_slots(self.layout, slots, slice(None))
        n, parts = max(1, BLOCK_NUMBERS // self._numbers), []
        with torch.no_grad(), self._threads(threads or self.threads):
            for first in range(0, max(1, len(slots)), n):
                rows = slots[first : first + n]
                start = on_device(rows.start, torch.int32, self.device)
                weight = on_device(rows.weight, torch.float32, self.device)
                sums = self._windows.sums(self._table.flatten(1), start, weight)
                parts.append(self._scores_of_units(sums.unflatten(2, self._table.shape[1:]), self._dense).cpu())
        return slots.add_offset(np.ascontiguousarray(torch.cat(parts).numpy()))

    def shift_bias(self, shift: FloatArray) -> None:
        bias = self._dense["bias"]
        bias += on_device(shift.reshape(tuple(bias.shape)), torch.float32, self.device)

    def scores_of(self, params: Params, slots: Slots) -> Float32Array:
        """Scores of all rows with other parameters of the same model, by the compiled loops, as a `Fitted` has them."""
        return predict_scores(self.model, params, slots, self.threads)

    def params(self, averaged: bool = False) -> Params:
        table, average = self._table, self._moments.average
        if averaged and average is not None and self._n_steps:
            # A feature does not change while it is inactive, and its average approaches it.
            missed = (self._n_steps - self._last).to(self._exact)
            keep = torch.pow(self.optimizer.ema, missed).float()[:, None, None]
            table = table + keep * (average - table)
        return self._arrays(table, self._dense)

    def grow(self, layout: SlotLayout, groups: list[list[Group]], rng: np.random.Generator) -> None:
        pairs = zip(layout.feature_ptr[:-1], self.layout.fields, strict=True)
        kept = np.concatenate([first + np.arange(field.n_features) for first, field in pairs])
        at = on_device(kept, torch.int64, self.device)
        table, moments, last = self._table, self._moments, self._last
        dense, dense_moments = self._dense, self._dense_moments
        self._set(layout, groups, init_params(self.model, layout, rng, n_outputs=self.n_outputs))
        self._table[at] = table
        for name in ("v", "m", "average"):
            new, old = getattr(self._moments, name), getattr(moments, name)
            if old is not None:
                new[at] = old
        self._last.fill_(self._n_steps)
        self._last[at] = last
        self._dense, self._dense_moments = dense, dense_moments


def _check_params(model: AnyModel, layout: SlotLayout, params: Params, n_outputs: int) -> None:
    for name, shape in param_shapes(model, layout, n_outputs).items():
        if name not in params or params[name].shape != shape:
            found = params[name].shape if name in params else "none"
            raise ValueError(f"{name} of {model} must have the shape {shape} for this layout, got {found}")
