"""MinMax, Log and ArcsinhSquare: a range of raw values, warped by a formula and scaled to [0, 1]."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from splinefm._arrays import FloatArray
from splinefm._core import elementary
from splinefm._core import power as _power
from splinefm.encode.transforms.points import (
    LIMIT,
    check_range,
    check_share,
    distinct_points,
    fitted_value,
    from_unit,
    learn_range,
    make_plain,
    to_unit,
    unit_slope,
    weighted_quantile,
)

# Logarithms, exponentials and the like with the same bits on every processor.
#
# NumPy computes them with other code on processors with AVX-512, and rounds some values differently there. That moved
# values on the border of two bins, where T(z) is exactly the cut, into the other bin: a model that was fitted on one
# machine scored them differently on another. So transforms take these functions from the machine's C library, on their
# way from z to u; but for arcsinh, for which new versions of glibc have other code, too.


def _by_element(compute: Callable[[FloatArray], FloatArray], x: npt.ArrayLike) -> FloatArray:
    x = np.asarray(x, np.float64)
    return compute(np.ascontiguousarray(x.reshape(-1))).reshape(x.shape)


log = partial(_by_element, partial(elementary, "log"))
log1p = partial(_by_element, partial(elementary, "log1p"))
exp = partial(_by_element, partial(elementary, "exp"))
expm1 = partial(_by_element, partial(elementary, "expm1"))
arcsinh = partial(_by_element, partial(elementary, "asinh"))
arctan = partial(_by_element, partial(elementary, "atan"))


def power(x: npt.ArrayLike, exponent: float) -> FloatArray:
    """Each x to the power of the exponent."""
    return _by_element(lambda z: _power(z, exponent), x)


@dataclass(frozen=True)
class MinMax:
    """u = (x - low) / (high - low).

    Parameters
    ----------
    low, high
        The ends of the range in raw units; learned as the smallest and the largest value if left out.

    Examples
    --------
    >>> t = MinMax(low=0.0).fit(np.array([3.0, 10.0]))
    >>> t
    MinMax(low=0.0, high=10.0)
    >>> t([-1.0, 5.0, 20.0])
    array([0. , 0.5, 1. ])
    """

    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        check_range(self.low, self.high)

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> MinMax:
        values, _ = distinct_points(x, weight)
        low, high = learn_range(values, self.low, self.high)
        return replace(self, low=low, high=high)

    def __call__(self, x: npt.ArrayLike) -> FloatArray:
        return to_unit(x, fitted_value(self, self.low), fitted_value(self, self.high))

    def inverse(self, u: npt.ArrayLike) -> FloatArray:
        return from_unit(u, fitted_value(self, self.low), fitted_value(self, self.high))

    def derivative(self, x: npt.ArrayLike) -> FloatArray:
        """dT / dx; 0 beyond the ends."""
        return unit_slope(x, fitted_value(self, self.low), fitted_value(self, self.high))


@dataclass(frozen=True)
class Log:
    """u = (log(x + shift) - log(low + shift)) / (log(high + shift) - log(low + shift)).

    Parameters
    ----------
    shift
        Added before the logarithm; learned as 0 if all values are positive and 1 - min(x) otherwise.
        Values at or below -shift go to 0.
    low, high
        The ends of the range in raw units, learned if left out.

    Examples
    --------
    >>> t = Log().fit(np.array([1.0, 10.0, 100.0]))
    >>> t([0.0, 1.0, 10.0, 100.0]).round(6)
    array([0. , 0. , 0.5, 1. ])
    """

    shift: float | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        check_range(self.low, self.high)
        if self.shift is not None and not abs(self.shift) <= LIMIT:
            raise ValueError(f"shift must lie between -{LIMIT} and {LIMIT}, got {self.shift}")
        for name, end in (("low", self.low), ("high", self.high)):
            if self.shift is not None and end is not None and not end + self.shift > 0:
                raise ValueError(f"{name} must exceed -shift = {-self.shift}, got {end}; raise shift")

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> Log:
        values, _ = distinct_points(x, weight)
        smallest = values[0] if self.low is None else min(values[0], self.low)
        shift = _learn_shift(smallest) if self.shift is None else self.shift
        positive = values[values + shift > 0]
        if len(positive) == 0:
            raise ValueError(f"shift must exceed {-values[-1]} for this column, got {shift}; raise it")
        low, high = learn_range(positive, self.low, self.high)
        return replace(self, shift=shift, low=low, high=high)

    def __call__(self, x: npt.ArrayLike) -> FloatArray:
        shift = fitted_value(self, self.shift)
        return to_unit(x, fitted_value(self, self.low), fitted_value(self, self.high), lambda z: log(z + shift))

    def inverse(self, u: npt.ArrayLike) -> FloatArray:
        shift, low, high = fitted_value(self, self.shift), fitted_value(self, self.low), fitted_value(self, self.high)
        return from_unit(u, low, high, lambda z: log(z + shift), lambda v: np.exp(v) - shift)

    def derivative(self, x: npt.ArrayLike) -> FloatArray:
        """dT / dx; 0 beyond the ends."""
        shift, low, high = fitted_value(self, self.shift), fitted_value(self, self.low), fitted_value(self, self.high)
        return unit_slope(x, low, high, lambda z: log(z + shift), lambda z: 1.0 / (z + shift))


@dataclass(frozen=True)
class ArcsinhSquare:
    """u = (w(x) - w(low)) / (w(high) - w(low)) with w(x) = sign(x) asinh(|x|)².

    DIFFERS: the paper's formula scales by the maximum of non-negative values. This one also takes negative values, and
    `clip` scales by a quantile, as the paper's code does.

    Close to zero, w is about x²; far out it grows as log(2x)². Use it for counts and amounts with a heavy tail.

    Parameters
    ----------
    clip
        Learn `high` as this quantile instead of the largest value.
    low, high
        The ends of the range in raw units, learned if left out.

    Examples
    --------
    >>> t = ArcsinhSquare().fit(np.array([0.0, 5.0, 1000.0]))
    >>> t([0.0, 5.0, 1000.0]).round(3)
    array([0.   , 0.093, 1.   ])
    """

    clip: float | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        make_plain(self)
        check_range(self.low, self.high)
        if self.clip is not None:
            check_share("clip", self.clip)

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> ArcsinhSquare:
        values, weights = distinct_points(x, weight)
        if self.clip is not None:
            values = values[values <= weighted_quantile(values, weights, self.clip)]
        low, high = learn_range(values, self.low, self.high)
        return replace(self, low=low, high=high)

    def __call__(self, x: npt.ArrayLike) -> FloatArray:
        return to_unit(x, fitted_value(self, self.low), fitted_value(self, self.high), arcsinh_square)

    def inverse(self, u: npt.ArrayLike) -> FloatArray:
        low, high = fitted_value(self, self.low), fitted_value(self, self.high)
        return from_unit(u, low, high, arcsinh_square, lambda w: np.sign(w) * np.sinh(np.sqrt(np.abs(w))))

    def derivative(self, x: npt.ArrayLike) -> FloatArray:
        """dT / dx; 0 beyond the ends."""
        low, high = fitted_value(self, self.low), fitted_value(self, self.high)
        return unit_slope(x, low, high, arcsinh_square, lambda z: 2.0 * np.arcsinh(np.abs(z)) / np.sqrt(1.0 + z**2))


def arcsinh_square(x: FloatArray) -> FloatArray:
    """w(x) = sign(x) asinh(|x|)²."""
    squared: FloatArray = np.sign(x) * arcsinh(np.abs(x)) ** 2
    return squared


def _learn_shift(smallest: float) -> float:
    if smallest > 0:
        return 0.0
    # 1 - min rounds to -min for huge values, and the logarithm of 0 must not be reached.
    return float(max(1 - smallest, np.nextafter(-smallest, np.inf)))
