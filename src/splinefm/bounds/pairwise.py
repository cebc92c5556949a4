"""The largest sum of functions of one and of two discrete variables: proven bounds by moving weight between them.

A value of every variable is to be chosen, so that Σ_f unary_f[x_f] + Σ_fe pair_fe[x_f, x_e] is as large as possible. To
find the largest sum is hard in general. For any messages m,

    Σ_f max_x (unary_f + Σ_e m_e→f)[x]  +  Σ_fe max_xy (pair_fe[x, y] - m_e→f[x] - m_f→e[y])

is not below it, since the messages cancel for every choice. Each update of the messages of a pair lowers this bound or
leaves it (the dual of the linear relaxation, by blocks of coordinates: Globerson and Jaakkola 2007).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from splinefm._arrays import FloatArray

_MAX_SWEEPS, _SMALLEST_STEP = 40, 1e-3

Pairs = dict[tuple[int, int], FloatArray]
"""For variables f < e, an array of shape (values of f, values of e)."""


class PairwiseBound(NamedTuple):
    """A bound of the largest sum, and what each value of a variable allows."""

    bound: float
    beliefs: list[FloatArray]
    """With value x of variable f, no sum is above bound - max beliefs[f] + beliefs[f][x]."""


def bound_of_pairs(unary: list[FloatArray], pairs: Pairs, gap: float = 0.0) -> PairwiseBound:
    """Bound the largest sum; stop where the bound no longer falls by much more than `gap`.

    Examples
    --------
    >>> unary = [np.array([0.0, 1.0]), np.array([0.5, 0.0])]
    >>> found = bound_of_pairs(unary, {(0, 1): np.array([[0.0, 2.0], [0.0, -3.0]])})
    >>> round(found.bound, 9)  # 0 + 0 + 2
    2.0
    """
    messages = {
        (f, e): (np.zeros(len(unary[f])), np.zeros(len(unary[e])))  # to f, and to e
        for f, e in pairs
    }
    beliefs = [values.astype(np.float64).copy() for values in unary]
    best = _bound(beliefs, pairs, messages)
    kept = [values.copy() for values in beliefs]
    for _ in range(_MAX_SWEEPS):
        for (f, e), table in pairs.items():
            to_f, to_e = messages[f, e]
            rest_f, rest_e = beliefs[f] - to_f, beliefs[e] - to_e
            new_f = 0.5 * ((table + rest_e).max(axis=1) - rest_f)
            new_e = 0.5 * ((table + rest_f[:, None]).max(axis=0) - rest_e)
            messages[f, e] = new_f, new_e
            beliefs[f], beliefs[e] = rest_f + new_f, rest_e + new_e
        found = _bound(beliefs, pairs, messages)
        fell = best - found
        if found < best:
            best, kept = found, [values.copy() for values in beliefs]
        if fell <= max(_SMALLEST_STEP * abs(best), gap):
            break
    return PairwiseBound(best, kept)


def _bound(
    beliefs: list[FloatArray], pairs: Pairs, messages: dict[tuple[int, int], tuple[FloatArray, FloatArray]]
) -> float:
    total = sum(float(values.max()) for values in beliefs)
    for pair, table in pairs.items():
        to_f, to_e = messages[pair]
        total += float((table - to_f[:, None] - to_e).max())
    return total
