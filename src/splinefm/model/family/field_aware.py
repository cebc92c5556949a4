"""The model with a vector for every field that a feature meets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from splinefm._arrays import FloatArray, Int32Array
from splinefm._checks import check_size
from splinefm.encode.slots import SlotLayout
from splinefm.model.family.contract import NoWeights, OnlyPairs, Params, Separable, WithSettings, side_by_side
from splinefm.model.towers import PartTowers, Towers


@dataclass(frozen=True)
class FFM(Separable, OnlyPairs, NoWeights, WithSettings):
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
    kind: ClassVar[str] = "ffm"
    has_parts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_size("k", self.k)

    def width(self, n_fields: int) -> int:
        return self.k * n_fields

    def part_size(self, n_fields: int) -> int:
        return self.k

    def columns(self, e: int) -> slice:
        """The part of a vector that is meant for field e."""
        return slice(e * self.k, (e + 1) * self.k)

    def vector_sizes(self, n_fields: int) -> tuple[int, ...]:
        return (self.width(n_fields),) * n_fields

    def interaction(self, P: FloatArray, params: Params, unit_field: Int32Array) -> FloatArray:
        """Σ_{u<v} p_u[f(v)]' p_v[f(u)]."""
        parts = P.reshape(*P.shape[:2], P.shape[2] // self.k, self.k)[:, :, unit_field]  # [n, u, v] = p_u[f(v)]
        above = np.triu(np.ones(parts.shape[1:3]), 1)
        return np.asarray(np.einsum("nuvk,nvuk,uv->n", parts, parts, above, optimize=True))

    def slope(self, P: npt.NDArray[np.floating], params: Params, unit_field: Int32Array, f: int) -> FloatArray:
        """For each other field e, Σ p_u[f] over its units: they meet the part of field f that is meant for e."""
        slope = np.zeros((len(P), P.shape[2] // self.k, self.k))
        for u in np.flatnonzero(unit_field != f):
            slope[:, unit_field[u]] += P[:, u, self.columns(f)]
        return slope.reshape(len(P), -1)

    def towers(self, params: Params, items: Int32Array, context: Int32Array, n_fields: int) -> Towers:
        """Σ_I Σ_C s_f[e]' s_e[f]."""
        return PartTowers(items, context, self.k)

    def mean(self, members: Sequence[Params], layout: SlotLayout) -> tuple[FFM, Params]:
        """The vectors of all members side by side, for each field that they meet."""
        return FFM(self.k * len(members)), {"factors": side_by_side(members, self.k)}
