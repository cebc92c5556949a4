"""How far two models differ, over all segments at once: a proven bound, and the segment that comes closest.

Both models score a segment by the vectors of its values. If they encode a raw value alike, a value is a point in both
at once, and the difference of the scores is affine in the point of each field:

    b + Σ_f (w'_f - w_f) + Σ_{f<e} (p'_f M'_fe p'_e - p_f M_fe p_e) + products of three and more.

A categorical field offers the points of its categories, a spline those on its curve, which lie in the hull of the
Bézier control points of each piece. Because the difference is affine in each field, its largest value over hulls is at
their corners. So the bound is that of a sum of functions of one and two discrete variables, whose values are pieces of
curves and groups of categories: see `splinefm.bounds.pairwise`. What can no longer be the largest is left out, the rest
is divided (branch and bound). Products of three and more fields are bounded by intervals: changing one field after the
other, each change meets products of the other fields' vectors, whichever of the two models these are of.

The segment is found by going up, one field at a time, along the exact difference.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from splinefm._arrays import BoolArray, FloatArray, IndexArray
from splinefm.bounds.cross_paths import CrossPath
from splinefm.bounds.hulls import meet, range_of_products
from splinefm.bounds.pairwise import Pairs, bound_of_pairs
from splinefm.bounds.partners import bernstein_at, smallest_inside
from splinefm.bounds.paths import FieldPath, Parameterized, blocks, field_features, is_steps
from splinefm.encode.bases import is_convex
from splinefm.encode.fields.categorical import MultiValued
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.fields.vocabulary import hash_bucket

TOLERANCE = 1e-3
"""The search ends where the bound is this close to a change that is attained, relative to the bound."""
_MAX_ATOMS = 96  # groups of values of a field that are told apart at a time
_MAX_STEPS = 120  # of branch and bound
_MAX_PRODUCTS = 1 << 28  # pairs of values of two fields that are multiplied; beyond that, lengths are
_STARTS, _MAX_PASSES = 12, 50  # of the search for a segment
_ROUNDING, _SMALLEST = 1e-9, 1e-7  # scores are float32: smaller changes cannot be told from none
_BRANCH_EVERY = 2


class NotComparable(ValueError):
    """Two models whose scores cannot be compared for all segments, and why."""


class Point(NamedTuple):
    """A value of a field in both models: linear weight and vector, shape (1 + width,) each, and what it is."""

    old: FloatArray
    new: FloatArray
    state: Any
    """The number of a value, or a position u on a curve."""


class Domain(Protocol):
    """The values that a field can take, in groups (atoms) whose points follow each other."""

    old: FloatArray
    new: FloatArray
    ptr: IndexArray
    """Atom a has the points ptr[a] to ptr[a + 1] - 1; the values are in their hull."""

    def kept(self, atoms: BoolArray) -> Domain:
        """Some of the atoms."""

    def divided(self, atoms: BoolArray) -> Domain | None:
        """With these atoms divided, as far as they can be; None if none can."""

    def best(self, old: FloatArray, new: FloatArray) -> Point:
        """The value whose point has the largest new' point - old' point."""

    def raw(self, state: Any) -> Any:
        """A raw value that has a state."""


class Values:
    """A finite number of values, in groups of similar ones."""

    def __init__(
        self,
        old: FloatArray,
        new: FloatArray,
        raw: Callable[[int], Any],
        order: IndexArray | None = None,
        ptr: IndexArray | None = None,
    ) -> None:
        self._old, self._new, self._raw = old, new, raw
        if order is None:
            order, ptr = _grouped(old, new)
        assert ptr is not None
        self.order, self.ptr = order, ptr
        self.old, self.new = old[order], new[order]

    def kept(self, atoms: BoolArray) -> Values:
        sizes = np.diff(self.ptr)
        return self._with(self.order[np.repeat(atoms, sizes)], sizes[atoms])

    def divided(self, atoms: BoolArray) -> Values | None:
        sizes = np.diff(self.ptr)
        if not (sizes[atoms] > 1).any():
            return None
        parts = [[n - n // 2, n // 2] if n > 1 and split else [n] for n, split in zip(sizes, atoms, strict=True)]
        return self._with(self.order, np.concatenate(parts))

    def _with(self, order: IndexArray, sizes: IndexArray) -> Values:
        return Values(self._old, self._new, self._raw, order, np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp))

    def best(self, old: FloatArray, new: FloatArray) -> Point:
        at = int(np.argmax(self._new @ new - self._old @ old))
        return Point(self._old[at], self._new[at], at)

    def raw(self, state: Any) -> Any:
        return self._raw(state)

    def most_changed(self, n: int) -> IndexArray:
        """The states of the values whose linear weights and vectors change the most."""
        change = np.abs(self._new[:, 0] - self._old[:, 0])
        if self._new.shape == self._old.shape:
            change = np.abs(self._new - self._old).sum(axis=1)
        return np.argsort(-change, kind="stable")[:n]


class CurvePair:
    """A numerical field: pieces of its curve with their control points, and tokens."""

    def __init__(self, item: Any, old: FieldPath, new: FieldPath) -> None:
        self.item = item
        borders = item.pieces()[0]
        self._whole = (old.controls(borders[:-1], borders[1:]), new.controls(borders[:-1], borders[1:]))
        self._borders = np.stack([borders[:-1], borders[1:]], axis=1)
        self._tokens = (old.tokens, new.tokens)
        self._set(*self._whole, self._borders, np.arange(len(old.tokens)))

    def _set(self, old: FloatArray, new: FloatArray, borders: FloatArray, tokens: IndexArray) -> None:
        self._controls, self._at, self._kept_tokens = (old, new), borders, tokens
        n, corners = old.shape[:2]
        self.ptr = np.concatenate([np.arange(n) * corners, n * corners + np.arange(len(tokens) + 1)]).astype(np.intp)
        self.old, self.new = (
            np.concatenate([part.reshape(n * corners, part.shape[-1]), rows[tokens]])
            for part, rows in zip((old, new), self._tokens, strict=True)
        )

    def _with(self, old: FloatArray, new: FloatArray, borders: FloatArray, tokens: IndexArray) -> CurvePair:
        made = CurvePair.__new__(CurvePair)
        made.item, made._whole, made._borders, made._tokens = self.item, self._whole, self._borders, self._tokens
        made._set(old, new, borders, tokens)
        return made

    def kept(self, atoms: BoolArray) -> CurvePair:
        pieces, tokens = atoms[: len(self._at)], atoms[len(self._at) :]
        old, new = (part[pieces] for part in self._controls)
        return self._with(old, new, self._at[pieces], self._kept_tokens[tokens])

    def divided(self, atoms: BoolArray) -> CurvePair | None:
        pieces = atoms[: len(self._at)] & (np.diff(self._at, axis=1)[:, 0] > 1e-9) & (self._controls[0].shape[1] > 1)
        if not pieces.any():
            return None
        old, new = (np.concatenate([part[~pieces], *_halves(part[pieces])]) for part in self._controls)
        first, last = self._at[pieces].T
        middle = (first + last) / 2
        halves = [np.stack(ends, axis=1) for ends in ((first, middle), (middle, last))]
        return self._with(old, new, np.concatenate([self._at[~pieces], *halves]), self._kept_tokens)

    def best(self, old: FloatArray, new: FloatArray) -> Point:
        values = self._whole[1] @ new - self._whole[0] @ old  # Bernstein coefficients of the difference by piece
        inner, where = smallest_inside(-values) if values.shape[1] > 2 else (np.full(len(values), np.inf), np.zeros(1))
        where = np.broadcast_to(where, len(values))
        reached = np.stack(
            [values[:, 0], values[:, -1], np.where(np.isfinite(inner), bernstein_at(values, where), -np.inf)]
        )
        kind, piece = np.unravel_index(int(np.argmax(reached)), reached.shape)
        tokens = self._tokens[1] @ new - self._tokens[0] @ old
        if len(tokens) and tokens.max() > reached[kind, piece]:
            token = int(tokens.argmax())
            return Point(self._tokens[0][token], self._tokens[1][token], -1 - token)
        t = np.array([(0.0, 1.0, float(where[piece]))[kind]])
        both = [bernstein_at(part[piece : piece + 1], t)[0] for part in self._whole]
        first, last = self._borders[piece]
        return Point(both[0], both[1], float(first + (last - first) * t[0]))

    @property
    def n_tokens(self) -> int:
        """Values with a feature of their own."""
        return len(self._tokens[1])

    def raw(self, state: Any) -> Any:
        if isinstance(state, int):
            return self.item.feature_value(-1 - state)
        return float(self.item.raw(np.array([state]))[0])


def _halves(controls: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The control points of both halves of each piece, by de Casteljau's algorithm."""
    left, right = [controls[:, 0]], [controls[:, -1]]
    while controls.shape[1] > 1:
        controls = (controls[:, :-1] + controls[:, 1:]) / 2
        left.append(controls[:, 0])
        right.append(controls[:, -1])
    return np.stack(left, axis=1), np.stack(right[::-1], axis=1)


