"""What one pass over the columns of a cross keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from splinefm.encode.fields.categorical import CategoricalStatistics
from splinefm.encode.fields.cells import CellCounts
from splinefm.encode.fields.numerical import NumericalStatistics

if TYPE_CHECKING:
    from splinefm.encode.fields.cross import Cross


@dataclass
class CrossStatistics:
    """What one pass over the columns of a cross keeps; statistics of parts of a table can be merged."""

    spec: Cross
    n_rows: int = 0
    parts: list[NumericalStatistics | CategoricalStatistics] = field(init=False)
    cells: CellCounts = field(init=False)

    def __post_init__(self) -> None:
        self.parts = [part.collect() for part in self.spec.fields]
        self.cells = CellCounts(len(self.spec.categories))

    def update(self, columns: Sequence[pa.Array]) -> None:
        """Add the rows of a chunk."""
        for statistics, column in zip(self.parts, columns, strict=True):
            statistics.update(column)
        self.n_rows = self.parts[0].n_rows
        if self.spec.categories and self.spec.buckets is None:
            fields = self.spec.fields
            self.cells.update([fields[i].read(columns[i]) for i in self.spec.categories])  # type: ignore[misc]

    def merge(self, other: CrossStatistics) -> None:
        """Add the rows of other statistics of the same field."""
        self.n_rows += other.n_rows
        for mine, theirs in zip(self.parts, other.parts, strict=True):
            mine.merge(theirs)  # type: ignore[arg-type]  # of one kind
        self.cells.merge(other.cells)
