"""Arrays that the kernels of the CPU engine work on, bundled by purpose."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm.encode.slots import Layout
from splinefm.model.family import FFM, FM, AnyModel, FmFM, FwFM, HigherOrderFM, LowRankFwFM
from splinefm.model.optimizers import Group, Optimizer

Float32 = npt.NDArray[np.float32]
# Rows of a block are cut into so many shards, whatever the number of threads: sums over rows are made per shard and
# then over shards in order, so that their rounding does not depend on the threads.
SHARDS, MAX_SHARD = 16, 256
# Rows that the kernels score together: enough to reuse weights between fields, few enough to stay in the cache.
TILE = 8
# D of a block of rows should stay in the cache until it is scattered.
BLOCK_BYTES = 12 << 20
# Below so many numbers in the unit vectors of a block, threads cost more than they bring.
LARGE = 1 << 20
LINE = 64  # bytes of a cache line
LOSS_CODES = {"logistic": 0, "squared": 1, "poisson": 2}
MAX_ORDER = 3


class Shape(NamedTuple):
    """The layout as arrays; windows unit_ptr[u] .. unit_ptr[u + 1] - 1 belong to unit u."""

    weight_ptr: Any
    window_unit: Any
    unit_field: Any
    unit_ptr: Any
    window_ptr: Any


class Weights(NamedTuple):
    """The parameters as the kernels read them."""

    T: Any
    L: Any
    bias: Any
    R: Any
    M: Any
    transposed: Any


class Data(NamedTuple):
    """Encoded rows with targets."""

    start: Any
    weight: Any
    y: Any
    sample_weight: Any


class Work(NamedTuple):
    """Derivatives of a block of rows, and gradients of the parameters between fields."""

    D: Any
    start: Any
    weight: Any
    slopes: Any
    losses: Any
    dR: Any
    dM: Any
    shard: int


class Scratch(NamedTuple):
    """Room for a tile of rows: P, the same times the slopes, and the sums of a HigherOrderFM."""

    P: Any
    Z: Any
    A: Any


class Room(NamedTuple):
    """What a thread needs to add up gradients: see `scatter_fields`."""

    chain: Any
    starts: Any
    order: Any
    x: Any
    places: Any


class Touch(NamedTuple):
    """The table rows that a batch touches, field by field, and their gradients."""

    slot: Any
    rows: Any
    gradient: Any
    linear: Any
    head: Any
    ptr: Any
    count: Any


class Penalty(NamedTuple):
    """Groups of table rows as arrays."""

    group_ptr: Any
    begin: Any
    end: Any
    l2: Any
    l2_linear: Any
    smoothness: Any
    order: Any
    signed: Any
    periodic: Any


class State(NamedTuple):
    """The optimizer's memory."""

    m: Any
    v: Any
    average: Any
    last: Any


def make_spec(model: AnyModel, n_fields: int, loss: str = "logistic") -> Any:
    """The model as the kernels know it: its type, k, loss and order."""
    from splinefm.model import interactions

    kinds = {
        FM: interactions.FMSpec,
        FwFM: interactions.FwFMSpec,
        LowRankFwFM: interactions.FwFMSpec,
        FmFM: interactions.FmFMSpec,
        FFM: interactions.FFMSpec,
        HigherOrderFM: interactions.HigherSpec,
    }
    if loss not in LOSS_CODES:
        raise ValueError(f"loss must be one of {', '.join(LOSS_CODES)}, got {loss!r}")
    k = model.width(n_fields) if isinstance(model, FmFM) else model.k
    order = model.order if isinstance(model, HigherOrderFM) else 0
    return kinds[type(model)]((0,) * k, LOSS_CODES[loss], order)


def make_shape(layout: Layout) -> Shape:
    """The layout as arrays for the kernels."""
    unit_ptr = np.searchsorted(layout.window_unit, np.arange(layout.n_units + 1)).astype(np.int32)
    return Shape(layout.weight_ptr, layout.window_unit, layout.unit_field, unit_ptr, layout.window_ptr)


def make_weights(model: AnyModel, shape: Shape, params: Mapping[str, Float32]) -> Weights:
    """Parameters for the kernels; nothing large is copied."""
    R, M = np.zeros(1, np.float32), np.zeros((1, 1, 1, 1), np.float32)
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
        M = params["field_matrices"]
    transposed = M.transpose(0, 1, 3, 2).reshape(-1)
    return Weights(params["factors"].reshape(-1), params["linear"], params["bias"], R, M.reshape(-1), transposed)


