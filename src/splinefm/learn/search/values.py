"""Values of some training rows, as they are in the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.encoder import Encoder
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.tables.arrow import to_arrow, to_numpy
from splinefm.encode.tables.spelling import canonical
from splinefm.learn.rows.chunks import Chunks


def read_values(chunks: Chunks, names: Sequence[str], rows: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
    """Return numbers, or features of categories, of some training rows."""
    encoder: Encoder = chunks.encoder
    parts: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in names}
    for batch in _batches_of(chunks, rows):
        for name in names:
            item = encoder.schema[name]
            assert isinstance(item, Numerical | Categorical)
            column = batch.column(item.column)
            parts[name].append(item.read(column) if isinstance(item, Numerical) else item.encode(column)[0][:, 0])
    return {name: np.concatenate(arrays) for name, arrays in parts.items()}


def read_names(
    chunks: Chunks, names: Sequence[str], rows: npt.NDArray[np.int64], rows_per_name: int
) -> dict[str, npt.NDArray[np.int64]]:
    """Return a number for each name of some training rows, for columns in which names of `rows_per_name` are rare.

    Rare names of a column share a feature.
    """
    items = {name: item for name in names if isinstance(item := chunks.encoder.schema[name], Categorical)}
    items = {name: item for name, item in items.items() if item.min_count > rows_per_name}
    if not items:
        return {}
    parts: dict[str, list[pa.LargeStringArray]] = {name: [] for name in items}
    for batch in _batches_of(chunks, rows):
        for name, item in items.items():
            spelled, code = item.read(batch.column(item.column))
            spelled = canonical(spelled, item.spelling)
            parts[name].append(spelled if code is None else spelled.take(pa.array(code, mask=code < 0)))
    encoded = {name: pa.concat_arrays(arrays).dictionary_encode("encode") for name, arrays in parts.items()}
    return {name: np.asarray(to_numpy(array.indices), np.int64) for name, array in encoded.items()}


def _batches_of(chunks: Chunks, rows: npt.NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
    """Yield some training rows, given their positions in order."""
    chosen = np.zeros(chunks.n_rows, bool)
    chosen[rows] = True
    first = at = 0
    for batch in chunks.source.batches(chunks.rows_per_chunk):
        taken = ~chunks.held_out.has(np.arange(first, first + batch.num_rows))
        first, before, at = first + batch.num_rows, at, at + int(taken.sum())
        taken[taken] = chosen[before:at]
        yield batch.filter(to_arrow(taken))
