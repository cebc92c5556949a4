"""Export to ONNX: one graph from raw columns to scores and predictions, for any runtime that reads ONNX."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm.encode.fields.categorical import Categorical, MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.tables.columns import one_array
from splinefm.encode.tables.open import open_table
from splinefm.encode.tables.spelling import canonical, other_spellings
from splinefm.learn.files.container import check_destination, replacing
from splinefm.learn.fitted import Fitted

if TYPE_CHECKING:
    from splinefm.export.onnx.graph import Graph
    from splinefm.export.onnx.numbers import Window

Array = npt.NDArray[Any]

NO_INTEGER = int(np.iinfo(np.int64).min)
"""A missing value of a column of whole numbers."""
_OUTSIDE = 1 << 40  # a row that no table has: looking it up is an error, as ONNX defines it
_COMPARE = {"<=": "LessOrEqual", ">=": "GreaterOrEqual", "==": "Equal", "<": "Less", ">": "Greater"}


def export_onnx(
    fitted: Fitted, path: str | os.PathLike[str], *, opset: int = 17, integers: Collection[str] = ()
) -> None:
    """Write the model as an ONNX graph, with transforms, bases, vocabularies and tables inside.

    The graph has an input per column of the table, under its name, and two outputs, "score" (float) and "prediction"
    (double), with an entry per row. Where a column has one of these names, "_" is appended to that of the output. Any
    number of rows can be scored at a time. An existing file is replaced in one step, or not at all.

    | field | input | missing |
    |---|---|---|
    | numerical | double (N) | NaN |
    | categorical | string (N) | "", or "<missing>" where "" is a category |
    | categorical, in `integers` | int64 (N) | -2⁶³ |
    | multi-valued | string (N, any), padded with "" | a list of "<missing>" |

    Numbers are doubles because a float would cut digits off, those of timestamps for instance. Dates and times are
    seconds since 1970, by the clock of the field's `zone`, of which the graph takes the parts. Categories that were
    numbers in the table are numbers as text, "3" for 3.0 ("3.0" is understood, too); truth values are "true" and
    "false"; dates are written as 2024-05-28, or 2024-05-28 13:30:00. Where `unseen="error"` or `missing="error"` was
    asked for, running the graph on such a value is an error (a row that the table does not have is looked up). Infinite
    numbers, which are errors here, count as the ends of the range.

    Parameters
    ----------
    fitted : Fitted
        The model.
    path : path
        Where to; the usual ending is ".onnx".
    opset : int
        Version of ONNX's operators, 17 or higher. Old runtimes refuse new ones.
    integers : names of fields
        Categorical fields to be read as int64 instead of strings; all their categories must be whole numbers.

    Raises
    ------
    ValueError
        For what a graph cannot hold: transforms and bases with code of your own (with bins it can, see
        `sf.discretize`), `unseen="hash"`, and more than 2 GB.

    Examples
    --------
    >>> import tempfile
    >>> import onnxruntime
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, None] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c")])
    >>> training = sf.Training(epochs=2, threads=1)
    >>> fitted = sf.fit_model(table, "y", loss="squared", schema=schema, model=sf.FM(k=2), training=training)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sf.export_onnx(fitted, f"{folder}/model.onnx")
    ...     session = onnxruntime.InferenceSession(f"{folder}/model.onnx")
    >>> rows = {"x": np.array([0.5, np.nan]), "c": np.array(["a", "new"], object)}
    >>> score, prediction = session.run(["score", "prediction"], rows)
    >>> np.allclose(score, fitted.scores({"x": [0.5, None], "c": ["a", "new"]}), atol=1e-5)
    True
    """
    _check(fitted, integers)
    if Path(path).is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; add a file name, such as 'model.onnx'")
    target = check_destination(Path(path))
    from splinefm.export.onnx.graph import Graph

    names = fitted.encoder.schema.columns
    outputs = [_free(name, names) for name in ("score", "prediction")]
    g = Graph(opset, {*names, *outputs})
    units = [_field(g, fitted, f, item.name in integers) for f, item in enumerate(fitted.encoder.fields)]
    with g.scope("model"):
        score = _score(g, fitted, g("Concat", *units, axis=1))
        prediction = _link(g, fitted, score)
    g.output(outputs[0], score, np.float32)
    g.output(outputs[1], prediction, np.float64)
    version = sys.modules["splinefm"].__version__  # not imported: modules of the package import from its folders
    n_fields = len(fitted.encoder.fields)
    doc = f"{fitted.model!r} on {n_fields} fields, {fitted.loss.name} loss; written by splinefm {version}"
    with replacing(target) as file:
        file.write(g.model(doc, _metadata(fitted, outputs, integers), version).SerializeToString())


def onnx_inputs(fitted: Fitted, table: object, *, integers: Collection[str] = ()) -> dict[str, Array]:
    """The columns of a table as the graph of `export_onnx` takes them, to check an export or to learn the forms.

    Parameters
    ----------
    fitted : Fitted
        The model.
    table : table
        Anything that `Fitted.scores` takes.
    integers : names of fields
        As for `export_onnx`.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, None] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c")])
    >>> training = sf.Training(epochs=2, threads=1)
    >>> fitted = sf.fit_model(table, "y", loss="squared", schema=schema, model=sf.FM(k=2), training=training)
    >>> sf.onnx_inputs(fitted, {"x": [None, 3.0], "c": ["new", None]})
    {'x': array([nan,  3.]), 'c': array(['new', ''], dtype=object)}
    """
    _check(fitted, integers)
    schema = fitted.encoder.schema
    source = open_table(table, types=schema.column_types())
    schema.check_columns(source.names)
    chunks = list(source.chunks(schema.columns, 1 << 17))
    columns: dict[str, Array] = {}
    for item, place in zip(schema, schema.places, strict=True):
        parts = [chunk.column(place) for chunk in chunks]
        column = one_array(pa.chunked_array(parts)) if parts else pa.nulls(0)
        columns[item.column] = _as_input(item, column, item.name in integers)
    return columns


def _as_input(item: Any, column: pa.Array, whole: bool) -> Array:
    if isinstance(item, Numerical):
        return item.read(column) if item.part is None else item.seconds(column)
    if isinstance(item, MultiValued):
        return _padded(item, column)
    names, codes = item.read(column)
    listed = canonical(names, item.spelling).to_pylist()
    if codes is not None:
        listed = [listed[code] if code >= 0 else None for code in codes]
    if not whole:
        missing = _missing_text(item)
        return np.array([missing if name is None else name for name in listed], object)
    try:
        return np.array([NO_INTEGER if name is None else int(name) for name in listed], np.int64)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"column {item.name!r} holds something else than whole numbers: {error}") from error


def _padded(item: MultiValued, column: pa.Array) -> Array:
    names, offsets, missing = item.read(column)
    names = canonical(names, item.elements.spelling)
    counts = np.diff(offsets)
    width = _length(item) if item.reduction == "identity" else max(1, int(counts.max(initial=0)))
    padded = np.full((len(column), width), "", object)
    place = np.arange(len(names)) - np.repeat(offsets[:-1], counts)
    kept = place < width
    padded[np.repeat(np.arange(len(column)), counts)[kept], place[kept]] = np.array(names.to_pylist(), object)[kept]
    padded[missing, 0] = _missing_text(item)
    return padded


# Fields: each becomes a tensor of shape (N, units, 1 + width), with the linear weights first


def _field(g: Graph, fitted: Fitted, f: int, whole: bool) -> str:
    item: Any = fitted.encoder.fields[f]
    first, last = fitted.encoder.layout.feature_ptr[f : f + 2]
    linear, factors = fitted.params["linear"][first:last], fitted.params["factors"][first:last]
    table = np.concatenate([linear[:, None], factors], axis=1)
    with g.scope(item.name):
        if isinstance(item, Numerical):
            return _numerical(g, item, table)
        # The last row is that of categories that count for nothing.
        table = np.concatenate([table, np.zeros_like(table[:1])])
        if isinstance(item, MultiValued):
            return _multi_valued(g, item, table)
        column = g.input(item.column, np.int64 if whole else object, ("N",))
        rows = g.look_up(column, *_keys(item, len(table) - 1, whole))
        return g("Unsqueeze", g("Gather", table, rows), np.array([1]))


def _numerical(g: Graph, item: Numerical, table: Array) -> str:
    from splinefm.export.onnx.numbers import date_part, windows

    x = g.input(item.column, np.float64, ("N",))
    if item.part is not None:
        x = date_part(g, x, item.part)
    tokens, functions = np.split(table, [item.n_tokens])
    n_units = max(item.layout.units) + 1
    # A token is the first unit of its field, alone. There is a row even if there are no tokens: no graph lacks one.
    rows = np.zeros((max(1, len(tokens)), n_units, table.shape[1]), np.float32)
    rows[: len(tokens), 0] = tokens
    token = _token(g, item, x, len(rows))
    is_token = g("GreaterOrEqual", token, 0)
    ordinary = g("Where", is_token, 0.0, x)
    identity = item.reduction == "identity"
    parts = [_window(g, functions[own.functions], own, identity) for own in windows(g, item, ordinary)]
    units = parts[0]
    if identity:
        units = g("Concat", *parts, axis=1)
    else:
        for part in parts[1:]:
            units = g("Add", units, part)
    of_token = g("Gather", rows, g("Where", is_token, token, 0))
    return g("Where", g("Unsqueeze", is_token, np.array([1, 2])), of_token, units)


def _token(g: Graph, item: Numerical, x: str, n_rows: int) -> str:
    """The token of each value, or -1; that of a missing value lies outside of the table where it is an error."""
    missing = len(item.special) if item.missing == "token" else n_rows
    token = g("Where", g("IsNaN", x), missing, -1)
    for position, rule in reversed(list(enumerate(item.special))):
        sign, number = ("==", rule) if not isinstance(rule, str) else _parse(rule)
        token = g("Where", g(_COMPARE[sign], x, float(number)), position, token)
    return token


def _parse(rule: str) -> tuple[str, str]:
    """Sign and number of a special value such as ">= 999"."""
    if rule == "negative":
        return "<", "0"
    sign = re.match(r"[<>=]+", rule).group()  # type: ignore[union-attr]  # the field has checked it
    return sign, rule.removeprefix(sign)


def _window(g: Graph, table: Array, window: Window, identity: bool) -> str:
    """Vectors of functions times their weights, summed or as a unit each: shape (N, units, 1 + width)."""
    start, weight = window.start, window.weight
    if weight is None:  # a step: one row
        return g("Unsqueeze", g("Gather", table, str(start)), np.array([1]))
    if start is None and not identity:
        return g("Unsqueeze", g("MatMul", weight, table), np.array([1]))
    rows: str | Array = table[None]
    if start is not None:
        rows = g("Gather", table, g("Add", g("Unsqueeze", start, np.array([1])), np.arange(window.width)[None]))
    weighted = g("Mul", rows, g("Unsqueeze", weight, np.array([2])))
    return weighted if identity else g("ReduceSum", weighted, np.array([1]))


def _multi_valued(g: Graph, item: MultiValued, table: Array) -> str:
    length, nothing = _length(item), len(table) - 1
    identity = item.reduction == "identity"
    column = g.input(item.column, object, ("N", length if identity else f"length of {item.name}"))
    keys, rows, otherwise = _keys(item, nothing, False)
    known = {**dict(zip(keys, rows, strict=True)), "": nothing}  # no element is ever empty
    row = g.look_up(column, list(known), list(known.values()), otherwise)
    if identity:
        return g("Gather", table, row)
    count = g("CumSum", g.look_up(column, [""], [0], 1), 1)
    row = g("Where", g("LessOrEqual", count, length), row, nothing)
    total = g("ReduceSum", g("Gather", table, row), np.array([1]))
    if item.reduction == "sum":
        return total
    every = g("Gather", count, np.array([-1]), axis=1)
    divisor = g.cast(g("Clip", every, 1, length), np.float32)
    return g("Div", total, g("Unsqueeze", divisor, np.array([2])))


def _keys(item: Any, nothing: int, whole: bool) -> tuple[list[Any], list[int], int]:
    """Categories and the missing value, the row of each, and the row of all others."""
    names: list[Any] = item.vocabulary.names.to_pylist()
    first = int(item.missing == "token")
    begin = first + (item.unseen == "rare")
    rows = [0 if first else _OUTSIDE, *range(begin, begin + len(names))]
    otherwise = {"rare": first, "neutral": nothing}.get(item.unseen, _OUTSIDE)
    if whole:
        return [NO_INTEGER, *map(int, names)], rows, otherwise
    known = dict(zip([_missing_text(item), *names], rows, strict=True))
    values = item.elements.spelling if isinstance(item, MultiValued) else item.spelling
    for name in names:
        for other in other_spellings(name, values):
            known.setdefault(other, known[name])
    return list(known), list(known.values()), otherwise


def _missing_text(item: Any) -> str:
    """How a missing value is spelled; in lists "" is padding."""
    names = set(item.vocabulary.names.to_pylist())
    text = "" if isinstance(item, Categorical) and "" not in names else "<missing>"
    while text in names:
        text = f"<{text}>"
    return text


def _length(item: MultiValued) -> int:
    return max(len(item.layout.widths), 1)


# The model, on units of shape (N, units, 1 + width)


def _score(g: Graph, fitted: Fitted, units: str) -> str:
    width = fitted.params["factors"].shape[1]
    linear = g("ReduceSum", g("Gather", units, 0, axis=2), np.array([1]), keepdims=0)
    P = g("Slice", units, np.array([1]), np.array([1 + width]), np.array([2]))
    return g("Add", g("Add", _interaction(g, fitted, P), linear), fitted.params["bias"][0])


def _interaction(g: Graph, fitted: Fitted, P: str) -> str:
    """Σ_{u<v} p_u' M p_v; see `splinefm.model.family`."""
    model, unit_field, n_fields = fitted.model, fitted.encoder.layout.unit_field, len(fitted.encoder.fields)
    if not model.pairwise:
        return _higher_order(g, P, len(unit_field), model.order)
    if model.part_size(n_fields) < model.width(n_fields):
        return _field_aware(g, P, model.part_size(n_fields), unit_field, n_fields)
    if not model.field_shapes(n_fields):
        return _sum_of_squares(g, P)
    between = model.between_all(fitted.params, n_fields)[unit_field[:, None], unit_field]
    between = (between.T * np.tri(len(unit_field), k=-1)).T.astype(np.float32)  # units u < v
    if between.ndim == 2:
        return _paired(g, P, g("MatMul", between, P), 2)
    n = len(unit_field) * between.shape[2]
    flat = g("Flatten", P, axis=1)
    return _paired(g, flat, g("MatMul", flat, between.transpose(0, 2, 1, 3).reshape(n, n)), 1)


