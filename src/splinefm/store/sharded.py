"""Sharded models: a folder with parts of the tables, for models larger than memory."""

from __future__ import annotations

import hashlib
import math
import os
import secrets
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from splinefm._arrays import Array, Int64Array
from splinefm._files import check_destination, replacing
from splinefm.model.family.parameters import param_shapes
from splinefm.store.container import (
    NO_DIGEST,
    Damaged,
    ModelFileError,
    as_bytes,
    header_digest,
    in_file_order,
    make_header,
    parse_json,
    read_container,
    require,
    stream_digest,
    to_json,
    verify_container,
    write_container,
)
from splinefm.store.model_file import FORMAT as MODEL_FORMAT
from splinefm.store.model_file import MANIFEST, MAPPED, describe_fitted, restore_fitted
from splinefm.train.fitted import Fitted

# Model files that are written piece by piece: the tables of parameters are never in memory as a whole.

TABLES = ("factors", "linear")
"""The parameters with a row per feature: all others are small."""
Piece = tuple[int, Array, Array]
"""The first feature of some neighboring ones, their vectors and their linear weights."""


def write_model(
    path: str | os.PathLike[str],
    head: Fitted,
    pieces: Iterable[Piece],
    before: Callable[[str], None] | None = None,
) -> None:
    """Write a model file from pieces of its tables; the bytes are those that `save` writes for the whole model.

    Parameters
    ----------
    path : path
        The file; an existing one is replaced in one step, or not at all.
    head : Fitted
        The model without "factors" and "linear" in its parameters.
    pieces : iterable of (int, array, array)
        First feature, vectors of shape (features, width), and linear weights, in the order of the features; together
        all of them. Several classes are a first axis, as in the parameters.
    before : callable, optional
        Called with the identity of the model before it replaces the file.

    Raises
    ------
    ModelFileError
        If pieces are missing, out of order, of another shape, or have NaN or infinity. The file is not written then.
    """
    target = check_destination(Path(path))
    try:
        description, tensors = describe_head(head)
        with replacing(target) as file:
            write_tables(file, MODEL_FORMAT, version(), description, tensors, MAPPED, pieces)
            if before is not None:
                before(header_digest(file))
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"cannot save to {str(path)!r}: {error}") from error


