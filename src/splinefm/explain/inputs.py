"""Checks of what explanations are asked for: the model, the rows and the names of fields."""

from __future__ import annotations

from splinefm.encode.slots import Slots
from splinefm.encode.tables.open import missing_column_message
from splinefm.learn.fitted import Fitted
from splinefm.model.family import HigherOrderFM


def check_quadratic(fitted: Fitted, what: str) -> None:
    """Raise for the model that has products of more than two fields."""
    if isinstance(fitted.model, HigherOrderFM):
        raise ValueError(
            f"{what}: not available for a HigherOrderFM, whose score has products of more than two fields; "
            "partial_dependence and ice_curves are, and the other models have them all"
        )


def encode_rows(fitted: Fitted, table: object, threads: int | None) -> Slots:
    """The rows of a table as slots, which they may be already."""
    if not isinstance(table, Slots):
        return fitted.encoder.encode(table, threads=threads)
    if table.layout != fitted.encoder.layout:
        raise ValueError("these slots were made by another encoder; pass the table, or fitted.encoder.encode(table)")
    return table


def encode_background(fitted: Fitted, table: object, threads: int | None) -> Slots:
    """The same for a background, which has at least one row."""
    slots = encode_rows(fitted, table, threads)
    if not len(slots):
        raise ValueError("the background has no rows; it needs at least one to compare with")
    return slots


def field_number(names: tuple[str, ...], name: str) -> int:
    """The place of a field."""
    if name not in names:
        raise ValueError(missing_column_message(name, names, "field", "the model"))
    return names.index(name)
