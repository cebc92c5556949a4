"""Transforms by a formula or by rank, and what all transforms share: weighted points, ranges, plain settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from splinefm._arrays import FloatArray, IndexArray
from splinefm._cached import cached_property
from splinefm._core import Interpolation, elementary
from splinefm._core import power as _power

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
    """The derivative of `to_unit`, given the derivative of `warp`; 0 beyond the ends."""
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


# MinMax, Log and ArcsinhSquare: a range of raw values, warped by a formula and scaled to [0, 1].


# Logarithms, exponentials and the like with the same bits on every processor.
#
# NumPy computes them with other code on processors with AVX-512, and rounds some values differently there. That moved
# values on the border of two bins, where T(z) is exactly the cut, into the other bin: a model that was fitted on one
# machine scored them differently on another. So transforms take these functions from the machine's C library, on their
# way from z to u; but for arcsinh, for which new versions of glibc have other code, too.


def _by_element(compute: Callable[[FloatArray], FloatArray], x: npt.ArrayLike) -> FloatArray:
    x = np.asarray(x, np.float64)
    return compute(np.ascontiguousarray(x.reshape(-1))).reshape(x.shape)


log = partial(_by_element, partial(elementary, "log"))
log1p = partial(_by_element, partial(elementary, "log1p"))
exp = partial(_by_element, partial(elementary, "exp"))
expm1 = partial(_by_element, partial(elementary, "expm1"))
arcsinh = partial(_by_element, partial(elementary, "asinh"))
arctan = partial(_by_element, partial(elementary, "atan"))


def power(x: npt.ArrayLike, exponent: float) -> FloatArray:
    """Each x to the power of the exponent."""
    return _by_element(lambda z: _power(z, exponent), x)


@dataclass(frozen=True)
class MinMax:
    """u = (x - low) / (high - low).

    Parameters
    ----------
    low, high
        The ends of the range in raw units; learned as the smallest and the largest value if left out.

    Examples
    --------
    >>> t = MinMax(low=0.0).fit(np.array([3.0, 10.0]))
    >>> t
    MinMax(low=0.0, high=10.0)
    >>> t([-1.0, 5.0, 20.0])
    array([0. , 0.5, 1. ])
    """

    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        check_range(self.low, self.high)

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> MinMax:
        values, _ = distinct_points(x, weight)
        low, high = learn_range(values, self.low, self.high)
        return replace(self, low=low, high=high)

    def __call__(self, x: npt.ArrayLike) -> FloatArray:
        return to_unit(x, fitted_value(self, self.low), fitted_value(self, self.high))

    def inverse(self, u: npt.ArrayLike) -> FloatArray:
        return from_unit(u, fitted_value(self, self.low), fitted_value(self, self.high))

    def derivative(self, x: npt.ArrayLike) -> FloatArray:
        """dT / dx; 0 beyond the ends."""
        return unit_slope(x, fitted_value(self, self.low), fitted_value(self, self.high))


@dataclass(frozen=True)
class Log:
    """u = (log(x + shift) - log(low + shift)) / (log(high + shift) - log(low + shift)).

    Parameters
    ----------
    shift
        Added before the logarithm; learned as 0 if all values are positive and 1 - min(x) otherwise.
        Values at or below -shift go to 0.
    low, high
        The ends of the range in raw units, learned if left out.

    Examples
    --------
    >>> t = Log().fit(np.array([1.0, 10.0, 100.0]))
    >>> t([0.0, 1.0, 10.0, 100.0]).round(6)
    array([0. , 0. , 0.5, 1. ])
    """

    shift: float | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        check_range(self.low, self.high)
        if self.shift is not None and not abs(self.shift) <= LIMIT:
            raise ValueError(f"shift must lie between -{LIMIT} and {LIMIT}, got {self.shift}")
        for name, end in (("low", self.low), ("high", self.high)):
            if self.shift is not None and end is not None and not end + self.shift > 0:
                raise ValueError(f"{name} must exceed -shift = {-self.shift}, got {end}; raise shift")

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> Log:
        values, _ = distinct_points(x, weight)
        smallest = values[0] if self.low is None else min(values[0], self.low)
        shift = _learn_shift(smallest) if self.shift is None else self.shift
        positive = values[values + shift > 0]
        if len(positive) == 0:
            raise ValueError(f"shift must exceed {-values[-1]} for this column, got {shift}; raise it")
        low, high = learn_range(positive, self.low, self.high)
        return replace(self, shift=shift, low=low, high=high)

    def __call__(self, x: npt.ArrayLike) -> FloatArray:
        shift = fitted_value(self, self.shift)
        return to_unit(x, fitted_value(self, self.low), fitted_value(self, self.high), lambda z: log(z + shift))

    def inverse(self, u: npt.ArrayLike) -> FloatArray:
        shift, low, high = fitted_value(self, self.shift), fitted_value(self, self.low), fitted_value(self, self.high)
        return from_unit(u, low, high, lambda z: log(z + shift), lambda v: np.exp(v) - shift)

    def derivative(self, x: npt.ArrayLike) -> FloatArray:
        """dT / dx; 0 beyond the ends."""
        shift, low, high = fitted_value(self, self.shift), fitted_value(self, self.low), fitted_value(self, self.high)
        return unit_slope(x, low, high, lambda z: log(z + shift), lambda z: 1.0 / (z + shift))


@dataclass(frozen=True)
class ArcsinhSquare:
    """u = (w(x) - w(low)) / (w(high) - w(low)) with w(x) = sign(x) asinh(|x|)².

    DIFFERS: the paper's formula scales by the maximum of non-negative values. This one also takes negative values, and
    `clip` scales by a quantile, as the paper's code does.

    Close to zero, w is about x²; far out it grows as log(2x)². Use it for counts and amounts with a heavy tail.

    Parameters
    ----------
    clip
        Learn `high` as this quantile instead of the largest value.
    low, high
        The ends of the range in raw units, learned if left out.

    Examples
    --------
    >>> t = ArcsinhSquare().fit(np.array([0.0, 5.0, 1000.0]))
    >>> t([0.0, 5.0, 1000.0]).round(3)
    array([0.   , 0.093, 1.   ])
    """

    clip: float | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        check_range(self.low, self.high)
        if self.clip is not None:
            check_share("clip", self.clip)

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> ArcsinhSquare:
        values, weights = distinct_points(x, weight)
        if self.clip is not None:
            values = values[values <= weighted_quantile(values, weights, self.clip)]
        low, high = learn_range(values, self.low, self.high)
        return replace(self, low=low, high=high)

    def __call__(self, x: npt.ArrayLike) -> FloatArray:
        return to_unit(x, fitted_value(self, self.low), fitted_value(self, self.high), arcsinh_square)

    def inverse(self, u: npt.ArrayLike) -> FloatArray:
        low, high = fitted_value(self, self.low), fitted_value(self, self.high)
        return from_unit(u, low, high, arcsinh_square, lambda w: np.sign(w) * np.sinh(np.sqrt(np.abs(w))))

    def derivative(self, x: npt.ArrayLike) -> FloatArray:
        """dT / dx; 0 beyond the ends."""
        low, high = fitted_value(self, self.low), fitted_value(self, self.high)
        return unit_slope(x, low, high, arcsinh_square, lambda z: 2.0 * np.arcsinh(np.abs(z)) / np.sqrt(1.0 + z**2))


def arcsinh_square(x: FloatArray) -> FloatArray:
    """w(x) = sign(x) asinh(|x|)²."""
    squared: FloatArray = np.sign(x) * arcsinh(np.abs(x)) ** 2
    return squared


def _learn_shift(smallest: float) -> float:
    if smallest > 0:
        return 0.0
    # 1 - min rounds to -min for huge values, and the logarithm of 0 must not be reached.
    return float(max(1 - smallest, np.nextafter(-smallest, np.inf)))


# Quantile: the empirical CDF of a column as a transform.


_LIGHTEST = 1e-12  # each value counts for at least this share of the rows, so that ranks differ as floats


@dataclass(frozen=True)
class Quantile:
    """The empirical CDF: piecewise linear through the mid-ranks, stretched to run from 0 to 1.

    A mid-rank is the share of the rows below a value plus half the share at the value. Values less
    than 1e-300 apart count as one.

    Parameters
    ----------
    knots
        The most values to keep: at evenly spaced ranks, with both ends and, as far as they fit, the values that
        have more than 1 / knots of the rows. A column with no more distinct values keeps them all.
    atom_share
        The largest part of the ranks left to a single value, however many rows it holds. Otherwise a
        value with 60 % of the rows would leave as much of [0, 1] without data.
    x, u
        The knots, learned: strictly increasing raw values and their images, from 0 to 1.

    Examples
    --------
    >>> t = Quantile().fit(np.array([1.0, 2.0, 2.0, 2.0, 100.0]))
    >>> t.x, t.u
    ((1.0, 2.0, 100.0), (0.0, 0.5, 1.0))
    >>> t([1.5, 51.0]), t.inverse(0.5)
    (array([0.25, 0.75]), array(2.))
    """

    knots: int = 1000
    atom_share: float = 1.0
    x: tuple[float, ...] = ()
    u: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        make_plain(self)
        if not isinstance(self.knots, int) or self.knots < 2:
            raise ValueError(f"knots must be an integer of at least 2, got {self.knots!r}")
        check_share("atom_share", self.atom_share)
        if len(self.x) != len(self.u):
            raise ValueError(f"x and u must have the same length, got {len(self.x)} and {len(self.u)}")
        if self.x and not _is_knots(self.x, self.u):
            raise ValueError("x and u must increase strictly, u from 0 to 1; leave both out to learn them")

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> Quantile:
        values, weights = _merge_neighbors(*distinct_points(x, weight))
        if self.x:
            return self
        if len(values) == 1:
            return replace(self, x=(values[0], just_above(values[0])), u=(0.0, 1.0))
        share = _cap_shares(weights / weights.sum(), self.atom_share)
        ranks = mid_ranks(np.maximum(share, _LIGHTEST))
        kept = _choose_knots(ranks, share, self.knots)
        unit = to_unit(ranks[kept], ranks[0], ranks[-1])
        return replace(self, x=tuple(values[kept].tolist()), u=tuple(unit.tolist()))

    def __call__(self, x: npt.ArrayLike) -> Float:
        x = np.asarray(x, dtype=np.float64)
        return self._interpolation(np.ascontiguousarray(x.reshape(-1))).reshape(x.shape)

    def inverse(self, u: npt.ArrayLike) -> Float:
        raw, unit = self._arrays
        found = np.interp(np.asarray(u, dtype=np.float64), unit, raw)
        return np.asarray(np.clip(found, raw[0], raw[-1]))

    def derivative(self, x: npt.ArrayLike) -> Float:
        """dT / dx; 0 beyond the ends."""
        x = np.asarray(x, dtype=np.float64)
        knots, u = self._arrays
        piece = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
        with np.errstate(all="ignore"):  # knots may be as close as two numbers can be
            return np.where((x >= knots[0]) & (x <= knots[-1]), (np.diff(u) / np.diff(knots))[piece], 0.0)

    @cached_property
    def _arrays(self) -> tuple[Float, Float]:
        return np.array(fitted_value(self, self.x or None)), np.array(self.u)

    @cached_property
    def _interpolation(self) -> Interpolation:
        return Interpolation(*self._arrays)

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without what is derived from them on demand."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _merge_neighbors(values: Float, weights: Float) -> tuple[Float, Float]:
    """Count neighbors less than 1e-300 apart as one: the slope between them would overflow."""
    first = np.concatenate(([True], np.diff(values) >= SMALLEST))
    return values[first], np.add.reduceat(weights, np.flatnonzero(first))


def _cap_shares(share: Float, cap: float) -> Float:
    """Lower the largest weights to a level of `cap` times the sum that is left.

    With the k largest at that level, level = cap (rest + k level). If there are too few values for
    the cap, all get the same weight.
    """
    ordered = np.sort(share)[::-1]
    k, rest, level = 0, float(share.sum()), cap
    while ordered[k] > level:
        rest -= float(ordered[k])
        k += 1
        if k == len(ordered) or k * cap > 1 - 1e-9:
            return np.full(len(share), ordered[-1])
        level = cap * rest / (1 - k * cap)
    return np.minimum(share, level)


def _choose_knots(ranks: Float, share: Float, knots: int) -> IndexArray:
    """Indices of the atoms and of the points nearest to evenly spaced ranks."""
    if len(ranks) <= knots:
        return np.arange(len(ranks))
    heaviest = np.argsort(-share, kind="stable")[: knots - 2]
    atoms = heaviest[share[heaviest] > 1 / knots]
    grid = np.linspace(ranks[0], ranks[-1], knots - len(atoms))
    after = np.clip(np.searchsorted(ranks, grid), 1, len(ranks) - 1)
    nearest = np.where(grid - ranks[after - 1] < ranks[after] - grid, after - 1, after)
    return np.union1d(atoms, nearest)


def _is_knots(x: tuple[float, ...], u: tuple[float, ...]) -> bool:
    return (u[0], u[-1]) == (0.0, 1.0) and bool((np.diff(x) > 0).all() and (np.diff(u) > 0).all())
