"""Source: a table with what is learned from it, as batches of targets and encoded rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from splinefm._cached import cached_property
from splinefm.encode.encoder import Encoder
from splinefm.encode.schema import Schema
from splinefm.encode.tables.names import missing_column_message
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.table import Table
from splinefm.learn.losses import Loss
from splinefm.learn.targets.labels import (
    BALANCED,
    Classes,
    ClassWeight,
    as_targets,
    as_weights,
    balanced_weights,
    class_totals,
    class_weights,
    find_classes,
    weights_of_rows,
)
from splinefm.learn.training import Chunk, FloatArray

STREAM_ROWS = 131_072
"""Rows per chunk of a table that is streamed."""

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Source:
    """A table with its schema and the names of its target and weight columns."""

    schema: Schema
    target: str
    sample_weight: str | None
    table: object
    classes: Classes | None = None
    class_weights: tuple[float, ...] | None = None

    def with_classes(self, most: int = 2, shares: bool = True) -> Source:
        """Return a copy with the labels of the target, unless `shares` and it holds numbers between 0 and 1."""
        table = open_table(self.table, types=self.schema.column_types())
        if self.target not in table.names:
            raise ValueError(missing_column_message(self.target, table.names))
        columns = (batch.column(0) for batch in table.chunks([self.target], STREAM_ROWS))
        return replace(self, classes=find_classes(columns, self.target, most, shares))

    def find_class_weights(self, given: ClassWeight) -> tuple[float, ...] | None:
        """Return the weights of all classes; "balanced" reads the targets and sample weights."""
        if given is None:
            return None
        if given != BALANCED:
            return class_weights(given, self.classes or (0, 1))
        totals = np.zeros(len(self.classes or (0, 1)))
        for batch in self.target_batches(STREAM_ROWS):
            y, weight = self.targets(batch)
            known = np.isfinite(y)  # the scan reports missing targets
            totals += class_totals(y[known], weight[known], len(totals))
        return balanced_weights(*totals.tolist())

    @cached_property
    def opened(self) -> Table:
        """The table, with text files read by the types of the schema."""
        target = {str: pa.string(), bool: pa.bool_()}.get(
            type(self.classes[0]) if self.classes else float, pa.float64()
        )
        table = open_table(self.table, types={**self.schema.column_types(), self.target: target})
        for name in (self.target, self.sample_weight):
            if name is not None and name not in table.names:
                raise ValueError(missing_column_message(name, table.names))
        self.schema.check_columns(table.names, self.target)
        return table

    @property
    def names(self) -> list[str]:
        """The columns of the fields, the target and the sample weights."""
        return [*self.schema.columns, *self._target_names]

    @property
    def _target_names(self) -> list[str]:
        return [self.target, *([self.sample_weight] if self.sample_weight else [])]

    def target_batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches of targets and sample weights only, in table order."""
        return self.opened.chunks(self._target_names, rows)

    def batches(self, rows: int) -> Iterator[pa.RecordBatch]:
        """Yield record batches in table order."""
        return self.opened.chunks(self.names, rows)

    def targets(self, batch: pa.RecordBatch) -> tuple[FloatArray, FloatArray]:
        """Return the targets and sample weights of a batch."""
        y = as_targets(batch.column(self.target), self.target, self.classes)
        if self.sample_weight is None:
            return self._weigh(y, np.ones(len(y)))
        return self._weigh(y, as_weights(batch.column(self.sample_weight), self.sample_weight))

    def _weigh(self, y: FloatArray, weight: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Apply the class weights; a share y counts as y rows of the second class and 1 - y rows of the first."""
        if self.class_weights is None:
            return y, weight
        if len(self.class_weights) > 2:
            return y, weight * weights_of_rows(y, self.class_weights)
        first, second = self.class_weights[0] * (1.0 - y), self.class_weights[1] * y
        both = first + second
        return np.divide(second, both, out=y.copy(), where=both > 0.0), weight * both

    def encode(self, batch: pa.RecordBatch, encoder: Encoder, loss: Loss, threads: int | None = None) -> Chunk:
        """Return the slots, standardized targets and sample weights of a batch."""
        y, weight = self.targets(batch)
        loss.check(y, self.target)
        slots = encoder.encode(batch, threads=threads)
        return Chunk(slots, np.ascontiguousarray(loss.standardize(y)), np.ascontiguousarray(weight))


def ahead(items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield the items, and prefetch the next one in a thread."""
    iterator = iter(items)
    with ThreadPoolExecutor(1) as pool:
        upcoming = pool.submit(next, iterator, None)
        while (item := upcoming.result()) is not None:
            upcoming = pool.submit(next, iterator, None)
            yield item
