"""Copies: rows that occur several times, as in a bootstrap sample, after oversampling or a faulty join.

If one copy of a row trains a model and another one judges it, knowing rows by heart looks like knowledge. So copies are
held out together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from splinefm.encode.slots import Slots
from splinefm.learn.training import FloatArray

Keys = npt.NDArray[np.uint64]
# Rows with copies that are too few to matter, as a share of all rows.
FEW_COPIES = 0.05
# How much more often than by chance rows with the same values have the same target, if they are copies: 1 is always.
LEAST_AGREEMENT = 0.9
BLOCK = 1 << 16
_ODD = np.uint64(0x9E3779B97F4A7C15)


def row_keys(slots: Slots) -> Keys:
    """Return a number for each row, the same one for rows with the same slots (and, as good as never, for others)."""
    rng = np.random.default_rng(0x636F70)
    of_start, of_weight = (
        rng.integers(2**64, size=part.shape[1], dtype=np.uint64) for part in (slots.start, slots.weight)
    )
    keys = np.empty(len(slots), np.uint64)
    for at in range(0, len(slots), BLOCK):  # the products take more memory than the slots
        rows = slice(at, at + BLOCK)
        bits = np.ascontiguousarray(slots.weight[rows]).view(np.uint32)
        keys[rows] = slots.start[rows].astype(np.uint64) @ of_start + bits.astype(np.uint64) @ of_weight
    return keys


def find_copies(keys: Keys, y: FloatArray) -> npt.NDArray[np.int64] | None:
    """Return the first row that each row is a copy of, or None if hardly any are copies.

    Tables with few distinct values have many equal rows without any copying. There, rows with the same values have
    different targets; copies have the same one.

    Parameters
    ----------
    keys : array
        See `row_keys`.
    y : array
        The targets.

    Examples
    --------
    >>> keys = np.array([7, 8, 9, 7, 9], np.uint64)
    >>> find_copies(keys, np.array([0.5, 0.25, 0.0, 0.5, 0.0])).tolist()
    [0, 1, 2, 0, 2]
    >>> find_copies(keys, np.array([0.5, 0.25, 0.0, 0.75, 1.0])) is None
    True
    """
    if 2 * _count_repeats(keys + np.ascontiguousarray(y).view(np.uint64) * _ODD) < FEW_COPIES * len(y):
        return None  # as for most tables
    _, value, n_values = np.unique(keys, return_inverse=True, return_counts=True)
    _, target, n_targets = np.unique(y, return_inverse=True, return_counts=True)
    both = value.astype(np.int64) * len(n_targets) + target
    _, first, row, n_rows = np.unique(both, return_index=True, return_inverse=True, return_counts=True)
    if np.mean(n_rows[row] > 1) < FEW_COPIES:
        return None
    others = n_values[value] - 1
    agreement = np.mean((n_rows[row] - 1)[others > 0] / others[others > 0])
    by_chance = float(np.square(n_targets / len(y)).sum())
    if agreement - by_chance < LEAST_AGREEMENT * (1.0 - by_chance):
        return None
    return np.asarray(first[row], np.int64)


def _count_repeats(keys: Keys) -> int:
    """Return how many rows have the key of another one before them."""
    ordered = np.sort(keys)
    return int(np.count_nonzero(ordered[1:] == ordered[:-1]))
