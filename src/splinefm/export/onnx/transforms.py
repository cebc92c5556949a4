"""Transforms in ONNX graphs, and parts of dates.

Everything up to the weights is in double precision: a timestamp has more digits than a float. Transforms that are
linear on pieces are written as `transform_pieces` describes them. Logarithms, arcsinh and CDFs
are written as operators, because they are exact where the cubics of that description are within 1e-9. ONNX Runtime has
no double version of some functions (erf, atan), and ONNX has no operator at all for others (the CDFs of the gamma and
the beta distribution): these are polynomials on pieces, with an error in u below 1e-11 (below 1e-8 for extreme shapes,
where the function itself is not known better), see `pieces_of`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from splinefm._arrays import FloatArray
from splinefm._wording import as_bins
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.tables.dates import DAY, Part
from splinefm.encode.transforms.bestfit import DOMAIN, BestFitCDF, find_family
from splinefm.encode.transforms.scaling import ArcsinhSquare, Log, MinMax, Quantile, arcsinh_square
from splinefm.encode.transforms.transform import TRANSFORMS, Pieces, transform_pieces

if TYPE_CHECKING:
    from splinefm.export.onnx.graph import Graph


ERRORS = (1e-11, 1e-10, 1e-9, 1e-8)
"""Most by which a CDF that is made of polynomials is wrong; the first that is possible."""
_DEGREE = 9  # of these polynomials
_MAX_PIECES = 1 << 10


def count_up_to(g: Graph, x: str, borders: FloatArray) -> str:
    """How many of the sorted borders are at most x: a binary search, one step after the other."""
    bits = max(1, len(borders).bit_length())
    padded = np.full((1 << bits) - 1, np.inf)
    padded[: len(borders)] = borders
    position = ""
    for bit in reversed(range(bits)):
        step = 1 << bit
        probe = g("Add", position, step - 1) if position else np.array([step - 1])
        reached = g.cast(g("LessOrEqual", g("Gather", padded, probe), x), np.int64)
        moved = g("Mul", reached, step)
        position = g("Add", position, moved) if position else moved
    return g("Min", position, len(borders))  # infinity is beyond the padding, too


@dataclass(frozen=True, eq=False)
class SmoothPieces:
    """A smooth function as polynomials on pieces; made by `pieces_of`."""

    borders: FloatArray
    coefficients: FloatArray
    """Of the powers of the position in the piece, which runs from -1 to 1; shape (pieces, powers)."""

    def __call__(self, g: Graph, t: str) -> str:
        """The function of t, constant beyond the ends."""
        inside = g("Clip", t, float(self.borders[0]), float(self.borders[-1]))
        at = count_up_to(g, inside, self.borders[1:-1])
        middle, half = (self.borders[1:] + self.borders[:-1]) / 2, np.diff(self.borders) / 2
        position = g("Div", g("Sub", inside, g("Gather", middle, at)), g("Gather", half, at))
        value = g("Gather", self.coefficients[:, -1].copy(), at)
        for power in range(self.coefficients.shape[1] - 2, -1, -1):
            value = g("Add", g("Mul", value, position), g("Gather", self.coefficients[:, power].copy(), at))
        return value


def pieces_of(function: Callable[[FloatArray], FloatArray], low: float, high: float) -> SmoothPieces:
    """Polynomials through Chebyshev points, on pieces that are halved until the error is small.

    Examples
    --------
    >>> pieces_of(np.exp, 0.0, 2.0).borders
    array([0., 1., 2.])
    """
    for error in ERRORS:
        pieces = _halved(function, low, high, error)
        if pieces is not None:
            return pieces
    raise ValueError(f"it cannot be written as {_MAX_PIECES:,} polynomials of degree {_DEGREE}")


def _halved(function: Callable[[FloatArray], FloatArray], low: float, high: float, error: float) -> SmoothPieces | None:
    points = np.cos(np.pi * (np.arange(_DEGREE + 1) + 0.5) / (_DEGREE + 1))
    tests = np.linspace(-1.0, 1.0, 41)
    to_powers, at_tests = np.linalg.inv(np.vander(points, increasing=True)), np.vander(tests, len(points), True)
    found: list[tuple[float, FloatArray]] = []
    waiting = [(low, high)]
    while waiting:
        begin, end = waiting.pop()
        middle, half = (begin + end) / 2, (end - begin) / 2
        powers = to_powers @ function(middle + half * points)
        if np.abs(at_tests @ powers - function(middle + half * tests)).max() < error / 2:
            found.append((begin, powers))
        elif len(found) + len(waiting) < _MAX_PIECES:
            waiting += [(middle, end), (begin, middle)]
        else:
            return None
    return SmoothPieces(np.array([begin for begin, _ in found] + [high]), np.array([powers for _, powers in found]))


_LARGEST = 1e300
_SMALLEST_TERM = 1e-30  # the least that is added or subtracted as a double
_TAIL = 1e-14
_SMALLEST_LOG, _LAST_LOGIT = -745.0, 37.0  # of the smallest number above 0, and of the largest below 1
_POWER = -100.0  # below, the CDF is a power, and z itself may be too small for all its digits


def date_part(g: Graph, seconds: str, part: Part) -> str:
    """A part of times in seconds since 1970; see `splinefm.encode.tables.dates.take_part`, whose formulas these are."""
    if part == "trend":
        return seconds
    days = g("Floor", g("Div", seconds, DAY))
    if part == "hour":
        return g("Div", g("Sub", seconds, g("Mul", days, DAY)), 3600.0)
    if part == "weekday":
        return _remainder(g, g("Add", days, 3.0), 7.0)
    of_era = _remainder(g, g("Add", days, 719_468.0), 146_097.0)
    fours, hundreds, eras = (g("Floor", g("Div", of_era, n)) for n in (1_460.0, 36_524.0, 146_096.0))
    leaps = g("Add", g("Sub", fours, hundreds), eras)
    year = g("Floor", g("Div", g("Sub", of_era, leaps), 365.0))
    leap_days = g("Sub", g("Floor", g("Div", year, 4.0)), g("Floor", g("Div", year, 100.0)))
    of_year = g("Sub", of_era, g("Add", g("Mul", year, 365.0), leap_days))
    return g("Add", _remainder(g, g("Add", of_year, 60.0), 366.0), 1.0)


def _remainder(g: Graph, x: str, divisor: float) -> str:
    return g("Sub", x, g("Mul", g("Floor", g("Div", x, divisor)), divisor))


def to_unit(g: Graph, item: Numerical, x: str) -> str:
    """u = T(x) in [0, 1]."""
    t = item.transform
    if type(t) not in TRANSFORMS:
        raise ValueError(no_counterpart("transform", item))
    with g.scope(f"{item.name}/{type(t).__name__}"):
        if isinstance(t, MinMax | Quantile):
            return _linear(g, x, *cast(Pieces, transform_pieces(t)))
        if isinstance(t, Log):
            shift = float(t.shift)  # type: ignore[arg-type]  # fitted
            if 0.0 < abs(shift) < _SMALLEST_TERM:
                raise ValueError(f"{no_counterpart('transform', item)} (ONNX Runtime takes shift={shift:g} for 0)")
            return _between(g, x, t.low, t.high, lambda v: g("Log", g("Add", v, shift)), lambda z: np.log(z + shift))
        if isinstance(t, ArcsinhSquare):
            return _between(g, x, t.low, t.high, lambda value: _arcsinh_square(g, value), arcsinh_square)
        if isinstance(t, BestFitCDF) and t.family is not None and t.family in _CDFS:
            location, scale, *shapes = map(float, t.params)
            low, high = np.clip(np.array(DOMAIN[find_family(t.family).support]), -_LARGEST, _LARGEST).tolist()
            z = g("Clip", _relative(g, x, location, scale), low, high)
            try:
                return g("Clip", _CDFS[t.family](g, z, *shapes), 0.0, 1.0)
            except ValueError as error:
                raise ValueError(f"{no_counterpart('transform', item)} ({error})") from error
    raise ValueError(no_counterpart("transform", item))


def _between(
    g: Graph, x: str, low: Any, high: Any, warp: Callable[[str], str], warp_of: Callable[[FloatArray], FloatArray]
) -> str:
    """The share of the way from the warped low to the warped high end."""
    start, stop = warp_of(np.array([low, high], np.float64)).tolist()
    inside = g("Clip", x, float(low), float(high))
    if not start < stop:  # ends so close that the warp cannot tell them apart
        start, stop = float(low), float(high)
    else:
        inside = warp(inside)
    return g("Clip", _relative(g, inside, start, stop - start), 0.0, 1.0)


def _relative(g: Graph, x: str, start: float, scale: float) -> str:
    """(x - start) / scale; the optimizer of ONNX Runtime drops the subtraction of what is 0 as a float of 32 bits."""
    if abs(start) >= _SMALLEST_TERM:
        return g("Div", g("Sub", x, start), scale)
    return g("Sub", g("Div", x, scale), start / scale)


def _arcsinh_square(g: Graph, x: str) -> str:
    """asinh(a) = log1p(a + a² / (1 + √(1 + a²))); far out, where a² would overflow, log a + log 2."""
    a = g("Abs", x)
    small = g("Min", a, 1e9)
    square = g("Mul", small, small)
    inner = g("Add", small, g("Div", square, g("Add", g("Sqrt", g("Add", square, 1.0)), 1.0)))
    far = g("Add", g("Log", g("Max", a, 1e9)), float(np.log(2.0)))
    asinh = g("Where", g("Less", a, 1e9), _log1p(g, inner), far)
    return g("Mul", g("Sign", x), g("Mul", asinh, asinh))


def _linear(g: Graph, x: str, knots: FloatArray, values: FloatArray) -> str:
    """Linear between knots, constant beyond them."""
    values = values[:, 0]
    at = count_up_to(g, x, knots[1:-1])
    inside = g("Clip", x, float(knots[0]), float(knots[-1]))
    part = g("Div", g("Sub", inside, g("Gather", knots[:-1], at)), g("Gather", np.diff(knots), at))
    unit = g("Add", g("Gather", values[:-1], at), g("Mul", part, g("Gather", np.diff(values), at)))
    return g("Clip", unit, 0.0, 1.0)


def _log1p(g: Graph, y: str) -> str:
    """log(1 + y) without loss for small y: the error that 1 + y makes is taken out again by y / ((1 + y) - 1)."""
    whole = g("Add", y, 1.0)
    kept = g("Sub", whole, 1.0)
    lost = g("Equal", kept, 0.0)
    ratio = g("Div", y, g("Where", lost, 1.0, kept))
    return g("Where", lost, y, g("Mul", g("Log", whole), ratio))


def _one_less_exp(g: Graph, y: str) -> str:
    """1 - exp(-y)."""
    return g("Sub", 1.0, g("Exp", g("Neg", y)))


def _logistic(g: Graph, z: str) -> str:
    return g("Div", 1.0, g("Add", g("Exp", g("Neg", z)), 1.0))


def _normal(g: Graph, z: str) -> str:
    from scipy.special import ndtr

    return pieces_of(ndtr, -9.0, 9.0)(g, z)


def _laplace(g: Graph, z: str) -> str:
    half = g("Mul", g("Exp", g("Neg", g("Abs", z))), 0.5)
    return g("Where", g("Less", z, 0.0), half, g("Sub", 1.0, half))


def _cauchy(g: Graph, z: str) -> str:
    """½ + atan(z) / π; beyond 1 by atan(z) = ±π/2 - atan(1/z)."""
    far = g("Greater", g("Abs", z), 1.0)
    ratio = g("Div", g("Where", far, 1.0, z), g("Where", far, z, 1.0))
    angle = pieces_of(lambda r: np.arctan(r) / np.pi, -1.0, 1.0)(g, ratio)
    beyond = g("Sub", g("Where", g("Less", z, 0.0), 0.0, 1.0), angle)
    return g("Where", far, beyond, g("Add", angle, 0.5))


def _gamma(g: Graph, z: str, a: float) -> str:
    """In log z, since close to 0 the CDF behaves like z to the power a."""
    from scipy.special import gammainc, gammainccinv, gammaincinv, gammaln

    def in_logs(t: FloatArray) -> FloatArray:
        return np.asarray(
            np.where(t < _POWER, np.exp(a * np.minimum(t, _POWER) - gammaln(a + 1.0)), gammainc(a, np.exp(t)))
        )

    with np.errstate(divide="ignore"):
        low = max(float(np.log(gammaincinv(a, _TAIL))), _SMALLEST_LOG)
        high = float(np.log(gammainccinv(a, _TAIL)))
    inside = pieces_of(in_logs, low, high)(g, g("Log", z))
    return g("Where", g("Greater", z, 0.0), inside, 0.0)


def _beta(g: Graph, z: str, a: float, b: float) -> str:
    """In log(z / (1 - z)), since close to its ends the CDF behaves like powers of z and 1 - z."""
    from scipy.special import betainc, betaincinv, betaln, expit, logit

    def in_logits(t: FloatArray) -> FloatArray:
        inner = np.where(t < 0, betainc(a, b, expit(t)), 1.0 - betainc(b, a, expit(-t)))
        return np.asarray(np.where(t < _POWER, np.exp(a * np.minimum(t, _POWER) - betaln(a, b)) / a, inner))

    with np.errstate(divide="ignore"):
        low = max(float(logit(betaincinv(a, b, _TAIL))), _SMALLEST_LOG)
        high = min(-float(logit(betaincinv(b, a, _TAIL))), _LAST_LOGIT)
    logit_z = g("Sub", g("Log", z), g("Log", g("Sub", 1.0, z)))
    inside = pieces_of(in_logits, low, high)(g, logit_z)
    return g("Where", g("Less", z, 1.0), g("Where", g("Greater", z, 0.0), inside, 0.0), 1.0)


# Of z = (x - location) / scale, clipped to where the family lives, and shapes; as in encode/transforms/bestfit.py.
_CDFS: dict[str, Callable[..., str]] = {
    "normal": _normal,
    "logistic": _logistic,
    "laplace": _laplace,
    "gumbel": lambda g, z: g("Exp", g("Neg", g("Exp", g("Neg", z)))),
    "cauchy": _cauchy,
    "exponential": _one_less_exp,
    "half-normal": lambda g, z: g("Sub", g("Mul", _normal(g, z), 2.0), 1.0),
    "weibull": lambda g, z, c: _one_less_exp(g, g("Pow", z, c)),
    "gamma": _gamma,
    "lognormal": lambda g, z, s: _normal(g, g("Div", g("Log", z), s)),
    "log-logistic": lambda g, z, c: _logistic(g, g("Mul", g("Log", z), c)),
    "lomax": lambda g, z, a: _one_less_exp(g, g("Mul", _log1p(g, z), a)),
    "beta": _beta,
    "kumaraswamy": lambda g, z, a, b: _one_less_exp(g, g("Mul", _log1p(g, g("Neg", g("Pow", z, a))), -b)),
}


def no_counterpart(what: str, item: Numerical) -> str:
    part = getattr(item, what)
    detail = f" with family {part.family!r}" if isinstance(part, BestFitCDF) else ""
    return (
        f"field {item.name!r}: ONNX cannot express the {what} {type(part).__name__}{detail}; "
        f"it can express bins: export the result of {as_bins(item.name)}"
    )
