"""Batches of a process: encoded rows as tensors, prefetched, in step with those of all other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
from torchrec import KeyedJaggedTensor
from torchrec.streamable import Pipelineable

from splinefm._arrays import BoolArray, Float32Array, FloatArray, Int32Array, Int64Array
from splinefm._parallel import prefetch
from splinefm.distribute.processes import Processes
from splinefm.distribute.rows import Buffer, Position, Share
from splinefm.distribute.tables import ShardedTable, unit_key
from splinefm.encode.slots import SlotLayout, Slots, empty_slots, offsets
from splinefm.encode.tables.arrow import to_arrow
from splinefm.train.rows import Chunk


@dataclass
class Batch(Pipelineable):
    """Rows of one process in one step."""

    features: KeyedJaggedTensor  # the features of each unit in each row, with weights
    y: torch.Tensor  # standardized targets
    weight: torch.Tensor
    # One over the number of times that a feature is expected in a batch of all processes in which it is active.
    shares: torch.Tensor
    total: torch.Tensor  # the sum of the weights on all processes
    offset: torch.Tensor | None = None  # what is added to the scores

    def to(self, device: torch.device, non_blocking: bool = False) -> Batch:
        """The batch on a device."""
        moved = (tensor.to(device=device, non_blocking=non_blocking) for tensor in self._others)
        return Batch(self.features.to(device=device, non_blocking=non_blocking), *moved)

    def record_stream(self, stream: Any) -> None:
        """Keep the memory until a stream is done with it."""
        self.features.record_stream(stream)
        for tensor in self._others:
            tensor.record_stream(stream)

    def pin_memory(self) -> Batch:
        """The batch in pinned memory, from which copies to a GPU are asynchronous."""
        return Batch(self.features.pin_memory(), *(tensor.pin_memory() for tensor in self._others))

    @property
    def _others(self) -> list[torch.Tensor]:
        """The tensors beside the features; the offset is the last one, if there is one."""
        own = [self.y, self.weight, self.shares, self.total]
        return own if self.offset is None else [*own, self.offset]


class BatchMaker:
    """Turns encoded rows into batches."""

    def __init__(
        self,
        layout: SlotLayout,  # layout of the slots
        tables: list[ShardedTable],  # the tables of the fields
        counts: tuple[FloatArray, ...],  # for each field, the training rows in which each of its features is active
        n_rows: int,
        batch_size: int,  # rows of all processes in a step
    ) -> None:
        self.layout, self.batch_size, self.n_rows = layout, batch_size, max(1, n_rows)
        width = np.diff(layout.weight_ptr)
        field = layout.unit_field[layout.window_unit]
        order = np.argsort(layout.window_unit, kind="stable")  # windows of a unit side by side
        columns = [np.arange(layout.weight_ptr[w], layout.weight_ptr[w + 1]) for w in order]
        self._columns = np.concatenate(columns)
        self._window = np.repeat(np.arange(layout.n_windows), width)[self._columns]
        inside = np.arange(layout.n_weights) - np.repeat(layout.weight_ptr[:-1], width)
        self._inside = (inside - np.repeat(layout.feature_ptr[field], width))[self._columns].astype(np.int32)
        self._sizes = np.bincount(layout.window_unit, weights=width, minlength=layout.n_units).astype(int)
        self._ends = offsets(self._sizes).tolist()
        self._in_order = bool((np.diff(self._columns) == 1).all())
        self.keys = [unit_key(unit) for unit in range(layout.n_units)]
        large = [(unit, f) for f, table in enumerate(tables) if not table.small for unit in table.units]
        self.large_units = [unit for unit, _ in large]
        self._counts = [counts[f] for _, f in large]
        # Weights of zero are padding of lists; sending them to other processes costs as much as those that count.
        self._sparse = {unit for unit, _ in large if self._sizes[unit] > 1}

    def __call__(self, chunk: Chunk, rows: Int64Array, size: int) -> Batch:
        """Return a batch of some rows of a chunk, filled up to `size` rows with rows of weight zero."""
        slots, missing = chunk.slots[rows], size - len(rows)
        y, weight = chunk.y[rows], chunk.sample_weight[rows]
        if missing:
            slots = _padded(slots, missing)
            y, weight = np.pad(y, (0, missing), constant_values=1.0), np.pad(weight, (0, missing))
        features, shares = self.features(slots)
        shares[len(rows) :] = 0.0
        return Batch(
            features,
            torch.from_numpy(y.astype(np.float32)),
            torch.from_numpy(weight.astype(np.float32)),
            torch.from_numpy(shares),
            torch.zeros(1),
            None if slots.offset is None else torch.from_numpy(slots.offset),
        )

    def features(self, slots: Slots) -> tuple[KeyedJaggedTensor, Float32Array]:
        """Return the features of every unit, and the shares of `Batch`."""
        index = slots.start[:, self._window] + self._inside
        weight = slots.weight if self._in_order else slots.weight[:, self._columns]
        n, parts, weights, lengths = len(slots), [], [], []
        shares = np.ones((n, len(self.large_units)), np.float32)
        large = {unit: at for at, unit in enumerate(self.large_units)}
        for unit, (begin, end) in enumerate(pairwise(self._ends)):
            own, own_weight = index[:, begin:end], weight[:, begin:end]
            if unit in large:
                shares[:, large[unit]] = self._shares(own[:, 0], self._counts[large[unit]])
            if unit in self._sparse:
                used = own_weight != 0.0
                lengths.append(used.sum(1, dtype=np.int32))
                own, own_weight = own[used], own_weight[used]
            else:
                lengths.append(np.full(n, end - begin, np.int32))
            parts.append(own.ravel())
            weights.append(own_weight.ravel())
        features = KeyedJaggedTensor(
            self.keys,
            torch.from_numpy(np.concatenate(parts, dtype=np.int64)),
            weights=torch.from_numpy(np.concatenate(weights)),
            lengths=torch.from_numpy(np.concatenate(lengths)),
        )
        return features, shares

    def _shares(self, features: Int32Array, counts: FloatArray) -> Float32Array:
        """1 / E[occurrences in a batch | at least one], for the first feature of a unit in each row."""
        rate = np.clip(counts[features] / self.n_rows, 1e-12, 0.999999)
        active = -np.expm1(self.batch_size * np.log1p(-rate))
        return np.asarray(active / (self.batch_size * rate), np.float32)


def _padded(slots: Slots, missing: int) -> Slots:
    """Slots with more rows, of the first feature of each window's field with weight zero."""
    layout = slots.layout
    first = layout.feature_ptr[layout.unit_field[layout.window_unit]]
    start = np.concatenate([slots.start, np.tile(first.astype(np.int32), (missing, 1))])
    weight = np.concatenate([slots.weight, np.zeros((missing, layout.n_weights), np.float32)])
    offset = None if slots.offset is None else np.pad(slots.offset, (0, missing))
    return Slots(start, weight, layout, offset)


