"""How the score depends on one field: on average over a background, and for every row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from splinefm._arrays import Array, FloatArray, Int32Array
from splinefm._checks import check_one_score
from splinefm.encode.fields.cross import Cross
from splinefm.encode.schema import Single
from splinefm.encode.slots import Slots
from splinefm.encode.tables.names import missing_column_message, quoted
from splinefm.inspect.rows import EncodedRows, encode_rows, field_columns, read_rows, without_fields
from splinefm.inspect.shapley import Background, as_background
from splinefm.inspect.terms import (
    field_index,
    field_vectors,
    has_closed_form,
    inner_parts,
    map_blocks,
    pair_part,
    pair_slope,
    size,
)
from splinefm.model.scores import predict_scores
from splinefm.train.fitted import Fitted


def partial_dependence(
    fitted: Fitted,
    field: str,
    grid: Sequence[Any] | Array,
    background: object,
    *,
    threads: int | None = None,
) -> FloatArray:
    """The mean score over a background with one field set to each value of a grid; exact.

    Parameters
    ----------
    fitted : Fitted
        A model. For one of an order above 3 or with crosses, the background is scored once per value.
    field : str
        Name of the field; if the model has crosses, of a column, which is set in all fields that read it.
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
    check_one_score(fitted)
    if fitted.encoder.schema.crosses or not has_closed_form(fitted):
        chosen = _Chosen.of(fitted, field, grid)
        others = _background_rows(fitted, background, threads)
        return np.array([scores.mean() for scores in chosen.scores(fitted, others, threads)])
    f, slots = _encode_grid(fitted, field, grid)
    known = as_background(fitted, background, threads)
    inner, vectors = _single_field_terms(known.pairs, f, slots)
    products = 2.0 * (
        known.terms[f] - known.inner[f]
    )  # mean of Σ_e z_f' M_fe z_e, which vanishes when the field is set
    means = known.base - known.inner[f] - products + inner + (vectors - known.center[f]) @ known.slope[f]
    if known.triples is not None:
        means -= known.triples.base
        for block, part in map_blocks(partial(known.triples.dependence, f), fitted, slots, known.players, 1):
            means[block] += part
    return np.asarray(means)


