"""The vectors of a cross with some of its columns from an explained row and the others from a row of the background.

For a coalition A of the columns of a cross, its *state* is S^A(row, b): its vector with these columns taken from the
explained row and the others from row b of the background. The states of everyone and of no one are the vectors of the
row and of the background. Those between them have to be encoded for every pair of a row and a row of the background,
except where rows share their values.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from splinefm.encode.fields.cross import Cross
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.explain.coalitions import mixed
from splinefm.explain.players import Players
from splinefm.explain.rows import Places
from splinefm.explain.terms import UnitVectors
from splinefm.learn.fitted import Fitted

FloatArray = npt.NDArray[np.float64]
PAIR, LINEAR, TRIPLE = range(3)
"""What a cross adds to the score with: its vector for pairs, its linear weight, its vector for triples."""


@dataclass(frozen=True, eq=False)
class Crossed:
    """A cross of a fitted model, whose vectors can be gathered at any places of its parts.

    Parameters
    ----------
    field : int
        Its number among the fields.
    item : Cross
        The field.
    players : tuple of int
        Its players, ascending.
    parts : tuple of int
        For each part the position of its player in `players`.
    tables : tuple of UnitVectors
        Gather what `PAIR`, `LINEAR` and `TRIPLE` stand for; without the last if the model has no triples.
    layout : SlotLayout
        The layout of the field alone.
    """

    field: int
    item: Cross
    players: tuple[int, ...]
    parts: tuple[int, ...]
    tables: tuple[UnitVectors, ...]
    layout: SlotLayout

    @staticmethod
    def of(fitted: Fitted, pairs: Fitted, players: Players, f: int) -> Crossed:
        """Field f of a model, given the model's pairs alone."""
        item = fitted.encoder.fields[f]
        assert isinstance(item, Cross)  # only crosses have several players
        layout = SlotLayout((item.layout,))
        rows = slice(*fitted.encoder.layout.feature_ptr[f : f + 2])
        linear = fitted.params["linear"][rows]
        factors = [pairs.params["factors"][rows], linear[:, None]]
        if fitted.model.order > 2:
            factors.append(fitted.params["factors"][rows, fitted.model.product_columns])
        tables = tuple(UnitVectors({"factors": values, "linear": linear}, layout) for values in factors)
        mine = players.of_field[f]
        parts = tuple(mine.index(player) for player in players.of_parts[f])
        return Crossed(f, item, mine, parts, tables, layout)

    def gather(self, places: Places) -> list[FloatArray]:
        """The vectors at the places of the parts, shape (n, coordinates) each."""
        start, weight = self.item.encode_places(places)
        slots = Slots(start, weight.astype(np.float32), self.layout)
        return [table(slots)[:, 0].astype(np.float64) for table in self.tables]

    def states(self, rows: Places, background: Places, theirs: list[FloatArray]) -> States:
        """All states of some rows; `theirs` are the vectors of the background."""
        between = {one: self._between(rows, background, one) for one in mixed(len(self.players))}
        return States(self, self.gather(rows), theirs, between)

    def _between(self, rows: Places, background: Places, coalition: int) -> Between:
        """Vectors with the columns of a coalition from rows, the others from the background."""
        from_row = [bool(coalition >> position & 1) for position in self.parts]
        given = np.stack([part.astype(np.float64) for part, own in zip(rows, from_row, strict=True) if own], axis=1)
        _, first, index = np.unique(given, axis=0, return_index=True, return_inverse=True)
        n, n_others = len(first), len(background[0])
        places = [
            np.repeat(mine[first], n_others) if own else np.tile(theirs, n)
            for mine, theirs, own in zip(rows, background, from_row, strict=True)
        ]
        vectors = [values.reshape(n, n_others, -1) for values in self.gather(places)]
        return Between(np.asarray(index).ravel(), vectors)


@dataclass(frozen=True, eq=False)
class Between:
    """A state that is neither that of everyone nor that of no one.

    Parameters
    ----------
    index : array of int, shape (n,)
        For each row the first index of the vectors: rows with equal values share them.
    vectors : list of arrays, shape (distinct rows, rows of the background, coordinates)
        As from `Crossed.gather`.
    """

    index: npt.NDArray[np.intp]
    vectors: list[FloatArray]


@dataclass(frozen=True, eq=False)
class States:
    """The states of a cross for a block of rows; `kind` is one of `PAIR`, `LINEAR` and `TRIPLE`.

    Parameters
    ----------
    cross : Crossed
        The cross.
    mine, theirs : lists of arrays
        The vectors of the rows and of the background.
    between : dict of int to Between
        The other coalitions.
    """

    cross: Crossed
    mine: list[FloatArray]
    theirs: list[FloatArray]
    between: dict[int, Between]

    @property
    def coalitions(self) -> range:
        """All coalitions of the columns of the cross."""
        return range(1 << len(self.cross.players))

    def vectors(self, coalition: int, kind: int) -> FloatArray:
        """The state, shape (n, background, coordinates); 1 instead of a length on which it does not depend."""
        if coalition in self.between:
            state = self.between[coalition]
            return state.vectors[kind][state.index]
        return self.theirs[kind][None] if coalition == 0 else self.mine[kind][:, None]

    def mean(self, coalition: int, kind: int) -> FloatArray:
        """Mean over the background, shape (n or 1, coordinates)."""
        if coalition in self.between:
            state = self.between[coalition]
            return np.asarray(state.vectors[kind].mean(axis=1)[state.index])
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
        return np.asarray(flat[state.index] / n_others)

    def products(self, coalition: int, kind: int, others: FloatArray) -> FloatArray:
        """The same coordinate by coordinate; the result has the shape (n or 1, vectors, coordinates)."""
        n_others, others = len(others), others.transpose(1, 0, 2)  # (coordinates, background, vectors)
        if coalition not in self.between:
            if coalition:
                return np.asarray(self.mine[kind][:, None, :] * others.mean(axis=1).T)
            return np.asarray((self.theirs[kind].T[:, None, :] @ others).transpose(1, 2, 0) / n_others)
        state = self.between[coalition]
        found = state.vectors[kind].transpose(2, 0, 1) @ others
        return np.asarray(found.transpose(1, 2, 0)[state.index] / n_others)
