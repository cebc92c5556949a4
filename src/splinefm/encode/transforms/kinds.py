"""Monotone maps T: x -> u in [0, 1] that spread a column over the interval a basis lives on.

A transform is a frozen dataclass that is at once the specification, the fitted object and what is saved.
`fit` returns a filled-in copy and keeps every value that was given. On the copy, `t(x)` clips to [0, 1] and
passes NaN through, and `t.inverse(u)` goes back. A column with a single value c learns the narrowest
range that starts there: u = 0 up to c and 1 above (`BestFitCDF`: a normal of scale 1 around c).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

from splinefm._core import Interpolation
from splinefm.encode.transforms import families as cdfs
from splinefm.encode.transforms.bestfit import fit_families
from splinefm.encode.transforms.points import SMALLEST, Float, distinct_points, mid_ranks, weighted_quantile

_LIMIT = 1e300  # given bounds stay below, so that their difference is finite
_LIGHTEST = 1e-12  # each value counts for at least this share of the rows, so that ranks differ as floats

T = TypeVar("T")


@runtime_checkable
class Transform(Protocol):
    """What a transform has to offer; any object with these members will do.

    Examples
    --------
    >>> isinstance(MinMax(), Transform)
    True
    """

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> Transform: ...

    def __call__(self, x: npt.ArrayLike) -> Float: ...

    def inverse(self, u: npt.ArrayLike) -> Float: ...


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
        _make_plain(self)
        _check_range(self.low, self.high)

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> MinMax:
        values, _ = distinct_points(x, weight)
        low, high = _learn_range(values, self.low, self.high)
        return replace(self, low=low, high=high)

    def __call__(self, x: npt.ArrayLike) -> Float:
        return _to_unit(x, _fitted(self, self.low), _fitted(self, self.high))

    def inverse(self, u: npt.ArrayLike) -> Float:
        return _from_unit(u, _fitted(self, self.low), _fitted(self, self.high))


@dataclass(frozen=True)
class Quantile:
    """The empirical CDF: piecewise linear through the mid-ranks, stretched to run from 0 to 1.

    A mid-rank is the share of the rows below a value plus half the share at the value. Values less
    than 1e-300 apart count as one.

    Parameters
    ----------
    knots
        At most so many values are kept, at evenly spaced ranks and always with both ends and, as far as
        they fit, the values that hold more than 1 / knots of the rows. With no more distinct values
        than that, all are kept.
    atom_share
        The largest part of the ranks left to a single value, however many rows it holds. A value with
        60 % of the rows would leave as much of [0, 1] without data.
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
        _make_plain(self)
        if not isinstance(self.knots, int) or self.knots < 2:
            raise ValueError(f"knots must be an integer of at least 2, got {self.knots!r}")
        _check_share("atom_share", self.atom_share)
        if len(self.x) != len(self.u):
            raise ValueError(f"x and u must have the same length, got {len(self.x)} and {len(self.u)}")
        if self.x and not _is_knots(self.x, self.u):
            raise ValueError("x and u must increase strictly, u from 0 to 1; leave both out to learn them")

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> Quantile:
        values, weights = _merge_neighbors(*distinct_points(x, weight))
        if self.x:
            return self
        if len(values) == 1:
            return replace(self, x=(values[0], _just_above(values[0])), u=(0.0, 1.0))
        share = _cap_shares(weights / weights.sum(), self.atom_share)
        ranks = mid_ranks(np.maximum(share, _LIGHTEST))
        kept = _choose_knots(ranks, share, self.knots)
        unit = _to_unit(ranks[kept], ranks[0], ranks[-1])
        return replace(self, x=tuple(values[kept].tolist()), u=tuple(unit.tolist()))

    def __call__(self, x: npt.ArrayLike) -> Float:
        x = np.asarray(x, dtype=np.float64)
        return self._interpolation(np.ascontiguousarray(x.reshape(-1))).reshape(x.shape)

    def inverse(self, u: npt.ArrayLike) -> Float:
        raw, unit = self._arrays
        found = np.interp(np.asarray(u, dtype=np.float64), unit, raw)
        return np.asarray(np.clip(found, raw[0], raw[-1]))

    @cached_property
    def _arrays(self) -> tuple[Float, Float]:
        return np.array(_fitted(self, self.x or None)), np.array(self.u)

    @cached_property
    def _interpolation(self) -> Interpolation:
        return Interpolation(*self._arrays)

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without what is made of them when it is needed."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


