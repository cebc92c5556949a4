"""NumPy arrays as Arrow arrays and back, and columns that Arrow has no plain type for."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from splinefm._arrays import Array, BoolArray

# NumPy arrays as Arrow arrays and back, by way of their buffers.
#
# `pyarrow.array`, `pyarrow.scalar` and `Array.to_numpy` import pandas wherever it is installed, to see whether they
# were handed something of it. That is 0.3 s of every new process, a fifth of a first fit, and of no use to plain
# arrays.

_MAX_TEXT = 1 << 24  # bytes; pyarrow needs less memory on the way, and for so much text the import is not what counts
_UTF_32 = {"little": "utf-32-le", "big": "utf-32-be"}[sys.byteorder]


def to_arrow(values: Array, *, from_pandas: bool = False) -> pa.Array | pa.ChunkedArray:
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
        text = _utf_8(values) if values.nbytes <= _MAX_TEXT else None
        return pa.array(values) if text is None else text
    if values.dtype.kind == "b":
        return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])
    valid = None
    if from_pandas and values.dtype.kind == "f" and (missing := np.isnan(values)).any():
        valid = _bits(~missing)
    numbers = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [valid, numbers])


def to_numpy(column: pa.Array) -> Array:
    """Values of an array without nulls; numbers share its memory and cannot be written to.

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
    values: Array = column.to_numpy(zero_copy_only=False)
    return values


@cache
def scalar(value: float, dtype: type[np.generic]) -> pa.Scalar:
    """A number as Arrow functions take it together with an array.

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


def _is_plain(values: Array) -> bool:
    """Whether Arrow can take the buffer as it is; a subclass may have more, such as a mask."""
    dtype = values.dtype
    return type(values) is np.ndarray and dtype.isnative and dtype.itemsize > 0 and dtype.char in "?bhilqBHILQefdU"


def _bits(values: BoolArray) -> pa.Buffer:
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
    """Yield slices of at most `rows` rows."""
    for at in range(0, batch.num_rows, rows):
        yield batch.slice(at, rows)


def numbered(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches with the number of their first row."""
    at = 0
    for batch in batches:
        yield at, batch
        at += batch.num_rows


# Columns that Arrow has no plain type for: their conversion, or the error to raise.

_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)
_MAX_SHOWN = 60
_MISSING = ("NoneType", "NaTType", "NAType")
# What polars can hold and Arrow cannot, with a fix.
_OF_POLARS = {
    "Object": "convert it to numbers, text or dates",
    "Int128": "cast it to pl.Float64 if it is an amount, or to pl.String if it is a code",
    "UInt128": "cast it to pl.Float64 if it is an amount, or to pl.String if it is a code",
}


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type in which a column is handed over: text in one layout, and what an extension type stands for.

    Examples
    --------
    >>> plain_type(pa.string_view()), plain_type(pa.uuid())
    (DataType(large_string), DataType(large_string))
    """
    if pa.types.is_string_view(kind):  # of polars; many Arrow functions do not take them
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    if pa.types.is_decimal32(kind) or pa.types.is_decimal64(kind):  # few Arrow functions take them
        return pa.decimal128(kind.precision, kind.scale)
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, plain_type(kind.value_type), kind.ordered)
    if pa.types.is_large_list(kind):
        return pa.large_list(plain_type(kind.value_type))
    if pa.types.is_list(kind) and plain_type(kind.value_type) != kind.value_type:
        return pa.large_list(plain_type(kind.value_type))
    if not isinstance(kind, pa.BaseExtensionType):
        return kind
    if kind.extension_name == "pandas.period":
        return pa.timestamp("ns" if kind.freq == "ns" else "us")
    if kind.extension_name in ("pandas.interval", "arrow.uuid"):
        return pa.large_string()
    return plain_type(kind.storage_type)


def plain_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in its plain type: a period is the time when it begins, an interval of numbers its text."""
    if column.type == kind:
        return column
    if pa.types.is_dictionary(column.type) and isinstance(column.type.value_type, pa.BaseExtensionType):
        values = plain_column(column.dictionary, kind.value_type)
        return pa.DictionaryArray.from_arrays(column.indices, values, ordered=kind.ordered)
    if not isinstance(column.type, pa.BaseExtensionType):
        return column.cast(kind)
    if column.type.extension_name == "pandas.period":
        return pa.array(_to_pandas(column).to_timestamp(), from_pandas=True).cast(kind, safe=False)
    if column.type.extension_name == "pandas.interval":
        return _texts(_to_pandas(column))
    if column.type.extension_name == "arrow.uuid":
        return _texts(column.to_pylist())
    return plain_column(column.storage, kind)


