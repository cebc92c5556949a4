"""The error of scores that are sums of effects: a bound and a measurement."""

from __future__ import annotations

from typing import Any

import numpy as np

from splinefm._cached import cached_property
from splinefm.encode.slots import Slots
from splinefm.model.split import Side
from splinefm.rank.error import MARGIN, ROUNDING, FloatArray, Maxima, Meter, ScoreError, largest_sizes


class EffectMeter(Meter):
    """Measures items that are stored as their features.

    Features and weights are stored exactly: apart from the offsets of items, only the arithmetic rounds. In the maxima,
    `offset_size` is the sum of the absolute values of all summands of an item, and the arrays by number of a vector are
    empty.
    """

    def __post_init__(self) -> None:
        self.maxima = Maxima.none(0)

    @cached_property
    def _probes(self) -> list[FloatArray]:
        return self.split.feature_queries(self.probes)

    @cached_property
    def _reaches(self) -> list[FloatArray]:
        """Upper bounds of the numbers that a feature is multiplied with."""
        return [part[0] for part in self.largest.feature_queries(self.reach[None])]

    def measure(self, items: Side, packed: Slots) -> Maxima:  # type: ignore[override]  # each form has its own
        """Measure items with exact vectors and offsets; offsets are stored in float32."""
        rounded = items.scores.astype(np.float32)
        scores, sizes = np.repeat(rounded[:, None], len(self.probes), axis=1), np.abs(items.scores)
        for i, f in enumerate(self.split.items):
            features, weight = _features_of(packed, i)
            known, index = np.unique(features, return_inverse=True)
            index = index.reshape(features.shape)
            numbers = self.split.params["factors"][known][:, self.split.feature_columns(f)]
            effects = numbers @ self._probes[i].T.astype(np.float32)
            reach = np.abs(numbers) @ self._reaches[i]
            for j in range(features.shape[1]):
                scores += weight[:, j, None] * effects[index[:, j]]
                sizes += np.abs(weight[:, j]) * reach[index[:, j]]
        gap = items.vectors @ self.probes.T + items.scores[:, None] - scores
        nothing, parts = np.zeros(0), (rounded - items.scores, sizes, gap.ravel())
        return Maxima(nothing, nothing, *(float(largest_sizes(part)) for part in parts))

    @property
    def error(self) -> ScoreError:
        """The error over all stored items."""
        m = self.maxima
        # An effect is a sum of `longest` products, a score a sum of `n_weights` effects. Each summand is rounded once
        # with its factors, and once more with every addition.
        longest = max((len(part) for part in self._reaches), default=0)
        n_weights = sum(sum(self.split.layout.fields[f].widths) for f in self.split.items)
        roundings = MARGIN * (longest + n_weights + 8) * ROUNDING
        return ScoreError(float(m.offset_shift + roundings * (m.offset_size + self.offset_reach)), float(m.measured))


def _features_of(slots: Slots, i: int) -> tuple[Any, Any]:
    """Features and weights of field i."""
    windows = slice(*slots.layout.window_ptr[i : i + 2])
    weights = slice(slots.layout.weight_ptr[windows.start], slots.layout.weight_ptr[windows.stop])
    width = np.diff(slots.layout.weight_ptr)[windows]
    inside = np.arange(width.sum()) - np.repeat(np.cumsum(width) - width, width)
    return np.repeat(slots.start[:, windows], width, axis=1) + inside, slots.weight[:, weights]
