"""Functions on pieces in ONNX graphs: the search for a piece, and smooth functions as polynomials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from splinefm._arrays import FloatArray

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
class Pieces:
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
    raise ValueError(f"it cannot be written as {_MAX_PIECES:,} polynomials of degree {_DEGREE}")


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
        elif len(found) + len(waiting) < _MAX_PIECES:
            waiting += [(middle, end), (begin, middle)]
        else:
            return None
    return Pieces(np.array([begin for begin, _ in found] + [high]), np.array([powers for _, powers in found]))
