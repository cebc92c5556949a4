"""Scoring by the arms of an A/B split: rows or a table -> scores and predictions."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from splinefm._arrays import Float32Array, FloatArray
from splinefm.serve.bodies import json_columns
from splinefm.serve.metrics import Metrics
from splinefm.serve.models import LoadedModel
from splinefm.serve.rows import (
    ROW_ERRORS,
    Fault,
    FaultyRows,
    Names,
    NotServed,
    RequestRows,
    check_finite,
    fault_of_values,
    faults_of,
)
from splinefm.serve.settings import ServiceSettings
from splinefm.serve.split import ArmSplit


class Scored(NamedTuple):
    """Scores and predictions of the rows of a request, and who made them."""

    scores: Float32Array
    predictions: FloatArray
    arms: list[str]
    """The arm of each row; one entry if all rows have the same."""
    versions: dict[str, str]
    """The version of each arm that took part."""


class Serving:
    """The models of all arms. It never changes: a reload or new weights make a new one, which replaces the old.

    So a request is answered by the models that it began with.

    Parameters
    ----------
    settings : ServiceSettings
        Key, extra columns.
    loaded : dict of str to LoadedModel
        The model of each arm.
    weights : dict of str to float
        The weight of each arm that is shown.
    metrics : Metrics
        Where arms are counted.
    """

    def __init__(
        self, settings: ServiceSettings, loaded: dict[str, LoadedModel], weights: dict[str, float], metrics: Metrics
    ) -> None:
        self.settings, self.loaded, self.metrics = settings, loaded, metrics
        self.split = ArmSplit(weights)
        self.shown = [loaded[name] for name in weights]
        self.shadows = {arm.name: loaded[arm.name] for arm in settings.arms if arm.shadow}
        needed = [name for model in self.shown for name in model.columns]
        self.key = settings.key
        extra = [name for model in self.shadows.values() for name in model.columns]
        key = [] if self.key is None else [self.key]
        differ = {*needed, *key} != {*self.shown[0].columns}
        self.names = Names([*needed, *key], extra, allow_extra=settings.allow_extra, each=differ)
        self.json = json_columns(self.names.needed)
        self.versions = {name: model.published.version for name, model in loaded.items()}
        self._counters = {name: _ArmCounters(metrics, name) for name in loaded}

    @property
    def n_outputs(self) -> int:
        """Scores per row."""
        return self.shown[0].n_outputs

    @property
    def classes(self) -> list[str] | None:
        """The labels of the classes, if there are any."""
        classes = self.shown[0].fitted.classes
        return None if classes is None else [str(label) for label in classes]

    def known_arm(self, name: str | None) -> str | None:
        """The name of an arm that a client asks for."""
        if name is None or name in self.split.weights:
            return name
        raise NotServed(f"no arm {name!r:.80}; the arms are {', '.join(map(repr, self.split.weights))}")

    def model_of(self, arm: str | None) -> LoadedModel:
        """The model of an arm that a client asks for, by default of the first one."""
        return self.loaded[self.known_arm(arm) or self.split.names[0]]

    def score(self, rows: RequestRows, request_id: str, arm: str | None = None) -> Scored:
        """Score rows.

        Raises
        ------
        FaultyRows
            If a row cannot be scored; none is, then.
        """
        rows.check(self.names)
        if arm is None and len(self.split.names) > 1:
            arms = self._assign(rows.column, len(rows), request_id)
        else:
            arms = [arm or self.split.names[0]]
        return self._score_arms(arms, len(rows), lambda model, at: self._score_rows(model, rows, at))

    def score_table(self, table: pa.Table, request_id: str, arm: str | None = None) -> Scored:
        """Score a table, as `score` does."""
        found = self.names.faults(table.column_names, None)
        if found:
            raise FaultyRows(found)
        if arm is None and len(self.split.names) > 1:
            arms = self._assign(lambda name: table.column(name).to_pylist(), table.num_rows, request_id)
        else:
            arms = [arm or self.split.names[0]]
        return self._score_arms(arms, table.num_rows, lambda model, at: _score_table(model, table, at))

    def _assign(self, column: Callable[[str], list[Any]], n: int, request_id: str) -> list[str]:
        """The arm of each row, by its key, or of the request if rows have no key."""
        if self.key is None:
            return [self.split.arm_of(request_id)]
        keys = column(self.key)
        absent = next((i for i, key in enumerate(keys) if key is None or isinstance(key, list | dict)), None)
        if absent is not None:
            text = f"the key {self.key!r} must be text or a number, since it decides the arm; got {keys[absent]!r:.60}"
            raise FaultyRows([Fault(absent, self.key, text)])
        arms = self.split.arms_of(keys)
        return arms[:1] if n and arms.count(arms[0]) == n else arms

    def _score_arms(self, arms: list[str], n: int, score: Callable[[LoadedModel, Any], Float32Array]) -> Scored:
        """Scores of the rows of each arm, put together."""
        if len(arms) == 1:
            scores, predictions = self._score_arm(arms[0], score, None, n)
            return Scored(scores, predictions, arms, {arms[0]: self.versions[arms[0]]})
        shape = (n,) if self.n_outputs == 1 else (n, self.n_outputs)
        every, predicted = np.empty(shape, np.float32), np.empty(shape)
        present = [name for name in self.split.names if name in arms]
        by_row = np.array(arms)
        for name in present:
            at = np.flatnonzero(by_row == name)
            every[at], predicted[at] = self._score_arm(name, score, at, len(at))
        return Scored(every, predicted, arms, {name: self.versions[name] for name in present})

    def _score_arm(
        self, name: str, score: Callable[[LoadedModel, Any], Float32Array], at: Any, n: int
    ) -> tuple[Float32Array, FloatArray]:
        begin = perf_counter()
        model = self.loaded[name]
        scores = score(model, at)
        predictions = model.predict(scores)
        total = float(predictions.sum())
        if not math.isfinite(total + float(scores.sum())):  # two sums are cheaper than a look at each number
            check_finite(predictions, "prediction")
            check_finite(scores, "score")
        self._counters[name].count(n, perf_counter() - begin, total if predictions.ndim == 1 else 0.0)
        return scores, predictions

    def _score_rows(self, model: LoadedModel, rows: RequestRows, at: Any) -> Float32Array:
        try:
            return rows.scores(model, at)
        except ROW_ERRORS:
            faults = faults_of(model, self.names, rows.dicts if at is None else [rows.dicts[i] for i in at])
            if not faults:
                raise  # rows that can be scored one by one: not their fault
            where = range(len(rows)) if at is None else at
            raise FaultyRows([fault._replace(row=int(where[fault.row or 0])) for fault in faults]) from None

    def shadow(self, name: str, rows: RequestRows, shown: FloatArray) -> FloatArray | None:
        """Predictions of a shadow arm for rows that others answered; None if it cannot score them."""
        model = self.shadows[name]
        try:
            predictions = model.predict(rows.scores(model, None))
        except ROW_ERRORS:
            self.metrics.shadow_errors.labels(name).inc()
            return None
        self._counters[name].count(len(rows), 0.0, float(predictions.sum()) if predictions.ndim == 1 else 0.0)
        if predictions.shape == shown.shape:
            self.metrics.shadow_difference.labels(name).inc(float(np.abs(predictions - shown).sum()))
        return predictions


def _score_table(model: LoadedModel, table: pa.Table, at: Any) -> Float32Array:
    own = table.select(list(model.columns))
    try:
        return model.table_scores(own if at is None else own.take(pa.array(at)))
    except ROW_ERRORS as error:
        try:
            fault = _fault_of_table(model, own, np.arange(table.num_rows) if at is None else np.asarray(at), error)
        except pa.ArrowException:  # Arrow cannot take rows of some types
            fault = Fault(None, None, str(error) or type(error).__name__)
        raise FaultyRows([fault]) from None


def _fault_of_table(model: LoadedModel, table: pa.Table, rows: Any, error: Exception) -> Fault:
    """The first row that a model refuses, half of the rows after the other, and its column."""
    while len(rows) > 1:
        half = rows[: len(rows) // 2]
        try:
            model.table_scores(table.take(pa.array(half)))
            rows = rows[len(half) :]
        except ROW_ERRORS:
            rows = half
    one = table.take(pa.array(rows))
    try:
        model.table_scores(one)
    except ROW_ERRORS as own:
        return fault_of_values(model.fitted, lambda name: one.column(name).combine_chunks(), int(rows[0]), own)
    return Fault(None, None, str(error) or type(error).__name__)


class _ArmCounters:
    """What every request of an arm counts."""

    def __init__(self, metrics: Metrics, arm: str) -> None:
        self._requests = metrics.total(metrics.arm_requests.labels(arm))
        self._rows = metrics.total(metrics.arm_rows.labels(arm))
        self._seconds = metrics.times(metrics.arm_seconds.labels(arm))
        self._predictions = metrics.total(metrics.arm_predictions.labels(arm))

    def count(self, rows: int, seconds: float, predicted: float) -> None:
        self._requests.value += 1
        self._rows.value += rows
        self._seconds.add(seconds)
        self._predictions.value += predicted
