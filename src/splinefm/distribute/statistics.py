"""Statistics of a share of a table, merged exactly: what the encoder and the loss are fitted to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from splinefm._arrays import FloatArray
from splinefm._parallel import prefetch
from splinefm.distribute.rows import ParquetRows
from splinefm.encode.encoder import CHUNK, Encoder, EncoderStatistics
from splinefm.encode.fields.cross import CrossStatistics
from splinefm.encode.fields.numerical import NumericalStatistics
from splinefm.encode.schema import Schema
from splinefm.encode.transforms.sketch import QuantileSketch
from splinefm.train.losses import Loss
from splinefm.train.offsets import Offset
from splinefm.train.rows import MAX_VALIDATION_ROWS, LabeledTable, ValidationSample, row_randoms
from splinefm.train.target_summary import (
    Moments,
    TargetSample,
    TargetSummary,
    moments_of,
    needs_sample,
    sampled,
)
from splinefm.train.targets import Classes, Label, as_classes, class_totals, distinct_labels, holds_shares

# Sums whose rounding does not depend on who adds what: parts are added in a fixed tree.

_Part = TypeVar("_Part")


@dataclass
class MergeTree(Generic[_Part]):
    """Values of numbered blocks, joined in pairs: 0 with 1, 2 with 3, then 0-1 with 2-3, and so on.

    Two processes that have neighboring blocks and merge what they have get what one process has: every pair is joined
    once, the left one with the right one. At most two values per level of the tree wait for their neighbor.

    Parameters
    ----------
    join : callable
        Joins a value with the value of the blocks after it.

    Examples
    --------
    >>> first, second = MergeTree(lambda a, b: f"({a}{b})"), MergeTree(lambda a, b: f"({a}{b})")
    >>> for block, letter in enumerate("abcde"):
    ...     (first if block < 3 else second).add(block, letter)
    >>> first.merge(second)
    >>> first.values()
    ['((ab)(cd))', 'e']
    """

    join: Callable[[_Part, _Part], _Part]
    waiting: dict[tuple[int, int], _Part] = field(default_factory=dict)
    """Values by level and number: number i of level l stands for the blocks from i 2^l to (i + 1) 2^l - 1."""

    def add(self, block: int, value: _Part) -> None:
        """Add the value of a block."""
        self._put(0, block, value)

    def merge(self, other: MergeTree[_Part]) -> None:
        """Add the values of other blocks."""
        for (level, number), value in sorted(other.waiting.items(), key=lambda item: item[0]):
            self._put(level, number, value)

    def values(self) -> list[_Part]:
        """Return what is not joined, in the order of the blocks; at most one value per level if blocks begin at 0."""
        return [value for _, value in sorted(self.waiting.items(), key=lambda item: item[0][1] << item[0][0])]

    def _put(self, level: int, number: int, value: _Part) -> None:
        if (level, number) in self.waiting:
            raise ValueError(f"block {number << level} was added twice")
        neighbor = self.waiting.pop((level, number ^ 1), None)
        if neighbor is None:
            self.waiting[level, number] = value
        elif number % 2:
            self._put(level + 1, number // 2, self.join(neighbor, value))
        else:
            self._put(level + 1, number // 2, self.join(value, neighbor))


# Statistics of a share of a table: what the encoder and the loss are fitted to, the same for any number of processes.
#
# The table is divided into blocks of the same number of rows, wherever the row groups are. A process reads neighboring
# blocks. Counts are exact in any order. Quantile sketches and sums of numbers, which are rounded, are joined in a fixed
# tree over the blocks, so that the result is the same to the bit, however the blocks are divided.

# Maximum number of times that the share of validation rows is halved.
HALVINGS = 40


@dataclass(frozen=True)
class Scan:
    """What to collect: the same on all processes.

    Parameters
    ----------
    schema : Schema
        The fields.
    loss : Loss, optional
        The loss to fit, with its classes; without it, targets are not read.
    target, sample_weight : str, optional
        Columns.
    offset : Offset, optional
        The column that is a known part of the score.
    validation : float
        Share of rows to hold out.
    seed : int
        Decides which rows are held out.
    block : int
        Rows per block, at most.
    """

    schema: Schema
    loss: Loss | None = None
    target: str | None = None
    sample_weight: str | None = None
    validation: float = 0.0
    seed: int = 0
    block: int = CHUNK
    offset: Offset | None = None

    def __post_init__(self) -> None:
        if (self.loss is None) != (self.target is None):
            raise ValueError("a scan needs both a loss and a target, or none of them")
        if not 0.0 <= self.validation < 1.0:
            raise ValueError(f"validation must be a share of at least 0 and below 1, got {self.validation}")

    def source(self, table: object) -> LabeledTable:
        """Return a table with its columns."""
        loss = self.loss or Loss()
        known = (loss.classes, loss.class_weights)
        return LabeledTable(self.schema, self.target or "", self.sample_weight, table, *known, offset=self.offset)

    @property
    def columns(self) -> list[str]:
        """The columns to read."""
        others = (self.target, self.sample_weight, None if self.offset is None else self.offset.column)
        return list(dict.fromkeys([*self.schema.columns, *(name for name in others if name)]))


class ShareStatistics:
    """Statistics of neighboring blocks of a table; the statistics of the table are merged from all processes'.

    Parameters
    ----------
    scan : Scan
        What to collect.
    begin : int
        Number of the first block.
    threads : int, optional
        Columns to read at the same time.

    Attributes
    ----------
    end : int
        Number of the block after the last one.
    n_rows : int
        Rows.
    """

    def __init__(self, scan: Scan, begin: int = 0, threads: int | None = None) -> None:
        self.scan, self.begin, self.end, self.threads = scan, begin, begin, threads
        self.counts = EncoderStatistics(scan.schema, threads)
        self.sketches = [MergeTree(_join_sketches) for _ in numerical_parts(self.counts.fields)]
        self.moments: MergeTree[Moments] = MergeTree(Moments.merge)
        self.totals: MergeTree[FloatArray] = MergeTree(np.add)
        self.sample = TargetSample()
        self.held_out = np.zeros(HALVINGS, np.int64)
        """Rows that would be held out for the share of the scan, half of it, a quarter of it, and so on."""

    @property
    def n_rows(self) -> int:
        """Rows of the blocks."""
        return self.counts.n_rows

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next block, which has at most as many rows as the scan says.

        Row i of block b has the number b × `Scan.block` + i, which decides if it is held out.
        """
        first = self.end * self.scan.block
        if not 0 < batch.num_rows <= self.scan.block:
            raise ValueError(f"a block must have from 1 to {self.scan.block:,} rows, got {batch.num_rows:,}")
        if self.scan.loss is not None:
            self._add_targets(first, batch, self.scan.loss)
        piece = EncoderStatistics(self.scan.schema, self.threads)
        piece.update(batch.select(self.scan.schema.columns))
        for tree, statistics in zip(self.sketches, numerical_parts(piece.fields), strict=True):
            tree.add(self.end, statistics.sketch)
            statistics.sketch = QuantileSketch()
        self.counts.merge(piece)
        if self.scan.validation:
            randoms = row_randoms(self.scan.seed, np.arange(first, first + batch.num_rows))
            levels = self.scan.validation * 0.5 ** np.arange(HALVINGS)
            self.held_out += np.searchsorted(np.sort(randoms), levels)
        self.end += 1

    def _add_targets(self, first: int, batch: pa.RecordBatch, loss: Loss) -> None:
        source = self.scan.source(batch)
        y, weight = source.targets(batch)
        loss.check(y)
        offset = source.offsets(batch, self.begin * self.scan.block + self.n_rows)
        self.moments.add(self.end, moments_of(loss, y, weight, offset))
        if needs_sample(loss, offset is not None):
            self.sample.add(first, *sampled(loss, y, weight, offset))
        if loss.link == "softmax":
            self.totals.add(self.end, class_totals(y, weight, loss.n_outputs))

    def merge(self, other: ShareStatistics) -> None:
        """Add the statistics of the blocks that follow."""
        if other.scan != self.scan:
            raise ValueError(
                f"statistics can be merged only if all processes collect the same; {_difference(self, other)}"
            )
        if other.begin == other.end:
            return
        if self.begin == self.end:
            self.begin = self.end = other.begin
        if other.begin != self.end:
            raise ValueError(
                f"statistics of blocks {self.begin} to {self.end - 1} cannot be followed by statistics of blocks "
                f"{other.begin} to {other.end - 1}; merge all processes, in their order, each once"
            )
        self.counts.merge(other.counts)
        for mine, theirs in zip(self.sketches, other.sketches, strict=True):
            mine.merge(theirs)
        self.moments.merge(other.moments)
        self.totals.merge(other.totals)
        self.sample.merge(other.sample)
        self.held_out += other.held_out
        self.end = other.end

    def encoder(self) -> Encoder:
        """Return the encoder that the statistics of the whole table determine."""
        return self.whole().encoder()

    def whole(self) -> EncoderStatistics:
        """Return the statistics of the whole table; `Encoder.extended` takes them, too."""
        self._check_whole()
        whole = EncoderStatistics(self.scan.schema, self.threads)
        whole.merge(self.counts)
        for statistics, tree in zip(numerical_parts(whole.fields), self.sketches, strict=True):
            for sketch in tree.values():
                statistics.sketch.merge(sketch)
        return whole

    def targets(self) -> TargetSummary:
        """Return what the loss is fitted to."""
        self._check_whole()
        if self.scan.loss is None:
            raise ValueError("these statistics have no targets; give the scan a loss and a target")
        summary = TargetSummary(self.scan.loss, self.scan.offset is not None)
        summary.n_rows, summary.sample = self.n_rows, self.sample
        for moments in self.moments.values():
            summary.moments = summary.moments.merge(moments)
        for totals in self.totals.values():
            summary.totals = summary.totals + totals
        return summary

    def validation_share(self, most: int = MAX_VALIDATION_ROWS) -> float:
        """Return the share of rows to hold out: the scan's, halved until there are at most `most` such rows."""
        self._check_whole()
        fits = np.flatnonzero(self.held_out <= most)
        return self.scan.validation * 0.5 ** int(fits[0] if len(fits) else HALVINGS)

    def validation_rows(self, most: int = MAX_VALIDATION_ROWS) -> int:
        """Return how many rows of the table are held out."""
        fits = np.flatnonzero(self.held_out <= most)
        return int(self.held_out[fits[0]]) if len(fits) else 0

    def _check_whole(self) -> None:
        if self.begin:
            raise ValueError(f"blocks 0 to {self.begin - 1} are missing; merge the statistics of all processes")


