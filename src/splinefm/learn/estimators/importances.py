"""Importances of columns from the encoded rows that an estimator keeps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.slots import Slots
from splinefm.learn.fitted import Fitted


def columns_of(fitted: Fitted) -> list[str]:
    """Return the columns that each field reads, one after the other; several fields can read the same column."""
    return [column for item in fitted.encoder.fields for column in item.columns]


def column_importances(
    fitted: Fitted, rows: Slots | pa.Table, names: Sequence[str], threads: int | None
) -> npt.NDArray[np.float64]:
    """Return how much each column moves the scores: mean absolute Shapley values, divided by their sum."""
    # An import against the order of the folders: see `Fitted.segment`.
    from splinefm.explain.inputs import has_closed_form
    from splinefm.explain.shapley import shapley_values

    if not has_closed_form(fitted):
        raise AttributeError(
            f"feature_importances_ is not available for {fitted.model}; use sf.partial_dependence, or a model of "
            "order 2 or 3"
        )
    if isinstance(rows, Slots):
        rows = rows.grown(fitted.encoder.layout)
    each = [fitted] if fitted.n_outputs == 1 else [fitted.for_class(label) for label in fitted.classes or ()]
    found = [np.abs(shapley_values(one, rows, rows, threads=threads).values).mean(axis=0) for one in each]
    values = np.sum(found, axis=0)
    shares = dict.fromkeys(names, 0.0)
    crosses = fitted.encoder.schema.crosses
    for column, value in zip(fitted.encoder.schema.columns if crosses else columns_of(fitted), values, strict=True):
        shares[column] += value
    total = sum(shares.values())
    return np.array(list(shares.values())) / (total if total > 0.0 else 1.0)
