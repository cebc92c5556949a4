"""A random sample of the rows of a table, in one pass and with little memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from splinefm.encode.tables.table import Table
from splinefm.learn.progress import SILENT, Progress

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