def _sum_of_squares(g: Graph, P: str) -> str:
    """½ (|Σ p_u|² - Σ |p_u|²)."""
    total = g("ReduceSum", P, np.array([1]), keepdims=0)
    squares = g("ReduceSum", g("Mul", P, P), np.array([1]), keepdims=0)
    twice = g("Sub", g("Mul", total, total), squares)
    return g("Mul", g("ReduceSum", twice, np.array([1]), keepdims=0), np.float32(0.5))


def _paired(g: Graph, left: str, right: str, axes: int) -> str:
    return g("ReduceSum", g("Mul", left, right), np.arange(1, axes + 1), keepdims=0)


def _field_aware(g: Graph, P: str, k: int, unit_field: Array, n_fields: int) -> str:
    """p_u[f(v)]' p_v[f(u)] for all pairs u < v at once."""
    u, v = np.triu_indices(len(unit_field), 1)
    if not len(u):
        return g("ReduceSum", g("Mul", P, np.float32(0.0)), np.array([1, 2]), keepdims=0)
    parts = g("Reshape", P, np.array([0, len(unit_field) * n_fields, k]))
    left = g("Gather", parts, u * n_fields + unit_field[v], axis=1)
    right = g("Gather", parts, v * n_fields + unit_field[u], axis=1)
    return _paired(g, left, right, 2)


