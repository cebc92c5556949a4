"""Ids of items, integers or text, by position in the store, and positions by id; and groups of items."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from splinefm._arrays import Array, Int32Array
from splinefm._core import IdTable
from splinefm.encode.tables.columns import as_categories, is_text, one_array, text_buffers
from splinefm.encode.tables.names import quoted

Words = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
Kind = Literal["numbers", "text"]


def written_types(ids: object, groups: object, kind: Kind | None = None) -> dict[str, pa.DataType]:
    """Types to read the columns of ids and groups of a text file with: as written, so that 007 is not 7.

    If the ids of the index are numbers, so are the ids of a file.

    Examples
    --------
    >>> written_types("id", None)
    {'id': DataType(large_string)}
    """
    types = {groups: pa.large_string()} if isinstance(groups, str) else {}
    return types | ({ids: pa.int64() if kind == "numbers" else pa.large_string()} if isinstance(ids, str) else {})


class Keys(NamedTuple):
    """Ids as words of eight bytes, shape (n, words): int64, or UTF-8 padded with zeros."""

    words: Words
    kind: Kind | None  # None without ids

    def __len__(self) -> int:
        return len(self.words)

    def as_given(self, i: int) -> Any:
        """Id number i as the user gave it."""
        return as_ids(self.words[i : i + 1], self.kind).tolist()[0]


def read_keys(values: object, what: str) -> Keys:
    """Read ids from an Arrow column, an array or a list.

    Examples
    --------
    >>> read_keys([7, 3], "ids").words.tolist()
    [[7], [3]]
    """
    column = _as_column(values, what)
    if column.null_count:
        missing = int(np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))[0])
        raise ValueError(f"{what}: id number {missing} is missing; every item needs an id")
    if pa.types.is_null(column.type):
        return Keys(np.zeros((0, 1), np.uint64), None)
    if pa.types.is_integer(column.type):
        try:
            numbers = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid as error:
            raise ValueError(f"{what}: {error}; ids must be integers below 2^63, or text") from error
        return Keys(np.ascontiguousarray(numbers).view(np.uint64).reshape(-1, 1), "numbers")
    if is_text(column.type):
        return Keys(_text_words(column.cast(pa.large_string()), what), "text")
    raise ValueError(f"{what} must be integers or text, not {column.type}; convert them")


def integers_if_plain(keys: Keys) -> Keys:
    """Integers in place of text, if all ids are written as integers are: a text file does not say which they are.

    Examples
    --------
    >>> [integers_if_plain(read_keys(ids, "ids")).kind for ids in (["7", "12"], ["7", "012"])]
    ['numbers', 'text']
    """
    if keys.kind != "text" or not len(keys):
        return keys
    text = pa.array(as_ids(keys.words, keys.kind), pa.large_string())
    plain = pc.all(pc.match_substring_regex(text, r"^(0|-?[1-9]\d{0,17})$")).as_py()
    return read_keys(text.cast(pa.int64()), "ids") if plain else keys


def join_keys(parts: list[Keys]) -> Keys:
    """Concatenate ids, which may differ in width."""
    width = max([1, *(part.words.shape[1] for part in parts)])
    kind = next((part.kind for part in parts if part.kind is not None), None)
    return Keys(
        np.concatenate([np.zeros((0, width), np.uint64), *(_widened(part.words, width) for part in parts)]), kind
    )


def _as_column(values: Any, what: str) -> pa.Array:
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise TypeError(f"{what} must be a list or an array of ids, got {values!r}")
    if not isinstance(values, pa.Array | pa.ChunkedArray):
        try:
            values = pa.array(list(values) if isinstance(values, set | frozenset) else values, from_pandas=True)
        except OverflowError:
            raise ValueError(f"{what}: ids must be integers below 2^63, or text") from None
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise TypeError(f"{what} must be all integers or all text{_mixed(values) or f': {error}'}") from error
    column = one_array(values) if isinstance(values, pa.ChunkedArray) else values
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _mixed(values: Iterable[object]) -> str:
    """The first text and the first other value, if there are both."""
    text = next((value for value in values if isinstance(value, str)), None)
    other = next((value for value in values if not isinstance(value, str)), None)
    return "" if text is None or other is None else f", got {text!r} and {other!r}"


def _text_words(strings: pa.LargeStringArray, what: str) -> Words:
    offsets, text = text_buffers(strings)
    if (text[offsets[0] : offsets[-1]] == 0).any():
        raise ValueError(f"{what}: an id contains the NUL character; remove it")
    lengths = np.diff(offsets)
    width = 8 * max(1, -(-int(lengths.max(initial=0)) // 8))
    out = np.zeros((len(strings), width), np.uint8)
    number = np.repeat(np.arange(len(strings)), lengths)
    byte = np.arange(offsets[0], offsets[-1])
    out[number, byte - np.repeat(offsets[:-1], lengths)] = text[byte]
    return out.view(np.uint64)


def as_ids(words: Words, kind: Kind | None) -> Array:
    """Ids as the user gave them: an array of int64 or of text."""
    if kind == "text":
        try:
            return np.char.decode(sort_keys(words, kind), "utf-8")
        except UnicodeDecodeError as error:  # ids of a mapped file are not verified when it is loaded
            raise ValueError("the index is damaged: an id is not UTF-8; copy it again, or save it again") from error
    return sort_keys(words, kind)


def sort_keys(words: Words, kind: Kind | None) -> Array:
    """Ids in a form that sorts the same way; the bytes of UTF-8 sort like its characters."""
    words = np.ascontiguousarray(words)
    return words.view(f"S{8 * words.shape[1]}" if kind == "text" else np.int64).reshape(len(words))


class Ids:
    """Ids by position (see `Keys`), and a hash table of positions, which is built when first needed.

    `used` returns the positions in use; the first ids decide the kind.
    """

    def __init__(self, used: Callable[[], Positions], kind: Kind | None = None, words: Words | None = None) -> None:
        self._used = used
        self.kind: Kind | None = kind
        self.words = np.zeros((0, 1), np.uint64) if words is None else words
        self._table: IdTable | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_table": None}

    def check(self, keys: Keys, what: str) -> None:
        """Raise if the index has ids of another kind."""
        if None not in (self.kind, keys.kind) and self.kind != keys.kind:
            kinds = {"numbers": "integers", "text": "text"}
            raise TypeError(
                f"{what}: the ids of the index are {kinds[str(self.kind)]}, got {keys.as_given(0)!r}; "
                f"give {kinds[str(self.kind)]}"
            )

    def find(self, keys: Keys) -> Positions:
        """Positions of ids, -1 if not found."""
        words, width = keys.words, self.words.shape[1]
        out = np.full(len(words), -1, np.int64)
        short = np.flatnonzero(~(words[:, width:] != 0).any(axis=1))  # longer ids are not in the index
        wanted = np.ascontiguousarray(_widened(words[:, :width], width)[short])
        out[short] = self._ready().find(self.words, wanted)
        return out

    def assign(self, positions: Positions, keys: Keys, capacity: int) -> None:
        """Give positions ids that no other position has."""
        if not len(positions):
            return
        self.kind = self.kind or keys.kind
        self._fit(capacity, max(self.words.shape[1], keys.words.shape[1]))
        self.words[positions] = _widened(keys.words, self.words.shape[1])
        self._ready().insert(self.words, positions)

    def erase(self, positions: Positions) -> None:
        """Remove the ids of positions."""
        self._ready().erase(self.words, positions)

    def as_given(self, positions: Positions) -> Array:
        """Ids of positions as the user gave them."""
        return as_ids(self.words[positions], self.kind)

    def order(self, positions: Positions) -> Array:
        """Ids of positions in a form that sorts the same way."""
        return sort_keys(self.words[positions], self.kind)

    def _fit(self, capacity: int, width: int) -> None:
        n, old = self.words.shape
        if capacity > n or width > old:
            words = np.zeros((max(capacity, n), width), np.uint64)
            words[:n, :old] = self.words
            self.words = words
        if width > old and self._table is not None:  # the hash of an id depends on its width
            self._table.rebuild(self.words)

    def _ready(self) -> IdTable:
        if self._table is None:
            table = IdTable()
            table.insert(self.words, self._used())
            self._table = table
        return self._table


def first_repeated(keys: Keys) -> int:
    """Number of the first id that occurs a second time, or -1."""
    return IdTable().insert(np.ascontiguousarray(keys.words), np.arange(len(keys)))


def _widened(words: Words, width: int) -> Words:
    return words if words.shape[1] == width else np.pad(words, ((0, 0), (0, width - words.shape[1])))


class Groups:
    """Groups of items by position: a code for each item, -1 for none."""

    def __init__(self, names: list[str] | None = None, codes: Int32Array | None = None) -> None:
        self.numbers = {name: i for i, name in enumerate(names or [])}
        self.codes = np.zeros(0, np.int32) if codes is None else codes

    @property
    def names(self) -> tuple[str, ...]:
        """All groups that an item ever had."""
        return tuple(self.numbers)

    def assign(self, positions: Positions, names: list[str | None], capacity: int) -> None:
        """Give positions their groups."""
        added = capacity - len(self.codes)
        if added > 0:
            self.codes = np.concatenate([self.codes, np.full(added, -1, np.int32)])
        codes = self.numbers
        self.codes[positions] = [-1 if name is None else codes.setdefault(name, len(codes)) for name in names]

    def wanted(self, group: object) -> npt.NDArray[np.uint8]:
        """For each code, whether it is one of the given groups."""
        several = isinstance(group, list | tuple | set | frozenset | np.ndarray)
        names = read_groups(list(group) if several else [group], "group")  # type: ignore[call-overload]
        unknown = [name for name in names if name not in self.numbers]
        if unknown:
            raise ValueError(f"group: the index has no {unknown[0]!r}; its groups: {quoted(self.names)}")
        # One more element, since an empty array would allow all groups.
        wanted = np.zeros(len(self.numbers) + 1, np.uint8)
        wanted[[self.numbers[str(name)] for name in names]] = 1
        return wanted


def read_groups(values: object, what: str) -> list[str | None]:
    """Read names of groups from an Arrow column, an array or a list; None for no group."""
    try:
        column = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise ValueError(f"{what} must be a list or an array of values of one type: {error}") from error
    names, codes = as_categories(one_array(column) if isinstance(column, pa.ChunkedArray) else column, what)
    known = [*names.to_pylist(), None]
    return known[:-1] if codes is None else [known[code] for code in codes.tolist()]