def describe_head(head: Fitted) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the description and arrays of a model; its tables are placeholders, which take no memory."""
    given = [name for name in TABLES if name in head.params]
    if given:
        raise ValueError(f"the head of a model has no {' and '.join(given)}: they come in pieces")
    shapes = param_shapes(head.model, head.encoder.layout, head.n_outputs)
    missing = [name for name in shapes if name not in head.params and name not in TABLES]
    if missing:
        raise ValueError(f"the head of the model lacks the parameters {', '.join(missing)}")
    params = {name: head.params.get(name, placeholder(shape)) for name, shape in shapes.items()}
    tensors: dict[str, Array] = {}
    description = describe_fitted(replace(head, params=params), tensors)
    # A description that cannot be read must not replace a file that can.
    restore_fitted(parse_json(to_json(description)), dict(tensors), mapped=True)
    return description, tensors


def placeholder(shape: tuple[int, ...]) -> Array:
    """Return an array of zeros that takes no memory."""
    return np.broadcast_to(np.zeros((), np.float32), shape)


def version() -> str:
    """Return the version of the package, which imports this module and hence is not imported here."""
    return str(sys.modules["splinefm"].__version__)


class _Table(NamedTuple):
    """Where the rows of a table are: of `outputs` tables one after the other, `n` rows of `shape` each."""

    name: str
    at: int
    outputs: int
    n: int
    shape: tuple[int, ...]

    def offset(self, output: int, row: int) -> int:
        return self.at + 4 * (output * self.n + row) * int(np.prod(self.shape, dtype=np.int64))


def write_tables(
    file: BinaryIO,
    number: int,
    written_by: str,
    description: Mapping[str, Any],
    tensors: Mapping[str, Array],
    names: tuple[str, str],
    pieces: Iterable[Piece],
) -> dict[str, str]:
    """Write a container whose tables of vectors and linear weights come in pieces; return all checksums.

    In `tensors`, the tables have placeholders, for their shapes.
    """
    checksums = {name: NO_DIGEST if name in names else _checksum(tensors[name]) for name in tensors}
    header = make_header(number, written_by, description, tensors, checksums)
    file.write(header)
    tables, at = {}, len(header)
    for name, values in in_file_order(tensors):
        if name in names:
            tables[name] = _table(name, at, values.shape, vectors=name == names[0])
        else:
            file.seek(at)
            file.write(as_bytes(values))
        at += values.nbytes
    file.truncate(at)
    checksums |= _write_pieces(file, [tables[name] for name in names], pieces)
    file.seek(0)
    file.write(make_header(number, written_by, description, tensors, checksums))
    return checksums


def _table(name: str, at: int, shape: tuple[int, ...], *, vectors: bool) -> _Table:
    inner = shape[-1:] if vectors else ()
    outer = shape[: len(shape) - len(inner)]
    return _Table(name, at, outer[0] if len(outer) == 2 else 1, outer[-1], inner)


def _write_pieces(file: BinaryIO, tables: list[_Table], pieces: Iterable[Piece]) -> dict[str, str]:
    """Write rows at their offsets, and return the checksums of the tables."""
    n, outputs = tables[0].n, tables[0].outputs
    streams = [hashlib.sha256() for _ in tables]
    at = 0
    for first, *arrays in pieces:
        if first != at:
            what = (
                f"of features {at:,} to {first - 1:,} is missing" if first > at else f"from {first:,} is out of order"
            )
            raise ValueError(f"a piece {what}; pieces must follow each other in the order of the features")
        checked = [_checked(table, given, at) for table, given in zip(tables, arrays, strict=True)]
        if len({values.shape[1] for values in checked}) > 1:
            sizes = " and ".join(f"{values.shape[1]:,}" for values in checked)
            raise ValueError(f"a piece at feature {at:,} has vectors and linear weights of {sizes} features")
        for table, stream, values in zip(tables, streams, checked, strict=True):
            for output in range(outputs):
                rows = as_bytes(values[output])
                file.seek(table.offset(output, at))
                file.write(rows)
                stream.update(rows)
        at += checked[0].shape[1]
    if at != n:
        raise ValueError(f"the pieces have {at:,} of {n:,} features")
    if outputs == 1:
        return {table.name: stream.hexdigest() for table, stream in zip(tables, streams, strict=True)}
    return {table.name: stream_digest(file, table.at, table.offset(outputs, 0)) for table in tables}


def _checked(table: _Table, given: Array, first: int) -> Array:
    """Return a piece with an axis for outputs; raise if it does not fit or is not finite."""
    values = np.ascontiguousarray(given, "<f4")
    if table.outputs == 1 and values.ndim == 1 + len(table.shape):
        values = values[None]
    fits = values.ndim == 2 + len(table.shape) and values.shape[0] == table.outputs and values.shape[2:] == table.shape
    if not fits or first + values.shape[1] > table.n:
        raise ValueError(
            f"a piece of {table.name} at feature {first:,} has shape {np.shape(given)}; there are {table.n:,} features"
            + (f" with vectors of {table.shape[0]}" if table.shape else "")
            + (f" for each of {table.outputs} classes" if table.outputs > 1 else "")
        )
    if not np.isfinite(values).all():
        raise ValueError(f"the model's parameters contain NaN or infinity, in {table.name}; fit it again")
    return values


def _checksum(values: Array) -> str:
    return hashlib.sha256(as_bytes(np.ascontiguousarray(values))).hexdigest()


# Parts of a sharded model: files that hold the vectors and linear weights of some features.

FORMAT = 1
Range = tuple[int, int]
"""The first feature, and the one after the last."""
ADVICE = "copy the folder again, or write the model again"


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
        require(isinstance(described, dict) and described.keys() == set(Entry._fields), "an entry is incomplete")
        name, ranges = described["file"], described["ranges"]
        # A manifest must not lead out of its folder.
        require(
            isinstance(name, str) and Path(name).name == name and name not in ("", ".."), f"a file is called {name!r}"
        )
        require(type(described["bytes"]) is int and isinstance(described["header"], str), f"{name} has a wrong entry")
        pairs = isinstance(ranges, list) and all(isinstance(item, list) and len(item) == 2 for item in ranges)
        require(pairs and all(type(number) is int for item in ranges for number in item), f"{name} has wrong ranges")
        return Entry(name, described["bytes"], described["header"], tuple((a, b) for a, b in ranges))


def make_entry(path: Path, ranges: Sequence[Range] = ()) -> Entry:
    """Return the entry of a file that was written."""
    with path.open("rb") as file:
        return Entry(path.name, path.stat().st_size, header_digest(file), tuple(ranges))


def open_entry(folder: Path, entry: Entry) -> Path:
    """Return the path of a file after comparing it with its entry; the content of arrays is not verified."""
    path = folder / entry.file
    if not path.is_file():
        raise ModelFileError(f"the file {entry.file!r} is missing; {ADVICE}")
    size = path.stat().st_size
    if size != entry.bytes:
        raise Damaged(f"{entry.file!r} has {size:,} instead of {entry.bytes:,} bytes; {ADVICE}")
    with path.open("rb") as file:
        if header_digest(file) != entry.header:
            raise Damaged(f"{entry.file!r} is damaged, or of another model; {ADVICE}")
    return path


def write_part(
    folder: Path, name: str, ranges: Sequence[Range], width: int, pieces: Iterable[Piece], n_outputs: int = 1
) -> Entry:
    """Write the features of some ranges to a file, and return its entry for the manifest.

    The ranges and the pieces, which together are all features of the ranges, are in order.
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
    return make_entry(path, given)


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
    """A part of a sharded model, mapped into memory: only what is used is read."""

    path: Path
    ranges: tuple[Range, ...]
    factors: Array  # with a first axis for outputs, as linear
    linear: Array

    @staticmethod
    def open(folder: Path, entry: Entry, width: int, n_outputs: int) -> Part:
        """Map a part after comparing it with the manifest."""
        path = open_entry(folder, entry)
        with path.open("rb") as file:
            description, tensors = read_container(file, FORMAT, TABLES)
        found = [list(item) for item in entry.ranges]
        require(description == {"part": {"ranges": found}}, f"{entry.file!r} has other features than the manifest says")
        n = sum(stop - first for first, stop in entry.ranges)
        outer = (n,) if n_outputs == 1 else (n_outputs, n)
        shapes = {name: values.shape for name, values in tensors.items()}
        require(shapes == {"factors": (*outer, width), "linear": outer}, f"{entry.file!r} has arrays of other shapes")
        factors, linear = tensors["factors"], tensors["linear"]
        return Part(path, entry.ranges, factors.reshape(n_outputs, n, width), linear.reshape(n_outputs, n))

    def verify(self) -> None:
        """Raise an error if the arrays are damaged; reads the whole file."""
        with self.path.open("rb") as file:
            try:
                verify_container(file, FORMAT)
            except Damaged as error:
                raise Damaged(f"{self.path.name!r}: {error}; {ADVICE}") from error

    def rows(self, first: int, stop: int, at: int) -> tuple[Array, Array]:
        """Return copies of vectors and linear weights of neighboring rows of a range, which begins at row `at`."""
        return np.array(self.factors[:, at + first : at + stop]), np.array(self.linear[:, at + first : at + stop])


