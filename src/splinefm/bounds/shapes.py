"""Shapes that hold in every segment: the smallest change of a field's parameters that makes its curves monotone.

A B-spline whose coefficients never fall never falls. In a segment the coefficients are α_i = w_i + v_i' q with
q = Σ_e M_fe p_e, so that all curves of field f rise if for every i

    G(d_i) ≥ 0,    d_i = (w_i+1 - w_i, v_i+1 - v_i),    G(δ, Δ) = δ + Σ_e min over p_e of Δ' M_fe p_e,

with coefficients on the finest grid of the field. G is concave and G(t d) = t G(d) for t ≥ 0: the differences that are
allowed form a convex cone, {d : δ + Δ' q ≥ 0 for all q}, and each d_i is projected onto it. There are as many q as
combinations of the other fields' values, but few matter: the projection onto the worst ones found so far is repeated
with the worst one of its result added, until none is below zero (column generation).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from splinefm._arrays import FloatArray
from splinefm.bounds.slopes import _Gain
from splinefm.encode.bases.splines import BSpline, MultiResolution
from splinefm.encode.slots import expand_windows
from splinefm.export.field_paths import field_features
from splinefm.train.fitted import Fitted

_MAX_ROUNDS = 30
_TOLERANCE = 1e-7


def project_shape(fitted: Fitted, f: int, sign: float = 1.0, order: int = 1) -> FloatArray:
    """Linear weights and vectors of the basis functions of field f, changed as little as possible.

    Parameters
    ----------
    fitted : Fitted
        The model.
    f : int
        The field.
    sign : {1.0, -1.0}
        Increasing or decreasing; convex or concave with `order` 2.
    order : {1, 2}
        Of the differences that must not be negative.

    Returns
    -------
    array of shape (functions, 1 + width)
        What to store in place of `field_features` without the tokens.
    """
    item: Any = fitted.encoder.fields[f]
    rows = field_features(fitted, f)[item.n_tokens :]
    fine = finest(item.basis)
    on_grid = _on_finest(item.basis, rows)
    gain = _Gain(fitted, f)
    changes = sign * np.diff(on_grid, n=order, axis=0)
    margin = 8 * np.finfo(np.float32).eps * _reach(gain, on_grid)
    wanted = sign * project_onto_cone(gain, changes, margin)
    new = _integrated(on_grid, wanted, order)
    out = rows.copy()
    out[len(rows) - fine.sizes[0] :] += new - on_grid
    return out


def project_onto_cone(gain: Any, changes: FloatArray, margin: float) -> FloatArray:
    """Each change moved as little as possible, so that the least it does to a score is at least the margin."""
    out = changes.copy()
    low = gain(out)
    open_ = np.flatnonzero(low < margin)
    # A coordinate of a vector is measured by what it does to a score, as a linear weight is.
    cuts: dict[int, list[FloatArray]] = {int(i): [] for i in open_}
    scale = None
    for _ in range(_MAX_ROUNDS):
        if not len(open_):
            break
        met = gain.meets(out[open_])
        if scale is None:
            scale = np.append(1.0, np.sqrt(np.maximum((met[:, 1:] ** 2).mean(axis=0), 1e-12)))
        for i, q in zip(open_.tolist(), met, strict=True):
            cuts[i].append(q / scale)
            out[i] = _project(changes[i] * scale, np.array(cuts[i]), margin) / scale
        low[open_] = gain(out[open_])
        open_ = open_[low[open_] < margin * (1 - 1e-3)]
    # What is left by the limit of rounds, or by rounding, goes into the linear weights: that is always enough.
    out[:, 0] += np.maximum(margin - gain(out), 0.0) * (gain(out) < margin)
    return out


def _project(point: FloatArray, cuts: FloatArray, margin: float) -> FloatArray:
    """The nearest point d with cuts @ d ≥ margin: by the dual, a non-negative least squares problem."""
    from scipy.optimize import nnls

    # Lawson & Hanson, least distance programming: min ||y|| with cuts y ≥ margin - cuts point.
    right = margin - cuts @ point
    matrix = np.vstack([cuts.T, right])
    target = np.append(np.zeros(len(point)), 1.0)
    weights, _ = nnls(matrix, target)
    residual = matrix @ weights - target
    if abs(residual[-1]) < 1e-14:
        return point
    return np.asarray(point - residual[:-1] / residual[-1])


def finest(basis: Any) -> BSpline:
    """The finest resolution of a spline, whose functions represent the others' as well."""
    if isinstance(basis, MultiResolution):
        last = max(basis.segments)
        if basis.segments[-1] != last or any(last % each for each in basis.segments):
            raise ValueError(
                f"a shape needs resolutions that divide the finest one, which comes last; got {basis.segments}"
            )
        return basis.levels[-1]
    if isinstance(basis, BSpline) and not basis.periodic:
        return basis
    raise ValueError(f"a shape needs a spline that is not periodic, got {basis!r}")


def _on_finest(basis: Any, rows: FloatArray) -> FloatArray:
    """Coefficients on the finest grid: knot insertion, by interpolation, since the finest splines hold the others."""
    fine = finest(basis)
    if not isinstance(basis, MultiResolution):
        return rows
    n = fine.sizes[0]
    knots = fine.extended_knots
    # Averages of knots, where interpolation by splines is well posed, moved into [0, 1].
    u = np.array([knots[i + 1 : i + fine.degree + 1].mean() for i in range(n)]) if fine.degree else fine.breaks[:-1]
    u = np.clip(u, 0.0, 1.0)
    u[0], u[-1] = 0.0, 1.0
    if fine.degree > 1:  # the averages beyond 0 and 1 coincide there: spread them over the first and the last segment
        u = _spread(u, fine)
    return np.asarray(np.linalg.solve(_matrix(fine, u), _matrix(basis, u) @ rows))


def _spread(u: FloatArray, fine: BSpline) -> FloatArray:
    inner = (u > 0.0) & (u < 1.0)
    middle = u[inner]
    left, right = int((u <= 0.0).sum()), int((u >= 1.0).sum())
    first, last = (middle[0], middle[-1]) if len(middle) else (0.5, 0.5)
    return np.concatenate(
        [np.arange(left) * first / left, middle, 1.0 - np.arange(right)[::-1] * (1.0 - last) / right]
    )


def _matrix(basis: Any, u: FloatArray) -> FloatArray:
    start, weight = basis(u)
    out = np.zeros((len(u), sum(basis.sizes)))
    np.add.at(out, (np.arange(len(u))[:, None], expand_windows(start, basis.widths)), weight)
    return out


def _integrated(before: FloatArray, changes: FloatArray, order: int) -> FloatArray:
    """Coefficients with these differences that are closest to those before."""
    n = len(before)
    after = changes
    for _ in range(order):
        after = np.concatenate([np.zeros((1, after.shape[1])), np.cumsum(after, axis=0)])
    # What differences do not see, a constant (and a slope), is chosen by least squares.
    free = np.vander(np.linspace(-1.0, 1.0, n), order)
    return np.asarray(after + free @ np.linalg.lstsq(free, before - after, rcond=None)[0])


def _reach(gain: Any, on_grid: FloatArray) -> float:
    """The largest coefficient of any segment, roughly: rounding is relative to it."""
    return float(np.abs(np.minimum(gain(on_grid), gain(-on_grid))).max())
