"""The vectors of a cross with some of its columns from an explained row and the others from a row of the background.

For a coalition A of the columns of a cross, its *state* is S^A(row, b): its vector with these columns taken from the
explained row and the others from row b of the background. The states of everyone and of no one are the vectors of the
row and of the background. Those between them depend on both the row and b. They are linear in the functions of the
row's numbers, S^A(row, b) = Σ_a weight_a(row) U_a(b), so that it takes as many encodings of the background as there are
*atoms* a: combinations of categories that rows have with all basis functions of the cross, or the rows themselves if
they are fewer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.products import (
    PartGroup,
    join_groups,
    position_group,
    product,
    unit_groups,
    unit_weights,
)
from splinefm.encode.slots import FieldLayout, SlotLayout, Slots
from splinefm.explain.coalitions import mixed
from splinefm.explain.players import Players
from splinefm.explain.rows import Positions
from splinefm.explain.terms import UnitVectors, product_share
from splinefm.learn.fitted import Fitted
from splinefm.model.family import Params

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]
PAIR, LINEAR, TRIPLE = range(3)
"""What a cross adds to the score with: its vector for pairs, its linear weight, its vector for triples."""


@dataclass(frozen=True, eq=False)
class CrossVectors:
    """A cross of a fitted model, whose vectors can be gathered for any positions in its parts.

    Parameters
    ----------
    number : int
        Its number among the fields.
    item : Cross
        The field.
    players : tuple of int
        Its players, ascending.
    parts : tuple of int
        For each part the position of its player in `players`.
    tables : tuple of dicts of arrays
        Parameters of the features of the cross whose "factors" are what `PAIR`, `LINEAR` and `TRIPLE` stand for;
        without the last if the model has no triples.
    shares : tuple of float
        What the vectors of each table are multiplied by.
    """

    number: int
    item: Cross
    players: tuple[int, ...]
    parts: tuple[int, ...]
    tables: tuple[Params, ...]
    shares: tuple[float, ...]

    @staticmethod
    def of(fitted: Fitted, pairs: Fitted, players: Players, f: int) -> CrossVectors:
        """Field f of a model, given the model's pairs alone."""
        item = fitted.encoder.fields[f]
        assert isinstance(item, Cross)  # only crosses have several players
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
        between = {one: self._between(rows, background, one) for one in mixed(len(self.players))}
        return States(self, self.gather(rows), theirs, between)

    def _between(self, rows: Positions, background: Positions, coalition: int) -> Between:
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
        return Between(index, weight, vectors)

    def _atoms(self, rows: Positions, parts: list[int]) -> tuple[list[PartGroup], IndexArray, FloatArray]:
        """Atoms, one per row of groups, and those of each row with their weights.

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


def _distinct(rows: Positions, parts: list[int]) -> tuple[list[npt.NDArray[Any]], IndexArray]:
    """Distinct positions of some parts, and the number of those of each row."""
    if not parts:
        return [], np.zeros(len(rows[0]), np.intp)
    given = np.stack([rows[i].astype(np.float64) for i in parts], axis=1)
    distinct, index = np.unique(given, axis=0, return_inverse=True)
    return [distinct[:, j].astype(rows[i].dtype) for j, i in enumerate(parts)], np.asarray(index).ravel()


@dataclass(frozen=True, eq=False)
class Between:
    """A state that is neither that of everyone nor that of no one.

    Parameters
    ----------
    index, weight : arrays, shape (n, atoms of a row)
        The atoms of each row, and their weights.
    vectors : list of arrays, shape (atoms, rows of the background, coordinates)
        U, for each of the tables of `CrossVectors`.
    """

    index: IndexArray
    weight: FloatArray
    vectors: list[FloatArray]

    def product(self, others: FloatArray, other: Between, columns: slice) -> FloatArray:
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
        """What rows have of something that is linear in the vectors, given for each atom."""
        if self.index.shape[1] == 1 and (self.weight == 1.0).all():
            return np.asarray(values[self.index[:, 0]])
        shape = (-1, *[1] * (values.ndim - 1))
        result = np.zeros((len(self.index), *values.shape[1:]))
        for index, weight in zip(self.index.T, self.weight.T, strict=True):
            result += weight.reshape(shape) * values[index]
        return result


@dataclass(frozen=True, eq=False)
class States:
    """The states of a cross for a block of rows; `kind` is one of `PAIR`, `LINEAR` and `TRIPLE`.

    Parameters
    ----------
    cross : CrossVectors
        The cross.
    mine, theirs : lists of arrays
        The vectors of the rows and of the background.
    between : dict of int to Between
        The other coalitions.
    """

    cross: CrossVectors
    mine: list[FloatArray]
    theirs: list[FloatArray]
    between: dict[int, Between]
    _known: dict[tuple[int, int], FloatArray] = field(default_factory=dict, repr=False)

    @property
    def coalitions(self) -> range:
        """All coalitions of the columns of the cross."""
        return range(1 << len(self.cross.players))

    def vectors(self, coalition: int, kind: int) -> FloatArray:
        """The state, shape (n, background, coordinates); 1 instead of a length on which it does not depend."""
        if coalition in self.between:
            if (coalition, kind) not in self._known:  # products with all states of other crosses ask for it
                state = self.between[coalition]
                self._known[coalition, kind] = state.rows(state.vectors[kind])
            return self._known[coalition, kind]
        return self.theirs[kind][None] if coalition == 0 else self.mine[kind][:, None]

    def mean(self, coalition: int, kind: int) -> FloatArray:
        """Mean over the background, shape (n or 1, coordinates)."""
        if coalition in self.between:
            return self.between[coalition].rows(self.between[coalition].vectors[kind].mean(axis=1))
        return self.theirs[kind].mean(axis=0)[None] if coalition == 0 else self.mine[kind]

    def product(self, coalition: int, kind: int, others: FloatArray, columns: slice = slice(None)) -> FloatArray:
        """Mean over the background of inner products of the state with other vectors of the background's rows.

        `others` has the shape (background, coordinates, vectors), the result (n or 1, vectors). The coordinates of the
        state are those in `columns`.
        """
        n_others = len(others)
        if coalition == 0:
            return np.tensordot(self.theirs[kind][:, columns], others, 2)[None] / n_others
        if coalition not in self.between:
            return np.asarray(self.mine[kind][:, columns] @ others.mean(axis=0))
        state = self.between[coalition]
        vectors = state.vectors[kind][:, :, columns]
        flat = vectors.reshape(len(vectors), -1) @ others.reshape(-1, others.shape[2])
        return state.rows(flat / n_others)

    def products(self, coalition: int, kind: int, others: FloatArray) -> FloatArray:
        """The same coordinate by coordinate; the result has the shape (n or 1, vectors, coordinates)."""
        n_others, others = len(others), others.transpose(1, 0, 2)  # (coordinates, background, vectors)
        if coalition not in self.between:
            if coalition:
                return np.asarray(self.mine[kind][:, None, :] * others.mean(axis=1).T)
            return np.asarray((self.theirs[kind].T[:, None, :] @ others).transpose(1, 2, 0) / n_others)
        state = self.between[coalition]
        found = state.vectors[kind].transpose(2, 0, 1) @ others
        return state.rows(found.transpose(1, 2, 0) / n_others)
