"""Models with a weight between every two fields: FwFM, and FwFM whose weights have a low rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from splinefm._arrays import Array, FloatArray, IndexArray, Int32Array
from splinefm._checks import check_size
from splinefm.encode.slots import SlotLayout
from splinefm.model.family.contract import (
    Inseparable,
    OneVector,
    OnlyPairs,
    Params,
    Separable,
    above_diagonal,
    weighted_slope,
)
from splinefm.model.towers import JoinedTowers, ProductTowers, Towers, WeightTowers, symmetric_sums


@dataclass(frozen=True)
class FwFM(Separable, OneVector):
    """Field-weighted factorization machine: M_fe = r_fe I; and products of three fields, if asked for.

    Parameters
    ----------
    k : int
        Length of the vectors.
    third : int
        Length of a second vector q of every feature, for products of three: the score has
        Σ_{u<v<w} Σ_c q_uc q_vc q_wc as well. 0 for none. The L2 penalty shrinks these vectors apart from the others,
        toward zero where products of three fields do not help.
    members : int
        Number of parts of equal length that vectors consist of, each with field weights of its own. Such a model is
        the mean of several fits, see `Training`. Updates train it as one model.

    Examples
    --------
    >>> params = {"field_weights": np.full((2, 2), 0.5, np.float32)}
    >>> FwFM(k=2).interaction(np.array([[[1.0, 2.0], [3.0, 4.0]]]), params, np.array([0, 1], np.int32))
    array([5.5])
    >>> params = {"field_weights": np.zeros((3, 3), np.float32)}
    >>> P = np.array([[[0.0, 2.0], [0.0, 3.0], [0.0, 5.0]]])
    >>> FwFM(k=1, third=1).interaction(P, params, np.arange(3, dtype=np.int32))  # 2 · 3 · 5
    array([30.])
    """

    k: int = 16
    third: int = 0
    members: int = 1
    kind: ClassVar[str] = "fwfm"
    product_weight: ClassVar[float] = 1.0

    def __post_init__(self) -> None:
        check_size("k", self.k)
        check_size("third", self.third, 0)
        check_size("members", self.members)
        if self.k % self.members:
            raise ValueError(f"members must divide k = {self.k}, got {self.members}")

    def __repr__(self) -> str:
        third = f", third={self.third}" if self.third else ""
        members = f", members={self.members}" if self.members > 1 else ""
        return f"FwFM(k={self.k}{third}{members})"

    @property
    def parts(self) -> int:
        return self.members

    @property
    def order(self) -> int:
        return 3 if self.third else 2

    @property
    def pairwise(self) -> bool:
        return not self.third

    @property
    def product_columns(self) -> slice:
        return slice(self.k, self.k + self.third)

    @property
    def pair_model(self) -> FwFM:
        return replace(self, third=0) if self.third else self

    def pair_index(self, f: IndexArray, e: IndexArray) -> dict[str, tuple[Any, ...]]:
        return {"field_weights": (..., f, e)}

    def separable(self) -> tuple[FwFM, ...]:
        return (self.pair_model,) if self.third else ()

    def width(self, n_fields: int) -> int:
        return self.k + self.third

    def vector_sizes(self, n_fields: int) -> tuple[int, ...]:
        return (self.width(n_fields),) * n_fields

    def field_shapes(self, n_fields: int) -> dict[str, tuple[int, ...]]:
        """One weight for each pair of fields (and member); only r_fe with f ≤ e is used."""
        shape = (n_fields, n_fields)
        return {"field_weights": shape if self.members == 1 else (self.members, *shape)}

    def init_fields(self, n_fields: int, rng: np.random.Generator) -> Params:
        # DIFFERS: the authors' code draws the weights from N(0, 1).
        return {"field_weights": np.ones(self.field_shapes(n_fields)["field_weights"], np.float32)}

    def between(self, params: Params, f: Any, e: Any) -> FloatArray:
        """r_fe; with several members, the weight of the member of each coordinate."""
        found = np.asarray(params["field_weights"][..., np.minimum(f, e), np.maximum(f, e)], np.float64)
        return self._by_coordinate(found)

    def _by_coordinate(self, weights: Array) -> Array:
        """Weights of members on the first axis become weights of coordinates on the last."""
        if self.members == 1:
            return weights
        return np.repeat(np.moveaxis(weights, 0, -1), self.k // self.members, axis=-1)

    def between_all(self, params: Params, n_fields: int, dtype: npt.DTypeLike = np.float64) -> Array:
        """The upper triangle, mirrored."""
        R = np.triu(params["field_weights"].astype(dtype))
        return self._by_coordinate(R + np.swapaxes(np.triu(R, 1), -1, -2))

    def interaction(self, P: FloatArray, params: Params, unit_field: Int32Array) -> FloatArray:
        """Σ_{u<v} r_{f(u) f(v)} p_u' p_v + Σ_{u<v<w} Σ_c q_uc q_vc q_wc."""
        weights = self._by_coordinate(params["field_weights"])
        pairs = _weighted(P[:, :, : self.k], weights, unit_field)
        return np.asarray(pairs + symmetric_sums(P[:, :, self.k :], 3)[3].sum(axis=1))

    def slope(self, P: npt.NDArray[np.floating], params: Params, unit_field: Int32Array, f: int) -> FloatArray:
        """Σ r_{f f(u)} p_u, then Σ_{u<v} q_u q_v, over the units of the other fields."""
        pairs = weighted_slope(P[:, :, : self.k], self.between(params, f, unit_field), unit_field, f)
        return np.concatenate([pairs, symmetric_sums(P[:, unit_field != f, self.k :], 2)[2]], axis=1)

    def towers(self, params: Params, items: Int32Array, context: Int32Array, n_fields: int) -> Towers:
        """Σ_I s_f' (Σ_C r_fe s_e), and e_1(I)' e_2(C) + e_2(I)' e_1(C) of the vectors for products of three."""
        part, sides = self.k // self.members, np.ix_(np.unique(items), np.unique(context))
        towers: Towers | None = None
        if self.third:
            towers = ProductTowers(3, items, context, self.third, least=3)
        for weights in reversed(params["field_weights"].reshape(self.members, n_fields, n_fields)):
            between = np.asarray(weights[np.minimum(*sides), np.maximum(*sides)], np.float64)
            pairs = _full_rank(between, items, context, part)
            towers = pairs if towers is None else JoinedTowers(pairs, towers, part, part * min(between.shape))
        assert towers is not None
        return towers

    def mean(self, members: Sequence[Params], layout: SlotLayout) -> tuple[FwFM, Params]:
        """The vectors of all members side by side, each with its field weights."""
        return _mean_of_weighted(self.k, self.third, members, [params["field_weights"] for params in members])


