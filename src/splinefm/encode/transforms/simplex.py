"""The minimum of a function of a few numbers, without derivatives.

The steps are those of SciPy's `minimize(method="Nelder-Mead")`. They are written down here because importing
`scipy.optimize` takes a quarter of a second of every new process, and the fit of a column takes milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from splinefm.encode.transforms.points import Float


def nelder_mead(
    loss: Callable[[Float], float], simplex: npt.ArrayLike, *, xatol: float, fatol: float, steps: int
) -> Float:
    """Return the best point that a downhill simplex finds (Nelder & Mead, 1965).

    With w the worst of the n + 1 vertices and c the mean of the others, x(t) = (1 + t) c - t w is a line through both.
    A step replaces w by one of four points:

    - x(1), the reflection of w, if it is better than the second worst vertex;
    - x(2), if x(1) is better than all vertices and x(2) still better;
    - otherwise x(1/2) or, if x(1) is no better than w, x(-1/2), if that is an improvement.

    If it is none, all vertices move half way to the best one.

    Parameters
    ----------
    loss
        Function of n numbers. It may be infinite or NaN, which counts as infinite.
    simplex
        The vertices to begin with, shape (n + 1, n).
    xatol, fatol
        The search ends when all vertices are within `xatol` of the best one, in every coordinate, and their losses
        within `fatol` of its loss.
    steps
        Most steps.

    Examples
    --------
    >>> nelder_mead(lambda x: (x[0] - 3) ** 2, [[0.0], [1.0]], xatol=1e-6, fatol=1e-6, steps=100).round(3)
    array([3.])
    """

    def at(point: Float) -> float:
        value = float(loss(point))
        return value if value == value else np.inf

    points = np.asarray(simplex, dtype=np.float64)
    values = np.array([at(point) for point in points])
    for _ in range(steps):
        order = values.argsort(kind="stable")
        points, values = points[order], values[order]
        # Infinite losses count as equal: their difference would be NaN.
        if np.abs(points - points[0]).max() <= xatol and not values[-1] > values[0] + fatol:
            break
        better = _better_than_worst(at, points, values)
        if better is not None:
            points[-1], values[-1] = better
        else:
            points[1:] = points[0] + 0.5 * (points[1:] - points[0])
            values[1:] = [at(point) for point in points[1:]]
    return np.array(points[values.argmin()])


def _better_than_worst(at: Callable[[Float], float], points: Float, values: Float) -> tuple[Float, float] | None:
    """The point that replaces the last of the sorted vertices, with its loss; None if there is none."""
    center = points[:-1].sum(axis=0) / (len(points) - 1)

    def attempt(t: float) -> tuple[Float, float]:
        point = (1.0 + t) * center - t * points[-1]
        return point, at(point)

    reflected = attempt(1.0)
    if reflected[1] < values[0]:
        expanded = attempt(2.0)
        return expanded if expanded[1] < reflected[1] else reflected
    if reflected[1] < values[-2]:
        return reflected
    if reflected[1] < values[-1]:
        outside = attempt(0.5)
        return outside if outside[1] <= reflected[1] else None
    inside = attempt(-0.5)
    return inside if inside[1] < values[-1] else None
