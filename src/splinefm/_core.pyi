"""The compiled loops of splinefm."""

from typing import Annotated, overload

import numpy
from numpy.typing import NDArray


isa: str

isas: tuple[str, ...]

class StringTable:
    """
    Positions of known strings: string i is `text[offsets[i]:offsets[i + 1]]`, in UTF-8.
    """

    def __init__(self, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def find(self, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')]:
        """
        Position of each string among the known ones, -1 where it is not known.
        """

    @property
    def slots(self) -> Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', writable=False)]:
        """The hash table itself: positions, -1 where a slot is free."""

def count_strings(offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> tuple[Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]]:
    """
    Position of the first of each kind of string, in the order of occurrence, and how many are equal to it.
    """

class Interpolation:
    """
    Piecewise linear through (knots, values), constant beyond the ends; NaN stays NaN.
    """

    def __init__(self, knots: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

    def __call__(self, x: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
        """The value at each x."""

def summarize_sorted(x: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], capacity: int) -> tuple[Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]]:
    """
    Distinct values of a sorted array, at most `capacity`, with the rows below and at each.
    """

def probe_vec(a: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], b: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')]:
    """
    For tests: a + b, a - b, a b, a / b, b[0] a, sqrt(a), abs(a), max(a, b) and the sum of a.
    """

class ProbeTeam:
    """For tests: a team of threads whose parts add up their numbers."""

    def __init__(self, threads: int, parts: int) -> None: ...

    def run(self, jobs: int) -> None:
        """So many jobs."""

    def found(self) -> list[int]:
        """The sums, part by part."""

def probe_product(x: float, y: float) -> float:
    """For tests: a product inside kernels, where denormal numbers are zero."""

class IdTable:
    """
    Rows by id: a hash table of rows whose ids are words of eight bytes, shape (rows, width).
    """

    def __init__(self) -> None: ...

    def insert(self, words: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> int:
        """
        Enter rows; the first whose id was there already, and which is left out, or -1.
        """

    def find(self, words: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order='C', device='cpu', writable=False)], wanted: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]:
        """Rows of ids, -1 where there is none."""

    def erase(self, words: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Take rows out."""

    def rebuild(self, words: Annotated[NDArray[numpy.uint64], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> None:
        """Enter all rows anew: words have become wider."""

class TopK:
    """The best items of a catalog in panels, which is vectors or table rows."""

    @overload
    @staticmethod
    def vectors(panels: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], scales: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], n_rows: int) -> TopK:
        """Panels of vectors, shape (panels, length, columns)."""

    @overload
    @staticmethod
    def vectors(panels: Annotated[NDArray[numpy.uint16], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], scales: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], n_rows: int) -> TopK:
        """Of float16, as their bits."""

    @overload
    @staticmethod
    def vectors(panels: Annotated[NDArray[numpy.int8], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], scales: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], n_rows: int) -> TopK:
        """Of int8, with a scale for each item."""

    @staticmethod
    def effects(starts: Annotated[NDArray[numpy.int32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], weights: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], windows: Annotated[NDArray[numpy.int64], dict(shape=(None, None), order='C', device='cpu', writable=False)], offsets: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], n_rows: int) -> TopK:
        """
        Panels of places and weights; of each window the first effect, the largest place, the number of weights and the line of the first (-1: it is 1).
        """

    def search(self, requests: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], constants: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], k: int, room: int, visit: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], keep: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], codes: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], wanted: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], threads: int) -> list[tuple[Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C')]]]:
        """
        For each query scores and rows from the k-th best score up, in no order.
        """

    @staticmethod
    def effects_of(panels: Annotated[NDArray[numpy.float32], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], n_rows: int, queries: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], out: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')]) -> None:
        """out[row, q] = queries[q] · the numbers of a table row."""

TOGETHER: int = 8