def ice_curves(
    fitted: Fitted, table: object, field: str, grid: Sequence[Any] | Array, *, threads: int | None = None
) -> FloatArray:
    """The score of every row with one field set to each value of a grid; exact.

    Parameters
    ----------
    fitted : Fitted
        A model. For one with products of three or more fields, or with crosses, the table is scored once per value.
    table : table, path, dataset or Slots
        The rows; no Slots if the model has crosses.
    field : str
        Name of the field; if the model has crosses, of a column, which is set in all fields that read it.
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
    check_one_score(fitted)
    if fitted.encoder.schema.crosses or fitted.model.order > 2:
        chosen, rows = _Chosen.of(fitted, field, grid), read_rows(fitted, table, threads)
        scored = list(chosen.scores(fitted, rows, threads))
        return np.stack(scored, axis=1) if scored else np.empty((len(rows), 0))
    f, values = _encode_grid(fitted, field, grid)
    slots = encode_rows(fitted, table, threads)
    pairs = pair_part(fitted)
    inner, vectors = _single_field_terms(pairs, f, values)
    others = without_fields(slots, (f,))
    rest = predict_scores(fitted.model, fitted.params, others, threads)
    curves = rest[:, None] + inner
    for block, Z in field_vectors(pairs, slots, np.zeros(size(pairs)), threads):
        curves[block] += pair_slope(pairs, Z, f) @ vectors.T
    return curves


def _encode_grid(fitted: Fitted, name: str, grid: Sequence[Any] | Array) -> tuple[int, Slots]:
    """The index of a field, and rows in which it has the values of the grid and the other fields have weight 0."""
    layout, encoder = fitted.encoder.layout, fitted.encoder
    f = field_index(layout.names, name)
    item: Any = encoder.fields[f]
    start, weight = item.encode_values(item.read_axis(item.as_column(grid)[0]))
    first = np.repeat(layout.feature_ptr[:-1], np.diff(layout.window_ptr))
    slots = Slots(np.tile(first, (len(start), 1)), np.zeros((len(start), layout.n_weights), np.float32), layout)
    windows, weights = field_columns(slots, f)
    slots.start[:, windows] += start
    slots.weight[:, weights] = weight
    return f, slots


def _single_field_terms(fitted: Fitted, f: int, values: Slots) -> tuple[FloatArray, FloatArray]:
    """a_f and s_f of rows in which only field f has weight."""
    none = np.zeros(size(fitted))
    vectors = [Z[:, f].astype(np.float64) for _, Z in field_vectors(fitted, values, none, 1)]
    inner = inner_parts(fitted, values, 1)[:, f]
    return inner, np.concatenate(vectors) if vectors else np.empty((0, none.shape[1]))


# Models without a closed form, or with crosses: the rows are scored once for every value


@dataclass(frozen=True, eq=False)
class _Chosen:
    """The values of a grid, in all fields that see them."""

    n: int  # values
    fields: dict[int, tuple[Int32Array, FloatArray]]  # features and weights of the values, by field
    parts: dict[int, dict[int, Array]]  # their positions in the parts of crosses

    @staticmethod
    def of(fitted: Fitted, name: str, grid: Sequence[Any] | Array) -> _Chosen:
        """The values of a field, or of a column if the model has crosses."""
        schema, items = fitted.encoder.schema, fitted.encoder.fields
        by_column = bool(schema.crosses) and name in schema.columns
        if not by_column and name not in [item.name for item in schema.singles]:
            raise ValueError(_unknown_column(fitted, name))

        def values_of(item: Single) -> Any:
            column = item.as_column(grid)[0]
            return item.read(column) if by_column else item.read_axis(column)

        def is_chosen(item: Single) -> bool:
            return (item.column if by_column else item.name) == name

        fields: dict[int, Any] = {}
        parts: dict[int, dict[int, Any]] = {}
        for f, item in enumerate(items):
            if not isinstance(item, Cross):
                if is_chosen(item):
                    fields[f] = item.encode_values(values_of(item))
                continue
            found = {i: item.position(i, values_of(part)) for i, part in enumerate(item.fields) if is_chosen(part)}
            if found:
                parts[f] = found
        return _Chosen(len(_first_item(fitted, fields, parts).as_column(grid)[0]), fields, parts)

    def scores(self, fitted: Fitted, rows: EncodedRows, threads: int | None) -> Iterator[FloatArray]:
        """Scores of all rows with each of the values."""
        layout = rows.slots.layout
        slots = Slots(rows.slots.start.copy(), rows.slots.weight.copy(), layout)
        for g in range(self.n):
            for f, (start, weight) in self.fields.items():
                windows, weights = field_columns(slots, f)
                slots.start[:, windows], slots.weight[:, weights] = start[g] + layout.feature_ptr[f], weight[g]
            for f, values in self.parts.items():
                cross, positions = fitted.encoder.fields[f], list(rows.positions[f])
                for i, position in values.items():
                    positions[i] = np.full(len(rows), position[g])
                windows, weights = field_columns(slots, f)
                start, weight = cross.encode_positions(positions)  # type: ignore[union-attr]  # a cross
                slots.start[:, windows], slots.weight[:, weights] = start + layout.feature_ptr[f], weight
            yield predict_scores(fitted.model, fitted.params, slots, threads).astype(np.float64)


def _first_item(fitted: Fitted, fields: dict[int, Any], parts: dict[int, dict[int, Any]]) -> Any:
    """A field that reads the column."""
    if fields:
        return fitted.encoder.fields[min(fields)]
    f = min(parts)
    return fitted.encoder.fields[f].fields[min(parts[f])]  # type: ignore[union-attr]  # a cross


def _background_rows(fitted: Fitted, background: object, threads: int | None) -> EncodedRows:
    """The rows to average over: all rows of a table, since each is scored but once per value."""
    if isinstance(background, Background):
        known = as_background(fitted, background, threads)
        if known.crosses is not None:
            return known.crosses.background
    rows = read_rows(fitted, background, threads)
    if not len(rows):
        raise ValueError("the background has no rows; it needs at least one to average over")
    return rows


def _unknown_column(fitted: Fitted, name: str) -> str:
    """That a name is neither a column nor a field of one column."""
    schema = fitted.encoder.schema
    if name in schema.names:
        item = fitted.encoder.schema[name]
        columns = quoted(item.columns)
        return f"{name!r} is a cross; take one of its columns, {columns}: all fields that read it follow"
    if schema.crosses:
        return missing_column_message(name, schema.columns, "column", "the model")
    return missing_column_message(name, schema.names, "field", "the model")
