"""Anything tabular, in memory or in files, as Arrow record batches of an exact size."""

import difflib
import json
import os
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

_ACCEPTED = (
    "a pandas or polars DataFrame, a pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a dict of "
    "arrays, a 2-D NumPy array, or a path, folder, glob or list of paths of Parquet or CSV files"
)
_FORMATS = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "tsv"}
_COMPRESSIONS = (".gz", ".bz2", ".zst")
_TYPE_ADVICE = "declare the column in a schema or pass its type, such as types={'name': pyarrow.float64()}"

# The spellings that pandas.read_csv reads as missing by default.
_NULLS = "#N/A #NA -1.#IND -1.#QNAN -NaN -nan 1.#IND 1.#QNAN <NA> N/A NA NULL NaN None n/a nan null"
_NULL_SPELLINGS = ["", "#N/A N/A", *_NULLS.split()]

# Arrow infers the types of a CSV file from its first block and holds later blocks to them. Its default block
# of 1 MB may show only the integers of a column that has fractions further down; 8 MB is cheap (50 ms) and
# covers most files whole. Batches already handed out cannot be widened: a misfit past that is an error.
_CSV_BLOCK = 8 << 20

_Read = Callable[[list[str]], Iterable[pa.RecordBatch]]


@dataclass(frozen=True)
class Table:
    """A table whose columns are read in batches; made by `open_table`.

    Attributes
    ----------
    schema : pyarrow.Schema
        Names and types of the columns, without nullability and metadata.
    n_rows : int or None
        Number of rows, or None where it takes reading the data to know (CSV, readers, datasets).

    Examples
    --------
    >>> table = open_table({"recency": [1.0, 2.0, 3.0], "country": ["US", "FR", "US"]})
    >>> table.names, table.n_rows
    (('recency', 'country'), 3)
    >>> [batch.num_rows for batch in table.chunks(["recency"], rows=2)]
    [2, 1]
    """

    schema: pa.Schema
    n_rows: int | None
    _read: _Read = field(repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(self.schema.names)

    def chunks(self, columns: Sequence[str] | None = None, rows: int = 65_536) -> Iterator[pa.RecordBatch]:
        """Batches of exactly `rows` rows (the last may have fewer), however the source is chunked.

        Parameters
        ----------
        columns : sequence of str, optional
            The columns to read, in this order; by default all. Files are read for these columns only.
        rows : int
            Rows per batch.

        Examples
        --------
        >>> next(open_table({"a": [1, 2], "b": [3, 4]}).chunks(["b"])).to_pydict()
        {'b': [3, 4]}
        """
        if rows < 1:
            raise ValueError(f"rows must be at least 1, got {rows}")
        names = self._known(self.names if columns is None else columns)
        schema = pa.schema([self.schema.field(name) for name in names])
        return _rechunk(self._read(names), schema, rows)

    def _known(self, columns: Sequence[str]) -> list[str]:
        if isinstance(columns, str) or not columns:
            raise ValueError(f"columns must be a list of one or more column names, got {columns!r}")
        known = set(self.names)
        for name in columns:
            if name not in known:
                raise ValueError(missing_column_message(name, self.names))
        return list(dict.fromkeys(columns))


def open_table(source: object, *, types: Mapping[str, pa.DataType] | None = None) -> Table:
    """Open anything tabular for reading in batches.

    Parameters
    ----------
    source : object
        A pandas or polars DataFrame or anything else with `__arrow_c_stream__`; a pyarrow Table, RecordBatch,
        RecordBatchReader (can be read once) or Dataset; a dict of arrays; a 2-D NumPy array (columns x0, x1,
        ...); the path of a Parquet, CSV or TSV file, a folder of such files, a glob, or a list of paths.
        Files of a folder or glob are read in sorted order; all files must have the same columns. NaN in NumPy
        arrays, lists and pandas becomes null; Arrow and polars have both and keep it. The index of a
        DataFrame is not a column.
    types : mapping of str to pyarrow.DataType, optional
        CSV only: the types to read columns with. Other columns have the type that the first 8 MB of each file
        suggest; names that are not in the file are ignored.

    Examples
    --------
    >>> import numpy as np
    >>> open_table(np.zeros((4, 2))).names
    ('x0', 'x1')
    """
    if isinstance(source, str | os.PathLike):
        return _from_files(_expand(source), types or {})
    if isinstance(source, list | tuple) and source and all(isinstance(s, str | os.PathLike) for s in source):
        return _from_files([path for part in source for path in _expand(part)], types or {})
    if isinstance(source, pa.RecordBatch):
        source = pa.Table.from_batches([source])
    if isinstance(source, pa.Table):
        return _from_arrow(source, _unnamed_index(source.schema))
    if isinstance(source, pa.RecordBatchReader):
        return _from_reader(source)
    if isinstance(source, Mapping):
        return _from_dict(source)
    if isinstance(source, np.ndarray):
        return _from_numpy(source)
    if _is_dataset(source):
        return _table(source.schema, None, lambda names: _dataset_batches(source, names))  # type: ignore[attr-defined]
    return _from_stream(source)


def missing_column_message(name: str, names: Sequence[str]) -> str:
    """What to tell about a column that a table does not have: the nearest names and those that exist.

    Examples
    --------
    >>> missing_column_message("recencyy", ["recency", "country"])
    "no column 'recencyy' in the table; nearest: 'recency'. Columns: 'recency', 'country'"
    """
    nearest = difflib.get_close_matches(str(name), names, n=3)
    hint = f"; nearest: {_quoted(nearest)}" if nearest else ""
    return f"no column {name!r} in the table{hint}. Columns: {_quoted(names)}"


def _quoted(names: Sequence[str], most: int = 20) -> str:
    more = f", ... and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


# Batches


def _rechunk(batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: int) -> Iterator[pa.RecordBatch]:
    parts: list[list[pa.Array]] = []
    n = 0
    for batch in batches:
        start = 0
        while start < batch.num_rows:
            part = batch.slice(start, rows - n)
            parts.append(_arrays(part, schema))
            start, n = start + part.num_rows, n + part.num_rows
            if n == rows:
                yield _join(parts, schema)
                parts, n = [], 0
    if n:
        yield _join(parts, schema)


def _arrays(batch: pa.RecordBatch, schema: pa.Schema) -> list[pa.Array]:
    columns = [batch.column(name) for name in schema.names]
    return [c if c.type == t else c.cast(t) for c, t in zip(columns, schema.types, strict=True)]


def _join(parts: list[list[pa.Array]], schema: pa.Schema) -> pa.RecordBatch:
    # Joining copies, so a batch that was cut from one piece is handed on as it is.
    whole = parts[0] if len(parts) == 1 else [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
    return pa.RecordBatch.from_arrays(whole, schema=schema)


def _table(schema: pa.Schema, n_rows: int | None, read: _Read, index: Set[str] = frozenset()) -> Table:
    _check_names(schema.names)
    fields = [pa.field(f.name, _plain(f.type)) for f in schema if f.name not in index]
    if not fields:
        raise ValueError("the table has no columns")
    return Table(pa.schema(fields), n_rows, read)


def _plain(kind: pa.DataType) -> pa.DataType:
    # polars hands out string views, which many Arrow functions do not take.
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _plain(kind.value_type), kind.ordered)
    if pa.types.is_large_list(kind):
        return pa.large_list(_plain(kind.value_type))
    return kind


def _check_names(names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"duplicate column names: {_quoted(twice)}; rename or drop the repeated columns")


def _index_columns(schema: pa.Schema) -> set[str]:
    """The columns that pandas made of the index of a DataFrame."""
    columns = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    return {name for name in columns if isinstance(name, str)}


def _unnamed_index(schema: pa.Schema) -> set[str]:
    # In a file or an Arrow table, a named index is a column like any other: only pandas would hide it.
    return {name for name in _index_columns(schema) if name.startswith("__index_level_")}


# Sources in memory


def _from_arrow(table: pa.Table, index: Set[str]) -> Table:
    return _table(table.schema, table.num_rows, lambda names: table.select(names).to_batches(), index)


def _from_reader(reader: pa.RecordBatchReader) -> Table:
    fresh = [True]

    def read(names: list[str]) -> Iterable[pa.RecordBatch]:
        if not fresh:
            raise ValueError("a reader or stream can be read once; pass a table, a path or a dataset instead")
        fresh.clear()
        return (batch.select(names) for batch in reader)

    return _table(reader.schema, None, read, _unnamed_index(reader.schema))


def _from_stream(source: object) -> Table:
    _refuse_unless_stream(source)
    try:
        reader = _stream(source)
        # What has a length is held in memory; a stream that has none may be consumed by reading it.
        if hasattr(source, "__arrow_c_stream__") and not hasattr(source, "__len__"):
            return _from_reader(reader)
        table = reader.read_all()
    except (pa.ArrowException, TypeError) as error:
        detail = ": ".join(map(str, error.args[::-1]))
        kind = type(source).__name__
        raise ValueError(
            f"cannot convert the {kind} to Arrow: {detail}; give each column one type"
        ) from error
    return _from_arrow(table, _index_columns(table.schema))


def _stream(source: object) -> pa.RecordBatchReader:
    if not hasattr(source, "__arrow_c_stream__"):
        return pa.Table.from_batches([pa.record_batch(source)]).to_reader()
    if type(source).__module__.startswith("pandas"):
        _check_names([str(name) for name in source.columns])  # type: ignore[attr-defined]
    with warnings.catch_warnings():
        # Names of several types become strings, which is all that is needed here.
        warnings.filterwarnings("ignore", "The DataFrame has column names of mixed type")
        return pa.RecordBatchReader.from_stream(source)


def _refuse_unless_stream(source: object) -> None:
    kind = type(source).__name__
    if kind == "LazyFrame":
        raise TypeError("a polars LazyFrame is a plan and not a table; pass frame.collect()")
    if kind == "Series" or isinstance(source, list | tuple | pa.Array | pa.ChunkedArray):
        raise TypeError(
            f"a {kind} is not a table; pass a table, such as {{'name': values}}. Accepted: {_ACCEPTED}"
        )
    if not (hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__")):
        raise TypeError(f"cannot read a table from {kind}; pass {_ACCEPTED}")


def _from_dict(source: Mapping[object, object]) -> Table:
    names = [str(name) for name in source]
    _check_names(names)
    arrays = [_array(name, values) for name, values in zip(names, source.values(), strict=True)]
    if len({len(array) for array in arrays}) > 1:
        lengths = ", ".join(f"{name!r}: {len(array)}" for name, array in zip(names, arrays, strict=True))
        raise ValueError(f"columns must have the same length, got {lengths}")
    return _from_arrow(pa.Table.from_arrays(arrays, names=names), set())


def _from_numpy(array: np.ndarray) -> Table:
    if array.ndim != 2:
        raise ValueError(
            f"a NumPy table must have shape (rows, columns), got shape {array.shape}; "
            "reshape it, such as x.reshape(-1, 1) for one column"
        )
    return _from_dict({f"x{i}": array[:, i] for i in range(array.shape[1])})


def _array(name: str, values: object) -> pa.Array | pa.ChunkedArray:
    _check_one_dimensional(name, values)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    try:
        if hasattr(values, "__arrow_c_stream__"):
            return pa.chunked_array(values)
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(
            f"cannot convert column {name!r} to Arrow: {error}; give it values of one type"
        ) from error


def _check_one_dimensional(name: str, values: object) -> None:
    shape = getattr(values, "shape", (1,))
    if isinstance(values, str | bytes | Mapping | Set) or not hasattr(values, "__len__") or shape == ():
        kind = type(values).__name__
        raise ValueError(
            f"column {name!r} must be a list or an array, got {kind} {values!r}; wrap one value in a list"
        )
    if len(shape) != 1:
        raise ValueError(f"column {name!r} must have one dimension, got shape {shape}; split it into columns")


def _is_dataset(source: object) -> bool:
    # Whoever holds a dataset has imported the module, which is slow to import otherwise.
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(source, module.Dataset)


def _dataset_batches(dataset: "pa.dataset.Dataset", names: list[str]) -> Iterator[pa.RecordBatch]:
    from pyarrow.dataset import ParquetFileFormat, ParquetFragmentScanOptions

    # By default Arrow keeps whole files (pre_buffer) and, with threads, decodes far ahead of a slow consumer.
    limits = {"batch_size": 65_536, "batch_readahead": 1, "fragment_readahead": 1, "use_threads": False}
    if isinstance(getattr(dataset, "format", None), ParquetFileFormat):
        scan = ParquetFragmentScanOptions(pre_buffer=False, use_buffered_stream=True, buffer_size=1 << 20)
        limits["fragment_scan_options"] = scan
    return dataset.to_batches(columns=names, **limits)  # type: ignore[no-any-return]


# Sources in files


def _expand(source: str | os.PathLike[str]) -> list[Path]:
    """The files that a path, a folder or a glob stands for."""
    path = Path(source).expanduser()
    if path.is_dir():
        return _folder_files(path)
    if path.exists():
        return [path]
    if re.search(r"[*?\[]", str(path)):
        return _glob_files(path)
    raise FileNotFoundError(
        f"no file or folder {os.fspath(source)!r}; data elsewhere: pass a pyarrow dataset"
    )


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


def _from_files(paths: list[Path], types: Mapping[str, pa.DataType]) -> Table:
    unknown = [str(path) for path in paths if _format(path) is None]
    if unknown:
        known = f"{', '.join(_FORMATS)} (text also with {', '.join(_COMPRESSIONS)})"
        raise ValueError(f"unknown file format: {_quoted(unknown, 3)}; the name must end in {known}")
    by_format = {_format(path): path for path in paths}
    if len(by_format) > 1:
        raise ValueError(f"file formats must not be mixed, got {_quoted(list(map(str, by_format.values())))}")
    return _from_parquet(paths) if "parquet" in by_format else _from_csv(paths, types)


def _from_parquet(paths: list[Path]) -> Table:
    schemas, n_rows = [], 0
    for path in paths:
        with _naming(path), _open_parquet(path) as file:
            schemas.append(file.schema_arrow)
            n_rows += file.metadata.num_rows
    schema = _common_schema(paths, schemas)

    def read(names: list[str]) -> Iterator[pa.RecordBatch]:
        for path in paths:
            with _naming(path), _open_parquet(path) as file:
                yield from file.iter_batches(65_536, columns=names)

    return _table(schema, n_rows, read, _unnamed_index(schema))


def _open_parquet(path: Path) -> "pa.parquet.ParquetFile":
    from pyarrow.parquet import ParquetFile

    # Buffered reads keep memory at a batch; pre-buffering would hold whole row groups.
    return ParquetFile(path, pre_buffer=False, buffer_size=1 << 20)


def _from_csv(paths: list[Path], types: Mapping[str, pa.DataType]) -> Table:
    schemas = []
    for path in paths:
        with _naming(path), _open_csv(path, types) as reader:
            schemas.append(reader.schema)
            _check_utf8(path, reader.schema)
    schema = _common_schema(paths, schemas)
    known = {column.name: column.type for column in schema}

    def read(names: list[str]) -> Iterator[pa.RecordBatch]:
        for path in paths:
            with _naming(path), _open_csv(path, known, names) as reader:
                yield from reader

    return _table(schema, None, read)


def _open_csv(
    path: Path, types: Mapping[str, pa.DataType], names: Sequence[str] = ()
) -> pa.RecordBatchReader:
    from pyarrow import csv

    delimiter = "\t" if _format(path) == "tsv" else ","
    nulls = {"null_values": _NULL_SPELLINGS, "strings_can_be_null": True}
    return csv.open_csv(
        str(path),
        read_options=csv.ReadOptions(block_size=_CSV_BLOCK),
        parse_options=csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        convert_options=csv.ConvertOptions(column_types=types, include_columns=names, **nulls),
    )


def _check_utf8(path: Path, schema: pa.Schema) -> None:
    # Arrow falls back to bytes for text that is not UTF-8, and decodes names only when they are asked for.
    for name, kind in zip(schema.names, schema.types, strict=True):
        if pa.types.is_binary(kind):
            raise ValueError(f"cannot read {str(path)!r}: column {name!r} is not UTF-8; convert the file")


def _common_schema(paths: list[Path], schemas: list[pa.Schema]) -> pa.Schema:
    """The columns of files, each with a type that fits all of them, such as double for int64 and double."""
    for path, schema in zip(paths, schemas, strict=True):
        _check_names(schema.names)
        differing = sorted(set(schema.names) ^ set(schemas[0].names))
        if differing:
            files = _quoted([str(paths[0]), str(path)])
            raise ValueError(f"files must have the same columns; {files} differ in {_quoted(differing)}")
    try:
        return pa.unify_schemas(schemas, promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(f"files disagree on a column: {error}; {_TYPE_ADVICE}") from error


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
        with _open_csv(path, {}) as reader:
            text = f"column {reader.schema.names[int(column[1])]!r}: {text[column.end() :]}"
    if isinstance(error, UnicodeDecodeError) or "invalid UTF8" in text:
        return f"{text}; convert the file to UTF-8"
    return f"{text}; {_TYPE_ADVICE}" if "conversion error" in text else text
