"""What a page needs to explain scores exactly: the statistics of a background, and importances measured here."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.fields.cross import Cross
from splinefm.explain.background import Background
from splinefm.explain.cubic import TripleMoments
from splinefm.explain.importance import Importance, importance
from splinefm.explain.inputs import has_closed_form
from splinefm.explain.rows import read_rows
from splinefm.explore.payload.buffers import Buffers
from splinefm.learn.fitted import Fitted

BACKGROUND_ROWS = 100
"""Rows that a model with crosses is compared with: a page takes time for each of them."""
IMPORTANCE_ROWS = 2000
_MOST_EFFECTS = 1 << 25  # of rows and pairs of fields that are in memory
_MOST_MOMENTS = 1 << 22  # second moments that products of three need
_MOST_PAIRS = 1000  # that are told
_CROSSED_ROWS = {2: 200, 3: 50}  # by order: those of crosses take time for each row of the background


def describe_explanations(fitted: Fitted, rows: pa.Table, buffers: Buffers, threads: int | None) -> dict[str, Any]:
    """The background of Shapley values, for every score of a row, and importances.

    A model without crosses is compared with all rows, by their means. One with crosses is compared with some rows
    themselves, whose numbers are in `background`.
    """
    if not has_closed_form(fitted):
        return {"reason": f"{fitted.model} has products of more than three fields, which have no exact Shapley values"}
    n_fields, product = len(fitted.encoder.fields), fitted.model.product_columns
    if n_fields**2 * (product.stop - product.start) > _MOST_MOMENTS:
        return {"reason": f"{n_fields:,} fields have more products of three than a page takes; use sf.shapley_values"}
    crossed = any(isinstance(item, Cross) for item in fitted.encoder.fields)
    numbers = _spaced(len(rows), BACKGROUND_ROWS if crossed else len(rows))
    scores = _each_score(fitted)
    given = read_rows(scores[0], rows, threads)  # encoded once for all scores
    compared, measured = given[numbers], given[_spaced(len(rows), _n_measured(fitted, crossed))]
    outputs = []
    for c, one in enumerate(scores):
        known = Background.of(one, compared, rows=len(compared), threads=threads)
        found = importance(one, measured, known, threads=threads)
        outputs.append(_output(known, buffers, f"explain {c}") | {"importance": _importance(one, found)})
    players = known.players
    return {
        "reason": None,
        "players": list(players.names),
        "of_parts": [list(parts) for parts in players.of_parts],
        "background": buffers.add("explain: background", numbers, np.int32) if crossed else None,
        "n_background": len(compared),
        "outputs": outputs,
    }


def _each_score(fitted: Fitted) -> list[Fitted]:
    """A model of one score for each score of a row."""
    if fitted.n_outputs == 1:
        return [fitted]
    return [fitted.for_class(label) for label in fitted.classes or ()]


def _n_measured(fitted: Fitted, crossed: bool) -> int:
    """Rows that importances are measured on: fewer for many classes, and for many pairs of fields."""
    most = max(50, (_CROSSED_ROWS[fitted.model.order] if crossed else IMPORTANCE_ROWS) // fitted.n_outputs)
    return max(10, min(most, _MOST_EFFECTS // len(fitted.encoder.fields) ** 2))


def _spaced(n: int, most: int) -> npt.NDArray[np.intp]:
    return np.linspace(0, n - 1, min(n, most)).astype(np.intp)


def _output(known: Background, buffers: Buffers, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"base": known.base}
    for part in ("center", "slope", "terms"):
        found[part] = buffers.add(f"{name}: {part}", getattr(known, part), np.float64)
    triples: TripleMoments | None = known.triples
    found["triples"] = triples and {
        part: buffers.add(f"{name}: triples: {part}", getattr(triples, part), np.float64)
        for part in ("a", "b", "slope", "remainder", "offset")
    }
    return found


def _importance(fitted: Fitted, found: Importance) -> dict[str, Any]:
    """Fields (or columns, if there are crosses), pairs, triples, and the columns of each cross together."""
    names = found.fields
    crosses = []
    for item in fitted.encoder.fields:
        if isinstance(item, Cross):
            columns = sorted(set(item.columns), key=names.index)
            value: float | None = None
            if len(columns) == 2:
                value = float(found.pairs[names.index(columns[0]), names.index(columns[1])])
            elif len(columns) == 3:
                value = found.triples.get((columns[0], columns[1], columns[2]))
            crosses.append({"name": item.name, "columns": columns, "value": value})
    return {
        "fields": [
            {"name": name, "shapley": float(shapley), "main": float(main)}
            for name, shapley, main in zip(names, found.shapley, found.main, strict=True)
        ],
        "pairs": [{"names": [one, other], "value": value} for one, other, value in found.ranked_pairs()[:_MOST_PAIRS]],
        "triples": [{"names": list(three), "value": value} for *three, value in found.ranked_triples()[:100]],
        "crosses": sorted(crosses, key=lambda cross: -(cross["value"] or 0.0)),
    }
