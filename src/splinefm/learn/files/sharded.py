"""Sharded models: a folder with parts of the tables, for models that no single machine holds.

`manifest.json` is written last and in one step, and names all other files. Their names are different in every save, so
that a folder always holds a complete model: the old one until the new manifest is there, and then the old parts are
removed.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from splinefm._writing import replacing
from splinefm.learn.files.container import (
    Damaged,
    ModelFileError,
    demand,
    parse_json,
    read_container,
    to_json,
    write_container,
)
from splinefm.learn.files.modelfile import FORMAT as MODEL_FORMAT
from splinefm.learn.files.modelfile import MANIFEST
from splinefm.learn.files.parts import AGAIN, Entry, Range, check_cover, entry_of, open_entry, write_part
from splinefm.learn.files.restore import MAPPED, restore_fitted
from splinefm.learn.files.streaming import TABLES, Piece, describe_head, placeholder, version
from splinefm.learn.fitted import Fitted
from splinefm.model.family import param_shapes

KIND = "splinefm sharded model"
FORMAT = 1
_SUFFIXES = (".head", ".part")


@dataclass(frozen=True)
class Manifest:
    """What a folder holds.

    Attributes
    ----------
    version : str
        The version that wrote it.
    n_features, width, n_outputs : int
        Shape of the tables.
    head : Entry
        The file with everything but the tables.
    parts : tuple of Entry
        The files with the tables.
    format : int
        Raised when older releases would misread a folder.
    """

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
        demand(type(number) is int and number > 0, f"its format is {str(number)[:20]!r}")
        if number > FORMAT:
            raise ModelFileError(
                f"it has format {number} and was written by splinefm {str(content.get('version'))[:40]}; "
                f"this version reads formats up to {FORMAT}; upgrade splinefm"
            )
        demand(digest == _digest(content), f"its {MANIFEST} is damaged")
        sizes = [content[name] for name in ("features", "width", "outputs")]
        demand(all(type(size) is int and size > 0 for size in sizes), "its sizes are invalid")
        head, parts = Entry.from_dict(content["head"]), tuple(map(Entry.from_dict, content["parts"]))
        check_cover([item for entry in parts for item in entry.ranges], sizes[0])
        return Manifest(str(content["version"]), sizes[0], sizes[1], sizes[2], head, parts, number)


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        content = parse_json(text)
    except Damaged as error:
        raise Damaged(f"its {MANIFEST} is damaged or truncated") from error
    if not isinstance(content, dict) or content.get("kind") != KIND or "format" not in content:
        raise ModelFileError(f"its {MANIFEST} is not that of a sharded model")
    return content


def _digest(content: dict[str, Any]) -> str:
    return hashlib.sha256(to_json(content).encode()).hexdigest()


def shards_identity(folder: str | os.PathLike[str]) -> str:
    """Return the identity of a sharded model: the checksum of its manifest, which has those of its files."""
    return hashlib.sha256((Path(folder) / MANIFEST).read_bytes()).hexdigest()


def is_sharded(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a folder with a sharded model, or with what is left of one."""
    folder = Path(path)
    return (folder / MANIFEST).is_file() or (folder.is_dir() and any(folder.glob("*.part")))


# Writing: rank 0 begins and finishes, all ranks write their parts in between.


