"""The sharded model: TorchRec tables below, the formulas of the family above, one optimizer step for both."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor
from torchrec import KeyedTensor

from splinefm._arrays import Float32Array, FloatArray
from splinefm.distribute.batches import Batch, BatchMaker
from splinefm.distribute.optimizers import DenseOptimizer, penalties_of
from splinefm.distribute.processes import Processes
from splinefm.distribute.tables import (
    ShardedTable,
    VectorShape,
    check_optimizer,
    describe_plan,
    fuse_optimizer,
    make_bags,
    make_plan,
    make_tables,
    shard,
    share_beside_averages,
    unit_key,
)
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.model.family import AnyModel
from splinefm.model.family.parameters import pace_of
from splinefm.model.family.separation import columns_apart, keep_pairs_apart
from splinefm.model.optimizers import Group
from splinefm.model.torch.losses import row_losses
from splinefm.model.torch.model import unit_scores
from splinefm.train.losses import Loss
from splinefm.train.penalties import MIN_LENGTH

# Rows of a table that are handled at once, where a whole table would be too much.
PIECE_ROWS = 1 << 16


class ProcessModel(nn.Module):
    """Scores and loss of the batch of a process."""

    def __init__(
        self,
        model: AnyModel,
        layout: SlotLayout,
        loss: Loss,
        tables: list[ShardedTable],  # the tables of the fields
        shape: VectorShape,  # what their vectors hold
        n_processes: int,
    ) -> None:
        super().__init__()
        self.bags = make_bags(tables)
        self.formula = Formula(model, layout, loss, tables, shape, n_processes)

    def forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the objective of this process, and the scores."""
        return finish(self.formula, self.bags(batch.features), batch)


