"""The maximum of the likelihood of a family, in a few steps by its equations.

A table may have thousands of columns, and a simplex evaluates all values of each about seventy times. Each function
here takes standardized points and their weights, and returns free parameters (see `Distribution.start`), or None where
the steps do not converge: then the simplex takes over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import scipy  # loads scipy.special only when a function below first uses it

from splinefm.encode.transforms.points import Float

_STEPS = 40  # most steps; five to ten are usual where the family fits
_CLOSE = 1e-5  # of a parameter or its logarithm
_FAR = 15.0  # a Lomax whose log(scale / mean) is so large is an exponential
_Slopes = Callable[[Float], tuple[Float, Float]]
Params: TypeAlias = tuple[float, ...]


def logistic_maximum(z: Float, weight: Float) -> Params | None:
    """Location and scale of a logistic distribution."""

    def slopes(t: Float) -> tuple[Float, Float]:
        half = np.tanh(0.5 * t)
        return half, t * half

    return _fisher_scoring(z, weight, slopes, 3.0, 9.0 / (3.0 + np.pi**2))


def cauchy_maximum(z: Float, weight: Float) -> Params | None:
    """Location and scale of a Cauchy distribution."""

    def slopes(t: Float) -> tuple[Float, Float]:
        slope = 2.0 * t / (1.0 + t * t)
        return slope, t * slope

    return _fisher_scoring(z, weight, slopes, 2.0, 2.0)


def _fisher_scoring(z: Float, weight: Float, slopes: _Slopes, one: float, two: float) -> Params | None:
    """Location and scale where the means of both slopes are 0 and 1; `one` and `two` invert the information."""
    share = weight / weight.sum()
    quarters = np.searchsorted(np.cumsum(share), [0.25, 0.5, 0.75])
    quarter, location, three = (float(value) for value in z[np.minimum(quarters, np.int64(len(z) - 1))])
    scale = (three - quarter) / 2.0
    for _ in range(_STEPS):
        if not 0.0 < scale < np.inf:
            return None
        first, second = slopes((z - location) / scale)
        step, growth = one * (share @ first), two * (share @ second - 1.0)
        location, scale = location + scale * step, scale * np.exp(np.clip(growth, -2.0, 2.0))
        if abs(step) < _CLOSE and abs(growth) < _CLOSE:
            return location, scale
    return None


def gumbel_maximum(z: Float, weight: Float) -> Params | None:
    """Location and scale of a Gumbel distribution (of largest values), by Newton steps for the scale alone."""
    share = weight / weight.sum()
    mean = share @ z
    scale = np.sqrt(6.0 * (share @ (z - mean) ** 2)) / np.pi
    for _ in range(_STEPS):
        if not 0.0 < scale < np.inf:
            return None
        least = z[0]  # points are sorted; the largest exponential is 1
        part = share * np.exp((least - z) / scale)
        total = part.sum()
        first, second = (part @ z) / total, (part @ (z * z)) / total
        slope = 1.0 + (second - first * first) / scale**2
        step = (mean - first - scale) / slope
        if not np.isfinite(step):
            return None
        if abs(step) < _CLOSE * scale:
            return least - scale * np.log(total), scale
        scale = max(scale + step, scale / 4.0)
    return None


def weibull_maximum(z: Float, weight: Float) -> Params | None:
    """Scale and shape of a Weibull distribution: minus the logarithm has a Gumbel distribution."""
    found = gumbel_maximum(-np.log(z[::-1]), weight[::-1])
    return None if found is None else (np.exp(-found[0]), 1.0 / found[1])


def log_logistic_maximum(z: Float, weight: Float) -> Params | None:
    """Scale and shape of a log-logistic distribution: the logarithm has a logistic one."""
    found = logistic_maximum(np.log(z), weight)
    return None if found is None else (np.exp(found[0]), 1.0 / found[1])


def gamma_maximum(z: Float, weight: Float) -> Params | None:
    """Scale and shape of a gamma distribution, from the mean and the mean of logarithms (Minka, 2002)."""
    share = weight / weight.sum()
    mean = share @ z
    gap = np.log(mean) - share @ np.log(z)
    if not gap > 1e-9:
        return None
    shape = (3.0 - gap + np.sqrt((gap - 3.0) ** 2 + 24.0 * gap)) / (12.0 * gap)
    for _ in range(_STEPS):
        excess = np.log(shape) - scipy.special.psi(shape) - gap
        inverse = 1.0 / shape + excess / (shape**2 * (1.0 / shape - scipy.special.zeta(2.0, shape)))
        if not 0.0 < inverse < np.inf:
            return None
        shape, before = 1.0 / inverse, shape
        if abs(shape - before) < _CLOSE * shape:
            return mean / shape, shape
    return None


def lomax_maximum(z: Float, weight: Float) -> Params | None:
    """Scale and shape of a Lomax distribution; without a heavy tail it is an exponential one of a huge scale.

    Given the scale s, the shape is 1 / mean log(1 + z / s). What is left is one equation for log s: Newton steps, and
    where they would leave the interval that holds the root, half of it.
    """
    share = weight / weight.sum()
    mean = share @ z

    def at(theta: float) -> tuple[float, float, float]:
        """1 / shape, and the first two derivatives of the likelihood that is left."""
        ratio = z * np.exp(-theta)
        m, part = share @ np.log1p(ratio), ratio / (1.0 + ratio)
        first, second = share @ part, share @ (part * (1.0 - part))
        return m, first / m - 1.0 + first, (first / m) ** 2 - second / m - second

    low, high = (np.log(mean) + sign * _FAR for sign in (-1.0, 1.0))
    if share @ (z * z) <= 2.0 * mean**2:
        return np.exp(high), 1.0 / at(high)[0]
    theta = np.log(mean)
    for _ in range(_STEPS):
        m, slope, curvature = at(theta)
        low, high = (theta, high) if slope > 0.0 else (low, theta)
        step = -slope / curvature if curvature < 0.0 else np.inf
        after = theta + step if low < theta + step < high else (low + high) / 2.0
        if abs(after - theta) < _CLOSE:
            return np.exp(theta), 1.0 / m
        theta = after
    return None
