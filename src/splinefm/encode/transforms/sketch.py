"""A mergeable, deterministic summary of a column's distribution.

The summary keeps some of the values; for each the number of rows strictly below it and exactly at it.
Between two kept values the rank is interpolated, so any rank is wrong by at most the rows that lie between
neighboring kept values, plus what earlier merges have added. Both are tracked, which makes the stated error
a bound that was computed for this very data, not an asymptotic one. Values that carry many rows (atoms, such
as the zeros of a count) are always kept with their exact number of rows, and as long as the distinct values
fit in, nothing is approximated at all.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from splinefm._arrays import FloatArray
from splinefm._core import summarize as summarize_block

CAPACITY = 4096


@dataclass(frozen=True, eq=False)
class Summary:
    """Sorted distinct values with the rows below and at each of them."""

    value: FloatArray
    below: FloatArray
    at: FloatArray
    total: float
    error: float = 0.0

    @property
    def gap(self) -> float:
        """Most rows that lie between two neighboring kept values."""
        return float(np.max(self.below[1:] - self.below[:-1] - self.at[:-1], initial=0.0))

    def rank(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Rows below x, and rows at x."""
        right = np.searchsorted(self.value, x)
        kept = self.value[np.minimum(right, len(self.value) - 1)] == x
        low = np.maximum(right - 1, 0)
        high = np.minimum(right, len(self.value) - 1)
        # Halved before subtraction: values of both signs near the largest float must not overflow.
        span = self.value[high] / 2 - self.value[low] / 2
        part = np.divide(x / 2 - self.value[low] / 2, span, out=np.zeros_like(x), where=span > 0)
        above_low = self.below[low] + self.at[low]
        between = above_low + part * (self.below[high] - above_low)
        between = np.where(right == 0, 0.0, np.where(right == len(self.value), self.total, between))
        return np.where(kept, self.below[high], between), np.where(kept, self.at[high], 0.0)

    def merge(self, other: Summary) -> Summary:
        """Summary of the rows of both."""
        value = np.union1d(self.value, other.value)
        below, at = self.rank(value)
        other_below, other_at = other.rank(value)
        error = self.error + other.error + max(self.gap, other.gap)
        return Summary(value, below + other_below, at + other_at, self.total + other.total, error)

    def compress(self, capacity: int) -> Summary:
        """The same with at most `capacity` values: evenly spaced ranks, both ends, and all atoms."""
        if len(self.value) <= capacity:
            return self
        n_ranks = capacity // 2 - 2
        middle = self.below + self.at / 2
        spaced = np.searchsorted(middle, np.linspace(0.0, self.total, n_ranks))
        atoms = np.flatnonzero(self.at > self.total / (capacity // 2))
        ends = np.array([0, len(self.value) - 1])
        keep = np.unique(np.concatenate([np.minimum(spaced, ends[1]), atoms, ends]))
        return replace(self, value=self.value[keep], below=self.below[keep], at=self.at[keep])

    def points(self) -> tuple[FloatArray, FloatArray]:
        """Values and the rows that each stands for; the weights sum to the number of rows."""
        between = np.append(self.below[1:], self.total) - self.below - self.at
        half = between / 2
        return self.value, self.at + half + np.concatenate([[0.0], half[:-1]])


def summarize(x: FloatArray, capacity: int = CAPACITY) -> Summary:
    """The summary of finite values; exact if no more than `capacity` are distinct."""
    return Summary(*summarize_block(np.ascontiguousarray(x, np.float64), capacity), total=float(len(x)))


@dataclass
class QuantileSketch:
    """Summaries of growing size, merged like the digits of a binary counter.

    Merging equals first keeps the number of merges that any row goes through at log2 of the number of
    blocks. There is no randomness: the same blocks in the same order give the same sketch.

    Examples
    --------
    >>> sketch = QuantileSketch()
    >>> sketch.update(np.array([3.0, 1.0, 3.0]))
    >>> sketch.summary().points()
    (array([1., 3.]), array([1., 2.]))
    """

    capacity: int = CAPACITY
    levels: list[Summary | None] = field(default_factory=list)

    def update(self, x: FloatArray) -> None:
        """Add the rows of one block."""
        if len(x):
            self._add(summarize(x, self.capacity), 0)

    def merge(self, other: QuantileSketch) -> None:
        """Add the rows of another sketch."""
        for level, summary in enumerate(other.levels):
            if summary is not None:
                self._add(summary, level)

    def summary(self) -> Summary | None:
        """One summary of all rows; None where there are none."""
        parts = [part for part in self.levels if part is not None]
        if not parts:
            return None
        whole = parts[0]
        for part in parts[1:]:
            whole = whole.merge(part)
        return whole.compress(self.capacity)

    def rank_error(self) -> float:
        """Bound on the error of any rank, as a share of the rows."""
        summary = self.summary()
        return 0.0 if summary is None else (summary.error + summary.gap) / summary.total

    def _add(self, summary: Summary, level: int) -> None:
        self.levels.extend([None] * (level + 1 - len(self.levels)))
        present = self.levels[level]
        if present is None:
            self.levels[level] = summary
        else:
            self.levels[level] = None
            self._add(present.merge(summary).compress(self.capacity), level + 1)
