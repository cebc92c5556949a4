"""The vector of a numerical field as a curve in u, in pieces of polynomials with their control points."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.encode.bases import Basis, Bins, BSpline, Fourier, MultiResolution, Polynomial, step_cuts
from splinefm.encode.encoder import Encoder
from splinefm.encode.schema import AnyField
from splinefm.encode.slots import expand_windows
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params

EXACT = 10
"""Polynomials up to this degree are turned into control points without loss worth mentioning."""
_CELLS = 512  # parts of [0, 1] in which the speed of a curve is bounded, at least
_MAX_CELLS = 1 << 17
_HULL = 64  # parts of [0, 1] whose control points hold the curve of another field, at least
_BLOCK_NUMBERS = 1 << 22  # numbers in arrays of intermediate results


class Parameterized(Protocol):
    """Fields, a model and its parameters: a `Fitted`, or what a run of training has so far."""

    @property
    def encoder(self) -> Encoder:
        """The fitted fields and their layout."""

    @property
    def model(self) -> AnyModel:
        """The model."""

    @property
    def params(self) -> Params:
        """Its parameters."""


def is_steps(item: AnyField) -> bool:
    """Whether a field has one feature per interval already."""
    return item.basis is not None and step_cuts(item.basis) is not None


def blocks(n: int, width: int) -> Iterator[slice]:
    """Blocks of n items of `width` numbers each, so that intermediate results stay small."""
    step = max(1, _BLOCK_NUMBERS // max(1, width))
    return (slice(at, at + step) for at in range(0, n, step))


def field_features(fitted: Parameterized, f: int) -> FloatArray:
    """Linear weights and vectors of a field's features: shape (features, 1 + width)."""
    first, last = fitted.encoder.layout.feature_ptr[f : f + 2]
    linear, factors = fitted.params["linear"][first:last], fitted.params["factors"][first:last]
    return np.concatenate([linear[:, None], factors], axis=1, dtype=np.float64)


class FieldPath:
    """The curve of a numerical field: its linear part and its vector as functions of u, shape (1 + width,).

    On each of the `cells` it is a polynomial of the given degree, or, with `third` not zero, differs from one of degree
    2 by no more than its third derivative says (`third` has the third derivative of each basis function).
    """

    item: Any

    def __init__(self, fitted: Parameterized, f: int) -> None:
        self.fitted, self.f, self.item = fitted, f, fitted.encoder.fields[f]
        rows = field_features(fitted, f)
        self.tokens, self.rows = rows[: self.item.n_tokens], rows[self.item.n_tokens :]
        self.split = self.item.reduction == "identity" and sum(self.item.basis.widths) > 1
        self.third: FloatArray = np.zeros(len(self.rows))
        self.cells, self.degree, self.certified = self._shape()

    def _shape(self) -> tuple[FloatArray, int, bool]:
        basis = self.item.basis
        if isinstance(basis, BSpline | MultiResolution | Polynomial):
            breaks, degree = self.item.pieces()
            degree *= 1 + self.split  # the vectors of one field are multiplied with each other
            if degree <= EXACT:
                return _refined(breaks, _CELLS), degree, True
        third = None if self.split else _third_derivatives(basis)
        if third is None:  # denser at both ends, where roots and logarithms have their poles
            ends = 0.5 ** np.arange(1.0, 50.0)
            return np.unique(np.concatenate([np.linspace(0.0, 1.0, 4 * _CELLS + 1), ends, 1.0 - ends])), 2, False
        self.third = third
        return np.linspace(0.0, 1.0, _parts_for(1e-7, third, _CELLS) + 1), 2, True

    def weights(self, u: FloatArray) -> Any:
        """Values of the basis functions, a sparse matrix of shape (n, functions)."""
        from scipy.sparse import csr_array

        start, weight = self.item.basis(u)
        rows = expand_windows(start, self.item.basis.widths)
        row_ptr = np.arange(len(u) + 1) * rows.shape[1]
        return csr_array((weight.ravel(), rows.ravel(), row_ptr), shape=(len(u), len(self.rows)))

    def at(self, u: FloatArray) -> FloatArray:
        """Points of the curve: shape (n, 1 + width)."""
        matrix = self.weights(u)
        points: FloatArray = matrix @ self.rows
        if self.split:
            n_units = sum(self.item.basis.widths)
            rows, weight = (values.reshape(len(u), n_units) for values in (matrix.indices, matrix.data))
            unit_field = np.full(n_units, self.f, np.int32)
            for part in blocks(len(u), n_units**2 * self.rows.shape[1]):
                P = weight[part, :, None] * self.rows[rows[part], 1:]
                points[part, 0] += self.fitted.model.interaction(P, self.fitted.params, unit_field)
        return points

    def controls(self, first: FloatArray, last: FloatArray) -> FloatArray:
        """Bézier control points between points of the same cell: shape (n, degree + 1, 1 + width)."""
        t = np.linspace(0.0, 1.0, self.degree + 1) if self.degree else np.array([0.5])
        u = np.minimum(first[:, None] + (last - first)[:, None] * t, last[:, None])
        values = self.at(u.ravel()).reshape(*u.shape, -1)
        return np.asarray(np.einsum("ij,njw->niw", to_bernstein(self.degree), values))

    def parts(self, fine: bool) -> FloatArray:
        """Borders of parts whose control points are close to the curve, or close enough if it is not a polynomial."""
        if self.certified and not self.third.any():
            return _refined(self.item.pieces()[0], _HULL)
        return self.cells if fine else np.linspace(0.0, 1.0, _parts_for(1e-4, self.third, 4 * _HULL) + 1)

    def steps(self) -> Bins | None:
        """The bins that a curve of steps consists of; None for any other."""
        if self.degree:
            return None
        cuts = self.item.pieces()[0][1:-1]
        return Bins(len(cuts) + 1, cuts=tuple(cuts.tolist()))


