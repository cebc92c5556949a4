"""The ids of requests in a log, so that outcomes with an unknown id are noticed: a Bloom filter per day and worker.

A filter has no false negatives: an id that is called unknown is in no log of the folder. Some unknown ids pass as known
(about one in 1,000 for each file with a million ids). Each file has one writer; all workers read all files.
Files are read and written by system calls instead of being mapped: a full disk is then an error, not the end of the
process.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from threading import Lock

_SUFFIX = ".ids"
_WORD, _BITS = 8, 64
_N_WORDS = 1 << 19  # 4 MiB per worker and day; the file is sparse at first
_N_PROBES = 4
_DAYS, _DAY = 7, 86400.0


class RequestIds:
    """Remembers the ids of answered requests in the folder of a log, for a week.

    Parameters
    ----------
    folder : path
        The folder of the log, which workers share.
    worker : int or str
        Name of the process.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ids = RequestIds(folder, 0)
    ...     ids.add("r1", 0.0)
    ...     ids.unknown(["r1", "r2", "r2"], 60.0)
    ...     ids.close()
    {'r2'}
    """

    def __init__(self, folder: str | Path, worker: int | str) -> None:
        self._folder, self._worker = Path(folder), worker
        self._lock = Lock()
        self._day = ""
        self._file: int | None = None
        self._is_complete = True

    def add(self, request_id: str, now: float) -> None:
        """Remember an id; if the disk refuses, ids can no longer be called unknown."""
        at, mask = _place(request_id)
        day = _day_of(now)
        try:
            with self._lock:
                if self._file is None or day != self._day:
                    self._open(day)
                assert self._file is not None
                before = int.from_bytes(os.pread(self._file, _WORD, at), "little")
                if before | mask != before:
                    os.pwrite(self._file, (before | mask).to_bytes(_WORD, "little"), at)
        except OSError:
            self._is_complete = False

    def unknown(self, ids: Iterable[str], now: float) -> set[str] | None:
        """The ids that no worker has answered in the last week; None if that is not known."""
        missing = {name: _place(name) for name in ids}
        first = _day_of(now - _DAYS * _DAY)
        try:
            for path in sorted(self._folder.glob(f"*{_SUFFIX}"), reverse=True):  # most outcomes come soon
                if not missing or path.name < first:
                    break
                file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    missing = {name: place for name, place in missing.items() if not _is_in(file, *place)}
                finally:
                    os.close(file)
        except OSError:
            return None
        return set(missing) if self._is_complete else None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
            self._file = None

    def _open(self, day: str) -> None:
        file = os.open(self._folder / f"{day}-{self._worker}{_SUFFIX}", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(file, _N_WORDS * _WORD)
        except OSError:
            os.close(file)
            raise
        if self._file is not None:
            with suppress(OSError):
                os.close(self._file)
        self._file, self._day = file, day


def _place(request_id: str) -> tuple[int, int]:
    """Where the word of an id is, and its bits: one word per id, so that a probe is one read."""
    digest = int.from_bytes(blake2b(request_id.encode(errors="surrogatepass"), digest_size=16).digest(), "little")
    mask = 0
    for _ in range(_N_PROBES):
        digest, bit = divmod(digest, _BITS)
        mask |= 1 << bit
    return digest % _N_WORDS * _WORD, mask


def _is_in(file: int, at: int, mask: int) -> bool:
    return int.from_bytes(os.pread(file, _WORD, at), "little") & mask == mask


def _day_of(now: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(now))
