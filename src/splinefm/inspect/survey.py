"""One pass over the data that a model is explained on: a sample of the rows, and sums over groups of all rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from splinefm._arrays import FloatArray, IndexArray
from splinefm.encode.drift import Watch
from splinefm.encode.fields.categorical import Categorical, MultiValued
from splinefm.encode.fields.numerical import ORDINARY, Numerical
from splinefm.encode.schema import Single
from splinefm.encode.tables.open import open_data, require_columns
from splinefm.fit.evaluation import column_types, one_against_rest
from splinefm.inspect.axes import NUMBERS, axis_format
from splinefm.inspect.rows import ROWS, RowSample
from splinefm.inspect.values import number_or_none
from splinefm.train.fitted import Fitted
from splinefm.train.losses import Loss
from splinefm.train.progress import Progress
from splinefm.train.targets import as_targets, as_weights

FINE, MAX_CATEGORIES = 256, 1000
"""Number of intervals of u, and of frequent categories, in which rows are counted first."""
GROUPS, MIN_ROWS = 10, 20
"""Number of groups of similar size into which the intervals are merged; minimum rows of a group to be compared."""
OTHERS, NOTHING = "(other categories)", "(no known category)"


@dataclass(frozen=True)
class ValueGroup:
    """Rows with similar values of one column, with their mean prediction and mean target."""

    column: str
    name: str  # its values in words
    rows: int
    weight: float  # sum of sample weights
    predicted: float  # mean prediction; of a quantile model the quantile
    measured: float  # mean target, or share of targets up to the prediction; NaN without a target
    deviation: float  # prediction - target in standard errors; 0 if unknown

    @property
    def error(self) -> float:
        """Mean prediction / mean target - 1; NaN if the target is always zero."""
        return self.predicted / self.measured - 1.0 if self.measured else float("nan")

    def to_dict(self) -> dict[str, Any]:
        """Convert to plain strings and numbers."""
        return {
            "column": self.column,
            "group": self.name,
            "rows": self.rows,
            "predicted": number_or_none(self.predicted),
            "measured": number_or_none(self.measured),
            "error": number_or_none(self.error),
            "deviation": self.deviation,
        }


class FieldTally(ABC):
    """Sums over the rows that have the same category, token or interval of one field; made by `make_tally`."""

    def __init__(self, item: Single, tokens: list[str], others: list[str]) -> None:
        self.item, self.tokens = item, tokens
        self.names = [name if name.startswith("=") else f"({name})" for name in tokens] + others
        self.sums = np.zeros((5, len(self.names)))

    def add(self, column: pa.Array, weight: FloatArray, p: FloatArray, y: FloatArray, variance: FloatArray) -> None:
        """Add rows with weights, predictions, targets (NaN if unknown) and the variances of the targets."""
        rows, code = self._codes(column)
        parts = (np.ones(len(weight)), weight, weight * p, weight * y, weight**2 * variance)
        for total, part in zip(self.sums, parts, strict=True):
            total += np.bincount(code, part[rows], len(self.names))

    def groups(self) -> list[ValueGroup]:
        """The groups that have rows: tokens, then intervals or categories in order, then all others."""
        tokens = np.flatnonzero(self.sums[0, : len(self.tokens)])
        return [self._group(self.names[i], [i]) for i in tokens] + self._value_groups()

    def token_rows(self) -> dict[str, int]:
        """Number of rows with each token, and without a known category."""
        return dict(zip(self.tokens, self.sums[0].astype(int).tolist(), strict=False))

    @abstractmethod
    def _codes(self, column: pa.Array) -> tuple[IndexArray, IndexArray]:
        """Row and group; a row may be in several groups, or in none."""

    @abstractmethod
    def _value_groups(self) -> list[ValueGroup]:
        """The groups of ordinary values that have rows."""

    def _group(self, name: str, part: list[int] | list[np.intp]) -> ValueGroup:
        rows, weight, p, y, variance = self.sums[:, part].sum(axis=1).tolist()
        mean_p, mean_y = (p / weight, y / weight) if weight else (np.nan, np.nan)
        known = variance > 0.0 and y == y
        return ValueGroup(
            self.item.name, name, int(rows), weight, mean_p, mean_y, (p - y) / variance**0.5 if known else 0.0
        )


class _NumberTally(FieldTally):
    """Rows by interval of u = T(z)."""

    item: Numerical

    def __init__(self, item: Numerical) -> None:
        super().__init__(item, item.feature_names()[: item.n_tokens], [""] * FINE)
        self.low, self.high = np.full(len(self.names), np.inf), np.full(len(self.names), -np.inf)

    def _codes(self, column: pa.Array) -> tuple[IndexArray, IndexArray]:
        item, x = self.item, self.item.read(column)
        token = item.find_tokens(x)
        ordinary = np.ones(len(x), bool) if token is None else token == ORDINARY
        u = item.fitted_transform(np.where(ordinary, x, 0.0))
        code = item.n_tokens + np.minimum((u * FINE).astype(np.intp), FINE - 1)
        np.minimum.at(self.low, code[ordinary], x[ordinary])
        np.maximum.at(self.high, code[ordinary], x[ordinary])
        return np.arange(len(x)), code if token is None else np.where(ordinary, code, token)

    def _value_groups(self) -> list[ValueGroup]:
        return [self._group(self._interval(part), part) for part in _merged(self.sums[0], len(self.tokens))]

    def _interval(self, part: list[int]) -> str:
        ends = np.unique([self.low[part].min(), self.high[part].max()])
        style = axis_format(self.item)
        return " to ".join(map(_brief, ends) if style is NUMBERS else style.texts(ends))


class _CategoryTally(FieldTally):
    """Rows by category; the last two groups are of rarer categories and of rows without a known one."""

    item: Categorical | MultiValued

    def __init__(self, item: Categorical | MultiValued) -> None:
        categories = item.vocabulary.names if item.vocabulary is not None else pa.array([], pa.large_string())
        tokens = item.feature_names()[: item.layout.n_features - len(categories)]
        super().__init__(item, tokens, [*categories.slice(0, MAX_CATEGORIES).to_pylist(), OTHERS, NOTHING])

    def token_rows(self) -> dict[str, int]:
        """Number of rows with each token, and without a known category."""
        return {**super().token_rows(), NOTHING: int(self.sums[0, -1])}

    def _codes(self, column: pa.Array) -> tuple[IndexArray, IndexArray]:
        start, weight = self.item.encode(column)
        nothing = len(self.names) - 1
        rows, window = np.nonzero(weight)
        empty = np.flatnonzero(~weight.any(axis=1))
        code = np.minimum(start[rows, window], nothing - 1)
        return np.concatenate([rows, empty]), np.concatenate([code, np.full(len(empty), nothing)])

    def _value_groups(self) -> list[ValueGroup]:
        counts, first = self.sums[0], len(self.tokens)
        known = first + self.item.display_order(np.arange(len(counts) - first - 2))
        present = [i for i in (*known, len(counts) - 2, len(counts) - 1) if counts[i]]
        return [self._group(self.names[i], [i]) for i in present]


def make_tally(item: Single) -> FieldTally:
    """Empty sums for a fitted field of one column.

    Examples
    --------
    >>> from splinefm import Categorical
    >>> tally = make_tally(Categorical("c", vocabulary=["a", "b"]))
    >>> tally.add(pa.array(["a", "b", "a", None]), np.ones(4), np.full(4, 0.5), np.array([1.0, 0, 0, 1]), np.ones(4))
    >>> [(group.name, group.rows, group.measured) for group in tally.groups()]
    [('(missing)', 1, 1.0), ('a', 2, 0.5), ('b', 1, 0.0)]
    """
    return _NumberTally(item) if isinstance(item, Numerical) else _CategoryTally(item)


def largest(groups: list[ValueGroup], most: int) -> list[ValueGroup]:
    """The groups with the most rows, in their order."""
    kept = set(sorted(range(len(groups)), key=lambda i: -groups[i].rows)[:most])
    return [group for i, group in enumerate(groups) if i in kept]


def _brief(value: float) -> str:
    """A value with four digits, or all integer digits."""
    return f"{value:,.0f}" if 1e4 <= abs(value) < 1e12 else f"{value:.4g}"


def _merged(counts: FloatArray, first: int) -> list[list[int]]:
    """Merge neighboring intervals into groups with similar numbers of rows."""
    share = counts[first:].sum() / GROUPS
    parts: list[list[int]] = []
    rows = share
    for i in range(first, len(counts)):
        if not counts[i]:
            continue
        if rows + counts[i] / 2 > share:
            parts.append([])
            rows = 0.0
        parts[-1].append(i)
        rows += counts[i]
    return parts


@dataclass(frozen=True, eq=False)
class Survey:
    """The result of one pass over the data."""

    n_rows: int
    other_columns: list[str]  # columns that are not fields of the model
    sample: pa.Table  # some rows: fields, and the target if known
    numbers: IndexArray  # row numbers of the sample, from 0
    tallies: list[FieldTally]  # for each field of one column
    scores: FloatArray  # of all rows, as are y, weight and scores_to_compare
    y: FloatArray | None  # None without a target; whether it is the class, for one of several
    weight: FloatArray
    scores_to_compare: FloatArray  # with targets: scores, or log-odds of one class against the others
    loss: Loss  # turns them into predictions


def survey(
    fitted: Fitted,
    data: str,
    target: str | None,
    weight: str | None,
    sample_rows: int,
    threads: int | None,
    progress: Progress,
    sep: str | None = None,
    output: int | None = None,
) -> Survey:
    """Read the data once: predictions, targets, a sample, and sums by field.

    With `output`, the score of one class of a model of several is explained, and its probability is compared with
    whether a target is that class.
    """
    table = open_data(data, column_types(fitted, target, weight), sep)
    names = list(dict.fromkeys([*fitted.columns, *(name for name in (target, weight) if name is not None)]))
    require_columns(table, names)
    if target in fitted.columns:
        raise ValueError(f"--target {target}: this column is a field of the model; give the column that it predicts")
    sample = RowSample(sample_rows)
    tallies = [make_tally(item) for item in fitted.encoder.schema.singles]
    parts: list[tuple[FloatArray, ...]] = []
    loss = fitted.loss if output is None else Loss()
    watch = Watch(fitted.encoder)
    score = fitted.table_scorer(threads=threads, watch=watch)
    progress.begin("reading and predicting", table.n_rows)
    for batch in table.chunks(names, ROWS):
        fitted.check_offset(batch, sum(len(part[0]) for part in parts))
        scores = score(batch).astype(np.float64)
        y = np.full(len(scores), np.nan)
        if target is not None:
            y = as_targets(batch.column(target), target, fitted.classes)
            fitted.loss.check(y, target, sum(len(part[0]) for part in parts))
        w = np.ones(len(y)) if weight is None else as_weights(batch.column(weight), weight)
        to_compare = scores
        if output is not None:
            scores, to_compare = scores[:, output], one_against_rest(scores, output)
            y = np.where(np.isnan(y), np.nan, y == output)
        expected, measured = loss.compared(y, loss.predict(to_compare))
        for tally in tallies:
            tally.add(batch.column(tally.item.column), w, expected, measured, _variance(loss, expected, measured))
        sample.add(batch)
        parts.append((scores, y, w, to_compare))
        progress.advance(batch.num_rows)
    watch.warn()
    if not any(part[2].any() for part in parts):
        raise ValueError(f"{data!r} has no rows to explain" + (f", or {weight!r} is 0 throughout" if weight else ""))
    scores, y, w, to_compare = map(np.concatenate, zip(*parts, strict=True))
    others = [name for name in table.names if name not in fitted.columns]
    known = None if target is None else y
    return Survey(len(scores), others, sample.table(), sample.numbers, tallies, scores, known, w, to_compare, loss)


def _variance(loss: Loss, p: FloatArray, y: FloatArray) -> FloatArray:
    """The variance of what was measured around what was expected, according to the loss."""
    if loss.name in ("logistic", "quantile"):
        return p * (1.0 - p)
    return p if loss.name == "poisson" else (y - p) ** 2


# Calibration: what was measured in bins of predictions.

# Half the width of the interval with 90 % of a normal distribution, in standard deviations.
Z90 = 1.6448536269514722


class Calibration(NamedTuple):
    """Bins of predictions: their means, the means of the targets, and 90 % intervals of the latter."""

    predicted: FloatArray
    measured: FloatArray
    low: FloatArray
    high: FloatArray


def calibration_bins(y: FloatArray, p: FloatArray, weight: FloatArray, bins: int) -> Calibration:
    """Bins with equal weights of rows, in order of the prediction; equal predictions share a bin.

    Examples
    --------
    >>> found = calibration_bins(np.array([0.0, 1, 1, 1]), np.array([0.2, 0.4, 0.8, 1.0]), np.ones(4), 2)
    >>> found.predicted.round(2), found.measured
    (array([0.3, 0.9]), array([0.5, 1. ]))
    """
    order = np.argsort(p, kind="stable")
    y, p, weight = y[order], p[order], weight[order]
    middle = (np.cumsum(weight) - weight / 2) / weight.sum()
    first = np.searchsorted(p, p, side="left")  # equal predictions share the bin of the first
    code = np.unique(np.floor(middle[first] * bins), return_inverse=True)[1]
    total = np.bincount(code, weight)
    predicted, measured = np.bincount(code, weight * p) / total, np.bincount(code, weight * y) / total
    rows = total**2 / np.bincount(code, weight**2)  # effective number of rows
    if np.isin(y, (0.0, 1.0)).all():
        return Calibration(predicted, measured, *_wilson(measured, rows))
    variance = np.bincount(code, weight * (y - measured[code]) ** 2) / total
    # A single row has no standard error: its interval has no width.
    error = Z90 * np.sqrt(np.divide(variance, rows - 1, out=np.zeros(len(rows)), where=rows > 1 + 1e-9))
    return Calibration(predicted, measured, measured - error, measured + error)


def _wilson(share: FloatArray, rows: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Wilson's interval of a share: unlike the normal interval, it has a width at 0 and at 1."""
    share = np.clip(share, 0.0, 1.0)
    center = (share + Z90**2 / (2 * rows)) / (1 + Z90**2 / rows)
    half = Z90 / (1 + Z90**2 / rows) * np.sqrt(share * (1 - share) / rows + Z90**2 / (4 * rows**2))
    return np.clip(center - half, 0.0, share), np.clip(center + half, share, 1.0)
