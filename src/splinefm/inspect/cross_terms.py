"""The vectors of a cross with some of its columns from an explained row and the others from a row of the background.

For a coalition A of the columns of a cross, its *state* is S^A(row, b): its vector with these columns taken from the
explained row and the others from row b of the background. The states of the full and of the empty coalition are the
vectors of the row and of the background. Mixed states depend on both, and are linear in the functions of the row's
numbers, S^A(row, b) = Σ_a weight_a(row) U_a(b), so that it takes as many encodings of the background as there are
*atoms* a: combinations of categories that rows have with all basis functions of the cross, or the rows themselves if
they are fewer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from splinefm._arrays import Array, FloatArray, IndexArray
from splinefm._parallel import in_order
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.cross_parts import (
    PartGroup,
    join_groups,
    position_group,
    product,
    unit_groups,
    unit_weights,
)
from splinefm.encode.slots import FieldLayout, SlotLayout, Slots
from splinefm.inspect.rows import EncodedRows, Positions
from splinefm.inspect.terms import (
    Players,
    ProductVectors,
    Sums,
    UnitVectors,
    field_vectors,
    join,
    mixed_coalitions,
    pair_part,
    player_sums,
    product_share,
    size,
)
from splinefm.model.family.contract import Params
from splinefm.train.fitted import Fitted

PAIR, LINEAR, TRIPLE = range(3)
"""How a cross enters the score: by its vector for pairs, its linear weight, its vector for triples."""


@dataclass(frozen=True, eq=False)
class CrossVectors:
    """A cross of a fitted model, whose vectors can be gathered for any positions in its parts."""

    f: int  # the index of the field
    item: Cross
    players: tuple[int, ...]  # ascending
    parts: tuple[int, ...]  # for each part the position of its player in `players`
    tables: tuple[Params, ...]  # parameters with the "factors" of PAIR, LINEAR and TRIPLE
    shares: tuple[float, ...]  # factors of the vectors of each table

    @staticmethod
    def of(fitted: Fitted, pairs: Fitted, players: Players, f: int) -> CrossVectors:
        """Field f of a model, given the model's pairs alone."""
        item = fitted.encoder.crosses[f]  # only they have several players
        rows = slice(*fitted.encoder.layout.feature_ptr[f : f + 2])
        linear = fitted.params["linear"][rows]
        factors = [pairs.params["factors"][rows], linear[:, None]]
        if fitted.model.order > 2:
            factors.append(fitted.params["factors"][rows, fitted.model.product_columns])
        tables = tuple({"factors": np.ascontiguousarray(values), "linear": linear} for values in factors)
        mine = players.of_field[f]
        parts = tuple(mine.index(player) for player in players.of_parts[f])
        return CrossVectors(f, item, mine, parts, tables, (1.0, 1.0, product_share(fitted))[: len(tables)])

    def gather(self, positions: Positions) -> list[FloatArray]:
        """The vectors at positions in the parts, shape (n, coordinates) each."""
        start, weight = self.item.encode_positions(positions)
        return self._gather(Slots(start, weight.astype(np.float32), SlotLayout((self.item.layout,))))

    def _gather(self, slots: Slots) -> list[FloatArray]:
        return [
            share * UnitVectors(table, slots.layout)(slots)[:, 0].astype(np.float64)
            for table, share in zip(self.tables, self.shares, strict=True)
        ]

    def states(self, rows: Positions, background: Positions, theirs: list[FloatArray]) -> States:
        """All states of some rows; `theirs` are the vectors of the background."""
        mixed_states = {one: self._mixed_state(rows, background, one) for one in mixed_coalitions(len(self.players))}
        return States(self, self.gather(rows), theirs, mixed_states)

    def _mixed_state(self, rows: Positions, background: Positions, coalition: int) -> MixedState:
        """Vectors with the columns of a coalition from rows, the others from the background."""
        inside = [i for i, position in enumerate(self.parts) if coalition >> position & 1]
        outside = [position_group(self.item, i, background[i]) for i in range(len(self.parts)) if i not in inside]
        atoms, index, weight = self._atoms(rows, inside)
        n, n_others = max(map(len, atoms)), len(background[0])
        one, other = np.repeat(np.arange(n), n_others), np.tile(np.arange(n_others), n)
        groups = [*(group.rows(one) for group in atoms), *(group.rows(other) for group in outside)]
        features, weights = product(self.item, groups)
        widths = (1,) * features.shape[1]
        layout = SlotLayout((FieldLayout(self.item.name, self.item.layout.n_features, widths, (0,) * len(widths)),))
        slots = Slots(features, weights.astype(np.float32), layout)
        vectors = [values.reshape(n, n_others, -1) for values in self._gather(slots)]
        return MixedState(index, weight, vectors)

    def _atoms(self, rows: Positions, parts: list[int]) -> tuple[list[PartGroup], IndexArray, FloatArray]:
        """Atoms, one per row of groups, and the atoms of each row with their weights.

        These are combinations of categories and functions, or the distinct rows themselves if they are fewer.
        """
        categories = [i for i in parts if i in self.item.categories]
        numbers = [i for i in parts if i in self.item.numbers]
        n_functions = sum(math.prod(sizes) for sizes in self._sizes(numbers))
        combinations, combination = _distinct(rows, categories)
        distinct, row = _distinct(rows, parts)
        if not numbers or len(distinct[0]) <= n_functions * max(1, len(combinations[0]) if categories else 1):
            atoms = [position_group(self.item, i, positions) for i, positions in zip(parts, distinct, strict=True)]
            return atoms, row[:, None], np.ones((len(row), 1))
        functions = join_groups(unit_groups(self.item, numbers))
        found, weight = unit_weights(self.item, [position_group(self.item, i, rows[i]) for i in numbers])
        index: IndexArray = found.astype(np.intp)
        if not categories:
            return [functions], index, weight
        n = len(combinations[0])
        of_atom = np.repeat(np.arange(n), n_functions)
        atoms = [position_group(self.item, i, p[of_atom]) for i, p in zip(categories, combinations, strict=True)]
        atoms.append(functions.rows(np.tile(np.arange(n_functions), n)))
        return atoms, index + n_functions * combination[:, None], weight

    def _sizes(self, numbers: list[int]) -> list[list[int]]:
        """For each resolution, the numbers of functions of some parts."""
        positions = [self.item.numbers.index(i) for i in numbers]
        return [[sizes[position] for position in positions] for sizes in self.item.level_sizes]


