"""Bases: functions on [0, 1] whose values are weights of features; splines, bins, polynomials, waves and given ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from splinefm._arrays import Array, FloatArray, Int32Array
from splinefm._cached import cached_property
from splinefm._checks import check_choice, check_count, check_increasing
from splinefm._core import uniform_splines
from splinefm._memory import check_memory
from splinefm.encode.slots import expand_windows
from splinefm.encode.transforms.transform import Transform

Windows = tuple[Int32Array, FloatArray]
MAX_DEGREE = 5
# Derivatives are penalized by t = 20 u: the penalty on 20 segments is then the plain sum of squared differences, and
# one number is a fair strength for all orders.
UNIT_SEGMENTS = 20
# The most that 4^order, the largest curvature of Σ |Δ^order v|² / 2, is multiplied by: steps could not follow more, and
# curves would hardly be learned (decision 32). It is reached with 10,000, 100 and 40 segments, by order.
STIFFEST = 2000.0


@dataclass(frozen=True)
class BSpline:
    """B-splines on break-points that divide [0, 1] into segments.

    The outer knots continue the spacing beyond 0 and 1 instead of piling up there, so that all functions on
    equal segments have one shape and a penalty on second differences has straight lines as its null space
    (Eilers & Marx, 1996). The functions span the same splines as the clamped basis of the paper. The weights
    sum to one on the whole of [0, 1], both ends included.

    Parameters
    ----------
    segments : int
        Number of segments; there are `segments + degree` functions (`segments`, if periodic).
    degree : int
        0 (steps) to 5; 3 is a cubic spline.
    knots : tuple of float, optional
        Break-points in u, from 0 to 1, instead of equal segments; `segments` follows from them.
    periodic : bool
        u = 1 is the same point as u = 0. Give the transform the period, such as `MinMax(low=0, high=24)`.

    Examples
    --------
    >>> start, weight = BSpline(segments=4, degree=1)(np.array([0.0, 0.3, 1.0]))
    >>> start.ravel(), weight
    (array([0, 1, 3], dtype=int32), array([[1. , 0. ], [0.8, 0.2], [0. , 1. ]]))
    """

    segments: int = 20
    degree: int = 3
    knots: tuple[float, ...] | None = None
    periodic: bool = False

    def __post_init__(self) -> None:
        check_count("degree", self.degree, 0, MAX_DEGREE)
        if self.knots is not None:
            object.__setattr__(self, "knots", _checked_knots(self.knots))
            object.__setattr__(self, "segments", len(self.knots) - 1)
        check_count("segments", self.segments, 1)
        if not isinstance(self.periodic, bool):
            raise ValueError(f"periodic must be True or False, got {self.periodic!r}")

    @property
    def widths(self) -> tuple[int, ...]:
        """Weights per window; a periodic spline has windows of width 1, since its functions wrap around."""
        return (1,) * (self.degree + 1) if self.periodic else (self.degree + 1,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of functions, in a tuple."""
        return (self.segments if self.periodic else self.segments + self.degree,)

    @property
    def extended_knots(self) -> FloatArray:
        """All knots, the `degree` outer ones on either side included."""
        inner = np.arange(self.segments + 1) / self.segments if self.knots is None else np.array(self.knots)
        outer = np.arange(1, self.degree + 1)
        if self.periodic:
            periods = [inner[:-1] + shift for shift in range(-self.degree, self.degree + 2)]
            repeated = np.concatenate(periods)
            first = self.degree * self.segments - self.degree
            return repeated[first : first + self.segments + 2 * self.degree + 1]
        # DIFFERS: the paper clamps the knots, repeating 0 and 1. Knots that continue the spacing span the same splines,
        # and u = 1 needs no exception: the paper's code has no active function there.
        left = inner[0] - outer[::-1] * (inner[1] - inner[0])
        right = inner[-1] + outer * (inner[-1] - inner[-2])
        return np.concatenate([left, inner, right])

    @property
    def breaks(self) -> FloatArray:
        """The borders between the polynomials, from 0 to 1."""
        return self.extended_knots[self.degree : self.degree + self.segments + 1]

    @property
    def is_uniform(self) -> bool:
        """Whether all segments have the same length and functions that overlap."""
        return self.knots is None and self.degree > 0

    def __call__(self, u: FloatArray) -> Windows:
        """Starts of the windows and weights of the functions that are not zero at u."""
        if self.is_uniform:
            start, weight = cardinal_splines(u, self.segments, self.degree)
        else:
            start, weight = cox_de_boor(u, self.extended_knots, self.segments, self.degree)
        if self.periodic:
            functions = (start[:, None] + np.arange(self.degree + 1)) % self.segments
            return functions.astype(np.int32), weight
        return start[:, None], weight

    def smoothing(self, order: int) -> tuple[float, ...]:
        """The weight of Σ |Δ^order v|² in the smoothness penalty, in a tuple.

        With m segments the derivative of that order by u is m^order Σ_i (Δ^order v)_i B_i. The B_i are B-splines of a
        lower degree and sum to one, so that the integral of its square is m^(2 order - 1) Σ |Δ^order v|², up to how
        much neighboring differences differ. The unit of length is a twentieth of [0, 1]. Where the degree is below the
        order, it is the same sum; steps have no derivative. Given knots are treated as equal segments.

        Examples
        --------
        >>> BSpline(20).smoothing(2), BSpline(40).smoothing(2), BSpline(40, degree=0).smoothing(2)
        ((1.0,), (8.0,), (0.0,))
        """
        return (smoothing_weight(self.segments, order) if self.degree > 0 else 0.0,)

    def supports(self) -> FloatArray:
        """The interval of u, clipped to [0, 1], where each function is not zero; shape (functions, 2)."""
        if self.periodic:
            return whole(self.sizes[0])
        knots = np.clip(self.extended_knots, 0.0, 1.0)
        return np.stack([knots[: self.sizes[0]], knots[self.degree + 1 :]], axis=1)


