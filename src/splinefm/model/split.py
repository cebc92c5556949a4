"""Context and items apart: score = bias + context's own part + item's own part + query · vector.

When the fields of a row are divided into those of a context and those of an item, the units of either side interact
among themselves, which one side can compute alone, and with the units of the other side. That cross part is a product
of two vectors that either side can compute alone, too: with s_f the sum of the unit vectors of field f, I the item's
fields and C the context's,

    FM              (Σ_I s_f)' (Σ_C s_e)                          length k
    FwFM            Σ_I s_f' (Σ_C r_fe s_e)                       k · the smaller of |I| and |C|
    LowRankFwFM     Σ_r (Σ_I U_rf s_f)' (d_r Σ_C U_re s_e)        k · the smallest of the rank, |I| and |C|
    FmFM            Σ_I s_f' (Σ_C M_fe s_e)                       the smaller of Σ_I k_f and Σ_C k_e
    FFM             Σ_I Σ_C s_f[e]' s_e[f]                        k · |I| · |C|
    HigherOrderFM   Σ_a e_a(I)' (Σ_{b ≤ order - a} e_b(C))        k · the smallest of order - 1 and the units of I and C

where e_a are the elementary symmetric functions of the unit vectors, coordinate by coordinate. I and C may change
places, so that the shorter of the two forms is taken.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm.encode.slots import SlotLayout, Slots
from splinefm.model.family import FFM, AnyModel, FloatArray, FmFM, FwFM, HigherOrderFM, LowRankFwFM, Params

IntArray = npt.NDArray[np.int32]


class Side(NamedTuple):
    """One side of a split: vectors of shape (n, length), and the linear part and interactions of the side alone."""

    vectors: FloatArray
    own: FloatArray


class _Places(NamedTuple):
    """How the slots of some fields become unit vectors."""

    window: npt.NDArray[np.intp]  # of each weight
    inside: IntArray  # place of each weight in its window
    units: list[slice]  # weights of each unit
    unit_field: IntArray  # field of each unit, counted among all fields


@dataclass(frozen=True, eq=False)
class Split:
    """A model whose fields are divided into those of a context and those of an item.

    The score of a context with an item is `bias + context.own + item.own + context.vectors · item.vectors`.

    Parameters
    ----------
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM
        The model.
    params : dict of arrays
        Its parameters.
    layout : SlotLayout
        All fields.
    items : tuple of int
        Numbers of the fields of an item, ascending; the others are the context's.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"user": ["a", "b"] * 50, "ad": ["x", "y", "y", "z"] * 25, "click": [0, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", model=sf.FM(k=2), training=sf.Training(epochs=1, threads=1))
    >>> split = Split(fitted.model, fitted.params, fitted.encoder.layout, items=(1,))
    >>> slots = fitted.encoder.encode(table)
    >>> context, item = split.context_side(split.part(slots, (0,))), split.item_side(split.part(slots, (1,)))
    >>> scores = split.bias + context.own + item.own + (context.vectors * item.vectors).sum(axis=1)
    >>> bool(np.allclose(scores, fitted.scores(table), atol=1e-5))
    True
    """

    model: AnyModel
    params: Params
    layout: SlotLayout
    items: tuple[int, ...]

    @property
    def bias(self) -> float:
        """What the score has without any field."""
        return float(self.params["bias"][0])

    @cached_property
    def context(self) -> tuple[int, ...]:
        """Numbers of the fields of a context."""
        return tuple(f for f in range(len(self.layout.fields)) if f not in self.items)

    @cached_property
    def length(self) -> int:
        """Numbers in the vector of an item, and in that of a context."""
        none = np.zeros((0, len(self._item_places.unit_field), self.params["factors"].shape[1]))
        return int(self._cross(none, True).shape[1])

    def part(self, slots: Slots, fields: tuple[int, ...]) -> Slots:
        """The slots of some fields out of those of all; `start` still counts the rows of the whole table."""
        window_ptr, weight_ptr = self.layout.window_ptr, self.layout.weight_ptr
        windows = [w for f in fields for w in range(window_ptr[f], window_ptr[f + 1])]
        weights = [i for w in windows for i in range(weight_ptr[w], weight_ptr[w + 1])]
        layout = SlotLayout(tuple(self.layout.fields[f] for f in fields))
        return Slots(slots.start[:, windows], slots.weight[:, weights], layout)

    def item_side(self, slots: Slots) -> Side:
        """Vectors and own parts of items, from the slots of their fields (see `part`)."""
        return self._side(slots, self._item_places, True)

    def item_vectors(self, slots: Slots) -> FloatArray:
        """Vectors of items without their own parts, which take longer."""
        if not len(slots) or not len(self._item_places.unit_field):
            return np.zeros((len(slots), self.length))
        return self._cross(self._unit_vectors(slots, self._item_places), True)

    def context_side(self, slots: Slots) -> Side:
        """Vectors and own parts of contexts, from the slots of their fields (see `part`)."""
        return self._side(slots, self._context_places, False)

    @property
    def context_units(self) -> IntArray:
        """The field of every unit of a context."""
        return self._context_places.unit_field

    def context_vectors(self, P: FloatArray) -> FloatArray:
        """Vectors of contexts from those of their units, shape (n, units, width)."""
        return self._cross(P, False)

    # From the vector of a context to what each feature of an item adds

    @property
    def is_linear(self) -> bool:
        """Whether the vector of an item is a sum over its features: always, but for products of several of them."""
        if not isinstance(self.model, HigherOrderFM):
            return True
        return min(self.model.order - 1, len(self._item_places.unit_field)) <= 1

    def row_columns(self, field: int) -> npt.NDArray[np.intp]:
        """Columns of the factors of an item's field that meet a context."""
        if not self.items or not self.context:
            return np.zeros(0, np.intp)
        width = self.params["factors"].shape[1]
        if isinstance(self.model, FmFM):
            return np.arange(self.model.sizes(len(self.layout.fields))[field])
        if isinstance(self.model, FFM):
            return np.concatenate([np.arange(width)[e * self.model.k : (e + 1) * self.model.k] for e in self.context])
        return np.arange(width)

    def row_queries(self, vectors: FloatArray) -> list[FloatArray]:
        """For each field of an item, what the numbers of its features, in `row_columns`, are multiplied with.

        The product of a context's vector with that of an item is the sum of these products over the features of the
        item, times their weights. Holds where `is_linear` does.
        """
        n = len(vectors)
        if not self.items or not self.context:
            return [np.zeros((n, 0))] * len(self.items)
        if isinstance(self.model, FFM):
            return list(np.split(vectors, len(self.items), axis=1))
        if isinstance(self.model, FmFM):
            turn = self._matrices[0]
            flat = vectors if turn is None else vectors @ turn.T
            return list(np.split(flat, np.cumsum(self._sizes(True))[:-1], axis=1))
        if isinstance(self.model, FwFM | LowRankFwFM):
            turn = self._field_weights[0]
            parts = vectors.reshape(n, -1, self.params["factors"].shape[1])
            return list((parts if turn is None else turn @ parts).transpose(1, 0, 2))
        return [vectors] * len(self.items)

    # From slots to unit vectors

    @cached_property
    def _item_places(self) -> _Places:
        return self._places(self.items)

    @cached_property
    def _context_places(self) -> _Places:
        return self._places(self.context)

    def _places(self, fields: tuple[int, ...]) -> _Places:
        layout = SlotLayout(tuple(self.layout.fields[f] for f in fields))
        width = np.diff(layout.weight_ptr)
        inside = np.arange(layout.n_weights, dtype=np.int32) - np.repeat(layout.weight_ptr[:-1], width)
        unit = np.repeat(layout.window_unit, width)
        return _Places(
            np.repeat(np.arange(layout.n_windows), width),
            inside.astype(np.int32),
            [slice(*np.searchsorted(unit, (u, u + 1)).tolist()) for u in range(layout.n_units)],
            np.array(fields, np.int32)[layout.unit_field],
        )

    def _side(self, slots: Slots, places: _Places, is_item: bool) -> Side:
        if not len(slots) or not len(places.unit_field):
            return Side(np.zeros((len(slots), self.length)), np.zeros(len(slots)))
        rows = slots.start[:, places.window] + places.inside
        linear = (slots.weight.astype(np.float64) * self.params["linear"][rows]).sum(axis=1)
        P = self._unit_vectors(slots, places)
        inside = self.model.interaction(P, self.params, places.unit_field)
        return Side(self._cross(P, is_item), linear + inside)

    def _unit_vectors(self, slots: Slots, places: _Places) -> FloatArray:
        """Σ weight · factors over the weights of each unit, shape (n, units, width)."""
        rows = slots.start[:, places.window] + places.inside
        weight = slots.weight.astype(np.float64)
        P = np.empty((len(rows), len(places.units), self.params["factors"].shape[1]))
        for u, own in enumerate(places.units):
            np.einsum("nw,nwd->nd", weight[:, own], self.params["factors"][rows[:, own]], out=P[:, u])
        return P

    # From unit vectors to what meets the other side

    def _cross(self, P: FloatArray, is_item: bool) -> FloatArray:
        """The vectors of a side, shape (n, length)."""
        if not self.items or not self.context:
            return np.zeros((len(P), 0))
        if isinstance(self.model, HigherOrderFM):
            return self._products(P, is_item)
        S = self._field_sums(P, is_item)
        if isinstance(self.model, FFM):
            return self._parts(S, is_item)
        if isinstance(self.model, FmFM):
            flat = np.concatenate([S[:, i, :k] for i, k in enumerate(self._sizes(is_item))], axis=1)
            turn = self._matrices[not is_item]
            return flat if turn is None else np.asarray(flat @ turn)
        if isinstance(self.model, FwFM | LowRankFwFM):
            turn = self._field_weights[not is_item]
            return _flat(S if turn is None else turn.T @ S)
        return np.asarray(S.sum(axis=1))

    def _field_sums(self, P: FloatArray, is_item: bool) -> FloatArray:
        """s_f: the sum of the unit vectors of each field, shape (n, fields, width)."""
        unit_field = (self._item_places if is_item else self._context_places).unit_field
        first = np.flatnonzero(np.diff(unit_field, prepend=-1))
        return P if len(first) == len(unit_field) else np.asarray(np.add.reduceat(P, first, axis=1))

    def _parts(self, S: FloatArray, is_item: bool) -> FloatArray:
        """s_f[e] of an item, or s_e[f] of a context, for all pairs (f, e)."""
        n_fields, others = len(self.layout.fields), self.context if is_item else self.items
        parts = S.reshape(*S.shape[:2], n_fields, S.shape[2] // n_fields)[:, :, list(others)]
        return _flat(parts if is_item else parts.transpose(0, 2, 1, 3))

    @cached_property
    def _field_weights(self) -> tuple[FloatArray | None, FloatArray | None]:
        """A and B with r_fe = Σ_r A_fr B_er for an item's field f and a context's field e; None is the identity."""
        rows, columns = list(self.items), list(self.context)
        if isinstance(self.model, LowRankFwFM):
            U = self.params["field_factors"].astype(np.float64)
            scaled = self.params["field_scales"][:, None] * U
            if self.model.rank < min(len(rows), len(columns)):
                return U[:, rows].T, scaled[:, columns].T
            between = (U.T @ scaled)[np.ix_(rows, columns)]
        else:
            above = np.triu(self.params["field_weights"].astype(np.float64), 1)
            between = (above + above.T)[np.ix_(rows, columns)]
        return (None, between.T) if len(rows) <= len(columns) else (between, None)

    @cached_property
    def _matrices(self) -> tuple[FloatArray | None, FloatArray | None]:
        """The same for the M_fe of an FmFM, without what pads shorter vectors."""
        rows, columns = self._sizes(True), self._sizes(False)
        M = self.params["field_matrices"].astype(np.float64)
        blocks = [
            [(M[f, e] if f < e else M[e, f].T)[:k, :k_other] for e, k_other in zip(self.context, columns, strict=True)]
            for f, k in zip(self.items, rows, strict=True)
        ]
        between = np.block(blocks)
        return (None, between.T) if sum(rows) <= sum(columns) else (between, None)

    def _sizes(self, is_item: bool) -> list[int]:
        """Length of the vectors of each field of an FmFM."""
        assert isinstance(self.model, FmFM)
        sizes = self.model.sizes(len(self.layout.fields))
        return [sizes[f] for f in (self.items if is_item else self.context)]

    def _products(self, P: FloatArray, is_item: bool) -> FloatArray:
        """e_a of one side for a = 1, 2, .., and Σ_{b ≤ order - a} e_b of the other."""
        assert isinstance(self.model, HigherOrderFM)
        order = self.model.order
        n_items, n_context = len(self._item_places.unit_field), len(self._context_places.unit_field)
        most = min(order - 1, n_items, n_context)
        sums = _elementary(P, order - 1)
        if is_item == (n_items <= n_context):  # the side with fewer units: it has no products of more than these
            return np.concatenate(list(sums[:most]), axis=1)
        up_to = np.cumsum(sums, axis=0)
        return np.concatenate([up_to[order - a - 1] for a in range(1, most + 1)], axis=1)


def _flat(vectors: FloatArray) -> FloatArray:
    return vectors.reshape(len(vectors), math.prod(vectors.shape[1:]))


def _elementary(P: FloatArray, order: int) -> FloatArray:
    """e_t, the sums of products of t different units, coordinate by coordinate, for t = 1 .. order."""
    sums = np.zeros((order + 1, P.shape[0], P.shape[2]))
    sums[0] = 1.0
    for u in range(P.shape[1]):
        for t in range(order, 0, -1):
            sums[t] += P[:, u] * sums[t - 1]
    return sums[1:]
