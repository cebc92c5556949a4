"""How the CPU engine divides batches, and how the compiled loops read layouts and parameters."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from splinefm._arrays import Float32Array, IndexArray, Int32Array
from splinefm._core import ModelSettings, Shape
from splinefm._memory import check_memory
from splinefm._wording import setting
from splinefm.encode.slots import SlotLayout
from splinefm.model.family import AnyModel

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


class Sizes(NamedTuple):
    """How rows are divided: a tile is scored at once, a thread takes a shard, and a block's derivatives are kept."""

    tile: int
    shard: int
    block: int


class Padding(NamedTuple):
    """The zeros that fill vectors up to whole registers: the compiled loops take four numbers at a time, or eight.

    Every k numbers become `padded`, and the last `third` numbers the next multiple of eight.
    """

    width: int
    k: int
    padded: int
    third: int

    @staticmethod
    def of(model: AnyModel, n_fields: int, parts: int) -> Padding:
        """Return the padding of vectors, where the numbers that meet a field consist of some parts.

        Examples
        --------
        >>> from splinefm.model.family import FM
        >>> [Padding.of(FM(k), 1, 1).padded for k in (1, 4, 5, 8, 10, 17, 30, 40)]
        [4, 4, 8, 8, 16, 24, 32, 40]
        """
        k = model.part_size(n_fields) // parts
        is_short = k <= 4 and not model.third and parts == 1
        return Padding(model.width(n_fields), k, 4 if is_short else round_up_to_8(k), model.third)

    @property
    def is_padded(self) -> bool:
        """Whether any zeros are needed."""
        return (self.padded, round_up_to_8(self.third)) != (self.k, self.third)

    @property
    def padded_width(self) -> int:
        """Numbers of a padded vector."""
        return (self.width - self.third) // self.k * self.padded + round_up_to_8(self.third)

    @property
    def columns(self) -> IndexArray:
        """Where each number of a vector is in a padded one.

        Examples
        --------
        >>> Padding(width=4, k=2, padded=8, third=0).columns.tolist()
        [0, 1, 8, 9]
        """
        column, end = np.arange(self.width, dtype=np.intp), self.width - self.third
        triples = end // self.k * self.padded + column - end
        return np.where(column < end, column // self.k * self.padded + column % self.k, triples)

    def pad(self, vectors: Float32Array) -> Float32Array:
        """Return padded vectors, or the same array if no zeros are needed."""
        if not self.is_padded:
            return vectors
        wide = np.zeros((*vectors.shape[:-1], self.padded_width), np.float32)
        wide[..., self.columns] = vectors
        return wide

    def cut(self, vectors: Float32Array) -> Float32Array:
        """Undo `pad`."""
        return np.take(vectors, self.columns, axis=-1) if self.is_padded else vectors

    def pad_matrices(self, matrices: Float32Array) -> Float32Array:
        """Return matrices between padded vectors."""
        wide = np.zeros((*matrices.shape[:-2], self.padded, self.padded), np.float32)
        wide[..., : self.k, : self.k] = matrices
        return wide


def model_settings(model: AnyModel, padding: Padding) -> ModelSettings:
    """The settings of a model for the compiled loops of training."""
    return ModelSettings(
        name=model.kind,
        k=model.members * padding.padded,
        third=round_up_to_8(padding.third),
        members=model.members,
        order=0 if model.pairwise else model.order,
    )


def round_up_to_8(n: int) -> int:
    """n, or the next multiple of eight."""
    return -(-n // 8) * 8


def tile_of(model: AnyModel, n_outputs: int = 1) -> int:
    """Rows that are scored together; the unit vectors of all outputs stay until the slopes are known."""
    tile = TILES.get(model.kind, TILE)
    return tile if n_outputs == 1 else max(SMALLEST_TILE, tile // n_outputs // SMALLEST_TILE * SMALLEST_TILE)


def make_sizes(model: AnyModel, layout: SlotLayout, batch_size: int, n_outputs: int = 1) -> Sizes:
    """How the rows of a batch are divided."""
    padding = Padding.of(model, len(layout.fields), model.members)
    tile, n_units = tile_of(model, n_outputs), layout.n_units
    strides = {"fm": padding.padded, "ffm": 0, "fmfm": lines(n_units * padding.padded)}
    stride = n_outputs * strides.get(model.kind, -(-n_units // 4) * 4 * padding.padded_width)  # of D, for a row
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
    k, shapes = model.members * Padding.of(model, n_fields, model.members).padded, model.field_shapes(n_fields)
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
    return Shape(*pointers, np.array(layout.apart, np.int32).reshape(-1))


def make_copies(
    model: AnyModel, layout: SlotLayout, params: Mapping[str, Float32Array]
) -> tuple[Float32Array, Float32Array]:
    """R and M: the weights or the matrices between fields as the loops read them, for every pair of units.

    Here, the first axis of every parameter counts the outputs; their copies come one after the other.
    """
    between = {name: values for name, values in params.items() if name.startswith("field_")}
    n_outputs = len(params["bias"])
    parts = [_copies_of(model, layout, {name: between[name][i] for name in between}) for i in range(n_outputs)]
    R, M = (kind[0] if n_outputs == 1 else np.concatenate(kind) for kind in zip(*parts, strict=True))
    return R, M


def _copies_of(
    model: AnyModel, layout: SlotLayout, params: Mapping[str, Float32Array]
) -> tuple[Float32Array, Float32Array]:
    none = np.zeros(0, np.float32)
    if "field_matrices" in params:
        return none, _panels(params["field_matrices"], layout.unit_field)
    n_fields = len(layout.fields)
    if not model.field_shapes(n_fields):
        return none, none
    with np.errstate(all="ignore"):  # the loss shows that the run diverges
        R = model.between_all(dict(params), n_fields, np.float32)
    if R.ndim == 2:
        return _interleave_by_4(R, layout.unit_field), none
    size = R.shape[2] // model.members  # of coordinates with the same weights
    return np.concatenate([_interleave_by_4(R[:, :, at], layout.unit_field) for at in range(0, R.shape[2], size)]), none


def _panels(matrices: Float32Array, unit_field: Int32Array) -> Float32Array:
    """The matrices between units as one symmetric matrix, sixteen columns after sixteen columns."""
    flat = np.append(matrices.reshape(-1), np.float32(0.0))
    return flat.take(_panel_index(unit_field.tobytes(), *matrices.shape[1:3]))


@functools.lru_cache(maxsize=16)
def _panel_index(units: bytes, n_fields: int, k: int) -> IndexArray:
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


def _interleave_by_4(R: Float32Array, unit_field: Int32Array) -> Float32Array:
    """Weights between units, [u // 4, v, u % 4], zero for u = v: the order in which the kernel reads them."""
    n_units = len(unit_field)
    units = np.zeros((-(-n_units // 4) * 4, n_units), np.float32)
    units[:n_units] = R[unit_field[:, None], unit_field]
    units[np.arange(n_units), np.arange(n_units)] = 0.0
    return np.ascontiguousarray(units.reshape(-1, 4, n_units).transpose(0, 2, 1)).reshape(-1)
