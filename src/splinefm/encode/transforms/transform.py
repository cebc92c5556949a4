"""Monotone maps T: x -> u in [0, 1] that spread a column over the interval a basis lives on.

A transform is a frozen dataclass: the specification, the fitted object and what is saved at once.
`fit` returns a filled-in copy and keeps every value that was given. On the copy, `t(x)` clips to [0, 1] and
passes NaN through, and `t.inverse(u)` goes back. A column with a single value c learns the narrowest
range that starts there: u = 0 up to c and 1 above (`BestFitCDF`: a normal of scale 1 around c).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from splinefm.encode.transforms.bestfit import BestFitCDF
from splinefm.encode.transforms.points import Float
from splinefm.encode.transforms.quantile import Quantile
from splinefm.encode.transforms.scaling import ArcsinhSquare, Log, MinMax


@runtime_checkable
class Transform(Protocol):
    """The members of a transform; any object that has them is one.

    Examples
    --------
    >>> isinstance(MinMax(), Transform)
    True
    """

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> Transform: ...

    def __call__(self, x: npt.ArrayLike) -> Float: ...

    def inverse(self, u: npt.ArrayLike) -> Float: ...


@dataclass(frozen=True)
class CustomTransform:
    """Two given functions, clipped to [0, 1]; nothing is learned, and it cannot be saved.

    Parameters
    ----------
    forward, backward
        Functions of float64 arrays: a non-decreasing x -> u and its inverse u -> x.

    Examples
    --------
    >>> t = CustomTransform(lambda hour: hour / 24, lambda u: u * 24)
    >>> t([6.0, 30.0]), t.inverse(0.5)
    (array([0.25, 1.  ]), array(12.))
    """

    forward: Callable[[Float], Float]
    backward: Callable[[Float], Float]

    def __post_init__(self) -> None:
        for name in ("forward", "backward"):
            if not callable(getattr(self, name)):
                raise ValueError(f"{name} must be a function of an array, got {getattr(self, name)!r}")

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> CustomTransform:
        return self

    def __call__(self, x: npt.ArrayLike) -> Float:
        return np.asarray(np.clip(self.forward(np.asarray(x, dtype=np.float64)), 0.0, 1.0))

    def inverse(self, u: npt.ArrayLike) -> Float:
        return np.asarray(self.backward(np.clip(np.asarray(u, dtype=np.float64), 0.0, 1.0)))


TRANSFORMS = (MinMax, Quantile, BestFitCDF, ArcsinhSquare, Log)
"""The transforms that can be written to a file."""
