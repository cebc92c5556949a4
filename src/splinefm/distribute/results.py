"""Results: the tables of all processes as an ordinary model file, piece by piece, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from splinefm._arrays import Float32Array
from splinefm._wording import for_reader
from splinefm.distribute.model import PIECE_ROWS, ParallelModel
from splinefm.store.model_file import load_identified
from splinefm.store.sharded import (
    Entry,
    begin_shards,
    finish_shards,
    is_sharded,
    removing_parts_on_error,
    shards_identity,
    write_model,
    write_shard,
)
from splinefm.store.sharded_model import ShardedModel, TableScorer, table_pieces, without_tables
from splinefm.train.fitted import Fitted

Piece = tuple[int, Float32Array, Float32Array]


def write_result(
    out: Path, sharded: bool, head: Fitted, model: ParallelModel, before: Callable[[str], None] | None = None
) -> None:
    """Write the model of all processes: to a file, by process 0, or to a folder, by all of them.

    Process 0 calls `before` with the identity of the model before it replaces an older one.
    """
    processes = model.processes
    if not sharded:
        pieces = pieces_for_first(model)
        if processes.first:  # if it fails, so do the others, which cannot send any more
            write_model(out, head, pieces, before)
        else:
            for _ in pieces:
                pass
        processes.barrier()
        return
    with processes.fail_together():
        save = begin_shards(out) if processes.first else ""
    save = processes.broadcast(save.encode()).decode()
    with removing_parts_on_error(out, save) if processes.first else nullcontext():
        with processes.fail_together():
            ranges = sorted(_range(model, f, begin, end) for f, begin, end, _ in model.local_rows())
            entry = (
                write_shard(out, save, processes.index, ranges, head, own_pieces(model)).to_dict() if ranges else None
            )
        entries = processes.gather_json(entry)
        with processes.fail_together():
            if processes.first:
                found = [Entry.from_dict(entry) for entry in entries if entry is not None]
                finish_shards(out, save, head, found, before)


def _range(model: ParallelModel, f: int, begin: int, end: int) -> tuple[int, int]:
    first = int(model.layout.feature_ptr[f])
    return first + begin, first + end


@dataclass(frozen=True)
class OldModel:
    """A model to continue from: everything but its tables, and what reads those."""

    head: Fitted  # the model without its tables
    pieces: Callable[[int, int], Iterator[Any]]  # from the first feature and the one after the last to pieces
    table_scorer: Callable[..., TableScorer]  # as `Fitted.table_scorer`; it reads the tables that some rows need
    identity: str  # names the model beside its files

    def read(self, f: int, begin: int, end: int) -> tuple[Float32Array, Float32Array]:
        """Return vectors and linear weights of the rows of a field, as many as it has, with an axis for outputs."""
        layout = self.head.encoder.layout
        first, rows = int(layout.feature_ptr[f]), layout.fields[f].n_features
        found = [piece[1:] for piece in self.pieces(first + min(begin, rows), first + min(end, rows))]
        width = self.head.model.width(len(layout.fields))
        empty = (np.zeros((self.head.n_outputs, 0, width), np.float32), np.zeros((self.head.n_outputs, 0), np.float32))
        if not found:
            return empty
        if self.head.n_outputs == 1:
            found = [(factors[None], linear[None]) for factors, linear in found]
        factors, linear = zip(*found, strict=True)
        return np.concatenate(factors, axis=1), np.concatenate(linear, axis=1)


def open_old(path: str | Path) -> OldModel:
    """Open a model file or a sharded model; its tables are mapped, not read."""
    if is_sharded(path):
        sharded = ShardedModel.open(path, verify=False)
        old = OldModel(sharded.head, sharded.pieces, sharded.table_scorer, shards_identity(path))
    else:
        fitted, identity = load_identified(path, mmap=True)
        pieces = partial(table_pieces, fitted)
        old = OldModel(without_tables(fitted), pieces, fitted.table_scorer, identity)
    members = old.head.training.members or 1
    if members > 1:
        raise ValueError(
            f"a model with members={members} is the mean of several fits, which one machine updates: update it there, "
            f"{for_reader('with sf.update_model', 'without --processes')}"
        )
    return old


def pieces_for_first(model: ParallelModel) -> Iterator[Piece]:
    """Yield the features of all tables in order on process 0; other processes send theirs, and get nothing.

    No process holds more than a piece of what others have.
    """
    processes = model.processes
    own = {(f, begin): (begin, vectors) for f, begin, _, vectors in model.local_rows()}
    for f, table in enumerate(model.tables):
        places = [(0, table.rows, 0)] if table.small else sorted(model.plan.places[table.name])
        for first, last, owner in places:
            for at in range(first, last, PIECE_ROWS):
                stop = min(at + PIECE_ROWS, last)
                rows = torch.empty(stop - at, table.dim)
                if owner == processes.index:
                    begin, vectors = own[f, first]
                    rows = vectors[at - begin : stop - begin].cpu()
                if owner and processes.index == owner:
                    dist.send(rows.contiguous(), 0, group=processes.group)
                if processes.first:
                    if owner:
                        dist.recv(rows, owner, group=processes.group)
                    yield as_piece(model, f, at, rows)


def own_pieces(model: ParallelModel) -> Iterator[Piece]:
    """Yield the features that this process keeps, in order."""
    for f, begin, end, vectors in sorted(model.local_rows(), key=lambda part: part[:2]):
        for at in range(begin, end, PIECE_ROWS):
            yield as_piece(model, f, at, vectors[at - begin : min(at + PIECE_ROWS, end) - begin].cpu())


def as_piece(model: ParallelModel, f: int, row: int, vectors: torch.Tensor) -> Piece:
    """The vectors of a field from a row on, as a piece of a model file."""
    factors, linear = (part.contiguous().numpy() for part in model.shape.split(vectors))
    first = int(model.layout.feature_ptr[f]) + row
    return (first, factors, linear) if model.shape.outputs > 1 else (first, factors[0], linear[0])


def set_tables(model: ParallelModel, read: Callable[[int, int, int], tuple[Float32Array, Float32Array]]) -> None:
    """Set the rows of all tables that are in this process.

    `read(field, begin, end)` returns vectors and linear weights of the rows of a field from `begin` on, as many as it
    has, with a first axis for outputs; further rows keep their values.
    """
    for f, begin, end, vectors in model.own_parts():
        for at in range(begin, end, PIECE_ROWS):
            stop = min(at + PIECE_ROWS, end)
            factors, linear = (torch.from_numpy(np.array(part, np.float32)) for part in read(f, at, stop))
            if linear.shape[-1]:
                joined = model.shape.join(factors, linear).to(vectors.device)
                vectors[at - begin : at - begin + len(joined)] = joined
