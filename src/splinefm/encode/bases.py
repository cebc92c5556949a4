"""Function bases: u in [0, 1] -> the rows that are active and their weights B_i(u).

The functions that are not zero at a point form *windows* of neighboring rows. A basis has

- `widths`: weights per window,
- `sizes`: rows per block of neighboring functions; they add up to the number of functions,
- `basis(u) -> (start, weight)`: arrays of shape (n, windows) and (n, sum of widths).

Any object with these members is a basis. One that learns from data (`Bins`) has `fit` too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from splinefm.encode.transforms import Transform

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]
Windows = tuple[IntArray, FloatArray]
MAX_DEGREE = 5


@runtime_checkable
class Basis(Protocol):
    """What the encoder needs of a basis."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Weights per window."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Functions per block of neighbors."""

    def __call__(self, u: FloatArray) -> Windows:
        """First row of each window, and the weights."""


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
        Break-points in u, from 0 to 1, in place of equal segments; `segments` follows from them.
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
        _check_count("degree", self.degree, 0, MAX_DEGREE)
        if self.knots is not None:
            object.__setattr__(self, "knots", _checked_knots(self.knots))
            object.__setattr__(self, "segments", len(self.knots) - 1)
        _check_count("segments", self.segments, 1)

    @property
    def widths(self) -> tuple[int, ...]:
        """Weights per window; a periodic spline has windows of width 1, since its rows wrap around."""
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
            turns = [inner[:-1] + turn for turn in range(-self.degree, self.degree + 2)]
            whole = np.concatenate(turns)
            first = self.degree * self.segments - self.degree
            return whole[first : first + self.segments + 2 * self.degree + 1]
        left = inner[0] - outer[::-1] * (inner[1] - inner[0])
        right = inner[-1] + outer * (inner[-1] - inner[-2])
        return np.concatenate([left, inner, right])

    def __call__(self, u: FloatArray) -> Windows:
        """Rows and weights of the functions that are not zero at u."""
        if self.knots is None and self.degree > 0:
            start, weight = cardinal_splines(u, self.segments, self.degree)
        else:
            start, weight = cox_de_boor(u, self.extended_knots, self.segments, self.degree)
        if self.periodic:
            return (start[:, None] + np.arange(self.degree + 1, dtype=np.int32)) % self.segments, weight
        return start[:, None], weight

    def supports(self) -> FloatArray:
        """The interval of u, clipped to [0, 1], where each function is not zero; shape (functions, 2)."""
        if self.periodic:
            return _whole(self.sizes[0])
        knots = np.clip(self.extended_knots, 0.0, 1.0)
        return np.stack([knots[: self.sizes[0]], knots[self.degree + 1 :]], axis=1)


@dataclass(frozen=True)
class MultiResolution:
    """Several uniform B-spline bases in one field, their vectors summed; one window per resolution.

    The coarse functions catch the trend from little data, the fine ones add detail where the data support it.

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
        _ = self.levels  # each level checks its own numbers

    @property
    def levels(self) -> tuple[BSpline, ...]:
        """One uniform basis per resolution."""
        return tuple(BSpline(segments, self.degree) for segments in self.segments)

    @property
    def widths(self) -> tuple[int, ...]:
        """Weights per window."""
        return (self.degree + 1,) * len(self.segments)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Functions per resolution."""
        return tuple(segments + self.degree for segments in self.segments)

    def __call__(self, u: FloatArray) -> Windows:
        """Rows and weights of the functions that are not zero at u."""
        first = np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int32)
        starts, weights = zip(*(level(u) for level in self.levels), strict=True)
        return np.concatenate(starts, axis=1) + first, np.concatenate(weights, axis=1)

    def supports(self) -> FloatArray:
        """The interval of u where each function is not zero."""
        return np.concatenate([level.supports() for level in self.levels])


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
        _check_count("count", self.count, 1)
        if self.spacing not in ("uniform", "quantile"):
            raise ValueError(f'spacing must be "uniform" or "quantile", got {self.spacing!r}')
        if self.edges is not None:
            object.__setattr__(self, "edges", _increasing("edges", self.edges))
        if self.cuts is None and self.edges is None and self.spacing == "uniform":
            object.__setattr__(self, "cuts", tuple((np.arange(1, self.count) / self.count).tolist()))
        elif self.cuts is not None:
            object.__setattr__(self, "cuts", tuple(float(cut) for cut in self.cuts))

    def fit(self, x: FloatArray, weight: FloatArray, transform: Transform) -> Bins:
        """Put the borders where the edges or the quantiles of x say."""
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
        start = np.searchsorted(np.array(self._fitted_cuts()), u, side="right").astype(np.int32)
        return start[:, None], np.ones((len(u), 1))

    def supports(self) -> FloatArray:
        """The interval of u of each bin."""
        borders = np.clip(np.array([0.0, *self._fitted_cuts(), 1.0]), 0.0, 1.0)
        return np.stack([borders[:-1], borders[1:]], axis=1)

    def _fitted_cuts(self) -> tuple[float, ...]:
        if self.cuts is None:
            raise ValueError("Bins by quantiles or raw edges learn their borders from data; call fit first")
        return self.cuts


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
        _check_count("degree", self.degree, 0)
        if self.family not in ("bernstein", "chebyshev", "legendre"):
            raise ValueError(f'family must be "bernstein", "chebyshev" or "legendre", got {self.family!r}')

    @property
    def widths(self) -> tuple[int, ...]:
        """One window as wide as the basis."""
        return (self.degree + 1,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of functions, in a tuple."""
        return (self.degree + 1,)

    def __call__(self, u: FloatArray) -> Windows:
        """All functions at u."""
        if self.family == "bernstein":
            return _from_zero(_bernstein(u, self.degree))
        vander = np.polynomial.chebyshev.chebvander if self.family == "chebyshev" else np.polynomial.legendre.legvander
        return _from_zero(vander(2.0 * u - 1.0, self.degree))


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
        _check_count("order", self.order, 1)

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
        The functions. They cannot be written to a file.

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


