"""The container of a model file: a JSON description and arrays, with checksums over every byte.

It is a safetensors file: eight bytes with the length of the header, the JSON header, and the arrays end to end. This
module reads and writes it without the safetensors package for two reasons. One open file serves header, arrays and
memory map, so a file that is replaced meanwhile cannot mix with its successor. And error messages say what is wrong.
The tests compare both directions with the package.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from splinefm._arrays import Array
from splinefm._files import open_regular

# In the order of the safetensors package: the widest first, so that all arrays are aligned.
DTYPES: dict[str, np.dtype[Any]] = {
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "U8": np.dtype("u1"),
}
_START = b'{"__metadata__":{"splinefm":'
NO_DIGEST = "0" * 64
_MAX_HEADER = 16 << 20
_MAX_DIMENSIONS = 5
_READ = 1 << 24


class ModelFileError(ValueError):
    """A model file cannot be written or read; the message says what to do.

    Examples
    --------
    >>> issubclass(ModelFileError, ValueError)
    True
    """


class NotAModelFile(ModelFileError):
    """The file is not a model file."""

    def __init__(self) -> None:
        super().__init__("it is not a model file; Fitted.save and splinefm fit write model files")


class Damaged(ModelFileError):
    """The content of a file is inconsistent; the message says where."""


@contextmanager
def opened(path: Path, advice: str) -> Iterator[BinaryIO]:
    """Open a file to read it; errors in its content name the file and say what to do."""
    failed = f"cannot load {str(path)!r}"
    with open_regular(path) as file:
        try:
            yield file
        except (OSError, MemoryError):
            raise
        except Damaged as error:
            raise ModelFileError(f"{failed}: {error}; {advice}") from error
        except ModelFileError as error:
            raise ModelFileError(f"{failed}: {error}") from error
        except Exception as error:  # an invalid description can raise anything
            raise ModelFileError(f"{failed}: it is damaged ({str(error)[:200]}); {advice}") from error


def require(condition: bool, message: str) -> None:
    """Raise `Damaged` unless the condition holds."""
    if not condition:
        raise Damaged(message)


def write_container(
    file: BinaryIO, number: int, version: str, description: Mapping[str, Any], tensors: Mapping[str, Array]
) -> None:
    """Write a description with its format number and version, and arrays."""
    checksums = {name: _digest(values) for name, values in tensors.items()}
    file.write(make_header(number, version, description, tensors, checksums))
    for _, values in in_file_order(tensors):
        file.write(as_bytes(values))


def make_header(
    number: int,
    version: str,
    description: Mapping[str, Any],
    tensors: Mapping[str, Array],
    checksums: Mapping[str, str],
) -> bytes:
    """Return everything before the arrays, of which only types and shapes are read.

    Its length depends neither on the checksums nor on the content of the arrays, so that a header can be written again
    once they are known.
    """
    envelope = {
        "sha256": NO_DIGEST,  # first, because `_seal` replaces the first digest of the header
        "format": number,
        "version": version,
        **description,
        "checksums": dict(checksums),
    }
    code = {dtype: name for name, dtype in DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": {"splinefm": to_json(envelope)}}
    at = 0
    for name, values in in_file_order(tensors):
        offsets = [at, at + values.nbytes]
        header[name] = {"dtype": code[values.dtype], "shape": list(values.shape), "data_offsets": offsets}
        at += values.nbytes
    encoded = to_json(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    if len(encoded) > _MAX_HEADER:
        raise ModelFileError(f"the description takes {len(encoded):,} bytes; the limit is {_MAX_HEADER:,}")
    return _seal(len(encoded).to_bytes(8, "little") + encoded)


def in_file_order(tensors: Mapping[str, Array]) -> list[tuple[str, Array]]:
    """Return the arrays in the order of the file: the widest types first, then by name."""
    rank = {dtype: i for i, dtype in enumerate(DTYPES.values())}
    return sorted(tensors.items(), key=lambda item: (rank[item[1].dtype], item[0]))


def read_container(
    file: BinaryIO, newest: int, mapped: Collection[str] = ()
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return the description and arrays of a file with format `newest` or lower.

    The checksums of mapped arrays are not verified.
    """
    description, checksums, entries = _open_container(file, newest)
    # Private pages: writes stay in memory, and kernels see ordinary writable arrays.
    whole = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) if mapped else None
    tensors = {}
    for name, entry in entries.items():
        if whole is not None and name in mapped and entry.begin % entry.dtype.itemsize == 0:
            tensors[name] = np.frombuffer(whole, entry.dtype, math.prod(entry.shape), entry.begin).reshape(entry.shape)
            continue
        values = np.empty(entry.shape, entry.dtype)
        file.seek(entry.begin)
        file.readinto(as_bytes(values))  # type: ignore[attr-defined]  # BinaryIO lacks what every such file has
        require(_digest(values) == checksums[name], f"the array {name!r} is damaged")
        tensors[name] = values
    return description, tensors


def verify_container(file: BinaryIO, newest: int) -> None:
    """Raise an error unless all arrays have their checksums; little of them is in memory at a time."""
    _, checksums, entries = _open_container(file, newest)
    for name, entry in entries.items():
        digest = stream_digest(file, entry.begin, entry.begin + entry.size)
        require(digest == checksums[name], f"the array {name!r} is damaged")


def stream_digest(file: BinaryIO, begin: int, end: int) -> str:
    """Return the checksum of a part of a file."""
    file.seek(begin)
    stream, left = hashlib.sha256(), end - begin
    while left:
        data = file.read(min(left, _READ))
        require(len(data) > 0, "it is truncated")
        stream.update(data)
        left -= len(data)
    return stream.hexdigest()