# Batches that wait for the model, on each process.
PREFETCHED = 4

Encode = Callable[[Any], Chunk]
IsHeldOut = Callable[[Int64Array], BoolArray]


class LocalBatch(NamedTuple):
    """A batch of this process, its rows and their loss floor, and what is left of the share after it."""

    batch: Batch
    n_rows: int
    floor: float
    position: Callable[[], Position]


class StepRequest(NamedTuple):
    """What a process asks of all processes after a step: a checkpoint, or the end of the run."""

    checkpoint: bool
    end: bool = False


class Step(NamedTuple):
    """A step of all processes."""

    batch: Batch  # the rows of this process; rows of weight zero if it has none left
    n_rows: int  # rows of all processes
    position: Callable[[], Position]  # what is left of the share of this process after the step
    checkpoint: bool  # whether some process asks for a checkpoint after this step
    end: bool  # whether some process asks to end the run after this step
    floor: float  # the floor of the loss of the rows of this process


@dataclass(frozen=True)
class Feed:
    """Reads and encodes the rows of a process."""

    columns: list[str]  # the columns to read
    encode: Encode  # from a record batch to a chunk
    is_held_out: IsHeldOut  # whether rows, given their numbers, are validation rows
    maker: BatchMaker  # from chunks to batches
    size: int
    floor: Callable[[FloatArray, FloatArray], float]  # the floor of the loss of some rows

    def batch(self, chunk: Chunk | None, rows: Int64Array) -> Batch:
        """A batch of some rows of a chunk, filled up with rows of weight zero; all of them without a chunk."""
        nothing = Chunk(empty_slots(0, self.maker.layout), np.zeros(0), np.zeros(0))
        return self.maker(nothing if chunk is None else chunk, rows, self.size)

    def batches(self, share: Share) -> Iterator[LocalBatch]:
        """Yield the batches of a share."""
        for buffer in share.buffers(self.columns):
            yield from self._cut(buffer)

    def _cut(self, buffer: Buffer) -> Iterator[LocalBatch]:
        kept = np.flatnonzero(~self.is_held_out(buffer.numbers))
        batch = buffer.batch if len(kept) == len(buffer.numbers) else buffer.batch.take(to_arrow(kept))
        if not len(kept):
            return
        chunk, after = self.encode(batch), np.append(kept[1:], len(buffer.numbers))
        for at in range(0, len(kept), self.size):
            rows = np.arange(at, min(at + self.size, len(kept)))
            n_done = int(after[rows[-1]])

            def position(buffer: Buffer = buffer, n_done: int = n_done) -> Position:
                return buffer.position(n_done)

            floor = self.floor(chunk.y[rows], chunk.sample_weight[rows])
            yield LocalBatch(self.maker(chunk, rows, self.size), len(rows), floor, position)

    def steps(self, share: Share, processes: Processes, request: Callable[[], StepRequest]) -> Iterator[Step]:
        """Yield the steps of an epoch, until no process has rows left.

        A process without rows takes part with rows of weight zero. The weight of all rows of a step, which the loss is
        divided by, is summed over processes while the step before is computed.
        """
        feeds = prefetch(self.batches(share), PREFETCHED)
        end = Position(share.position.fingerprint, share.position.seed, share.position.epoch)
        upcoming = self._announce(next(feeds, None), processes, request, end)
        try:
            while True:
                fed, facts, work = upcoming
                if work is not None:
                    work.wait()
                weight, n_rows, wanted, ends = facts.tolist()
                if not n_rows:
                    return
                fed.batch.total[:] = weight
                upcoming = self._announce(next(feeds, None), processes, request, end)
                batch = fed.batch.to(processes.device)
                yield Step(batch, int(n_rows), fed.position, wanted > 0.0, ends > 0.0, fed.floor)
        finally:
            feeds.close()

    def _announce(
        self, fed: LocalBatch | None, processes: Processes, request: Callable[[], StepRequest], end: Position
    ) -> tuple[LocalBatch, torch.Tensor, Any]:
        """Begin to sum what all processes have in their next step."""
        fed = fed or LocalBatch(self.batch(None, np.arange(0)), 0, 0.0, lambda: end)
        weight = float(fed.batch.weight.sum(dtype=torch.float64))
        facts = torch.tensor([weight, fed.n_rows, *map(float, request())], dtype=torch.float64)
        work = dist.all_reduce(facts, group=processes.group, async_op=True) if processes.count > 1 else None
        return fed, facts, work
