"""Items in the layout that the search reads (`cpp/rank`), with rows that come and go; and the search through them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm._core import TopK
from splinefm.encode.slots import Slots

FloatArray = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
Dtype = Literal["float32", "float16", "int8"]
Form = Literal["vectors", "effects"]

# Half floats are kept as their bits, as they are in files.
PANEL_TYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.uint16),
    "int8": np.dtype(np.int8),
}
# Columns of a panel: 16 kB a line in float32. Shorter lines are read more slowly, because each begins anew for the
# prefetcher (10⁶ vectors of 80 numbers: 12.5 ms; with 1,024 columns 14.7, with 256 25; NumPy's `@` 16).
WIDEST = 4096
STEP = 64  # columns are a multiple of it, as the search wants
_SPARE = 2048  # rows with the k-th best score that a search keeps, at least
_BATCH = 128  # queries that are answered in one pass, unless k is so large that this takes more room than
_ROOM = 1 << 23


class Filter(NamedTuple):
    """Which rows may be found: `keep[row]`, and `wanted[codes[row]]`; an empty array lets all pass."""

    keep: npt.NDArray[np.uint8]
    codes: npt.NDArray[np.int32]
    wanted: npt.NDArray[np.uint8]


class Packed(NamedTuple):
    """Vectors as they are stored, their scales (int8 only), and what they stand for."""

    codes: Array
    scales: Float32
    meaning: FloatArray


def pack(vectors: FloatArray, dtype: Dtype) -> Packed:
    """Vectors in a storage type. In int8 each item has a scale of its own, so that it does not depend on the others.

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


