"""Parquet, CSV and TSV files as tables that are read in batches."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from splinefm.encode.lines import find_value
from splinefm.encode.table import Piece, Table, check_names, make_table, quoted, unnamed_index

if TYPE_CHECKING:
    import pyarrow.parquet

_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "tsv"}
_COMPRESSIONS = (".gz", ".bz2", ".zst")

# The spellings that pandas.read_csv reads as missing by default.
_NULLS = "#N/A #NA -1.#IND -1.#QNAN -NaN -nan 1.#IND 1.#QNAN <NA> N/A NA NULL NaN None n/a nan null"
_NULL_SPELLINGS = ["", "#N/A N/A", *_NULLS.split()]

# Arrow infers the types of a CSV file from its first block and holds later blocks to them. Its default block
# of 1 MB may show only the integers of a column that has fractions further down; 8 MB is cheap (50 ms) and
# covers most files whole. Batches already handed out cannot be widened: a misfit past that is an error.
_CSV_BLOCK = 8 << 20
# Several files are open at once for shuffled reading, with types that are known by then: smaller blocks will do.
_CSV_SMALL_BLOCK = 2 << 20
_PARQUET_BUFFER, _PARQUET_SMALL_BUFFER = 1 << 20, 1 << 18
# Row groups are read together until they have so many rows: each piece opens its file anew.
_PIECE_ROWS = 65_536


def open_files(sources: Sequence[str | os.PathLike[str]], types: Mapping[str, pa.DataType]) -> Table:
    """The files behind paths, folders and globs as one table."""
    paths = [path for source in sources for path in _expand(source)]
    unknown = [str(path) for path in paths if _format(path) is None]
    if unknown:
        known = f"{', '.join(_FORMATS)} (text also with {', '.join(_COMPRESSIONS)})"
        raise ValueError(f"unknown file format: {quoted(unknown, 3)}; the name must end in {known}")
    by_format = {_format(path): path for path in paths}
    if len(by_format) > 1:
        raise ValueError(f"file formats must not be mixed, got {quoted(list(map(str, by_format.values())))}")
    return _from_parquet(paths) if "parquet" in by_format else _from_csv(paths, types)


def _expand(source: str | os.PathLike[str]) -> list[Path]:
    """The files that a path, a folder or a glob stands for."""
    path = Path(source).expanduser()
    if path.is_dir():
        return _folder_files(path)
    if path.exists():
        return [path]
    if re.search(r"[*?\[]", str(path)):
        return _glob_files(path)
    raise FileNotFoundError(f"no file or folder {os.fspath(source)!r}; data elsewhere: pass a pyarrow dataset")


def _folder_files(folder: Path) -> list[Path]:
    files = [path for path in _visible_files(folder, "*") if _format(path)]
    if not files:
        raise ValueError(
            f"no data files ({', '.join(_FORMATS)}) in folder {str(folder)!r}; for files in folders below it "
            "pass a glob such as 'folder/**/*.parquet' or a pyarrow dataset"
        )
    return files


def _glob_files(pattern: Path) -> list[Path]:
    # A final ** matches folders only.
    below = pattern.relative_to(pattern.anchor) / ("*" if pattern.name == "**" else "")
    files = _visible_files(Path(pattern.anchor), str(below))
    if not files:
        raise FileNotFoundError(f"no file matches the pattern {str(pattern)!r}")
    return files


def _visible_files(folder: Path, pattern: str) -> list[Path]:
    # Spark and others leave markers such as _SUCCESS and .crc files next to the data.
    return sorted(p for p in folder.glob(pattern) if p.is_file() and not p.name.startswith((".", "_")))


def _format(path: Path) -> str | None:
    suffix = path.suffix.lower()
    if suffix in _COMPRESSIONS:
        kind = _FORMATS.get(Path(path.stem).suffix.lower())
        return None if kind == "parquet" else kind
    return _FORMATS.get(suffix)


def _from_parquet(paths: list[Path]) -> Table:
    schemas, pieces, n_rows = [], [], 0
    for path in paths:
        with _naming(path), _open_parquet(path) as file:
            schemas.append(file.schema_arrow)
            n_rows += file.metadata.num_rows
            pieces += _parquet_pieces(path, file.metadata)
    schema = _common_schema(paths, schemas)

    def read(names: list[str]) -> Iterator[pa.RecordBatch]:
        for path in paths:
            with _naming(path), _open_parquet(path) as file:
                yield from file.iter_batches(65_536, columns=names)

    return make_table(schema, n_rows, read, unnamed_index(schema), lambda: pieces)


def _parquet_pieces(path: Path, metadata: pa.parquet.FileMetaData) -> list[Piece]:
    """Row groups of a file, small ones together."""
    pieces: list[Piece] = []
    groups, n_rows = [], 0
    for group in range(metadata.num_row_groups):
        groups.append(group)
        n_rows += metadata.row_group(group).num_rows
        if n_rows >= _PIECE_ROWS or group == metadata.num_row_groups - 1:
            pieces.append(Piece(partial(_read_groups, path, groups), n_rows))
            groups, n_rows = [], 0
    return pieces


def _read_groups(path: Path, groups: list[int], names: list[str]) -> Iterator[pa.RecordBatch]:
    with _naming(path), _open_parquet(path, _PARQUET_SMALL_BUFFER) as file:
        yield from file.iter_batches(16_384, row_groups=groups, columns=names)


def _open_parquet(path: Path, buffer_size: int = _PARQUET_BUFFER) -> pa.parquet.ParquetFile:
    from pyarrow.parquet import ParquetFile

    # Buffered reads keep memory at a batch; pre-buffering would hold whole row groups.
    return ParquetFile(path, pre_buffer=False, buffer_size=buffer_size)


def _from_csv(paths: list[Path], types: Mapping[str, pa.DataType]) -> Table:
    orders = {name: kind for name, kind in types.items() if not _is_wish(kind)}
    schemas = []
    for path in paths:
        with _naming(path), _open_csv(path, orders) as reader:
            schemas.append(reader.schema)
            _check_utf8(path, reader.schema)
    _check_columns(paths, schemas)
    known = {
        name: _text_type([schema.field(name).type for schema in schemas], types.get(name)) for name in schemas[0].names
    }

    def read_file(path: Path, small: bool, names: list[str]) -> Iterator[pa.RecordBatch]:
        with _naming(path), _open_csv(path, known, names, small) as reader:
            yield from reader

    def read(names: list[str]) -> Iterator[pa.RecordBatch]:
        for path in paths:
            yield from read_file(path, False, names)

    pieces = [Piece(partial(read_file, path, True)) for path in paths]
    return make_table(pa.schema(known), None, read, pieces=lambda: pieces)


def _is_wish(kind: pa.DataType) -> bool:
    # Whoever asks for numbers can do with text, and says in the user's words which of it is no number.
    return bool(pa.types.is_float64(kind))


def _text_type(found: Sequence[pa.DataType], wanted: pa.DataType | None) -> pa.DataType:
    """The type to read a column of text files with, from what the beginnings of the files look like."""
    if wanted is not None and not _is_wish(wanted):
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
    """A type for dates and times; those of a zone and those of none cannot be compared and stay text."""
    times = [kind for kind in kinds if pa.types.is_timestamp(kind)]
    if len({kind.tz for kind in times}) > 1 or (times[0].tz and len(times) < len(kinds)):
        return pa.large_string()
    return max(times, key=lambda kind: ["s", "ms", "us", "ns"].index(kind.unit))


def _open_csv(
    path: Path, types: Mapping[str, pa.DataType], names: Sequence[str] = (), small: bool = False
) -> pa.RecordBatchReader:
    from pyarrow import csv

    nulls = {"null_values": _NULL_SPELLINGS, "strings_can_be_null": True}
    return csv.open_csv(
        str(path),
        read_options=csv.ReadOptions(block_size=_CSV_SMALL_BLOCK if small else _CSV_BLOCK),
        parse_options=csv.ParseOptions(delimiter=_separator(path), newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=types, include_columns=names, **nulls),
    )


def _separator(path: Path) -> str:
    return "\t" if _format(path) == "tsv" else ","


def _check_utf8(path: Path, schema: pa.Schema) -> None:
    # Arrow falls back to bytes for text that is not UTF-8, and decodes names only when they are asked for.
    for name, kind in zip(schema.names, schema.types, strict=True):
        if pa.types.is_binary(kind):
            raise ValueError(f"cannot read {str(path)!r}: column {name!r} is not UTF-8; convert the file")


def _common_schema(paths: list[Path], schemas: list[pa.Schema]) -> pa.Schema:
    """The columns of files, each with a type that fits all of them, such as double for int64 and double."""
    _check_columns(paths, schemas)
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(f"files disagree on a column: {error}; write them with one type per column") from error


def _check_columns(paths: list[Path], schemas: list[pa.Schema]) -> None:
    for path, schema in zip(paths, schemas, strict=True):
        check_names(schema.names)
        differing = sorted(set(schema.names) ^ set(schemas[0].names))
        if differing:
            files = quoted([str(paths[0]), str(path)])
            raise ValueError(f"files must have the same columns; {files} differ in {quoted(differing)}")


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Turn the errors of Arrow into errors that name the file and the column."""
    try:
        yield
    except (FileNotFoundError, PermissionError):
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read {str(path)!r}: {_detail(path, error)}") from error


def _detail(path: Path, error: Exception) -> str:
    text = str(error)
    column = re.match(r"In CSV column #(\d+): ", text)
    if column:
        text = _misfit(path, int(column[1]), text[column.end() :])
    if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in text:
        return f"{text}; convert the file to UTF-8"
    return text


def _misfit(path: Path, column: int, problem: str) -> str:
    """What to tell about a value that cannot be read with the type of its column."""
    with _open_csv(path, {}) as reader:
        name = reader.schema.names[column]
    found = re.match(r"CSV conversion error to ([^:]*): invalid value '(.*)'$", problem, re.DOTALL)
    if not found:
        return f"column {name!r}: {problem}"
    kind, value = found.groups()
    line = find_value(path, _separator(path), 2 * _CSV_BLOCK, column, value)
    where = "" if line is None else f" in line {line}"
    return (
        f"column {name!r} is read as {kind} but has {value!r}{where}; correct the value, or read the column as "
        f"text with sf.open_table(path, types={{{name!r}: pyarrow.large_string()}})"
    )
