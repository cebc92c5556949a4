"""Offsets: a known part of the score of every row, such as the logarithm of the exposure (decision 116)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from splinefm._arrays import BoolArray, Float32Array, FloatArray
from splinefm._checks import check_column_name
from splinefm._core import elementary
from splinefm._wording import for_reader, setting
from splinefm.encode.tables.columns import as_numbers
from splinefm.encode.tables.names import nearest_hint, quoted
from splinefm.train.losses import Loss

OffsetKind = Literal["offset", "exposure"]
# Scores are float32: beyond these, an offset would take the digits of what the model learns, or overflow the link.
LARGEST, LARGEST_LOG = 1e4, 100.0


@dataclass(frozen=True)
class Offset:
    """A column that is a known part of the score.

    The score of a row is what the model has learned plus the offset, in training and in every prediction. An offset has
    the unit of the link: of the target for losses with the link identity, log-odds for the logistic loss, and
    logarithms for the Poisson, gamma and Tweedie losses. An exposure is a positive column whose logarithm is the
    offset: predictions are proportional to it.

    Parameters
    ----------
    column : str
        Name of the column.
    kind : {"offset", "exposure"}
        Whether the column is added to the score, or its logarithm.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from splinefm.train.losses import Loss
    >>> Offset("years", "exposure").scores(pa.array([1.0, 2.0]), Loss("poisson"))
    array([0.       , 0.6931472], dtype=float32)
    """

    column: str
    kind: OffsetKind = "offset"

    def __post_init__(self) -> None:
        check_column_name(self.kind, self.column)
        if self.kind not in ("offset", "exposure"):
            raise ValueError(f'the kind of an offset must be "offset" or "exposure", got {self.kind!r}')

    def __str__(self) -> str:
        return f"{self.kind} {self.column!r}"

    def check_loss(self, loss: Loss) -> None:
        """Raise unless a loss can have this offset."""
        if loss.name == "softmax":
            raise ValueError(
                f"{setting(self.kind)} {self.column!r} is for losses with one score per row: one number that is added "
                "to the scores of all classes changes no probability; leave it out"
            )
        if self.kind == "exposure" and loss.link != "log":
            raise ValueError(
                f"{setting('exposure')} {self.column!r} is for the losses poisson, gamma and tweedie, whose "
                f"predictions it multiplies, got {loss.name}; to add a column to the score, use {setting('offset')}"
            )

    def values(self, column: pa.Array, first: int | None = None) -> FloatArray:
        """Return a column as numbers in the unit of the link; invalid ones raise an error.

        `first` is the number of the first row in its table, for the message; without it, no row is named.
        """
        try:
            numbers = as_numbers(column, self.column)
        except ValueError as error:
            raise ValueError(f"the {self}: {error}") from error
        self._require(np.isfinite(numbers), numbers, "must be a finite number", first)
        if self.kind == "offset":
            return numbers
        self._require(numbers > 0.0, numbers, "must be above 0", first)
        return elementary("log", np.ascontiguousarray(numbers))

    def in_scores(self, values: FloatArray, loss: Loss, first: int | None = None) -> Float32Array:
        """Return what `values` returned in the unit of the scores of a fitted loss."""
        scores, largest = values / loss.score_unit, self.largest(loss)
        unit = (
            f"{largest:g} times the scale of the loss, {loss.scale:g}," if loss.link == "identity" else f"{largest:g}"
        )
        what = "the logarithm must" if self.kind == "exposure" else "must"
        self._require(np.abs(scores) <= largest, values, f"{what} lie within {unit} of 0", first)
        return scores.astype(np.float32)

    @staticmethod
    def largest(loss: Loss) -> float:
        """Return the largest distance from zero of an offset, in the unit of the scores."""
        return LARGEST if loss.link == "identity" else LARGEST_LOG

    def scores(self, column: pa.Array, loss: Loss, first: int | None = None) -> Float32Array:
        """Return what a column adds to the scores of a fitted loss."""
        return self.in_scores(self.values(column, first), loss, first)

    def takes(self, value: object) -> bool:
        """Return whether a plain number can be a value of the column.

        Examples
        --------
        >>> Offset("years", "exposure").takes(0.0), Offset("years", "exposure").takes(0.5)
        (False, True)
        """
        is_number = isinstance(value, int | float) and math.isfinite(value)
        return is_number and (self.kind == "offset" or value > 0.0)  # type: ignore[operator]  # a number

    def of_batch(self, batch: pa.RecordBatch, first: int | None = None) -> FloatArray:
        """Return the values of a batch of a table, which must have the column."""
        self.check_columns(batch.schema.names)
        return self.values(batch.column(self.column), first)

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise if a table does not have the column."""
        if self.column not in names:
            raise ValueError(self.missing_message(names))

    def missing_message(self, names: Sequence[str], where: str = "the table") -> str:
        """Return the message for rows without the column."""
        without = "fitted.without_offset()"
        way_out = f"add it, or use {without} for scores that leave it out"
        return (
            f"no column {self.column!r} in {where}{nearest_hint(self.column, names)}; the model was fitted with the "
            f"{self}: {for_reader(way_out, 'add it')}. Columns: {quoted(names) or 'none'}"
        )

    def _require(self, valid: BoolArray, numbers: FloatArray, rule: str, first: int | None) -> None:
        if valid.all():
            return
        row = int(valid.argmin())
        where = "" if first is None else f" in row {first + row:,} (counted from 0)"
        raise ValueError(f"the {self} {rule}, got {numbers[row]:g}{where}; correct or drop such rows")


def as_offset(offset: object, exposure: object, loss: Loss) -> Offset | None:
    """Return the offset of a fit, given the names of columns, of which at most one can be given."""
    if offset is None and exposure is None:
        return None
    if offset is not None and exposure is not None:
        raise ValueError(
            f"{setting('offset')} and {setting('exposure')} are both given; add the logarithm of the exposure to the "
            "offset, and pass their sum"
        )
    kind: OffsetKind = "offset" if exposure is None else "exposure"
    found = Offset(offset if exposure is None else exposure, kind)  # type: ignore[arg-type]  # which checks it
    found.check_loss(loss)
    return found
