"""Opening files that others may have put there: pipes and devices, which would block or never end, are errors."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

MAX_TEXT_BYTES = 1 << 28
"""The largest text file that is read as a whole: 256 MiB, a schema with millions of category names."""


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file to read it; anything else raises an error that says what it is.

    The type is that of the file that was opened, so that nothing can take its place in between.

    Examples
    --------
    >>> open_regular(Path(os.devnull))
    Traceback (most recent call last):
    OSError: '/dev/null' is a device, not a regular file; copy its content to a file, and pass the path of that
    """
    # Without O_NONBLOCK, opening a pipe waits for somebody to write to it.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(f"{str(path)!r} is a folder; pass the path of a file in it")
        if not stat.S_ISREG(mode):
            kind = "a named pipe" if stat.S_ISFIFO(mode) else "a device"
            raise OSError(
                f"{str(path)!r} is {kind}, not a regular file; copy its content to a file, and pass the path of that"
            )
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_text(path: Path, what: str, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Read a whole text file, of which a larger one is an error: it is not what it should be.

    Parameters
    ----------
    path : Path
        A regular file, in UTF-8.
    what : str
        What it should be, for the message, such as "a schema file".
    max_bytes : int
        The most bytes that are read.
    """
    with open_regular(path) as file:
        too_large = os.fstat(file.fileno()).st_size > max_bytes
        content = b"" if too_large else file.read(max_bytes + 1)  # it may grow meanwhile
    if too_large or len(content) > max_bytes:
        raise ValueError(f"{str(path)!r} is larger than {max_bytes:,} bytes, the most that {what} can have")
    return content.decode("utf-8").replace("\r\n", "\n")