def _grouped(old: FloatArray, new: FloatArray) -> tuple[IndexArray, IndexArray]:
    """An order of values in which similar changes are close, and at most `_MAX_ATOMS` groups."""
    n = len(old)
    if n <= _MAX_ATOMS:
        return np.arange(n), np.arange(n + 1, dtype=np.intp)
    change = new - old if new.shape == old.shape else new
    centered = change - change.mean(axis=0)
    axis = np.linalg.eigh(centered.T @ centered)[1][:, -1]
    return np.argsort(centered @ axis, kind="stable"), np.linspace(0, n, _MAX_ATOMS + 1).astype(np.intp)


# The values of each field, in both models.


def make_domains(old: Parameterized, new: Parameterized) -> list[list[Domain]]:
    """The values of each field, which add up if there are several.

    Raises
    ------
    NotComparable
        If the models encode the values of a field in different ways.
    """
    names = [encoder.layout.names for encoder in (old.encoder, new.encoder)]
    if set(names[0]) != set(names[1]):
        alone = sorted({*names[0]} ^ {*names[1]})
        raise NotComparable(f"field {alone[0]!r} is in one of the models only")
    if names[0] != names[1]:
        raise NotComparable("the models have their fields in different orders")
    return [_domain(old, new, f) for f in range(len(names[0]))]