def _refined(breaks: FloatArray, least: int) -> FloatArray:
    """Breaks with points between them, so that there are at least `least` parts."""
    parts = -(-least // (len(breaks) - 1))
    inner = breaks[:-1, None] + np.diff(breaks)[:, None] * np.arange(parts) / parts
    return np.append(inner.ravel(), breaks[-1])


def _parts_for(error: float, third: FloatArray, least: int) -> int:
    """Number of equal parts of [0, 1] where quadratics are within `error` of functions with these derivatives."""
    return min(max(least, int(np.cbrt(third.max() / error) / 4.9) + 1), _MAX_CELLS)


def to_bernstein(degree: int) -> FloatArray:
    """From values at evenly spaced points of [0, 1] to coefficients of Bernstein polynomials."""
    t = np.linspace(0.0, 1.0, degree + 1)[:, None] if degree else np.array([[0.5]])
    i = np.arange(degree + 1)
    binomial = np.array([math.comb(degree, j) for j in i])
    return np.asarray(np.linalg.inv(binomial * t**i * (1.0 - t) ** (degree - i)), np.float64)


def _third_derivatives(basis: Basis) -> FloatArray | None:
    """The largest third derivative of each function on [0, 1]; None where it is not known."""
    if isinstance(basis, Fourier):
        return np.append(0.0, np.repeat((2.0 * np.pi * np.arange(1, basis.order + 1)) ** 3, 2))
    if not isinstance(basis, Polynomial):
        return None
    n = np.arange(basis.degree + 1.0)
    if basis.family == "bernstein":  # third differences of one coefficient are at most 3
        return np.full(len(n), 3.0 * basis.degree * (basis.degree - 1) * (basis.degree - 2))
    if basis.family == "chebyshev":  # largest at the ends, as for Legendre's; 8 because [0, 1] is half of [-1, 1]
        return np.asarray(8.0 * n**2 * (n**2 - 1) * (n**2 - 4) / 15)
    return np.asarray(8.0 * (n + 3) * (n + 2) * (n + 1) * n * (n - 1) * (n - 2) / 48)
