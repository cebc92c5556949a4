"""How the CPU engine divides batches, and how the compiled loops read parameters and penalties."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from splinefm._arrays import Float32Array, FloatArray, Int32Array, Int64Array
from splinefm._core import ModelSettings, Shape
from splinefm._memory import check_memory
from splinefm._wording import setting
from splinefm.encode.slots import SlotLayout
from splinefm.model.family import AnyModel
from splinefm.model.optimizers import Group, Optimizer

Float32: TypeAlias = Float32Array
Float64: TypeAlias = FloatArray
Int64: TypeAlias = Int64Array

# A block of rows is divided into this many shards, whatever the number of threads: sums over rows are taken per shard
# and then over shards in order, so that their rounding does not depend on the threads.
SHARDS, MAX_SHARD = 16, 256
FFM_SHARDS = 8  # each has its own gradients
# Rows that the kernels score together: enough to reuse weights between fields, few enough to stay in the cache.
TILES = {"fm": 256}
TILE, SMALLEST_TILE = 64, 32
# D of a block of rows should stay in the cache until it is scattered.
BLOCK_BYTES = 6 << 20
# With fewer numbers to work on in a block (unit vectors, and vectors of features that may be updated), threads cost
# more than they save. The shards of an FFM take much more memory.
LARGE, FFM_LARGER = 1 << 15, 32
LINE = 64  # bytes of a cache line
MAX_ORDER = 3
MAX_AXES = 3


class Penalty(NamedTuple):
    """Groups of features as arrays; `signs` has four numbers per group, and `lengths` three."""

    group_ptr: Int64
    begin: Int64
    end: Int64
    l2: Float32
    l2_third: Float32
    l2_linear: Float32
    smoothness: Float32
    order: Int64
    signs: Float32
    periodic: Int64
    lengths: Int64


class OptimizerState(NamedTuple):
    """The optimizer state of some parameters; `last` is the step in which each feature was last active."""

    m: Float32
    v: Float32
    average: Float32
    last: Int64


OptimizerStates = dict[str, OptimizerState]


class Sizes(NamedTuple):
    """How rows are divided: a tile is scored at once, a thread takes a shard, and a block's derivatives are kept."""

    tile: int
    shard: int
    block: int


class Kind(NamedTuple):
    """A model as the compiled loops know it; they handle `padded` numbers where the model has k, and so for `third`.

    Each of several members has k numbers.
    """

    name: str
    k: int
    padded: int
    order: int
    n_fields: int
    third: int = 0
    padded_third: int = 0
    members: int = 1

    @property
    def paired(self) -> int:
        """Numbers of all members that meet in pairs, as the loops handle them."""
        return self.members * self.padded

    @property
    def settings(self) -> ModelSettings:
        """The settings for the loops."""
        return ModelSettings(
            name=self.name, k=self.paired, third=self.padded_third, members=self.members, order=self.order
        )

    @property
    def is_padded(self) -> bool:
        """Whether `pad` appends zeros."""
        return (self.padded, self.padded_third) != (self.k, self.third)

    def pad(self, name: str, values: Float32) -> Float32:
        """Append zeros up to `padded` to the vectors of a parameter; return the same array if none are needed.

        Here and in `cut`, the first axis of the array counts the outputs.
        """
        if not self.is_padded or name not in ("factors", "field_matrices"):
            return values
        more = (0, self.padded - self.k)
        if name == "field_matrices":
            return np.pad(values, ((0, 0), (0, 0), (0, 0), more, more))
        shape, end = values.shape[:2], values.shape[2] - self.third
        pairs = np.pad(values[..., :end].reshape(-1, self.k), ((0, 0), more)).reshape(*shape, -1)
        if not self.third:
            return pairs
        triples = np.pad(values[..., end:], ((0, 0), (0, 0), (0, self.padded_third - self.third)))
        return np.concatenate([pairs, triples], axis=-1)

    def cut(self, name: str, values: Float32) -> Float32:
        """Remove the zeros that `pad` appends."""
        if not self.is_padded or name not in ("factors", "field_matrices"):
            return values
        if name == "field_matrices":
            return values[..., : self.k, : self.k]
        shape, end = values.shape[:2], values.shape[2] - self.padded_third
        pairs = values[..., :end].reshape(-1, self.padded)[:, : self.k].reshape(*shape, -1)
        if not self.third:
            return pairs
        return np.concatenate([pairs, values[..., end : end + self.third]], axis=-1)


def kind_of(model: AnyModel, n_fields: int) -> Kind:
    """The model as the compiled loops know it."""
    third, members, order = model.third, model.members, 0 if model.pairwise else model.order
    k = model.part_size(n_fields) // members
    if not third and members == 1:
        return Kind(model.kind, k, padded_k(k), order, n_fields)
    return Kind(model.kind, k, eights(k), order, n_fields, third, eights(third), members)


