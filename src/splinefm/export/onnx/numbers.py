"""Numbers in ONNX graphs: the input of a field, and the tokens of special and missing values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from splinefm.encode.fields.numerical import Numerical
from splinefm.export.onnx.transforms import date_part

if TYPE_CHECKING:
    from splinefm.export.onnx.graph import Graph

_COMPARE = {"<=": "LessOrEqual", ">=": "GreaterOrEqual", "==": "Equal", "<": "Less", ">": "Greater"}


def read_number(g: Graph, item: Numerical) -> str:
    """The numbers of a field, NaN where missing."""
    x = g.input(item.column, np.float64, ("N",))
    return x if item.part is None else date_part(g, x, item.part)


def number_token(g: Graph, item: Numerical, x: str, refused: int) -> str:
    """The token of each value, or -1; that of a missing value is `refused` where it is an error."""
    missing = refused if item.missing_token is None else item.missing_token
    token = g("Where", g("IsNaN", x), missing, -1)
    for position, rule in reversed(list(enumerate(item.rules))):
        token = g("Where", g(_COMPARE[rule.sign], x, rule.number), position, token)
    return token
