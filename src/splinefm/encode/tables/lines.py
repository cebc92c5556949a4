"""The text of CSV files: the separator, and the line of a row, which Arrow does not report."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import BinaryIO, NamedTuple

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
    """The first record that has not as many cells as the header; how many it and the header have."""
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