@dataclass(frozen=True)
class BestFitCDF:
    """The CDF of the parametric family that is nearest to held-out points.

    Parameters
    ----------
    families
        The names of the families to try; all that suit the column if left out.
    bounds
        The ends (low, high) of the bounded families; without them these are tried on columns that lie
        in [0, 1] only.
    family, params
        The family and its (location, scale, *shapes) in raw units. Both are learned, or only `params`
        if `family` is given.
    scores
        Learned: each family tried and its root mean square distance to the held-out ranks, best first.

    Examples
    --------
    >>> x = np.random.default_rng(0).gamma(2.0, 30.0, size=5000)
    >>> t = BestFitCDF(families=("gamma", "normal")).fit(x)
    >>> t.family
    'gamma'
    >>> t(t.inverse([0.1, 0.9])).round(6)
    array([0.1, 0.9])
    """

    families: tuple[str, ...] | None = None
    bounds: tuple[float, float] | None = None
    family: str | None = None
    params: tuple[float, ...] = ()
    scores: tuple[tuple[str, float], ...] = ()

    def __post_init__(self) -> None:
        _make_plain(self)
        if self.families is not None and not self.families:
            raise ValueError("families must name at least one family, got (); leave it out to try all")
        for name in (*(self.families or ()), *((self.family,) if self.family else ())):
            cdfs.find_family(name)
        if self.bounds is not None and len(self.bounds) != 2:
            raise ValueError(f"bounds must be (low, high), got {self.bounds}")
        _check_range(*(self.bounds or (None, None)))
        if self.params and not (self.family and len(self.params) > 1 and self.params[1] > 0):
            raise ValueError(
                f"params must be (location, scale above 0, *shapes) of a given family, got {self.params} "
                f"of {self.family}; leave them out to learn them"
            )

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> BestFitCDF:
        values, weights = distinct_points(x, weight)
        if self.params:
            return self
        names = self.families if self.family is None else (self.family,)
        ranking = fit_families(values, weights, names, self.bounds)
        family, params, _ = ranking[0]
        scores = tuple((name, distance) for name, _, distance in ranking)
        return replace(self, family=family, params=params, scores=scores)

    def __call__(self, x: npt.ArrayLike) -> Float:
        params = _fitted(self, self.params or None)
        return cdfs.cdf(_fitted(self, self.family), params, x)

    def inverse(self, u: npt.ArrayLike) -> Float:
        params = _fitted(self, self.params or None)
        return cdfs.ppf(_fitted(self, self.family), params, u)

    def report(self) -> str:
        """Say which family won and by how much.

        Examples
        --------
        >>> x = np.random.default_rng(0).normal(size=5000)
        >>> print(BestFitCDF(families=("normal", "cauchy")).fit(x).report())
        normal is nearest to the held-out ranks
        family         distance  times the best
        normal          0.00551             1.0
        cauchy          0.03557             6.5
        """
        if self.params and not self.scores:
            return f"{self.family} with the parameters that were given"
        best = _fitted(self, self.scores or None)[0][1]
        lines = [
            f"{self.family} is nearest to the held-out ranks",
            f"{'family':<12} {'distance':>10} {'times the best':>15}",
        ]
        for name, distance in self.scores:
            ratio = distance / best if best > 0 else math.inf if distance > 0 else 1.0
            lines.append(f"{name:<12} {distance:>10.5f} {ratio:>15.1f}")
        return "\n".join(lines)


@dataclass(frozen=True)
class ArcsinhSquare:
    """u = (w(x) - w(low)) / (w(high) - w(low)) with w(x) = sign(x) asinh(|x|)².

    Near zero w is about x², far out it grows as log(2x)²: for counts and amounts with a heavy tail.

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
        _make_plain(self)
        _check_range(self.low, self.high)
        if self.clip is not None:
            _check_share("clip", self.clip)

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> ArcsinhSquare:
        values, weights = distinct_points(x, weight)
        if self.clip is not None:
            values = values[values <= weighted_quantile(values, weights, self.clip)]
        low, high = _learn_range(values, self.low, self.high)
        return replace(self, low=low, high=high)

    def __call__(self, x: npt.ArrayLike) -> Float:
        return _to_unit(x, _fitted(self, self.low), _fitted(self, self.high), _arcsinh_square)

    def inverse(self, u: npt.ArrayLike) -> Float:
        low, high = _fitted(self, self.low), _fitted(self, self.high)
        return _from_unit(u, low, high, _arcsinh_square, lambda w: np.sign(w) * np.sinh(np.sqrt(np.abs(w))))


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
        _make_plain(self)
        _check_range(self.low, self.high)
        if self.shift is not None and not abs(self.shift) <= _LIMIT:
            raise ValueError(f"shift must lie between -{_LIMIT} and {_LIMIT}, got {self.shift}")
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
        low, high = _learn_range(positive, self.low, self.high)
        return replace(self, shift=shift, low=low, high=high)

    def __call__(self, x: npt.ArrayLike) -> Float:
        shift = _fitted(self, self.shift)
        return _to_unit(x, _fitted(self, self.low), _fitted(self, self.high), lambda z: np.log(z + shift))

    def inverse(self, u: npt.ArrayLike) -> Float:
        shift, low, high = _fitted(self, self.shift), _fitted(self, self.low), _fitted(self, self.high)
        return _from_unit(u, low, high, lambda z: np.log(z + shift), lambda v: np.exp(v) - shift)


@dataclass(frozen=True)
class CustomTransform:
    """Two functions of your own, clipped to [0, 1]; nothing is learned, and it cannot be saved.

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


