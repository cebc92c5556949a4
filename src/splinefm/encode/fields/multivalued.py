"""Multi-valued fields: lists of categories."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._arrays import FloatArray, IndexArray, Int32Array
from splinefm._checks import check_choice, check_count
from splinefm.encode.fields.categorical import Categorical, Unseen
from splinefm.encode.fields.contract import OneColumn
from splinefm.encode.fields.vocabulary import CategoryCounts, Vocabulary
from splinefm.encode.slots import FieldLayout
from splinefm.encode.tables.arrow import to_arrow
from splinefm.encode.tables.columns import Categories, Lists, as_lists
from splinefm.encode.tables.spelling import Values

LONGEST_LIST = 64


@dataclass(frozen=True)
class MultiValued(OneColumn):
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
    part: ClassVar[None] = None
    basis: ClassVar[None] = None

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
        object.__setattr__(self, "vocabulary", self.elements.vocabulary)
        object.__setattr__(self, "column", self.elements.column)

    @property
    def elements(self) -> Categorical:
        """The field of the elements: vocabulary and tokens work as in a categorical field."""
        return Categorical(
            self.name,
            min_count=self.min_count,
            unseen=self.unseen,
            missing=self.missing,
            buckets=self.buckets,
            vocabulary=self.vocabulary,
            values=self.values,
            column=self.column,
        )

    @property
    def n_tokens(self) -> int:
        """Features before the categories."""
        return self.elements.n_tokens

    @property
    def n_categories(self) -> int:
        """Known categories."""
        return len(self.vocabulary or ())

    @property
    def has_binary_weights(self) -> bool:
        """Whether all weights are 0 or 1: not in a mean."""
        return self.reduction != "mean"

    def describe(self) -> dict[str, Any]:
        """The settings that `splinefm info` shows."""
        return self.elements.describe()

    def holding(self, value: Any) -> list[Any]:
        """A list of one category."""
        return [value]

    def unseen_names(self, column: pa.Array) -> list[str]:
        """The elements of a column that the field takes as rare ones; none where they are hashed or errors."""
        return self.elements.unseen_among(self.read(column).names)

    def _to_arrow(self, values: Any) -> tuple[pa.Array, tuple[int, ...]]:
        lists = list(values)  # what is not a collection raises
        return pa.array(lists), (len(lists),)

    @property
    def layout(self) -> FieldLayout:
        """Features, windows and units of the fitted field."""
        length = self._fitted_length()
        units = tuple(range(length)) if self.reduction == "identity" else (0,) * length
        return FieldLayout(self.name, self.elements.layout.n_features, (1,) * length, units)

    def collect(self) -> MultiValuedStatistics:
        """Empty statistics, to be updated chunk by chunk."""
        return MultiValuedStatistics(self)

    def fit(self, statistics: MultiValuedStatistics) -> tuple[MultiValued, str]:
        """The field with vocabulary and length filled in, and what was kept."""
        elements, why = self.elements.fit(statistics)
        length = self.max_length or min(max(statistics.longest, 1), LONGEST_LIST)
        why += f"; lists of up to {length}"
        if statistics.longest > length:
            why += f" (the longest has {statistics.longest}; the rest is left out)"
        return replace(self, vocabulary=elements.vocabulary, values=elements.values, max_length=length), why

    def extend(self, statistics: MultiValuedStatistics) -> MultiValued:
        """The field with the frequent new categories added at the end of its vocabulary."""
        return replace(self, vocabulary=self.elements.extend(statistics).vocabulary)

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
        feature, value = self.elements.look_up(values.names)
        start[row[kept], position[kept]] = feature[kept]
        weight[row[kept], position[kept]] = value[kept]
        if self.reduction == "mean":
            weight /= np.clip(np.diff(values.offsets), 1, length)[:, None]
        if values.missing.any():
            self.elements.refuse_missing()
            start[values.missing, 0], weight[values.missing, 0] = 0, 1.0
        return start, weight

    def refuse_missing(self) -> None:
        """Raise if missing values are not allowed."""
        self.elements.refuse_missing()

    def feature_names(self) -> list[str]:
        """What each feature stands for."""
        return self.elements.feature_names()

    def display_order(self, positions: npt.ArrayLike) -> IndexArray:
        """Positions in the vocabulary in the order to show them; see `Categorical.display_order`."""
        return self.elements.display_order(positions)

    def most_frequent(self, counts: FloatArray | None, n: int) -> IndexArray:
        """Positions in the vocabulary of the n most frequent categories; see `Categorical.most_frequent`."""
        return self.elements.most_frequent(counts, n)

    def feature_counts(self, statistics: MultiValuedStatistics) -> FloatArray:
        """Number of elements of the training rows with each feature."""
        return self.elements.feature_counts(statistics)

    def feature_weights(self, statistics: MultiValuedStatistics) -> FloatArray:
        """Sum of the weights of each feature over the training rows; exact."""
        elements = self.elements
        weights = np.zeros(self.layout.n_features)
        if self.missing == "token":
            weights[0] = statistics.n_missing
        for length, counts in sorted(statistics.by_length.items()):  # the same sums however the rows were chunked
            weights += elements.count_features(counts, len(weights)) / length
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