def _distinct(rows: Positions, parts: list[int]) -> tuple[list[Array], IndexArray]:
    """Distinct positions of some parts, and for each row the index of its positions among them."""
    if not parts:
        return [], np.zeros(len(rows[0]), np.intp)
    given = np.stack([rows[i].astype(np.float64) for i in parts], axis=1)
    distinct, index = np.unique(given, axis=0, return_inverse=True)
    return [distinct[:, j].astype(rows[i].dtype) for j, i in enumerate(parts)], np.asarray(index).ravel()


@dataclass(frozen=True, eq=False)
class MixedState:
    """The state of a coalition that is neither empty nor full."""

    index: IndexArray  # (n, atoms of a row)
    weight: FloatArray  # of these atoms
    vectors: list[FloatArray]  # U for each table: (atoms, rows of the background, coordinates)

    def product(self, others: FloatArray, other: MixedState, columns: slice) -> FloatArray:
        """Mean over the background of inner products with another state, for every row.

        `others` are vectors of the atoms of the other state in the coordinates of this one; those in `columns` count.
        """
        mine, theirs = self.vectors[PAIR][:, :, columns], others[:, :, columns]
        n, n_others = len(self.index), mine.shape[1]
        if len(mine) * len(theirs) <= 8 * n * (self.index.shape[1] + other.index.shape[1]):  # a fast matrix product
            products = self.rows(mine.reshape(len(mine), -1) @ theirs.reshape(len(theirs), -1).T)  # (n, other atoms)
            each = np.take_along_axis(products, other.index, axis=1) * other.weight
            return np.asarray(each.sum(axis=1) / n_others)
        return np.asarray(np.einsum("nbk,nbk->n", self.rows(mine), other.rows(theirs)) / n_others)

    def rows(self, values: FloatArray) -> FloatArray:
        """Values of rows from values of atoms, of any function that is linear in the vectors."""
        if self.index.shape[1] == 1 and (self.weight == 1.0).all():
            return np.asarray(values[self.index[:, 0]])
        shape = (-1, *[1] * (values.ndim - 1))
        result = np.zeros((len(self.index), *values.shape[1:]))
        for index, weight in zip(self.index.T, self.weight.T, strict=True):
            result += weight.reshape(shape) * values[index]
        return result


