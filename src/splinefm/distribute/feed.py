"""Feed: the batches of a process, prefetched, in step with those of all other processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from splinefm._arrays import BoolArray, FloatArray, Int64Array
from splinefm._parallel import prefetch
from splinefm.distribute.batches import Batch, BatchMaker
from splinefm.distribute.processes import Processes
from splinefm.distribute.rows import Buffer, Position, Share
from splinefm.encode.slots import empty_slots
from splinefm.encode.tables.arrow import to_arrow
from splinefm.train.rows import Chunk

# Batches that wait for the model, on each process.
AHEAD = 4

Encode = Callable[[Any], Chunk]
IsHeldOut = Callable[[Int64Array], BoolArray]


class Fed(NamedTuple):
    """A batch of this process, its rows and their loss floor, and what is left of the share after it."""

    batch: Batch
    n_rows: int
    floor: float
    position: Callable[[], Position]


class Wants(NamedTuple):
    """What a process asks of all processes after a step: a checkpoint, or the end of the run."""

    checkpoint: bool
    end: bool = False


class Step(NamedTuple):
    """A step of all processes.

    Attributes
    ----------
    batch : Batch
        The rows of this process; rows of weight zero if it has none left.
    n_rows : int
        Rows of all processes.
    position : callable
        What is left of the share of this process after the step.
    wanted : bool
        Whether some process asks for a checkpoint after this step.
    ends : bool
        Whether some process asks to end the run after this step.
    floor : float
        The floor of the loss of the rows of this process.
    """

    batch: Batch
    n_rows: int
    position: Callable[[], Position]
    wanted: bool
    ends: bool
    floor: float


@dataclass(frozen=True)
class Feed:
    """Reads and encodes the rows of a process.

    Parameters
    ----------
    columns : list of str
        The columns to read.
    encode : callable
        From a record batch to a chunk.
    is_held_out : callable
        Whether rows, given their numbers, are validation rows.
    maker : BatchMaker
        From chunks to batches.
    size : int
        Rows per batch.
    floor : callable
        The floor of the loss of some rows.
    """

    columns: list[str]
    encode: Encode
    is_held_out: IsHeldOut
    maker: BatchMaker
    size: int
    floor: Callable[[FloatArray, FloatArray], float]

    def empty(self) -> Batch:
        """A batch without rows."""
        nothing = Chunk(empty_slots(0, self.maker.layout), np.zeros(0), np.zeros(0))
        return self.maker(nothing, np.arange(0), self.size)

    def batches(self, share: Share) -> Iterator[Fed]:
        """Yield the batches of a share."""
        for buffer in share.buffers(self.columns):
            yield from self._cut(buffer)

    def _cut(self, buffer: Buffer) -> Iterator[Fed]:
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
            yield Fed(self.maker(chunk, rows, self.size), len(rows), floor, position)

    def steps(self, share: Share, processes: Processes, wants: Callable[[], Wants]) -> Iterator[Step]:
        """Yield the steps of an epoch, until no process has rows left.

        A process without rows takes part with rows of weight zero. The weight of all rows of a step, which the loss is
        divided by, is summed over processes while the step before is computed.
        """
        feeds = prefetch(self.batches(share), AHEAD)
        end = end_of(share.position)
        upcoming = self._announce(next(feeds, None), processes, wants, end)
        try:
            while True:
                fed, facts, work = upcoming
                if work is not None:
                    work.wait()
                weight, n_rows, wanted, ends = facts.tolist()
                if not n_rows:
                    return
                fed.batch.total[:] = weight
                upcoming = self._announce(next(feeds, None), processes, wants, end)
                batch = fed.batch.to(processes.device)
                yield Step(batch, int(n_rows), fed.position, wanted > 0.0, ends > 0.0, fed.floor)
        finally:
            feeds.close()

    def _announce(
        self, fed: Fed | None, processes: Processes, wants: Callable[[], Wants], end: Position
    ) -> tuple[Fed, torch.Tensor, Any]:
        """Begin to sum what all processes have in their next step."""
        fed = fed or Fed(self.empty(), 0, 0.0, lambda: end)
        weight = float(fed.batch.weight.sum(dtype=torch.float64))
        facts = torch.tensor([weight, fed.n_rows, *map(float, wants())], dtype=torch.float64)
        work = dist.all_reduce(facts, group=processes.group, async_op=True) if processes.count > 1 else None
        return fed, facts, work


def end_of(position: Position) -> Position:
    """The position at the end of a share."""
    return Position(position.fingerprint, position.seed, position.epoch)
