"""The rows of Parquet files, numbered from 0, so that several processes can divide them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._cached import cached_property
from splinefm.encode.tables.files import RowGroup, find_row_groups, read_row_groups
from splinefm.encode.tables.table import Table, make_table

# Small row groups of a file are shuffled together, up to so many rows: each block opens its file.
BLOCK_ROWS = 65_536
Range = tuple[int, int]
"""The number of a first row, and the number after the last one."""


@dataclass(frozen=True)
class ParquetRows:
    """All rows of some Parquet files, in the order of the files; made by `open_rows`.

    Attributes
    ----------
    schema : pyarrow.Schema
        The columns, with types that fit all files.
    groups : tuple of RowGroup
        The row groups of all files.
    """

    schema: pa.Schema
    groups: tuple[RowGroup, ...]

    @cached_property
    def first(self) -> npt.NDArray[np.int64]:
        """The number of the first row of each group, and the number of rows at the end."""
        sizes = [group.n_rows for group in self.groups]
        return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).astype(np.int64)

    @property
    def n_rows(self) -> int:
        """Rows of all files."""
        return int(self.first[-1])

    @cached_property
    def fingerprint(self) -> str:
        """A text that differs if files, row groups or columns differ; folders do not matter.

        Processes compare it: another machine may see other files under the same name.
        """
        content = [f"{group.path.name}/{group.number}/{group.n_rows}/{group.n_bytes}" for group in self.groups]
        columns = [f"{column.name}: {column.type}" for column in self.schema]
        return hashlib.sha256("\n".join([*columns, *content]).encode()).hexdigest()

    @cached_property
    def blocks(self) -> tuple[Range, ...]:
        """Neighboring rows that are shuffled as one: a row group, or several small ones of one file."""
        blocks: list[Range] = []
        begin = 0
        for i, group in enumerate(self.groups):
            stop = int(self.first[i + 1])
            last = i + 1 == len(self.groups) or self.groups[i + 1].path != group.path
            if stop > begin and (last or stop - begin >= BLOCK_ROWS):
                blocks.append((begin, stop))
                begin = stop
        return tuple(blocks)

    def table(self, begin: int = 0, stop: int | None = None) -> Table:
        """Some neighboring rows as a table, which reads the row groups that have them."""
        end = self.n_rows if stop is None else stop
        if not 0 <= begin <= end <= self.n_rows:
            raise ValueError(f"rows {begin:,} to {end:,} are not among the {self.n_rows:,} rows of the files")
        return make_table(self.schema, end - begin, partial(self._read, begin, end))

    def check_ranks(self, ranks: int) -> None:
        """Raise if there are fewer rows than processes: one would have nothing to do."""
        if self.n_rows < ranks:
            raise ValueError(
                f"{self.n_rows:,} rows cannot be divided among {ranks:,} ranks, because every rank needs a row; "
                "start fewer ranks, or check the files"
            )

    def _read(self, begin: int, stop: int, names: list[str]) -> Iterator[pa.RecordBatch]:
        if begin == stop:
            return
        low = int(np.searchsorted(self.first, begin, "right")) - 1
        high = int(np.searchsorted(self.first, stop, "left"))
        skip, left = begin - int(self.first[low]), stop - begin
        groups = (group for group in self.groups[low:high] if group.n_rows)
        for _, of_file in groupby(groups, key=lambda group: group.path):
            for batch in read_row_groups(list(of_file), names):
                part = batch.slice(min(skip, batch.num_rows), left)
                skip, left = max(0, skip - batch.num_rows), left - part.num_rows
                if part.num_rows:
                    yield part
                if not left:
                    return


def open_rows(sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> ParquetRows:
    """Open Parquet files for several processes; only their footers are read.

    Parameters
    ----------
    sources : path, or list of paths
        Files, folders and globs, which every process must see.
    """
    listed = [sources] if isinstance(sources, str | os.PathLike) else list(sources)
    schema, groups = find_row_groups(listed)
    return ParquetRows(schema, tuple(groups))
