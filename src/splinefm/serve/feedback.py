"""The log of predictions and outcomes: lines of JSON, one file for each hour and worker; and what it says about arms.

A line is one of two kinds. `at` is the time in seconds since 1970, `id` the request:

    {"at": ..., "id": "...", "arms": ["control"], "predictions": [0.1, 0.2], "keys": ["u1", "u2"]}
    {"at": ..., "id": "...", "row": 0, "outcome": 1.0}

`arms` has an entry for each row, or one for all. `keys` is there if the server has a key, `rows` (a list of objects) if
it logs rows, and `"shadow": true` if the arm was not shown. Lines of a file are in the order of time; the last one of a
worker that was killed may be cut off, and readers skip it.

An outcome is acknowledged once it is on the disk; `GroupCommit` shares one fsync among many requests.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Condition, Lock, Thread
from typing import Any, TextIO

from splinefm._arrays import Array

SUFFIX = ".jsonl"
Done = Callable[[OSError | None], None]
"""Called once a write is on the disk, or with what went wrong."""


class GroupCommit:
    """Makes writes durable in groups: many callers share one call of `sync`.

    Parameters
    ----------
    sync : callable
        Puts everything that was written before the call on the disk; may raise OSError.
    max_delay : float
        Seconds that the first caller of a group waits for others.
    max_waiting : int
        Callers of a group after which it does not wait any longer.

    Examples
    --------
    >>> calls = []
    >>> commit = GroupCommit(lambda: calls.append("sync"), max_delay=60.0, max_waiting=2)
    >>> commit.submit(calls.append)
    >>> commit.submit(calls.append)
    >>> commit.close()
    >>> calls
    ['sync', None, None]
    """

    def __init__(self, sync: Callable[[], None], *, max_delay: float = 0.002, max_waiting: int = 256) -> None:
        self._sync, self._max_delay, self._max_waiting = sync, max_delay, max_waiting
        self._waiting: list[Done] = []
        self._is_closed = False
        self._changed = Condition()
        self._thread: Thread | None = None

    def submit(self, done: Done) -> None:
        """Call `done` from another thread, once all that was written before this call is on the disk."""
        with self._changed:
            if self._is_closed:
                raise ValueError("the log is closed")
            self._waiting.append(done)
            if self._thread is None:  # a server without feedback needs no thread
                self._thread = Thread(target=self._run, name="commit", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Commit what waits, and end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _run(self) -> None:
        while group := self._next_group():
            error: OSError | None = None
            try:
                self._sync()
            except OSError as found:
                error = found
            for done in group:
                done(error)

    def _next_group(self) -> list[Done]:
        """Wait for a group; an empty one is the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._is_closed)
            self._changed.wait_for(
                lambda: len(self._waiting) >= self._max_waiting or self._is_closed, timeout=self._max_delay
            )
            group, self._waiting = self._waiting, []
            return group


class FeedbackLog:
    """Appends to the log; one for each worker.

    Parameters
    ----------
    folder : path
        The folder of the log; it is made if need be.
    worker : int
        Number of the worker, part of the file's name.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = FeedbackLog(folder, 0)
    ...     log.scored("r1", ["a"], np.array([0.25]), None, None)
    ...     log.outcome("r1", 0, 1.0)
    ...     log.close()
    ...     [sorted(line) for line in read_log(folder)]
    [['arms', 'at', 'id', 'predictions'], ['at', 'id', 'outcome', 'row']]
    """

    def __init__(self, folder: str | Path, worker: int) -> None:
        self._folder, self._worker = Path(folder), worker
        self._folder.mkdir(parents=True, exist_ok=True)
        self._hour = ""
        self._lock = Lock()  # long requests are logged on another thread
        self._file: TextIO | None = None
        self._unsynced: list[TextIO] = []  # files of earlier hours
        self._is_new = False  # whether the folder has a file whose name is not on the disk
        self._group = GroupCommit(self.sync)

    def scored(
        self,
        request_id: str,
        arms: Sequence[str],
        predictions: Array,
        keys: Sequence[Any] | None,
        rows: Sequence[Any] | None,
        *,
        shadow: bool = False,
    ) -> None:
        """Add the predictions of a request."""
        line: dict[str, Any] = {"at": time.time(), "id": request_id, "arms": list(arms)}
        line["predictions"] = predictions.tolist()
        if keys is not None:
            line["keys"] = list(keys)
        if rows is not None:
            line["rows"] = list(rows)
        if shadow:
            line["shadow"] = True
        self._write(line)

    def outcome(self, request_id: str, row: int, outcome: float) -> None:
        """Add what came of a row."""
        self._write({"at": time.time(), "id": request_id, "row": row, "outcome": outcome})

    def commit(self, done: Done) -> None:
        """Call `done` from another thread, once all lines so far are on the disk; requests share an fsync."""
        self._group.submit(done)

    def flush(self) -> None:
        """Hand the lines to the operating system."""
        with self._lock:
            if self._file is not None:
                self._file.flush()

    def sync(self) -> None:
        """Put all lines so far on the disk."""
        with self._lock:
            files = [*self._unsynced, *([] if self._file is None else [self._file])]
            for file in files:
                file.flush()
            # Copies of the descriptors: the lock is not held while the disk works, and an hour may end meanwhile.
            copies = [os.dup(file.fileno()) for file in files]
            earlier, self._unsynced = self._unsynced, []
            is_new, self._is_new = self._is_new, False
        try:
            if is_new:
                copies.append(os.open(self._folder, os.O_RDONLY))
            for descriptor in copies:
                os.fsync(descriptor)
        except OSError:
            with self._lock:
                self._unsynced, earlier, self._is_new = [*earlier, *self._unsynced], [], self._is_new or is_new
            raise
        finally:
            for descriptor in copies:
                os.close(descriptor)
            for file in earlier:
                file.close()

    def close(self) -> None:
        """Write what is left."""
        self._group.close()
        with self._lock:
            for file in [*self._unsynced, *([] if self._file is None else [self._file])]:
                file.close()
            self._unsynced, self._file = [], None

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, separators=(",", ":")) + "\n"
        hour = time.strftime("%Y-%m-%dT%H", time.gmtime(line["at"]))
        with self._lock:
            if self._file is None or hour != self._hour:
                if self._file is not None:
                    self._unsynced.append(self._file)
                self._hour, self._is_new = hour, True
                self._file = (self._folder / f"{hour}-{self._worker}{SUFFIX}").open("a", encoding="utf-8")
                if self._file.tell():  # a worker that was killed may have left half a line
                    self._file.write("\n")
            self._file.write(text)


def read_log(folder: str | Path) -> Iterator[dict[str, Any]]:
    """All lines of a log, file by file; those that were cut off are skipped."""
    for path in sorted(Path(folder).glob(f"*{SUFFIX}")):
        with path.open(encoding="utf-8", errors="replace") as file:
            for text in file:
                try:
                    line = json.loads(text)
                except ValueError:
                    continue
                if isinstance(line, dict):
                    yield line
