"""The terms of the score for every row, and the players that they are attributed to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm._arrays import Array, Float32Array, FloatArray, IndexArray, Int32Array
from splinefm._cached import cached_property
from splinefm._checks import check_one_score
from splinefm._core import ExplainTerms
from splinefm._memory import check_memory
from splinefm._parallel import count_threads, in_order
from splinefm.encode.schema import Schema
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.encode.tables.names import missing_column_message
from splinefm.model.family.contract import Params
from splinefm.train.fitted import Fitted

# Checks of the inputs of explanations: the model, the rows and the names of fields.

# Products of more units have no closed form here: their moments are as many as the units of a product.
MAX_ORDER = 3


def has_closed_form(fitted: Fitted) -> bool:
    """Whether the score is a sum of products of at most three units."""
    return fitted.model.order <= MAX_ORDER


def check_closed_form(fitted: Fitted, what: str) -> None:
    """Raise for what is not a model with one score, and for models with products of more than three units."""
    check_one_score(fitted)
    if not has_closed_form(fitted):
        raise ValueError(
            f"{what}: not available for {fitted.model}, whose score has products of more than {MAX_ORDER} fields; "
            "use partial_dependence or ice_curves, or a model of order 2 or 3"
        )


def field_index(names: tuple[str, ...], name: str) -> int:
    """The index of a field."""
    if name not in names:
        raise ValueError(missing_column_message(name, names, "field", "the model"))
    return names.index(name)


# Players, which a score is attributed to: the fields, or the columns of the table if the model has crosses.


@dataclass(frozen=True)
class Players:
    """The players of the game that Shapley values divide, and who takes part in which field.

    Without crosses every field is a player. With crosses every column is one: the fields that read the same column,
    such as the parts of a date, belong to one player.
    """

    names: tuple[str, ...]
    of_parts: tuple[tuple[int, ...], ...]  # for each field the player of every column that it reads

    @staticmethod
    def of(fitted: Fitted) -> Players:
        """The players of a model."""
        schema: Schema = fitted.encoder.schema
        if not schema.crosses:
            return Players(schema.names, tuple((f,) for f in range(len(schema.names))))
        return Players(schema.columns, schema.column_indices)

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.names)

    @cached_property
    def of_field(self) -> tuple[tuple[int, ...], ...]:
        """For each field its players, ascending."""
        return tuple(tuple(sorted(set(players))) for players in self.of_parts)

    @cached_property
    def shared(self) -> tuple[int, ...]:
        """Fields of several players."""
        return tuple(f for f, players in enumerate(self.of_field) if len(players) > 1)

    @cached_property
    def are_fields(self) -> bool:
        """Whether every field is a player."""
        return self.of_field == tuple((f,) for f in range(len(self.names)))

    def of_units(self, layout: SlotLayout) -> Int32Array:
        """The player of every unit; -1 for units of fields of several players."""
        alone = [players[0] if len(players) == 1 else -1 for players in self.of_field]
        return np.array(alone, np.int32)[layout.unit_field]


# Small games by enumeration: what a term of the score is worth to every subset of the few players that it has.
#
# A coalition of n players is a number from 0 to 2^n - 1 whose bit i says whether player i belongs to it.


@lru_cache
def shapley_matrix(n: int) -> FloatArray:
    """Shapley values from the worth of every coalition: shape (players, coalitions).

    Examples
    --------
    >>> shapley_matrix(2) @ [0.0, 1.0, 2.0, 5.0]
    array([2., 3.])
    """
    matrix = np.zeros((n, 1 << n))
    for player in range(n):
        for coalition in range(1 << n):
            if not coalition >> player & 1:
                weight = 1.0 / (n * math.comb(n - 1, coalition.bit_count()))
                matrix[player, coalition] -= weight
                matrix[player, coalition | 1 << player] += weight
    return matrix


@lru_cache
def effect_matrix(n: int) -> FloatArray:
    """Effects from the worth of every coalition: what each adds beyond the effects of its subsets.

    The worth of a coalition is the sum of the effects of all its subsets.

    Examples
    --------
    >>> effect_matrix(2) @ [1.0, 2.0, 3.0, 10.0]
    array([1., 1., 2., 6.])
    """
    matrix = np.ones((1, 1))
    for _ in range(n):
        matrix = np.block([[matrix, np.zeros_like(matrix)], [-matrix, matrix]])
    return matrix


@lru_cache
def join(*players: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[IndexArray, ...]]:
    """All players of several fields, and for every coalition of them the coalition of each field's players.

    Examples
    --------
    >>> together, (one, other) = join((0, 2), (2,))
    >>> together, one.tolist(), other.tolist()
    ((0, 2), [0, 1, 2, 3], [0, 0, 1, 1])
    """
    together = tuple(sorted({player for each in players for player in each}))
    coalitions = np.arange(1 << len(together))
    of_each = []
    for each in players:
        bits = [(coalitions >> together.index(player) & 1) << i for i, player in enumerate(each)]
        of_each.append(np.sum(bits, axis=0))
    return together, tuple(of_each)


def mixed_coalitions(n: int) -> Iterator[int]:
    """Coalitions of n players that are neither empty nor full."""
    return iter(range(1, (1 << n) - 1))


# The terms of the score for every row, computed by the compiled loops in parallel and without large copies.
#
# a_f is the linear part of field f and the products of its units with each other; z_f is its vector less its mean.

# Memory for the fields' vectors of a block of rows.
BLOCK_BYTES = 1 << 24
# Rows per call of the loops, a few tenths of a second: Python notices Ctrl-C between two calls.
CALL_ROWS = 1 << 16


def pair_part(fitted: Fitted) -> Fitted:
    """The model without products of more than two units: its pairs, on the first coordinates of its vectors."""
    model = fitted.model.pair_model
    if model == fitted.model:
        return fitted
    factors = np.ascontiguousarray(fitted.params["factors"][:, : model.width(len(fitted.encoder.fields))])
    return replace(fitted, model=model, params={**fitted.params, "factors": factors})


def size(fitted: Fitted) -> tuple[int, int]:
    """Fields, and the length of their vectors."""
    return len(fitted.encoder.layout.fields), fitted.params["factors"].shape[1]


def pair_slope(fitted: Fitted, Z: npt.NDArray[np.floating], f: int) -> FloatArray:
    """Σ_{e≠f} M_fe z_e: the derivative of the products by z_f, from vectors of shape (n, fields, width)."""
    return fitted.model.slope(Z, fitted.params, np.arange(Z.shape[1], dtype=np.int32), f)


def inner_parts(fitted: Fitted, slots: Slots, threads: int | None) -> FloatArray:
    """a_f of all rows, shape (n, fields)."""
    none = np.zeros(size(fitted))
    return _row_terms("inner", fitted, slots, none, none, np.zeros(len(none)), len(none), threads)


def field_terms(
    fitted: Fitted, slots: Slots, center: FloatArray, slope: FloatArray, offset: FloatArray, threads: int | None
) -> FloatArray:
    """a_f + z_f' h_f + ½ Σ_e z_f' M_fe z_e - offset_f of all rows, shape (n, fields)."""
    return _row_terms("terms", fitted, slots, center, slope, offset, len(center), threads)


def field_effects(
    fitted: Fitted, slots: Slots, center: FloatArray, slope: FloatArray, offset: FloatArray, threads: int | None
) -> FloatArray:
    """a_f + z_f' h_f - offset_f of all fields, then z_f' M_fe z_e of all pairs: shape (n, fields + pairs)."""
    n_effects = len(center) * (len(center) + 1) // 2
    return _row_terms("effects", fitted, slots, center, slope, offset, n_effects, threads)


def _row_terms(
    method: str,
    fitted: Fitted,
    slots: Slots,
    center: FloatArray,
    slope: FloatArray,
    offset: FloatArray,
    n_columns: int,
    threads: int | None,
) -> FloatArray:
    """What a method of the compiled loops finds for every row."""
    fill = getattr(_terms(fitted, slots.layout, center, slope, threads), method)
    out = np.empty((len(slots), n_columns))
    for rows in _blocks(len(slots), CALL_ROWS):
        fill(*_arrays(slots, rows), offset, out[rows])
    return out


def field_vectors(
    fitted: Fitted, slots: Slots, center: FloatArray, threads: int | None
) -> Iterator[tuple[slice, Float32Array]]:
    """The vectors of all fields less `center`, block by block: shape (rows, fields, width)."""
    terms = _terms(fitted, slots.layout, center, center, threads)
    for rows in _blocks(len(slots), max(1, BLOCK_BYTES // (8 * center.size))):
        Z = np.empty((rows.stop - rows.start, *center.shape), np.float32)
        terms.vectors(*_arrays(slots, rows), Z)
        yield rows, Z


class ProductVectors:
    """Gathers the coordinates of units that meet in products of three.

    Each is multiplied by its share of the weight of these products, so that they need no weight.
    """

    def __init__(self, fitted: Fitted, layout: SlotLayout) -> None:
        self._gather = UnitVectors(fitted.params, layout, fitted.model.product_columns)
        self._share = product_share(fitted)
        self.size = self._gather.size

    def __call__(self, slots: Slots) -> FloatArray:
        """The vectors, shape (n, units, coordinates)."""
        return self._share * self._gather(slots).astype(np.float64)


def product_share(fitted: Fitted) -> float:
    """What each of three vectors contributes to the weight of their product."""
    return float(np.cbrt(fitted.model.product_weight))


class UnitVectors:
    """Gathers the vectors of all units of encoded rows, or some coordinates of them."""

    def __init__(self, params: Params, layout: SlotLayout, coordinates: slice | None = None, threads: int = 1) -> None:
        factors = _plain(params["factors"][:, coordinates or slice(None)], np.float32)
        self.size = (layout.n_units, factors.shape[1])
        nothing = np.zeros(layout.n_units * factors.shape[1], np.float32)
        self._terms = ExplainTerms(
            model="fm",  # with a field for every unit, the vectors of fields are the vectors of units
            k=factors.shape[1],
            weight_ptr=layout.weight_ptr,
            window_unit=layout.window_unit,
            unit_field=np.arange(layout.n_units, dtype=np.int32),
            factors=factors,
            linear=_plain(params["linear"], np.float32),
            between=np.zeros(0, np.float32),
            center=nothing,
            slope=nothing,
            threads=threads,
        )

    def __call__(self, slots: Slots) -> Float32Array:
        """The vectors, shape (n, units, coordinates)."""
        P = np.empty((len(slots), *self.size), np.float32)
        self._terms.vectors(*_arrays(slots, slice(None)), P)
        return P


def _terms(
    fitted: Fitted, layout: SlotLayout, center: FloatArray, slope: FloatArray, threads: int | None
) -> ExplainTerms:
    """The compiled loops with their parameters; large arrays are not copied."""
    model, params, n_fields = fitted.model, fitted.params, size(fitted)[0]
    between: Array = np.zeros(0)
    kind = model.kind if model.pairwise else "fwfm"  # with one weight for all pairs: see `pair_model`
    if model.field_shapes(n_fields) or not model.pairwise:
        between = model.between_all(params, n_fields)
    if between.ndim == 3:  # weights by coordinate are matrices with them on the diagonal
        check_memory(8 * between.size * between.shape[2], f"explaining {model}", "use a model of fewer members")
        kind, between = "fmfm", between[..., None] * np.eye(between.shape[2], dtype=np.float32)
    return ExplainTerms(
        model=kind,
        k=model.part_size(n_fields),
        weight_ptr=layout.weight_ptr,
        window_unit=layout.window_unit,
        unit_field=layout.unit_field,
        factors=_plain(params["factors"], np.float32),
        linear=_plain(params["linear"], np.float32),
        between=_plain(between, np.float32).reshape(-1),
        center=_plain(center, np.float32).reshape(-1),
        slope=_plain(slope, np.float32).reshape(-1),
        threads=count_threads(threads),
    )


def _blocks(n: int, most: int) -> Iterator[slice]:
    return (slice(first, min(first + most, n)) for first in range(0, n, most))


def _arrays(slots: Slots, rows: slice) -> tuple[Int32Array, Float32Array]:
    """Slots of some rows as contiguous arrays."""
    return _plain(slots.start[rows], np.int32), _plain(slots.weight[rows], np.float32)


def _plain(values: Array, dtype: Any) -> Array:
    """The array as the loops need it; copied if its type, order or alignment differs."""
    return np.require(values, dtype, ["C", "A"])


# Products of three units, in NumPy: what they add to the score, to Shapley values and to effects.
#
# Coordinate by coordinate, a player f has a_f = Σ p_u, b_f = Σ_{u<v} p_u p_v and c_f = Σ_{u<v<w} p_u p_v p_w over its
# units, and all triples of units add
#
#     Σ_{f<g<h} a_f a_g a_h + Σ_{f≠g} b_f a_g + Σ_f c_f
#
# summed over the coordinates. b and c vanish where a player has one unit. A product of three players is worth
# a_f a_g a_h to all of them, a_f a_g E[a_h] to two, a_f E[a_g a_h] to one, and E[a_f a_g a_h] to none: Shapley values
# need the second moments of the background, and its third moments only as means of what its own rows get.

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
    """Statistics of a background: what the triples of a model need."""

    a: FloatArray  # (players, coordinates): E[a_f]
    b: FloatArray  # (players, coordinates): E[b_f]
    c: FloatArray  # (players,): E[c_f]
    own: FloatArray  # (players,): mean of all triples with f
    slope: FloatArray  # Σ_{g<h} E[a_g a_h] over the others + Σ_{g≠f} E[b_g]: the derivative of the mean score by a_f
    remainder: (
        FloatArray  # (players · coordinates, players): Σ_h E[a_f a_h], h other than f and g; rows of g, column of f
    )
    offset: FloatArray  # (players,): means of `shares` before they are subtracted
    base: float  # mean of what the triples add to the score

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
        all_pairs = 0.5 * (total**2 - np.einsum("fnt,fnt->nt", a, a))
        others = total - a
        values = others * rest
        values -= known
        values += a * mean  # Σ a_g E[a_h] over different g and h, both other than f
        values *= 0.5
        values += slope
        values *= a
        pairs = all_pairs - a * others
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
    """Call a function with the sums of rows, block by block; yield the rows and its results.

    Blocks do not depend on the number of threads.
    """
    layout = slots.layout
    vectors = ProductVectors(fitted, layout)
    of_units = players.of_units(layout)

    def work(rows: slice) -> tuple[slice, Any]:
        return rows, function(player_sums(vectors(slots[rows]), of_units, players.n))

    return in_order(work, _blocks(len(slots), max(1, BLOCK_SIZE // math.prod(vectors.size))), threads)


def player_sums(P: FloatArray, player: Int32Array, n_players: int) -> Sums:
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
