"""Shapes that hold in every segment: after each epoch, the parameters that the shape of a field asks for.

In a segment the coefficients of field f are α_i = w_i + v_i' q with q = Σ_e M_fe p_e, and a combination of neighboring
ones, such as a difference, is one of the same rows (w_i, v_i). With such a combination (δ, Δ) and

    G(δ, Δ) = δ + Σ_e min over p_e of Δ' M_fe p_e,

it is at least `low` in every segment if G(δ - low, Δ) ≥ 0, and at most `high` if G(high - δ, -Δ) ≥ 0. The slopes of a
spline are between the smallest and the largest of its scaled differences (those of categories are differences), and a
spline is convex if these do not fall. So a direction and limits are conditions on every difference, a curvature on
their differences and on the first or the last of them.

G is concave and positively homogeneous: what is allowed is a convex cone, which contains (δ, 0) for all δ ≥ 0. What is
outside of it moves towards this axis: the parts Δ_b of Δ that meet different columns of other fields are scaled by τ_b
in [0, 1], and δ takes what is missing. The smallest move, with lengths of Δ measured by what they do to a score,
Σ_b (1 - τ_b)² S_b + ρ², has a closed form. Training goes on from there (projected gradient descent), so that the other
parameters make up for it (decision 111).

Where several fields have shapes, each move changes what the others meet. A second pass therefore changes linear parts
only, or moves all vectors of a field towards their mean: that makes the hull of its curve smaller, so that no condition
of another field gets worse.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.bounds.paths import Parameterized, field_features
from splinefm.bounds.slopes import Gain
from splinefm.encode.bases import BSpline, MultiResolution
from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.shapes import Shape
from splinefm.encode.slots import expand_windows
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params

_MARGIN = 8.0
"""Rounding errors of float32 that a difference keeps from the border of the cone."""
_MAX_ROUNDS = 8  # of the search for parts that vanish; what is missing then goes to the linear part


@dataclass(frozen=True, eq=False)
class Shapes:
    """The shapes that fields of a schema ask for, and how parameters get them.

    Parameters
    ----------
    encoder : Encoder
        The fitted fields.
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM
        The model.

    Examples
    --------
    >>> import splinefm as sf
    >>> schema = sf.Schema([sf.Numerical("x", basis=sf.BSpline(4), shape="increasing"), sf.Categorical("c")])
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [3.0, 2.0, 1.0, 0.0] * 50}
    >>> training = sf.Training(epochs=3, threads=1, effort="fast")
    >>> fitted = sf.fit_model(table, "y", loss="squared", schema=schema, model=sf.FM(k=2), training=training)
    >>> fitted.certify("x").increasing
    True
    """

    encoder: Encoder
    model: AnyModel

    @property
    def fields(self) -> list[tuple[int, Shape]]:
        """The fields with a shape."""
        shapes = [(f, item.required_shape) for f, item in enumerate(self.encoder.fields)]
        return [(f, shape) for f, shape in shapes if shape is not None]

    def impose(self, params: Params) -> Params:
        """Parameters with the shapes, which differ in the fields that have one."""
        if not self.fields:
            return params
        state = _State(self.encoder, self.model, dict(params))
        for f, shape in self.fields:
            _write(state, f, shaped(state, f, shape))
        if len(self.fields) > 1:
            for f, shape in self.fields:
                _write(state, f, shaped(state, f, shape, settle=True))
        return state.params


@dataclass(frozen=True, eq=False)
class _State:
    encoder: Encoder
    model: AnyModel
    params: Params


class _Grid(NamedTuple):
    """Coefficients whose scaled differences are slopes, and the features that take their changes."""

    part: slice
    values: FloatArray  # shape (n, 1 + width)
    steps: FloatArray  # what differences are divided by, shape (n - 1,)
    weights: FloatArray  # of the mean that moves keep, shape (n,)

    @property
    def slopes(self) -> FloatArray:
        return np.asarray(np.diff(self.values, axis=0) / self.steps[:, None])

    def with_slopes(self, slopes: FloatArray) -> FloatArray:
        """Coefficients with these slopes, and the mean of those before."""
        after = np.concatenate([np.zeros((1, slopes.shape[1])), np.cumsum(slopes * self.steps[:, None], axis=0)])
        return np.asarray(after + self.weights @ (self.values - after))


def shaped(state: Parameterized, f: int, shape: Shape, *, settle: bool = False) -> FloatArray:
    """Linear weights and vectors of the features of field f along its axis, with the shape in every segment.

    With `settle`, vectors stay or move towards their mean.
    """
    item: Any = state.encoder.fields[f]
    rows = field_features(state, f)[item.n_tokens :]
    gain = Gain(state, f)
    unit = _MARGIN * float(np.finfo(np.float32).eps) * float(np.abs(np.stack([gain(rows), gain(-rows)])).max())
    out = rows.copy()
    for grid in _grids(item, rows):
        rule = _Rule(gain, shape.curvature, *shape.slopes, unit / grid.steps, settle)
        out[grid.part] += grid.with_slopes(rule.impose(grid.slopes)) - grid.values
    return out


class _Rule(NamedTuple):
    """What holds for the slopes of a grid, shape (n, 1 + width)."""

    gain: Gain
    curvature: int
    low: float
    high: float
    margin: FloatArray
    settle: bool

    def impose(self, slopes: FloatArray) -> FloatArray:
        """The slopes after the smallest move."""
        if not self.curvature:
            return self._into_limits(slopes, self.low, self.high, self.margin)
        if self.curvature > 0:
            return self._bent(slopes, self.margin)
        return np.asarray(
            self._bent(slopes[::-1], self.margin[::-1])[::-1]
        )  # slopes of concave curves rise from last to first

    def _bent(self, slopes: FloatArray, margin: FloatArray) -> FloatArray:
        """Slopes that never fall from one to the next, so that the first and the last are the smallest and largest."""
        bends = self._into_limits(np.diff(slopes, axis=0), 0.0, math.inf, margin[:-1] + margin[1:])
        after = np.concatenate([np.zeros((1, slopes.shape[1])), np.cumsum(bends, axis=0)])
        after += (slopes - after).mean(axis=0)
        if math.isfinite(self.low):
            after += self._into_limits(after[:1], self.low, math.inf, margin[:1]) - after[:1]
            return self._flattened(after, margin) if math.isfinite(self.high) else after
        if math.isfinite(self.high):
            after += self._into_limits(after[-1:], -math.inf, self.high, margin[-1:]) - after[-1:]
        return after

    def _flattened(self, slopes: FloatArray, margin: FloatArray) -> FloatArray:
        """Slopes that differ less from those of a straight line, where the last is above the limit.

        On the way to a line that has all of the conditions, none gets worse, because G is concave.
        """
        line = np.zeros(slopes.shape[1])
        line[0] = (self.low + self.high) / 2
        limit = np.zeros(slopes.shape[1])
        limit[0] = self.high - float(margin[-1])
        room, least = limit[0] - line[0], float(self.gain((limit - slopes[-1])[None])[0])
        return slopes if least >= -float(margin[-1]) / 2.0 else line + (slopes - line) * (room / (room - least))

    def _into_limits(self, changes: FloatArray, low: float, high: float, margin: FloatArray) -> FloatArray:
        """Changes (δ + ρ, τ_b Δ_b) that are between the limits in every segment."""
        if math.isfinite(low) and not math.isfinite(high):
            return self._above(changes, low, margin)
        if math.isfinite(high) and not math.isfinite(low):
            return -self._above(-changes, -high, margin)
        changes = changes if self.settle else self._into_one_limit(changes, low, high, margin)
        least, most = self._reach(changes)
        delta = changes[:, 0]
        good = (delta + least >= low + margin / 2.0) & (delta + most <= high - margin / 2.0)
        share = np.clip((high - low - 2.0 * margin) / np.maximum(most - least, 1e-300), 0.0, 1.0)
        share[good] = 1.0
        share = np.full_like(share, share.min()) if self.settle else share
        out = changes * share[:, None]
        out[:, 0] = np.clip(delta, low + margin - share * least, high - margin - share * most)
        out[good & (share == 1.0)] = changes[good & (share == 1.0)]
        return out

    def _into_one_limit(self, changes: FloatArray, low: float, high: float, margin: FloatArray) -> FloatArray:
        """Where only one limit is exceeded, the smallest move towards it may do."""
        for sign, limit in ((1.0, low), (-1.0, -high)):
            one = sign * self._above(sign * changes, limit, margin)
            least, most = self._reach(one)
            good = (one[:, 0] + least >= low) & (one[:, 0] + most <= high)
            changes = np.where(good[:, None], one, changes)
        return changes

    def _reach(self, changes: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The smallest and the largest move by the vectors alone."""
        vectors = changes.copy()
        vectors[:, 0] = 0.0
        return self.gain(vectors), -self.gain(-vectors)

    def _above(self, changes: FloatArray, low: float, margin: FloatArray) -> FloatArray:
        """Changes whose smallest move is at least `low`; those within half of the margin get all of it."""
        parts = self.gain.parts(changes[:, 1:])
        reached = changes[:, 0] + parts.sum(axis=1)
        missing = np.where(reached < low + margin / 2.0, low + margin - reached, 0.0)
        share = np.ones_like(parts)
        if not self.settle:
            share = _shares(parts, self.gain.squares(changes[:, 1:]), missing)
        out = self.gain.scaled(changes, share)
        rest = low + margin - changes[:, 0] - (share * parts).sum(axis=1)
        out[:, 0] += np.where(missing > 0.0, np.maximum(rest, 0.0), 0.0)
        return out


