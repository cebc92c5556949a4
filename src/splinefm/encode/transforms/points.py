"""What transforms share: weighted points of a column, ranges, and settings that `fit` fills in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from splinefm._arrays import FloatArray

# Weighted points: the sorted distinct values of a column and the rows that each stands for.

Float: TypeAlias = FloatArray

LARGEST = 1e290  # values beyond are pulled in, so that a span divided by a rank difference stays finite
SMALLEST = 1e-300  # the narrowest scale or gap, so that dividing by it stays finite


def weighted_quantile(x: Float, weight: Float, share: float) -> float:
    """Return the smallest of the sorted `x` that has at least `share` of the weight at or below it.

    Examples
    --------
    >>> weighted_quantile(np.array([1.0, 2.0, 9.0]), np.array([2.0, 1.0, 1.0]), 0.5)
    1.0
    """
    below = np.cumsum(weight)
    return float(x[min(np.searchsorted(below, share * below[-1]), len(x) - 1)])


def mid_ranks(weight: Float) -> Float:
    """Return the share of the weight below each point plus half of the weight at the point.

    Examples
    --------
    >>> mid_ranks(np.array([1.0, 2.0, 1.0]))
    array([0.125, 0.5  , 0.875])
    """
    below = np.cumsum(weight)
    ranks: Float = (below - weight / 2) / below[-1]
    return ranks


def distinct_points(x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> tuple[Float, Float]:
    """Return the sorted distinct values of `x` and the weight of each.

    Values without weight are dropped, and values beyond ±1e290 are taken for ±1e290.

    Examples
    --------
    >>> distinct_points([3.0, 1.0, 3.0])
    (array([1., 3.]), array([1., 2.]))
    """
    values = np.asarray(x, dtype=np.float64)
    weights = np.ones(values.shape) if weight is None else np.asarray(weight, dtype=np.float64)
    _check_points(values, weights)
    counted = weights > 0
    if counted.all() and values[0] >= -LARGEST and values[-1] <= LARGEST and (values[1:] > values[:-1]).all():
        return values, weights  # as they come from a summary of a column
    values, index = np.unique(np.clip(values[counted], -LARGEST, LARGEST), return_inverse=True)
    return values, np.bincount(index, weights=weights[counted]).astype(np.float64)


def _check_points(values: Float, weights: Float) -> None:
    if values.ndim != 1:
        raise ValueError(f"x must have one dimension, got shape {values.shape}; pass x.ravel()")
    if weights.shape != values.shape:
        raise ValueError(f"weight must have the shape of x, {values.shape}, got {weights.shape}")
    if not np.isfinite(values).all():
        raise ValueError("x must be finite, got NaN or infinity; drop missing values first")
    if not (np.isfinite(weights).all() and (weights >= 0).all()):
        raise ValueError("weight must be finite and at least 0, got a negative, NaN or infinite weight")
    if not (weights > 0).any():
        raise ValueError(f"x must hold at least one value of positive weight, got {len(values)} values")


# The ends of a range, given or learned from a column, and the way from them to [0, 1] and back.

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


# What transforms share as specifications: plain values in their fields, and values that `fit` fills in.

T = TypeVar("T")


def fitted_value(owner: object, value: T | None) -> T:
    if value is None:
        raise ValueError(f"{type(owner).__name__} is not fitted; call fit first")
    return value


def check_share(name: str, share: float) -> None:
    if not 0 < share <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, got {share}")


def make_plain(spec: Any) -> None:
    """Convert arrays, lists and NumPy numbers in the fields to tuples and Python numbers."""
    for field in fields(spec):
        object.__setattr__(spec, field.name, _plain(getattr(spec, field.name)))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if type(value) is tuple and set(map(type, value)) == {float}:  # such as thousands of knots
        return value
    return tuple(map(_plain, value)) if isinstance(value, tuple | list) else value
