"""The flat image of a scorer file, which the C library maps into memory: a header, a table of sections, sections.

`cpp/c/image.hpp` describes the layout. Every section has a checksum.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from splinefm._arrays import Array

MAGIC = b"\x89SFS\r\n\x1a\n"
VERSION, WITH_OFFSET, WITH_LIMITS = 1, 2, 3
"""Versions of files: what a model has that earlier libraries do not know makes them refuse its file, as they must."""

SECTIONS = (
    *("meta", "tables", "factors", "linear", "between", "bias"),
    *("index", "index_tables", "ids", "offsets", "groups", "panels", "scales", "weights", "features"),
)
"""In the order of their numbers, see `cpp/c/image.hpp`; the second line is of an index."""
_LINE = 64  # sections begin at cache lines


class _Entry(NamedTuple):
    kind: int
    checksum: int
    offset: int
    size: int


def image_blocks(sections: dict[str, Array], version: int = VERSION) -> list[Any]:
    """The blocks of a file, one after the other."""
    blocks: list[Any] = []
    entries: list[_Entry] = []
    at = _padded(32 + struct.calcsize("<IIQQ") * len(sections))
    for name, values in sections.items():
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        entries.append(_Entry(SECTIONS.index(name), zlib.crc32(data), at, len(data)))
        blocks += [data, bytes(_padded(len(data)) - len(data))]
        at += _padded(len(data))
    table = b"".join(struct.pack("<IIQQ", *entry) for entry in entries)
    header = struct.pack("<8sIIQII", MAGIC, version, len(sections), at, 0, 0)
    checksum = zlib.crc32(table, zlib.crc32(header))
    header = struct.pack("<8sIIQII", MAGIC, version, len(sections), at, checksum, 0)
    head = header + table
    return [head, bytes(_padded(len(head)) - len(head)), *blocks]


def _padded(size: int) -> int:
    return -(-size // _LINE) * _LINE


class ImageWriter:
    """Words, texts and references to arrays, and the arrays."""

    def __init__(self) -> None:
        self.meta: list[bytes] = []
        self.tables: list[bytes] = []
        self.size = 0

    def integers(self, *values: int) -> None:
        """Add words."""
        self.meta.append(struct.pack(f"<{len(values)}q", *values))

    def numbers(self, *values: float) -> None:
        """Add numbers."""
        self.meta.append(struct.pack(f"<{len(values)}d", *values))

    def text(self, text: str) -> None:
        """Add a text."""
        data = text.encode()
        if b"\0" in data:
            raise ValueError(f"the name {text!r} has a zero byte, which C does not take; rename it")
        self.integers(len(data))
        self.meta.append(data + bytes(-len(data) % 8))

    def texts(self, texts: Sequence[str]) -> None:
        """Add the number of texts, then the texts."""
        self.integers(len(texts))
        for text in texts:
            self.text(text)

    def array(self, values: Array, dtype: npt.DTypeLike) -> None:
        """Add a reference to a copy of an array."""
        data = np.ascontiguousarray(values, dtype).tobytes()
        self.integers(self.size, np.size(values))
        self.tables.append(data + bytes(-len(data) % 8))
        self.size += len(self.tables[-1])

    def sections(self) -> tuple[Array, Array]:
        """Return the words and the arrays as two sections."""
        return np.frombuffer(b"".join(self.meta), np.uint8), np.frombuffer(b"".join(self.tables), np.uint8)
