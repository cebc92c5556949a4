"""The model with a matrix between every two fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from splinefm._arrays import Array, FloatArray, IndexArray, Int32Array
from splinefm._checks import check_size
from splinefm.encode.slots import SlotLayout
from splinefm.model.family.contract import OnlyPairs, Params, Separable, WithSettings, above_diagonal
from splinefm.model.towers import MatrixTowers, Towers


@dataclass(frozen=True)
class FmFM(Separable, OnlyPairs, WithSettings):
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
    kind: ClassVar[str] = "fmfm"

    def __post_init__(self) -> None:
        given: Any = self.k
        sizes = tuple(given) if isinstance(given, list | tuple | np.ndarray) else (given,)
        for k in sizes:
            check_size("k", k)
        object.__setattr__(self, "k", tuple(map(int, sizes)) if given is not sizes[0] else int(given))

    def pair_index(self, f: IndexArray, e: IndexArray) -> dict[str, tuple[Any, ...]]:
        return {"field_matrices": (..., f, e, slice(None), slice(None))}

    def vector_sizes(self, n_fields: int) -> tuple[int, ...]:
        sizes = self.k if isinstance(self.k, tuple) else (self.k,) * n_fields
        if len(sizes) != n_fields:
            raise ValueError(f"FmFM: k has {len(sizes)} entries, the schema has {n_fields} fields")
        return sizes

    def width(self, n_fields: int) -> int:
        """The largest k; shorter vectors are padded with zeros, which stay zero."""
        return max(self.vector_sizes(n_fields))

    def part_size(self, n_fields: int) -> int:
        return self.width(n_fields)

    def columns(self, e: int) -> slice:
        return slice(None)

    def field_shapes(self, n_fields: int) -> dict[str, tuple[int, ...]]:
        """A matrix for each pair of fields; only M_fe with f ≤ e is used."""
        width = self.width(n_fields)
        return {"field_matrices": (n_fields, n_fields, width, width)}

    def init_fields(self, n_fields: int, rng: np.random.Generator) -> Params:
        """Identities, padded with zeros: training starts from an FM."""
        sizes = self.vector_sizes(n_fields)
        matrices = np.zeros((n_fields, n_fields, max(sizes), max(sizes)), np.float32)
        for f, k in enumerate(sizes):
            for e, k_other in enumerate(sizes):
                matrices[f, e, :k, :k_other] = np.eye(k, k_other)
        return {"field_matrices": matrices}

    def between(self, params: Params, f: Any, e: Any) -> FloatArray:
        """M_fe for f ≤ e, and M_ef' otherwise."""
        return np.asarray(_mirrored(params["field_matrices"], f, e), np.float64)

    def between_all(self, params: Params, n_fields: int, dtype: npt.DTypeLike = np.float64) -> Array:
        """The matrices above the diagonal, mirrored."""
        f = np.arange(n_fields)
        return np.asarray(_mirrored(params["field_matrices"], f[:, None], f), dtype)

    def interaction(self, P: FloatArray, params: Params, unit_field: Int32Array) -> FloatArray:
        """Σ_{u<v} p_u' M_{f(u) f(v)} p_v."""
        matrices = above_diagonal(params["field_matrices"], unit_field)
        return np.asarray(np.einsum("nui,uvij,nvj->n", P, matrices, P, optimize=True))

    def slope(self, P: npt.NDArray[np.floating], params: Params, unit_field: Int32Array, f: int) -> FloatArray:
        """Σ M_{f f(u)} p_u over the units of the other fields."""
        matrices = self.between(params, f, unit_field)
        matrices[unit_field == f] = 0.0
        return np.asarray(np.tensordot(P, matrices, axes=((1, 2), (0, 2))))

    def towers(self, params: Params, items: Int32Array, context: Int32Array, n_fields: int) -> Towers:
        """Σ_I s_f' (Σ_C M_fe s_e), without the coordinates that pad shorter vectors."""
        rows, columns, sizes = np.unique(items), np.unique(context), self.vector_sizes(n_fields)
        blocks = [[self.between(params, f, e)[: sizes[f], : sizes[e]] for e in columns] for f in rows]
        item_sizes, context_sizes = [sizes[f] for f in rows], [sizes[e] for e in columns]
        return MatrixTowers(items, context, item_sizes, context_sizes, np.block(blocks))

    def mean(self, members: Sequence[Params], layout: SlotLayout) -> tuple[Self, Params]:
        """The vectors of all members side by side, and their matrices along the diagonal."""
        n, n_fields = len(members), len(layout.fields)
        sizes, width = self.vector_sizes(n_fields), self.width(n_fields)
        matrices = np.zeros((n_fields, n_fields, n * width, n * width), np.float32)
        factors = np.zeros((layout.n_features, n * width), np.float32)
        for i, params in enumerate(members):
            for f, k in enumerate(sizes):
                own = slice(layout.feature_ptr[f], layout.feature_ptr[f + 1])
                factors[own, i * k : (i + 1) * k] = params["factors"][own, :k]
                for e, other in enumerate(sizes):
                    block = params["field_matrices"][f, e, :k, :other] / n
                    matrices[f, e, i * k : (i + 1) * k, i * other : (i + 1) * other] = block
        model = replace(self, k=tuple(n * k for k in sizes) if isinstance(self.k, tuple) else n * self.k)
        return model, {"factors": factors, "field_matrices": matrices}


def _mirrored(matrices: Array, f: Any, e: Any) -> Array:
    M = matrices[np.minimum(f, e), np.maximum(f, e)]
    return np.asarray(np.where(np.greater(f, e)[..., None, None], np.swapaxes(M, -1, -2), M))
