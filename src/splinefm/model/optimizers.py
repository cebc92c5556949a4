"""Penalties and optimizers, as the user names them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Group:
    """Neighboring features with penalties of their own.

    The objective has ½ l2 |v|² + ½ l2_linear w² for every row that a batch touches, and
    smoothness Σ |Δ^order v|² over neighbors, for vectors and linear weights alike.
    """

    size: int
    l2: float = 0.0
    l2_linear: float = 0.0
    smoothness: float = 0.0
    order: int = 2
    periodic: bool = False


@dataclass(frozen=True)
class Optimizer:
    """Lazy AdamW or Adagrad: rows that a batch does not touch are left alone.

    Parameters
    ----------
    name : {"adamw", "adagrad"}
        Which one.
    learning_rate, beta1, beta2, eps, weight_decay : float
        As usual; Adagrad uses neither beta.
    ema : float
        Decay per step of an average of the weights; 0 keeps none.

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

    def course(
        self, number: npt.NDArray[np.int64], learning_rate: npt.NDArray[np.float64]
    ) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32], npt.NDArray[np.float32]]:
        """What changes from step to step: `lr`, `correct1` and `correct2` of several `Step`."""
        first, second = (self.beta1, self.beta2) if self.name == "adamw" else (0.0, 0.0)
        numbers = (learning_rate, 1.0 / (1.0 - first**number), 1.0 / np.sqrt(1.0 - second**number))
        lr, correct1, correct2 = (np.asarray(values, np.float32) for values in numbers)
        return lr, correct1, correct2

    def step(self, number: int, learning_rate: float) -> Step:
        """The numbers of one step; steps are counted from 1."""
        adam = self.name == "adamw"
        return Step(
            adam=adam,
            lr=np.float32(learning_rate),
            rate1=np.float32(1.0 - self.beta1),
            rate2=np.float32(1.0 - self.beta2),
            correct1=np.float32(1.0 / (1.0 - self.beta1**number) if adam else 1.0),
            correct2=np.float32(1.0 / np.sqrt(1.0 - self.beta2**number) if adam else 1.0),
            eps=np.float32(self.eps),
            decay=np.float32(self.weight_decay),
            ema=float(self.ema),
            number=number,
        )


class Step(NamedTuple):
    """The numbers of one optimizer step."""

    adam: bool
    lr: Any
    rate1: Any
    rate2: Any
    correct1: Any
    correct2: Any
    eps: Any
    decay: Any
    ema: float
    number: int
