"""The rows of Parquet files, numbered from 0, shuffled and divided among processes."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow.parquet import read_metadata

from splinefm._arrays import Int64Array
from splinefm._cached import cached_property
from splinefm._parallel import in_order
from splinefm.encode.tables.arrow import to_arrow
from splinefm.encode.tables.files import RowGroup, find_row_groups, read_row_groups
from splinefm.encode.tables.names import missing_column_message
from splinefm.encode.tables.table import MAX_OPEN, OPEN_COLUMNS, Table, make_table
from splinefm.train.settings import seeded

# The rows of Parquet files, numbered from 0, so that several processes can divide them.

# Small row groups of a file are shuffled together, up to this number of rows: each block opens its file.
BLOCK_ROWS = 65_536
# A checksum of contents reads files up to this size as a whole, and samples of larger ones: bytes at both ends of every
# column in some row groups. Reading everything on every machine would take as long as an epoch.
WHOLE_BYTES, SAMPLE_BYTES, SAMPLED_GROUPS = 1 << 20, 4096, 3
READERS = 8  # threads, which wait for a disk or the network most of the time
Range = tuple[int, int]
"""The number of a first row, and the number after the last one."""


@dataclass(frozen=True)
class ParquetRows:
    """All rows of some Parquet files, in the order of the files; made by `open_rows`."""

    schema: pa.Schema  # the columns, with types that fit all files
    groups: tuple[RowGroup, ...]  # the row groups of all files

    @cached_property
    def first(self) -> Int64Array:
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

    def check_columns(self, names: Iterable[str]) -> None:
        """Raise if a column is missing."""
        for name in names:
            if name not in self.schema.names:
                raise ValueError(missing_column_message(name, self.schema.names))

    def check_processes(self, n_processes: int) -> None:
        """Raise if there are fewer rows than processes: one would have nothing to do."""
        if self.n_rows < n_processes:
            raise ValueError(
                f"{self.n_rows:,} rows cannot be divided among {n_processes:,} processes, because every "
                "process needs a row; start fewer processes, or check the files"
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
    """Raise if processes see other files than process 0; name a file and all processes that differ.

    Parameters
    ----------
    fingerprints : sequence of str
        Fingerprints of the rows of every process.
    files : sequence of mappings
        Names of the files of every process, and checksums of their contents.
    """
    if len(set(fingerprints)) <= 1:
        return
    advice = "all processes need the same files: copy them again, or put them where all machines see them"
    for name in dict.fromkeys(name for own in files for name in own):
        have = [process for process, own in enumerate(files) if name in own]
        if len(have) < len(files):
            lacking = _listed([process for process in range(len(files)) if process not in have])
            raise ValueError(f"the data differ: {name!r} is on {_listed(have)}, but not on {lacking}; {advice}")
    for name in files[0]:
        other = [process for process, own in enumerate(files) if own[name] != files[0][name]]
        if other:
            raise ValueError(
                f"the data differ: {name!r} has other contents on {_listed(other)} than on process 0; {advice}"
            )
    differing = next(process for process, fingerprint in enumerate(fingerprints) if fingerprint != fingerprints[0])
    raise ValueError(
        f"the data differ: process {differing} has the files of process 0 in another order, or other columns; {advice}"
    )


def _listed(processes: Sequence[int]) -> str:
    """Return processes as text.

    Examples
    --------
    >>> _listed([1]), _listed([1, 2, 5])
    ('process 1', 'processes 1, 2 and 5')
    """
    if len(processes) == 1:
        return f"process {processes[0]}"
    return f"processes {', '.join(map(str, processes[:-1]))} and {processes[-1]}"


# Shares: the rows of an epoch, shuffled and divided among processes, with positions to resume from.
#
# The blocks of a table (row groups) have an order that depends on the seed and the epoch only. Processes take
# neighboring parts of that order, of the same number of rows up to one. A process fills a buffer from several blocks at
# a time and shuffles its rows. A position lists what is left: ranges of rows that no buffer has taken, and the rest of
# a buffer. It does not depend on the number of processes, so that any number can continue.

# Rows that are shuffled together, and rows that are read from a block at a time.
BUFFER_ROWS, READ_ROWS = 131_072, 16_384


class Slice(NamedTuple):
    """Rows of a shuffled buffer, from `begin` to `end`; the buffer is made of parts of the table."""

    parts: tuple[Range, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class Position:
    """The rows of an epoch that are left: merged from all processes, so that any number of processes can resume.

    Parameters
    ----------
    fingerprint : str
        The fingerprint of the rows: a position in other files means nothing.
    seed, epoch : int
        What the order depends on.
    slices : tuple of Slice
        Rests of shuffled buffers.
    ranges : tuple of pairs of int
        Rows that no buffer has taken.
    """

    fingerprint: str
    seed: int
    epoch: int
    slices: tuple[Slice, ...] = ()
    ranges: tuple[Range, ...] = ()

    @property
    def n_rows(self) -> int:
        """Rows that are left."""
        return sum(map(_size, self.items))

    @property
    def items(self) -> list[Slice | Range]:
        """Slices, then ranges."""
        return [*self.slices, *self.ranges]

    def item(self, i: int) -> Slice | Range:
        """Return one of `items`."""
        return self.slices[i] if i < len(self.slices) else self.ranges[i - len(self.slices)]

    @staticmethod
    def merge(positions: Sequence[Position]) -> Position:
        """Return what is left on all processes."""
        if not positions:
            raise ValueError("there are no positions to merge")
        first = positions[0]
        for other in positions[1:]:
            if replace(other, slices=(), ranges=()) != replace(first, slices=(), ranges=()):
                raise ValueError("positions can be merged only if files, seed and epoch are the same on all processes")
        slices = tuple(sorted(item for position in positions for item in position.slices))
        return replace(first, slices=slices, ranges=tuple(sorted(r for p in positions for r in p.ranges)))

    def to_dict(self) -> dict[str, Any]:
        """Return lists, strings and numbers for JSON."""
        slices = [[list(map(list, item.parts)), item.begin, item.end] for item in self.slices]
        ranges = np.array(self.ranges, np.int64).reshape(-1, 2).tolist()
        return {
            "fingerprint": self.fingerprint,
            "seed": self.seed,
            "epoch": self.epoch,
            "slices": slices,
            "ranges": ranges,
        }

    @staticmethod
    def from_dict(description: Any) -> Position:
        """Return the position that `to_dict` described; anything else raises an error."""
        try:
            slices = [
                Slice(tuple((int(a), int(b)) for a, b in parts), int(begin), int(end))
                for parts, begin, end in description["slices"]
            ]
            ranges = tuple((int(a), int(b)) for a, b in description["ranges"])
            seed, epoch = int(description["seed"]), int(description["epoch"])
            return Position(str(description["fingerprint"]), seed, epoch, tuple(slices), ranges)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"the position in the data is damaged ({error}); use an earlier checkpoint") from error


@dataclass(frozen=True, eq=False)
class Buffer:
    """Shuffled rows of a share, and what is left of the share after some of them."""

    batch: pa.RecordBatch  # the rows, in the order of training
    numbers: Int64Array  # their numbers in the table
    _taken: Slice
    _rest: Position

    def position(self, n_rows: int) -> Position:
        """Return what is left of the share after the first `n_rows` rows of this buffer."""
        if not 0 <= n_rows <= len(self.numbers):
            raise ValueError(f"n_rows must be from 0 to {len(self.numbers):,}, got {n_rows:,}")
        taken = self._taken._replace(begin=self._taken.begin + n_rows)
        return self._rest if not _size(taken) else replace(self._rest, slices=(taken, *self._rest.slices))


@dataclass(frozen=True, eq=False)
class Share:
    """The rows of one process in one epoch; made by `plan_shares`."""

    rows: ParquetRows  # the rows of all processes
    position: Position  # what this process has to read

    @property
    def n_rows(self) -> int:
        """Rows of this share; two processes differ by at most one row."""
        return self.position.n_rows

    def buffers(self, columns: Sequence[str], rows: int = BUFFER_ROWS) -> Iterator[Buffer]:
        """Yield all rows of the share, shuffled within buffers of `rows` rows; only the last one has fewer.

        After a position, rests of buffers come first.
        """
        if rows < 1:
            raise ValueError(f"rows must be at least 1, got {rows}")
        waiting = deque(self.position.slices)
        while waiting:
            taken = waiting.popleft()
            batches = [self._read(part, columns) for part in taken.parts]
            yield self._buffer(batches, taken, replace(self.position, slices=tuple(waiting)))
        yield from self._fill(columns, rows)

    def _fill(self, columns: Sequence[str], rows: int) -> Iterator[Buffer]:
        """Fill buffers from several ranges at a time: rows of one block are often alike."""
        n_open = max(2, min(MAX_OPEN, OPEN_COLUMNS // len(columns)))
        each = -(-rows // n_open)
        waiting = deque(self.position.ranges)
        active: deque[_Cursor] = deque()
        while waiting or active:
            parts: list[Range] = []
            batches: list[pa.RecordBatch] = []
            left = rows
            while left and (waiting or active):
                while waiting and len(active) < n_open:
                    active.append(_Cursor(self.rows, waiting.popleft(), columns))
                part, batch = active[0].take(min(each, left))
                parts.append(part)
                batches.append(batch)
                left -= batch.num_rows
                if active[0].is_done:
                    active.popleft()
                else:
                    active.rotate(-1)
            rest = (*(cursor.rest for cursor in active), *waiting)
            taken = Slice(tuple(parts), 0, rows - left)
            yield self._buffer(batches, taken, replace(self.position, slices=(), ranges=rest))

    def _read(self, part: Range, columns: Sequence[str]) -> pa.RecordBatch:
        return next(self.rows.table(*part).chunks(columns, part[1] - part[0]))

    def _buffer(self, batches: Sequence[pa.RecordBatch], taken: Slice, rest: Position) -> Buffer:
        """Shuffle the rows of a buffer; the first row of it, which no other buffer has, is part of the seed."""
        rng = seeded(self.position.seed, self.position.epoch, taken.parts[0][0])
        numbers = np.concatenate([np.arange(*part) for part in taken.parts])
        order = rng.permutation(len(numbers))[taken.begin : taken.end]
        columns = [pa.concat_arrays(list(parts)) for parts in zip(*(batch.columns for batch in batches), strict=True)]
        whole = pa.RecordBatch.from_arrays(columns, schema=batches[0].schema)
        return Buffer(whole.take(to_arrow(order)), numbers[order], taken, rest)


class _Cursor:
    """Reads a range of rows in order."""

    def __init__(self, rows: ParquetRows, part: Range, columns: Sequence[str]) -> None:
        self.rest = part
        self._batches = rows.table(*part).chunks(columns, READ_ROWS)
        self._batch: pa.RecordBatch | None = None

    @property
    def is_done(self) -> bool:
        return self.rest[0] == self.rest[1]

    def take(self, most: int) -> tuple[Range, pa.RecordBatch]:
        """Return at least one and at most `most` rows, with their range."""
        if self._batch is None:
            self._batch = next(self._batches)
        part, left = self._batch.slice(0, most), self._batch.slice(most)
        self._batch = left if left.num_rows else None
        taken = (self.rest[0], self.rest[0] + part.num_rows)
        self.rest = (taken[1], self.rest[1])
        return taken, part


def plan_shares(
    rows: ParquetRows, n_processes: int, *, seed: int, epoch: int, position: Position | None = None
) -> list[Share]:
    """Divide the rows of an epoch, or those that are left of it, among processes.

    Every row is in one share, and shares differ by at most one row. If there are fewer rows than processes, such as at
    the end of an epoch, some shares are empty.

    Parameters
    ----------
    rows : ParquetRows
        All rows.
    n_processes : int
        Number of processes.
    seed, epoch : int
        The order of the blocks depends on them, and on nothing else.
    position : Position, optional
        What is left of the epoch, from any number of processes; everything by default.
    """
    if n_processes < 1:
        raise ValueError(f"n_processes must be at least 1, got {n_processes}")
    whole = Position(rows.fingerprint, seed, epoch, ranges=rows.blocks) if position is None else position
    _check_position(rows, seed, epoch, whole)
    ordered = replace(whole, ranges=_shuffled(rows, seed, epoch, whole.ranges))
    first = np.concatenate([[0], np.cumsum([_size(item) for item in ordered.items], dtype=np.int64)])
    bounds = [int(first[-1]) * process // n_processes for process in range(n_processes + 1)]
    return [Share(rows, _cut(ordered, first, begin, end)) for begin, end in pairwise(bounds)]


def _check_position(rows: ParquetRows, seed: int, epoch: int, position: Position) -> None:
    if position.fingerprint != rows.fingerprint:
        raise ValueError(
            "the files differ from the files of the checkpoint in names, contents or columns; "
            "resume with the same files, or start a new run"
        )
    if (position.seed, position.epoch) != (seed, epoch):
        raise ValueError(
            f"the position is of seed {position.seed} and epoch {position.epoch}, not of seed {seed} and epoch {epoch}"
        )
    parts = [part for item in position.slices for part in item.parts]
    inside = all(0 <= a < b <= rows.n_rows for a, b in (*parts, *position.ranges))
    ordered = sorted(position.ranges)
    apart = all(a[1] <= b[0] for a, b in pairwise(ordered))
    sizes = [sum(b - a for a, b in item.parts) for item in position.slices]
    fits = all(0 <= s.begin < s.end <= size for s, size in zip(position.slices, sizes, strict=True))
    if not (inside and apart and fits):
        raise ValueError("the position in the data is damaged; use an earlier checkpoint")


def _shuffled(rows: ParquetRows, seed: int, epoch: int, ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Sort ranges by the place of their block in the order of the epoch."""
    given = sorted(ranges)
    if not given:
        return ()
    place = np.argsort(seeded(seed, epoch).permutation(len(rows.blocks)))
    block = np.searchsorted([first for first, _ in rows.blocks], [first for first, _ in given], "right") - 1
    return tuple(given[i] for i in np.argsort(place[block], kind="stable"))


def _cut(position: Position, first: Int64Array, begin: int, end: int) -> Position:
    """Return the rows of a position from `begin` to `end`; `first` has where its items begin."""
    slices: list[Slice] = []
    ranges: list[Range] = []
    if begin == end:
        return replace(position, slices=(), ranges=())
    some = range(int(np.searchsorted(first, begin, "right")) - 1, int(np.searchsorted(first, end)))
    for item, at in ((position.item(i), int(first[i])) for i in some):
        low, high = max(begin - at, 0), min(end - at, _size(item))
        if isinstance(item, Slice):
            slices.append(item._replace(begin=item.begin + low, end=item.begin + high))
        else:
            ranges.append((item[0] + low, item[0] + high))
    return replace(position, slices=tuple(slices), ranges=tuple(ranges))


def _size(item: Slice | Range) -> int:
    return item.end - item.begin if isinstance(item, Slice) else item[1] - item[0]
