"""Checks of the inputs of explanations: the model, the rows and the names of fields."""

from __future__ import annotations

from splinefm._checks import check_one_score
from splinefm.encode.slots import Slots
from splinefm.encode.tables.names import missing_column_message
from splinefm.learn.fitted import Fitted


def check_quadratic(fitted: Fitted, what: str) -> None:
    """Raise for models with products of more than two fields."""
    if not fitted.model.pairwise:
        raise ValueError(
            f"{what}: not available for a HigherOrderFM, whose score has products of more than two fields; "
            "use partial_dependence or ice_curves, or another model"
        )


def encode_rows(fitted: Fitted, table: object, threads: int | None) -> Slots:
    """Encode a table, to explain one score of its rows; slots are returned as they are."""
    check_one_score(fitted)
    if not isinstance(table, Slots):
        return fitted.encoder.encode(table, threads=threads)
    if table.layout != fitted.encoder.layout:
        raise ValueError("these slots come from another encoder; pass the table, or fitted.encoder.encode(table)")
    return table


def encode_background(fitted: Fitted, table: object, threads: int | None) -> Slots:
    """Encode a background, which must have at least one row."""
    slots = encode_rows(fitted, table, threads)
    if not len(slots):
        raise ValueError("the background has no rows; it needs at least one to compare with")
    return slots


def field_number(names: tuple[str, ...], name: str) -> int:
    """The index of a field."""
    if name not in names:
        raise ValueError(missing_column_message(name, names, "field", "the model"))
    return names.index(name)