@dataclass(frozen=True)
class MultiResolution:
    """Several uniform B-spline bases in one field, their vectors summed; one window per resolution.

    The coarse functions learn the trend from little data; the fine ones add detail where the data support it.

    Parameters
    ----------
    segments : tuple of int
        Segments of each resolution, coarse to fine.
    degree : int
        Degree of all of them.

    Examples
    --------
    >>> basis = MultiResolution((2, 8), degree=3)
    >>> basis.widths, basis.sizes
    ((4, 4), (5, 11))
    """

    segments: tuple[int, ...] = (8, 32, 128)
    degree: int = 3

    def __post_init__(self) -> None:
        object.__setattr__(self, "segments", tuple(self.segments))
        if not self.segments:
            raise ValueError("segments must name at least one resolution, got ()")
        _ = self.levels  # each level checks its numbers

    @property
    def levels(self) -> tuple[BSpline, ...]:
        """One uniform basis per resolution."""
        return tuple(BSpline(segments, self.degree) for segments in self.segments)

    @property
    def is_nested(self) -> bool:
        """Whether the finest resolution can represent all others, because their segments divide its own."""
        return all(max(self.segments) % segments == 0 for segments in self.segments)

    @property
    def widths(self) -> tuple[int, ...]:
        """Weights per window."""
        return (self.degree + 1,) * len(self.segments)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Functions per resolution."""
        return tuple(segments + self.degree for segments in self.segments)

    @property
    def breaks(self) -> FloatArray:
        """The borders between the polynomials of all resolutions, from 0 to 1."""
        return np.unique(np.concatenate([level.breaks for level in self.levels]))

    def __call__(self, u: FloatArray) -> Windows:
        """Starts of the windows and weights of the functions that are not zero at u."""
        first = np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int32)
        starts, weights = zip(*(level(u) for level in self.levels), strict=True)
        return np.concatenate(starts, axis=1) + first, np.concatenate(weights, axis=1)

    def smoothing(self, order: int) -> tuple[float, ...]:
        """The weight of Σ |Δ^order v|² in the smoothness penalty, by resolution: as of 20 segments for all of them.

        Weights that grow with the number of segments would smooth away the detail that the finest resolution is there
        for. The coarse ones carry what is smooth.
        """
        return (smoothing_weight(UNIT_SEGMENTS, order) if self.degree > 0 else 0.0,) * len(self.segments)

    def supports(self) -> FloatArray:
        """The interval of u where each function is not zero."""
        return np.concatenate([level.supports() for level in self.levels])


def smoothing_weight(segments: int, order: int) -> float:
    """What Σ |Δ^order v|² of a spline is multiplied by to be the integral of its squared derivative by t."""
    return float(min((segments / UNIT_SEGMENTS) ** (2 * order - 1), STIFFEST / 4**order))


def cardinal_splines(u: FloatArray, segments: int, degree: int) -> tuple[Int32Array, FloatArray]:
    """Uniform B-splines: first active function, shape (n,), and the degree + 1 weights, shape (n, degree + 1)."""
    start, weight = np.empty(len(u), np.int32), np.empty((len(u), degree + 1))
    uniform_splines(np.ascontiguousarray(u, np.float64), segments, degree, 0, start, weight)
    return start, weight


def cox_de_boor(u: FloatArray, knots: FloatArray, segments: int, degree: int) -> tuple[Int32Array, FloatArray]:
    """B-splines on any knots: first active function and the degree + 1 weights."""
    inner = knots[degree + 1 : degree + segments]
    start = np.searchsorted(inner, u, side="right").astype(np.int32)
    span = start + degree
    weight = np.zeros((degree + 1, len(u)))
    weight[0] = 1.0
    for d in range(1, degree + 1):
        carried = np.zeros(len(u))
        for j in range(d):
            left, right = knots[span + j + 1 - d], knots[span + j + 1]
            part = weight[j] / (right - left)
            weight[j] = carried + (right - u) * part
            carried = (u - left) * part
        weight[d] = carried
    return start, weight.T


def whole(size: int) -> FloatArray:
    """The interval [0, 1] for each of `size` functions."""
    return np.tile([0.0, 1.0], (size, 1))


def _checked_knots(knots: tuple[float, ...]) -> tuple[float, ...]:
    knots = check_increasing("knots", knots)
    if knots[0] != 0.0 or knots[-1] != 1.0:
        raise ValueError(f"knots must run from 0 to 1 (break-points in u), got {knots[0]} to {knots[-1]}")
    return knots


# Bases whose functions are all active everywhere: polynomials, waves, powers, and custom functions.


# The most functions of such a basis, since that many weights stand for one value.
MAX_EVERYWHERE = 1 << 16


@dataclass(frozen=True)
class Polynomial:
    """Polynomials up to a degree; all functions are active everywhere.

    Parameters
    ----------
    degree : int
        Highest power; there are `degree + 1` functions.
    family : {"bernstein", "chebyshev", "legendre"}
        Bernstein weights are non-negative and sum to one; the other two are orthogonal on [0, 1] shifted
        to [-1, 1].

    Examples
    --------
    >>> Polynomial(2)(np.array([0.5]))[1]
    array([[0.25, 0.5 , 0.25]])
    """

    degree: int = 5
    family: Literal["bernstein", "chebyshev", "legendre"] = "bernstein"

    def __post_init__(self) -> None:
        check_count("degree", self.degree, 0, MAX_EVERYWHERE)
        check_choice("family", self.family, ("bernstein", "chebyshev", "legendre"))

    @property
    def widths(self) -> tuple[int, ...]:
        """One window as wide as the basis."""
        return (self.degree + 1,)

    @property
    def breaks(self) -> FloatArray:
        """The ends of [0, 1]: one polynomial covers all of it."""
        return np.array([0.0, 1.0])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of functions, in a tuple."""
        return (self.degree + 1,)

    def __call__(self, u: FloatArray) -> Windows:
        """All functions at u."""
        if self.family == "bernstein":
            return _from_zero(_bernstein(u, self.degree))
        polynomial = (
            np.polynomial.chebyshev.chebvander if self.family == "chebyshev" else np.polynomial.legendre.legvander
        )
        return _from_zero(np.asarray(polynomial(2.0 * u - 1.0, self.degree), np.float64))


