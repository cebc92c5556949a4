"""How each fitted field reads single rows: what compiled code, in this process or in a file, is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from splinefm._arrays import FloatArray, Int32Array, Int64Array
from splinefm._core import RowEncoder
from splinefm.encode.bases import Basis, PolynomialWindow
from splinefm.encode.fields.categorical import Categorical, MultiValued, Unseen
from splinefm.encode.fields.contract import active_features
from splinefm.encode.fields.cross import MULTIPLIERS, PRIME, Cross
from splinefm.encode.fields.numerical import SIGNS, Numerical, NumericalDescription, describe_numerical
from splinefm.encode.fields.vocabulary import Vocabulary
from splinefm.encode.schema import AnyField, Single
from splinefm.encode.slots import expand_windows
from splinefm.encode.tables.arrow import from_strings, to_arrow
from splinefm.encode.tables.columns import as_numbers, text_buffers
from splinefm.encode.tables.dates import seconds_of, take_part

NO_FEATURE, ASK = -1, -2  # instead of a feature: none, and that a reader is asked
# Arrow reads the other types.
_NUMBERS = frozenset({float, int, bool, np.bool_, *(np.dtype(code).type for code in "efdbhilqBHILQ")})
_MAX_SPELLINGS = 10_000  # cached for a field, in addition to its names
_EXACT = 2**53  # whole floats below are spelled like ints
# Elements of lists that are looked up one by one; others may depend on each other, such as 1 in [1, 2.5].
_TEXT, _WHOLE, _OTHER = {str, type(None)}, {int, type(None)}, {object}

Codes = tuple[list[int], list[float]]
"""Features, `NO_FEATURE` where there is none, and weights."""
Reader = Callable[[Any], Any]


def unseen_feature(field: Categorical | MultiValued, first: int) -> int:
    """The feature that all unseen categories of a field share; `ASK` if it takes more to know."""
    return {"rare": first + field.first_unseen, "neutral": NO_FEATURE}.get(field.unseen, ASK)


class CategoryFeatures:
    """Features of the values of a field whose first feature is `first`; values that were looked up before are cached.

    Examples
    --------
    >>> features = CategoryFeatures(Categorical("c", vocabulary=["b", "7"], values="numbers"), first=10)
    >>> [features.find(value) for value in ("b", "unseen", 7, "7.0", None)]
    [12, 11, 13, 13, 10]
    """

    def __init__(self, field: Categorical | MultiValued, first: int) -> None:
        self.field, self.first, self.shared = field, first, unseen_feature(field, first)
        self._known: dict[str, int] = {}
        self._most = len(field.vocabulary or ()) + _MAX_SPELLINGS

    def find(self, value: Any) -> int:
        """The feature of any value; raises if the field refuses it."""
        name = name_of(value)
        if name is not None:
            return self.find_name(name)
        if is_missing(value):
            self.field.refuse_missing()
            return self.first
        return encode_one(self.field, self.first, value)[0][0]

    def find_name(self, name: str) -> int:
        """The feature of a name in any spelling."""
        feature = self._known.get(name)
        if feature is None:
            feature = self._look_up(name)
            if len(self._known) < self._most:
                self._known[name] = feature
        return feature

    def _look_up(self, name: str) -> int:
        field = self.field
        check_text(field.column, name)
        names = from_strings([name])
        found = int(field.find(names)[0])
        if found >= 0:
            return self.first + field.n_tokens + found
        if self.shared != ASK:
            return self.shared
        return self.first + int(field.look_up(names)[0][0])  # a bucket; errors are raised


def check_text(column: str, name: str) -> None:
    """Raise if a name cannot be written as UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"column {column!r} holds text that is not valid Unicode: {name!r}") from error


def is_missing(value: object) -> bool:
    """Whether a value is None or a float that is NaN."""
    return value is None or (isinstance(value, float) and value != value)


def name_of(value: Any) -> str | None:
    """The name of a category as the encoder spells it; None for missing values and where it takes the encoder to know.

    Examples
    --------
    >>> name_of("a"), name_of(3.0), name_of(True), name_of(2.5), name_of(1e-9)
    ('a', '3', 'true', '2.5', None)
    """
    if isinstance(value, str):
        return str(value)
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float):
        if value.is_integer():
            return str(int(value)) if abs(value) < _EXACT else None
        # Python and Arrow differ in when they begin to use exponents.
        return repr(float(value)) if 1e-4 <= abs(value) < 1e10 else None
    return str(int(value)) if type(value) is int or isinstance(value, np.integer) else None


