"""BestFitCDF: the parametric distribution that describes a column best."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy  # loads scipy.special only when a function below first uses it

from splinefm.encode.transforms.scaling import (
    LARGEST,
    SMALLEST,
    Float,
    arctan,
    check_range,
    distinct_points,
    exp,
    expm1,
    fitted_value,
    log,
    log1p,
    make_plain,
    mid_ranks,
    power,
    weighted_quantile,
)

# The maximum of the likelihood of a family, in a few steps by its equations.
#
# A table may have thousands of columns, and a simplex evaluates all values of each about seventy times. Each function
# here takes standardized points and their weights, and returns free parameters (see `Distribution.start`), or None
# where the steps do not converge: then the simplex takes over.

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
    """Location and scale of a Gumbel distribution (of largest values), by Newton steps for the scale only."""
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


# Parametric distributions whose CDF maps a column to [0, 1].
#
# Every family is a standard distribution of z = (x - location) / scale, so its parameters are always
# (location, scale, *shapes) in the units of the column.

Support: TypeAlias = Literal["real", "positive", "bounded"]

TAIL = 1e-12  # ppf keeps u this far from 0 and 1, where unbounded families are infinite


class Distribution(NamedTuple):
    """A distribution in standard form.

    Parameters
    ----------
    name, support
        "real" families have a free location and scale, "positive" ones a free scale and shapes,
        "bounded" ones live on [0, 1] and have free shapes only.
    start
        Of standardized points and weights: the free parameters to start from.
    exact
        Whether the start already maximizes the likelihood.
    log_density, cdf, ppf
        Of z (or u) and the shapes.
    maximum
        Of standardized points and weights: the free parameters that maximize the likelihood, by the equations
        of the family; None where it has none or they do not converge.

    Examples
    --------
    >>> FAMILIES["weibull"].support
    'positive'
    >>> float(FAMILIES["exponential"].cdf(np.log(2.0)))
    0.5
    """

    name: str
    support: Support
    start: Callable[[Float, Float], Params]
    exact: bool
    log_density: Callable[..., Any]
    cdf: Callable[..., Any]
    ppf: Callable[..., Any]
    maximum: Callable[[Float, Float], Params | None] = lambda z, weight: None


# NumPy floats, so that a start value divided by a spread of zero is infinite instead of an exception.
def mean_of(z: Float, weight: Float) -> np.float64:
    """Weighted mean."""
    return np.float64(np.dot(weight, z) / weight.sum())  # np.average takes five times as long


def deviation_of(z: Float, weight: Float) -> np.float64:
    """Weighted standard deviation."""
    return np.float64(np.sqrt(mean_of((z - mean_of(z, weight)) ** 2, weight)))


def median_and_spread(z: Float, weight: Float) -> Params:
    """Location and scale of roughly logistic shape: the median, and half the interquartile range."""
    quarter, half, three = (weighted_quantile(z, weight, share) for share in (0.25, 0.5, 0.75))
    return half, (three - quarter) / 2 or deviation_of(z, weight)


def _median_and_deviation(z: Float, weight: Float) -> Params:
    median = weighted_quantile(z, weight, 0.5)
    return median, mean_of(np.abs(z - median), weight)


def _log_moments(z: Float, weight: Float) -> Params:
    return float(np.exp(mean_of(np.log(z), weight))), deviation_of(np.log(z), weight)


def _log_spread(z: Float, weight: Float) -> Params:
    """Scale and shape of a family where log z has a spread of about 1.5 / shape."""
    scale, deviation = _log_moments(z, weight)
    return scale, 1.5 / deviation


def _gamma_start(z: Float, weight: Float) -> Params:
    """Scale and shape by the approximate root of log a - digamma(a) = log mean_of(z) - mean_of(log z)."""
    mean = mean_of(z, weight)
    s = max(np.log(mean) - mean_of(np.log(z), weight), 1e-9)
    shape = float((3 - s + np.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s))
    return mean / shape, shape


def _beta_start(z: Float, weight: Float) -> Params:
    mean, deviation = mean_of(z, weight), deviation_of(z, weight)
    total = max(mean * (1 - mean) / deviation**2 - 1, 1e-3)
    return mean * total, (1 - mean) * total


def _logistic_log_density(z: Float) -> Float:
    density: Float = -np.abs(z) - 2 * np.log1p(np.exp(-np.abs(z)))
    return density


_LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)

_ALL = (
    Distribution(
        name="normal",
        support="real",
        start=lambda z, w: (mean_of(z, w), deviation_of(z, w)),
        exact=True,
        log_density=lambda z: -0.5 * z**2 - _LOG_SQRT_2PI,
        cdf=lambda z: scipy.special.ndtr(z),
        ppf=lambda u: scipy.special.ndtri(u),
    ),
    Distribution(
        name="logistic",
        support="real",
        start=median_and_spread,
        exact=False,
        log_density=_logistic_log_density,
        cdf=lambda z: scipy.special.expit(z),
        ppf=lambda u: scipy.special.logit(u),
        maximum=logistic_maximum,
    ),
    Distribution(
        name="laplace",
        support="real",
        start=_median_and_deviation,
        exact=True,
        log_density=lambda z: -np.abs(z) - np.log(2),
        cdf=lambda z: 0.5 - 0.5 * np.sign(z) * expm1(-np.abs(z)),
        ppf=lambda u: -np.sign(u - 0.5) * np.log1p(-2 * np.abs(u - 0.5)),
    ),
    Distribution(
        name="gumbel",
        support="real",
        start=median_and_spread,
        exact=False,
        log_density=lambda z: -z - np.exp(-z),
        cdf=lambda z: exp(-exp(-z)),
        ppf=lambda u: -np.log(-np.log(u)),
        maximum=gumbel_maximum,
    ),
    Distribution(
        name="cauchy",
        support="real",
        start=median_and_spread,
        exact=False,
        log_density=lambda z: -np.log(np.pi) - np.log1p(z**2),
        cdf=lambda z: 0.5 + arctan(z) / np.pi,
        ppf=lambda u: np.tan(np.pi * (u - 0.5)),
        maximum=cauchy_maximum,
    ),
    Distribution(
        name="exponential",
        support="positive",
        start=lambda z, w: (mean_of(z, w),),
        exact=True,
        log_density=lambda z: -z,
        cdf=lambda z: -expm1(-z),
        ppf=lambda u: -np.log1p(-u),
    ),
    Distribution(
        name="half-normal",
        support="positive",
        start=lambda z, w: (float(np.sqrt(mean_of(z**2, w))),),
        exact=True,
        log_density=lambda z: np.log(2) - 0.5 * z**2 - _LOG_SQRT_2PI,
        cdf=lambda z: scipy.special.erf(z / np.sqrt(2)),
        ppf=lambda u: np.sqrt(2) * scipy.special.erfinv(u),
    ),
    Distribution(
        name="weibull",
        support="positive",
        start=_log_spread,
        exact=False,
        log_density=lambda z, c: np.log(c) + (c - 1) * np.log(z) - z**c,
        cdf=lambda z, c: -expm1(-power(z, c)),
        ppf=lambda u, c: (-np.log1p(-u)) ** (1 / c),
        maximum=weibull_maximum,
    ),
    Distribution(
        name="gamma",
        support="positive",
        start=_gamma_start,
        exact=False,
        log_density=lambda z, a: (a - 1) * np.log(z) - z - scipy.special.gammaln(a),
        cdf=lambda z, a: scipy.special.gammainc(a, z),
        ppf=lambda u, a: scipy.special.gammaincinv(a, u),
        maximum=gamma_maximum,
    ),
    Distribution(
        name="lognormal",
        support="positive",
        start=_log_moments,
        exact=True,
        log_density=lambda z, s: -np.log(z * s) - 0.5 * (np.log(z) / s) ** 2 - _LOG_SQRT_2PI,
        cdf=lambda z, s: scipy.special.ndtr(log(z) / s),
        ppf=lambda u, s: np.exp(s * scipy.special.ndtri(u)),
    ),
    Distribution(
        name="log-logistic",
        support="positive",
        start=_log_spread,
        exact=False,
        log_density=lambda z, c: np.log(c / z) + _logistic_log_density(c * np.log(z)),
        cdf=lambda z, c: scipy.special.expit(c * log(z)),
        ppf=lambda u, c: np.exp(scipy.special.logit(u) / c),
        maximum=log_logistic_maximum,
    ),
    Distribution(
        name="lomax",
        support="positive",
        start=lambda z, w: (weighted_quantile(z, w, 0.5), 1.0),
        exact=False,
        log_density=lambda z, a: np.log(a) - (a + 1) * np.log1p(z),
        cdf=lambda z, a: -expm1(-a * log1p(z)),
        ppf=lambda u, a: np.expm1(-np.log1p(-u) / a),
        maximum=lomax_maximum,
    ),
    Distribution(
        name="beta",
        support="bounded",
        start=_beta_start,
        exact=False,
        log_density=lambda z, a, b: (a - 1) * np.log(z) + (b - 1) * np.log1p(-z) - scipy.special.betaln(a, b),
        cdf=lambda z, a, b: scipy.special.betainc(a, b, z),
        ppf=lambda u, a, b: scipy.special.betaincinv(a, b, u),
    ),
    Distribution(
        name="kumaraswamy",
        support="bounded",
        start=_beta_start,
        exact=False,
        log_density=lambda z, a, b: np.log(a * b) + (a - 1) * np.log(z) + (b - 1) * np.log1p(-(z**a)),
        cdf=lambda z, a, b: -expm1(b * log1p(-power(z, a))),
        ppf=lambda u, a, b: (-np.expm1(np.log1p(-u) / b)) ** (1 / a),
    ),
)
FAMILIES = {family.name: family for family in _ALL}

DOMAIN = {"real": (-np.inf, np.inf), "positive": (0.0, np.inf), "bounded": (0.0, 1.0)}


def find_family(name: str) -> Distribution:
    """Return the family of that name; an unknown name raises an error that lists the known ones.

    Examples
    --------
    >>> find_family("gamma").name
    'gamma'
    """
    if name not in FAMILIES:
        raise ValueError(f"family must be one of {', '.join(FAMILIES)}, got {name!r}")
    return FAMILIES[name]


def cdf(name: str, params: Sequence[float], x: npt.ArrayLike) -> Float:
    """Return the CDF of a family at `x`, where `params` is (location, scale, *shapes).

    Examples
    --------
    >>> cdf("cauchy", (10.0, 2.0), [10.0, 12.0])
    array([0.5 , 0.75])
    """
    family, (location, scale, *shapes) = find_family(name), params
    # Overflow and log(0) give infinities, and those are the limits the formulas need.
    with np.errstate(over="ignore", divide="ignore"):
        z = np.clip((np.asarray(x, dtype=np.float64) - location) / scale, *DOMAIN[family.support])
        return np.asarray(np.clip(family.cdf(z, *shapes), 0.0, 1.0))


def ppf(name: str, params: Sequence[float], u: npt.ArrayLike) -> Float:
    """Return the quantile function, the inverse of `cdf`; u is kept 1e-12 away from 0 and 1.

    Examples
    --------
    >>> ppf("cauchy", (10.0, 2.0), [0.5, 0.75])
    array([10., 12.])
    """
    family, (location, scale, *shapes) = find_family(name), params
    inside = np.clip(np.asarray(u, dtype=np.float64), TAIL, 1 - TAIL)
    with np.errstate(over="ignore"):  # extreme shapes reach infinity, which the clip brings back
        return np.asarray(np.clip(location + scale * family.ppf(inside, *shapes), -LARGEST, LARGEST))


# BestFitCDF: the CDF of the parametric family that is closest to a column.


# The minimum of a function of a few numbers, without derivatives.
#
# The steps are the same as in SciPy's `minimize(method="Nelder-Mead")`. They are written down here because importing
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
