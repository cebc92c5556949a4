"""Export to ONNX: one graph from raw columns to scores and predictions, for any runtime that reads ONNX."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from splinefm._arrays import Array
from splinefm._files import check_destination, replacing
from splinefm.encode.schema import Single
from splinefm.export.onnx.fields import field_units
from splinefm.export.onnx.inputs import NO_INTEGER, ColumnInput, check_export, column_inputs
from splinefm.train.fitted import Fitted
from splinefm.train.offsets import Offset

if TYPE_CHECKING:
    from splinefm.export.onnx.graph import Graph


def export_onnx(
    fitted: Fitted, path: str | os.PathLike[str], *, opset: int = 17, integers: Collection[str] = ()
) -> None:
    """Write the model as an ONNX graph, with transforms, bases, vocabularies and tables inside.

    The graph has an input per column of the table, under its name, and two outputs, "score" (float) and "prediction"
    (double), with an entry per row; for more than two classes, both have the shape (N, classes). Where a column has
    one of these names, "_" is appended to the name of the output. Any number of rows can be scored at a time. An
    existing file is replaced atomically.

    | field | input | missing |
    |---|---|---|
    | numerical | double (N) | NaN |
    | categorical | string (N) | "", or "<missing>" where "" is a category |
    | categorical, in `integers` | int64 (N) | -2⁶³ |
    | multi-valued | string (N, any), padded with "" | a list of "<missing>" |

    The column of an offset or an exposure is an input of doubles, too; where the model refuses its value, the score is
    NaN or infinite. A cross reads the inputs of its parts. A column that one field reads as numbers and another as
    categories, which are numbers then, is an input of doubles.

    Numbers are doubles because a float would cut digits off, of timestamps for instance. Dates and times are
    seconds since 1970, by the clock of the field's `zone`, of which the graph takes the parts. Categories that were
    numbers in the table are numbers as text, "3" for 3.0 ("3.0" is understood, too); booleans are "true" and
    "false"; dates are written as 2024-05-28, or 2024-05-28 13:30:00. Where `unseen="error"` or `missing="error"` was
    asked for, running the graph on such a value is an error (a feature that does not exist is looked up). Infinite
    numbers, which are errors here, count as the ends of the range.

    Parameters
    ----------
    fitted : Fitted
        The model.
    path : path
        The file to write, usually ending in ".onnx".
    opset : int
        Version of ONNX's operators, 17 or higher. Old runtimes refuse new ones.
    integers : names of fields
        Categorical fields to be read as int64 instead of strings; all their categories must be integers.

    Raises
    ------
    ValueError
        For what ONNX cannot express: custom transforms and bases (with bins it can, see
        `sf.discretize`), `unseen="hash"`, one column read by fields with different `values`, and more than 2 GB.

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
    check_export(fitted, integers)
    target = check_destination(Path(path), "model.onnx")
    from splinefm.export.onnx.graph import Graph

    names = fitted.columns
    outputs = [_free(name, names) for name in ("score", "prediction")]
    g = Graph(opset, {*names, *outputs})
    inputs = column_inputs(fitted, integers)
    units = [field_units(g, fitted, f, inputs) for f in range(len(fitted.encoder.fields))]
    with g.scope("model"):
        score = _scores(g, fitted, g("Concat", *units, axis=1))
        if fitted.offset is not None:
            score = _with_offset(g, fitted, fitted.offset, score)
        prediction = _link(g, fitted, score)
    more = () if fitted.n_outputs == 1 else (fitted.n_outputs,)
    g.output(outputs[0], score, np.float32, more)
    g.output(outputs[1], prediction, np.float64, more)
    version = sys.modules["splinefm"].__version__  # not imported: modules of the package import from its folders
    n_fields = len(fitted.encoder.fields)
    doc = f"{fitted.model!r} on {n_fields} fields, {fitted.loss} loss; written by splinefm {version}"
    with replacing(target) as file:
        file.write(g.model(doc, _metadata(fitted, outputs, inputs), version).SerializeToString())


# The model, on units of shape (N, units, 1 + width)


def _scores(g: Graph, fitted: Fitted, units: str) -> str:
    """One score per row; of several outputs, shape (N, outputs)."""
    if fitted.n_outputs == 1:
        return _score(g, fitted, units)
    each = [fitted.for_class(label) for label in fitted.classes or ()]
    parts = [_score(g, one, units, output) for output, one in enumerate(each)]
    return g("Concat", *(g("Unsqueeze", part, np.array([1])) for part in parts), axis=1)


def _with_offset(g: Graph, fitted: Fitted, offset: Offset, score: str) -> str:
    """The score with a column, or its logarithm, in the unit of the scores; NaN for what the model refuses."""
    value = g.input(offset.column, np.float64, ("N",))
    if offset.kind == "exposure":
        value = g("Log", value)
    return g("Add", score, g.cast(g("Div", value, float(fitted.loss.score_unit)), np.float32))


