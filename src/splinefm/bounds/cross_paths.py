"""The vectors of a cross as functions of its numbers: tensor products, in every combination of categories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from splinefm._arrays import FloatArray, IndexArray
from splinefm.bounds.paths import EXACT, Parameterized, field_features, to_bernstein
from splinefm.encode.bases import (
    GRID,
    Basis,
    Bins,
    BSpline,
    Polynomial,
    PolynomialWindow,
    basis_reach,
    is_convex,
    polynomial_windows,
    step_cuts,
)
from splinefm.encode.fields.cross import Cross
from splinefm.encode.slots import expand_windows


class CrossPath:
    """The coefficients of a cross: for every resolution, an array of shape (combinations, functions.., 1 + width)."""

    def __init__(self, fitted: Parameterized, f: int) -> None:
        item = self.item = fitted.encoder.crosses[f]
        blocks = field_features(fitted, f).reshape(max(1, item.n_cells), item.block, -1)
        ends = np.cumsum([0, *(int(np.prod(sizes)) for sizes in item.level_sizes)])
        self.levels = [
            blocks[:, ends[level] : ends[level + 1]].reshape(len(blocks), *sizes, blocks.shape[2])
            for level, sizes in enumerate(item.level_sizes)
        ]

    def features_of(self, new: Cross) -> FloatArray:
        """Linear weights and vectors of the cross with bins in place of some bases: what it is at their mid-points."""
        changed = changed_parts(self.item, new)
        levels = []
        for bases, values in zip(self.item.levels, self.levels, strict=True):
            for number, part in enumerate(self.item.numbers):
                if part in changed:
                    weights = _weights(bases[number], changed[part].supports().mean(axis=1))
                    values = np.moveaxis(np.tensordot(weights, values, axes=(1, 1 + number)), 0, 1 + number)
            levels.append(values.reshape(len(values), -1, values.shape[-1]))
        whole = np.concatenate(levels, axis=1) if len(new.levels) == len(levels) else sum(levels)
        return np.asarray(whole).reshape(-1, levels[0].shape[-1])

    def steps(self, part: int) -> Bins | None:
        """The bins that a part of several resolutions of steps consists of; None for any other."""
        number = self.item.numbers.index(part)
        cuts = [step_cuts(bases[number]) for bases in self.item.levels]
        if any(each is None for each in cuts):
            return None
        every = np.unique(np.concatenate([each for each in cuts if each is not None]))
        return Bins(len(every) + 1, cuts=tuple(every.tolist()))

    def moves(self, part: int) -> Iterator[tuple[FloatArray, Iterator[FloatArray]]]:
        """For every resolution, borders of [0, 1], and for each piece what bounds its length.

        These are changes of the vector, one per row, along the number of a part while the others stand still: no way
        through a piece is longer than the longest of them.
        """
        number = self.item.numbers.index(part)
        for bases, values in zip(self.item.levels, self.levels, strict=True):
            reach = np.prod([basis_reach(basis) for i, basis in enumerate(bases) if i != number])
            along = np.moveaxis(values, 1 + number, -2).reshape(-1, values.shape[1 + number], values.shape[-1])
            borders, each = _piece_moves(bases[number])
            yield borders, (reach * np.einsum("df,rfw->rdw", move, along[:, rows]) for rows, move in each)

    def is_certified(self, part: int) -> bool:
        """Whether these bounds hold for all values, and not only on a grid."""
        number = self.item.numbers.index(part)
        return all(
            _is_polynomial(bases[number]) and all(is_convex(other) for i, other in enumerate(bases) if i != number)
            for bases in self.item.levels
        )


def changed_parts(old: Cross, new: Cross) -> dict[int, Bins]:
    """Parts that have bins instead of another basis."""
    found = {}
    for i in old.numbers:
        before: Any = old.fields[i].basis
        after = new.fields[i].basis
        if isinstance(after, Bins) and step_cuts(before) is None:
            found[i] = after
    return found


def _weights(basis: Basis, u: FloatArray) -> FloatArray:
    """Values of all functions: shape (n, functions)."""
    start, weight = basis(u)
    out = np.zeros((len(u), sum(basis.sizes)))
    np.add.at(out, (np.arange(len(u))[:, None], expand_windows(start, basis.widths)), weight)
    return out


def _is_polynomial(basis: Basis) -> bool:
    return isinstance(basis, BSpline | Polynomial) and basis.degree <= EXACT


def _piece_moves(basis: Basis) -> tuple[FloatArray, Iterator[tuple[Any, FloatArray]]]:
    """Borders of pieces, and for each the functions that are active and what to multiply them with."""
    windows = polynomial_windows(basis) if _is_polynomial(basis) else None
    if windows is None:
        u = np.linspace(0.0, 1.0, GRID + 1)
        changes = np.diff(_weights(basis, u), axis=0)
        return u, ((slice(None), change[None]) for change in changes)
    (window,) = windows
    borders = np.arange(window.segments + 1) / window.segments if window.edges is None else window.edges
    return borders, ((_active(window, s), _control_moves(window, s)) for s in range(window.segments))


def _active(window: PolynomialWindow, segment: int) -> IndexArray:
    return (window.start + segment * window.moves + np.arange(window.coefficients.shape[1])) % window.around


def _control_moves(window: PolynomialWindow, segment: int) -> FloatArray:
    """Differences of Bézier control points, times the degree: a bound of the length, shape (degree, functions)."""
    powers = window.coefficients[segment if len(window.coefficients) > 1 else 0]
    degree = powers.shape[1] - 1
    if not degree:
        return np.zeros((1, len(powers)))
    values = np.stack([np.polyval(powers.T, t) for t in np.linspace(-1.0, 1.0, degree + 1)])
    return np.asarray(degree * np.diff(to_bernstein(degree) @ values, axis=0))
