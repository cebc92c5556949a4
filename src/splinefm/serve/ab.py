"""What a log says about the arms of a split: predicted over measured by hour, and the arms against each other.

The online figure of the paper is the mean prediction divided by the mean outcome, minus 1: zero for a model that is
right on average. Rows of one user are not independent, so the intervals are for sums by key (the delta method for
a ratio of means, on the logarithmic scale: a ratio is positive).

Arms are compared by their mean outcomes, with an asymptotic confidence sequence (Waudby-Smith et al., Annals of
Statistics 2024): it holds the true difference at all times at once, so that one may look whenever one likes, and stop
when it no longer holds 0. Outcomes of a key before the test explain a part of its outcomes in the test (CUPED, Deng et
al., WSDM 2013): taking that part away makes the interval shorter and keeps the difference.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.serve.feedback import read_log, read_outcomes
from splinefm.serve.split import key_name

NoOutcome = Literal["zero", "skip"]
_MAX_LOOKS = 100  # in the history of a comparison


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


@dataclass(frozen=True)
class Difference:
    """Difference of the mean outcomes of an arm and the first arm.

    Parameters
    ----------
    arm, base : str
        The arms.
    keys : int
        Keys of both.
    difference : Interval
        With a confidence interval that holds at all times.
    reduction : float
        Share of the variance that outcomes before the test explain.
    hour : str
        The hour (UTC) at whose end one looks, or "all".
    """

    arm: str
    base: str
    keys: int
    difference: Interval
    reduction: float
    hour: str = "all"


@dataclass(frozen=True)
class Report:
    """What a log says.

    Parameters
    ----------
    figures : list of ArmFigures
        Each arm, by hour and in all.
    differences : list of Difference
        Each other arm against the first one.
    unmatched : int
        Outcomes of rows that are not in the log.
    history : list of Difference
        The differences at the end of each hour, or of some hours of a long log.
    """

    figures: list[ArmFigures]
    differences: list[Difference]
    unmatched: int
    history: list[Difference]


def ab_report(
    log: str | Path,
    *,
    no_outcome: NoOutcome = "zero",
    confidence: float = 0.95,
    start: float | None = None,
) -> Report:
    """Read a log, compare predictions with outcomes for each arm and hour, and the outcomes of the arms.

    Parameters
    ----------
    log : path
        The folder that `splinefm serve --log` writes.
    no_outcome : {"zero", "skip"}
        What a row without feedback means: that nothing happened, such as no click, or that it is not known yet.
    confidence : float
        Share of intervals that hold the true value.
    start : float, optional
        When the test began, in seconds since 1970. Lines before that explain outcomes of their keys, and do not count.

    Examples
    --------
    >>> import tempfile
    >>> from splinefm.serve.feedback import FeedbackLog
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = FeedbackLog(folder, 0)
    ...     log.scored("r", ["a"], np.array([0.5, 0.25, 0.25, 0.5]), ["u", "v", "w", "x"], None)
    ...     log.outcome("r", 0, 1.0)
    ...     log.close()
    ...     figures = ab_report(folder).figures[-1]
    >>> figures.rows, figures.predicted, figures.measured.value, figures.ratio.value
    (4, 0.375, 0.25, 0.5)
    """
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    folder = Path(log)
    if not folder.is_dir():
        raise FileNotFoundError(f"no folder {str(log)!r}; splinefm serve --log writes it")
    outcomes = read_outcomes(folder)
    rows = _Rows()
    unmatched = set(outcomes)
    for line in read_log(folder):
        if "predictions" in line:
            unmatched.difference_update((line["id"], i) for i in range(len(line["predictions"])))
            rows.add(line, outcomes, no_outcome, start)
    figures = rows.figures(NormalDist().inv_cdf(0.5 + confidence / 2.0))
    history = [item for hour in rows.looks() for item in rows.differences(1.0 - confidence, hour)]
    return Report(figures, rows.differences(1.0 - confidence), len(unmatched), history)


class _Rows:
    """Rows of a log, by arm, and what their keys did before the test."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, bool], list[tuple[str, str, float, float]]] = {}
        self._before: dict[str, list[float]] = {}

    def add(
        self,
        line: Mapping[str, Any],
        outcomes: Mapping[tuple[str, int], float],
        no_outcome: NoOutcome,
        start: float | None,
    ) -> None:
        hour = time.strftime("%Y-%m-%d %H:00", time.gmtime(line["at"]))
        predictions: Sequence[Any] = line["predictions"]
        arms, keys = line["arms"], line.get("keys")
        for i, prediction in enumerate(predictions):
            outcome = outcomes.get((line["id"], i), 0.0 if no_outcome == "zero" else None)
            if outcome is None or isinstance(prediction, list):
                continue
            key = line["id"] if keys is None else key_name(keys[i])
            if start is not None and line["at"] < start:
                if not line.get("shadow"):
                    self._before.setdefault(key, []).append(float(outcome))
                continue
            arm = arms[i] if len(arms) > 1 else arms[0]
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

    def looks(self) -> list[str]:
        """The hours of the log; of many, some that are evenly spread, and the last."""
        hours = sorted({row[0] for rows in self._rows.values() for row in rows})
        step = -(-len(hours) // _MAX_LOOKS) or 1
        return hours[::-1][::step][::-1]

    def differences(self, alpha: float, hour: str = "all") -> list[Difference]:
        """Each other arm against the first one, by the rows until the end of an hour."""
        names = sorted(arm for arm, shadow in self._rows if not shadow)
        sums = {name: self._sums(name, hour) for name in names}
        names = [name for name in names if len(sums[name].rows)]
        if len(names) < 2:
            return []
        base = names[0]
        return [Difference(name, base, *difference_of_means(sums[name], sums[base], alpha), hour) for name in names[1:]]

    def _sums(self, arm: str, hour: str) -> KeySums:
        """Of each key of an arm: sum of outcomes, number of rows, and the mean outcome before the test."""
        rows = [(row[1], row[3]) for row in self._rows[arm, False] if hour == "all" or row[0] <= hour]
        keys, measured = np.array([key for key, _ in rows]), np.array([outcome for _, outcome in rows], np.float64)
        names, group = np.unique(keys, return_inverse=True)
        before = [self._before.get(name) for name in names.tolist()]
        means = np.array([np.nan if own is None else float(np.mean(own)) for own in before])
        known = means[np.isfinite(means)]
        means = np.where(np.isfinite(means), means, known.mean() if len(known) else 0.0)
        counts = np.bincount(group).astype(np.float64)
        return KeySums(np.bincount(group, measured).astype(np.float64), counts, means)


class KeySums(NamedTuple):
    """Keys of an arm: sums of outcomes, numbers of rows, and mean outcomes before the test."""

    outcomes: FloatArray
    rows: FloatArray
    before: FloatArray


def difference_of_means(arm: KeySums, base: KeySums, alpha: float) -> tuple[int, Interval, float]:
    """Mean outcome of an arm minus the mean of another: keys, the difference at all times, and the variance explained.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> arms = [KeySums(rng.binomial(1, p, 20_000) * 1.0, np.ones(20_000), np.zeros(20_000)) for p in (0.12, 0.10)]
    >>> keys, difference, _ = difference_of_means(*arms, 0.05)
    >>> keys, difference.low > 0.0
    (40000, True)
    """
    residuals = [each.outcomes - each.outcomes.sum() / each.rows.sum() * each.rows for each in (arm, base)]
    centers = [each.rows * (each.before - np.average(each.before, weights=each.rows)) for each in (arm, base)]
    scale = [each.rows.sum() for each in (arm, base)]
    # One slope for both arms, so that what is taken away has the same mean in both.
    covariance = sum(float(r @ c) / s**2 for r, c, s in zip(residuals, centers, scale, strict=True))
    spread = sum(float(c @ c) / s**2 for c, s in zip(centers, scale, strict=True))
    slope = covariance / spread if spread > 0.0 else 0.0
    means = [float(np.average(each.before, weights=each.rows)) for each in (arm, base)]
    value = float(arm.outcomes.sum() / scale[0] - base.outcomes.sum() / scale[1]) - slope * (means[0] - means[1])
    plain = sum(float(r @ r) / s**2 for r, s in zip(residuals, scale, strict=True))
    variance = max(plain - slope * covariance, 0.0)
    n = len(arm.rows) + len(base.rows)
    half = math.sqrt(n * variance) * _sequence_width(n, alpha)
    return n, Interval(value, value - half, value + half), 1.0 - variance / plain if plain > 0.0 else 0.0


_TIGHT_AT = 10_000  # keys at which a confidence sequence is tightest


def _sequence_width(n: int, alpha: float) -> float:
    """The half width of an asymptotic confidence sequence for the mean of n values with standard deviation 1."""
    log = -2.0 * math.log(alpha)
    rho2 = (log + math.log(log) + 1.0) / _TIGHT_AT
    return math.sqrt(2.0 * (n * rho2 + 1.0) / (n * n * rho2) * math.log(math.sqrt(n * rho2 + 1.0) / alpha))


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
    rows = [asdict(item) for item in figures]
    for row in rows:
        for name in ("measured", "ratio"):
            interval = row.pop(name)
            row |= {name: interval["value"], f"{name}_low": interval["low"], f"{name}_high": interval["high"]}
    return rows
