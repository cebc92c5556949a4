"""Streams that Arrow reads in threads of its own, and that it must not touch once Python ends.

Python stops a thread that asks for its lock while it ends, which Arrow answers by aborting the process.
"""

from __future__ import annotations

import io
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import BinaryIO

import pyarrow as pa

# A stalled pipe does not hold up the end of a command for longer.
_SECONDS = 5.0


def in_memory(data: bytes) -> pa.NativeFile:
    """A copy of bytes in Arrow's own memory, which needs no lock of Python to be read and released.

    Examples
    --------
    >>> in_memory(b"a,b").read()
    b'a,b'
    """
    sink = pa.BufferOutputStream()
    sink.write(data)
    return pa.BufferReader(sink.getvalue())


@contextmanager
def released(stream: list[BinaryIO]) -> Iterator[None]:
    """At the end, wait until the stream in the list, which is taken out to be read, is used nowhere.

    Arrow reads ahead, and its thread may hold the stream for a moment longer than the reader is open.
    """
    gone: SimpleQueue[object] = SimpleQueue()
    # A function in C: in one of Python, the thread could be interrupted after the message and still need the lock.
    watch = weakref.ref(stream[0], gone.put)
    try:
        yield
    finally:
        if not sys.is_finalizing():  # then the thread can no longer let go
            with suppress(Empty):
                gone.get(timeout=_SECONDS)
        del watch


class Continued(io.RawIOBase):
    """A stream whose first bytes have been read already.

    Parameters
    ----------
    head : bytes
        The first bytes.
    rest : binary file
        Where the others come from.

    Examples
    --------
    >>> io.BufferedReader(Continued(b"ab", io.BytesIO(b"cd"))).read()
    b'abcd'
    """

    def __init__(self, head: bytes, rest: BinaryIO) -> None:
        self.head, self.rest = memoryview(head), rest

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override]  # what BufferedReader hands in
        """The next bytes."""
        data = self.head[: len(buffer)] or self.rest.read(len(buffer))
        self.head = self.head[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)