def _score(g: Graph, fitted: Fitted, units: str, output: int = 0) -> str:
    width = fitted.params["factors"].shape[1]
    first = output * (1 + width)
    linear = g("ReduceSum", g("Gather", units, first, axis=2), np.array([1]), keepdims=0)
    P = g("Slice", units, np.array([first + 1]), np.array([first + 1 + width]), np.array([2]))
    return g("Add", g("Add", _interaction(g, fitted, P), linear), fitted.params["bias"][0])


def _interaction(g: Graph, fitted: Fitted, P: str) -> str:
    """Σ_{u<v} p_u' M p_v, and products of more than two; see `splinefm.model.family`."""
    model, n_units = fitted.model, fitted.encoder.layout.n_units
    pairs = _pairs(g, fitted, _columns(g, P, model.columns(0)) if model.third else P)
    if min(model.order, n_units) < 3:
        return pairs
    products = _products(g, _columns(g, P, model.product_columns), n_units, model.order)
    return g("Add", pairs, _times(g, products, model.product_weight))


def _times(g: Graph, values: str, weight: float) -> str:
    return values if weight == 1.0 else g("Mul", values, np.float32(weight))


def _columns(g: Graph, P: str, columns: slice) -> str:
    ends = (np.array([end]) for end in (columns.start, columns.stop))
    return g("Slice", P, *ends, np.array([2]))


def _pairs(g: Graph, fitted: Fitted, P: str) -> str:
    """Σ_{u<v} p_u' M p_v."""
    model, unit_field, n_fields = fitted.model, fitted.encoder.layout.unit_field, len(fitted.encoder.fields)
    if model.columns(0) != model.columns(1):
        return _field_aware(g, P, model.part_size(n_fields), unit_field, n_fields)
    if not model.field_shapes(n_fields):
        return _times(g, _sum_of_squares(g, P), float(model.between(fitted.params, 0, 0)))
    between = model.between_all(fitted.params, n_fields)[unit_field[:, None], unit_field]
    between = (between.T * np.tri(len(unit_field), k=-1)).T.astype(np.float32)  # units u < v
    if between.ndim == 2:
        return _paired(g, P, g("MatMul", between, P), 2)
    if between.ndim == 3:  # weights by coordinate, which comes first for the products
        by_coordinate = g("MatMul", g("Transpose", P, perm=[2, 0, 1]), between.transpose(2, 0, 1))
        return _paired(g, P, g("Transpose", by_coordinate, perm=[1, 2, 0]), 2)
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


def _products(g: Graph, P: str, n_units: int, order: int) -> str:
    """Sums of products of t different units, t = 3 .. order, unit after unit; there are at least three."""
    sums: list[str] = []
    for unit in range(n_units):
        p = g("Gather", P, unit, axis=1)
        for t in range(min(unit + 1, order), 0, -1):
            more = p if t == 1 else g("Mul", p, sums[t - 2])
            if t > len(sums):
                sums.append(more)
            else:
                sums[t - 1] = g("Add", sums[t - 1], more)
    total = sums[2]
    for part in sums[3:]:
        total = g("Add", total, part)
    return g("ReduceSum", total, np.array([1]), keepdims=0)


def _link(g: Graph, fitted: Fitted, score: str) -> str:
    loss, value = fitted.loss, g.cast(score, np.float64)
    if loss.link == "softmax":
        return g("Softmax", value, axis=1)
    if loss.link == "logistic":
        value = g("Div", 1.0, g("Add", g("Exp", g("Neg", value)), 1.0))
    elif loss.link == "log":
        value = g("Exp", g("Min", value, 700.0))
    return g("Add", g("Mul", value, float(loss.scale)), float(loss.center))


# Notes


def _free(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _metadata(fitted: Fitted, outputs: list[str], inputs: Mapping[str, ColumnInput]) -> dict[str, str]:
    loss = fitted.loss
    fields = []
    for f, item in enumerate(fitted.encoder.fields):
        parts = [_about(single, inputs[single.column]) for single in item.singles]
        fields.append({"name": item.name, "kind": "Cross", "parts": parts} if f in fitted.encoder.crosses else parts[0])
    return {
        "splinefm.model": repr(fitted.model),
        "splinefm.fields": json.dumps(fields, ensure_ascii=False),
        "splinefm.outputs": json.dumps(outputs),
        "splinefm.loss": loss.name,
        **({} if fitted.offset is None else {f"splinefm.{fitted.offset.kind}": fitted.offset.column}),
        "splinefm.loss_parameters": json.dumps(loss.parameters),
        "splinefm.link": loss.link_formula(numbers=True),
        "splinefm.classes": json.dumps(None if loss.classes is None else [str(label) for label in loss.classes]),
        **({} if loss.of_class is None else {"splinefm.of_class": str(loss.of_class)}),
    }


def _about(item: Single, given: ColumnInput) -> dict[str, Any]:
    """What reads an input, and the type of that."""
    kinds: dict[type, tuple[str, str]] = {np.float64: ("double", "NaN"), np.int64: ("int64", str(NO_INTEGER))}
    kind, missing = kinds.get(given.dtype, ("string", given.missing))
    part = {"part": item.part} if item.part is not None else {}
    about = {"name": item.name, "column": item.column, "kind": type(item).__name__, "type": kind}
    return {**about, **part, "missing": missing}
