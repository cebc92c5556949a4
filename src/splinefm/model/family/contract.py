"""What the package asks of a model, and the helpers that the models share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from splinefm._arrays import Array, Float32Array, FloatArray, IndexArray, Int32Array
from splinefm.encode.slots import SlotLayout
from splinefm.model.towers import Towers

Params: TypeAlias = dict[str, Float32Array]
"""bias (1,), linear (features,), factors (features, width), and the parameters between fields."""


class Model(Protocol):
    """The questions that every model answers; nothing outside this folder asks for its type.

    The vector of a feature has `width` coordinates. Those in `columns(e)`, `part_size` many, meet field e. Units u and
    v of the fields f and e add

        p_u[columns(e)]' M_fe p_v[columns(f)]

    to the score, where M_fe is a multiple of the identity or a matrix: see `between`. Products of three to `order`
    different units are added coordinate by coordinate, for the coordinates in `product_columns`, times
    `product_weight`.
    """

    @property
    def kind(self) -> str:
        """Name of the model in the compiled core."""

    @property
    def order(self) -> int:
        """Largest number of unit vectors in one product."""

    @property
    def pairwise(self) -> bool:
        """Whether the interactions are a sum over pairs of units; then `order` is 2 and `product_columns` is empty."""

    @property
    def third(self) -> int:
        """Coordinates at the end of a feature's vector that meet in products of three units, but not in pairs."""

    @property
    def product_columns(self) -> slice:
        """Coordinates of a feature's vector that meet in products of more than two units."""

    @property
    def product_weight(self) -> float:
        """What products of more than two units are multiplied by."""

    @property
    def pair_model(self) -> Model:
        """The model of the products of two units alone; its vectors are the first coordinates of this one's.

        It has the same parameters. It is `pairwise`, unless a weight that is not a parameter multiplies all its pairs.
        """

    @property
    def members(self) -> int:
        """Number of models that this model averages, whose vectors are side by side, each with its share or weights.

        Only a mean of models has more than one: see `mean_model`. It is trained further as one model.
        """

    @property
    def parts(self) -> int:
        """Parts of equal length of the first `width` - `third` coordinates that have weights of their own."""

    @property
    def can_separate(self) -> bool:
        """Whether two fields can be kept apart, which then add nothing together."""

    @property
    def has_parts(self) -> bool:
        """Whether a vector has a part for every field that it meets."""

    def pair_index(self, f: IndexArray, e: IndexArray) -> dict[str, tuple[Any, ...]]:
        """Where the parameters between fields have what belongs to pairs of fields, whatever axes come first."""

    def separable(self) -> tuple[Any, ...]:
        """Models like this one that can keep fields apart, the closest first; none if it can itself."""

    def width(self, n_fields: int) -> int:
        """Coordinates of a feature's vector."""

    def part_size(self, n_fields: int) -> int:
        """Coordinates of a feature's vector that meet one other field."""

    def columns(self, e: int) -> slice:
        """Coordinates of a feature's vector that meet field e."""

    def vector_sizes(self, n_fields: int) -> tuple[int, ...]:
        """For each field, the coordinates of its vectors that may differ from zero."""

    def field_shapes(self, n_fields: int) -> dict[str, tuple[int, ...]]:
        """Names and shapes of the parameters between fields."""

    def init_fields(self, n_fields: int, rng: np.random.Generator) -> Params:
        """Initial values of the parameters between fields."""

    def between(self, params: Params, f: Any, e: Any) -> FloatArray:
        """M_fe: a weight r, which stands for r I, the diagonal of a matrix, or a matrix. Always M_ef = M_fe'.

        The arguments broadcast: for integer arrays of shape s the result has shape s, (*s, part_size) or
        (*s, part_size, part_size). M_ff is for two units of one field.
        """

    def between_all(self, params: Params, n_fields: int, dtype: npt.DTypeLike = np.float64) -> Array:
        """M_fe of all pairs: shape (fields, fields), and one or two axes of part_size."""

    def interaction(self, P: FloatArray, params: Params, unit_field: Int32Array) -> FloatArray:
        """Interactions of unit vectors P of shape (n, units, width), in float64."""

    def slope(self, P: npt.NDArray[np.floating], params: Params, unit_field: Int32Array, f: int) -> FloatArray:
        """Gradient of the score by the vector of field f, shape (n, width), given the units of the other fields.

        Units of field f in P are ignored.
        """

    def towers(self, params: Params, items: Int32Array, context: Int32Array, n_fields: int) -> Towers:
        """How units of items meet units of contexts, given the field of every unit on each side."""

    def mean(self, members: Sequence[Params], layout: SlotLayout) -> tuple[Any, Params]:
        """The model whose interactions are the mean of those with these parameters, and its parameters.

        Without bias and linear weights.
        """


