"""How functions become parts of the kernels that are compiled by Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba import njit

from splinefm.encode.pipeline import Part, Short

# NaN and infinity keep their meaning, so that a diverging run is seen.
FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}
# No reference counts: the kernels allocate nothing, and counting takes longer than adding a vector. Functions that are
# called by kernels alone become part of them, and need no way in from Python.
OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": FASTMATH,
    "_nrt": False,
    "no_cfunc_wrapper": True,
    "error_model": "numpy",
    "pipeline_class": Short,
}
INSIDE: dict[str, Any] = {**OPTIONS, "forceinline": True, "no_cpython_wrapper": True, "pipeline_class": Part}


def inlined(function: Callable[..., Any]) -> Any:
    """A function that becomes part of its callers when these are optimized."""
    return njit(**INSIDE)(function)