def _domain(old: Parameterized, new: Parameterized, f: int) -> list[Domain]:
    before: Any = old.encoder.fields[f]
    after: Any = new.encoder.fields[f]
    kind = type(after)
    if type(before) is not kind or before.columns != after.columns:
        raise NotComparable(f"field {after.name!r} is not of the same kind or column in both models")
    _check_same(before, after, {Numerical: _OF_NUMBERS, Cross: ()}.get(kind, _OF_CATEGORIES))
    if max(after.layout.units):
        raise NotComparable(f"field {after.name!r} has several vectors per row (reduction='identity')")
    if kind is Numerical:
        return [_curve(old, new, f)]
    if kind is Cross:
        return _cells(old, new, f)
    return [_categories(old, new, f)]


_OF_NUMBERS = ("transform", "basis", "special", "missing", "reduction", "part", "outside", "limits")
_OF_CATEGORIES = ("unseen", "missing", "buckets", "reduction", "part", "values", "max_length")


def _check_same(before: Any, after: Any, settings: Sequence[str]) -> None:
    for name in settings:
        if getattr(before, name, None) != getattr(after, name, None):
            raise NotComparable(
                f"field {after.name!r} has another {name} in each model, so that a value is not the same point in both"
            )


def _curve(old: Parameterized, new: Parameterized, f: int) -> CurvePair | Values:
    item: Any = new.encoder.fields[f]
    if is_steps(item):
        return Values(field_features(old, f), field_features(new, f), item.feature_value)
    paths = FieldPath(old, f), FieldPath(new, f)
    if not paths[0].certified or paths[0].third.any():
        raise NotComparable(
            f"field {item.name!r} has a {type(item.basis).__name__}; "
            "bounds are proven for splines, polynomials and bins"
        )
    return CurvePair(item, *paths)


def _categories(old: Parameterized, new: Parameterized, f: int) -> Values:
    before: Any = old.encoder.fields[f]
    after: Any = new.encoder.fields[f]
    known = {*before.vocabulary.names.to_pylist(), *after.vocabulary.names.to_pylist()}
    names = pa.array(sorted(known), pa.large_string())
    rows, points = [field_features(fitted, f) for fitted in (old, new)], []
    tokens = _tokens_of(after)
    for item, of_field in zip((before, after), rows, strict=True):
        try:
            feature, weight = item.look_up(names)
        except ValueError as error:
            raise NotComparable(
                f"field {item.name!r}: a model takes a category that the other refuses: {error}"
            ) from error
        padded = np.concatenate([of_field, np.zeros((1, of_field.shape[1]))])
        named = padded[np.where(np.ravel(weight) != 0.0, np.ravel(feature), -1)]
        points.append(np.concatenate([named, padded[[token for token, _ in tokens]]]))
    raws = [*names.to_pylist(), *(raw for _, raw in tokens)]
    if isinstance(after, MultiValued):
        points, raws = _lists(after, points, raws, len(names))
    return Values(points[0], points[1], lambda at: raws[at]() if callable(raws[at]) else raws[at])


