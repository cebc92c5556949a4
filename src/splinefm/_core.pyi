"""The compiled loops of splinefm."""

from typing import Annotated

import numpy
from numpy.typing import NDArray


isa: str

isas: tuple[str, ...]

def probe_vec(a: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], b: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C')]:
    """
    For tests: a + b, a - b, a b, a / b, b[0] a, sqrt(a), abs(a), max(a, b) and the sum of a.
    """

def probe_team(threads: int, parts: int, jobs: int) -> list[int]:
    """
    For tests: parts add their numbers to sums of their own, in so many jobs.
    """

def probe_product(x: float, y: float) -> float:
    """For tests: a product inside kernels, where denormal numbers are zero."""
