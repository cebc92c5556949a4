"""What the cells of columns explain: a slow formula, any number of threads, wrong input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splinefm import _core


def gain(levels, residual, fold, n_folds, shrinkage):
    """The formula, cell by cell."""
    total = 0.0
    for own in range(n_folds):
        left = residual.copy()
        for cell, n in levels:
            learned = [left[(cell == i) & (fold != own)] for i in range(n)]
            left -= np.array([rows.sum() / (len(rows) + shrinkage) for rows in learned])[cell]
        total += (residual[fold == own] ** 2).sum() - (left[fold == own] ** 2).sum()
    return total


def pair_levels(columns, a, b):
    """Cells of a pair of columns, without levels of as many cells as the one before."""
    if b < 0:
        return columns[a]
    found, before = [], 0
    for (first, n), (second, m) in zip(columns[a], columns[b], strict=True):
        if n * m != before:
            found.append((first * m + second, n * m))
        before = n * m
    return found


def arrays_of(columns):
    cells = np.array([[cell for cell, _ in levels] for levels in columns], np.int32)
    return cells, np.array([[n for _, n in levels] for levels in columns], np.int64)


@given(
    seed=st.integers(0, 2**32),
    sizes=st.lists(st.lists(st.integers(1, 6), min_size=2, max_size=2), min_size=2, max_size=4),
    n=st.integers(1, 40),
    n_folds=st.integers(2, 5),
)
def test_gains_are_those_of_the_formula(seed, sizes, n, n_folds):
    rng = np.random.default_rng(seed)
    columns = [[(rng.integers(0, size, n), size) for size in of_column] for of_column in sizes]
    residual, fold = rng.normal(size=n), rng.integers(0, n_folds, n)
    pairs = [(a, b) for a in range(len(columns)) for b in range(-1, len(columns))]
    expected = [gain(pair_levels(columns, a, b), residual, fold, n_folds, 3.0) for a, b in pairs]
    for threads in (1, 3):
        found = _core.cell_gains(
            *arrays_of(columns),
            np.array(pairs),
            residual,
            fold.astype(np.int32),
            n_folds=n_folds,
            shrinkage=3.0,
            threads=threads,
        )
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_no_pairs_have_no_gains():
    cells, sizes = np.zeros((1, 1, 3), np.int32), np.ones((1, 1), np.int64)
    none = np.zeros((0, 2), np.int64)
    given = cells, sizes, none, np.ones(3), np.zeros(3, np.int32)
    assert len(_core.cell_gains(*given, n_folds=2, shrinkage=1.0, threads=2)) == 0


RIGHT = {
    "cells": np.array([[[0, 1, 1]], [[0, 0, 2]]], np.int32),
    "sizes": np.array([[2], [3]]),
    "pairs": np.array([[0, 1]]),
    "residual": np.ones(3),
    "fold": np.array([0, 1, 1], np.int32),
    "n_folds": 2,
    "shrinkage": 60.0,
    "threads": 1,
}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"cells": np.array([[[0, 1, 2]], [[0, 0, 2]]], np.int32)}, "below their number"),
        ({"cells": np.array([[[0, -1, 1]], [[0, 0, 2]]], np.int32)}, "below their number"),
        ({"sizes": np.array([[2], [0]])}, "at least 1"),
        ({"sizes": np.array([[2], [1 << 40]])}, "not too large"),
        ({"sizes": np.array([[1 << 20], [1 << 20]])}, "too many cells"),
        ({"sizes": np.array([[2, 3]])}, "every level"),
        ({"pairs": np.array([[0, 2]])}, "of columns"),
        ({"pairs": np.array([[-1, 0]])}, "of columns"),
        ({"pairs": np.array([[0, 1, 1]])}, "two columns"),
        ({"residual": np.ones(2)}, "per row"),
        ({"fold": np.array([0, 1], np.int32)}, "per row"),
        ({"fold": np.array([0, 1, 2], np.int32)}, "fold"),
        ({"fold": np.array([0, -1, 1], np.int32)}, "fold"),
        ({"n_folds": 1}, "folds"),
        ({"n_folds": 1000}, "folds"),
        ({"shrinkage": 0.0}, "shrinkage"),
        ({"shrinkage": float("nan")}, "shrinkage"),
        ({"threads": 0}, "threads"),
    ],
)
def test_what_does_not_fit_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        _core.cell_gains(**{**RIGHT, **wrong})
