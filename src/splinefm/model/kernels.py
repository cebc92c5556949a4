"""The fused loops of the CPU engine, on raw arrays. Importing this module loads Numba.

A batch goes through two phases, each cut into parts that threads take one by one:

1. by rows, a tile at a time: P = the unit vectors, score, loss and its slope, and D = the derivatives of the score by
   the unit vectors, or what they follow from;
2. by fields: slope · D is added to the gradients of the table rows of a field, and touched rows are updated.

Rows of a field belong to no other field, so that phase 2 needs no locks, and every sum has one order: the result does
not depend on the number of threads.

Letters: P unit vectors, T table of vectors, L linear weights, R weights and M matrices between fields. All are flat
arrays: the vector of table row r starts at r · width. The width is k; in an FFM it is k for every field.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from splinefm.model.interactions import OPTIONS, inlined, pairs, scores
from splinefm.model.rows import fetch_tile, set_slope, turn
from splinefm.model.scatter import scatter
from splinefm.model.threads import take, wait_for
from splinefm.model.updates import finish_places, update_field, update_flat

SUMS = 8  # parts in which the gradients of shards are summed
_ZERO = np.float32(0.0)
_SOURCES = "kernels interactions rows scatter threads updates vectors workspace optimizers"


def _digest() -> str:
    """Of all sources that the kernels are made of."""
    folder = Path(__file__).parent
    return hashlib.sha256(b"".join((folder / f"{name}.py").read_bytes() for name in _SOURCES.split())).hexdigest()[:12]


_DIGEST = _digest()


def _compiled(function: Callable[..., Any]) -> Any:
    """Compile and keep the result on disk, in a file that is named after all sources.

    Numba looks at the file of the function alone, and reads what it kept before it looks; a kernel of an older version
    of this package, or one that is made of other files that have changed, must not be found.
    """
    function.__qualname__ = f"{function.__name__}_{_DIGEST}"
    return njit(cache=True, **OPTIONS)(function)


@_compiled
def score_rows(
    spec: Any, shape: Any, weights: Any, data: Any, rows: Any, columns: Any, scratch: Any, D: Any, out: Any
) -> None:
    """out[i] = score of row rows[i]; columns and D have room for a tile."""
    none = np.int64(0)  # a plain 0 would be a type of its own, and everything would be compiled for it again
    for at in range(0, len(rows), spec.tile):
        tile, values = rows[at : at + spec.tile], out[at : at + spec.tile]
        turn(data, tile, columns, none)
        values[:] = weights.bias[0]
        scores(spec, shape, weights, columns, none, scratch, D, none, values)


@_compiled
def train_rows(
    spec: Any,
    shape: Any,
    weights: Any,
    data: Any,
    rows: Any,
    total_weight: float,
    columns: Any,
    work: Any,
    scratch: Any,
    touch: Any,
    penalty: Any,
    state: Any,
    linear: Any,
    step: Any,
    counters: Any,
) -> None:
    """One step on a batch, block by block; every thread of it makes the same call, with scratch of its own.

    `state` is the optimizer's memory of the vectors, `linear` that of the linear weights.
    """
    n_fields, sums = len(shape.window_ptr) - 1, np.int64(SUMS)
    at = 0
    for first in range(0, len(rows), work.block):
        block = rows[first : first + work.block]
        n_shards = (len(block) + work.shard - 1) // work.shard
        part = take(counters, at)
        while part < n_shards:
            _shard(spec, shape, weights, data, block, total_weight, first, part, columns, work, scratch)
            take(counters, at + 1)
            part = take(counters, at)
        wait_for(counters, at + 1, n_shards)
        field = take(counters, at + 2)
        while field < n_fields:
            scatter(spec, shape, weights, first, len(block), field, columns, work, touch)
            if first + len(block) == len(rows):
                finish_places(spec.kt, field, touch, penalty, state.last, step)
                update_field(spec.kt, weights.T, weights.L, field, touch, penalty, state, linear, step)
            take(counters, at + 3)
            field = take(counters, at + 2)
        wait_for(counters, at + 3, n_fields)
        at += 4
    part = take(counters, at)
    while part < sums:
        _sum_shards(work.dR, part)
        _sum_shards(work.dM, part)
        take(counters, at + 1)
        part = take(counters, at)
    wait_for(counters, at + 1, sums)


@inlined
def _shard(
    spec: Any,
    shape: Any,
    weights: Any,
    data: Any,
    block: Any,
    total_weight: float,
    first: int,
    shard: int,
    columns: Any,
    work: Any,
    scratch: Any,
) -> None:
    """Loss, slope and D of the rows of a shard, which has a dR and dM of its own."""
    room = len(work.D) // work.block
    begin, end = shard * work.shard, min((shard + 1) * work.shard, len(block))
    if first == 0:
        work.dR[shard, :] = _ZERO
        work.dM[shard, :] = _ZERO
    for at in range(begin, end, spec.tile):
        tile = block[at : min(at + spec.tile, end)]
        fetch_tile(data, block[at + spec.tile : min(at + 2 * spec.tile, end)])
        slopes = work.slopes[first + at : first + at + len(tile)]
        turn(data, tile, columns, at)
        slopes[:] = weights.bias[0]
        scores(spec, shape, weights, columns, at, scratch, work.D, at * room, slopes)
        for i in range(len(tile)):
            set_slope(spec.loss, data, tile[i], np.float64(slopes[i]), total_weight, work, first + at + i)
        pairs(spec, shape, scratch, work.D, at * room, slopes, work, shard)


@inlined
def _sum_shards(gradients: Any, part: int) -> None:
    """Add the gradients of all shards to those of the first, in order; a part of the numbers."""
    n = gradients.shape[1]
    for shard in range(1, len(gradients)):
        for at in range(part * n // SUMS, (part + 1) * n // SUMS):
            gradients[0, at] += gradients[shard, at]


@_compiled
def update_dense(values: Any, gradient: Any, state: Any, step: Any) -> None:
    """One step on parameters that every row touches, flattened."""
    update_flat(values, gradient, state, step)