@dataclass(frozen=True, eq=False)
class States:
    """The states of a cross for a block of rows; `kind` is one of `PAIR`, `LINEAR` and `TRIPLE`."""

    cross: CrossVectors
    row_vectors: list[FloatArray]  # vectors of the rows
    background_vectors: list[FloatArray]  # vectors of the background
    mixed_states: dict[int, MixedState]  # the other coalitions
    _known: dict[tuple[int, int], FloatArray] = field(default_factory=dict, repr=False)

    @property
    def coalitions(self) -> range:
        """All coalitions of the columns of the cross."""
        return range(1 << len(self.cross.players))

    def vectors(self, coalition: int, kind: int) -> FloatArray:
        """The state, shape (n, background, coordinates); 1 instead of a length on which it does not depend."""
        if coalition in self.mixed_states:
            if (coalition, kind) not in self._known:  # products with all states of other crosses ask for it
                state = self.mixed_states[coalition]
                self._known[coalition, kind] = state.rows(state.vectors[kind])
            return self._known[coalition, kind]
        return self.background_vectors[kind][None] if coalition == 0 else self.row_vectors[kind][:, None]

    def mean(self, coalition: int, kind: int) -> FloatArray:
        """Mean over the background, shape (n or 1, coordinates)."""
        if coalition in self.mixed_states:
            return self.mixed_states[coalition].rows(self.mixed_states[coalition].vectors[kind].mean(axis=1))
        return self.background_vectors[kind].mean(axis=0)[None] if coalition == 0 else self.row_vectors[kind]

    def product(self, coalition: int, kind: int, others: FloatArray, columns: slice = slice(None)) -> FloatArray:
        """Mean over the background of inner products of the state with other vectors of the background's rows.

        `others` has the shape (background, coordinates, vectors), the result (n or 1, vectors). The coordinates of the
        state are those in `columns`.
        """
        n_others = len(others)
        if coalition == 0:
            return np.tensordot(self.background_vectors[kind][:, columns], others, 2)[None] / n_others
        if coalition not in self.mixed_states:
            return np.asarray(self.row_vectors[kind][:, columns] @ others.mean(axis=0))
        state = self.mixed_states[coalition]
        vectors = state.vectors[kind][:, :, columns]
        flat = vectors.reshape(len(vectors), -1) @ others.reshape(-1, others.shape[2])
        return state.rows(flat / n_others)

    def products(self, coalition: int, kind: int, others: FloatArray) -> FloatArray:
        """The same coordinate by coordinate; the result has the shape (n or 1, vectors, coordinates)."""
        n_others, others = len(others), others.transpose(1, 0, 2)  # (coordinates, background, vectors)
        if coalition not in self.mixed_states:
            if coalition:
                return np.asarray(self.row_vectors[kind][:, None, :] * others.mean(axis=1).T)
            return np.asarray((self.background_vectors[kind].T[:, None, :] @ others).transpose(1, 2, 0) / n_others)
        state = self.mixed_states[coalition]
        found = state.vectors[kind].transpose(2, 0, 1) @ others
        return state.rows(found.transpose(1, 2, 0) / n_others)


