"""Which process works on a trial, whether it is still alive, and which one writes to a journal."""

from __future__ import annotations

import datetime
import math
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from threading import Lock
from typing import Any

with suppress(ImportError):  # Windows, where Optuna's own lock is used
    import fcntl

PROCESS = "process"
"""The attribute of a trial that has the host and the process number."""
# Whether a process on another machine is alive cannot be checked: it counts as alive for this many seconds. So does a
# trial that has just begun and does not name its process yet.
_ALIVE_ELSEWHERE, _ALIVE_UNKNOWN = 3600.0, 20.0
_BLOCK = 1 << 16


def this_process() -> list[str | int]:
    """Return the host and the number of this process."""
    return [socket.gethostname(), os.getpid()]


def is_alive(attributes: Mapping[str, Any], begun: datetime.datetime | None) -> bool:
    """Return whether a process works on a trial, as far as can be known: a killed process leaves its trial behind."""
    age = math.inf if begun is None else abs((datetime.datetime.now() - begun).total_seconds())
    host, pid = attributes.get(PROCESS, (None, None))
    if host is None:
        return age < _ALIVE_UNKNOWN
    if host != socket.gethostname() or os.name != "posix":  # elsewhere, os.kill would end the process
        return age < _ALIVE_ELSEWHERE
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class JournalLock:
    """The lock of a journal, in the form that Optuna asks for; the system releases it when a process is killed.

    Optuna's own locks are files, which a killed process leaves behind: others wait for half a minute then.

    Parameters
    ----------
    path : Path
        The journal.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "study.journal")
    ...     _ = path.write_bytes(b'{"a": 1}\\n{"b"')  # the process was killed, or the disk full
    ...     lock = JournalLock(path)
    ...     _ = lock.acquire()
    ...     lock.release()
    ...     path.read_bytes()
    b'{"a": 1}\\n'
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._threads = Lock()
        self._descriptor = -1

    def acquire(self) -> bool:
        """Wait for the lock, and remove half a line at the end, after which Optuna could not read the journal."""
        self._threads.acquire()
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            _cut(self._descriptor)
        except BaseException:
            self.release()
            raise
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
        self._threads.release()


def _cut(descriptor: int) -> None:
    """Remove what follows the last end of a line."""
    size = at = os.lseek(descriptor, 0, os.SEEK_END)
    while at:
        begin = max(0, at - _BLOCK)
        found = os.pread(descriptor, at - begin, begin).rfind(b"\n")
        at = begin + found + 1 if found >= 0 else begin
        if found >= 0:
            break
    if at < size:
        os.ftruncate(descriptor, at)
