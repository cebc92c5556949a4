"""Function bases: u in [0, 1] -> the active functions and their weights B_i(u).

The functions that are not zero at a point form *windows* of neighboring features. A basis has

- `widths`: weights per window,
- `sizes`: functions per block of neighbors; they add up to the number of functions,
- `basis(u) -> (start, weight)`: arrays of shape (n, windows) and (n, sum of widths).

Any object with these members is a basis. A basis that learns from data (`Bins`) also has `fit`. A basis whose
neighboring functions are alike (splines) also has `smoothing(order)`: the weight of Σ |Δ^order v|² in the smoothness
penalty, by block.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

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
        """The first function of each window, and the weights."""


BASES = (BSpline, MultiResolution, Bins, Polynomial, Fourier, Powers)
"""The bases that can be written to a file."""


def step_cuts(basis: Basis) -> FloatArray | None:
    """The inner borders in u of a basis with one indicator function per interval; None for any other basis.

    Examples
    --------
    >>> step_cuts(Bins(4)), step_cuts(BSpline(segments=2, degree=0)), step_cuts(BSpline(segments=2))
    (array([0.25, 0.5 , 0.75]), array([0.5]), None)
    """
    # A subclass may compute something else.
    if type(basis) is Bins and basis.cuts is not None:
        return np.array(basis.cuts, np.float64)
    if type(basis) is BSpline and basis.degree == 0:
        return basis.breaks[1:-1]
    return np.zeros(0) if type(basis) is Polynomial and basis.degree == 0 else None


def supports(basis: Basis) -> FloatArray:
    """Where each function of a basis is not zero, in u; all of [0, 1] unless the basis says otherwise."""
    known = getattr(basis, "supports", None)
    return known() if known is not None else whole(sum(basis.sizes))


def smoothing(basis: Basis, order: int) -> tuple[float, ...]:
    """The weight of Σ |Δ^order v|² in the smoothness penalty, by block; 0 unless the basis says otherwise."""
    known = getattr(basis, "smoothing", None)
    return known(order) if known is not None else (0.0,) * len(basis.sizes)
