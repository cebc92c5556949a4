"""How much fields, and pairs and triples of fields, move the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from splinefm._arrays import FloatArray
from splinefm._wording import number
from splinefm.encode.tables.names import counted
from splinefm.inspect.background import MAX_ROWS, known_background
from splinefm.inspect.rows import EncodedRows, read_rows
from splinefm.inspect.shapley import PlayerEffects, Triple, player_effects, player_shares
from splinefm.inspect.terms import check_closed_form
from splinefm.train.fitted import Fitted

# Rows whose effects are in memory at a time.
EFFECT_ROWS = 4096
# Triples are measured among so many fields, those with the largest Shapley values: more would be hundreds of thousands.
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
    are those of columns.

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
    known = known_background(fitted, _own_background(rows) if background is None else background, threads)
    shapley = np.abs(player_shares(known, rows, threads)).mean(axis=0)
    n, names = known.players.n, known.players.names
    strongest = np.sort(np.argsort(-shapley, kind="stable")[:MAX_TRIPLE_FIELDS])
    spread = _Spread()
    for at in range(0, len(rows), EFFECT_ROWS):
        spread.add(player_effects(known, rows[at : at + EFFECT_ROWS], threads, strongest))
    pairs = np.zeros((n, n))
    pairs[np.triu_indices(n, 1)] = spread.of("pairs")
    triples = {(names[f], names[e], names[g]): float(spread.of((f, e, g))) for f, e, g in spread.triples}
    return Importance(names, shapley, spread.of("main"), pairs + pairs.T, triples)


def _own_background(rows: EncodedRows) -> EncodedRows:
    """The rows themselves, or of a model with crosses as many of them as a background has."""
    if not rows.positions or len(rows) <= MAX_ROWS:
        return rows
    return rows[np.linspace(0, len(rows) - 1, MAX_ROWS).astype(np.intp)]


class _Spread:
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

    def of(self, key: Any) -> Any:
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
