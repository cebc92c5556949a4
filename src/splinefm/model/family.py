"""The factorization machine family: parameters, start values, and the formula of each model in NumPy.

All models score a row as (paper, equation of the field reductions)

    score = bias + Σ linear + Σ_{u<v} p_u' M_{f(u) f(v)} p_v,    p_u = Σ_{windows of u} Σ_j weight_j V[start + j]

and differ in the matrices M between fields. The formulas here are for reading and testing; the engines compute
the same numbers fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from splinefm._checks import check_size
from splinefm._memory import check_memory
from splinefm._wording import setting
from splinefm.encode.slots import SlotLayout, Slots
from splinefm.model.settings import WithSettings

FloatArray = npt.NDArray[np.float64]
Params = dict[str, npt.NDArray[np.float32]]
"""bias (1,), linear (rows,), factors (rows, width), and what a model has for its fields."""
# Arrays of the size of the parameters that training holds at most: start values, those that are trained, two moments,
# an average, gradients, the parameters of this epoch and of the best one.
COPIES = 8
# More is out of reach for 32-bit numbers long before.
MOST_ORDER = 64


class Model(Protocol):
    """What an engine needs of a model."""

    def width(self, n_fields: int) -> int:
        """Numbers per row of `factors`."""

    def numbers_between(self, n_fields: int) -> int:
        """How many parameters there are between fields."""

    def init_fields(self, n_fields: int, rng: np.random.Generator) -> Params:
        """Start values of the parameters between fields."""

    def interaction(self, P: FloatArray, params: Params, unit_field: npt.NDArray[np.int32]) -> FloatArray:
        """Σ_{u<v} p_u' M p_v for unit vectors P of shape (n, units, width)."""


@dataclass(frozen=True)
class FM(WithSettings):
    """Factorization machine: M = I.

    Parameters
    ----------
    k : int
        Length of the vectors.

    Examples
    --------
    >>> FM(k=2).interaction(np.array([[[1.0, 2.0], [3.0, 4.0]]]), {}, np.array([0, 1], np.int32))
    array([11.])
    """

    k: int = 16

    def __post_init__(self) -> None:
        check_size("k", self.k)

    def width(self, n_fields: int) -> int:
        """k."""
        return self.k

    def numbers_between(self, n_fields: int) -> int:
        """None."""
        return 0

    def init_fields(self, n_fields: int, rng: np.random.Generator) -> Params:
        """None."""
        return {}

    def interaction(self, P: FloatArray, params: Params, unit_field: npt.NDArray[np.int32]) -> FloatArray:
        """½ (|Σ p_u|² - Σ |p_u|²)."""
        total = P.sum(axis=1)
        return np.asarray(0.5 * ((total**2).sum(axis=1) - (P**2).sum(axis=(1, 2))))


@dataclass(frozen=True)
class FwFM(WithSettings):
    """Field-weighted factorization machine: M_fe = r_fe I.

    Parameters
    ----------
    k : int
        Length of the vectors.

    Examples
    --------
    >>> params = {"field_weights": np.full((2, 2), 0.5, np.float32)}
    >>> FwFM(k=2).interaction(np.array([[[1.0, 2.0], [3.0, 4.0]]]), params, np.array([0, 1], np.int32))
    array([5.5])
    """

    k: int = 16

    def __post_init__(self) -> None:
        check_size("k", self.k)

    def width(self, n_fields: int) -> int:
        """k."""
        return self.k

    def numbers_between(self, n_fields: int) -> int:
        """One for each pair of fields."""
        return n_fields**2

    def init_fields(self, n_fields: int, rng: np.random.Generator) -> Params:
        """All ones: training starts from an FM."""
        return {"field_weights": np.ones((n_fields, n_fields), np.float32)}

    def interaction(self, P: FloatArray, params: Params, unit_field: npt.NDArray[np.int32]) -> FloatArray:
        """Σ_{u<v} r_{f(u) f(v)} p_u' p_v; only r_fe with f ≤ e is used."""
        return _weighted(P, params["field_weights"], unit_field)


@dataclass(frozen=True)
class LowRankFwFM(WithSettings):
    """FwFM whose field weights are the off-diagonal part of U' diag(d) U.

    Parameters
    ----------
    k : int
        Length of the vectors.
    rank : int
        Rows of U.

    Examples
    --------
    >>> LowRankFwFM(k=8, rank=2).init_fields(5, np.random.default_rng(0))["field_factors"].shape
    (2, 5)
    """

    k: int = 16
    rank: int = 3

    def __post_init__(self) -> None:
        check_size("k", self.k)
        check_size("rank", self.rank)

    def width(self, n_fields: int) -> int:
        """k."""
        return self.k

    def numbers_between(self, n_fields: int) -> int:
        """U and d."""
        return self.rank * (n_fields + 1)

    def init_fields(self, n_fields: int, rng: np.random.Generator) -> Params:
        """Close to all ones, so that training starts near an FM."""
        factors = 0.1 * rng.standard_normal((self.rank, n_fields))
        factors[0] += 1.0
        return {
            "field_factors": factors.astype(np.float32),
            "field_scales": np.ones(self.rank, np.float32),
        }

    def interaction(self, P: FloatArray, params: Params, unit_field: npt.NDArray[np.int32]) -> FloatArray:
        """Σ_{u<v} r_{f(u) f(v)} p_u' p_v with r = U' diag(d) U off the diagonal and 0 on it."""
        U = params["field_factors"].astype(np.float64)
        weights = U.T @ (params["field_scales"][:, None] * U)
        np.fill_diagonal(weights, 0.0)
        return _weighted(P, weights, unit_field)