# Those that can be written to a file.
TRANSFORMS = (MinMax, Quantile, BestFitCDF, ArcsinhSquare, Log)


def _arcsinh_square(x: Float) -> Float:
    squared: Float = np.sign(x) * np.arcsinh(np.abs(x)) ** 2
    return squared


def _identity(x: Float) -> Float:
    return x


def _to_unit(x: npt.ArrayLike, low: float, high: float, warp: Callable[[Float], Float] = _identity) -> Float:
    """Clip to [low, high], warp, and rescale to [0, 1]."""
    inside = np.clip(np.asarray(x, dtype=np.float64), low, high)
    start, stop = warp(np.array([low, high]))
    if not start < stop:  # ends so close that the warp cannot tell them apart
        return _to_unit(inside, low, high)
    return np.asarray(np.clip((warp(inside) - start) / (stop - start), 0.0, 1.0))


def _from_unit(
    u: npt.ArrayLike,
    low: float,
    high: float,
    warp: Callable[[Float], Float] = _identity,
    unwarp: Callable[[Float], Float] = _identity,
) -> Float:
    """Invert `_to_unit`, with `low` and `high` returned exactly at 0 and 1."""
    inside = np.clip(np.asarray(u, dtype=np.float64), 0.0, 1.0)
    start, stop = warp(np.array([low, high]))
    if not start < stop:
        return _from_unit(inside, low, high)
    x = np.clip(unwarp(start + inside * (stop - start)), low, high)
    return np.where(inside == 0, low, np.where(inside == 1, high, x))


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


def _choose_knots(ranks: Float, share: Float, knots: int) -> npt.NDArray[np.intp]:
    """Indices of the atoms and of the points nearest to evenly spaced ranks."""
    if len(ranks) <= knots:
        return np.arange(len(ranks))
    heaviest = np.argsort(-share, kind="stable")[: knots - 2]
    atoms = heaviest[share[heaviest] > 1 / knots]
    grid = np.linspace(ranks[0], ranks[-1], knots - len(atoms))
    after = np.clip(np.searchsorted(ranks, grid), 1, len(ranks) - 1)
    nearest = np.where(grid - ranks[after - 1] < ranks[after] - grid, after - 1, after)
    return np.union1d(atoms, nearest)


def _learn_range(values: Float, low: float | None, high: float | None) -> tuple[float, float]:
    smallest, largest = float(values[0]), float(values[-1])
    if low is not None and low > largest:
        raise ValueError(f"low must be at most the largest value, {largest}, got {low}; leave it out")
    if high is not None and high < smallest:
        raise ValueError(f"high must be at least the smallest value, {smallest}, got {high}; leave it out")
    start, stop = smallest if low is None else low, largest if high is None else high
    if start < stop:
        return start, stop
    return (start, _just_above(start)) if high is None else (-_just_above(-stop), stop)


def _learn_shift(smallest: float) -> float:
    if smallest > 0:
        return 0.0
    # 1 - min rounds to -min for huge values, and the logarithm of 0 must not be reached.
    return float(max(1 - smallest, np.nextafter(-smallest, np.inf)))


def _just_above(value: float) -> float:
    return float(np.nextafter(value, np.inf))


def _fitted(owner: object, value: T | None) -> T:
    if value is None:
        raise ValueError(f"{type(owner).__name__} is not fitted; call fit first")
    return value


def _is_knots(x: tuple[float, ...], u: tuple[float, ...]) -> bool:
    return (u[0], u[-1]) == (0.0, 1.0) and bool((np.diff(x) > 0).all() and (np.diff(u) > 0).all())


def _check_range(low: float | None, high: float | None) -> None:
    for name, end in (("low", low), ("high", high)):
        if end is not None and not abs(end) <= _LIMIT:
            raise ValueError(f"{name} must lie between -{_LIMIT} and {_LIMIT}, got {end}")
    if low is not None and high is not None and not low < high:
        raise ValueError(f"low must be less than high, got low={low} and high={high}")


def _check_share(name: str, share: float) -> None:
    if not 0 < share <= 1:
        raise ValueError(f"{name} must be above 0 and at most 1, got {share}")


def _make_plain(spec: Any) -> None:
    """Turn arrays, lists and NumPy numbers in the fields into tuples and Python numbers."""
    for field in fields(spec):
        object.__setattr__(spec, field.name, _plain(getattr(spec, field.name)))


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    return tuple(map(_plain, value)) if isinstance(value, tuple | list) else value
