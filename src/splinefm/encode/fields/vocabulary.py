"""Vocabularies: counts of categories that can be merged, their order, and the feature of each category."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from splinefm._arrays import FloatArray, IndexArray, Int32Array, Int64Array
from splinefm._cached import cached_property
from splinefm._core import StringTable, count_strings
from splinefm.encode.tables.arrow import scalar, to_arrow, to_numpy
from splinefm.encode.tables.columns import Categories, one_array, text_buffers
from splinefm.encode.tables.spelling import Values, canonical

# The order in which people expect categories that are numbers, booleans, days, months or dates.

_NUMBER = r"^-?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
_DATE = r"^\d{4}-\d{2}(-\d{2}([T ]\d{2}:\d{2}.*)?)?$"
_DAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_WORDS = tuple({word[:cut]: i for i, word in enumerate(words) for cut in (3, None)} for words in (_DAYS, _MONTHS))
_ORDERED_WORDS = ({"false": 0, "true": 1}, *_WORDS)
_MAX_WORDS = 100


def natural_ranks(names: pa.LargeStringArray) -> IndexArray | None:
    """The ranks of names in the order of what they mean; None where they mean nothing that has an order.

    Numbers by size, false before true, days from Monday to Sunday, months from January to December (in English, whole
    or in three letters), ISO dates and months in time. More than half of the names must be of one such kind; the
    others share the last rank.

    Examples
    --------
    >>> natural_ranks(pa.array(["10", "9", "?", "-1"], pa.large_string()))
    array([2, 1, 3, 0])
    >>> natural_ranks(pa.array(["Tue", "Mon"], pa.large_string())), natural_ranks(pa.array(["b"], pa.large_string()))
    (array([1, 0]), None)
    """
    for keys in (_numbers(names), _dates(names), *_words(names)):
        known = np.isfinite(keys)
        if 2 * known.sum() > len(names):
            ranks = np.full(len(names), len(names), np.intp)
            ranks[known] = np.unique(keys[known], return_inverse=True)[1]
            return np.unique(ranks, return_inverse=True)[1].astype(np.intp)
    return None


def _numbers(names: pa.LargeStringArray) -> FloatArray:
    """The number of each name, NaN where it is none."""
    keys = np.full(len(names), np.nan)
    numeric = to_numpy(pc.match_substring_regex(names, _NUMBER))
    keys[numeric] = to_numpy(names.filter(to_arrow(numeric)).cast(pa.float64()))
    return keys


def _dates(names: pa.LargeStringArray) -> FloatArray:
    """The rank of each name among those that are dates, whose text sorts by time; NaN where it is none."""
    keys = np.full(len(names), np.nan)
    dates = to_numpy(pc.match_substring_regex(names, _DATE))
    keys[dates] = np.unique(names.filter(to_arrow(dates)).to_pylist(), return_inverse=True)[1]
    return keys


def _words(names: pa.LargeStringArray) -> list[FloatArray]:
    """For each set of ordered words the rank of each name, NaN where it is none of them."""
    if len(names) > _MAX_WORDS:
        return []
    lower = [name.lower() for name in names.to_pylist()]
    return [np.array([ranks.get(name, np.nan) for name in lower], np.float64) for ranks in _ORDERED_WORDS]


# Counts of categories that can be merged, and vocabularies that look them up.

# Below this many pending entries a merge is not worth its overhead.
_PENDING = 1 << 16
_SHOWN = 3  # names that are printed


@dataclass
class CategoryCounts:
    """Rows per category, exactly, from any number of pieces in any order.

    Examples
    --------
    >>> counts = CategoryCounts()
    >>> counts.update(Categories(pa.array(["b", "a", "b"], pa.large_string()), None))
    >>> counts.frequent(min_count=2)[0].to_pylist()
    ['b']
    """

    pieces: list[pa.Table] = field(default_factory=list)
    _pending: int = 0

    def update(self, categories: Categories) -> None:
        """Add the rows of a column."""
        if categories.codes is None:
            self._add(*_count(categories.names))
        else:
            present = categories.codes[categories.codes >= 0]
            count = np.bincount(present, minlength=len(categories.names))
            # A dictionary may spell one category twice, such as 3 and 3.0: merging adds them up.
            self._add(categories.names.filter(to_arrow(count > 0)), to_arrow(count[count > 0].astype(np.int64)))

    def merge(self, other: CategoryCounts) -> None:
        """Add the rows of other counts."""
        for piece in other.pieces:
            self._add(piece["name"], piece["count"])

    def frequent(self, min_count: int) -> tuple[pa.LargeStringArray, Int64Array]:
        """Categories with at least `min_count` rows and their counts; the most frequent first, ties by name."""
        whole = self._merged()
        if min_count > 1:  # else a copy of everything
            whole = whole.filter(pc.greater_equal(whole["count"], scalar(min_count, np.int64)))
        whole = whole.sort_by([("count", "descending"), ("name", "ascending")])
        return one_array(whole["name"]), to_numpy(one_array(whole["count"]))

    def every(self) -> tuple[pa.LargeStringArray, Int64Array]:
        """All categories and their counts, in no particular order."""
        whole = self._merged()
        return one_array(whole["name"]), to_numpy(one_array(whole["count"]))

    def renamed(self, values: Values) -> CategoryCounts:
        """The counts under one name per category, however it was spelled."""
        if values == "text":
            return self
        names, counts = self.every()
        return CategoryCounts([_sum_by_name(canonical(names, values), counts)])

    def total(self) -> int:
        """Rows that were counted."""
        return int(sum(pc.sum(piece["count"]).as_py() or 0 for piece in self.pieces))

    def n_distinct(self) -> int:
        """Number of different categories."""
        return int(self._merged().num_rows)

    def _add(self, names: pa.Array, counts: pa.Array) -> None:
        piece = pa.table({"name": names, "count": counts})
        self.pieces.append(piece)
        self._pending += piece.num_rows
        # Merging only when as much is pending as was merged before keeps the cost linear.
        if self._pending > max(_PENDING, self.pieces[0].num_rows):
            self._merged()

    def _merged(self) -> pa.Table:
        if not self.pieces:
            return pa.table({"name": pa.nulls(0, pa.large_string()), "count": pa.nulls(0, pa.int64())})
        if len(self.pieces) > 1 or self._pending:  # a single piece may have a name twice, too
            whole = pa.concat_tables(self.pieces)
            names, counts = one_array(whole["name"]), to_numpy(one_array(whole["count"]))
            del whole
            self.pieces = []  # millions of names need no second copy while they are summed
            self.pieces = [_sum_by_name(names, counts)]
        self._pending = 0
        return self.pieces[0]


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Category names in the order of their features, with a hash table that is built at the first lookup.

    Examples
    --------
    >>> Vocabulary(pa.array(["US", "FR"], pa.large_string())).find(pa.array(["FR", "XX"], pa.large_string()))
    array([ 1, -1], dtype=int32)
    """

    names: pa.LargeStringArray

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        shown = ", ".join(map(repr, self.names[:_SHOWN].to_pylist()))
        return f"<{len(self):,} names: {shown}{', ...' if len(self) > _SHOWN else ''}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and bool(self.names.equals(other.names))

    def __hash__(self) -> int:
        # Equality is by content, which may be millions of names: their number and the ends tell most of them apart.
        return hash((len(self), *(self.names[i].as_py() for i in (0, -1) if len(self))))

    def find(self, names: pa.LargeStringArray, values: Values = "text") -> Int32Array:
        """Position of each name, -1 where it is not known (an absent name is looked up as "").

        With `values` the names of the vocabulary are canonical, and names are looked up in any spelling.
        """
        found = self._find(names)
        unknown = np.flatnonzero(found < 0)
        if values != "text" and len(unknown):
            coded = names.take(to_arrow(unknown)).dictionary_encode()
            again = np.append(self._find(canonical(coded.dictionary, values)), np.int32(-1))
            found[unknown] = again[to_numpy(coded.indices.fill_null(scalar(-1, np.int32)))]
        return found

    def write(self, names: pa.LargeStringArray, first: int, unknown: int, out: Int32Array) -> int:
        """Write `first` + the position of each name as it is spelled, or `unknown`; returns how many are not known."""
        return self._table.find_into(*text_buffers(names), first, unknown, out)

    def _find(self, names: pa.LargeStringArray) -> Int32Array:
        return self._table.find(*text_buffers(names))

    def display_order(self, positions: npt.ArrayLike) -> IndexArray:
        """Positions in the order to show them: of numbers, days, .. (see `natural_ranks`), or else as given."""
        given = np.asarray(positions, np.intp)
        return given if self._ranks is None else given[np.argsort(self._ranks[given], kind="stable")]

    @property
    def has_natural_order(self) -> bool:
        """Whether names mean something that has an order: numbers, days, months, dates."""
        return self._ranks is not None

    @cached_property
    def _ranks(self) -> IndexArray | None:
        return natural_ranks(self.names)

    @cached_property
    def _table(self) -> StringTable:
        return StringTable(*text_buffers(self.names))

    def __getstate__(self) -> dict[str, pa.LargeStringArray]:
        """The names, without what is derived from them on demand."""
        return {"names": self.names}


def _sum_by_name(names: pa.LargeStringArray, counts: Int64Array) -> pa.Table:
    """Distinct names with the sum of their counts, in the order of their first occurrence.

    The compiled table of strings takes a fraction of the memory of Arrow's dictionaries.
    """
    first, count = count_strings(*text_buffers(names))
    if len(first) == len(names):
        return pa.table({"name": names, "count": to_arrow(counts)})
    del count
    distinct = names.take(to_arrow(first))
    codes = StringTable(*text_buffers(distinct)).find(*text_buffers(names))
    # Counts as weights are exact up to 2**53 rows.
    total = np.bincount(codes, counts, len(distinct))
    return pa.table({"name": distinct, "count": to_arrow(total.astype(np.int64))})


def _count(names: pa.LargeStringArray) -> tuple[pa.LargeStringArray, pa.Array]:
    """Distinct names and how often each occurs, in the order of their first occurrence."""
    if names.null_count:
        names = names.drop_null()
    first, count = count_strings(*text_buffers(names))
    return names.take(to_arrow(first)), to_arrow(count)


def hash_bucket(name: str, buckets: int) -> int:
    """A bucket for a name, the same on every machine."""
    return int.from_bytes(blake2b(name.encode(), digest_size=8).digest(), "little") % buckets
