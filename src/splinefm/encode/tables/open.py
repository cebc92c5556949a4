"""Anything tabular, in memory or in files, as Arrow record batches of an exact size."""

from __future__ import annotations

import difflib
import json
import os
import sys
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import accumulate, chain, islice
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.tables.conversion import convert_column, plain_column, plain_type, refuse_types_of_polars

_ACCEPTED = (
    "a pandas or polars DataFrame, a pyarrow Table, RecordBatch, RecordBatchReader or Dataset, a dict of "
    "arrays, a 2-D NumPy array, or a path, folder, glob or list of paths of Parquet or CSV files"
)
READ_ONCE = "a reader or stream can be read once; pass a table, a path or a dataset instead"
_Read = Callable[[list[str]], Iterable[pa.RecordBatch]]
_Part = tuple[int, pa.RecordBatch]

# From this share of common letters on, names are offered in place of one that is not there.
_ALIKE = 0.6

# A shuffled batch mixes so many places of a table, fewer for wide ones: an open Parquet column takes about 1.6 MB,
# because its pages are read whole.
MOST_PLACES, OPEN_COLUMNS = 8, 160
# Rows per piece of a table in memory, where any row can be had at once.
SMALL_PIECE = 2048


class Piece(NamedTuple):
    """Neighboring rows of a table that can be read without those before them; n_rows is None where not known."""

    read: _Read
    n_rows: int | None = None


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
    _pieces: Callable[[], Sequence[Piece]] | None = field(default=None, repr=False)
    _retype: Callable[[Mapping[str, pa.DataType]], Table] | None = field(default=None, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(self.schema.names)

    @property
    def untyped(self) -> bool:
        """Whether the source has no types of its own, as text files have none."""
        return self._retype is not None

    def as_text(self) -> Table:
        """The table with all columns as text, if it is `untyped`; otherwise as it is."""
        return self if self._retype is None else self._retype(dict.fromkeys(self.names, pa.large_string()))

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
        schema = self._selected(columns, rows)
        return _rechunk(self._read(schema.names), schema, rows)

    def shuffled(
        self, columns: Sequence[str] | None = None, rows: int = 65_536, *, rng: np.random.Generator
    ) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
        """Batches of at most `rows` rows in random order, each with the numbers of its rows in the table.

        Every batch mixes rows of several places, so that a table that is sorted, by time or by label, gives batches
        that resemble each other. The places are row groups of Parquet files, whole text files, fragments of datasets
        and small blocks of tables in memory; a place is read in its own order, and the rows of a batch are in the
        order of the table. Readers and filtered datasets have only one place.

        Parameters
        ----------
        columns : sequence of str, optional
            The columns to read, in this order; by default all.
        rows : int
            Most rows per batch.
        rng : numpy.random.Generator
            Draws the order.

        Examples
        --------
        >>> table = open_table({"a": range(5000)})
        >>> numbers, batch = next(table.shuffled(rows=4096, rng=np.random.default_rng(0)))
        >>> batch["a"].to_pylist() == numbers.tolist()
        True
        """
        schema = self._selected(columns, rows)
        n_open = max(2, min(MOST_PLACES, OPEN_COLUMNS // len(schema)))
        turn = -(-rows // n_open)
        pieces = [self._placed[i] for i in rng.permutation(len(self._placed))]
        parts = (_parts(first, read(schema.names), schema, turn) for first, read in pieces)
        return _gather(_take_turns(parts, n_open), schema, rows)

    def count_rows(self) -> int:
        """Number of rows; where it is not known, one column is read.

        Examples
        --------
        >>> open_table({"a": [1, 2], "b": [3, 4]}).count_rows()
        2
        """
        return self.n_rows if self.n_rows is not None else self._count(Piece(self._read))

    @cached_property
    def _placed(self) -> list[tuple[int, _Read]]:
        """The pieces, each with the number of its first row; where sizes are not known, one column is read."""
        pieces = self._pieces() if self._pieces is not None else [Piece(self._read)]
        firsts = accumulate((self._count(piece) for piece in pieces[:-1]), initial=0)
        return [(first, piece.read) for first, piece in zip(firsts, pieces, strict=False)]

    def _count(self, piece: Piece) -> int:
        if piece.n_rows is not None:
            return piece.n_rows
        return sum(batch.num_rows for batch in piece.read([self.names[0]]))

    def _selected(self, columns: Sequence[str] | None, rows: int) -> pa.Schema:
        if rows < 1:
            raise ValueError(f"rows must be at least 1, got {rows}")
        names = self._known(self.names if columns is None else columns)
        return pa.schema([self.schema.field(name) for name in names])

    def _known(self, columns: Sequence[str]) -> list[str]:
        if isinstance(columns, str) or not columns:
            raise ValueError(f"columns must be a list of one or more column names, got {columns!r}")
        known = set(self.names)
        for name in columns:
            if name not in known:
                raise ValueError(missing_column_message(name, self.names))
        return list(dict.fromkeys(columns))


def open_table(source: object, *, types: Mapping[str, pa.DataType] | None = None, sep: str | None = None) -> Table:
    """Open anything tabular for reading in batches; what is open already is handed back.

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
        suggest, text where files disagree; names that are not in the file are ignored. `pyarrow.float64()` is a
        wish: a column whose first 8 MB are not numbers alone is handed over as text. Functions that are given an
        open table add the types that they need; those given here stay.
    sep : str, optional
        CSV only: the character between the columns. By default it is found: the comma, tab, semicolon or bar of which
        the header and the rows have the same number; in TSV files the tab.

    Examples
    --------
    >>> import numpy as np
    >>> open_table(np.zeros((4, 2))).names
    ('x0', 'x1')
    """
    if isinstance(source, Table):
        return source._retype(types) if types and source._retype is not None else source
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
    """Raise where it is no character that can separate columns."""
    if sep is not None and (not isinstance(sep, str) or len(sep) != 1 or not sep.isascii() or sep in '"\r\n'):
        raise ValueError(f"sep must be one character, such as ',', ';', '|' or a tab, got {sep!r}")


def missing_column_message(
    name: str, names: Sequence[str], kind: Literal["column", "field"] = "column", place: str = "the table"
) -> str:
    """What to tell about a column that a table does not have: the nearest names and those that exist.

    Examples
    --------
    >>> missing_column_message("recencyy", ["recency", "country"])
    "no column 'recencyy' in the table; nearest: 'recency'. Columns: 'recency', 'country'"
    """
    return f"no {kind} {name!r} in {place}{nearest_hint(name, names)}. {kind.capitalize()}s: {quoted(names)}"


def nearest_hint(name: str, names: Sequence[str], most: int = 3) -> str:
    """The names that a misspelled one may stand for, the likeliest first: what to add to a message.

    Examples
    --------
    >>> nearest_hint("Age", ["age in years", "hours", "country"])
    "; nearest: 'age in years'"
    """
    found = nearest_names(name, names, most)
    return f"; nearest: {quoted(found)}" if found else ""


def nearest_names(name: str, names: Sequence[str], most: int = 3) -> list[str]:
    """The names that are most like one: those that are equal but for upper case and signs, then those that contain it
    or are contained in it, then those that share letters. Where none is like it, those that share most.
    """
    wanted = _letters(str(name))
    scored = []
    for place, other in enumerate(names):
        letters = _letters(other)
        within = min(len(wanted), len(letters)) > 1 and (wanted in letters or letters in wanted)
        ratio = difflib.SequenceMatcher(None, wanted, letters).ratio()
        scored.append((-(wanted == letters), -within, -ratio, place))
    scored.sort()
    alike = [names[place] for same, within, ratio, place in scored if same or within or -ratio >= _ALIKE]
    if not alike and len(names) <= most:  # a list of all says no more than the names themselves
        return []
    return (alike or [names[place] for *_, place in scored])[:most]


def _letters(name: str) -> str:
    """A name without what people misremember; itself, if nothing else is in it."""
    return "".join(filter(str.isalnum, name.casefold())) or name


def quoted(names: Sequence[str], most: int = 20) -> str:
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
    return list(map(plain_column, columns, schema.types))


def _join(parts: list[list[pa.Array]], schema: pa.Schema) -> pa.RecordBatch:
    # Joining copies, so a batch that was cut from one piece is handed on as it is.
    whole = parts[0] if len(parts) == 1 else [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
    return pa.RecordBatch.from_arrays(whole, schema=schema)


def _parts(
    first: int, batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """A piece in parts of `rows` rows, each with the number of its first row."""
    for batch in _rechunk(batches, schema, rows):
        yield first, batch
        first += batch.num_rows


def _take_turns(pieces: Iterator[Iterator[_Part]], n_open: int) -> Iterator[_Part]:
    """The parts of all pieces, in turn from a few open pieces; one that is used up makes room for the next."""
    active = deque(islice(pieces, n_open))
    while active:
        part = next(active[0], None)
        if part is not None:
            yield part
            active.rotate(-1)
        else:
            active.popleft()
            active.extend(islice(pieces, 1))


def _gather(
    parts: Iterable[_Part], schema: pa.Schema, rows: int
) -> Iterator[tuple[npt.NDArray[np.int64], pa.RecordBatch]]:
    """Parts joined to batches of at most `rows` rows, with the numbers of the rows."""
    own: list[_Part] = []
    n = 0
    for part in chain(parts, [None]):
        if own and (part is None or n + part[1].num_rows > rows):
            own.sort(key=lambda item: item[0])
            numbers = np.concatenate([np.arange(first, first + batch.num_rows) for first, batch in own])
            whole = _join([batch.columns for _, batch in own], schema)
            own, n = [], 0  # let go of the parts before the reader goes to work
            yield numbers, whole
        if part is not None:
            own.append(part)
            n += part[1].num_rows


def make_table(
    schema: pa.Schema,
    n_rows: int | None,
    read: _Read,
    index: Set[str] = frozenset(),
    pieces: Callable[[], Sequence[Piece]] | None = None,
    retype: Callable[[Mapping[str, pa.DataType]], Table] | None = None,
) -> Table:
    check_names(schema.names)
    fields = [pa.field(f.name, plain_type(f.type)) for f in schema if f.name not in index]
    if not fields:
        raise ValueError("the table has no columns")
    return Table(pa.schema(fields), n_rows, read, pieces, retype)


def check_names(names: Sequence[str]) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"duplicate column names: {quoted(twice)}; rename or drop the repeated columns")


def _index_columns(schema: pa.Schema) -> set[str]:
    """The columns that pandas made of the index of a DataFrame."""
    columns = json.loads((schema.metadata or {}).get(b"pandas", b"{}")).get("index_columns", [])
    return {name for name in columns if isinstance(name, str)}


def unnamed_index(schema: pa.Schema) -> set[str]:
    # In a file or an Arrow table, a named index is a column like any other: only pandas would hide it.
    return {name for name in _index_columns(schema) if name.startswith("__index_level_")}


# Sources in memory


def _from_arrow(table: pa.Table, index: Set[str]) -> Table:
    def pieces() -> list[Piece]:
        starts = range(0, table.num_rows, SMALL_PIECE)
        return [Piece(partial(_slice, table, at), min(SMALL_PIECE, table.num_rows - at)) for at in starts]

    def read(names: list[str]) -> list[pa.RecordBatch]:
        return table.select(names).to_batches()  # type: ignore[no-any-return]  # pyarrow has no types

    return make_table(table.schema, table.num_rows, read, index, pieces)


def _slice(table: pa.Table, at: int, names: list[str]) -> list[pa.RecordBatch]:
    return table.select(names).slice(at, SMALL_PIECE).to_batches()  # type: ignore[no-any-return]  # as above


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
    if _is_of("polars", source):
        refuse_types_of_polars(source)
    try:
        reader = _stream(source)
        # What has a length is held in memory; a stream that has none may be consumed by reading it.
        if hasattr(source, "__arrow_c_stream__") and not hasattr(source, "__len__"):
            return _from_reader(reader)
        table = reader.read_all()
    except (pa.ArrowException, TypeError, OverflowError, UnicodeError) as error:
        if _is_of("pandas", source):  # column by column, to convert more or to tell which of them is the problem
            return _from_dict({str(name): source.iloc[:, i] for i, name in enumerate(source.columns)})  # type: ignore[attr-defined]
        detail = ": ".join(map(str, error.args[::-1]))
        kind = type(source).__name__
        raise ValueError(f"cannot convert the {kind} to Arrow: {detail}; give each column one type") from error
    return _from_arrow(table, _index_columns(table.schema))


def _is_of(package: str, source: object) -> bool:
    return type(source).__module__.startswith(package)


def _stream(source: object) -> pa.RecordBatchReader:
    if not hasattr(source, "__arrow_c_stream__"):
        return pa.Table.from_batches([pa.record_batch(source)]).to_reader()
    if _is_of("pandas", source):
        check_names([str(name) for name in source.columns])  # type: ignore[attr-defined]  # a DataFrame
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
    if array.ndim != 2:
        raise ValueError(
            f"a NumPy table must have shape (rows, columns), got shape {array.shape}; "
            "reshape it, such as x.reshape(-1, 1) for one column"
        )
    return _from_dict({f"x{i}": array[:, i] for i in range(array.shape[1])})


def _is_dataset(source: object) -> bool:
    # Whoever holds a dataset has imported the module, which is slow to import otherwise.
    module = sys.modules.get("pyarrow.dataset")
    return module is not None and isinstance(source, module.Dataset)


def _from_dataset(dataset: Any) -> Table:
    def pieces() -> list[Piece]:
        try:
            fragments = list(dataset.get_fragments())
        except ValueError:  # a filtered dataset does not tell its fragments
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
    return source.to_batches(columns=names, **limits, **options)  # type: ignore[no-any-return]  # pyarrow has no types
