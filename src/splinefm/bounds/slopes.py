"""The smallest and the largest slope and curvature of the score along a column, over all values of the others at once.

Along a numerical field f the score of a segment is S(u) = const + w_f(u) + p_f(u)' q with u = T(z) and q = Σ_e M_fe p_e
from the other fields. Its slope S'(u) = w_f'(u) + p_f'(u)' q is a change (δ, Δ) of the field's linear part and vector,
so that the smallest slope at u over all segments is

    G(w_f'(u), p_f'(u)),    G(δ, Δ) = δ + Σ_e min over the vectors p_e of field e of Δ' M_fe p_e.

G is concave, and on a piece of the spline the slope is a weighted mean of its Bézier control points: none of its values
is below the smallest G of a control point, and the first and the last one are values. Pieces with a gap between the two
are halved until none is left (branch and bound). A column that crosses read as well adds a bound for each of them; then
the slope found may not be attained. The second derivative is found in the same way, and so is the change of the score
from one step to the next, for fields of steps and ordered categories.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from splinefm._arrays import FloatArray
from splinefm._cached import cached_property
from splinefm.bounds.cross_paths import CrossPath
from splinefm.bounds.hulls import Hull, range_of_products
from splinefm.bounds.partners import Choice, partner
from splinefm.bounds.paths import FieldPath, Parameterized, field_features, is_steps
from splinefm.encode.bases import step_cuts
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.slots import expand_windows

TOLERANCE = 1e-7
"""The gap between the bound and a slope that is attained, relative to the largest slope."""
_MAX_HALVINGS = 60
_MAX_PIECES = 4096  # that are halved at a time


class Lowest(NamedTuple):
    """The smallest slope of a field."""

    bound: float
    """No slope of any segment is below it."""
    reached: float
    """The slope that the choices below have, if the fields can take them together."""
    u: float
    """Where."""
    choices: dict[int, Choice | None]
    """A value for each other field."""
    is_exact: bool
    """Whether `reached` is the score's own slope there, rather than a bound for some fields."""
    is_certified: bool
    """Whether the bound is proven; False where a basis is known by its values only."""


class Pieces(NamedTuple):
    """A linear function of the field's curve, such as its slope, as Bézier control points by piece of [0, 1]."""

    first: FloatArray
    last: FloatArray
    controls: FloatArray  # shape (pieces, controls, 1 + width)


class Slopes:
    """The slopes of the score along field f, for all segments: by u for numbers, from one to the next for steps."""

    def __init__(self, fitted: Parameterized, f: int) -> None:
        self.fitted, self.f = fitted, f
        self.item: Any = fitted.encoder.fields[f]
        check_axis(fitted, f)
        self.steps = self.item.basis is None or is_steps(self.item)
        self.gain = Gain(fitted, f)
        self.crosses: list[_CrossSlopes] = []
        if self.steps:
            rows = step_rows(fitted, f)
            changes = np.diff(rows, axis=0) if len(rows) > 1 else np.zeros_like(rows)
            at = np.arange(float(len(changes)))
            self.slopes = Pieces(at, at, changes[:, None])
        else:
            path = FieldPath(fitted, f)
            if not isinstance(self.item, Numerical) or path.third.any() or not path.certified or path.degree < 1:
                basis = type(self.item.basis).__name__
                raise ValueError(
                    f"slopes are found for splines and polynomials; the basis of {self.item.name!r} is {basis}"
                )
            breaks = self.item.pieces()[0]
            controls = path.controls(breaks[:-1], breaks[1:])
            rows, self.degree, self.breaks = path.rows, path.degree, breaks
            self.slopes = Pieces(breaks[:-1], breaks[1:], _derivative(controls, breaks))
            self.crosses = [_CrossSlopes(fitted, g, f) for g in crosses_with(fitted, f)]
        # Scores are float32: what they differ by along the column cannot be told from zero below this.
        largest = max(float(np.abs(self.gain(sign * rows)).max()) for sign in (1.0, -1.0))
        self.rounding = float(np.finfo(np.float32).eps) * largest

    def lowest(self, sign: float = 1.0) -> Lowest:
        """The smallest slope; with sign -1, minus the largest."""
        return self._lowest(self.slopes, sign, self._of_crosses(sign))

    @property
    def has_bends(self) -> bool:
        """Whether the curvature in units of the column is known: of splines, with a linear transform."""
        return not self.steps and self.item.is_linear and not self.crosses

    def least_bend(self, sign: float = 1.0) -> Lowest:
        """The smallest second derivative by u; with sign -1, minus the largest.

        Curves of degree 1 have none: for them, it is the smallest change of the slope at a border of two pieces.
        """
        return self._lowest(self._bends(), sign, np.zeros(1))

    def _bends(self) -> Pieces:
        if self.degree > 1:
            return self.slopes._replace(controls=_derivative(self.slopes.controls, self.breaks))
        inner = self.breaks[1:-1]
        if not len(inner):  # one straight line
            return Pieces(self.breaks[:1], self.breaks[1:], np.zeros((1, 1, self.slopes.controls.shape[2])))
        return Pieces(inner, inner, np.diff(self.slopes.controls[:, :1], axis=0))

    def _lowest(self, pieces: Pieces, sign: float, extra: FloatArray) -> Lowest:
        first, last, controls = pieces.first, pieces.last, sign * pieces.controls
        extra = np.broadcast_to(extra, first.shape)
        best, proven = (math.inf, 0.0, np.zeros(controls.shape[2])), math.inf
        scale = 0.0
        for step in range(_MAX_HALVINGS):
            values = self.gain(controls.reshape(-1, controls.shape[2])).reshape(controls.shape[:2])
            scale = max(scale, float(np.abs(values).max()))
            for end, at in ((0, first), (-1, last)):
                i = int(np.argmin(values[:, end] + extra))
                if values[i, end] + extra[i] < best[0]:
                    best = (float(values[i, end] + extra[i]), float(at[i]), controls[i, end])
            low = values.min(axis=1) + extra
            open_ = low < best[0] - TOLERANCE * scale
            done = low[~open_]
            proven = min(proven, float(done.min(initial=math.inf)))
            if not open_.any():
                break
            if step == _MAX_HALVINGS - 1 or open_.sum() > _MAX_PIECES:
                proven = min(proven, float(low[open_].min()))
                break
            controls, extra = controls[open_], np.repeat(extra[open_], 2)
            middle = (first[open_] + last[open_]) / 2
            first, last = _interleaved(first[open_], middle), _interleaved(middle, last[open_])
            controls = _halved(controls)
        bound = min(proven, best[0])
        return Lowest(
            bound,
            best[0],
            best[1],
            self.gain.choices(best[2]),
            self.gain.is_exact and not self.crosses,
            self.is_certified,
        )

    @property
    def is_certified(self) -> bool:
        """Whether bounds are proven; not where a basis is known by its values only."""
        return self.gain.is_certified and all(cross.is_certified for cross in self.crosses)

    def _of_crosses(self, sign: float) -> FloatArray:
        """What the crosses of the field add to the slope on each piece, at least."""
        total = np.zeros(len(self.slopes.first))
        for cross in self.crosses:
            total += cross.lowest(self.breaks, sign)
        return total


