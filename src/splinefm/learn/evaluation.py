"""`splinefm evaluate`: metrics of a model on a table that is read in chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.drift import Watch
from splinefm.encode.fields.category_order import natural_ranks
from splinefm.encode.tables.arrow import from_strings
from splinefm.encode.tables.columns import as_numbers
from splinefm.encode.tables.open import Table, quoted
from splinefm.encode.tables.sources import STANDARD, open_data, require_columns
from splinefm.learn import metrics
from splinefm.learn.files.modelfile import load
from splinefm.learn.fitted import Fitted
from splinefm.learn.labels import as_targets
from splinefm.learn.losses import Loss
from splinefm.learn.metrics import GroupCalibration
from splinefm.learn.progress import Progress, make_progress

ROWS = 65_536
"""Rows of the table that are in memory at a time."""

FloatArray = npt.NDArray[np.float64]


class Measured(NamedTuple):
    """A metric; its value is NaN where these rows do not determine it."""

    name: str
    value: float
    meaning: str


@dataclass(frozen=True)
class Evaluation:
    """Metrics of a model on a table; `groups` has the calibration for every value of the column `by`."""

    target: str
    n_rows: int
    metrics: list[Measured]
    by: str | None
    groups: list[GroupCalibration]

    def to_dict(self) -> dict[str, Any]:
        """As plain lists, dicts, strings and numbers."""
        named = {metric.name.lower().replace(" ", "_"): metric.value for metric in self.metrics}
        groups = [{**asdict(group), "error": group.error} for group in self.groups]
        by = {} if self.by is None else {"by": self.by, "groups": groups}
        return {"target": self.target, "rows": self.n_rows, **named, **by}


class _Part(NamedTuple):
    score: npt.NDArray[np.float32]
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
) -> Evaluation:
    """Measure a model; scores and targets are kept, the table is not."""
    fitted = load(model)
    table = open_data(data, _types(fitted, target, weight), sep)
    target = target or _find_target(data, table, fitted, {by, weight})
    require_columns(table, [name for name in (*fitted.encoder.schema.columns, target, by, weight) if name is not None])
    groups = _Groups(by) if by is not None else None
    with make_progress(verbose) as progress:
        parts = list(_parts(fitted, table, target, weight, groups, threads, progress))
    if not any(part.weight.any() for part in parts):
        raise ValueError(f"{data!r} has no rows to evaluate" + (f", or {weight!r} is 0 throughout" if weight else ""))
    whole = _Part(*map(np.concatenate, zip(*parts, strict=True)))
    measured = [*measure(fitted.loss, whole.y, whole.score.astype(np.float64), whole.weight)]
    return Evaluation(target, len(whole.y), measured, by, groups.calibration() if groups is not None else [])


def _types(fitted: Fitted, target: str | None, weight: str | None) -> dict[str, pa.DataType]:
    """The types to read text files with."""
    types = fitted.encoder.schema.column_types()
    if weight is not None:
        types[weight] = pa.float64()
    first = (fitted.classes or (0.0,))[0]
    if target is not None and not isinstance(first, bool):
        types[target] = pa.large_string() if isinstance(first, str) else pa.float64()
    return types


def _find_target(data: str, table: Table, fitted: Fitted, not_it: set[str | None]) -> str:
    """The target where it was not named: the one column that is nothing else."""
    if data == STANDARD:
        raise ValueError("say --target NAME: which column of the standard input is the target?")
    others = [name for name in table.names if name not in fitted.encoder.schema.columns and name not in not_it]
    if len(others) == 1:
        return others[0]
    if not others:
        raise ValueError(f"the data have no target: all columns ({quoted(table.names)}) are fields of the model")
    raise ValueError(f"which column is the target? Say --target NAME; it may be one of {quoted(others)}")


def _parts(
    fitted: Fitted,
    table: Table,
    target: str,
    weight: str | None,
    groups: _Groups | None,
    threads: int | None,
    progress: Progress,
) -> Iterator[_Part]:
    names = [*fitted.encoder.schema.columns, target, *([weight] if weight else []), *([groups.name] if groups else [])]
    progress.begin("evaluating", table.n_rows)
    watch = Watch(fitted.encoder)
    for batch in table.chunks(names, ROWS):
        y = as_targets(batch.column(target), target, fitted.classes)
        fitted.loss.check(y)
        w = np.ones(len(y)) if weight is None else _weights(batch.column(weight), weight)
        part = _Part(fitted.scores(batch, threads=threads, watch=watch), y, w)
        if groups is not None:
            groups.add(batch.column(groups.name), fitted.loss.predict(part.score.astype(np.float64)), y, w)
        progress.advance(batch.num_rows)
        yield part
    watch.warn()


def _weights(column: pa.Array, name: str) -> FloatArray:
    weight = as_numbers(column, name)
    if not (np.isfinite(weight).all() and (weight >= 0).all()):
        raise ValueError(f"the weights in column {name!r} must be numbers of at least 0")
    return weight


class _Groups:
    """Sums by the values of a column."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.sums: dict[object, FloatArray] = {}

    def add(self, column: pa.Array, p: FloatArray, y: FloatArray, weight: FloatArray) -> None:
        """The next rows: weight, weighted predictions and weighted targets of each group."""
        if pa.types.is_nested(column.type):
            raise ValueError(f"--by {self.name}: the column holds lists; choose one with one value per row")
        encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode(null_encoding="encode")
        codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        # NaN is a missing value too, and differs from itself.
        values = [value if value == value else None for value in (*encoded.dictionary.to_pylist(), None)]
        sums = np.stack([np.bincount(codes, part, len(values)) for part in (weight, weight * p, weight * y)], 1)
        for code in np.unique(codes):
            self.sums[values[code]] = self.sums.get(values[code], np.zeros(3)) + sums[code]

    def calibration(self) -> list[GroupCalibration]:
        """In the order of the values: numbers as numbers even if they were read as text, days and months in theirs."""
        rows = [(name, total, p / total, y / total) for name, (total, p, y) in self.sums.items() if total > 0.0]
        names, total, p, y = zip(*rows, strict=True)
        return sorted(metrics.calibration_by(names, y, p, total), key=_place(names))


