"""Crosses: fields whose features are products of the features of several columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from splinefm._arrays import Array, BoolArray, FloatArray, Int32Array, Int64Array
from splinefm._cached import cached_property
from splinefm._checks import check_choice, check_count
from splinefm.encode.bases import (
    REACH_MARGIN,
    Basis,
    Bins,
    BSpline,
    MultiResolution,
    basis_reach,
    levels_of,
    product_widths,
    smoothing,
    tensor_product,
)
from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.contract import PenaltyBlock
from splinefm.encode.fields.numerical import ORDINARY, Numerical
from splinefm.encode.slots import FieldLayout
from splinefm.encode.tables.arrow import to_arrow, to_numpy
from splinefm.encode.tables.columns import Categories, one_array
from splinefm.encode.tables.names import missing_column_message

# Of the hash: products of a feature and a multiplier stay below 2**62.
PRIME, MULTIPLIERS = 2_147_483_647, (1_000_003, 998_244_353, 1_367_130_551)


@dataclass(frozen=True, eq=False)
class Cells:
    """Combinations of features, one per row of an array, with a table that finds them.

    Parameters
    ----------
    features : array of int32, shape (cells, parts)
        The features of each part, inside its field.

    Examples
    --------
    >>> cells = Cells(np.array([[2, 1], [3, 3]], np.int32))
    >>> cells.find(np.array([[3, 3], [2, 2]], np.int32))
    array([ 1, -1], dtype=int32)
    """

    features: Int32Array

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
        return f"<{len(self):,} combinations>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cells) and np.array_equal(self.features, other.features)

    def __hash__(self) -> int:
        return hash((len(self), self.features[:1].tobytes()))

    def find(self, features: Int32Array) -> Int32Array:
        """Position of each combination, -1 where it is not kept."""
        if not len(self):
            return np.full(len(features), -1, np.int32)
        inside: BoolArray = np.all(features < self._sizes, axis=1)
        keys = self._keys(np.where(inside[:, None], features, 0))
        if self._direct is not None:
            found = self._direct[keys]
        else:
            ordered, order = self._sorted
            position = np.minimum(np.searchsorted(ordered, keys), len(ordered) - 1)
            found = np.where(ordered[position] == keys, order[position], np.int32(-1))
        return np.where(inside, found, np.int32(-1)).astype(np.int32)

    @cached_property
    def _sizes(self) -> Int64Array:
        return np.asarray(self.features.max(axis=0), np.int64) + 1

    def _keys(self, features: Int32Array) -> Int64Array:
        keys: Int64Array = features[:, 0].astype(np.int64)
        for part in range(1, features.shape[1]):
            keys = keys * self._sizes[part] + features[:, part]
        return keys.astype(np.int64, copy=False)

    @cached_property
    def _direct(self) -> Int32Array | None:
        """Position by key, where that is a small table."""
        n_keys = math.prod(self._sizes.tolist())
        if n_keys >= 1 << 63:
            raise ValueError(
                f"combinations of {' and '.join(f'{size:,}' for size in self._sizes)} categories cannot be told apart "
                "by 64 bits; give the cross buckets, such as buckets=1_000_000"
            )
        if n_keys > max(1 << 16, 8 * len(self)):
            return None
        table = np.full(n_keys, -1, np.int32)
        table[self._keys(self.features)] = np.arange(len(self), dtype=np.int32)
        return table

    @cached_property
    def _sorted(self) -> tuple[Int64Array, Int32Array]:
        keys = self._keys(self.features)
        order = np.argsort(keys, kind="stable").astype(np.int32)
        return keys[order], order

    def __getstate__(self) -> dict[str, Int32Array]:
        """The features, without what is derived from them on demand."""
        return {"features": self.features}


def listed_cells(cells: Sequence[Sequence[int]], name: str) -> Cells:
    """The combinations of a list of lists, as in a schema file."""
    try:
        features = np.array(list(cells))
        valid = not len(features) or (features.ndim == 2 and features.dtype.kind == "i" and features.min() >= 0)
        valid = valid and len(np.unique(features, axis=0)) == len(features) and features.max(initial=0) < 2**31
    except ValueError:  # lists of different lengths
        valid = False
    if not valid:
        raise ValueError(f"cells of cross {name!r} must be different lists of features, got {cells!s:.60}")
    return Cells(features.astype(np.int32) if len(features) else np.zeros((0, 2), np.int32))


def hash_cells(features: Int32Array, buckets: int) -> Int32Array:
    """A bucket for each combination of features, the same on every machine.

    Examples
    --------
    >>> hash_cells(np.array([[1, 2], [2, 1]], np.int32), 100)
    array([18, 15], dtype=int32)
    """
    total = np.zeros(len(features), np.int64)
    for part, multiplier in zip(features.T.astype(np.int64), MULTIPLIERS, strict=False):
        total = (total + (part + 1) * multiplier) % PRIME
    return (total % buckets).astype(np.int32)


@dataclass
class CellCounts:
    """Rows per combination of categories, exactly, from any number of pieces in any order.

    Examples
    --------
    >>> counts = CellCounts(2)
    >>> counts.update([Categories(pa.array(["a", "b", "a"], pa.large_string()), None)] * 2)
    >>> names, rows = counts.every()
    >>> sorted(zip(names[0].to_pylist(), rows.tolist()))
    [('a', 2), ('b', 1)]
    """

    n_parts: int
    pieces: list[pa.Table] = field(default_factory=list)

    def update(self, parts: Sequence[Categories]) -> None:
        """Add the rows of a chunk."""
        names, codes = zip(*map(_coded, parts), strict=True)
        key = np.zeros(len(codes[0]), np.int64)
        for part_names, part_codes in zip(names, codes, strict=True):
            key = key * (len(part_names) + 1) + (part_codes + 1)
        distinct, count = np.unique(key, return_counts=True)
        columns: dict[str, pa.Array] = {}
        for part in reversed(range(self.n_parts)):
            distinct, code = np.divmod(distinct, len(names[part]) + 1)
            known = pa.array(code - 1, mask=code == 0)
            columns[str(part)] = names[part].take(known)
        columns["count"] = to_arrow(count.astype(np.int64))
        self._add(pa.table(columns))

    def merge(self, other: CellCounts) -> None:
        """Add the rows of other counts."""
        for piece in other.pieces:
            self._add(piece)

    def every(self) -> tuple[list[pa.LargeStringArray], Int64Array]:
        """All combinations, one array of names per part with nulls for missing values, and their rows."""
        if not self.pieces:
            return [pa.nulls(0, pa.large_string())] * self.n_parts, np.zeros(0, np.int64)
        self._shrink()
        whole = self.pieces[0]
        return [one_array(whole[str(part)]) for part in range(self.n_parts)], to_numpy(one_array(whole["count"]))

    def _add(self, piece: pa.Table) -> None:
        self.pieces.append(piece)
        # Merging only when as much is pending as was merged before keeps the cost linear.
        if sum(part.num_rows for part in self.pieces[1:]) > max(1 << 16, self.pieces[0].num_rows):
            self._shrink()

    def _shrink(self) -> None:
        if len(self.pieces) > 1:
            whole = pa.concat_tables([piece.select(self._names) for piece in self.pieces])
            summed = whole.group_by(self._names[:-1], use_threads=False).aggregate([("count", "sum")])
            self.pieces = [summed.rename_columns([*self._names[:-1], "count"]).combine_chunks()]

    @property
    def _names(self) -> list[str]:
        return [*map(str, range(self.n_parts)), "count"]


@dataclass
class CrossStatistics:
    """What one pass over the columns of a cross keeps; statistics of parts of a table can be merged."""

    spec: Any
    n_rows: int = 0
    parts: list[Any] = field(init=False)
    cells: CellCounts = field(init=False)

    def __post_init__(self) -> None:
        self.parts = [part.collect() for part in self.spec.fields]
        self.cells = CellCounts(len(self.spec.categories))

    def update(self, columns: Sequence[pa.Array]) -> None:
        """Add the rows of a chunk."""
        for statistics, column in zip(self.parts, columns, strict=True):
            statistics.update(column)
        self.n_rows = self.parts[0].n_rows
        if self.spec.categories and self.spec.buckets is None:
            fields = self.spec.fields
            self.cells.update([fields[i].read(columns[i]) for i in self.spec.categories])

    def merge(self, other: CrossStatistics) -> None:
        """Add the rows of other statistics of the same field."""
        self.n_rows += other.n_rows
        for mine, theirs in zip(self.parts, other.parts, strict=True):
            mine.merge(theirs)
        self.cells.merge(other.cells)


def _coded(categories: Categories) -> tuple[pa.LargeStringArray, Int64Array]:
    """Distinct names, and the code of each row: -1 for missing values."""
    if categories.codes is not None:
        if len(categories.names) <= len(categories.codes):
            return categories.names, categories.codes.astype(np.int64)
        # The dictionary of a long column: keys of three of them may have more than 64 bits.
        used, codes = np.unique(np.maximum(categories.codes, 0), return_inverse=True)
        names = categories.names.take(to_arrow(used))
        return names, np.where(categories.codes < 0, -1, codes.ravel()).astype(np.int64)
    coded = categories.names.dictionary_encode()
    return coded.dictionary, to_numpy(coded.indices.cast(pa.int64()).fill_null(pa.scalar(-1, pa.int64())))


# Crosses: fields whose features are products of the features of several columns.


Part = Numerical | Categorical
SEPARATOR, VALUES = " × ", " (values)"
MAX_PARTS, MIN_COUNT = 3, 10
# Segments of the splines of a cross by the number of its numerical parts: the more of them, the coarser.
SEGMENTS: dict[int, tuple[int, ...]] = {1: (8,), 2: (8, 32, 128), 3: (4, 8)}


@dataclass(frozen=True, init=False)
class Cross:
    """Several columns as one field: the products of their features.

    Two categories have a feature for each frequent combination, a category and a number have a spline for each
    category, and two numbers have a tensor-product spline. The field interacts with all others, so that a cross of two
    columns makes up for what pairs of fields cannot express: three columns that act together.

    Combinations with fewer than `min_count` rows, unseen ones, and special or missing numbers have no features: the
    field is the zero vector there. A cross of one column takes its values as names, such as incomes of families.

    Parameters
    ----------
    *given : str, Numerical or Categorical
        Two or three fields, by name or of its own, or one `Categorical` of its own. A number given by name takes over
        the transform of its field and gets `segments`; a field of its own keeps its basis.
    name : str, optional
        Name of the field; by default the names of the parts, such as "month × day", or "income (values)".
    parts : sequence, optional
        The parts, as a keyword.
    segments : int or sequence of int, optional
        Segments of the splines of numbers that are given by name: one number, or several resolutions whose tensor
        products are summed. By default 8 for one number, (8, 32, 128) for two, and (4, 8) for three.
    degree : int
        Degree of these splines.
    min_count : int
        Combinations of categories with fewer training rows have no feature.
    buckets : int, optional
        Map all combinations of categories to this number of features by a hash instead, for crosses with a very large
        number of combinations.
    cells : Cells, optional
        The combinations of categories that have features; learned from the data.

    Examples
    --------
    >>> Cross("month", "day").name
    'month × day'
    >>> import splinefm as sf
    >>> schema = sf.Schema([sf.Categorical("a"), sf.Categorical("b"), Cross("a", "b", min_count=1)])
    >>> encoder = sf.fit_encoder(schema, {"a": ["x", "x", "y"], "b": ["u", "v", "u"]})
    >>> encoder.notes["a × b"]
    '3 combinations of categories'
    """

    is_numerical: ClassVar[bool] = False
    holds_lists: ClassVar[bool] = False
    weights_are_counts: ClassVar[bool] = False
    n_tokens: ClassVar[int] = 0
    basis: ClassVar[None] = None

    name: str
    parts: tuple[str | Part, ...]
    segments: tuple[int, ...] | None = None
    degree: int = 3
    min_count: int = MIN_COUNT
    buckets: int | None = None
    cells: Cells | None = None

    def __init__(
        self,
        *given: str | Part,
        name: str = "",
        parts: Sequence[str | Part] = (),
        segments: int | Sequence[int] | None = None,
        degree: int = 3,
        min_count: int = MIN_COUNT,
        buckets: int | None = None,
        cells: Cells | Sequence[Sequence[int]] | None = None,
    ) -> None:
        if isinstance(parts, str):
            raise ValueError(f"a cross takes two or three different fields, got {parts!r}")
        if given and parts:
            raise ValueError(f"the parts of a cross are given twice: {given!r} and parts={parts!r}; give them once")
        chosen = tuple(given) or tuple(parts)
        for part in chosen:
            if not isinstance(part, str | Numerical | Categorical):
                raise ValueError(f"a cross takes names of fields, sf.Numerical and sf.Categorical; got {part!r}")
        names = [part if isinstance(part, str) else part.name for part in chosen]
        is_single = len(names) == 1 and isinstance(chosen[0], Categorical)
        if not (is_single or 2 <= len(names) <= MAX_PARTS) or len(set(names)) < len(names):
            raise ValueError(f"a cross takes two or three different fields, or one sf.Categorical; got {names}")
        name = name or (SEPARATOR.join(names) if len(names) > 1 else f"{names[0]}{VALUES}")
        check_choice("name of a field", name, None)
        if segments is not None:
            segments = (segments,) if isinstance(segments, int) else tuple(segments)
            _ = MultiResolution(segments, degree)  # which checks the numbers
        check_count("degree", degree, 0, 5)
        check_count("min_count", min_count, 1, None)
        if buckets is not None:
            check_count("buckets", buckets, 1)
        cells = cells if cells is None or isinstance(cells, Cells) else listed_cells(cells, name)
        for item, value in zip(fields(self), (name, chosen, segments, degree, min_count, buckets, cells), strict=True):
            object.__setattr__(self, item.name, value)

    # Before the fit

    @property
    def required_shape(self) -> None:
        """Crosses have no shape, and those with parts that have one are refused."""

    @property
    def part_names(self) -> tuple[str, ...]:
        """Names of the parts that are given by name."""
        return tuple(part for part in self.parts if isinstance(part, str))

    def check_fitted(self, n_features: int) -> None:
        """Raise where a part is not fitted, or combinations are too many or of features that parts do not have."""
        for part in self.fields:
            part.check_fitted(n_features)
        if self.n_cells * self.block > max(n_features, self.block):
            raise ValueError(f"{self.name!r} has too many combinations")
        if self.cells is None or not len(self.cells):
            return
        sizes = [self.fields[i].layout.n_features for i in self.categories]
        if self.cells.features.shape[1] != len(sizes):
            raise ValueError(f"the combinations of {self.name!r} do not fit its parts")
        if not (self.cells.features < sizes).all():
            raise ValueError(f"{self.name!r} combines features that its parts do not have")

    def weight_reach(self) -> FloatArray:
        """An upper bound of the sum of absolute weights; bases are evaluated on a fine grid."""
        products = [math.prod(basis_reach(basis) for basis in bases) for bases in self.levels]
        return np.array([REACH_MARGIN * sum(products)])

    def penalty_blocks(self, order: int) -> list[PenaltyBlock]:
        """The products of each resolution, smooth along every number where all bases say so."""
        n_features = self.layout.n_features
        if not self.numbers or (self.categories and len(self.levels) > 1):  # resolutions of a cell are neighbors
            return [PenaltyBlock(n_features)]
        n_cells = n_features // self.block
        blocks = []
        for bases, sizes in zip(self.levels, self.level_sizes, strict=True):
            block = PenaltyBlock(n_cells * math.prod(sizes))
            weights = [smoothing(basis, order)[0] for basis in bases]
            if all(weight > 0.0 and size > order for weight, size in zip(weights, sizes, strict=True)):
                periodic = tuple(bool(getattr(basis, "periodic", False)) for basis in bases)
                block = block._replace(smoothness=1.0, periodic=periodic, shape=sizes)
            blocks.append(block)
        return blocks

    def resolve(self, known: Mapping[str, Any]) -> Cross:
        """The cross with a field for every part, given the fields of the schema by name."""
        if all(not isinstance(part, str) for part in self.parts):
            return self
        found = [self._find(part, known) if isinstance(part, str) else part for part in self.parts]
        n_numbers = sum(part.is_numerical for part in found)
        parts = [
            self._with_basis(part, n_numbers) if isinstance(given, str) and isinstance(part, Numerical) else part
            for given, part in zip(self.parts, found, strict=True)
        ]
        return replace(self, parts=tuple(parts))

    def _find(self, name: str, known: Mapping[str, Any]) -> Part:
        if name not in known:
            singles = [other for other, item in known.items() if not isinstance(item, Cross)]
            message = missing_column_message(name, singles, "field", "the schema")
            raise ValueError(f"cross {self.name!r}: {message}{'' if singles else '; add the fields of the cross, too'}")
        part = known[name]
        if not isinstance(part, Numerical | Categorical):
            raise ValueError(
                f"cross {self.name!r}: {name!r} is a {type(part).__name__}; "
                "a cross takes numerical and categorical fields"
            )
        return part

    def _with_basis(self, part: Numerical, n_numbers: int) -> Numerical:
        """The part on coarser splines, periodic like its field."""
        segments = self.segments or SEGMENTS[n_numbers]
        if getattr(part.basis, "periodic", False):
            return replace(part, basis=BSpline(segments[-1], self.degree, periodic=True), reduction="sum")
        basis = BSpline(segments[0], self.degree) if len(segments) == 1 else MultiResolution(segments, self.degree)
        return replace(part, basis=basis, reduction="sum")

    # The parts

    @property
    def fields(self) -> tuple[Part, ...]:
        """The parts as fields; raise where some are only named."""
        found = tuple(part for part in self.parts if not isinstance(part, str))
        if len(found) < len(self.parts):
            raise ValueError(f"cross {self.name!r} is not fitted; use sf.fit_encoder")
        return found

    @property
    def columns(self) -> tuple[str, ...]:
        """The column of each part."""
        return tuple(part.column for part in self.fields)

    @property
    def singles(self) -> tuple[Part, ...]:
        """The parts."""
        return self.fields

    @property
    def n_categories(self) -> int:
        """Combinations of categories that are kept."""
        return 0 if self.cells is None else len(self.cells)

    @property
    def features_per_category(self) -> int:
        """Functions of its numbers."""
        return self.block

    @property
    def has_binary_weights(self) -> bool:
        """Whether all weights are 0 or 1: categories and bins have no others."""
        return all(isinstance(basis, Bins) for bases in self.levels for basis in bases)

    def describe(self) -> dict[str, Any]:
        """The settings that `splinefm info` shows."""
        return {
            "columns": list(self.columns),
            "combinations": self.n_cells if self.categories else None,
            "functions": [list(sizes) for sizes in self.level_sizes if sizes],
            "buckets": self.buckets,
        }

    @property
    def reduction(self) -> Literal["sum"]:
        """All features are summed into one vector."""
        return "sum"

    @cached_property
    def categories(self) -> tuple[int, ...]:
        """Positions of the categorical parts."""
        return tuple(i for i, part in enumerate(self.fields) if not part.is_numerical)

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """Positions of the numerical parts."""
        return tuple(i for i, part in enumerate(self.fields) if part.is_numerical)

    @property
    def number_parts(self) -> tuple[Numerical, ...]:
        """The numerical parts."""
        return tuple(part for part in self.fields if isinstance(part, Numerical))

    @property
    def category_parts(self) -> tuple[Categorical, ...]:
        """The categorical parts."""
        return tuple(part for part in self.fields if isinstance(part, Categorical))

    def number(self, i: int) -> Numerical:
        """Part i, which is a number."""
        part = self.fields[i]
        assert isinstance(part, Numerical)
        return part

    @property
    def is_tensor(self) -> bool:
        """Whether it has the products of two or more splines."""
        return len(self.numbers) > 1

    @cached_property
    def levels(self) -> tuple[tuple[Basis, ...], ...]:
        """For each resolution, the basis of every numerical part; the products of each resolution are summed."""
        of_parts = [levels_of(part.basis) for part in self.number_parts]
        n_levels = max(map(len, of_parts), default=1)
        for levels in of_parts:
            if len(levels) not in (1, n_levels):
                raise ValueError(f"cross {self.name!r}: its numbers must have the same number of resolutions, or one")
        return tuple(tuple(levels[min(level, len(levels) - 1)] for levels in of_parts) for level in range(n_levels))

    @cached_property
    def level_sizes(self) -> tuple[tuple[int, ...], ...]:
        """For each resolution, the number of basis functions of every numerical part."""
        return tuple(tuple(sum(basis.sizes) for basis in bases) for bases in self.levels)

    @property
    def block(self) -> int:
        """Features per combination of categories."""
        return sum(math.prod(sizes) for sizes in self.level_sizes)

    @property
    def n_cells(self) -> int:
        """Combinations of categories with features; 1 without categorical parts."""
        if not self.categories:
            return 1
        if self.buckets is not None:
            return self.buckets
        if self.cells is None:
            raise ValueError(f"cross {self.name!r} is not fitted; use sf.fit_encoder")
        return len(self.cells)

    @property
    def layout(self) -> FieldLayout:
        """Features, windows and units of the fitted field."""
        widths = tuple(width for bases in self.levels for width in product_widths(bases))
        # A field without a single combination still has features to point at.
        return FieldLayout(self.name, max(1, self.n_cells) * self.block, widths, (0,) * len(widths))

    # Fitting

    def collect(self) -> CrossStatistics:
        """Empty statistics, to be updated chunk by chunk."""
        return CrossStatistics(self)

    def fit(self, statistics: CrossStatistics) -> tuple[Cross, str]:
        """The cross with fitted parts and the combinations that it keeps, and what was kept."""
        fitted = [part.fit(each)[0] for part, each in zip(self.fields, statistics.parts, strict=True)]
        cross = replace(self, parts=tuple(fitted))
        if not cross.categories:
            return cross, f"tensor product of {_shape_words(cross)} splines"
        if self.buckets is not None:
            return cross, f"{self.buckets:,} buckets of combinations"
        cells, _, n_rare = cross._frequent(statistics.cells)
        note = f"{len(cells):,} combination{'s' * (len(cells) != 1)} of categories"
        if self.min_count > 1:
            note += f" with at least {self.min_count} rows"
        if n_rare:
            note += f"; {n_rare:,} rows have a rarer one"
        if cross.numbers:
            note += f", a spline of {_shape_words(cross)} for each"
        return replace(cross, cells=Cells(cells)), note

    def extend(self, statistics: CrossStatistics) -> Cross:
        """The cross with the frequent new categories and combinations added."""
        parts = tuple(part.extend(each) for part, each in zip(self.fields, statistics.parts, strict=True))
        cross = replace(self, parts=parts)
        if self.cells is None:
            return cross
        found = cross._frequent(statistics.cells)[0]
        new = found[self.cells.find(found) < 0]
        every = np.concatenate([self.cells.features.reshape(-1, found.shape[1]), new])  # an empty list has two parts
        return replace(cross, cells=Cells(every)) if len(new) else cross

    def _frequent(self, counts: CellCounts) -> tuple[Int32Array, FloatArray, int]:
        """Combinations of known categories with enough rows, the most frequent first; their rows, and all others."""
        features, rows = self._counted(counts)
        known = (features >= 0).all(axis=1) & (rows >= self.min_count)
        order = np.lexsort((*features[known].T[::-1], -rows[known]))
        return features[known][order], rows[known][order], int(rows.sum() - rows[known].sum())

    def _counted(self, counts: CellCounts) -> tuple[Int32Array, FloatArray]:
        """Distinct combinations of features, -1 for unseen categories, and their rows."""
        names, rows = counts.every()
        columns = [
            self.category(i, Categories(part_names, None)) for i, part_names in zip(self.categories, names, strict=True)
        ]
        features, inverse = np.unique(np.stack(columns, axis=1), axis=0, return_inverse=True)
        return features, np.bincount(inverse.ravel(), rows, minlength=len(features)).astype(np.float64)

    def feature_counts(self, statistics: CrossStatistics) -> FloatArray:
        """Training rows of the combination that each feature belongs to."""
        if not self.categories:
            return np.full(self.layout.n_features, float(statistics.n_rows))
        features, rows = self._counted(statistics.cells)
        cell = self.cell(features)
        counts = np.bincount(cell[cell >= 0], rows[cell >= 0], minlength=max(1, self.n_cells))
        return np.repeat(counts, self.block)

    def feature_weights(self, statistics: CrossStatistics) -> FloatArray:
        """Sum of the weights of each feature over the training rows; NaN where unknown: with numbers, with buckets."""
        if self.numbers or self.buckets is not None:
            return np.full(self.layout.n_features, np.nan)
        return self.feature_counts(statistics)

    # Encoding

    def as_input(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        """The columns of the parts."""
        return list(columns)

    def read(self, columns: Sequence[pa.Array]) -> list[Any]:
        """The values of the parts, given a column for each."""
        return [part.read(column) for part, column in zip(self.fields, columns, strict=True)]

    def encode(self, columns: Sequence[pa.Array]) -> tuple[Int32Array, FloatArray]:
        """Features inside the field, shape (n, windows), and weights, shape (n, weights)."""
        return self.encode_values(self.read(columns))

    def encode_values(self, values: Sequence[Any]) -> tuple[Int32Array, FloatArray]:
        """Features inside the field and weights of the values of its parts."""
        return self.encode_positions(self.positions(values))

    def encode_into(self, values: Sequence[Any], first: int, start: Int32Array, weight: Array) -> None:
        """Write features, counted from `first`, and weights into arrays, such as some columns of slots."""
        starts, weight[...] = self.encode_values(values)
        np.add(starts, np.int32(first), out=start)

    def positions(self, values: Sequence[Any]) -> list[Any]:
        """Where the values of each part are, so that parts of different rows can be put together.

        The feature of a category, -1 if it is unseen; u = T(z) of a number, NaN if it is special or missing.
        """
        return [self.position(i, each) for i, each in enumerate(values)]

    def position(self, i: int, values: Any) -> Any:
        """The positions of the values of part i."""
        if i in self.categories:
            return self.category(i, values)
        u, ordinary = self._transformed(i, values)
        return np.where(ordinary, u, np.nan)

    def encode_positions(self, positions: Sequence[Any]) -> tuple[Int32Array, FloatArray]:
        """Features inside the field and weights, from the result of `positions`."""
        n = len(positions[0])
        cell = np.zeros(n, np.int32)
        if self.categories:
            cell = self.cell(np.stack([positions[i] for i in self.categories], axis=1))
        numbers = [positions[i] for i in self.numbers]
        ordinary = np.all([~np.isnan(u) for u in numbers], axis=0) if numbers else np.ones(n, bool)
        u = [np.where(ordinary, x, 0.0) for x in numbers]
        inside = (cell >= 0) & ordinary
        first = np.where(inside, cell, 0)[:, None] * np.int32(self.block)
        starts, weights = [], []
        for bases in self.levels:
            start, weight = tensor_product(bases, u)
            starts.append(start + first)
            weights.append(weight)
            first = first + np.int32(math.prod(sum(basis.sizes) for basis in bases))
        return np.concatenate(starts, axis=1).astype(np.int32), np.concatenate(weights, axis=1) * inside[:, None]

    def _transformed(self, i: int, x: FloatArray) -> tuple[FloatArray, Any]:
        """u = T(z) of a numerical part, and whether the numbers are ordinary."""
        part = self.number(i)
        token = part.find_tokens(x)
        if token is None:
            return part.fitted_transform(x), True
        ordinary = token == ORDINARY
        return part.fitted_transform(np.where(ordinary, x, 0.0)), ordinary

    def category(self, i: int, values: Categories) -> Int32Array:
        """The feature of each value inside a categorical part, -1 where it is unseen."""
        part = self.fields[i]
        assert isinstance(part, Categorical)
        start, weight = part.encode_values(values)
        feature = start[:, 0]
        has_none = part.is_unseen(feature) | (weight[:, 0] == 0.0)
        return np.where(has_none, np.int32(-1), feature).astype(np.int32)

    def cell(self, features: Int32Array) -> Int32Array:
        """The combination of each row of features of the categorical parts, -1 where it has no features."""
        known = (features >= 0).all(axis=1)
        if self.buckets is not None:
            return np.where(known, hash_cells(np.maximum(features, 0), self.buckets), np.int32(-1))
        if self.cells is None:
            raise ValueError(f"cross {self.name!r} is not fitted; use sf.fit_encoder")
        return np.where(known, self.cells.find(np.maximum(features, 0)), np.int32(-1))

    def feature_names(self) -> list[str]:
        """What each feature stands for."""
        inside = [SEPARATOR.join(f"B{i}" for i in index) for sizes in self.level_sizes for index in np.ndindex(*sizes)]
        if not self.categories:
            return inside
        return [f"{cell}{SEPARATOR}{name}" if name else cell for cell in self.cell_names() for name in inside]

    def cell_names(self) -> list[str]:
        """What each combination of categories stands for."""
        if self.buckets is not None:
            return [f"bucket {number}" for number in range(self.buckets)]
        names = [self.fields[i].feature_names() for i in self.categories]
        cells = self.cells.features.tolist() if self.cells is not None else []
        return [
            SEPARATOR.join(of_part[feature] for of_part, feature in zip(names, cell, strict=True)) for cell in cells
        ] or ["no combination"]


def _shape_words(cross: Cross) -> str:
    return " + ".join(" by ".join(map(str, sizes)) for sizes in cross.level_sizes)