@dataclass(frozen=True)
class FmFM(WithSettings):
    """Field-matrixed factorization machine: M_fe is a full matrix.

    Parameters
    ----------
    k : int or tuple of int
        Length of the vectors, one for all fields or one per field.

    Examples
    --------
    >>> FmFM(k=(2, 3)).init_fields(2, np.random.default_rng(0))["field_matrices"].shape
    (2, 2, 3, 3)
    """

    k: int | tuple[int, ...] = 8

    def __post_init__(self) -> None:
        given: Any = self.k
        sizes = tuple(given) if isinstance(given, list | tuple | np.ndarray) else (given,)
        for k in sizes:
            check_size("k", k)
        object.__setattr__(self, "k", tuple(map(int, sizes)) if given is not sizes[0] else int(given))

    def sizes(self, n_fields: int) -> tuple[int, ...]:
        """Length of the vectors of each field."""
        sizes = self.k if isinstance(self.k, tuple) else (self.k,) * n_fields
        if len(sizes) != n_fields:
            raise ValueError(f"FmFM: k has {len(sizes)} entries, the schema has {n_fields} fields")
        return sizes

    def width(self, n_fields: int) -> int:
        """The longest k; shorter vectors are padded with zeros, which stay zero."""
        return max(self.sizes(n_fields))

    def numbers_between(self, n_fields: int) -> int:
        """A matrix for each pair of fields."""
        return (n_fields * self.width(n_fields)) ** 2

    def init_fields(self, n_fields: int, rng: np.random.Generator) -> Params:
        """Identities, padded with zeros: training starts from an FM."""
        sizes = self.sizes(n_fields)
        matrices = np.zeros((n_fields, n_fields, max(sizes), max(sizes)), np.float32)
        for f, k in enumerate(sizes):
            for e, k_other in enumerate(sizes):
                matrices[f, e, :k, :k_other] = np.eye(k, k_other)
        return {"field_matrices": matrices}

    def interaction(self, P: FloatArray, params: Params, unit_field: npt.NDArray[np.int32]) -> FloatArray:
        """Σ_{u<v} p_u' M_{f(u) f(v)} p_v; only M_fe with f ≤ e is used."""
        n_units = len(unit_field)
        matrices = params["field_matrices"][unit_field[:, None], unit_field[None, :]].astype(np.float64)
        matrices = matrices * np.triu(np.ones((n_units, n_units)), 1)[:, :, None, None]
        return np.asarray(np.einsum("nui,uvij,nvj->n", P, matrices, P, optimize=True))