def _tokens_of(item: Any) -> list[tuple[int, Any]]:
    """The features that stand for no category, -1 for none at all, with raw values or functions that make them."""
    found: list[tuple[int, Any]] = [] if item.missing_token is None else [(item.missing_token, None)]
    if item.unseen == "hash":
        return found + [(item.first_unseen + i, _NameOf(item, i)) for i in range(item.buckets)]
    unseen = {"rare": item.first_unseen, "neutral": -1}
    return found + ([(unseen[item.unseen], "<unseen>")] if item.unseen in unseen else [])


class _NameOf:
    """Makes a name that no category has, and that a hash puts into a bucket."""

    def __init__(self, item: Any, bucket: int) -> None:
        self.item, self.bucket = item, bucket

    def __call__(self) -> str:
        tried = (f"<unseen {i}>" for i in range(1000 * self.item.buckets))
        return next((name for name in tried if hash_bucket(name, self.item.buckets) == self.bucket), "<unseen>")


def _lists(item: Any, points: list[FloatArray], raws: list[Any], n_names: int) -> tuple[list[FloatArray], list[Any]]:
    """The corners of what lists can be: nothing, a missing list, and one category as often as fits."""
    times = 1 if item.reduction == "mean" else item.max_length
    if times is None:
        raise NotComparable(f"field {item.name!r} adds up lists of any length: give it a max_length")
    of_lists: list[Any] = []
    scale = np.ones(len(raws) + 1)
    for i, raw in enumerate(raws):
        missing = i >= n_names and raw is None
        scale[i] = 1.0 if missing else times
        of_lists.append(None if missing else _ListOf(raw, times))
    wide = [np.concatenate([part, np.zeros((1, part.shape[1]))]) * scale[:, None] for part in points]
    return wide, [*of_lists, _ListOf("", 0)]


class _ListOf:
    """Makes a list of one category."""

    def __init__(self, value: Any, times: int) -> None:
        self.value, self.times = value, times

    def __call__(self) -> list[str]:
        return [self.value() if callable(self.value) else self.value] * self.times


def _cells(old: Parameterized, new: Parameterized, f: int) -> list[Domain]:
    """A cross: for each resolution the corners of its vectors, whatever its columns are; zero without a combination."""
    before, after = old.encoder.crosses[f], new.encoder.crosses[f]
    pairs = _pairs_of_cells(before, after)
    if not all(is_convex(basis) for bases in after.levels for basis in bases):
        raise NotComparable(f"cross {after.name!r} has bases whose vectors have no known corners")
    levels = [CrossPath(fitted, f).levels for fitted in (old, new)]
    domains: list[Domain] = []
    for of_level in zip(*levels, strict=True):
        parts = []
        for cells, at in zip(of_level, pairs, strict=True):
            rows = cells.reshape(len(cells), -1, cells.shape[-1])
            padded = np.concatenate([rows, np.zeros((1, *rows.shape[1:]))])
            parts.append(padded[at].reshape(-1, rows.shape[2]))
        domains.append(Values(parts[0], parts[1], lambda at: None))
    return domains


def _pairs_of_cells(before: Cross, after: Cross) -> tuple[IndexArray, IndexArray]:
    """Which combinations of a cross rows can have in the old and in the new model; the last one is none."""
    numbers = [list(cross.number_parts) for cross in (before, after)]
    n_old, n_new = max(1, before.n_cells), max(1, after.n_cells)
    alike = numbers[0] == numbers[1] and (before.buckets, before.columns) == (after.buckets, after.columns)
    if not alike or (before.category_parts != after.category_parts and before.buckets is not None):
        raise NotComparable(f"cross {after.name!r} has other combinations or bases in each model")
    same = np.append(np.arange(n_old), -1)
    if before.category_parts == after.category_parts and before.cells == after.cells:
        return same, same
    first, last = (cross.cells.features for cross in (before, after) if cross.cells is not None)
    if not np.array_equal(first, last[:n_old]) or not all(map(_extends, before.category_parts, after.category_parts)):
        raise NotComparable(f"cross {after.name!r} has other combinations in each model")
    # Unseen categories are in no combination: for the old model, what is new is none.
    added = np.arange(n_old, n_new)
    return np.concatenate([same, np.full(len(added), -1)]), np.concatenate([same, added])