def padded_k(k: int) -> int:
    """Padded vector length in the compiled loops: 4, 16, or a multiple of 8.

    Examples
    --------
    >>> [padded_k(k) for k in (1, 4, 5, 8, 10, 17, 30, 40)]
    [4, 4, 8, 8, 16, 24, 32, 40]
    """
    if k <= 4:
        return 4
    return 16 if 8 < k <= 16 else eights(k)


def eights(n: int) -> int:
    """n, or the next multiple of eight."""
    return -(-n // 8) * 8


def tile_of(model: AnyModel, n_outputs: int = 1) -> int:
    """Rows that are scored together; the unit vectors of all outputs stay until the slopes are known."""
    tile = TILES.get(model.kind, TILE)
    return tile if n_outputs == 1 else max(SMALLEST_TILE, tile // n_outputs // SMALLEST_TILE * SMALLEST_TILE)


def make_sizes(model: AnyModel, layout: SlotLayout, batch_size: int, n_outputs: int = 1) -> Sizes:
    """How the rows of a batch are divided."""
    kind, tile, n_units = kind_of(model, len(layout.fields)), tile_of(model, n_outputs), layout.n_units
    strides = {"fm": kind.padded, "ffm": 0, "fmfm": lines(n_units * kind.padded)}
    width = kind.paired + kind.padded_third
    stride = n_outputs * strides.get(kind.name, -(-n_units // 4) * 4 * width)  # of D, for a row
    block = max(tile, min(batch_size, BLOCK_BYTES // (4 * stride))) if stride else batch_size
    # Two shards must not write to the same cache line, so a shard has at least 16 rows.
    vectors = block * n_units + min(layout.n_features, block * layout.n_weights)
    is_large = n_outputs * vectors * model.width(len(layout.fields)) >= LARGE * (1 if stride else FFM_LARGER)
    if is_large:
        tile = min(tile, -(-min(block, batch_size) // 32) * 16)  # a batch of few rows still has two shards
    most, longest, least = (SHARDS, MAX_SHARD, max(tile, 16)) if stride else (FFM_SHARDS, block, 16)
    n_shards = most if is_large else 1
    shard = -(-min(longest, -(-block // n_shards)) // least) * least
    return Sizes(tile, shard, -(-block // shard) * shard)


def check_between_memory(model: AnyModel, layout: SlotLayout, sizes: Sizes, n_outputs: int = 1) -> None:
    """Raise if gradients between units, of which every shard has a copy, would take more memory than there is."""
    n_fields, n_units, shards = len(layout.fields), layout.n_units, n_outputs * (sizes.block // sizes.shard)
    k, shapes = kind_of(model, n_fields).paired, model.field_shapes(n_fields)
    if not shapes:
        return
    needed = 4 * shards * n_units**2 * k
    if "field_matrices" in shapes:
        size = lines(n_units * k)
        needed = 2 * shards * size * (size + 16) + 64 * size**2  # and the temporary arrays of `_panel_index`
    check_memory(needed, f"training {model} with {n_units:,} units of its fields", f"lower {setting('k')}")


def make_shape(layout: SlotLayout) -> Shape:
    """The layout for the compiled loops."""
    pointers = (layout.weight_ptr, layout.window_unit, layout.unit_field, layout.window_ptr, layout.feature_ptr)
    return Shape(*pointers)


def make_copies(model: AnyModel, layout: SlotLayout, params: Mapping[str, Float32]) -> tuple[Float32, Float32]:
    """R and M: the weights or the matrices between fields as the loops read them, for every pair of units.

    Here, the first axis of every parameter counts the outputs; their copies come one after the other.
    """
    between = {name: values for name, values in params.items() if name.startswith("field_")}
    n_outputs = len(params["bias"])
    parts = [_copies_of(model, layout, {name: between[name][i] for name in between}) for i in range(n_outputs)]
    R, M = (kind[0] if n_outputs == 1 else np.concatenate(kind) for kind in zip(*parts, strict=True))
    return R, M


def _copies_of(model: AnyModel, layout: SlotLayout, params: Mapping[str, Float32]) -> tuple[Float32, Float32]:
    none = np.zeros(0, np.float32)
    if "field_matrices" in params:
        return none, _panels(params["field_matrices"], layout.unit_field)
    n_fields = len(layout.fields)
    if not model.field_shapes(n_fields):
        return none, none
    with np.errstate(all="ignore"):  # the loss tells of a run that diverges
        R = model.between_all(dict(params), n_fields, np.float32)
    if R.ndim == 2:
        return _by_fours(R, layout.unit_field), none
    size = R.shape[2] // model.members  # of coordinates with the same weights
    return np.concatenate([_by_fours(R[:, :, at], layout.unit_field) for at in range(0, R.shape[2], size)]), none


def _panels(matrices: Float32, unit_field: Int32Array) -> Float32:
    """The matrices between units as one symmetric matrix, sixteen columns after sixteen columns."""
    flat = np.append(matrices.reshape(-1), np.float32(0.0))
    return flat.take(_panel_index(unit_field.tobytes(), *matrices.shape[1:3]))


@functools.lru_cache(maxsize=16)
def _panel_index(units: bytes, n_fields: int, k: int) -> Int64:
    """Index of each number of the panels in the flat matrices, which a zero follows."""
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


def _by_fours(R: Float32, unit_field: Int32Array) -> Float32:
    """Weights between units, [u // 4, v, u % 4], zero for u = v: the order in which the kernel reads them."""
    n_units = len(unit_field)
    units = np.zeros((-(-n_units // 4) * 4, n_units), np.float32)
    units[:n_units] = R[unit_field[:, None], unit_field]
    units[np.arange(n_units), np.arange(n_units)] = 0.0
    return np.ascontiguousarray(units.reshape(-1, 4, n_units).transpose(0, 2, 1)).reshape(-1)


def _strengths(values: list[float]) -> Float32:
    """Penalties in float32, where overflow is silent: the run diverges, and its error tells why."""
    with np.errstate(over="ignore"):
        return np.array(values, np.float32)


def make_penalty(layout: SlotLayout, groups: list[list[Group]]) -> Penalty:
    """Groups of features as arrays; they must cover every field."""
    for field, parts in zip(layout.fields, groups, strict=True):
        if sum(group.size for group in parts) != field.n_features:
            raise ValueError(f"the groups of field {field.name!r} do not cover its {field.n_features} features")
    flat = [group for parts in groups for group in parts]
    end = np.cumsum([group.size for group in flat], dtype=np.int64)
    return Penalty(
        group_ptr=np.concatenate([[0], np.cumsum([len(parts) for parts in groups])]).astype(np.int64),
        begin=end - np.array([group.size for group in flat], np.int64),
        end=end,
        l2=_strengths([group.l2 for group in flat]),
        l2_third=_strengths([group.l2 if group.l2_third is None else group.l2_third for group in flat]),
        l2_linear=_strengths([group.l2_linear for group in flat]),
        smoothness=_strengths([group.smoothness for group in flat]),
        order=np.array([group.order for group in flat], np.int64),
        signs=np.array([_differences(group.order) for group in flat], np.float32),
        periodic=np.array([_periodic_axes(group) for group in flat], np.int64),
        lengths=np.array([_lengths(group) for group in flat], np.int64),
    )


def _lengths(group: Group) -> tuple[int, int, int]:
    """The lengths of a block along three axes, the last ones first to be used."""
    shape = group.shape or (max(1, group.size),)
    if len(shape) > MAX_AXES or group.size % math.prod(shape):
        raise ValueError(f"a group of {group.size} features does not consist of blocks of shape {shape}")
    first, second, third = (1,) * (MAX_AXES - len(shape)) + tuple(shape)
    return first, second, third


def _periodic_axes(group: Group) -> int:
    """A bit for every periodic axis, the last axis first."""
    axes = group.periodic if isinstance(group.periodic, tuple) else (group.periodic,)
    return sum(1 << i for i, periodic in enumerate(reversed(axes)) if periodic)


def _differences(order: int) -> list[float]:
    """Coefficients of Δ^order, such as 1, -2, 1, padded with zeros."""
    if not 1 <= order <= MAX_ORDER:
        raise ValueError(f"the order of differences must be from 1 to {MAX_ORDER}, got {order}")
    signed = [math.comb(order, j) * (-1.0) ** (order - j) for j in range(order + 1)]
    return signed + [0.0] * (MAX_ORDER - order)


def aligned(n: int) -> Float32:
    """n float32 zeros that begin at a cache line: a vector of 16 is then one line instead of two."""
    memory = np.zeros(4 * n + LINE, np.uint8)
    first = -memory.ctypes.data % LINE
    return memory[first : first + 4 * n].view(np.float32)


def aligned_copy(values: Float32) -> Float32:
    """The same numbers, aligned."""
    copy = aligned(values.size).reshape(values.shape)
    copy[...] = values
    return copy


def make_state(values: Float32, optimizer: Optimizer, n_features: int = 0) -> OptimizerState:
    """The initial optimizer state of some parameters."""
    none = np.zeros(1, np.float32)
    average = optimizer.ema > 0.0
    return OptimizerState(
        m=aligned(values.size) if optimizer.name == "adamw" else none,
        v=aligned(values.size),
        average=aligned_copy(values.reshape(-1)) if average else none,
        last=np.zeros(n_features if average else 1, np.int64),
    )