def collect_statistics(
    rows: ParquetRows,
    scan: Scan,
    process: int = 0,
    n_processes: int = 1,
    *,
    threads: int | None = None,
    keep: ValidationSample | None = None,
) -> ShareStatistics:
    """Collect the statistics of the share of one process, in one pass over it.

    Parameters
    ----------
    rows : ParquetRows
        All rows.
    scan : Scan
        What to collect.
    process, n_processes : int
        The index of this process, from 0, and the number of processes.
    threads : int, optional
        Columns to read at the same time; all cores by default.
    keep : ValidationSample, optional
        Keeps the rows of this share that are held out; lower its share at the end.
    """
    begin, end = statistics_blocks(rows.n_rows, process, n_processes, scan.block)
    statistics = ShareStatistics(scan, begin, threads)
    rows.check_columns(scan.columns)
    table = rows.table(begin * scan.block, min(end * scan.block, rows.n_rows))
    for batch in prefetch(table.chunks(scan.columns, scan.block)):
        if keep is not None:
            keep.add(statistics.end * scan.block, batch)
        statistics.add(batch)
    return statistics


def statistics_blocks(n_rows: int, process: int, n_processes: int, block: int = CHUNK) -> tuple[int, int]:
    """Return the first block of a process and the one after its last.

    Examples
    --------
    >>> [statistics_blocks(1000, process, 3, block=100) for process in range(3)]
    [(0, 3), (3, 6), (6, 10)]
    """
    if not 0 <= process < n_processes:
        raise ValueError(f"process must be from 0 to {n_processes - 1}, got {process}")
    n_blocks = -(-n_rows // block)
    return n_blocks * process // n_processes, n_blocks * (process + 1) // n_processes


def merge_statistics(parts: Sequence[ShareStatistics], n_rows: int | None = None) -> ShareStatistics:
    """Merge the statistics of all processes, in any order; raise if some are missing.

    Parameters
    ----------
    parts : sequence of ShareStatistics
        The statistics of all processes; the first one by block is changed.
    n_rows : int, optional
        Rows of the table, to check that nothing is missing at the end.
    """
    if not parts:
        raise ValueError("there are no statistics to merge")
    ordered = sorted(parts, key=lambda part: (part.begin, part.end))
    whole = ordered[0]
    for part in ordered[1:]:
        whole.merge(part)
    if n_rows is not None and whole.n_rows != n_rows:
        raise ValueError(f"the statistics are of {whole.n_rows:,} rows, but the table has {n_rows:,}")
    return whole


def collect_labels(
    rows: ParquetRows,
    target: str,
    process: int = 0,
    n_processes: int = 1,
    *,
    most: int = 2,
    shares: bool = True,
    block: int = CHUNK,
) -> set[Label] | None:
    """Return the labels in the share of one process, or None if targets are numbers between 0 and 1 and `shares`.

    The first block of the table decides for numbers, on all processes. There can be one label more than `most`, so that
    `merge_labels` raises an error.
    """
    rows.check_columns([target])
    if shares:
        first = next(rows.table(0, min(block, rows.n_rows)).chunks([target], block), None)
        if first is not None and holds_shares(first.column(0), target):
            return None
    begin, end = statistics_blocks(rows.n_rows, process, n_processes, block)
    found: set[Label] = set()
    for batch in rows.table(begin * block, min(end * block, rows.n_rows)).chunks([target], block):
        found |= distinct_labels(batch.column(0), target)
        if len(found) > most:
            break
    return found


def collect_totals(
    rows: ParquetRows, source: LabeledTable, process: int = 0, n_processes: int = 1, *, block: int = CHUNK
) -> FloatArray:
    """Return the total weight of every class in the share of one process; add up the totals of all processes."""
    columns = [source.target, *filter(None, [source.sample_weight])]
    rows.check_columns(columns)
    begin, end = statistics_blocks(rows.n_rows, process, n_processes, block)
    totals = np.zeros(len(source.classes or (0, 1)))
    for batch in rows.table(begin * block, min(end * block, rows.n_rows)).chunks(columns, block):
        y, weight = source.targets(batch)
        known = np.isfinite(y)  # the scan reports missing targets
        totals += class_totals(y[known], weight[known], len(totals))
    return totals


def merge_labels(found: Sequence[set[Label] | None], target: str, most: int = 2) -> Classes | None:
    """Return the classes, given the labels of all processes; None if targets are numbers between 0 and 1."""
    known = [labels for labels in found if labels is not None]
    return as_classes(set().union(*known), target, most) if known else None


def numerical_parts(fields: Sequence[Any]) -> Iterator[NumericalStatistics]:
    """Yield the statistics of all numerical columns, those in crosses included: they have sketches."""
    for statistics in fields:
        if isinstance(statistics, NumericalStatistics):
            yield statistics
        elif isinstance(statistics, CrossStatistics):
            yield from numerical_parts(statistics.parts)


def _join_sketches(left: QuantileSketch, right: QuantileSketch) -> QuantileSketch:
    joined = replace(left, levels=list(left.levels))
    joined.merge(right)
    return joined


def _difference(mine: ShareStatistics, other: ShareStatistics) -> str:
    names = ("loss", "target", "sample_weight", "validation", "seed", "block")
    for name in names:
        if getattr(mine.scan, name) != getattr(other.scan, name):
            return f"{name} is {getattr(mine.scan, name)!r} on one and {getattr(other.scan, name)!r} on another"
    return "their schemas differ"
