"""Metrics of a model on a table that is read in chunks, for `splinefm evaluate`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from splinefm import metrics
from splinefm._arrays import Float32Array, FloatArray
from splinefm.encode.drift import Watch
from splinefm.encode.fields.vocabulary import natural_ranks
from splinefm.encode.tables.arrow import from_strings
from splinefm.encode.tables.names import quoted
from splinefm.encode.tables.open import STANDARD, open_data, require_columns
from splinefm.encode.tables.table import Table
from splinefm.metrics import GroupCalibration
from splinefm.store.description import check_class_is_named, find_class
from splinefm.store.sharded_model import TableScorer, open_model
from splinefm.train.fitted import Fitted
from splinefm.train.losses import Loss
from splinefm.train.progress import Progress, make_progress
from splinefm.train.targets import as_targets, as_weights, check_total_weight, is_missing

ROWS = 65_536
"""Rows of the table that are in memory at the same time."""


class Measured(NamedTuple):
    """A metric; its value is NaN if these rows do not determine it."""

    name: str
    value: float
    meaning: str


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a model on a table; `groups` has the calibration by the values of the column `by`."""

    target: str
    n_rows: int
    metrics: list[Measured]
    by: str | None
    groups: list[GroupCalibration]

    def to_dict(self) -> dict[str, Any]:
        """Return lists, dicts, strings and numbers."""
        named = {metric.name.lower().replace(" ", "_"): metric.value for metric in self.metrics}
        groups = [{**asdict(group), "error": group.error} for group in self.groups]
        by = {} if self.by is None else {"by": self.by, "groups": groups}
        return {"target": self.target, "rows": self.n_rows, **named, **by}


class _Part(NamedTuple):
    score: Float32Array
    y: FloatArray
    weight: FloatArray


def evaluate_file(
    model: Path,
    data: str,
    target: str | None = None,
    by: str | None = None,
    weight: str | None = None,
    threads: int | None = None,
    verbose: bool = False,
    sep: str | None = None,
    class_name: str | None = None,
) -> Evaluation:
    """Evaluate a model file or a sharded model; only scores and targets stay in memory.

    With `class_name`, the probability of one of more than two classes is measured, against the rest.
    """
    fitted, table_scorer = open_model(model)
    table = open_data(data, column_types(fitted, target, weight), sep)
    target = target or find_target(data, table, fitted, {by, weight})
    require_columns(table, [name for name in (*fitted.columns, target, by, weight) if name is not None])
    output = None if class_name is None else (fitted.classes or ()).index(find_class(fitted, class_name))
    if by is not None and output is None:
        check_class_is_named(fitted, "--by")
    groups = _Groups(by) if by is not None else None
    with make_progress(verbose) as progress:
        watch = Watch(fitted.encoder)
        score = table_scorer(threads=threads, watch=watch)
        parts = list(_parts(fitted, score, table, target, weight, groups, progress, output))
        watch.warn()
    if not any(part.weight.any() for part in parts):
        raise ValueError(f"{data!r} has no rows to evaluate" + (f", or {weight!r} is always 0" if weight else ""))
    whole = _Part(*map(np.concatenate, zip(*parts, strict=True)))
    check_total_weight(float(whole.weight.sum()))
    measured = [
        *measure(fitted.loss if output is None else Loss(), whole.y, whole.score.astype(np.float64), whole.weight)
    ]
    return Evaluation(target, len(whole.y), measured, by, groups.calibration() if groups is not None else [])


def column_types(fitted: Fitted, target: str | None, weight: str | None) -> dict[str, pa.DataType]:
    """Return the types by which text files are read: of the fields, the target and the weights."""
    types = fitted.column_types()
    if weight is not None:
        types[weight] = pa.float64()
    first = (fitted.classes or (0.0,))[0]
    if target is not None and not isinstance(first, bool):
        types[target] = pa.large_string() if isinstance(first, str) else pa.float64()
    return types


def find_target(data: str, table: Table, fitted: Fitted, not_it: set[str | None]) -> str:
    """Return the only column that is not a field, as the target."""
    if data == STANDARD:
        raise ValueError("add --target NAME: which column of standard input is the target?")
    others = [name for name in table.names if name not in fitted.columns and name not in not_it]
    if len(others) == 1:
        return others[0]
    if not others:
        raise ValueError(f"the data have no target: all columns ({quoted(table.names)}) are fields of the model")
    raise ValueError(f"which column is the target? Add --target NAME with one of {quoted(others)}")


