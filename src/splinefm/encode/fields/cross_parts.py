"""The features of a cross, part by part: products of weights that were fixed, averaged or left open apart.

A row of a cross has the products of the weights of its parts. Where some columns are fixed, some averaged over rows of
a table and others vary, each *group* of parts has weights of its own: combinations of features of its parts, for every
resolution. `product` joins them to features of the cross.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from splinefm._arrays import Array, FloatArray, Int32Array
from splinefm.encode.bases import Basis
from splinefm.encode.fields.cross import Cross
from splinefm.encode.slots import expand_windows

Level = tuple[Int32Array, FloatArray]


@dataclass(frozen=True, eq=False)
class PartGroup:
    """Weights of combinations of the features of some parts of a cross.

    Parameters
    ----------
    parts : tuple of int
        Positions of the parts.
    levels : tuple of pairs of arrays
        For each resolution, the features of every part, shape (n, combinations, parts), and their weights, shape
        (n, combinations). A category that a cross does not know is -1.
    """

    parts: tuple[int, ...]
    levels: tuple[Level, ...]

    def __len__(self) -> int:
        return len(self.levels[0][1])

    def rows(self, rows: Any) -> PartGroup:
        """The weights of some rows; a single row holds for all."""
        if len(self) == 1:
            return self
        return PartGroup(self.parts, tuple((features[rows], weight[rows]) for features, weight in self.levels))


def join_groups(groups: Sequence[PartGroup]) -> PartGroup:
    """The rows of several groups of the same parts, one after the other; one that holds for all rows stays."""
    if all(group is groups[0] for group in groups):
        return groups[0]
    levels = zip(*(group.levels for group in groups), strict=True)
    joined = tuple(
        (np.concatenate([features for features, _ in level]), np.concatenate([weight for _, weight in level]))
        for level in levels
    )
    return PartGroup(groups[0].parts, joined)


def encode_part(cross: Cross, i: int, values: Any) -> PartGroup:
    """The weights of a part for values that its field has read."""
    return position_group(cross, i, cross.position(i, values))


def position_group(cross: Cross, i: int, position: Array) -> PartGroup:
    """The weights of a part at positions; see `Cross.positions`."""
    if i in cross.categories:
        return category_group(cross, i, position)
    ordinary = ~np.isnan(position)
    group = part_at(cross, i, np.where(ordinary, position, 0.0))
    return PartGroup((i,), tuple((features, weight * ordinary[:, None]) for features, weight in group.levels))


def category_group(cross: Cross, i: int, feature: Int32Array) -> PartGroup:
    """The weights of a categorical part with the given features, -1 for unknown categories."""
    level = feature[:, None, None], (feature >= 0).astype(np.float64)[:, None]
    return PartGroup((i,), (level,) * len(cross.levels))


def part_at(cross: Cross, i: int, u: FloatArray) -> PartGroup:
    """The weights of a numerical part at u = T(z)."""
    return PartGroup((i,), tuple(_functions(bases[cross.numbers.index(i)], u) for bases in cross.levels))


def _functions(basis: Basis, u: FloatArray) -> Level:
    start, weight = basis(u)
    return expand_windows(start, basis.widths)[:, :, None], weight


class GroupMeans:
    """Mean weights of all combinations of features of some parts of a cross, chunk by chunk."""

    def __init__(self, cross: Cross, parts: Sequence[int]) -> None:
        self.cross, self.parts = cross, tuple(parts)
        self.sums: list[list[Level]] = [[] for _ in cross.levels]

    def update(self, values: Sequence[Any]) -> None:
        """Add rows of the values that the parts have read."""
        groups = [encode_part(self.cross, i, column) for i, column in zip(self.parts, values, strict=True)]
        for level, sums in enumerate(self.sums):
            sums.append(_summed([_flat(*_joint([group.levels[level] for group in groups]))]))

    def result(self, n_rows: int) -> PartGroup:
        """The means over the rows that were added."""
        levels = map(_summed, self.sums)
        return PartGroup(self.parts, tuple((features[None], weight[None] / n_rows) for features, weight in levels))


def known_group(i: int, weights: FloatArray, n_levels: int) -> PartGroup:
    """A categorical part with the given mean weights of its features."""
    features = np.arange(len(weights), dtype=np.int32)[None, :, None]
    return PartGroup((i,), ((features, weights[None]),) * n_levels)


def _joint(levels: Sequence[Level]) -> Level:
    """All combinations of the features of several parts."""
    features, weight = levels[0]
    for more, more_weight in levels[1:]:
        shape = (len(features), features.shape[1], more.shape[1])
        both = [
            np.broadcast_to(features[:, :, None], (*shape, features.shape[2])),
            np.broadcast_to(more[:, None], (*shape, more.shape[2])),
        ]
        features = np.concatenate(both, axis=3).reshape(len(features), -1, both[0].shape[3] + both[1].shape[3])
        weight = (weight[:, :, None] * more_weight[:, None]).reshape(len(features), -1)
    return features, weight


def _flat(features: Int32Array, weight: FloatArray) -> Level:
    return features.reshape(-1, features.shape[2]), weight.ravel()


def _summed(levels: Sequence[Level]) -> Level:
    """Distinct combinations that have features, and the sums of their weights."""
    features, weight = (np.concatenate(arrays) for arrays in zip(*levels, strict=True))
    used = (weight != 0.0) & (features >= 0).all(axis=1)
    features, weight = features[used], weight[used]
    sizes = tuple(features.max(axis=0, initial=0).astype(np.int64) + 1)
    keys, inverse = np.unique(np.ravel_multi_index(tuple(features.T), sizes), return_inverse=True)
    distinct = np.stack(np.unravel_index(keys, sizes), axis=1).astype(np.int32)
    return distinct, np.bincount(inverse, weight, minlength=len(keys)).astype(np.float64)


def unit_groups(cross: Cross, parts: Sequence[int]) -> list[PartGroup]:
    """For each resolution, all combinations of functions of some numerical parts, one per row, with a weight of 1.

    What a cross is at these rows is linear in the functions: `unit_weights` gives it anywhere else.
    """
    groups = []
    for level in range(len(cross.levels)):
        sizes = _sizes(cross, level, parts)
        features = np.stack(np.unravel_index(np.arange(int(np.prod(sizes))), sizes), axis=1).astype(np.int32)[:, None]
        ones = np.ones((len(features), 1))
        pairs = [
            (features, ones) if other == level else (0 * features, 0.0 * ones) for other in range(len(cross.levels))
        ]
        groups.append(PartGroup(tuple(parts), tuple(pairs)))
    return groups


def n_units_of(cross: Cross, parts: Sequence[int]) -> int:
    """Rows of all `unit_groups`."""
    return sum(int(np.prod(_sizes(cross, level, parts))) for level in range(len(cross.levels)))


def unit_weights(cross: Cross, groups: Sequence[PartGroup]) -> Level:
    """Weights of the rows of all `unit_groups`, one resolution after the other: shape (n, weights)."""
    parts = [i for group in groups for i in group.parts]
    first, found = 0, []
    for level in range(len(cross.levels)):
        features, weight = _joint([group.levels[level] for group in groups])
        sizes = _sizes(cross, level, parts)
        found.append((first + np.ravel_multi_index(tuple(np.moveaxis(features, 2, 0)), sizes), weight))
        first += int(np.prod(sizes))
    positions, weights = (np.concatenate(arrays, axis=1) for arrays in zip(*found, strict=True))
    return positions, weights


def _sizes(cross: Cross, level: int, parts: Sequence[int]) -> tuple[int, ...]:
    return tuple(cross.level_sizes[level][cross.numbers.index(i)] for i in parts)


def product(cross: Cross, groups: Sequence[PartGroup]) -> Level:
    """Features inside the cross and weights, both of shape (n, weights), from groups that have all of its parts.

    Groups have n rows or one.
    """
    n = max(map(len, groups))
    first, parts = 0, []
    for level, sizes in enumerate(cross.level_sizes):
        shape = (n, *(group.levels[level][1].shape[1] for group in groups))
        of_part: dict[int, Int32Array] = {}
        weight: Any = np.ones(1)
        for axis, group in enumerate(groups):
            features, weights = group.levels[level]
            spread = [len(weights)] + [-1 if a == axis else 1 for a in range(len(groups))]
            weight = weight * weights.reshape(spread)
            of_part |= {part: features[:, :, j].reshape(spread) for j, part in enumerate(group.parts)}
        feature: Any = np.zeros((1,) * len(shape), np.int32)
        for i, size in zip(cross.numbers, sizes, strict=True):
            feature = feature * size + of_part[i]
        if cross.categories:
            cell = _cells(cross, [of_part[i] for i in cross.categories])
            weight, feature = weight * (cell >= 0), feature + np.maximum(cell, 0) * cross.block
        parts.append([np.broadcast_to(values, shape).reshape(n, -1) for values in (feature + first, weight)])
        first += int(np.prod(sizes))
    features, weights = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
    return features.astype(np.int32), weights


def _cells(cross: Cross, features: list[Int32Array]) -> Int32Array:
    each = np.broadcast_arrays(*features)
    cell: Int32Array = cross.cell(np.stack([values.ravel() for values in each], axis=1)).reshape(each[0].shape)
    return cell
