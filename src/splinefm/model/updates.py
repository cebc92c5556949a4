"""From gradients to new values, field by field and on touched rows only: penalties, then the optimizer.

`touch` lists the table rows that a batch touches: `touch.rows[place]`, the places of a field one after another from
`touch.ptr[field]` on. The vector of table row r is at r · width in T, its gradient at place · width.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from splinefm.model.optimizers import Step
from splinefm.model.units import inlined, merged
from splinefm.model.vectors import (
    add,
    axpy,
    divide,
    fetch,
    fill,
    fma,
    load,
    multiply,
    scale,
    sqrt,
    store,
    subtract,
)

AHEAD = 8  # how many table rows ahead memory is asked for
_ZERO = np.float32(0.0)


@merged
def place_of(kt: Any, touch: Any, field: int, row: int) -> Any:
    """The place of a table row; a new one has gradient zero."""
    place = touch.slot[row]
    if place < 0:
        place = touch.ptr[field] + touch.n_places[16 * field]
        touch.n_places[16 * field] += 1
        touch.slot[row] = place
        touch.rows[place] = row
        touch.linear[place] = _ZERO
        touch.own[place] = _ZERO
        for c in range(place * touch.width, (place + 1) * touch.width, len(kt)):
            store(touch.gradient, c, fill(_ZERO, kt))
    return place


@merged
def finish_places(kt: Any, field: int, touch: Any, penalty: Any, last: Any, step: Any) -> None:
    """Places for rows that only penalties touch; how much of its average every touched row keeps."""
    for group in range(penalty.group_ptr[field], penalty.group_ptr[field + 1]):
        if penalty.smoothness[group] > 0.0:  # such a group changes as a whole
            for row in range(penalty.begin[group], penalty.end[group]):
                place_of(kt, touch, field, row)
    if step.ema > 0.0:
        for place in range(touch.ptr[field], touch.ptr[field] + touch.n_places[16 * field]):
            row = touch.rows[place]
            # While a row is not touched it does not change, and its average approaches it.
            touch.keep[place] = np.float32(step.ema ** (step.number - 1 - last[row]))
            last[row] = step.number


@merged
def update_field(
    kt: Any, T: Any, L: Any, field: int, touch: Any, penalty: Any, state: Any, linear: Any, step: Any
) -> None:
    """Penalties, then one step of the optimizer on the touched rows of a field, which gives up its places.

    `state` is the optimizer's memory of the vectors T, `linear` that of the weights L.
    """
    one, width, group = (0,), touch.width, penalty.group_ptr[field]
    _smooth_groups(kt, T, width, touch.gradient, field, touch, penalty)
    _smooth_groups(one, L, 1, touch.linear, field, touch, penalty)
    first, end = touch.ptr[field], touch.ptr[field] + touch.n_places[16 * field]
    for place in range(first, end):
        row = touch.rows[place]
        if place + AHEAD < end:
            _fetch_row(T, L, width, touch.rows[place + AHEAD], touch, state, linear)
        group, keep = _group_of(row, group, field, penalty), touch.keep[place]
        more = penalty.l2[group] - touch.own[place]
        for c in range(0, width, len(kt)):
            g = axpy(more, load(T, row * width + c, kt), load(touch.gradient, place * width + c, kt))
            _optimize(kt, T, row * width + c, g, keep, state, step)
        g = fill(touch.linear[place] + penalty.l2_linear[group] * L[row], one)
        _optimize(one, L, row, g, keep, linear, step)
        touch.slot[row] = -1
    touch.n_places[16 * field] = 0


@merged
def _fetch_row(T: Any, L: Any, width: int, row: int, touch: Any, state: Any, linear: Any) -> None:
    """Ask for a table row, its place and the optimizer's memory of it; the rest of a long one follows by itself."""
    for at in range(row * width, row * width + min(width, 64), 16):
        fetch(T, at)
        fetch(state.v, at)
    fetch(L, row)
    fetch(linear.v, row)
    fetch(touch.slot, row)


