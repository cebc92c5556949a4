"""Transforms as piecewise cubics and bases as piecewise polynomials: what compiled code evaluates for a single row.

Quantile and min-max transforms are piecewise linear, splines and polynomials piecewise polynomial: they stay what they
are. Other transforms of the package are followed to 1e-9 by cubics on as many pieces as that takes. Bins are looked up
by the raw value, so that one on a border falls where the encoder puts it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from splinefm.encode.bases.basis import Basis
from splinefm.encode.bases.bins import Bins
from splinefm.encode.bases.functions import Fourier, Polynomial, Powers
from splinefm.encode.bases.splines import BSpline, MultiResolution
from splinefm.encode.transforms.bestfit import BestFitCDF
from splinefm.encode.transforms.quantile import Quantile
from splinefm.encode.transforms.scaling import MinMax
from splinefm.encode.transforms.transform import TRANSFORMS, Transform

FloatArray = npt.NDArray[np.float64]
Function = Callable[[FloatArray], FloatArray]
TOLERANCE = 1e-9  # of u
MOST_PIECES = 8192
_NOISE = 1e-15  # of a CDF, relative
_FOURIER_DEGREE = 7
_HIGHEST_POWER = 12
_FAR = 1 << 40  # rows do not go around before that many


@dataclass(frozen=True, eq=False)
class Window:
    """Neighboring functions of a basis that are not zero in a segment: polynomials of the place inside it.

    Parameters
    ----------
    segments : int
        Into how many segments [0, 1], or the line of raw values, is cut.
    coefficients : array of shape (segments or 1, functions, degree + 1)
        Highest power first, of the place inside the segment, from -1 to 1.
    start, moves : int
        The first function in the first segment, and by how much it changes from segment to segment.
    edges : array of shape (segments + 1,), optional
        Ends of the segments, where they are not of equal length.
    around : int
        Function `around` is function 0 again.
    """

    segments: int
    coefficients: FloatArray
    start: int = 0
    moves: int = 1
    edges: FloatArray | None = None
    around: int = _FAR


def transform_pieces(transform: Transform) -> tuple[FloatArray, FloatArray] | None:
    """Knots, shape (n + 1,), and what is between them; None if the transform is not known.

    That is the values at the knots, shape (n + 1, 1), where it is linear, or else cubics, shape (n, 4), of the place
    between two knots, from 0 to 1.

    Examples
    --------
    >>> transform_pieces(MinMax(low=2.0, high=4.0))
    (array([2., 4.]), array([[0.], [1.]]))
    """
    if type(transform) not in TRANSFORMS:
        return None
    if isinstance(transform, MinMax):
        return np.array([transform.low, transform.high], np.float64), np.array([[0.0], [1.0]])
    if isinstance(transform, Quantile):
        return np.array(transform.x), np.array(transform.u)[:, None]
    low, high = np.asarray(transform.inverse(np.array([0.0, 1.0]))).tolist()
    return _follow(transform, low, high) if -np.inf < low < high < np.inf else None


def _follow(function: Function, low: float, high: float) -> tuple[FloatArray, FloatArray] | None:
    """Cubics through four points of each piece; pieces are halved until they are near enough in between."""
    left, right = np.array([low]), np.array([high])
    done: list[tuple[FloatArray, FloatArray]] = []
    n_done = 0
    while len(left):
        cubics, middle = _through(function, left, right), _middle(left, right)
        width = right - left
        wrong = np.zeros(len(left), bool)
        for t in (1 / 6, 1 / 2, 5 / 6):
            x = left + t * width
            t_x = (x - left) / width
            wrong |= np.abs(_cubic(cubics, t_x) - function(x)) > TOLERANCE
        wrong &= (middle > left) & (middle < right)  # where no number lies between, both ends are met
        done.append((left[~wrong], cubics[~wrong]))
        n_done += int((~wrong).sum())
        if n_done + 2 * int(wrong.sum()) > MOST_PIECES:
            return None
        left, middle, right = left[wrong], middle[wrong], right[wrong]
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
    starts = np.concatenate([part for part, _ in done])
    order = np.argsort(starts)
    return np.append(starts[order], high), np.concatenate([part for _, part in done])[order]


def _through(function: Function, left: FloatArray, right: FloatArray) -> FloatArray:
    """Cubics through the values at 0, 1/3, 2/3 and 1."""
    a, b, c, d = (function(left + t * (right - left)) for t in (0.0, 1 / 3, 2 / 3, 1.0))
    return np.stack(
        [
            a,
            (-11 * a + 18 * b - 9 * c + 2 * d) / 2,
            4.5 * (2 * a - 5 * b + 4 * c - d),
            4.5 * (-a + 3 * b - 3 * c + d),
        ],
        axis=1,
    )


def _cubic(c: FloatArray, t: FloatArray) -> FloatArray:
    return np.asarray(c[:, 0] + t * (c[:, 1] + t * (c[:, 2] + t * c[:, 3])))


def _middle(left: FloatArray, right: FloatArray) -> FloatArray:
    """Where to cut: between numbers of very different size, by their size."""
    middle = left + (right - left) / 2
    small, large = np.minimum(np.abs(left), np.abs(right)), np.maximum(np.abs(left), np.abs(right))
    same_side = (left > 0) | (right < 0)
    by_size = np.where(left > 0, 1.0, -1.0) * np.sqrt(small) * np.sqrt(large)
    return np.where(same_side & (large > 4 * small), by_size, middle)


def windows(basis: Basis, transform: Transform) -> tuple[list[Window], bool] | None:
    """The windows of a basis, and whether they are steps, which take raw values; None if there are none.

    Examples
    --------
    >>> (window,), is_steps = windows(Bins(2), MinMax(low=0.0, high=10.0))
    >>> window.edges, is_steps
    (array([-inf, 5., inf]), True)
    """
    if type(basis) is Bins and basis.cuts is not None:
        return _steps(transform, np.array(basis.cuts, np.float64))
    if type(basis) is BSpline and basis.degree == 0:
        return _steps(transform, basis.extended_knots[1:-1])
    found = _smooth(basis)
    return None if found is None else (found, False)


def _steps(transform: Transform, cuts: FloatArray) -> tuple[list[Window], bool] | None:
    if type(transform) not in TRANSFORMS:
        return None
    if isinstance(transform, BestFitCDF):
        # Some CDFs go up and down in their last digits; a value that a border was made of must not fall below it.
        cuts = cuts - _NOISE * np.abs(cuts)
    edges = np.concatenate([[-np.inf], first_reaching(transform, cuts), [np.inf]])
    return [Window(len(cuts) + 1, np.ones((1, 1, 1)), edges=edges)], True


def first_reaching(transform: Transform, cuts: FloatArray) -> FloatArray:
    """For each cut the least x with T(x) ≥ cut, found by halving; infinite where there is none.

    Examples
    --------
    >>> first_reaching(MinMax(low=0.0, high=10.0), np.array([0.5, 2.0]))
    array([ 5., inf])
    """
    top = np.float64(np.finfo(np.float64).max).view(np.int64)
    low, high = np.full(len(cuts), -top), np.full(len(cuts), top)
    reached = transform(_number(high)) >= cuts
    for _ in range(64):
        middle = (low & high) + ((low ^ high) >> 1)  # their mean, rounded down, without overflow
        above = transform(_number(middle)) >= cuts
        low, high = np.where(above, low, middle + 1), np.where(above, middle, high)
        low = np.minimum(low, high)
    return np.where(reached, _number(high), np.inf)


def _number(place: npt.NDArray[np.int64]) -> FloatArray:
    """Floats in the order of whole numbers: equal places apart, neighbors are neighbors."""
    return np.where(place < 0, -1.0, 1.0) * np.abs(place).view(np.float64)


def _smooth(basis: Basis) -> list[Window] | None:
    if type(basis) is BSpline:
        return [_spline(basis)]
    if type(basis) is MultiResolution and basis.degree > 0:
        starts = np.cumsum([0, *basis.sizes])
        return [_spline(level, int(start)) for level, start in zip(basis.levels, starts[:-1], strict=True)]
    if type(basis) is Polynomial:
        return [_fixed(basis, 1, basis.degree)]
    if type(basis) is Fourier:
        return [_fixed(basis, 8 * basis.order, _FOURIER_DEGREE)]
    if type(basis) is Powers and all(power in range(1, _HIGHEST_POWER + 1) for power in basis.exponents):
        return [_fixed(basis, 1, int(max(basis.exponents)))]
    return None


def _spline(basis: BSpline, start: int = 0) -> Window:
    n = basis.segments
    around = n if basis.periodic else _FAR
    if basis.knots is None:  # all segments are alike
        return Window(n, _polynomials(basis, np.array([0.0, 1.0 / n]), basis.degree), start, around=around)
    edges = np.array(basis.knots)
    return Window(n, _polynomials(basis, edges, basis.degree), start, edges=edges, around=around)


def _fixed(basis: Basis, segments: int, degree: int) -> Window:
    """All functions are active everywhere."""
    edges = np.arange(segments + 1) / segments
    return Window(segments, _polynomials(basis, edges, degree), moves=0)


def _polynomials(basis: Basis, edges: FloatArray, degree: int) -> FloatArray:
    """Polynomials through the values of the basis at degree + 1 places inside of each segment."""
    inside = np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))
    u = edges[:-1, None] + (inside + 1.0) / 2.0 * np.diff(edges)[:, None]
    _, weight = basis(u.ravel())
    values = weight.reshape(len(u), degree + 1, -1)
    solved = np.linalg.solve(np.vander(inside), values)
    return np.ascontiguousarray(solved.transpose(0, 2, 1))