def check_axis(fitted: Parameterized, f: int) -> None:
    """Raise where the score along field f is not that of its own curve and of crosses of numbers."""
    item: Any = fitted.encoder.fields[f]
    for other in fitted.encoder.fields:
        if other.name == item.name or item.column not in other.columns:
            continue
        own = [part for part in other.singles if part.column == item.column and part.part == item.part]
        bounded = isinstance(other, Cross) and isinstance(item, Numerical) and not is_steps(item)
        if own and not (bounded and all(part.name == item.name for part in own)):
            raise ValueError(f"{item.name!r} has no slopes of its own: {other.name!r} reads its column too")


def step_rows(fitted: Parameterized, f: int) -> FloatArray:
    """Linear parts and vectors of a field of steps, in the order of its axis: shape (steps, 1 + width)."""
    item: Any = fitted.encoder.fields[f]
    rows = field_features(fitted, f)[item.n_tokens :]
    if item.basis is None:
        return rows
    cuts = np.asarray(step_cuts(item.basis), np.float64)
    middle = np.convolve(np.concatenate([[0.0], cuts, [1.0]]), [0.5, 0.5], "valid")
    start, weight = item.basis(middle)
    features = expand_windows(start, item.basis.widths)
    return np.asarray(np.einsum("nj,njw->nw", weight, rows[features]))


def _derivative(controls: FloatArray, breaks: FloatArray) -> FloatArray:
    """Control points of the derivative."""
    degree = controls.shape[1] - 1
    return np.asarray(degree * np.diff(controls, axis=1) / np.diff(breaks)[:, None, None])


