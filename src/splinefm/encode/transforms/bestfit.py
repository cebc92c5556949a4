"""BestFitCDF: the CDF of the parametric family that is closest to a column."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm.encode.transforms.families import (
    DOMAIN,
    FAMILIES,
    Distribution,
    Params,
    Support,
    cdf,
    deviation_of,
    find_family,
    mean_of,
    median_and_spread,
    ppf,
)
from splinefm.encode.transforms.points import (
    LARGEST,
    SMALLEST,
    Float,
    check_range,
    distinct_points,
    fitted_value,
    make_plain,
    mid_ranks,
)

# The minimum of a function of a few numbers, without derivatives.
#
# The steps are those of SciPy's `minimize(method="Nelder-Mead")`. They are written down here because importing
# `scipy.optimize` takes a quarter of a second of every new process, and the fit of a column takes milliseconds.


def nelder_mead(
    loss: Callable[[Float], float], simplex: npt.ArrayLike, *, xatol: float, fatol: float, steps: int
) -> Float:
    """Return the best point that a downhill simplex finds (Nelder & Mead, 1965).

    With w the worst of the n + 1 vertices and c the mean of the others, x(t) = (1 + t) c - t w is a line through both.
    A step replaces w by one of four points:

    - x(1), the reflection of w, if it is better than the second worst vertex;
    - x(2), if x(1) is better than all vertices and x(2) still better;
    - otherwise x(1/2) or, if x(1) is no better than w, x(-1/2), if that is an improvement.

    If it is none, all vertices move half way to the best one.

    Parameters
    ----------
    loss
        Function of n numbers. It may be infinite or NaN, which counts as infinite.
    simplex
        The vertices to begin with, shape (n + 1, n).
    xatol, fatol
        The search ends when all vertices are within `xatol` of the best one, in every coordinate, and their losses
        within `fatol` of its loss.
    steps
        Most steps.

    Examples
    --------
    >>> nelder_mead(lambda x: (x[0] - 3) ** 2, [[0.0], [1.0]], xatol=1e-6, fatol=1e-6, steps=100).round(3)
    array([3.])
    """

    def at(point: Float) -> float:
        value = float(loss(point))
        return value if value == value else np.inf

    points = np.asarray(simplex, dtype=np.float64)
    values = np.array([at(point) for point in points])
    for _ in range(steps):
        order = values.argsort(kind="stable")
        points, values = points[order], values[order]
        # Infinite losses count as equal: their difference would be NaN.
        if np.abs(points - points[0]).max() <= xatol and not values[-1] > values[0] + fatol:
            break
        better = _better_than_worst(at, points, values)
        if better is not None:
            points[-1], values[-1] = better
        else:
            points[1:] = points[0] + 0.5 * (points[1:] - points[0])
            values[1:] = [at(point) for point in points[1:]]
    return np.array(points[values.argmin()])


def _better_than_worst(at: Callable[[Float], float], points: Float, values: Float) -> tuple[Float, float] | None:
    """The point that replaces the last of the sorted vertices, with its loss; None if there is none."""
    center = points[:-1].sum(axis=0) / (len(points) - 1)

    def attempt(t: float) -> tuple[Float, float]:
        point = (1.0 + t) * center - t * points[-1]
        return point, at(point)

    reflected = attempt(1.0)
    if reflected[1] < values[0]:
        expanded = attempt(2.0)
        return expanded if expanded[1] < reflected[1] else reflected
    if reflected[1] < values[-2]:
        return reflected
    if reflected[1] < values[-1]:
        outside = attempt(0.5)
        return outside if outside[1] <= reflected[1] else None
    inside = attempt(-0.5)
    return inside if inside[1] < values[-1] else None


MAX_POINTS = 1000
MIN_HELD_OUT = 12  # with fewer distinct values the same points serve for fitting and scoring
_MAX_STEPS = 199
_MAX_LOG = 30.0  # scales and shapes beyond exp(±30) are runaway fits, not distributions


@dataclass(frozen=True)
class BestFitCDF:
    """The CDF of the parametric family that is closest to held-out points.

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
        make_plain(self)
        if self.families is not None and not self.families:
            raise ValueError("families must name at least one family, got (); leave it out to try all")
        for name in (*(self.families or ()), *((self.family,) if self.family else ())):
            find_family(name)
        if self.bounds is not None and len(self.bounds) != 2:
            raise ValueError(f"bounds must be (low, high), got {self.bounds}")
        check_range(*(self.bounds or (None, None)))
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
        params = fitted_value(self, self.params or None)
        return cdf(fitted_value(self, self.family), params, x)

    def inverse(self, u: npt.ArrayLike) -> Float:
        params = fitted_value(self, self.params or None)
        return ppf(fitted_value(self, self.family), params, u)

    def derivative(self, x: npt.ArrayLike) -> Float:
        """dT / dx, the density of the family; 0 outside of its support."""
        family = find_family(fitted_value(self, self.family))
        location, scale, *shapes = fitted_value(self, self.params or None)
        low, high = DOMAIN[family.support]
        with np.errstate(all="ignore"):  # some densities are infinite at an end
            z = (np.asarray(x, dtype=np.float64) - location) / scale
            density = np.exp(family.log_density(np.clip(z, low, high), *shapes)) / scale
            return np.where((z >= low) & (z <= high), density, 0.0)

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
        best = fitted_value(self, self.scores or None)[0][1]
        lines = [
            f"{self.family} is nearest to the held-out ranks",
            f"{'family':<12} {'distance':>10} {'times the best':>15}",
        ]
        for name, distance in self.scores:
            ratio = distance / best if best > 0 else math.inf if distance > 0 else 1.0
            lines.append(f"{name:<12} {distance:>10.5f} {ratio:>15.1f}")
        return "\n".join(lines)


