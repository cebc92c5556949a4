"""The interactions of context and item as one inner product: the two-tower form of each model.

With s_f the sum of the unit vectors of field f, I the item's fields and C the context's, the interactions across the
two sides are

    FM              (Σ_I s_f)' (Σ_C s_e)                          length k
    FwFM            Σ_I s_f' (Σ_C r_fe s_e)                       k · the smaller of |I| and |C|
      with third    e_1(I)' e_2(C) + e_2(I)' e_1(C) besides       third · the smallest of 2 and the units of I and C
    LowRankFwFM     Σ_r (Σ_I U_rf s_f)' (d_r Σ_C U_re s_e)        k · the smallest of the rank, |I| and |C|
    FmFM            Σ_I s_f' (Σ_C M_fe s_e)                       the smaller of Σ_I k_f and Σ_C k_e
    FFM             Σ_I Σ_C s_f[e]' s_e[f]                        k · |I| · |C|
    HigherOrderFM   Σ_a e_a(I)' (Σ_{b ≤ order - a} e_b(C))        k · the smallest of order - 1 and the units of I and C

where e_a are the elementary symmetric functions of the unit vectors, coordinate by coordinate. I and C may swap roles,
so the shorter of the two forms is used.

`items` and `context` are the fields of all units on each side, ascending.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from splinefm._arrays import FloatArray, IndexArray, Int32Array


class Block(NamedTuple):
    """A part of a linear map: out[to : to + n] += weight · in[row, column : column + n].

    With a matrix as the weight, of shape (numbers that are taken, n), the input has as many numbers as it takes.
    """

    to: int
    row: int
    column: int
    n: int
    weight: float | FloatArray = 1.0


def apply_blocks(blocks: Sequence[Block], inputs: FloatArray, length: int) -> FloatArray:
    """Return the vectors that a linear map makes of inputs of shape (n, rows, width).

    Examples
    --------
    >>> apply_blocks([Block(0, 0, 1, 2, 10.0), Block(1, 1, 0, 1)], np.arange(6.0).reshape(1, 2, 3), 2)
    array([[10., 23.]])
    """
    out = np.zeros((len(inputs), length))
    for to, row, column, n, weight in blocks:
        if isinstance(weight, np.ndarray):
            out[:, to : to + n] += inputs[:, row, column : column + len(weight)] @ weight
        else:
            out[:, to : to + n] += weight * inputs[:, row, column : column + n]
    return out


class Towers(Protocol):
    """Both sides of a split model. Neither side is empty."""

    products: int
    """How many sums of products of units the vector of a context needs; see `context_blocks`."""

    def vectors(self, P: FloatArray, is_item: bool) -> FloatArray:
        """Vectors of one side, shape (n, length), from its unit vectors, shape (n, units, width)."""

    def item_columns(self, field: int) -> IndexArray:
        """Coordinates of the vectors of an item's field that meet a context."""

    def context_blocks(self) -> list[Block]:
        """The vector of a context as a linear map, for loops: of the sums of its fields' vectors, one per row.

        More rows have the sums of products of 1, 2, .. `products` units, coordinate by coordinate.
        """

    def item_blocks(self) -> list[list[Block]]:
        """For each field of an item, the map from a context's vector to what multiplies the field's `item_columns`.

        The inner product of a context's vector with an item's is the sum of these products over the features of the
        item, times their weights. This holds if `Split.is_linear` does.
        """


class SumTowers:
    """(Σ_I s_f)' (Σ_C s_e)."""

    products = 0

    def __init__(self, items: Int32Array, context: Int32Array, k: int) -> None:
        self._n_items, self._n_context, self._k = len(np.unique(items)), len(np.unique(context)), k

    def vectors(self, P: FloatArray, is_item: bool) -> FloatArray:
        """Σ s_f."""
        return np.asarray(P.sum(axis=1))

    def item_columns(self, field: int) -> IndexArray:
        return np.arange(self._k)

    def context_blocks(self) -> list[Block]:
        return [Block(0, e, 0, self._k) for e in range(self._n_context)]

    def item_blocks(self) -> list[list[Block]]:
        return [[Block(0, 0, 0, self._k)]] * self._n_items


