"""Watch: does a table look like the one that the encoder was fitted to?

A column that was renamed, rescaled or spelled differently still gives a number for every row: all of its values are
unseen, out of range or missing. The shares of such values are counted while rows are encoded, and compared with what
the training rows suggest.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._arrays import Array, BoolArray, FloatArray, Int32Array
from splinefm.encode.fields.categorical import Categorical, CategoryStatistics, MultiValued
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.numerical import EXAMPLES, ORDINARY, Numerical, NumericalStatistics
from splinefm.encode.tables.arrow import to_arrow
from splinefm.encode.tables.columns import is_text

if TYPE_CHECKING:
    from splinefm.encode.encoder import Encoder

Scores = npt.NDArray[np.float32]
# A share is unusual if it exceeds the expected one by this, and by more than chance would.
MARGIN, DEVIATIONS = 0.05, 4.0
OUTSIDE = "out of the range of training"
_SHOWN = 5


class DriftWarning(UserWarning):
    """A table has many more unseen, out-of-range or missing values than the training data.

    Raised once per call by whatever scores, ranks or updates. Turn it off with
    `warnings.filterwarnings("ignore", category=sf.DriftWarning)`, or with `watch=False` where a function has that.

    Examples
    --------
    >>> import splinefm as sf
    >>> issubclass(sf.DriftWarning, UserWarning)
    True
    """


@dataclass
class Tally:
    """Values of one kind in one column: how many of how many, and some of them."""

    count: int = 0
    total: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, count: int, total: int, examples: Sequence[str] = ()) -> None:
        """Add the values of a block."""
        self.count += count
        self.total += total
        if count and len(self.examples) < EXAMPLES:
            self.examples = list(dict.fromkeys([*self.examples, *examples]))[:EXAMPLES]

    def is_unusual(self, expected: float) -> bool:
        """Whether the share clearly exceeds the expected one."""
        if self.count <= (expected + MARGIN) * self.total:
            return False
        likely = self.total * expected
        return self.count > likely + DEVIATIONS * (math.sqrt(likely) + 1.0)


class Watch:
    """Counts unseen, out-of-range and missing values while tables are encoded.

    Parameters
    ----------
    encoder : Encoder
        The encoder whose training rows the tables are compared with.
    each_once : bool
        Whether the tables have each item once, as a catalog has: rare items are as frequent there as popular ones, so
        shares of unseen and missing values say nothing unless they are all of the values.

    Examples
    --------
    >>> import splinefm as sf
    >>> encoder = sf.fit_encoder(sf.Schema([sf.Categorical("c")]), {"c": ["a", "b"] * 50})
    >>> watch = Watch(encoder)
    >>> slots = encoder.encode({"c": ["A", "B"] * 50}, watch=watch)
    >>> print(watch.report()[0])
    'c': 100% of the values are unseen, 0% in training, such as 'A', 'B'
    """

    def __init__(self, encoder: Encoder, *, each_once: bool = False) -> None:
        self.encoder, self.each_once = encoder, each_once
        self.odd = [Tally() for _ in encoder.fields]
        self.missing = [Tally() for _ in encoder.fields]
        # The fields of their columns count instead of crosses.
        self._checks = [_check_of(encoder, f) for f in range(len(encoder.fields))]
        self._lock = Lock()  # blocks are encoded by several threads

    def count(self, f: int, column: pa.Array, values: Any, start: Any, weight: Array) -> None:
        """Count the values of a field in a block of rows, as they were read and encoded."""
        check = self._checks[f]
        if check is None:
            return
        odd: Count = (0, len(start), ())
        missing = odd
        if not len(start) or not check.is_usual(values, start):
            odd, missing = check.count(column, values, start, weight, len(self.odd[f].examples) < EXAMPLES)
        with self._lock:
            self.odd[f].add(*odd)
            self.missing[f].add(*missing)

    def count_statistics(self, f: int, statistics: Any) -> None:
        """Count the values of a field from what was collected of a table."""
        check = self._checks[f]
        if check is not None:
            stray = [repr(text) for text in getattr(statistics, "stray", ())]
            self.missing[f].add(statistics.n_missing, statistics.n_rows, stray)
            self.odd[f].add(*check.count_statistics(statistics))

    def report(self) -> list[str]:
        """A sentence for every column and kind of value that is unusual."""
        lines: dict[str, None] = {}
        for f, (item, check) in enumerate(zip(self.encoder.fields, self._checks, strict=True)):
            if check is None:
                continue
            odd, missing = expected_shares(self.encoder, f)
            kind = OUTSIDE if item.is_numerical else "unseen"
            for what, tally, share in ((kind, self.odd[f], odd), ("missing", self.missing[f], missing)):
                if self.each_once and what != OUTSIDE and tally.count < tally.total:
                    continue
                if tally.is_unusual(share):
                    lines[_sentence(item.columns[0], what, tally, share)] = None  # parts of a date miss the same values
        return list(lines)

    def warn(self) -> None:
        """Warn about unusual values, if there are any."""
        lines = self.report()
        if not lines:
            return
        more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
        warnings.warn(
            f"the table differs from the training data: {'; '.join(lines[:_SHOWN])}{more}",
            DriftWarning,
            stacklevel=outside(),
        )


def expected_shares(encoder: Encoder, f: int) -> tuple[float, float]:
    """The shares of unseen or out-of-range values and of missing ones that new rows are expected to have."""
    check = _check_of(encoder, f)
    return (0.0, 0.0) if check is None else check.expected(encoder.feature_counts[f], encoder.n_rows)


Count = tuple[int, int, Sequence[str]]
"""How many values of how many, and some of them."""


@dataclass(frozen=True)
class _Numbers:
    """Unusual numbers: out of the range of training, or missing."""

    item: Numerical
    low: float
    high: float

    @property
    def has_ends(self) -> bool:
        """Whether there are ends to go beyond: time goes on, and a cycle has none."""
        return self.item.part != "trend" and not getattr(self.item.basis, "periodic", False)

    def is_usual(self, x: FloatArray, start: Any) -> bool:
        """Whether the smallest and the largest value, which are cheap to find, leave nothing to count."""
        if not self.has_ends or math.isnan(self.low):
            return not math.isnan(x.sum())
        return bool(x.min() >= self.low and x.max() <= self.high)  # a NaN makes both false

    def count(
        self, column: pa.Array, x: FloatArray, start: Any, weight: Array, wants_examples: bool
    ) -> tuple[Count, Count]:
        """Numbers out of range, and missing ones."""
        is_missing = np.isnan(x)
        n_missing = int(is_missing.sum())
        stray: list[str] = []
        if n_missing and is_text(column.type):
            stray = [repr(text) for text in column.filter(to_arrow(is_missing)).drop_null()[:EXAMPLES].to_pylist()]
        outside = np.flatnonzero(self._is_outside(x))
        if len(outside) and self.item.special:
            token = self.item.find_tokens(x)
            outside = outside if token is None else outside[_not_special(self.item, token[outside])]
        return (len(outside), len(x), _as_text(x[outside[:EXAMPLES]])), (n_missing, len(x), stray)

    def count_statistics(self, statistics: NumericalStatistics) -> Count:
        """Numbers out of range."""
        x, rows = statistics.points()
        outside = self._is_outside(x) & (statistics.n_ordinary > 0)
        return round(float(rows[outside].sum())), statistics.n_rows, _as_text(x[outside][:EXAMPLES])

    def expected(self, counts: FloatArray, n_rows: int) -> tuple[float, float]:
        """Either end is exceeded by one of n + 1 rows."""
        missing = 0.0 if self.item.missing_token is None else counts[self.item.missing_token]
        return 2.0 / (n_rows + 1), missing / n_rows

    def _is_outside(self, x: FloatArray) -> BoolArray:
        return ((x < self.low) | (x > self.high)) & self.has_ends


def _not_special(item: Numerical, token: Int32Array) -> BoolArray:
    """Whether tokens are not of special values; values beyond the range may have the one of missing values."""
    return np.asarray((token == ORDINARY) | (token >= len(item.special)))


@dataclass(frozen=True)
class _Categories:
    """Unusual categories: unseen or missing."""

    item: Categorical | MultiValued

    def is_usual(self, values: Any, start: Any) -> bool:
        """Whether the smallest feature, which is cheap to find, leaves nothing to count."""
        n_tokens = self.item.n_tokens
        return not self.item.holds_lists and n_tokens > 0 and bool(start.min() >= n_tokens)

    def count(self, column: pa.Array, values: Any, start: Any, weight: Array, wants_examples: bool) -> Any:
        """Unseen and missing categories."""
        n, item = len(start), self.item
        first = item.first_unseen
        is_missing = (start[:, 0] == 0) & (weight[:, 0] != 0.0) if first else np.zeros(n, bool)
        if item.unseen == "neutral":  # elements of lists leave no trace
            unseen = (weight == 0.0) & (start == 0) & (not item.holds_lists)
        else:
            unseen = item.is_unseen(start) & (weight != 0.0)
        n_unseen = int(unseen.sum())
        total = int((weight != 0.0).sum() - is_missing.sum()) if item.holds_lists else n
        examples = _quoted(item.unknown(values.names.unique().drop_null())) if n_unseen and wants_examples else []
        return (n_unseen, total, examples), (int(is_missing.sum()), n, ())

    def count_statistics(self, statistics: CategoryStatistics) -> Count:
        """Unseen categories."""
        names, counts = statistics.counts.every()
        unseen = self.item.find(names) < 0
        total = int(counts.sum()) if self.item.holds_lists else statistics.n_rows
        return int(counts[unseen].sum()), total, _quoted(names.filter(to_arrow(unseen)))

    def expected(self, counts: FloatArray, n_rows: int) -> tuple[float, float]:
        """A category is unseen if it has fewer rows than `min_count`.

        For new rows that is, as Good and Turing estimate it, the share of the training rows whose category has at most
        `min_count` rows: it was one less without the row itself.
        """
        item, first, n_tokens = self.item, self.item.first_unseen, self.item.n_tokens
        known = counts[n_tokens:]
        total = max(1.0, counts[first:].sum()) if item.holds_lists else n_rows
        unseen = counts[first:n_tokens].sum()
        if item.unseen == "neutral" and not item.holds_lists:
            unseen = n_rows - counts.sum()  # they have no feature
        return (unseen + known[known <= item.min_count].sum()) / total, (counts[0] / n_rows if first else 0.0)


def _check_of(encoder: Encoder, f: int) -> _Numbers | _Categories | None:
    item = encoder.fields[f]
    if isinstance(item, Cross):
        return None
    return _Numbers(item, *encoder.ranges[f]) if isinstance(item, Numerical) else _Categories(item)


def _quoted(names: pa.LargeStringArray) -> list[str]:
    return [repr(name) for name in names[:EXAMPLES].to_pylist()]


def _as_text(x: FloatArray) -> list[str]:
    return [f"{value:g}" for value in x]


def _sentence(column: str, what: str, tally: Tally, expected: float) -> str:
    now = tally.count / tally.total
    examples = f", such as {', '.join(tally.examples)}" if tally.examples else ""
    return f"{column!r}: {now:.0%} of the values are {what}, {_percent(expected)} in training{examples}"


def _percent(share: float) -> str:
    return f"{share:.0%}" if share >= 0.01 or share < 0.0005 else f"{share:.1%}"


def outside() -> int:
    """The stack level of the caller of the package, whose line a warning should name."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] == "splinefm":
        frame, level = frame.f_back, level + 1
    return level


def watch_scores(score: Callable[[Watch | None], Scores], watch: Watch | bool, encoder: Encoder) -> Scores:
    """Return scores, and warn about unusual values of their table, unless the caller passes a `Watch` to read."""
    watching = watch if isinstance(watch, Watch) else Watch(encoder) if watch else None
    scores = score(watching)
    if watching is not None and watching is not watch:
        watching.warn()
    return scores
