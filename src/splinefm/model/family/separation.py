"""Fields that must not interact: which models can keep them apart, and how.

What is between two fields f and e is zero if it starts at zero and its gradient is zero:

| model | what is zero                                                        | gradient                          |
|-------|---------------------------------------------------------------------|-----------------------------------|
| FwFM  | r_fe, of all members                                                | set to zero by the engines        |
| FmFM  | M_fe                                                                | set to zero by the engines        |
| FFM   | the part of f's vectors that meets e, and the part of e's meeting f | zero: each is that of the other's |

The other models have no number that belongs to a pair of fields alone, and a product of three units has none either.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from splinefm.encode.schema import Schema
from splinefm.encode.slots import SlotLayout
from splinefm.model.family.contract import Model, Params


def keep_apart(model: Model, params: Params, layout: SlotLayout) -> None:
    """Set what is between the fields of `layout.apart` to zero; the parameters may have a first axis for outputs.

    Examples
    --------
    >>> import numpy as np
    >>> from splinefm.encode.slots import FieldLayout
    >>> from splinefm.model.family import FwFM
    >>> layout = SlotLayout(tuple(FieldLayout(name, 1, (1,), (0,)) for name in "abc"), apart=((0, 2),))
    >>> params = {"field_weights": np.ones((3, 3), np.float32)}
    >>> keep_apart(FwFM(k=4), params, layout)
    >>> params["field_weights"].tolist()
    [[1.0, 1.0, 0.0], [1.0, 1.0, 1.0], [0.0, 1.0, 1.0]]
    """
    if layout.apart and not (model.can_separate and model.pairwise):
        raise ValueError(f"{model} cannot keep fields apart; use FwFM, FmFM or FFM")
    keep_pairs_apart(model, params, layout)
    for f in range(len(layout.fields)):
        for columns in columns_apart(model, layout, f):
            params["factors"][..., layout.feature_ptr[f] : layout.feature_ptr[f + 1], columns] = 0.0


def is_apart(model: Model, params: Params, layout: SlotLayout, vectors: bool = True) -> bool:
    """Whether nothing is between the fields of `layout.apart`; False for a model that cannot keep fields apart.

    Without `vectors`, only the parameters between fields are read.
    """
    if not layout.apart:
        return True
    f, e = layout.apart_indices
    small = [params[name][index] for name, index in model.pair_index(f, e).items()]
    parts = (
        params["factors"][..., layout.feature_ptr[at] : layout.feature_ptr[at + 1], columns]
        for at in range(len(layout.fields) if vectors else 0)
        for columns in columns_apart(model, layout, at)
    )
    return model.can_separate and not any(np.any(values) for values in (*small, *parts))


def keep_pairs_apart(model: Model, params: Params, layout: SlotLayout) -> None:
    """Set the parameters between fields to zero that belong to the pairs of `layout.apart`."""
    if layout.apart:
        for name, index in model.pair_index(*layout.apart_indices).items():
            params[name][index] = 0.0


def columns_apart(model: Model, layout: SlotLayout, f: int) -> list[slice]:
    """The coordinates of the vectors of field f that would meet fields which it must not interact with."""
    if not model.has_parts or not layout.apart:
        return []
    mine, others = layout.apart_indices
    return [model.columns(e) for e in others[mine == f].tolist()]


def can_keep(model: Model, schema: Schema) -> bool:
    """Whether a model can keep the constraints of a schema on interactions."""
    return _problem(model, schema) is None


def constrained(model: Any, schema: Schema) -> Any:
    """A model as it is, or without products of three fields if only these break the constraints of the schema.

    Examples
    --------
    >>> import splinefm as sf
    >>> schema = sf.Schema([sf.Numerical("x"), sf.Numerical("y"), sf.Numerical("z")], interaction_cst=[{"x", "y"}])
    >>> constrained(sf.FwFM(k=16, third=16), schema), constrained(sf.FM(k=16), schema)
    (FwFM(k=16), FwFM(k=16))
    """
    if can_keep(model, schema):
        return model
    for other in model.separable():
        if can_keep(other, schema):
            return other
    return model


def check_model_keeps(model: Any, schema: Schema) -> None:
    """Raise where a model has no place for the constraints of a schema on interactions.

    Examples
    --------
    >>> import splinefm as sf
    >>> schema = sf.Schema([sf.Numerical("x"), sf.Numerical("y")], interaction_cst="no_interactions")
    >>> check_model_keeps(sf.FM(k=8), schema)
    Traceback (most recent call last):
        ...
    ValueError: FM(k=8) cannot keep two fields apart, such as 'x' and 'y': every vector meets all others; use FwFM(k=8)
    """
    problem = _problem(model, schema)
    if problem is not None:
        raise ValueError(f"{model} {problem}; use {constrained(model, schema)}")


def _problem(model: Model, schema: Schema) -> str | None:
    given = schema.interactions
    if given is None:
        return None
    if model.order > 2 and not given.allows(schema.columns):
        return f"multiplies up to {model.order} fields, and not all columns may interact ({given})"
    columns = [item.columns for item in schema.resolved]
    if not model.can_separate and (apart := given.apart(columns)):
        f, e = (schema.names[at] for at in apart[0])
        return f"cannot keep two fields apart, such as {f!r} and {e!r}: every vector meets all others"
    return None