BASES = (BSpline, MultiResolution, Bins, Polynomial, Fourier, Powers)
"""The bases that can be written to a file."""


def supports(basis: Basis) -> FloatArray:
    """Where each function of a basis is not zero, in u; all of [0, 1] unless the basis knows better."""
    known = getattr(basis, "supports", None)
    return known() if known is not None else _whole(sum(basis.sizes))


def cardinal_splines(u: FloatArray, segments: int, degree: int) -> tuple[IntArray, FloatArray]:
    """Uniform B-splines: first active function, shape (n,), and the degree + 1 weights, shape (n, degree + 1).

    With t the position inside the segment, the weights of degree d follow from those of degree d - 1:
    of the weight of function j, the part (t + d - 1 - j) / d moves on to function j + 1.
    """
    scaled = u * segments
    start = np.minimum(scaled.astype(np.int32), segments - 1)
    t = scaled - start
    weight = np.empty((degree + 1, len(u)))
    weight[0] = 1.0
    for d in range(1, degree + 1):
        weight[d] = 0.0
        for j in range(d - 1, -1, -1):
            rising = (t + (d - 1 - j)) * (weight[j] / d)
            weight[j + 1] += rising
            weight[j] -= rising
    return start, weight.T


def cox_de_boor(u: FloatArray, knots: FloatArray, segments: int, degree: int) -> tuple[IntArray, FloatArray]:
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


def _whole(size: int) -> FloatArray:
    return np.tile([0.0, 1.0], (size, 1))


def _check_count(name: str, value: int, low: int, high: int | None = None) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise ValueError(f"{name} must be a whole number, got {value!r}")
    if value < low or (high is not None and value > high):
        allowed = f"at least {low}" if high is None else f"from {low} to {high}"
        raise ValueError(f"{name} must be {allowed}, got {value}")


def _increasing(name: str, values: tuple[float, ...]) -> tuple[float, ...]:
    array = np.asarray(values, np.float64)
    if array.ndim != 1 or len(array) < 2 or not np.isfinite(array).all() or (np.diff(array) <= 0).any():
        raise ValueError(f"{name} must be at least two increasing finite numbers, got {tuple(values)}")
    return tuple(array.tolist())


def _checked_knots(knots: tuple[float, ...]) -> tuple[float, ...]:
    knots = _increasing("knots", knots)
    if knots[0] != 0.0 or knots[-1] != 1.0:
        raise ValueError(f"knots must run from 0 to 1 (break-points in u), got {knots[0]} to {knots[-1]}")
    return knots
