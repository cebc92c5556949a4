"""Compiled loops of the encoder, on raw arrays. Importing this module loads Numba."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import config, njit, types
from numba.extending import intrinsic

from splinefm.encode.pipeline import Part, Short

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

# Serial and without the GIL: Python threads around them are enough, and compile in a fraction of the time.
# No reference counts, since they allocate nothing, and no way in from C.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "_nrt": False,
    "no_cfunc_wrapper": True,
    "error_model": "numpy",
    "pipeline_class": Short,
}
_INSIDE: dict[str, Any] = {**_OPTIONS, "forceinline": True, "no_cpython_wrapper": True, "pipeline_class": Part}
_compiled: Any = njit(cache=True, **_OPTIONS)
_inlined: Any = njit(**_INSIDE)


def _word_in_python(text: Bytes, begin: int) -> np.uint64:
    """Eight bytes of text as one number."""
    return np.uint64(text[begin : begin + 8].view(np.uint64)[0])


def _word_in_llvm(typing: Any, text: Any, begin: Any) -> Any:
    """The same as one unaligned load; Numba has no spelling for it. Four times faster than byte by byte."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.gep(array.data, [arguments[1]])
        word = context.get_value_type(types.uint64).as_pointer()
        return builder.load(builder.bitcast(place, word), align=1)

    return types.uint64(text, types.int64), generate


def _bits_in_llvm(typing: Any, z: Any) -> Any:
    """The bits of a float64 as one number; `view` is compiled as a function of its own."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], context.get_value_type(types.int64))

    return types.int64(types.float64), generate


_JIT_OFF: bool = config.DISABLE_JIT  # type: ignore[attr-defined]  # set at run time
_word: Any = _word_in_python if _JIT_OFF else intrinsic(_word_in_llvm)
_bits: Any = (lambda z: np.float64(z).view(np.int64)) if _JIT_OFF else intrinsic(_bits_in_llvm)


@_inlined
def _hash(text: Bytes, begin: int, end: int) -> np.uint64:
    """A hash of a string, eight bytes at a time, the rest byte by byte (FNV-1a)."""
    value = np.uint64(0xCBF29CE484222325) ^ np.uint64(end - begin)
    while begin + 8 <= end:
        value = (value ^ _word(text, begin)) * np.uint64(0x9E3779B97F4A7C15)
        value ^= value >> np.uint64(32)
        begin += 8
    while begin < end:
        value = (value ^ np.uint64(text[begin])) * np.uint64(0x100000001B3)
        begin += 1
    return np.uint64(value ^ (value >> np.uint64(29)))


@_inlined
def _same(a: Bytes, a_begin: int, a_end: int, b: Bytes, b_begin: int, b_end: int) -> bool:
    """Whether two strings are equal."""
    length = a_end - a_begin
    if length != b_end - b_begin:
        return False
    i = 0
    while i + 8 <= length:
        if _word(a, a_begin + i) != _word(b, b_begin + i):
            return False
        i += 8
    while i < length:
        if a[a_begin + i] != b[b_begin + i]:
            return False
        i += 1
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
def count_strings(
    offsets: Offsets, text: Bytes, table: IntArray, example: IntArray, count: npt.NDArray[np.int64]
) -> int:
    """Count equal strings: `example` gets the position of the first of each kind, `count` their number.

    `table` is all -1 and a power of two, larger than the number of strings. Returns the number of kinds.
    """
    mask = np.uint64(len(table) - 1)
    kinds = 0
    for i in range(len(offsets) - 1):
        begin, end = offsets[i], offsets[i + 1]
        slot = _hash(text, begin, end) & mask
        kind = table[slot]
        while kind >= 0:
            other = example[kind]
            if _same(text, begin, end, text, offsets[other], offsets[other + 1]):
                break
            slot = (slot + np.uint64(1)) & mask
            kind = table[slot]
        if kind < 0:
            kind = kinds
            table[slot], example[kind], count[kind] = kind, i, 0
            kinds += 1
        count[kind] += 1
    return kinds


# A guide to sorted knots: the bits of the distance to the first knot, shifted right, number cells whose
# width grows with the distance. Most cells hold few knots, wherever the data are dense.


@_inlined
def _cell(knots: FloatArray, z: float, shift: int) -> Any:
    """The cell of z, at least at the second knot; the bits of positive floats are ordered like the floats."""
    return (_bits(z - knots[0]) - _bits(knots[1] - knots[0])) >> shift


@_compiled
def build_guide(knots: FloatArray, shift: int, guide: IntArray) -> None:
    """guide[c] = the last knot before cell c (the second knot, if there is none)."""
    at = 1
    for cell in range(len(guide)):
        while at + 1 < len(knots) and _cell(knots, knots[at + 1], shift) < cell:
            at += 1
        guide[cell] = at


@_compiled
def interpolate(
    x: FloatArray, knots: FloatArray, values: FloatArray, shift: int, guide: IntArray, out: FloatArray
) -> None:
    """Piecewise linear through (knots, values), constant beyond the ends; NaN stays NaN."""
    last = len(knots) - 1
    for i in range(len(x)):
        z = x[i]
        if z >= knots[last]:
            out[i] = values[last]
            continue
        if not z > knots[0]:
            out[i] = values[0] if z <= knots[0] else z
            continue
        low = 0
        if z >= knots[1]:
            cell = _cell(knots, z, shift)
            low, high = guide[cell], guide[cell + 1] + 1
            while high - low > 1:
                middle = (low + high) >> 1
                if knots[middle] <= z:
                    low = middle
                else:
                    high = middle
        part = (z - knots[low]) / (knots[low + 1] - knots[low])
        out[i] = values[low] + part * (values[low + 1] - values[low])


@_inlined
def _count_distinct(x: FloatArray) -> int:
    """Number of different values of a sorted array."""
    count = 1
    for i in range(1, len(x)):
        count += x[i] != x[i - 1]
    return count


@_compiled
def summarize_sorted(x: FloatArray, capacity: int, value: FloatArray, below: FloatArray, at: FloatArray) -> int:
    """Distinct values of a sorted array with the rows below and at each; at most `capacity` of them.

    If there are more, those are kept that are first or last, whose rows exceed a share of 2 / capacity, or that
    are the first with their middle rank in the next of `capacity // 2 - 2` equal parts. Returns their number.
    """
    n = len(x)
    keep_all = _count_distinct(x) <= capacity
    heavy = n / (capacity // 2)
    parts = capacity // 2 - 3
    step = n / (parts if parts > 1 else 1)
    target = 0.0
    kept = 0
    begin = 0
    while begin < n:
        end = begin + 1
        while end < n and x[end] == x[begin]:
            end += 1
        middle = 0.5 * (begin + end)
        if keep_all or begin == 0 or end == n or end - begin > heavy or middle >= target:
            value[kept], below[kept], at[kept] = x[begin], begin, end - begin
            kept += 1
            following = step * (np.floor(middle / step) + 1.0)
            target = following if following > target else target
        begin = end
    return kept
