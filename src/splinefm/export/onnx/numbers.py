"""Numerical fields in ONNX graphs: transforms, and bases as windows of weights.

Everything up to the weights is in double precision: a timestamp has more digits than a float. ONNX Runtime has no
double version of some functions (erf, atan), and ONNX no operator at all for others (the CDFs of the gamma and the beta
distribution): these are written as polynomials on pieces, with an error in u below 1e-11 (below 1e-8 for extreme
shapes, where the function itself is not known better), see `pieces_of`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import comb
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm._wording import as_bins
from splinefm.encode.bases.basis import BASES
from splinefm.encode.bases.bins import Bins
from splinefm.encode.bases.functions import Fourier, Polynomial, Powers
from splinefm.encode.bases.splines import BSpline, MultiResolution
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.tables.dates import DAY, Part
from splinefm.encode.transforms.bestfit import BestFitCDF
from splinefm.encode.transforms.families import DOMAIN, find_family
from splinefm.encode.transforms.quantile import Quantile
from splinefm.encode.transforms.scaling import ArcsinhSquare, Log, MinMax
from splinefm.encode.transforms.transform import TRANSFORMS
from splinefm.export.tables import raw_edges

if TYPE_CHECKING:
    from splinefm.export.onnx.graph import Graph, Operand

FloatArray = npt.NDArray[np.float64]

ERRORS = (1e-11, 1e-10, 1e-9, 1e-8)
"""Most by which a CDF that is made of polynomials is wrong; the first that is possible."""
_DEGREE = 9  # of these polynomials
_MOST_PIECES = 1 << 10
_LARGEST = 1e300
_TAIL = 1e-14
_SMALLEST_LOG, _LAST_LOGIT = -745.0, 37.0  # of the smallest number above 0, and of the largest below 1
_POWER = -100.0  # below, the CDF is a power, and z itself may be too small for all its digits


class Window(NamedTuple):
    """Neighboring functions of a basis at each row of data."""

    start: str | None
    """Which of them comes first; None where all functions are active."""
    weight: str | None
    """Their values, shape (N, width), float; None stands for a single 1."""
    width: int
    functions: npt.NDArray[np.int64]
    """The functions in the order in which `start` counts them."""


def windows(g: Graph, item: Numerical, x: str) -> list[Window]:
    """The functions of a field's basis that are not zero at x, which has no missing and no special values."""
    basis: Any = item.basis
    if type(basis) not in BASES:  # a subclass may compute something else
        raise ValueError(_no_way("basis", item))
    levels = basis.levels if isinstance(basis, MultiResolution) else (basis,)
    first, unit, found = 0, None, []
    for level in levels:
        size = sum(level.sizes)
        if isinstance(level, Bins) or getattr(level, "degree", 1) == 0:
            # The borders of steps travel in raw units: a value on a border is on the same side as it is here.
            start = count_up_to(g, x, raw_edges(item.transform, _cuts(level)))  # type: ignore[arg-type]  # fitted
            window = Window(start, None, 1, np.arange(size))
        else:
            unit = unit or to_unit(g, item, x)
            window = _spline(g, level, unit) if isinstance(level, BSpline) else _everywhere(g, level, unit)
        found.append(window._replace(functions=window.functions + first))
        first += size
    return found


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
    own = g("Sub", g("Floor", g("Div", year, 4.0)), g("Floor", g("Div", year, 100.0)))
    of_year = g("Sub", of_era, g("Add", g("Mul", year, 365.0), own))
    return g("Add", _remainder(g, g("Add", of_year, 60.0), 366.0), 1.0)


def _remainder(g: Graph, x: str, divisor: float) -> str:
    return g("Sub", x, g("Mul", g("Floor", g("Div", x, divisor)), divisor))


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


# Transforms


def to_unit(g: Graph, item: Numerical, x: str) -> str:
    """u = T(x) in [0, 1]."""
    t = item.transform
    if type(t) not in TRANSFORMS:
        raise ValueError(_no_way("transform", item))
    with g.scope(f"{item.name}/{type(t).__name__}"):
        if isinstance(t, MinMax):
            return _between(g, x, t.low, t.high, lambda value: value, lambda z: z)
        if isinstance(t, Log):
            shift = float(t.shift)  # type: ignore[arg-type]  # fitted
            return _between(g, x, t.low, t.high, lambda v: g("Log", g("Add", v, shift)), lambda z: np.log(z + shift))
        if isinstance(t, ArcsinhSquare):
            return _between(g, x, t.low, t.high, lambda value: _arcsinh_square(g, value), _arcsinh_square_of)
        if isinstance(t, Quantile):
            return _quantile(g, x, np.array(t.x, np.float64), np.array(t.u, np.float64))
        if isinstance(t, BestFitCDF) and t.family is not None and t.family in _CDFS:
            location, scale, *shapes = map(float, t.params)
            low, high = np.clip(np.array(DOMAIN[find_family(t.family).support]), -_LARGEST, _LARGEST).tolist()
            z = g("Clip", g("Div", g("Sub", x, location), scale), low, high)
            try:
                return g("Clip", _CDFS[t.family](g, z, *shapes), 0.0, 1.0)
            except ValueError as error:
                raise ValueError(f"{_no_way('transform', item)} ({error})") from error
    raise ValueError(_no_way("transform", item))


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
    return g("Clip", g("Div", g("Sub", inside, start), stop - start), 0.0, 1.0)


