"""Copies: rows that occur several times, as in a bootstrap sample, after oversampling or a faulty join.

If one copy of a row trains a model and another one judges it, knowing rows by heart looks like knowledge. So copies are
held out together.

Rows can also be equal because a table has few values: all combinations of a weekday and a city, say. A model should
know these, and holding out all rows of a city would judge it by what it cannot know. `find_copies` tells the two apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from splinefm.encode.slots import Slots
from splinefm.learn.training import FloatArray

Keys = npt.NDArray[np.uint64]
# Rows with copies that are too few to matter, as a share of all rows, and tables that are too small to split otherwise.
FEW_COPIES, FEWEST_DISTINCT = 0.05, 100
# A row that occurs more often than this is one of few values.
MOST_COPIES = 32
# How much more often than by chance rows with the same values have the same target, if they are copies: 1 is always.
LEAST_AGREEMENT = 0.9
# How many times as many pairs of equal rows there are as by chance, and the share of distinct values in a numerical
# column that is too fine for any chance.
MORE_THAN_CHANCE, FINE = 10.0, 0.25
BLOCK = 1 << 22  # numbers that are converted at a time
_ODD = np.uint64(0x9E3779B97F4A7C15)


def row_keys(slots: Slots) -> Keys:
    """Return a number for each row, the same one for rows with the same slots (and, as good as never, for others)."""
    return _hashed(slots.start, slots.weight)


def field_keys(slots: Slots, f: int) -> Keys:
    """Return a number for each row, the same one for rows with the same value of a field."""
    first, last = slots.layout.window_ptr[f : f + 2]
    weights = slice(*slots.layout.weight_ptr[[first, last]])
    return _hashed(slots.start[:, first:last], slots.weight[:, weights])


def _hashed(start: npt.NDArray[np.int32], weight: npt.NDArray[np.float32]) -> Keys:
    rng = np.random.default_rng(0x636F70)
    of_start, of_weight = (rng.integers(2**64, size=part.shape[1], dtype=np.uint64) for part in (start, weight))
    keys = np.empty(len(start), np.uint64)
    n_rows = max(1, BLOCK // max(1, start.shape[1] + weight.shape[1]))  # of twice the size of the slots
    for at in range(0, len(start), n_rows):
        rows = slice(at, at + n_rows)
        bits = np.ascontiguousarray(weight[rows]).view(np.uint32)
        keys[rows] = start[rows].astype(np.uint64) @ of_start + bits.astype(np.uint64) @ of_weight
    return keys


def chance_of_equal_rows(parts: Sequence[Slots], columns: Iterable[Sequence[int]]) -> float:
    """Return how likely two rows are equal if columns are independent, or 0 if a numerical column is too fine for that.

    `columns` has the numbers of the fields that read each column, without crosses.
    """
    n_rows, chance = sum(map(len, parts)), 1.0
    for fields in columns:
        keys = np.concatenate([sum(field_keys(slots, f) for f in fields) for slots in parts])
        count = np.unique(keys, return_counts=True)[1]
        is_number = any(max(parts[0].layout.fields[f].widths) > 1 for f in fields)
        if is_number and len(count) >= FINE * n_rows:
            return 0.0
        chance *= float(np.square(count / n_rows).sum())
    return chance


def find_copies(keys: Keys, y: FloatArray, chance: Callable[[], float]) -> npt.NDArray[np.int64] | None:
    """Return the first row that each row is a copy of, or None if hardly any are copies.

    Copies have the same target, while other equal rows have different ones; there are more of them than the values of
    the columns explain; and a row has only some.

    Parameters
    ----------
    keys : array
        See `row_keys`.
    y : array
        The targets.
    chance : callable
        See `chance_of_equal_rows`; only called for tables that may have copies.

    Examples
    --------
    >>> keys, y = np.tile(np.arange(200, dtype=np.uint64), 2), np.tile(np.linspace(0.0, 1.0, 200), 2)
    >>> find_copies(keys, y, lambda: 0.0).tolist() == [*range(200), *range(200)]
    True
    >>> find_copies(keys, np.linspace(0.0, 1.0, 400), lambda: 0.0) is None
    True
    """
    if 2 * _count_repeats(keys + np.ascontiguousarray(y).view(np.uint64) * _ODD) < FEW_COPIES * len(y):
        return None  # as for most tables
    _, value, n_values = np.unique(keys, return_inverse=True, return_counts=True)
    _, target, n_targets = np.unique(y, return_inverse=True, return_counts=True)
    both = value.astype(np.int64) * len(n_targets) + target
    _, first, row, n_rows = np.unique(both, return_index=True, return_inverse=True, return_counts=True)
    copied = (n_rows[row] > 1) & (n_values[value] <= MOST_COPIES)
    few = np.mean(copied) < FEW_COPIES or len(n_values) < FEWEST_DISTINCT or len(n_targets) == 1
    if few or not _agree(n_rows[row] - 1, n_values[value] - 1, n_targets):
        return None
    equal = n_values[n_values <= MOST_COPIES]
    pairs = 0.5 * float(np.sum(equal * (equal - 1.0)))
    if pairs < MORE_THAN_CHANCE * chance() * 0.5 * len(y) * (len(y) - 1.0):
        return None
    return np.where(copied, first[row], np.arange(len(y)))


def _agree(same: npt.NDArray[np.int64], others: npt.NDArray[np.int64], n_targets: npt.NDArray[np.int64]) -> bool:
    """Return whether rows with the same values have the same target; `same` of the `others` of a row have its own."""
    compared = (others > 0) & (others < MOST_COPIES)
    by_chance = float(np.square(n_targets / n_targets.sum()).sum())
    agreement = float(np.mean(same[compared] / others[compared]))
    return agreement - by_chance >= LEAST_AGREEMENT * (1.0 - by_chance)


def _count_repeats(keys: Keys) -> int:
    """Return how many rows have the key of another one before them."""
    ordered = np.sort(keys)
    return int(np.count_nonzero(ordered[1:] == ordered[:-1]))
