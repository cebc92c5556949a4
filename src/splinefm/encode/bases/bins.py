"""Bins: indicator functions of intervals."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from splinefm._cached import cached_property
from splinefm._checks import check_choice, check_count, check_increasing
from splinefm._memory import check_memory
from splinefm.encode.bases.splines import FloatArray, Windows
from splinefm.encode.transforms.transform import Transform

# A Python number, its pointer in a tuple, and twice in arrays.
_BYTES_PER_CUT = 48


@dataclass(frozen=True)
class Bins:
    """Indicator functions of intervals: classical binning, as a baseline and for serving systems that bin.

    Parameters
    ----------
    count : int
        Number of bins; repeated quantiles are merged, so that there may be fewer.
    spacing : {"uniform", "quantile"}
        Equal widths in u (with `transform=MinMax()`: equal widths in raw units), or equal numbers of rows.
    edges : tuple of float, optional
        Borders of the bins **in raw units**, both ends included. Values beyond them fall in the outer bins.
    cuts : tuple of float, optional
        The inner borders in u; filled in by `fit`. A value on a border belongs to the bin on its right.

    Examples
    --------
    >>> start, weight = Bins(4)(np.array([0.0, 0.25, 1.0]))
    >>> start.ravel()
    array([0, 1, 3], dtype=int32)
    """

    count: int = 20
    spacing: Literal["uniform", "quantile"] = "uniform"
    edges: tuple[float, ...] | None = None
    cuts: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_count("count", self.count, 1)
        check_choice("spacing", self.spacing, ("uniform", "quantile"))
        if self.edges is not None:
            object.__setattr__(self, "edges", check_increasing("edges", self.edges))
        if self.cuts is None and self.edges is None and self.spacing == "uniform":
            check_memory(_BYTES_PER_CUT * self.count, f"a basis of {self.count:,} bins", "lower its count")
            object.__setattr__(self, "cuts", tuple((np.arange(1, self.count) / self.count).tolist()))
        elif self.cuts is not None:
            object.__setattr__(self, "cuts", tuple(float(cut) for cut in self.cuts))

    def fit(self, x: FloatArray, weight: FloatArray, transform: Transform) -> Bins:
        """The bins with borders at the given edges, or at the quantiles of x."""
        if self.cuts is not None:
            return self
        if self.edges is not None:
            inner = np.array(self.edges[1:-1])
            # The transform clips: an edge beyond its range would meet the largest values at u = 1.
            beyond = inner > transform.inverse(np.array([1.0]))
            return replace(self, cuts=tuple(np.where(beyond, 2.0, transform(inner)).tolist()))
        order = np.argsort(x)
        share = np.cumsum(weight[order]) / np.sum(weight)
        at = np.searchsorted(share, np.arange(1, self.count) / self.count)
        cuts = np.unique(transform(x[order][np.minimum(at, len(x) - 1)]))
        return replace(self, cuts=tuple(cuts[cuts > 0.0].tolist()))

    @property
    def widths(self) -> tuple[int, ...]:
        """One window of one weight."""
        return (1,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of bins, in a tuple."""
        return (len(self._fitted_cuts()) + 1,)

    def __call__(self, u: FloatArray) -> Windows:
        """The bin of u, with weight 1."""
        start = np.searchsorted(self._borders, u, side="right").astype(np.int32)
        return start[:, None], np.ones((len(u), 1))

    @property
    def breaks(self) -> FloatArray:
        """The borders between the bins, from 0 to 1, each once."""
        return np.unique(np.clip([0.0, *self._fitted_cuts(), 1.0], 0.0, 1.0))

    def supports(self) -> FloatArray:
        """The interval of u of each bin."""
        borders = np.clip(np.array([0.0, *self._fitted_cuts(), 1.0]), 0.0, 1.0)
        return np.stack([borders[:-1], borders[1:]], axis=1)

    @cached_property
    def _borders(self) -> FloatArray:
        return np.array(self._fitted_cuts(), np.float64)

    def _fitted_cuts(self) -> tuple[float, ...]:
        if self.cuts is None:
            raise ValueError("Bins by quantiles or raw edges learn their borders from data; call fit first")
        return self.cuts
