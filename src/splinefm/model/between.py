"""Parameters between fields: their gradient from that of pairs of units, a step, and the copy that the kernels read.

| model | parameters | copy |
|---|---|---|
| FwFM | a weight R_fe for each pair of fields f ≤ e | R_uv of all pairs of units, in fours |
| LowRankFwFM | U and d of R = U' diag(d) U without its diagonal | the same |
| FmFM | a matrix M_fe for each pair of fields f ≤ e | one matrix between all units, in panels |

The other models have none.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from splinefm.model.interactions import FmFMSpec, FMSpec, FwFMSpec, HigherSpec, LowRankSpec, dispatched
from splinefm.model.units import lines, merged, padded
from splinefm.model.updates import update_flat, without_decay
from splinefm.model.vectors import add, fill, load, number, put, store, total

_ZERO = np.float32(0.0)


def update_between(
    spec: Any, shape: Any, weights: Any, work: Any, between: Any, scales: Any, part: int, step: Any
) -> None:
    """The step of part f: all pairs of field f and a field that is not before it. All fields have to come up."""
    _UPDATES[type(spec)](spec, shape, weights, work, between, scales, part, step)


def _update_nothing(
    spec: Any, shape: Any, weights: Any, work: Any, between: Any, scales: Any, part: int, step: Any
) -> None:
    """There are no such parameters."""


def _update_weights(
    spec: Any, shape: Any, weights: Any, work: Any, between: Any, scales: Any, part: int, step: Any
) -> None:
    """R_fe of an FwFM for e ≥ f."""
    n_fields = shape.n_fields
    _weight_gradients(spec.kt, shape, work, between.gradient, part)
    first = part * n_fields + part
    update_flat(between, first, n_fields - part, without_decay(step))
    for u in range(shape.n_units):
        if shape.unit_field[u] == part:
            for v in range(u + 1, shape.n_units):
                _set_weight(shape, weights.R, u, v, between.values[part * n_fields + shape.unit_field[v]])


@merged
def _weight_gradients(kt: Any, shape: Any, work: Any, gradient: Any, field: int) -> None:
    """The gradients of R_fe, e ≥ f: sums over pairs of units, and over the k numbers that the shards have left."""
    units = padded(shape.n_units)
    for e in range(shape.n_fields):
        gradient[field * shape.n_fields + e] = _ZERO
    for u in range(shape.n_units):
        if shape.unit_field[u] == field:
            for v in range(u + 1, shape.n_units):
                at = field * shape.n_fields + shape.unit_field[v]
                gradient[at] += total(load(work.between, (u * units + v) * len(kt), kt))


@merged
def _set_weight(shape: Any, R: Any, u: int, v: int, value: Any) -> None:
    """R_uv and R_vu, in fours: see `workspace`."""
    R[(u // 4 * shape.n_units + v) * 4 + u % 4] = value
    R[(v // 4 * shape.n_units + u) * 4 + v % 4] = value


def _update_low_rank(
    spec: Any, shape: Any, weights: Any, work: Any, between: Any, scales: Any, part: int, step: Any
) -> None:
    """U and d; the first part does it all, with the gradient G of R in the rest of the room for the gradient of U."""
    if part > 0:
        return
    n_fields, rank = shape.n_fields, scales.n
    U, d, G = between.values, scales.values, rank * n_fields
    for f in range(n_fields):
        for e in range(n_fields):
            between.gradient[G + f * n_fields + e] = _ZERO
    for u in range(shape.n_units):
        for v in range(u + 1, shape.n_units):
            f, e = shape.unit_field[u], shape.unit_field[v]
            if f != e:
                gradient = total(load(work.between, (u * padded(shape.n_units) + v) * len(spec.kt), spec.kt))
                between.gradient[G + f * n_fields + e] += gradient
                between.gradient[G + e * n_fields + f] += gradient
    for r in range(rank):
        scales.gradient[r] = _ZERO
        for f in range(n_fields):
            turned = _ZERO
            for e in range(n_fields):
                turned += between.gradient[G + f * n_fields + e] * U[r * n_fields + e]
            between.gradient[r * n_fields + f] = d[r] * turned
            scales.gradient[r] += np.float32(0.5) * turned * U[r * n_fields + f]
    update_flat(between, 0, rank * n_fields, without_decay(step))
    update_flat(scales, 0, rank, without_decay(step))
    for u in range(shape.n_units):
        for v in range(u + 1, shape.n_units):
            f, e, value = shape.unit_field[u], shape.unit_field[v], _ZERO
            if f != e:
                for r in range(rank):
                    value += U[r * n_fields + f] * d[r] * U[r * n_fields + e]
            _set_weight(shape, weights.R, u, v, value)


def _update_matrices(
    spec: Any, shape: Any, weights: Any, work: Any, between: Any, scales: Any, part: int, step: Any
) -> None:
    """M_fe of an FmFM for e ≥ f, and what they are in the panels: see `workspace`."""
    kt, k, n_fields, n = spec.kt, len(spec.kt), shape.n_fields, shape.n_units * len(spec.kt)
    first, end = (part * n_fields + part) * k * k, (part + 1) * n_fields * k * k
    for at in range(first, end, k):
        store(between.gradient, at, fill(_ZERO, kt))
    for u in range(shape.n_units):
        if shape.unit_field[u] == part:
            for v in range(u + 1, shape.n_units):
                at = (part * n_fields + shape.unit_field[v]) * k * k
                for r in range(k):
                    d = load(work.between, (u * k + r) * lines(n) + v * k, kt)
                    store(between.gradient, at + r * k, add(d, load(between.gradient, at + r * k, kt)))
    update_flat(between, first, end - first, without_decay(step))
    for u in range(shape.n_units):
        if shape.unit_field[u] == part:
            for v in range(u + 1, shape.n_units):
                at = (part * n_fields + shape.unit_field[v]) * k * k
                for r in range(k):
                    row = u * k + r
                    for c in range(k):
                        value, column = number(between.values, at + r * k + c), v * k + c
                        put(weights.M, (column // 16 * n + row) * 16 + column % 16, value)
                        put(weights.M, (row // 16 * n + column) * 16 + row % 16, value)


_UPDATES: dict[Any, Any] = dict.fromkeys((FMSpec, HigherSpec), _update_nothing) | {
    FwFMSpec: _update_weights,
    LowRankSpec: _update_low_rank,
    FmFMSpec: _update_matrices,
}
dispatched(update_between, _UPDATES)
