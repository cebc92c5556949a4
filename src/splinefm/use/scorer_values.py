"""Single raw values -> numbers, names and table rows that kernels read.

Whatever is not read quickly goes through the code that encodes whole columns, as a column of one value: it means the
same there, and errors name the column.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from splinefm.encode.arrow import from_strings
from splinefm.encode.categorical import Categorical, MultiValued
from splinefm.encode.dates import seconds_of, take_part
from splinefm.encode.numerical import Numerical, spread
from splinefm.encode.schema import Field
from splinefm.encode.spelling import canonical
from splinefm.encode.vocabulary import Vocabulary, hash_bucket
from splinefm.use import scorer_kernels as kernels
from splinefm.use.algebra import active_rows
from splinefm.use.scorer_kernels import NO_ROW, REFUSED

SEPARATOR, ROW_MARK = bytes([kernels.SEPARATOR]), bytes([kernels.ROW_MARK])
_MOST_SPELLINGS = 10_000  # that are kept of a field, beside its names
_EXACT = 2**53  # whole floats below are spelled like ints
# Elements of lists that are looked up one by one; others may depend on each other, such as 1 in [1, 2.5].
_TEXT, _WHOLE, _OTHER = {str, type(None)}, {int, type(None)}, {object}

Codes = tuple[list[int], list[float]]
"""Table rows, `NO_ROW` where there is none, and weights."""


def unseen_row(field: Categorical, first: int) -> int:
    """The table row that all unseen categories of a field share; `REFUSED` if there is none."""
    return {"rare": first + (field.missing == "token"), "neutral": NO_ROW}.get(field.unseen, REFUSED)


class Names:
    """Values of a categorical field as text that a kernel looks up.

    Examples
    --------
    >>> names = Names(Categorical("c", vocabulary=["b", "7"]), first=10)
    >>> names.text("b"), names.text(7.0), names.text(True), names.text(None)
    (b'b', b'7', b'true', b'\\xfe10')
    """

    def __init__(self, field: Categorical, first: int) -> None:
        self.field, self.first = field, first
        self.spelled = Spellings(field)

    def text(self, value: Any) -> bytes:
        """The name of a value, or a mark and the table row."""
        name = name_of(value)
        if name is not None and "\0" not in name:
            return encoded_name(self.field.column, self.spelled[name])
        row = self.first
        if is_missing(value):
            self.field.refuse_missing()
        else:
            row = encode_one(self.field, self.first, value)[0][0]
        return ROW_MARK if row == NO_ROW else b"%b%d" % (ROW_MARK, row)

    def check(self, value: object) -> None:
        """Raise if the field refuses a category."""
        if unseen_row(self.field, self.first) == REFUSED:
            encode_one(self.field, self.first, value)


class Spellings(dict[str, str]):
    """The name of a category by any of its spellings; those that were met before are kept.

    Examples
    --------
    >>> spelled = Spellings(Categorical("c", vocabulary=["1", "2"], values="numbers"))
    >>> spelled["2.0"], spelled["new"]
    ('2', 'new')
    """

    def __init__(self, field: Categorical) -> None:
        names = [] if field.vocabulary is None or field.spelling == "text" else field.vocabulary.names.to_pylist()
        super().__init__(zip(names, names, strict=True))
        self.values_kind, self.most = field.spelling, len(names) + _MOST_SPELLINGS

    def __missing__(self, spelling: str) -> str:
        if not isinstance(spelling, str):
            raise TypeError(f"a spelling is text, got {type(spelling).__name__}")
        if self.values_kind == "text":
            return spelling
        try:
            name: str = canonical(from_strings([spelling]), self.values_kind)[0].as_py()
        except UnicodeEncodeError:  # whoever asks says so
            return spelling
        if len(self) < self.most:
            self[spelling] = name
        return name


class Categories(dict[str, int]):
    """Table rows by name of a field whose first row is `first`; what is not a key is unseen.

    Examples
    --------
    >>> rows = Categories(Categorical("c", vocabulary=["b", "7"]), first=10)
    >>> rows["b"], rows["unseen"], rows.find(7)
    (12, 11, 13)
    """

    def __init__(self, field: Categorical, first: int) -> None:
        names = (field.vocabulary or Vocabulary(pa.array([], pa.large_string()))).names.to_pylist()
        super().__init__(zip(names, range(first + field.n_tokens, first + field.n_tokens + len(names)), strict=True))
        self.field, self.first, self.shared = field, first, unseen_row(field, first)
        self.spelled = Spellings(field)

    def __missing__(self, name: str) -> int:
        encoded_name(self.field.column, name)
        known_as = self.spelled[name]
        if known_as != name:
            return self[known_as]
        if self.shared != REFUSED:
            return self.shared
        if self.field.unseen == "hash":
            return self.first + (self.field.missing == "token") + hash_bucket(name, self.field.buckets)
        return encode_one(self.field, self.first, name)[0][0]  # which raises

    def find(self, value: Any) -> int:
        """The row of any value."""
        name = name_of(value)
        if is_missing(value) and self.field.missing == "token":
            return self.first
        return encode_one(self.field, self.first, value)[0][0] if name is None else self[name]


def encoded_name(column: str, name: str) -> bytes:
    """The bytes of a name; raises if there are none."""
    try:
        return name.encode()
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
    """Table rows and weights of one value, by the encoder; one each for every weight of the field's layout."""
    rows, weights = active_rows(item, one_value(item.column, value))
    codes = np.where(weights[0] != 0.0, rows[0] + first, NO_ROW)
    return codes.tolist(), weights[0].tolist()


