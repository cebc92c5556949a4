"""What a log says about the arms of a split: predicted over measured, hour by hour, with confidence intervals.

The online figure of the paper is the mean prediction divided by the mean outcome, minus 1: zero for a model that is
right on average. Rows of one user are not independent, so the intervals are those of sums by key (the delta method for
a ratio of means, on the logarithmic scale: a ratio is positive).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.serve.feedback import read_log
from splinefm.serve.split import key_name

NoOutcome = Literal["zero", "skip"]


@dataclass(frozen=True)
class Interval:
    """An estimate, with its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ArmFigures:
    """One arm, in one hour or in all.

    Parameters
    ----------
    arm : str
        The arm.
    hour : str
        The hour (UTC), or "all".
    rows : int
        Rows that count.
    outcomes : float
        Sum of the outcomes.
    predicted : float
        Mean prediction.
    measured : Interval
        Mean outcome.
    ratio : Interval
        Predicted / measured - 1.
    shadow : bool
        The arm was not shown: its predictions are compared with what came of the answers of others.
    """

    arm: str
    hour: str
    rows: int
    outcomes: float
    predicted: float
    measured: Interval
    ratio: Interval
    shadow: bool = False


def ab_report(log: str | Path, *, no_outcome: NoOutcome = "zero", confidence: float = 0.95) -> list[ArmFigures]:
    """Read a log and compare predictions with outcomes, for each arm and hour and for all hours.

    Parameters
    ----------
    log : path
        The folder that `splinefm serve --log` writes.
    no_outcome : {"zero", "skip"}
        What a row without feedback means: that nothing happened, such as no click, or that it is not known yet.
    confidence : float
        Share of intervals that hold the true value.

    Examples
    --------
    >>> import tempfile
    >>> from splinefm.serve.feedback import FeedbackLog
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = FeedbackLog(folder, 0)
    ...     log.scored("r", ["a"], np.array([0.5, 0.25, 0.25, 0.5]), ["u", "v", "w", "x"], None)
    ...     log.outcome("r", 0, 1.0)
    ...     log.close()
    ...     figures = ab_report(folder)[-1]
    >>> figures.rows, figures.predicted, figures.measured.value, figures.ratio.value
    (4, 0.375, 0.25, 0.5)
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    folder = Path(log)
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {str(log)!r}; splinefm serve --log writes it")
    outcomes: dict[tuple[str, int], float] = {}
    for line in read_log(folder):
        if "outcome" in line:
            outcomes[line["id"], line["row"]] = line["outcome"]  # the last word counts
    columns = _Columns()
    for line in read_log(folder):
        if "predictions" in line:
            columns.add(line, outcomes, no_outcome)
    return columns.figures(NormalDist().inv_cdf(0.5 + confidence / 2.0))


class _Columns:
    """Rows of a log, by arm."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, bool], list[tuple[str, str, float, float]]] = {}

    def add(self, line: Mapping[str, Any], outcomes: Mapping[tuple[str, int], float], no_outcome: NoOutcome) -> None:
        hour = time.strftime("%Y-%m-%d %H:00", time.gmtime(line["at"]))
        predictions: Sequence[Any] = line["predictions"]
        arms, keys = line["arms"], line.get("keys")
        for i, prediction in enumerate(predictions):
            outcome = outcomes.get((line["id"], i), 0.0 if no_outcome == "zero" else None)
            if outcome is None or isinstance(prediction, list):
                continue
            arm = arms[i] if len(arms) > 1 else arms[0]
            key = line["id"] if keys is None else key_name(keys[i])
            own = self._rows.setdefault((arm, bool(line.get("shadow"))), [])
            own.append((hour, key, float(prediction), float(outcome)))

    def figures(self, z: float) -> list[ArmFigures]:
        found = []
        for (arm, shadow), rows in sorted(self._rows.items(), key=lambda item: item[0]):
            hours, keys, predicted, measured = map(np.array, zip(*rows, strict=True))
            for hour in [*np.unique(hours).tolist(), "all"]:
                at = np.ones(len(hours), bool) if hour == "all" else hours == hour
                found.append(_figures(arm, hour, keys[at], predicted[at], measured[at], z, shadow))
        return found


def _figures(
    arm: str, hour: str, keys: Any, predicted: FloatArray, measured: FloatArray, z: float, shadow: bool
) -> ArmFigures:
    _, group = np.unique(keys, return_inverse=True)
    ones = np.ones(len(predicted))
    p, y, n = (np.bincount(group, values).astype(np.float64) for values in (predicted, measured, ones))
    return ArmFigures(
        arm,
        hour,
        len(keys),
        float(measured.sum()),
        float(predicted.mean()),
        mean_interval(y, n, z),
        ratio_interval(p, y, z),
        shadow,
    )


def ratio_interval(predicted: FloatArray, measured: FloatArray, z: float) -> Interval:
    """Sum of predictions / sum of outcomes - 1, given the sums of each key.

    Examples
    --------
    >>> ratio_interval(np.array([1.0, 2.0]), np.array([1.0, 1.0]), 1.96).value
    0.5
    """
    total = float(measured.sum())
    ratio = float(predicted.sum()) / total if total > 0.0 else math.nan
    if not ratio > 0.0 or len(predicted) < 2:
        return Interval(ratio - 1.0, math.nan, math.nan)
    spread = z * _deviation(predicted - ratio * measured) / total / ratio
    return Interval(ratio - 1.0, ratio * math.exp(-spread) - 1.0, ratio * math.exp(min(spread, 700.0)) - 1.0)


def mean_interval(sums: FloatArray, counts: FloatArray, z: float) -> Interval:
    """The mean of all rows, given sums and numbers of rows of each key."""
    mean = float(sums.sum() / counts.sum())
    if len(sums) < 2:
        return Interval(mean, math.nan, math.nan)
    spread = z * _deviation(sums - mean * counts) / float(counts.sum())
    return Interval(mean, mean - spread, mean + spread)


def _deviation(residuals: FloatArray) -> float:
    """The standard deviation of a sum of independent terms with mean 0."""
    n = len(residuals)
    return math.sqrt(float((residuals**2).sum()) * n / (n - 1))


def as_rows(figures: Iterable[ArmFigures]) -> list[dict[str, Any]]:
    """The figures as plain values, for JSON."""
    return [
        {
            "arm": item.arm,
            "shadow": item.shadow,
            "hour": item.hour,
            "rows": item.rows,
            "outcomes": item.outcomes,
            "predicted": item.predicted,
            "measured": item.measured.value,
            "measured_low": item.measured.low,
            "measured_high": item.measured.high,
            "ratio": item.ratio.value,
            "ratio_low": item.ratio.low,
            "ratio_high": item.ratio.high,
        }
        for item in figures
    ]