@merged
def _group_of(row: int, group: int, field: int, penalty: Any) -> int:
    """The group of a row; `group` is a guess."""
    if row < penalty.begin[group]:
        group = penalty.group_ptr[field]
    while row >= penalty.end[group]:
        group += 1
    return group


@inlined
def _smooth_groups(kt: Any, T: Any, width: int, gradient: Any, field: int, touch: Any, penalty: Any) -> None:
    """Add the gradient of λ Σ |Δ^order v|² of all groups of a field; a periodic group wraps around."""
    for group in range(penalty.group_ptr[field], penalty.group_ptr[field + 1]):
        if not penalty.smoothness[group] > 0.0:
            continue
        begin, size, order = penalty.begin[group], penalty.end[group] - penalty.begin[group], penalty.order[group]
        for i in range(size if penalty.periodic[group] != 0 else size - order):
            for c in range(0, width, len(kt)):
                difference = fill(_ZERO, kt)
                for j in range(order + 1):
                    row = begin + (i + j) % size
                    difference = axpy(penalty.signed[4 * group + j], load(T, row * width + c, kt), difference)
                difference = scale(np.float32(2.0) * penalty.smoothness[group], difference)
                for j in range(order + 1):
                    at = touch.slot[begin + (i + j) % size] * width + c
                    store(gradient, at, axpy(penalty.signed[4 * group + j], difference, load(gradient, at, kt)))


@merged
def step_of(course: Any, batch: int, constants: Any) -> Any:
    """The numbers of the step on a batch."""
    return Step(
        constants.adam,
        course.lr[batch],
        constants.rate1,
        constants.rate2,
        course.correct1[batch],
        course.correct2[batch],
        constants.eps,
        constants.decay,
        constants.ema,
        course.number[batch],
    )


@merged
def without_decay(step: Any) -> Any:
    """The step for parameters that every row touches: they do not decay, and there is no average of them."""
    return Step(
        step.adam,
        step.lr,
        step.rate1,
        step.rate2,
        step.correct1,
        step.correct2,
        step.eps,
        np.float32(0.0),
        0.0,
        step.number,
    )


@merged
def update_bias(bias: Any, gradient: Any, state: Any, step: Any) -> None:
    """One step on the bias."""
    one = (0,)
    _optimize(one, bias, 0, fill(gradient, one), _ZERO, state, without_decay(step))


@inlined
def _optimize(kt: Any, T: Any, at: int, g: Any, keep: Any, state: Any, step: Any) -> None:
    """One step of lazy AdamW or Adagrad, and of the average, for k numbers of the table."""
    values = load(T, at, kt)
    before = values
    if step.adam:
        m = load(state.m, at, kt)
        m = axpy(step.rate1, subtract(g, m), m)
        v = load(state.v, at, kt)
        v = axpy(step.rate2, subtract(multiply(g, g), v), v)
        store(state.m, at, m)
        change = divide(scale(step.correct1, m), axpy(step.correct2, sqrt(v), fill(step.eps, kt)))
    else:
        v = fma(g, g, load(state.v, at, kt))
        change = divide(g, add(sqrt(v), fill(step.eps, kt)))
    store(state.v, at, v)
    values = axpy(-step.lr, axpy(step.decay, values, change), values)
    store(T, at, values)
    if step.ema > 0.0:
        average = axpy(keep, subtract(load(state.average, at, kt), before), before)
        store(state.average, at, axpy(np.float32(step.ema), subtract(average, values), values))


@merged
def update_flat(dense: Any, first: int, n: int, step: Any) -> None:
    """One step on n numbers, from place `first` on."""
    one, many = (0,), (0,) * 16
    whole = first + n // 16 * 16
    for at in range(first, whole, 16):
        _optimize(many, dense.values, at, load(dense.gradient, at, many), _ZERO, dense.state, step)
    for at in range(whole, first + n):
        _optimize(one, dense.values, at, load(dense.gradient, at, one), _ZERO, dense.state, step)
