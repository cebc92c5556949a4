"""Table: columns that are read as Arrow record batches of an exact size, in order or shuffled."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import accumulate, chain, islice
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from splinefm._arrays import Int64Array
from splinefm._cached import cached_property
from splinefm.encode.tables.arrow import plain_column, plain_type
from splinefm.encode.tables.names import check_names, missing_column_message

READ_ONCE = "a reader or stream can be read once; pass a table, a path or a dataset instead"
Read = Callable[[list[str]], Iterable[pa.RecordBatch]]
_Part = tuple[int, pa.RecordBatch]

# The most pieces of a table that a shuffled batch mixes, fewer for wide tables: an open Parquet column takes about
# 1.6 MB, because its pages are read whole.
MAX_OPEN, OPEN_COLUMNS = 8, 160


class Piece(NamedTuple):
    """Neighboring rows of a table that can be read without those before them; n_rows is None where not known."""

    read: Read
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
    >>> from splinefm import open_table
    >>> table = open_table({"recency": [1.0, 2.0, 3.0], "country": ["US", "FR", "US"]})
    >>> table.names, table.n_rows
    (('recency', 'country'), 3)
    >>> [batch.num_rows for batch in table.chunks(["recency"], rows=2)]
    [2, 1]
    """

    schema: pa.Schema
    n_rows: int | None
    _read: Read = field(repr=False)
    _pieces: Callable[[], Sequence[Piece]] | None = field(default=None, repr=False)
    _retype: Callable[[Mapping[str, pa.DataType]], Table] | None = field(default=None, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Column names, in order."""
        return tuple(self.schema.names)

    @property
    def untyped(self) -> bool:
        """Whether the source has no types, as text files have none."""
        return self._retype is not None

    def as_text(self) -> Table:
        """The table with all columns as text, if it is `untyped`; otherwise as it is."""
        return self.with_types(dict.fromkeys(self.names, pa.large_string()))

    def with_types(self, types: Mapping[str, pa.DataType]) -> Table:
        """The table read with these types, if it is `untyped`; otherwise as it is."""
        return self if self._retype is None else self._retype(types)

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
        >>> from splinefm import open_table
        >>> next(open_table({"a": [1, 2], "b": [3, 4]}).chunks(["b"])).to_pydict()
        {'b': [3, 4]}
        """
        schema = self._selected(columns, rows)
        return _rechunk(self._read(schema.names), schema, rows)

    def shuffled(
        self, columns: Sequence[str] | None = None, rows: int = 65_536, *, rng: np.random.Generator
    ) -> Iterator[tuple[Int64Array, pa.RecordBatch]]:
        """Batches of at most `rows` rows in random order, each with the numbers of its rows in the table.

        Every batch mixes rows of several pieces of the table, so that batches resemble each other even if the table is
        sorted, by time or by label. The pieces are row groups of Parquet files, whole text files, fragments of datasets
        and small blocks of tables in memory. A piece is read in order, and the rows of a batch are in the order of the
        table. Readers and filtered datasets have only one piece.

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
        >>> from splinefm import open_table
        >>> table = open_table({"a": range(5000)})
        >>> numbers, batch = next(table.shuffled(rows=4096, rng=np.random.default_rng(0)))
        >>> batch["a"].to_pylist() == numbers.tolist()
        True
        """
        schema = self._selected(columns, rows)
        n_open = max(2, min(MAX_OPEN, OPEN_COLUMNS // len(schema)))
        rows_each = -(-rows // n_open)
        pieces = [self._numbered_pieces[i] for i in rng.permutation(len(self._numbered_pieces))]
        parts = (_parts(first, read(schema.names), schema, rows_each) for first, read in pieces)
        return _gather(_round_robin(parts, n_open), schema, rows)

    def count_rows(self) -> int:
        """Number of rows; where it is not known, one column is read.

        Examples
        --------
        >>> from splinefm import open_table
        >>> open_table({"a": [1, 2], "b": [3, 4]}).count_rows()
        2
        """
        return self.n_rows if self.n_rows is not None else self._count(Piece(self._read))

    @cached_property
    def _numbered_pieces(self) -> list[tuple[int, Read]]:
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


def make_table(
    schema: pa.Schema,
    n_rows: int | None,
    read: Read,
    index: Set[str] = frozenset(),
    pieces: Callable[[], Sequence[Piece]] | None = None,
    retype: Callable[[Mapping[str, pa.DataType]], Table] | None = None,
) -> Table:
    check_names(schema.names)
    fields = [pa.field(f.name, plain_type(f.type)) for f in schema if f.name not in index]
    if not fields:
        raise ValueError("the table has no columns")
    return Table(pa.schema(fields), n_rows, read, pieces, retype)


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
    # Joining copies, so a batch that comes from one piece is passed on without it.
    whole = parts[0] if len(parts) == 1 else [pa.concat_arrays(column) for column in zip(*parts, strict=True)]
    return pa.RecordBatch.from_arrays(whole, schema=schema)


def _parts(
    first: int, batches: Iterable[pa.RecordBatch], schema: pa.Schema, rows: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """A piece in parts of `rows` rows, each with the number of its first row."""
    for batch in _rechunk(batches, schema, rows):
        yield first, batch
        first += batch.num_rows


def _round_robin(pieces: Iterator[Iterator[_Part]], n_open: int) -> Iterator[_Part]:
    """The parts of all pieces, round-robin over a few open pieces; the next one is opened when one is used up."""
    active = deque(islice(pieces, n_open))
    while active:
        part = next(active[0], None)
        if part is not None:
            yield part
            active.rotate(-1)
        else:
            active.popleft()
            active.extend(islice(pieces, 1))


def _gather(parts: Iterable[_Part], schema: pa.Schema, rows: int) -> Iterator[tuple[Int64Array, pa.RecordBatch]]:
    """Parts joined to batches of at most `rows` rows, with the numbers of the rows."""
    waiting: list[_Part] = []
    n = 0
    for part in chain(parts, [None]):
        if waiting and (part is None or n + part[1].num_rows > rows):
            waiting.sort(key=lambda item: item[0])
            numbers = np.concatenate([np.arange(first, first + batch.num_rows) for first, batch in waiting])
            whole = _join([batch.columns for _, batch in waiting], schema)
            waiting, n = [], 0  # free the parts before the caller uses the batch
            yield numbers, whole
        if part is not None:
            waiting.append(part)
            n += part[1].num_rows
