"""The data of a command: files, folders and patterns, or CSV on the standard input."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from splinefm.encode.files import _CSV_BLOCK, _NULL_SPELLINGS
from splinefm.encode.schema import Schema
from splinefm.encode.table import Table, check_names, missing_column_message, open_table, quoted

STANDARD = "-"
"""The name of the standard input and output."""
_BLANK = b"\xef\xbb\xbf \t\r\n"  # with the mark that some programs put at the beginning of UTF-8


def open_data(data: str, types: Mapping[str, pa.DataType] | None = None) -> Table:
    """The table behind an argument of the command line.

    Parameters
    ----------
    data : str
        A path, a folder, a pattern, or "-" for CSV on the standard input, which can be read once.
    types : mapping of str to pyarrow.DataType, optional
        The types to read the columns of text files with. If given, other columns of the standard input are text.
    """
    return open_table(_read_stream(sys.stdin.buffer, types) if data == STANDARD else data, types=types)


def require_columns(table: Table, names: Sequence[str]) -> None:
    """Raise where a table lacks one of the columns."""
    for name in names:
        if name not in table.names:
            raise ValueError(missing_column_message(name, table.names))


def without(schema: Schema, ignored: Sequence[str]) -> Schema:
    """The schema without some columns, which must be there."""
    known = [*schema.names, *(name for name in schema.reasons if name not in schema.names)]
    for name in ignored:
        if name not in known:
            raise ValueError(missing_column_message(name, known))
    fields = tuple(item for item in schema if item.name not in ignored)
    if not fields:
        raise ValueError(f"no column is left: all of {quoted(schema.names)} are ignored")
    return Schema(fields, {name: why for name, why in schema.reasons.items() if name not in ignored})


def refuse_overwriting(out: str | Path, *inputs: str | Path) -> None:
    """Raise where the output would replace an input."""
    for path in inputs:
        if Path(path).is_file() and Path(out).exists() and Path(out).samefile(path):
            raise ValueError(f"--out {str(out)!r} would replace the input {str(path)!r}; choose another name")


def _read_stream(stream: BinaryIO, types: Mapping[str, pa.DataType] | None) -> pa.RecordBatchReader:
    from pyarrow import csv

    header = _read_header(stream)
    with _naming([]):
        names = csv.read_csv(pa.py_buffer(header)).column_names
    check_names(names)
    known = None if types is None else {name: types.get(name, pa.large_string()) for name in names}
    with _naming(names):
        reader = csv.open_csv(
            io.BufferedReader(_Continued(header, stream)),
            read_options=csv.ReadOptions(block_size=_CSV_BLOCK),
            parse_options=csv.ParseOptions(newlines_in_values=True),
            convert_options=csv.ConvertOptions(
                column_types=known, null_values=_NULL_SPELLINGS, strings_can_be_null=True
            ),
        )
    return pa.RecordBatchReader.from_batches(reader.schema, _batches(reader, names))


def _batches(reader: pa.RecordBatchReader, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    with _naming(names):
        yield from reader


def _read_header(stream: BinaryIO) -> bytes:
    """The first line that is not empty; a quoted name may go over several."""
    header = b""
    while line := stream.readline():
        header += line
        if header.strip(_BLANK) and header.count(b'"') % 2 == 0:
            break
    return header


class _Continued(io.RawIOBase):
    """A stream whose first bytes have been read already."""

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self.head, self.rest = head, rest

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # what BufferedReader hands in
        """The next bytes."""
        data = self.head[: len(buffer)] or self.rest.read(len(buffer))
        self.head = self.head[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


@contextmanager
def _naming(names: Sequence[str]) -> Iterator[None]:
    """Turn the errors of Arrow into errors that name the standard input and the column."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError) as error:
        text = str(error)
        column = re.match(r"In CSV column #(\d+): ", text)
        if column:
            text = f"column {names[int(column[1])]!r}: {text[column.end() :]}"
        raise ValueError(f"cannot read CSV from the standard input: {text}") from error