def fit_families(
    x: npt.ArrayLike,
    weight: npt.ArrayLike | None = None,
    names: Sequence[str] | None = None,
    bounds: tuple[float, float] | None = None,
) -> list[tuple[str, Params, float]]:
    """Fit families by maximum likelihood and rank them by their distance to held-out points.

    The distance is the root mean square of F(x) - rank(x) over every third distinct value, which the fit
    does not see. Positive families take part if no value is negative; bounded ones if `bounds` is
    given (values outside count as the nearest bound) or all values lie in [0, 1]. A family whose fit is
    not finite is dropped, and if none is left the answer is the normal with the column's moments.

    Parameters
    ----------
    x, weight
        Finite values and their non-negative counts (1 each if left out). More than 1000 distinct
        values are thinned to 1000 at evenly spaced ranks.
    names
        The families to try; all of them if left out.
    bounds
        The ends of the bounded families.

    Returns
    -------
    list of (name, (location, scale, *shapes), distance), best first

    Examples
    --------
    >>> x = np.random.default_rng(0).gumbel(5.0, 2.0, size=2000)
    >>> name, (location, scale), distance = fit_families(x)[0]
    >>> name, round(location, 1), round(scale, 1), distance < 0.02
    ('gumbel', 5.0, 2.0, True)
    """
    families = [find_family(name) for name in (FAMILIES if names is None else names)]
    points = _thin(*distinct_points(x, weight))
    train, held_out = _split(*points)
    found = []
    ranks = mid_ranks(held_out[1])
    standard = {support: _standardize(support, *train, bounds) for support in {family.support for family in families}}
    for family in families if len(points[0]) > 1 else []:
        params = _fit_one(family, *standard[family.support], train[1])
        distance = np.inf if params is None else _distance(family.name, params, *held_out, ranks)
        if params is not None and np.isfinite(distance):
            found.append((family.name, params, distance))
    return sorted(found, key=lambda row: row[2]) or [_normal_by_moments(*points)]


def _thin(x: Float, weight: Float) -> tuple[Float, Float]:
    if len(x) <= MAX_POINTS:
        return x, weight
    below = np.cumsum(weight)
    ranks = (np.arange(MAX_POINTS) + 0.5) / MAX_POINTS * below[-1]
    chosen, count = np.unique(np.searchsorted(below, ranks), return_counts=True)
    return x[chosen], count.astype(np.float64)


def _split(x: Float, weight: Float) -> tuple[tuple[Float, Float], tuple[Float, Float]]:
    if len(x) < MIN_HELD_OUT:
        return (x, weight), (x, weight)
    # The middle of each three, so that the held-out ranks are not shifted to one side.
    held_out = np.arange(len(x)) % 3 == 1
    return (x[~held_out], weight[~held_out]), (x[held_out], weight[held_out])


