"""What the page of a model is made of: JSON, and arrays of numbers beside it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from splinefm._arrays import Array, IndexArray
from splinefm._checks import check_count, check_fitted
from splinefm._wording import as_json
from splinefm.encode.encoder import CHUNK
from splinefm.encode.schema import Sources
from splinefm.encode.slots import Slots
from splinefm.encode.tables.open import open_table
from splinefm.explore.arrays import Buffers, KeptFeatures, describe_rows, describe_values, encode_array, keep_features
from splinefm.explore.fields import describe_columns, describe_plan, plan_fields
from splinefm.inspect.importance import Importance, importance
from splinefm.inspect.rows import read_rows, spaced_rows
from splinefm.inspect.shapley import Background
from splinefm.inspect.terms import TripleMoments, has_closed_form
from splinefm.model.family.parameters import by_output, each_output
from splinefm.train.fitted import Fitted

# Items that a page ranks for a context.

MAX_ITEMS = 20_000


class Items(NamedTuple):
    """Items to rank: the columns of the model that are in their table belong to the item, the others to the context.

    Parameters
    ----------
    table : pyarrow.Table
        A row per item, at most 20,000.
    ids : list of str
        The name of each item.
    """

    table: pa.Table
    ids: list[str]


def check_items(fitted: Fitted, items: Items) -> list[str]:
    """The columns of the model that items have; raise where they have none, or all, or are too many."""
    known = fitted.encoder.schema.columns
    columns = [name for name in known if name in items.table.column_names]
    if not columns or len(columns) == len(known):
        raise ValueError(
            f"the items have {'no' if not columns else 'all'} columns of the model ({', '.join(map(repr, known))}); "
            "a ranking needs some that belong to the items and some that belong to the context"
        )
    if not 0 < len(items.table) <= MAX_ITEMS:
        raise ValueError(f"a page ranks 1 to {MAX_ITEMS:,} items, got {len(items.table):,}; give it the most frequent")
    if len(items.ids) != len(items.table):
        raise ValueError(f"there are {len(items.ids):,} ids for {len(items.table):,} items")
    return columns


def encode_items(fitted: Fitted, items: Items | None, rows: pa.Table, threads: int | None) -> list[Slots]:
    """The items with the context of the first row, encoded: their features are needed in the page."""
    if items is None:
        return []
    columns, first = check_items(fitted, items), pa.array(np.zeros(len(items.table), np.int64))
    context = rows.slice(0, 1).take(first)
    both = {
        name: items.table.column(name) if name in columns else context.column(name)
        for name in fitted.encoder.schema.columns
    }
    return [fitted.encoder.encode(pa.table(both), threads=threads)]


def describe_items(sources: Sources, items: Items | None, buffers: Buffers) -> dict[str, Any] | None:
    """Names and values of items; a source without values belongs to the context."""
    if items is None:
        return None
    table = items.table.combine_chunks()
    return {
        "n": len(table),
        "ids": [str(name) for name in items.ids],
        "columns": describe_values(sources.fields, table, buffers, "items"),
    }


# What a page needs to explain scores exactly: the statistics of a background, and importances measured here.

BACKGROUND_ROWS = 100
"""Rows that a model with crosses is compared with: a page takes time for each of them."""
IMPORTANCE_ROWS = 2000
_MAX_EFFECTS = 1 << 25  # of rows and pairs of fields that are in memory
_MAX_MOMENTS = 1 << 22  # second moments that products of three need
_MAX_PAIRS = 1000  # that are told
_CROSSED_ROWS = {2: 200, 3: 50}  # by order: effects of crosses take time for each row of the background


def describe_explanations(fitted: Fitted, rows: pa.Table, buffers: Buffers, threads: int | None) -> dict[str, Any]:
    """The background of Shapley values, for every score of a row, and importances.

    A model without crosses is compared with all rows, by their means. One with crosses is compared with some rows
    themselves, whose numbers are in `background`.
    """
    if not has_closed_form(fitted):
        return {"reason": f"{fitted.model} has products of more than three fields, which have no exact Shapley values"}
    n_fields, product = len(fitted.encoder.fields), fitted.model.product_columns
    if n_fields**2 * (product.stop - product.start) > _MAX_MOMENTS:
        return {"reason": f"{n_fields:,} fields have more products of three than a page takes; use sf.shapley_values"}
    crossed = bool(fitted.encoder.crosses)
    numbers = spaced_rows(len(rows), BACKGROUND_ROWS if crossed else len(rows))
    scores = _each_score(fitted)
    given = read_rows(scores[0], rows, threads)  # encoded once for all scores
    compared, measured = given[numbers], given[spaced_rows(len(rows), _n_measured(fitted, crossed))]
    outputs = []
    for c, one in enumerate(scores):
        known = Background.of(one, compared, rows=len(compared), threads=threads)
        found = importance(one, measured, known, threads=threads)
        outputs.append(_output(known, buffers, f"explain {c}") | {"importance": _importance(one, found)})
    players = known.players
    return {
        "reason": None,
        "players": list(players.names),
        "of_parts": [list(parts) for parts in players.of_parts],
        "background": buffers.add("explain: background", numbers, np.int32) if crossed else None,
        "n_background": len(compared),
        "outputs": outputs,
    }


def _each_score(fitted: Fitted) -> list[Fitted]:
    """A model of one score for each score of a row."""
    if fitted.n_outputs == 1:
        return [fitted]
    return [fitted.for_class(label) for label in fitted.classes or ()]


def _n_measured(fitted: Fitted, crossed: bool) -> int:
    """Rows that importances are measured on: fewer for many classes, and for many pairs of fields."""
    most = max(50, (_CROSSED_ROWS[fitted.model.order] if crossed else IMPORTANCE_ROWS) // fitted.n_outputs)
    return max(10, min(most, _MAX_EFFECTS // len(fitted.encoder.fields) ** 2))


def _output(known: Background, buffers: Buffers, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"base": known.base}
    for part in ("center", "slope", "terms"):
        found[part] = buffers.add(f"{name}: {part}", getattr(known, part), np.float64)
    triples: TripleMoments | None = known.triples
    found["triples"] = triples and {
        part: buffers.add(f"{name}: triples: {part}", getattr(triples, part), np.float64)
        for part in ("a", "b", "slope", "remainder", "offset")
    }
    return found


def _importance(fitted: Fitted, found: Importance) -> dict[str, Any]:
    """Fields (or columns, if there are crosses), pairs, triples, and the columns of each cross together."""
    names = found.fields
    crosses = []
    for item in fitted.encoder.schema.crosses:
        columns = sorted(set(item.columns), key=names.index)
        value: float | None = None
        if len(columns) == 2:
            value = float(found.pairs[names.index(columns[0]), names.index(columns[1])])
        elif len(columns) == 3:
            value = found.triples.get((columns[0], columns[1], columns[2]))
        crosses.append({"name": item.name, "columns": columns, "value": value})
    return {
        "fields": [
            {"name": name, "shapley": float(shapley), "main": float(main)}
            for name, shapley, main in zip(names, found.shapley, found.main, strict=True)
        ],
        "pairs": [{"names": [one, other], "value": value} for one, other, value in found.ranked_pairs()[:_MAX_PAIRS]],
        "triples": [{"names": list(three), "value": value} for *three, value in found.ranked_triples()[:100]],
        "crosses": sorted(crosses, key=lambda cross: -(cross["value"] or 0.0)),
    }


# The formula of a model and its parameters, as answers of the model to the questions of its contract.


def describe_formula(fitted: Fitted, features: IndexArray, buffers: Buffers) -> dict[str, Any]:
    """What scores are made of, with the parameters of some features.

    Pairs of units add p_u[columns(e)]' M_fe p_v[columns(f)], and products of three to `order` units are added
    coordinate by coordinate, for the coordinates in `product`, times `product_weight`.
    """
    model, n_fields = fitted.model, len(fitted.encoder.fields)
    params = by_output(fitted.params)
    every = len(features) == params["linear"].shape[1]
    factors, linear = (params[name] if every else params[name][:, features] for name in ("factors", "linear"))
    between = np.stack([model.between_all(own, n_fields) for own in each_output(fitted.params)])
    product = model.product_columns
    return {
        "text": str(model),
        "kind": model.kind,
        "order": model.order,
        "width": model.width(n_fields),
        "part": model.part_size(n_fields),
        "columns": [model.columns(e).start or 0 for e in range(n_fields)],
        "product": [product.start, product.stop],
        "product_weight": model.product_weight,
        "outputs": fitted.n_outputs,
        "features": len(features),
        "factors": buffers.add("factors", factors, np.float32),
        "linear": buffers.add("linear", linear, np.float32),
        "bias": buffers.add("bias", params["bias"], np.float32),
        "between": buffers.add("between", between, np.float32),
        "between_axes": between.ndim - 3,  # 0: a weight, 1: one for each coordinate, 2: a matrix
    }


def describe_loss(fitted: Fitted) -> dict[str, Any]:
    """The link from scores to predictions, and the names of classes."""
    loss = fitted.loss
    return {
        "name": loss.name,
        "text": str(loss),
        "link": loss.link,
        "center": loss.center,
        "scale": loss.scale,
        "quantile": loss.quantile,
        "of_class": None if loss.of_class is None else str(loss.of_class),
        "classes": None if loss.classes is None else [str(label) for label in loss.classes],
    }


MAX_PARAMETERS = 1_000_000
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

    @staticmethod
    def of(data: dict[str, Any], buffers: Buffers) -> Payload:
        """Values and the arrays that they name; None for numbers that JSON does not have."""
        return Payload(as_json(data), buffers.arrays)

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
    max_parameters: int = MAX_PARAMETERS,
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
    max_parameters : int
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
    check_count("max_parameters", max_parameters, 1, None)
    plans = plan_fields(fitted)
    rows = _read(fitted, table, target, weight)
    sources, buffers = fitted.encoder.schema.sources, Buffers()
    slots = [fitted.encoder.encode(rows, threads=threads), *encode_items(fitted, items, rows, threads)]
    width = fitted.n_outputs * (1 + fitted.model.width(len(plans)))
    kept = keep_features(fitted, max_parameters // width, slots)
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
        "model": describe_formula(fitted, _features(fitted, kept), buffers),
        "loss": describe_loss(fitted),
        "cut": {
            item.name: [len(k.members), k.total]
            for item, k in zip(fitted.encoder.fields, kept, strict=True)
            if k.is_cut
        },
        "rows": describe_rows(fitted, sources, rows, target, weight, buffers),
        "items": describe_items(sources, items, buffers),
        "explain": describe_explanations(fitted, rows, buffers, threads) if explain else {"reason": NOT_ASKED},
    }
    return Payload.of(data, buffers)


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


def _features(fitted: Fitted, kept: list[KeptFeatures]) -> IndexArray:
    firsts = fitted.encoder.layout.feature_ptr[:-1]
    return np.concatenate([first + part.features for first, part in zip(firsts, kept, strict=True)])
