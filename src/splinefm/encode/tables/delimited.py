"""CSV, TSV and other text with a row per line, from files or a stream, read in batches."""

from __future__ import annotations

import io
import re
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import BinaryIO, NamedTuple

import pyarrow as pa

from splinefm.encode.tables.columns import is_text
from splinefm.encode.tables.names import check_names, quoted
from splinefm.encode.tables.table import READ_ONCE, Piece, Table, make_table

# Types of the columns of text files: as the caller asks, or as the beginnings of the files suggest.


def ordered_types(types: Mapping[str, pa.DataType]) -> dict[str, pa.DataType]:
    return {name: kind for name, kind in types.items() if not _accepts_text(kind)}


def _accepts_text(kind: pa.DataType) -> bool:
    # A caller that asks for numbers also takes text, and names the value that is not a number.
    return bool(pa.types.is_float64(kind))


def column_type(found: Sequence[pa.DataType], wanted: pa.DataType | None) -> pa.DataType:
    """The type to read a column with, from what the beginnings of the files look like."""
    if wanted is not None and not _accepts_text(wanted):
        return wanted
    kinds = {kind for kind in found if not pa.types.is_null(kind)}
    are_numbers = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in kinds)
    if wanted is not None:
        return wanted if are_numbers else pa.large_string()
    if len(kinds) == 1:
        return kinds.pop()
    if kinds and are_numbers:
        return pa.float64()
    if kinds and all(pa.types.is_date(kind) or pa.types.is_timestamp(kind) for kind in kinds):
        return _time_type(kinds)
    # Nothing has been seen of a column that is empty in the beginning: text takes whatever comes.
    return pa.large_string()


def _time_type(kinds: Set[pa.DataType]) -> pa.DataType:
    """A type for dates and times; times with and without a zone cannot be compared and stay text."""
    times = [kind for kind in kinds if pa.types.is_timestamp(kind)]
    if len({kind.tz for kind in times}) > 1 or (times[0].tz and len(times) < len(kinds)):
        return pa.large_string()
    return max(times, key=lambda kind: ["s", "ms", "us", "ns"].index(kind.unit))


# The text of CSV files: the separator, and the line of a row, which Arrow does not report.

_MARK = b"\xef\xbb\xbf"  # that some programs put at the beginning of UTF-8
_SEPARATORS = ",\t;|"
# The rest of a quoted value; in it a quote is written twice.
_IN_QUOTES = re.compile(r'[^"]*(?:""[^"]*)*')
_LOOK_AT = 200  # records


class Record(NamedTuple):
    """A row of a file as it stands there, with the number of its first line."""

    line: int
    text: str
    """With a character per byte: Latin-1 decodes any file, and separators, quotes and line ends look the same."""
    is_open: bool
    """Whether the text ends within quotes."""


_NOTHING = Record(1, "", False)


def read_records(stream: BinaryIO, separator: str, longest: int) -> Iterator[Record]:
    """The records of a file, the header first; empty lines are left out, as by Arrow.

    A record longer than `longest` bytes is cut there and is the last one.

    Examples
    --------
    >>> text = io.BytesIO(b'a,b\\n"one\\ntwo",1\\n\\nthree,2\\n')
    >>> [record.line for record in read_records(text, ",", 1000)]
    [1, 2, 5]
    """
    lines = io.TextIOWrapper(stream, "latin-1", newline="")
    begin, record, is_open = 1, "", False
    number = 0
    while line := lines.readline(longest + 1):
        number += 1
        line = line.removeprefix(_MARK.decode("latin-1")) if number == 1 else line
        if not record and not line.strip("\r\n"):
            continue
        begin, record = begin if record else number, record + line
        is_open = _ends_in_quotes(line, separator, is_open)
        if len(record) > longest:
            break
        if not is_open:
            yield Record(begin, record.rstrip("\r\n"), False)
            record = ""
    if record:
        yield Record(begin, record, is_open)


def cut(record: str, separator: str) -> list[str]:
    """The cells of a record, quoted ones without their quotes.

    Examples
    --------
    >>> cut('"a;b";3', ";")
    ['a;b', '3']
    """
    if '"' not in record:
        return record.split(separator)
    cells, at = [], 0
    while at <= len(record):
        end, text = at, ""
        if record.startswith('"', at):
            end = _end_of_quotes(record, at + 1)
            text = record[at + 1 : end].replace('""', '"')
            end += 1
        after = record.find(separator, end)
        after = len(record) if after < 0 else after
        cells.append(text + record[end:after])
        at = after + 1
    return cells


