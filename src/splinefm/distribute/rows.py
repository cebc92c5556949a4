"""The rows of Parquet files, numbered from 0, so that several processes can divide them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow.parquet import read_metadata

from splinefm._cached import cached_property
from splinefm._parallel import in_order
from splinefm.encode.tables.files import RowGroup, find_row_groups, read_row_groups
from splinefm.encode.tables.table import Table, make_table

# Small row groups of a file are shuffled together, up to so many rows: each block opens its file.
BLOCK_ROWS = 65_536
# A checksum of contents reads files up to this size as a whole, and samples of larger ones: bytes at both ends of every
# column in some row groups. Reading everything on every machine would take as long as an epoch.
WHOLE_BYTES, SAMPLE_BYTES, SAMPLED_GROUPS = 1 << 20, 4096, 3
READERS = 8  # threads, which wait for a disk or the network most of the time
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
    def files(self) -> tuple[tuple[str, str], ...]:
        """The name of every file with a row, from the folder that all files have in common, and its checksum."""
        paths = list(dict.fromkeys(group.path.absolute() for group in self.groups))
        folder = os.path.commonpath([path.parent for path in paths]) if paths else ""
        names = (path.relative_to(folder).as_posix() for path in paths)
        return tuple(zip(names, in_order(contents_digest, paths, READERS), strict=True))

    @cached_property
    def fingerprint(self) -> str:
        """A text that differs if files, their contents or columns differ; folders do not matter.

        Processes compare it: another machine may see other files under the same name.
        """
        columns = [f"{column.name}: {column.type}" for column in self.schema]
        content = [f"{group.path.name}/{group.number}/{group.n_rows}/{group.n_bytes}" for group in self.groups]
        contents = [digest for _, digest in self.files]
        return hashlib.sha256("\n".join([*columns, *content, *contents]).encode()).hexdigest()

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


def contents_digest(path: Path) -> str:
    """Return a checksum of a Parquet file: of all bytes of a small one, of size, footer and samples of a large one.

    The footer has the sizes and statistics of all columns. Samples find what leaves those as they are, such as other
    labels of the same rows.
    """
    size = path.stat().st_size
    found = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for begin, end in [(0, size)] if size <= WHOLE_BYTES else [*_samples(path), (_footer(file, size), size)]:
            file.seek(begin)
            found.update(file.read(end - begin))
    return found.hexdigest()


def _footer(file: BinaryIO, size: int) -> int:
    """Return where the footer of a Parquet file begins: its length is before the last four bytes."""
    file.seek(size - 8)
    return max(0, size - 8 - int.from_bytes(file.read(4), "little"))


def _samples(path: Path) -> list[Range]:
    """Return ranges of bytes around the ends of all columns in the first, the middle and the last row group."""
    metadata = read_metadata(path)
    last = metadata.num_row_groups - 1
    ends: set[int] = set()
    for group in {last * i // max(1, SAMPLED_GROUPS - 1) for i in range(SAMPLED_GROUPS)} if last >= 0 else ():
        for i in range(metadata.num_columns):
            column = metadata.row_group(group).column(i)
            offset = column.dictionary_page_offset
            begin = column.data_page_offset if offset is None else min(offset, column.data_page_offset)
            ends |= {begin, begin + column.total_compressed_size}
    return [(max(0, end - SAMPLE_BYTES), end + SAMPLE_BYTES) for end in sorted(ends)]


def refuse_other_files(fingerprints: Sequence[str], files: Sequence[Mapping[str, str]]) -> None:
    """Raise if ranks see other files than rank 0; name a file and all ranks that differ.

    Parameters
    ----------
    fingerprints : sequence of str
        Those of the rows of every rank.
    files : sequence of mappings
        Names of the files of every rank, and checksums of their contents.
    """
    if len(set(fingerprints)) <= 1:
        return
    advice = "all ranks need the same files: copy them again, or put them where all machines see them"
    for name in dict.fromkeys(name for own in files for name in own):
        have = [rank for rank, own in enumerate(files) if name in own]
        if len(have) < len(files):
            lacking = _listed([rank for rank in range(len(files)) if rank not in have])
            raise ValueError(f"the data differ: {name!r} is on {_listed(have)}, but not on {lacking}; {advice}")
    for name in files[0]:
        other = [rank for rank, own in enumerate(files) if own[name] != files[0][name]]
        if other:
            raise ValueError(
                f"the data differ: {name!r} has other contents on {_listed(other)} than on rank 0; {advice}"
            )
    differing = next(rank for rank, fingerprint in enumerate(fingerprints) if fingerprint != fingerprints[0])
    raise ValueError(
        f"the data differ: rank {differing} has the files of rank 0 in another order, or other columns; {advice}"
    )


def _listed(ranks: Sequence[int]) -> str:
    """Return ranks as text.

    Examples
    --------
    >>> _listed([1]), _listed([1, 2, 5])
    ('rank 1', 'ranks 1, 2 and 5')
    """
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return f"ranks {', '.join(map(str, ranks[:-1]))} and {ranks[-1]}"
