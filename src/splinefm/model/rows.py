"""What every model does with the rows of a batch, whatever its interactions: columns, loss and slope."""

from __future__ import annotations

from typing import Any

import numpy as np

from splinefm.model.units import merged
from splinefm.model.vectors import column, fetch, number, put

LOGISTIC, SQUARED, POISSON = range(3)


@merged
def set_slope(loss: int, data: Any, row: int, score: float, total_weight: float, work: Any, place: int) -> None:
    """Weighted loss of a row, and its slope by the score over `total_weight`."""
    y, sample_weight = data.y[row], data.sample_weight[row]
    value, prediction = _loss(loss, y, score)
    work.losses[place] = sample_weight * value
    # For all three losses the slope is prediction - y.
    work.slopes[place] = np.float32(sample_weight * (prediction - y) / total_weight)


@merged
def _loss(loss: int, y: float, score: float) -> Any:
    """Loss of one row, and the prediction."""
    if loss == LOGISTIC:
        small = np.exp(-abs(score))
        positive = score if score > 0.0 else 0.0
        return positive + np.log1p(small) - y * score, (1.0 if score >= 0.0 else small) / (1.0 + small)
    if loss == SQUARED:
        return 0.5 * (score - y) ** 2, score
    rate = np.exp(score)
    return rate - y * score, rate


@merged
def fetch_tile(data: Any, begin: int, end: int) -> None:
    """Ask for rows of data that come up soon."""
    for i in range(begin, end):
        row = data.rows[i]
        for at in range(row * data.n_windows, (row + 1) * data.n_windows, 16):
            fetch(data.start, at)
        for at in range(row * data.n_weights, (row + 1) * data.n_weights, 16):
            fetch(data.weight, at)


@merged
def turn(data: Any, first: int, n: int, columns: Any, at: int) -> None:
    """Copy starts and weights of n rows of a batch, from `first` on, to columns, from row `at` on."""
    n_windows, n_weights = columns.n_windows, columns.n_weights
    for i in range(n):
        to, row = column(at + i, 0, n_windows), data.rows[first + i] * n_windows
        for w in range(n_windows):
            put(columns.start, to + 16 * w, number(data.start, row + w))
        to, row = column(at + i, 0, n_weights), data.rows[first + i] * n_weights
        for j in range(n_weights):
            put(columns.weight, to + 16 * j, number(data.weight, row + j))
