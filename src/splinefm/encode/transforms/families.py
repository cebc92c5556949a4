"""Parametric distributions whose CDF maps a column to [0, 1].

Every family is a standard distribution of z = (x - location) / scale, so its parameters are always
(location, scale, *shapes) in the units of the column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy  # loads scipy.special only when a function below first uses it

from splinefm.encode.transforms.elementary import arctan, exp, expm1, log, log1p, power
from splinefm.encode.transforms.likelihood import (
    cauchy_maximum,
    gamma_maximum,
    gumbel_maximum,
    log_logistic_maximum,
    logistic_maximum,
    lomax_maximum,
    weibull_maximum,
)
from splinefm.encode.transforms.points import LARGEST, Float, weighted_quantile

Params: TypeAlias = tuple[float, ...]
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
