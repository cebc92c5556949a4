"""Scores of encoded rows with any parameters, by the loops for single rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from splinefm._cached import cached_property
from splinefm._core import Shape, score_slots
from splinefm._parallel import count_threads
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.model.family import AnyModel, Params, by_output
from splinefm.model.rows import RowTables, is_padded, row_between, row_tables
from splinefm.model.workspace import Float32, make_shape

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
    def _between(self) -> Float32:
        return row_between(self._model, self._given, len(self._layout.fields))

    def __call__(self, slots: Slots) -> npt.NDArray[np.float32]:
        """Scores of all rows; a row has the same score, to the bit, in any batch and alone."""
        n_fields, n = len(self._layout.fields), 4 * len(slots) * self._layout.n_weights
        if "_tables" in vars(self) or not 0 < n < self._layout.n_features or not is_padded(self._model, n_fields):
            return self._score(self._shape, self._tables, slots)
        # Copying the features of a few rows is faster than padding a large table.
        slots, params = _gathered(self._params, slots)
        return self._score(make_shape(slots.layout), row_tables(self._model, params, n_fields), slots)

    def _score(self, shape: Shape, tables: RowTables, slots: Slots) -> npt.NDArray[np.float32]:
        bias = self._params["bias"].reshape(-1)
        scores = score_slots(
            shape=shape,
            model=self._model.kind,
            members=self._model.members,
            order=self._model.order,
            **tables._asdict(),
            between=self._between,
            bias=bias,
            start=np.ascontiguousarray(slots.start, np.int32),
            weight=np.ascontiguousarray(slots.weight, np.float32),
            threads=self._threads,
        )
        return scores if len(bias) == 1 else np.ascontiguousarray(scores.reshape(len(bias), -1).T)


def predict_scores(
    model: AnyModel, params: Params, slots: Slots, threads: int | None = None
) -> npt.NDArray[np.float32]:
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
    return Slots(start.astype(np.int32), slots.weight, small), {
        **params,
        **{name: params[name][:, index] for name in TABLES},
    }
