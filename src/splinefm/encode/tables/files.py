"""Parquet, CSV and TSV files as tables that are read in batches."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from splinefm._wording import for_reader
from splinefm.encode.tables.delimited import check_columns, from_csv, naming
from splinefm.encode.tables.names import quoted
from splinefm.encode.tables.open import unnamed_index
from splinefm.encode.tables.table import Piece, Table, make_table

if TYPE_CHECKING:
    import pyarrow.parquet

_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "tsv"}
_COMPRESSIONS = (".gz", ".bz2", ".zst")

_PARQUET_BUFFER, _PARQUET_SMALL_BUFFER = 1 << 20, 1 << 18
# Text that takes more bytes per value has a dictionary that is large beside its rows.
_CODED_BYTES = 6
# Row groups are read together until they have this many rows: each piece opens its file again.
_PIECE_ROWS = 65_536


class RowGroup(NamedTuple):
    """A row group of a Parquet file: its number there, its rows, and its size before compression."""

    path: Path
    number: int
    n_rows: int
    n_bytes: int


def open_files(
    sources: Sequence[str | os.PathLike[str]], types: Mapping[str, pa.DataType], sep: str | None = None
) -> Table:
    """The files behind paths, folders and globs as one table."""
    paths = [path for source in sources for path in _expand(source)]
    unknown = [str(path) for path in paths if _format(path) is None]
    if unknown:
        known = f"{', '.join(_FORMATS)} (text also with {', '.join(_COMPRESSIONS)})"
        raise ValueError(f"unknown file format: {quoted(unknown, 3)}; the name must end in {known}")
    by_format = {_format(path): path for path in paths}
    if len(by_format) > 1:
        raise ValueError(f"file formats must not be mixed, got {quoted(list(map(str, by_format.values())))}")
    return _from_parquet(paths) if "parquet" in by_format else from_csv(paths, types, sep)


def find_row_groups(sources: Sequence[str | os.PathLike[str]]) -> tuple[pa.Schema, list[RowGroup]]:
    """The columns of Parquet files behind paths, folders and globs, as a table has them, and all their row groups."""
    paths = [path for source in sources for path in _expand(source)]
    other = [str(path) for path in paths if _format(path) != "parquet"]
    if other:
        raise ValueError(f"not Parquet: {quoted(other, 3)}; several processes share row groups of Parquet files only")
    schemas, groups = [], []
    for path in paths:
        with naming(repr(str(path))), _open_parquet(path) as file:
            schemas.append(file.schema_arrow)
            groups += [_row_group(path, file.metadata, i) for i in range(file.metadata.num_row_groups)]
    schema = _common_schema(paths, schemas)
    return make_table(schema, None, lambda names: [], unnamed_index(schema)).schema, groups


def read_row_groups(groups: Sequence[RowGroup], names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups of one file, in batches; raise if the file is no longer what it was."""
    path = groups[0].path
    with naming(repr(str(path))), _open_parquet(path, _PARQUET_SMALL_BUFFER) as file:
        about = file.metadata
        same = all(g.number < about.num_row_groups and _row_group(path, about, g.number) == g for g in groups)
        if not same or not set(names) <= set(file.schema_arrow.names):
            raise ValueError(f"{str(path)!r} has changed since it was opened; start again")
        numbers = [group.number for group in groups]
        yield from file.iter_batches(16_384, row_groups=numbers, columns=list(names))


def _row_group(path: Path, about: pa.parquet.FileMetaData, number: int) -> RowGroup:
    group = about.row_group(number)
    return RowGroup(path, number, group.num_rows, group.total_byte_size)


