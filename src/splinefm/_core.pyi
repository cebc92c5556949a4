"""The compiled loops of splinefm."""

from typing import Annotated, Any

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

class RowEncoder:
    """
    Raw values of one row -> table rows and weights. Fields are added in the order of the model. Rows are mappings; `columns` and `readers` have an item per field: where its value is, and a function that is asked about values and names that are not known here.
    """

    def __init__(self) -> None: ...

    def add_number(self, first: int, signs: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], bounds: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], missing: bool, apart: bool, plain: bool, knots: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], values: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], powers: int) -> None:
        """
        A field of numbers; its reader returns a float. Signs of special values: 0 to 4 for ==, <, <=, >, >=.
        """

    def add_window(self, segments: int, edges: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], coefficients: Annotated[NDArray[numpy.float64], dict(shape=(None, None, None), order='C', device='cpu', writable=False)], start: int, moves: int, around: int) -> None:
        """A window of the basis of the field that was added last."""

    def add_names(self, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], first: int, unseen: int, missing: int) -> None:
        """
        A field of one name; its reader returns a table row, or -1. Rows may be -1 for none, -2 to ask.
        """

    def add_lists(self, offsets: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], text: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)], first: int, unseen: int, missing: int, length: int, averages: bool, apart: bool) -> None:
        """A field of lists of names; its reader returns table rows and weights."""

    def add_given(self, length: int, apart: bool) -> None:
        """A field whose reader returns table rows and weights of every value."""

    def encode(self, row: object, columns: tuple[Any, ...], readers: tuple[Any, ...]) -> tuple[Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')], Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C')]]:
        """
        Table rows and weights of terms; where the terms of units end, after a zero; fields of units.
        """

class RowScorer:
    """
    Raw values of one row -> its score. The arrays are kept, not copied. k is 4 or a multiple of 8; `columns` and `readers` are those of RowEncoder.
    """

    def __init__(self, encoder: RowEncoder, model: str, k: int, order: int, factors: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], linear: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], between: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], bias: float, link: str, center: float, scale: float) -> None: ...

    def score(self, row: object, columns: tuple[Any, ...], readers: tuple[Any, ...], link: bool) -> float:
        """The score of a row, or the prediction that it stands for."""

    def many(self, rows: list[Any], columns: tuple[Any, ...], readers: tuple[Any, ...], link: bool, out: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu')]) -> None:
        """Scores of a list of rows, written to `out`."""
