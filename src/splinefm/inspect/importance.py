"""The score as effects of fields, pairs and triples, and how much each of them moves it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np

from splinefm._arrays import FloatArray
from splinefm._memory import check_memory
from splinefm._wording import number
from splinefm.encode.tables.names import counted
from splinefm.inspect.rows import EncodedRows, read_rows, spaced_rows
from splinefm.inspect.shapley import (
    MAX_ROWS,
    Background,
    PlayerEffects,
    Triple,
    as_background,
    player_effects,
    player_shares,
)
from splinefm.inspect.terms import check_closed_form, field_index
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
        f, e = sorted(field_index(self.fields, name) for name in (one, other))
        if f == e:
            raise ValueError(f"a pair effect has two different fields, got {one!r} twice")
        return self.pairs[:, self.pair_fields.index((self.fields[f], self.fields[e]))]

    def triple(self, one: str, other: str, third: str) -> FloatArray:
        """The effects of three fields together, in any order; zeros where the model has no such effect."""
        f, e, g = sorted(field_index(self.fields, name) for name in (one, other, third))
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

    If the model has crosses, effects belong to columns. Terms with crosses are compared with the rows of the
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
    known = as_background(fitted, background, threads)
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


# Rows whose effects are in memory at a time.
EFFECT_ROWS = 4096
# Triples are measured among the fields with the largest Shapley values: all would be hundreds of thousands.
MAX_TRIPLE_FIELDS = 24


@dataclass(frozen=True, eq=False)
class Importance:
    """How much fields and pairs of fields move the score on a table; printing it shows both, largest first.

    Parameters
    ----------
    fields : tuple of str
        Names of the fields; of the columns if the model has crosses.
    shapley : array, shape (fields,)
        Mean absolute Shapley value.
    main : array, shape (fields,)
        Standard deviation of the main effect.
    pairs : array, shape (fields, fields)
        Standard deviation of the pair effect; symmetric, with a zero diagonal.
    triples : dict of (str, str, str) to float
        Standard deviation of the effect of three fields together, for the triples of the 24 fields with the largest
        Shapley values; empty for a model of order 2 without crosses.
    """

    fields: tuple[str, ...]
    shapley: FloatArray
    main: FloatArray
    pairs: FloatArray
    triples: dict[tuple[str, str, str], float] = field(default_factory=dict)

    def ranked_fields(self) -> list[tuple[str, float]]:
        """Fields and their mean absolute Shapley values, largest first."""
        order = np.argsort(-self.shapley, kind="stable")
        return [(self.fields[f], float(self.shapley[f])) for f in order]

    def ranked_pairs(self) -> list[tuple[str, str, float]]:
        """Pairs of fields and the standard deviations of their effects, largest first."""
        one, other = np.triu_indices(len(self.fields), 1)
        order = np.argsort(-self.pairs[one, other], kind="stable")
        pairs = zip(one[order], other[order], strict=True)
        return [(self.fields[f], self.fields[e], float(self.pairs[f, e])) for f, e in pairs]

    def ranked_triples(self) -> list[tuple[str, str, str, float]]:
        """Triples of fields and the standard deviations of their effects, largest first."""
        ranked = sorted(self.triples.items(), key=lambda item: -item[1])
        return [(*names, value) for names, value in ranked]

    def __repr__(self) -> str:
        names = counted("field", [name for name, _ in self.ranked_fields()])
        return f"Importance({names}; print it for the numbers)"

    def __str__(self) -> str:
        main = dict(zip(self.fields, self.main, strict=True))
        singles = [(name, number(value, ".4g"), number(main[name], ".4g")) for name, value in self.ranked_fields()]
        pairs = [(f"{one} × {other}", number(value, ".4g")) for one, other, value in self.ranked_pairs()[:10]]
        parts = [_columns(("field", "mean |Shapley|", "main effect"), singles)]
        if pairs:
            parts.append(_columns(("pair of fields", "pair effect"), pairs))
        triples = [(" × ".join(names), number(value, ".4g")) for *names, value in self.ranked_triples()[:10]]
        if triples:
            parts.append(_columns(("three fields", "triple effect"), triples))
        return "\n\n".join(parts)


def importance(
    fitted: Fitted, table: object, background: object | None = None, *, threads: int | None = None
) -> Importance:
    """How much fields, and pairs and triples of fields, matter for the scores of a table.

    Of a field: the mean absolute Shapley value, and the standard deviation of its main effect (see `decompose`). Of a
    pair or triple: the standard deviation of its effect. All are in units of the score. If the model has crosses, they
    belong to columns.

    Parameters
    ----------
    fitted : Fitted
        A model of order 2 or 3.
    table : table, path, dataset or Slots
        The rows; some thousands are enough.
    background : table, path, dataset, Slots or Background, optional
        The rows to compare with; by default the table itself, or 500 of its rows if the model has crosses.
    threads : int, optional
        All cores by default. The result does not depend on it.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> found = sf.importance(fitted, table)
    >>> found.ranked_fields()[0][0], found.pairs.shape
    ('x', (2, 2))
    """
    check_closed_form(fitted, "importance")
    rows = read_rows(fitted, table, threads)
    if not len(rows):
        raise ValueError("the table has no rows; importance is measured on at least one")
    known = as_background(fitted, _own_background(rows) if background is None else background, threads)
    shapley = np.abs(player_shares(known, rows, threads)).mean(axis=0)
    n, names = known.players.n, known.players.names
    strongest = np.sort(np.argsort(-shapley, kind="stable")[:MAX_TRIPLE_FIELDS])
    deviations = _EffectDeviations()
    for at in range(0, len(rows), EFFECT_ROWS):
        deviations.add(player_effects(known, rows[at : at + EFFECT_ROWS], threads, strongest))
    pairs = np.zeros((n, n))
    pairs[np.triu_indices(n, 1)] = deviations.deviation("pairs")
    triples = {(names[f], names[e], names[g]): float(deviations.deviation((f, e, g))) for f, e, g in deviations.triples}
    return Importance(names, shapley, deviations.deviation("main"), pairs + pairs.T, triples)


def _own_background(rows: EncodedRows) -> EncodedRows:
    """The rows themselves; for a model with crosses, a sample of the size of a background."""
    if not rows.positions or len(rows) <= MAX_ROWS:
        return rows
    return rows[spaced_rows(len(rows), MAX_ROWS)]


class _EffectDeviations:
    """Standard deviations of effects, from sums over blocks of rows."""

    def __init__(self) -> None:
        self._n = 0
        self._sums: dict[Any, Any] = {}

    def add(self, effects: PlayerEffects) -> None:
        """Add the effects of some rows."""
        self._n += len(effects.main)
        every: dict[Any, FloatArray] = {"main": effects.main, "pairs": effects.pairs, **effects.triples}
        for key, values in every.items():
            total, squares = self._sums.get(key, (0.0, 0.0))
            self._sums[key] = total + values.sum(axis=0), squares + (values**2).sum(axis=0)

    @property
    def triples(self) -> list[Triple]:
        """The triples that were added."""
        return sorted(key for key in self._sums if not isinstance(key, str))

    def deviation(self, key: Any) -> Any:
        """The standard deviation of what has a key: "main", "pairs" or a triple."""
        mean, square = (np.asarray(sums) / self._n for sums in self._sums[key])
        return np.sqrt(np.maximum(square - mean**2, 0.0))


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text, with the first column left-aligned."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for first, *others in (header, *rows):
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(lines)
