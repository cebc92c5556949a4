"""What the package asks of a field, and what the fields of one column share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, Self

import numpy as np
import pyarrow as pa

from splinefm._arrays import Array, FloatArray, Int32Array
from splinefm.encode.bases import Basis
from splinefm.encode.fields.shapes import Shape
from splinefm.encode.slots import FieldLayout, expand_windows


class TokenKind(StrEnum):
    """Why a feature stands for no category and no basis function; the text is what exported tables have."""

    SPECIAL = "special"
    MISSING = "missing"
    RARE = "rare"
    BUCKET = "bucket"


class Token(NamedTuple):
    """A feature before the categories or basis functions of a field.

    Examples
    --------
    >>> Token(TokenKind.BUCKET, bucket=3).name, Token(TokenKind.SPECIAL, rule=0.0).name, Token(TokenKind.MISSING).name
    ('bucket 3', '= 0', 'missing')
    """

    kind: TokenKind
    bucket: int | None = None
    rule: float | str | None = None
    """The special value."""

    @property
    def name(self) -> str:
        """In words."""
        if self.rule is not None:
            return self.rule if isinstance(self.rule, str) else f"= {self.rule:g}"
        return self.kind.value if self.bucket is None else f"{self.kind.value} {self.bucket}"


class PenaltyBlock(NamedTuple):
    """Neighboring features of a field that share penalties.

    Where `smoothness` is positive, they are basis functions that are smoothed: a spline, or products of splines, of
    which there is a grid of `shape` for each combination of categories.
    """

    size: int
    smoothness: float = 0.0
    """Factor of the penalty: see `smoothing`."""
    periodic: bool | tuple[bool, ...] = False
    shape: tuple[int, ...] = ()


class Field(Protocol):
    """The questions that every field answers: `Numerical`, `Categorical`, `MultiValued` and `Cross`.

    A field is the user's specification, the fitted object and what is saved: `fit` returns a copy with everything that
    was learned. Its features are [tokens.., categories or basis functions..]; a cross has `n_categories` blocks of
    `features_per_category` features.

    `Numerical` also has a transform and rules for special values, `Categorical` and `MultiValued` a vocabulary (see
    `CategoryField`), and `Cross` parts. Code that needs these takes a field of that class: `Schema.numerical`,
    `Schema.singles` and `Schema.crosses` list them.
    """

    is_numerical: ClassVar[bool]
    """Whether values lie on an axis of numbers, along which the field has curves."""
    holds_lists: ClassVar[bool]
    """Whether a value is a list of categories."""
    weights_are_counts: ClassVar[bool]
    """Whether all weights are 1, so that `feature_weights` are `feature_counts`."""

    @property
    def name(self) -> str:
        """Name of the field."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of the table that it reads: one, or one for each part of a cross."""

    @property
    def singles(self) -> tuple[Any, ...]:
        """The fields of one column that it consists of: itself, or the parts of a cross."""

    @property
    def reduction(self) -> Literal["sum", "mean", "identity"]:
        """How the vectors of the active features are joined to units."""

    @property
    def layout(self) -> FieldLayout:
        """Features, windows and units of the fitted field."""

    @property
    def basis(self) -> Basis | None:
        """The functions along the axis of a numerical field."""

    @property
    def n_tokens(self) -> int:
        """Features before the categories or basis functions: of special, missing and unseen values."""

    @property
    def n_categories(self) -> int:
        """Known categories, or combinations of categories that a cross keeps."""

    @property
    def features_per_category(self) -> int:
        """Features of each of them."""

    @property
    def has_binary_weights(self) -> bool:
        """Whether all weights are 0 or 1."""

    def feature_names(self) -> list[str]:
        """What each feature stands for."""

    def describe(self) -> dict[str, Any]:
        """The settings that `splinefm info` shows, as JSON has them."""

    def collect(self) -> Any:
        """Empty statistics, to be updated chunk by chunk."""

    def fit(self, statistics: Any) -> tuple[Self, str]:
        """The field with what the statistics determine, and how it was chosen, in words."""

    def extend(self, statistics: Any) -> Self:
        """The field with the frequent new categories added after its features."""

    def feature_counts(self, statistics: Any) -> FloatArray:
        """Number of training rows in which each feature is active."""

    def feature_weights(self, statistics: Any) -> FloatArray:
        """Sum of the weights of each feature over the training rows; NaN where it is not known."""

    def check_fitted(self, n_features: int) -> None:
        """Raise where the field is not fitted, or needs more features than these, before memory is allocated."""

    def weight_reach(self) -> FloatArray:
        """An upper bound of the sum of absolute weights of each unit, over all values."""

    def penalty_blocks(self, order: int) -> list[PenaltyBlock]:
        """The features in blocks that share penalties; `order` is the order of the differences that are penalized."""

    @property
    def required_shape(self) -> Shape | None:
        """What has to hold for the score along the field in every segment; None if nothing has to."""

    @property
    def part_names(self) -> tuple[str, ...]:
        """Names of other fields of the schema that it is made of: parts of a cross."""

    def resolve(self, known: Mapping[str, Any]) -> Self:
        """The field with these parts as fields, given the fields of the schema by name."""

    def as_input(self, columns: Sequence[pa.Array]) -> Any:
        """What `read`, `encode` and statistics take, given its columns: the only one, or the list of a cross."""

    def read(self, given: Any) -> Any:
        """The values of its column or columns, in the form that `encode_values` takes."""

    def encode(self, given: Any) -> tuple[Int32Array, FloatArray]:
        """Features inside the field, shape (n, windows), and weights, shape (n, weights)."""

    def encode_values(self, values: Any) -> tuple[Int32Array, FloatArray]:
        """Features inside the field and weights of values that were read."""

    def encode_into(self, values: Any, first: int, start: Int32Array, weight: Array) -> None:
        """Write features, counted from `first`, and weights into arrays, such as some columns of slots."""


