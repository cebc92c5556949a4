"""Which values of a column recur, and how often: it tells quantities from names."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.tables.columns import Lists
from splinefm.encode.transforms.choice import FEW_VALUES as SPREAD_BY_RANK

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
# A value with this share of the rows (zeros, caps, sentinels) would leave a gap in the transform: it gets a feature.
ATOM = 0.1
MOST_ATOMS = 3
# Few values in a wide range, far apart next to the closest two, so that a new row hardly ever has another one: amounts
# that recur exactly. Both the number of values and the share of rows with a known one are estimates for the whole of
# which the table is a sample, so that a larger sample comes to the same conclusion.
MOST_AMOUNTS, GAP, KNOWN, ROWS_PER_AMOUNT = 256, 10.0, 0.9, 4
# Floats hold integers up to 2^53 exactly. Times in nanoseconds are beyond it, but hardly ever as close to each other.
LARGEST_EXACT, TOLD_APART = 2.0**53, 0.9
# More distinct values than this share of all elements of lists: coordinates, such as those of an embedding.
COORDINATES = 0.5


def find_atoms(value: FloatArray, count: IntArray) -> IntArray:
    """Indices of values that are too frequent to be a quantity."""
    atoms = np.flatnonzero(count >= ATOM * count.sum())
    # Heavy values of a coarse grid are not exceptions; the transform spaces them by rank.
    return atoms if len(atoms) <= MOST_ATOMS and len(value) > SPREAD_BY_RANK else atoms[:0]


def are_amounts(value: FloatArray, count: IntArray) -> bool:
    """Whether a column has few distinct numbers off any grid, such as tariffs, each on many rows."""
    if not SPREAD_BY_RANK < len(value) <= MOST_AMOUNTS:
        return False
    gaps = np.diff(value)
    # Without the most frequent one, which may be a zero that stands for "none".
    others = np.delete(count, count.argmax())
    once, twice = int((others == 1).sum()), int((others == 2).sum())
    in_all = len(value) + once * (once - 1) / (2 * (twice + 1))  # Chao's estimate
    known = 1.0 - once / others.sum()  # Good's and Turing's
    recurring = in_all <= MOST_AMOUNTS and known >= KNOWN and others.mean() >= ROWS_PER_AMOUNT
    return bool(recurring and np.median(gaps) >= GAP * gaps.min())


def are_too_large(column: pa.Array, x: FloatArray) -> bool:
    """Whether integers are too large for floats to tell them apart: names, not quantities.

    Parameters
    ----------
    column : array
        The integers, or text of them.
    x : array
        The same as floats.

    Examples
    --------
    >>> column = pa.array([2**60, 2**60 + 1])
    >>> are_too_large(column, np.array([2.0**60, 2.0**60]))
    True
    """
    known = x[np.isfinite(x)]
    if not len(known) or np.abs(known).max() <= LARGEST_EXACT:
        return False
    return len(np.unique(known)) < TOLD_APART * len(column.drop_null().unique())


def are_coordinates(kind: pa.DataType, lists: Lists) -> bool:
    """Whether lists hold floats that mostly do not recur: such as an embedding, whose elements are no categories."""
    return bool(pa.types.is_floating(kind) and len(lists.names.unique()) > COORDINATES * len(lists.names))
