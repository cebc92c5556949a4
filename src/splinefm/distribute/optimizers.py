"""The optimizer of what is on all processes: small tables with their penalties, the bias, parameters between fields."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import scipy.sparse
import torch

from splinefm._arrays import FloatArray
from splinefm.distribute.tables import ShardedTable, VectorShape
from splinefm.model.family import AnyModel
from splinefm.model.optimizers import Group

BETA1, BETA2, EPS = 0.9, 0.99, 1e-8
_EMPTY = scipy.sparse.csr_array((0, 0), dtype=np.float32)


class DenseOptimizer:
    """Lazy AdamW as in the CPU engine: a step changes the features that are active on some process.

    Gradients are the means over processes already, so that all processes take the same step.
    """

    def __init__(
        self,
        tables: list[ShardedTable],  # all tables, of which this optimizer handles the small ones
        small: Mapping[str, torch.nn.Parameter],  # small tables by name
        groups: list[list[Group]],  # penalties of each field
        formula: torch.nn.Module,  # the parameters that are active in every row
        shape: VectorShape,
        model: AnyModel,  # which coordinates are for products of three
    ) -> None:
        self.learning_rate, self.n_steps = 0.0, 0
        self.small, self.shape, self.third = list(small.values()), shape, model.third
        self.rows = [len(values) for values in self.small]
        self.flat = list(formula.parameters())
        self.device = self.flat[0].device
        own = [parts for table, parts in zip(tables, groups, strict=True) if table.small]
        self._set_groups([group for parts in own for group in parts])
        self.state = {
            name: torch.zeros(sum(self.rows), shape.dim, device=self.device) for name in ("m_tables", "v_tables")
        } | {
            f"{name}_{i}": torch.zeros_like(values, requires_grad=False)
            for i, values in enumerate(self.flat)
            for name in "mv"
        }

    def _set_groups(self, groups: list[Group]) -> None:
        """Lay out the groups of all small tables: what is smoothed, and which features are active with it."""
        sizes = [group.size for group in groups]
        self.group_of = torch.from_numpy(np.repeat(np.arange(len(sizes)), sizes)).to(self.device)
        # A group of one block is always active, one of several where a feature of the block is.
        block, always, n_blocks = [], [], 0
        for group in groups:
            size = _block_size(group)
            smoothed = group.smoothness > 0.0
            block.append(n_blocks + np.arange(group.size) // (size if smoothed else 1))
            n_blocks = int(block[-1][-1]) + 1 if group.size else n_blocks
            always.append(np.full(group.size, smoothed and size == group.size))
        self.block_of = torch.from_numpy(np.concatenate([np.zeros(0, int), *block])).to(self.device)
        self.always = torch.from_numpy(np.concatenate([np.zeros(0, bool), *always])).to(self.device)
        self.n_blocks = n_blocks
        matrix = scipy.sparse.block_diag([_EMPTY, *map(_roughness, groups)], format="csr", dtype=np.float32)
        self.is_smoothed = bool(matrix.nnz)
        entries = matrix.tocoo()
        place = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
        values = torch.from_numpy(entries.data)
        sparse = torch.sparse_coo_tensor(place, values, matrix.shape, check_invariants=False).coalesce()
        self.roughness = sparse.to(self.device)
        self.set_penalties(penalties_of(groups))

    def set_penalties(self, penalties: FloatArray) -> None:
        """Set the penalties of every group of the small tables, as `penalties_of` lists them."""
        of_features = torch.tensor(penalties.astype(np.float32)).to(self.device)[:, self.group_of]
        pairs, third, linear, smooth = of_features
        outputs, width = self.shape.outputs, self.shape.width
        by_part = torch.stack([pairs] * (width - self.third) + [third] * self.third + [linear], 1)
        padding = self.shape.dim - outputs * (width + 1)
        self.l2 = torch.nn.functional.pad(by_part.repeat(1, outputs), (0, padding))
        self.smooth = 2.0 * smooth[:, None]

    def zero_grad(self) -> None:
        """Forget the gradients."""
        for values in (*self.small, *self.flat):
            values.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Add penalties to the gradients, and take a step on what is active."""
        self.n_steps += 1
        if self.small:
            self._step_tables()
        for i, values in enumerate(self.flat):
            if values.grad is not None:
                values -= self._change(values.grad, self.state[f"m_{i}"], self.state[f"v_{i}"])

    def _step_tables(self) -> None:
        values = torch.cat([own.detach() for own in self.small])
        gradient = torch.cat(
            [torch.zeros_like(own) if own.grad is None else own.grad.reshape(own.shape) for own in self.small]
        )
        touched = gradient.abs().amax(1) > 0.0
        if self.is_smoothed:
            blocks = torch.zeros(self.n_blocks, dtype=torch.bool, device=self.device)
            blocks[self.block_of[touched]] = True
            active = blocks[self.block_of] | self.always
            gradient += torch.where(active[:, None], self.smooth * (self.roughness @ values), 0.0)
        else:
            active = touched
        gradient += self.l2 * values
        m, v = self.state["m_tables"], self.state["v_tables"]
        rows = torch.nonzero(active)[:, 0]
        own_m, own_v = m[rows], v[rows]
        values[rows] -= self._change(gradient[rows], own_m, own_v)
        m[rows], v[rows] = own_m, own_v
        for own, new in zip(self.small, values.split(self.rows), strict=True):
            own.data.copy_(new)

    def _change(self, gradient: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """The change of AdamW; m and v are updated."""
        m.lerp_(gradient, 1.0 - BETA1)
        v.lerp_(gradient.square(), 1.0 - BETA2)
        correct1, correct2 = 1.0 - BETA1**self.n_steps, 1.0 - BETA2**self.n_steps
        return self.learning_rate * (m / correct1) / ((v / correct2).sqrt() + EPS)


def penalties_of(groups: list[Group]) -> FloatArray:
    """L2 of vectors, of coordinates for products of three, of linear weights, and smoothness, of every group."""
    third = (group.l2 if group.l2_third is None else group.l2_third for group in groups)
    rows = [
        (group.l2, of_third, group.l2_linear, group.smoothness) for group, of_third in zip(groups, third, strict=True)
    ]
    return np.array(rows, np.float64).reshape(-1, 4).T.copy()


def _block_size(group: Group) -> int:
    return int(np.prod(group.shape)) if group.shape else group.size


def _roughness(group: Group) -> scipy.sparse.csr_array:
    """The matrix of Σ |Δ^order v|² over neighbors along every axis of every block."""
    if group.smoothness <= 0.0:
        return scipy.sparse.csr_array((group.size, group.size), dtype=np.float32)
    shape = group.shape or (group.size,)
    periodic = group.periodic if isinstance(group.periodic, tuple) else (group.periodic,) * len(shape)
    total = scipy.sparse.csr_array((int(np.prod(shape)),) * 2)
    for axis, length in enumerate(shape):
        if length > 1:
            own = _differences(length, group.order, periodic[axis])
            before, after = int(np.prod(shape[:axis])), int(np.prod(shape[axis + 1 :]))
            total = total + scipy.sparse.kron(
                scipy.sparse.kron(scipy.sparse.eye_array(before), own.T @ own), scipy.sparse.eye_array(after)
            )
    return scipy.sparse.csr_array(scipy.sparse.kron(scipy.sparse.eye_array(group.size // total.shape[0]), total))


def _differences(length: int, order: int, periodic: bool) -> scipy.sparse.csr_array:
    """Δ^order along an axis; a periodic one continues at its beginning."""
    once = scipy.sparse.eye_array(length, format="csr")
    ones = np.ones(length)
    corners = (-ones, ones[1:], ones[:1])  # the last row goes on at the beginning
    step = scipy.sparse.diags_array(corners, offsets=(0, 1, 1 - length), shape=(length, length), format="csr")
    for _ in range(order):
        once = step @ once
    return scipy.sparse.csr_array(once if periodic else once[: length - order])
