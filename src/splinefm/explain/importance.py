"""How much fields, and pairs and triples of fields, move the score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import numpy.typing as npt

from splinefm.encode.slots import Slots
from splinefm.explain.background import Background, known_background
from splinefm.explain.decomposition import pair_effects, triple_effects
from splinefm.explain.inputs import check_closed_form, encode_rows
from splinefm.explain.shapley import field_shares
from splinefm.learn.fitted import Fitted

FloatArray = npt.NDArray[np.float64]
# Rows whose effects are in memory at a time.
EFFECT_ROWS = 4096
# Triples are measured among so many fields, those with the largest Shapley values: more would be hundreds of thousands.
MOST_TRIPLE_FIELDS = 24


@dataclass(frozen=True, eq=False)
class Importance:
    """How much fields and pairs of fields move the score on a table; printing it shows both, largest first.

    Parameters
    ----------
    fields : tuple of str
        Names of the fields.
    shapley : array, shape (fields,)
        Mean absolute Shapley value.
    main : array, shape (fields,)
        Standard deviation of the main effect.
    pairs : array, shape (fields, fields)
        Standard deviation of the pair effect; symmetric, with a zero diagonal.
    triples : dict of (str, str, str) to float
        Standard deviation of the effect of three fields together, for the triples of the 24 fields with the largest
        Shapley values; empty for a model of order 2.
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

    def __str__(self) -> str:
        main = dict(zip(self.fields, self.main, strict=True))
        singles = [(name, f"{value:.4g}", f"{main[name]:.4g}") for name, value in self.ranked_fields()]
        pairs = [(f"{one} × {other}", f"{value:.4g}") for one, other, value in self.ranked_pairs()[:10]]
        parts = [_columns(("field", "mean |Shapley|", "main effect"), singles)]
        if pairs:
            parts.append(_columns(("pair of fields", "pair effect"), pairs))
        triples = [(" × ".join(names), f"{value:.4g}") for *names, value in self.ranked_triples()[:10]]
        if triples:
            parts.append(_columns(("three fields", "triple effect"), triples))
        return "\n\n".join(parts)


def importance(
    fitted: Fitted, table: object, background: object | None = None, *, threads: int | None = None
) -> Importance:
    """How much fields, and pairs and triples of fields, matter for the scores of a table.

    Of a field: the mean absolute Shapley value, and the standard deviation of its main effect (see `decompose`). Of a
    pair or triple: the standard deviation of its effect. All are in units of the score.

    Parameters
    ----------
    fitted : Fitted
        A model of order 2 or 3.
    table : table, path, dataset or Slots
        The rows; some thousands are enough.
    background : table, path, dataset, Slots or Background, optional
        The rows to compare with; by default the table itself.
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
    slots = encode_rows(fitted, table, threads)
    if not len(slots):
        raise ValueError("the table has no rows; importance is measured on at least one")
    known = known_background(fitted, slots if background is None else background, threads)
    shapley = np.abs(field_shares(known, slots, threads)).mean(axis=0)
    n_fields, names = len(slots.layout.fields), slots.layout.names
    spread = _spread(slots, lambda rows: pair_effects(known, rows, threads))
    pairs = np.zeros((n_fields, n_fields))
    pairs[np.triu_indices(n_fields, 1)] = spread[n_fields:]
    return Importance(
        names, shapley, spread[:n_fields], pairs + pairs.T, _triples(known, slots, names, shapley, threads)
    )


def _triples(
    known: Background, slots: Slots, names: tuple[str, ...], shapley: FloatArray, threads: int | None
) -> dict[tuple[str, str, str], float]:
    """Standard deviations of the effects of triples of the strongest fields."""
    if known.triples is None:
        return {}
    strongest = np.sort(np.argsort(-shapley, kind="stable")[:MOST_TRIPLE_FIELDS])
    spread = _spread(slots, lambda rows: triple_effects(known, rows, strongest, threads))
    triples = combinations([names[f] for f in strongest], 3)
    return dict(zip(triples, spread.tolist(), strict=True))


def _spread(slots: Slots, effects_of: Callable[[Slots], FloatArray]) -> FloatArray:
    """Standard deviations of effects over all rows, with the effects of some rows in memory at a time."""
    total, squares = 0.0, 0.0
    for at in range(0, len(slots), EFFECT_ROWS):
        effects = effects_of(slots[at : at + EFFECT_ROWS])
        total, squares = total + effects.sum(axis=0), squares + (effects**2).sum(axis=0)
    mean, square = np.asarray(total) / len(slots), np.asarray(squares) / len(slots)
    return np.sqrt(np.maximum(square - mean**2, 0.0))


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text, with the first column left-aligned."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for first, *others in (header, *rows):
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(lines)