@torch.fx.wrap
def finish(formula: Formula, pooled: KeyedTensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """What follows the tables, as one step: pipelines look for tables in what is before it."""
    return formula(pooled, batch)


class Formula(nn.Module):
    """From unit vectors to scores and losses."""

    def __init__(
        self,
        model: AnyModel,
        layout: SlotLayout,
        loss: Loss,
        tables: list[ShardedTable],
        shape: VectorShape,
        n_processes: int,
    ) -> None:
        super().__init__()
        self.model, self.layout, self.loss, self.shape, self.n_processes = model, layout, loss, shape, n_processes
        n_fields = len(layout.fields)
        self.bias = nn.Parameter(torch.zeros(shape.outputs))
        shapes = model.field_shapes(n_fields)
        self.between = nn.ParameterDict(
            {name: nn.Parameter(torch.zeros(shape.outputs, *own)) for name, own in shapes.items()}
        )
        self.large_units = [unit for table in tables if not table.small for unit in table.units]
        self.l2 = torch.zeros(3, len(self.large_units))  # of factors, of those for products of three, of linear weights
        self._order: torch.Tensor | None = None

    def forward(self, pooled: KeyedTensor, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the objective of this process, whose mean over processes is the step's, and the scores."""
        vectors = self._units(pooled)
        scores = self.scores(vectors)
        if batch.offset is not None:
            scores = scores + batch.offset
        losses = row_losses(self.loss, scores, batch.y)
        objective = (self.n_processes / batch.total.clamp_min(1e-30)) * (batch.weight * losses).sum()
        return (objective + self.n_processes * self._penalty(vectors, batch.shares)).sum(), torch.cat(
            [losses.detach().unsqueeze(-1), scores.detach().reshape(len(losses), -1)], 1
        )

    def scores(self, vectors: torch.Tensor) -> torch.Tensor:
        """Scores of shape (n,), or (n, outputs), from unit vectors of shape (n, units, dim)."""
        factors, linear = self.shape.split(vectors)
        outputs = [
            unit_scores(
                self.model,
                factors[c],
                self.bias[c] + linear[c].sum(1),
                {name: values[c] for name, values in self.between.items()},
                self.layout,
            )
            for c in range(self.shape.outputs)
        ]
        return outputs[0] if len(outputs) == 1 else torch.stack(outputs, 1)

    def _units(self, pooled: KeyedTensor) -> torch.Tensor:
        """Unit vectors in the order of units: TorchRec orders them by the kind of sharding."""
        values = pooled.values()
        vectors = values.reshape(len(values), self.layout.n_units, self.shape.dim)
        if self._order is None:
            place = {key: at for at, key in enumerate(pooled.keys())}
            order = [place[unit_key(unit)] for unit in range(self.layout.n_units)]
            self._order = torch.tensor(order, device=values.device)
        return vectors[:, self._order]

    def _penalty(self, vectors: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
        """½ l2 |v|² for every feature of a large table that is active in a batch, in expectation.

        The optimizer of large tables is fused into the backward pass, so that the gradient has to come from there.
        """
        if not self.large_units:
            return vectors.new_zeros(())
        factors, linear = self.shape.split(vectors[:, self.large_units])
        end = factors.shape[-1] - self.model.third
        squares = (factors[..., :end].square().sum((0, -1)), factors[..., end:].square().sum((0, -1)))
        each = self.l2[0] * squares[0] + self.l2[1] * squares[1] + self.l2[2] * linear.square().sum(0)
        return 0.5 * (shares * each).sum()


class ParallelModel:
    """A model whose tables are divided among processes."""

    def __init__(
        self,
        model: AnyModel,
        layout: SlotLayout,
        loss: Loss,
        groups: list[list[Group]],  # penalties: for each field, groups that cover its features in order
        processes: Processes,
        batch_size: int,  # rows of all processes in a step
        optimizer: str = "adagrad",  # the optimizer of large tables, fused into the backward pass
        averaged: bool = False,  # leave memory for averages
    ) -> None:
        check_optimizer(optimizer, processes.device.type)
        self.model, self.layout, self.loss, self.groups, self.processes = model, layout, loss, groups, processes
        self.shape = VectorShape(loss.n_outputs, model.width(len(layout.fields)))
        self.tables = make_tables(layout, groups, self.shape)
        self.batch_size = batch_size
        self.rows_per_process = -(-batch_size // processes.count)
        module = ProcessModel(model, layout, loss, self.tables, self.shape, processes.count)
        fuse_optimizer(module.bags, self.tables, optimizer, 0.0)
        share = share_beside_averages(optimizer) if averaged else 1.0
        self.plan = make_plan(module, "bags", self.tables, layout.names, self.rows_per_process, processes, share)
        self.parallel = shard(module, self.plan, processes)
        self.formula: Formula = self.parallel.module.formula
        self.penalties = np.zeros((4, sum(map(len, groups))))
        """The penalties of all groups: L2 of vectors, of coordinates of triples, of linear weights; smoothness."""
        self.formula.l2 = self.formula.l2.to(processes.device)
        weights = {name.split(".")[-2]: p for name, p in self.parallel.named_parameters() if name.startswith("bags.")}
        self.small = {table.name: weights[table.name] for table in self.tables if table.small}
        self.dense = DenseOptimizer(self.tables, self.small, self.groups, self.formula, self.shape, model)

    def describe(self) -> str:
        """The plan as text."""
        return describe_plan(self.plan, self.tables, self.layout.names)

    def batch_maker(self, counts: tuple[FloatArray, ...], n_rows: int) -> BatchMaker:
        """Return what turns encoded rows into batches of this model."""
        return BatchMaker(self.layout, self.tables, counts, n_rows, self.batch_size)

    def set_rate(self, learning_rate: float, large: float) -> None:
        """Set the learning rates of the next step."""
        self.dense.learning_rate = learning_rate
        for group in self.parallel.fused_optimizer.param_groups:
            group["lr"] = large
        self.parallel.fused_optimizer.step()  # which only hands over the rate

    def step(self, batch: Batch) -> torch.Tensor:
        """Take a step; return losses and scores of the rows of this process before it."""
        self.dense.zero_grad()
        objective, measured = self.parallel(batch)
        objective.backward()
        self.dense.step()
        return measured

    def evaluate(self, batch: Batch) -> torch.Tensor:
        """Losses and scores of the rows of this process; all processes must call it."""
        with torch.no_grad():
            return self.parallel(batch)[1]

    def scores(self, slots: Slots) -> Float32Array:
        """Scores of the rows of this process; all processes must call it, with the same number of rows."""
        maker = self.batch_maker(tuple(np.ones(field.n_features) for field in self.layout.fields), 1)
        features, shares = maker.features(slots)
        ones = torch.ones(len(slots))
        batch = Batch(features, ones, ones, torch.from_numpy(shares), torch.ones(1)).to(self.processes.device)
        scores = self.evaluate(batch)[:, 1:].cpu().numpy()
        return slots.add_offset(scores[:, 0]) if self.shape.outputs == 1 else scores

    def local_rows(self) -> Iterator[tuple[int, int, int, torch.Tensor]]:
        """Yield field, first and last row, and the vectors of every part of a table that this process keeps.

        Process 0 keeps the small tables, which are on all processes.
        """
        state = self.parallel.state_dict()
        for f, table in enumerate(self.tables):
            if table.small:
                if self.processes.first:
                    yield f, 0, table.rows, self.small[table.name].detach()
                continue
            for local in state[f"bags.embedding_bags.{table.name}.weight"].local_shards():
                first = local.metadata.shard_offsets[0]
                if len(local.tensor):
                    yield f, first, first + len(local.tensor), local.tensor

    def initialize(self, seed: int, start: float | FloatArray) -> None:
        """Set initial values, which do not depend on the number of processes."""
        n_fields, width = len(self.layout.fields), self.shape.width
        pace, third, sizes = pace_of(n_fields), self.model.third, self.model.vector_sizes(n_fields)
        scale = np.full(width, 0.1 * np.sqrt(pace / self.model.part_size(n_fields)), np.float32)
        scale[width - third :] = 0.1 * np.cbrt(pace) / np.sqrt(max(1, third))
        for f, begin, end, vectors in self.own_parts():
            for at in range(begin, end, PIECE_ROWS):
                stop = min(end, at - at % PIECE_ROWS + PIECE_ROWS)
                vectors[at - begin : stop - begin] = self._drawn(seed, f, at, stop, scale, sizes[f])
        rng = np.random.default_rng([seed, n_fields])
        between = [self.model.init_fields(n_fields, rng) for _ in range(self.shape.outputs)]
        for own in between:
            keep_pairs_apart(self.model, own, self.layout)
        self.set_between(
            {
                "bias": np.broadcast_to(np.asarray(start, np.float32).reshape(-1), (self.shape.outputs,)),
                **{name: np.stack([own[name] for own in between]) for name in between[0]},
            }
        )

    def own_parts(self) -> Iterator[tuple[int, int, int, torch.Tensor]]:
        """Yield the parts of tables in this process, as `local_rows`; small tables on every process."""
        if not self.processes.first:
            for f, table in enumerate(self.tables):
                if table.small:
                    yield f, 0, table.rows, self.small[table.name].detach()
        yield from self.local_rows()

    def _drawn(self, seed: int, f: int, begin: int, end: int, scale: Float32Array, size: int) -> torch.Tensor:
        """Initial vectors of some rows of a table, all in one piece of `PIECE_ROWS`."""
        first = begin - begin % PIECE_ROWS
        rng = np.random.default_rng([seed, f, first // PIECE_ROWS])
        shape = (self.shape.outputs, end - first, self.shape.width)
        drawn = rng.standard_normal((end - first, self.shape.outputs, self.shape.width), np.float32).transpose(1, 0, 2)
        factors = torch.from_numpy(drawn[:, begin - first :] * scale)
        factors[..., size:] = 0.0
        for columns in columns_apart(self.model, self.layout, f):
            factors[..., columns] = 0.0
        return self.shape.join(factors, torch.zeros(shape[0], end - begin)).to(self.processes.device)

    def set_between(self, params: dict[str, Float32Array]) -> None:
        """Set the bias and the parameters between fields, with a first axis for outputs."""
        with torch.no_grad():
            for name, parameter in [("bias", self.formula.bias), *self.formula.between.items()]:
                parameter.copy_(torch.tensor(np.array(params[name])).reshape(parameter.shape))

    def between(self) -> dict[str, Float32Array]:
        """The bias and the parameters between fields, as in `Params`."""
        own: dict[str, Any] = {"bias": self.formula.bias.unsqueeze(-1), **self.formula.between}
        arrays = {name: values.detach().cpu().numpy().copy() for name, values in own.items()}
        return arrays if self.shape.outputs > 1 else {name: values[0] for name, values in arrays.items()}


# Moving averages of tables that are divided among processes.

# How often in an epoch. The backward pass updates large tables, so that averages are not taken step by step; between
# two times, the average of the CPU engine moves by an eighth of its way.
TIMES = 16


class Averages:
    """The averages of `Training.average`, over about half an epoch: a second copy of the tables on each process."""

    def __init__(self, model: ParallelModel, steps_per_epoch: int) -> None:
        self.decay = min(math.exp(-2.0 / steps_per_epoch), 0.9999)
        self.every = max(1, steps_per_epoch // TIMES)
        self.n_steps = 0
        """Steps before the last update."""
        tables = {name: values for name, values in model.parallel.state_dict().items() if name.startswith("bags.")}
        self.tensors = {f"average.{name}": _copy(values) for name, values in tables.items()}
        """The averages, as tensors that checkpoints read in place."""
        self._pairs = [
            pair for name, values in tables.items() for pair in _pairs(values, self.tensors[f"average.{name}"])
        ]

    def after_step(self, n_steps: int) -> None:
        """Update the averages if it is time, given the number of steps so far."""
        if n_steps - self.n_steps >= self.every:
            self.update(n_steps)

    def update(self, n_steps: int) -> None:
        """Let the averages follow the tables for the steps since the last update."""
        share = 1.0 - self.decay ** (n_steps - self.n_steps)
        self.n_steps = n_steps
        if share:
            for values, average in self._pieces():
                average.lerp_(values, share)

    @contextmanager
    def in_place(self, n_steps: int) -> Iterator[None]:
        """The model with its averages, after some number of steps."""
        self.update(n_steps)
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


# Penalties that adapt to what was learned, for tables that are divided among processes.


def adapt_penalties(model: ParallelModel, dispersion: float) -> None:
    """Set the penalties of the next epoch as `AdaptivePenalties` does: larger for groups of short vectors."""
    flat = [group for parts in model.groups for group in parts]
    sizes = np.array([max(1, group.size) for group in flat], np.float64) * model.shape.outputs
    squares = model.processes.sums(_squares(model)) / sizes
    parts = (model.shape.width - model.model.third) // model.model.part_size(len(model.layout.fields))
    length, length_third = math.sqrt(parts) * np.sqrt(squares[0]), np.sqrt(squares[1])
    penalties = dispersion * penalties_of(flat)
    penalties[0] /= np.maximum(length, MIN_LENGTH)
    penalties[1] /= np.maximum(length_third, MIN_LENGTH)
    set_penalties(model, penalties)


def first_penalties(model: ParallelModel) -> None:
    """Set the penalties of the first epoch, as the groups have them."""
    set_penalties(model, penalties_of([group for parts in model.groups for group in parts]))


def set_penalties(model: ParallelModel, penalties: FloatArray) -> None:
    """Set the penalties of all groups. The groups of a large table have one: the mean by number of features."""
    model.penalties = penalties
    small, large, at = [], [], 0
    for table, parts in zip(model.tables, model.groups, strict=True):
        own = np.arange(at, at + len(parts))
        at += len(parts)
        if table.small:
            small.append(own)
        else:
            weights = np.array([max(1, group.size) for group in parts], np.float64)
            means = np.average(model.penalties[:3, own], axis=1, weights=weights)
            large += [means] * len(table.units)
    chosen = model.penalties[:, np.concatenate([np.zeros(0, int), *small])]
    model.dense.set_penalties(chosen)
    if large:
        model.formula.l2[:] = torch.from_numpy(np.stack(large, 1)).to(model.formula.l2)


def _squares(model: ParallelModel) -> FloatArray:
    """Sums of squares of the vectors of every group, for pairs and for products of three, in this process."""
    ends = [list(accumulate(group.size for group in parts)) for parts in model.groups]
    first = [0, *accumulate(len(parts) for parts in model.groups)]
    sums, third = np.zeros((2, first[-1])), model.model.third
    for f, begin, end, vectors in model.local_rows():
        for g, stop in enumerate(ends[f]):
            start = ends[f][g - 1] if g else 0
            for at in range(max(begin, start), min(end, stop), PIECE_ROWS):
                rows = vectors[at - begin : min(at + PIECE_ROWS, end, stop) - begin]
                factors = model.shape.split(rows)[0]
                paired = factors.shape[-1] - third
                sums[0, first[f] + g] += float(factors[..., :paired].square().sum(dtype=torch.float64))
                sums[1, first[f] + g] += float(factors[..., paired:].square().sum(dtype=torch.float64))
    return sums
