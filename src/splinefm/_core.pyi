"""The compiled loops of splinefm."""

from typing import Annotated

import numpy
from numpy.typing import NDArray


isa: str

isas: tuple[str, ...]

class Shape:
    """A layout as the loops read it; see splinefm.encode.slots.Layout."""

    def __init__(self, weight_ptr: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], window_unit: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], unit_field: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], window_ptr: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], row_ptr: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None: ...

class Parameter:
    """Some parameters and the optimizer's memory of them; nothing is copied."""

    def __init__(self, values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], m: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], v: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], average: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

class Engine:
    """Steps of an optimizer; see splinefm.model.cpu.CpuEngine."""

    def __init__(self, shape: Shape, model: str, k: int, order: int, loss: str, optimizer: str, beta1: float, beta2: float, eps: float, weight_decay: float, ema: float, tile: int, shard: int, block: int, batch_size: int, threads: int, number: int, bias: Parameter, linear: Parameter, factors: Parameter, between: Parameter | None, scales: Parameter | None, R: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], M: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], last: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu')]) -> None: ...

    def steps(self, start: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], y: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], sample_weight: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], rows: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], learning_rates: Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C', device='cpu', writable=False)], batch_size: int) -> Annotated[NDArray[numpy.float64], dict(shape=(None,), order='C')]:
        """
        A step on every batch of `batch_size` of the rows; returns the mean loss of each before its step.
        """

    def set_penalty(self, group_ptr: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], begin: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], end: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], l2: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], l2_linear: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], smoothness: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], order: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], signs: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], periodic: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Penalties on groups of table rows, which lie end to end."""

    @property
    def number(self) -> int:
        """Steps so far."""

NEAR: int = 2048

def score(shape: Shape, model: str, k: int, order: int, tile: int, bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], linear: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], factors: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], R: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], M: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], start: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], weight: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], threads: int) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')]:
    """Scores of encoded rows with any parameters."""

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
