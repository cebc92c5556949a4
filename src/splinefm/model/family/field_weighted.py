"""Models with a weight between every two fields: FwFM, and FwFM whose weights have a low rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from splinefm._checks import check_size
from splinefm.model.family.contract import FloatArray, IntArray, OneVector, Params, above_diagonal, weighted_slope
from splinefm.model.towers import Towers, WeightTowers


@dataclass(frozen=True)
class FwFM(OneVector):
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
    kind: ClassVar[str] = "fwfm"
    order: ClassVar[int] = 2
    pairwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_size("k", self.k)

    def field_shapes(self, n_fields: int) -> dict[str, tuple[int, ...]]:
        """One weight for each pair of fields; only r_fe with f ≤ e is used."""
        return {"field_weights": (n_fields, n_fields)}

    def init_fields(self, n_fields: int, rng: np.random.Generator) -> Params:
        """All ones: training starts from an FM."""
        return {"field_weights": np.ones((n_fields, n_fields), np.float32)}

    def between(self, params: Params, f: Any, e: Any) -> FloatArray:
        """r_fe."""
        return np.asarray(params["field_weights"][np.minimum(f, e), np.maximum(f, e)], np.float64)

    def between_all(self, params: Params, n_fields: int, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
        """The upper triangle, mirrored."""
        R = np.triu(params["field_weights"].astype(dtype))
        return np.asarray(R + np.triu(R, 1).T)

    def interaction(self, P: FloatArray, params: Params, unit_field: IntArray) -> FloatArray:
        """Σ_{u<v} r_{f(u) f(v)} p_u' p_v."""
        return _weighted(P, params["field_weights"], unit_field)

    def slope(self, P: npt.NDArray[np.floating], params: Params, unit_field: IntArray, f: int) -> FloatArray:
        """Σ r_{f f(u)} p_u over the units of the other fields."""
        return weighted_slope(P, self.between(params, f, unit_field), unit_field, f)

    def towers(self, params: Params, items: IntArray, context: IntArray, n_fields: int) -> Towers:
        """Σ_I s_f' (Σ_C r_fe s_e)."""
        between = self.between(params, *np.ix_(np.unique(items), np.unique(context)))
        return _full_rank(between, items, context, self.k)


@dataclass(frozen=True)
class LowRankFwFM(OneVector):
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
    order: ClassVar[int] = 2
    pairwise: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_size("k", self.k)
        check_size("rank", self.rank)

    def field_shapes(self, n_fields: int) -> dict[str, tuple[int, ...]]:
        """U and d."""
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

    def between_all(self, params: Params, n_fields: int, dtype: npt.DTypeLike = np.float64) -> npt.NDArray[Any]:
        """U' diag(d) U with a zero diagonal."""
        U = params["field_factors"].astype(dtype)
        R = U.T @ (params["field_scales"][:, None] * U)
        np.fill_diagonal(R, 0.0)
        return np.asarray(R)

    def interaction(self, P: FloatArray, params: Params, unit_field: IntArray) -> FloatArray:
        """Σ_{u<v} r_{f(u) f(v)} p_u' p_v with r = U' diag(d) U off the diagonal and 0 on it."""
        return _weighted(P, self.between_all(params, params["field_factors"].shape[1]), unit_field)

    def slope(self, P: npt.NDArray[np.floating], params: Params, unit_field: IntArray, f: int) -> FloatArray:
        """Σ r_{f f(u)} p_u over the units of the other fields."""
        return weighted_slope(P, self.between(params, f, unit_field), unit_field, f)

    def towers(self, params: Params, items: IntArray, context: IntArray, n_fields: int) -> Towers:
        """Σ_r (Σ_I U_rf s_f)' (d_r Σ_C U_re s_e), if the rank is below the numbers of fields."""
        rows, columns = np.unique(items), np.unique(context)
        if self.rank >= min(len(rows), len(columns)):
            return _full_rank(self.between(params, *np.ix_(rows, columns)), items, context, self.k)
        U = params["field_factors"].astype(np.float64)
        scaled = params["field_scales"][:, None] * U
        return WeightTowers(items, context, self.k, U[:, rows].T, scaled[:, columns].T)


def _weighted(P: FloatArray, weights: npt.NDArray[Any], unit_field: IntArray) -> FloatArray:
    return np.asarray(np.einsum("nud,nvd,uv->n", P, P, above_diagonal(weights, unit_field), optimize=True))


def _full_rank(between: FloatArray, items: IntArray, context: IntArray, k: int) -> WeightTowers:
    """The side with more fields is multiplied with the weights, so that vectors are as short as possible."""
    if between.shape[0] <= between.shape[1]:
        return WeightTowers(items, context, k, B=between.T)
    return WeightTowers(items, context, k, A=between)
