"""How the score depends on one field: on average over a background, and for every row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm.encode.fields.axis import as_column, encode_on_axis
from splinefm.encode.slots import Slots
from splinefm.explain.background import known_background
from splinefm.explain.cubic import map_blocks
from splinefm.explain.inputs import encode_background, encode_rows, field_number, has_closed_form
from splinefm.explain.terms import field_vectors, inner_parts, pair_part, size, toward
from splinefm.learn.fitted import Fitted
from splinefm.model.cpu import predict_scores

FloatArray = npt.NDArray[np.float64]


def partial_dependence(
    fitted: Fitted,
    field: str,
    grid: Sequence[Any] | npt.NDArray[Any],
    background: object,
    *,
    threads: int | None = None,
) -> FloatArray:
    """The mean score over a background with one field set to each value of a grid; exact.

    Parameters
    ----------
    fitted : Fitted
        A model. For one of an order above 3 the background is scored once per value.
    field : str
        Name of the field.
    grid : sequence
        Values of the column, in raw units; None is missing.
    background : table, path, dataset, Slots or Background
        The rows to average over.
    threads : int, optional
        All cores by default.

    Returns
    -------
    array, shape (values,)
        Mean scores. The mean of probabilities is not a function of them.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> sf.partial_dependence(fitted, "x", [0.0, 1.5, None], table).shape
    (3,)
    """
    f, slots = _encode_grid(fitted, field, grid)
    if not has_closed_form(fitted):
        others = encode_background(fitted, background, threads)
        return np.array([scores.mean() for scores in _scored(fitted, others, f, slots, threads)])
    known = known_background(fitted, background, threads)
    inner, vectors = _alone(known.pairs, f, slots)
    products = 2.0 * (
        known.terms[f] - known.inner[f]
    )  # mean of Σ_e z_f' M_fe z_e, which vanishes when the field is set
    means = known.base - known.inner[f] - products + inner + (vectors - known.center[f]) @ known.slope[f]
    if known.triples is not None:
        means -= known.triples.base
        for rows, part in map_blocks(partial(known.triples.dependence, f), fitted, slots, known.players, 1):
            means[rows] += part
    return np.asarray(means)


def ice_curves(
    fitted: Fitted, table: object, field: str, grid: Sequence[Any] | npt.NDArray[Any], *, threads: int | None = None
) -> FloatArray:
    """The score of every row with one field set to each value of a grid; exact.

    Parameters
    ----------
    fitted : Fitted
        A model. For one with products of three or more fields the table is scored once per value.
    table : table, path, dataset or Slots
        The rows.
    field : str
        Name of the field.
    grid : sequence
        Values of the column, in raw units; None is missing.
    threads : int, optional
        All cores by default.

    Returns
    -------
    array, shape (n, values)
        Scores; `fitted.loss.predict` converts them to predictions.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 4.0, 9.0] * 50}
    >>> fitted = sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> sf.ice_curves(fitted, table, "x", [0.0, 1.5, 3.0]).shape
    (200, 3)
    """
    f, values = _encode_grid(fitted, field, grid)
    slots = encode_rows(fitted, table, threads)
    if fitted.model.order > 2:
        scored = list(_scored(fitted, slots, f, values, threads))
        return np.stack(scored, axis=1) if scored else np.empty((len(slots), 0))
    pairs = pair_part(fitted)
    inner, vectors = _alone(pairs, f, values)
    # With weights of zero the field adds nothing: this is the score of the other fields.
    weight = slots.weight.copy()
    weight[:, _columns_of(slots, f)[1]] = 0.0
    rest = predict_scores(fitted.model, fitted.params, Slots(slots.start, weight, slots.layout), threads)
    curves = rest[:, None] + inner
    for rows, Z in field_vectors(pairs, slots, np.zeros(size(pairs)), threads):
        curves[rows] += toward(pairs, Z, f) @ vectors.T
    return curves


def _encode_grid(fitted: Fitted, name: str, grid: Sequence[Any] | npt.NDArray[Any]) -> tuple[int, Slots]:
    """The index of a field, and rows in which it has the values of the grid and the other fields have weight 0."""
    layout, encoder = fitted.encoder.layout, fitted.encoder
    f = field_number(layout.names, name)
    start, weight = encode_on_axis(encoder.fields[f], as_column(encoder.fields[f], grid)[0])
    first = np.repeat(layout.feature_ptr[:-1], np.diff(layout.window_ptr))
    slots = Slots(np.tile(first, (len(start), 1)), np.zeros((len(start), layout.n_weights), np.float32), layout)
    windows, weights = _columns_of(slots, f)
    slots.start[:, windows] += start
    slots.weight[:, weights] = weight
    return f, slots


def _columns_of(slots: Slots, f: int) -> tuple[slice, slice]:
    """The windows and the weights of a field."""
    first, last = slots.layout.window_ptr[f : f + 2]
    return slice(first, last), slice(slots.layout.weight_ptr[first], slots.layout.weight_ptr[last])


def _scored(fitted: Fitted, slots: Slots, f: int, values: Slots, threads: int | None) -> Iterator[FloatArray]:
    """Scores of all rows with field f set to each of the values, for models without a closed form."""
    start, weight = slots.start.copy(), slots.weight.copy()
    windows, weights = _columns_of(slots, f)
    for g in range(len(values)):
        start[:, windows], weight[:, weights] = values.start[g, windows], values.weight[g, weights]
        scores = predict_scores(fitted.model, fitted.params, Slots(start, weight, slots.layout), threads)
        yield scores.astype(np.float64)


def _alone(fitted: Fitted, f: int, values: Slots) -> tuple[FloatArray, FloatArray]:
    """a_f and s_f of rows in which only field f has weight."""
    none = np.zeros(size(fitted))
    vectors = [Z[:, f].astype(np.float64) for _, Z in field_vectors(fitted, values, none, 1)]
    inner = inner_parts(fitted, values, 1)[:, f]
    return inner, np.concatenate(vectors) if vectors else np.empty((0, none.shape[1]))