def _shares(parts: FloatArray, squares: FloatArray, missing: FloatArray) -> FloatArray:
    """The τ_b of the smallest Σ_b (1 - τ_b)² S_b + ρ² with ρ + Σ_b τ_b g_b = missing + Σ_b g_b; g_b, S_b: (n, parts).

    Parts that have nothing to give (g_b ≥ 0) stay; those that would turn around (τ_b < 0) vanish.
    """
    taken = np.zeros_like(parts)
    give = np.maximum(-parts, 0.0)
    missing = np.maximum(missing, 0.0)
    free = give > 0.0
    for _ in range(min(parts.shape[1], _MAX_ROUNDS)):
        ratio = np.where(free, give / (squares + 1e-30), 0.0)
        rest = missing - np.where(free, 0.0, taken * give).sum(axis=1)
        slack = np.maximum(rest, 0.0) / (1.0 + (ratio * give).sum(axis=1))
        found = np.where(free, ratio * slack[:, None], taken)
        taken = np.minimum(found, 1.0)
        if not (found > 1.0).any():
            break
        free &= found <= 1.0
    return np.asarray(1.0 - taken)


def _grids(item: Any, rows: FloatArray) -> list[_Grid]:
    """Coefficients whose slopes have the shape, and the features that take their changes.

    The finest resolution can represent the others if their segments divide its own: then the sum of all counts. If not,
    every resolution has the shape by itself.
    """
    basis = item.basis
    if basis is None:  # ordered categories
        n = len(rows)
        return [_Grid(slice(None), rows, np.ones(n - 1), np.full(n, 1.0 / n))]
    if isinstance(basis, BSpline):
        return [_grid(item, basis, slice(None), rows)]
    ends = np.cumsum([0, *basis.sizes])
    if basis.is_nested:
        finest = int(np.argmax(basis.segments))
        fine, first = basis.levels[finest], ends[finest]
        return [_grid(item, fine, slice(first, first + fine.sizes[0]), _on_grid(fine, basis, rows))]
    parts = [slice(a, b) for a, b in pairwise(ends.tolist())]
    return [_grid(item, level, part, rows[part]) for level, part in zip(basis.levels, parts, strict=True)]


