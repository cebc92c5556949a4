"""Curves along columns that crosses contain, as piecewise polynomials in u."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.encode.fields.curves import pieces
from splinefm.encode.fields.numerical import Numerical
from splinefm.view.crossed import Crossed

FloatArray = npt.NDArray[np.float64]

# Break-points of two bases that differ by less are the same one, up to rounding.
_SAME = 1e-12
# Powers that contribute less to a piece are rounding errors.
_NEGLIGIBLE = 1e-14


def crossed_polynomial(crossed: Crossed) -> Any:
    """The score along the axis as a SciPy `PPoly` in u, with the axis of segments last.

    On each piece it is a polynomial whose degree is known, so its values at as many points determine it.
    """
    from scipy.interpolate import PPoly

    breaks, degree = crossed_pieces(crossed)
    # Chebyshev points lie inside of a piece, where values do not jump.
    angle = np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1)
    inside = 0.5 + 0.5 * np.cos(angle)
    width = np.diff(breaks)
    u = breaks[:-1, None] + width[:, None] * inside
    values = crossed.scores([crossed.at_positions(crossed.axes[0], u.ravel())])
    chebyshev = values.reshape(len(crossed), len(width), degree + 1) @ (
        np.cos(angle[:, None] * np.arange(degree + 1)) * np.where(np.arange(degree + 1) == 0, 1.0, 2.0) / (degree + 1)
    )
    c = np.moveaxis(chebyshev @ _powers(degree), (2, 1, 0), (0, 1, 2))
    c = c / width[:, None] ** np.arange(degree, -1, -1)[:, None, None]
    return PPoly(c, breaks, extrapolate=False)


def one_of(piecewise: Any) -> Any:
    """The only segment."""
    from scipy.interpolate import PPoly

    return PPoly(piecewise.c[..., 0], piecewise.x, extrapolate=False)


def crossed_pieces(crossed: Crossed) -> tuple[FloatArray, int]:
    """Borders and degree of the polynomials that a curve is made of."""
    axis = crossed.axes[0]
    item = crossed.sources.fields[axis]
    assert isinstance(item, Numerical)
    found, degrees = [np.array([0.0, 1.0])], []
    if axis in crossed.fitted.encoder.schema.names:
        breaks, degree = pieces(item)
        found.append(breaks)
        degrees.append(degree)
    of_cross: dict[str, int] = {}
    for cross, i in crossed.parts_along(axis):
        part = cross.fields[i]
        if not isinstance(part, Numerical) or part.transform != item.transform or part.rules != item.rules:
            raise ValueError(
                f"the cross {cross.name!r} reads {axis!r} in another way than the field along which the curve runs, so "
                "that the curve is not a spline: call it on values"
            )
        breaks, degree = pieces(part)
        found.append(breaks)
        of_cross[cross.name] = of_cross.get(cross.name, 0) + degree
    # Products have at most as many factors as the model's order.
    degrees = sorted([*degrees, *of_cross.values()], reverse=True)[: crossed.fitted.model.order]
    every = np.unique(np.concatenate(found))
    return every[np.append(True, np.diff(every) > _SAME)], sum(degrees)


def _powers(degree: int) -> FloatArray:
    """Chebyshev polynomials on [0, 1] in powers, the highest first: exact integers."""
    rows = [
        np.polynomial.Chebyshev.basis(i, domain=[0, 1]).convert(
            kind=np.polynomial.Polynomial, domain=[0, 1], window=[0, 1]
        )
        for i in range(degree + 1)
    ]
    return np.stack([np.pad(np.rint(row.coef), (0, degree + 1 - len(row.coef)))[::-1] for row in rows])


def bernstein(piecewise: Any, intercept: Any) -> FloatArray:
    """Coefficients of the Bernstein polynomials of all pieces, less the intercept: shape (segments.., functions)."""
    from scipy.interpolate import BPoly

    c = BPoly.from_power_basis(piecewise).c - intercept
    return np.asarray(np.moveaxis(c, (0, 1), (-1, -2)).reshape(*c.shape[2:], -1))


def polynomial_extrema(piecewise: Any, sign: float, first: float, last: float) -> tuple[FloatArray, FloatArray]:
    """Where each segment is largest (sign 1) or smallest (-1) between two positions, and the value there.

    Where the polynomials of two pieces do not meet, both ends count: the value may be a limit.
    """
    breaks, c = piecewise.x, piecewise.c
    n_pieces = len(breaks) - 1
    inner = [np.maximum(breaks[:-1], first), np.minimum(breaks[1:], last)]
    shown = np.flatnonzero(inner[0] <= inner[1])
    at, value = np.empty((2, c.shape[2]))
    for segment in range(c.shape[2]):
        roots = _critical(c[:, :, segment], breaks)
        roots = roots[(roots >= first) & (roots <= last)]
        u = np.concatenate([inner[0][shown], inner[1][shown], roots])
        of_root = np.clip(np.searchsorted(breaks, roots, side="right") - 1, 0, n_pieces - 1)
        piece = np.concatenate([shown, shown, of_root])
        scores = np.zeros(len(u))
        for power in c[:, :, segment]:
            scores = scores * (u - breaks[piece]) + power[piece]
        best = int(np.argmax(sign * scores))
        at[segment], value[segment] = u[best], scores[best]
    return at, value


def _critical(c: FloatArray, breaks: FloatArray) -> FloatArray:
    """Where the derivative of a piecewise polynomial is zero."""
    from scipy.interpolate import PPoly

    n = len(c)
    if n < 3:
        return np.empty(0)  # the ends of pieces are candidates anyway
    size = np.abs(c) * np.diff(breaks) ** np.arange(n - 1, -1, -1)[:, None]
    c = np.where(size > _NEGLIGIBLE * size.max(axis=0), c, 0.0)
    slope = c[:-1] * np.arange(n - 1, 0, -1)[:, None]
    found: FloatArray = PPoly(slope, breaks).roots(discontinuity=False, extrapolate=False)
    return found[np.isfinite(found)]
