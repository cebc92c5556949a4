"""Function bases: u in [0, 1] -> the rows that are active and their weights B_i(u).

The functions that are not zero at a point form *windows* of neighboring rows. A basis has

- `widths`: weights per window,
- `sizes`: rows per block of neighboring functions; they add up to the number of functions,
- `basis(u) -> (start, weight)`: arrays of shape (n, windows) and (n, sum of widths).

Any object with these members is a basis. One that learns from data (`Bins`) has `fit` too. One whose neighboring
functions are alike (splines) has `smoothing(order)`: the weight of Σ |Δ^order v|² in the smoothness penalty, by block.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from splinefm.encode.bases.bins import Bins
from splinefm.encode.bases.functions import Fourier, Polynomial, Powers
from splinefm.encode.bases.splines import BSpline, FloatArray, MultiResolution, Windows, whole


@runtime_checkable
class Basis(Protocol):
    """What the encoder needs of a basis."""

    @property
    def widths(self) -> tuple[int, ...]:
        """Weights per window."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Functions per block of neighbors."""

    def __call__(self, u: FloatArray) -> Windows:
        """First row of each window, and the weights."""


BASES = (BSpline, MultiResolution, Bins, Polynomial, Fourier, Powers)
"""The bases that can be written to a file."""


def supports(basis: Basis) -> FloatArray:
    """Where each function of a basis is not zero, in u; all of [0, 1] unless the basis knows better."""
    known = getattr(basis, "supports", None)
    return known() if known is not None else whole(sum(basis.sizes))


def smoothing(basis: Basis, order: int) -> tuple[float, ...]:
    """The weight of Σ |Δ^order v|² in the smoothness penalty, by block; 0 unless the basis knows better."""
    known = getattr(basis, "smoothing", None)
    return known(order) if known is not None else (0.0,) * len(basis.sizes)
