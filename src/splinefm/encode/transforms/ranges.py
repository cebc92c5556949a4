"""The ends of a range, given or learned from a column, and the way from them to [0, 1] and back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from splinefm.encode.transforms.points import Float

LIMIT = 1e300  # given bounds stay below, so that their difference is finite


def _identity(x: Float) -> Float:
    return x


def to_unit(x: npt.ArrayLike, low: float, high: float, warp: Callable[[Float], Float] = _identity) -> Float:
    """Clip to [low, high], warp, and rescale to [0, 1]."""
    inside = np.clip(np.asarray(x, dtype=np.float64), low, high)
    start, stop = warp(np.array([low, high]))
    if not start < stop:  # ends so close that the warp cannot tell them apart
        return to_unit(inside, low, high)
    return np.asarray(np.clip((warp(inside) - start) / (stop - start), 0.0, 1.0))


def from_unit(
    u: npt.ArrayLike,
    low: float,
    high: float,
    warp: Callable[[Float], Float] = _identity,
    unwarp: Callable[[Float], Float] = _identity,
) -> Float:
    """Invert `to_unit`, with `low` and `high` returned exactly at 0 and 1."""
    inside = np.clip(np.asarray(u, dtype=np.float64), 0.0, 1.0)
    start, stop = warp(np.array([low, high]))
    if not start < stop:
        return from_unit(inside, low, high)
    x = np.clip(unwarp(start + inside * (stop - start)), low, high)
    return np.where(inside == 0, low, np.where(inside == 1, high, x))


def unit_slope(
    x: npt.ArrayLike,
    low: float,
    high: float,
    warp: Callable[[Float], Float] = _identity,
    slope: Callable[[Float], Float] = np.ones_like,
) -> Float:
    """The derivative of `to_unit`, where `slope` is that of `warp`; 0 beyond the ends."""
    x = np.asarray(x, dtype=np.float64)
    with np.errstate(all="ignore"):  # a logarithm has no slope below 0, and the result does not use it
        start, stop = warp(np.array([low, high]))
        return np.where((x >= low) & (x <= high), slope(x) / (stop - start), 0.0)


def learn_range(values: Float, low: float | None, high: float | None) -> tuple[float, float]:
    smallest, largest = float(values[0]), float(values[-1])
    if low is not None and low > largest:
        raise ValueError(f"low must be at most the largest value, {largest}, got {low}; leave it out")
    if high is not None and high < smallest:
        raise ValueError(f"high must be at least the smallest value, {smallest}, got {high}; leave it out")
    start, stop = smallest if low is None else low, largest if high is None else high
    if start < stop:
        return start, stop
    return (start, just_above(start)) if high is None else (-just_above(-stop), stop)


def just_above(value: float) -> float:
    return float(np.nextafter(value, np.inf))


def check_range(low: float | None, high: float | None) -> None:
    for name, end in (("low", low), ("high", high)):
        if end is not None and not abs(end) <= LIMIT:
            raise ValueError(f"{name} must lie between -{LIMIT} and {LIMIT}, got {end}")
    if low is not None and high is not None and not low < high:
        raise ValueError(f"low must be less than high, got low={low} and high={high}")