def active_features(item: Field, given: Any) -> tuple[Int32Array, FloatArray]:
    """Active features inside a field, and their weights, of its column or columns; both of shape (n, weights)."""
    start, weight = item.encode(given)
    return expand_windows(start, item.layout.widths), weight


class OneColumn(ABC):
    """Fields of one column."""

    is_numerical: ClassVar[bool] = False
    holds_lists: ClassVar[bool] = False
    weights_are_counts: ClassVar[bool] = False
    features_per_category: ClassVar[int] = 1
    part_names: ClassVar[tuple[str, ...]] = ()

    @property
    def hashes_unseen(self) -> bool:
        """Whether unseen categories have features that a hash chooses."""
        return False

    @property
    def required_shape(self) -> Shape | None:
        """What has to hold for the score along the field: nothing, if the field does not say so."""
        return None

    name: str
    column: str
    layout: Any

    @property
    def columns(self) -> tuple[str]:
        """The column."""
        return (self.column,)

    @property
    def singles(self) -> tuple[Self]:
        """The field."""
        return (self,)

    @abstractmethod
    def read(self, column: pa.Array) -> Any:
        """The values of a column, in the form that `encode_values` takes."""

    @abstractmethod
    def encode_values(self, values: Any) -> tuple[Int32Array, FloatArray]:
        """Features inside the field and weights of values that were read."""

    def resolve(self, known: Mapping[str, Any]) -> Self:
        """The field, which has no parts."""
        return self

    @abstractmethod
    def check_fitted(self, n_features: int) -> None:
        """Raise where the field is not fitted, or needs more features than these, before memory is allocated."""

    def weight_reach(self) -> FloatArray:
        """An upper bound of the sum of absolute weights of each unit, over all values: one category is active."""
        return np.ones(max(self.layout.units) + 1)

    def penalty_blocks(self, order: int) -> list[PenaltyBlock]:
        """The features in blocks that share penalties: one, without an axis to be smooth along."""
        return [PenaltyBlock(self.layout.n_features)]

    @abstractmethod
    def feature_value(self, feature: int) -> Any:
        """A raw value for which the feature is active; None for missing values."""

    @property
    @abstractmethod
    def value_type(self) -> pa.DataType:
        """The Arrow type of the values of one field: of a date's part, such as its hour, the type of numbers."""

    @property
    @abstractmethod
    def example_rank(self) -> int:
        """The order in which fields of one column are asked for an example, the smallest first.

        A known category is also a date, but not any date is known; a field without categories has no value to offer.
        """

    @abstractmethod
    def example_value(self, low: float) -> Any:
        """A raw value that the field takes, to show; `low` is the smallest number of the training rows, if known."""

    def as_written(self, text: str) -> str:
        """Text of a value as the column has it, such as a date in the format of the column."""
        return text

    @abstractmethod
    def tokens(self) -> list[Token]:
        """What the features before the categories or basis functions stand for."""

    def token_names(self, kind: TokenKind) -> list[str]:
        """Names of the tokens of a kind."""
        return [token.name for token in self.tokens() if token.kind is kind]

    def as_input(self, columns: Sequence[pa.Array]) -> pa.Array:
        """The only column."""
        (column,) = columns
        return column

    def encode(self, column: pa.Array) -> tuple[Int32Array, FloatArray]:
        """Features inside the field, shape (n, windows), and weights, shape (n, weights)."""
        return self.encode_values(self.read(column))

    def encode_into(self, values: Any, first: int, start: Int32Array, weight: Array) -> None:
        """Write features, counted from `first`, and weights into arrays, such as some columns of slots."""
        starts, weight[...] = self.encode_values(values)
        np.add(starts, np.int32(first), out=start)

    def read_axis(self, column: pa.Array) -> Any:
        """The values of a column along the axis of the field, such as hours for the hour of a date."""
        return self.read(column)

    def read_numbers(self, column: pa.Array) -> FloatArray | None:
        """The values of a column as numbers along the axis of the field; None for categories."""
        return None

    def features_on_axis(self, column: pa.Array) -> tuple[Int32Array, FloatArray]:
        """Active features of such values, and their weights; both of shape (n, weights)."""
        start, weight = self.encode_values(self.read_axis(column))
        return expand_windows(start, self.layout.widths), weight

    def as_column(self, values: Any) -> tuple[pa.Array, tuple[int, ...]]:
        """Raw values, such as an array, as an Arrow column, and their shape."""
        if isinstance(values, pa.Array | pa.ChunkedArray):
            values = values.to_pylist()
        try:
            return self._to_arrow(values)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise ValueError(f"values of {self.name!r}: {error}; give an array of values of one type") from error

    def _to_arrow(self, values: Any) -> tuple[pa.Array, tuple[int, ...]]:
        array = np.asarray(values)
        return pa.array(array.ravel(), from_pandas=True), array.shape

    def unseen_names(self, column: pa.Array) -> list[str]:
        """The categories of a column that the field takes as rare ones; none where they are hashed or errors."""
        return []

    def holding(self, value: Any) -> Any:
        """The value of the column that holds one number or category: the list of it, where values are lists."""
        return value
