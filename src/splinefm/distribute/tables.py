"""Tables: a model's features as TorchRec tables, one per field, and where each of them is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.optim import _apply_optimizer_in_backward as apply_in_backward
from torchrec import EmbeddingBagCollection, EmbeddingBagConfig, PoolingType
from torchrec.distributed import DistributedModelParallel
from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
from torchrec.distributed.planner import EmbeddingShardingPlanner, ParameterConstraints
from torchrec.distributed.planner.storage_reservations import FixedPercentageStorageReservation
from torchrec.distributed.planner.types import KernelConfig, PlannerError, TopologyFactory, TrainerConfig
from torchrec.optim import RowWiseAdagrad

from splinefm._memory import free_memory
from splinefm._wording import in_bytes
from splinefm.distribute.processes import Processes
from splinefm.encode.slots import SlotLayout
from splinefm.model.optimizers import Group

# Tables up to this size are on all processes: their gradients are then smaller than the vectors of a batch would be.
SMALL_ROWS = 1024
# Smoothed tables can be larger, because smoothness needs neighbors.
SMOOTH_BYTES = 1 << 24
# The most processes on which a large table is divided by rows, whether it fits on one process or not.
MAX_BY_ROWS = 8
# The share of free memory that the planner leaves for batches, the encoder and checkpoints.
RESERVED = 0.2
FUSED: dict[str, type[torch.optim.Optimizer]] = {
    "adagrad": torch.optim.Adagrad,
    "rowwise-adagrad": RowWiseAdagrad,
    "adam": torch.optim.Adam,
}
# Numbers that they keep for every number of a table.
STATE = {"adagrad": 1, "rowwise-adagrad": 0, "adam": 2}


class ShardedTable(NamedTuple):
    """The table of a field: `rows` vectors of `dim` numbers, on all processes if it is small."""

    name: str
    rows: int
    dim: int
    small: bool
    units: range

    @property
    def bytes(self) -> int:
        """Size in memory, without the optimizer."""
        return 4 * self.rows * self.dim


@dataclass(frozen=True)
class VectorShape:
    """What the vector of a feature holds: for each output, its `width` factors and its linear weight; then padding."""

    outputs: int
    width: int

    @property
    def dim(self) -> int:
        """Numbers in a vector: a multiple of 4, as FBGEMM needs it."""
        used = self.outputs * (self.width + 1)
        return used + -used % 4

    def split(self, vectors: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Factors of shape (outputs, ..., width) and linear weights of shape (outputs, ...), as views."""
        used = vectors[..., : self.outputs * (self.width + 1)]
        parts = used.reshape(*vectors.shape[:-1], self.outputs, self.width + 1).movedim(-2, 0)
        return parts[..., : self.width], parts[..., self.width]

    def join(self, factors: torch.Tensor, linear: torch.Tensor) -> torch.Tensor:
        """Undo `split`; padding is zero."""
        parts = torch.cat([factors, linear.unsqueeze(-1)], -1).movedim(0, -2)
        used = parts.reshape(*parts.shape[:-2], -1)
        return nn.functional.pad(used, (0, self.dim - used.shape[-1]))


def make_tables(layout: SlotLayout, groups: list[list[Group]], shape: VectorShape) -> list[ShardedTable]:
    """Return the tables of all fields."""
    tables, first = [], 0
    for f, (field, parts) in enumerate(zip(layout.fields, groups, strict=True)):
        n_units = max(field.units) + 1
        smoothed = any(group.smoothness > 0.0 for group in parts)
        table = ShardedTable(f"field{f}", field.n_features, shape.dim, False, range(first, first + n_units))
        small = table.rows <= SMALL_ROWS or (smoothed and table.bytes <= SMOOTH_BYTES)
        tables.append(table._replace(small=small))
        first += n_units
    return tables


def make_bags(tables: list[ShardedTable]) -> EmbeddingBagCollection:
    """Return the tables, without memory: a key per unit, and sums with weights."""
    configs = [
        EmbeddingBagConfig(
            name=table.name,
            num_embeddings=table.rows,
            embedding_dim=table.dim,
            feature_names=[unit_key(unit) for unit in table.units],
            pooling=PoolingType.SUM,
        )
        for table in tables
    ]
    return EmbeddingBagCollection(tables=configs, is_weighted=True, device=torch.device("meta"))


def unit_key(unit: int) -> str:
    """The key of a unit."""
    return f"unit{unit}"


class _Sharder(EmbeddingBagCollectionSharder):
    """Row-wise tables on CPUs as well: TorchRec leaves them out, but gloo has what they need by now."""

    def sharding_types(self, compute_device_type: str) -> list[str]:
        return ["data_parallel", "table_wise", "row_wise"]

    def compute_kernels(self, sharding_type: str, compute_device_type: str) -> list[str]:
        return ["dense"] if sharding_type == "data_parallel" else ["fused"]


class Place(NamedTuple):
    """Where some rows of a table are."""

    first: int
    last: int
    process: int


class Plan(NamedTuple):
    """The plan of TorchRec, and where the rows of the large tables are."""

    plan: Any
    places: dict[str, list[Place]]


