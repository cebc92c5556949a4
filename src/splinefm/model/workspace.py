"""Room for the kernels of the CPU engine, and parameters in the order in which they read them."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.encode.slots import Layout, Slots
from splinefm.model.bundles import (
    NEAR,
    Columns,
    Data,
    Dense,
    Penalty,
    Scratch,
    Shape,
    State,
    Sums,
    Touch,
    Weights,
    Work,
)
from splinefm.model.family import FFM, FM, AnyModel, FmFM, FwFM, HigherOrderFM, LowRankFwFM
from splinefm.model.memory import Float32, Float64, Int64
from splinefm.model.optimizers import Group, Optimizer

# Rows of a block are cut into so many shards, whatever the number of threads: sums over rows are made per shard and
# then over shards in order, so that their rounding does not depend on the threads.
SHARDS, MAX_SHARD = 16, 256
FFM_SHARDS = 8  # each has gradients of its own
# Rows that the kernels score together: enough to reuse weights between fields, few enough to stay in the cache.
TILES = {FM: 256, FmFM: 64}
TILE = 64
# D of a block of rows should stay in the cache until it is scattered.
BLOCK_BYTES = 6 << 20
# Below so many numbers in the unit vectors of a block, threads cost more than they bring.
LARGE = 1 << 20
LINE = 64  # bytes of a cache line
LOSS_CODES = {"logistic": 0, "squared": 1, "poisson": 2}
MAX_ORDER = 3


def make_spec(model: AnyModel, n_fields: int, loss: str = "logistic") -> Any:
    """The model as the kernels know it: its type, k, loss and order."""
    from splinefm.model import interactions

    kinds = {
        FM: interactions.FMSpec,
        FwFM: interactions.FwFMSpec,
        LowRankFwFM: interactions.LowRankSpec,
        FmFM: interactions.FmFMSpec,
        FFM: interactions.FFMSpec,
        HigherOrderFM: interactions.HigherSpec,
    }
    if loss not in LOSS_CODES:
        raise ValueError(f"loss must be one of {', '.join(LOSS_CODES)}, got {loss!r}")
    k = model.width(n_fields) if isinstance(model, FmFM) else model.k
    order = model.order if isinstance(model, HigherOrderFM) else 0
    return kinds[type(model)]((0,) * k, LOSS_CODES[loss], order, TILES.get(type(model), TILE))


def make_shape(layout: Layout) -> Shape:
    """The layout as arrays for the kernels."""
    unit_ptr = np.searchsorted(layout.window_unit, np.arange(layout.n_units + 1)).astype(np.int32)
    pointers = (layout.weight_ptr, layout.window_unit, layout.unit_field, unit_ptr, layout.window_ptr, layout.row_ptr)
    return Shape(*pointers, len(layout.fields), layout.n_units)


def make_data(slots: Slots, y: Float64, sample_weight: Float64, rows: Int64) -> Data:
    """Rows of slots as the kernels read them; nothing is copied that they can read as it is."""
    encoded = (np.ascontiguousarray(slots.start), np.ascontiguousarray(slots.weight))
    targets = (np.ascontiguousarray(y, np.float64), np.ascontiguousarray(sample_weight, np.float64))
    sizes = (slots.layout.n_windows, slots.layout.n_weights)
    return Data(*encoded, *targets, np.ascontiguousarray(rows, np.int64), *sizes)


def make_weights(model: AnyModel, shape: Shape, params: Mapping[str, Float32]) -> Weights:
    """Parameters for the kernels; nothing large is copied."""
    R, M = np.zeros(1, np.float32), np.zeros(1, np.float32)
    if isinstance(model, FwFM):
        R = np.triu(params["field_weights"])
        R = _by_fours(R + np.triu(R, 1).T, shape.unit_field)
    elif isinstance(model, LowRankFwFM):
        U = params["field_factors"]
        with np.errstate(all="ignore"):  # a diverging run is told by its loss
            R = U.T @ (params["field_scales"][:, None] * U)
        np.fill_diagonal(R, 0.0)
        R = _by_fours(R, shape.unit_field)
    elif isinstance(model, FmFM):
        M = _panels(params["field_matrices"], shape.unit_field)
    return Weights(params["factors"].reshape(-1), params["linear"], params["bias"], R, M)


def _panels(matrices: Float32, unit_field: npt.NDArray[np.int32]) -> Float32:
    """The matrices between units as one symmetric matrix, sixteen columns after sixteen columns."""
    flat = np.append(matrices.reshape(-1), np.float32(0.0))
    return flat.take(_panel_index(unit_field.tobytes(), *matrices.shape[1:3]))


@functools.lru_cache(maxsize=16)
def _panel_index(units: bytes, n_fields: int, k: int) -> npt.NDArray[np.int64]:
    """Where each number of the panels is in the matrices, flat; behind their end is a zero."""
    unit_field = np.frombuffer(units, np.int32)
    n = len(unit_field) * k
    unit, inside = np.divmod(np.arange(n), k)
    first, second = np.minimum(unit[:, None], unit), np.maximum(unit[:, None], unit)
    below = unit[:, None] > unit
    row, column = (np.where(below, inside, inside[:, None]), np.where(below, inside[:, None], inside))
    whole = np.full((n, lines(n)), n_fields * n_fields * k * k)
    index = ((unit_field[first] * n_fields + unit_field[second]) * k + row) * k + column
    whole[:, :n] = np.where(first == second, whole[:, :n], index)
    return np.ascontiguousarray(whole.reshape(n, -1, 16).transpose(1, 0, 2)).reshape(-1)


def lines(n: int) -> int:
    """n numbers and zeros up to a multiple of sixteen."""
    return -(-n // 16) * 16


def _by_fours(R: Float32, unit_field: npt.NDArray[np.int32]) -> Float32:
    """Weights between units, [u // 4, v, u % 4], zero for u = v: the order in which the kernel reads them."""
    n_units = len(unit_field)
    units = np.zeros((-(-n_units // 4) * 4, n_units), np.float32)
    units[:n_units] = R[unit_field[:, None], unit_field]
    units[np.arange(n_units), np.arange(n_units)] = 0.0
    return np.ascontiguousarray(units.reshape(-1, 4, n_units).transpose(0, 2, 1)).reshape(-1)


def _strengths(values: list[float]) -> npt.NDArray[np.float32]:
    """Penalties; those beyond float32 are infinite without a remark, since the run diverges and the error tells why."""
    with np.errstate(over="ignore"):
        return np.array(values, np.float32)


def make_penalty(layout: Layout, groups: list[list[Group]]) -> Penalty:
    """Groups of rows as arrays; they must cover every field."""
    for field, own in zip(layout.fields, groups, strict=True):
        if sum(group.size for group in own) != field.n_rows:
            raise ValueError(f"the groups of field {field.name!r} do not cover its {field.n_rows} rows")
    flat = [group for own in groups for group in own]
    end = np.cumsum([group.size for group in flat], dtype=np.int64)
    return Penalty(
        group_ptr=np.concatenate([[0], np.cumsum([len(own) for own in groups])]).astype(np.int64),
        begin=end - np.array([group.size for group in flat], np.int64),
        end=end,
        l2=_strengths([group.l2 for group in flat]),
        l2_linear=_strengths([group.l2_linear for group in flat]),
        smoothness=_strengths([group.smoothness for group in flat]),
        order=np.array([group.order for group in flat], np.int64),
        signed=np.array([_differences(group.order) for group in flat], np.float32),
        periodic=np.array([group.periodic for group in flat], np.int64),
    )


def _differences(order: int) -> list[float]:
    """Coefficients of Δ^order, such as 1, -2, 1, padded with zeros."""
    if not 1 <= order <= MAX_ORDER:
        raise ValueError(f"the order of differences must be from 1 to {MAX_ORDER}, got {order}")
    signed = [math.comb(order, j) * (-1.0) ** (order - j) for j in range(order + 1)]
    return signed + [0.0] * (MAX_ORDER - order)


def aligned(n: int) -> Float32:
    """n float32 zeros that begin at a cache line: a vector of 16 is then one line instead of two."""
    room = np.zeros(4 * n + LINE, np.uint8)
    first = -room.ctypes.data % LINE
    return room[first : first + 4 * n].view(np.float32)


def aligned_copy(values: Float32) -> Float32:
    """The same numbers, aligned."""
    copy = aligned(values.size).reshape(values.shape)
    copy[...] = values
    return copy


def make_state(values: Float32, optimizer: Optimizer, n_rows: int = 0) -> State:
    """The optimizer's memory of some parameters; with `n_rows`, when each row was last touched."""
    none = np.zeros(1, np.float32)
    average = optimizer.ema > 0.0
    return State(
        m=aligned(values.size) if optimizer.name == "adamw" else none,
        v=aligned(values.size),
        average=aligned_copy(values.reshape(-1)) if average else none,
        last=np.zeros(n_rows if average else 1, np.int64),
    )


BETWEEN = ("field_weights", "field_matrices", "field_factors")


def make_dense(names: tuple[str, ...], values: Mapping[str, Float32], states: Mapping[str, State], room: int) -> Dense:
    """The first of some parameters that a model has, if any, with room for more gradients than there are numbers."""
    name = next((name for name in names if name in values), None)
    if name is None:
        none = np.zeros(1, np.float32)
        return Dense(none, none, 0, states["bias"])
    return Dense(values[name], aligned(values[name].size + room), values[name].size, states[name])


def make_touch(model: AnyModel, layout: Layout, width: int, batch_size: int, penalty: Penalty, work: Work) -> Touch:
    """Room for the rows that a batch can touch: all of a small field, a part of a large one."""
    shards = work.n_shards if isinstance(model, FFM) else 1  # each has places of its own
    rows = np.array([field.n_rows for field in layout.fields], np.int64)
    weights = np.array([sum(field.widths) for field in layout.fields], np.int64)
    smooth = np.array(
        [
            np.any(penalty.smoothness[a:b] > 0)
            for a, b in zip(penalty.group_ptr[:-1], penalty.group_ptr[1:], strict=True)
        ]
    )
    room = np.minimum(rows * shards, batch_size * weights)
    room = np.where(smooth, np.maximum(rows, room) if shards == 1 else rows + room, room)
    ptr = np.concatenate([[0], np.cumsum(room)]).astype(np.int64)
    return Touch(
        slot=np.full(layout.n_rows, -1, np.int32),
        rows=np.empty(ptr[-1], np.int32),
        gradient=aligned(ptr[-1] * width),
        linear=np.empty(ptr[-1], np.float32),
        own=np.zeros(ptr[-1], np.float32),
        place=np.zeros(layout.n_weights * lines(work.block) if isinstance(model, FFM) else 1, np.int32),
        before=np.full(ptr[-1], -1, np.int32),
        ptr=ptr,
        n_places=np.zeros(16 * len(rows), np.int64),  # a cache line per field: threads write to them all the time
        width=width,
    )


def room_for(model: AnyModel, layout: Layout, k: int, n_rows: int) -> int:
    """Numbers in D for some rows: see `interactions`."""
    if isinstance(model, FM):
        return k * n_rows
    if isinstance(model, FFM):
        return 0
    if isinstance(model, FmFM):
        return lines(layout.n_units * k) * n_rows
    return padded(layout.n_units) * k * n_rows


def padded(n_units: int) -> int:
    """Units are handled four at a time."""
    return -(-n_units // 4) * 4


def make_work(model: AnyModel, spec: Any, layout: Layout, batch_size: int) -> Work:
    """Room for the gradients of a block of rows."""
    k, tile = len(spec.kt), spec.tile
    room = room_for(model, layout, k, 1)
    block = max(tile, min(batch_size, BLOCK_BYTES // (4 * room))) if room else batch_size
    most, longest = (FFM_SHARDS, block) if isinstance(model, FFM) else (SHARDS, MAX_SHARD)
    n_shards = most if block * layout.n_units * model.width(len(layout.fields)) >= LARGE else 1
    least = 16 if isinstance(model, FFM) else max(tile, 16)  # what two shards write must not share a cache line
    shard = -(-min(longest, -(-block // n_shards)) // least) * least
    n_shards = -(-block // shard)
    block = n_shards * shard
    between = padded(layout.n_units) ** 2 * k if isinstance(model, FwFM | LowRankFwFM) else 0
    between = lines(layout.n_units * k) ** 2 if isinstance(model, FmFM) else between
    return Work(
        D=aligned(block * room),
        slopes=aligned(batch_size),
        losses=np.zeros(batch_size, np.float64),
        between=np.zeros(n_shards * between, np.float32),
        room=room,
        n_between=between,
        n_shards=n_shards,
        shard=shard,
        block=block,
    )


def make_columns(layout: Layout, n_rows: int) -> Columns:
    """Room for some rows; what two shards write does not share a cache line."""
    n = lines(n_rows + 1)  # an FFM looks one row ahead
    start = aligned(layout.n_windows * n).view(np.int32)
    return Columns(start, aligned(layout.n_weights * n), layout.n_windows, layout.n_weights)


def make_scratch(model: AnyModel, spec: Any, layout: Layout) -> Scratch:
    """Zeros; a HigherOrderFM alone has an order and needs A."""
    k, tile, n_units = len(spec.kt), spec.tile, layout.n_units
    if isinstance(model, FFM):
        n_fields = len(layout.fields)
        return Scratch(aligned(n_fields**2 * k), aligned(1), aligned(n_units * k), make_sums(layout, 0))
    n = tile * lines(padded(n_units) * k)
    A = np.zeros(tile * (n_units + 1) * (spec.order + 1) * k if spec.order else k, np.float32)
    return Scratch(aligned(n), aligned(n), A, make_sums(layout, k))


def make_sums(layout: Layout, k: int) -> Sums:
    """Zeros for the largest field with splines that is summed near by."""
    n = max((field.n_rows for field in layout.fields if field.n_rows <= NEAR and 4 in field.widths), default=0)
    return Sums(aligned(n * k), aligned(n), aligned(n))
