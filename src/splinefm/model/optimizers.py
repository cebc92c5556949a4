"""Penalties and optimizers: settings, and the arrays that engines make of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from splinefm._arrays import Float32Array, Int64Array
from splinefm.encode.slots import SlotLayout

LINE = 64  # bytes of a cache line
MAX_ORDER = MAX_AXES = 3


@dataclass(frozen=True)
class Group:
    """Neighboring features that share penalties.

    The objective has ½ l2 |v|² + ½ l2_linear w² for every active feature of a batch, and smoothness Σ |Δ^order v|² over
    neighbors, for vectors and linear weights alike. Coordinates for products of three have `l2_third` instead of l2, if
    it is given. With a `shape`, the features are blocks of that shape, and each block is smoothed along all of its
    axes; if there are several blocks, those with active features in the batch.
    """

    size: int
    l2: float = 0.0
    l2_linear: float = 0.0
    smoothness: float = 0.0
    order: int = 2
    periodic: bool | tuple[bool, ...] = False
    l2_third: float | None = None
    shape: tuple[int, ...] = ()


@dataclass(frozen=True)
class Optimizer:
    """Lazy AdamW or Adagrad: a step updates only the active features of its batch.

    Parameters
    ----------
    name : {"adamw", "adagrad"}
        Name of the optimizer.
    learning_rate, beta1, beta2, eps, weight_decay : float
        The usual settings; Adagrad does not use the betas.
    ema : float
        Decay per step of a moving average of the parameters; 0 keeps none.

    Examples
    --------
    >>> Optimizer("adagrad", learning_rate=0.1).name
    'adagrad'
    """

    name: str = "adamw"
    learning_rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    eps: float = 1e-8
    weight_decay: float = 0.0
    ema: float = 0.0

    def __post_init__(self) -> None:
        if self.name not in ("adamw", "adagrad"):
            raise ValueError(f'optimizer must be "adamw" or "adagrad", got {self.name!r}')
        for name in ("beta1", "beta2", "ema"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ValueError(f"{name} must be at least 0 and below 1, got {getattr(self, name)}")
        if not self.eps > 0.0:  # a gradient of exactly 0 would be divided by 0
            raise ValueError(f"eps must be above 0, got {self.eps}")
        for name in ("learning_rate", "eps", "weight_decay"):
            if not 0.0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be at least 0, got {getattr(self, name)}")


class Penalty(NamedTuple):
    """Groups of features as arrays; `signs` has four numbers per group, and `lengths` three."""

    group_ptr: Int64Array
    begin: Int64Array
    end: Int64Array
    l2: Float32Array
    l2_third: Float32Array
    l2_linear: Float32Array
    smoothness: Float32Array
    order: Int64Array
    signs: Float32Array
    periodic: Int64Array
    lengths: Int64Array


class OptimizerState(NamedTuple):
    """The optimizer state of some parameters; `last` is the step in which each feature was last active."""

    m: Float32Array
    v: Float32Array
    average: Float32Array
    last: Int64Array


OptimizerStates = dict[str, OptimizerState]


def _strengths(values: list[float]) -> Float32Array:
    """Penalties in float32, where overflow is silent: the run diverges, and its error says why."""
    with np.errstate(over="ignore"):
        return np.array(values, np.float32)


def make_penalty(layout: SlotLayout, groups: list[list[Group]]) -> Penalty:
    """Groups of features as arrays; they must cover every field."""
    for field, parts in zip(layout.fields, groups, strict=True):
        if sum(group.size for group in parts) != field.n_features:
            raise ValueError(f"the groups of field {field.name!r} do not cover its {field.n_features} features")
    flat = [group for parts in groups for group in parts]
    end = np.cumsum([group.size for group in flat], dtype=np.int64)
    return Penalty(
        group_ptr=np.concatenate([[0], np.cumsum([len(parts) for parts in groups])]).astype(np.int64),
        begin=end - np.array([group.size for group in flat], np.int64),
        end=end,
        l2=_strengths([group.l2 for group in flat]),
        l2_third=_strengths([group.l2 if group.l2_third is None else group.l2_third for group in flat]),
        l2_linear=_strengths([group.l2_linear for group in flat]),
        smoothness=_strengths([group.smoothness for group in flat]),
        order=np.array([group.order for group in flat], np.int64),
        signs=np.array([_differences(group.order) for group in flat], np.float32),
        periodic=np.array([_periodic_axes(group) for group in flat], np.int64),
        lengths=np.array([_lengths(group) for group in flat], np.int64),
    )


def _lengths(group: Group) -> tuple[int, int, int]:
    """The lengths of a block along three axes, the last ones first to be used."""
    shape = group.shape or (max(1, group.size),)
    if len(shape) > MAX_AXES or group.size % math.prod(shape):
        raise ValueError(f"a group of {group.size} features does not consist of blocks of shape {shape}")
    first, second, third = (1,) * (MAX_AXES - len(shape)) + tuple(shape)
    return first, second, third


def _periodic_axes(group: Group) -> int:
    """A bit for every periodic axis, the last axis first."""
    axes = group.periodic if isinstance(group.periodic, tuple) else (group.periodic,)
    return sum(1 << i for i, periodic in enumerate(reversed(axes)) if periodic)


def _differences(order: int) -> list[float]:
    """Coefficients of Δ^order, such as 1, -2, 1, padded with zeros."""
    if not 1 <= order <= MAX_ORDER:
        raise ValueError(f"the order of differences must be from 1 to {MAX_ORDER}, got {order}")
    signed = [math.comb(order, j) * (-1.0) ** (order - j) for j in range(order + 1)]
    return signed + [0.0] * (MAX_ORDER - order)


def aligned(n: int) -> Float32Array:
    """n float32 zeros that begin at a cache line: a vector of 16 is then one line instead of two."""
    memory = np.zeros(4 * n + LINE, np.uint8)
    first = -memory.ctypes.data % LINE
    return memory[first : first + 4 * n].view(np.float32)


def aligned_copy(values: Float32Array) -> Float32Array:
    """The same numbers, aligned."""
    copy = aligned(values.size).reshape(values.shape)
    copy[...] = values
    return copy


def make_state(values: Float32Array, optimizer: Optimizer, n_features: int = 0) -> OptimizerState:
    """The initial optimizer state of some parameters."""
    none = np.zeros(1, np.float32)
    average = optimizer.ema > 0.0
    return OptimizerState(
        m=aligned(values.size) if optimizer.name == "adamw" else none,
        v=aligned(values.size),
        average=aligned_copy(values.reshape(-1)) if average else none,
        last=np.zeros(n_features if average else 1, np.int64),
    )
