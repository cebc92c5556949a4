"""Terms of the score in which crosses take part, as small games of the columns that they read.

A term is what one cross adds alone, or a product of a cross with one or two other fields. To a coalition of the columns
of its fields it is worth its mean over the rows of the background, with every field in the state that the coalition
gives it (see `splinefm.explain.states`); columns of one row of the background stay together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, product
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm._parallel import in_order
from splinefm.explain.coalitions import join
from splinefm.explain.cubic import Sums, sums_of
from splinefm.explain.players import Players
from splinefm.explain.rows import EncodedRows
from splinefm.explain.states import LINEAR, PAIR, TRIPLE, Between, CrossVectors, States
from splinefm.explain.terms import ProductVectors, field_vectors, pair_part, size
from splinefm.learn.fitted import Fitted

FloatArray = npt.NDArray[np.float64]
Term = tuple[tuple[int, ...], FloatArray]
"""Players, and the worth of each of their coalitions for every row: shape (coalitions, n)."""
# Numbers in the largest array of a block of rows.
BLOCK_SIZE = 1 << 24
MOST_BLOCK_ROWS = 256


@dataclass(frozen=True, eq=False)
class FieldGroup:
    """Fields that meet the same coordinates of a cross.

    Parameters
    ----------
    columns : slice
        The coordinates of the cross.
    fields : list of int
        The fields.
    vectors : array, shape (n, coordinates, fields)
        M_fe s_e: what the vector of the cross is multiplied with.
    """

    columns: slice
    fields: list[int]
    vectors: FloatArray


@dataclass(frozen=True, eq=False)
class RowBlock:
    """Some rows: vectors of their fields, and what their players have for triples.

    Parameters
    ----------
    vectors : array, shape (n, fields, width)
        Vectors for pairs.
    sums : Sums, optional
        For models with triples, those of the players without the crosses.
    """

    vectors: FloatArray
    sums: Sums | None


class CrossTerms:
    """The terms with crosses of a model, given a background.

    Parameters
    ----------
    fitted : Fitted
        A model of order 2 or 3 with crosses.
    players : Players
        Its players.
    background : EncodedRows
        The rows to compare with.
    """

    def __init__(self, fitted: Fitted, players: Players, background: EncodedRows) -> None:
        self._fitted, self._players, self.background = fitted, players, background
        self._pairs = pair_part(fitted)
        self._crosses = [CrossVectors.of(fitted, self._pairs, players, f) for f in players.shared]
        self._others = self._block_of(background)
        self._theirs = [cross.gather(background.positions[cross.number]) for cross in self._crosses]
        self._toward = [self._groups(self._others, cross.number) for cross in self._crosses]

    def map(
        self, function: Callable[[int, Iterator[Term]], Any], rows: EncodedRows, threads: int | None
    ) -> Iterator[tuple[slice, Any]]:
        """Rows, and the result of a function of their number and terms, block by block."""
        width = sum(self._fitted.params["factors"].shape[1:]) + 1
        states = 1 << max((len(cross.players) for cross in self._crosses), default=0)
        largest = max(len(self.background) * width, 4 * states * self._players.n**2 if self._others.sums else 1)
        most = max(1, min(MOST_BLOCK_ROWS, BLOCK_SIZE // largest))
        blocks = [slice(first, min(first + most, len(rows))) for first in range(0, len(rows), most)]

        def work(block: slice) -> tuple[slice, Any]:
            return block, function(block.stop - block.start, self._terms(rows[block]))

        return in_order(work, blocks, threads)

    def base(self) -> float:
        """Mean over the background of what all terms add to the score: their worth to no one."""
        return float(sum(worth[0, 0] for _, worth in self._terms(self.background[:1])))

    def _terms(self, rows: EncodedRows) -> Iterator[Term]:
        block = self._block_of(rows)
        states = [
            cross.states(rows.positions[cross.number], self.background.positions[cross.number], theirs)
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
                yield _of_three(three, len(rows))

    # Pairs

    def _pair_terms(self, block: RowBlock, states: list[States]) -> Iterator[Term]:
        """Products of two fields of which one is a cross, or both."""
        of_field = self._players.of_field
        tables = [self._meetings(block, state, i) for i, state in enumerate(states)]
        for state, table in zip(states, tables, strict=True):
            for e, players in enumerate(of_field):
                if len(players) == 1:
                    yield _term((state.cross.players, players), table[..., e])
        for i, j in combinations(range(len(states)), 2):
            one, other = states[i], states[j]
            worth = np.empty((len(one.coalitions), len(other.coalitions), len(block.vectors)))
            columns = self._pairs.model.columns(other.cross.number)
            for theirs in other.coalitions:
                mixed = other.between.get(theirs)
                toward = np.zeros(0) if mixed is None else self._atoms_toward(one, other, mixed)
                for mine in one.coalitions:
                    if mixed is None:
                        worth[mine, theirs] = tables[i][mine, min(theirs, 1), :, other.cross.number]
                    elif mine not in one.between:
                        worth[mine, theirs] = tables[j][theirs, min(mine, 1), :, one.cross.number]
                    else:
                        worth[mine, theirs] = one.between[mine].product(toward, mixed, columns)
            yield _term((one.cross.players, other.cross.players), worth)

    def _meetings(self, block: RowBlock, state: States, number: int) -> FloatArray:
        """Mean products of a cross with all fields: shape (coalitions, 2, n, fields).

        The second index says whether the other field is that of the row, instead of the background's.
        """
        n, n_fields, _ = block.vectors.shape
        worth = np.zeros((len(state.coalitions), 2, n, n_fields))
        mine = self._groups(block, state.cross.number)
        for group, others in zip(mine, self._toward[number], strict=True):
            for one in state.coalitions:
                worth[one, 0][:, group.fields] = state.product(one, PAIR, others.vectors, group.columns)
                mean = np.broadcast_to(state.mean(one, PAIR)[:, group.columns], group.vectors.shape[:2])
                worth[one, 1][:, group.fields] = np.einsum("nk,nke->ne", mean, group.vectors)
        return worth

    def _atoms_toward(self, one: States, other: States, state: Between) -> FloatArray:
        """M_fe s_e of the atoms of a state of another cross, in the coordinates of the first."""
        vectors = state.vectors[PAIR]
        found = self._slope(vectors.reshape(-1, vectors.shape[2]), one.cross.number, other.cross.number)
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

    def _block_of(self, rows: EncodedRows) -> RowBlock:
        nothing = np.zeros(size(self._pairs))
        parts = [Z.astype(np.float64) for _, Z in field_vectors(self._pairs, rows.slots, nothing, 1)]
        vectors = np.concatenate(parts) if parts else np.zeros((0, *nothing.shape))
        if self._fitted.model.order < 3:
            return RowBlock(vectors, None)
        layout = rows.slots.layout
        units = ProductVectors(self._fitted, layout)(rows.slots)
        return RowBlock(vectors, sums_of(units, self._players.of_units(layout), self._players.n))


# Triples: a is the sum of the unit vectors of a player, b that of the products of two of its units


def _with_two_fields(state: States, mine: Sums, theirs: Sums) -> Iterator[Term]:
    """Products of a cross with two units of other players, or of one."""
    n, n_players = mine.a.shape[:2]
    players, coalitions = state.cross.players, state.coalitions
    others = theirs.a.transpose(0, 2, 1)
    worth = np.empty((len(coalitions), 2, 2, n, n_players, n_players))
    for one in coalitions:
        mean = np.broadcast_to(state.mean(one, TRIPLE), (n, others.shape[1]))
        half = np.broadcast_to(state.products(one, TRIPLE, others), mine.a.shape)
        worth[one, 1, 1] = np.einsum("nt,njt,nlt->njl", mean, mine.a, mine.a, optimize=True)
        worth[one, 1, 0] = mine.a @ half.transpose(0, 2, 1)
        worth[one, 0, 1] = worth[one, 1, 0].transpose(0, 2, 1)
        for j in range(n_players):
            worth[one, 0, 0, :, j] = state.product(one, TRIPLE, others * others[:, :, j, None])
    for j, other in combinations(range(n_players), 2):
        yield _term((players, (j,), (other,)), worth[..., j, other])
    if mine.b is None or theirs.b is None:
        return
    twice = np.empty((len(coalitions), 2, n, n_players))
    for one in coalitions:
        twice[one, 0] = state.product(one, TRIPLE, theirs.b.transpose(0, 2, 1))
        mean = np.broadcast_to(state.mean(one, TRIPLE), (n, others.shape[1]))
        twice[one, 1] = np.einsum("nt,njt->nj", mean, mine.b)
    for j in range(n_players):
        yield _term((players, (j,)), twice[..., j])


def _with_one_field(one: States, other: States, mine: Sums, theirs: Sums) -> Iterator[Term]:
    """Products of two crosses and a unit of another player."""
    n, n_players, _ = mine.a.shape
    worth = np.empty((len(one.coalitions), len(other.coalitions), 2, n, n_players))
    for first, second in product(one.coalitions, other.coalitions):
        vectors = one.vectors(first, TRIPLE) * other.vectors(second, TRIPLE)
        if vectors.shape[1] == 1:
            worth[first, second, 0] = vectors[:, 0] @ theirs.a.mean(axis=0).T
        else:
            flat = vectors.reshape(len(vectors), -1) @ theirs.a.transpose(0, 2, 1).reshape(-1, n_players)
            worth[first, second, 0] = flat / len(theirs.a)
        mean = np.broadcast_to(vectors.mean(axis=1), (n, vectors.shape[2]))
        worth[first, second, 1] = np.einsum("nt,njt->nj", mean, mine.a)
    for j in range(n_players):
        yield _term((one.cross.players, other.cross.players, (j,)), worth[..., j])


def _of_three(states: tuple[States, ...], n: int) -> Term:
    """Products of three crosses."""
    worth = np.empty((*(len(state.coalitions) for state in states), n))
    for coalitions in product(*(state.coalitions for state in states)):
        first, second, third = (s.vectors(one, TRIPLE) for s, one in zip(states, coalitions, strict=True))
        worth[coalitions] = (first * second * third).sum(axis=2).mean(axis=1)
    return _term(tuple(state.cross.players for state in states), worth)


def _term(players: tuple[tuple[int, ...], ...], worth: FloatArray) -> Term:
    """A term from its worth by the coalition of each of its fields: shape (coalitions.., n)."""
    together, coalitions = join(*players)
    return together, worth[coalitions]
