"""How far scores can move when a field's vectors do.

**How far a score can move.** The score is affine in the vector of one field: a change (δ, Δ) of its linear part and
its vector moves the score by δ + Σ_e Δ' M_fe p_e, with p_e the vectors of the other fields. Whatever the values of
those fields, p_e lies in the convex hull of some points: the features of a categorical field, the control points of a
spline. The largest change is therefore at most

    E(δ, Δ) = max over both signs of  ±δ + Σ_e  max over the points x of field e of  ±Δ' M_fe x,

and it is attained for categorical fields, whose values can be combined in any way. (Products of more than two vectors
add the range of their other factors by interval arithmetic.) E is a seminorm. Being convex, its
largest value on a piece of a polynomial is at most that at the Bézier control points of the piece.

**Several fields at once** are changed one after the other. At each step the vectors of the other fields, binned
already or not yet, are points of the hulls, because the vector of a bin is a point of the curve. So the sum of the
fields' bounds holds for all of them together, products of two changes included.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.bounds.cross_paths import CrossPath
from splinefm.bounds.paths import FieldPath, Parameterized, blocks, is_steps
from splinefm.encode.bases import Bins, basis_reach, is_convex
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.numerical import Numerical
from splinefm.model.family.contract import through

_MAX_POINTS = 1024  # points of a hull that are kept; the shortest go into one ball
_MAX_CHANGES, _FIRST_CHANGES = 1 << 15, 8  # changes that are measured to find the largest


class Ruler:
    """Lengths along the curve of a field, measured by the change of the score.

    `lengths[i]` is a bound of the length of the curve from 0 to `path.cells[i]`, and grows evenly within a cell.
    """

    def __init__(self, fitted: Parameterized, f: int, hulls: list[Hull]) -> None:
        path = self.path = hulls[f].path or FieldPath(fitted, f)
        self.gauge = Gauge(fitted, f, hulls)
        self.certified = path.certified and self.gauge.certified
        # A quadratic through both ends and the middle of a cell of half-width h misses a function by at most h³ / 9√3
        # times its third derivative, and the slope by at most h² / 3 times (Shadrin 1995).
        self.third = float(path.third @ self.gauge(path.rows)) if path.third.any() else 0.0
        lengths = np.zeros(len(path.cells) - 1)
        if path.degree > 0:
            for block in blocks(len(lengths), (path.degree + 1) * path.rows.shape[1]):
                controls = path.controls(path.cells[:-1][block], path.cells[1:][block])
                lengths[block] = path.degree * self.gauge(np.diff(controls, axis=1)).max(axis=1)
        lengths += self.third * 2.0 * (np.diff(path.cells) / 2) ** 3 / 3
        self.lengths: FloatArray = np.concatenate([[0.0], np.cumsum(lengths)])

    def largest_error(self, bins: Bins, drift: FloatArray) -> float:
        """The most that the bins of this field can move a score."""
        cells, (first, last) = self.path.cells, bins.supports().T
        at_first, at_middle, at_last = (np.interp(u, cells, self.lengths) for u in (first, (first + last) / 2, last))
        errors = np.maximum(at_middle - at_first, at_last - at_middle)
        wide = np.searchsorted(cells, last) > np.searchsorted(cells, first, side="right")  # has a border inside
        if self.path.degree == 0:  # steps have no length
            wide = last > first
            errors[wide] = np.inf
        errors[wide] = np.minimum(errors[wide], self._direct(first[wide], last[wide]))
        return float((errors + np.abs(drift) @ self.gauge(np.eye(drift.shape[1]))).max())

    def _direct(self, first: FloatArray, last: FloatArray) -> FloatArray:
        """The largest distance of the curve between first and last from its point in the middle, for many bins.

        Shorter than the way along the curve, where that is not straight.
        """
        inner = np.unique(np.concatenate([self.path.parts(fine=True), first, last]))
        at, end = np.searchsorted(inner, first), np.searchsorted(inner, last)
        owner = np.repeat(np.arange(len(first)), end - at)
        begin = np.cumsum(end - at) - (end - at)
        part = np.arange(len(owner)) - begin[owner] + at[owner]
        middle = self.path.at((first + last) / 2)
        errors = np.zeros(len(owner))
        for block in blocks(len(owner), (self.path.degree + 1) * middle.shape[1]):
            controls = self.path.controls(inner[part[block]], inner[part[block] + 1])
            errors[block] = self.gauge(controls - middle[owner[block], None]).max(axis=1)
        errors += self.third * (np.diff(inner)[part] / 2) ** 3 / (9.0 * math.sqrt(3.0))
        return np.maximum.reduceat(errors, begin) if len(errors) else errors


class CrossRuler:
    """Lengths along the numbers of a cross, measured by the change of the score, as `Ruler` has them for a field.

    A cross moves along one number after the other: the bound is the sum of theirs.
    """

    def __init__(self, fitted: Parameterized, f: int, hulls: list[Hull]) -> None:
        self.path, self.gauge = CrossPath(fitted, f), Gauge(fitted, f, hulls)

    def lengths(self, part: int) -> tuple[FloatArray, FloatArray]:
        """Borders of pieces of [0, 1], and a bound of the length from 0 to each, over all combinations."""
        found = []
        for borders, moves in self.path.moves(part):
            each = [self.gauge.largest(changes.reshape(-1, changes.shape[-1])) for changes in moves]
            found.append((borders, np.concatenate([[0.0], np.cumsum(each)])))
        every = np.unique(np.concatenate([borders for borders, _ in found]))
        return every, np.sum([np.interp(every, borders, lengths) for borders, lengths in found], axis=0)

    def certified(self, part: int) -> bool:
        """Whether the bound holds for all values, and not only on a grid."""
        return self.gauge.certified and self.path.is_certified(part)

    def largest_error(self, bins: Mapping[int, Bins], drift: FloatArray) -> float:
        """The most that bins of parts can move a score."""
        total = 0.0
        for part, of_part in bins.items():
            steps = self.path.steps(part)
            if steps is not None:  # which have no length
                total += 0.0 if steps == of_part else math.inf
                continue
            cells, lengths = self.lengths(part)
            first, last = of_part.supports().T
            low, middle, high = (np.interp(u, cells, lengths) for u in (first, (first + last) / 2, last))
            total += float(np.maximum(middle - low, high - middle).max())
        return total + float((np.abs(drift) @ self.gauge(np.eye(drift.shape[1]))).max())


class Part(NamedTuple):
    """What a change of a vector meets in one other field: points, shape (k, n), a ball, and a radius around all."""

    columns: slice
    points: FloatArray
    ball: tuple[FloatArray, float] | None
    radius: float


class Gauge:
    """E: the most by which a change of the linear part and the vector of a field can move a score."""

    def __init__(self, fitted: Parameterized, f: int, hulls: list[Hull]) -> None:
        others = [hull for hull in hulls if hull.e != f]
        self.certified = all(hull.certified for hull in others)
        self.parts = [part for hull in others for part in parts_met_by(f, hull)]
        width = fitted.params["factors"].shape[1]
        self.low, self.high = np.zeros(width), np.zeros(width)
        columns = fitted.model.product_columns
        boxes = [box for hull in others for box in hull.unit_boxes()] if not fitted.model.pairwise else []
        ends = range_of_products(boxes, fitted.model.order - 1, columns.stop - columns.start)
        self.low[columns], self.high[columns] = (fitted.model.product_weight * end for end in ends)

    def __call__(self, changes: FloatArray) -> FloatArray:
        flat = changes.reshape(-1, changes.shape[-1])
        values = np.empty(len(flat))
        for block in blocks(len(flat), max([1, *(part.points.shape[1] for part in self.parts)])):
            values[block] = self._of(flat[block])
        return values.reshape(changes.shape[:-1])

    def largest(self, changes: FloatArray) -> float:
        """A bound of the largest value of many changes: those that may be largest are looked at first."""
        rough = self._rough(changes)
        order = np.argsort(-rough)
        best, at, size = 0.0, 0, _FIRST_CHANGES
        while at < len(order) and rough[order[at]] > best:
            if at >= _MAX_CHANGES:
                return float(rough[order[at]])
            best = max(best, float(self(changes[order[at : at + size]]).max()))
            at, size = at + size, 2 * size
        return best

    def _rough(self, change: FloatArray) -> FloatArray:
        """A bound that takes lengths of vectors only."""
        vectors = np.abs(change[:, 1:])
        total = np.abs(change[:, 0]) + vectors @ np.maximum(np.abs(self.low), np.abs(self.high))
        for part in self.parts:
            longest = part.radius + float(np.linalg.norm(part.points, axis=0).max(initial=0.0))
            if part.ball is not None:
                longest = max(longest, part.radius + float(np.linalg.norm(part.ball[0])) + part.ball[1])
            total += longest * np.linalg.norm(vectors[:, part.columns], axis=1)
        return np.asarray(total * (1.0 + 1e-9))

    def _of(self, change: FloatArray) -> FloatArray:
        vectors = change[:, 1:]
        one, other = vectors * self.low, vectors * self.high
        up = change[:, 0] + np.maximum(one, other).sum(axis=1)
        down = change[:, 0] + np.minimum(one, other).sum(axis=1)
        for part in self.parts:
            meant = vectors[:, part.columns]
            product, length = meant @ part.points, np.linalg.norm(meant, axis=1)
            high, low = product.max(axis=1), product.min(axis=1)
            if part.ball is not None:
                center, radius = part.ball
                high = np.maximum(high, meant @ center + radius * length)
                low = np.minimum(low, meant @ center - radius * length)
            up += high + part.radius * length
            down += low - part.radius * length
        return np.asarray(np.maximum(up, -down))


class Hull:
    """Points whose convex hull holds every vector that a field can have, whatever its value.

    `drift` has the distances that the vectors of bins have from the curve of the field.
    """

    def __init__(self, fitted: Parameterized, e: int, drift: FloatArray | None) -> None:
        first, last = fitted.encoder.layout.feature_ptr[e : e + 2]
        self.fitted, self.e, self.drift = fitted, e, drift
        self.item: Any = fitted.encoder.fields[e]
        self.vectors: Any = fitted.params["factors"][first:last]
        self.scale = np.ones(len(self.vectors))
        self.certified, self.zero, self.slack = True, False, 0.0
        self.path: FieldPath | None = None
        self.groups: list[Any] = [slice(None)]  # of points: a vector is a sum of a point in the hull of each
        self.reach = 0.0  # times the longest vector: how far vectors may be from zero, where nothing else is known
        if isinstance(self.item, Cross):
            self._join(self.item)
            return
        if isinstance(self.item, Numerical):
            if not is_steps(self.item):
                self._follow(FieldPath(fitted, e))
            return
        if self.item.holds_lists and self.item.reduction != "mean":
            # A sum of up to n features is a mean of n vectors, each of them zero or n times a feature.
            self.scale[self.item.missing == "token" :] = len(self.item.layout.widths)
        self.zero = self.item.unseen == "neutral" or self.item.holds_lists

    def _join(self, item: Cross) -> None:
        """A cross is zero in rows without a combination, or a sum of a weighted mean for every resolution."""
        self.zero = True
        if all(is_convex(basis) for level in item.levels for basis in level):
            ends = np.cumsum([0, *map(math.prod, item.level_sizes)])
            level = np.searchsorted(ends, np.arange(len(self.vectors)) % item.block, side="right") - 1
            self.groups = [np.flatnonzero(level == each) for each in range(len(item.levels))]
            return
        self.certified = False
        self.reach = sum(math.prod(map(basis_reach, level)) for level in item.levels)

    def _follow(self, path: FieldPath) -> None:
        """The control points of a curve instead of its coefficients: they are closer to it."""
        breaks = path.parts(fine=False)
        controls = path.controls(breaks[:-1], breaks[1:])[:, :, 1:]
        inner = controls[:, : max(1, path.degree)].reshape(-1, controls.shape[2])
        self.vectors = np.concatenate([path.tokens[:, 1:], inner, controls[-1:, -1]])
        self.scale, self.certified, self.path = np.ones(len(self.vectors)), path.certified, path
        self.slack = (float(np.diff(breaks).max()) / 2) ** 3 / (9.0 * math.sqrt(3.0))

    def seen_from(self, f: int, group: Any) -> Iterator[FloatArray]:
        """M_fe x for all points x of a group, block by block."""
        return (meet(self.fitted, f, self.e, points) for points in self._points(group))

    def _points(self, group: Any) -> Iterator[FloatArray]:
        """The points of a group, block by block."""
        vectors, scale = self.vectors[group], self.scale[group, None]
        for block in () if self.reach else blocks(len(vectors), vectors.shape[1]):
            yield np.asarray(vectors[block], np.float64) * scale[block]
        if self.zero:
            yield np.zeros((1, self.vectors.shape[1]))

    def radius(self, f: int) -> float:
        """How far M_fe x may be outside the hull, because vectors x were rounded or the curve is not a polynomial."""
        return self._radius(lambda vectors: meet(self.fitted, f, self.e, vectors))

    def _radius(self, mapped: Callable[[FloatArray], FloatArray]) -> float:
        def lengths(vectors: FloatArray) -> FloatArray:
            return np.asarray(np.linalg.norm(mapped(vectors[:, 1:]), axis=1))

        radius = 0.0 if self.drift is None else float(lengths(self.drift).max())
        if self.reach:
            longest = [0.0]
            for block in blocks(len(self.vectors), self.vectors.shape[1]):
                longest.append(float(np.linalg.norm(mapped(self.vectors[block]), axis=1).max()))
            radius += self.reach * max(longest)
        if self.path is not None and self.path.third.any():
            radius += self.slack * float(self.path.third @ lengths(self.path.rows))
        return radius

    def unit_boxes(self) -> list[tuple[FloatArray, FloatArray]]:
        """For each unit of the field the smallest and the largest value of every coordinate in `product_columns`."""
        units, columns = max(self.item.layout.units) + 1, self.fitted.model.product_columns
        radius = self._radius(lambda vectors: vectors[:, columns])
        zero = np.zeros((1, self.vectors.shape[1]))
        if units == 1:
            boxes = [_box(self._points(group), columns) for group in self.groups]
            lowest, highest = (np.sum(ends, axis=0) for ends in zip(*boxes, strict=True))
            return [(lowest - radius, highest + radius)]
        if self.path is None:
            parts = [np.asarray(self.vectors), zero]
        else:  # one function at a time, with a weight of up to 1
            most = 1.0 if self.certified else float(np.abs(self.item.basis(self.path.cells)[1]).max())
            parts = [self.path.tokens[:, 1:], most * self.path.rows[:, 1:], -most * self.path.rows[:, 1:]]
        low, high = _box(parts, columns)
        return [(low - radius, high + radius)] * units


def make_hulls(fitted: Parameterized, drifts: Mapping[int, FloatArray]) -> list[Hull]:
    return [Hull(fitted, e, drifts.get(e)) for e in range(len(fitted.encoder.fields))]


def _box(parts: Iterable[FloatArray], columns: slice) -> tuple[FloatArray, FloatArray]:
    """The smallest and the largest value of some coordinates."""
    ends = [(part[:, columns].min(axis=0), part[:, columns].max(axis=0)) for part in parts if len(part)]
    return np.min([low for low, _ in ends], axis=0), np.max([high for _, high in ends], axis=0)


def parts_met_by(f: int, hull: Hull) -> list[Part]:
    """A hull as field f meets it: a part for each group of points, of which the first has the radius."""
    return [part_met_by(f, hull, group, hull.radius(f) if i == 0 else 0.0) for i, group in enumerate(hull.groups)]


def part_met_by(f: int, hull: Hull, group: Any, radius: float) -> Part:
    """Of many points the longest are kept, the others go into a ball."""
    lengths = np.concatenate([np.linalg.norm(part, axis=1) for part in hull.seen_from(f, group)])
    kept = np.ones(len(lengths), bool)
    if len(lengths) > _MAX_POINTS:
        kept[np.argpartition(lengths, -_MAX_POINTS)[:-_MAX_POINTS]] = False
    points, rest, at = [], [], 0
    for part in hull.seen_from(f, group):
        chosen = kept[at : at + len(part)]
        points.append(part[chosen])
        rest.append(part[~chosen])
        at += len(part)
    ball = None
    if not kept.all():
        center = sum(part.sum(axis=0) for part in rest) / (~kept).sum()
        ball = center, max(float(np.linalg.norm(part - center, axis=1).max()) for part in rest if len(part))
    together = np.concatenate(points)
    return Part(hull.fitted.model.columns(hull.e), np.ascontiguousarray(together.T), ball, radius)


def meet(fitted: Parameterized, f: int, e: int, vectors: Any) -> FloatArray:
    """M_fe x for vectors x of field e."""
    model = fitted.model
    wide = np.asarray(vectors[:, model.columns(f)], np.float64)
    return through(wide, model.between(fitted.params, e, f))  # x' M_ef = (M_fe x)'


def range_of_products(
    boxes: list[tuple[FloatArray, FloatArray]], order: int, width: int
) -> tuple[FloatArray, FloatArray]:
    """The range of Σ_t Σ_{u1<..<ut} Π p_ui[d] for t = 2 .. order, with each p_u in its box; by interval arithmetic."""
    low, high = np.zeros((2, order + 1, width))
    low[0] = high[0] = 1.0
    for first, last in boxes:
        for t in range(order, 0, -1):
            ends = np.stack([a * b for a in (first, last) for b in (low[t - 1], high[t - 1])])
            low[t] += ends.min(axis=0)
            high[t] += ends.max(axis=0)
    return low[2:].sum(axis=0), high[2:].sum(axis=0)
