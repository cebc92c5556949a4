"""Parametric distributions whose CDF maps a column to [0, 1], and the choice of the best one.

Every family is a standard distribution of z = (x - location) / scale, so its parameters are always
(location, scale, *shapes) in the units of the column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy  # loads scipy.special and scipy.optimize only when a function below first touches them

Float: TypeAlias = npt.NDArray[np.float64]
Params: TypeAlias = tuple[float, ...]
Support: TypeAlias = Literal["real", "positive", "bounded"]

LARGEST = 1e290  # values beyond are pulled in, so that a span divided by a rank difference stays finite
SMALLEST = 1e-300  # the narrowest scale or gap, so that dividing by it stays finite
MAX_POINTS = 1000
MIN_HELD_OUT = 12  # with fewer distinct values the same points serve for fitting and scoring
TAIL = 1e-12  # ppf keeps u this far from 0 and 1, where unbounded families are infinite
_MAX_LOG = 30.0  # scales and shapes beyond exp(±30) are runaway fits, not distributions


class Family(NamedTuple):
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


# NumPy floats, so that a start value divided by a spread of zero is infinite instead of an exception.
def _mean(z: Float, weight: Float) -> np.float64:
    return np.float64(np.average(z, weights=weight))


def _deviation(z: Float, weight: Float) -> np.float64:
    return np.float64(np.sqrt(_mean((z - _mean(z, weight)) ** 2, weight)))


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
    """Return the share of the weight below each point plus half its own.

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


def _median_and_spread(z: Float, weight: Float) -> Params:
    """Location and scale of roughly logistic shape: the median, and half the interquartile range."""
    quarter, half, three = (weighted_quantile(z, weight, share) for share in (0.25, 0.5, 0.75))
    return half, (three - quarter) / 2 or _deviation(z, weight)


def _median_and_deviation(z: Float, weight: Float) -> Params:
    median = weighted_quantile(z, weight, 0.5)
    return median, _mean(np.abs(z - median), weight)


def _log_moments(z: Float, weight: Float) -> Params:
    return float(np.exp(_mean(np.log(z), weight))), _deviation(np.log(z), weight)


def _log_spread(z: Float, weight: Float) -> Params:
    """Scale and shape of a family where log z has a spread of about 1.5 / shape."""
    scale, deviation = _log_moments(z, weight)
    return scale, 1.5 / deviation


def _gamma_start(z: Float, weight: Float) -> Params:
    """Scale and shape by the approximate root of log a - digamma(a) = log mean(z) - mean(log z)."""
    mean = _mean(z, weight)
    s = max(np.log(mean) - _mean(np.log(z), weight), 1e-9)
    shape = float((3 - s + np.sqrt((s - 3) ** 2 + 24 * s)) / (12 * s))
    return mean / shape, shape


def _beta_start(z: Float, weight: Float) -> Params:
    mean, deviation = _mean(z, weight), _deviation(z, weight)
    total = max(mean * (1 - mean) / deviation**2 - 1, 1e-3)
    return mean * total, (1 - mean) * total


def _logistic_log_density(z: Float) -> Float:
    density: Float = -np.abs(z) - 2 * np.log1p(np.exp(-np.abs(z)))
    return density


_LOG_SQRT_2PI = 0.5 * np.log(2 * np.pi)