def _arcsinh_square_of(x: FloatArray) -> FloatArray:
    return np.asarray(np.sign(x) * np.arcsinh(np.abs(x)) ** 2)


def _arcsinh_square(g: Graph, x: str) -> str:
    """asinh(a) = log1p(a + a² / (1 + √(1 + a²))); far out, where a² would overflow, log a + log 2."""
    a = g("Abs", x)
    near = g("Min", a, 1e9)
    square = g("Mul", near, near)
    inner = g("Add", near, g("Div", square, g("Add", g("Sqrt", g("Add", square, 1.0)), 1.0)))
    far = g("Add", g("Log", g("Max", a, 1e9)), float(np.log(2.0)))
    asinh = g("Where", g("Less", a, 1e9), _log1p(g, inner), far)
    return g("Mul", g("Sign", x), g("Mul", asinh, asinh))


def _quantile(g: Graph, x: str, knots: FloatArray, values: FloatArray) -> str:
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
    near_zero = g("Div", g("Where", far, 1.0, z), g("Where", far, z, 1.0))
    turn = pieces_of(lambda r: np.arctan(r) / np.pi, -1.0, 1.0)(g, near_zero)
    beyond = g("Sub", g("Where", g("Less", z, 0.0), 0.0, 1.0), turn)
    return g("Where", far, beyond, g("Add", turn, 0.5))


def _gamma(g: Graph, z: str, a: float) -> str:
    """In log z, since near 0 the CDF is like z to the power a."""
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
    """In log(z / (1 - z)), since near its ends the CDF is like powers of z and 1 - z."""
    from scipy.special import betainc, betaincinv, betaln, expit, logit

    def in_logits(t: FloatArray) -> FloatArray:
        inner = np.where(t < 0, betainc(a, b, expit(t)), 1.0 - betainc(b, a, expit(-t)))
        return np.asarray(np.where(t < _POWER, np.exp(a * np.minimum(t, _POWER) - betaln(a, b)) / a, inner))

    with np.errstate(divide="ignore"):
        low = max(float(logit(betaincinv(a, b, _TAIL))), _SMALLEST_LOG)
        high = min(-float(logit(betaincinv(b, a, _TAIL))), _LAST_LOGIT)
    place = g("Sub", g("Log", z), g("Log", g("Sub", 1.0, z)))
    inside = pieces_of(in_logits, low, high)(g, place)
    return g("Where", g("Less", z, 1.0), g("Where", g("Greater", z, 0.0), inside, 0.0), 1.0)


# Of z = (x - location) / scale, clipped to where the family lives, and shapes; as in encode/transforms/families.py.
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


@dataclass(frozen=True, eq=False)
class Pieces:
    """A smooth function as polynomials on pieces; made by `pieces_of`."""

    borders: FloatArray
    coefficients: FloatArray
    """Of the powers of the place in the piece, which runs from -1 to 1; shape (pieces, powers)."""

    def __call__(self, g: Graph, t: str) -> str:
        """The function of t, constant beyond the ends."""
        inside = g("Clip", t, float(self.borders[0]), float(self.borders[-1]))
        at = count_up_to(g, inside, self.borders[1:-1])
        middle, half = (self.borders[1:] + self.borders[:-1]) / 2, np.diff(self.borders) / 2
        place = g("Div", g("Sub", inside, g("Gather", middle, at)), g("Gather", half, at))
        value = g("Gather", self.coefficients[:, -1].copy(), at)
        for power in range(self.coefficients.shape[1] - 2, -1, -1):
            value = g("Add", g("Mul", value, place), g("Gather", self.coefficients[:, power].copy(), at))
        return value


def pieces_of(function: Callable[[FloatArray], FloatArray], low: float, high: float) -> Pieces:
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
    raise ValueError(f"it cannot be written as {_MOST_PIECES:,} polynomials of degree {_DEGREE}")


def _halved(function: Callable[[FloatArray], FloatArray], low: float, high: float, error: float) -> Pieces | None:
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
        elif len(found) + len(waiting) < _MOST_PIECES:
            waiting += [(middle, end), (begin, middle)]
        else:
            return None
    return Pieces(np.array([begin for begin, _ in found] + [high]), np.array([powers for _, powers in found]))


# Bases


def _cuts(level: Bins | BSpline | Polynomial) -> FloatArray:
    """The inner borders of steps, in u."""
    if isinstance(level, Bins):
        return np.array(level.cuts, np.float64)
    return level.extended_knots[1:-1] if isinstance(level, BSpline) else np.zeros(0)