def find_separator(head: bytes, whole: bool) -> str:
    """What separates the columns of a file: a comma, tab, semicolon or bar.

    It is in the header, and the rows have as many of it as the header, outside quotes; where that is true of several,
    the one that makes most columns. A comma where none is in the header, as in a file of one column.

    Parameters
    ----------
    head : bytes
        The beginning of the file.
    whole : bool
        Whether that is all of it; otherwise its last record may be cut.

    Examples
    --------
    >>> find_separator(b"price;city\\n3,50;Rome\\n4,25;Oslo\\n", True)
    ';'
    """
    best, most = ",", (0.0, 1)
    for separator in _SEPARATORS:
        records = read_records(io.BytesIO(head), separator, len(head))
        n = len(cut(next(records, _NOTHING).text, separator))
        if n < 2:
            continue
        counts = [len(cut(record.text, separator)) for record in islice(records, _LOOK_AT)]
        rows = counts if whole or len(counts) < 2 else counts[:-1]
        alike = sum(count == n for count in rows) / len(rows) if rows else 1.0
        if (alike, n) > most:
            best, most = separator, (alike, n)
    return best


def find_value(records: Iterable[Record], separator: str, column: int, value: str) -> Record | None:
    """The first record with a value in a column, which is counted from 0."""
    wanted = value.encode().decode("latin-1")
    for record in records:
        if wanted in record.text and wanted in cut(record.text, separator)[column : column + 1]:
            return record
    return None


def find_ragged(records: Iterable[Record], separator: str) -> tuple[Record, int, int] | None:
    """The first record with another number of cells than the header, and both numbers."""
    wanted = 0
    for record in records:
        n = len(cut(record.text, separator))
        if wanted and n != wanted:
            return record, n, wanted
        wanted = n
    return None


def find_longer(records: Iterable[Record], length: int) -> Record | None:
    """The first record of more than `length` bytes."""
    return next((record for record in records if len(record.text) > length), None)


def _ends_in_quotes(line: str, separator: str, inside: bool) -> bool:
    """Whether a quoted value goes on in the next line; `inside`: whether one goes on in this."""
    if '"' not in line:
        return inside
    at = 0
    while True:
        if inside or line.startswith('"', at):
            at = _end_of_quotes(line, at + (not inside)) + 1
            if at > len(line):
                return True
        inside = False
        at = line.find(separator, at) + 1
        if at == 0:
            return False


def _end_of_quotes(text: str, at: int) -> int:
    """The index of the quote that ends a value; the length of the text where there is none."""
    match = _IN_QUOTES.match(text, at)
    return match.end() if match else at  # the pattern matches the empty text, too


# Streams that Arrow reads in threads of its own, and that it must not touch once Python ends.
#
# Python stops a thread that asks for its lock while it ends, which Arrow answers by aborting the process.

# A stalled pipe does not hold up the end of a command for longer.
_SECONDS = 5.0


def in_memory(data: bytes) -> pa.NativeFile:
    """A copy of bytes in Arrow's own memory, which needs no lock of Python to be read and released.

    Examples
    --------
    >>> in_memory(b"a,b").read()
    b'a,b'
    """
    sink = pa.BufferOutputStream()
    sink.write(data)
    return pa.BufferReader(sink.getvalue())


@contextmanager
def released(stream: list[BinaryIO]) -> Iterator[None]:
    """At the end, wait until the stream in the list, which is taken out to be read, is used nowhere.

    Arrow reads ahead, and its thread may hold the stream for a moment longer than the reader is open.
    """
    gone: SimpleQueue[object] = SimpleQueue()
    # A function in C: in one of Python, the thread could be interrupted after the message and still need the lock.
    watch = weakref.ref(stream[0], gone.put)
    try:
        yield
    finally:
        if not sys.is_finalizing():  # then the thread can no longer let go
            with suppress(Empty):
                gone.get(timeout=_SECONDS)
        del watch


