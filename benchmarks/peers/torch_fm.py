"""Factorization machines in torch, the way they are usually written: the peer of `train.py`.

The active features of a row, with their weights, are looked up and summed per field with a weighted `embedding_bag`;
the products between fields are batched tensor operations.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import splinefm as sf
from splinefm.encode.slots import Slots
from splinefm.model.family.contract import Params

VARIANTS = ("adagrad, sparse", "adam, sparse", "adamw, dense fused")


@dataclass(frozen=True)
class Batch:
    """Flat lists of features and weights, the offsets of the bags of (row, field), and the targets."""

    features: Tensor
    weights: Tensor
    offsets: Tensor
    y: Tensor


def make_batch(slots: Slots, y: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Batch:
    """Expand windows: window w of row i has features start[i, w] + j. Every field has one unit."""
    layout = slots.layout
    if layout.n_units != len(layout.fields):
        raise ValueError("the torch models have one unit per field")
    width = np.diff(layout.weight_ptr)
    inside = np.arange(layout.n_weights) - np.repeat(layout.weight_ptr[:-1], width)
    index = np.repeat(slots.start.astype(np.int64), width, axis=1) + inside
    first = layout.n_weights * np.arange(len(slots), dtype=np.int64)
    fields = first[:, None] + layout.weight_ptr[layout.window_ptr[:-1]]
    return Batch(
        torch.from_numpy(index.ravel()),
        torch.from_numpy(slots.weight.ravel()),
        torch.from_numpy(fields.ravel()),
        torch.from_numpy(y.astype(np.float32)),
    )


class TorchFM(torch.nn.Module):
    """FM, FwFM, FmFM or FFM, from the same start values as ours.

    Parameters
    ----------
    model : FM, FwFM, FmFM or FFM
        Which formula.
    params : dict of arrays
        Start values; they are copied.
    sparse : bool
        Whether the gradients of the tables are sparse tensors.
    """

    def __init__(self, model: sf.FM | sf.FwFM | sf.FmFM | sf.FFM, params: Params, sparse: bool) -> None:
        super().__init__()
        self.model = model
        self.bias = torch.nn.Parameter(torch.tensor(params["bias"]))
        # One table for vectors and linear weights: about a tenth faster than two. The start values are given, so that
        # no time goes into others.
        table = torch.from_numpy(np.concatenate([params["factors"], params["linear"][:, None]], axis=1))
        n_rows, width = table.shape
        self.table = torch.nn.EmbeddingBag(n_rows, width, mode="sum", sparse=sparse, _weight=table)
        for name, values in params.items():
            if name.startswith("field_"):
                self.register_parameter(name, torch.nn.Parameter(torch.tensor(values)))

    def forward(self, batch: Batch) -> Tensor:
        """Scores."""
        sums: Tensor = self.table(batch.features, batch.offsets, batch.weights)
        sums = sums.view(len(batch.y), -1, sums.shape[1])
        return self.bias + sums[:, :, -1].sum(1) + self.interaction(sums[:, :, :-1])

    def interaction(self, P: Tensor) -> Tensor:
        """Σ_{f<e} p_f' M_fe p_e for P of shape (n, fields, width)."""
        if isinstance(self.model, sf.FM):
            return 0.5 * (P.sum(1).square().sum(1) - P.square().sum((1, 2)))
        if isinstance(self.model, sf.FwFM):
            between = torch.triu(self.get_parameter("field_weights"), 1)
            return (torch.einsum("fe,nek->nfk", between, P) * P).sum((1, 2))
        n_fields = P.shape[1]
        if isinstance(self.model, sf.FmFM):
            above = torch.triu(torch.ones(n_fields, n_fields), 1)[:, :, None, None]
            between = self.get_parameter("field_matrices") * above
            return (torch.einsum("nfi,feij->nej", P, between) * P).sum((1, 2))
        parts = P.view(len(P), n_fields, n_fields, -1)  # [n, f, e] = p_f[e]
        diagonal = parts.diagonal(dim1=1, dim2=2)
        return 0.5 * ((parts * parts.transpose(1, 2)).sum((1, 2, 3)) - diagonal.square().sum((1, 2)))


def make_step(
    model: sf.FM | sf.FwFM | sf.FmFM | sf.FFM, params: Params, variant: str, learning_rate: float
) -> Callable[[Batch], float]:
    """A function that makes one optimizer step on a batch and returns its mean loss before the step."""
    sparse = variant.endswith("sparse")
    net = TorchFM(model, params, sparse)
    table = net.table.weight
    others = [parameter for parameter in net.parameters() if parameter is not table]
    optimizers: list[torch.optim.Optimizer]
    if variant == "adagrad, sparse":
        optimizers = [torch.optim.Adagrad(net.parameters(), lr=learning_rate)]
    elif variant == "adam, sparse":
        optimizers = [
            torch.optim.SparseAdam([table], lr=learning_rate),
            torch.optim.AdamW(others, lr=learning_rate, weight_decay=0.0, fused=True),
        ]
    else:
        optimizers = [torch.optim.AdamW(net.parameters(), lr=learning_rate, weight_decay=0.0, fused=True)]

    def step(batch: Batch) -> float:
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = functional.binary_cross_entropy_with_logits(net(batch), batch.y)
        loss.backward()  # type: ignore[no-untyped-call]
        for optimizer in optimizers:
            optimizer.step()
        return loss.item()

    return step
