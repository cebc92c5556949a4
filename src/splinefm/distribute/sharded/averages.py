"""Moving averages of tables that are divided among ranks."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor

from splinefm.distribute.sharded.model import PIECE_ROWS, ParallelModel

# How often in an epoch. The backward pass updates large tables, so that averages are not taken step by step; between
# two times, the average of the CPU engine moves by an eighth of its way.
TIMES = 16


class Averages:
    """The averages of `Training.average`, over about half an epoch: a second copy of the tables on each rank.

    Parameters
    ----------
    model : ParallelModel
        The model, with its initial values.
    steps_per_epoch : int
        Steps over which a weight falls to e⁻².
    """

    def __init__(self, model: ParallelModel, steps_per_epoch: int) -> None:
        self.decay = min(math.exp(-2.0 / steps_per_epoch), 0.9999)
        self.every = max(1, steps_per_epoch // TIMES)
        self.number = 0
        """The step of the last update."""
        tables = {name: values for name, values in model.parallel.state_dict().items() if name.startswith("bags.")}
        self.tensors = {f"average.{name}": _copy(values) for name, values in tables.items()}
        """The averages, as tensors that checkpoints read in place."""
        self._pairs = [
            pair for name, values in tables.items() for pair in _pairs(values, self.tensors[f"average.{name}"])
        ]

    def after_step(self, number: int) -> None:
        """Update the averages if it is time, given the number of steps so far."""
        if number - self.number >= self.every:
            self.update(number)

    def update(self, number: int) -> None:
        """Let the averages follow the tables for the steps since the last update."""
        share = 1.0 - self.decay ** (number - self.number)
        self.number = number
        if share:
            for values, average in self._pieces():
                average.lerp_(values, share)

    @contextmanager
    def in_place(self, number: int) -> Iterator[None]:
        """The model with its averages, after some number of steps."""
        self.update(number)
        self.swap()
        yield
        self.swap()

    def swap(self) -> None:
        """Exchange the tables with their averages."""
        for values, average in self._pieces():
            before = values.clone()
            values.copy_(average)
            average.copy_(before)

    def _pieces(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for values, average in self._pairs:
            yield from zip(values.split(PIECE_ROWS), average.split(PIECE_ROWS), strict=True)


def _copy(values: Any) -> Any:
    """A copy of a table, divided as the table is."""
    if not isinstance(values, ShardedTensor):
        return values.detach().clone()
    shards = [Shard(shard.tensor.detach().clone(), shard.metadata) for shard in values.local_shards()]
    return ShardedTensor._init_from_local_shards_and_global_metadata(
        shards, values.metadata(), process_group=values._process_group
    )


def _pairs(values: Any, average: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """The parts of a table in this process, with their averages."""
    if not isinstance(values, ShardedTensor):
        return [(values.detach(), average)]
    parts = zip(values.local_shards(), average.local_shards(), strict=True)
    return [(mine.tensor.detach(), its.tensor) for mine, its in parts]