def one_value(name: str, value: object) -> pa.Array:
    """A column of one value."""
    try:
        return pa.array(np.array([value]) if isinstance(value, np.generic) else [value], from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"column {name!r}: cannot read the {type(value).__name__} {value!r}: {error}") from error


def read_number(item: Numerical, value: object) -> float:
    """The number of a field that a value stands for; NaN for a missing one."""
    if item.part is not None and type(value) is datetime:
        return float(take_part(np.array([seconds_of(value, item.zone)]), item.part)[0])
    return float(item.read(one_value(item.column, value))[0])


def encode_one(item: Categorical | MultiValued, first: int, value: object) -> Codes:
    """Features and weights of one value, by the encoder; one each for every weight of the field's layout."""
    features, weights = active_features(item, one_value(item.column, value))
    codes = np.where(weights[0] != 0.0, features[0] + first, NO_FEATURE)
    return codes.tolist(), weights[0].tolist()


def number_reader(item: Numerical) -> Reader:
    """Reads values that are not plain floats and ints."""
    if item.part is not None:
        return lambda value: read_number(item, value)

    def read(value: Any) -> float:
        try:
            return float(value) if type(value) in _NUMBERS else read_number(item, value)
        except OverflowError:  # an integer beyond all floats: Arrow says so, with the name of the column
            return read_number(item, value)

    return read


def slow_reader(item: Numerical, first: int) -> Reader:
    """Reads values of a field whose transform or basis is not compiled; see `Numerical.encode`."""
    widths, transform = item.basis.widths, item.transform
    assert not isinstance(transform, str)  # of a fitted field

    def read(value: object) -> Codes:
        is_plain = type(value) is float and item.part is None
        x = np.array([value if is_plain else read_number(item, value)], np.float64)
        token = item.find_tokens(x)
        if token is not None:
            return [first + int(token[0])], [1.0]
        start, weight = item.basis(transform(x))
        return (expand_windows(start, widths)[0] + (first + item.n_tokens)).tolist(), weight[0].tolist()

    return read


def category_reader(item: Categorical | MultiValued, first: int) -> Reader:
    """Reads names that are not known as they are, and other values."""
    return CategoryFeatures(item, first).find


def part_reader(item: Categorical | MultiValued) -> Reader:
    """Reads names of a part of a cross: features inside the part, none for unseen categories."""
    find = CategoryFeatures(item, 0).find

    def read(value: Any) -> int:
        feature = find(value)
        return NO_FEATURE if item.is_unseen(feature) else feature

    return read


def cross_reader(item: Cross, first: int) -> Reader:
    """Reads the values of a cross with a number whose transform or basis is not compiled."""

    def read(values: Sequence[object]) -> Codes:
        columns = [one_value(name, value) for name, value in zip(item.columns, values, strict=True)]
        start, weight = item.encode(columns)
        return (expand_windows(start, item.layout.widths)[0] + first).tolist(), weight[0].tolist()

    return read


def list_reader(item: MultiValued, first: int) -> Reader:
    """Reads lists of a field: features of its elements, and their weights."""
    elements = CategoryFeatures(item, first)
    length = len(item.layout.widths)

    def read(value: Any) -> Codes:
        if value is None and item.missing == "token":
            return [first], [1.0]
        names = value
        if isinstance(value, np.ndarray) and value.ndim == 1:
            names = value.tolist()
        elif type(value) is str and item.separator is not None:
            names = value.split(item.separator)
        kinds = set(map(type, names)) if type(names) in (list, tuple) else _OTHER
        if not (kinds <= _TEXT or kinds <= _WHOLE):
            return encode_one(item, first, value)
        if item.separator is not None:
            names = [name.strip() if type(name) is str else name for name in names]
        names = [name for name in names if name is not None and name != ""]
        codes = [elements.find_name(str(name)) for name in names[:length]]
        share = 1.0 / max(1, len(codes)) if item.reduction == "mean" else 1.0
        return codes, [share] * len(codes)

    return read


