"""The error of scores that are computed from stored items: a bound and a measurement."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

from splinefm._arrays import Float32Array, FloatArray
from splinefm._cached import cached_property
from splinefm.encode.slots import Slots
from splinefm.model.split import Side, Split
from splinefm.rank.store import Packed
from splinefm.train.fitted import Fitted

_PROBES = 16
_GRID = 4097  # points at which bases are evaluated
MARGIN = 1.01  # for values between them, and for higher-order rounding errors
ROUNDING = 2.0**-24  # largest relative error of a number in float32
_BLOCK = 65_536  # features that are processed at a time


@dataclass(frozen=True)
class ScoreError:
    """How much scores change because the vectors of items are stored with fewer bits.

    Parameters
    ----------
    bound : float
        Upper bound of the difference from the exact score, for any item and context.
    measured : float
        The largest difference over all items and 16 contexts drawn from the training counts.

    Examples
    --------
    >>> ScoreError(bound=0.02, measured=0.001)
    ScoreError(bound=0.02, measured=0.001)
    """

    bound: float
    measured: float


@dataclass(eq=False)
class Maxima:
    """Maxima over all stored items of the quantities that the bound depends on."""

    shift: FloatArray  # |stored - exact|, for each number of a vector
    size: FloatArray  # |stored|, for each number of a vector
    offset_shift: float = 0.0
    offset_size: float = 0.0
    measured: float = 0.0

    @staticmethod
    def zeros(length: int) -> Maxima:
        """The maxima over no items."""
        return Maxima(np.zeros(length), np.zeros(length))

    def update(self, other: Maxima) -> None:
        """Include the items of other maxima."""
        for item in fields(self):
            setattr(self, item.name, np.maximum(getattr(self, item.name), getattr(other, item.name)))


@dataclass(eq=False)
class ErrorMeter:
    """Measures stored items, and bounds the vectors of contexts."""

    split: Split
    largest: Split  # the same with the absolute values of the parameters between fields, to compute bounds
    probes: FloatArray  # vectors of 16 contexts
    reach: FloatArray  # upper bound of the absolute numbers of any context's vector
    offset_reach: float  # upper bound of the absolute offset of any context, including the bias
    maxima: Maxima = field(init=False)

    def __post_init__(self) -> None:
        self.maxima = Maxima.zeros(self.split.length)

    @classmethod
    def of(cls, fitted: Fitted, split: Split) -> Self:
        """Make a meter for the contexts of a model."""
        probes = split.context_vectors(_draw_units(fitted, split))
        # All formulas are sums of products: with the largest absolute values they give a bound.
        sizes = {name: np.abs(values) for name, values in fitted.params.items() if name.startswith("field_")}
        largest = Split(split.model, {**fitted.params, **sizes}, split.layout, split.items)
        P, linear = _largest_units(fitted, split)
        offset = abs(split.bias) + linear
        if len(split.context):
            offset += float(largest.model.interaction(P, largest.params, split.context_units)[0])
        return cls(split, largest, probes, largest.context_vectors(P)[0], offset)

    def measure(self, items: Side, packed: Packed) -> Maxima:
        """Measure items with exact vectors and offsets; offsets are stored in float32."""
        (exact, offset), stored, rounded = items, packed.decoded, items.scores.astype(np.float32)
        scores = stored.astype(np.float32) @ self.probes.astype(np.float32).T + rounded[:, None]
        gap = exact @ self.probes.T + offset[:, None] - scores
        of_offsets = (_largest_sizes(part) for part in (rounded - offset, offset, gap.ravel()))
        return Maxima(_largest_sizes(stored - exact), _largest_sizes(stored), *map(float, of_offsets))

    @property
    def error(self) -> ScoreError:
        """The error over all stored items."""
        m = self.maxima
        stored = float(self.reach @ m.shift + m.offset_shift)
        # A sum of `length` products: each is rounded once, as is its query, and once more with every addition.
        size = float(self.reach @ m.size + m.offset_size + self.offset_reach)
        return ScoreError(stored + MARGIN * (self.split.length + 6) * ROUNDING * size, float(m.measured))


class EffectErrorMeter(ErrorMeter):
    """Measures items that are stored as their features.

    Features and weights are stored exactly: apart from the offsets of items, only the arithmetic rounds. In the maxima,
    `offset_size` is the sum of the absolute values of all summands of an item, and the arrays by number of a vector are
    empty.
    """

    def __post_init__(self) -> None:
        self.maxima = Maxima.zeros(0)

    @cached_property
    def _probes(self) -> list[FloatArray]:
        return self.split.feature_queries(self.probes)

    @cached_property
    def _multiplier_bounds(self) -> list[FloatArray]:
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
            reach = np.abs(numbers) @ self._multiplier_bounds[i]
            for j in range(features.shape[1]):
                scores += weight[:, j, None] * effects[index[:, j]]
                sizes += np.abs(weight[:, j]) * reach[index[:, j]]
        gap = items.vectors @ self.probes.T + items.scores[:, None] - scores
        nothing, parts = np.zeros(0), (rounded - items.scores, sizes, gap.ravel())
        return Maxima(nothing, nothing, *(float(_largest_sizes(part)) for part in parts))

    @property
    def error(self) -> ScoreError:
        """The error over all stored items."""
        m = self.maxima
        # An effect is a sum of `longest` products, a score a sum of `n_weights` effects. Each summand is rounded once
        # with its factors, and once more with every addition.
        longest = max((len(part) for part in self._multiplier_bounds), default=0)
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


def _largest_sizes(values: FloatArray) -> Any:
    """The largest absolute value in each column, without the slower array of absolute values."""
    return np.maximum(values.max(axis=0, initial=0.0), -values.min(axis=0, initial=0.0))


def _draw_units(fitted: Fitted, split: Split) -> FloatArray:
    """Unit vectors of contexts with one feature per field, drawn by the number of training rows."""
    rng = np.random.default_rng(0)
    layout, factors = fitted.encoder.layout, fitted.params["factors"]
    P = np.zeros((_PROBES, len(split.context_units), factors.shape[1]))
    for f in split.context:
        counts = fitted.encoder.feature_counts[f]
        chance = counts / counts.sum() if counts.sum() > 0 else np.full(len(counts), 1 / len(counts))
        features = layout.feature_ptr[f] + rng.choice(len(counts), _PROBES, p=chance)
        P[:, np.flatnonzero(split.context_units == f)[0]] = factors[features]
    return P


def _largest_units(fitted: Fitted, split: Split) -> tuple[FloatArray, float]:
    """A bound of the unit vectors of any context, shape (1, units, width), and of its linear part."""
    layout, params = fitted.encoder.layout, fitted.params
    P, linear = np.zeros((1, len(split.context_units), params["factors"].shape[1])), 0.0
    for f in split.context:
        reach = fitted.encoder.fields[f].weight_reach()
        first, last = layout.feature_ptr[f : f + 2].tolist()
        vector = _largest(params["factors"], first, last)
        P[0, split.context_units == f] = reach[:, None] * vector
        linear += float(reach.sum() * _largest(params["linear"], first, last))
    return P, linear


def _largest(table: Float32Array, first: int, last: int) -> Any:
    """The largest absolute values over some features."""
    parts = [np.abs(table[at : min(at + _BLOCK, last)]).max(axis=0) for at in range(first, last, _BLOCK)]
    return np.max(parts, axis=0).astype(np.float64)