def begin_shards(folder: str | os.PathLike[str]) -> str:
    """Create the folder of a sharded model, and return the name of this save, which all ranks need.

    A folder that exists must be empty or hold a sharded model, which is kept until `finish_shards`.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{str(path)!r} is a file; a sharded model is a folder, so choose another name")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path.parent)!r}; create it first")
    path.mkdir(exist_ok=True)
    other = sorted(item.name for item in path.iterdir() if item.name != MANIFEST and not _is_ours(item))
    if other:
        raise FileExistsError(f"the folder {str(path)!r} has other files, such as {other[0]!r}; choose a new folder")
    named = _named(path)
    if named is not None:  # what saves have left that were interrupted
        _remove_others(path, named)
    return secrets.token_hex(4)


def write_shard(
    folder: str | os.PathLike[str], save: str, rank: int, ranges: Sequence[Range], head: Fitted, pieces: Iterable[Piece]
) -> Entry:
    """Write the part of one rank, and return what rank 0 needs to know of it.

    Parameters
    ----------
    folder : path
        The folder, which all ranks must see.
    save : str
        What `begin_shards` returned.
    rank : int
        Number of the part.
    ranges : sequence of (int, int)
        The features of this rank: the first, and the one after the last, of each range, in order.
    head : Fitted
        The model without "factors" and "linear" in its parameters; only sizes are read.
    pieces : iterable of (int, array, array)
        First feature, vectors and linear weights of some features, in the order of the ranges; together all of them.
    """
    width = head.model.width(len(head.encoder.fields))
    return write_part(Path(folder), f"{save}-{rank:05d}.part", ranges, width, pieces, head.n_outputs)


def finish_shards(
    folder: str | os.PathLike[str],
    save: str,
    head: Fitted,
    entries: Sequence[Entry],
    before: Callable[[str], None] | None = None,
) -> Manifest:
    """Write the head and the manifest, after which the folder holds the new model; then remove the old one.

    Parameters
    ----------
    folder, save
        As for `write_shard`.
    head : Fitted
        The model without its tables.
    entries : sequence of Entry
        Those of all ranks.
    before : callable, optional
        Called with the identity of the model before it replaces an older one.
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
    manifest = Manifest(version(), n_features, width, head.n_outputs, entry_of(path / file_name), parts)
    with replacing(path / MANIFEST) as file:
        file.write(manifest.to_json().encode())
        if before is not None:
            before(hashlib.sha256(manifest.to_json().encode()).hexdigest())
    _remove_others(path, {manifest.head.file, *(entry.file for entry in parts)})
    return manifest


@contextmanager
def removing_parts(folder: str | os.PathLike[str], save: str) -> Iterator[None]:
    """Remove the files of a save on an error, which a full disk needs, unless the manifest names them already."""
    try:
        yield
    except BaseException:
        path = Path(folder)
        with suppress(OSError):
            others = {item.name for item in path.iterdir() if not item.name.startswith(save)}
            _remove_others(path, others | (_named(path) or set()))
        raise


def _named(folder: Path) -> set[str] | None:
    """Return the files that the manifest names: none if there is no manifest, None if it cannot be read."""
    if not (folder / MANIFEST).exists():
        return set()
    try:
        manifest = Manifest.read(folder)
    except (ModelFileError, OSError, KeyError, TypeError):
        return None
    return {manifest.head.file, *(entry.file for entry in manifest.parts)}


def _is_ours(path: Path) -> bool:
    return path.is_file() and path.name.endswith(_SUFFIXES)


def _remove_others(folder: Path, kept: set[str]) -> None:
    for path in folder.iterdir():
        if _is_ours(path) and path.name not in kept:
            with suppress(OSError):  # it is only in the way; a process on Windows may still read it
                path.unlink()


def read_head(folder: Path, manifest: Manifest) -> Fitted:
    """Return the model without "factors" and "linear" in its parameters."""
    with open_entry(folder, manifest.head).open("rb") as file:
        content, tensors = read_container(file, MODEL_FORMAT)
    demand(content.keys() == {"head"}, f"{manifest.head.file!r} is not the head of a model")
    outer = (manifest.n_features,) if manifest.n_outputs == 1 else (manifest.n_outputs, manifest.n_features)
    tables = dict(zip(MAPPED, (placeholder((*outer, manifest.width)), placeholder(outer)), strict=True))
    fitted = restore_fitted(content["head"], {**tensors, **tables}, mapped=True)
    params = {name: values for name, values in fitted.params.items() if name not in TABLES}
    return replace(fitted, params=params)


def count_parameters(head: Fitted) -> int:
    """Return the number of parameters of a model, those of its tables included."""
    total = 0
    for shape in param_shapes(head.model, head.encoder.layout, head.n_outputs).values():
        size = 1
        for length in shape:
            size *= length
        total += size
    return total


def explain(folder: Path, error: Exception) -> ModelFileError:
    """Return an error that names the folder and says what to do."""
    advice = f"; {AGAIN}" if isinstance(error, Damaged) and AGAIN not in str(error) else ""
    kind = "" if isinstance(error, ModelFileError) else "it is damaged: "
    return ModelFileError(f"cannot load the sharded model {str(folder)!r}: {kind}{str(error)[:300]}{advice}")