# Plans: each fitted field as compiled code needs it, in this process or in a file.


_NO_NUMBERS = np.zeros(0)
_AGREES = 1e-6  # the largest difference between weights of a compiled field and of the encoder
_PROBES = 128


@dataclass(frozen=True, eq=False)
class NumberPlan:
    """A numerical field, or such a part of a cross.

    Parameters
    ----------
    item : Numerical
        The field.
    first : int
        Its first feature.
    description : NumericalDescription
        Tokens and transform.
    windows : sequence of PolynomialWindow
        Its windows; in a cross one for each resolution.
    """

    item: Numerical
    first: int
    description: NumericalDescription
    windows: Sequence[PolynomialWindow]

    @property
    def knots(self) -> FloatArray:
        """Where the pieces of the transform begin and end; none for steps, which take raw values."""
        return (
            _NO_NUMBERS
            if self.description.pieces is None
            else np.ascontiguousarray(self.description.pieces[0], np.float64)
        )

    @property
    def values(self) -> FloatArray:
        """What is between the knots, flat; see `transform_pieces`."""
        pieces = self.description.pieces
        return _NO_NUMBERS if pieces is None else np.ascontiguousarray(pieces[1], np.float64).ravel()

    @property
    def powers(self) -> int:
        """Numbers per piece, or 1 for those at the knots."""
        return 1 if self.description.pieces is None else int(self.description.pieces[1].shape[1])

    @property
    def limits(self) -> tuple[float, float]:
        """The range beyond which numbers are missing or refused; infinite where they are clipped."""
        return self.item.value_limits

    @property
    def beyond_missing(self) -> bool:
        """Whether numbers beyond the range count as missing."""
        return self.item.outside == "missing"

    @property
    def rules(self) -> FloatArray:
        """Signs, as their positions in `SIGNS`, and numbers of the special values, shape (n, 2)."""
        rules = [(SIGNS.index(sign), number) for sign, number in self.description.rules]
        return np.array(rules, np.float64).reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class NamesPlan:
    """A field of one category, such a part of a cross, or the elements of lists.

    Parameters
    ----------
    item : Categorical or MultiValued
        The field.
    first : int
        Its first feature.
    unseen : {"rare", "neutral", "error", "hash"}
        What unseen categories become.
    """

    item: Categorical | MultiValued
    first: int
    unseen: Unseen

    @property
    def names(self) -> tuple[Int64Array, npt.NDArray[np.uint8]]:
        """Offsets and text of the vocabulary."""
        return text_buffers((self.item.vocabulary or Vocabulary(pa.array([], pa.large_string()))).names)

    @property
    def first_name(self) -> int:
        """The feature of the first name."""
        return self.first + self.item.n_tokens

    @property
    def missing(self) -> int | None:
        """The feature of missing values; None where they are errors."""
        return None if self.item.missing_token is None else self.first + self.item.missing_token


@dataclass(frozen=True, eq=False)
class ListPlan:
    """A multi-valued field."""

    item: MultiValued
    first: int

    @property
    def elements(self) -> NamesPlan:
        """Its elements."""
        return NamesPlan(self.item, self.first, self.item.unseen)

    @property
    def length(self) -> int:
        """The most elements that count."""
        return len(self.item.layout.widths)


@dataclass(frozen=True, eq=False)
class CrossPlan:
    """A cross, whose parts have features of their own, from 0 on."""

    item: Cross
    first: int
    parts: tuple[NumberPlan | NamesPlan, ...]

    @property
    def sizes(self) -> Int64Array:
        """Functions of each number, shape (resolutions, numbers)."""
        return np.array(self.item.level_sizes, np.int64).reshape(len(self.item.levels), -1)

    @property
    def cells(self) -> Int32Array:
        """Features of the combinations of categories that are kept, shape (cells, categories)."""
        if self.item.cells is None:
            return np.zeros((0, len(self.item.categories)), np.int32)
        return np.ascontiguousarray(self.item.cells.features)


@dataclass(frozen=True, eq=False)
class SlowPlan:
    """A field with a transform or a basis that is not compiled: its Python objects encode values."""

    item: Numerical | Cross
    first: int


Plan: TypeAlias = NumberPlan | NamesPlan | ListPlan | CrossPlan | SlowPlan


