"""Checks of the inputs of explanations: the model, the rows and the names of fields."""

from __future__ import annotations

from splinefm._checks import check_one_score
from splinefm.encode.slots import Slots
from splinefm.encode.tables.names import missing_column_message
from splinefm.learn.fitted import Fitted

# Products of more units have no closed form here: their moments are as many as the units of a product.
MOST_ORDER = 3


def has_closed_form(fitted: Fitted) -> bool:
    """Whether the score is a sum of products of at most three units."""
    return fitted.model.order <= MOST_ORDER


def check_closed_form(fitted: Fitted, what: str) -> None:
    """Raise for what is not a model with one score, and for models with products of more than three units."""
    check_one_score(fitted)
    if not has_closed_form(fitted):
        raise ValueError(
            f"{what}: not available for {fitted.model}, whose score has products of more than {MOST_ORDER} fields; "
            "use partial_dependence or ice_curves, or a model of order 2 or 3"
        )


def encode_rows(fitted: Fitted, table: object, threads: int | None) -> Slots:
    """Encode a table, to explain one score of its rows; slots are returned as they are."""
    check_one_score(fitted)
    if not isinstance(table, Slots):
        return fitted.encoder.encode(table, threads=threads)
    if table.layout != fitted.encoder.layout:
        raise ValueError("these slots come from another encoder; pass the table, or fitted.encoder.encode(table)")
    return table


def field_number(names: tuple[str, ...], name: str) -> int:
    """The index of a field."""
    if name not in names:
        raise ValueError(missing_column_message(name, names, "field", "the model"))
    return names.index(name)