def _by_fours(R: Float32, unit_field: npt.NDArray[np.int32]) -> Float32:
    """Weights between units, [u // 4, v, u % 4], zero for u = v: the order in which the kernel reads them."""
    n_units = len(unit_field)
    units = np.zeros((-(-n_units // 4) * 4, n_units), np.float32)
    units[:n_units] = R[unit_field[:, None], unit_field]
    units[np.arange(n_units), np.arange(n_units)] = 0.0
    return np.ascontiguousarray(units.reshape(-1, 4, n_units).transpose(0, 2, 1)).reshape(-1)


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
        l2=np.array([group.l2 for group in flat], np.float32),
        l2_linear=np.array([group.l2_linear for group in flat], np.float32),
        smoothness=np.array([group.smoothness for group in flat], np.float32),
        order=np.array([group.order for group in flat], np.int64),
        signed=np.array([_differences(group.order) for group in flat], np.float32),
        periodic=np.array([group.periodic for group in flat], np.bool_),
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


def make_touch(layout: Layout, width: int, batch_size: int, penalty: Penalty) -> Touch:
    """Room for the rows that a batch can touch: all of a small field, a part of a large one."""
    rows = np.array([field.n_rows for field in layout.fields], np.int64)
    weights = np.array([sum(field.widths) for field in layout.fields], np.int64)
    smooth = np.array(
        [
            np.any(penalty.smoothness[a:b] > 0)
            for a, b in zip(penalty.group_ptr[:-1], penalty.group_ptr[1:], strict=True)
        ]
    )
    room = np.where(smooth, rows, np.minimum(rows, batch_size * weights))
    ptr = np.concatenate([[0], np.cumsum(room)]).astype(np.int64)
    return Touch(
        slot=np.full(layout.n_rows, -1, np.int32),
        rows=np.empty(ptr[-1], np.int32),
        gradient=aligned(ptr[-1] * width),
        linear=np.empty(ptr[-1], np.float32),
        head=np.full(ptr[-1], -1, np.int32),
        ptr=ptr,
        count=np.zeros(len(rows), np.int64),
    )


def room_per_row(model: AnyModel, layout: Layout, k: int) -> int:
    """Numbers in D for one row: see the kernels."""
    if isinstance(model, FM):
        return k
    if isinstance(model, FFM):
        return len(layout.fields) ** 2 * k
    return -(-layout.n_units // 4) * 4 * k


def make_work(model: AnyModel, k: int, layout: Layout, batch_size: int) -> Work:
    """Room for the gradients of a block of rows."""
    room = room_per_row(model, layout, k)
    block = max(16, min(batch_size, BLOCK_BYTES // (4 * room)))
    n_shards = SHARDS if block * layout.n_units * model.width(len(layout.fields)) >= LARGE else 1
    shard = -(-min(MAX_SHARD, -(-block // n_shards)) // TILE) * TILE
    shards = -(-block // shard)
    n_rows, n_fields, n_units = shards * shard, len(layout.fields), -(-layout.n_units // 4) * 4
    weights = n_units * n_units * k if isinstance(model, FwFM | LowRankFwFM) else 1
    matrices = n_fields * n_fields * k * k if isinstance(model, FmFM) else 1
    return Work(
        D=aligned(n_rows * room),
        start=np.empty((layout.n_windows, n_rows + 16), np.int32),
        weight=np.empty((layout.n_weights, n_rows + 16), np.float32),
        slopes=np.empty(n_rows, np.float32),
        losses=np.empty(n_rows, np.float64),
        dR=np.zeros((shards, weights), np.float32),
        dM=np.zeros((shards, matrices), np.float32),
        shard=shard,
    )


def make_scratch(spec: Any, n_units: int) -> Scratch:
    """Zeros; a HigherOrderFM alone has an order and needs A."""
    k = len(spec.kt)
    tile = TILE * -(-n_units // 4) * 4 * k  # in an FFM this is more than the one unit that it keeps there
    A = np.zeros(TILE * (n_units + 1) * (spec.order + 1) * k if spec.order else k, np.float32)
    return Scratch(np.zeros(tile, np.float32), np.zeros(tile, np.float32), A)


def make_room(n_rows: int) -> Room:
    """For a block of so many rows."""
    chain, starts, order = (np.empty(n_rows, np.int32) for _ in range(3))
    return Room(chain, starts, order, np.empty(4 * n_rows, np.float32), np.empty(4, np.int64))