def range_locations(parts: Sequence[Part]) -> Int64Array:
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


# Sharded models: a folder with parts of the tables, for models that no single machine holds.
#
# `manifest.json` is written last and in one step, and names all other files. Their names are different in every save,
# so that a folder always holds a complete model: the old one until the new manifest is there, and then the old parts
# are removed.

KIND = "splinefm sharded model"
_SUFFIXES = (".head", ".part")


@dataclass(frozen=True)
class Manifest:
    """What a folder holds; the format is raised when older releases would misread a folder."""

    version: str
    n_features: int
    width: int
    n_outputs: int
    head: Entry
    parts: tuple[Entry, ...]
    format: int = FORMAT

    def to_json(self) -> str:
        """Return JSON with a checksum of itself."""
        content = {
            "kind": KIND,
            "format": self.format,
            "version": self.version,
            "features": self.n_features,
            "width": self.width,
            "outputs": self.n_outputs,
            "head": self.head.to_dict(),
            "parts": [entry.to_dict() for entry in self.parts],
        }
        return to_json({**content, "sha256": _digest(content)}) + "\n"

    @staticmethod
    def read(folder: Path) -> Manifest:
        """Read the manifest of a folder."""
        path = folder / MANIFEST
        if not path.is_file():
            raise ModelFileError(f"it has no {MANIFEST}: it is not a sharded model, or writing it was interrupted")
        content = _parsed(path.read_bytes())
        number, digest = content["format"], content.pop("sha256", None)
        require(type(number) is int and number > 0, f"its format is {str(number)[:20]!r}")
        if number > FORMAT:
            raise ModelFileError(
                f"it has format {number} and was written by splinefm {str(content.get('version'))[:40]}; "
                f"this version reads formats up to {FORMAT}; upgrade splinefm"
            )
        require(digest == _digest(content), f"its {MANIFEST} is damaged")
        sizes = [content[name] for name in ("features", "width", "outputs")]
        require(all(type(size) is int and size > 0 for size in sizes), "its sizes are invalid")
        head, parts = Entry.from_dict(content["head"]), tuple(map(Entry.from_dict, content["parts"]))
        check_cover([item for entry in parts for item in entry.ranges], sizes[0])
        return Manifest(str(content["version"]), sizes[0], sizes[1], sizes[2], head, parts, number)


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        content = parse_json(text)
    except Damaged as error:
        raise Damaged(f"its {MANIFEST} is damaged or truncated") from error
    if not isinstance(content, dict) or content.get("kind") != KIND or "format" not in content:
        raise ModelFileError(f"its {MANIFEST} does not describe a sharded model")
    return content


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(to_json(content).encode()).hexdigest()


