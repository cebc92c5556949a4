"""Monotone maps T: x -> u in [0, 1] that spread a column over the interval a basis lives on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from splinefm._arrays import FloatArray
from splinefm.encode.transforms.bestfit import BestFitCDF
from splinefm.encode.transforms.scaling import (
    ArcsinhSquare,
    Float,
    Log,
    MinMax,
    Quantile,
    distinct_points,
    weighted_quantile,
)


@runtime_checkable
class Transform(Protocol):
    """The members of a transform; any object that has them is one.

    Examples
    --------
    >>> isinstance(MinMax(), Transform)
    True
    """

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> Transform: ...

    def __call__(self, x: npt.ArrayLike) -> Float: ...

    def inverse(self, u: npt.ArrayLike) -> Float: ...


@dataclass(frozen=True)
class CustomTransform:
    """Two given functions, clipped to [0, 1]; nothing is learned, and it cannot be saved.

    Parameters
    ----------
    forward, backward
        Functions of float64 arrays: a non-decreasing x -> u and its inverse u -> x.

    Examples
    --------
    >>> t = CustomTransform(lambda hour: hour / 24, lambda u: u * 24)
    >>> t([6.0, 30.0]), t.inverse(0.5)
    (array([0.25, 1.  ]), array(12.))
    """

    forward: Callable[[Float], Float]
    backward: Callable[[Float], Float]

    def __post_init__(self) -> None:
        for name in ("forward", "backward"):
            if not callable(getattr(self, name)):
                raise ValueError(f"{name} must be a function of an array, got {getattr(self, name)!r}")

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> CustomTransform:
        return self

    def __call__(self, x: npt.ArrayLike) -> Float:
        return np.asarray(np.clip(self.forward(np.asarray(x, dtype=np.float64)), 0.0, 1.0))

    def inverse(self, u: npt.ArrayLike) -> Float:
        return np.asarray(self.backward(np.clip(np.asarray(u, dtype=np.float64), 0.0, 1.0)))


TRANSFORMS = (MinMax, Quantile, BestFitCDF, ArcsinhSquare, Log)
"""The transforms that can be written to a file."""


# The rule behind transform="auto".


FEW_VALUES = 32  # up to this many distinct values are spread by rank
CELLS = 20  # a column is spread evenly if each of this many equal cells of [0, 1] ...
CELL_SHARE = 0.25  # ... holds at least this part of its even share of the rows
ATOM = 0.02  # a value with this share of the rows is an atom, which no smooth CDF can follow
GOOD_FIT = 0.01  # root mean square distance below which a parametric CDF replaces the empirical one
ATOM_SHARE = 0.05  # of [0, 1], the most that "auto" leaves to one value
TAIL_SPAN = 0.5  # heavy tail: the middle 98 % of the rows take less than this part of the range


def choose_transform(x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> tuple[Transform, str]:
    """Choose and fit a transform for a column, with the reason for the choice.

    The first that applies:

    1. At most 32 distinct values: `Quantile` of the distinct values, equally spaced by rank.
    2. Each of 20 equal cells between the ends holds at least a quarter of its even share: `MinMax`.
    3. No value has 2 % of the rows, and a parametric CDF is within 0.01 of the held-out ranks (root
       mean square): `BestFitCDF`.
    4. Otherwise: `Quantile` that leaves at most 5 % of [0, 1] to one value.

    Parameters
    ----------
    x, weight
        Finite values and their non-negative counts (1 each if left out).

    Returns
    -------
    The fitted transform, and the reason in words.

    Examples
    --------
    >>> transform, reason = choose_transform(np.arange(12.0))
    >>> reason
    '12 distinct values: equally spaced by rank'
    """
    values, weights = distinct_points(x, weight)
    if len(values) <= FEW_VALUES:
        plural = "s" if len(values) > 1 else ""
        return Quantile().fit(values), f"{len(values)} distinct value{plural}: equally spaced by rank"
    share = weights / weights.sum()
    return _if_even(values, share) or _if_parametric(values, share) or _by_rank(values, share)


def _if_even(values: Float, share: Float) -> tuple[Transform, str] | None:
    transform = MinMax().fit(values)
    cells = np.minimum((transform(values) * CELLS).astype(np.int64), CELLS - 1)
    emptiest = np.bincount(cells, weights=share, minlength=CELLS).min()
    if emptiest < CELL_SHARE / CELLS:
        return None
    low, high = values[0], values[-1]
    return transform, (
        f"bounded and spread evenly: each of {CELLS} equal cells between {low:.4g} and {high:.4g} "
        f"holds at least {emptiest:.1%} of the rows"
    )


def _if_parametric(values: Float, share: Float) -> tuple[Transform, str] | None:
    if share.max() >= ATOM:
        return None
    transform = BestFitCDF().fit(values, share)
    family, distance = transform.scores[0]
    if distance >= GOOD_FIT:
        return None
    close = f"close to {family} (rms distance {distance:.4f})"
    return transform, "; ".join(filter(None, (_tail_words(values, share), close)))


def _by_rank(values: Float, share: Float) -> tuple[Transform, str]:
    transform = Quantile(atom_share=ATOM_SHARE).fit(values, share)
    why = "; ".join(filter(None, (_tail_words(values, share), _atom_words(values, share))))
    return transform, f"{why or 'unevenly spread, and no parametric CDF is close'}: spread by rank"


def _tail_words(values: Float, share: Float) -> str:
    low, high = values[0], values[-1]
    first, last = (weighted_quantile(values, share, q) for q in (0.01, 0.99))
    if last - first >= TAIL_SPAN * (high - low):
        return ""
    return f"heavy tail (98% of the rows from {first:.4g} to {last:.4g}, all from {low:.4g} to {high:.4g})"


def _atom_words(values: Float, share: Float) -> str:
    top = int(share.argmax())
    return f"the value {values[top]:.4g} has {share[top]:.1%} of the rows" if share[top] >= ATOM else ""


# Transforms as pieces of polynomials in raw units, and the raw values where they reach a given u.


Function = Callable[[FloatArray], FloatArray]
Pieces = tuple[FloatArray, FloatArray]
"""Knots, shape (n + 1,), and what is between them; see `transform_pieces`."""

TOLERANCE = 1e-9  # of u
MAX_PIECES = 8192
_LARGEST = float(np.finfo(np.float64).max)
_SIGN = np.uint64(1 << 63)


def transform_pieces(transform: Transform) -> Pieces | None:
    """Knots, shape (n + 1,), and the function between them; None if the transform is not one of the package.

    That is the values at the knots, shape (n + 1, 1), where the transform is linear between them, or else cubics, shape
    (n, 4), of the position between two knots, from 0 to 1, the lowest power first.

    Examples
    --------
    >>> transform_pieces(MinMax(low=2.0, high=4.0))
    (array([2., 4.]), array([[0.], [1.]]))
    """
    if type(transform) not in TRANSFORMS:
        return None
    if isinstance(transform, MinMax):
        return np.array([transform.low, transform.high], np.float64), np.array([[0.0], [1.0]])
    if isinstance(transform, Quantile):
        return np.array(transform.x), np.array(transform.u)[:, None]
    low, high = np.asarray(transform.inverse(np.array([0.0, 1.0]))).tolist()
    return _follow(transform, low, high) if -np.inf < low < high < np.inf else None


def _follow(function: Function, low: float, high: float) -> Pieces | None:
    """Cubics through four points of each piece; pieces are halved until they are close enough in between."""
    left, right = np.array([low]), np.array([high])
    done: list[tuple[FloatArray, FloatArray]] = []
    n_done = 0
    while len(left):
        cubics, middle = _through(function, left, right), _middle(left, right)
        width = right - left
        wrong = np.zeros(len(left), bool)
        for t in (1 / 6, 1 / 2, 5 / 6):
            x = left + t * width
            t_x = (x - left) / width
            wrong |= np.abs(_cubic(cubics, t_x) - function(x)) > TOLERANCE
        wrong &= (middle > left) & (middle < right)  # where no number lies between, both ends are met
        done.append((left[~wrong], cubics[~wrong]))
        n_done += int((~wrong).sum())
        if n_done + 2 * int(wrong.sum()) > MAX_PIECES:
            return None
        left, middle, right = left[wrong], middle[wrong], right[wrong]
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
    starts = np.concatenate([part for part, _ in done])
    order = np.argsort(starts)
    return np.append(starts[order], high), np.concatenate([part for _, part in done])[order]


def _through(function: Function, left: FloatArray, right: FloatArray) -> FloatArray:
    """Cubics through the values at 0, 1/3, 2/3 and 1."""
    a, b, c, d = (function(left + t * (right - left)) for t in (0.0, 1 / 3, 2 / 3, 1.0))
    return np.stack(
        [
            a,
            (-11 * a + 18 * b - 9 * c + 2 * d) / 2,
            4.5 * (2 * a - 5 * b + 4 * c - d),
            4.5 * (-a + 3 * b - 3 * c + d),
        ],
        axis=1,
    )


def _cubic(c: FloatArray, t: FloatArray) -> FloatArray:
    return np.asarray(c[:, 0] + t * (c[:, 1] + t * (c[:, 2] + t * c[:, 3])))


def _middle(left: FloatArray, right: FloatArray) -> FloatArray:
    """Where to cut: at the geometric mean where two numbers differ much in size, otherwise halfway."""
    middle = left + (right - left) / 2
    small, large = np.minimum(np.abs(left), np.abs(right)), np.maximum(np.abs(left), np.abs(right))
    same_side = (left > 0) | (right < 0)
    by_size = np.where(left > 0, 1.0, -1.0) * np.sqrt(small) * np.sqrt(large)
    return np.where(same_side & (large > 4 * small), by_size, middle)


def raw_edges(transform: Transform, cuts: FloatArray) -> FloatArray:
    """For each cut in u the smallest number that the transform takes to it or beyond; infinite if there is none.

    The edges are found by bisection of the floating-point numbers themselves, so that `z >= edge` says the same as
    `transform(z) >= cut` for every z, also next to an edge, if the transform is monotone to the last bit. The CDFs of
    some families are not: there, a number within a few units in the last place of an edge may differ.

    Examples
    --------
    >>> raw_edges(MinMax(0.0, 10.0), np.array([0.0, 0.25, 2.0]))
    array([-inf,  2.5,  inf])
    """
    with np.errstate(all="ignore"):
        guess = np.clip(np.nan_to_num(np.asarray(transform.inverse(np.clip(cuts, 0.0, 1.0)))), -_LARGEST, _LARGEST)
        low, high = _bracket(transform, cuts, _to_key(guess))
        while True:
            middle = low + (high - low) // np.uint64(2)
            if (middle == low).all():
                break
            above = transform(_from_key(middle)) >= cuts
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        edges = _from_key(high)
        edges = np.where(transform(edges) >= cuts, edges, np.inf)
        return np.where(transform(np.full(len(cuts), -_LARGEST)) >= cuts, -np.inf, edges) + 0.0  # no negative zero


def _bracket(transform: Transform, cuts: FloatArray, key: Any) -> tuple[Any, Any]:
    """Keys of numbers below and at or above each cut, found by steps of double size from a guess."""
    ends = _to_key(np.array([-_LARGEST, _LARGEST]))
    low, high = key.copy(), key.copy()
    for power in range(64):
        step = np.uint64(1) << np.uint64(power)
        below, above = transform(_from_key(low)) < cuts, transform(_from_key(high)) >= cuts
        if (below | (low == ends[0])).all() and (above | (high == ends[1])).all():
            break
        low = np.where(below, low, np.where(low - ends[0] > step, low - step, ends[0]))
        high = np.where(above, high, np.where(ends[1] - high > step, high + step, ends[1]))
    return low, high


def _to_key(x: FloatArray) -> npt.NDArray[np.uint64]:
    """Integers in the order of the floating-point numbers."""
    bits = np.ascontiguousarray(x, np.float64).view(np.uint64)
    return np.where(bits & _SIGN, ~bits, bits | _SIGN)


def _from_key(key: npt.NDArray[np.uint64]) -> FloatArray:
    return np.where(key & _SIGN, key ^ _SIGN, ~key).view(np.float64)
