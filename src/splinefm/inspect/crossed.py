"""The score along columns that crosses contain: products of several fields that vary together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from splinefm._arrays import Float32Array, FloatArray, IndexArray, Int32Array
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.cross_parts import (
    PartGroup,
    encode_part,
    n_units_of,
    part_at,
    product,
    unit_groups,
    unit_weights,
)
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Single, Sources
from splinefm.encode.slots import expand_windows
from splinefm.train.fitted import Fitted

# Curves along columns that crosses contain, as piecewise polynomials in u.

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


def single_segment(piecewise: Any) -> Any:
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
        breaks, degree = item.pieces()
        found.append(breaks)
        degrees.append(degree)
    of_cross: dict[str, int] = {}
    for cross, i in crossed.parts_along(axis):
        part: Any = cross.fields[i]
        if not part.is_numerical or part.transform != item.transform or _special_values(part) != _special_values(item):
            raise ValueError(
                f"the cross {cross.name!r} reads {axis!r} in another way than the field along which the curve runs, so "
                "that the curve is not a spline: call it on values"
            )
        breaks, degree = part.pieces()
        found.append(breaks)
        of_cross[cross.name] = of_cross.get(cross.name, 0) + degree
    # Products have at most as many factors as the model's order.
    degrees = sorted([*degrees, *of_cross.values()], reverse=True)[: crossed.fitted.model.order]
    every = np.unique(np.concatenate(found))
    return every[np.append(True, np.diff(every) > _SAME)], sum(degrees)


def _special_values(item: Numerical) -> tuple[Any, ...]:
    """What decides which values are not on the curve."""
    return item.rules, item.outside, item.limits


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


# The score along columns that crosses contain: products of several fields that vary together.
#
# A field and the crosses that contain its column all vary along it. The score is affine in the vector of each of them,
# and their pairs are products of functions of the same u = T(z): a piecewise polynomial of a higher degree. So it is
# computed from the vectors at the points that are asked for, by the model's own formula.


_BLOCK_SIZE = 1 << 21  # coordinates of vectors that are in memory at a time
_FUNCTIONS_PER_POINT = 4  # with more functions, their vectors at the points are found directly


@dataclass(frozen=True, eq=False)
class Points:
    """Points along an axis, as weights of all that varies along it."""

    n: int
    own: tuple[Int32Array, FloatArray] | None  # features and weights (n, weights) of the axis' own field
    parts: dict[str, list[PartGroup]]  # weights of the parts on the axis, by cross

    def rows(self, rows: IndexArray) -> Points:
        """Some of the points, in any order."""
        own = None if self.own is None else (self.own[0][rows], self.own[1][rows])
        return Points(
            len(rows), own, {name: [group.rows(rows) for group in groups] for name, groups in self.parts.items()}
        )


@dataclass(frozen=True, eq=False)
class Crossed:
    """The score along one or two axes that crosses contain, for several segments."""

    fitted: Fitted
    sources: Sources  # whose values the parts of crosses take
    axes: tuple[str, ...]  # the sources that vary
    along: tuple[int, ...]  # the fields that vary with them, ascending
    closed: dict[int, list[PartGroup]]  # weights of the parts that do not vary, by field
    level: FloatArray  # (n,), the score without the fields that vary
    slopes: FloatArray  # (n, fields that vary, width), its gradient by their vectors
    units: FloatArray | None = None  # (n, units, width), of the other fields; for products of more than two
    unit_field: Int32Array | None = None
    linear: FloatArray | None = None  # (n,), bias and linear part
    averaged: bool = False  # whether scores are means over all segments

    def __len__(self) -> int:
        return 1 if self.averaged else len(self.level)

    def mean(self) -> Crossed:
        """The mean score of all segments."""
        return replace(self, averaged=True)

    def __getitem__(self, rows: Any) -> Crossed:
        """Some segments."""
        rows = np.atleast_1d(np.arange(len(self))[rows])
        return replace(
            self,
            closed={f: [group.rows(rows) for group in groups] for f, groups in self.closed.items()},
            level=self.level[rows],
            slopes=self.slopes[rows],
            units=None if self.units is None else self.units[rows],
            linear=None if self.linear is None else self.linear[rows],
        )

    def parts_along(self, axis: str) -> Iterator[tuple[Cross, int]]:
        """The crosses that contain an axis, and the positions of their parts on it."""
        for cross in self._crosses_along().values():
            for i, source in enumerate(self.sources.of[cross.name]):
                if source == axis:
                    yield cross, i

    def _crosses_along(self) -> dict[int, Cross]:
        """The crosses among the fields that vary, by position."""
        crosses = self.fitted.encoder.crosses
        return {f: crosses[f] for f in self.along if f in crosses}

    # Points along an axis

    def at_values(self, axis: str, column: pa.Array) -> Points:
        """Points at values along an axis."""
        item = self.sources.fields[axis]
        own = item.features_on_axis(column)
        return self._points(axis, own, lambda cross, i: _part_at_values(cross, i, column))

    def at_positions(self, axis: str, u: FloatArray) -> Points:
        """Points at u = T(z) along a numerical axis, all parts of which share the transform."""
        item: Any = self.sources.fields[axis]
        start, weight = item.basis(u)
        own = expand_windows(start + np.int32(item.n_tokens), item.basis.widths), weight
        return self._points(axis, own, lambda cross, i: part_at(cross, i, u))

    def at_features(self, axis: str) -> Points:
        """Points at the features of a categorical axis: tokens, then categories."""
        item = self.sources.fields[axis]
        n = item.layout.n_features
        own = np.arange(n, dtype=np.int32)[:, None], np.ones((n, 1))
        return self._points(axis, own, lambda cross, i: _part_at_features(cross, i, item))

    def _points(self, axis: str, own: tuple[Int32Array, FloatArray], part: Callable[[Cross, int], PartGroup]) -> Points:
        parts: dict[str, list[PartGroup]] = {}
        for cross, i in self.parts_along(axis):
            parts.setdefault(cross.name, []).append(part(cross, i))
        return Points(len(own[0]), own if axis in self.fitted.encoder.schema.names else None, parts)

    # Scores

    def scores(self, points: Sequence[Points]) -> FloatArray:
        """Scores at points with a position on every axis, shape (segments, points)."""
        n, size = points[0].n, self._row_size()
        scores = np.empty((len(self.level), n))
        units = self._units(points)
        most_points = max(1, min(n, _BLOCK_SIZE // size))
        n_rows = max(most_points, *(sum(map(len, groups)) for groups in units.values()), 0)
        most_segments = max(1, _BLOCK_SIZE // (size * n_rows))
        for at in range(0, len(scores), most_segments):
            segments = np.arange(at, min(at + most_segments, len(scores)))
            tables = {f: self._table(f, groups, segments) for f, groups in units.items()}
            for first in range(0, n, most_points):
                chosen = np.arange(first, min(first + most_points, n))
                shown = [side.rows(chosen) for side in points]
                scores[at : at + len(segments), chosen] = self._block_scores(shown, segments, tables)
        return scores.mean(axis=0, keepdims=True) if self.averaged else scores

    def _row_size(self) -> int:
        """Coordinates of the vectors of a row, and about as many weights as its crosses have."""
        n_units = len(self.along) if self.units is None else len(self.along) + self.units.shape[1]
        averaged = max((group.levels[-1][1].shape[1] for groups in self.closed.values() for group in groups), default=1)
        return n_units * int(self.slopes.shape[2]) + 64 * averaged

    def _units(self, points: Sequence[Points]) -> dict[int, list[PartGroup]]:
        """The functions that vary, for crosses that vary along numbers only and have fewer functions than points.

        With their vectors in a table, a point takes a short sum.
        """
        units = {}
        for f, cross in self._crosses_along().items():
            parts = [i for group in _varying(cross, points) for i in group.parts]
            if {*parts} <= {*cross.numbers} and n_units_of(cross, parts) <= _FUNCTIONS_PER_POINT * points[0].n:
                units[f] = unit_groups(cross, parts)
        return units

    def _table(self, f: int, units: Sequence[PartGroup], segments: IndexArray) -> tuple[FloatArray, ...]:
        """Vectors and linear weights of functions: shapes (segments, functions, width) and (segments, functions)."""
        found = [self._vectors(f, [group], segments, len(group)) for group in units]
        return tuple(np.concatenate(arrays, axis=1) for arrays in zip(*found, strict=True))

    def _block_scores(
        self, points: Sequence[Points], segments: IndexArray, tables: dict[int, tuple[FloatArray, ...]]
    ) -> FloatArray:
        model, params = self.fitted.model, self.fitted.params
        fields = np.array(self.along, np.int32)
        shape = (len(segments), points[0].n)
        vectors, linear = np.empty((*shape, len(fields), self.slopes.shape[2])), np.zeros(shape)
        for at, f in enumerate(self.along):
            vectors[:, :, at], more = self._at_points(f, points, segments, tables.get(f))
            linear += more
        if self.units is None or self.unit_field is None or self.linear is None:
            toward = np.einsum("npfd,nfd->np", vectors, self.slopes[segments], optimize=True)
            P = vectors.reshape(-1, *vectors.shape[2:])
            pairs = model.interaction(P, params, fields).reshape(shape)
            return np.asarray(self.level[segments, None] + linear + toward + pairs)
        unit_field = np.concatenate([self.unit_field, fields])
        order = np.argsort(unit_field, kind="stable")  # models take units in the order of fields
        others = np.broadcast_to(self.units[segments, None], (*shape, *self.units.shape[1:]))
        P = np.concatenate([others, vectors], axis=2)[:, :, order]
        products = model.interaction(P.reshape(-1, *P.shape[2:]), params, unit_field[order])
        return np.asarray(self.linear[segments, None] + linear + products.reshape(shape))

    def _at_points(
        self, f: int, points: Sequence[Points], segments: IndexArray, table: tuple[FloatArray, ...] | None
    ) -> tuple[FloatArray, FloatArray]:
        """Vectors and linear part of a field that varies: shapes (segments, points, width) and (segments, points)."""
        from scipy.sparse import csr_array

        item, n = self.fitted.encoder.fields[f], points[0].n
        if not isinstance(item, Cross):
            own = points[self.axes.index(item.name)].own
            assert own is not None
            vectors, linear = unit_vectors(self.fitted, f, *own)
            return vectors[None, :, 0], linear[None]
        if table is None:
            return self._vectors(f, _varying(item, points), segments, n)
        features, weight = unit_weights(item, _varying(item, points))
        row_ptr = np.arange(n + 1) * features.shape[1]
        at_units = csr_array((weight.ravel(), features.ravel(), row_ptr), shape=(n, table[0].shape[1]))
        flat = at_units @ np.moveaxis(table[0], 1, 0).reshape(table[0].shape[1], -1)
        vectors = np.moveaxis(flat.reshape(n, len(segments), -1), 0, 1)
        return vectors, (at_units @ table[1].T).T

    def _vectors(
        self, f: int, varying: Sequence[PartGroup], segments: IndexArray, n: int
    ) -> tuple[FloatArray, FloatArray]:
        """The same for a cross, from the features of each segment at each point."""
        cross = self.fitted.encoder.crosses[f]
        segment, point = np.repeat(segments, n), np.tile(np.arange(n), len(segments))
        groups = [*(group.rows(point) for group in varying), *(group.rows(segment) for group in self.closed[f])]
        features, weight = product(cross, groups)
        vectors, linear = unit_vectors(self.fitted, f, features, weight)
        shape = (len(segments), n)
        return (
            np.broadcast_to(vectors[:, 0], (len(segment), vectors.shape[2])).reshape(*shape, -1),
            np.broadcast_to(linear, len(segment)).reshape(shape),
        )


def _varying(cross: Cross, points: Sequence[Points]) -> list[PartGroup]:
    return [group for side in points for group in side.parts.get(cross.name, ())]


def _part_at_values(cross: Cross, i: int, column: pa.Array) -> PartGroup:
    return encode_part(cross, i, cross.fields[i].read_axis(column))


def _part_at_features(cross: Cross, i: int, item: Single) -> PartGroup:
    """A part at the features of a categorical field on its axis; rare and hashed categories have no features in it."""
    part, n = cross.fields[i], item.layout.n_features
    assert isinstance(item, Categorical) and item.vocabulary is not None
    known = item.vocabulary.names
    inside = np.zeros(n)
    if not len(known):  # a feature that stands for nothing
        return PartGroup((i,), tuple((np.zeros((n, 1, 1), np.int32), inside[:, None]) for _ in cross.levels))
    tokens = known.take(pa.array(np.zeros(item.n_tokens, np.int32)))  # any name: their weights are set to zero
    inside[item.n_tokens :] = 1.0
    if item.missing_token is not None and part.missing_token is not None:
        tokens = pa.concat_arrays([pa.nulls(1, pa.large_string()), tokens[1:]])
        inside[item.missing_token] = 1.0
    group = _part_at_values(cross, i, pa.concat_arrays([tokens, known]))
    return PartGroup((i,), tuple((features, weight * inside[:, None]) for features, weight in group.levels))


# Vectors of a field


def n_units(fitted: Fitted, f: int) -> int:
    return max(fitted.encoder.layout.fields[f].units) + 1


def unit_vectors(fitted: Fitted, f: int, features: Int32Array, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Vectors of a field's units, shape (n, units, width), and its linear part, shape (n,), from active features."""
    layout, params = fitted.encoder.layout, fitted.params
    features = features + layout.feature_ptr[f]
    vectors = np.zeros((len(features), n_units(fitted, f), params["factors"].shape[1]))
    if vectors.shape[1] == 1:
        vectors[:, 0] = _weighted_sum(params["factors"], features, weight)
    else:
        for j, unit in enumerate(np.repeat(layout.fields[f].units, layout.fields[f].widths)):
            vectors[:, unit] += weight[:, j, None] * params["factors"][features[:, j]]
    return vectors, (weight * params["linear"][features]).sum(axis=1)


def _weighted_sum(table: Float32Array, features: Int32Array, weight: FloatArray) -> FloatArray:
    """Σ_j weight_j table[features_j] of every row."""
    total = np.zeros((len(features), table.shape[1]))
    for j in range(features.shape[1]):
        used = np.flatnonzero(weight[:, j])  # most combinations of an average may have no weight
        total[used] += weight[used, j, None] * table[features[used, j]]
    return total
