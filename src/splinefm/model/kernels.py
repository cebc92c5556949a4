"""The fused loops of the CPU engine, on raw arrays. Importing this module loads Numba.

A batch goes through two phases, each cut into parts that threads take one by one:

1. by rows, a tile at a time: P = the unit vectors, score, loss and its slope, and D = the derivatives of the score by
   the unit vectors, or what they follow from;
2. by fields: slope · D is added to the gradients of the table rows of a field, and touched rows are updated.

An FFM has no D: it adds up its gradients in the first phase, before which each has got a place, see `ffm`.

Rows of a field belong to no other field, so that phase 2 needs no locks, and every sum has one order: the result does
not depend on the number of threads.

Letters: P unit vectors, T table of vectors, L linear weights, R weights and M matrices between fields. All are flat
arrays: the vector of table row r starts at r · width. The width is k; in an FFM it is k for every field.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from splinefm.model.between import update_between
from splinefm.model.bundles import COUNTERS, Batches, Memory, Scoring, Scratch
from splinefm.model.compiled import compiled
from splinefm.model.ffm import prepare_batch, step_rows, sum_places
from splinefm.model.interactions import pairs, scores
from splinefm.model.pointers import behind, reader
from splinefm.model.rows import fetch_tile, set_slope, turn
from splinefm.model.scatter import scatter
from splinefm.model.threads import take, wait_for
from splinefm.model.units import OPTIONS, merged
from splinefm.model.updates import step_of, update_bias, update_field

SUMS = 8  # parts in which the gradients of shards are summed
_ZERO = np.float32(0.0)
_SOURCES = (
    "kernels between bundles ffm memory pointers units interactions rows scatter threads updates vectors optimizers"
)
_compiled = compiled("encode/pipeline " + " ".join(f"model/{name}" for name in _SOURCES.split()), **OPTIONS)

read_scoring, read_memory, read_batches = reader(Scoring), reader(Memory), reader(Batches)
read_scratch = reader(Scratch)


@_compiled
def score_rows(spec: Any, places: Any, first: int, n: int) -> None:
    """Scores of n rows of a `Scoring`, from row `first` on."""
    scoring = read_scoring(places)
    weights, columns = scoring.weights, scoring.columns
    none: Any = np.int64(0)  # a plain 0 would be a type of its own, and everything would be compiled for it again
    for at in range(first, first + n, spec.tile):
        n_rows, values = min(spec.tile, first + n - at), behind(scoring.scores, at)
        turn(scoring.data, at, n_rows, columns, none)
        for i in range(n_rows):
            values[i] = weights.bias[0]
        scores(spec, scoring.shape, weights, columns, none, n_rows, scoring.scratch, scoring.D, none, values)


@_compiled
def train_rows(spec: Any, places: Any, batch_places: Any, scratch_places: Any, constants: Any) -> None:
    """Steps on batches, block by block; every thread makes the same call, with scratch of its own.

    `constants` are the numbers of the optimizer that are the same in every step.
    """
    memory, batches, scratch = read_memory(places), read_batches(batch_places), read_scratch(scratch_places)
    shape, weights, columns, work = memory.shape, memory.weights, memory.columns, memory.work
    touch, data, course = memory.touch, batches.data, batches.course
    counters, n_fields, at, batch = course.counters, shape.n_fields, np.int64(0), np.int64(0)
    n_between = n_fields if memory.between.n > 0 else np.int64(0)
    for begin in range(0, course.n, course.batch_size):
        end = min(begin + course.batch_size, course.n)
        step = step_of(course, batch, constants)
        for first in range(begin, end, work.block):
            n_rows = min(work.block, end - first)
            n_shards = (n_rows + work.shard - 1) // work.shard
            part = take(counters, at)
            while part < n_shards:
                _shard(spec, data, course.total[batch], first, first - begin, n_rows, part, memory, scratch)
                take(counters, at + 1)
                part = take(counters, at)
            wait_for(counters, at + 1, n_shards)
            field = take(counters, at + 2)
            while field < n_fields:
                scatter(spec, shape, weights, first - begin, n_rows, field, columns, work, touch, scratch.sums)
                if first + n_rows == end:
                    update_field(spec.kt, field, memory, step)
                take(counters, at + 3)
                field = take(counters, at + 2)
            wait_for(counters, at + 3, n_fields)
            at += COUNTERS
        part = take(counters, at)
        while part <= SUMS:
            if part < SUMS:
                _sum_shards(work.between, work.n_between, work.n_shards, part)
            else:
                course.loss[batch] = _finish(work, end - begin, course.total[batch], weights.bias, memory.bias, step)
            take(counters, at + 1)
            part = take(counters, at)
        wait_for(counters, at + 1, SUMS + 1)
        part = take(counters, at + 2)
        while part < n_between:
            update_between(spec, shape, weights, work, memory.between, memory.scales, part, step)
            take(counters, at + 3)
            part = take(counters, at + 2)
        wait_for(counters, at + 3, n_between)
        at, batch = at + COUNTERS, batch + 1


@_compiled
def train_ffm(spec: Any, places: Any, batch_places: Any, scratch_places: Any, constants: Any) -> None:
    """The same for an FFM, whose batches are blocks: see `ffm`."""
    memory, batches, scratch = read_memory(places), read_batches(batch_places), read_scratch(scratch_places)
    weights, work, data, course = memory.weights, memory.work, batches.data, batches.course
    counters, n_fields, at, batch = course.counters, memory.shape.n_fields, np.int64(0), np.int64(0)
    for begin in range(0, course.n, course.batch_size):
        n = min(course.batch_size, course.n - begin)
        step, n_shards = step_of(course, batch, constants), (n + work.shard - 1) // work.shard
        prepare_batch(data, begin, n, n_shards, memory, counters, at)
        part = take(counters, at + 4)
        while part < n_shards:
            step_rows(spec, data, course.total[batch], begin, n, part, memory, scratch)
            take(counters, at + 5)
            part = take(counters, at + 4)
        wait_for(counters, at + 5, n_shards)
        field = take(counters, at + 6)
        while field <= n_fields:
            if field < n_fields:
                sum_places(spec.kt, field, memory.touch)
                update_field(spec.kt, field, memory, step)
            else:
                course.loss[batch] = _finish(work, n, course.total[batch], weights.bias, memory.bias, step)
            take(counters, at + 7)
            field = take(counters, at + 6)
        wait_for(counters, at + 7, n_fields + 1)
        at, batch = at + COUNTERS, batch + 1


@merged
def _finish(work: Any, n: int, total: float, bias: Any, state: Any, step: Any) -> Any:
    """The mean loss of the n rows of a batch before the step, and the step of the bias."""
    loss, slope = 0.0, 0.0
    for i in range(n):
        loss += work.losses[i]
        slope += np.float64(work.slopes[i])
    update_bias(bias, np.float32(slope), state, step)
    return loss / total


@merged
def _shard(
    spec: Any, data: Any, total_weight: float, first: int, place: int, n: int, part: int, memory: Any, scratch: Any
) -> None:
    """Loss, slope and D of the rows of shard `part`, which has gradients between fields of its own.

    The block has n rows: from row `first` of all, which is `place` in its batch, on.
    """
    shape, weights, columns, work = memory.shape, memory.weights, memory.columns, memory.work
    begin, end = part * work.shard, min((part + 1) * work.shard, n)
    if place == 0:
        for i in range(part * work.n_between, (part + 1) * work.n_between):
            work.between[i] = _ZERO
    for at in range(begin, end, spec.tile):
        n_rows, row = min(spec.tile, end - at), first + at
        fetch_tile(data, row + spec.tile, first + min(at + 2 * spec.tile, end))
        slopes = behind(work.slopes, place + at)
        turn(data, row, n_rows, columns, at)
        for i in range(n_rows):
            slopes[i] = weights.bias[0]
        scores(spec, shape, weights, columns, at, n_rows, scratch, work.D, at * work.room, slopes)
        for i in range(n_rows):
            set_slope(spec.loss, data, data.rows[row + i], np.float64(slopes[i]), total_weight, work, place + at + i)
        pairs(spec, shape, scratch, work.D, at * work.room, n_rows, slopes, work, part)


@merged
def _sum_shards(gradients: Any, n: int, n_shards: int, part: int) -> None:
    """Add the gradients of all shards to those of the first, in order; a part of their n numbers."""
    for shard in range(1, n_shards):
        for at in range(part * n // SUMS, (part + 1) * n // SUMS):
            gradients[at] += gradients[shard * n + at]
