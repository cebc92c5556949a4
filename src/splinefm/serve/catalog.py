"""The metrics of a server, which follow from its arms and the columns of their models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

from splinefm.serve.metrics import Family, Kind, MetricCatalog
from splinefm.serve.settings import ArmSetting

ENDPOINTS = (
    "score",
    "rank",
    "explain",
    "segment",
    "explore",
    "models",
    "feedback",
    "reload",
    "arms",
    "infer",
    "inference",
    "openapi",
    "health",
    "metrics",
    "other",
)
STATUSES = (200, 202, 400, 401, 403, 404, 405, 408, 409, 413, 415, 422, 431, 500, 503)
REFUSALS = ("queue", "deadline", "draining")
DRIFT = ("odd", "missing")
"""Values that are unseen or out of range, and those that are missing."""


def make_catalog(arms: Sequence[ArmSetting], columns: Mapping[str, Sequence[str]]) -> MetricCatalog:
    """All metrics; `columns` are those of each arm's model that are watched for drift."""
    every = tuple((arm.name,) for arm in arms)
    shadows = tuple((arm.name,) for arm in arms if arm.shadow)
    endpoints = tuple((name,) for name in ENDPOINTS)
    requests = tuple(product(ENDPOINTS, [*map(str, STATUSES), "other"]))
    drift = tuple((arm.name, column, kind) for arm in arms for column in columns[arm.name] for kind in DRIFT)
    count: Kind = "counter"
    gauge: Kind = "gauge"
    return MetricCatalog(
        [
            Family("splinefm_requests_total", count, "Requests answered.", ("endpoint", "status"), requests),
            Family("splinefm_request_seconds", "histogram", "From first byte to answer.", ("endpoint",), endpoints),
            Family("splinefm_refused_total", count, "Requests answered with 503.", ("reason",), _each(REFUSALS)),
            Family("splinefm_slow_clients_total", count, "Clients cut off because they were too slow."),
            Family("splinefm_connections", gauge, "Open connections."),
            Family("splinefm_queue_length", gauge, "Requests that wait or are worked on."),
            Family("splinefm_workers", gauge, "Workers that accept requests."),
            Family("splinefm_worker_restarts_total", count, "Workers that died and were replaced."),
            Family("splinefm_resident_bytes", gauge, "Memory of all workers, shared pages counted for each."),
            Family("splinefm_arm_requests_total", count, "Scoring requests an arm had a part in.", ("arm",), every),
            Family("splinefm_arm_rows_total", count, "Rows scored.", ("arm",), every),
            Family("splinefm_arm_seconds", "histogram", "Time to score the rows of a request.", ("arm",), every),
            Family("splinefm_arm_predictions_total", count, "Sum of the predictions of all rows.", ("arm",), every),
            Family("splinefm_arm_weight", gauge, "Share of the keys.", ("arm",), every, "max"),
            Family("splinefm_shadow_difference_total", count, "Sum of |shadow - shown|.", ("arm",), shadows),
            Family("splinefm_shadow_dropped_total", count, "Rows not scored by a busy shadow.", ("arm",), shadows),
            Family("splinefm_shadow_errors_total", count, "Requests that a shadow arm refused.", ("arm",), shadows),
            Family(
                "splinefm_model_generation",
                gauge,
                "Loads since the start, least of all workers.",
                ("arm",),
                every,
                "min",
            ),
            Family(
                "splinefm_reloads_total", count, "New files.", ("arm", "result"), _pairs(every, ("loaded", "refused"))
            ),
            Family("splinefm_reload_refused", gauge, "1 while the newest file is refused.", ("arm",), every),
            Family("splinefm_drift_seen_total", count, "Sampled values.", ("arm", "column", "kind"), drift),
            Family(
                "splinefm_drift_values_total",
                count,
                "Sampled values that are unseen or out of range (odd), or missing.",
                ("arm", "column", "kind"),
                drift,
            ),
            Family(
                "splinefm_drift_expected_share",
                gauge,
                "The share of such values that the training rows suggest.",
                ("arm", "column", "kind"),
                drift,
                "max",
            ),
            Family("splinefm_drift_skipped_total", count, "Sampled rows that could not be compared.", ("arm",), every),
            Family("splinefm_feedback_total", count, "Outcomes received."),
        ]
    )


def _each(values: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple((value,) for value in values)


def _pairs(arms: Sequence[tuple[str]], values: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    return tuple((*arm, value) for arm in arms for value in values)
