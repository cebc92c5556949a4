"""From the derivatives of rows to the gradients of the table rows of a field."""

from __future__ import annotations

from typing import Any

import numpy as np

from splinefm.model.interactions import KEPT, FMSpec, dispatched
from splinefm.model.units import AHEAD, kind_of, merged, quick_vector, start_of
from splinefm.model.updates import place_of
from splinefm.model.vectors import add, axpy, column, fetch, fill, load, number, put, scale, store, subtract

_ZERO = np.float32(0.0)


def scatter(
    spec: Any, shape: Any, weights: Any, first: int, n: int, field: int, columns: Any, work: Any, touch: Any
) -> None:
    """Add weight slope D and weight slope of n rows of a block to the gradients of a field.

    `first` is the place of the block in the batch.
    """
    _SCATTERS[type(spec)](spec, shape, weights, first, n, field, columns, work, touch)


def _of_sums(
    spec: Any, shape: Any, weights: Any, first: int, n: int, field: int, columns: Any, work: Any, touch: Any
) -> None:
    """In an FM D is s, and the derivative by p_u is s - p_u."""
    for w in range(shape.window_ptr[field], shape.window_ptr[field + 1]):
        n_weights = shape.weight_ptr[w + 1] - shape.weight_ptr[w]
        if kind_of(shape, shape.window_unit[w]) == 1:
            _row_by_row(spec.kt, shape, first, n, field, w, columns, work, touch)
        else:
            n_starts = _link(shape, n, field, w, n_weights, columns, work, touch)
            for s in range(n_starts):
                row = work.starts[field * work.chains + s]
                head = touch.head[row]
                touch.head[row] = -1
                for m in range(0, n_weights, 4):
                    _add_chain(spec.kt, shape, weights.T, first, field, w, m, row + m, head, columns, work, touch)


@merged
def _row_by_row(
    kt: Any, shape: Any, first: int, n: int, field: int, w: int, columns: Any, work: Any, touch: Any
) -> None:
    """Add rows of a unit with one weight, as that of a category.

    Its p_u is x v, where v is the vector of one table row. Σ x slope (s - x v) is Σ x slope s - (Σ x² slope) v: v need
    not be read for every row of data, since the update has it at hand.
    """
    k, j = len(kt), shape.weight_ptr[w]
    for i in range(n):
        if i + AHEAD < n:
            fetch(touch.slot, start_of(columns, i + AHEAD, w))
        x = number(columns.weight, column(i, j, columns.n_weights))
        if x != _ZERO:
            slope, place = x * number(work.slopes, first + i), place_of(kt, touch, field, start_of(columns, i, w))
            gradient = axpy(slope, load(work.D, i * k, kt), load(touch.gradient, place * k, kt))
            store(touch.gradient, place * k, gradient)
            put(touch.linear, place, number(touch.linear, place) + slope)
            put(touch.own, place, number(touch.own, place) + x * slope)


@merged
def _add_chain(
    kt: Any,
    shape: Any,
    T: Any,
    first: int,
    field: int,
    w: int,
    m: int,
    row: int,
    head: int,
    columns: Any,
    work: Any,
    touch: Any,
) -> None:
    """Add a chain to the gradients of up to four neighboring table rows, from `row` on, in registers."""
    k, u, j = len(kt), shape.window_unit[w], shape.weight_ptr[w] + m
    n_weights, kind = min(4, shape.weight_ptr[w + 1] - j), kind_of(shape, u)
    g0, g1, g2, g3 = fill(_ZERO, kt), fill(_ZERO, kt), fill(_ZERO, kt), fill(_ZERO, kt)
    l0, l1, l2, l3 = _ZERO, _ZERO, _ZERO, _ZERO
    s0, s1, s2, s3 = _ZERO, _ZERO, _ZERO, _ZERO  # whether there is any weight
    i = head
    while i >= 0:
        slope, at = number(work.slopes, first + i), column(i, j, columns.n_weights)
        others = subtract(load(work.D, i * k, kt), quick_vector(kt, shape, kind, T, columns, i, u))
        d = scale(slope, others)
        x0, x1 = number(columns.weight, at), number(columns.weight, at + 16) if n_weights > 1 else _ZERO
        x2 = number(columns.weight, at + 32) if n_weights > 2 else _ZERO
        x3 = number(columns.weight, at + 48) if n_weights > 3 else _ZERO
        g0, g1, g2, g3 = axpy(x0, d, g0), axpy(x1, d, g1), axpy(x2, d, g2), axpy(x3, d, g3)
        l0, l1, l2, l3 = l0 + x0 * slope, l1 + x1 * slope, l2 + x2 * slope, l3 + x3 * slope
        s0, s1, s2, s3 = s0 + abs(x0), s1 + abs(x1), s2 + abs(x2), s3 + abs(x3)
        i = work.chain[field * work.chains + i]
    for q in range(4):
        if (s0 if q == 0 else s1 if q == 1 else s2 if q == 2 else s3) > _ZERO:
            place = place_of(kt, touch, field, row + q)
            g = g0 if q == 0 else g1 if q == 1 else g2 if q == 2 else g3
            linear = l0 if q == 0 else l1 if q == 1 else l2 if q == 2 else l3
            store(touch.gradient, place * k, add(g, load(touch.gradient, place * k, kt)))
            put(touch.linear, place, number(touch.linear, place) + linear)


def _of_units(
    spec: Any, shape: Any, weights: Any, first: int, n: int, field: int, columns: Any, work: Any, touch: Any
) -> None:
    """D has the derivative by every p_u."""
    k = len(spec.kt)
    for w in range(shape.window_ptr[field], shape.window_ptr[field + 1]):
        u, j = shape.window_unit[w], shape.weight_ptr[w]
        n_weights = shape.weight_ptr[w + 1] - j
        for i in range(n):
            if i + AHEAD < n:
                fetch(touch.slot, start_of(columns, i + AHEAD, w))
                fetch(work.D, (i + AHEAD) * work.room + u * k)
            slope, row, at = number(work.slopes, first + i), start_of(columns, i, w), column(i, j, columns.n_weights)
            d = scale(slope, load(work.D, i * work.room + u * k, spec.kt))
            for m in range(n_weights):
                x = number(columns.weight, at + 16 * m)
                if x != _ZERO:
                    place = place_of(spec.kt, touch, field, row + m)
                    store(touch.gradient, place * k, axpy(x, d, load(touch.gradient, place * k, spec.kt)))
                    put(touch.linear, place, number(touch.linear, place) + x * slope)


@merged
def _link(shape: Any, n: int, field: int, w: int, n_weights: int, columns: Any, work: Any, touch: Any) -> Any:
    """Chain the rows by the start of window w; returns the number of different ones."""
    n_starts, j = 0, shape.weight_ptr[w]
    for i in range(n - 1, -1, -1):  # backwards, so that chains go forward
        if i >= AHEAD:
            fetch(touch.head, start_of(columns, i - AHEAD, w))
        if n_weights > 1 or number(columns.weight, column(i, j, columns.n_weights)) != _ZERO:
            row = start_of(columns, i, w)
            if touch.head[row] < 0:
                work.starts[field * work.chains + n_starts] = row
                n_starts += 1
            work.chain[field * work.chains + i] = touch.head[row]
            touch.head[row] = i
    return n_starts


_SCATTERS: dict[Any, Any] = {FMSpec: _of_sums} | dict.fromkeys(KEPT, _of_units)
dispatched(scatter, _SCATTERS)
