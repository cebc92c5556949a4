"""Shapes that hold in every segment: after each epoch, the parameters that the shape of a field asks for.

A spline whose coefficients never fall never falls. In a segment the coefficients are α_i = w_i + v_i' q with
q = Σ_e M_fe p_e, so that all curves of field f rise if for every i

    G(δ_i, Δ_i) ≥ 0,    δ_i = w_i+1 - w_i,    Δ_i = v_i+1 - v_i,    G(δ, Δ) = δ + Σ_e min over p_e of Δ' M_fe p_e.

G is concave and positively homogeneous: the changes that are allowed form a convex cone, which contains (δ, 0) for all
δ ≥ 0. A change outside of it moves towards this axis: Δ is scaled by τ in [0, 1] and δ takes what is missing,
G(δ + ρ, τ Δ) = δ + ρ + τ g with g = G(0, Δ) ≤ 0. The smallest move, with lengths of Δ measured by what they do to a
score, (1 - τ)² S + ρ², has a closed form. Training goes on from there (projected gradient descent), so that the other
parameters make up for it (decision 111).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.bounds.paths import Parameterized, field_features
from splinefm.bounds.slopes import Gain
from splinefm.encode.bases import BSpline, MultiResolution
from splinefm.encode.encoder import Encoder
from splinefm.encode.slots import expand_windows
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params

SIGNS = {"increasing": 1.0, "decreasing": -1.0}
_MARGIN = 8.0
"""Rounding errors of float32 that a change keeps from the border of the cone."""


@dataclass(frozen=True, eq=False)
class Shapes:
    """The shapes that fields of a schema ask for, and how parameters get them.

    Parameters
    ----------
    encoder : Encoder
        The fitted fields.
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM
        The model.

    Examples
    --------
    >>> import splinefm as sf
    >>> schema = sf.Schema([sf.Numerical("x", basis=sf.BSpline(4), shape="increasing"), sf.Categorical("c")])
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [3.0, 2.0, 1.0, 0.0] * 50}
    >>> training = sf.Training(epochs=3, threads=1, effort="fast")
    >>> fitted = sf.fit_model(table, "y", loss="squared", schema=schema, model=sf.FM(k=2), training=training)
    >>> fitted.certify("x").increasing
    True
    """

    encoder: Encoder
    model: AnyModel

    @property
    def fields(self) -> list[tuple[int, float]]:
        """The fields with a shape, and 1 or -1 for rising or falling curves."""
        shapes = [(f, getattr(item, "shape", None)) for f, item in enumerate(self.encoder.fields)]
        return [(f, SIGNS[shape]) for f, shape in shapes if shape is not None]

    def impose(self, params: Params) -> Params:
        """Parameters with the shapes, which differ in the fields that have one."""
        if not self.fields:
            return params
        state = _State(self.encoder, self.model, dict(params))
        for f, sign in self.fields:
            _write(state, f, shaped(state, f, sign))
        if len(self.fields) > 1:  # each move has changed what the other fields meet; this one changes no vectors
            for f, sign in self.fields:
                _write(state, f, shaped(state, f, sign, linear_only=True))
        return state.params


@dataclass(frozen=True, eq=False)
class _State:
    encoder: Encoder
    model: AnyModel
    params: Params


def shaped(state: Parameterized, f: int, sign: float, *, linear_only: bool = False) -> FloatArray:
    """Linear weights and vectors of the basis functions of field f with rising (or falling) curves in every segment."""
    item: Any = state.encoder.fields[f]
    rows = field_features(state, f)[item.n_tokens :]
    gain = Gain(state, f)
    margin = _MARGIN * float(np.finfo(np.float32).eps) * float(np.abs(np.stack([gain(rows), gain(-rows)])).max())
    out = rows.copy()
    for part, grid in _grids(item.basis, rows):
        changes = sign * np.diff(grid, axis=0)
        allowed = sign * _into_cone(gain, changes, margin, linear_only)
        out[part] += _with_changes(grid, allowed) - grid
    return out


def _into_cone(gain: Gain, changes: FloatArray, margin: float, linear_only: bool) -> FloatArray:
    """Changes (δ + ρ, τ Δ) with G ≥ margin."""
    delta, vectors = changes[:, 0], changes.copy()
    vectors[:, 0] = 0.0
    g = gain(vectors)
    missing = delta + g < margin
    share = np.ones(len(changes))
    if not linear_only:
        squares = (vectors[:, 1:] ** 2) @ gain.mean_squares
        share = np.clip((squares - g * (delta - margin)) / (squares + g * g + 1e-30), 0.0, 1.0)
    out = np.where(missing[:, None], vectors * share[:, None], vectors)
    out[:, 0] = np.where(missing, np.maximum(delta, margin - share * g), delta)
    return np.asarray(out)


def _grids(basis: BSpline | MultiResolution, rows: FloatArray) -> list[tuple[slice, FloatArray]]:
    """Coefficients whose differences have to rise, and the functions that take their changes.

    The finest resolution can represent the others if their segments divide its own: then the sum of all counts. If not,
    every resolution has the shape by itself.
    """
    if isinstance(basis, BSpline):
        return [(slice(None), rows)]
    ends = np.cumsum([0, *basis.sizes])
    fine = basis.levels[int(np.argmax(basis.segments))]
    if all(fine.segments % n == 0 for n in basis.segments):
        first = ends[int(np.argmax(basis.segments))]
        return [(slice(first, first + fine.sizes[0]), _on_grid(fine, basis, rows))]
    parts = [slice(a, b) for a, b in pairwise(ends.tolist())]
    return [(part, rows[part]) for part in parts]


def _on_grid(fine: BSpline, basis: MultiResolution, rows: FloatArray) -> FloatArray:
    """Coefficients of the sum of all resolutions on the finest one (knot insertion, by interpolation)."""
    n = fine.sizes[0]
    # Points in [0, 1] that determine a spline: as many as functions, of which no part is left without (Schoenberg and
    # Whitney): means of neighboring knots, those outside spread over the first and the last segment.
    knots = np.clip(fine.extended_knots, 0.0, 1.0)
    u = np.array([knots[i + 1 : i + fine.degree + 1].mean() for i in range(n)])
    return np.asarray(np.linalg.solve(_values(fine, u), _values(basis, u) @ rows))


def _values(basis: BSpline | MultiResolution, u: FloatArray) -> FloatArray:
    """Values of all functions at u: shape (n, functions)."""
    start, weight = basis(u)
    out = np.zeros((len(u), sum(basis.sizes)))
    np.add.at(out, (np.arange(len(u))[:, None], expand_windows(start, basis.widths)), weight)
    return out


def _with_changes(before: FloatArray, changes: FloatArray) -> FloatArray:
    """Coefficients with these differences, and the mean of those before."""
    after = np.concatenate([np.zeros((1, before.shape[1])), np.cumsum(changes, axis=0)])
    return np.asarray(after + (before - after).mean(axis=0))


def _write(state: _State, f: int, rows: FloatArray) -> None:
    last = int(state.encoder.layout.feature_ptr[f + 1])
    functions = slice(last - len(rows), last)
    for name, values in (("linear", rows[:, 0]), ("factors", rows[:, 1:])):
        state.params[name] = state.params[name].copy()
        state.params[name][functions] = values
