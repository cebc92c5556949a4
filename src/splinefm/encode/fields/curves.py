"""Curves in u: SciPy's splines of a basis, their pieces and roots, and the slopes of transforms."""

from __future__ import annotations

from math import factorial
from typing import Any

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.encode.bases.functions import Bins, Polynomial
from splinefm.encode.bases.splines import BSpline, MultiResolution
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.transforms.transform import Transform


def scipy_spline(basis: BSpline, values: FloatArray) -> Any:
    from scipy.interpolate import BSpline as ScipySpline

    if basis.periodic:  # the functions at the end are those at the start
        values = values[np.arange(basis.segments + basis.degree) % basis.segments]
    return ScipySpline(basis.extended_knots, values, basis.degree, extrapolate="periodic" if basis.periodic else False)


def sum_of_levels(basis: MultiResolution, values: FloatArray, intercept: Any) -> Any:
    from scipy.interpolate import PPoly

    ends = np.cumsum([0, *basis.sizes])
    levels = [scipy_spline(level, values[ends[i] : ends[i + 1]]) for i, level in enumerate(basis.levels)]
    breaks = basis.breaks
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


def pieces(item: Numerical) -> tuple[FloatArray, int]:
    """Borders and degree of the polynomials that a curve is made of."""
    basis = item.basis
    if isinstance(basis, Bins):
        return basis.breaks, 0
    if isinstance(basis, BSpline | MultiResolution | Polynomial):
        return basis.breaks, basis.degree
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
    for sign, number in item.rules:
        if sign.startswith("<"):
            first = max(first, number)
        elif sign.startswith(">"):
            last = min(last, number)
    if first > last:
        raise ValueError(f"all values of {item.name!r} from {low} to {high} are special; see `tokens`")
    ends = np.array([first, last])
    limits = np.isinf(ends)
    unit = np.where(limits, [0.0, 1.0], item.fitted_transform(np.where(limits, 0.0, ends)))
    return float(unit[0]), float(unit[1])


def transform_slope(transform: Transform, x: FloatArray) -> FloatArray:
    """dT / dx; 0 where the transform clips."""
    derivative = getattr(transform, "derivative", None)
    if derivative is not None:
        return np.asarray(derivative(x), np.float64)
    step = 1e-6 * np.maximum(1.0, np.abs(x))  # nothing is known of a transform of the user's
    return (transform(x + step) - transform(x - step)) / (2.0 * step)
