"""What a change of one field's vector meets in the other fields: the smallest product over all of their values.

The score is affine in the vector of field f. A change (δ, Δ) of its linear part and its vector moves the score by

    δ + Σ_e Δ' M_fe p_e,

and the fields e can take their values in any combination, so that the smallest move is the sum of the smallest
products, one field at a time. A categorical field offers the vectors of its features, a spline those on its curve:
Δ' M_fe p_e(u) is a spline of u, and its minimum is at a break or where its derivative, a quadratic for cubic splines,
is zero. Both are found exactly. What is not known so well is bounded by the hulls of `splinefm.bounds.hulls`.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.bounds.hulls import Hull, meet, part_met_by
from splinefm.bounds.paths import FieldPath, Parameterized, blocks, field_features, is_steps
from splinefm.encode.fields.categorical import Categorical, MultiValued
from splinefm.encode.fields.numerical import Numerical

_SOLVED_DEGREE = 3
"""Minima of polynomials up to this degree are found by the formula for the roots of their derivative."""


class Choice(NamedTuple):
    """A value of a field: a feature inside the field, or a position u on its curve; `times` in a list of values."""

    feature: int | None = None
    u: float | None = None
    times: int = 1


class Partner(Protocol):
    """Another field, as the changes of field f meet it."""

    e: int
    is_exact: bool
    """Whether `lowest` is attained by a value of the field; otherwise it is a bound."""

    def lowest(self, changes: FloatArray) -> FloatArray:
        """The smallest Δ' M_fe p_e over all values of field e, for changes of shape (n, part_size)."""

    def mean_squares(self) -> FloatArray:
        """Mean squares of the coordinates of M_fe p_e, each value counting once: shape (part_size,)."""

    def choose(self, change: FloatArray) -> Choice | None:
        """A value with the smallest product; None where none is known."""


class Points:
    """A field whose vector is one of some points, or a sum of up to `times` of them."""

    is_exact = True

    def __init__(self, e: int, points: FloatArray, choices: list[Choice], times: FloatArray) -> None:
        self.e, self.points, self.choices, self.times = e, np.ascontiguousarray(points.T), choices, times

    def lowest(self, changes: FloatArray) -> FloatArray:
        found = np.empty(len(changes))
        for block in blocks(len(changes), self.points.shape[1]):
            found[block] = ((changes[block] @ self.points) * self.times).min(axis=1)
        return found

    def mean_squares(self) -> FloatArray:
        return np.asarray((self.points**2).mean(axis=1))

    def choose(self, change: FloatArray) -> Choice | None:
        return self.choices[int(np.argmin((change @ self.points) * self.times))]


class CurvePoints:
    """A numerical field: points of its curve, as Bézier control points by piece, and its tokens."""

    def __init__(self, e: int, borders: FloatArray, controls: FloatArray, tokens: FloatArray) -> None:
        self.e, self.borders, self.controls, self.tokens = e, borders, controls, tokens
        self.is_exact = controls.shape[1] - 1 <= _SOLVED_DEGREE
        # One matrix for the first, second, .. points of all pieces: the smallest of a piece is then a minimum of few
        # matrices, which is much faster than one along a short axis.
        self._by_control = [np.ascontiguousarray(controls[:, i].T) for i in range(controls.shape[1])]

    def lowest(self, changes: FloatArray) -> FloatArray:
        m, n_controls, _ = self.controls.shape
        found = np.empty(len(changes))
        for block in blocks(len(changes), m * n_controls):
            found[block] = self._minima(changes[block])[0]
        return found

    def mean_squares(self) -> FloatArray:
        return np.asarray((self.controls**2).mean(axis=(0, 1)))

    def choose(self, change: FloatArray) -> Choice | None:
        _, piece, t = self._minima(change[None])
        if piece[0] < 0:
            return Choice(feature=-1 - int(piece[0]))
        first, last = self.borders[piece[0] : piece[0] + 2]
        return Choice(u=float(first + (last - first) * t[0]))

    def _minima(self, changes: FloatArray) -> tuple[FloatArray, Any, FloatArray]:
        """The smallest values, the pieces that have them (-1 - token for tokens), and where in the piece."""
        values = [changes @ points for points in self._by_control]  # each of shape (n, pieces)
        ends = np.minimum(values[0], values[-1])
        piece = ends.argmin(axis=1)
        rows = np.arange(len(changes))
        best = ends[rows, piece]
        t = np.where(values[0][rows, piece] <= values[-1][rows, piece], 0.0, 1.0)
        possible = np.zeros(ends.shape, bool)
        for inside in values[1:-1]:
            possible |= inside < best[:, None]
        row, at = np.nonzero(possible)  # a smaller value is possible inside of these
        if len(row):
            inner, where = smallest_inside(np.stack([each[row, at] for each in values], axis=1))
            order = np.argsort(inner, kind="stable")[::-1]  # the smallest is written last
            better = order[inner[order] < best[row[order]]]
            best[row[better]], piece[row[better]], t[row[better]] = inner[better], at[better], where[better]
        if len(self.tokens):
            of_tokens = changes @ self.tokens.T
            token = of_tokens.argmin(axis=1)
            lower = of_tokens[rows, token] < best
            best = np.where(lower, of_tokens[rows, token], best)
            piece = np.where(lower, -1 - token, piece)
        return best, piece, t


