"""Bases in ONNX graphs: the functions that are not zero at a value, and their weights.

Steps and splines are written as `splinefm.encode` describes them. The other bases are written as their formulas, which
ONNX has operators for.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from splinefm._arrays import Int64Array
from splinefm.encode.bases import (
    BASES,
    Basis,
    BSpline,
    Fourier,
    MultiResolution,
    Polynomial,
    PolynomialWindow,
    Powers,
    spline_window,
    step_cuts,
)
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.transforms.transform import raw_edges
from splinefm.export.onnx.transforms import count_up_to, no_counterpart, to_unit

if TYPE_CHECKING:
    from splinefm.export.onnx.graph import Graph, Operand


class GraphWindow(NamedTuple):
    """Neighboring functions of a basis at each row of data."""

    start: str | None
    """Which of them comes first; None where all functions are active."""
    weight: str | None
    """Their values, shape (N, width), float; None stands for a single 1."""
    width: int
    functions: Int64Array
    """The functions in the order in which `start` counts them."""


def graph_windows(g: Graph, item: Numerical, x: str) -> list[GraphWindow]:
    """The functions of a field's basis that are not zero at x, which has no missing and no special values."""
    basis: Any = item.basis
    if type(basis) not in BASES:  # a subclass may compute something else
        raise ValueError(no_counterpart("basis", item))
    levels = basis.levels if isinstance(basis, MultiResolution) else (basis,)
    first, unit, found = 0, None, []
    for level in levels:
        size = sum(level.sizes)
        cuts = step_cuts(level)
        if cuts is not None:
            # The borders of steps travel in raw units: a value on a border is on the same side as it is here.
            start = count_up_to(g, x, raw_edges(item.fitted_transform, cuts))
            window = GraphWindow(start, None, 1, np.arange(size))
        else:
            unit = unit or to_unit(g, item, x)
            is_spline = isinstance(level, BSpline)
            window = _spline(g, spline_window(level), unit) if is_spline else _global_functions(g, item, level, unit)
        found.append(window._replace(functions=window.functions + first))
        first += size
    return found


def _spline(g: Graph, window: PolynomialWindow, u: str) -> GraphWindow:
    """Weights as polynomials in the position inside of a segment, by Horner's rule."""
    n, edges = window.segments, window.edges
    if edges is None:
        scaled = g("Mul", u, float(n))
        start = g("Min", g.cast(g("Floor", scaled), np.int64), n - 1)
        position = g("Sub", scaled, g.cast(start, np.float64))
    else:
        start = count_up_to(g, u, edges[1:-1])
        position = g("Div", g("Sub", u, g("Gather", edges[:-1], start)), g("Gather", np.diff(edges), start))
    position = g("Unsqueeze", g("Sub", g("Mul", position, 2.0), 1.0), np.array([1]))
    width, n_powers = window.coefficients.shape[1:]
    by_power = [window.coefficients[:, :, power] for power in range(n_powers)]
    powers: list[Operand] = [each if edges is None else g("Gather", each, start) for each in by_power]
    weight = powers[0]
    for power in powers[1:]:
        weight = g("Add", g("Mul", position, weight), power)
    functions = np.arange(n + width - 1) % window.around
    return GraphWindow(start, g.cast(str(weight), np.float32), width, functions)


def _global_functions(g: Graph, item: Numerical, basis: Basis, u: str) -> GraphWindow:
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
    elif isinstance(basis, Polynomial) and basis.family == "bernstein":
        weight = _bernstein(g, column, basis.degree)
    elif isinstance(basis, Polynomial):
        weight = g("Concat", *_orthogonal(g, column, basis), axis=1)
    else:  # a basis that this module has no formula of
        raise ValueError(no_counterpart("basis", item))
    size = sum(basis.sizes)
    return GraphWindow(None, g.cast(weight, np.float32), size, np.arange(size))


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