class WeightTowers:
    """Σ_I Σ_C r_fe s_f' s_e, with weights r_fe = Σ_r A_fr B_er; None stands for the identity."""

    products = 0

    def __init__(
        self, items: Int32Array, context: Int32Array, k: int, A: FloatArray | None = None, B: FloatArray | None = None
    ) -> None:
        self._items, self._context, self._k = items, context, k
        self._A, self._B = A, B
        self._n_parts = len(np.unique(items)) if A is None else A.shape[1]

    def vectors(self, P: FloatArray, is_item: bool) -> FloatArray:
        """Σ_f A_fr s_f for all r, or Σ_e B_er s_e."""
        units, weights = (self._items, self._A) if is_item else (self._context, self._B)
        S = field_sums(P, units)
        return _flat(S if weights is None else weights.T @ S)

    def item_columns(self, field: int) -> IndexArray:
        return np.arange(self._k)

    def context_blocks(self) -> list[Block]:
        """Σ_e B_er s_e for all r."""
        k, n = self._k, len(np.unique(self._context))
        if self._B is None:
            return [Block(e * k, e, 0, k) for e in range(n)]
        return [Block(r * k, e, 0, k, float(self._B[e, r])) for r in range(self._n_parts) for e in range(n)]

    def item_blocks(self) -> list[list[Block]]:
        """Σ_r A_fr q_r for each field f."""
        k, n = self._k, len(np.unique(self._items))
        if self._A is None:
            return [[Block(0, 0, f * k, k)] for f in range(n)]
        return [[Block(0, 0, r * k, k, float(self._A[f, r])) for r in range(self._n_parts)] for f in range(n)]


class MatrixTowers:
    """Σ_I Σ_C s_f' M_fe s_e, where `between` has the blocks M_fe."""

    products = 0

    def __init__(
        self,
        items: Int32Array,
        context: Int32Array,
        item_sizes: Sequence[int],
        context_sizes: Sequence[int],
        between: FloatArray,
    ) -> None:
        self._items, self._context = items, context
        self._item_sizes, self._context_sizes = item_sizes, context_sizes
        self._size_of = dict(zip(np.unique(items).tolist(), item_sizes, strict=True))
        items_shorter = sum(item_sizes) <= sum(context_sizes)
        self._A = None if items_shorter else between
        self._B = between.T if items_shorter else None

    def vectors(self, P: FloatArray, is_item: bool) -> FloatArray:
        """All s_f of the shorter side; s_f of the other side times the matrices."""
        units, sizes, matrix = (
            (self._items, self._item_sizes, self._A) if is_item else (self._context, self._context_sizes, self._B)
        )
        S = field_sums(P, units)
        flat = np.concatenate([S[:, i, :k] for i, k in enumerate(sizes)], axis=1)
        return flat if matrix is None else np.asarray(flat @ matrix)

    def item_columns(self, field: int) -> IndexArray:
        return np.arange(self._size_of[field])

    def context_blocks(self) -> list[Block]:
        """Σ_e M_fe s_e for all f, or all s_e."""
        ends = np.cumsum([0, *self._context_sizes]).tolist()
        if self._B is None:
            return [Block(at, e, 0, k) for e, (at, k) in enumerate(zip(ends, self._context_sizes, strict=False))]
        n = self._B.shape[1]
        return [Block(0, e, 0, n, self._B[a:b]) for e, (a, b) in enumerate(pairwise(ends))]

    def item_blocks(self) -> list[list[Block]]:
        ends = pairwise(np.cumsum([0, *self._item_sizes]).tolist())
        if self._A is None:
            return [[Block(0, 0, a, b - a)] for a, b in ends]
        return [[Block(0, 0, 0, b - a, self._A[a:b].T)] for a, b in ends]


