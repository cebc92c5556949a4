"""The terms of the score for every row, computed by the compiled loops in parallel and without large copies.

a_f is the linear part of field f and the products of its units with each other; z_f is its vector less its mean.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm._core import ExplainTerms
from splinefm._memory import check_memory
from splinefm._parallel import count_threads
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.learn.fitted import Fitted
from splinefm.model.family import Params

FloatArray = npt.NDArray[np.float64]
# Memory for the fields' vectors of a block of rows.
BLOCK_BYTES = 1 << 24
# Rows per call of the loops, a few tenths of a second: Python notices Ctrl-C between two calls.
CALL_ROWS = 1 << 16


def pair_part(fitted: Fitted) -> Fitted:
    """The model without products of more than two units: its pairs, on the first coordinates of its vectors."""
    model = fitted.model.pair_model
    if model == fitted.model:
        return fitted
    factors = np.ascontiguousarray(fitted.params["factors"][:, : model.width(len(fitted.encoder.fields))])
    return replace(fitted, model=model, params={**fitted.params, "factors": factors})


def size(fitted: Fitted) -> tuple[int, int]:
    """Fields, and the length of their vectors."""
    return len(fitted.encoder.layout.fields), fitted.params["factors"].shape[1]


def toward(fitted: Fitted, Z: npt.NDArray[np.floating], f: int) -> FloatArray:
    """Σ_{e≠f} M_fe z_e: the derivative of the products by z_f, from vectors of shape (n, fields, width)."""
    return fitted.model.slope(Z, fitted.params, np.arange(Z.shape[1], dtype=np.int32), f)


def inner_parts(fitted: Fitted, slots: Slots, threads: int | None) -> FloatArray:
    """a_f of all rows, shape (n, fields)."""
    none = np.zeros(size(fitted))
    terms = _terms(fitted, slots.layout, none, none, threads)
    out = np.empty((len(slots), len(none)))
    for rows in _blocks(len(slots), CALL_ROWS):
        terms.inner(*_arrays(slots, rows), np.zeros(len(none)), out[rows])
    return out


def field_terms(
    fitted: Fitted, slots: Slots, center: FloatArray, slope: FloatArray, offset: FloatArray, threads: int | None
) -> FloatArray:
    """a_f + z_f' h_f + ½ Σ_e z_f' M_fe z_e - offset_f of all rows, shape (n, fields)."""
    terms = _terms(fitted, slots.layout, center, slope, threads)
    out = np.empty((len(slots), len(center)))
    for rows in _blocks(len(slots), CALL_ROWS):
        terms.terms(*_arrays(slots, rows), offset, out[rows])
    return out


def field_effects(
    fitted: Fitted, slots: Slots, center: FloatArray, slope: FloatArray, offset: FloatArray, threads: int | None
) -> FloatArray:
    """a_f + z_f' h_f - offset_f of all fields, then z_f' M_fe z_e of all pairs: shape (n, fields + pairs)."""
    n_fields = len(center)
    terms = _terms(fitted, slots.layout, center, slope, threads)
    out = np.empty((len(slots), n_fields * (n_fields + 1) // 2))
    for rows in _blocks(len(slots), CALL_ROWS):
        terms.effects(*_arrays(slots, rows), offset, out[rows])
    return out


def field_vectors(
    fitted: Fitted, slots: Slots, center: FloatArray, threads: int | None
) -> Iterator[tuple[slice, npt.NDArray[np.float32]]]:
    """The vectors of all fields less `center`, block by block: shape (rows, fields, width)."""
    terms = _terms(fitted, slots.layout, center, center, threads)
    for rows in _blocks(len(slots), max(1, BLOCK_BYTES // (8 * center.size))):
        Z = np.empty((rows.stop - rows.start, *center.shape), np.float32)
        terms.vectors(*_arrays(slots, rows), Z)
        yield rows, Z


class ProductVectors:
    """Gathers the coordinates of units that meet in products of three.

    Each is multiplied by its share of the weight of these products, so that they need no weight.

    Parameters
    ----------
    fitted : Fitted
        The model.
    layout : SlotLayout
        The layout of the rows.
    """

    def __init__(self, fitted: Fitted, layout: SlotLayout) -> None:
        self._gather = UnitVectors(fitted.params, layout, fitted.model.product_columns)
        self._share = product_share(fitted)
        self.size = self._gather.size

    def __call__(self, slots: Slots) -> FloatArray:
        """The vectors, shape (n, units, coordinates)."""
        return self._share * self._gather(slots).astype(np.float64)


def product_share(fitted: Fitted) -> float:
    """What each of three vectors contributes to the weight of their product."""
    return float(np.cbrt(fitted.model.product_weight))


class UnitVectors:
    """Gathers the vectors of all units of encoded rows, or some coordinates of them.

    Parameters
    ----------
    params : dict of arrays
        The parameters of the model.
    layout : SlotLayout
        The layout of the rows, whose features are those of the parameters.
    coordinates : slice, optional
        Which coordinates; all by default.
    threads : int
        Threads of each call.
    """

    def __init__(self, params: Params, layout: SlotLayout, coordinates: slice | None = None, threads: int = 1) -> None:
        factors = _plain(params["factors"][:, coordinates or slice(None)], np.float32)
        self.size = (layout.n_units, factors.shape[1])
        nothing = np.zeros(layout.n_units * factors.shape[1], np.float32)
        self._terms = ExplainTerms(
            "fm",  # with a field for every unit, the vectors of fields are those of units
            factors.shape[1],
            layout.weight_ptr,
            layout.window_unit,
            np.arange(layout.n_units, dtype=np.int32),
            factors,
            _plain(params["linear"], np.float32),
            np.zeros(0, np.float32),
            nothing,
            nothing,
            threads,
        )

    def __call__(self, slots: Slots) -> npt.NDArray[np.float32]:
        """The vectors, shape (n, units, coordinates)."""
        P = np.empty((len(slots), *self.size), np.float32)
        self._terms.vectors(*_arrays(slots, slice(None)), P)
        return P


def _terms(
    fitted: Fitted, layout: SlotLayout, center: FloatArray, slope: FloatArray, threads: int | None
) -> ExplainTerms:
    """The compiled loops with their parameters; large arrays are not copied."""
    model, params, n_fields = fitted.model, fitted.params, size(fitted)[0]
    between: npt.NDArray[Any] = np.zeros(0)
    kind = model.kind if model.pairwise else "fwfm"  # with one weight for all pairs: see `pair_model`
    if model.field_shapes(n_fields) or not model.pairwise:
        between = model.between_all(params, n_fields)
    if between.ndim == 3:  # weights by coordinate are matrices with them on the diagonal
        check_memory(8 * between.size * between.shape[2], f"explaining {model}", "use a model of fewer members")
        kind, between = "fmfm", between[..., None] * np.eye(between.shape[2], dtype=np.float32)
    return ExplainTerms(
        kind,
        model.part_size(n_fields),
        layout.weight_ptr,
        layout.window_unit,
        layout.unit_field,
        _plain(params["factors"], np.float32),
        _plain(params["linear"], np.float32),
        _plain(between, np.float32).reshape(-1),
        _plain(center, np.float32).reshape(-1),
        _plain(slope, np.float32).reshape(-1),
        count_threads(threads),
    )


def _blocks(n: int, most: int) -> Iterator[slice]:
    return (slice(first, min(first + most, n)) for first in range(0, n, most))


def _arrays(slots: Slots, rows: slice) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """Slots of some rows as contiguous arrays."""
    return _plain(slots.start[rows], np.int32), _plain(slots.weight[rows], np.float32)


def _plain(values: npt.NDArray[Any], dtype: Any) -> npt.NDArray[Any]:
    """The array as the loops need it; copied if its type, order or alignment differs."""
    return np.require(values, dtype, ["C", "A"])
