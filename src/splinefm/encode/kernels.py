"""Compiled loops of the encoder, on raw arrays. Importing this module loads Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

# Serial and without the GIL: Python threads around them are enough, and compile in a fraction of the time.
_compiled: Any = njit(nogil=True, cache=True)


@_compiled
def _hash(text: Bytes, begin: int, end: int) -> np.uint64:
    """FNV-1a, with the high half folded in: the table uses the low bits only."""
    value = np.uint64(0xCBF29CE484222325)
    for position in range(begin, end):
        value = (value ^ np.uint64(text[position])) * np.uint64(0x100000001B3)
    return np.uint64(value ^ (value >> np.uint64(32)))


@_compiled
def _same(a: Bytes, a_begin: int, a_end: int, b: Bytes, b_begin: int, b_end: int) -> bool:
    """Whether two strings are equal."""
    if a_end - a_begin != b_end - b_begin:
        return False
    for i in range(a_end - a_begin):  # noqa: SIM110  (Numba compiles loops, not generators)
        if a[a_begin + i] != b[b_begin + i]:
            return False
    return True


@_compiled
def build_index(offsets: Offsets, text: Bytes, table: IntArray) -> None:
    """Open addressing: `table`, all -1 and a power of two long, gets the position of every string."""
    mask = np.uint64(len(table) - 1)
    for i in range(len(offsets) - 1):
        slot = _hash(text, offsets[i], offsets[i + 1]) & mask
        while table[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        table[slot] = i


@_compiled
def find(
    offsets: Offsets,
    text: Bytes,
    known_offsets: Offsets,
    known_text: Bytes,
    table: IntArray,
    out: IntArray,
) -> None:
    """out[i] = position of string i among the known strings, or -1."""
    mask = np.uint64(len(table) - 1)
    for i in range(len(out)):
        begin, end = offsets[i], offsets[i + 1]
        slot = _hash(text, begin, end) & mask
        at = table[slot]
        while at >= 0 and not _same(text, begin, end, known_text, known_offsets[at], known_offsets[at + 1]):
            slot = (slot + np.uint64(1)) & mask
            at = table[slot]
        out[i] = at


@_compiled
def interpolate(x: FloatArray, knots: FloatArray, values: FloatArray, out: FloatArray) -> None:
    """Piecewise linear through (knots, values), constant beyond the ends; NaN stays NaN.

    The search halves a fixed number of times without a branch on the data, which random x would mispredict.
    """
    last = len(knots) - 1
    steps = 0
    while (1 << steps) <= last:
        steps += 1
    for i in range(len(x)):
        z = x[i]
        low = 0
        size = last  # candidates for the left knot: low .. low + size - 1
        for _ in range(steps):
            half = size >> 1
            low = low + half if knots[low + half] <= z else low
            size -= half
        if z <= knots[0]:
            out[i] = values[0]
        elif z >= knots[last]:
            out[i] = values[last]
        else:
            part = (z - knots[low]) / (knots[low + 1] - knots[low])
            out[i] = values[low] + part * (values[low + 1] - values[low])
