"""Rows to explain, rows to compare with, and random samples of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._arrays import IndexArray
from splinefm._checks import check_one_score
from splinefm.encode.encoder import CHUNK
from splinefm.encode.slots import Slots
from splinefm.encode.tables.columns import one_array
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.table import Table
from splinefm.train.fitted import Fitted
from splinefm.train.progress import SILENT, Progress

# Rows to explain, and rows to compare with: slots, and where the values of crosses are.

Positions = list[npt.NDArray[np.generic]]


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Encoded rows of a model, which can be mixed column by column."""

    slots: Slots  # the rows as the model sees them
    positions: dict[int, Positions]  # for each cross, the positions of its parts: see `Cross.positions`

    def __len__(self) -> int:
        return len(self.slots)

    def __getitem__(self, rows: slice | IndexArray) -> EncodedRows:
        """Some of the rows."""
        positions = {f: [part[rows] for part in parts] for f, parts in self.positions.items()}
        return EncodedRows(self.slots[rows], positions)


def without_fields(slots: Slots, fields: tuple[int, ...]) -> Slots:
    """The slots with weights of zero for some fields, which then add nothing to the score."""
    if not fields:
        return slots
    weight = slots.weight.copy()
    for f in fields:
        weight[:, field_columns(slots, f)[1]] = 0.0
    return replace(slots, weight=weight)


def field_columns(slots: Slots, f: int) -> tuple[slice, slice]:
    """The windows and the weights of a field."""
    first, last = slots.layout.window_ptr[f : f + 2]
    return slice(first, last), slice(slots.layout.weight_ptr[first], slots.layout.weight_ptr[last])


def encode_rows(fitted: Fitted, table: object, threads: int | None) -> Slots:
    """Encode a table, to explain one score of its rows; slots are returned as they are, but for the offset."""
    check_one_score(fitted)
    if not isinstance(table, Slots):
        return fitted.encoder.encode(table, threads=threads)
    if table.layout != fitted.encoder.layout:
        raise ValueError("these slots come from another encoder; pass the table, or fitted.encoder.encode(table)")
    return replace(table, offset=None)  # explanations are of the score without it


def read_rows(fitted: Fitted, table: object, threads: int | None, most: int | None = None) -> EncodedRows:
    """Encode a table; with crosses at most `most` rows of it, evenly spaced.

    Slots are taken as they are if there are no crosses. They do not have the values of the columns of a cross.
    """
    crosses = fitted.encoder.crosses
    if isinstance(table, EncodedRows):
        return table
    if not crosses:
        return EncodedRows(encode_rows(fitted, table, threads), {})
    if isinstance(table, Slots):
        names = ", ".join(repr(item.name) for item in crosses.values())
        raise ValueError(
            f"encoded rows (Slots) do not have the values of the columns of a cross, and this model has {names}; "
            "pass the table itself"
        )
    read = _spaced(fitted, table, most)
    positions = {}
    for f, item in crosses.items():
        columns = [one_array(read.column(name)) for name in item.columns]
        positions[f] = item.positions(item.read(columns))
    return EncodedRows(fitted.encoder.encode(read, threads=threads), positions)


def _spaced(fitted: Fitted, table: object, most: int | None) -> pa.Table:
    """The columns of the model, of all rows or of at most `most`, evenly spaced; no more than a chunk is in memory."""
    schema = fitted.encoder.schema
    source = open_table(table, types=schema.column_types())
    schema.check_columns(source.names)
    kept = [pa.schema([source.schema.field(name) for name in schema.columns]).empty_table()]
    seen, step = 0, 1
    for chunk in source.chunks(schema.columns, CHUNK):
        part = pa.Table.from_batches([chunk])
        kept.append(part.take(np.arange(-seen % step, len(part), step)) if step > 1 else part)
        seen += len(part)
        while most is not None and sum(map(len, kept)) > max(2 * most, CHUNK):
            whole = pa.concat_tables(kept)
            kept, step = [whole.take(np.arange(0, len(whole), 2))], 2 * step
    whole = pa.concat_tables(kept)
    if most is None or len(whole) <= most:
        return whole
    return whole.take(spaced_rows(len(whole), most))


def spaced_rows(n: int, most: int) -> IndexArray:
    """At most `most` of n rows, evenly spaced, since data may be sorted.

    Examples
    --------
    >>> spaced_rows(9, 3), spaced_rows(2, 3)
    (array([0, 4, 8]), array([0, 1]))
    """
    return np.linspace(0, n - 1, min(n, most)).astype(np.intp)


# A random sample of the rows of a table, in one pass and with little memory.

ROWS = 65_536
"""Rows of a table in memory at a time."""


class RowSample:
    """A uniform random sample of rows from a stream of batches.

    The same batches give the same sample, in the order of the table; `numbers` are the row numbers in the table.

    Parameters
    ----------
    size : int
        Maximum number of rows to keep.

    Examples
    --------
    >>> sample = RowSample(2)
    >>> for start in (0, 5):
    ...     sample.add(pa.record_batch({"x": range(start, start + 5)}))
    >>> sample.n_seen, sample.table()["x"].to_pylist() == sample.numbers.tolist()
    (10, True)
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.n_seen = 0
        self.numbers = np.zeros(0, np.intp)
        self._rng = np.random.default_rng(0)
        self._keys = np.zeros(0)
        self._rows: pa.Table | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows; those with the smallest random keys are kept."""
        numbers = np.append(self.numbers, np.arange(self.n_seen, self.n_seen + batch.num_rows))
        self.n_seen += batch.num_rows
        new = pa.Table.from_arrays([_plain(column) for column in batch.columns], names=batch.schema.names)
        rows = new if self._rows is None else pa.concat_tables([self._rows, new])
        keys = np.concatenate([self._keys, self._rng.random(batch.num_rows)])
        if len(keys) > self.size:
            kept = np.sort(np.argpartition(keys, self.size)[: self.size])
            rows, keys, numbers = rows.take(pa.array(kept)), keys[kept], numbers[kept]
        self._rows, self._keys, self.numbers = rows, keys, numbers

    def table(self) -> pa.Table:
        """The sampled rows."""
        if self._rows is None:
            raise ValueError("the table has no rows")
        return self._rows.combine_chunks()


def read_sample(table: Table, names: Sequence[str], size: int, progress: Progress = SILENT) -> RowSample:
    """Sample rows of some columns of a table.

    Examples
    --------
    >>> from splinefm.encode.tables.open import open_table
    >>> read_sample(open_table({"x": [1, 2, 3]}), ["x"], 10).table()["x"].to_pylist()
    [1, 2, 3]
    """
    sample = RowSample(size)
    progress.begin("reading the table", table.n_rows)
    for batch in table.chunks(names, ROWS):
        sample.add(batch)
        progress.advance(batch.num_rows)
    return sample


def _plain(column: pa.Array) -> pa.Array:
    """Decode dictionaries, which may differ between batches."""
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
