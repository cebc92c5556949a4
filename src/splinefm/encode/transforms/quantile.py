"""Quantile: the empirical CDF of a column as a transform."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm._arrays import IndexArray
from splinefm._cached import cached_property
from splinefm._core import Interpolation
from splinefm.encode.transforms.points import (
    SMALLEST,
    Float,
    check_share,
    distinct_points,
    fitted_value,
    just_above,
    make_plain,
    mid_ranks,
    to_unit,
)

_LIGHTEST = 1e-12  # each value counts for at least this share of the rows, so that ranks differ as floats


@dataclass(frozen=True)
class Quantile:
    """The empirical CDF: piecewise linear through the mid-ranks, stretched to run from 0 to 1.

    A mid-rank is the share of the rows below a value plus half the share at the value. Values less
    than 1e-300 apart count as one.

    Parameters
    ----------
    knots
        The most values to keep: at evenly spaced ranks, with both ends and, as far as they fit, the values that
        have more than 1 / knots of the rows. A column with no more distinct values keeps them all.
    atom_share
        The largest part of the ranks left to a single value, however many rows it holds. Otherwise a
        value with 60 % of the rows would leave as much of [0, 1] without data.
    x, u
        The knots, learned: strictly increasing raw values and their images, from 0 to 1.

    Examples
    --------
    >>> t = Quantile().fit(np.array([1.0, 2.0, 2.0, 2.0, 100.0]))
    >>> t.x, t.u
    ((1.0, 2.0, 100.0), (0.0, 0.5, 1.0))
    >>> t([1.5, 51.0]), t.inverse(0.5)
    (array([0.25, 0.75]), array(2.))
    """

    knots: int = 1000
    atom_share: float = 1.0
    x: tuple[float, ...] = ()
    u: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        make_plain(self)
        if not isinstance(self.knots, int) or self.knots < 2:
            raise ValueError(f"knots must be an integer of at least 2, got {self.knots!r}")
        check_share("atom_share", self.atom_share)
        if len(self.x) != len(self.u):
            raise ValueError(f"x and u must have the same length, got {len(self.x)} and {len(self.u)}")
        if self.x and not _is_knots(self.x, self.u):
            raise ValueError("x and u must increase strictly, u from 0 to 1; leave both out to learn them")

    def fit(self, x: npt.ArrayLike, weight: npt.ArrayLike | None = None) -> Quantile:
        values, weights = _merge_neighbors(*distinct_points(x, weight))
        if self.x:
            return self
        if len(values) == 1:
            return replace(self, x=(values[0], just_above(values[0])), u=(0.0, 1.0))
        share = _cap_shares(weights / weights.sum(), self.atom_share)
        ranks = mid_ranks(np.maximum(share, _LIGHTEST))
        kept = _choose_knots(ranks, share, self.knots)
        unit = to_unit(ranks[kept], ranks[0], ranks[-1])
        return replace(self, x=tuple(values[kept].tolist()), u=tuple(unit.tolist()))

    def __call__(self, x: npt.ArrayLike) -> Float:
        x = np.asarray(x, dtype=np.float64)
        return self._interpolation(np.ascontiguousarray(x.reshape(-1))).reshape(x.shape)

    def inverse(self, u: npt.ArrayLike) -> Float:
        raw, unit = self._arrays
        found = np.interp(np.asarray(u, dtype=np.float64), unit, raw)
        return np.asarray(np.clip(found, raw[0], raw[-1]))

    def derivative(self, x: npt.ArrayLike) -> Float:
        """dT / dx; 0 beyond the ends."""
        x = np.asarray(x, dtype=np.float64)
        knots, u = self._arrays
        piece = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
        with np.errstate(all="ignore"):  # knots may be as close as two numbers can be
            return np.where((x >= knots[0]) & (x <= knots[-1]), (np.diff(u) / np.diff(knots))[piece], 0.0)

    @cached_property
    def _arrays(self) -> tuple[Float, Float]:
        return np.array(fitted_value(self, self.x or None)), np.array(self.u)

    @cached_property
    def _interpolation(self) -> Interpolation:
        return Interpolation(*self._arrays)

    def __getstate__(self) -> dict[str, Any]:
        """The fields, without what is derived from them on demand."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _merge_neighbors(values: Float, weights: Float) -> tuple[Float, Float]:
    """Count neighbors less than 1e-300 apart as one: the slope between them would overflow."""
    first = np.concatenate(([True], np.diff(values) >= SMALLEST))
    return values[first], np.add.reduceat(weights, np.flatnonzero(first))


def _cap_shares(share: Float, cap: float) -> Float:
    """Lower the largest weights to a level of `cap` times the sum that is left.

    With the k largest at that level, level = cap (rest + k level). If there are too few values for
    the cap, all get the same weight.
    """
    ordered = np.sort(share)[::-1]
    k, rest, level = 0, float(share.sum()), cap
    while ordered[k] > level:
        rest -= float(ordered[k])
        k += 1
        if k == len(ordered) or k * cap > 1 - 1e-9:
            return np.full(len(share), ordered[-1])
        level = cap * rest / (1 - k * cap)
    return np.minimum(share, level)


def _choose_knots(ranks: Float, share: Float, knots: int) -> IndexArray:
    """Indices of the atoms and of the points nearest to evenly spaced ranks."""
    if len(ranks) <= knots:
        return np.arange(len(ranks))
    heaviest = np.argsort(-share, kind="stable")[: knots - 2]
    atoms = heaviest[share[heaviest] > 1 / knots]
    grid = np.linspace(ranks[0], ranks[-1], knots - len(atoms))
    after = np.clip(np.searchsorted(ranks, grid), 1, len(ranks) - 1)
    nearest = np.where(grid - ranks[after - 1] < ranks[after] - grid, after - 1, after)
    return np.union1d(atoms, nearest)


def _is_knots(x: tuple[float, ...], u: tuple[float, ...]) -> bool:
    return (u[0], u[-1]) == (0.0, 1.0) and bool((np.diff(x) > 0).all() and (np.diff(u) > 0).all())