class WithSettings:
    """Read the settings of a model by name, and change them in a copy.

    Models are immutable values: two of the same class with the same settings are equal. So `set_params` returns a new
    model, and an estimator replaces its model by that: `estimator.set_params(model__k=8)`.

    Examples
    --------
    >>> from splinefm.model.family import LowRankFwFM
    >>> model = LowRankFwFM(k=8)
    >>> model.get_params()
    {'k': 8, 'rank': 3}
    >>> model.set_params(rank=2), model
    (LowRankFwFM(k=8, rank=2), LowRankFwFM(k=8, rank=3))
    """

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The settings by name; `deep` is for scikit-learn and has no effect."""
        return {item.name: getattr(self, item.name) for item in _fields(self)}

    def set_params(self, **params: Any) -> Self:
        """A copy with other settings; this model does not change."""
        known = [item.name for item in _fields(self)]
        for name in params:
            if name not in known:
                raise ValueError(f"{type(self).__name__} has no setting {name!r}; it has {', '.join(known)}")
        return replace(self, **params)  # type: ignore[type-var]  # all models are dataclasses

    def __sklearn_clone__(self) -> Self:
        # An immutable object needs no copy.
        return self


def _fields(model: object) -> tuple[Any, ...]:
    return fields(model)  # type: ignore[arg-type]  # all models are dataclasses


class Separable:
    """Models in which two fields can be kept apart."""

    can_separate: ClassVar[bool] = True
    has_parts: ClassVar[bool] = False

    def pair_index(self, f: IndexArray, e: IndexArray) -> dict[str, tuple[Any, ...]]:
        return {}

    def separable(self) -> tuple[Any, ...]:
        return ()


class Inseparable:
    """Models whose vectors meet all others: nothing belongs to a pair of fields alone."""

    k: int
    can_separate: ClassVar[bool] = False
    has_parts: ClassVar[bool] = False

    def pair_index(self, f: IndexArray, e: IndexArray) -> dict[str, tuple[Any, ...]]:
        return {}

    def separable(self) -> tuple[Any, ...]:
        from splinefm.model.family.field_weighted import FwFM

        return (FwFM(self.k),)


class OnlyPairs:
    """Models without products of more than two units."""

    order: ClassVar[int] = 2
    pairwise: ClassVar[bool] = True
    third: ClassVar[int] = 0
    members: ClassVar[int] = 1
    parts: ClassVar[int] = 1
    product_columns: ClassVar[slice] = slice(0, 0)
    product_weight: ClassVar[float] = 1.0

    @property
    def pair_model(self) -> Any:
        return self


class OneVector(WithSettings):
    """Models whose features have one vector of length k, whichever field it meets."""

    k: int

    def width(self, n_fields: int) -> int:
        return self.k

    def part_size(self, n_fields: int) -> int:
        return self.k

    def columns(self, e: int) -> slice:
        return slice(0, self.k)

    def vector_sizes(self, n_fields: int) -> tuple[int, ...]:
        return (self.k,) * n_fields


class NoWeights:
    """Models with nothing to learn between two fields: M_fe = I."""

    def field_shapes(self, n_fields: int) -> dict[str, tuple[int, ...]]:
        return {}

    def init_fields(self, n_fields: int, rng: np.random.Generator) -> Params:
        return {}

    def between(self, params: Params, f: Any, e: Any) -> FloatArray:
        return np.ones(np.broadcast_shapes(np.shape(f), np.shape(e)))

    def between_all(self, params: Params, n_fields: int, dtype: npt.DTypeLike = np.float64) -> Array:
        return np.ones((n_fields, n_fields), dtype)


def through(vectors: Array, between: FloatArray) -> Array:
    """x' M for every vector x, shape (n, part_size), where M is from `Model.between`, of any kind."""
    return np.asarray(vectors @ between if between.ndim == 2 else vectors * between)


def weighted_slope(P: npt.NDArray[np.floating], weights: FloatArray, unit_field: Int32Array, f: int) -> FloatArray:
    """Σ_u r_u p_u over the units of all fields but f; a unit has one weight, or one for each coordinate."""
    if weights.ndim == 2:
        return np.asarray(np.einsum("nud,ud->nd", P, np.where((unit_field == f)[:, None], 0.0, weights)))
    return np.asarray(np.tensordot(P, np.where(unit_field == f, 0.0, weights), axes=(1, 0)))


def side_by_side(members: Sequence[Params], part_size: int) -> Float32Array:
    """The vectors of all members, part by part of `part_size`, scaled so that products of two give the mean."""
    parts = [params["factors"].reshape(len(params["factors"]), -1, part_size) for params in members]
    joined = np.concatenate(parts, axis=2, dtype=np.float64) * len(members) ** -0.5
    return np.asarray(joined.reshape(len(joined), -1), np.float32)


def above_diagonal(between: Array, unit_field: Int32Array) -> FloatArray:
    """M between the fields of units u < v, and zero for the other pairs of units.

    `between` has M_fe for all fields f ≤ e. The fields of units ascend.
    """
    units = between[unit_field[:, None], unit_field].astype(np.float64)
    above = np.triu(np.ones(units.shape[:2]), 1)
    return np.asarray(units * above.reshape(*above.shape, *[1] * (units.ndim - 2)))
