"""How much fields and pairs of fields move the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from splinefm.explain.background import known_background
from splinefm.explain.inputs import check_quadratic, encode_rows
from splinefm.explain.terms import field_effects, field_terms
from splinefm.learn.fitted import Fitted

FloatArray = npt.NDArray[np.float64]
# Rows whose effects are in memory at a time.
EFFECT_ROWS = 4096


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
    """

    fields: tuple[str, ...]
    shapley: FloatArray
    main: FloatArray
    pairs: FloatArray

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

    def __str__(self) -> str:
        main = dict(zip(self.fields, self.main, strict=True))
        singles = [(name, f"{value:.4g}", f"{main[name]:.4g}") for name, value in self.ranked_fields()]
        pairs = [(f"{one} × {other}", f"{value:.4g}") for one, other, value in self.ranked_pairs()[:10]]
        parts = [_columns(("field", "mean |Shapley|", "main effect"), singles)]
        if pairs:
            parts.append(_columns(("pair of fields", "pair effect"), pairs))
        return "\n\n".join(parts)


def importance(
    fitted: Fitted, table: object, background: object | None = None, *, threads: int | None = None
) -> Importance:
    """How much fields and pairs of fields matter for the scores of a table.

    Of a field: the mean absolute Shapley value, and the standard deviation of its main effect (see `decompose`). Of a
    pair: the standard deviation of the pair effect. All are in units of the score.

    Parameters
    ----------
    fitted : Fitted
        A model; not a HigherOrderFM.
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
    check_quadratic(fitted, "importance")
    slots = encode_rows(fitted, table, threads)
    if not len(slots):
        raise ValueError("the table has no rows; importance is measured on at least one")
    known = known_background(fitted, slots if background is None else background, threads)
    values = field_terms(fitted, slots, known.center, known.slope, known.terms, threads)
    n_fields = len(slots.layout.fields)
    sums = np.zeros((2, n_fields * (n_fields + 1) // 2))
    for at in range(0, len(slots), EFFECT_ROWS):
        rows = slots[at : at + EFFECT_ROWS]
        effects = field_effects(fitted, rows, known.center, known.slope, known.inner, threads)
        sums += effects.sum(axis=0), (effects**2).sum(axis=0)
    mean, square = sums / len(slots)
    spread = np.sqrt(np.maximum(square - mean**2, 0.0))
    pairs = np.zeros((n_fields, n_fields))
    pairs[np.triu_indices(n_fields, 1)] = spread[n_fields:]
    return Importance(slots.layout.names, np.abs(values).mean(axis=0), spread[:n_fields], pairs + pairs.T)


def _columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of text, with the first column left-aligned."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = []
    for first, *others in (header, *rows):
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(lines)
