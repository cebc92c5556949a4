"""The side of a context, computed by the loops: what the C library computes as well, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm._cached import cached_property
from splinefm._core import ContextSide, map_queries
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.model.maps import MapArrays, map_arrays
from splinefm.model.rows import row_between, row_columns, row_tables, row_width
from splinefm.model.split import Split

Float32 = npt.NDArray[np.float32]


class ContextQueries:
    """Vectors of contexts, and the constants that they add to all scores.

    Parameters
    ----------
    split : Split
        The model. `Split.context_side` is the formula.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"user": ["a", "b"] * 50, "ad": ["x", "y", "y", "z"] * 25, "click": [0, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", model=sf.FM(k=2), training=sf.Training(epochs=1, threads=1))
    >>> split = Split(fitted.model, fitted.params, fitted.encoder.layout, items=(1,))
    >>> queries, constants = ContextQueries(split)(split.part(fitted.encoder.encode(table), (0,)))
    >>> queries.shape, constants.shape
    ((100, 2), (100,))
    """

    def __init__(self, split: Split) -> None:
        self.split = split

    def __call__(self, slots: Slots) -> tuple[Float32, Float32]:
        """Queries of shape (n, length) and constants; raise if one is not finite."""
        queries = np.zeros((len(slots), self.split.length), np.float32)
        constants = np.full(len(slots), self.split.bias, np.float32)
        finite = bool(np.isfinite(constants).all())
        if self.split.context:
            start, weight = np.ascontiguousarray(slots.start), np.ascontiguousarray(slots.weight)
            finite = self._side.queries(start, weight, queries, constants)
        if not finite:
            raise ValueError(
                "the vector of a context is not finite: the model's parameters contain NaN or infinity; refit it"
            )
        return queries, constants

    def feature_queries(self, queries: Float32) -> list[Float32]:
        """For each field of an item, what multiplies the numbers of its features; see `Split.feature_queries`."""
        out = []
        for own in self.item_maps:
            out.append(np.zeros((len(queries), own.length), np.float32))
            map_queries(own.blocks, own.weights, np.ascontiguousarray(queries), out[-1])
        return out

    @cached_property
    def context_map(self) -> MapArrays:
        """The map from sums of units, as they are in `row_tables`, to a query."""
        split, n_fields = self.split, len(self.split.layout.fields)
        width, columns = row_width(split.model, n_fields), row_columns(split.model, n_fields)
        return map_arrays(split.context_blocks(), split.length, width, columns)

    @cached_property
    def item_maps(self) -> list[MapArrays]:
        """The maps from a query to those of the features of each field of an item."""
        split = self.split
        sizes = [len(split.feature_columns(f)) for f in split.items]
        every = np.arange(split.length)
        return [
            map_arrays(blocks, n, split.length, every) for blocks, n in zip(split.item_blocks(), sizes, strict=True)
        ]

    @cached_property
    def _side(self) -> ContextSide:
        split = self.split
        model, n_fields = split.model, len(split.layout.fields)
        layout = SlotLayout(tuple(split.layout.fields[f] for f in split.context))
        blocks, weights, length = self.context_map
        return ContextSide(
            weight_ptr=np.ascontiguousarray(layout.weight_ptr, np.int32),
            window_unit=np.ascontiguousarray(layout.window_unit, np.int32),
            unit_field=np.ascontiguousarray(split.context_units, np.int32),
            model=model.kind,
            members=model.members,
            order=model.order,
            **row_tables(model, split.params, n_fields)._asdict(),
            between=row_between(model, split.params, n_fields),
            bias=split.bias,
            n_fields=n_fields,
            products=split.products,
            blocks=blocks,
            weights=weights,
            length=length,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_side"}
