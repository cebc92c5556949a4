"""The model with products of more than two vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from splinefm._arrays import Array, FloatArray, Int32Array
from splinefm._checks import check_size
from splinefm.encode.slots import SlotLayout
from splinefm.model.family.contract import Inseparable, NoWeights, OneVector, Params
from splinefm.model.family.fm import FM
from splinefm.model.towers import ProductTowers, Towers, symmetric_sums

# More is out of reach for 32-bit numbers long before.
MAX_ORDER = 64


@dataclass(frozen=True)
class HigherOrderFM(Inseparable, NoWeights, OneVector):
    """Products of up to `order` different unit vectors, coordinate by coordinate.

    Parameters
    ----------
    k : int
        Length of the vectors.
    order : int
        Largest number of units in one product; 2 is the FM.
    members : int
        Number of parts of equal length that vectors consist of, by which the products are divided. Such a model is
        the mean of several fits, see `Training`; it is not trained itself.

    Examples
    --------
    >>> P = np.array([[[1.0], [2.0], [3.0]]])
    >>> HigherOrderFM(k=1, order=3).interaction(P, {}, np.arange(3, dtype=np.int32))  # 1·2 + 1·3 + 2·3 + 1·2·3
    array([17.])
    >>> P = np.array([[[1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]])
    >>> HigherOrderFM(k=2, order=3, members=2).interaction(P, {}, np.arange(3, dtype=np.int32))  # 17 and 0
    array([8.5])
    """

    k: int = 16
    order: int = 3
    members: int = 1
    kind: ClassVar[str] = "higher"
    pairwise: ClassVar[bool] = False
    third: ClassVar[int] = 0
    parts: ClassVar[int] = 1

    def __post_init__(self) -> None:
        check_size("k", self.k)
        check_size("order", self.order, 2, MAX_ORDER)
        check_size("members", self.members)
        if self.k % self.members:
            raise ValueError(f"members must divide k = {self.k}, got {self.members}")

    def __repr__(self) -> str:
        members = f", members={self.members}" if self.members > 1 else ""
        return f"HigherOrderFM(k={self.k}, order={self.order}{members})"

    @property
    def product_columns(self) -> slice:
        return slice(0, self.k)

    @property
    def product_weight(self) -> float:
        return 1.0 / self.members

    @property
    def pair_model(self) -> FM | HigherOrderFM:
        """The FM, if products of two units have no weight."""
        return FM(self.k) if self.members == 1 else replace(self, order=2)

    def between(self, params: Params, f: Any, e: Any) -> FloatArray:
        return super().between(params, f, e) / self.members

    def between_all(self, params: Params, n_fields: int, dtype: npt.DTypeLike = np.float64) -> Array:
        return np.asarray(super().between_all(params, n_fields, dtype) / self.members, dtype)

    def interaction(self, P: FloatArray, params: Params, unit_field: Int32Array) -> FloatArray:
        """Σ_t Σ_{u1<..<ut} Σ_d Π p_ui[d] for t = 2 .. order, by the recursion over units, divided by the members."""
        return np.asarray(symmetric_sums(P, self.order)[2:].sum(axis=(0, 2)) / self.members)

    def slope(self, P: npt.NDArray[np.floating], params: Params, unit_field: Int32Array, f: int) -> FloatArray:
        """Σ_t Σ_{u1<..<ut} Π p_ui for t = 1 .. order - 1, over other fields' units, divided by the members."""
        return np.asarray(symmetric_sums(P[:, unit_field != f], self.order - 1)[1:].sum(axis=0) / self.members)

    def towers(self, params: Params, items: Int32Array, context: Int32Array, n_fields: int) -> Towers:
        """Σ_a e_a(I)' (Σ_{b ≤ order - a} e_b(C))."""
        return ProductTowers(self.order, items, context, self.k, weight=self.product_weight)

    def mean(self, members: Sequence[Params], layout: SlotLayout) -> tuple[HigherOrderFM, Params]:
        """The vectors of all members side by side.

        They are not scaled: a product of two would need another scale than one of three.
        """
        n = len(members)
        factors = np.concatenate([params["factors"] for params in members], axis=1)
        return HigherOrderFM(n * self.k, self.order, n), {"factors": factors}
