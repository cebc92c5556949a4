"""Results: the tables of all ranks as an ordinary model file, piece by piece, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt
import torch
import torch.distributed as dist

from splinefm.distribute.sharded.model import PIECE_ROWS, ShardedModel

Float32 = npt.NDArray[np.float32]
Piece = tuple[int, Float32, Float32]


def pieces_for_first(model: ShardedModel) -> Iterator[Piece]:
    """Yield the features of all tables in order on rank 0; other ranks send theirs, and get nothing.

    No rank holds more than a piece of what others have.
    """
    ranks = model.ranks
    own = {(f, begin): (begin, vectors) for f, begin, _, vectors in model.local_rows()}
    for f, table in enumerate(model.tables):
        places = [(0, table.rows, 0)] if table.small else sorted(model.plan.places[table.name])
        for first, last, owner in places:
            for at in range(first, last, PIECE_ROWS):
                stop = min(at + PIECE_ROWS, last)
                rows = torch.empty(stop - at, table.dim)
                if owner == ranks.rank:
                    begin, vectors = own[f, first]
                    rows = vectors[at - begin : stop - begin].cpu()
                if owner and ranks.rank == owner:
                    dist.send(rows.contiguous(), 0, group=ranks.group)
                if ranks.first:
                    if owner:
                        dist.recv(rows, owner, group=ranks.group)
                    yield as_piece(model, f, at, rows)


def own_pieces(model: ShardedModel) -> Iterator[Piece]:
    """Yield the features that this rank keeps, in order."""
    for f, begin, end, vectors in sorted(model.local_rows(), key=lambda part: part[:2]):
        for at in range(begin, end, PIECE_ROWS):
            yield as_piece(model, f, at, vectors[at - begin : min(at + PIECE_ROWS, end) - begin].cpu())


def as_piece(model: ShardedModel, f: int, row: int, vectors: torch.Tensor) -> Piece:
    """The vectors of a field from a row on, as a piece of a model file."""
    factors, linear = (part.contiguous().numpy() for part in model.shape.split(vectors))
    first = int(model.layout.feature_ptr[f]) + row
    return (first, factors, linear) if model.shape.outputs > 1 else (first, factors[0], linear[0])


def set_tables(model: ShardedModel, read: Callable[[int, int, int], tuple[Float32, Float32]]) -> None:
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