def _parts(
    fitted: Fitted,
    score: TableScorer,
    table: Table,
    target: str,
    weight: str | None,
    groups: _Groups | None,
    progress: Progress,
    output: int | None = None,
) -> Iterator[_Part]:
    loss = fitted.loss if output is None else Loss()
    others = (weight, None if groups is None else groups.name)
    names = list(dict.fromkeys([*fitted.columns, target, *(name for name in others if name is not None)]))
    progress.begin("evaluating", table.n_rows)
    n_rows = 0
    for batch in table.chunks(names, ROWS):
        y = as_targets(batch.column(target), target, fitted.classes)
        fitted.loss.check(y, target, n_rows)
        fitted.check_offset(batch, n_rows)
        n_rows += batch.num_rows
        w = np.ones(len(y)) if weight is None else as_weights(batch.column(weight), weight)
        scores = score(batch)
        if output is not None:
            y = (y == output).astype(np.float64)
            scores = one_against_rest(scores.astype(np.float64), output).astype(np.float32)
        part = _Part(scores, y, w)
        if groups is not None:
            expected, measured = loss.compared(y, loss.predict(part.score.astype(np.float64)))
            groups.add(batch.column(groups.name), expected, measured, w)
        progress.advance(batch.num_rows)
        yield part


def one_against_rest(score: FloatArray, output: int) -> FloatArray:
    """Return the log-odds of one class against all others, given the scores of all.

    Examples
    --------
    >>> one_against_rest(np.array([[0.0, 0.0, 0.0]]), 0).round(4)  # 1 to 2
    array([-0.6931])
    """
    others = np.delete(score, output, axis=1)
    largest = others.max(axis=1)
    return np.asarray(score[:, output] - largest - np.log(np.exp(others - largest[:, None]).sum(axis=1)))


class _Groups:
    """Sums by the values of a column."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sums: dict[object, FloatArray] = {}

    def add(self, column: pa.Array, p: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        """Add the weights, weighted predictions and weighted targets of rows to their groups."""
        if pa.types.is_nested(column.type):
            raise ValueError(f"--by {self.name}: the column holds lists; choose a column with one value per row")
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode(null_encoding="encode")
        codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        values = [None if is_missing(value) else value for value in (*encoded.dictionary.to_pylist(), None)]
        sums = np.stack([np.bincount(codes, part, len(values)) for part in (weight, weight * p, weight * y)], 1)
        for code in np.unique(codes):
            self.sums[values[code]] = self.sums.get(values[code], np.zeros(3)) + sums[code]

    def calibration(self) -> list[GroupCalibration]:
        """Return the groups sorted by value: numbers read from text as numbers, days and months in natural order."""
        rows = [(name, total, p / total, y / total) for name, (total, p, y) in self.sums.items() if total > 0.0]
        names, total, p, y = zip(*rows, strict=True)
        return sorted(metrics.calibration_by(names, y, p, total), key=_sort_key(names))


def _sort_key(names: tuple[object, ...]) -> Callable[[GroupCalibration], tuple[bool, int]]:
    known = [name for name in names if name is not None]
    ranks = natural_ranks(from_strings(list(map(str, known))))
    rank = {} if ranks is None else dict(zip(known, ranks.tolist(), strict=True))
    return lambda group: (group.group is None, rank.get(group.group, 0))


def measure(loss: Loss, y: FloatArray, score: FloatArray, weight: FloatArray) -> Iterator[Measured]:
    """Yield the metrics for a loss, given raw scores and targets in their original unit."""
    p = loss.predict(score)
    if loss.name == "softmax":
        yield Measured("logloss", metrics.class_logloss(y, p, weight), "mean cross-entropy; lower is better")
        yield Measured("accuracy", metrics.accuracy(y, p, weight), "share of rows whose class is the most probable")
        yield _class_auc(y, p, weight)
        return

    def metric(name: str, function: Callable[..., float], meaning: str) -> Measured:
        try:
            return Measured(name, function(y, p, weight), meaning)
        except ValueError as error:
            return Measured(name, float("nan"), str(error))

    if loss.name == "logistic":
        yield metric("logloss", metrics.logloss, "mean cross-entropy; lower is better")
        yield metric(
            "normalized entropy",
            metrics.normalized_entropy,
            "logloss / logloss of the mean; below 1 is better than a constant",
        )
        yield metric("AUC", metrics.auc, "probability that a positive row ranks above a negative one")
    else:
        if meaning := loss.metric_meaning:
            value = float(np.average(loss.value(loss.standardize(y), score), weights=weight))
            yield Measured(loss.metric_name, loss.metric(value), meaning)
        if loss.quantile is not None:
            yield metric(
                "coverage", metrics.coverage, f"share of targets up to the prediction; {loss.quantile:g} is best"
            )
        yield metric("RMSE", metrics.rmse, "root mean squared error, in the unit of the target")
        yield metric("MAE", metrics.mae, "mean absolute error")
        yield metric("R2", metrics.r2, "share of variance explained; 1 is perfect")
    if loss.predicts_mean:
        yield metric("calibration error", metrics.calibration_error, "mean prediction / mean target - 1; 0 is perfect")
    yield Measured("mean prediction", float(np.average(p, weights=weight)), "")
    yield Measured("mean target", float(np.average(y, weights=weight)), "")


def _class_auc(y: FloatArray, p: FloatArray, weight: FloatArray) -> Measured:
    try:
        value = metrics.class_auc(y, p, weight)
    except ValueError as error:
        return Measured("AUC", float("nan"), str(error))
    return Measured("AUC", value, "mean over the classes, each against the rest")
