"""Held-out rows: a random sample that does not depend on the order of reading."""

from __future__ import annotations

from dataclasses import dataclass, field
from numbers import Real

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.encoder import CHUNK, Encoder
from splinefm.encode.slots import concatenate_slots
from splinefm.encode.tables.arrow import to_arrow
from splinefm.learn.losses import Loss
from splinefm.learn.rows.source import Source, ahead
from splinefm.learn.targets.labels import SMALLEST_TOTAL
from splinefm.learn.training import Chunk, FloatArray, Training, seeded

MOST_VALIDATION_ROWS = 200_000


@dataclass
class ValidationSample:
    """A random share of a table's rows, at most `most` of them, spread over the whole table.

    A row is included if its random number, which depends only on the seed and the row number, is below the share. If
    there are too many rows, the share is halved. The sample therefore does not depend on the order of reading. Copies
    of a row have its number, so that they are included together.

    Parameters
    ----------
    share : float
        The share of rows to draw; it can decrease.
    seed : int
        Seed of the random numbers.
    most : int
        The most rows to draw.
    copies : array, optional
        The first row that each row of the table is a copy of; see `find_copies`.
    """

    share: float
    seed: int
    most: int
    copies: npt.NDArray[np.int64] | None = None
    n_rows: int = 0
    parts: list[tuple[FloatArray, pa.RecordBatch]] = field(default_factory=list)

    def has(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return whether rows are in the sample."""
        return self._randoms(numbers) < self.share

    def _randoms(self, numbers: npt.NDArray[np.int64]) -> FloatArray:
        return row_randoms(self.seed, numbers if self.copies is None else self.copies[numbers])

    def add(self, first: int, batch: pa.RecordBatch) -> None:
        """Keep the rows of a batch that are in the sample; `first` is the number of its first row."""
        if self.share == 0.0:
            return
        randoms = self._randoms(np.arange(first, first + batch.num_rows))
        randoms, batch = _below(self.share, randoms, batch)
        self.parts.append((randoms, without_dictionaries(batch)))
        self.n_rows += len(randoms)
        self.limit(self.most)

    def limit(self, most: int) -> None:
        """Halve the share until there are at most this many rows."""
        while self.n_rows > most:
            self.lower(self.share / 2)

    def lower(self, share: float) -> None:
        """Lower the share, such as to that of several processes."""
        self.share = min(self.share, share)
        self.parts = [_below(self.share, *part) for part in self.parts]
        self.n_rows = sum(len(randoms) for randoms, _ in self.parts)

    def encode(self, source: Source, encoder: Encoder, loss: Loss, threads: int | None = None) -> Chunk | None:
        """Return the encoded rows, or None if their weights are 0 or next to it, and release the raw rows."""
        parts, self.parts = self.parts, []
        chunks = [source.encode(batch, encoder, loss, threads) for randoms, batch in parts if len(randoms)]
        if not sum(float(chunk.sample_weight.sum()) for chunk in chunks) >= SMALLEST_TOTAL:
            return None
        slots, y, weight = zip(*chunks, strict=True)
        return Chunk(concatenate_slots(slots), np.concatenate(y), np.concatenate(weight))


def as_share(validation: float | object) -> float | None:
    """Return the share of rows to hold out, or None if validation rows are another table.

    Examples
    --------
    >>> as_share(np.float32(0.5)), as_share("other.csv")
    (0.5, None)
    """
    return float(validation) if isinstance(validation, Real) else None


def sample_validation(source: Source, training: Training) -> ValidationSample:
    """Return the rows of a validation table, or a sample of a large one."""
    sample, first = ValidationSample(1.0, training.seed, MOST_VALIDATION_ROWS), 0
    for batch in ahead(source.batches(CHUNK)):
        sample.add(first, batch)
        first += batch.num_rows
    return sample


def row_randoms(seed: int, numbers: npt.NDArray[np.int64]) -> FloatArray:
    """Return a random number in [0, 1) for each row number: SplitMix64, which needs no state from previous rows."""
    z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z += seeded(seed).integers(2**64, dtype=np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return np.asarray((z >> np.uint64(11)) * 2.0**-53)


def _below(share: float, randoms: FloatArray, batch: pa.RecordBatch) -> tuple[FloatArray, pa.RecordBatch]:
    chosen = randoms < share
    return randoms[chosen], batch.filter(to_arrow(chosen))


def without_dictionaries(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Decode dictionaries: a few rows would keep a whole dictionary in memory."""
    columns = [c.dictionary_decode() if pa.types.is_dictionary(c.type) else c for c in batch.columns]
    return pa.RecordBatch.from_arrays(columns, names=batch.schema.names)