def header_digest(file: BinaryIO) -> str:
    """Return the checksum of everything before the arrays, the checksums of which it includes."""
    file.seek(0)
    return stream_digest(file, 0, 8 + int.from_bytes(file.read(8), "little"))


def _open_container(file: BinaryIO, newest: int) -> tuple[dict[str, Any], dict[str, str], dict[str, _Entry]]:
    """Return the description, the checksums and the entries of the arrays, with offsets in the file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    header = _read_header(file, size)
    content = _parse_header(header)
    description = _open_envelope(content.pop("__metadata__"), header, newest)
    entries = _entries(content, size - len(header))
    checksums = description.pop("checksums", None)
    require(isinstance(checksums, dict) and checksums.keys() == entries.keys(), "checksums and arrays do not match")
    located = {name: entry._replace(begin=len(header) + entry.begin) for name, entry in entries.items()}
    return description, checksums, located


def take_array(tensors: dict[str, Array], name: str, dtype: str, ndim: int) -> Array:
    """Remove an array of a file from those that are left to read, and return it; it must have this type and shape."""
    values = tensors.pop(name, None)
    if values is None:
        raise Damaged(f"the array {name!r} is missing")
    require(values.dtype == DTYPES[dtype], f"{name} has the type {values.dtype} instead of {DTYPES[dtype]}")
    require(values.ndim == ndim, f"{name} has {values.ndim} dimensions instead of {ndim}")
    return np.require(values, requirements="A")  # arrays in our files are aligned


class _Entry(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    begin: int
    size: int


def _read_header(file: BinaryIO, size: int) -> bytes:
    """Return the header, including its length in front."""
    require(size > 0, "it is empty")
    prefix = file.read(8)
    length = int.from_bytes(prefix, "little")
    if size < 8 or length > min(size - 8, _MAX_HEADER):
        require(file.read(len(_START)) != _START, f"it is truncated, or the length of its header is wrong ({length:,})")
        raise NotAModelFile
    return prefix + file.read(length)


def _parse_header(header: bytes) -> dict[str, Any]:
    try:
        content = parse_json(header[8:])
        known = isinstance(content["__metadata__"]["splinefm"], str)
    except (Damaged, KeyError, TypeError) as error:
        require(not header[8:].startswith(_START), "its header is damaged")
        raise NotAModelFile from error
    require(known, "its description is not text")
    return dict(content)


def _open_envelope(metadata: dict[str, str], header: bytes, newest: int) -> dict[str, Any]:
    """Return the description after verifying the format and the checksum of the header."""
    description = parse_json(metadata["splinefm"])
    require(isinstance(description, dict), "its description is damaged")
    digest, number, version = (description.pop(name, None) for name in ("sha256", "format", "version"))
    require(type(number) is int and number > 0, f"its format is {str(number)[:20]!r}")
    if number > newest:
        raise ModelFileError(
            f"it has format {number} and was written by splinefm {str(version)[:40]}; "
            f"this version reads formats up to {newest}; upgrade splinefm"
        )
    require(isinstance(digest, str) and len(digest) == len(NO_DIGEST), "its header has no checksum")
    require(_seal(header, digest) == header, "its header is damaged")
    return dict(description)


def _seal(header: bytes, digest: str = NO_DIGEST) -> bytes:
    """Return the header with `digest` replaced by the checksum of the header with zeros there."""
    plain = header.replace(digest.encode(), NO_DIGEST.encode(), 1)
    return plain.replace(NO_DIGEST.encode(), hashlib.sha256(plain).hexdigest().encode(), 1)


def _entries(content: dict[str, Any], payload: int) -> dict[str, _Entry]:
    """Return the position of each array; together they must fill the rest of the file without gaps."""
    entries = {name: _entry(name, value) for name, value in content.items()}
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].size)):
        require(entry.begin == at, f"the array {name!r} overlaps another or leaves a gap")
        at += entry.size
    require(payload >= at, f"it is truncated: {at - payload:,} bytes are missing")
    require(payload == at, f"it has {payload - at:,} extra bytes")
    return entries


def _entry(name: str, value: Any) -> _Entry:
    what = f"the header entry of the array {name!r} is damaged"
    require(isinstance(value, dict) and value.keys() == {"dtype", "shape", "data_offsets"}, what)
    shape, offsets, dtype = value["shape"], value["data_offsets"], value["dtype"]
    require(isinstance(dtype, str) and dtype in DTYPES and _are_sizes(shape) and _are_sizes(offsets), what)
    require(len(shape) <= _MAX_DIMENSIONS and len(offsets) == 2, what)
    size = math.prod(shape) * DTYPES[dtype].itemsize
    require(offsets[1] - offsets[0] == size, what)
    return _Entry(DTYPES[dtype], tuple(shape), offsets[0], size)


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(value) is int and 0 <= value < 2**63 for value in values)


def as_bytes(values: Array) -> memoryview:
    """Return the bytes of an array, without a copy."""
    return values.reshape(-1).view(np.uint8).data


def _digest(values: Array) -> str:
    return hashlib.sha256(as_bytes(values)).hexdigest()


def to_json(value: Any) -> str:
    """Return compact JSON."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def parse_json(text: str | bytes) -> Any:
    """Parse JSON; repeated names, which readers can interpret differently, and text that is not Unicode are errors."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
        json.dumps(value, ensure_ascii=False).encode()  # JSON can hold halves of surrogate pairs
        return value
    except (ValueError, RecursionError) as error:
        raise Damaged(f"its header is damaged ({type(error).__name__})") from error


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    unique = dict(pairs)
    require(len(unique) == len(pairs), "its header has a repeated name")
    return unique
