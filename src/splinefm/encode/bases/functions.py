"""Bases whose functions are all active everywhere: polynomials, waves, powers, and custom functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from splinefm._checks import check_choice, check_count
from splinefm.encode.bases.splines import FloatArray, Windows

# The most functions of such a basis, since that many weights stand for one value.
MOST_EVERYWHERE = 1 << 16


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
        check_count("degree", self.degree, 0, MOST_EVERYWHERE)
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
        check_count("order", self.order, 1, MOST_EVERYWHERE)

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
