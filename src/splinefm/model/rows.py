"""What every model does with the rows of a batch, whatever its interactions: columns, loss and slope."""

from __future__ import annotations

from typing import Any

import numpy as np

from splinefm.model.interactions import inlined
from splinefm.model.vectors import column, fetch, number, put

LOGISTIC, SQUARED, POISSON = range(3)


@inlined
def set_slope(loss: int, data: Any, row: int, score: float, total_weight: float, work: Any, place: int) -> None:
    """Weighted loss of a row, and its slope by the score over `total_weight`."""
    y, sample_weight = data.y[row], data.sample_weight[row]
    value, prediction = _loss(loss, y, score)
    work.losses[place] = sample_weight * value
    # For all three losses the slope is prediction - y.
    work.slopes[place] = np.float32(sample_weight * (prediction - y) / total_weight)


@inlined
def _loss(loss: int, y: float, score: float) -> Any:
    """Loss of one row, and the prediction."""
    if loss == LOGISTIC:
        small = np.exp(-abs(score))
        return max(score, 0.0) + np.log1p(small) - y * score, (1.0 if score >= 0.0 else small) / (1.0 + small)
    if loss == SQUARED:
        return 0.5 * (score - y) ** 2, score
    rate = np.exp(score)
    return rate - y * score, rate


@inlined
def fetch_tile(data: Any, tile: Any) -> None:
    """Ask for rows of data that come up soon."""
    n_windows, n_weights = data.start.shape[1], data.weight.shape[1]
    for i in range(len(tile)):
        for at in range(tile[i] * n_windows, (tile[i] + 1) * n_windows, 16):
            fetch(data.start, at)
        for at in range(tile[i] * n_weights, (tile[i] + 1) * n_weights, 16):
            fetch(data.weight, at)


@inlined
def turn(data: Any, tile: Any, columns: Any, at: int) -> None:
    """Copy starts and weights of a tile to columns, from row `at` on."""
    n_windows, n_weights = data.start.shape[1], data.weight.shape[1]
    for i in range(len(tile)):
        to, row = column(at + i, 0, n_windows), tile[i] * n_windows
        for w in range(n_windows):
            put(columns.start, to + 16 * w, number(data.start, row + w))
        to, row = column(at + i, 0, n_weights), tile[i] * n_weights
        for j in range(n_weights):
            put(columns.weight, to + 16 * j, number(data.weight, row + j))
