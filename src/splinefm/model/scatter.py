"""From the derivatives of rows to the gradients of the table rows of a field.

A spline touches four neighboring table rows, and few different ones: what rows of data add to them is summed near by,
in `Scratch.sums`, before the table rows get a place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from splinefm.model.bundles import NEAR
from splinefm.model.interactions import KEPT, FMSpec, dispatched
from splinefm.model.units import AHEAD, any_unit, fetch_columns, kind_of, merged, start_of
from splinefm.model.updates import place_of
from splinefm.model.vectors import (
    absolute,
    add_to,
    add_to_four,
    column,
    fetch,
    fill,
    four,
    increase,
    load,
    number,
    put,
    scale,
    store,
    subtract,
    sum_four,
)

_ZERO, _ONE = np.float32(0.0), np.float32(1.0)


def scatter(
    spec: Any, shape: Any, weights: Any, first: int, n: int, field: int, columns: Any, work: Any, touch: Any, sums: Any
) -> None:
    """Add weight slope D and weight slope of n rows of a block to the gradients of a field.

    `first` is the place of the block in the batch.
    """
    _SCATTERS[type(spec)](spec, shape, weights, first, n, field, columns, work, touch, sums)


def _of_sums(
    spec: Any, shape: Any, weights: Any, first: int, n: int, field: int, columns: Any, work: Any, touch: Any, sums: Any
) -> None:
    """In an FM D is s, and the derivative by p_u is s - p_u."""
    kt, k, T, base, summed = spec.kt, len(spec.kt), weights.T, shape.row_ptr[field], False
    for w in range(shape.window_ptr[field], shape.window_ptr[field + 1]):
        u, j, end = shape.window_unit[w], shape.weight_ptr[w], shape.weight_ptr[w + 1]
        kind = kind_of(shape, u)
        if kind == 1:
            _add_categories(kt, first, n, field, w, j, columns, work, touch)
        elif end - j == 4 and _is_near(shape, field):
            for i in range(n if kind == 4 else 0):
                fetch_columns(columns, i, w, j, end)
                row, slope = start_of(columns, i, w), number(work.slopes, first + i)
                x = four(columns.weight, column(i, j, columns.n_weights))
                d = subtract(load(work.D, i * k, kt), sum_four(x, T, row * k, kt))
                _add_four(kt, slope, d, row - base, x, sums)
            for i in range(n if kind != 4 else 0):
                fetch_columns(columns, i, w, j, end)
                row, slope = start_of(columns, i, w), number(work.slopes, first + i)
                x = four(columns.weight, column(i, j, columns.n_weights))
                p, _ = any_unit(kt, shape, weights, columns, i, u)
                d = subtract(load(work.D, i * k, kt), p)
                _add_four(kt, slope, d, row - base, x, sums)
            summed = True
        else:
            for i in range(n):
                p, _ = any_unit(kt, shape, weights, columns, i, u)
                d = subtract(load(work.D, i * k, kt), p)
                for m in range(end - j):
                    _add_one(kt, number(work.slopes, first + i), d, field, w, m, j + m, columns, i, touch)
    if summed:
        _place_sums(kt, shape, field, sums, touch)


@merged
def _add_categories(
    kt: Any, first: int, n: int, field: int, w: int, j: int, columns: Any, work: Any, touch: Any
) -> None:
    """Add rows of a unit with one weight, as that of a category.

    Its p_u is x v, where v is the vector of one table row. Σ x slope (s - x v) is Σ x slope s - (Σ x² slope) v: v need
    not be read for every row of data, since the update has it at hand.
    """
    k = len(kt)
    for i in range(n):
        fetch_columns(columns, i, w, j, j + 1)
        if i + AHEAD < n:
            fetch(touch.slot, start_of(columns, i + AHEAD, w))
        x = number(columns.weight, column(i, j, columns.n_weights))
        if x != _ZERO:
            slope, place = x * number(work.slopes, first + i), place_of(kt, touch, field, start_of(columns, i, w))
            add_to(touch.gradient, place * k, slope, load(work.D, i * k, kt))
            increase(touch.linear, place, slope)
            increase(touch.own, place, x * slope)


def _of_units(
    spec: Any, shape: Any, weights: Any, first: int, n: int, field: int, columns: Any, work: Any, touch: Any, sums: Any
) -> None:
    """D has the derivative by every p_u."""
    kt, k, room, base, summed = spec.kt, len(spec.kt), work.room, shape.row_ptr[field], False
    for w in range(shape.window_ptr[field], shape.window_ptr[field + 1]):
        at, j, end = shape.window_unit[w] * k, shape.weight_ptr[w], shape.weight_ptr[w + 1]
        if end - j == 4 and _is_near(shape, field):
            for i in range(n):
                fetch_columns(columns, i, w, j, end)
                fetch(work.D, (i + AHEAD) * room + at)
                x = four(columns.weight, column(i, j, columns.n_weights))
                d, row = load(work.D, i * room + at, kt), start_of(columns, i, w) - base
                _add_four(kt, number(work.slopes, first + i), d, row, x, sums)
            summed = True
        else:
            for m in range(end - j):
                for i in range(n):
                    fetch_columns(columns, i, w, j + m, j + m + 1)
                    if i + AHEAD < n:
                        fetch(touch.slot, start_of(columns, i + AHEAD, w))
                        fetch(work.D, (i + AHEAD) * room + at)
                    d = load(work.D, i * room + at, kt)
                    _add_one(kt, number(work.slopes, first + i), d, field, w, m, j + m, columns, i, touch)
    if summed:
        _place_sums(kt, shape, field, sums, touch)


@merged
def _is_near(shape: Any, field: int) -> bool:
    """Whether a field has few enough table rows to be summed near by."""
    return bool(shape.row_ptr[field + 1] - shape.row_ptr[field] <= NEAR)


@merged
def _add_four(kt: Any, slope: Any, d: Any, row: int, x: Any, sums: Any) -> None:
    """Add weight slope d of a window of four weights: vectors, linear parts, and how much weight there is."""
    add_to_four(sums.vectors, row * len(kt), x, scale(slope, d))
    add_to(sums.linear, row, slope, x)
    add_to(sums.weight, row, _ONE, absolute(x))


@merged
def _place_sums(kt: Any, shape: Any, field: int, sums: Any, touch: Any) -> None:
    """Add the sums of a field to the gradients of its table rows, and clear them."""
    k, first = len(kt), shape.row_ptr[field]
    for row in range(shape.row_ptr[field + 1] - first):
        if number(sums.weight, row) > _ZERO:
            place = place_of(kt, touch, field, first + row)
            add_to(touch.gradient, place * k, _ONE, load(sums.vectors, row * k, kt))
            increase(touch.linear, place, number(sums.linear, row))
        store(sums.vectors, row * k, fill(_ZERO, kt))
        put(sums.linear, row, _ZERO)
        put(sums.weight, row, _ZERO)


@merged
def _add_one(kt: Any, slope: Any, d: Any, field: int, w: int, m: int, j: int, columns: Any, i: int, touch: Any) -> None:
    """Add weight slope d of weight j, which is that of table row m of window w."""
    k, x = len(kt), number(columns.weight, column(i, j, columns.n_weights))
    if x != _ZERO:
        factor, place = x * slope, place_of(kt, touch, field, start_of(columns, i, w) + m)
        add_to(touch.gradient, place * k, factor, d)
        increase(touch.linear, place, factor)


_SCATTERS: dict[Any, Any] = {FMSpec: _of_sums} | dict.fromkeys(KEPT, _of_units)
dispatched(scatter, _SCATTERS)
