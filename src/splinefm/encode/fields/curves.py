"""Curves in u: SciPy's splines of a basis, their pieces and roots, and the slopes of transforms."""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.encode.bases.bins import Bins
from splinefm.encode.bases.functions import Polynomial
from splinefm.encode.bases.splines import BSpline, MultiResolution
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.transforms.bestfit import BestFitCDF
from splinefm.encode.transforms.families import DOMAIN, find_family
from splinefm.encode.transforms.quantile import Quantile
from splinefm.encode.transforms.scaling import ArcsinhSquare, Log, MinMax
from splinefm.encode.transforms.transform import Transform

FloatArray = npt.NDArray[np.float64]


def scipy_spline(basis: BSpline, values: FloatArray) -> Any:
    from scipy.interpolate import BSpline as ScipySpline

    if basis.periodic:  # the functions at the end are those at the start
        values = values[np.arange(basis.segments + basis.degree) % basis.segments]
    return ScipySpline(basis.extended_knots, values, basis.degree, extrapolate="periodic" if basis.periodic else False)


def sum_of_levels(basis: MultiResolution, values: FloatArray, intercept: Any) -> Any:
    from scipy.interpolate import PPoly

    ends = np.cumsum([0, *basis.sizes])
    levels = [scipy_spline(level, values[ends[i] : ends[i + 1]]) for i, level in enumerate(basis.levels)]
    breaks = _breaks(basis)
    # Taylor coefficients at the left end of each piece, the highest power first.
    powers = range(basis.degree, -1, -1)
    c = np.stack([sum(level(breaks[:-1], nu=power) for level in levels) / factorial(power) for power in powers])
    c[-1] += intercept
    return PPoly(c, breaks, extrapolate=False)


def scipy_polynomial(basis: Polynomial, values: FloatArray, intercept: Any) -> Any:
    from scipy.interpolate import BPoly, PPoly

    n, breaks = basis.degree + 1, np.array([0.0, 1.0])
    if basis.family == "bernstein":
        powers = PPoly.from_bernstein_basis(BPoly(np.eye(n)[:, None, :], breaks)).c[:, 0, :]
    else:
        family = np.polynomial.Chebyshev if basis.family == "chebyshev" else np.polynomial.Legendre
        each = [family.basis(i, domain=[0, 1]) for i in range(n)]
        coefs = [item.convert(kind=np.polynomial.Polynomial, domain=[0, 1], window=[0, 1]).coef for item in each]
        powers = np.stack([np.pad(coef, (0, n - len(coef))) for coef in coefs], axis=1)[::-1]
    c = np.tensordot(powers, values, axes=1)[:, None]
    c[-1] += intercept
    return PPoly(c, breaks, extrapolate=False)


def _breaks(basis: object) -> FloatArray:
    """The borders between the polynomials of a basis, from 0 to 1."""
    if isinstance(basis, BSpline):
        inner = basis.extended_knots[basis.degree : basis.degree + basis.segments + 1]
        return np.asarray(inner)
    if isinstance(basis, MultiResolution):
        return np.unique(np.concatenate([_breaks(level) for level in basis.levels]))
    cuts = basis.cuts or () if isinstance(basis, Bins) else ()
    return np.unique(np.clip([0.0, *cuts, 1.0], 0.0, 1.0))


def pieces(item: Numerical) -> tuple[FloatArray, int]:
    """Borders and degree of the polynomials that a curve is made of."""
    basis = item.basis
    if isinstance(basis, Bins):
        return _breaks(basis), 0
    if isinstance(basis, BSpline | MultiResolution | Polynomial):
        return _breaks(basis), basis.degree
    raise ValueError(
        f"extrema are found for splines, bins and polynomials; the basis of {item.name!r} is "
        f"{type(basis).__name__}: call the curve on a grid of values"
    )


def spline_roots(spline: Any, breaks: FloatArray, degree: int) -> list[FloatArray]:
    """Where the derivative of a spline is zero, for each segment."""
    from scipy.interpolate import PPoly

    powers = range(degree, 0, -1)
    c = np.stack([spline(breaks[:-1], nu=power) / factorial(power - 1) for power in powers])
    found = PPoly(c, breaks).roots(discontinuity=False, extrapolate=False)
    return [found] if c.ndim == 2 else list(found)


def unit_range(item: Numerical, low: float | None, high: float | None) -> tuple[float, float]:
    """The part of [0, 1] where ordinary values between low and high lie."""
    first, last = (-np.inf if low is None else float(low)), (np.inf if high is None else float(high))
    if not first <= last:
        raise ValueError(f"low must not be above high, got low={low} and high={high}")
    for rule in item.special:
        if rule == "negative":
            first = max(first, 0.0)
        elif isinstance(rule, str) and rule[0] in "<>":
            number = float(rule.lstrip("<>="))
            first, last = (max(first, number), last) if rule[0] == "<" else (first, min(last, number))
    if first > last:
        raise ValueError(f"all values of {item.name!r} from {low} to {high} are special; see `tokens`")
    ends = np.array([first, last])
    limits = np.isinf(ends)
    unit = np.where(limits, [0.0, 1.0], item.transform(np.where(limits, 0.0, ends)))  # type: ignore[operator]  # fitted
    return float(unit[0]), float(unit[1])


def transform_slope(transform: Transform, x: FloatArray) -> FloatArray:
    """dT / dx; 0 where the transform clips."""
    with np.errstate(all="ignore"):  # infinite slopes at the ends of some densities are what they are
        if isinstance(transform, BestFitCDF):
            return _density(transform, x)
        if isinstance(transform, Quantile):
            knots, u = np.array(transform.x), np.array(transform.u)
            piece = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
            return np.where((x >= knots[0]) & (x <= knots[-1]), (np.diff(u) / np.diff(knots))[piece], 0.0)
        if isinstance(transform, MinMax | Log | ArcsinhSquare):
            low, high = float(transform.low or 0.0), float(transform.high or 0.0)
            spans = _warp_slope(transform, x) / (_warp(transform, high) - _warp(transform, low))
            return np.where((x >= low) & (x <= high), spans, 0.0)
    step = 1e-6 * np.maximum(1.0, np.abs(x))  # a transform of the user's: nothing is known of it
    return (transform(x + step) - transform(x - step)) / (2.0 * step)


def _density(transform: BestFitCDF, x: FloatArray) -> FloatArray:
    family = find_family(transform.family or "")
    location, scale, *shapes = transform.params
    z = (x - location) / scale
    low, high = DOMAIN[family.support]
    return np.where((z >= low) & (z <= high), np.exp(family.log_density(np.clip(z, low, high), *shapes)) / scale, 0.0)


def _warp(transform: MinMax | Log | ArcsinhSquare, x: float) -> float:
    if isinstance(transform, MinMax):
        return x
    if isinstance(transform, Log):
        return float(np.log(x + (transform.shift or 0.0)))
    return float(np.sign(x) * np.arcsinh(np.abs(x)) ** 2)


def _warp_slope(transform: MinMax | Log | ArcsinhSquare, x: FloatArray) -> FloatArray:
    if isinstance(transform, MinMax):
        return np.ones(len(x))
    if isinstance(transform, Log):
        return 1.0 / (x + (transform.shift or 0.0))
    return np.asarray(2.0 * np.arcsinh(np.abs(x)) / np.sqrt(1.0 + x**2))