def _extends(before: Any, after: Any) -> bool:
    """Whether a category field has the categories of another one, and maybe more after these."""
    _check_same(before, after, _OF_CATEGORIES)
    known = before.vocabulary.names
    return bool(after.vocabulary.names[: len(known)].equals(known))


# Bounds.


class Bounded(NamedTuple):
    """The largest change of the score."""

    bound: float
    """No segment's score rises by more."""
    reached: float
    """What the states below change, if the fields can take them together."""
    states: tuple[Any, ...]
    """A state for each domain."""


class Changes:
    """The change of the score from one model to another, over all segments."""

    def __init__(self, old: Parameterized, new: Parameterized) -> None:
        self.old, self.new = old, new
        _check_products(old, new)
        self.fields: list[int] = []
        """The field of each domain: a cross has one for each resolution."""
        self.domains: list[Domain] = []
        for f, found in enumerate(make_domains(old, new)):
            self.fields += [f] * len(found)
            self.domains += found
        self.bias = float(new.params["bias"][0]) - float(old.params["bias"][0])
        self.n_fields = len(new.encoder.fields)

    def highest(self, sign: float = 1.0) -> Bounded:
        """The largest rise of the score; with sign -1, the largest fall."""
        attained = max((self._climb(sign, start) for start in range(_STARTS)), key=lambda found: found[0])
        count = 0
        whole = self._solve(self.domains, sign, attained[0])
        attained = max(attained, self._climb_from(sign, whole.decoded), key=lambda found: found[0])
        queue = [(-whole.bound, count, whole)]
        for _ in range(_MAX_STEPS):
            node = queue[0][2]
            gap = node.bound - attained[0]
            if gap <= max(TOLERANCE * max(abs(node.bound), abs(attained[0])), _SMALLEST):
                break
            heapq.heappop(queue)
            for domains in _children(node, attained[0]):
                part = self._solve(domains, sign, attained[0])
                attained = max(attained, self._climb_from(sign, part.decoded), key=lambda found: found[0])
                count += 1
                bounded = min(part.bound, node.bound)
                part = part._replace(bound=bounded, depth=node.depth + 1)
                heapq.heappush(queue, (-bounded, count, part))
            if not queue:
                break
        bound = max([attained[0], *(-entry[0] for entry in queue)])
        return Bounded(bound + _ROUNDING * abs(bound), *attained)

    def _solve(self, domains: list[Domain], sign: float, least: float) -> _Node:
        """A bound over some values of each field."""
        if all(len(domain.old) == 1 for domain in domains):
            single = [Point(domain.old[0], domain.new[0], None) for domain in domains]
            return _Node(sign * self.change_at(single), [np.zeros(1)] * len(domains), domains)
        boxes = self._boxes(domains)
        unary = [
            sign * (domain.new[:, 0] - domain.old[:, 0]) + self._products(domain, f, boxes, sign)
            for domain, f in zip(domains, self.fields, strict=True)
        ]
        pairs: Pairs = {}
        for i, j in itertools.combinations(range(len(domains)), 2):
            if self.fields[i] != self.fields[j]:
                self._multiply(domains, i, j, boxes, sign, unary, pairs)
        atoms = [np.maximum.reduceat(values, domain.ptr[:-1]) for values, domain in zip(unary, domains, strict=True)]
        offset = sign * self.bias
        found = bound_of_pairs(atoms, pairs, TOLERANCE * abs(least) / 10.0)
        return _Node(found.bound + offset, found.beliefs, domains)

    def _multiply(
        self,
        domains: list[Domain],
        i: int,
        j: int,
        boxes: FloatArray,
        sign: float,
        unary: list[FloatArray],
        pairs: Pairs,
    ) -> None:
        """Add what two fields add together: a table by atoms, or lengths if they have too many values."""
        mine, other = domains[i], domains[j]
        left, right = self._factors(mine, other, self.fields[i], self.fields[j], boxes, sign)
        if len(left) * len(right) <= _MAX_PRODUCTS:
            table = np.full((len(mine.ptr) - 1, len(other.ptr) - 1), -np.inf)
            atom = np.repeat(np.arange(len(mine.ptr) - 1), np.diff(mine.ptr))
            for block in blocks(len(left), len(right)):
                by_other = np.maximum.reduceat(left[block] @ right.T, other.ptr[:-1], axis=1)
                np.maximum.at(table, atom[block], by_other)
            pairs[i, j] = table
            return
        # Both halves of every product are centered: a product of a center is one for each value, the rest has lengths.
        center = right.mean(axis=0)
        unary[i] = (
            unary[i] + left @ center + np.linalg.norm(left, axis=1) * np.linalg.norm(right - center, axis=1).max()
        )

    def _factors(
        self, mine: Domain, other: Domain, f: int, e: int, boxes: FloatArray, sign: float
    ) -> tuple[FloatArray, FloatArray]:
        """Vectors of the points of two fields, whose inner products are what both add together, at most."""
        (model_old, model_new), own, met = (self.old.model, self.new.model), [], []
        own.append(sign * mine.new[:, 1:][:, model_new.columns(e)])
        met.append(meet(self.new, f, e, other.new[:, 1:]))
        own.append(-sign * mine.old[:, 1:][:, model_old.columns(e)])
        met.append(meet(self.old, f, e, other.old[:, 1:]))
        if self._has_triples:
            # Fields change one after the other. A change of f meets half of Σ_e q_e Σ_g q_g, with fields after f as
            # they were, and one of e has f as it is now; Σ_g q_g is in the box of all fields but these two.
            columns = model_new.product_columns
            low, high = boxes.sum(axis=0) - boxes[f] - boxes[e]
            middle, radius = 0.25 * model_new.product_weight * np.stack([high + low, high - low])
            parts = [(point.old[:, 1:][:, columns], point.new[:, 1:][:, columns]) for point in (mine, other)]
            (old_f, new_f), (old_e, new_e) = parts
            own += [sign * (new_f - old_f) * middle, np.abs(new_f - old_f) * radius]
            met += [old_e, np.abs(old_e)]
            own += [sign * new_f * middle, np.abs(new_f) * radius]
            met += [new_e - old_e, np.abs(new_e - old_e)]
        return np.concatenate(own, axis=1), np.concatenate(met, axis=1)

    @property
    def _has_triples(self) -> bool:
        return not self.new.model.pairwise and self.new.model.order == 3

    def _boxes(self, domains: list[Domain]) -> FloatArray:
        """The smallest and the largest coordinate in products of more than two: shape (fields, 2, coordinates)."""
        columns = self.new.model.product_columns
        boxes = np.zeros((self.n_fields, 2, columns.stop - columns.start))
        if boxes.size:
            for domain, f in zip(domains, self.fields, strict=True):
                both = np.concatenate([domain.old[:, 1:][:, columns], domain.new[:, 1:][:, columns]])
                boxes[f] += np.stack([both.min(axis=0), both.max(axis=0)])
        return boxes

    def _products(self, domain: Domain, f: int, boxes: FloatArray, sign: float) -> FloatArray:
        """What a change of a field adds in products of four and more, at most; those of three are in tables."""
        model = self.new.model
        if model.pairwise or model.order <= 3:
            return np.zeros(len(domain.old))
        columns = model.product_columns
        others = [(low, high) for e, (low, high) in enumerate(boxes) if e != f]
        low, high = range_of_products(others, model.order - 1, boxes.shape[2])
        change = sign * model.product_weight * (domain.new[:, 1:][:, columns] - domain.old[:, 1:][:, columns])
        return np.asarray(np.maximum(change * low, change * high).sum(axis=1))

    # The search for a segment.

    def _climb(self, sign: float, start: int) -> tuple[float, tuple[Any, ...]]:
        """Begin with random values, the first time with those that change the most by themselves."""
        rng, points = np.random.default_rng(start), []
        for domain in self.domains:
            if start == 0:
                at = int(np.argmax(sign * (domain.new[:, 0] - domain.old[:, 0])))
            else:
                at = int(rng.integers(len(domain.old)))
            points.append(Point(domain.old[at], domain.new[at], None))
        return self._climb_from(sign, points)

    def _climb_from(self, sign: float, points: list[Point]) -> tuple[float, tuple[Any, ...]]:
        """Change one field after the other to its best value, until nothing changes; the first pass has corners."""
        points, before = list(points), -np.inf
        for _ in range(_MAX_PASSES):
            for i, f in enumerate(self.fields):
                slope_old, slope_new = (self._slope(fitted, points, f, name) for fitted, name in self._models())
                points[i] = self.domains[i].best(sign * slope_old, sign * slope_new)
            value = sign * self.change_at(points)
            if value <= before + 1e-12 * abs(value):
                break
            before = value
        return before, tuple(point.state for point in points)

    def _models(self) -> tuple[tuple[Parameterized, str], tuple[Parameterized, str]]:
        return (self.old, "old"), (self.new, "new")

    def _units(self, points: Sequence[Point], name: str) -> FloatArray:
        """The vectors of all fields, shape (1, fields, 1 + width)."""
        width = len(getattr(points[0], name))
        units = np.zeros((1, self.n_fields, width))
        for point, f in zip(points, self.fields, strict=True):
            units[0, f] += getattr(point, name)
        return units

    def _slope(self, fitted: Parameterized, points: Sequence[Point], f: int, name: str) -> FloatArray:
        units = self._units(points, name)[:, :, 1:]
        fields = np.arange(self.n_fields, dtype=np.int32)
        return np.concatenate([[1.0], fitted.model.slope(units, fitted.params, fields, f)[0]])

    def change_at(self, points: Sequence[Point]) -> float:
        """The change of the score, with a point for each domain."""
        fields = np.arange(self.n_fields, dtype=np.int32)
        total = self.bias
        for sign, (fitted, name) in zip((-1.0, 1.0), self._models(), strict=True):
            units = self._units(points, name)
            own = units[:, :, 0].sum() + fitted.model.interaction(units[:, :, 1:], fitted.params, fields)[0]
            total += sign * float(own)
        return total