def reader(item: Field, first: int) -> Callable[[object], Codes]:
    """Reads values of a field that kernels do not read themselves."""
    if isinstance(item, Numerical):
        return number_reader(item, first)
    return category_reader(item, first) if isinstance(item, Categorical) else list_reader(item, first)


def number_reader(item: Numerical, first: int) -> Callable[[object], Codes]:
    """Reads values of a field whose transform or basis is not compiled; see `Numerical.encode`."""
    widths, transform = item.basis.widths, item.transform
    others = sum(widths) - 1

    def read(value: object) -> Codes:
        is_plain = type(value) is float and item.part is None
        x = np.array([value if is_plain else read_number(item, value)], np.float64)
        token = item.tokens(x)
        if token is not None:
            return [first + int(token[0])] + [NO_ROW] * others, [1.0] + [0.0] * others
        start, weight = item.basis(transform(x))  # type: ignore[operator]  # fitted: no longer "auto"
        return (spread(start, widths)[0] + (first + item.n_tokens)).tolist(), weight[0].tolist()

    return read


def category_reader(item: Categorical, first: int) -> Callable[[object], Codes]:
    """Reads values of a field whose unseen categories are hashed, which kernels do not do."""
    rows = Categories(item, first)
    return lambda value: ([rows.find(value)], [1.0])


def list_reader(item: MultiValued, first: int) -> Callable[[object], Codes]:
    """Reads lists of a field: rows of its elements, and the weight that they share."""
    elements = Categories(item.elements, first)
    length = len(item.layout.widths)

    def read(value: Any) -> Codes:
        if value is None and item.missing == "token":
            return [first] + [NO_ROW] * (length - 1), [1.0]
        names = value
        if isinstance(value, np.ndarray) and value.ndim == 1:
            names = value.tolist()
        elif type(value) is str and item.separator is not None:
            names = value.split(item.separator)
        kinds = set(map(type, names)) if type(names) in (list, tuple) else _OTHER
        if not (kinds <= _TEXT or kinds <= _WHOLE):
            return _shared(*encode_one(item, first, value))
        if item.separator is not None:
            names = [name.strip() if type(name) is str else name for name in names]
        names = [name for name in names if name is not None and name != ""]
        codes = [elements[str(name)] for name in names[:length]]
        share = 1.0 / max(1, len(codes)) if item.reduction == "mean" else 1.0
        return codes + [NO_ROW] * (length - len(codes)), [share]

    return read


def _shared(codes: list[int], weights: list[float]) -> Codes:
    """The one weight that all rows of a list have."""
    return codes, [next((weight for weight in weights if weight), 0.0)]