def _higher_order(g: Graph, P: str, n_units: int, order: int) -> str:
    """Sums of products of t different units, t = 1 .. order, unit after unit."""
    sums: list[str] = []
    for unit in range(n_units):
        p = g("Gather", P, unit, axis=1)
        for t in range(min(unit + 1, order), 0, -1):
            more = p if t == 1 else g("Mul", p, sums[t - 2])
            if t > len(sums):
                sums.append(more)
            else:
                sums[t - 1] = g("Add", sums[t - 1], more)
    total = sums[1] if len(sums) > 1 else g("Mul", sums[0], np.float32(0.0))
    for part in sums[2:]:
        total = g("Add", total, part)
    return g("ReduceSum", total, np.array([1]), keepdims=0)


def _link(g: Graph, fitted: Fitted, score: str) -> str:
    loss, value = fitted.loss, g.cast(score, np.float64)
    if loss.name == "logistic":
        value = g("Div", 1.0, g("Add", g("Exp", g("Neg", value)), 1.0))
    elif loss.name == "poisson":
        value = g("Exp", g("Min", value, 700.0))
    return g("Add", g("Mul", value, float(loss.scale)), float(loss.center))


# Checks and notes


def _check(fitted: object, integers: Collection[str]) -> None:
    if not isinstance(fitted, Fitted):
        raise TypeError(f"a sf.Fitted is needed, got {type(fitted).__name__}; an estimator has one in fitted_")
    if isinstance(integers, str):
        raise ValueError(f"integers takes a list of names; write integers=[{integers!r}]")
    schema = fitted.encoder.schema
    for name in integers:
        item = schema[name] if name in schema.names else None
        if not isinstance(item, Categorical):
            categorical = [own.name for own in schema if isinstance(own, Categorical)]
            raise ValueError(f"integers names categorical fields, which are {categorical}; got {name!r}")
        for category in item.vocabulary.names.to_pylist():  # type: ignore[union-attr]  # fitted
            if not _is_integer(category):
                raise ValueError(
                    f"field {name!r} has the category {category!r}, which is no whole number; leave it out of integers"
                )
    for item in schema:
        if isinstance(item, Categorical | MultiValued) and item.unseen == "hash":
            raise ValueError(
                f"field {item.name!r}: ONNX has no operator for the hash of unseen categories; "
                'fit it with unseen="rare"'
            )


