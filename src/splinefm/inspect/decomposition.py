"""The score as intercept + effects of fields, pairs and triples: the functional ANOVA decomposition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from splinefm._arrays import FloatArray
from splinefm._memory import check_memory
from splinefm.encode.tables.names import counted
from splinefm.inspect.background import Background, known_background
from splinefm.inspect.rows import read_rows
from splinefm.inspect.shapley import player_effects
from splinefm.inspect.terms import check_closed_form, field_number
from splinefm.train.fitted import Fitted


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The score of each row as intercept + main effects + pair effects + triple effects.

    Parameters
    ----------
    intercept : float
        Mean score if the fields were independent, each distributed as in the background; of terms with crosses, their
        mean over the rows of the background.
    main : array, shape (n, fields)
        Main effects.
    pairs : array, shape (n, fields (fields - 1) / 2)
        Pair effects, in the order of `pair_fields`.
    fields : tuple of str
        Names of the fields; of the columns if the model has crosses.
    triples : array, shape (n, triples)
        Effects of three fields, in the order of `triple_fields`.
    triple_fields : tuple of (str, str, str)
        The three fields of every column of `triples`: none for a model of order 2 without crosses.
    beyond : array, shape (n,)
        Effects of four or more fields, in sum: zero without crosses.
    """

    intercept: float
    main: FloatArray
    pairs: FloatArray
    fields: tuple[str, ...]
    triples: FloatArray
    triple_fields: tuple[tuple[str, str, str], ...]
    beyond: FloatArray

    def __repr__(self) -> str:
        names = counted("field", self.fields)
        return f"Decomposition({len(self.main):,} rows, intercept {self.intercept:.5g}, {names})"

    @property
    def pair_fields(self) -> tuple[tuple[str, str], ...]:
        """The two fields of every column of `pairs`."""
        return tuple(combinations(self.fields, 2))

    @property
    def scores(self) -> FloatArray:
        """The scores that were decomposed."""
        effects = (self.main, self.pairs, self.triples)
        return np.asarray(self.intercept + sum(part.sum(axis=1) for part in effects) + self.beyond)

    def pair(self, one: str, other: str) -> FloatArray:
        """The pair effects of two fields, in any order."""
        f, e = sorted(field_number(self.fields, name) for name in (one, other))
        if f == e:
            raise ValueError(f"a pair effect has two different fields, got {one!r} twice")
        return self.pairs[:, self.pair_fields.index((self.fields[f], self.fields[e]))]

    def triple(self, one: str, other: str, third: str) -> FloatArray:
        """The effects of three fields together, in any order; zeros where the model has no such effect."""
        f, e, g = sorted(field_number(self.fields, name) for name in (one, other, third))
        if f == e or e == g:
            raise ValueError(f"a triple effect has three different fields, got {one!r}, {other!r} and {third!r}")
        names = (self.fields[f], self.fields[e], self.fields[g])
        if names not in self.triple_fields:
            return np.zeros(len(self.main))
        return self.triples[:, self.triple_fields.index(names)]


def decompose(fitted: Fitted, table: object, background: object, *, threads: int | None = None) -> Decomposition:
    """The score as intercept + effects of fields, pairs and triples: the functional ANOVA decomposition.

    With z_f = s_f - m_f, the vector of a field less its mean over the background, the pair effect is z_f' M_fe z_e and
    the main effect a_f + z_f' Σ_{e≠f} M_fe m_e, less its mean over the background. Products of three fields add a
    triple effect, Σ z_f z_e z_g over their coordinates, and to the effects of fewer fields what is left when one or
    two factors are replaced by means. The effects have mean zero, and are orthogonal to each other, if fields are drawn
    independently, each from its values in the background (the product of the marginal distributions). Over the rows of
    the background themselves the main effects have mean zero too; the others only where fields are uncorrelated.

    If the model has crosses, effects are those of columns. Terms with crosses are compared with the rows of the
    background as they are: the effect of some columns is the mean of the term with these columns set to the values of
    the row, less the effects of their subsets. Effects of four columns and more are in `beyond`.

    Parameters
    ----------
    fitted : Fitted
        A model of order 2 or 3.
    table : table, path, dataset or Slots
        The rows. The result has a number for every row and pair of fields, and for every triple if the model has
        products of three: choose a sample of a large table.
    background : table, path, dataset, Slots or Background
        The rows that say what is average.
    threads : int, optional
        All cores by default. The result does not depend on it.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> parts = sf.decompose(fitted, table, background=table)
    >>> parts.main.shape, parts.pair_fields
    ((200, 2), (('x', 'c'),))
    >>> bool(np.allclose(parts.scores, fitted.scores(table), atol=1e-5))
    True
    """
    check_closed_form(fitted, "decompose")
    known = known_background(fitted, background, threads)
    rows = read_rows(fitted, table, threads)
    names = known.players.names
    n_triples = math.comb(len(names), 3) if known.triples is not None else 0
    check_memory(
        8 * len(rows) * n_triples,
        f"the effects of {n_triples:,} triples of fields on {len(rows):,} rows",
        "decompose fewer rows",
    )
    effects = player_effects(known, rows, threads)
    triples = sorted(effects.triples)
    return Decomposition(
        _intercept(known),
        effects.main,
        effects.pairs,
        names,
        np.stack([effects.triples[triple] for triple in triples], axis=1) if triples else np.zeros((len(rows), 0)),
        tuple((names[f], names[e], names[g]) for f, e, g in triples),
        effects.beyond,
    )


def _intercept(known: Background) -> float:
    """Mean score: of independent fields, or where crosses take part of the rows of the background."""
    pairs = 0.5 * float((known.center * known.slope).sum()) + float(known.inner.sum())
    triples = 0.0 if known.triples is None else known.triples.intercept
    crosses = 0.0 if known.crosses is None else known.crosses.base()
    return float(known.fitted.params["bias"][0]) + pairs + triples + crosses