@dataclass(frozen=True)
class LowRankFwFM(Inseparable, OnlyPairs, OneVector):
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
    kind: ClassVar[str] = "low_rank"

    def __post_init__(self) -> None:
        check_size("k", self.k)
        check_size("rank", self.rank)

    def field_shapes(self, n_fields: int) -> dict[str, tuple[int, ...]]:
        return {"field_factors": (self.rank, n_fields), "field_scales": (self.rank,)}

    def init_fields(self, n_fields: int, rng: np.random.Generator) -> Params:
        """Close to all ones, so that training starts close to an FM."""
        factors = 0.1 * rng.standard_normal((self.rank, n_fields))
        factors[0] += 1.0
        return {
            "field_factors": factors.astype(np.float32),
            "field_scales": np.ones(self.rank, np.float32),
        }

    def between(self, params: Params, f: Any, e: Any) -> FloatArray:
        """(U' diag(d) U)_fe, and zero for two units of one field."""
        U = params["field_factors"].T.astype(np.float64)
        return np.where(np.equal(f, e), 0.0, (U[f] * U[e]) @ params["field_scales"])

    def between_all(self, params: Params, n_fields: int, dtype: npt.DTypeLike = np.float64) -> Array:
        """U' diag(d) U with a zero diagonal."""
        U = params["field_factors"].astype(dtype)
        R = U.T @ (params["field_scales"][:, None] * U)
        np.fill_diagonal(R, 0.0)
        return np.asarray(R)

    def interaction(self, P: FloatArray, params: Params, unit_field: Int32Array) -> FloatArray:
        """Σ_{u<v} r_{f(u) f(v)} p_u' p_v with r = U' diag(d) U off the diagonal and 0 on it."""
        return _weighted(P, self.between_all(params, params["field_factors"].shape[1]), unit_field)

    def slope(self, P: npt.NDArray[np.floating], params: Params, unit_field: Int32Array, f: int) -> FloatArray:
        """Σ r_{f f(u)} p_u over the units of the other fields."""
        return weighted_slope(P, self.between(params, f, unit_field), unit_field, f)

    def towers(self, params: Params, items: Int32Array, context: Int32Array, n_fields: int) -> Towers:
        """Σ_r (Σ_I U_rf s_f)' (d_r Σ_C U_re s_e), if the rank is below the numbers of fields."""
        rows, columns = np.unique(items), np.unique(context)
        if self.rank >= min(len(rows), len(columns)):
            return _full_rank(self.between(params, *np.ix_(rows, columns)), items, context, self.k)
        U = params["field_factors"].astype(np.float64)
        scaled = params["field_scales"][:, None] * U
        return WeightTowers(items, context, self.k, U[:, rows].T, scaled[:, columns].T)

    def mean(self, members: Sequence[Params], layout: SlotLayout) -> tuple[FwFM, Params]:
        """An FwFM with the weights of each member, multiplied out."""
        weights = [self.between_all(params, len(layout.fields)) for params in members]
        return _mean_of_weighted(self.k, 0, members, weights)


def _mean_of_weighted(k: int, third: int, members: Sequence[Params], weights: Sequence[Array]) -> tuple[FwFM, Params]:
    """Vectors for pairs side by side, with a share of their weights each; then those for products of three."""
    n = len(members)
    pairs = [params["factors"][:, :k] for params in members]
    # Of a product of three, each has a cube root of the share.
    triples = [(params["factors"][:, k:] * n ** (-1.0 / 3.0)).astype(np.float32) for params in members]
    shares = np.stack([np.asarray(own, np.float64) / n for own in weights]).astype(np.float32)
    params = {
        "factors": np.concatenate([*pairs, *triples], axis=1),
        "field_weights": shares if n > 1 else shares[0],
    }
    return FwFM(n * k, n * third, n), params


def _weighted(P: FloatArray, weights: Array, unit_field: Int32Array) -> FloatArray:
    """`weights` has a number for each pair of fields, or one for each coordinate as well."""
    if weights.ndim == 3:
        return np.asarray(np.einsum("nud,nvd,uvd->n", P, P, above_diagonal(weights, unit_field), optimize=True))
    return np.asarray(np.einsum("nud,nvd,uv->n", P, P, above_diagonal(weights, unit_field), optimize=True))


def _full_rank(between: FloatArray, items: Int32Array, context: Int32Array, k: int) -> WeightTowers:
    """The side with more fields is multiplied with the weights, so that vectors are as short as possible."""
    if between.shape[0] <= between.shape[1]:
        return WeightTowers(items, context, k, B=between.T)
    return WeightTowers(items, context, k, A=between)