def shards_identity(folder: str | os.PathLike[str]) -> str:
    """Return the identity of a sharded model: the checksum of its manifest, which has the checksums of its files."""
    return hashlib.sha256((Path(folder) / MANIFEST).read_bytes()).hexdigest()


def is_sharded(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a folder with a sharded model, or with what is left of one."""
    folder = Path(path)
    return (folder / MANIFEST).is_file() or (folder.is_dir() and any(folder.glob("*.part")))


# Writing: process 0 begins and finishes, all processes write their parts in between.


def begin_shards(folder: str | os.PathLike[str]) -> str:
    """Create the folder of a sharded model, and return the name of this save, which all processes need.

    A folder that exists must be empty or hold a sharded model, which is kept until `finish_shards`.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{str(path)!r} is a file; a sharded model is a folder, so choose another name")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path.parent)!r}; create it first")
    path.mkdir(exist_ok=True)
    other = sorted(item.name for item in path.iterdir() if item.name != MANIFEST and not _is_part_file(item))
    if other:
        raise FileExistsError(f"the folder {str(path)!r} has other files, such as {other[0]!r}; choose a new folder")
    named = _files_of_manifest(path)
    if named is not None:  # what saves have left that were interrupted
        _remove_others(path, named)
    return secrets.token_hex(4)


def write_shard(
    folder: str | os.PathLike[str],
    save: str,
    number: int,
    ranges: Sequence[Range],
    head: Fitted,
    pieces: Iterable[Piece],
) -> Entry:
    """Write the part of one process, and return what process 0 needs to know of it.

    All processes must see the folder; `save` is what `begin_shards` returned, `number` the part's number, and `ranges`
    and `pieces` as in `write_part`. Of the head, only sizes are read.
    """
    width = head.model.width(len(head.encoder.fields))
    return write_part(Path(folder), f"{save}-{number:05d}.part", ranges, width, pieces, head.n_outputs)


