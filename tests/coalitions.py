"""The slow way to explain: the worth of every coalition, from scores by the formula."""

import itertools
import math

import numpy as np

from splinefm.model.family.formula import formula_scores


def scores(fitted, table):
    """By the formula, in float64: not by the kernels that are tested."""
    return formula_scores(fitted.model, fitted.params, fitted.encoder.encode(table))


def worths(fitted, row, background):
    """The mean score of the background with the columns of every coalition taken from a table of one row."""
    names = tuple(row)
    n = len(background[names[0]])
    every = [c for size in range(len(names) + 1) for c in itertools.combinations(names, size)]
    mixed = {
        name: [value for c in every for value in (list(row[name]) * n if name in c else background[name])]
        for name in names
    }
    return dict(zip(every, scores(fitted, mixed).reshape(len(every), n).mean(axis=1), strict=True))


def brute_force(fitted, row, background):
    """Shapley values of one row, with its columns as players, from the worth of every coalition."""
    names, worth = tuple(row), worths(fitted, row, background)
    values = []
    for name in names:
        value = 0.0
        for coalition, before in worth.items():
            if name not in coalition:
                after = worth[tuple(other for other in names if other in coalition or other == name)]
                value += (after - before) / (len(names) * math.comb(len(names) - 1, len(coalition)))
        values.append(value)
    return np.array(values)