def _place(names: tuple[object, ...]) -> Callable[[GroupCalibration], tuple[bool, int]]:
    known = [name for name in names if name is not None]
    ranks = natural_ranks(from_strings(list(map(str, known))))
    place = {} if ranks is None else dict(zip(known, ranks.tolist(), strict=True))
    return lambda group: (group.group is None, place.get(group.group, 0))


def measure(loss: Loss, y: FloatArray, score: FloatArray, weight: FloatArray) -> Iterator[Measured]:
    """The metrics that suit a loss, of targets in their own unit and raw scores."""
    p = loss.predict(score)

    def metric(name: str, function: Callable[..., float], meaning: str) -> Measured:
        try:
            return Measured(name, function(y, p, weight), meaning)
        except ValueError as error:
            return Measured(name, float("nan"), str(error))

    if loss.name == "logistic":
        yield metric("logloss", metrics.logloss, "mean cross-entropy; lower is better")
        yield metric("normalized entropy", metrics.normalized_entropy, "logloss / that of the mean; below 1 is better")
        yield metric("AUC", metrics.auc, "chance that a positive row is ranked above a negative one")
    else:
        if loss.name == "poisson":
            value = float(np.average(loss.value(y, score), weights=weight))
            yield Measured("loss", value, "mean Poisson loss, rate - y log(rate); lower is better")
        yield metric("RMSE", metrics.rmse, "root of the mean squared error, in the unit of the target")
        yield metric("MAE", metrics.mae, "mean absolute error")
        yield metric("R2", metrics.r2, "share of the variance that is explained; 1 is perfect")
    yield metric("calibration error", metrics.calibration_error, "mean prediction / mean target - 1; 0 is perfect")
    yield Measured("mean prediction", float(np.average(p, weights=weight)), "")
    yield Measured("mean target", float(np.average(y, weights=weight)), "")
