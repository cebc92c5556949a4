"""Curves, bars and surfaces as plain lists and dicts: their values on a grid, their extrema, their tokens."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from splinefm._arrays import FloatArray
from splinefm._wording import number
from splinefm.encode.fields.categorical import Categorical, MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.schema import Single
from splinefm.encode.tables.arrow import to_arrow
from splinefm.encode.tables.columns import one_array
from splinefm.encode.tables.names import missing_column_message, nearest_hint
from splinefm.inspect.axes import RawAxis, axis_format, known_values, shown_values, split_tokens
from splinefm.inspect.curves import Bars, Curve, Extremum, Surface
from splinefm.train.fitted import Fitted
from splinefm.train.losses import Loss

View = Curve | Bars | Surface

Value = float | str | list[str] | None
LIST_SEPARATOR = "|"
_SEARCHED = 10_000  # categories that are searched for similar names


def value_grid(
    item: Numerical, n: int, values: FloatArray | None = None, known: FloatArray | None = None
) -> FloatArray:
    """Ordinary values of a numerical field, in raw units and in increasing order, evenly spread over u = T(z).

    Parameters
    ----------
    item : Numerical
        A fitted field.
    n : int
        Largest number of values; duplicates and special values are left out.
    values : array, optional
        Data whose range limits the grid; by default the grid covers what a plot of the field shows.
    known : array, optional
        Values with nothing in between, which the grid is made of; see `known_values`.

    Examples
    --------
    >>> from splinefm import MinMax
    >>> value_grid(Numerical("x", MinMax(0, 8)), 5), value_grid(Numerical("x", MinMax(0, 8)), 3, np.array([2.0, 4.0]))
    (array([0., 2., 4., 6., 8.]), array([2., 3., 4.]))
    """
    ordinary = None if values is None else split_tokens(item, values)[0]
    axis = RawAxis.of([item], ordinary)
    low, high = (axis.low, axis.high) if ordinary is None or not len(ordinary) else _overlap(axis, ordinary)
    if known is not None and len(shown := shown_values(known, low, high, n)):
        return shown
    grid = _spread(item, low, high, n)
    grid = np.unique(np.clip(grid, *item.value_limits))
    return split_tokens(item, grid)[0] if len(split_tokens(item, grid)[0]) else grid


def _spread(item: Numerical, low: float, high: float, n: int) -> FloatArray:
    transform: Any = item.transform
    first, last = transform(np.array([low, high]))
    inner = item.raw(np.linspace(first, last, n)[1:-1])
    grid: FloatArray = np.unique(np.concatenate([[low], np.clip(inner, low, high), [high]]))
    return grid


def _overlap(axis: RawAxis, values: FloatArray) -> tuple[float, float]:
    low, high = max(axis.low, float(values.min())), min(axis.high, float(values.max()))
    return (low, high) if low <= high else (axis.low, axis.high)


def source_field(fitted: Fitted, name: str) -> Single:
    """The field that values of a name belong to: one of the schema, or a part of a cross with a column of its own."""
    sources = fitted.encoder.schema.sources
    if name not in sources.fields:
        raise ValueError(missing_column_message(name, list(sources.fields), "field", "the model"))
    return sources.fields[name]


def numerical_values(fitted: Fitted, sample: pa.Table, name: str) -> FloatArray | None:
    """The values of a numerical field in a table; None for other fields."""
    item = source_field(fitted, name)
    return item.read_numbers(one_array(sample[item.column]))


def field_column(fitted: Fitted, sample: pa.Table, name: str) -> pa.Array:
    """The values of a field in a table, along its axis: numbers for a numerical field."""
    values = numerical_values(fitted, sample, name)
    if values is None:
        return one_array(sample[source_field(fitted, name).column])
    return to_arrow(values, from_pandas=True)


def numbers(values: Any) -> list[Any]:
    """An array as lists of numbers, None where one is not finite."""
    if np.ndim(values) > 1:
        return [numbers(part) for part in values]
    return [number_or_none(value) for value in np.asarray(values, np.float64).tolist()]


def number_or_none(value: float) -> float | None:
    """A number that JSON has."""
    return float(value) if math.isfinite(value) else None


def curve_values(curve: Curve, x: FloatArray) -> dict[str, Any]:
    """A curve on a grid, its extrema and its tokens."""
    scores = curve(x)
    return {
        "along": [curve.field.name],
        "x": numbers(x),
        **both_scales(curve.loss, scores),
        "tokens": _tokens(curve),
        "maximum": _extremum(curve, "maximum", x),
        "minimum": _extremum(curve, "minimum", x),
    }


def extremum_text(fitted: Fitted, values: dict[str, Any], which: str, digits: int = 5) -> str:
    """Where the maximum or the minimum of a curve is, as text."""
    at, x = values[which]["at"], values["x"]
    style = axis_format(source_field(fitted, values["along"][0]))
    return "-" if at is None else style.text(at, digits, x[-1] - x[0])


def bar_values(fitted: Fitted, bars: Bars, most: int) -> dict[str, Any]:
    """The most frequent categories, in the order to show them, and the tokens."""
    names, counts = category_counts(fitted, bars.field.name, most)
    index = {name: i for i, name in enumerate(bars.names)}
    chosen = [index[name] for name in names]
    return {
        "along": [bars.field.name],
        "categories": names,
        "categories_in_all": len(index),
        "training_counts": numbers(counts),
        **both_scales(bars.loss, bars.scores[chosen]),
        "tokens": _tokens(bars),
    }


def surface_values(surface: Surface, x: Sequence[Any], y: Sequence[Any]) -> dict[str, Any]:
    """A surface on a grid; the rows of its scores belong to x."""
    return {
        "along": [item.name for item in surface.fields],
        "x": list(x),
        "y": list(y),
        **both_scales(surface.loss, surface_scores(surface, x, y)),
    }


def surface_scores(surface: Surface, x: Sequence[Any], y: Sequence[Any]) -> FloatArray:
    """The scores on a grid, also of fields that hold lists, shape (len(x), len(y))."""
    first, second = (list(map(item.holding, side)) for item, side in zip(surface.fields, (x, y), strict=True))
    scores = surface([one for one in first for _ in second], second * len(first))
    return scores.reshape(len(first), len(second))


def side_grid(fitted: Fitted, name: str, n: int, most: int, values: FloatArray | None = None) -> list[Any]:
    """Values of a field for one side of a surface: a grid, or the most frequent categories in their order."""
    sources, item = fitted.encoder.schema.sources, source_field(fitted, name)
    if isinstance(item, Numerical):
        known = known_values(item, sources.parts.get(name, ()))
        return list(value_grid(item, n, values, known).tolist())
    return category_counts(fitted, name, most)[0]


def shown_numbers(values: dict[str, Any], link: bool = True) -> Any:
    """The predictions of a view, or of one point of it; scores where there are none, as for one of several classes.

    Examples
    --------
    >>> shown_numbers({"score": 0.0, "prediction": 0.5}), shown_numbers({"scores": [1.0, 2.0]})
    (0.5, [1.0, 2.0])
    """
    order = ("predictions", "prediction", "scores", "score")
    return next(values[name] for name in (order if link else order[2:]) if name in values)


def both_scales(loss: Loss, scores: FloatArray) -> dict[str, Any]:
    """Scores and predictions; one of several classes has a score, but no prediction without the others."""
    found = {"scores": numbers(scores)}
    return found if loss.of_class is not None else {**found, "predictions": numbers(loss.predict(scores))}


def _tokens(view: Curve | Bars) -> dict[str, Any]:
    return {name: _score_and_prediction(view.loss, score) for name, score in view.met_tokens.items()}


def _extremum(curve: Curve, which: str, x: FloatArray) -> dict[str, Any] | None:
    """The extremum on the range of the grid; None for bases whose extrema have no closed form."""
    try:
        found: Extremum = getattr(curve, which)(x[0], x[-1])
    except ValueError:
        return None
    return {"at": number_or_none(found.at), **_score_and_prediction(curve.loss, found.value)}


def _score_and_prediction(loss: Loss, score: float) -> dict[str, float]:
    found = {"score": score}
    return found if loss.of_class is not None else {**found, "prediction": float(loss.predict(np.array(score)))}


_SCORES = {
    "logistic": "score (log-odds)",
    "identity": "score (standardized target)",
    "log": "score (log of the mean, relative to the mean target)",
    "softmax": "score of the class",
}


def score_text(loss: Loss) -> str:
    """The name of a score, with its unit.

    Examples
    --------
    >>> score_text(Loss("logistic")), score_text(Loss("poisson"))
    ('score (log-odds)', 'score (log of the rate)')
    """
    return "score (log of the rate)" if loss.name == "poisson" else _SCORES[loss.link]


def effect_unit(loss: Loss) -> tuple[str, float, float]:
    """The unit of effects, the size of one unit of the score in it, and the value of the score 0."""
    if loss.of_class is not None or loss.link == "softmax":
        return "units of the score", 1.0, 0.0
    if loss.link == "identity":
        return "units of the target", loss.scale, loss.center
    if loss.link == "logistic":
        return "log-odds", 1.0, 0.0
    return "log of the rate" if loss.name == "poisson" else "log of the prediction", 1.0, math.log(loss.scale)


def value_text(value: Value) -> str:
    """A value as text.

    Examples
    --------
    >>> value_text(3.0), value_text(["a", "b"]), value_text(None)
    ('3', 'a|b', '(missing)')
    """
    if value is None:
        return "(missing)"
    if isinstance(value, list):
        return LIST_SEPARATOR.join(value)
    return value if isinstance(value, str) else number(value, ".6g")


def category_counts(fitted: Fitted, name: str, most: int) -> tuple[list[str], list[float]]:
    """The most frequent categories of a field, in the order to show them, and their counts in training.

    Counts are NaN for a column that only crosses read, which counts combinations.
    """
    schema, item = fitted.encoder.schema, source_field(fitted, name)
    assert not isinstance(item, Numerical)
    counts = fitted.encoder.feature_counts[schema.names.index(name)] if name in schema.names else None
    shown = item.most_frequent(counts, most)
    names: list[str] = vocabulary_names(item).take(to_arrow(shown)).to_pylist()
    if counts is None:
        return names, [math.nan] * len(names)
    return names, counts[len(counts) - len(vocabulary_names(item)) :][shown].tolist()


def no_category(item: Categorical | MultiValued, name: str) -> str:
    """The message about a category that a field does not have, with those that may be meant.

    Examples
    --------
    >>> no_category(Categorical("color", vocabulary=["red", "blue"]), "rde")
    "'color' has no category 'rde'; nearest: 'red'"
    """
    known = vocabulary_names(item).slice(0, _SEARCHED).to_pylist()
    return f"{item.name!r} has no category {name!r}{nearest_hint(name, known)}"


def vocabulary_names(item: Categorical | MultiValued) -> pa.LargeStringArray:
    assert item.vocabulary is not None  # of a fitted field
    return item.vocabulary.names
