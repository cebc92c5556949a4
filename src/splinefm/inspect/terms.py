"""The terms of the score for every row, and the players that they are attributed to."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from splinefm._arrays import Array, Float32Array, FloatArray, IndexArray, Int32Array
from splinefm._cached import cached_property
from splinefm._checks import check_one_score
from splinefm._core import ExplainTerms
from splinefm._memory import check_memory
from splinefm._parallel import count_threads
from splinefm.encode.schema import Schema
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.encode.tables.names import missing_column_message
from splinefm.model.family.contract import Params
from splinefm.train.fitted import Fitted

# Checks of the inputs of explanations: the model, the rows and the names of fields.

# Products of more units have no closed form here: their moments are as many as the units of a product.
MAX_ORDER = 3


def has_closed_form(fitted: Fitted) -> bool:
    """Whether the score is a sum of products of at most three units."""
    return fitted.model.order <= MAX_ORDER


def check_closed_form(fitted: Fitted, what: str) -> None:
    """Raise for what is not a model with one score, and for models with products of more than three units."""
    check_one_score(fitted)
    if not has_closed_form(fitted):
        raise ValueError(
            f"{what}: not available for {fitted.model}, whose score has products of more than {MAX_ORDER} fields; "
            "use partial_dependence or ice_curves, or a model of order 2 or 3"
        )


def encode_rows(fitted: Fitted, table: object, threads: int | None) -> Slots:
    """Encode a table, to explain one score of its rows; slots are returned as they are."""
    check_one_score(fitted)
    if not isinstance(table, Slots):
        return fitted.encoder.encode(table, threads=threads)
    if table.layout != fitted.encoder.layout:
        raise ValueError("these slots come from another encoder; pass the table, or fitted.encoder.encode(table)")
    return table


def field_number(names: tuple[str, ...], name: str) -> int:
    """The index of a field."""
    if name not in names:
        raise ValueError(missing_column_message(name, names, "field", "the model"))
    return names.index(name)


# Whom a score is attributed to: the fields, or the columns of the table if the model has crosses.


@dataclass(frozen=True)
class Players:
    """The players of the game that Shapley values divide, and who takes part in which field.

    Without crosses every field is a player. With crosses every column is one: the fields that read the same column,
    such as the parts of a date, belong to one player.

    Parameters
    ----------
    names : tuple of str
        Names of the fields, or of the columns.
    of_parts : tuple of tuples of int
        For each field the player of every column that it reads.
    """

    names: tuple[str, ...]
    of_parts: tuple[tuple[int, ...], ...]

    @staticmethod
    def of(fitted: Fitted) -> Players:
        """The players of a model."""
        schema: Schema = fitted.encoder.schema
        if not schema.crosses:
            return Players(schema.names, tuple((f,) for f in range(len(schema.names))))
        return Players(schema.columns, schema.column_indices)

    @property
    def n(self) -> int:
        """How many there are."""
        return len(self.names)

    @cached_property
    def of_field(self) -> tuple[tuple[int, ...], ...]:
        """For each field its players, ascending."""
        return tuple(tuple(sorted(set(players))) for players in self.of_parts)

    @cached_property
    def shared(self) -> tuple[int, ...]:
        """Fields of several players."""
        return tuple(f for f, players in enumerate(self.of_field) if len(players) > 1)

    @cached_property
    def are_fields(self) -> bool:
        """Whether every field is a player."""
        return self.of_field == tuple((f,) for f in range(len(self.names)))

    def of_units(self, layout: SlotLayout) -> Int32Array:
        """The player of every unit; -1 for units of fields of several players."""
        alone = [players[0] if len(players) == 1 else -1 for players in self.of_field]
        return np.array(alone, np.int32)[layout.unit_field]


# Small games by enumeration: what a term of the score is worth to every subset of the few players that it has.
#
# A coalition of n players is a number from 0 to 2^n - 1 whose bit i says whether player i belongs to it.


@lru_cache
def shapley_matrix(n: int) -> FloatArray:
    """Shapley values from the worth of every coalition: shape (players, coalitions).

    Examples
    --------
    >>> shapley_matrix(2) @ [0.0, 1.0, 2.0, 5.0]
    array([2., 3.])
    """
    matrix = np.zeros((n, 1 << n))
    for player in range(n):
        for coalition in range(1 << n):
            if not coalition >> player & 1:
                weight = 1.0 / (n * math.comb(n - 1, coalition.bit_count()))
                matrix[player, coalition] -= weight
                matrix[player, coalition | 1 << player] += weight
    return matrix


@lru_cache
def effect_matrix(n: int) -> FloatArray:
    """Effects from the worth of every coalition: what each adds beyond the effects of its subsets.

    The worth of a coalition is the sum of the effects of all its subsets.

    Examples
    --------
    >>> effect_matrix(2) @ [1.0, 2.0, 3.0, 10.0]
    array([1., 1., 2., 6.])
    """
    matrix = np.ones((1, 1))
    for _ in range(n):
        matrix = np.block([[matrix, np.zeros_like(matrix)], [-matrix, matrix]])
    return matrix


@lru_cache
def join(*players: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[IndexArray, ...]]:
    """All players of several fields, and for every coalition of them the coalition of each field's players.

    Examples
    --------
    >>> together, (one, other) = join((0, 2), (2,))
    >>> together, one.tolist(), other.tolist()
    ((0, 2), [0, 1, 2, 3], [0, 0, 1, 1])
    """
    together = tuple(sorted({player for each in players for player in each}))
    coalitions = np.arange(1 << len(together))
    of_each = []
    for each in players:
        bits = [(coalitions >> together.index(player) & 1) << i for i, player in enumerate(each)]
        of_each.append(np.sum(bits, axis=0))
    return together, tuple(of_each)


def mixed(n: int) -> Iterator[int]:
    """Coalitions of n players that are neither empty nor everyone."""
    return iter(range(1, (1 << n) - 1))


# The terms of the score for every row, computed by the compiled loops in parallel and without large copies.
#
# a_f is the linear part of field f and the products of its units with each other; z_f is its vector less its mean.

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
) -> Iterator[tuple[slice, Float32Array]]:
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

    def __call__(self, slots: Slots) -> Float32Array:
        """The vectors, shape (n, units, coordinates)."""
        P = np.empty((len(slots), *self.size), np.float32)
        self._terms.vectors(*_arrays(slots, slice(None)), P)
        return P


def _terms(
    fitted: Fitted, layout: SlotLayout, center: FloatArray, slope: FloatArray, threads: int | None
) -> ExplainTerms:
    """The compiled loops with their parameters; large arrays are not copied."""
    model, params, n_fields = fitted.model, fitted.params, size(fitted)[0]
    between: Array = np.zeros(0)
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


def _arrays(slots: Slots, rows: slice) -> tuple[Int32Array, Float32Array]:
    """Slots of some rows as contiguous arrays."""
    return _plain(slots.start[rows], np.int32), _plain(slots.weight[rows], np.float32)


def _plain(values: Array, dtype: Any) -> Array:
    """The array as the loops need it; copied if its type, order or alignment differs."""
    return np.require(values, dtype, ["C", "A"])