class Continued(io.RawIOBase):
    """A stream whose first bytes have been read already.

    Parameters
    ----------
    head : bytes
        The first bytes.
    rest : binary file
        Where the others come from.

    Examples
    --------
    >>> io.BufferedReader(Continued(b"ab", io.BytesIO(b"cd"))).read()
    b'abcd'
    """

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self.head, self.rest = memoryview(head), rest

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # what BufferedReader hands in
        """The next bytes."""
        data = self.head[: len(buffer)] or self.rest.read(len(buffer))
        self.head = self.head[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


# The spellings that pandas.read_csv reads as missing by default.
_NULLS = "#N/A #NA -1.#IND -1.#QNAN -NaN -nan 1.#IND 1.#QNAN <NA> N/A NA NULL NaN None n/a nan null"
_NULL_SPELLINGS = ["", "#N/A N/A", *_NULLS.split()]

# Arrow infers the types of a CSV file from its first block and holds later blocks to them. Its default block
# of 1 MB may show only the integers of a column that has fractions further down; 8 MB is cheap (50 ms) and
# covers most files whole. Batches already handed out cannot be widened: a misfit past that is an error.
BLOCK = 8 << 20
# Several files are open at once for shuffled reading. Their types are known by then, so that smaller blocks suffice.
SMALL_BLOCK = 2 << 20
# Bytes that are read to find the separator.
_HEAD = 1 << 16
_MAX_SHOWN = 80


@dataclass(frozen=True)
class _Text:
    """Where text comes from."""

    name: str
    """In messages."""
    separator: str
    again: Callable[[], BinaryIO]
    """The text from its beginning, for a second look; of a stream only the beginning."""
    path: Path | None = None

    def records(self) -> Iterator[Record]:
        """The records of the text."""
        with self.again() as stream:
            yield from read_records(stream, self.separator, 2 * BLOCK)

    def location(self) -> str:
        """The file, for Arrow."""
        return str(self.path)

    def explaining(self) -> AbstractContextManager[None]:
        """Replace the errors of Arrow by errors that name the text, the line and a fix."""
        return naming(self.name, partial(_explain, self))


def from_csv(paths: Sequence[Path], types: Mapping[str, pa.DataType], sep: str | None) -> Table:
    """The table of one or more text files with the same columns."""
    texts = [_find_text(path, sep) for path in paths]
    schemas = [_read_schema(text, ordered_types(types)) for text in texts]
    check_columns([text.name for text in texts], schemas)
    return _table(texts, schemas, types)


def _find_text(path: Path, sep: str | None) -> _Text:
    def again() -> BinaryIO:
        stream: BinaryIO = pa.input_stream(str(path), compression="detect", buffer_size=1 << 16)
        return stream

    name = repr(str(path))
    with naming(name), again() as stream:
        head = stream.read(_HEAD)
    is_tsv = ".tsv" in [suffix.lower() for suffix in path.suffixes[-2:]]
    return _Text(name, sep or ("\t" if is_tsv else _separator(name, head)), again, path)


def _separator(name: str, head: bytes) -> str:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ValueError(f"cannot read {name}: it is UTF-16; convert the file to UTF-8")
    return find_separator(head, len(head) < _HEAD)


def _read_schema(text: _Text, orders: Mapping[str, pa.DataType]) -> pa.Schema:
    """The columns of a file, with the types that its beginning suggests."""
    assert text.path is not None
    with text.explaining(), _open(text, text.location, orders) as reader:
        _check_utf8(reader.schema)
        if text.path.stat().st_size < BLOCK:
            _check_closed(text, next(reader, None))
        return _without_repeated_blanks(reader.schema)


def _without_repeated_blanks(schema: pa.Schema) -> pa.Schema:
    """Columns without a name are not columns if there are several, as where a spreadsheet ends all lines with ;;;."""
    return pa.schema([column for column in schema if column.name]) if schema.names.count("") > 1 else schema


def _table(texts: Sequence[_Text], schemas: Sequence[pa.Schema], types: Mapping[str, pa.DataType]) -> Table:
    found = {name: [schema.field(name).type for schema in schemas] for name in schemas[0].names}
    known = {name: column_type(kinds, types.get(name)) for name, kinds in found.items()}
    checked: set[str] = set()

    def read_file(text: _Text, small: bool, names: list[str]) -> Iterator[pa.RecordBatch]:
        last = None
        with text.explaining():
            for batch in _batches(text, known, names, small):
                yield batch
                last = batch
            if text.name not in checked:
                _check_closed(text, last)
                checked.add(text.name)

    def read(names: list[str]) -> Iterator[pa.RecordBatch]:
        for text in texts:
            yield from read_file(text, False, names)

    pieces = [Piece(partial(read_file, text, True)) for text in texts]
    # What the user asked for when opening the table takes precedence over any reader.
    return make_table(
        pa.schema(known),
        None,
        read,
        pieces=lambda: pieces,
        retype=lambda more: _table(texts, schemas, {**more, **types}),
    )


def _batches(
    text: _Text, types: Mapping[str, pa.DataType], names: Sequence[str], small: bool
) -> Iterator[pa.RecordBatch]:
    done = 0
    if small:
        try:
            with _open(text, text.location, types, names, SMALL_BLOCK) as reader:
                for batch in reader:
                    yield batch
                    done += batch.num_rows
            return
        except pa.ArrowInvalid as error:
            if not _is_too_long(error):
                raise
    # All at once, or what is left after a row that is too long for a small block.
    with _open(text, text.location, types, names) as reader:
        for batch in reader:
            yield batch.slice(min(done, batch.num_rows))
            done -= min(done, batch.num_rows)


def _open(
    text: _Text,
    source: Callable[[], str | pa.NativeFile | BinaryIO],
    types: Mapping[str, pa.DataType],
    names: Sequence[str] = (),
    block: int | None = None,
) -> pa.RecordBatchReader:
    """Read the text; `source` is called for it here, so that no variable keeps a stream that is to be released."""
    from pyarrow import csv

    nulls = {"null_values": _NULL_SPELLINGS, "strings_can_be_null": True}
    try:
        return csv.open_csv(
            source(),
            read_options=csv.ReadOptions(block_size=block or BLOCK),
            parse_options=csv.ParseOptions(delimiter=text.separator, newlines_in_values=True),
            convert_options=csv.ConvertOptions(column_types=types, include_columns=names, **nulls),
        )
    except pa.ArrowInvalid as error:
        if "Empty CSV" not in str(error):
            raise
        return _read_header_only(text, types, names)


def _read_header_only(text: _Text, types: Mapping[str, pa.DataType], names: Sequence[str]) -> pa.RecordBatchReader:
    """No rows, of a text that is a header without an end of line, which Arrow takes for nothing."""
    header = next(text.records(), None)
    if header is None:
        raise pa.ArrowInvalid("it is empty; the first line must name the columns")
    found = [_decoded(cell) for cell in cut(header.text, text.separator)]
    schema = pa.schema([(name, types.get(name, pa.null())) for name in names or found])
    return pa.RecordBatchReader.from_batches(schema, [])


# Columns


def check_columns(files: Sequence[str], schemas: Sequence[pa.Schema]) -> None:
    """Raise where files differ in their columns or have one twice."""
    for file, schema in zip(files, schemas, strict=True):
        check_names(schema.names)
        differing = sorted(set(schema.names) ^ set(schemas[0].names))
        if differing:
            raise ValueError(f"files must have the same columns; {files[0]}, {file} differ in {quoted(differing)}")


# Streams


def from_csv_stream(stream: BinaryIO, name: str, types: Mapping[str, pa.DataType] | None, sep: str | None) -> Table:
    """The table of a text that can be read once; if types are given, columns that they do not name are text.

    Parameters
    ----------
    stream : binary file
        The text.
    name : str
        Of the stream, in messages.
    types : mapping of str to pyarrow.DataType, optional
        As for `open_table`.
    sep : str, optional
        What separates the columns; by default as the beginning of the text suggests.
    """
    head = stream.read(BLOCK)
    whole = len(head) < BLOCK
    # The last line may be cut, unless the text ends there.
    lines = head if whole else head[: head.rfind(b"\n") + 1]
    text = _Text(name, sep or _separator(name, head[:_HEAD]), lambda: io.BytesIO(lines))
    # One byte less than there is: Arrow does not read the last row, which may be cut.
    first = len(head) - (not whole)
    with text.explaining(), _open(text, partial(in_memory, head), ordered_types(types or {}), (), first) as reader:
        found = _without_repeated_blanks(reader.schema)
        if whole:
            _check_closed(text, next(reader, None))
    rest: list[BinaryIO] = [io.BufferedReader(Continued(head, stream))]
    return _stream_table(text, found, types, rest)


def _stream_table(
    text: _Text, found: pa.Schema, types: Mapping[str, pa.DataType] | None, rest: list[BinaryIO]
) -> Table:
    """The table of the stream in `rest`, which is taken out of the list to be read."""
    others = None if types is None else pa.large_string()
    check_names(found.names)
    known = {column.name: column_type([column.type], (types or {}).get(column.name, others)) for column in found}

    def read(names: list[str]) -> Iterator[pa.RecordBatch]:
        if not rest:
            raise ValueError(READ_ONCE)
        with text.explaining(), released(rest):
            yield from _open(text, rest.pop, known, names)

    return make_table(
        pa.schema(known),
        None,
        read,
        retype=lambda more: _stream_table(text, found, {**more, **(types or {})}, rest),
    )


# Errors


@contextmanager
def naming(name: str, explain: Callable[[Exception], str] = str) -> Iterator[None]:
    """Replace the errors of Arrow by errors that name the file."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {name}: {explain(error)}") from error


def _explain(text: _Text, error: Exception) -> str:
    problem = str(error)
    # Arrow names the row where it reads with one thread.
    where = r"In CSV column #(\d+): (?:Row #\d+: )?"
    misfit = re.match(where + r"CSV conversion error to ([^:]*): invalid value '(.*)'$", problem, re.DOTALL)
    if misfit:
        return _misfit(text, int(misfit[1]), misfit[2], misfit[3])
    if "Expected" in problem and (found := find_ragged(text.records(), text.separator)):
        return _ragged(text, *found)
    if _is_too_long(error):
        return _too_long(find_longer(text.records(), BLOCK))
    if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in problem:
        column = re.match(r"In CSV column #(\d+): ", problem)
        where = f"column {_column_name(text, int(column[1]))!r} is not UTF-8" if column else problem
        return f"{where}; convert the file to UTF-8"
    return problem


def _misfit(text: _Text, column: int, kind: str, value: str) -> str:
    name = _column_name(text, column)
    found = find_value(text.records(), text.separator, column, value)
    if found is not None and found.is_open:
        return _not_closed(found)
    where = "" if found is None else f" in line {found.line}"
    return (
        f"column {name!r} is read as {kind} but has {_shown(value)}{where}; correct the value, or read the column as "
        f"text: with sf.open_table(path, types={{{name!r}: pyarrow.large_string()}}), or as a Categorical of a schema"
    )


def _column_name(text: _Text, column: int) -> str:
    header = next(text.records())
    return _decoded(cut(header.text, text.separator)[column])


def _ragged(text: _Text, record: Record, n: int, wanted: int) -> str:
    found, shown = "1 column" if n == 1 else f"{n} columns", _shown(_decoded(record.text))
    return (
        f"line {record.line} has {found} instead of {wanted}, separated by {text.separator!r}: {shown}; put quotes "
        "around values with a separator, or name the separator: sep=';', on the command line --sep ';'"
    )


def _too_long(record: Record | None) -> str:
    where = "a row" if record is None else f"the row that begins in line {record.line}"
    cause = "quotes are opened there and not closed" if record and record.is_open else "a cell of it is very long"
    return f"{where} has more than {BLOCK >> 20} MB: {cause}; close the quotes, or shorten the cell or leave it out"


def _not_closed(record: Record) -> str:
    return f"quotes in the row that begins in line {record.line} are not closed; close them"


def _is_too_long(error: Exception) -> bool:
    return "straddl" in str(error)


def _check_utf8(schema: pa.Schema) -> None:
    # Arrow falls back to bytes for text that is not UTF-8, and decodes names only when they are asked for.
    for name, kind in zip(schema.names, schema.types, strict=True):
        if pa.types.is_binary(kind):
            raise pa.ArrowInvalid(f"column {name!r} is not UTF-8; convert the file to UTF-8")


def _check_closed(text: _Text, last: pa.RecordBatch | None) -> None:
    """Raise where quotes are not closed: Arrow takes all the rest of the text for a cell of the last row."""
    if last is None or not last.num_rows or not any(map(_has_break, last.columns)):
        return
    end = deque(text.records(), maxlen=1)[0]
    if end.is_open:
        raise pa.ArrowInvalid(_not_closed(end))


def _has_break(column: pa.Array) -> bool:
    value = column[-1].as_py() if is_text(column.type) else None
    return value is not None and bool(re.search(r"[\r\n]", value))


def _decoded(text: str) -> str:
    return text.encode("latin-1").decode(errors="replace")


def _shown(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}...")