def convert_column(name: str, values: object) -> pa.Array | pa.ChunkedArray:
    """A column of a dict or a DataFrame as Arrow has it.

    Examples
    --------
    >>> convert_column("day", [3, 1]).to_pylist()
    [3, 1]
    >>> convert_column("day", [3, "Monday"])
    Traceback (most recent call last):
    ValueError: column 'day' holds values of several types, such as 3 (int) and 'Monday' (str); give it one type: ...
    """
    _check_one_dimensional(name, values)
    try:
        return _convert(values)
    except _ERRORS as error:
        try:
            return _convert(_other_form(values))
        except _ERRORS:
            raise ValueError(f"column {name!r} {_problem(values)}") from error


def refuse_types_of_polars(frame: Any) -> None:
    """Raise where a polars DataFrame has a column that Arrow would hand over as meaningless bytes."""
    for name, dtype in frame.schema.items():
        if str(dtype) in _OF_POLARS:
            example = next((f", such as {_short(value)}" for value in frame[name] if value is not None), "")
            raise ValueError(f"column {name!r} is of type {dtype}{example}; {_OF_POLARS[str(dtype)]}")


def _convert(values: Any) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    if isinstance(values, np.ndarray):
        return to_arrow(values, from_pandas=True)
    return pa.array(values, from_pandas=True)


def _other_form(values: Any) -> object:
    """The same values in a form that Arrow may take."""
    dtype = getattr(values, "dtype", None)
    if str(dtype).startswith("Sparse"):
        return np.asarray(values)
    if isinstance(dtype, np.dtype) and dtype.kind in "Mm":
        return np.asarray(values).astype(f"{dtype.kind}8[s]")  # Arrow has no months, weeks, hours
    if isinstance(dtype, np.dtype) and dtype.kind in "iuf":
        # Of the other byte order, or longer than 64 bits.
        return np.asarray(values).astype(f"{dtype.kind}{min(dtype.itemsize, 8)}")
    kinds = {type(value).__name__ for value in _present(values)}
    if kinds == {"Period"}:
        return [value.to_timestamp() if type(value).__name__ == "Period" else None for value in values]
    if kinds == {"Interval"}:
        return _texts(values)
    if kinds == {"int"}:
        return pa.array(values, pa.uint64(), from_pandas=True)  # above the range of int64
    return values


def _problem(values: Any) -> str:
    """What is wrong with values that cannot be converted, and a fix."""
    examples = _examples(_present(values))
    if len(examples) == 1 and "list" in examples:
        inner = _examples(item for value in _present(values) for item in _present(value))
        if len(inner) > 1:
            return f"holds lists with values of several types, such as {_examples_text(inner)}; give them one type"
    if len(examples) > 1:
        return (
            f"holds values of several types, such as {_examples_text(examples)}; give it one type: numbers "
            "with float(value), or text with str(value)"
        )
    kind, example = next(iter(examples.items()), ("object", None))
    if kind == "int":
        largest = max(_present(values), key=abs)
        return (
            f"holds integers of more than 64 bits, such as {_short(largest)}; "
            "make them floats if they are amounts, or text if they are codes"
        )
    if "complex" in kind:
        return f"holds complex numbers, such as {_short(example)}; make columns of their real and imaginary parts"
    if isinstance(example, str):
        return "holds text that is not valid Unicode; encode it with errors='replace'"
    return f"holds values of type {kind}, such as {_short(example)}; convert them to numbers, text or dates"


def _examples_text(examples: Mapping[str, object]) -> str:
    return " and ".join(f"{_short(value)} ({kind})" for kind, value in list(examples.items())[:3])


def _examples(values: Iterable[object]) -> dict[str, object]:
    """A value of each type, in the order in which they come."""
    found: dict[str, object] = {}
    for value in values:
        found.setdefault(type(value).__name__, value)
    return found


def _present(values: Any) -> Iterator[Any]:
    # None, NaN, NaT and NA are missing; only some of them differ from themselves.
    return (value for value in values if type(value).__name__ not in _MISSING and not _is_nan(value))


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and value != value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def _to_pandas(column: pa.ExtensionArray) -> Any:
    return column.type.to_pandas_dtype().__from_arrow__(column)


def _texts(values: Iterable[Any]) -> pa.Array:
    texts = [None if type(value).__name__ in _MISSING or _is_nan(value) else str(value) for value in values]
    return pa.array(texts, pa.large_string())


def _check_one_dimensional(name: str, values: object) -> None:
    shape = getattr(values, "shape", (1,))
    if isinstance(values, str | bytes | Mapping | Set) or not hasattr(values, "__len__") or shape == ():
        kind = type(values).__name__
        raise ValueError(f"column {name!r} must be a list or an array, got {kind} {values!r}; wrap one value in a list")
    if len(shape) != 1:
        raise ValueError(f"column {name!r} must have one dimension, got shape {shape}; split it into columns")