class _Node(NamedTuple):
    """A part of the segments."""

    bound: float
    beliefs: list[FloatArray]
    domains: list[Domain]
    depth: int = 0

    @property
    def decoded(self) -> list[Point]:
        """A corner of the most promising group of each field."""
        chosen = (domain.ptr[int(values.argmax())] for domain, values in zip(self.domains, self.beliefs, strict=True))
        return [Point(domain.old[at], domain.new[at], None) for domain, at in zip(self.domains, chosen, strict=True)]


def _children(node: _Node, least: float) -> list[list[Domain]]:
    """The segments that may rise by more than `least`, with finer groups, in one part or two."""
    alive, beliefs = [], []
    for domain, values in zip(node.domains, node.beliefs, strict=True):
        allowed = node.bound - values.max() + values
        keep = allowed >= least - _ROUNDING * abs(least)
        if not keep.any():
            return []
        alive.append(domain.kept(keep))
        beliefs.append(values[keep])
    finer, any_divided = [], False
    for domain, values in zip(alive, beliefs, strict=True):
        room = max(1, _MAX_ATOMS - len(values))
        some = np.zeros(len(values), bool)
        some[np.argsort(-values, kind="stable")[:room]] = True
        divided = domain.divided(some)
        any_divided |= divided is not None
        finer.append(divided or domain)
    if any_divided and node.depth % _BRANCH_EVERY:
        return [finer]
    sizes = [len(values) for values in beliefs]
    i = int(np.argmax(sizes))
    if sizes[i] < 2:
        return [finer]
    first = np.zeros(sizes[i], bool)
    first[np.argsort(-beliefs[i], kind="stable")[: max(1, sizes[i] // 4)]] = True
    return [[*alive[:i], alive[i].kept(part), *alive[i + 1 :]] for part in (first, ~first)]


def _check_products(old: Parameterized, new: Parameterized) -> None:
    """Raise where products of three and more are not of vectors of the same length."""
    about = [
        (fitted.model.order, fitted.model.product_columns, fitted.model.product_weight)
        if not fitted.model.pairwise
        else None
        for fitted in (old, new)
    ]
    if about[0] != about[1]:
        raise NotComparable(f"{old.model} and {new.model} have products of different numbers of fields or lengths")
