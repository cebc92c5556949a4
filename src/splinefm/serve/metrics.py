"""Metrics for Prometheus; with several processes, in its multiprocess mode.

Each process writes files of its own in the folder PROMETHEUS_MULTIPROC_DIR, and whichever answers a scrape adds them
up. Counters of a process that died stay, so they never go back; its gauges are removed with `forget_process`.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from functools import cache
from typing import Any

import prometheus_client
from prometheus_client import CollectorRegistry as CollectorRegistry
from prometheus_client import Counter, Gauge, Histogram, multiprocess, values

SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper ends of the buckets of times."""
TEXT = b"text/plain; version=0.0.4; charset=utf-8"
FOLDER = "PROMETHEUS_MULTIPROC_DIR"


class Metrics:
    """All metrics of a service.

    Parameters
    ----------
    registry : CollectorRegistry
        Where they are registered.

    Examples
    --------
    >>> metrics = Metrics(CollectorRegistry())
    >>> metrics.feedback.inc(2)
    >>> metrics.value("splinefm_feedback_total")
    2.0
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        if os.environ.get(FOLDER) and values.ValueClass is values.MutexValue:  # imported before the folder was known
            values.ValueClass = values.get_value_class()  # type: ignore[no-untyped-call]
        self.registry = registry

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"splinefm_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str, mode: Any = "livesum") -> Gauge:
            return Gauge(f"splinefm_{name}", text, labels, registry=registry, multiprocess_mode=mode)

        def histogram(name: str, text: str, *labels: str) -> Histogram:
            return Histogram(f"splinefm_{name}", text, labels, registry=registry, buckets=SECONDS)

        self.requests = counter("requests_total", "Requests answered.", "endpoint", "status")
        self.request_seconds = histogram("request_seconds", "From the headers to the answer.", "endpoint")
        self.refused = counter("refused_total", "Requests answered with 503.", "reason")
        self.slow_clients = counter("slow_clients_total", "Clients cut off because they were too slow.")
        self.in_progress = gauge("requests_in_progress", "Requests that arrive, wait or are worked on.")
        self.queue_length = gauge("queue_length", "Requests that wait or are worked on.")
        self.workers = gauge("workers", "Workers that accept requests.")
        self.worker_restarts = counter("worker_restarts_total", "Workers that died and were replaced.")
        self.resident_bytes = gauge("resident_bytes", "Memory of all workers, shared pages counted for each.")
        self.arm_requests = counter("arm_requests_total", "Scoring requests an arm had a part in.", "arm")
        self.arm_rows = counter("arm_rows_total", "Rows scored.", "arm")
        self.arm_seconds = histogram("arm_seconds", "Time to score the rows of a request.", "arm")
        # A sum that can fall, of models with negative predictions, which a counter must not; dead processes count.
        self.arm_predictions = gauge("arm_predictions_total", "Sum of the predictions of all rows.", "arm", mode="sum")
        self.arm_weight = gauge("arm_weight", "Share of the keys.", "arm", mode="livemostrecent")
        self.shadow_difference = counter("shadow_difference_total", "Sum of |shadow - shown|.", "arm")
        self.shadow_dropped = counter("shadow_dropped_total", "Rows not scored by a busy shadow.", "arm")
        self.shadow_errors = counter("shadow_errors_total", "Requests that a shadow arm refused.", "arm")
        self.generation = gauge(
            "model_generation", "Loads since the start, least of all workers.", "arm", mode="livemin"
        )
        self.reloads = counter("reloads_total", "New files.", "arm", "result")
        self.reload_refused = gauge(
            "reload_refused", "1 while the newest file is refused.", "arm", mode="livemostrecent"
        )
        self.drift_seen = counter("drift_seen_total", "Sampled values.", "arm", "column", "kind")
        self.drift_values = counter(
            "drift_values_total", "Sampled values that are unseen or out of range (odd), or missing.", "arm", "column",
            "kind",
        )  # fmt: skip
        self.drift_expected = gauge(
            "drift_expected_share", "The share of such values that the training rows suggest.", "arm", "column", "kind",
            mode="livemax",
        )  # fmt: skip
        self.drift_skipped = counter("drift_skipped_total", "Sampled rows that could not be compared.", "arm")
        self.feedback = counter("feedback_total", "Outcomes received.")
        self.feedback_unknown = counter("feedback_unknown_total", "Outcomes whose id is not in the log.")
        self.log_errors = counter("log_errors_total", "Writes to the log that failed.")
        self.log_failing = gauge("log_failing", "1 while the log cannot be written.", mode="livemax")
        self.internal_errors = counter("internal_errors_total", "Background tasks that failed.", "task")

        self._buffers: dict[Any, Total | Times] = {}

    def total(self, child: Any) -> Total:
        """A counter that is flushed a few times a second: the files of a metric take ten times longer."""
        return self._buffers.setdefault(child, Total(child))  # type: ignore[return-value]

    def times(self, child: Any) -> Times:
        """A histogram that is flushed a few times a second."""
        return self._buffers.setdefault(child, Times(child))  # type: ignore[return-value]

    def flush(self) -> None:
        """Add what was counted on hot paths."""
        for buffer in tuple(self._buffers.values()):
            buffer.flush()

    def value(self, name: str, **labels: str) -> float:
        """A counter or gauge of this process; 0 where nothing was counted."""
        self.flush()
        return self.registry.get_sample_value(name, labels) or 0.0

    def text(self) -> bytes:
        """All metrics of all processes, as Prometheus reads them."""
        self.flush()
        registry = self.registry
        if os.environ.get(FOLDER):
            registry = CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return prometheus_client.generate_latest(registry)


class Total:
    """A counter of a hot path, which takes part in the metrics when they are flushed."""

    __slots__ = ("_child", "value")

    def __init__(self, child: Any) -> None:
        self._child, self.value = child, 0.0

    def flush(self) -> None:
        """Add to the metric."""
        value, self.value = self.value, 0.0
        if value:
            self._child.inc(value)


class Times:
    """A histogram of times on a hot path, likewise."""

    __slots__ = ("_child", "_counts", "_sum")

    def __init__(self, child: Any) -> None:
        self._child, self._sum = child, 0.0
        self._counts = [0] * (len(SECONDS) + 1)

    def add(self, seconds: float) -> None:
        """Add a time."""
        self._counts[bisect_left(SECONDS, seconds)] += 1
        self._sum += seconds

    def flush(self) -> None:
        """Add to the metric."""
        seconds, self._sum = self._sum, 0.0
        counts, self._counts = self._counts, [0] * len(self._counts)
        if any(counts):
            self._child._sum.inc(seconds)
            for bucket, number in zip(self._child._buckets, counts, strict=True):
                if number:
                    bucket.inc(number)


@cache
def process_metrics() -> Metrics:
    """The metrics of all services of this process, in the registry that other libraries use, too."""
    return Metrics(prometheus_client.REGISTRY)


def forget_process(pid: int) -> None:
    """Remove the gauges of a process that has ended."""
    multiprocess.mark_process_dead(pid)  # type: ignore[no-untyped-call]