def _grid(item: Any, basis: BSpline, part: slice, values: FloatArray) -> _Grid:
    """The coefficients of a spline, whose mean is that of its curve."""
    knots, degree, n = basis.extended_knots, basis.degree, len(values)
    steps = np.ones(n - 1) if not degree else (knots[degree + 1 : n + degree] - knots[1:n]) / degree
    nodes, weights = np.polynomial.legendre.leggauss(degree + 1)
    first, last = basis.breaks[:-1, None], basis.breaks[1:, None]
    u = (first + (last - first) * (nodes + 1.0) / 2.0).ravel()
    mean = ((last - first) * weights / 2.0).ravel() @ _values(basis, u)
    return _Grid(part, values, steps * item.units_per_u, mean)


def _on_grid(fine: BSpline, basis: MultiResolution, rows: FloatArray) -> FloatArray:
    """Coefficients of the sum of all resolutions on the finest one (knot insertion, by interpolation)."""
    n = fine.sizes[0]
    # Points in [0, 1] that determine a spline: as many as functions, of which no part is left without (Schoenberg and
    # Whitney): means of neighboring knots, those outside spread over the first and the last segment.
    knots = np.clip(fine.extended_knots, 0.0, 1.0)
    u = np.array([knots[i + 1 : i + fine.degree + 1].mean() for i in range(n)])
    return np.asarray(np.linalg.solve(_values(fine, u), _values(basis, u) @ rows))


def _values(basis: BSpline | MultiResolution, u: FloatArray) -> FloatArray:
    """Values of all functions at u: shape (n, functions)."""
    start, weight = basis(u)
    out = np.zeros((len(u), sum(basis.sizes)))
    np.add.at(out, (np.arange(len(u))[:, None], expand_windows(start, basis.widths)), weight)
    return out


def _write(state: _State, f: int, rows: FloatArray) -> None:
    last = int(state.encoder.layout.feature_ptr[f + 1])
    functions = slice(last - len(rows), last)
    for name, values in (("linear", rows[:, 0]), ("factors", rows[:, 1:])):
        state.params[name] = state.params[name].copy()
        state.params[name][functions] = values
