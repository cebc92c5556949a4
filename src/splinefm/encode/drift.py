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

from splinefm._arrays import Array, FloatArray
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.multivalued import MultiValued
from splinefm.encode.fields.numerical import EXAMPLES, ORDINARY, Numerical
from splinefm.encode.tables.arrow import to_arrow
from splinefm.encode.tables.columns import Categories, Lists, is_text

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
        self._lock = Lock()  # blocks are encoded by several threads

    def see(self, f: int, column: pa.Array, values: Any, start: Any, weight: Array) -> None:
        """Count the values of a field in a block of rows, as they were read and encoded."""
        item = self.encoder.fields[f]
        if isinstance(item, Cross):  # the fields of its columns count
            return
        if self._is_usual(f, item, values, start):
            odd: Any = (0, len(start))
            missing: Any = odd
        elif isinstance(item, Numerical):
            odd, missing = self._numbers(f, item, column, values)
        else:
            odd, missing = _names(item, values, start, weight, len(self.odd[f].examples) < EXAMPLES)
        with self._lock:
            self.odd[f].add(*odd)
            self.missing[f].add(*missing)

    def _is_usual(self, f: int, item: Any, values: Any, start: Any) -> bool:
        """Whether the smallest and the largest value, which are cheap to find, leave nothing to count."""
        if not len(start) or isinstance(item, MultiValued):
            return False
        if isinstance(item, Categorical):
            return item.n_tokens > 0 and bool(start.min() >= item.n_tokens)
        low, high = self.encoder.ranges[f]
        if not _ends(item) or math.isnan(low):
            return not math.isnan(values.sum())
        return bool(values.min() >= low and values.max() <= high)  # a NaN makes both false

    def see_statistics(self, f: int, statistics: Any) -> None:
        """Count the values of a field from what was collected of a table."""
        item: Any = self.encoder.fields[f]
        if isinstance(item, Cross):
            return
        self.missing[f].add(
            statistics.n_missing, statistics.n_rows, [repr(text) for text in getattr(statistics, "stray", ())]
        )
        if isinstance(item, Numerical):
            low, high = self.encoder.ranges[f]
            x, rows = statistics.points()
            outside = (x < low) | (x > high) if _ends(item) and statistics.n_ordinary else np.zeros(len(x), bool)
            far = [f"{value:g}" for value in x[outside][:EXAMPLES]]
            self.odd[f].add(round(float(rows[outside].sum())), statistics.n_rows, far)
            return
        elements = item.elements
        names, counts = statistics.counts.every()
        unseen = elements.find(names) < 0
        examples = [repr(name) for name in names.filter(to_arrow(unseen))[:EXAMPLES].to_pylist()]
        total = int(counts.sum()) if isinstance(item, MultiValued) else statistics.n_rows
        self.odd[f].add(int(counts[unseen].sum()), total, examples)

    def _numbers(self, f: int, item: Numerical, column: pa.Array, x: FloatArray) -> tuple[Any, Any]:
        low, high = self.encoder.ranges[f]
        is_missing = np.isnan(x)
        n_missing = int(is_missing.sum())
        stray: list[str] = []
        if n_missing and is_text(column.type):
            stray = [repr(text) for text in column.filter(to_arrow(is_missing)).drop_null()[:EXAMPLES].to_pylist()]
        outside = np.flatnonzero((x < low) | (x > high)) if _ends(item) else np.zeros(0, np.int64)
        if len(outside) and item.special:
            token = item.tokens(x)
            outside = outside if token is None else outside[token[outside] == ORDINARY]
        far = [f"{value:g}" for value in x[outside[:EXAMPLES]]]
        return (len(outside), len(x), far), (n_missing, len(x), stray)

    def report(self) -> list[str]:
        """A sentence for every column and kind of value that is unusual."""
        lines: dict[str, None] = {}
        for f, item in enumerate(self.encoder.fields):
            if isinstance(item, Cross):
                continue
            odd, missing = expected_shares(self.encoder, f)
            kind = OUTSIDE if isinstance(item, Numerical) else "unseen"
            for what, tally, share in ((kind, self.odd[f], odd), ("missing", self.missing[f], missing)):
                if self.each_once and what != OUTSIDE and tally.count < tally.total:
                    continue
                if tally.is_unusual(share):
                    lines[_sentence(item.column, what, tally, share)] = None  # parts of a date miss the same values
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
    """The shares of unseen or out-of-range values and of missing ones that new rows are expected to have.

    A category is unseen if it has fewer rows than `min_count`. For new rows that is, as Good and Turing estimate it,
    the share of the training rows whose category has at most `min_count` rows: it was one less without the row itself.
    """
    item, counts, n = encoder.fields[f], encoder.feature_counts[f], encoder.n_rows
    if isinstance(item, Cross):
        return 0.0, 0.0
    if isinstance(item, Numerical):
        missing = 0.0 if item.missing_token is None else counts[item.missing_token]
        return 2.0 / (n + 1), missing / n  # either end is exceeded by one of n + 1
    elements = item.elements
    first = elements.first_unseen
    known = counts[elements.n_tokens :]
    total = max(1.0, counts[first:].sum()) if isinstance(item, MultiValued) else n
    unseen = counts[first : elements.n_tokens].sum()
    if item.unseen == "neutral" and not isinstance(item, MultiValued):
        unseen = n - counts.sum()  # they have no feature
    return (unseen + known[known <= item.min_count].sum()) / total, (counts[0] / n if first else 0.0)


def _ends(item: Numerical) -> bool:
    """Whether a field has ends to go beyond: time goes on, and a cycle has none."""
    return item.part != "trend" and not getattr(item.basis, "periodic", False)


def _names(
    item: Categorical | MultiValued, values: Any, start: Any, weight: Array, wants_examples: bool
) -> tuple[Any, Any]:
    """Count and examples of unseen and of missing categories."""
    n = len(start)
    elements = item.elements
    first = elements.first_unseen
    is_missing = (start[:, 0] == 0) & (weight[:, 0] != 0.0) if first else np.zeros(n, bool)
    if item.unseen == "neutral":
        unseen = (weight == 0.0) & (start == 0) if isinstance(item, Categorical) else np.zeros_like(start, bool)
    else:
        unseen = (start >= first) & (start < elements.n_tokens) & (weight != 0.0)
    n_unseen = int(unseen.sum())
    total = int((weight != 0.0).sum() - is_missing.sum()) if isinstance(item, MultiValued) else n
    examples = _examples(elements, values) if n_unseen and wants_examples else []
    return (n_unseen, total, examples), (int(is_missing.sum()), n, ())


def _examples(item: Categorical, values: Categories | Lists) -> list[str]:
    """Some unseen names of a block."""
    names = values.names.unique().drop_null()
    unseen = item.find(names) < 0
    return [repr(name) for name in names.filter(to_arrow(unseen))[:EXAMPLES].to_pylist()]


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
    """Return scores, and warn about unusual values of their table; whoever passes a `Watch` reads it instead."""
    watching = watch if isinstance(watch, Watch) else Watch(encoder) if watch else None
    scores = score(watching)
    if watching is not None and watching is not watch:
        watching.warn()
    return scores
