"""How far scores from stored vectors can be, and are, from the exact ones."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from splinefm.encode.fields.multivalued import MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Field
from splinefm.learn.fitted import Fitted
from splinefm.model.split import Side, Split
from splinefm.rank.store import Packed

FloatArray = npt.NDArray[np.float64]

_PROBES = 16
_GRID = 4097  # points at which bases are looked at
MARGIN = 1.01  # for what lies between them, and for roundings of roundings
ROUNDING = 2.0**-24  # largest relative error of a number in float32
_BLOCK = 65_536  # features that are looked at at a time


@dataclass(frozen=True)
class ScoreError:
    """How much storing the vectors of items in few bits changes scores.

    Parameters
    ----------
    bound : float
        No score of any item and context differs by more from the exact one.
    measured : float
        The largest difference over all items and 16 contexts that were drawn from the training counts.

    Examples
    --------
    >>> ScoreError(bound=0.02, measured=0.001)
    ScoreError(bound=0.02, measured=0.001)
    """

    bound: float
    measured: float


@dataclass(eq=False)
class Maxima:
    """The largest of everything that the bound is made of, over all items that were stored."""

    shift: FloatArray  # |stored - exact|, for each number of a vector
    size: FloatArray  # |stored|, for each number of a vector
    own_shift: float = 0.0
    own_size: float = 0.0
    measured: float = 0.0

    @staticmethod
    def none(length: int) -> Maxima:
        """Of no item."""
        return Maxima(np.zeros(length), np.zeros(length))

    def update(self, other: Maxima) -> None:
        """Those of the items of both."""
        for item in fields(self):
            setattr(self, item.name, np.maximum(getattr(self, item.name), getattr(other, item.name)))


@dataclass(eq=False)
class Meter:
    """Measures items as they are stored, and knows how large the vector of a context can be.

    Parameters
    ----------
    split : Split
        The model.
    largest : Split
        The same with parameters between fields at their sizes: what it makes of sizes is a bound.
    probes : array of shape (16, length)
        Vectors of contexts.
    reach : array of shape (length,)
        No number of the vector of any context is larger.
    own_reach : float
        No own part of any context is larger, the bias included.
    """

    split: Split
    largest: Split
    probes: FloatArray
    reach: FloatArray
    own_reach: float
    maxima: Maxima = field(init=False)

    def __post_init__(self) -> None:
        self.maxima = Maxima.none(self.split.length)

    @classmethod
    def of(cls, fitted: Fitted, split: Split) -> Self:
        """For the contexts of a model."""
        probes = split.context_vectors(_draw_units(fitted, split))
        # All formulas are sums of products: with everything at its largest size they give a bound.
        sizes = {name: np.abs(values) for name, values in fitted.params.items() if name.startswith("field_")}
        largest = Split(split.model, {**fitted.params, **sizes}, split.layout, split.items)
        P, linear = _largest_units(fitted, split)
        own = abs(split.bias) + linear
        if len(split.context):
            own += float(largest.model.interaction(P, largest.params, split.context_units)[0])
        return cls(split, largest, probes, largest.context_vectors(P)[0], own)

    def measure(self, items: Side, packed: Packed) -> Maxima:
        """Of items with exact vectors and own parts; own parts are stored in float32."""
        (exact, own), stored, rounded = items, packed.meaning, items.own.astype(np.float32)
        scores = stored.astype(np.float32) @ self.probes.astype(np.float32).T + rounded[:, None]
        gap = exact @ self.probes.T + own[:, None] - scores
        own_parts = (largest_sizes(part) for part in (rounded - own, own, gap.ravel()))
        return Maxima(largest_sizes(stored - exact), largest_sizes(stored), *map(float, own_parts))

    @property
    def error(self) -> ScoreError:
        """Of all items that were stored."""
        m = self.maxima
        stored = float(self.reach @ m.shift + m.own_shift)
        # A sum of `length` products: each is rounded once, as is its query, and then once with every addition.
        size = float(self.reach @ m.size + m.own_size + self.own_reach)
        return ScoreError(stored + MARGIN * (self.split.length + 6) * ROUNDING * size, float(m.measured))


def largest_sizes(values: FloatArray) -> Any:
    """The largest size in each column; without an array of sizes, which would take longer."""
    return np.maximum(values.max(axis=0, initial=0.0), -values.min(axis=0, initial=0.0))


def _draw_units(fitted: Fitted, split: Split) -> FloatArray:
    """Unit vectors of contexts whose fields have a feature each, drawn by the number of training rows."""
    rng = np.random.default_rng(0)
    layout, factors = fitted.encoder.layout, fitted.params["factors"]
    P = np.zeros((_PROBES, len(split.context_units), factors.shape[1]))
    for f in split.context:
        counts = fitted.encoder.feature_counts[f]
        chance = counts / counts.sum() if counts.sum() > 0 else np.full(len(counts), 1 / len(counts))
        rows = layout.feature_ptr[f] + rng.choice(len(counts), _PROBES, p=chance)
        P[:, np.flatnonzero(split.context_units == f)[0]] = factors[rows]
    return P


def _largest_units(fitted: Fitted, split: Split) -> tuple[FloatArray, float]:
    """A bound on the unit vectors of any context, shape (1, units, width), and on its linear part."""
    layout, params = fitted.encoder.layout, fitted.params
    P, linear = np.zeros((1, len(split.context_units), params["factors"].shape[1])), 0.0
    for f in split.context:
        reach = weight_reach(fitted.encoder.fields[f])
        first, last = layout.feature_ptr[f : f + 2].tolist()
        vector = _largest(params["factors"], first, last)
        P[0, split.context_units == f] = reach[:, None] * vector
        linear += float(reach.sum() * _largest(params["linear"], first, last))
    return P, linear


def _largest(table: npt.NDArray[np.float32], first: int, last: int) -> Any:
    """The largest sizes in rows of a table."""
    parts = [np.abs(table[at : min(at + _BLOCK, last)]).max(axis=0) for at in range(first, last, _BLOCK)]
    return np.max(parts, axis=0).astype(np.float64)


def weight_reach(item: Field) -> FloatArray:
    """The largest sum of the sizes of the weights of each unit of a field; bases are looked at on a fine grid."""
    n_units = max(item.layout.units) + 1
    if isinstance(item, MultiValued) and item.reduction == "sum":
        return np.array([float(len(item.layout.widths))])
    if not isinstance(item, Numerical):
        return np.ones(n_units)
    _, weight = item.basis(np.linspace(0.0, 1.0, _GRID))
    reach = (np.abs(weight).sum(axis=1, keepdims=True) if n_units == 1 else np.abs(weight)).max(axis=0)
    return np.asarray(MARGIN * np.maximum(reach, 1.0))  # tokens have the weight 1