# Terms of the score in which crosses take part, as small games of the columns that they read.
#
# A term is what one cross adds alone, or a product of a cross with one or two other fields. To a coalition of the
# columns of its fields it is worth its mean over the rows of the background, with every field in the state that the
# coalition gives it (see the top of this module); columns of one row of the background stay together.

Term = tuple[tuple[int, ...], FloatArray]
"""Players, and the worth of each of their coalitions for every row: shape (coalitions, n)."""
# Numbers in the largest array of a block of rows.
BLOCK_SIZE = 1 << 24
MAX_BLOCK_ROWS = 256


@dataclass(frozen=True, eq=False)
class FieldGroup:
    """Fields that meet the same coordinates of a cross."""

    columns: slice  # the coordinates of the cross
    fields: list[int]
    vectors: FloatArray  # (n, coordinates, fields): M_fe s_e


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some rows: the vectors of their fields, and sums of their players for triples."""

    vectors: FloatArray  # (n, fields, width), for pairs
    sums: Sums | None  # for triples, without the crosses


class CrossTerms:
    """The terms with crosses of a model, given a background."""

    def __init__(self, fitted: Fitted, players: Players, background: EncodedRows) -> None:
        self._fitted, self._players, self.background = fitted, players, background
        self._pairs = pair_part(fitted)
        self._crosses = [CrossVectors.of(fitted, self._pairs, players, f) for f in players.shared]
        self._others = self._row_block(background)
        self._theirs = [cross.gather(background.positions[cross.f]) for cross in self._crosses]
        self._background_groups = [self._groups(self._others, cross.f) for cross in self._crosses]

    def map(
        self, function: Callable[[int, Iterator[Term]], Any], rows: EncodedRows, threads: int | None
    ) -> Iterator[tuple[slice, Any]]:
        """Call a function with the number of rows and their terms, block by block; yield the rows and its results."""
        width = sum(self._fitted.params["factors"].shape[1:]) + 1
        states = 1 << max((len(cross.players) for cross in self._crosses), default=0)
        largest = max(len(self.background) * width, 4 * states * self._players.n**2 if self._others.sums else 1)
        most = max(1, min(MAX_BLOCK_ROWS, BLOCK_SIZE // largest))
        blocks = [slice(first, min(first + most, len(rows))) for first in range(0, len(rows), most)]

        def work(block: slice) -> tuple[slice, Any]:
            return block, function(block.stop - block.start, self._terms(rows[block]))

        return in_order(work, blocks, threads)

    def base(self) -> float:
        """Mean over the background of what all terms add to the score: their worth to the empty coalition."""
        return float(sum(worth[0, 0] for _, worth in self._terms(self.background[:1])))

    def _terms(self, rows: EncodedRows) -> Iterator[Term]:
        block = self._row_block(rows)
        states = [
            cross.states(rows.positions[cross.f], self.background.positions[cross.f], theirs)
            for cross, theirs in zip(self._crosses, self._theirs, strict=True)
        ]
        for state in states:
            worth = [np.broadcast_to(state.mean(one, LINEAR)[:, 0], len(rows)) for one in state.coalitions]
            yield state.cross.players, np.stack(worth)
        yield from self._pair_terms(block, states)
        if block.sums is not None and self._others.sums is not None:
            for state in states:
                yield from _with_two_fields(state, block.sums, self._others.sums)
            for one, other in combinations(states, 2):
                yield from _with_one_field(one, other, block.sums, self._others.sums)
            for three in combinations(states, 3):
                yield _triple_term(three, len(rows))

    # Pairs

    def _pair_terms(self, block: RowBlock, states: list[States]) -> Iterator[Term]:
        """Products of two fields of which one is a cross, or both."""
        of_field = self._players.of_field
        tables = [self._mean_products(block, state, i) for i, state in enumerate(states)]
        for state, table in zip(states, tables, strict=True):
            for e, players in enumerate(of_field):
                if len(players) == 1:
                    yield _term((state.cross.players, players), table[..., e])
        for i, j in combinations(range(len(states)), 2):
            one, other = states[i], states[j]
            worth = np.empty((len(one.coalitions), len(other.coalitions), len(block.vectors)))
            columns = self._pairs.model.columns(other.cross.f)
            for theirs in other.coalitions:
                mixed = other.mixed_states.get(theirs)
                slopes = np.zeros(0) if mixed is None else self._atom_slopes(one, other, mixed)
                for mine in one.coalitions:
                    if mixed is None:
                        worth[mine, theirs] = tables[i][mine, min(theirs, 1), :, other.cross.f]
                    elif mine not in one.mixed_states:
                        worth[mine, theirs] = tables[j][theirs, min(mine, 1), :, one.cross.f]
                    else:
                        worth[mine, theirs] = one.mixed_states[mine].product(slopes, mixed, columns)
            yield _term((one.cross.players, other.cross.players), worth)

    def _mean_products(self, block: RowBlock, state: States, number: int) -> FloatArray:
        """Mean products of a cross with all fields: shape (coalitions, 2, n, fields).

        The second index says whether the other field comes from the row, instead of the background.
        """
        n, n_fields, _ = block.vectors.shape
        worth = np.zeros((len(state.coalitions), 2, n, n_fields))
        mine = self._groups(block, state.cross.f)
        for group, others in zip(mine, self._background_groups[number], strict=True):
            for one in state.coalitions:
                worth[one, 0][:, group.fields] = state.product(one, PAIR, others.vectors, group.columns)
                mean = np.broadcast_to(state.mean(one, PAIR)[:, group.columns], group.vectors.shape[:2])
                worth[one, 1][:, group.fields] = np.einsum("nk,nke->ne", mean, group.vectors)
        return worth

    def _atom_slopes(self, one: States, other: States, state: MixedState) -> FloatArray:
        """M_fe s_e of the atoms of a state of another cross, in the coordinates of the first."""
        vectors = state.vectors[PAIR]
        found = self._slope(vectors.reshape(-1, vectors.shape[2]), one.cross.f, other.cross.f)
        return found.reshape(*vectors.shape[:2], -1)

    def _groups(self, block: RowBlock, f: int) -> list[FieldGroup]:
        """M_fe s_e for all fields e but f, by the coordinates of f that they meet."""
        model, width = self._pairs.model, block.vectors.shape[2]
        found: dict[tuple[int, int, int], list[int]] = {}
        for e in range(block.vectors.shape[1]):
            if e != f:
                found.setdefault(model.columns(e).indices(width), []).append(e)
        return [
            FieldGroup(
                slice(*columns),
                fields,
                np.stack([self._slope(block.vectors[:, e], f, e)[:, slice(*columns)] for e in fields], axis=2),
            )
            for columns, fields in found.items()
        ]

    def _slope(self, vectors: FloatArray, f: int, e: int) -> FloatArray:
        """M_fe s_e in the coordinates of field f, for vectors of field e."""
        return self._pairs.model.slope(vectors[:, None], self._pairs.params, np.array([e], np.int32), f)

    def _row_block(self, rows: EncodedRows) -> RowBlock:
        nothing = np.zeros(size(self._pairs))
        parts = [Z.astype(np.float64) for _, Z in field_vectors(self._pairs, rows.slots, nothing, 1)]
        vectors = np.concatenate(parts) if parts else np.zeros((0, *nothing.shape))
        if self._fitted.model.order < 3:
            return RowBlock(vectors, None)
        layout = rows.slots.layout
        units = ProductVectors(self._fitted, layout)(rows.slots)
        return RowBlock(vectors, player_sums(units, self._players.of_units(layout), self._players.n))


# Triples: a is the sum of the unit vectors of a player, b the sum of the products of two of its units


def _with_two_fields(state: States, row_sums: Sums, background_sums: Sums) -> Iterator[Term]:
    """Products of a cross with two units of other players, or of one."""
    n, n_players = row_sums.a.shape[:2]
    players, coalitions = state.cross.players, state.coalitions
    others = background_sums.a.transpose(0, 2, 1)
    worth = np.empty((len(coalitions), 2, 2, n, n_players, n_players))
    for one in coalitions:
        mean = np.broadcast_to(state.mean(one, TRIPLE), (n, others.shape[1]))
        half = np.broadcast_to(state.products(one, TRIPLE, others), row_sums.a.shape)
        worth[one, 1, 1] = np.einsum("nt,njt,nlt->njl", mean, row_sums.a, row_sums.a, optimize=True)
        worth[one, 1, 0] = row_sums.a @ half.transpose(0, 2, 1)
        worth[one, 0, 1] = worth[one, 1, 0].transpose(0, 2, 1)
        for j in range(n_players):
            worth[one, 0, 0, :, j] = state.product(one, TRIPLE, others * others[:, :, j, None])
    for j, other in combinations(range(n_players), 2):
        yield _term((players, (j,), (other,)), worth[..., j, other])
    if row_sums.b is None or background_sums.b is None:
        return
    twice = np.empty((len(coalitions), 2, n, n_players))
    for one in coalitions:
        twice[one, 0] = state.product(one, TRIPLE, background_sums.b.transpose(0, 2, 1))
        mean = np.broadcast_to(state.mean(one, TRIPLE), (n, others.shape[1]))
        twice[one, 1] = np.einsum("nt,njt->nj", mean, row_sums.b)
    for j in range(n_players):
        yield _term((players, (j,)), twice[..., j])


def _with_one_field(one: States, other: States, row_sums: Sums, background_sums: Sums) -> Iterator[Term]:
    """Products of two crosses and a unit of another player."""
    n, n_players, _ = row_sums.a.shape
    worth = np.empty((len(one.coalitions), len(other.coalitions), 2, n, n_players))
    for first, second in itertools.product(one.coalitions, other.coalitions):
        vectors = one.vectors(first, TRIPLE) * other.vectors(second, TRIPLE)
        if vectors.shape[1] == 1:
            worth[first, second, 0] = vectors[:, 0] @ background_sums.a.mean(axis=0).T
        else:
            flat = vectors.reshape(len(vectors), -1) @ background_sums.a.transpose(0, 2, 1).reshape(-1, n_players)
            worth[first, second, 0] = flat / len(background_sums.a)
        mean = np.broadcast_to(vectors.mean(axis=1), (n, vectors.shape[2]))
        worth[first, second, 1] = np.einsum("nt,njt->nj", mean, row_sums.a)
    for j in range(n_players):
        yield _term((one.cross.players, other.cross.players, (j,)), worth[..., j])


def _triple_term(states: tuple[States, ...], n: int) -> Term:
    """Products of three crosses."""
    worth = np.empty((*(len(state.coalitions) for state in states), n))
    for coalitions in itertools.product(*(state.coalitions for state in states)):
        first, second, third = (s.vectors(one, TRIPLE) for s, one in zip(states, coalitions, strict=True))
        worth[coalitions] = (first * second * third).sum(axis=2).mean(axis=1)
    return _term(tuple(state.cross.players for state in states), worth)


def _term(players: tuple[tuple[int, ...], ...], worth: FloatArray) -> Term:
    """A term from its worth by the coalition of each of its fields: shape (coalitions.., n)."""
    together, coalitions = join(*players)
    return together, worth[coalitions]