_ALL = (
    Family(
        name="normal",
        support="real",
        start=lambda z, w: (_mean(z, w), _deviation(z, w)),
        exact=True,
        log_density=lambda z: -0.5 * z**2 - _LOG_SQRT_2PI,
        cdf=lambda z: scipy.special.ndtr(z),
        ppf=lambda u: scipy.special.ndtri(u),
    ),
    Family(
        name="logistic",
        support="real",
        start=_median_and_spread,
        exact=False,
        log_density=_logistic_log_density,
        cdf=lambda z: scipy.special.expit(z),
        ppf=lambda u: scipy.special.logit(u),
    ),
    Family(
        name="laplace",
        support="real",
        start=_median_and_deviation,
        exact=True,
        log_density=lambda z: -np.abs(z) - np.log(2),
        cdf=lambda z: 0.5 - 0.5 * np.sign(z) * np.expm1(-np.abs(z)),
        ppf=lambda u: -np.sign(u - 0.5) * np.log1p(-2 * np.abs(u - 0.5)),
    ),
    Family(
        name="gumbel",
        support="real",
        start=_median_and_spread,
        exact=False,
        log_density=lambda z: -z - np.exp(-z),
        cdf=lambda z: np.exp(-np.exp(-z)),
        ppf=lambda u: -np.log(-np.log(u)),
    ),
    Family(
        name="cauchy",
        support="real",
        start=_median_and_spread,
        exact=False,
        log_density=lambda z: -np.log(np.pi) - np.log1p(z**2),
        cdf=lambda z: 0.5 + np.arctan(z) / np.pi,
        ppf=lambda u: np.tan(np.pi * (u - 0.5)),
    ),
    Family(
        name="exponential",
        support="positive",
        start=lambda z, w: (_mean(z, w),),
        exact=True,
        log_density=lambda z: -z,
        cdf=lambda z: -np.expm1(-z),
        ppf=lambda u: -np.log1p(-u),
    ),
    Family(
        name="half-normal",
        support="positive",
        start=lambda z, w: (float(np.sqrt(_mean(z**2, w))),),
        exact=True,
        log_density=lambda z: np.log(2) - 0.5 * z**2 - _LOG_SQRT_2PI,
        cdf=lambda z: scipy.special.erf(z / np.sqrt(2)),
        ppf=lambda u: np.sqrt(2) * scipy.special.erfinv(u),
    ),
    Family(
        name="weibull",
        support="positive",
        start=_log_spread,
        exact=False,
        log_density=lambda z, c: np.log(c) + (c - 1) * np.log(z) - z**c,
        cdf=lambda z, c: -np.expm1(-(z**c)),
        ppf=lambda u, c: (-np.log1p(-u)) ** (1 / c),
    ),
    Family(
        name="gamma",
        support="positive",
        start=_gamma_start,
        exact=False,
        log_density=lambda z, a: (a - 1) * np.log(z) - z - scipy.special.gammaln(a),
        cdf=lambda z, a: scipy.special.gammainc(a, z),
        ppf=lambda u, a: scipy.special.gammaincinv(a, u),
    ),
    Family(
        name="lognormal",
        support="positive",
        start=_log_moments,
        exact=True,
        log_density=lambda z, s: -np.log(z * s) - 0.5 * (np.log(z) / s) ** 2 - _LOG_SQRT_2PI,
        cdf=lambda z, s: scipy.special.ndtr(np.log(z) / s),
        ppf=lambda u, s: np.exp(s * scipy.special.ndtri(u)),
    ),
    Family(
        name="log-logistic",
        support="positive",
        start=_log_spread,
        exact=False,
        log_density=lambda z, c: np.log(c / z) + _logistic_log_density(c * np.log(z)),
        cdf=lambda z, c: scipy.special.expit(c * np.log(z)),
        ppf=lambda u, c: np.exp(scipy.special.logit(u) / c),
    ),
    Family(
        name="lomax",
        support="positive",
        start=lambda z, w: (weighted_quantile(z, w, 0.5), 1.0),
        exact=False,
        log_density=lambda z, a: np.log(a) - (a + 1) * np.log1p(z),
        cdf=lambda z, a: -np.expm1(-a * np.log1p(z)),
        ppf=lambda u, a: np.expm1(-np.log1p(-u) / a),
    ),
    Family(
        name="beta",
        support="bounded",
        start=_beta_start,
        exact=False,
        log_density=lambda z, a, b: (a - 1) * np.log(z) + (b - 1) * np.log1p(-z) - scipy.special.betaln(a, b),
        cdf=lambda z, a, b: scipy.special.betainc(a, b, z),
        ppf=lambda u, a, b: scipy.special.betaincinv(a, b, u),
    ),
    Family(
        name="kumaraswamy",
        support="bounded",
        start=_beta_start,
        exact=False,
        log_density=lambda z, a, b: np.log(a * b) + (a - 1) * np.log(z) + (b - 1) * np.log1p(-(z**a)),
        cdf=lambda z, a, b: -np.expm1(b * np.log1p(-(z**a))),
        ppf=lambda u, a, b: (-np.expm1(np.log1p(-u) / b)) ** (1 / a),
    ),
)
FAMILIES = {family.name: family for family in _ALL}

