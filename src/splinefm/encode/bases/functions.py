"""Bases whose functions are all active everywhere: polynomials, waves, powers, and custom functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from splinefm._arrays import FloatArray
from splinefm._cached import cached_property
from splinefm._checks import check_choice, check_count, check_increasing
from splinefm._memory import check_memory
from splinefm.encode.bases.splines import Windows
from splinefm.encode.transforms.transform import Transform

# The most functions of such a basis, since that many weights stand for one value.
MAX_EVERYWHERE = 1 << 16


@dataclass(frozen=True)
class Polynomial:
    """Polynomials up to a degree; all functions are active everywhere.

    Parameters
    ----------
    degree : int
        Highest power; there are `degree + 1` functions.
    family : {"bernstein", "chebyshev", "legendre"}
        Bernstein weights are non-negative and sum to one; the other two are orthogonal on [0, 1] shifted
        to [-1, 1].

    Examples
    --------
    >>> Polynomial(2)(np.array([0.5]))[1]
    array([[0.25, 0.5 , 0.25]])
    """

    degree: int = 5
    family: Literal["bernstein", "chebyshev", "legendre"] = "bernstein"

    def __post_init__(self) -> None:
        check_count("degree", self.degree, 0, MAX_EVERYWHERE)
        check_choice("family", self.family, ("bernstein", "chebyshev", "legendre"))

    @property
    def widths(self) -> tuple[int, ...]:
        """One window as wide as the basis."""
        return (self.degree + 1,)

    @property
    def breaks(self) -> FloatArray:
        """The ends of [0, 1]: one polynomial covers all of it."""
        return np.array([0.0, 1.0])

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of functions, in a tuple."""
        return (self.degree + 1,)

    def __call__(self, u: FloatArray) -> Windows:
        """All functions at u."""
        if self.family == "bernstein":
            return _from_zero(_bernstein(u, self.degree))
        polynomial = (
            np.polynomial.chebyshev.chebvander if self.family == "chebyshev" else np.polynomial.legendre.legvander
        )
        return _from_zero(np.asarray(polynomial(2.0 * u - 1.0, self.degree), np.float64))


@dataclass(frozen=True)
class Fourier:
    """1, cos 2πu, sin 2πu, ... up to `order` waves: a periodic basis.

    Parameters
    ----------
    order : int
        Number of waves; there are `2 * order + 1` functions.

    Examples
    --------
    >>> Fourier(1)(np.array([0.25]))[1].round(12)
    array([[1., 0., 1.]])
    """

    order: int = 4

    def __post_init__(self) -> None:
        check_count("order", self.order, 1, MAX_EVERYWHERE)

    @property
    def widths(self) -> tuple[int, ...]:
        """One window as wide as the basis."""
        return (2 * self.order + 1,)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of functions, in a tuple."""
        return (2 * self.order + 1,)

    def __call__(self, u: FloatArray) -> Windows:
        """All functions at u."""
        angle = 2.0 * np.pi * u[:, None] * np.arange(1, self.order + 1)
        waves = np.stack([np.cos(angle), np.sin(angle)], axis=2).reshape(len(u), 2 * self.order)
        return _from_zero(np.concatenate([np.ones((len(u), 1)), waves], axis=1))


@dataclass(frozen=True)
class Powers:
    """Powers of u, by default (u, u², √u), as deep recommenders feed their numbers.

    Parameters
    ----------
    exponents : tuple of float
        Positive exponents.

    Examples
    --------
    >>> Powers()(np.array([0.25]))[1]
    array([[0.25  , 0.0625, 0.5   ]])
    """

    exponents: tuple[float, ...] = (1.0, 2.0, 0.5)

    def __post_init__(self) -> None:
        object.__setattr__(self, "exponents", tuple(float(exponent) for exponent in self.exponents))
        if not self.exponents or not all(0.0 < exponent < np.inf for exponent in self.exponents):
            raise ValueError(f"exponents must be positive numbers, got {self.exponents}")

    @property
    def widths(self) -> tuple[int, ...]:
        """One window as wide as the basis."""
        return (len(self.exponents),)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of functions, in a tuple."""
        return (len(self.exponents),)

    def __call__(self, u: FloatArray) -> Windows:
        """All powers of u."""
        return _from_zero(u[:, None] ** np.array(self.exponents))


@dataclass(frozen=True)
class CustomBasis:
    """Any list of functions of u; each takes and returns an array.

    Parameters
    ----------
    functions : tuple of callables
        The functions. They cannot be saved to a file.

    Examples
    --------
    >>> CustomBasis((np.ones_like, np.sin))(np.array([0.0]))[1]
    array([[1., 0.]])
    """

    functions: tuple[Callable[[FloatArray], FloatArray], ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "functions", tuple(self.functions))
        if not self.functions or not all(callable(function) for function in self.functions):
            raise ValueError(f"functions must be a non-empty list of callables, got {self.functions!r}")

    @property
    def widths(self) -> tuple[int, ...]:
        """One window as wide as the basis."""
        return (len(self.functions),)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of functions, in a tuple."""
        return (len(self.functions),)

    def __call__(self, u: FloatArray) -> Windows:
        """All functions at u."""
        columns = [np.asarray(function(u), np.float64) for function in self.functions]
        for position, column in enumerate(columns):
            if column.shape != u.shape or not np.isfinite(column).all():
                raise ValueError(
                    f"function {position} of the custom basis must give a finite value for every u in [0, 1]"
                )
        return _from_zero(np.stack(columns, axis=1))


def _bernstein(u: FloatArray, degree: int) -> FloatArray:
    """De Casteljau's triangle: (1 - u) of each weight stays, u of it moves one function on."""
    weight = np.zeros((degree + 1, len(u)))
    weight[0] = 1.0
    for d in range(1, degree + 1):
        for j in range(d, 0, -1):
            weight[j] = (1.0 - u) * weight[j] + u * weight[j - 1]
        weight[0] *= 1.0 - u
    return weight.T


def _from_zero(weight: FloatArray) -> Windows:
    """One window that starts at the first function and is as wide as the basis."""
    return np.zeros((len(weight), 1), np.int32), weight


# Bins: indicator functions of intervals.

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
