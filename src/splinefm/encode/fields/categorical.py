"""Fields of categories: one per row, or a list of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._arrays import Array, FloatArray, IndexArray, Int32Array
from splinefm._checks import check_choice, check_count
from splinefm._wording import as_field, for_reader, number_of
from splinefm.encode.fields.contract import OneColumn, Token, TokenKind
from splinefm.encode.fields.shapes import DIRECTIONS, Shape, describe_shape, make_shape
from splinefm.encode.fields.vocabulary import CategoryCounts, Vocabulary, hash_bucket
from splinefm.encode.slots import FieldLayout
from splinefm.encode.tables.arrow import from_strings, scalar, to_arrow, to_numpy
from splinefm.encode.tables.columns import Categories, Lists, as_categories, as_lists
from splinefm.encode.tables.spelling import VALUES, Values, canonical, find_values

_WORDS = ("category", "categories")

Unseen = Literal["rare", "neutral", "error", "hash"]


class CategoryStatistics(Protocol):
    """What fields of categories and of lists need to know of their column."""

    @property
    def n_rows(self) -> int:
        """Training rows."""

    @property
    def n_missing(self) -> int:
        """Those without a value."""

    @property
    def counts(self) -> CategoryCounts:
        """How often each category occurs."""


class CategoryField(OneColumn):
    """What `Categorical` and `MultiValued` share: a vocabulary, and features for what is not in it."""

    part: ClassVar[None] = None
    basis: ClassVar[None] = None

    min_count: int
    unseen: Unseen
    missing: Literal["token", "error"]
    buckets: int
    vocabulary: Vocabulary | None
    values: Values | None

    @property
    def missing_token(self) -> int | None:
        """The feature of missing values; None where they are errors."""
        return 0 if self.missing == "token" else None

    @property
    def first_unseen(self) -> int:
        """The feature of unseen categories, or the first of their hash buckets, where `unseen` has one."""
        return int(self.missing == "token")

    @property
    def n_tokens(self) -> int:
        """Features before the categories."""
        return self.first_unseen + self._n_unseen

    @property
    def n_categories(self) -> int:
        """Known categories."""
        return len(self.vocabulary or ())

    def describe(self) -> dict[str, Any]:
        """The settings that `splinefm info` shows."""
        return {"vocabulary": self.n_categories, "unseen": self.unseen}

    def is_unseen(self, feature: Any) -> Any:
        """Whether features, inside the field, stand for unseen categories."""
        return (feature >= self.first_unseen) & (feature < self.n_tokens)

    def tokens(self) -> list[Token]:
        """What the features before the categories stand for."""
        tokens = [Token(TokenKind.MISSING)] * self.first_unseen
        if self.unseen == "hash":
            return tokens + [Token(TokenKind.BUCKET, number) for number in range(self.buckets)]
        return tokens + [Token(TokenKind.RARE)] * self._n_unseen

    def check_fitted(self, n_features: int) -> None:
        """Nothing is as large as what is saved."""

    def feature_value(self, feature: int) -> Any:
        """A raw value for which the feature is active; None for missing values."""
        position = feature - (self.layout.n_features - self.n_categories)
        if position >= 0:
            return self._fitted().names[position].as_py()
        return None if feature == self.missing_token else "<unseen>"

    @property
    def value_type(self) -> pa.DataType:
        """The Arrow type of categories, or of lists of them."""
        return pa.list_(pa.large_string()) if self.holds_lists else pa.large_string()

    @property
    def example_rank(self) -> int:
        """The order in which fields of one column are asked for an example, the smallest first."""
        return 0 if self.n_categories else 2

    def example_value(self, low: float) -> Any:
        """The first category."""
        return self._fitted().names[0].as_py() if self.n_categories else "a"

    def unseen_names(self, column: pa.Array) -> list[str]:
        """The categories of a column that the field takes as rare ones; none where they are hashed or errors."""
        if self.unseen in ("hash", "error"):
            return []
        unseen: list[str] = self.unknown(self.read(column).names.drop_null()).to_pylist()
        return unseen

    @property
    def hashes_unseen(self) -> bool:
        """Whether unseen categories have features that a hash chooses."""
        return self.unseen == "hash"

    @property
    def _n_unseen(self) -> int:
        return {"rare": 1, "hash": self.buckets}.get(self.unseen, 0)

    @property
    def spelling(self) -> Values:
        """What the names of the fitted field spell."""
        return self.values or "text"

    def find(self, names: pa.LargeStringArray) -> Int32Array:
        """Position of each name in the vocabulary, in any spelling; -1 where it is not there."""
        return self._fitted().find(names, self.spelling)

    def unknown(self, names: pa.LargeStringArray) -> pa.LargeStringArray:
        """The names that are not in the vocabulary, in any spelling."""
        return names.filter(to_arrow(self.find(names) < 0))

    def look_up(self, names: pa.LargeStringArray) -> tuple[Int32Array, FloatArray]:
        """Feature and weight of each name; nulls get some feature, to be overwritten."""
        found = self.find(names)
        feature = found + np.int32(self.n_tokens)
        weight = np.ones(len(names))
        unknown = np.flatnonzero(found < 0)
        if len(unknown):
            self._assign_unseen(names, unknown, feature, weight)
        return feature, weight

    def _assign_unseen(self, names: pa.LargeStringArray, at: Any, feature: Int32Array, weight: FloatArray) -> None:
        first = self.first_unseen
        feature[at] = first
        if self.unseen == "neutral":
            feature[at] = 0
            weight[at] = 0.0
            return
        if self.unseen == "rare":
            return
        unseen = names.take(to_arrow(at)).dictionary_encode()
        if self.unseen == "error" and len(unseen.dictionary):
            raise ValueError(
                f"column {self.column!r} holds the unseen category {unseen.dictionary[0].as_py()!r}; "
                + as_field(type(self).__name__, self.name, 'unseen="rare"')
                + " to accept new categories"
            )
        if self.unseen == "hash":
            known_as = canonical(unseen.dictionary, self.spelling)
            bucket = [first + hash_bucket(name.as_py(), self.buckets) for name in known_as]
            codes = to_numpy(unseen.indices.fill_null(scalar(-1, np.int32)))
            feature[at] = np.array([*bucket, 0], np.int32)[codes]

    def refuse_missing(self) -> None:
        """Raise if missing values are not allowed."""
        if self.missing == "error":
            raise ValueError(
                f'column {self.column!r} has missing values; fill them, or use missing="token" in its field'
            )

    def feature_names(self) -> list[str]:
        """What each feature stands for."""
        names = [token.name for token in self.tokens()] + [f"= {name}" for name in self._fitted().names.to_pylist()]
        return names or ["no category"]

    def display_order(self, positions: npt.ArrayLike) -> IndexArray:
        """Positions in the vocabulary in the order to show them: numbers by size, days, months, dates; else as given.

        Examples
        --------
        >>> Categorical("code", vocabulary=["10", "9", "-1"]).display_order([0, 1])
        array([1, 0])
        """
        return self._fitted().display_order(positions)

    def most_frequent(self, counts: FloatArray | None, n: int) -> IndexArray:
        """Positions in the vocabulary of the n most frequent categories, in the order to show them.

        `counts` are the training rows of all features. Without them the order of the vocabulary counts: the most
        frequent first, unless it was extended.

        Examples
        --------
        >>> code = Categorical("code", vocabulary=["10", "9", "1", "5"])
        >>> code.most_frequent(None, 3), code.most_frequent(np.array([0.0, 0, 4, 3, 2, 9]), 2)
        (array([2, 1, 0]), array([3, 0]))
        """
        known = self.n_categories
        order = np.arange(known) if counts is None else np.argsort(-counts[len(counts) - known :], kind="stable")
        return self.display_order(order[:n])

    def feature_counts(self, statistics: CategoryStatistics) -> FloatArray:
        """Number of training rows, or of elements of their lists, with each feature."""
        counts = np.zeros(self.layout.n_features)
        if self.missing == "token":
            counts[0] = statistics.n_missing
        return counts + self.count_features(statistics.counts, len(counts))

    def count_features(self, counts: CategoryCounts, n_features: int) -> FloatArray:
        """Counts of categories as counts of features."""
        names, rows = counts.every()
        feature, weight = self.look_up(names)
        return np.asarray(np.bincount(feature, rows * weight, minlength=n_features), np.float64)

    def _fitted(self) -> Vocabulary:
        if self.vocabulary is None:
            raise ValueError(f"field {self.name!r} is not fitted; use sf.fit_encoder")
        return self.vocabulary

    def extend(self, statistics: CategoryStatistics) -> Self:
        """The field with the frequent new categories added at the end of its vocabulary."""
        names, _ = statistics.counts.renamed(self.spelling).frequent(self.min_count)
        new = names.filter(to_arrow(self._fitted().find(names) < 0))
        if self.unseen == "hash" or not len(new):
            return self  # hashed categories have a feature already
        own: Any = self
        extended: Self = replace(own, vocabulary=Vocabulary(pa.concat_arrays([self._fitted().names, new])))
        return extended

    @property
    def _n_features(self) -> int:
        # A field without a single known category still has a feature to point at.
        return max(1, self.n_tokens + len(self._fitted()))

    def _fit_vocabulary(self, statistics: CategoryStatistics) -> tuple[Self, str]:
        own: Any = self
        if statistics.n_missing == statistics.n_rows:
            raise ValueError(
                f"column {self.column!r} has no values: all {statistics.n_rows:,} rows are missing; "
                "leave it out of the schema"
            )
        if self.vocabulary is not None:
            values = self.values or _values_of(self.vocabulary)
            return replace(own, values=values), f"{number_of(len(self.vocabulary), *_WORDS)}, as given"
        values = self.values or find_values(statistics.counts.every()[0])
        every = statistics.counts.renamed(values)
        names, counts = every.frequent(self.min_count)
        rare = every.total() - int(counts.sum())
        why = number_of(len(names), *_WORDS)
        if self.min_count > 1:
            why += f" with at least {self.min_count} rows; {rare:,} rows have a rarer one"
        return replace(own, vocabulary=Vocabulary(names), values=values), why

    def _check_categories(self) -> None:
        check_choice("name of a field", self.name, None)
        object.__setattr__(self, "column", self.column or self.name)
        check_choice("column of a field", self.column, None)
        if self.values is not None:
            check_choice("values", self.values, VALUES)
        check_choice("unseen", self.unseen, ("rare", "neutral", "error", "hash"))
        check_choice("missing", self.missing, ("token", "error"))
        check_count("min_count", self.min_count, 1, None)
        check_count("buckets", self.buckets, 1, None)
        if self.unseen == "error" and self.min_count > 1:
            raise ValueError(
                f'field {self.name!r}: unseen="error" needs min_count=1, got min_count={self.min_count}: '
                "rare training values would be errors too"
            )
        object.__setattr__(self, "vocabulary", _as_vocabulary(self.vocabulary, self.name))


@dataclass(frozen=True)
class Categorical(CategoryField):
    """A column of categories: one feature each.

    The field's features are [missing, rare or hash buckets.., categories..], the most frequent first.

    Parameters
    ----------
    name : str
        Name of the column.
    min_count : int
        Categories with fewer training rows are treated as unseen.
    unseen : {"rare", "neutral", "error", "hash"}
        What a category that is not in the vocabulary becomes: one shared feature, the zero vector, an error, or
        one of `buckets` features chosen by a hash of its name.
    missing : {"token", "error"}
        Whether missing values have a feature or are errors.
    buckets : int
        Number of features for `unseen="hash"`.
    reduction : {"sum", "identity"}
        The same for a single category; here so that all fields have it.
    vocabulary : Vocabulary or sequence of str, optional
        The categories, in the order of their features; learned from the data if not given.
    values : {"text", "numbers", "booleans", "dates"}, optional
        What the names spell; learned from the data if not given. Numbers, booleans and dates have one name each
        however they are spelled, such as `2` and `2.0`, or `True`, `true` and `1`; with "text" every spelling is a
        different category.
    column : str, optional
        The column of the table; the name by default. Several fields may read one column.
    order : sequence of str, optional
        All categories from the lowest to the highest, instead of a vocabulary. Other categories are unseen, also after
        updates.
    shape : {"increasing", "decreasing"}, optional
        The score never falls (or never rises) from a category to the next of the order, whatever the values of the
        other columns are. Missing and unseen values are not part of the order.

    Examples
    --------
    >>> Categorical("country", min_count=10, unseen="rare")
    Categorical(name='country', min_count=10, ...)
    """

    weights_are_counts: ClassVar[bool] = True
    has_binary_weights: ClassVar[bool] = True

    name: str
    min_count: int = 1
    unseen: Unseen = "rare"
    missing: Literal["token", "error"] = "token"
    buckets: int = 64
    reduction: Literal["sum", "identity"] = "sum"
    vocabulary: Vocabulary | None = None
    values: Values | None = None
    column: str = ""
    order: tuple[str, ...] | None = None
    shape: Literal["increasing", "decreasing"] | None = None

    def __post_init__(self) -> None:
        check_choice("reduction", self.reduction, ("sum", "identity"))
        if self.order is not None:
            object.__setattr__(self, "order", check_order(self.order, self.name))
        self._check_categories()
        if self.order is not None:
            self._follow_order(self.order)
        if self.shape is not None:
            check_choice("shape", self.shape, tuple(DIRECTIONS))
            if self.order is None:
                raise ValueError(
                    f"field {self.name!r}: shape={self.shape!r} needs the order of the categories; give "
                    + for_reader('order=["low", "middle", "high"]', 'order = ["low", "middle", "high"]')
                )

    def _follow_order(self, order: tuple[str, ...]) -> None:
        """Make the order the vocabulary."""
        if self.vocabulary is None:
            object.__setattr__(self, "vocabulary", _as_vocabulary(order, self.name))
        elif tuple(self.vocabulary.names.to_pylist()) != order:
            raise ValueError(f"field {self.name!r}: order is the vocabulary; leave out one of the two")

    @property
    def required_shape(self) -> Shape | None:
        """What has to hold from each category to the next; None if nothing has to."""
        return make_shape(self.shape)

    def describe(self) -> dict[str, Any]:
        """The settings that `splinefm info` shows."""
        return {**super().describe(), **describe_shape(self.shape)}

    def extend(self, statistics: CategoryStatistics) -> Self:
        """The field with the frequent new categories added; as it is if it has an order, where they have no place."""
        return self if self.order is not None else super().extend(statistics)

    @property
    def layout(self) -> FieldLayout:
        """Features, windows and units of the fitted field."""
        return FieldLayout(self.name, self._n_features, (1,), (0,))

    def collect(self) -> CategoricalStatistics:
        """Empty statistics, to be updated chunk by chunk."""
        return CategoricalStatistics(self)

    def fit(self, statistics: CategoryStatistics) -> tuple[Categorical, str]:
        """The field with its vocabulary filled in, and what was kept."""
        return self._fit_vocabulary(statistics)

    def read(self, column: pa.Array) -> Categories:
        """The names of a column, as they are spelled there."""
        return as_categories(column, self.column, widened=self.values == "text")

    def encode_values(self, values: Categories) -> tuple[Int32Array, FloatArray]:
        """Features inside the field and weights of names."""
        names, codes = values
        feature, weight = self.look_up(names)
        if codes is not None:
            if not len(names):
                feature, weight = np.zeros(1, np.int32), np.ones(1)
            feature, weight = feature[codes], weight[codes]
            absent = codes < 0
        else:
            absent = to_numpy(names.is_null())
        if absent.any():
            self.refuse_missing()
            feature, weight = np.where(absent, np.int32(0), feature), np.where(absent, 1.0, weight)
        return feature[:, None], weight[:, None]

    def encode_into(self, values: Categories, first: int, start: Int32Array, weight: Array) -> None:
        """Write features, counted from `first`, and weights of names into arrays, such as some columns of slots.

        The weights are 1 before, and written only where names may have others.
        """
        names, codes = values
        if codes is not None and (self.missing_token is not None or not (codes < 0).any()):
            # One more for missing values, whose code is negative.
            features = np.full(len(names) + 1, first, np.int32)
            if self._write_known(names, first, features[:-1]):
                start[:, 0] = features[codes]
                return
        elif codes is None and not names.null_count and self._write_known(names, first, start[:, 0]):
            return
        starts, weight[...] = self.encode_values(values)
        np.add(starts, np.int32(first), out=start)

    def _write_known(self, names: pa.LargeStringArray, first: int, out: Int32Array) -> bool:
        """Write the features of names as they are spelled; False where that is not all that they mean."""
        n_unseen = self._fitted().write(names, first + self.n_tokens, first + self.first_unseen, out)
        return not n_unseen or (self.unseen == "rare" and self.spelling == "text")

    def feature_weights(self, statistics: CategoryStatistics) -> FloatArray:
        """The same: all weights are 1."""
        return self.feature_counts(statistics)


@dataclass
class CategoricalStatistics:
    """What one pass over a categorical column keeps; statistics of parts can be merged."""

    spec: Categorical
    n_rows: int = 0
    n_missing: int = 0
    counts: CategoryCounts = field(default_factory=CategoryCounts)

    def update(self, column: pa.Array) -> None:
        """Add the rows of a chunk."""
        categories = self.spec.read(column)
        n_missing = categories.names.null_count if categories.codes is None else int((categories.codes < 0).sum())
        if n_missing:
            self.spec.refuse_missing()
        self.n_rows += len(column)
        self.n_missing += n_missing
        self.counts.update(categories)

    def merge(self, other: CategoricalStatistics) -> None:
        """Add the rows of other statistics of the same field."""
        self.n_rows += other.n_rows
        self.n_missing += other.n_missing
        self.counts.merge(other.counts)


def _values_of(vocabulary: Vocabulary) -> Values:
    """What given names spell: text, unless they are all as this package spells them."""
    values = find_values(vocabulary.names)
    return values if canonical(vocabulary.names, values).equals(vocabulary.names) else "text"


def check_order(order: Any, field_name: str) -> tuple[str, ...]:
    """Two and more categories from the lowest to the highest, as text."""
    names = () if isinstance(order, str) or not isinstance(order, Iterable) else tuple(str(name) for name in order)
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(
            f"order of field {field_name!r} takes two or more different categories, from the lowest to the highest, "
            f"got {order!r}"
        )
    return names


def _as_vocabulary(names: Vocabulary | Iterable[str] | None, field_name: str) -> Vocabulary | None:
    if names is None or isinstance(names, Vocabulary):
        return names
    listed = from_strings([str(name) for name in names])
    if len(listed.unique()) < len(listed):
        raise ValueError(f"the vocabulary of field {field_name!r} names a category twice")
    return Vocabulary(listed)


# Multi-valued fields: lists of categories.


LONGEST_LIST = 64
MAX_LENGTH = 1 << 20
"""Largest `max_length` of a model file."""


@dataclass(frozen=True)
class MultiValued(CategoryField):
    """A column of lists of categories, or of text that a separator splits into them.

    Parameters
    ----------
    name : str
        Name of the column.
    separator : str, optional
        What splits a column of text; white space around the parts is removed.
    reduction : {"sum", "mean", "identity"}
        Sum or average the vectors of the elements into one, or keep one unit per element.
    max_length : int, optional
        Elements beyond it are left out. By default the longest list of the training data, at most 64.
    min_count, unseen, missing, buckets, vocabulary, values, column
        For the elements, as in `Categorical`. An empty list is the zero vector; a missing list has a feature.

    Examples
    --------
    >>> MultiValued("interests", separator="|", reduction="mean").reduction
    'mean'
    """

    holds_lists: ClassVar[bool] = True

    name: str
    separator: str | None = None
    reduction: Literal["sum", "mean", "identity"] = "sum"
    max_length: int | None = None
    min_count: int = 1
    unseen: Unseen = "rare"
    missing: Literal["token", "error"] = "token"
    buckets: int = 64
    vocabulary: Vocabulary | None = None
    values: Values | None = None
    column: str = ""

    def __post_init__(self) -> None:
        check_choice("reduction", self.reduction, ("sum", "mean", "identity"))
        if self.separator is not None:
            check_choice("separator", self.separator, None)
        if self.max_length is not None:
            check_count("max_length", self.max_length, 1, None)
        self._check_categories()

    @property
    def has_binary_weights(self) -> bool:
        """Whether all weights are 0 or 1: not in a mean."""
        return self.reduction != "mean"

    def check_fitted(self, n_features: int) -> None:
        """Raise where the length of lists is not known, or implausibly large."""
        if not 0 < (self.max_length or 0) <= MAX_LENGTH:
            raise ValueError(f"max_length of {self.name!r} is {self.max_length}")

    def weight_reach(self) -> FloatArray:
        """An upper bound of the sum of absolute weights of each unit: the length of a list that is summed."""
        return np.array([float(len(self.layout.widths))]) if self.reduction == "sum" else super().weight_reach()

    def example_value(self, low: float) -> Any:
        """The first category, in a list unless lists are text."""
        name = super().example_value(low)
        return [name] if self.separator is None else name

    def holding(self, value: Any) -> list[Any]:
        """A list of one category."""
        return [value]

    def _to_arrow(self, values: Any) -> tuple[pa.Array, tuple[int, ...]]:
        lists = list(values)  # what is not a collection raises
        return pa.array(lists), (len(lists),)

    @property
    def layout(self) -> FieldLayout:
        """Features, windows and units of the fitted field."""
        length = self._fitted_length()
        units = tuple(range(length)) if self.reduction == "identity" else (0,) * length
        return FieldLayout(self.name, self._n_features, (1,) * length, units)

    def collect(self) -> MultiValuedStatistics:
        """Empty statistics, to be updated chunk by chunk."""
        return MultiValuedStatistics(self)

    def fit(self, statistics: MultiValuedStatistics) -> tuple[MultiValued, str]:
        """The field with vocabulary and length filled in, and what was kept."""
        fitted, why = self._fit_vocabulary(statistics)
        length = self.max_length or min(max(statistics.longest, 1), LONGEST_LIST)
        why += f"; lists of up to {length}"
        if statistics.longest > length:
            why += f" (the longest has {statistics.longest}; the rest is left out)"
        return replace(fitted, max_length=length), why

    def read(self, column: pa.Array) -> Lists:
        """The elements of a column, as they are spelled there."""
        return as_lists(column, self.column, self.separator)

    def encode_values(self, values: Lists) -> tuple[Int32Array, FloatArray]:
        """Features inside the field and weights of lists of names, of shape (n, max_length); unused ones weigh 0."""
        length, n = self._fitted_length(), len(values.missing)
        start = np.zeros((n, length), np.int32)
        weight = np.zeros((n, length))
        row, position = values.positions()
        kept = position < length
        feature, value = self.look_up(values.names)
        start[row[kept], position[kept]] = feature[kept]
        weight[row[kept], position[kept]] = value[kept]
        if self.reduction == "mean":
            weight /= np.clip(np.diff(values.offsets), 1, length)[:, None]
        if values.missing.any():
            self.refuse_missing()
            start[values.missing, 0], weight[values.missing, 0] = 0, 1.0
        return start, weight

    def feature_weights(self, statistics: MultiValuedStatistics) -> FloatArray:
        """Sum of the weights of each feature over the training rows; exact."""
        weights = np.zeros(self.layout.n_features)
        if self.missing == "token":
            weights[0] = statistics.n_missing
        for length, counts in sorted(statistics.by_length.items()):  # the same sums however the rows were chunked
            weights += self.count_features(counts, len(weights)) / length
        return weights

    def _fitted_length(self) -> int:
        if self.max_length is None:
            raise ValueError(f"field {self.name!r} is not fitted; use sf.fit_encoder")
        return self.max_length


@dataclass
class MultiValuedStatistics:
    """What one pass over a multi-valued column keeps; statistics of parts can be merged."""

    spec: MultiValued
    n_rows: int = 0
    n_missing: int = 0
    longest: int = 0
    by_length: dict[int, CategoryCounts] = field(default_factory=dict)
    """Elements by what their weight of 1 is divided by: the length of their list for averages, else 1."""
    left_out: CategoryCounts = field(default_factory=CategoryCounts)
    """Elements beyond the length that the field will have."""

    @property
    def counts(self) -> CategoryCounts:
        """All elements."""
        parts = [*self.by_length.values(), *([self.left_out] if self.left_out.pieces else [])]
        if len(parts) == 1:
            return parts[0]
        whole = CategoryCounts()
        for part in parts:
            whole.merge(part)
        return whole

    def update(self, column: pa.Array) -> None:
        """Add the rows of a chunk."""
        lists = self.spec.read(column)
        if lists.missing.any():
            self.spec.refuse_missing()
        self.n_rows += len(column)
        self.n_missing += int(lists.missing.sum())
        self.longest = max(self.longest, int(np.diff(lists.offsets).max(initial=0)))
        for length, part in self._parts(lists):
            counts = self.by_length.setdefault(length, CategoryCounts()) if length else self.left_out
            counts.update(Categories(part, None))

    def _parts(self, lists: Lists) -> Iterator[tuple[int, pa.Array]]:
        """Elements with equal divisors, 0 for those that are left out."""
        names, lengths = lists.names, np.diff(lists.offsets)
        longest = self.spec.max_length or LONGEST_LIST
        averaged = self.spec.reduction == "mean"
        if not averaged and lengths.max(initial=0) <= longest:
            yield 1, names
            return
        divisor = np.repeat(np.minimum(lengths, longest) if averaged else np.minimum(lengths, 1), lengths)
        divisor[lists.positions()[1] >= longest] = 0
        order = np.argsort(divisor.astype(np.min_scalar_type(longest)), kind="stable")  # small numbers sort faster
        names = names.take(to_arrow(order))
        ends = np.cumsum(np.bincount(divisor)).tolist()
        for length, (first, last) in enumerate(pairwise([0, *ends])):
            if last > first:
                yield length, names[first:last]

    def merge(self, other: MultiValuedStatistics) -> None:
        """Add the rows of other statistics of the same field."""
        self.n_rows += other.n_rows
        self.n_missing += other.n_missing
        self.longest = max(self.longest, other.longest)
        self.left_out.merge(other.left_out)
        for length, counts in other.by_length.items():
            self.by_length.setdefault(length, CategoryCounts()).merge(counts)
