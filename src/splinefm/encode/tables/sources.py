"""The data of a command: files, folders and patterns, or CSV on the standard input."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from splinefm.encode.schema import Schema
from splinefm.encode.tables.delimited import from_csv_stream
from splinefm.encode.tables.names import missing_column_message, quoted
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.table import Table

STANDARD = "-"
"""The name of the standard input and output."""


def open_data(data: str, types: Mapping[str, pa.DataType] | None = None, sep: str | None = None) -> Table:
    """Open the table that an argument of the command line names.

    Parameters
    ----------
    data : str
        A path, a folder, a pattern, or "-" for CSV on the standard input, which can be read once.
    types : mapping of str to pyarrow.DataType, optional
        The types to read the columns of text files with. If given, other columns of the standard input are text.
    sep : str, optional
        The character between the columns of text; by default it is detected.
    """
    if data != STANDARD:
        return open_table(data, types=types, sep=sep)
    return from_csv_stream(sys.stdin.buffer, "CSV from the standard input", types, sep)


def require_columns(table: Table, names: Sequence[str]) -> None:
    """Raise where a table lacks one of the columns."""
    for name in names:
        if name not in table.names:
            raise ValueError(missing_column_message(name, table.names))


def without(schema: Schema, ignored: Sequence[str], target: str | None = None) -> Schema:
    """The schema without some columns, which must be there."""
    if target is not None and target in ignored:
        raise ValueError(f"--ignore {target}: this is the target, which is no field in any case; do not ignore it")
    known = list(dict.fromkeys([*schema.columns, *schema.names, *schema.reasons]))
    for name in ignored:
        if name not in known:
            raise ValueError(missing_column_message(name, known))
    if all(item.name in ignored or {*item.columns} & {*ignored} for item in schema.resolved):
        raise ValueError(f"no column is left: all of {quoted(schema.names)} are ignored")
    return schema.without(*ignored)


def refuse_overwriting(out: str | Path, *inputs: str | Path) -> None:
    """Raise where the output would replace an input."""
    for path in inputs:
        if Path(path).is_file() and Path(out).exists() and Path(out).samefile(path):
            raise ValueError(f"--out {str(out)!r} would replace the input {str(path)!r}; choose another name")
