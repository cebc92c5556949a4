"""Arrow IPC streams of clients, who may send anything."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from splinefm._arrays import Array

_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2  # kinds of messages
# Numbers of fields in the tables of Arrow's format, Message.fbs.
_HEADER_KIND, _HEADER, _DATA, _COMPRESSION = 1, 2, 1, 3


Sizes = npt.NDArray[np.int64]
_TEXT = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())
_VIEWS = (pa.string_view(), pa.binary_view())


class BadStream(ValueError):
    """A body that is not an Arrow stream, or none that is taken."""


class LargeStream(BadStream):
    """A body that would take too much memory once its values are written out."""


def read_batches(body: bytes, max_rows: int, max_bytes: int) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """Return the schema and the batches of a stream, with every offset checked, until they have over `max_rows` rows.

    Compressed streams are refused: a few bytes could become more than there is memory for. For the same reason, values
    that rows share, as in a dictionary, may take at most `max_bytes` once every row has its own. Columns of
    runs are decoded.

    Examples
    --------
    >>> sink = pa.BufferOutputStream()
    >>> with pa.ipc.new_stream(sink, pa.schema([("x", pa.int64())])) as writer:
    ...     writer.write(pa.record_batch({"x": [1, 2]}))
    >>> [batch.num_rows for batch in read_batches(sink.getvalue().to_pybytes(), 10, 1000)[1]]
    [2]
    """
    try:
        _refuse_compressed(body)
        reader = pa.ipc.open_stream(body)
        batches, n_rows, n_bytes = [], 0, 0
        for batch in reader:
            batch.validate(full=True)
            n_rows += batch.num_rows
            if n_rows > max_rows:
                batches.append(batch)  # the caller counts rows
                break
            n_bytes += expanded_bytes(batch, max_bytes - n_bytes)
            batches.append(_without_runs(batch))
        return batches[0].schema if batches else reader.schema, batches
    except BadStream:
        raise
    except (pa.ArrowException, ValueError, OSError, MemoryError, struct.error, EOFError) as error:
        raise BadStream(f"the body is not a valid Arrow IPC stream: {error}") from None


def expanded_bytes(batch: pa.RecordBatch, max_bytes: int) -> int:
    """Return the bytes of all values once every row has its own; raise if there are more than `max_bytes`.

    Examples
    --------
    >>> text = pa.array(["a" * 100]).dictionary_encode().take(pa.array([0] * 10))
    >>> expanded_bytes(pa.record_batch({"text": text}), 2000)
    1010
    """
    total = 0
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        total += int(_sizes(column, max_bytes).sum())
        if total > max_bytes:
            raise LargeStream(
                f"column {name[:60]!r} takes the request over {max_bytes:,} bytes once every row has its own value; "
                "send fewer rows, or shorter values"
            )
    return total


def _sizes(values: pa.Array, max_bytes: int) -> Sizes:
    """Return the bytes of each value once it is written out; text and lists have one more, as they may be empty."""
    if len(values) > max_bytes:  # arrays of nulls and runs can have any length without any bytes
        raise LargeStream(
            f"the stream has an array of {len(values):,} values, more than the {max_bytes:,} bytes allowed"
        )
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _taken(_sizes(values.dictionary, max_bytes), values.indices)
    if pa.types.is_run_end_encoded(kind):
        ends = np.asarray(values.run_ends)
        runs = np.searchsorted(ends, values.offset + np.arange(len(values)), "right")
        return np.asarray(_sizes(values.values, max_bytes)[runs])
    if pa.types.is_struct(kind):
        total = np.zeros(len(values), np.int64)
        for i in range(kind.num_fields):
            total += _sizes(values.field(i), max_bytes)
        return total
    if _is_list_view(kind):
        return _slices(values.values, np.asarray(values.offsets), np.asarray(values.sizes), max_bytes)
    if pa.types.is_fixed_size_list(kind):
        first = values.offset * kind.list_size
        starts = first + kind.list_size * np.arange(len(values))
        return _slices(values.values, starts, np.full(len(values), kind.list_size), max_bytes)
    if _is_list(kind):
        offsets = np.asarray(values.offsets)
        return _slices(values.values, offsets[:-1], np.diff(offsets), max_bytes)
    if kind in _VIEWS:
        return _view_lengths(values) + 1
    if kind in _TEXT:
        return np.asarray(pc.fill_null(pc.binary_length(values), 0)).astype(np.int64) + 1
    return np.full(len(values), _width(kind), np.int64)


def _view_lengths(values: pa.Array) -> Sizes:
    """Return the lengths of views of text, of which several may see the same bytes: a view begins with its length."""
    views = np.frombuffer(values.buffers()[1], np.int32)[::4][values.offset : values.offset + len(values)]
    return np.where(np.asarray(values.is_valid()), views.astype(np.int64), 0)


def _width(kind: pa.DataType) -> int:
    """Return the bytes of a value of any other type; nothing else is longer than 32."""
    if pa.types.is_null(kind):
        return 1
    try:
        return max(1, int(kind.bit_width) // 8)
    except ValueError:
        return 32


def _taken(sizes: Sizes, indices: pa.Array) -> Sizes:
    """Return the sizes of the values that indices refer to; a null has none."""
    if not len(sizes):
        return np.zeros(len(indices), np.int64)
    return np.where(np.asarray(indices.is_valid()), sizes[np.asarray(pc.fill_null(indices, 0))], 0)


def _slices(values: pa.Array, starts: Array, lengths: Array, max_bytes: int) -> Sizes:
    """Return the sizes of lists, each with some neighboring values; list views may overlap."""
    ends = np.concatenate([[0], np.cumsum(_sizes(values, max_bytes))])
    first, last = starts.astype(np.int64), starts.astype(np.int64) + lengths.astype(np.int64)
    return np.asarray(ends[last] - ends[first] + 1)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_list_view(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list_view(kind) or pa.types.is_large_list_view(kind))


def _without_runs(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with a value for each row in place of runs."""
    columns = [
        pc.run_end_decode(column) if pa.types.is_run_end_encoded(column.type) else column for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)


def _refuse_compressed(body: bytes) -> None:
    for message in pa.ipc.MessageReader.open_stream(body):
        data = message.metadata.to_pybytes()
        root = struct.unpack_from("<I", data, 0)[0]
        kind_at, header = _field(data, root, _HEADER_KIND), _table(data, root, _HEADER)
        kind = data[kind_at] if kind_at else 0
        if kind == _DICTIONARY_BATCH and header:
            header = _table(data, header, _DATA)
        if kind in (_RECORD_BATCH, _DICTIONARY_BATCH) and header and _field(data, header, _COMPRESSION):
            raise BadStream("the stream is compressed; send it without compression, the default of Arrow's writers")


def _field(data: bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffers table is; 0 if it is not set."""
    vtable = table - struct.unpack_from("<i", data, table)[0]
    size = struct.unpack_from("<H", data, vtable)[0]
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", data, vtable + at)[0] if at < size else 0
    return table + int(offset) if offset else 0


def _table(data: bytes, table: int, number: int) -> int:
    """Where the table is that a field refers to; 0 if it is not set."""
    at = _field(data, table, number)
    return at + int(struct.unpack_from("<I", data, at)[0]) if at else 0
