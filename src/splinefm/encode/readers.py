"""Single raw values -> numbers and features, for what compiled code does not read: other types, spellings, hashes.

Values without a fast path go through the code that encodes whole columns, as a column of one value. They mean the same
there, and errors name the column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from splinefm.encode.fields.categorical import Categorical
from splinefm.encode.fields.contract import active_features
from splinefm.encode.fields.cross import Cross
from splinefm.encode.fields.multivalued import MultiValued
from splinefm.encode.fields.numerical import Numerical
from splinefm.encode.fields.vocabulary import hash_bucket
from splinefm.encode.slots import expand_windows
from splinefm.encode.tables.arrow import from_strings
from splinefm.encode.tables.dates import seconds_of, take_part
from splinefm.encode.tables.spelling import canonical

NO_FEATURE, ASK = -1, -2  # instead of a feature: none, and that a reader is asked
# Arrow reads the other types.
_NUMBERS = frozenset({float, int, bool, np.bool_, *(np.dtype(code).type for code in "efdbhilqBHILQ")})
_MAX_SPELLINGS = 10_000  # that are cached for a field, beside its names
_EXACT = 2**53  # whole floats below are spelled like ints
# Elements of lists that are looked up one by one; others may depend on each other, such as 1 in [1, 2.5].
_TEXT, _WHOLE, _OTHER = {str, type(None)}, {int, type(None)}, {object}

Codes = tuple[list[int], list[float]]
"""Features, `NO_FEATURE` where there is none, and weights."""
Reader = Callable[[Any], Any]


def unseen_feature(field: Categorical, first: int) -> int:
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

    def __init__(self, field: Categorical, first: int) -> None:
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
        if field.unseen == "hash":
            known_as = canonical(names, field.spelling)[0].as_py()
            return self.first + field.first_unseen + hash_bucket(known_as, field.buckets)
        return encode_one(field, self.first, name)[0][0]  # which raises


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
        token = item.tokens(x)
        if token is not None:
            return [first + int(token[0])], [1.0]
        start, weight = item.basis(transform(x))
        return (expand_windows(start, widths)[0] + (first + item.n_tokens)).tolist(), weight[0].tolist()

    return read


def category_reader(item: Categorical, first: int) -> Reader:
    """Reads names that are not known as they are, and other values."""
    return CategoryFeatures(item, first).find


def part_reader(item: Categorical) -> Reader:
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
    elements = CategoryFeatures(item.elements, first)
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
