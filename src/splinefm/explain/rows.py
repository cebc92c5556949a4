"""Rows to explain, and rows to compare with: slots, and where the values of crosses are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.encoder import CHUNK
from splinefm.encode.fields.cross import Cross
from splinefm.encode.slots import Slots
from splinefm.encode.tables.columns import one_array
from splinefm.encode.tables.open import open_table
from splinefm.explain.inputs import encode_rows
from splinefm.learn.fitted import Fitted

Positions = list[npt.NDArray[np.generic]]


@dataclass(frozen=True, eq=False)
class EncodedRows:
    """Encoded rows of a model, which can be mixed column by column.

    Parameters
    ----------
    slots : Slots
        The rows as the model sees them.
    positions : dict of int to list of arrays
        For each field that is a cross, the positions of its parts (see `Cross.positions`).
    """

    slots: Slots
    positions: dict[int, Positions]

    def __len__(self) -> int:
        return len(self.slots)

    def __getitem__(self, rows: slice | npt.NDArray[np.intp]) -> EncodedRows:
        """Some of the rows."""
        positions = {f: [part[rows] for part in parts] for f, parts in self.positions.items()}
        return EncodedRows(self.slots[rows], positions)

    def without(self, fields: tuple[int, ...]) -> Slots:
        """The slots with weights of zero for some fields, which then add nothing to the score."""
        if not fields:
            return self.slots
        layout, weight = self.slots.layout, self.slots.weight.copy()
        for f in fields:
            first, last = layout.weight_ptr[layout.window_ptr[f : f + 2]]
            weight[:, first:last] = 0.0
        return Slots(self.slots.start, weight, layout)


def read_rows(fitted: Fitted, table: object, threads: int | None, most: int | None = None) -> EncodedRows:
    """Encode a table; with crosses at most `most` rows of it, evenly spaced.

    Slots are taken as they are if there are no crosses. They do not have the values of the columns of a cross.
    """
    crosses = {f: item for f, item in enumerate(fitted.encoder.fields) if isinstance(item, Cross)}
    if isinstance(table, EncodedRows):
        return table
    if not crosses:
        return EncodedRows(encode_rows(fitted, table, threads), {})
    if isinstance(table, Slots):
        names = ", ".join(repr(item.name) for item in crosses.values())
        raise ValueError(
            f"encoded rows (Slots) do not have the values of the columns of a cross, and this model has {names}; "
            "pass the table itself"
        )
    read = _spaced(fitted, table, most)
    positions = {}
    for f, item in crosses.items():
        columns = [one_array(read.column(name)) for name in item.columns]
        positions[f] = item.positions(item.read(columns))
    return EncodedRows(fitted.encoder.encode(read, threads=threads), positions)


def _spaced(fitted: Fitted, table: object, most: int | None) -> pa.Table:
    """The columns of the model, of all rows or of at most `most`, evenly spaced; no more than a chunk is in memory."""
    schema = fitted.encoder.schema
    source = open_table(table, types=schema.column_types())
    schema.check_columns(source.names)
    kept = [pa.schema([source.schema.field(name) for name in schema.columns]).empty_table()]
    seen, step = 0, 1
    for chunk in source.chunks(schema.columns, CHUNK):
        part = pa.Table.from_batches([chunk])
        kept.append(part.take(np.arange(-seen % step, len(part), step)) if step > 1 else part)
        seen += len(part)
        while most is not None and sum(map(len, kept)) > max(2 * most, CHUNK):
            whole = pa.concat_tables(kept)
            kept, step = [whole.take(np.arange(0, len(whole), 2))], 2 * step
    whole = pa.concat_tables(kept)
    if most is None or len(whole) <= most:
        return whole
    return whole.take(np.linspace(0, len(whole) - 1, most).astype(np.intp))
