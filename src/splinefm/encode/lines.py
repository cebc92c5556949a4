"""The records of a CSV file as text with their line numbers, which Arrow does not tell."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

# That some programs put at the beginning of UTF-8.
_MARK = b"\xef\xbb\xbf".decode("latin-1")
# The rest of a quoted value; in it a quote is written twice.
_IN_QUOTES = re.compile(r'[^"]*(?:""[^"]*)*')


class Record(NamedTuple):
    """A row of a file as it stands there, with the number of its first line."""

    line: int
    text: str
    """With a character per byte: Latin-1 decodes any file, and separators, quotes and line ends look the same."""


def read_records(path: Path, separator: str, longest: int) -> Iterator[Record]:
    """The records of a file, the header first; empty lines are left out, as by Arrow.

    A record longer than `longest` bytes is cut there and is the last one.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "x.csv"
    >>> _ = path.write_text('a,b\\n"one\\ntwo",1\\n\\nthree,2\\n')
    >>> [record.line for record in read_records(path, ",", 1000)]
    [1, 2, 5]
    """
    with pa.input_stream(str(path), compression="detect", buffer_size=1 << 16) as stream:
        lines = io.TextIOWrapper(stream, "latin-1", newline="")
        begin, record, inside = 1, "", False
        number = 0
        while line := lines.readline(longest + 1):
            number += 1
            line = line.removeprefix(_MARK) if number == 1 else line
            if not record and not line.strip("\r\n"):
                continue
            begin, record = begin if record else number, record + line
            inside = _ends_in_quotes(line, separator, inside)
            if len(record) > longest:
                break
            if not inside:
                yield Record(begin, record.rstrip("\r\n"))
                record = ""
        if record:
            yield Record(begin, record)


def find_value(path: Path, separator: str, longest: int, column: int, value: str) -> int | None:
    """The line of the first record with a value in a column, counted from 0; None where it is not found."""
    wanted = value.encode().decode("latin-1")
    for line, text in read_records(path, separator, longest):
        if wanted in text:
            cells = cut(text, separator)
            if column < len(cells) and cells[column] == wanted:
                return line
    return None


def cut(record: str, separator: str) -> list[str]:
    """The cells of a record.

    Examples
    --------
    >>> cut('"one;two";3', ";")
    ['one;two', '3']
    """
    return next(csv.reader([record], delimiter=separator))


def _ends_in_quotes(line: str, separator: str, inside: bool) -> bool:
    """Whether a quoted value goes on in the next line; `inside`: whether one goes on in this."""
    if '"' not in line:
        return inside
    at = 0
    while True:
        if inside or line.startswith('"', at):
            closing = _IN_QUOTES.match(line, at + (not inside))
            assert closing is not None  # the pattern matches nothing, too
            if closing.end() == len(line):
                return True
            at = closing.end() + 1
        inside = False
        at = line.find(separator, at) + 1
        if at == 0:
            return False