_DOMAIN = {"real": (-np.inf, np.inf), "positive": (0.0, np.inf), "bounded": (0.0, 1.0)}


def find_family(name: str) -> Family:
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
        z = np.clip((np.asarray(x, dtype=np.float64) - location) / scale, *_DOMAIN[family.support])
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
    for family in families if len(points[0]) > 1 else []:
        params = _fit_one(family, *train, bounds=bounds)
        distance = np.inf if params is None else _distance(family.name, params, *held_out)
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


def _distance(name: str, params: Params, x: Float, weight: Float) -> float:
    return float(np.sqrt(_mean((cdf(name, params, x) - mid_ranks(weight)) ** 2, weight)))


def _normal_by_moments(x: Float, weight: Float) -> tuple[str, Params, float]:
    unit = max(float(np.abs(x).max()), SMALLEST)  # keeps the squares of huge values finite
    mean, deviation = float(_mean(x / unit, weight)) * unit, float(_deviation(x / unit, weight)) * unit
    params = (float(x[0]), 1.0) if len(x) == 1 else (mean, max(deviation, SMALLEST))
    return "normal", params, _distance("normal", params, x, weight)


def _fit_one(family: Family, x: Float, weight: Float, bounds: tuple[float, float] | None) -> Params | None:
    """Parameters in raw units, or None if the family is not eligible or its fit not finite."""
    # Runaway fits overflow on the way; they are recognized by their result instead.
    with np.errstate(all="ignore"):
        center, unit = _standard_units(family.support, x, weight, bounds)
        if not 0 < unit < np.inf:
            return None
        z = _nudge_inside((x - center) / unit, family.support)
        location, scale, *shapes = _maximize_likelihood(family, z, weight)
        params = (center + location * unit, max(scale * unit, SMALLEST), *shapes)
    return tuple(map(float, params)) if np.isfinite(params).all() else None


def _standard_units(
    support: Support, x: Float, weight: Float, bounds: tuple[float, float] | None
) -> tuple[float, float]:
    """The location and scale that bring the column to ordinary size; scale 0 if not eligible."""
    if support == "real":
        center, spread = _median_and_spread(x, weight)
        return center, spread
    if x[0] < 0 and (support == "positive" or bounds is None):
        return 0.0, 0.0
    if support == "positive":
        return 0.0, float(np.exp(_mean(np.log(x[x > 0]), weight[x > 0])))
    if bounds is None:
        return 0.0, float(x[-1] <= 1)
    return bounds[0], bounds[1] - bounds[0]


def _nudge_inside(z: Float, support: Support) -> Float:
    """Values at a finite end of the support move in by half the distance of the nearest other value."""
    low, high = _DOMAIN[support]
    inside = z[(z > low) & (z < high)]
    if len(inside) == 0:
        return np.clip(z, 0.25, 0.75)
    return np.clip(z, (low + inside.min()) / 2, (high + inside.max()) / 2)


def _maximize_likelihood(family: Family, z: Float, weight: Float) -> Params:
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
    options = {"initial_simplex": simplex, "xatol": 1e-3, "fatol": 1e-6, "maxiter": 200}
    return natural(scipy.optimize.minimize(loss, theta, method="Nelder-Mead", options=options).x)


def _full_params(support: Support, free: Float) -> Params:
    fixed = {"real": (), "positive": (0.0,), "bounded": (0.0, 1.0)}[support]
    return (*fixed, *free)