class Gain:
    """G: the smallest move of the score by changes of the linear part and the vector of field f."""

    def __init__(self, fitted: Parameterized, f: int) -> None:
        model = fitted.model
        others = [e for e in range(len(fitted.encoder.fields)) if e != f]
        self.fitted, self.others = fitted, others
        self.model, self.partners = model, [partner(fitted, f, e) for e in others]
        self.low, self.high = product_range(fitted, others)
        self.is_exact = all(item.is_exact for item in self.partners) and model.pairwise
        self.is_certified = all(getattr(item, "is_certified", True) for item in self.partners)

    def __call__(self, changes: FloatArray) -> FloatArray:
        return np.asarray(changes[:, 0] + self.parts(changes[:, 1:]).sum(axis=1))

    @cached_property
    def columns(self) -> list[slice]:
        """The parts of a vector that meet the same fields."""
        parts = [] if self.model.pairwise else [self.model.product_columns]
        found = {
            (part.start, part.stop): part for part in parts + [self.model.columns(item.e) for item in self.partners]
        }
        return list(found.values())

    def parts(self, vectors: FloatArray) -> FloatArray:
        """The smallest moves by the parts of vectors: shape (n, parts)."""
        at = {(part.start, part.stop): i for i, part in enumerate(self.columns)}
        total = np.zeros((len(vectors), max(1, len(at))))
        if not self.model.pairwise:
            part = self.model.product_columns
            total[:, at[part.start, part.stop]] += np.minimum(vectors * self.low, vectors * self.high).sum(axis=1)
        for item in self.partners:
            part = self.model.columns(item.e)
            total[:, at[part.start, part.stop]] += item.lowest(vectors[:, part])
        return total

    def scaled(self, changes: FloatArray, share: FloatArray) -> FloatArray:
        """Changes whose vectors are multiplied part by part."""
        out = changes.copy()
        for i, part in enumerate(self.columns):
            out[:, 1:][:, part] *= share[:, i : i + 1]
        return out

    def squares(self, vectors: FloatArray) -> FloatArray:
        """Mean squares of the moves by the parts of vectors, over the values of the other fields: shape (n, parts)."""
        each = vectors**2 * self.mean_squares
        return np.stack([each[:, part].sum(axis=1) for part in self.columns] or [np.zeros(len(vectors))], axis=1)

    @cached_property
    def mean_squares(self) -> FloatArray:
        """Mean squares of what the coordinates of the field's vector meet, over the values of the other fields."""
        found = np.full(len(self.low), 1e-12)
        for item in self.partners:
            found[self.model.columns(item.e)] += item.mean_squares()
        if not self.model.pairwise:
            part = self.model.product_columns
            found[part] += self.model.product_weight**2 * self._products(part)
        return found

    def _products(self, part: slice) -> FloatArray:
        """Mean squares of the products of two and more vectors, as if vectors had independent signs."""
        sums = np.zeros((self.model.order, part.stop - part.start))
        sums[0] = 1.0
        for e in self.others:
            mean = (field_features(self.fitted, e)[:, 1:][:, part] ** 2).mean(axis=0)
            for t in range(self.model.order - 1, 0, -1):
                sums[t] += mean * sums[t - 1]
        return np.asarray(sums[2:].sum(axis=0))

    def choices(self, change: FloatArray) -> dict[int, Choice | None]:
        """For each other field, a value with the smallest product."""
        return {item.e: item.choose(change[1:][self.model.columns(item.e)]) for item in self.partners}


class _CrossSlopes:
    """What a cross adds to the slope along field f, which it reads too."""

    def __init__(self, fitted: Parameterized, g: int, f: int) -> None:
        cross: Any = fitted.encoder.fields[g]
        name = fitted.encoder.fields[f].name
        self.part = next(i for i in cross.numbers if cross.fields[i].name == name)
        self.path, self.gain = CrossPath(fitted, g), Gain(fitted, g)
        self.is_certified = self.path.is_certified(self.part) and self.gain.is_certified

    def lowest(self, breaks: FloatArray, sign: float) -> FloatArray:
        """The least that it adds on each piece: zero in rows without a combination."""
        total = np.zeros(len(breaks) - 1)
        for borders, moves in self.path.moves(self.part):
            widths = np.diff(borders)
            low = [
                min(0.0, float(self.gain(sign * changes.reshape(-1, changes.shape[-1]) / width).min()))
                for changes, width in zip(moves, widths, strict=True)
            ]
            # The pieces of both grids that overlap.
            at = np.searchsorted(borders, breaks[:-1], side="right") - 1
            to = np.maximum(np.searchsorted(borders, breaks[1:], side="left"), at + 1)
            total += np.array([min(low[i:j]) for i, j in zip(at, to, strict=True)])
        return total


def crosses_with(fitted: Parameterized, f: int) -> list[int]:
    """The crosses that read the numbers of field f."""
    name = fitted.encoder.fields[f].name
    return [g for g, cross in fitted.encoder.crosses.items() if any(part.name == name for part in cross.number_parts)]


def product_range(fitted: Parameterized, others: Sequence[int]) -> tuple[FloatArray, FloatArray]:
    """Between what the products of two and more units of other fields lie, by coordinate."""
    model = fitted.model
    width = fitted.params["factors"].shape[1]
    low, high = np.zeros(width), np.zeros(width)
    if not model.pairwise:
        columns = model.product_columns
        boxes = [box for e in others for box in Hull(fitted, e, None).unit_boxes()]
        ends = range_of_products(boxes, model.order - 1, columns.stop - columns.start)
        low[columns], high[columns] = (model.product_weight * end for end in ends)
    return low, high


def _halved(controls: FloatArray) -> FloatArray:
    """The control points of both halves of each piece, by de Casteljau's algorithm."""
    left, right = [controls[:, 0]], [controls[:, -1]]
    while controls.shape[1] > 1:
        controls = (controls[:, :-1] + controls[:, 1:]) / 2
        left.append(controls[:, 0])
        right.append(controls[:, -1])
    return _interleaved(np.stack(left, axis=1), np.stack(right[::-1], axis=1))


def _interleaved(one: FloatArray, other: FloatArray) -> FloatArray:
    return np.stack([one, other], axis=1).reshape(-1, *one.shape[1:])
