"""Linear maps as arrays, for loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm.model.towers import Block


class MapArrays(NamedTuple):
    """A linear map; see `cpp/rank/linear_map.hpp`."""

    blocks: npt.NDArray[np.int64]
    """Shape (blocks, 5): to, from, numbers that it makes, numbers that a matrix takes or 0, first weight."""
    weights: npt.NDArray[np.float64]
    length: int
    """Numbers that the map makes."""


def map_arrays(blocks: Sequence[Block], length: int, width: int, columns: npt.NDArray[np.intp]) -> MapArrays:
    """Return a map whose rows of inputs are `width` apart, with the numbers of a row at `columns`.

    Examples
    --------
    >>> blocks, weights, length = map_arrays([Block(0, 1, 0, 2, 3.0)], 2, 8, np.arange(2))
    >>> blocks.tolist(), weights.tolist()
    ([[0, 8, 2, 0, 0]], [3.0])
    """
    table, weights, at = [], [np.zeros(0)], 0
    for to, row, column, n, weight in blocks:
        values = np.asarray(weight, np.float64)
        table.append((to, row * width + columns[column], n, len(values) if values.ndim else 0, at))
        weights.append(values.ravel())
        at += values.size
    return MapArrays(np.array(table, np.int64).reshape(-1, 5), np.concatenate(weights), length)
