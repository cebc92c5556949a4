"""The losses on tensors: the formulas of `splinefm.train.losses`, differentiable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor


class NamedLoss(Protocol):
    """A loss by name and parameter, such as `splinefm.train.losses.Loss`."""

    @property
    def name(self) -> str:
        """One of the names of losses."""

    @property
    def parameter(self) -> float:
        """The parameter of its formula, 0 if it has none."""


def row_losses(loss: NamedLoss, scores: Tensor, y: Tensor) -> Tensor:
    """Return the loss of each row for standardized targets.

    The slope of a score or target that is not a number is not a number, for every loss.

    Parameters
    ----------
    loss : Loss
        The loss.
    scores : tensor of shape (n,), or (n, classes) for softmax
        The scores.
    y : tensor of shape (n,)
        Standardized targets; numbers of classes for softmax.

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> scores, y = torch.tensor([2.0, 0.0]), torch.tensor([1.0, 1.0])
    >>> row_losses(SimpleNamespace(name="squared", parameter=0.0), scores, y)
    tensor([0.5000, 0.5000])
    """
    return _LOSSES[loss.name](scores, y, loss.parameter)


def _logistic(s: Tensor, y: Tensor, parameter: float) -> Tensor:
    return torch.logaddexp(s, torch.zeros_like(s)) - y * s


def _squared(s: Tensor, y: Tensor, parameter: float) -> Tensor:
    return 0.5 * (s - y).square()


def _poisson(s: Tensor, y: Tensor, parameter: float) -> Tensor:
    return s.exp() - y * s


def _gamma(s: Tensor, y: Tensor, parameter: float) -> Tensor:
    return y * (-s).exp() - 1.0 + s - y.log()


def _tweedie(s: Tensor, y: Tensor, power: float) -> Tensor:
    one, two = 1.0 - power, 2.0 - power
    return (two * s).exp() / two - y * (one * s).exp() / one + y.pow(two) / (one * two)


def _quantile(s: Tensor, y: Tensor, level: float) -> Tensor:
    over = s - y
    slope = over.detach()  # 0 or NaN where it stays
    slope = torch.where(slope > 0.0, 1.0 - level, torch.where(slope < 0.0, -level, slope))
    return slope * over


def _huber(s: Tensor, y: Tensor, delta: float) -> Tensor:
    over = s - y
    clipped = over.clamp(-delta, delta)
    return clipped * (over - 0.5 * clipped)


def _softmax(s: Tensor, y: Tensor, parameter: float) -> Tensor:
    return -s.log_softmax(1).gather(1, y.long()[:, None])[:, 0]


_LOSSES: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "logistic": _logistic,
    "squared": _squared,
    "poisson": _poisson,
    "gamma": _gamma,
    "tweedie": _tweedie,
    "quantile": _quantile,
    "huber": _huber,
    "softmax": _softmax,
}
