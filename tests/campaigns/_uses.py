"""Small models of every kind, and what users do with one: score, explain, view, rank, export, save, update."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np

import splinefm as sf
from c_library import LIBRARY, CScorer
from splinefm.inspect.curves import Curve
from support import cross_schema, cross_table, mixed_schema, mixed_table, random_classes, random_fitted

Rng = np.random.Generator
_LARGE = 1e6
ROWS = 12


def same_bits(first: Any, second: Any) -> bool:
    """Whether numbers are equal, NaN included."""
    return bool(np.array_equal(np.asarray(first, np.float64), np.asarray(second, np.float64), equal_nan=True))


def require(condition: bool, message: str) -> None:
    """Raise a finding unless the condition holds."""
    if not condition:
        raise AssertionError(message)


def rows_of(table: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def a_table(fitted: sf.Fitted) -> dict[str, list[Any]]:
    """Return rows for a model of `models`, or of one that was crafted from it."""
    crossed = "hour" in fitted.encoder.schema.columns
    return cross_table(ROWS, 5, strange=True) if crossed else mixed_table(ROWS, 5)


def models() -> list[sf.Fitted]:
    """Return small models of different kinds."""
    mixed, rows = mixed_schema(), mixed_table(60)
    crossed = cross_schema("category × number", "number × number", "hashed")
    return [
        random_fitted(sf.FM(k=4), mixed, rows),
        random_fitted(sf.FwFM(k=3, third=2), mixed, rows, loss="squared"),
        random_fitted(sf.FmFM(k=3), mixed, rows, loss="poisson"),
        random_fitted(sf.FFM(k=2), mixed, rows, loss="huber"),
        random_classes(sf.FwFM(k=2), mixed, rows),
        random_fitted(sf.HigherOrderFM(k=2, order=3), mixed, rows),
        random_fitted(sf.FwFM(k=4), crossed, cross_table(80), scale=0.3),
    ]


def use_model(fitted: sf.Fitted, rng: Rng, folder: Path) -> None:
    """Score as a table and row by row, and one thing more."""
    table = a_table(fitted)
    scores = fitted.scores(table, watch=False, threads=1)
    require(same_bits(fitted.scorer().many(rows_of(table)), scores), "the scorer has other scores than the table")
    fitted.predict(table, watch=False, threads=1)
    repr(fitted)
    actions = (_again, _explained, _viewed, _ranked, _exported, _graph, _binned, _learned)
    actions[rng.integers(len(actions))](fitted, table, scores, folder)


def _again(fitted: sf.Fitted, table: Any, scores: Any, folder: Path) -> None:
    fitted.save(folder / "again.sfm")
    require(same_bits(sf.load(folder / "again.sfm").scores(table, watch=False, threads=1), scores), "saved as another")


def _explained(fitted: sf.Fitted, table: Any, scores: Any, folder: Path) -> None:
    found = sf.shapley_values(fitted, table, background=table, threads=1)
    # Where parameters are as large as 1e30, as hostile ones are, most digits of a sum are lost.
    moderate = all(np.abs(values).max(initial=0.0) < _LARGE for values in fitted.params.values())
    if moderate and np.isfinite(scores).all() and np.isfinite(found.values).all():
        size = 1.0 + np.abs(found.values).sum(axis=1) + abs(found.base)
        require(bool((np.abs(found.scores - scores) < 1e-3 * size).all()), "Shapley values do not add up to the scores")


def _viewed(fitted: sf.Fitted, table: Any, scores: Any, folder: Path) -> None:
    row = rows_of(table)[0]
    along = fitted.encoder.schema.names[0]
    view = fitted.segment({name: value for name, value in row.items() if name != along}, along=along, watch=False)
    if isinstance(view, Curve):
        view([0.0, 0.5, 1.0])


def context_of(index: sf.ItemIndex, row: dict[str, Any]) -> dict[str, Any]:
    """What an index takes of a row."""
    return {name: row[name] for name in index.context_columns}


def _ranked(fitted: sf.Fitted, table: Any, scores: Any, folder: Path) -> None:
    names = ("user", "words") if "words" in table else ("user",)
    index = sf.ItemIndex(fitted, {name: table[name] for name in names}, ids=np.arange(ROWS), threads=1)
    ids, _ = index.top_k(context_of(index, rows_of(table)[0]), k=3)
    require(len(ids) == 3, "there are too few items")


def _exported(fitted: sf.Fitted, table: Any, scores: Any, folder: Path) -> None:
    fitted.export_scorer(folder / "exported.sfs")
    if not LIBRARY.exists():
        return
    with CScorer(folder / "exported.sfs") as scorer:
        require(same_bits(scorer.score(rows_of(table)), scores), "the C library has other scores")


def _graph(fitted: sf.Fitted, table: Any, scores: Any, folder: Path) -> None:
    if importlib.util.find_spec("onnx"):
        fitted.export_onnx(folder / "graph.onnx")


def _binned(fitted: sf.Fitted, table: Any, scores: Any, folder: Path) -> None:
    sf.discretize(fitted, 7).scores(table, watch=False, threads=1)


def _learned(fitted: sf.Fitted, table: Any, scores: Any, folder: Path) -> None:
    learner = sf.Learner(fitted, sf.Training(threads=1, batch_size=8))
    labels = fitted.classes or (0, 1)
    learner.update({**table, "target": [labels[i % len(labels)] for i in range(ROWS)]}, "target")
