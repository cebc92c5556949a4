"""Penalties and optimizers: their settings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


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