def make_plan(
    module: nn.Module,
    path: str,
    tables: list[ShardedTable],
    names: tuple[str, ...],
    batch_size: int,
    processes: Processes,
    share: float = 1.0,
) -> Plan:
    """Let TorchRec's planner shard the tables, by a `share` of the free memory of the poorest process.

    Raises
    ------
    ValueError
        If the tables do not fit.
    """
    free = torch.cuda.mem_get_info()[0] if processes.device.type == "cuda" else free_memory() // processes.local_count
    least = int(-processes.maxima([-float(free)])[0])
    planner = _planner(tables, batch_size, processes, int(share * least))
    plan = None
    with processes.fail_together():
        if processes.first:
            try:
                plan = planner.plan(module, [_Sharder()])
            except PlannerError as error:
                raise ValueError(_too_large(tables, names, processes, least, share < 1.0)) from error
    plan = _shared_plan(plan, processes)
    return Plan(plan, {table.name: list(_places(plan.plan[path][table.name])) for table in tables if not table.small})


def _kinds(large: bool, n_processes: int) -> list[str]:
    """How a table may be divided; `large` if it would leave the memory of processes uneven.

    By rows, every process sends a vector for each row of every other process, so that traffic grows with their number.
    With few processes, even memory is worth it; with many, the planner decides: see docs/scale.md.
    """
    if not large or n_processes == 1:
        return ["table_wise"]
    return ["row_wise"] if n_processes <= MAX_BY_ROWS else ["table_wise", "row_wise"]


def _planner(
    tables: list[ShardedTable], batch_size: int, processes: Processes, memory: int
) -> EmbeddingShardingPlanner:
    constraints = {}
    fair = sum(table.bytes for table in tables if not table.small) / processes.count
    for table in tables:
        kinds = _kinds(table.bytes > fair, processes.count)
        constraints[table.name] = ParameterConstraints(
            sharding_types=["data_parallel"] if table.small else kinds,
            compute_kernels=["dense"] if table.small else ["fused"],
        )
    on_gpu = processes.device.type == "cuda"
    trainer = TrainerConfig(
        world_size=processes.count,
        local_world_size=processes.local_count,
        hbm_cap_bytes=memory if on_gpu else 0,
        ddr_cap_bytes=None if on_gpu else memory,
    )
    kernel = KernelConfig(compute_device=processes.device.type)
    return EmbeddingShardingPlanner(
        topology=TopologyFactory.create_topology(trainer, kernel_config=kernel),
        batch_size=batch_size,
        constraints=constraints,
        storage_reservation=FixedPercentageStorageReservation(RESERVED),
        debug=False,
    )


def share_beside_averages(optimizer: str) -> float:
    """Return the share of memory for tables and their optimizer, if there is also an average of every number."""
    own = 1 + STATE[optimizer]
    return own / (own + 1)


def _too_large(
    tables: list[ShardedTable], names: tuple[str, ...], processes: Processes, memory: int, averaged: bool
) -> str:
    largest, name = max(zip(tables, names, strict=True), key=lambda pair: pair[0].bytes)
    total, own = in_bytes(sum(table.bytes for table in tables)), in_bytes(largest.bytes)
    return (
        f"the tables take {total} without their optimizer{' and averages' if averaged else ''} ({name!r}: "
        f"{own}), and do not fit on {processes.count} processes with {in_bytes(memory)} of free memory each; use more "
        f"machines, lower k, or use --table-optimizer rowwise-adagrad{' or --no-average' if averaged else ''}"
    )


def _shared_plan(plan: Any, processes: Processes) -> Any:
    """The plan of process 0 on all processes."""
    if processes.count == 1:
        return plan
    box = [plan]
    torch.distributed.broadcast_object_list(box, 0, group=processes.group)
    return box[0]


def _places(sharding: Any) -> Iterator[Place]:
    for shard in sharding.sharding_spec.shards:
        first, rows = shard.shard_offsets[0], shard.shard_sizes[0]
        if rows:
            yield Place(first, first + rows, shard.placement.rank())


def describe_plan(plan: Plan, tables: list[ShardedTable], names: tuple[str, ...]) -> str:
    """Return the plan as text: table, rows, bytes, and where."""
    lines = [f"{'table':24} {'rows':>14} {'bytes':>10}  where"]
    for table, name in zip(tables, names, strict=True):
        places = plan.places.get(table.name, [])
        on = sorted({place.process for place in places})
        where = (
            "all processes"
            if table.small
            else f"process {on[0]}"
            if len(on) == 1
            else f"by rows on processes {on[0]}-{on[-1]}"
        )
        lines.append(f"{name[:24]:24} {table.rows:14,} {in_bytes(table.bytes):>10}  {where}")
    return "\n".join(lines)


def shard(module: nn.Module, plan: Plan, processes: Processes) -> Any:
    """Return the module with its tables allocated where the plan says."""
    return DistributedModelParallel(module, device=processes.device, plan=plan.plan, sharders=[_Sharder()])


def fuse_optimizer(
    bags: EmbeddingBagCollection, tables: list[ShardedTable], optimizer: str, learning_rate: float
) -> None:
    """Let the backward pass update the large tables."""
    for table in tables:
        if not table.small:
            weight = bags.embedding_bags[table.name].weight
            apply_in_backward(FUSED[optimizer], [weight], {"lr": learning_rate, "eps": 1e-8})


def check_optimizer(optimizer: str, device: str) -> None:
    """Raise if FBGEMM has no such optimizer on the device."""
    if optimizer not in FUSED:
        raise ValueError(f"the optimizer of large tables must be one of {', '.join(FUSED)}, got {optimizer!r}")
    if optimizer == "adam" and device == "cpu":
        raise ValueError("FBGEMM has no Adam for CPUs; use adagrad or rowwise-adagrad")
