"""The factorization machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from splinefm._arrays import FloatArray, Int32Array
from splinefm._checks import check_size
from splinefm.encode.slots import SlotLayout
from splinefm.model.family.contract import (
    Inseparable,
    NoWeights,
    OneVector,
    OnlyPairs,
    Params,
    side_by_side,
    weighted_slope,
)
from splinefm.model.towers import SumTowers, Towers


@dataclass(frozen=True)
class FM(Inseparable, OnlyPairs, NoWeights, OneVector):
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
    kind: ClassVar[str] = "fm"

    def __post_init__(self) -> None:
        check_size("k", self.k)

    def interaction(self, P: FloatArray, params: Params, unit_field: Int32Array) -> FloatArray:
        """½ (|Σ p_u|² - Σ |p_u|²)."""
        total = P.sum(axis=1)
        return np.asarray(0.5 * ((total**2).sum(axis=1) - (P**2).sum(axis=(1, 2))))

    def slope(self, P: npt.NDArray[np.floating], params: Params, unit_field: Int32Array, f: int) -> FloatArray:
        """Σ p_u over the units of the other fields."""
        return weighted_slope(P, self.between(params, f, unit_field), unit_field, f)

    def towers(self, params: Params, items: Int32Array, context: Int32Array, n_fields: int) -> Towers:
        """(Σ_I s_f)' (Σ_C s_e)."""
        return SumTowers(items, context, self.k)

    def mean(self, members: Sequence[Params], layout: SlotLayout) -> tuple[FM, Params]:
        """The vectors of all members side by side."""
        return FM(self.k * len(members)), {"factors": side_by_side(members, self.k)}
