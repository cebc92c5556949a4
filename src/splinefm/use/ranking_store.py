"""Vectors of items in the layout of the search kernels, with rows that come and go; and the search through them."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from splinefm.use.ranking_kernels import Filter, Found

FloatArray = npt.NDArray[np.float64]
Float32 = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Array = npt.NDArray[Any]
Dtype = Literal["float32", "float16", "int8"]

# Half floats are kept as their bits, because Numba has no such type.
PANEL_TYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.uint16),
    "int8": np.dtype(np.int8),
}
# Columns of a panel: 16 kB a line in float32. Shorter lines are read more slowly, because each begins anew for the
# prefetcher (10⁶ vectors of 80 numbers: 12.5 ms; with 1,024 columns 14.7, with 256 25; NumPy's `@` 16).
WIDEST = 4096
STEP = 64  # columns are a multiple of it, as the kernels want
_SPARE = 2048  # rows with the k-th best score that a search keeps, at least
_BATCH = 128  # queries that are answered in one pass, unless k is so large that this takes more room than
_ROOM = 1 << 23


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


class Store:
    """Vectors and offsets of items by row; rows are reserved, written, published and released.

    What is not published has the offset -inf and is never found, so that a change that fails half-way leaves nothing.

    Parameters
    ----------
    length : int
        Numbers in a vector.
    dtype : {"float32", "float16", "int8"}
        How they are stored.
    """

    def __init__(self, length: int, dtype: Dtype) -> None:
        self.length, self.dtype = length, dtype
        self.panels: Array = np.zeros((0, length, STEP), PANEL_TYPES[dtype])
        self.scales = np.zeros(0, np.float32)
        self.offsets = np.zeros(0, np.float32)
        self.n_rows = 0  # rows that were ever reserved
        self.free: list[int] = []

    @property
    def capacity(self) -> int:
        """Rows for which there is room."""
        return int(self.panels.shape[0] * self.panels.shape[2])

    @property
    def n_panels(self) -> int:
        """Panels with rows that were ever reserved."""
        return -(-self.n_rows // int(self.panels.shape[2]))

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

    def write(self, rows: Rows, packed: Packed) -> None:
        """Put vectors into reserved rows."""
        panel, column = np.divmod(rows, self.panels.shape[2])
        self.panels[panel, :, column] = packed.codes
        if self.dtype == "int8":
            self.scales[rows] = packed.scales

    def publish(self, rows: Rows, offsets: Float32) -> None:
        """Let written rows be found."""
        self.offsets[rows] = offsets

    def release(self, rows: Rows) -> None:
        """Take rows out of use."""
        self.offsets[rows] = -np.inf
        self.free.extend(rows.tolist())

    def vectors(self, rows: Rows) -> Float32:
        """What the vectors of rows stand for."""
        out = np.empty((len(rows), self.length), np.float32)
        for at in range(0, len(rows), WIDEST):
            part = slice(at, at + WIDEST)
            panel, column = np.divmod(rows[part], self.panels.shape[2])
            codes = np.ascontiguousarray(self.panels[panel, :, column])
            if self.dtype == "int8":
                out[part] = codes * self.scales[rows[part]][:, None]
            else:
                out[part] = codes.view(self.dtype)
        return out

    def _resize(self, capacity: int) -> None:
        size = min(WIDEST, -(-capacity // STEP) * STEP)
        panels = np.zeros((-(-capacity // size), self.length, size), self.panels.dtype)
        n_old, _, old_size = self.panels.shape
        if size == old_size:
            panels[:n_old] = self.panels
        else:  # a single panel, which becomes wider
            panels[:n_old, :, :old_size] = self.panels
        added = panels.shape[0] * size - len(self.offsets)
        self.panels = panels
        self.offsets = np.concatenate([self.offsets, np.full(added, -np.inf, np.float32)])
        if self.dtype == "int8":
            self.scales = np.concatenate([self.scales, np.zeros(added, np.float32)])

    # Search

    def search(
        self, queries: Float32, constants: Float32, k: int, only: Filter, visit: Rows | None, threads: int
    ) -> list[tuple[Float32, Rows]]:
        """For each query the scores and rows of at least the best k, with all rows as good as the k-th; in no order."""
        panels = np.arange(self.n_panels) if visit is None else visit
        if len(queries) == 1:
            return [self._search_one(queries[0], constants[0], k, only, panels, threads)]
        found: list[tuple[Float32, Rows]] = []
        step = max(2, min(_BATCH, _ROOM // self._room(k)))
        for at in range(0, len(queries), step):
            part = slice(at, at + step)
            found += self._search_batch(queries[part], constants[part], k, only, panels, threads)
        return found

    def _search_one(
        self, query: Float32, constant: np.float32, k: int, only: Filter, visit: Rows, threads: int
    ) -> tuple[Float32, Rows]:
        from splinefm.use.ranking_kernels import search, ties

        def job(panels: Rows, found: Found) -> None:
            search(self._items(), panels, query, constant, only, k, found)

        parts = self._run(job, 1, k, visit, threads)
        scores, rows, spilled = _merge(parts, 0, k)
        if spilled:
            last = scores.min()
            room = np.empty(self.capacity, np.int64)
            n = ties(self._items(), visit, query, constant, only, last, room)
            above = scores > last
            scores = np.concatenate([scores[above], np.full(n, last, np.float32)])
            rows = np.concatenate([rows[above], room[:n]])
        return scores, rows

    def _search_batch(
        self, queries: Float32, constants: Float32, k: int, only: Filter, visit: Rows, threads: int
    ) -> list[tuple[Float32, Rows]]:
        from splinefm.use.ranking_kernels import search_batch

        n = len(queries)
        even = np.arange(n + n % 2) % n  # the kernel takes two queries at a time
        twice, shifts = queries[even], constants[even]

        def job(panels: Rows, found: Found) -> None:
            search_batch(self._items(), panels, twice, shifts, only, k, found)

        parts = self._run(job, len(even), k, visit, threads)
        result = []
        for q in range(n):
            scores, rows, spilled = _merge(parts, q, k)
            if spilled:
                scores, rows = self._search_one(queries[q], constants[q], k, only, visit, threads)
            result.append((scores, rows))
        return result

    def _items(self) -> Any:
        from splinefm.use.ranking_kernels import Items

        # Rows up to the next multiple of STEP exist and have the offset -inf.
        return Items(self.panels, self.scales, self.offsets, -(-self.n_rows // STEP) * STEP)

    def _room(self, k: int) -> int:
        """Rows that a search keeps at a time."""
        return k + min(self.capacity, max(k, _SPARE)) + 1

    def _run(self, job: Any, n_queries: int, k: int, visit: Rows, threads: int) -> list[Found]:
        """The job on consecutive parts of the panels, one per thread."""
        from splinefm.use.ranking_kernels import make_found

        n_parts = max(1, min(threads, len(visit)))
        cuts = np.linspace(0, len(visit), n_parts + 1).astype(int).tolist()
        founds = [make_found(n_queries, k, self._room(k)) for _ in range(n_parts)]
        tasks = [(visit[a:b], found) for (a, b), found in zip(pairwise(cuts), founds, strict=True)]
        if n_parts == 1:
            job(*tasks[0])
        else:
            with ThreadPoolExecutor(n_parts) as pool:
                list(pool.map(lambda task: job(*task), tasks))
        return founds


def _merge(parts: Sequence[Found], query: int, k: int) -> tuple[Float32, Rows, bool]:
    """What the parts found for a query, from its k-th best score up, and whether rows with that score are missing."""
    scores = np.concatenate([part.scores[query, : part.count[query]] for part in parts])
    rows = np.concatenate([part.rows[query, : part.count[query]] for part in parts])
    if len(scores) < k:
        return scores, rows, False
    last = np.partition(scores, len(scores) - k)[len(scores) - k]
    kept = scores >= last
    return scores[kept], rows[kept], any(part.spilled[query] == last for part in parts)
