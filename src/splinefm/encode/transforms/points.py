"""Weighted points: the sorted distinct values of a column and the rows that each stands for."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Float: TypeAlias = npt.NDArray[np.float64]

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
