"""What training asks of an engine, and the choice of one: the compiled loops, or torch on any device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Literal, get_args

import numpy as np

from splinefm._arrays import Float32Array, FloatArray, Int64Array
from splinefm._wording import setting
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params
from splinefm.model.optimizers import Group, Optimizer, OptimizerState, Penalty

EngineName = Literal["cpu", "torch"]
ENGINES: tuple[EngineName, ...] = get_args(EngineName)


class Engine(ABC):
    """Holds parameters and optimizer state, and trains on batches of slots."""

    model: AnyModel
    layout: SlotLayout
    optimizer: Optimizer
    batch_size: int
    penalty: Penalty

    @property
    @abstractmethod
    def n_steps(self) -> int:
        """Steps so far."""

    @property
    @abstractmethod
    def rows_at_once(self) -> int:
        """Rows per call of `steps`: done within tenths of a second, so that progress is shown and Ctrl-C noticed."""

    @property
    @abstractmethod
    def values(self) -> Params:
        """The current parameters."""

    @property
    @abstractmethod
    def state(self) -> dict[str, OptimizerState]:
        """The optimizer state by the names of parameters, flat."""

    @abstractmethod
    def restore(self, state: Mapping[str, OptimizerState], n_steps: int) -> None:
        """Continue from the `state` of an engine of the same model and layout after `n_steps` steps."""

    @abstractmethod
    def set_penalty(self, penalty: Penalty) -> None:
        """Change the penalties; the groups of features stay."""

    @abstractmethod
    def steps(
        self,
        slots: Slots,
        y: FloatArray,
        sample_weight: FloatArray,
        rows: Int64Array,
        learning_rates: FloatArray,
        batch_size: int | None = None,
    ) -> FloatArray:
        """Take a step on every batch of `batch_size` rows, in order, with one learning rate per batch.

        Returns the mean loss of every batch before its step. A batch without weight has loss 0 and takes no step. The
        offset of the slots is a part of the scores.
        """

    @abstractmethod
    def scores(self, slots: Slots, threads: int | None = None) -> Float32Array:
        """Scores of all rows with the current parameters."""

    @abstractmethod
    def scores_of(self, params: Params, slots: Slots) -> Float32Array:
        """Scores of all rows with other parameters of the same model."""

    @abstractmethod
    def params(self, averaged: bool = False) -> Params:
        """Copies of the parameters; with `averaged`, the moving average of features instead of their last values."""

    @abstractmethod
    def shift_bias(self, shift: FloatArray) -> None:
        """Add to the bias, or to the bias of each output; the optimizer state stays."""

    @abstractmethod
    def set_features(self, params: Params) -> None:
        """Continue with the linear weights and vectors of these parameters; the optimizer state stays."""

    @abstractmethod
    def grow(self, layout: SlotLayout, groups: list[list[Group]], rng: np.random.Generator) -> None:
        """Continue with a layout that adds features at the ends of fields; existing features keep values and state."""

    @property
    def width(self) -> int:
        """Length of a feature's vector."""
        return self.model.width(len(self.layout.fields))

    def step(
        self,
        slots: Slots,
        y: FloatArray,
        sample_weight: FloatArray,
        rows: Int64Array | None = None,
        learning_rate: float | None = None,
    ) -> float:
        """Take one optimizer step on a batch (`rows` of the slots); return its mean loss before the step."""
        rows = np.arange(len(slots)) if rows is None else rows
        if len(rows) > self.batch_size:
            raise ValueError(f"a batch has at most {self.batch_size} rows (batch_size), got {len(rows)}")
        rate = self.optimizer.learning_rate if learning_rate is None else learning_rate
        losses = self.steps(slots, y, sample_weight, rows, np.array([rate]))
        return float(losses[0]) if len(losses) else 0.0


def check_engine(engine: object, device: object) -> None:
    """Raise if an engine does not exist, or if a device is given for one that has none."""
    if engine not in ENGINES:
        raise ValueError(f"{setting('engine')} must be one of {', '.join(ENGINES)}, got {engine!r}")
    if device is not None and not isinstance(device, str):
        raise ValueError(f'{setting("device")} must be a string such as "cuda" or "cuda:1", got {device!r}')
    if device is not None and engine != "torch":
        raise ValueError(
            f"{setting('device')} is for the torch engine, got {device!r} with the {engine} engine; "
            f"set {setting('engine')} to torch, or leave the device out"
        )


def find_engine(engine: EngineName, device: str | None) -> None:
    """Raise if an engine cannot run on this machine: before the data are read, not after it."""
    check_engine(engine, device)
    if engine == "torch":
        from splinefm.model.torch.engine import find_device

        find_device(device)


def start_engine(
    engine: EngineName,
    device: str | None,
    model: AnyModel,
    layout: SlotLayout,
    params: Params,
    loss: str,
    optimizer: Optimizer,
    groups: list[list[Group]],
    batch_size: int,
    threads: int | None,
    loss_parameter: float,
) -> Engine:
    """Return an engine that starts from some parameters; see `CpuEngine` for the arguments."""
    check_engine(engine, device)
    arguments = (model, layout, params, loss, optimizer, groups, batch_size, threads, loss_parameter)
    if engine == "torch":
        from splinefm.model.torch.engine import TorchEngine  # torch is optional, and takes seconds to load

        return TorchEngine(*arguments, device=device)
    from splinefm.model.cpu import CpuEngine  # which has the class above as its base

    return CpuEngine(*arguments)
