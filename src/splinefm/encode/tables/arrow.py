"""NumPy arrays as Arrow arrays and back, by way of their buffers.

`pyarrow.array`, `pyarrow.scalar` and `Array.to_numpy` import pandas wherever it is installed, to see whether they were
handed something of it. That is 0.3 s of every new process, a fifth of a first fit, and of no use to plain arrays.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_MOST_TEXT = 1 << 24  # bytes; pyarrow needs less memory on the way, and for so much text the import is not what counts
_UTF_32 = {"little": "utf-32-le", "big": "utf-32-be"}[sys.byteorder]


def to_arrow(values: npt.NDArray[Any], *, from_pandas: bool = False) -> pa.Array | pa.ChunkedArray:
    """`pyarrow.array` of a NumPy array: numbers without a copy where they are contiguous, booleans, text.

    Parameters
    ----------
    values : array
        Of one dimension. What is not made of numbers, booleans or a moderate amount of text is left to pyarrow.
    from_pandas : bool
        Whether NaN becomes null.

    Examples
    --------
    >>> to_arrow(np.array([1.0, np.nan]), from_pandas=True).to_pylist()
    [1.0, None]
    >>> to_arrow(np.array([True, False])).type, to_arrow(np.array(["US", "FR"])).to_pylist()
    (DataType(bool), ['US', 'FR'])
    """
    if values.dtype.kind == "M" and np.datetime_data(values.dtype)[0] in ("Y", "M", "W", "h", "m"):
        values = values.astype("datetime64[s]")  # Arrow has no such units
    if not _is_plain(values):
        return pa.array(values, from_pandas=from_pandas)
    if values.dtype.kind == "U":
        text = _utf_8(values) if values.nbytes <= _MOST_TEXT else None
        return pa.array(values) if text is None else text
    if values.dtype.kind == "b":
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])
    valid = None
    if from_pandas and values.dtype.kind == "f" and (missing := np.isnan(values)).any():
        valid = _bits(~missing)
    numbers = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, numbers])


def to_numpy(column: pa.Array) -> npt.NDArray[Any]:
    """Values of an array without nulls; those of numbers are shared with it and cannot be written to.

    Examples
    --------
    >>> to_numpy(to_arrow(np.arange(4)).slice(2))
    array([2, 3])
    """
    if pa.types.is_boolean(column.type):
        first, last = column.offset, column.offset + len(column)
        bits = np.frombuffer(column.buffers()[1], np.uint8)[first // 8 : -(-last // 8)]
        return np.unpackbits(bits, bitorder="little")[first % 8 :][: len(column)].view(np.bool_)
    if pa.types.is_integer(column.type) or pa.types.is_floating(column.type):
        return np.from_dlpack(column)
    values: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


@cache
def scalar(value: float, dtype: type[np.generic]) -> pa.Scalar:
    """A number as Arrow functions take it beside an array.

    Examples
    --------
    >>> scalar(-1, np.int32)
    <pyarrow.Int32Scalar: -1>
    """
    return to_arrow(np.array([value], dtype))[0]


def matches(text: pa.LargeStringArray, pattern: str) -> pa.BooleanArray:
    """Whether each text fits a regular expression; a null does not.

    Examples
    --------
    >>> matches(from_strings(["a1", "b"]), "^[a-z][0-9]$").to_pylist()
    [True, False]
    """
    found = pc.match_substring_regex(text, pattern=pattern)
    return pc.fill_null(found, scalar(False, np.bool_)) if found.null_count else found


def from_strings(names: Sequence[str]) -> pa.LargeStringArray:
    """Python strings as an Arrow array.

    Examples
    --------
    >>> from_strings(["US", ""]).to_pylist()
    ['US', '']
    """
    text = [name.encode() for name in names]
    offsets = np.cumsum([0, *map(len, text)], dtype=np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(text))]
    return pa.Array.from_buffers(pa.large_string(), len(text), buffers)


def _is_plain(values: npt.NDArray[Any]) -> bool:
    """Whether Arrow can take the buffer as it is; a subclass may have more, such as a mask."""
    dtype = values.dtype
    return type(values) is np.ndarray and dtype.isnative and dtype.itemsize > 0 and dtype.char in "?bhilqBHILQefdU"


def _bits(values: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _utf_8(values: npt.NDArray[np.str_]) -> pa.StringArray | None:
    """Strings of equal length, padded with zeros, as UTF-8 with offsets; None where a zero is not padding."""
    codes = np.ascontiguousarray(values).view(np.uint32).reshape(len(values), values.itemsize // 4)
    used = codes > 0
    if (used[:, 1:] > used[:, :-1]).any():
        return None
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(used.sum(axis=1), out=offsets[1:])
    if codes.max(initial=0) > 0x7F:
        # Each of these codes and those above it take one byte more.
        for first in (0x80, 0x800, 0x10000):
            offsets[1:] += np.cumsum((codes >= first).sum(axis=1), dtype=np.int32)
    padded = np.frombuffer(str(codes.data, _UTF_32).encode(), np.uint8)
    text = padded[padded > 0]
    return pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(text)])


def cut_batch(batch: pa.RecordBatch, rows: int) -> Iterator[pa.RecordBatch]:
    """Yield slices of at most so many rows."""
    for at in range(0, batch.num_rows, rows):
        yield batch.slice(at, rows)


def numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches with the number of their first row."""
    at = 0
    for batch in batches:
        yield at, batch
        at += batch.num_rows