def _distance(name: str, params: Params, x: Float, weight: Float, ranks: Float) -> float:
    return float(np.sqrt(mean_of((cdf(name, params, x) - ranks) ** 2, weight)))


def _normal_by_moments(x: Float, weight: Float) -> tuple[str, Params, float]:
    unit = max(float(np.abs(x).max()), SMALLEST)  # keeps the squares of huge values finite
    mean, deviation = float(mean_of(x / unit, weight)) * unit, float(deviation_of(x / unit, weight)) * unit
    params = (float(x[0]), 1.0) if len(x) == 1 else (mean, max(deviation, SMALLEST))
    return "normal", params, _distance("normal", params, x, weight, mid_ranks(weight))


class _Standard(NamedTuple):
    """Values as (x - center) / unit, inside a support; unit 0 where families of that support are not eligible."""

    center: float
    unit: float
    z: Float


def _standardize(support: Support, x: Float, weight: Float, bounds: tuple[float, float] | None) -> _Standard:
    with np.errstate(all="ignore"):
        center, unit = _standard_units(support, x, weight, bounds)
        return _Standard(center, unit, _nudge_inside((x - center) / unit, support) if 0 < unit < np.inf else x)


def _fit_one(family: Distribution, center: float, unit: float, z: Float, weight: Float) -> Params | None:
    """Parameters in raw units, or None if the family is not eligible or its fit not finite."""
    if not 0 < unit < np.inf:
        return None
    # Runaway fits overflow on the way; they are recognized by their result instead.
    with np.errstate(all="ignore"):
        location, scale, *shapes = _maximize_likelihood(family, z, weight)
        params = (center + location * unit, max(scale * unit, SMALLEST), *shapes)
    return tuple(map(float, params)) if np.isfinite(params).all() else None


def _standard_units(
    support: Support, x: Float, weight: Float, bounds: tuple[float, float] | None
) -> tuple[float, float]:
    """The location and scale that bring the column to ordinary size; scale 0 if not eligible."""
    if support == "real":
        center, spread = median_and_spread(x, weight)
        return center, spread
    if x[0] < 0 and (support == "positive" or bounds is None):
        return 0.0, 0.0
    if support == "positive":
        return 0.0, float(np.exp(mean_of(np.log(x[x > 0]), weight[x > 0])))
    if bounds is None:
        return 0.0, float(x[-1] <= 1)
    return bounds[0], bounds[1] - bounds[0]


def _nudge_inside(z: Float, support: Support) -> Float:
    """Values at a finite end of the support move in by half the distance of the nearest other value."""
    low, high = DOMAIN[support]
    inside = z[(z > low) & (z < high)]
    if len(inside) == 0:
        return np.clip(z, 0.25, 0.75)
    return np.clip(z, (low + inside.min()) / 2, (high + inside.max()) / 2)


def _maximize_likelihood(family: Distribution, z: Float, weight: Float) -> Params:
    found = family.maximum(z, weight)
    if found is not None and np.isfinite(found).all():
        return _full_params(family.support, np.array(found))
    start = np.array(family.start(z, weight))
    if family.exact or not np.isfinite(start).all():
        return _full_params(family.support, start)
    is_log = np.arange(len(start)) >= (family.support == "real")
    theta = np.where(is_log, np.log(np.abs(start)), start)
    share = weight / weight.sum()

    def natural(theta: Float) -> Params:
        return _full_params(family.support, np.where(is_log, np.exp(theta), theta))

    def loss(theta: Float) -> float:
        location, scale, *shapes = natural(theta)
        value = np.log(scale) - share @ family.log_density((z - location) / scale, *shapes)
        return float(value) if np.isfinite(value) and np.abs(theta).max() < _MAX_LOG else LARGEST

    simplex = theta + 0.25 * np.eye(len(theta) + 1, len(theta), k=-1)
    return natural(nelder_mead(loss, simplex, xatol=1e-3, fatol=1e-6, steps=_MAX_STEPS))


def _full_params(support: Support, free: Float) -> Params:
    fixed = {"real": (), "positive": (0.0,), "bounded": (0.0, 1.0)}[support]
    return (*fixed, *free)