def plan_field(item: AnyField, first: int) -> Plan:
    """How a fitted field, whose first feature is given, reads single rows.

    Examples
    --------
    >>> plan_field(Categorical("c", vocabulary=["a"]), 10).first_name
    12
    """
    return _plan_cross(item, first) if isinstance(item, Cross) else _plan_single(item, first)


def _plan_single(item: Single, first: int) -> Plan:
    if isinstance(item, Categorical):
        return NamesPlan(item, first, item.unseen)
    if isinstance(item, MultiValued):
        return ListPlan(item, first)
    compiled = compile_number(item)
    return SlowPlan(item, first) if compiled is None else NumberPlan(item, first, compiled, compiled.windows)


def _plan_cross(item: Cross, first: int) -> Plan:
    parts: list[NumberPlan | NamesPlan] = []
    for i, part in enumerate(item.fields):
        if isinstance(part, Categorical):
            # A combination with an unseen category has no features.
            parts.append(NamesPlan(part, 0, "error" if part.unseen == "error" else "neutral"))
            continue
        number = item.numbers.index(i)
        levels = _compile_levels(part, [bases[number] for bases in item.levels])
        if levels is None:
            return SlowPlan(item, first)
        parts.append(NumberPlan(part, 0, levels[0], [window for level in levels for window in level.windows]))
    return CrossPlan(item, first, tuple(parts))


def _compile_levels(part: Numerical, bases: Sequence[Basis]) -> list[NumericalDescription] | None:
    """Descriptions of a part of a cross with the basis of each resolution; None where one is not compiled."""
    found: list[NumericalDescription] = []
    for level, basis in enumerate(bases):
        if level and basis == bases[level - 1]:
            found.append(found[-1])
            continue
        compiled = compile_number(replace(part, basis=basis, reduction="sum"))
        if compiled is None or len(compiled.windows) != 1:
            return None
        found.append(compiled)
    return found


def add_number(encoder: RowEncoder, plan: NumberPlan) -> None:
    """Add a field of numbers to an encoder of rows."""
    encoder.add_number(
        first=plan.first,
        signs=np.ascontiguousarray(plan.rules[:, 0]),
        bounds=np.ascontiguousarray(plan.rules[:, 1]),
        missing=plan.description.missing is not None,
        apart=plan.item.reduction == "identity",
        plain=plan.item.part is None,
        knots=plan.knots,
        values=plan.values,
        powers=plan.powers,
        low=plan.limits[0],
        high=plan.limits[1],
        beyond_missing=plan.beyond_missing,
    )
    for window in plan.windows:
        encoder.add_window(
            segments=window.segments,
            edges=_NO_NUMBERS if window.edges is None else np.ascontiguousarray(window.edges, np.float64),
            coefficients=window_coefficients(window),
            start=window.start,
            moves=window.moves,
            around=window.around,
        )


def window_coefficients(window: PolynomialWindow) -> FloatArray:
    """The coefficients that compiled code takes: none of a uniform B-spline, which it knows."""
    return np.ascontiguousarray(window.coefficients[: 0 if window.is_uniform else None], np.float64)


def compile_number(item: Numerical) -> NumericalDescription | None:
    """The description of a field for compiled code, or None where only the field's Python objects can encode it."""
    found = describe_numerical(item)
    return found if found is not None and _agrees(item, found) else None


def _agrees(item: Numerical, found: NumericalDescription) -> bool:
    """Whether compiled code and encoder give the same features and weights all over the range of a field."""
    x = _probes(item)
    expected_features, expected = item.features_on_axis(to_arrow(x))
    encoder, widths = RowEncoder(), np.array(item.layout.widths, np.int64)
    add_number(encoder, NumberPlan(replace(item, part=None, format=None, zone=None), 0, found, found.windows))
    start, weight = np.empty((len(x), len(widths)), np.int32), np.empty((len(x), widths.sum()), np.float32)
    if encoder.encode_column(x, widths, start, weight) >= 0:  # a number that it does not take
        return False
    difference = np.zeros((len(x), item.layout.n_features))
    probe = np.arange(len(x))[:, None]
    np.add.at(difference, (probe, expected_features), expected)
    np.subtract.at(difference, (probe, expand_windows(start, item.layout.widths)), weight)
    return bool(np.abs(difference).max() <= _AGREES)


