"""Drift as metrics: a sample of the rows that are scored, compared with the training rows.

Single rows are scored without the encoder, which counts unusual values. So a sample of them is encoded again, once a
second, on a thread that no request waits for.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Any

import pyarrow as pa

from splinefm.encode.drift import expected_shares
from splinefm.serve.metrics import Metrics
from splinefm.serve.models import LoadedModel
from splinefm.serve.rows import ROW_ERRORS
from splinefm.serve.scorer import Row
from splinefm.serve.serving import Serving

DRIFT = ("odd", "missing")
"""Values that are unseen or out of range, and those that are missing."""


class DriftSample:
    """Rows that wait to be compared.

    Parameters
    ----------
    metrics : Metrics
        Where unusual values are counted.
    max_rows : int
        Rows to compare each second; further ones are not looked at.
    """

    def __init__(self, metrics: Metrics, max_rows: int) -> None:
        self._metrics, self._max_rows = metrics, max_rows
        self._left = max_rows
        self._waiting: list[tuple[LoadedModel, Any]] = []
        self._lock = Lock()

    @property
    def has_room(self) -> bool:
        """Whether more rows are looked at in this second."""
        return self._left > 0

    def take(self, serving: Serving, arms: Sequence[str], rows: Any) -> None:
        """Keep the first rows of a request, if there is room."""
        if not self.has_room:
            return
        with self._lock:
            n = min(self._left, len(rows))
            self._left -= n
        of_row = arms[:n] if len(arms) > 1 else [arms[0]] * n
        if isinstance(rows, list) and len(arms) == 1:
            self._waiting.append((serving.loaded[arms[0]], rows[:n]))
            return
        for name in dict.fromkeys(of_row):
            own = [i for i in range(n) if of_row[i] == name]
            part = [rows[i] for i in own] if isinstance(rows, list) else rows.take(pa.array(own))
            self._waiting.append((serving.loaded[name], part))

    def compare(self) -> None:
        """Count the unusual values of the rows that wait; called once a second."""
        with self._lock:
            waiting, self._waiting = self._waiting, []
            self._left = self._max_rows
        by_model: dict[int, tuple[LoadedModel, list[Row]]] = {}
        for model, rows in waiting:
            if isinstance(rows, list):
                by_model.setdefault(id(model), (model, []))[1].extend(rows)
            else:
                self._see(model, rows.select(list(model.columns)))
        for model, every in by_model.values():
            self._see(model, {name: [row[name] for row in every] for name in model.columns})

    def _see(self, model: LoadedModel, table: Any) -> None:
        before = counts(model)
        try:
            for _ in model.fitted.encoder.encode_chunks(table, threads=1, watch=model.watch):
                pass
        except ROW_ERRORS:  # a column of text and numbers, which rows can have and tables cannot
            n = len(next(iter(table.values()))) if isinstance(table, dict) else table.num_rows
            self._metrics.drift_skipped.labels(model.published.arm).inc(n)
        for (name, kind), (count, total) in counts(model).items():
            was = before[name, kind]
            labels = (model.published.arm, name, kind)
            self._metrics.drift_values.labels(*labels).inc(count - was[0])
            self._metrics.drift_seen.labels(*labels).inc(total - was[1])


def counts(model: LoadedModel) -> dict[tuple[str, str], tuple[int, int]]:
    """For each field and kind of value, how many of how many."""
    found = {}
    for f, item in enumerate(model.fitted.encoder.fields):
        if f not in model.fitted.encoder.crosses:
            for kind, tally in zip(DRIFT, (model.watch.odd[f], model.watch.missing[f]), strict=True):
                found[item.name, kind] = (tally.count, tally.total)
    return found


def show_expected(model: LoadedModel, metrics: Metrics) -> None:
    """Set the shares that the training rows suggest."""
    for f, item in enumerate(model.fitted.encoder.fields):
        if f not in model.fitted.encoder.crosses:
            for kind, share in zip(DRIFT, expected_shares(model.fitted.encoder, f), strict=True):
                metrics.drift_expected.labels(model.published.arm, item.name, kind).set(float(share))
