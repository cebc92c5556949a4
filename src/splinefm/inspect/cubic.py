"""Products of three units, in NumPy: what they add to the score, to Shapley values and to effects.

Coordinate by coordinate, a player f has a_f = Σ p_u, b_f = Σ_{u<v} p_u p_v and c_f = Σ_{u<v<w} p_u p_v p_w over its
units, and all triples of units add

    Σ_{f<g<h} a_f a_g a_h + Σ_{f≠g} b_f a_g + Σ_f c_f

summed over the coordinates. b and c vanish where a player has one unit. A product of three players is worth a_f a_g a_h
to all of them, a_f a_g E[a_h] to two, a_f E[a_g a_h] to one, and E[a_f a_g a_h] to none: Shapley values need the second
moments of the background, and its third moments only as means of what its own rows get.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from splinefm._arrays import FloatArray, IndexArray, Int32Array
from splinefm._parallel import in_order
from splinefm.encode.slots import Slots
from splinefm.inspect.terms import Players, ProductVectors
from splinefm.train.fitted import Fitted

# Numbers of the vectors of a block of rows: a dozen arrays of this size are in memory per thread.
BLOCK_SIZE = 1 << 16


@dataclass(frozen=True, eq=False)
class Sums:
    """a, b and c of some rows: shapes (n, players, coordinates), the same or None where b is zero, (n, players)."""

    a: FloatArray
    b: FloatArray | None
    c: FloatArray

    @property
    def others(self) -> FloatArray:
        """Σ_{g≠f} a_g."""
        return _without(self.a)

    @property
    def pairs(self) -> FloatArray:
        """Σ_{g<h} a_g a_h over the players other than f."""
        total = self.a.sum(axis=1, keepdims=True)
        return np.asarray(0.5 * (total**2 - (self.a**2).sum(axis=1, keepdims=True)) - self.a * (total - self.a))

    @property
    def scores(self) -> FloatArray:
        """What all triples add to the score."""
        triples = (self.a * self.pairs).sum(axis=(1, 2)) / 3.0 + self.c.sum(axis=1)
        return np.asarray(triples if self.b is None else triples + (self.b * self.others).sum(axis=(1, 2)))


@dataclass(frozen=True, eq=False)
class TripleMoments:
    """Statistics of a background: what the triples of a model need.

    Parameters
    ----------
    a, b : arrays, shape (players, coordinates)
        E[a_f] and E[b_f].
    c, own : arrays, shape (players,)
        E[c_f], and the mean of all triples in which f takes part.
    slope : array, shape (players, coordinates)
        Σ_{g<h} E[a_g a_h] over the other players, plus Σ_{g≠f} E[b_g]: the derivative of the mean score by a_f.
    remainder : array, shape (players · coordinates, players)
        Σ_h E[a_f a_h] over the players other than f and g, in the rows of g and the column of f.
    offset : array, shape (players,)
        Means of `shares` before they are subtracted.
    base : float
        Mean of what the triples add to the score.
    """

    a: FloatArray
    b: FloatArray
    c: FloatArray
    own: FloatArray
    slope: FloatArray
    remainder: FloatArray
    offset: FloatArray
    base: float

    @staticmethod
    def of(fitted: Fitted, slots: Slots, players: Players, threads: int | None) -> TripleMoments:
        """Two passes over the rows: first and second moments, then the means of what is made of them."""
        first = [part for _, part in map_blocks(_first_sums, fitted, slots, players, threads)]
        a, b, c, second = (sum(parts) / len(slots) for parts in zip(*first, strict=True))
        seconds = second * (1.0 - np.eye(len(a)))  # E[a_f a_g] of different players: (coordinates, players, players)
        by_player = seconds.sum(axis=2).T
        slope = 0.5 * seconds.sum(axis=(1, 2)) - by_player + b.sum(axis=0) - b
        remainder = (by_player.T[:, :, None] - seconds) * (1.0 - np.eye(len(a)))
        rows = remainder.transpose(2, 0, 1).reshape(a.size, len(a))
        blank = TripleMoments(a, b, c, np.zeros(len(a)), slope, rows, np.zeros(len(a)), 0.0)
        means = [part for _, part in map_blocks(partial(_second_sums, blank), fitted, slots, players, threads)]
        own, offset, base = (sum(parts) / len(slots) for parts in zip(*means, strict=True))
        return TripleMoments(a, b, c, own, slope, rows, offset, float(base))

    def shares(self, sums: Sums) -> FloatArray:
        """Shapley values of what the triples add, shape (n, players)."""
        players, length = self.a.shape
        a = np.ascontiguousarray(sums.a.transpose(1, 0, 2))  # players first: sums over them and over all rows are fast
        mean, rest, total = self.a[:, None], _without(self.a)[:, None], a.sum(axis=0)
        slope = (self.slope - _without(self.b))[:, None]
        known = np.einsum("fnt,ft->nt", a, self.a)
        everyone = 0.5 * (total**2 - np.einsum("fnt,fnt->nt", a, a))
        others = total - a
        values = others * rest
        values -= known
        values += a * mean  # Σ a_g E[a_h] over different g and h, both other than f
        values *= 0.5
        values += slope
        values *= a
        pairs = everyone - a * others
        values += (a - mean) * pairs
        shares = (values.reshape(-1, length) @ np.full(length, 1.0 / 3.0)).reshape(players, -1).T + sums.c
        shares -= sums.a.reshape(-1, players * length) @ self.remainder / 6.0
        if sums.b is not None:
            shares += 0.5 * self._twice(sums, sums.b)
        return np.asarray(shares - self.offset)

    def _twice(self, sums: Sums, b: FloatArray) -> FloatArray:
        """Twice the shares of the products of two units of one player with a unit of another."""
        others, b_others = sums.others, _without(b)
        mine = b * (_without(self.a) + others) - self.b * others
        theirs = sums.a * (_without(self.b) + b_others) - self.a * b_others
        return np.asarray((mine + theirs).sum(axis=2))

    def dependence(self, f: int, sums: Sums) -> FloatArray:
        """Mean of what the triples add to the scores of the background with player f as in each of some rows."""
        at = sums.a[:, f] @ self.slope[f] + sums.c[:, f]
        if sums.b is not None:
            at += sums.b[:, f] @ (self.a.sum(axis=0) - self.a[f])
        return np.asarray(self.base - self.own[f] + at)

    @property
    def intercept(self) -> float:
        """Mean of what the triples add if the players were independent."""
        means = Sums(self.a[None], self.b[None], self.c[None])
        return float(means.scores[0])

    def effects(self, sums: Sums) -> tuple[FloatArray, FloatArray]:
        """Main effects and pair effects of independent players: shapes (n, players), (n, pairs)."""
        z, rest = sums.a - self.a, _without(self.a)
        means = Sums(self.a[None], None, self.c[None])
        main = (z * (means.pairs[0] + _without(self.b))).sum(axis=2) + sums.c - self.c
        y = None if sums.b is None else sums.b - self.b
        if y is not None:
            main += (y * rest).sum(axis=2)
        pairs = [np.zeros((len(z), 0))]
        for f in range(z.shape[1] - 1):
            weight = rest[f] - self.a[f + 1 :]  # Σ E[a_h] over the players other than f and e
            products = z[:, f, None] * weight * z[:, f + 1 :]
            if y is not None:
                products += y[:, f, None] * z[:, f + 1 :] + z[:, f, None] * y[:, f + 1 :]
            pairs.append(products.sum(axis=2))
        return main, np.concatenate(pairs, axis=1)

    def triple_effects(self, sums: Sums, players: IndexArray) -> FloatArray:
        """Effects of all triples of some players, in the order of `itertools.combinations`."""
        z = (sums.a - self.a)[:, players]
        parts = [np.zeros((len(z), 0))]
        for f, g in combinations(range(len(players)), 2):
            parts.append(np.einsum("nt,nht->nh", z[:, f] * z[:, g], z[:, g + 1 :]))
        return np.concatenate(parts, axis=1)


def map_blocks(
    function: Callable[[Sums], Any], fitted: Fitted, slots: Slots, players: Players, threads: int | None
) -> Iterator[tuple[slice, Any]]:
    """Rows and the result of a function of their sums, block by block; blocks do not depend on the threads."""
    layout = slots.layout
    vectors = ProductVectors(fitted, layout)
    most = max(1, BLOCK_SIZE // math.prod(vectors.size))
    blocks = [slice(first, min(first + most, len(slots))) for first in range(0, len(slots), most)]

    of_units = players.of_units(layout)

    def work(rows: slice) -> tuple[slice, Any]:
        return rows, function(sums_of(vectors(slots[rows]), of_units, players.n))

    return in_order(work, blocks, threads)


def sums_of(P: FloatArray, player: Int32Array, n_players: int) -> Sums:
    """a, b and c from the vectors of all units and the player of each, -1 for units that do not count."""
    if np.array_equal(player, np.arange(n_players)):
        return Sums(P, None, np.zeros(P.shape[:2]))
    a, b = np.zeros((2, len(P), n_players, P.shape[2]))
    c = np.zeros((len(P), n_players))
    for u, f in enumerate(player):
        if f >= 0:
            c[:, f] += (b[:, f] * P[:, u]).sum(axis=1)
            b[:, f] += a[:, f] * P[:, u]
            a[:, f] += P[:, u]
    several = len(np.unique(player[player >= 0])) < np.count_nonzero(player >= 0)
    return Sums(a, b if several else None, c)


def _first_sums(sums: Sums) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Sums of a, b, c and of the products of a over rows."""
    b = np.zeros(sums.a.shape[1:]) if sums.b is None else sums.b.sum(axis=0)
    return sums.a.sum(axis=0), b, sums.c.sum(axis=0), sums.a.transpose(2, 1, 0) @ sums.a.transpose(2, 0, 1)


def _second_sums(moments: TripleMoments, sums: Sums) -> tuple[FloatArray, FloatArray, float]:
    """Sums over rows of the triples of each player, of the shares, and of what triples add to the score."""
    own = (sums.a * sums.pairs).sum(axis=2) + sums.c
    if sums.b is not None:
        own += (sums.b * sums.others + sums.a * _without(sums.b)).sum(axis=2)
    return own.sum(axis=0), moments.shares(sums).sum(axis=0), float(sums.scores.sum())


def _without(values: FloatArray) -> FloatArray:
    """For each player the sum over the others; players are the last axis but one."""
    return np.asarray(values.sum(axis=-2, keepdims=True) - values)
