"""Looking up one name among known ones, for the kernel that scores a row. Importing this module loads Numba.

The hash is that of cpp/encode/strings.hpp, which builds the table.
"""

# mypy: disallow-untyped-decorators=False

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit, types
from numba.extending import intrinsic

IntArray = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Offsets = npt.NDArray[np.int64]

_INSIDE: dict[str, Any] = {"_nrt": False, "error_model": "numpy", "forceinline": True, "no_cpython_wrapper": True}
_inlined: Any = njit(**_INSIDE)


def _word_in_llvm(typing: Any, text: Any, begin: Any) -> Any:
    """Eight bytes of text as one number by one unaligned load; Numba has no spelling for it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        place = builder.gep(array.data, [arguments[1]])
        word = context.get_value_type(types.uint64).as_pointer()
        return builder.load(builder.bitcast(place, word), align=1)

    return types.uint64(text, types.int64), generate


_word: Any = intrinsic(_word_in_llvm)


@_inlined
def _last_word(text: Bytes, begin: int, end: int) -> np.uint64:
    """The last eight bytes of a string; all of a shorter one, and zeros."""
    if end - begin >= 8:
        return _word(text, end - 8)  # type: ignore[no-any-return]
    word = np.uint64(0)
    for i in range(end - begin):
        word |= np.uint64(text[begin + i]) << np.uint64(8 * i)
    return word


@_inlined
def _mix(value: np.uint64) -> np.uint64:
    value = value * np.uint64(0x9E3779B97F4A7C15)
    return value ^ (value >> np.uint64(32))


@_inlined
def _hash(text: Bytes, begin: int, end: int) -> np.uint64:
    """A hash of a string, eight bytes at a time."""
    value = np.uint64(0xCBF29CE484222325) ^ np.uint64(end - begin)
    last = _last_word(text, begin, end)
    while begin + 8 < end:
        value = _mix(value ^ _word(text, begin))
        begin += 8
    return _mix(_mix(value ^ last))  # type: ignore[no-any-return]


@_inlined
def _same(a: Bytes, a_begin: int, a_end: int, b: Bytes, b_begin: int, b_end: int) -> bool:
    """Whether two strings are equal."""
    length = a_end - a_begin
    if length != b_end - b_begin:
        return False
    i = 0
    while i + 8 < length:
        if _word(a, a_begin + i) != _word(b, b_begin + i):
            return False
        i += 8
    return bool(_last_word(a, a_begin, a_end) == _last_word(b, b_begin, b_end))


@_inlined
def find(text: Bytes, begin: int, end: int, known_offsets: Offsets, known_text: Bytes, table: IntArray) -> Any:
    """Position of a string among the known ones, or -1; `table` is that of a `StringTable`."""
    mask = np.uint64(len(table) - 1)
    slot = _hash(text, begin, end) & mask
    at = table[slot]
    while at >= 0 and not _same(text, begin, end, known_text, known_offsets[at], known_offsets[at + 1]):
        slot = (slot + np.uint64(1)) & mask
        at = table[slot]
    return at