def _probes(item: Numerical) -> FloatArray:
    """Values of all kinds: over the range, beyond it, special and missing."""
    u = np.sort(np.arange(_PROBES) * 0.6180339887498949 % 1.0)  # spread evenly, and not where people put borders
    x = np.asarray(item.fitted_transform.inverse(np.append(u, 1.0)), np.float64)
    special = [rule.number for rule in item.rules]
    far = [0.0, 1.0, -1.0, 1e300, -1e300, *([np.nan] if item.missing == "token" else [])]
    values: FloatArray = np.concatenate([x, special, far])
    values = values[~np.isinf(values)]
    return values if item.outside != "error" else values[~item.is_beyond(values)]


# Fitted fields as compiled code reads them, one row at a time.


class RowFields:
    """Fields that encode single rows.

    Parameters
    ----------
    fields : sequence of fields
        Fitted fields, in the order of the model.
    first_features : sequence of int
        The first feature of each.

    Attributes
    ----------
    columns, readers : tuples
        For `RowEncoder`: the column of each field or part of a cross, and what reads values that compiled
        code does not.
    slow : tuple of str
        Numerical fields and crosses that are not compiled.

    Examples
    --------
    >>> from splinefm.encode.fields.numerical import Numerical
    >>> from splinefm.encode.transforms.scaling import MinMax
    >>> from splinefm.encode.bases import BSpline
    >>> fields = RowFields([Numerical("x", MinMax(low=0.0, high=1.0), BSpline(1, degree=1))], [0])
    >>> features, weights, _, _ = fields.encoder.encode({"x": 0.25}, fields.columns, fields.readers)
    >>> features.tolist(), weights.tolist()
    ([1, 2], [0.75, 0.25])
    """

    def __init__(self, fields: Sequence[AnyField], first_features: Sequence[int]) -> None:
        self.encoder = RowEncoder()
        self.slow: tuple[str, ...] = ()
        self.columns = tuple(name for item in fields for name in item.columns)
        self.readers: tuple[Reader, ...] = ()
        for item, first in zip(fields, first_features, strict=True):
            plan = plan_field(item, first)
            if isinstance(plan, SlowPlan):
                self.slow = (*self.slow, item.name)
                self.readers += self._add_slow(plan)
            elif isinstance(plan, CrossPlan):
                self.readers += add_cross(self.encoder, plan)
            else:
                self.readers += (self._add(plan),)

    def add_offset(self, column: str, logarithm: bool, unit: float, largest: float) -> None:
        """Add a column that is added to the score, or whose logarithm is, in a unit of the scores; the last value."""
        self.encoder.add_offset(logarithm=logarithm, unit=unit, largest=largest)
        self.columns += (column,)
        self.readers += (lambda value: float(as_numbers(one_value(column, value), column)[0]),)

    def _add(self, plan: NumberPlan | NamesPlan | ListPlan) -> Reader:
        item, first = plan.item, plan.first
        if isinstance(plan, NamesPlan):
            self.encoder.add_names(*_names(plan, unseen_feature(plan.item, first)))
            return category_reader(plan.item, first)
        if isinstance(plan, ListPlan):
            apart = item.reduction == "identity"
            if plan.item.separator is None:
                names = _names(plan.elements, unseen_feature(plan.elements.item, first))
                self.encoder.add_lists(*names, length=plan.length, averages=item.reduction == "mean", apart=apart)
            else:  # Python strips the white space around names
                self.encoder.add_given(plan.length, apart)
            return list_reader(plan.item, first)
        add_number(self.encoder, plan)
        return number_reader(plan.item)

    def _add_slow(self, plan: SlowPlan) -> tuple[Reader, ...]:
        item, first, length = plan.item, plan.first, sum(plan.item.layout.widths)
        if isinstance(item, Numerical):
            self.encoder.add_given(length, item.reduction == "identity")
            return (slow_reader(item, first),)
        self.encoder.add_given(length, False, len(item.fields))
        return (cross_reader(item, first),) * len(item.fields)