def _expand(source: str | os.PathLike[str]) -> list[Path]:
    """The files that a path, a folder or a glob stands for."""
    path = Path(source)
    with suppress(RuntimeError):  # ~name of a user who does not exist
        path = path.expanduser()
    if path.is_dir():
        return _folder_files(path)
    if path.exists():
        return [path]
    if re.search(r"[*?\[]", str(path)):
        return _glob_files(path)
    elsewhere = for_reader("; data elsewhere: pass a pyarrow dataset", "")
    raise FileNotFoundError(f"no file or folder {os.fspath(source)!r}{elsewhere}")


def _folder_files(folder: Path) -> list[Path]:
    files = [path for path in _visible_files(folder, "*") if _format(path)]
    if not files:
        raise ValueError(
            f"no data files ({', '.join(_FORMATS)}) in folder {str(folder)!r}; for files in folders below it "
            + for_reader("pass", "give")
            + " a glob such as 'folder/**/*.parquet'"
            + for_reader(" or a pyarrow dataset", "")
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
    schemas, pieces, n_rows, coded = [], [], 0, {}
    for path in paths:
        with naming(repr(str(path))), _open_parquet(path) as file:
            schemas.append(file.schema_arrow)
            n_rows += file.metadata.num_rows
            coded[path] = _coded_columns(file.metadata)
            pieces += _parquet_pieces(path, file.metadata, coded[path])
    schema = _common_schema(paths, schemas)

    def read(names: list[str]) -> Iterator[pa.RecordBatch]:
        for path in paths:
            with naming(repr(str(path))), _open_parquet(path, coded=coded[path]) as file:
                yield from file.iter_batches(65_536, columns=names)

    return make_table(schema, n_rows, read, unnamed_index(schema), lambda: pieces)


def _parquet_pieces(path: Path, metadata: pa.parquet.FileMetaData, coded: list[str]) -> list[Piece]:
    """Row groups of a file, small ones together."""
    pieces: list[Piece] = []
    groups, n_rows = [], 0
    for group in range(metadata.num_row_groups):
        groups.append(group)
        n_rows += metadata.row_group(group).num_rows
        if n_rows >= _PIECE_ROWS or group == metadata.num_row_groups - 1:
            pieces.append(Piece(partial(_read_groups, path, coded, groups), n_rows))
            groups, n_rows = [], 0
    return pieces


def _read_groups(path: Path, coded: list[str], groups: list[int], names: list[str]) -> Iterator[pa.RecordBatch]:
    with naming(repr(str(path))), _open_parquet(path, _PARQUET_SMALL_BUFFER, coded) as file:
        yield from file.iter_batches(16_384, row_groups=groups, columns=names)


def _open_parquet(
    path: Path, buffer_size: int = _PARQUET_BUFFER, coded: list[str] | None = None
) -> pa.parquet.ParquetFile:
    from pyarrow.parquet import ParquetFile

    # Buffered reads keep memory at a batch; pre-buffering would hold whole row groups.
    return ParquetFile(path, pre_buffer=False, buffer_size=buffer_size, read_dictionary=coded)


def _coded_columns(about: pa.parquet.FileMetaData) -> list[str]:
    """Columns of text that are stored as codes of small dictionaries, and are read as such.

    Reading and encoding them then takes a quarter less time. With many values it would take longer: the dictionary is
    made anew for every row group.
    """
    found = []
    for i in range(about.num_columns):
        column = about.schema.column(i)
        if column.logical_type.type != "STRING" or column.path != column.name:  # a part of a list has a longer path
            continue
        chunks = [about.row_group(group).column(i) for group in range(about.num_row_groups)]
        n_bytes = sum(chunk.total_uncompressed_size for chunk in chunks)
        if all(chunk.has_dictionary_page for chunk in chunks) and n_bytes <= _CODED_BYTES * about.num_rows:
            found.append(column.name)
    return found


def _common_schema(paths: list[Path], schemas: list[pa.Schema]) -> pa.Schema:
    """The columns of files, each with a type that fits all of them, such as double for int64 and double."""
    check_columns([repr(str(path)) for path in paths], schemas)
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(f"files disagree on a column: {error}; write them with one type per column") from error
