"""Batches: encoded rows as tensors, with the features of every unit as a TorchRec key."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torchrec import KeyedJaggedTensor
from torchrec.streamable import Pipelineable

from splinefm._arrays import Float32Array, FloatArray, Int32Array, Int64Array
from splinefm.distribute.tables import ShardedTable, key_of
from splinefm.encode.slots import SlotLayout, Slots, offsets
from splinefm.train.rows import Chunk


@dataclass
class Batch(Pipelineable):
    """Rows of one process in one step.

    Attributes
    ----------
    features : KeyedJaggedTensor
        The features of each unit in each row, with weights.
    y, weight : tensor of shape (n,)
        Standardized targets and sample weights.
    shares : tensor of shape (n, units of large tables)
        One over the number of times that a feature is expected in a batch of all processes in which it is active.
    total : tensor of shape (1,)
        The sum of the weights on all processes.
    """

    features: KeyedJaggedTensor
    y: torch.Tensor
    weight: torch.Tensor
    shares: torch.Tensor
    total: torch.Tensor

    def to(self, device: torch.device, non_blocking: bool = False) -> Batch:
        """The batch on a device."""
        others = (self.y, self.weight, self.shares, self.total)
        moved = (tensor.to(device=device, non_blocking=non_blocking) for tensor in others)
        return Batch(self.features.to(device=device, non_blocking=non_blocking), *moved)

    def record_stream(self, stream: Any) -> None:
        """Keep the memory until a stream is done with it."""
        self.features.record_stream(stream)
        for tensor in (self.y, self.weight, self.shares, self.total):
            tensor.record_stream(stream)

    def pin_memory(self) -> Batch:
        """The batch in pinned memory, from which copies to a GPU are asynchronous."""
        others = (self.y, self.weight, self.shares, self.total)
        return Batch(self.features.pin_memory(), *(tensor.pin_memory() for tensor in others))


class BatchMaker:
    """Turns encoded rows into batches.

    Parameters
    ----------
    layout : SlotLayout
        Layout of the slots.
    tables : list of ShardedTable
        The tables of the fields.
    counts : list of arrays
        For each field, the training rows in which each of its features is active.
    n_rows : int
        Training rows.
    batch_size : int
        Rows of all processes in a step.
    """

    def __init__(
        self,
        layout: SlotLayout,
        tables: list[ShardedTable],
        counts: tuple[FloatArray, ...],
        n_rows: int,
        batch_size: int,
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
        self.keys = [key_of(unit) for unit in range(layout.n_units)]
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
    return Slots(start, weight, layout)
