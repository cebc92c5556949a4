"""Storage of items in the layout that the search reads (`cpp/rank`), the search itself, and the arrays of files.

An item has a *position* in the store. Positions are reserved, written, published and released.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm._arrays import Array, Float32Array, FloatArray, Int32Array
from splinefm._core import TopK
from splinefm.encode.slots import Slots
from splinefm.store.container import require, take_array
from splinefm.store.scorer_image import ImageWriter

Positions = npt.NDArray[np.int64]
Dtype = Literal["float32", "float16", "int8"]
Form = Literal["vectors", "effects"]

# Half floats are stored as their bits, as in files.
PANEL_TYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.uint16),
    "int8": np.dtype(np.int8),
}
# Columns of a panel: 16 kB per line in float32. Shorter lines are slower, because the prefetcher starts over at each
# (10⁶ vectors of 80 numbers: 12.5 ms; with 1,024 columns 14.7 ms, with 256 25 ms; NumPy's `@` 16 ms).
WIDEST = 4096
STEP = 64  # the search needs a multiple of this number of columns
_MIN_TIES = 2048  # candidates beyond the best k for which a search has capacity, at least
_BATCH = 128  # queries per pass, unless k is so large that they exceed the next limit
_MAX_CANDIDATES = 1 << 23  # of all queries of a pass


class Filter(NamedTuple):
    """Which positions may be found: `keep[position]` and `wanted[codes[position]]`; an empty array allows all."""

    keep: npt.NDArray[np.uint8]
    codes: Int32Array
    wanted: npt.NDArray[np.uint8]


class Packed(NamedTuple):
    """Vectors as they are stored, their scales (int8 only), and the decoded vectors."""

    codes: Array
    scales: Float32Array
    decoded: FloatArray


def pack(vectors: FloatArray, dtype: Dtype) -> Packed:
    """Convert vectors to a storage type. In int8, each item has a separate scale and does not depend on other items.

    Examples
    --------
    >>> pack(np.array([[1.0, -0.5], [0.0, 0.0]]), "int8").codes
    array([[127, -64], [  0,   0]], dtype=int8)
    """
    if dtype == "int8":
        scales = (np.abs(vectors).max(axis=1, initial=0.0) / 127).astype(np.float32)
        codes = np.rint(vectors / np.where(scales > 0, scales, 1.0)[:, None]).clip(-127, 127).astype(np.int8)
        return Packed(codes, scales, codes * scales[:, None].astype(np.float64))
    with np.errstate(over="ignore"):
        rounded = vectors.astype(dtype)
    return Packed(rounded.view(PANEL_TYPES[dtype]), np.zeros(0, np.float32), rounded.astype(np.float64))


def panel_size(n: int) -> int:
    """Columns of the panels of n items."""
    return min(WIDEST, max(1, -(-n // STEP)) * STEP)


class Panels:
    """Vectors by position, each a column of a panel: number j is `values[position // size, j, position % size]`."""

    def __init__(self, length: int, dtype: npt.DTypeLike) -> None:
        self.values: Array = np.zeros((0, length, STEP), dtype)

    @property
    def size(self) -> int:
        """Columns of a panel."""
        return int(self.values.shape[2])

    @property
    def capacity(self) -> int:
        """Number of positions for which memory is allocated."""
        return int(self.values.shape[0] * self.values.shape[2])

    def resize(self, capacity: int) -> None:
        """Grow to at least this capacity."""
        n_old, length, old_size = self.values.shape
        size = panel_size(capacity)
        values = np.zeros((-(-capacity // size), length, size), self.values.dtype)
        if size == old_size:
            values[:n_old] = self.values
        else:  # a single panel, which gets wider
            values[:n_old, :, :old_size] = self.values
        self.values = values

    def write(self, positions: Positions, vectors: Array) -> None:
        """Replace the vectors at positions."""
        panel, column = np.divmod(positions, self.size)
        self.values[panel, :, column] = vectors

    def read(self, positions: Positions) -> Array:
        """The vectors at positions, shape (n, length)."""
        panel, column = np.divmod(positions, self.size)
        return np.ascontiguousarray(self.values[panel, :, column])

    def first(self, n: int) -> Array:
        """The panels of the first n positions."""
        return np.ascontiguousarray(self.values[: -(-n // self.size)])

    def reordered(self, positions: Positions) -> Array:
        """Panels of the vectors at positions, in this order."""
        copy = Panels(self.values.shape[1], self.values.dtype)
        if len(positions):
            copy.resize(len(positions))
        for at in range(0, len(positions), WIDEST):
            part = positions[at : at + WIDEST]
            copy.write(np.arange(at, at + len(part)), self.read(part))
        return copy.values

    def restore(self, values: Array) -> None:
        """Take panels of a file."""
        n_panels, length, size = values.shape
        expected = self.values.shape[1]
        require(length == expected, f"its vectors have {length} numbers instead of {expected}")
        is_valid = 0 < size <= WIDEST and size % STEP == 0 and (n_panels < 2 or size == WIDEST)
        require(is_valid, f"a panel has {size} columns")
        self.values = np.require(values, requirements="A")


class Store:
    """Items by position.

    An item that is not published has the offset -inf and is never found, so a change that fails halfway has no effect.
    The form decides how items are written and what a request is compared with: `VectorStore`, or `EffectStore` in
    `splinefm.rank.effects`. All panels, which hold the items apart from their offsets, are resized together.
    """

    form: ClassVar[Form]
    dtype: Dtype

    def __init__(self, *panels: Panels) -> None:
        self._panels = panels
        self.offsets = np.zeros(0, np.float32)
        self.n_positions = 0  # number of positions that were ever reserved
        self.free: list[int] = []

    @property
    def size(self) -> int:
        """Columns of a panel."""
        return self._panels[0].size

    @property
    def capacity(self) -> int:
        """Number of positions for which memory is allocated."""
        return self._panels[0].capacity

    @property
    def n_panels(self) -> int:
        """Number of panels with positions that were ever reserved."""
        return -(-self.n_positions // self.size)

    def published(self) -> Positions:
        """Published positions."""
        return np.flatnonzero(self.offsets[: self.n_positions] > -np.inf)

    def ensure_capacity(self, n: int) -> None:
        """Allocate memory for exactly n more positions, for a catalog that is not expected to grow soon."""
        missing = self.n_positions - len(self.free) + n - self.capacity
        if missing > 0:
            self._resize(self.capacity + missing)

    def reserve(self, n: int) -> Positions:
        """Reserve n unused positions; the capacity doubles if there are not enough."""
        reused = [self.free.pop() for _ in range(min(n, len(self.free)))]
        fresh = n - len(reused)
        if self.n_positions + fresh > self.capacity:
            self._resize(max(self.n_positions + fresh, 2 * self.capacity))
        self.n_positions += fresh
        return np.concatenate([np.array(reused, np.int64), np.arange(self.n_positions - fresh, self.n_positions)])

    def publish(self, positions: Positions, offsets: Float32Array) -> None:
        """Make written items visible to searches."""
        self.offsets[positions] = offsets

    def release(self, positions: Positions) -> None:
        """Return positions to the pool of free ones."""
        self.offsets[positions] = -np.inf
        self.free.extend(positions.tolist())

    def _resize(self, capacity: int) -> None:
        for panels in self._panels:
            panels.resize(capacity)
        added = self.capacity - len(self.offsets)
        self.offsets = np.concatenate([self.offsets, np.full(added, -np.inf, np.float32)])

    def restore(self, tensors: dict[str, Array], n_positions: Any) -> None:
        """Take the items of an index file."""
        self._restore_items(tensors)
        require(type(n_positions) is int and 0 <= n_positions <= self.capacity, f"n_rows is {n_positions!r}")
        self.n_positions, self.offsets = n_positions, take_array(tensors, "offsets", "F32", 1)
        require(len(self.offsets) == self.capacity, "offsets and vectors do not match")
        require(bool((self.offsets < np.inf).all()), "its offsets contain NaN or infinity")
        self.free = np.flatnonzero(~(self.offsets[:n_positions] > -np.inf))[::-1].tolist()
        # The kernels read some positions beyond the last.
        require(bool((self.offsets[n_positions:] == -np.inf).all()), "it has offsets beyond the last item")

    # Depends on the form

    def pack(self, slots: Slots, vectors: FloatArray) -> Any:
        """Convert items to their stored form, given their slots and exact vectors."""
        raise NotImplementedError

    def join(self, parts: list[Any]) -> Any:
        """Concatenate results of `pack`."""
        raise NotImplementedError

    def write(self, positions: Positions, packed: Any) -> None:
        """Write packed items to reserved positions."""
        raise NotImplementedError

    def vectors(self, positions: Positions) -> Float32Array:
        """The decoded vectors at positions."""
        raise NotImplementedError

    def arrays(self) -> dict[str, Array]:
        """The items, apart from their offsets, as arrays of an index file."""
        raise NotImplementedError

    def sections(self, writer: ImageWriter, positions: Positions) -> dict[str, Array]:
        """The items at positions as sections of a scorer file."""
        raise NotImplementedError

    def check_numbers(self) -> None:
        """Raise for numbers that are not finite, and for features that do not exist; this reads all items."""
        raise NotImplementedError

    def _restore_items(self, tensors: dict[str, Array]) -> None:
        """Take the arrays that `arrays` returned."""
        raise NotImplementedError

    def _kernel(self) -> TopK:
        """The search kernel over the current items."""
        raise NotImplementedError

    def _requests(self, queries: Float32Array) -> Float32Array:
        """What items are compared with, for the vectors of one or several contexts."""
        raise NotImplementedError

    def _batch(self, k: int) -> int:
        """Maximum number of contexts per pass."""
        raise NotImplementedError

    @property
    def n_padded(self) -> int:
        """Number of positions that a search reads, a multiple of STEP; those beyond the last have the offset -inf."""
        return -(-self.n_positions // STEP) * STEP

    def search(
        self,
        queries: Float32Array,
        constants: Float32Array,
        k: int,
        filter: Filter,
        panels: Positions | None,
        threads: int,
    ) -> list[tuple[Float32Array, Positions]]:
        """For each query, scores and positions of the best k items and all ties of the k-th, in no order."""
        if not k:
            return [(np.zeros(0, np.float32), np.zeros(0, np.int64))] * len(queries)
        kernel, capacity, step = self._kernel(), self._candidate_capacity(k), self._batch(k)
        panels = np.arange(self.n_panels) if panels is None else panels
        results: list[tuple[Float32Array, Positions]] = []
        for at in range(0, len(queries), step):
            requests, part = self._requests(queries[at : at + step]), constants[at : at + step]
            results += kernel.search(
                requests, part, k=k, capacity=capacity, visit=panels, **filter._asdict(), threads=threads
            )
        return results

    def _candidate_capacity(self, k: int) -> int:
        """Number of candidates that a search keeps at a time."""
        return k + min(self.capacity, max(k, _MIN_TIES)) + 1


class VectorStore(Store):
    """Stores the vector of each item; a score is its product with the vector of a context."""

    form = "vectors"

    def __init__(self, length: int, dtype: Dtype) -> None:
        self.panels = Panels(length, PANEL_TYPES[dtype])
        super().__init__(self.panels)
        self.length, self.dtype = length, dtype
        self.scales = np.zeros(0, np.float32)

    def pack(self, slots: Slots, vectors: FloatArray) -> Packed:
        """Convert vectors to the storage type."""
        return pack(vectors, self.dtype)

    def join(self, parts: list[Packed]) -> Packed:
        """Concatenate packed items; the decoded vectors are no longer needed."""
        codes, scales = (np.concatenate([part[i] for part in parts]) for i in range(2))
        return Packed(codes, scales, np.zeros((0, 0)))

    def write(self, positions: Positions, packed: Packed) -> None:
        """Write vectors to reserved positions."""
        self.panels.write(positions, packed.codes)
        if self.dtype == "int8":
            self.scales[positions] = packed.scales

    def vectors(self, positions: Positions) -> Float32Array:
        """The decoded vectors at positions."""
        out = np.empty((len(positions), self.length), np.float32)
        for at in range(0, len(positions), WIDEST):
            part = slice(at, at + WIDEST)
            codes = self.panels.read(positions[part])
            if self.dtype == "int8":
                out[part] = codes * self.scales[positions[part]][:, None]
            else:
                out[part] = codes.view(self.dtype)
        return out

    def arrays(self) -> dict[str, Array]:
        """The vectors as arrays of an index file."""
        panels = self.panels.first(self.n_positions)
        return {
            "panels": panels if self.dtype == "float32" else panels.view(np.uint8),
            "scales": self.scales[: self.n_panels * self.size],
        }

    def sections(self, writer: ImageWriter, positions: Positions) -> dict[str, Array]:
        """The vectors at positions as sections of a scorer file."""
        writer.integers(list(PANEL_TYPES).index(self.dtype))
        panels, scales = self.panels.reordered(positions), np.zeros(0, np.float32)
        if self.dtype == "int8":
            scales = np.zeros(panels.shape[0] * panels.shape[2], np.float32)
            scales[: len(positions)] = self.scales[positions]
        return {"panels": panels, "scales": scales}

    def check_numbers(self) -> None:
        """Raise for numbers that are not finite."""
        is_finite = np.isfinite(self.scales).all() and np.isfinite(self.panels.values.view(self.dtype)).all()
        require(bool(is_finite), "its vectors contain NaN or infinity")

    def _restore_items(self, tensors: dict[str, Array]) -> None:
        panels = take_array(tensors, "panels", "F32" if self.dtype == "float32" else "U8", 3)
        if self.dtype != "float32":
            require(panels.shape[2] % PANEL_TYPES[self.dtype].itemsize == 0, "a panel is truncated")
            panels = panels.view(PANEL_TYPES[self.dtype])
        self.panels.restore(panels)
        self.scales = take_array(tensors, "scales", "F32", 1)
        expected = self.capacity if self.dtype == "int8" else 0
        require(len(self.scales) == expected, "scales and vectors do not match")

    def _resize(self, capacity: int) -> None:
        super()._resize(capacity)
        if self.dtype == "int8":
            added = self.capacity - len(self.scales)
            self.scales = np.concatenate([self.scales, np.zeros(added, np.float32)])

    def _kernel(self) -> TopK:
        return TopK.vectors(self.panels.values, self.scales, self.offsets, self.n_padded)

    def _requests(self, queries: Float32Array) -> Float32Array:
        return queries

    def _batch(self, k: int) -> int:
        return max(2, min(_BATCH, _MAX_CANDIDATES // self._candidate_capacity(k)))
