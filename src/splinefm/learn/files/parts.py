"""Parts of a sharded model: files that hold the vectors and linear weights of some features."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm._writing import replacing
from splinefm.learn.files.container import (
    Array,
    Damaged,
    ModelFileError,
    demand,
    header_digest,
    read_container,
    verify_container,
)
from splinefm.learn.files.streaming import TABLES, Piece, placeholder, version, write_tables

FORMAT = 1
Range = tuple[int, int]
"""The first feature, and the one after the last."""
AGAIN = "copy the folder again, or write the model again"


class Entry(NamedTuple):
    """A file of a sharded model, as its manifest has it."""

    file: str
    bytes: int
    header: str
    """Checksum of everything before the arrays, with the checksums of the arrays."""
    ranges: tuple[Range, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return lists, strings and numbers for JSON."""
        return {**self._asdict(), "ranges": [list(item) for item in self.ranges]}

    @staticmethod
    def from_dict(described: Any) -> Entry:
        """Return the entry that `to_dict` described."""
        demand(isinstance(described, dict) and described.keys() == set(Entry._fields), "an entry is incomplete")
        name, ranges = described["file"], described["ranges"]
        # A manifest must not lead out of its folder.
        demand(
            isinstance(name, str) and Path(name).name == name and name not in ("", ".."), f"a file is called {name!r}"
        )
        demand(type(described["bytes"]) is int and isinstance(described["header"], str), f"{name} has a wrong entry")
        pairs = isinstance(ranges, list) and all(isinstance(item, list) and len(item) == 2 for item in ranges)
        demand(pairs and all(type(number) is int for item in ranges for number in item), f"{name} has wrong ranges")
        return Entry(name, described["bytes"], described["header"], tuple((a, b) for a, b in ranges))


def entry_of(path: Path, ranges: Sequence[Range] = ()) -> Entry:
    """Return the entry of a file that was written."""
    with path.open("rb") as file:
        return Entry(path.name, path.stat().st_size, header_digest(file), tuple(ranges))


def open_entry(folder: Path, entry: Entry) -> Path:
    """Return the path of a file after comparing it with its entry; the content of arrays is not verified."""
    path = folder / entry.file
    if not path.is_file():
        raise ModelFileError(f"the file {entry.file!r} is missing; {AGAIN}")
    size = path.stat().st_size
    if size != entry.bytes:
        raise Damaged(f"{entry.file!r} has {size:,} instead of {entry.bytes:,} bytes; {AGAIN}")
    with path.open("rb") as file:
        if header_digest(file) != entry.header:
            raise Damaged(f"{entry.file!r} is damaged, or of another model; {AGAIN}")
    return path


def write_part(
    folder: Path, name: str, ranges: Sequence[Range], width: int, pieces: Iterable[Piece], n_outputs: int = 1
) -> Entry:
    """Write the features of some ranges to a file, and return its entry for the manifest.

    Parameters
    ----------
    folder : Path
        The folder of the model; it must exist.
    name : str
        Name of the file.
    ranges : sequence of (int, int)
        First feature, and the one after the last, of each range, in order.
    width : int
        Length of the vectors.
    pieces : iterable of (int, array, array)
        First feature, vectors and linear weights of some features, in the order of the ranges; together all of them.
    n_outputs : int
        Number of classes of a softmax, which are the first axis of arrays.
    """
    given = [(int(first), int(stop)) for first, stop in ranges if stop > first]
    n = sum(stop - first for first, stop in given)
    outer = (n,) if n_outputs == 1 else (n_outputs, n)
    tensors = {"factors": placeholder((*outer, width)), "linear": placeholder(outer)}
    description = {"part": {"ranges": [list(item) for item in given]}}
    path = folder / name
    try:
        with replacing(path) as file:
            write_tables(file, FORMAT, version(), description, tensors, ("factors", "linear"), _local(given, pieces))
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"cannot write {str(path)!r}: {error}") from error
    return entry_of(path, given)


def _local(ranges: Sequence[Range], pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield pieces with rows of the part instead of features; a piece lies in one range."""
    bounds = iter(ranges)
    first, stop = next(bounds, (0, 0))
    at, local = first, 0
    for feature, factors, linear in pieces:
        n = np.shape(linear)[-1]
        if at == stop:
            first, stop = next(bounds, (stop, stop))
            at = first
        if feature != at or at + n > stop:
            raise ValueError(
                f"a piece has the features {feature:,} to {feature + n - 1:,}, but the next ones of the part are "
                f"{at:,} to {stop - 1:,}"
            )
        yield local, factors, linear
        at, local = at + n, local + n


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a sharded model, mapped into memory: only what is used is read.

    Attributes
    ----------
    path : Path
        The file.
    ranges : tuple of (int, int)
        Its features.
    factors, linear : array
        Vectors and linear weights, with a first axis for outputs.
    """

    path: Path
    ranges: tuple[Range, ...]
    factors: Array
    linear: Array

    @staticmethod
    def open(folder: Path, entry: Entry, width: int, n_outputs: int) -> Part:
        """Map a part after comparing it with the manifest."""
        path = open_entry(folder, entry)
        with path.open("rb") as file:
            description, tensors = read_container(file, FORMAT, TABLES)
        found = [list(item) for item in entry.ranges]
        demand(description == {"part": {"ranges": found}}, f"{entry.file!r} has other features than the manifest says")
        n = sum(stop - first for first, stop in entry.ranges)
        outer = (n,) if n_outputs == 1 else (n_outputs, n)
        shapes = {name: values.shape for name, values in tensors.items()}
        demand(shapes == {"factors": (*outer, width), "linear": outer}, f"{entry.file!r} has arrays of other shapes")
        factors, linear = tensors["factors"], tensors["linear"]
        return Part(path, entry.ranges, factors.reshape(n_outputs, n, width), linear.reshape(n_outputs, n))

    def verify(self) -> None:
        """Raise an error if the arrays are damaged; reads the whole file."""
        with self.path.open("rb") as file:
            try:
                verify_container(file, FORMAT)
            except Damaged as error:
                raise Damaged(f"{self.path.name!r}: {error}; {AGAIN}") from error

    def rows(self, first: int, stop: int, at: int) -> tuple[Array, Array]:
        """Return copies of vectors and linear weights of neighboring rows of a range, which begins at row `at`."""
        return np.array(self.factors[:, at + first : at + stop]), np.array(self.linear[:, at + first : at + stop])


def range_locations(parts: Sequence[Part]) -> npt.NDArray[np.int64]:
    """Return first feature, part and row of every range, sorted by feature."""
    found = []
    for number, part in enumerate(parts):
        at = 0
        for first, stop in part.ranges:
            found.append((first, number, at))
            at += stop - first
    return np.array(sorted(found), np.int64).reshape(-1, 3)


def check_cover(ranges: Iterable[Range], n_features: int) -> None:
    """Raise unless every feature is in one range."""
    at = 0
    for first, stop in sorted(ranges):
        if first > at:
            raise Damaged(f"features {at:,} to {first - 1:,} are in no part")
        if first < at or stop <= first:
            raise Damaged(f"features {first:,} to {max(at, first + 1) - 1:,} are in two parts, or in an empty range")
        at = stop
    if at != n_features:
        raise Damaged(f"the parts have {at:,} of {n_features:,} features")
