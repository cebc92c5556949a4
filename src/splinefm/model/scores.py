"""Scores of encoded rows with any parameters, by the loops for single rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from splinefm._arrays import Float32Array
from splinefm._cached import cached_property
from splinefm._core import RowParams, Shape, score_slots
from splinefm._parallel import count_threads
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.model.family import AnyModel
from splinefm.model.family.contract import Params
from splinefm.model.family.parameters import by_output, each_output
from splinefm.model.workspace import Padding, make_shape

# Parameters as the kernel for single rows reads them.


class RowTables(NamedTuple):
    """Parameters of features, of all outputs one after the other, padded to whole registers."""

    k: int
    """Numbers of a vector that meet in pairs (FFM: for each field): 4, or a multiple of 8."""
    factors: Float32Array
    """Shape (outputs * features, width)."""
    linear: Float32Array


def row_tables(model: AnyModel, params: Params, n_fields: int) -> RowTables:
    """Return the parameters of features; they are shared with the model if vectors need no padding.

    Examples
    --------
    >>> from splinefm.model.family import FM
    >>> params = {"factors": np.ones((2, 3), np.float32), "linear": np.zeros(2), "bias": np.zeros(1)}
    >>> row_tables(FM(k=3), params, 2).factors.tolist()
    [[1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]]
    """
    padding, factors = row_padding(model, n_fields), params["factors"]
    return RowTables(
        k=model.parts * padding.padded,
        factors=np.ascontiguousarray(padding.pad(factors.reshape(-1, factors.shape[-1])), np.float32),
        linear=np.ascontiguousarray(params["linear"], np.float32).reshape(-1),
    )


def row_between(model: AnyModel, params: Params, n_fields: int) -> Float32Array:
    """Return the weights or matrices between fields, of all outputs, flat."""
    padded = row_padding(model, n_fields).padded
    return np.concatenate([_between_fields(model, own, n_fields, padded) for own in each_output(params)])


def row_params(model: AnyModel, params: Params, n_fields: int) -> RowParams:
    """Return the parameters for the compiled loops over single rows."""
    tables, between = row_tables(model, params, n_fields), row_between(model, params, n_fields)
    return _row_params(model, tables, between, np.ascontiguousarray(params["bias"], np.float32).reshape(-1))


def _row_params(model: AnyModel, tables: RowTables, between: Float32Array, bias: Float32Array) -> RowParams:
    return RowParams(
        model=model.kind, members=model.members, order=model.order, **tables._asdict(), between=between, bias=bias
    )


def row_padding(model: AnyModel, n_fields: int) -> Padding:
    """Return how vectors are padded in `RowTables.factors`."""
    return Padding.of(model, n_fields, model.parts)


def _between_fields(model: AnyModel, params: Params, n_fields: int, padded: int) -> Float32Array:
    """Weights or matrices between fields, flat; matrices by their second field."""
    if not model.field_shapes(n_fields):
        return np.zeros(1, np.float32)
    between = model.between_all(params, n_fields)
    if between.ndim == 3:  # a weight for each member
        between = between[:, :, :: between.shape[2] // model.parts].transpose(2, 0, 1)
    if between.ndim == 4:
        more = (0, padded - between.shape[2])
        between = np.pad(between.transpose(1, 0, 2, 3), ((0, 0), (0, 0), more, more))
    return np.ascontiguousarray(between, np.float32).ravel()


TABLES = ("factors", "linear")
"""Parameters with a row for every feature."""


class BatchScorer:
    """Scores slots of one layout, batch after batch; what does not depend on the rows is prepared once.

    Parameters
    ----------
    model : FM, FwFM, LowRankFwFM, FmFM, FFM or HigherOrderFM
        The model.
    params : dict of arrays
        Its parameters; they must not change while the scorer is in use. With parameters of several outputs, the
        scores have shape (n, outputs).
    layout : SlotLayout
        Layout of the slots.
    threads : int, optional
        Number of threads; all cores by default.

    Examples
    --------
    >>> from splinefm.encode.slots import FieldLayout
    >>> from splinefm.model.family import FM, init_params
    >>> layout = SlotLayout((FieldLayout("c", 3, (1,), (0,)),))
    >>> params = init_params(FM(k=2), layout, np.random.default_rng(0))
    >>> scorer = BatchScorer(FM(k=2), params, layout, threads=1)
    >>> scorer(Slots(np.array([[0], [2]], np.int32), np.ones((2, 1), np.float32), layout)).shape
    (2,)
    """

    def __init__(self, model: AnyModel, params: Params, layout: SlotLayout, threads: int | None = None) -> None:
        self._model, self._layout, self._threads = model, layout, count_threads(threads)
        self._shape, self._given = make_shape(layout), params
        self._params = {name: np.ascontiguousarray(array, np.float32) for name, array in by_output(params).items()}

    @cached_property
    def _tables(self) -> RowTables:
        return row_tables(self._model, self._params, len(self._layout.fields))

    @cached_property
    def _between(self) -> Float32Array:
        return row_between(self._model, self._given, len(self._layout.fields))

    def __call__(self, slots: Slots) -> Float32Array:
        """Scores of all rows; a row has the same score, to the bit, in any batch and alone."""
        n_fields, n = len(self._layout.fields), 4 * len(slots) * self._layout.n_weights
        if (
            "_tables" in vars(self)
            or not 0 < n < self._layout.n_features
            or not row_padding(self._model, n_fields).is_padded
        ):
            return self._score(self._shape, self._tables, slots)
        # Copying the features of a few rows is faster than padding a large table.
        slots, params = _gathered(self._params, slots)
        return self._score(make_shape(slots.layout), row_tables(self._model, params, n_fields), slots)

    def _score(self, shape: Shape, tables: RowTables, slots: Slots) -> Float32Array:
        bias = self._params["bias"].reshape(-1)
        scores = score_slots(
            shape=shape,
            params=_row_params(self._model, tables, self._between, bias),
            start=np.ascontiguousarray(slots.start, np.int32),
            weight=np.ascontiguousarray(slots.weight, np.float32),
            threads=self._threads,
        )
        return slots.add_offset(scores) if len(bias) == 1 else np.ascontiguousarray(scores.reshape(len(bias), -1).T)


def predict_scores(model: AnyModel, params: Params, slots: Slots, threads: int | None = None) -> Float32Array:
    """Scores of all rows; use a `BatchScorer` for several batches."""
    return BatchScorer(model, params, slots.layout, threads)(slots)


def _gathered(params: Params, slots: Slots) -> tuple[Slots, Params]:
    """The same rows on a smaller table, which has only their active features."""
    layout, n = slots.layout, len(slots)
    width = np.diff(layout.weight_ptr)
    inside = np.arange(layout.n_weights, dtype=np.int32) - np.repeat(layout.weight_ptr[:-1], width)
    read = np.repeat(slots.start, width, axis=1) + inside
    first = layout.weight_ptr[layout.window_ptr]
    index = np.concatenate([read[:, a:b].ravel() for a, b in pairwise(first.tolist())])
    fields = (replace(field, n_features=n * sum(field.widths)) for field in layout.fields)
    small = SlotLayout(tuple(fields))
    field = layout.unit_field[layout.window_unit]
    start = small.feature_ptr[field] + layout.weight_ptr[:-1] - first[field]
    start = start + np.arange(n)[:, None] * np.diff(first)[field]
    return replace(slots, start=start.astype(np.int32), layout=small), {
        **params,
        **{name: params[name][:, index] for name in TABLES},
    }
