"""The score as intercept + effects of fields, pairs and triples: the functional ANOVA decomposition."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt

from splinefm._memory import check_memory
from splinefm.encode.slots import Slots
from splinefm.explain.background import Background, known_background
from splinefm.explain.cubic import Sums, map_blocks
from splinefm.explain.inputs import check_closed_form, encode_rows, field_number
from splinefm.explain.terms import field_effects
from splinefm.learn.fitted import Fitted

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Decomposition:
    """The score of each row as intercept + main effects + pair effects + triple effects.

    Parameters
    ----------
    intercept : float
        Mean score if the fields were independent, each distributed as in the background.
    main : array, shape (n, fields)
        Main effects.
    pairs : array, shape (n, fields (fields - 1) / 2)
        Pair effects, in the order of `pair_fields`.
    fields : tuple of str
        Names of the fields.
    triples : array, shape (n, triples)
        Effects of three fields, in the order of `triple_fields`.
    triple_fields : tuple of (str, str, str)
        The three fields of every column of `triples`: none for a model of order 2.
    """

    intercept: float
    main: FloatArray
    pairs: FloatArray
    fields: tuple[str, ...]
    triples: FloatArray
    triple_fields: tuple[tuple[str, str, str], ...]

    @property
    def pair_fields(self) -> tuple[tuple[str, str], ...]:
        """The two fields of every column of `pairs`."""
        return tuple(combinations(self.fields, 2))

    @property
    def scores(self) -> FloatArray:
        """The scores that were decomposed."""
        effects = (self.main, self.pairs, self.triples)
        return np.asarray(self.intercept + sum(part.sum(axis=1) for part in effects))

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
    slots = encode_rows(fitted, table, threads)
    names, n_fields = slots.layout.names, len(slots.layout.fields)
    triples = tuple(combinations(names, 3)) if known.triples is not None else ()
    check_memory(
        8 * len(slots) * len(triples),
        f"the effects of {len(triples):,} triples of fields on {len(slots):,} rows",
        "decompose fewer rows",
    )
    effects = pair_effects(known, slots, threads)
    return Decomposition(
        independent_mean(known),
        effects[:, :n_fields],
        effects[:, n_fields:],
        names,
        triple_effects(known, slots, np.arange(n_fields if triples else 0), threads),
        triples,
    )


def independent_mean(known: Background) -> float:
    """Mean score if the fields were independent."""
    pairs = 0.5 * float((known.center * known.slope).sum()) + float(known.inner.sum())
    triples = 0.0 if known.triples is None else known.triples.intercept
    return float(known.fitted.params["bias"][0]) + pairs + triples


def pair_effects(known: Background, slots: Slots, threads: int | None) -> FloatArray:
    """Main effects of all fields, then effects of all pairs: shape (n, fields + pairs)."""
    effects = field_effects(known.pairs, slots, known.center, known.slope, known.inner, threads)
    if known.triples is not None:
        n_fields = len(known.center)
        for rows, (main, pairs) in map_blocks(known.triples.effects, known.fitted, slots, threads):
            effects[rows, :n_fields] += main
            effects[rows, n_fields:] += pairs
    return effects


def triple_effects(known: Background, slots: Slots, fields: npt.NDArray[np.intp], threads: int | None) -> FloatArray:
    """Effects of all triples of some fields, shape (n, triples)."""
    n = len(fields)
    effects = np.zeros((len(slots), n * (n - 1) * (n - 2) // 6))
    moments = known.triples
    if moments is None or not effects.shape[1]:
        return effects

    def of_block(sums: Sums) -> FloatArray:
        return moments.triple_effects(sums, fields)

    for rows, part in map_blocks(of_block, known.fitted, slots, threads):
        effects[rows] = part
    return effects
