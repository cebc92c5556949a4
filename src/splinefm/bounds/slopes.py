"""The smallest and the largest slope of the score along a column, over all values of the other columns at once.

Along a numerical field f the score of a segment is S(u) = const + w_f(u) + p_f(u)' q with u = T(z) and q = Σ_e M_fe p_e
from the other fields. Its slope S'(u) = w_f'(u) + p_f'(u)' q is a change (δ, Δ) of the field's linear part and vector,
so that the smallest slope at u over all segments is

    G(w_f'(u), p_f'(u)),    G(δ, Δ) = δ + Σ_e min over the vectors p_e of field e of Δ' M_fe p_e.

G is concave, and on a piece of the spline the slope is a weighted mean of its Bézier control points: none of its values
is below the smallest G of a control point, and the first and the last one are values. Pieces with a gap between the two
are halved until none is left (branch and bound). A column that crosses read as well adds a bound for each of them; then
the slope found may not be attained.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.bounds.cross_paths import CrossPath
from splinefm.bounds.hulls import Hull, range_of_products
from splinefm.bounds.partners import Choice, partner
from splinefm.bounds.paths import FieldPath, Parameterized
from splinefm.encode.fields.numerical import Numerical

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


class Slopes:
    """The slopes of the score along field f, for all segments."""

    def __init__(self, fitted: Parameterized, f: int) -> None:
        self.fitted, self.f = fitted, f
        self.item: Any = fitted.encoder.fields[f]
        path = self.path = FieldPath(fitted, f)
        if not isinstance(self.item, Numerical) or path.third.any() or not path.certified or path.degree < 1:
            basis = type(self.item.basis).__name__
            raise ValueError(
                f"slopes are found for splines and polynomials; the basis of {self.item.name!r} is {basis}"
            )
        self.gain = Gain(fitted, f)
        breaks = self.item.pieces()[0]
        controls = path.controls(breaks[:-1], breaks[1:])
        width = np.diff(breaks)[:, None, None]
        self.breaks, self.controls = breaks, path.degree * np.diff(controls, axis=1) / width
        self.crosses = [_CrossSlopes(fitted, g, f) for g in crosses_with(fitted, f)]
        # Scores are float32: what they differ by along the column cannot be told from zero below this.
        largest = max(float(np.abs(self.gain(sign * path.rows)).max()) for sign in (1.0, -1.0))
        self.rounding = float(np.finfo(np.float32).eps) * largest

    def lowest(self, sign: float = 1.0) -> Lowest:
        """The smallest slope; with sign -1, minus the largest."""
        first, last = self.breaks[:-1], self.breaks[1:]
        controls = sign * self.controls
        extra = self._of_crosses(sign)
        best, proven = (math.inf, 0.0, np.zeros(self.controls.shape[2])), math.inf
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
            self.gain.is_certified and all(cross.is_certified for cross in self.crosses),
        )

    def _of_crosses(self, sign: float) -> FloatArray:
        """What the crosses of the field add to the slope on each piece, at least."""
        total = np.zeros(len(self.breaks) - 1)
        for cross in self.crosses:
            total += cross.lowest(self.breaks, sign)
        return total


class Gain:
    """G: the smallest move of the score by changes of the linear part and the vector of field f."""

    def __init__(self, fitted: Parameterized, f: int) -> None:
        model = fitted.model
        others = [e for e in range(len(fitted.encoder.fields)) if e != f]
        self.model, self.partners = model, [partner(fitted, f, e) for e in others]
        self.low, self.high = product_range(fitted, others)
        self.is_exact = all(item.is_exact for item in self.partners) and model.pairwise
        self.is_certified = all(getattr(item, "is_certified", True) for item in self.partners)

    def __call__(self, changes: FloatArray) -> FloatArray:
        vectors = changes[:, 1:]
        total = changes[:, 0] + np.minimum(vectors * self.low, vectors * self.high).sum(axis=1)
        for item in self.partners:
            total += item.lowest(vectors[:, self.model.columns(item.e)])
        return np.asarray(total)

    @property
    def mean_squares(self) -> FloatArray:
        """Mean squares of what the coordinates of the field's vector meet, over the values of the other fields."""
        found = np.full(len(self.low), 1e-12)
        for item in self.partners:
            found[self.model.columns(item.e)] += item.mean_squares()
        return found

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