def finish_shards(
    folder: str | os.PathLike[str],
    save: str,
    head: Fitted,
    entries: Sequence[Entry],
    before: Callable[[str], None] | None = None,
) -> Manifest:
    """Write the head and the manifest, after which the folder holds the new model; then remove the old one.

    `entries` has one of each process; `before` is called with the identity of the model before it replaces an older
    one.
    """
    path, n_features = Path(folder), head.encoder.layout.n_features
    try:
        check_cover([item for entry in entries for item in entry.ranges], n_features)
        description, tensors = describe_head(head)
        small = {name: values for name, values in tensors.items() if name not in MAPPED}
        file_name = f"{save}.head"
        with replacing(path / file_name) as file:
            write_container(file, MODEL_FORMAT, version(), {"head": description}, small)
        for entry in entries:  # another machine may have written it to another disk
            open_entry(path, entry)
    except (ValueError, TypeError) as error:
        raise ModelFileError(f"cannot save to {str(path)!r}: {error}") from error
    width = head.model.width(len(head.encoder.fields))
    parts = tuple(sorted(entries, key=lambda entry: entry.file))
    manifest = Manifest(version(), n_features, width, head.n_outputs, make_entry(path / file_name), parts)
    with replacing(path / MANIFEST) as file:
        file.write(manifest.to_json().encode())
        if before is not None:
            before(hashlib.sha256(manifest.to_json().encode()).hexdigest())
    _remove_others(path, {manifest.head.file, *(entry.file for entry in parts)})
    return manifest


@contextmanager
def removing_parts_on_error(folder: str | os.PathLike[str], save: str) -> Iterator[None]:
    """Remove the files of a save on an error, which a full disk needs, unless the manifest names them already."""
    try:
        yield
    except BaseException:
        path = Path(folder)
        with suppress(OSError):
            others = {item.name for item in path.iterdir() if not item.name.startswith(save)}
            _remove_others(path, others | (_files_of_manifest(path) or set()))
        raise


def _files_of_manifest(folder: Path) -> set[str] | None:
    """Return the files that the manifest names: none if there is no manifest, None if it cannot be read."""
    if not (folder / MANIFEST).exists():
        return set()
    try:
        manifest = Manifest.read(folder)
    except (ModelFileError, OSError, KeyError, TypeError):
        return None
    return {manifest.head.file, *(entry.file for entry in manifest.parts)}


def _is_part_file(path: Path) -> bool:
    return path.is_file() and path.name.endswith(_SUFFIXES)


def _remove_others(folder: Path, kept: set[str]) -> None:
    for path in folder.iterdir():
        if _is_part_file(path) and path.name not in kept:
            with suppress(OSError):  # it is only in the way; a process on Windows may still read it
                path.unlink()


def read_head(folder: Path, manifest: Manifest) -> Fitted:
    """Return the model without "factors" and "linear" in its parameters."""
    with open_entry(folder, manifest.head).open("rb") as file:
        content, tensors = read_container(file, MODEL_FORMAT)
    require(content.keys() == {"head"}, f"{manifest.head.file!r} is not the head of a model")
    outer = (manifest.n_features,) if manifest.n_outputs == 1 else (manifest.n_outputs, manifest.n_features)
    tables = dict(zip(MAPPED, (placeholder((*outer, manifest.width)), placeholder(outer)), strict=True))
    fitted = restore_fitted(content["head"], {**tensors, **tables}, mapped=True)
    params = {name: values for name, values in fitted.params.items() if name not in TABLES}
    return replace(fitted, params=params)


def count_parameters(head: Fitted) -> int:
    """Return the number of parameters of a model, including its tables."""
    return sum(map(math.prod, param_shapes(head.model, head.encoder.layout, head.n_outputs).values()))


def load_error(folder: Path, error: Exception) -> ModelFileError:
    """Return an error that names the folder and says what to do."""
    advice = f"; {ADVICE}" if isinstance(error, Damaged) and ADVICE not in str(error) else ""
    kind = "" if isinstance(error, ModelFileError) else "it is damaged: "
    return ModelFileError(f"cannot load the sharded model {str(folder)!r}: {kind}{str(error)[:300]}{advice}")