@dataclass(frozen=True)
class Fourier:
    """1, cos 2πu, sin 2πu, ... up to `order` waves: a periodic basis.

    Parameters
    ----------
    order : int
        Number of waves; there are `2 * order + 1` functions.

    Examples
    --------
    >>> Fourier(1)(np.array([0.25]))[1].round(12)
    array([[1., 0., 1.]])
    """

    order: int = 4

    def __post_init__(self) -> None:
        check_count("order", self.order, 1, MAX_EVERYWHERE)

    @property
    def widths(self) -> tuple[int, ...]:
        """One window as wide as the basis."""
        return (2 * self.order + 1,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of functions, in a tuple."""
        return (2 * self.order + 1,)

    def __call__(self, u: FloatArray) -> Windows:
        """All functions at u."""
        angle = 2.0 * np.pi * u[:, None] * np.arange(1, self.order + 1)
        waves = np.stack([np.cos(angle), np.sin(angle)], axis=2).reshape(len(u), 2 * self.order)
        return _from_zero(np.concatenate([np.ones((len(u), 1)), waves], axis=1))


@dataclass(frozen=True)
class Powers:
    """Powers of u, by default (u, u², √u), as deep recommenders feed their numbers.

    Parameters
    ----------
    exponents : tuple of float
        Positive exponents.

    Examples
    --------
    >>> Powers()(np.array([0.25]))[1]
    array([[0.25  , 0.0625, 0.5   ]])
    """

    exponents: tuple[float, ...] = (1.0, 2.0, 0.5)

    def __post_init__(self) -> None:
        object.__setattr__(self, "exponents", tuple(float(exponent) for exponent in self.exponents))
        if not self.exponents or not all(0.0 < exponent < np.inf for exponent in self.exponents):
            raise ValueError(f"exponents must be positive numbers, got {self.exponents}")

    @property
    def widths(self) -> tuple[int, ...]:
        """One window as wide as the basis."""
        return (len(self.exponents),)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of functions, in a tuple."""
        return (len(self.exponents),)

    def __call__(self, u: FloatArray) -> Windows:
        """All powers of u."""
        return _from_zero(u[:, None] ** np.array(self.exponents))


@dataclass(frozen=True)
class CustomBasis:
    """Any list of functions of u; each takes and returns an array.

    Parameters
    ----------
    functions : tuple of callables
        The functions. They cannot be saved to a file.

    Examples
    --------
    >>> CustomBasis((np.ones_like, np.sin))(np.array([0.0]))[1]
    array([[1., 0.]])
    """

    functions: tuple[Callable[[FloatArray], FloatArray], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "functions", tuple(self.functions))
        if not self.functions or not all(callable(function) for function in self.functions):
            raise ValueError(f"functions must be a non-empty list of callables, got {self.functions!r}")

    @property
    def widths(self) -> tuple[int, ...]:
        """One window as wide as the basis."""
        return (len(self.functions),)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of functions, in a tuple."""
        return (len(self.functions),)

    def __call__(self, u: FloatArray) -> Windows:
        """All functions at u."""
        columns = [np.asarray(function(u), np.float64) for function in self.functions]
        for position, column in enumerate(columns):
            if column.shape != u.shape or not np.isfinite(column).all():
                raise ValueError(
                    f"function {position} of the custom basis must give a finite value for every u in [0, 1]"
                )
        return _from_zero(np.stack(columns, axis=1))


def _bernstein(u: FloatArray, degree: int) -> FloatArray:
    """De Casteljau's triangle: (1 - u) of each weight stays, u of it moves one function on."""
    weight = np.zeros((degree + 1, len(u)))
    weight[0] = 1.0
    for d in range(1, degree + 1):
        for j in range(d, 0, -1):
            weight[j] = (1.0 - u) * weight[j] + u * weight[j - 1]
        weight[0] *= 1.0 - u
    return weight.T


def _from_zero(weight: FloatArray) -> Windows:
    """One window that starts at the first function and is as wide as the basis."""
    return np.zeros((len(weight), 1), np.int32), weight


# Bins: indicator functions of intervals.

# A Python number, its pointer in a tuple, and twice in arrays.
_BYTES_PER_CUT = 48


@dataclass(frozen=True)
class Bins:
    """Indicator functions of intervals: classical binning, as a baseline and for serving systems that bin.

    Parameters
    ----------
    count : int
        Number of bins; repeated quantiles are merged, so that there may be fewer.
    spacing : {"uniform", "quantile"}
        Equal widths in u (with `transform=MinMax()`: equal widths in raw units), or equal numbers of rows.
    edges : tuple of float, optional
        Borders of the bins **in raw units**, both ends included. Values beyond them fall in the outer bins.
    cuts : tuple of float, optional
        The inner borders in u; filled in by `fit`. A value on a border belongs to the bin on its right.

    Examples
    --------
    >>> start, weight = Bins(4)(np.array([0.0, 0.25, 1.0]))
    >>> start.ravel()
    array([0, 1, 3], dtype=int32)
    """

    count: int = 20
    spacing: Literal["uniform", "quantile"] = "uniform"
    edges: tuple[float, ...] | None = None
    cuts: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_count("count", self.count, 1)
        check_choice("spacing", self.spacing, ("uniform", "quantile"))
        if self.edges is not None:
            object.__setattr__(self, "edges", check_increasing("edges", self.edges))
        if self.cuts is None and self.edges is None and self.spacing == "uniform":
            check_memory(_BYTES_PER_CUT * self.count, f"a basis of {self.count:,} bins", "lower its count")
            object.__setattr__(self, "cuts", tuple((np.arange(1, self.count) / self.count).tolist()))
        elif self.cuts is not None:
            object.__setattr__(self, "cuts", tuple(float(cut) for cut in self.cuts))

    def fit(self, x: FloatArray, weight: FloatArray, transform: Transform) -> Bins:
        """The bins with borders at the given edges, or at the quantiles of x."""
        if self.cuts is not None:
            return self
        if self.edges is not None:
            inner = np.array(self.edges[1:-1])
            # The transform clips: an edge beyond its range would meet the largest values at u = 1.
            beyond = inner > transform.inverse(np.array([1.0]))
            return replace(self, cuts=tuple(np.where(beyond, 2.0, transform(inner)).tolist()))
        order = np.argsort(x)
        share = np.cumsum(weight[order]) / np.sum(weight)
        at = np.searchsorted(share, np.arange(1, self.count) / self.count)
        cuts = np.unique(transform(x[order][np.minimum(at, len(x) - 1)]))
        return replace(self, cuts=tuple(cuts[cuts > 0.0].tolist()))

    @property
    def widths(self) -> tuple[int, ...]:
        """One window of one weight."""
        return (1,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of bins, in a tuple."""
        return (len(self._fitted_cuts()) + 1,)

    def __call__(self, u: FloatArray) -> Windows:
        """The bin of u, with weight 1."""
        start = np.searchsorted(self._borders, u, side="right").astype(np.int32)
        return start[:, None], np.ones((len(u), 1))

    @property
    def breaks(self) -> FloatArray:
        """The borders between the bins, from 0 to 1, each once."""
        return np.unique(np.clip([0.0, *self._fitted_cuts(), 1.0], 0.0, 1.0))

    def supports(self) -> FloatArray:
        """The interval of u of each bin."""
        borders = np.clip(np.array([0.0, *self._fitted_cuts(), 1.0]), 0.0, 1.0)
        return np.stack([borders[:-1], borders[1:]], axis=1)

    @cached_property
    def _borders(self) -> FloatArray:
        return np.array(self._fitted_cuts(), np.float64)

    def _fitted_cuts(self) -> tuple[float, ...]:
        if self.cuts is None:
            raise ValueError("Bins by quantiles or raw edges learn their borders from data; call fit first")
        return self.cuts


# Function bases: u in [0, 1] -> the active functions and their weights B_i(u).


@runtime_checkable
class Basis(Protocol):
    """The members of a basis that the encoder uses."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Weights per window."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Functions per block of neighbors."""

    def __call__(self, u: FloatArray) -> Windows:
        """The first function of each window, and the weights."""


BASES = (BSpline, MultiResolution, Bins, Polynomial, Fourier, Powers)
"""The bases that can be written to a file."""


def write_windows(basis: Basis, u: FloatArray, first: int, start: Int32Array, weight: Array) -> None:
    """Write the starts at u, counted from `first`, and the weights into arrays, such as some columns of slots.

    Examples
    --------
    >>> start, weight = np.empty((1, 1), np.int32), np.empty((1, 2), np.float32)
    >>> write_windows(BSpline(segments=4, degree=1), np.array([0.375]), 10, start, weight)
    >>> start, weight
    (array([[11]], dtype=int32), array([[0.5, 0.5]], dtype=float32))
    """
    # A subclass may compute something else.
    levels = basis.levels if type(basis) is MultiResolution else (basis,) if type(basis) is BSpline else ()
    if not levels or not all(level.is_uniform and not level.periodic for level in levels):
        starts, weights = basis(u)
        np.add(starts, np.int32(first), out=start)
        weight[...] = weights
        return
    u = np.ascontiguousarray(u, np.float64)
    for i, level in enumerate(levels):
        width = level.degree + 1
        uniform_splines(u, level.segments, level.degree, first, start[:, i], weight[:, i * width : (i + 1) * width])
        first += level.sizes[0]


def step_cuts(basis: Basis) -> FloatArray | None:
    """The inner borders in u of a basis with one indicator function per interval; None for any other basis.

    Examples
    --------
    >>> step_cuts(Bins(4)), step_cuts(BSpline(segments=2, degree=0)), step_cuts(BSpline(segments=2))
    (array([0.25, 0.5 , 0.75]), array([0.5]), None)
    """
    # A subclass may compute something else.
    if type(basis) is Bins and basis.cuts is not None:
        return np.array(basis.cuts, np.float64)
    if type(basis) is BSpline and basis.degree == 0:
        return basis.breaks[1:-1]
    return np.zeros(0) if type(basis) is Polynomial and basis.degree == 0 else None


def supports(basis: Basis) -> FloatArray:
    """Where each function of a basis is not zero, in u; all of [0, 1] unless the basis says otherwise."""
    known = getattr(basis, "supports", None)
    return known() if known is not None else whole(sum(basis.sizes))


def smoothing(basis: Basis, order: int) -> tuple[float, ...]:
    """The weight of Σ |Δ^order v|² in the smoothness penalty, by block; 0 unless the basis says otherwise."""
    known = getattr(basis, "smoothing", None)
    return known(order) if known is not None else (0.0,) * len(basis.sizes)


# Tensor products of bases: all products of their functions, the last basis fastest.

GRID = 2048
"""Parts of [0, 1] for functions of which only the values are known."""


REACH_MARGIN = 1.01
"""Factor of maxima that were found on a grid, for values between its points."""


def levels_of(basis: Basis) -> tuple[Basis, ...]:
    """The basis of each resolution."""
    return basis.levels if isinstance(basis, MultiResolution) else (basis,)


def product_widths(bases: Sequence[Basis]) -> tuple[int, ...]:
    """Widths of the windows of a product: the last basis' for every function of the others."""
    if not bases:
        return (1,)
    return tuple(bases[-1].widths) * math.prod(sum(basis.widths) for basis in bases[:-1])


def tensor_product(bases: Sequence[Basis], u: Sequence[FloatArray]) -> tuple[Any, FloatArray]:
    """Windows and weights of the tensor product of bases at u; a single feature of weight 1 without bases."""
    start: Any = np.zeros((1, 1), np.int32)
    weight: Any = np.ones((1, 1))
    for basis, x in zip(bases[:-1], u[:-1], strict=True):
        windows, more = basis(x)
        function = expand_windows(windows, basis.widths)
        start = _outer(start * np.int32(sum(basis.sizes)), function, np.add)
        weight = _outer(weight, more, np.multiply)
    if bases:
        windows, more = bases[-1](u[-1])
        start = _outer(start * np.int32(sum(bases[-1].sizes)), windows, np.add)
        weight = _outer(weight, more, np.multiply)
    return start, weight


def _outer(a: Any, b: Any, combine: Any) -> Any:
    """All combinations of two arrays of shape (n, i) and (n, j), in an array of shape (n, i j)."""
    return combine(a[:, :, None], b[:, None, :]).reshape(len(b), -1)


def is_convex(basis: Basis) -> bool:
    """Whether the functions of a basis are never negative and sum to one."""
    return isinstance(basis, Bins | BSpline) or (isinstance(basis, Polynomial) and basis.family == "bernstein")


def basis_reach(basis: Basis) -> float:
    """The largest sum of absolute values of the functions of a basis, on a grid where it is not known."""
    return 1.0 if is_convex(basis) else float(np.abs(basis(np.linspace(0.0, 1.0, GRID + 1))[1]).sum(axis=1).max())


# Bases as windows of polynomials on segments of [0, 1]: exact for splines and polynomials, close for waves.


_FOURIER_DEGREE = 7
_HIGHEST_POWER = 12
_FAR = 1 << 40  # functions do not wrap around before that many


@dataclass(frozen=True, eq=False)
class PolynomialWindow:
    """Neighboring functions of a basis that are not zero in a segment: polynomials of the position inside it.

    Parameters
    ----------
    segments : int
        Number of segments of [0, 1], or of the line of raw values.
    coefficients : array of shape (segments or 1, functions, degree + 1)
        Highest power first, of the position inside the segment, from -1 to 1.
    start, moves : int
        The first function in the first segment, and by how much it changes from segment to segment.
    edges : array of shape (segments + 1,), optional
        Ends of the segments, where they are not of equal length.
    around : int
        Function `around` is function 0 again.
    is_uniform : bool
        Whether these are the functions of a B-spline with segments of equal length, which have a recurrence that is
        exact at the knots.
    """

    segments: int
    coefficients: FloatArray
    start: int = 0
    moves: int = 1
    edges: FloatArray | None = None
    around: int = _FAR
    is_uniform: bool = False


def polynomial_windows(basis: Basis) -> list[PolynomialWindow] | None:
    """The windows of a basis in u; None if it is not known to consist of polynomials.

    Examples
    --------
    >>> (window,) = polynomial_windows(BSpline(segments=4, degree=1))
    >>> window.segments, window.coefficients.round(12)
    (4, array([[[-0.5,  0.5], [ 0.5,  0.5]]]))
    """
    # A subclass may compute something else.
    if type(basis) is BSpline:
        return [spline_window(basis)]
    if type(basis) is MultiResolution and basis.degree > 0:
        starts = np.cumsum([0, *basis.sizes])
        return [spline_window(level, int(start)) for level, start in zip(basis.levels, starts[:-1], strict=True)]
    if type(basis) is Polynomial:
        return [_fixed(basis, 1, basis.degree)]
    if type(basis) is Fourier:
        return [_fixed(basis, 8 * basis.order, _FOURIER_DEGREE)]
    if type(basis) is Powers and all(power in range(1, _HIGHEST_POWER + 1) for power in basis.exponents):
        return [_fixed(basis, 1, int(max(basis.exponents)))]
    return None


def spline_window(basis: BSpline, start: int = 0) -> PolynomialWindow:
    """The window of a spline whose first function is `start`."""
    n = basis.segments
    around = n if basis.periodic else _FAR
    if basis.knots is None:  # all segments are alike
        coefficients = _polynomials(basis, np.array([0.0, 1.0 / n]), basis.degree)
        return PolynomialWindow(n, coefficients, start, around=around, is_uniform=basis.is_uniform)
    edges = np.array(basis.knots)
    return PolynomialWindow(n, _polynomials(basis, edges, basis.degree), start, edges=edges, around=around)


def step_window(edges: FloatArray) -> PolynomialWindow:
    """One function per interval between neighboring edges."""
    return PolynomialWindow(len(edges) - 1, np.ones((1, 1, 1)), edges=edges)


def _fixed(basis: Basis, segments: int, degree: int) -> PolynomialWindow:
    """All functions are active everywhere."""
    edges = np.arange(segments + 1) / segments
    return PolynomialWindow(segments, _polynomials(basis, edges, degree), moves=0)


def _polynomials(basis: Basis, edges: FloatArray, degree: int) -> FloatArray:
    """Polynomials through the values of the basis at degree + 1 points inside of each segment."""
    inside = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    u = edges[:-1, None] + (inside + 1.0) / 2.0 * np.diff(edges)[:, None]
    _, weight = basis(u.ravel())
    values = weight.reshape(len(u), degree + 1, -1)
    solved = np.linalg.solve(np.vander(inside), values)
    return np.ascontiguousarray(solved.transpose(0, 2, 1))
