"""What the page of a model is made of: JSON, and arrays of numbers beside it."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._checks import check_count, check_fitted
from splinefm.encode.encoder import CHUNK
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.sources import Sources
from splinefm.encode.tables.open import open_table
from splinefm.explore.payload.buffers import Array, Buffers, encode_array
from splinefm.explore.payload.columns import describe_columns
from splinefm.explore.payload.cut import Kept, keep_features
from splinefm.explore.payload.explain import describe_explanations
from splinefm.explore.payload.fields import describe_plan, plan_fields
from splinefm.explore.payload.items import Items, describe_items, encode_items
from splinefm.explore.payload.model import describe_loss, describe_model
from splinefm.explore.payload.rows import describe_rows
from splinefm.learn.description import describe_validation, predicted_thing
from splinefm.learn.fitted import Fitted

MOST_PARAMETERS = 1_000_000
"""Parameters that a page gets at most, before categories are left out."""
NOT_ASKED = "explanations were not asked for"


@dataclass(frozen=True, eq=False)
class Payload:
    """What a page gets.

    Parameters
    ----------
    data : dict
        Lists, dicts, text and numbers; it names arrays.
    buffers : dict of str to array
        The arrays, flat: float32, float64 or int32.
    """

    data: dict[str, Any]
    buffers: dict[str, Array]

    def to_json(self) -> str:
        """Return both as one JSON text, which `decodePayload` of the page reads; it has no `<`, as HTML wants it."""
        arrays = {name: encode_array(values) for name, values in self.buffers.items()}
        text = json.dumps({"payload": self.data, "buffers": arrays}, allow_nan=False, separators=(",", ":"))
        return text.replace("<", "\\u003c")


def make_payload(
    fitted: Fitted,
    table: object,
    *,
    target: str | None = None,
    weight: str | None = None,
    items: Items | None = None,
    most_parameters: int = MOST_PARAMETERS,
    explain: bool = True,
    threads: int | None = None,
) -> Payload:
    """Describe a model and some rows for a page.

    Parameters
    ----------
    fitted : Fitted
        The model.
    table : table, path or dataset
        The rows of the page, all of which it gets: a sample of some thousands.
    target, weight : str, optional
        Columns of the table with what the model predicts, and with sample weights.
    items : Items, optional
        Items to rank.
    most_parameters : int
        A model with more loses its rarest categories and combinations of categories, but none that the rows have:
        `data["cut"]` says how many of a field are left. To the page, the others are unseen.
    explain : bool
        Whether the page explains scores by Shapley values and shows importances, which take time to measure.
    threads : int, optional
        All cores by default.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "click": [0, 0, 1, 1] * 50}
    >>> schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c")])
    >>> fitted = sf.fit_model(table, "click", schema=schema, training=sf.Training(epochs=2, threads=1))
    >>> payload = make_payload(fitted, table, target="click")
    >>> [column["name"] for column in payload.data["columns"]], payload.data["rows"]["n"]
    (['x', 'c'], 200)
    """
    check_fitted(fitted)
    check_count("most_parameters", most_parameters, 1, None)
    plans = plan_fields(fitted)
    rows = _read(fitted, table, target, weight)
    sources, buffers = Sources(fitted.encoder.schema), Buffers()
    slots = [fitted.encoder.encode(rows, threads=threads), *encode_items(fitted, items, rows, threads)]
    width = fitted.n_outputs * (1 + fitted.model.width(len(plans)))
    kept = keep_features(fitted, most_parameters // width, slots)
    firsts = np.cumsum([0, *(len(part.features) for part in kept)])
    order = list(sources.fields)
    fields = []
    for f, (plan, item) in enumerate(zip(plans, fitted.encoder.fields, strict=True)):
        of = [order.index(name) for name in sources.of.get(item.name, (item.name,))]
        described = describe_plan(plan, kept[f], int(firsts[f]), of, buffers, f"field {f}")
        fields.append({"name": item.name, "sources": of, **described, "features": len(kept[f].features)})
    data = {
        "version": 1,
        "columns": describe_columns(fitted, sources, kept, rows, buffers),
        "fields": fields,
        "model": describe_model(fitted, _features(fitted, kept), buffers),
        "loss": describe_loss(fitted),
        "predicts": predicted_thing(fitted),
        "cut": {
            item.name: [len(k.members), k.total]
            for item, k in zip(fitted.encoder.fields, kept, strict=True)
            if k.is_cut
        },
        "rows": describe_rows(fitted, sources, rows, target, weight, buffers),
        "items": describe_items(sources, items, buffers),
        "explain": describe_explanations(fitted, rows, buffers, threads) if explain else {"reason": NOT_ASKED},
        "training": _training(fitted),
    }
    return Payload(_finite(data), buffers.arrays)


def _read(fitted: Fitted, table: object, target: str | None, weight: str | None) -> pa.Table:
    """All rows of the columns that a page needs."""
    schema = fitted.encoder.schema
    source = open_table(table, types=schema.column_types())
    schema.check_columns(source.names, target)
    others = [name for name in (target, weight) if name is not None]
    for name in others:
        if name not in source.names:
            raise ValueError(f"the table has no column {name!r}; its columns are {', '.join(map(repr, source.names))}")
    names = list(dict.fromkeys([*schema.columns, *others]))
    batches = list(source.chunks(names, CHUNK))
    if not sum(batch.num_rows for batch in batches):
        raise ValueError("the table has no rows; a page needs at least one")
    plain = [pa.Table.from_batches([batch]) for batch in batches]
    return pa.concat_tables([_decoded(part) for part in plain]).combine_chunks()


def _decoded(table: pa.Table) -> pa.Table:
    """Without dictionaries, which may differ between batches."""
    columns = [
        column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        for column in table.columns
    ]
    return pa.table(columns, names=table.column_names)


def _features(fitted: Fitted, kept: list[Kept]) -> npt.NDArray[np.intp]:
    firsts = fitted.encoder.layout.feature_ptr[:-1]
    return np.concatenate([first + part.features for first, part in zip(firsts, kept, strict=True)])


def _training(fitted: Fitted) -> dict[str, Any]:
    """How the model was trained, and its losses by epoch."""
    history = [
        {"epoch": epoch.epoch, "run": epoch.run, "train": epoch.train_loss, "validation": epoch.validation_loss}
        for epoch in fitted.history
    ]
    n_crosses = sum(isinstance(item, Cross) for item in fitted.encoder.fields)
    return describe_validation(fitted) | {
        "rows": fitted.encoder.n_rows,
        "fields": len(fitted.encoder.fields),
        "crosses": n_crosses,
        "features": fitted.encoder.layout.n_features,
        "parameters": sum(values.size for values in fitted.params.values()),
        "history": history,
    }


def _finite(value: Any) -> Any:
    """The same with None for numbers that JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