def add_cross(encoder: RowEncoder, plan: CrossPlan) -> tuple[Reader, ...]:
    """Add a cross, whose parts are the fields of an encoder of their own; a reader for each."""
    parts = RowEncoder()
    readers: list[Reader] = []
    for part in plan.parts:
        if isinstance(part, NamesPlan):
            parts.add_names(*_names(part, ASK if part.unseen == "error" else NO_FEATURE))
            readers.append(part_reader(part.item))
        else:
            add_number(parts, part)
            readers.append(number_reader(part.item))
    encoder.add_cross(
        first=plan.first,
        parts=parts,
        sizes=plan.sizes,
        cells=plan.cells,
        buckets=plan.item.buckets or 0,
        multipliers=np.array(MULTIPLIERS[: len(plan.item.categories)], np.int64),
        prime=PRIME,
    )
    return tuple(readers)


def _names(plan: NamesPlan, unseen: int) -> tuple[Int64Array, npt.NDArray[np.uint8], int, int, int]:
    """Names of a field, the features of the first of them, of those that are unseen, and of missing values."""
    unseen = unseen if plan.item.spelling == "text" else ASK  # it may be another spelling
    return *plan.names, plan.first_name, unseen, ASK if plan.missing is None else plan.missing


# Columns of numbers, encoded by the code for single rows: a value has the same weights in a table and in a row.


class NumberColumn:
    """A numerical field whose columns are encoded by compiled code."""

    def __init__(self, plan: NumberPlan) -> None:
        self._item, self._widths = plan.item, np.array(plan.item.layout.widths, np.int64)
        self._encoder = RowEncoder()
        add_number(self._encoder, plan)

    def encode_into(self, x: FloatArray, start: Int32Array, weight: Any) -> None:
        """Write features and weights of numbers into some columns of slots."""
        x = np.ascontiguousarray(x, np.float64)
        refused = self._encoder.encode_column(x, self._widths, start, weight)
        if refused >= 0:
            self._item.find_tokens(x)  # which raises, and says why
            raise ValueError(f"column {self._item.column!r} does not take {x[refused]}")


class CrossColumns:
    """A cross whose columns are encoded by compiled code."""

    def __init__(self, plan: CrossPlan) -> None:
        self._item, self._widths = plan.item, np.array(plan.item.layout.widths, np.int64)
        self._encoder = RowEncoder()
        add_cross(self._encoder, plan)

    def encode_into(self, values: list[Any], start: Int32Array, weight: Any) -> None:
        """Write features and weights of the values of its parts into some columns of slots."""
        item, n = self._item, len(start)
        cells = np.zeros(n, np.int32)
        if item.categories:
            cells = item.cell(np.stack([item.category(i, values[i]) for i in item.categories], axis=1))
        x = np.array([values[i] for i in item.numbers], np.float64).reshape(len(item.numbers), n)
        refused = self._encoder.encode_columns(np.ascontiguousarray(cells, np.int32), x, self._widths, start, weight)
        if refused >= 0:
            item.positions(values)  # which raises, and says why
            raise ValueError(f"cross {item.name!r} does not take row {refused}")


class OtherColumns:
    """A field that encodes columns itself."""

    def __init__(self, item: AnyField, first: int) -> None:
        self._item: Any = item
        self._first = first

    def encode_into(self, values: Any, start: Int32Array, weight: Any) -> None:
        """Write features and weights of values into some columns of slots, whose weights are 1 before."""
        self._item.encode_into(values, self._first, start, weight)


Columns: TypeAlias = NumberColumn | CrossColumns | OtherColumns


def compile_columns(item: AnyField, first: int) -> Columns:
    """What encodes columns of a fitted field whose first feature is given: compiled code, for those with numbers.

    Examples
    --------
    >>> from splinefm.encode.bases import BSpline
    >>> from splinefm.encode.transforms.scaling import MinMax
    >>> column = compile_columns(Numerical("x", MinMax(low=0.0, high=1.0), BSpline(1, degree=1)), 0)
    >>> start, weight = np.empty((2, 1), np.int32), np.empty((2, 2), np.float32)
    >>> column.encode_into(np.array([0.25, np.nan]), start, weight)
    >>> start.tolist(), weight.tolist()
    ([[1], [0]], [[0.75, 0.25], [1.0, 0.0]])
    """
    plan = plan_field(item, first)
    if isinstance(plan, CrossPlan):
        return CrossColumns(plan)
    return NumberColumn(plan) if isinstance(plan, NumberPlan) else OtherColumns(item, first)