@dataclass(frozen=True)
class FFM(WithSettings):
    """Field-aware factorization machine: a vector of length k for every field that it meets.

    Parameters
    ----------
    k : int
        Length of the vectors per pair of fields.

    Examples
    --------
    >>> P = np.array([[[0.0, 2.0], [3.0, 0.0]]])  # k = 1: unit 0 meets field 1 with 2, unit 1 meets field 0 with 3
    >>> FFM(k=1).interaction(P, {}, np.array([0, 1], np.int32))
    array([6.])
    """

    k: int = 8

    def __post_init__(self) -> None:
        check_size("k", self.k)

    def width(self, n_fields: int) -> int:
        """k for each field."""
        return self.k * n_fields

    def numbers_between(self, n_fields: int) -> int:
        """None."""
        return 0

    def init_fields(self, n_fields: int, rng: np.random.Generator) -> Params:
        """None."""
        return {}

    def interaction(self, P: FloatArray, params: Params, unit_field: npt.NDArray[np.int32]) -> FloatArray:
        """Σ_{u<v} p_u[f(v)]' p_v[f(u)]."""
        parts = P.reshape(*P.shape[:2], P.shape[2] // self.k, self.k)[:, :, unit_field]  # [n, u, v] = p_u[f(v)]
        above = np.triu(np.ones(parts.shape[1:3]), 1)
        return np.asarray(np.einsum("nuvk,nvuk,uv->n", parts, parts, above, optimize=True))


@dataclass(frozen=True)
class HigherOrderFM(WithSettings):
    """Products of up to `order` different unit vectors, coordinate by coordinate.

    Parameters
    ----------
    k : int
        Length of the vectors.
    order : int
        Most units in one product; 2 is the FM.

    Examples
    --------
    >>> P = np.array([[[1.0], [2.0], [3.0]]])
    >>> HigherOrderFM(k=1, order=3).interaction(P, {}, np.arange(3, dtype=np.int32))  # 1·2 + 1·3 + 2·3 + 1·2·3
    array([17.])
    """

    k: int = 16
    order: int = 3

    def __post_init__(self) -> None:
        check_size("k", self.k)
        check_size("order", self.order, 2, MOST_ORDER)

    def width(self, n_fields: int) -> int:
        """k."""
        return self.k

    def numbers_between(self, n_fields: int) -> int:
        """None."""
        return 0

    def init_fields(self, n_fields: int, rng: np.random.Generator) -> Params:
        """None."""
        return {}

    def interaction(self, P: FloatArray, params: Params, unit_field: npt.NDArray[np.int32]) -> FloatArray:
        """Σ_t Σ_{u1<..<ut} Σ_d Π p_ui[d] for t = 2 .. order, by the recursion over units."""
        products = np.zeros((self.order + 1, P.shape[0], P.shape[2]))
        products[0] = 1.0
        for u in range(P.shape[1]):
            for t in range(self.order, 0, -1):
                products[t] += P[:, u] * products[t - 1]
        return np.asarray(products[2:].sum(axis=(0, 2)))


AnyModel = FM | FwFM | LowRankFwFM | FmFM | FFM | HigherOrderFM


def pace_of(n_fields: int) -> float:
    """How large steps are with so many fields: 1 up to 50, then (50 / n)², and 25 / n from 100 on.

    All fields of a row move its score at once. See docs/decisions.md for what was measured.

    Examples
    --------
    >>> pace_of(50), pace_of(100), pace_of(1000)
    (1.0, 0.25, 0.025)
    """
    return min(1.0, max((50 / n_fields) ** 2, 25 / n_fields))


def check_model_memory(model: Model, layout: SlotLayout) -> None:
    """Raise where training a model would take more memory than there is."""
    n_fields = len(layout.fields)
    numbers = 1 + layout.n_features * (1 + model.width(n_fields)) + model.numbers_between(n_fields)
    check_memory(
        COPIES * 4 * numbers,
        f"training {model} with its {numbers:,} parameters ({layout.n_features:,} features)",
        f"lower {setting('k')}, or use fewer categories or basis functions",
    )


def init_params(model: Model, layout: SlotLayout, rng: np.random.Generator, scale: float = 0.1) -> Params:
    """Start values: small vectors with mean zero, everything else neutral.

    The vectors are normal with standard deviation `scale` / √k, so that products of two start small whatever k is, and
    √`pace_of(n)` times that for n fields, so that the sum over all pairs of many fields starts small too.
    """
    check_model_memory(model, layout)
    n_fields = len(layout.fields)
    scale *= np.sqrt(pace_of(n_fields))
    width = model.width(n_fields)
    factors = rng.standard_normal((layout.n_features, width), np.float32)
    k = width // n_fields if isinstance(model, FFM) else width
    factors *= np.float32(scale / np.sqrt(k))
    if isinstance(model, FmFM):
        for f, size in enumerate(model.sizes(n_fields)):
            factors[layout.feature_ptr[f] : layout.feature_ptr[f + 1], size:] = 0.0
    return {
        "bias": np.zeros(1, np.float32),
        "linear": np.zeros(layout.n_features, np.float32),
        "factors": factors,
        **model.init_fields(n_fields, rng),
    }


def unit_sums(table: npt.NDArray[np.floating], slots: Slots) -> FloatArray:
    """Σ_{windows of u} Σ_j weight_j table[start + j]: shape (n, units, ...)."""
    layout = slots.layout
    sums = np.zeros((len(slots), layout.n_units, *table.shape[1:]))
    for window, unit in enumerate(layout.window_unit):
        first, last = layout.weight_ptr[window], layout.weight_ptr[window + 1]
        for j in range(last - first):
            weight = slots.weight[:, first + j].astype(np.float64)
            rows = table[slots.start[:, window] + j]
            sums[:, unit] += weight.reshape(-1, *[1] * (table.ndim - 1)) * rows
    return sums


def formula_scores(model: Model, params: Params, slots: Slots) -> FloatArray:
    """The score of every row by the formula, in float64: what every engine is tested against."""
    P = unit_sums(params["factors"], slots)
    linear = unit_sums(params["linear"], slots).sum(axis=1)
    return np.asarray(params["bias"][0] + linear + model.interaction(P, params, slots.layout.unit_field))


def _weighted(P: FloatArray, weights: npt.NDArray[np.floating], unit_field: npt.NDArray[np.int32]) -> FloatArray:
    between = np.triu(weights[unit_field[:, None], unit_field[None, :]].astype(np.float64), 1)
    return np.asarray(np.einsum("nud,nvd,uv->n", P, P, between, optimize=True))
