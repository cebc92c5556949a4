"""From gradients to new values, field by field and on touched rows only: penalties, then the optimizer.

`touch` lists the table rows that a batch touches: `touch.rows[place]`, the places of a field one after another from
`touch.ptr[field]` on; `touch.slot[row]` is the place of a row, the last one if it has several. The vector of table row
r is at r · width in T, its gradient at place · width.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from splinefm.model.optimizers import Step
from splinefm.model.pointers import behind
from splinefm.model.units import inlined, merged
from splinefm.model.vectors import (
    add,
    add_to,
    axpy,
    divide,
    fetch,
    fill,
    fma,
    increase,
    load,
    multiply,
    scale,
    sqrt,
    store,
    subtract,
)

AHEAD = 8  # how many table rows ahead memory is asked for
_ZERO = np.float32(0.0)
# Plain int64: a 0 would have a type of its own, and everything would be compiled for it again.
_ONE, _MANY = (np.int64(0),), (np.int64(0),) * 16
_FIRST = np.int64(0)


@inlined
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
def update_field(kt: Any, field: int, memory: Any, step: Any) -> None:
    """Penalties, then one step of the optimizer on the touched rows of a field, which gives up its places."""
    touch, penalty, width = memory.touch, memory.penalty, memory.touch.width
    _smooth(kt, field, memory)
    first, end, group = touch.ptr[field], touch.ptr[field] + touch.n_places[16 * field], penalty.group_ptr[field]
    ahead = AHEAD if width <= 64 else AHEAD // 2
    for place in range(first, end):
        row = touch.rows[place]
        if place + ahead < end and touch.rows[place + ahead] >= 0:
            _fetch_row(place + ahead, memory)
        if row >= 0:
            group = _group_of(row, group, field, penalty)
            _update_row(kt, row, place, group, memory, step)
            touch.slot[row] = -1
    touch.n_places[16 * field] = 0


@merged
def _update_row(kt: Any, row: int, place: int, group: int, memory: Any, step: Any) -> None:
    """One step on a table row, whose gradient is at `place`."""
    T, L, touch, penalty, keep = memory.weights.T, memory.weights.L, memory.touch, memory.penalty, _ZERO
    if step.ema > 0.0:
        # While a row is not touched it does not change, and its average approaches it.
        missed = step.number - 1 - memory.vectors.last[row]
        keep = np.float32(step.ema ** np.float64(missed)) if missed > 0 else np.float32(1.0)
        memory.vectors.last[row] = step.number
    more = penalty.l2[group] - touch.own[place]
    for c in range(0, touch.width, len(kt)):
        at = row * touch.width + c
        g = axpy(more, load(T, at, kt), load(touch.gradient, place * touch.width + c, kt))
        _optimize(kt, T, at, g, keep, memory.vectors, step)
    g = fill(touch.linear[place] + penalty.l2_linear[group] * L[row], _ONE)
    _optimize(_ONE, L, row, g, keep, memory.linear, step)


@inlined
def _smooth(kt: Any, field: int, memory: Any) -> None:
    """Smoothed groups as a whole: places for rows that no row of data touches, and the gradient of λ Σ |Δ^order v|²."""
    touch, penalty = memory.touch, memory.penalty
    for group in range(penalty.group_ptr[field], penalty.group_ptr[field + 1]):
        if penalty.smoothness[group] > 0.0:
            begin, end, order = penalty.begin[group], penalty.end[group], penalty.order[group]
            for row in range(begin, end):
                place_of(kt, touch, field, row)
            for row in range(begin, end if penalty.periodic[group] != 0 else end - order):
                _add_difference(kt, row, begin, end, order, group, memory)


@merged
def _add_difference(kt: Any, first: int, begin: int, end: int, order: int, group: int, memory: Any) -> None:
    """The gradient of λ |Δ^order v|² at the rows from `first` on."""
    T, L, touch, signed = memory.weights.T, memory.weights.L, memory.touch, behind(memory.penalty.signed, 4 * group)
    width, twice, linear = touch.width, np.float32(2.0) * memory.penalty.smoothness[group], _ZERO
    for j in range(order + 1):
        linear += signed[j] * L[_wrapped(first + j, begin, end)]
    for j in range(order + 1):
        increase(touch.linear, touch.slot[_wrapped(first + j, begin, end)], twice * signed[j] * linear)
    for c in range(0, width, len(kt)):
        difference = fill(_ZERO, kt)
        for j in range(order + 1):
            difference = axpy(signed[j], load(T, _wrapped(first + j, begin, end) * width + c, kt), difference)
        for j in range(order + 1):
            place = touch.slot[_wrapped(first + j, begin, end)]
            add_to(touch.gradient, place * width + c, twice * signed[j], difference)


@merged
def _wrapped(row: int, begin: int, end: int) -> int:
    """The row, or the one in its place in a periodic group; a division would take longer than all the rest."""
    while row >= end:
        row -= end - begin
    return row


@merged
def _fetch_row(place: int, memory: Any) -> None:
    """Ask for a table row, the optimizer's memory of it, and its place."""
    touch, row, width = memory.touch, memory.touch.rows[place], memory.touch.width
    for at in range(row * width, (row + 1) * width, 16):
        fetch(memory.weights.T, at)
        fetch(memory.vectors.v, at)
    fetch(memory.weights.L, row)
    fetch(memory.linear.v, row)
    fetch(touch.slot, row)


@merged
def _group_of(row: int, group: int, field: int, penalty: Any) -> int:
    """The group of a row; `group` is a guess."""
    if row < penalty.begin[group]:
        group = penalty.group_ptr[field]
    while row >= penalty.end[group]:
        group += 1
    return group


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
    _optimize(_ONE, bias, _FIRST, fill(gradient, _ONE), _ZERO, state, without_decay(step))


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
    whole = first + n // 16 * 16
    for at in range(first, whole, 16):
        _optimize(_MANY, dense.values, at, load(dense.gradient, at, _MANY), _ZERO, dense.state, step)
    for at in range(whole, first + n):
        _optimize(_ONE, dense.values, at, load(dense.gradient, at, _ONE), _ZERO, dense.state, step)