def _is_integer(category: str) -> bool:
    """Whether a name is that of a whole number, in the one form that the encoder gives it."""
    return re.fullmatch("0|-?[1-9][0-9]{0,18}", category) is not None and NO_INTEGER < int(category) < 1 << 63


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _metadata(fitted: Fitted, outputs: list[str], integers: Collection[str]) -> dict[str, str]:
    loss = fitted.loss
    fields = []
    for item in fitted.encoder.fields:
        kind, missing = "double", "NaN"
        if not isinstance(item, Numerical):
            kind, missing = "string", _missing_text(item)
        if item.name in integers:
            kind, missing = "int64", str(NO_INTEGER)
        about = {"name": item.name, "column": item.column, "kind": type(item).__name__, "type": kind}
        part = {"part": item.part} if isinstance(item, Numerical) and item.part is not None else {}
        fields.append({**about, **part, "missing": missing})
    return {
        "splinefm.model": repr(fitted.model),
        "splinefm.fields": json.dumps(fields, ensure_ascii=False),
        "splinefm.outputs": json.dumps(outputs),
        "splinefm.loss": loss.name,
        "splinefm.link": {
            "logistic": "1 / (1 + exp(-score))",
            "squared": f"{loss.center!r} + {loss.scale!r} * score",
            "poisson": "exp(score)",
        }[loss.name],
        "splinefm.classes": json.dumps(None if loss.classes is None else [str(label) for label in loss.classes]),
    }
