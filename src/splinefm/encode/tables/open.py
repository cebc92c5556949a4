"""Open anything tabular, in memory or in files, as a `Table`; the data of a command."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from splinefm.encode.schema import Schema
from splinefm.encode.tables.arrow import convert_column, refuse_types_of_polars
from splinefm.encode.tables.delimited import from_csv_stream
from splinefm.encode.tables.names import check_names, missing_column_message, quoted
from splinefm.encode.tables.table import READ_ONCE, Piece, Table, make_table

# Open anything tabular, in memory or in files, as a `Table`.

_ACCEPTED = (
    "a pandas or polars DataFrame, a pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a dict of "
    "arrays, a 2-D NumPy array, or a path, folder, glob or list of paths of Parquet or CSV files"
)
# Rows per piece of a table in memory, where any row can be had at once.
SMALL_PIECE = 2048


def open_table(source: object, *, types: Mapping[str, pa.DataType] | None = None, sep: str | None = None) -> Table:
    """Open anything tabular for reading in batches; an open table is returned as it is.

    Parameters
    ----------
    source : object
        A pandas or polars DataFrame or anything else with `__arrow_c_stream__`; a pyarrow Table, RecordBatch,
        RecordBatchReader (can be read once) or Dataset; a dict of arrays; a 2-D NumPy array (columns x0, x1,
        ...) or a structured one; the path of a Parquet, CSV or TSV file, a folder of such files, a glob, or a list of
        paths. Files of a folder or glob are read in sorted order; all files must have the same columns. NaN in NumPy
        arrays, lists and pandas becomes null; Arrow and polars have both and keep it. The index of a
        DataFrame is not a column.
    types : mapping of str to pyarrow.DataType, optional
        CSV only: the types to read columns with. Other columns have the type that the first 8 MB of each file
        suggest, text where files disagree; names that are not in the file are ignored. `pyarrow.float64()` is
        only a preference: a column whose first 8 MB are not all numbers is read as text. Functions that take an open
        table add the types that they need; those given here stay.
    sep : str, optional
        CSV only: the character between the columns. By default it is detected: the comma, tab, semicolon or bar that
        the header and the rows have the same number of; in TSV files the tab.

    Examples
    --------
    >>> import numpy as np
    >>> open_table(np.zeros((4, 2))).names
    ('x0', 'x1')
    """
    if isinstance(source, Table):
        return source.with_types(types) if types else source
    check_separator(sep)
    paths = [source] if isinstance(source, str | os.PathLike) else source
    if isinstance(paths, list | tuple) and paths and all(isinstance(path, str | os.PathLike) for path in paths):
        from splinefm.encode.tables.files import open_files

        return open_files(paths, types or {}, sep)
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return _from_arrow(source, unnamed_index(source.schema))
    if isinstance(source, pa.RecordBatchReader):
        return _from_reader(source)
    if isinstance(source, Mapping):
        return _from_dict(source)
    if isinstance(source, np.ndarray):
        return _from_numpy(source)
    if _is_dataset(source):
        return _from_dataset(source)
    return _from_stream(source)


def check_separator(sep: str | None) -> None:
    """Raise where it is not a character that can separate columns."""
    if sep is not None and (not isinstance(sep, str) or len(sep) != 1 or not sep.isascii() or sep in '"\r\n'):
        raise ValueError(f"sep must be one character, such as ',', ';', '|' or a tab, got {sep!r}")


def _index_columns(schema: pa.Schema) -> set[str]:
    """The columns that pandas made of the index of a DataFrame."""
    columns = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    return {name for name in columns if isinstance(name, str)}


def unnamed_index(schema: pa.Schema) -> set[str]:
    # In a file or an Arrow table, a named index is a column like any other: only pandas would hide it.
    return {name for name in _index_columns(schema) if name.startswith("__index_level_")}


def _from_arrow(table: pa.Table, index: Set[str]) -> Table:
    def pieces() -> list[Piece]:
        starts = range(0, table.num_rows, SMALL_PIECE)
        return [Piece(partial(_slice, table, at), min(SMALL_PIECE, table.num_rows - at)) for at in starts]

    def read(names: list[str]) -> list[pa.RecordBatch]:
        batches: list[pa.RecordBatch] = table.select(names).to_batches()
        return batches

    return make_table(table.schema, table.num_rows, read, index, pieces)


def _slice(table: pa.Table, at: int, names: list[str]) -> list[pa.RecordBatch]:
    batches: list[pa.RecordBatch] = table.select(names).slice(at, SMALL_PIECE).to_batches()
    return batches


def _from_reader(reader: pa.RecordBatchReader) -> Table:
    fresh = [True]

    def read(names: list[str]) -> Iterable[pa.RecordBatch]:
        if not fresh:
            raise ValueError(READ_ONCE)
        fresh.clear()
        return (batch.select(names) for batch in reader)

    return make_table(reader.schema, None, read, unnamed_index(reader.schema))


def _from_stream(source: object) -> Table:
    _refuse_unless_stream(source)
    if _comes_from("polars", source):
        refuse_types_of_polars(source)
    try:
        reader = _stream(source)
        # What has a length is held in memory; a stream that has none may be consumed by reading it.
        if hasattr(source, "__arrow_c_stream__") and not hasattr(source, "__len__"):
            return _from_reader(reader)
        table = reader.read_all()
    except (pa.ArrowException, TypeError, OverflowError, UnicodeError) as error:
        if _comes_from("pandas", source):  # column by column, to convert more or to name the one that fails
            frame: Any = source
            return _from_dict({str(name): frame.iloc[:, i] for i, name in enumerate(frame.columns)})
        detail = ": ".join(map(str, error.args[::-1]))
        kind = type(source).__name__
        raise ValueError(f"cannot convert the {kind} to Arrow: {detail}; give each column one type") from error
    return _from_arrow(table, _index_columns(table.schema))


def _comes_from(package: str, source: object) -> bool:
    return type(source).__module__.startswith(package)


def _stream(source: object) -> pa.RecordBatchReader:
    if not hasattr(source, "__arrow_c_stream__"):
        return pa.Table.from_batches([pa.record_batch(source)]).to_reader()
    if _comes_from("pandas", source):
        frame: Any = source
        check_names([str(name) for name in frame.columns])
    with warnings.catch_warnings():
        # Names of several types become strings, which is all that is needed here.
        warnings.filterwarnings("ignore", "The DataFrame has column names of mixed type")
        return pa.RecordBatchReader.from_stream(source)


def _refuse_unless_stream(source: object) -> None:
    kind = type(source).__name__
    if kind == "LazyFrame":
        raise TypeError("a polars LazyFrame is a plan and not a table; pass frame.collect()")
    if kind == "Series" or isinstance(source, list | tuple | pa.Array | pa.ChunkedArray):
        raise TypeError(f"a {kind} is not a table; pass a table, such as {{'name': values}}. Accepted: {_ACCEPTED}")
    if not (hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")):
        raise TypeError(f"cannot read a table from {kind}; pass {_ACCEPTED}")


def _from_dict(source: Mapping[object, object]) -> Table:
    names = [str(name) for name in source]
    check_names(names)
    arrays = [convert_column(name, values) for name, values in zip(names, source.values(), strict=True)]
    if len({len(array) for array in arrays}) > 1:
        lengths = ", ".join(f"{name!r}: {len(array)}" for name, array in zip(names, arrays, strict=True))
        raise ValueError(f"columns must have the same length, got {lengths}")
    return _from_arrow(pa.Table.from_arrays(arrays, names=names), set())


def _from_numpy(array: np.ndarray) -> Table:
    if array.dtype.names is not None and array.ndim == 1:
        return _from_dict({name: array[name] for name in array.dtype.names})
    if array.ndim != 2:
        raise ValueError(
            f"a NumPy table must have shape (rows, columns), got shape {array.shape}; "
            "reshape it, such as x.reshape(-1, 1) for one column"
        )
    return _from_dict({f"x{i}": array[:, i] for i in range(array.shape[1])})


def _is_dataset(source: object) -> bool:
    # A caller with a dataset has imported the module already; importing it here would be slow.
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(source, module.Dataset)


def _from_dataset(dataset: Any) -> Table:
    def pieces() -> list[Piece]:
        try:
            fragments = list(dataset.get_fragments())
        except ValueError:  # a filtered dataset does not list its fragments
            return [Piece(partial(_dataset_batches, dataset))]
        parts = [part for whole in fragments for part in _split(whole)]
        return [Piece(partial(_dataset_batches, part, schema=dataset.schema), n_rows) for part, n_rows in parts]

    return make_table(dataset.schema, None, partial(_dataset_batches, dataset), pieces=pieces)


def _split(fragment: Any) -> list[tuple[Any, int | None]]:
    """The row groups of a Parquet file and how many rows they have; other files are one part."""
    if not hasattr(fragment, "split_by_row_group"):
        return [(fragment, None)]
    return [(part, sum(group.num_rows for group in part.row_groups)) for part in fragment.split_by_row_group()]


def _dataset_batches(source: Any, names: list[str], **options: Any) -> Iterator[pa.RecordBatch]:
    """Batches of a dataset or a fragment of one."""
    from pyarrow.dataset import ParquetFileFormat, ParquetFragmentScanOptions

    # By default Arrow keeps whole files (pre_buffer) and, with threads, decodes far ahead of a slow consumer.
    limits = {"batch_size": 65_536, "batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}
    if isinstance(getattr(source, "format", None), ParquetFileFormat):
        scan = ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True, buffer_size=1 << 20)
        limits["fragment_scan_options"] = scan
    batches: Iterator[pa.RecordBatch] = source.to_batches(columns=names, **limits, **options)
    return batches


# The data of a command: files, folders and patterns, or CSV on the standard input.

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
        raise ValueError(f"--ignore {target}: this is the target, which is not a field in any case; do not ignore it")
    known = list(dict.fromkeys([*schema.columns, *schema.names, *schema.provenance]))
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