class Panels:
    """A line of numbers for each row, as a column of a panel: number j is `values[row // size, j, row % size]`.

    Parameters
    ----------
    length : int
        Numbers in a line.
    dtype : dtype
        Of the numbers.
    """

    def __init__(self, length: int, dtype: npt.DTypeLike) -> None:
        self.values: Array = np.zeros((0, length, STEP), dtype)

    @property
    def size(self) -> int:
        """Columns of a panel."""
        return int(self.values.shape[2])

    @property
    def capacity(self) -> int:
        """Rows for which there is room."""
        return int(self.values.shape[0] * self.values.shape[2])

    def resize(self, capacity: int) -> None:
        """Room for so many rows or some more, and not less than there is."""
        n_old, length, old_size = self.values.shape
        size = min(WIDEST, -(-capacity // STEP) * STEP)
        values = np.zeros((-(-capacity // size), length, size), self.values.dtype)
        if size == old_size:
            values[:n_old] = self.values
        else:  # a single panel, which becomes wider
            values[:n_old, :, :old_size] = self.values
        self.values = values

    def write(self, rows: Rows, lines: Array) -> None:
        """Replace the lines of rows."""
        panel, column = np.divmod(rows, self.size)
        self.values[panel, :, column] = lines

    def read(self, rows: Rows) -> Array:
        """The lines of rows, shape (n, length)."""
        panel, column = np.divmod(rows, self.size)
        return np.ascontiguousarray(self.values[panel, :, column])


class Store:
    """Items by row; rows are reserved, written, published and released.

    What is not published has the offset -inf and is never found, so that a change that fails half-way leaves nothing.
    How items are written, and with what a request is compared, is up to the form: `Vectors`, or `Effects` in
    `ranking_effects`.

    Parameters
    ----------
    panels : tuple of Panels
        What an item has, apart from its offset; all are resized together.
    """

    form: ClassVar[Form]
    dtype: Dtype

    def __init__(self, *panels: Panels) -> None:
        self._panels = panels
        self.offsets = np.zeros(0, np.float32)
        self.n_rows = 0  # rows that were ever reserved
        self.free: list[int] = []

    @property
    def size(self) -> int:
        """Columns of a panel."""
        return self._panels[0].size

    @property
    def capacity(self) -> int:
        """Rows for which there is room."""
        return self._panels[0].capacity

    @property
    def n_panels(self) -> int:
        """Panels with rows that were ever reserved."""
        return -(-self.n_rows // self.size)

    def used(self) -> Rows:
        """Rows that are published."""
        return np.flatnonzero(self.offsets[: self.n_rows] > -np.inf)

    def make_room(self, n: int) -> None:
        """Room for n more rows, exactly: for a catalog that is not going to grow soon."""
        missing = self.n_rows - len(self.free) + n - self.capacity
        if missing > 0:
            self._resize(self.capacity + missing)

    def reserve(self, n: int) -> Rows:
        """n rows that are not in use; the room doubles when there are not enough."""
        again = [self.free.pop() for _ in range(min(n, len(self.free)))]
        fresh = n - len(again)
        if self.n_rows + fresh > self.capacity:
            self._resize(max(self.n_rows + fresh, 2 * self.capacity))
        self.n_rows += fresh
        return np.concatenate([np.array(again, np.int64), np.arange(self.n_rows - fresh, self.n_rows)])

    def publish(self, rows: Rows, offsets: Float32) -> None:
        """Let written rows be found."""
        self.offsets[rows] = offsets

    def release(self, rows: Rows) -> None:
        """Take rows out of use."""
        self.offsets[rows] = -np.inf
        self.free.extend(rows.tolist())

    def _resize(self, capacity: int) -> None:
        for panels in self._panels:
            panels.resize(capacity)
        added = self.capacity - len(self.offsets)
        self.offsets = np.concatenate([self.offsets, np.full(added, -np.inf, np.float32)])

    # Up to the form

    def pack(self, slots: Slots, vectors: FloatArray) -> Any:
        """Items as they are stored, from their slots and exact vectors."""
        raise NotImplementedError

    def join(self, parts: list[Any]) -> Any:
        """The items of several parts, which `pack` gave."""
        raise NotImplementedError

    def write(self, rows: Rows, packed: Any) -> None:
        """Put packed items into reserved rows."""
        raise NotImplementedError

    def vectors(self, rows: Rows) -> Float32:
        """The vectors that rows stand for."""
        raise NotImplementedError

    def _items(self) -> TopK:
        """The items as they are now, to be searched."""
        raise NotImplementedError

    def _requests(self, queries: Float32) -> Float32:
        """What items are compared with, for the vectors of one context or several."""
        raise NotImplementedError

    def _batch(self, k: int) -> int:
        """How many contexts are answered in one pass at most."""
        raise NotImplementedError

    @property
    def n_kernel_rows(self) -> int:
        """Rows that a search looks at; those up to the next multiple of STEP exist and have the offset -inf."""
        return -(-self.n_rows // STEP) * STEP

    def search(
        self, queries: Float32, constants: Float32, k: int, only: Filter, visit: Rows | None, threads: int
    ) -> list[tuple[Float32, Rows]]:
        """For each query the scores and rows of at least the best k, with all rows as good as the k-th; in no order."""
        items, room, step = self._items(), self._room(k), self._batch(k)
        panels = np.arange(self.n_panels) if visit is None else visit
        found: list[tuple[Float32, Rows]] = []
        for at in range(0, len(queries), step):
            requests, part = self._requests(queries[at : at + step]), constants[at : at + step]
            found += items.search(requests, part, k, room, panels, *only, threads)
        return found

    def _room(self, k: int) -> int:
        """Rows that a search keeps at a time."""
        return k + min(self.capacity, max(k, _SPARE)) + 1


class Vectors(Store):
    """A vector for each item; scores are products with the vector of a context.

    Parameters
    ----------
    length : int
        Numbers in a vector.
    dtype : {"float32", "float16", "int8"}
        How they are stored.
    """

    form = "vectors"

    def __init__(self, length: int, dtype: Dtype) -> None:
        self.panels = Panels(length, PANEL_TYPES[dtype])
        super().__init__(self.panels)
        self.length, self.dtype = length, dtype
        self.scales = np.zeros(0, np.float32)

    def pack(self, slots: Slots, vectors: FloatArray) -> Packed:
        """Vectors in the storage type."""
        return pack(vectors, self.dtype)

    def join(self, parts: list[Packed]) -> Packed:
        """The items of several parts; what they stand for is no longer needed."""
        codes, scales = (np.concatenate([part[i] for part in parts]) for i in range(2))
        return Packed(codes, scales, np.zeros((0, 0)))

    def write(self, rows: Rows, packed: Packed) -> None:
        """Put vectors into reserved rows."""
        self.panels.write(rows, packed.codes)
        if self.dtype == "int8":
            self.scales[rows] = packed.scales

    def vectors(self, rows: Rows) -> Float32:
        """What the vectors of rows stand for."""
        out = np.empty((len(rows), self.length), np.float32)
        for at in range(0, len(rows), WIDEST):
            part = slice(at, at + WIDEST)
            codes = self.panels.read(rows[part])
            if self.dtype == "int8":
                out[part] = codes * self.scales[rows[part]][:, None]
            else:
                out[part] = codes.view(self.dtype)
        return out

    def _resize(self, capacity: int) -> None:
        super()._resize(capacity)
        if self.dtype == "int8":
            added = self.capacity - len(self.scales)
            self.scales = np.concatenate([self.scales, np.zeros(added, np.float32)])

    def _items(self) -> TopK:
        return TopK.vectors(self.panels.values, self.scales, self.offsets, self.n_kernel_rows)

    def _requests(self, queries: Float32) -> Float32:
        return queries

    def _batch(self, k: int) -> int:
        return max(2, min(_BATCH, _ROOM // self._room(k)))
