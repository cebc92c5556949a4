"""B-splines on [0, 1]: the default basis, at one or several resolutions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splinefm._arrays import FloatArray, Int32Array
from splinefm._checks import check_count, check_increasing
from splinefm._core import uniform_splines

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
        """The weight of Σ |Δ^order v|² in the smoothness penalty, by resolution: that of 20 segments for all of them.

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
