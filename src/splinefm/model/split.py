"""Context and items apart: score = bias + context's side score + item's side score + query · vector.

When the fields of a row are divided into context fields and item fields, the units of either side interact
among themselves, which one side can compute alone, and with the units of the other side. The interactions across the
sides are an inner product of two vectors, and either side can compute its own: see `splinefm.model.towers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from splinefm._arrays import FloatArray, IndexArray, Int32Array, Int64Array
from splinefm._cached import cached_property
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params
from splinefm.model.towers import Block, Towers, apply_blocks


class Side(NamedTuple):
    """One side of a split: vectors of shape (n, length), and scores of the side alone: linear part and interactions."""

    vectors: FloatArray
    scores: FloatArray


class _Units(NamedTuple):
    """How the slots of some fields become unit vectors."""

    window: IndexArray  # of each weight
    inside: Int32Array  # index of each weight in its window
    units: list[slice]  # weights of each unit
    unit_field: Int32Array  # field of each unit, counted among all fields


@dataclass(frozen=True, eq=False)
class Split:
    """A model whose fields are divided into context fields and item fields.

    The score of a context with an item is `bias + context.scores + item.scores + context.vectors · item.vectors`.

    Parameters
    ----------
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM
        The model.
    params : dict of arrays
        Its parameters.
    layout : SlotLayout
        All fields.
    items : tuple of int
        Indices of the fields of an item, ascending; the others are the context's.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"user": ["a", "b"] * 50, "ad": ["x", "y", "y", "z"] * 25, "click": [0, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", model=sf.FM(k=2), training=sf.Training(epochs=1, threads=1))
    >>> split = Split(fitted.model, fitted.params, fitted.encoder.layout, items=(1,))
    >>> slots = fitted.encoder.encode(table)
    >>> context, item = split.context_side(split.part(slots, (0,))), split.item_side(split.part(slots, (1,)))
    >>> scores = split.bias + context.scores + item.scores + (context.vectors * item.vectors).sum(axis=1)
    >>> bool(np.allclose(scores, fitted.scores(table), atol=1e-5))
    True
    """

    model: AnyModel
    params: Params
    layout: SlotLayout
    items: tuple[int, ...]

    @property
    def bias(self) -> float:
        """The score without any field."""
        return float(self.params["bias"][0])

    @cached_property
    def context(self) -> tuple[int, ...]:
        """Indices of the fields of a context."""
        return tuple(f for f in range(len(self.layout.fields)) if f not in self.items)

    @cached_property
    def length(self) -> int:
        """Length of the vectors of items and contexts."""
        none = np.zeros((0, len(self._item_units.unit_field), self.params["factors"].shape[1]))
        return int(self._cross(none, True).shape[1])

    def part(self, slots: Slots, fields: tuple[int, ...]) -> Slots:
        """The slots of some fields; `start` still counts the features of all fields."""
        window_ptr, weight_ptr = self.layout.window_ptr, self.layout.weight_ptr
        windows = [w for f in fields for w in range(window_ptr[f], window_ptr[f + 1])]
        weights = [i for w in windows for i in range(weight_ptr[w], weight_ptr[w + 1])]
        layout = SlotLayout(tuple(self.layout.fields[f] for f in fields))
        return Slots(slots.start[:, windows], slots.weight[:, weights], layout)

    def item_side(self, slots: Slots) -> Side:
        """Vectors and side scores of items, from the slots of their fields (see `part`)."""
        return self._side(slots, self._item_units, True)

    def item_vectors(self, slots: Slots) -> FloatArray:
        """Vectors of items without the scores of their side, which take longer."""
        if not len(slots) or not len(self._item_units.unit_field):
            return np.zeros((len(slots), self.length))
        return self._cross(self._unit_vectors(slots, self._item_units), True)

    def context_side(self, slots: Slots) -> Side:
        """Vectors and side scores of contexts, from the slots of their fields (see `part`)."""
        return self._side(slots, self._context_units, False)

    @property
    def context_units(self) -> Int32Array:
        """The field of every unit of a context."""
        return self._context_units.unit_field

    def context_vectors(self, P: FloatArray) -> FloatArray:
        """Vectors of contexts from the vectors of their units, shape (n, units, width)."""
        return self._cross(P, False)

    # From the vector of a context to what each feature of an item adds

    @property
    def is_linear(self) -> bool:
        """Whether an item's vector is a weighted sum over its features; not if it has products of several units."""
        return self.model.pairwise or min(self.model.order - 1, len(self._item_units.unit_field)) <= 1

    def feature_columns(self, field: int) -> IndexArray:
        """Columns of the factors of an item's field that meet a context."""
        return np.zeros(0, np.intp) if self._towers is None else self._towers.item_columns(field)

    def feature_queries(self, vectors: FloatArray) -> list[FloatArray]:
        """For each field of an item, what multiplies the numbers of its features: see `Towers.item_blocks`."""
        sizes = [len(self.feature_columns(f)) for f in self.items]
        return [apply_blocks(blocks, vectors[:, None], n) for blocks, n in zip(self.item_blocks(), sizes, strict=True)]

    # The same as maps, for loops

    def item_blocks(self) -> list[list[Block]]:
        """For each field of an item, the map from a context's vector to `feature_queries`."""
        return [[]] * len(self.items) if self._towers is None else self._towers.item_blocks()

    def context_blocks(self) -> list[Block]:
        """The map from sums of a context's units to its vector: see `Towers.context_blocks`."""
        return [] if self._towers is None else self._towers.context_blocks()

    @property
    def products(self) -> int:
        """How many sums of products of units `context_blocks` takes."""
        return 0 if self._towers is None else self._towers.products

    # From slots to unit vectors

    @cached_property
    def _item_units(self) -> _Units:
        return self._select(self.items)

    @cached_property
    def _context_units(self) -> _Units:
        return self._select(self.context)

    def _select(self, fields: tuple[int, ...]) -> _Units:
        layout = SlotLayout(tuple(self.layout.fields[f] for f in fields))
        width = np.diff(layout.weight_ptr)
        inside = np.arange(layout.n_weights, dtype=np.int32) - np.repeat(layout.weight_ptr[:-1], width)
        unit = np.repeat(layout.window_unit, width)
        return _Units(
            np.repeat(np.arange(layout.n_windows), width),
            inside.astype(np.int32),
            [slice(*np.searchsorted(unit, (u, u + 1)).tolist()) for u in range(layout.n_units)],
            np.array(fields, np.int32)[layout.unit_field],
        )

    def _side(self, slots: Slots, side: _Units, is_item: bool) -> Side:
        if not len(slots) or not len(side.unit_field):
            return Side(np.zeros((len(slots), self.length)), np.zeros(len(slots)))
        features = slots.start[:, side.window] + side.inside
        linear = (slots.weight.astype(np.float64) * self.params["linear"][features]).sum(axis=1)
        P = self._unit_vectors(slots, side)
        inside = self.model.interaction(P, self.params, side.unit_field)
        return Side(self._cross(P, is_item), linear + inside)

    def _unit_vectors(self, slots: Slots, side: _Units) -> FloatArray:
        """Σ weight · factors over the weights of each unit, shape (n, units, width)."""
        features = slots.start[:, side.window] + side.inside
        weight = slots.weight.astype(np.float64)
        P = np.empty((len(slots), len(side.units), self.params["factors"].shape[1]))
        for u, weights in enumerate(side.units):
            vectors = self.params["factors"][features[:, weights]]
            np.einsum("nw,nwd->nd", weight[:, weights], vectors, out=P[:, u])
        return P

    # From unit vectors to what meets the other side

    @cached_property
    def _towers(self) -> Towers | None:
        """None if a side has no fields."""
        if not self.items or not self.context:
            return None
        units = self._item_units.unit_field, self._context_units.unit_field
        return self.model.towers(self.params, *units, len(self.layout.fields))

    def _cross(self, P: FloatArray, is_item: bool) -> FloatArray:
        """The vectors of a side, shape (n, length)."""
        return np.zeros((len(P), 0)) if self._towers is None else self._towers.vectors(P, is_item)


# Linear maps as arrays, for loops.


class MapArrays(NamedTuple):
    """A linear map; see `cpp/rank/linear_map.hpp`."""

    blocks: Int64Array
    """Shape (blocks, 5): to, from, numbers that it makes, numbers that a matrix takes or 0, first weight."""
    weights: FloatArray
    length: int
    """Numbers that the map makes."""


def map_arrays(blocks: Sequence[Block], length: int, width: int, columns: IndexArray) -> MapArrays:
    """Return a map whose rows of inputs are `width` apart, with the numbers of a row at `columns`.

    Examples
    --------
    >>> blocks, weights, length = map_arrays([Block(0, 1, 0, 2, 3.0)], 2, 8, np.arange(2))
    >>> blocks.tolist(), weights.tolist()
    ([[0, 8, 2, 0, 0]], [3.0])
    """
    table, weights, at = [], [np.zeros(0)], 0
    for to, row, column, n, weight in blocks:
        values = np.asarray(weight, np.float64)
        table.append((to, row * width + columns[column], n, len(values) if values.ndim else 0, at))
        weights.append(values.ravel())
        at += values.size
    return MapArrays(np.array(table, np.int64).reshape(-1, 5), np.concatenate(weights), length)