class Hulls:
    """A field of which only the hull of its vectors is known, such as a cross."""

    is_exact = False

    def __init__(self, f: int, hull: Hull) -> None:
        self.e, self.is_certified = hull.e, hull.certified
        radius = hull.radius(f)
        self.parts = [part_met_by(f, hull, group, radius if i == 0 else 0.0) for i, group in enumerate(hull.groups)]

    def lowest(self, changes: FloatArray) -> FloatArray:
        length = np.linalg.norm(changes, axis=1)
        total = np.zeros(len(changes))
        for part in self.parts:
            low = (changes @ part.points).min(axis=1, initial=np.inf) if part.points.size else np.zeros(len(changes))
            if part.ball is not None:
                low = np.minimum(low, changes @ part.ball[0] - part.ball[1] * length)
            total += low - part.radius * length
        return total

    def mean_squares(self) -> FloatArray:
        return np.asarray(sum((part.points**2).mean(axis=1) for part in self.parts if part.points.size))

    def choose(self, change: FloatArray) -> Choice | None:
        return None


def smallest_inside(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The smallest value of polynomials on [0, 1] at a zero of their derivative, and where; inf where there is none.

    The polynomials are given by their Bernstein coefficients, shape (n, degree + 1). Above degree 3 the result is a
    bound: the smallest coefficient.

    Examples
    --------
    >>> smallest_inside(np.array([[1.0, -1.0, 1.0]]))  # (1 - 2 t)²
    (array([0.]), array([0.5]))
    """
    degree = values.shape[1] - 1
    if degree > _SOLVED_DEGREE:
        return values.min(axis=1), values.argmin(axis=1) / degree
    slopes = np.diff(values, axis=1)  # Bernstein coefficients of the derivative, divided by the degree
    best, where = np.full(len(values), np.inf), np.zeros(len(values))
    if degree < 2:
        return best, where
    with np.errstate(divide="ignore", invalid="ignore"):
        if degree == 2:
            roots = [slopes[:, 0] / (slopes[:, 0] - slopes[:, 1])]
        else:
            a = slopes[:, 0] - 2 * slopes[:, 1] + slopes[:, 2]
            b = slopes[:, 1] - slopes[:, 0]  # a t² + 2 b t + c
            root = np.sqrt(b * b - a * slopes[:, 0])
            q = -(b + np.copysign(root, b))
            roots = [q / a, slopes[:, 0] / q]
    for t in roots:
        inside = np.isfinite(t) & (t > 0.0) & (t < 1.0)
        s = np.where(inside, t, 0.5)
        value = np.where(inside, bernstein_at(values, s), np.inf)
        where = np.where(value < best, s, where)
        best = np.minimum(best, value)
    return best, where


def bernstein_at(values: FloatArray, t: FloatArray) -> FloatArray:
    """Values at t of polynomials with these Bernstein coefficients, along axis 1 (de Casteljau)."""
    t = t.reshape(-1, *[1] * (values.ndim - 1))
    while values.shape[1] > 1:
        values = values[:, :-1] * (1.0 - t) + values[:, 1:] * t
    return values[:, 0]


def partner(fitted: Parameterized, f: int, e: int) -> Partner:
    """Field e as the changes of field f meet it."""
    item: Any = fitted.encoder.fields[e]
    rows = field_features(fitted, e)[:, 1:]
    zero = np.zeros((1, rows.shape[1]))

    def mapped(points: FloatArray) -> FloatArray:
        flat = points.reshape(-1, points.shape[-1])
        return meet(fitted, f, e, flat).reshape(*points.shape[:-1], -1)

    if isinstance(item, Numerical):
        if is_steps(item) and item.reduction == "sum":
            return Points(e, mapped(rows), [Choice(i) for i in range(len(rows))], np.ones(len(rows)))
        path = FieldPath(fitted, e)
        if path.certified and not path.third.any() and not path.split:
            breaks = item.pieces()[0]
            controls = path.controls(breaks[:-1], breaks[1:])[:, :, 1:]
            return CurvePoints(e, breaks, mapped(controls), mapped(path.tokens[:, 1:]))
    elif isinstance(item, Categorical):
        points, choices = rows, [Choice(i) for i in range(len(rows))]
        if item.unseen == "neutral":
            points, choices = np.concatenate([rows, zero]), [*choices, Choice(-1)]
        return Points(e, mapped(points), choices, np.ones(len(points)))
    elif isinstance(item, MultiValued):
        length = item.max_length or 1
        times = np.ones(len(rows) + 1)
        choices = [Choice(i) for i in range(len(rows))] + [Choice(-1, times=0)]
        if item.reduction != "mean":
            first = int(item.missing == "token")
            times[first:-1] = length
            choices[first:-1] = [Choice(i, times=length) for i in range(first, len(rows))]
        return Points(e, mapped(np.concatenate([rows, zero])), choices, times)
    return Hulls(f, Hull(fitted, e, None))