def _spline(g: Graph, basis: BSpline, u: str) -> Window:
    """Weights as polynomials in the place inside of a segment."""
    knots = basis.extended_knots
    inner = knots[basis.degree : basis.degree + basis.segments + 1]
    if basis.knots is None:
        scaled = g("Mul", u, float(basis.segments))
        start = g("Min", g.cast(g("Floor", scaled), np.int64), basis.segments - 1)
        place = g("Sub", scaled, g.cast(start, np.float64))
    else:
        start = count_up_to(g, u, inner[1:-1])
        place = g("Div", g("Sub", u, g("Gather", inner[:-1], start)), g("Gather", np.diff(inner), start))
    place = g("Unsqueeze", place, np.array([1]))
    if basis.knots is None:
        powers: list[Operand] = list(_segment_polynomials(knots, basis.degree, 0)[:, None])
    else:
        each = np.stack([_segment_polynomials(knots, basis.degree, s) for s in range(basis.segments)], axis=1)
        powers = [g("Gather", of_power, start) for of_power in each]
    weight = powers[-1]
    for power in reversed(powers[:-1]):
        weight = g("Add", g("Mul", place, weight), power)
    functions = np.arange(basis.segments + basis.degree)
    if basis.periodic:
        functions %= basis.segments
    return Window(start, g.cast(str(weight), np.float32), basis.degree + 1, functions)


def _segment_polynomials(knots: FloatArray, degree: int, segment: int) -> FloatArray:
    """Coefficients of the functions that are active on a segment, by the recursion of Cox and de Boor.

    Shape (powers, functions); the powers are those of the place in the segment, from 0 to 1.
    """
    span = segment + degree
    begin, width = knots[span], knots[span + 1] - knots[span]
    weight = np.zeros((degree + 1, degree + 1))  # [function, power]
    weight[0, 0] = 1.0
    for d in range(1, degree + 1):
        carried = np.zeros(degree + 1)
        for j in range(d):
            left, right = knots[span + j + 1 - d], knots[span + j + 1]
            part = weight[j] / (right - left)
            moved = width * np.concatenate([[0.0], part[:-1]])  # times the place
            weight[j] = carried + (right - begin) * part - moved
            carried = (begin - left) * part + moved
        weight[d] = carried
    return np.ascontiguousarray(weight.T)


def _everywhere(g: Graph, basis: Polynomial | Fourier | Powers, u: str) -> Window:
    """All functions of a basis without local support."""
    column = g("Unsqueeze", u, np.array([1]))
    if isinstance(basis, Powers):
        weight = g("Pow", column, np.array([basis.exponents]))
    elif isinstance(basis, Fourier):
        # 1, cos, sin, cos, ..: all of them sines, because older versions of ONNX Runtime have no cosine in double.
        waves, quarters = (np.arange(2 * basis.order + 1) + 1) // 2, np.arange(2 * basis.order + 1) % 2
        quarters[0] = 1
        angle = g("Mul", column, 2.0 * np.pi * waves[None])
        weight = g("Sin", g("Add", angle, 0.5 * np.pi * quarters[None]))
    elif basis.family == "bernstein":
        weight = _bernstein(g, column, basis.degree)
    else:
        weight = g("Concat", *_orthogonal(g, column, basis), axis=1)
    size = sum(basis.sizes)
    return Window(None, g.cast(weight, np.float32), size, np.arange(size))


def _bernstein(g: Graph, u: str, degree: int) -> str:
    if degree > 1000:
        raise ValueError(f"polynomials of degree {degree} have coefficients beyond double precision; use at most 1000")
    j = np.arange(degree + 1.0)[None]
    chosen = np.array([[float(comb(degree, i)) for i in range(degree + 1)]])
    rising, falling = g("Pow", u, j), g("Pow", g("Sub", 1.0, u), degree - j)
    return g("Mul", g("Mul", rising, chosen), falling)


def _orthogonal(g: Graph, u: str, basis: Polynomial) -> Iterator[str]:
    """Chebyshev or Legendre polynomials of 2u - 1, each from the two before it."""
    x = g("Sub", g("Mul", u, 2.0), 1.0)
    before, last = g("Pow", x, 0.0), x
    yield before
    yield last
    for n in range(2, basis.degree + 1):
        ahead, back = (2.0, 1.0) if basis.family == "chebyshev" else ((2 * n - 1) / n, (n - 1) / n)
        before, last = last, g("Sub", g("Mul", g("Mul", x, last), ahead), g("Mul", before, back))
        yield last


def _no_way(what: str, item: Numerical) -> str:
    part = getattr(item, what)
    detail = f" with family {part.family!r}" if isinstance(part, BestFitCDF) else ""
    return (
        f"field {item.name!r}: a graph cannot hold the {what} {type(part).__name__}{detail}; "
        f"with bins it can: export what {as_bins(item.name)} makes"
    )
