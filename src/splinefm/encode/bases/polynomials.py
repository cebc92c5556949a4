"""Bases as windows of polynomials on segments of [0, 1]: exact for splines and polynomials, close for waves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.encode.bases.basis import Basis
from splinefm.encode.bases.functions import Fourier, Polynomial, Powers
from splinefm.encode.bases.splines import BSpline, MultiResolution

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