class PartTowers:
    """Σ_I Σ_C s_f[e]' s_e[f], with parts of k coordinates."""

    products = 0

    def __init__(self, items: Int32Array, context: Int32Array, k: int) -> None:
        self._items, self._context, self._k = items, context, k

    def vectors(self, P: FloatArray, is_item: bool) -> FloatArray:
        """s_f[e] of an item, or s_e[f] of a context, for all pairs (f, e)."""
        units, others = (self._items, self._context) if is_item else (self._context, self._items)
        S = field_sums(P, units)
        parts = S.reshape(*S.shape[:2], S.shape[2] // self._k, self._k)[:, :, np.unique(others)]
        return _flat(parts if is_item else parts.transpose(0, 2, 1, 3))

    def item_columns(self, field: int) -> IndexArray:
        return (np.unique(self._context)[:, None] * self._k + np.arange(self._k)).ravel().astype(np.intp)

    def context_blocks(self) -> list[Block]:
        """s_e[f], by f and then by e."""
        items, n, k = np.unique(self._items).tolist(), len(np.unique(self._context)), self._k
        return [Block((i * n + e) * k, e, f * k, k) for i, f in enumerate(items) for e in range(n)]

    def item_blocks(self) -> list[list[Block]]:
        """s_e[f] for each field f."""
        size = self._k * len(np.unique(self._context))
        return [[Block(0, 0, i * size, size)] for i in range(len(np.unique(self._items)))]


class ProductTowers:
    """Σ_a e_a(I)' (Σ_{least - a ≤ b ≤ order - a} e_b(C)), for a and b from 1 on, times a weight."""

    def __init__(
        self, order: int, items: Int32Array, context: Int32Array, k: int, least: int = 2, weight: float = 1.0
    ) -> None:
        self._order, self._least, self._k, self._weight = order, least, k, weight
        self._n_items, self._n_context = len(np.unique(items)), len(np.unique(context))
        self.products = order - 1
        self._items_shorter = len(items) <= len(context)
        self._most = min(order - 1, len(items), len(context))

    def vectors(self, P: FloatArray, is_item: bool) -> FloatArray:
        """e_a of the side with fewer units for a = 1, 2, .., and the sum of e_b of the other; weighted in a context."""
        sums = symmetric_sums(P, self._order - 1)[1:] * (1.0 if is_item else self._weight)
        if is_item == self._items_shorter:  # with u units, e_a is zero for a > u
            return np.concatenate(list(sums[: self._most]), axis=1)
        return np.concatenate([sums[first - 1 : last].sum(axis=0) for first, last in self._partners()], axis=1)

    def _partners(self) -> list[tuple[int, int]]:
        """The first and the last b whose e_b meets e_a, for all a."""
        return [(max(1, self._least - a), self._order - a) for a in range(1, self._most + 1)]

    def item_columns(self, field: int) -> IndexArray:
        return np.arange(self._k)

    def context_blocks(self) -> list[Block]:
        """The sums of e_b, or e_a if the context has fewer units."""
        k, first, weight = self._k, self._n_context - 1, self._weight  # the first of the rows with e_1, e_2, ..
        ends = self._partners() if self._items_shorter else [(a, a) for a in range(1, self._most + 1)]
        return [Block(i * k, first + b, 0, k, weight) for i, (a, last) in enumerate(ends) for b in range(a, last + 1)]

    def item_blocks(self) -> list[list[Block]]:
        return [[Block(0, 0, 0, self._most * self._k)]] * self._n_items


class JoinedTowers:
    """The sum of two: one for the first k coordinates of the units, whose vectors have `length`, one for the others."""

    def __init__(self, first: Towers, second: Towers, k: int, length: int) -> None:
        self._first, self._second, self._k, self._length = first, second, k, length
        self.products = max(first.products, second.products)

    def vectors(self, P: FloatArray, is_item: bool) -> FloatArray:
        parts = self._first.vectors(P[:, :, : self._k], is_item), self._second.vectors(P[:, :, self._k :], is_item)
        return np.concatenate(parts, axis=1)

    def item_columns(self, field: int) -> IndexArray:
        return np.concatenate([self._first.item_columns(field), self._k + self._second.item_columns(field)])

    def context_blocks(self) -> list[Block]:
        k, length = self._k, self._length
        second = self._second.context_blocks()
        moved = (block._replace(to=block.to + length, column=block.column + k) for block in second)
        return [*self._first.context_blocks(), *moved]

    def item_blocks(self) -> list[list[Block]]:
        joined = []
        for first, second in zip(self._first.item_blocks(), self._second.item_blocks(), strict=True):
            moved = (block._replace(to=block.to + self._k, column=block.column + self._length) for block in second)
            joined.append([*first, *moved])
        return joined


def symmetric_sums(P: npt.NDArray[np.floating], order: int) -> FloatArray:
    """e_t, the sums of products of t different units, coordinate by coordinate: shape (order + 1, n, width)."""
    sums = np.zeros((order + 1, P.shape[0], P.shape[2]))
    sums[0] = 1.0
    for u in range(P.shape[1]):
        for t in range(order, 0, -1):
            sums[t] += P[:, u] * sums[t - 1]
    return sums


def field_sums(P: FloatArray, units: Int32Array) -> FloatArray:
    """s_f: the sum of the unit vectors of each field, shape (n, fields, width)."""
    first = np.flatnonzero(np.diff(units, prepend=-1))
    return P if len(first) == len(units) else np.asarray(np.add.reduceat(P, first, axis=1))


def _flat(vectors: FloatArray) -> FloatArray:
    return vectors.reshape(len(vectors), math.prod(vectors.shape[1:]))
