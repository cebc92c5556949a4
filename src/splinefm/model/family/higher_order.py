"""The model with products of more than two vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from splinefm._checks import check_size
from splinefm.model.family.contract import FloatArray, IntArray, NoWeights, OneVector, Params
from splinefm.model.family.fm import FM
from splinefm.model.towers import ProductTowers, Towers, symmetric_sums

# More is out of reach for 32-bit numbers long before.
MOST_ORDER = 64


@dataclass(frozen=True)
class HigherOrderFM(NoWeights, OneVector):
    """Products of up to `order` different unit vectors, coordinate by coordinate.

    Parameters
    ----------
    k : int
        Length of the vectors.
    order : int
        Largest number of units in one product; 2 is the FM.

    Examples
    --------
    >>> P = np.array([[[1.0], [2.0], [3.0]]])
    >>> HigherOrderFM(k=1, order=3).interaction(P, {}, np.arange(3, dtype=np.int32))  # 1·2 + 1·3 + 2·3 + 1·2·3
    array([17.])
    """

    k: int = 16
    order: int = 3
    kind: ClassVar[str] = "higher"
    pairwise: ClassVar[bool] = False
    third: ClassVar[int] = 0

    def __post_init__(self) -> None:
        check_size("k", self.k)
        check_size("order", self.order, 2, MOST_ORDER)

    @property
    def product_columns(self) -> slice:
        """All of them, which meet in pairs as well."""
        return slice(0, self.k)

    @property
    def pair_model(self) -> FM:
        """The FM: products of two units have no weights."""
        return FM(self.k)

    def interaction(self, P: FloatArray, params: Params, unit_field: IntArray) -> FloatArray:
        """Σ_t Σ_{u1<..<ut} Σ_d Π p_ui[d] for t = 2 .. order, by the recursion over units."""
        return np.asarray(symmetric_sums(P, self.order)[2:].sum(axis=(0, 2)))

    def slope(self, P: npt.NDArray[np.floating], params: Params, unit_field: IntArray, f: int) -> FloatArray:
        """Σ_t Σ_{u1<..<ut} Π p_ui for t = 1 .. order - 1, over the units of the other fields."""
        return np.asarray(symmetric_sums(P[:, unit_field != f], self.order - 1)[1:].sum(axis=0))

    def towers(self, params: Params, items: IntArray, context: IntArray, n_fields: int) -> Towers:
        """Σ_a e_a(I)' (Σ_{b ≤ order - a} e_b(C))."""
        return ProductTowers(self.order, items, context, self.k)
