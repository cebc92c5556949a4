"""Arrow IPC streams of clients, who may send anything."""

from __future__ import annotations

import struct

import pyarrow as pa

_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2  # kinds of messages
# Numbers of fields in the tables of Arrow's format, Message.fbs.
_HEADER_KIND, _HEADER, _DATA, _COMPRESSION = 1, 2, 1, 3


class BadStream(ValueError):
    """A body that is not an Arrow stream, or none that is taken."""


def read_batches(body: bytes, most: int) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """The schema and the batches of a stream, with every offset checked, as far as they have at most `most` rows.

    Compressed streams are refused: a few bytes could become more than there is memory for.

    Examples
    --------
    >>> sink = pa.BufferOutputStream()
    >>> with pa.ipc.new_stream(sink, pa.schema([("x", pa.int64())])) as writer:
    ...     writer.write(pa.record_batch({"x": [1, 2]}))
    >>> [batch.num_rows for batch in read_batches(sink.getvalue().to_pybytes(), 10)[1]]
    [2]
    """
    try:
        _refuse_compressed(body)
        reader = pa.ipc.open_stream(body)
        batches, n = [], 0
        for batch in reader:
            batch.validate(full=True)
            n += batch.num_rows
            batches.append(batch)
            if n > most:
                break
        return reader.schema, batches
    except BadStream:
        raise
    except (pa.ArrowException, ValueError, OSError, MemoryError, struct.error, EOFError) as error:
        raise BadStream(f"the body is not a valid Arrow IPC stream: {error}") from None


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
