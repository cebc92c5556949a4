"""Parametric distributions whose CDF maps a column to [0, 1], and the maximum of their likelihood."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy  # loads scipy.special only when a function below first uses it

from splinefm.encode.transforms.points import LARGEST, Float, weighted_quantile
from splinefm.encode.transforms.scaling import arctan, exp, expm1, log, log1p, power

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
