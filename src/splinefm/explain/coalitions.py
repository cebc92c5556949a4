"""Small games by enumeration: what a term of the score is worth to every subset of the few players that it has.

A coalition of n players is a number from 0 to 2^n - 1 whose bit i says whether player i belongs to it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]


@lru_cache
def shapley_matrix(n: int) -> FloatArray:
    """Shapley values from the worth of every coalition: shape (players, coalitions).

    Examples
    --------
    >>> shapley_matrix(2) @ [0.0, 1.0, 2.0, 5.0]
    array([2., 3.])
    """
    matrix = np.zeros((n, 1 << n))
    for player in range(n):
        for coalition in range(1 << n):
            if not coalition >> player & 1:
                weight = 1.0 / (n * math.comb(n - 1, coalition.bit_count()))
                matrix[player, coalition] -= weight
                matrix[player, coalition | 1 << player] += weight
    return matrix


@lru_cache
def effect_matrix(n: int) -> FloatArray:
    """Effects from the worth of every coalition: what each adds beyond the effects of its subsets.

    The worth of a coalition is the sum of the effects of all its subsets.

    Examples
    --------
    >>> effect_matrix(2) @ [1.0, 2.0, 3.0, 10.0]
    array([1., 1., 2., 6.])
    """
    matrix = np.ones((1, 1))
    for _ in range(n):
        matrix = np.block([[matrix, np.zeros_like(matrix)], [-matrix, matrix]])
    return matrix


@lru_cache
def join(*players: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[IndexArray, ...]]:
    """All players of several fields, and for every coalition of them the coalition of each field's players.

    Examples
    --------
    >>> together, (one, other) = join((0, 2), (2,))
    >>> together, one.tolist(), other.tolist()
    ((0, 2), [0, 1, 2, 3], [0, 0, 1, 1])
    """
    together = tuple(sorted({player for each in players for player in each}))
    coalitions = np.arange(1 << len(together))
    of_each = []
    for each in players:
        bits = [(coalitions >> together.index(player) & 1) << i for i, player in enumerate(each)]
        of_each.append(np.sum(bits, axis=0))
    return together, tuple(of_each)


def mixed(n: int) -> Iterator[int]:
    """Coalitions of n players that are neither empty nor everyone."""
    return iter(range(1, (1 << n) - 1))
