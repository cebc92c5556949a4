"""The log of predictions and outcomes: lines of JSON, one file for each hour and worker; and what it says about arms.

A line is one of two kinds. `at` is the time in seconds since 1970, `id` the request:

    {"at": ..., "id": "...", "arms": ["control"], "predictions": [0.1, 0.2], "keys": ["u1", "u2"]}
    {"at": ..., "id": "...", "row": 0, "outcome": 1.0}

`arms` has an entry for each row, or one for all. `keys` is there if the server has a key, `rows` (a list of objects) if
it logs rows, and `"shadow": true` if the arm was not shown. `versions` has the version of each arm. A ranking has
`items`, the ids in the order of their positions, and `scores`; its `context` is there if rows are logged. Lines of a
file are in the order of time; the last one of a worker that was killed may be cut off, and readers skip it.

An outcome is acknowledged once it is on the disk; `GroupCommit` shares one fsync among many requests.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Condition, Lock, Thread
from typing import Any, Literal

import pyarrow as pa

from splinefm._arrays import Array
from splinefm.serve.bodies import LogHead, read_head
from splinefm.serve.request_ids import RequestIds

SUFFIX = ".jsonl"
_BUFFER, _MAX_BUFFER = 1 << 16, 4 << 20
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
    """Appends to the log; one for each process. Writes are buffered until `flush`, `sync`, or 64 KiB.

    Parameters
    ----------
    folder : path
        The folder of the log; it is made if need be.
    worker : int or str
        What the process is called in the names of its files.

    Attributes
    ----------
    error : OSError or None
        Why the last write failed. The lines are kept, up to 4 MiB, and written once that is possible.

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

    def __init__(self, folder: str | Path, worker: int | str) -> None:
        self._folder, self._worker = Path(folder), worker
        self._folder.mkdir(parents=True, exist_ok=True)
        self._hour = ""
        self._lock = Lock()  # long requests are logged on another thread
        self._file: int | None = None
        self._buffer = bytearray()
        self._unsynced: list[int] = []  # files of earlier hours
        self._is_new = False  # whether the folder has a file whose name is not on the disk
        self._group = GroupCommit(self.sync)
        self._ids = RequestIds(self._folder, worker)
        self.error: OSError | None = None
        self.n_dropped = 0

    def scored(
        self,
        request_id: str,
        arms: Sequence[str],
        predictions: Array,
        keys: Sequence[Any] | None,
        rows: Sequence[Any] | None,
        *,
        shadow: bool = False,
        **more: Any,
    ) -> None:
        """Add the predictions of a request; a log that cannot be written is told by `error`, and raises nothing."""
        line: dict[str, Any] = {"at": time.time(), "id": request_id, "arms": list(arms)}
        line["predictions"] = predictions.tolist()
        self._ids.add(request_id, line["at"])
        if keys is not None:
            line["keys"] = list(keys)
        if rows is not None:
            line["rows"] = list(rows)
        if shadow:
            line["shadow"] = True
        with suppress(OSError):  # told by `error`
            self._write(line | {name: value for name, value in more.items() if value is not None})

    def outcome(self, request_id: str, row: int, outcome: float) -> None:
        """Add the outcome of a row."""
        self._write({"at": time.time(), "id": request_id, "row": row, "outcome": outcome})

    def n_unknown(self, request_ids: Sequence[str]) -> int | None:
        """How many of these ids no worker has logged in the last week; None if that is not known."""
        unknown = self._ids.unknown(request_ids, time.time())
        return None if unknown is None else sum(name in unknown for name in request_ids)

    def commit(self, done: Done) -> None:
        """Call `done` from another thread, once all lines so far are on the disk."""
        self._group.submit(done)

    def flush(self) -> None:
        """Hand all lines so far to the operating system."""
        with self._lock:
            self._flush()

    def sync(self) -> None:
        """Put all lines so far on the disk."""
        with self._lock:
            self._flush()
            # Copies of the descriptors: the lock is not held while the disk works, and an hour may end meanwhile.
            copies = [os.dup(file) for file in (*self._unsynced, *([] if self._file is None else [self._file]))]
            earlier, self._unsynced = self._unsynced, []
            is_new, self._is_new = self._is_new, False
        try:
            if is_new:
                copies.append(os.open(self._folder, os.O_RDONLY))
            for descriptor in copies:
                os.fsync(descriptor)
        except OSError as error:
            with self._lock:
                self._unsynced, earlier, self._is_new = [*earlier, *self._unsynced], [], self._is_new or is_new
                self.error = error
            raise
        finally:
            for descriptor in (*copies, *earlier):
                os.close(descriptor)

    def close(self) -> None:
        """Write what is left."""
        self._group.close()
        self._ids.close()
        with self._lock:
            with suppress(OSError):
                self._flush()
            for file in (*self._unsynced, *([] if self._file is None else [self._file])):
                os.close(file)
            self._unsynced, self._file = [], None

    def _write(self, line: dict[str, Any]) -> None:
        text = _encode(line)
        with self._lock:
            hour = time.strftime("%Y-%m-%dT%H", time.gmtime(line["at"]))
            if self._file is None or hour != self._hour:
                self._open(hour)
            self._buffer += text
            if len(self._buffer) > _BUFFER:
                self._flush()

    def _open(self, hour: str) -> None:
        """Begin the file of an hour."""
        try:
            if self._file is not None:
                self._flush()
                self._unsynced.append(self._file)
                self._file = None
            path = self._folder / f"{hour}-{self._worker}{SUFFIX}"
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._hour, self._is_new = hour, True
            if os.fstat(self._file).st_size and not self._buffer.startswith(b"\n"):
                self._buffer[:0] = b"\n"  # a process that was killed may have left half a line
        except OSError as error:
            self.error = error
            self.n_dropped += 1
            raise

    def _flush(self) -> None:
        """Write the buffer as far as possible; lines that do not fit in are kept, and at last dropped."""
        try:
            while self._buffer and self._file is not None:
                del self._buffer[: os.write(self._file, self._buffer)]
            self.error = None
        except OSError as error:
            self.error = error
            if len(self._buffer) > _MAX_BUFFER:
                self.n_dropped += self._buffer.count(b"\n")
                self._buffer[:] = b"\n"
            raise


def _encode(line: dict[str, Any]) -> bytes:
    return json.dumps(line, separators=(",", ":")).encode() + b"\n"


def read_log(folder: str | Path) -> Iterator[dict[str, Any]]:
    """All lines of a log, file by file; those that were cut off are skipped."""
    for path in sorted(Path(folder).glob(f"*{SUFFIX}")):
        with path.open("rb") as file:
            for text in file:
                line = _decode(text)
                if line is not None:
                    yield line


def _decode(text: bytes) -> dict[str, Any] | None:
    try:
        line = json.loads(text.decode(errors="replace"))
    except ValueError:
        return None
    return line if isinstance(line, dict) else None


def _read_heads(folder: str | Path, since: float) -> Iterator[tuple[LogHead, bytes]]:
    """Lines from a time on, with what they begin with."""
    first = time.strftime("%Y-%m-%dT%H", time.gmtime(max(since, 0.0)))
    for path in sorted(Path(folder).glob(f"*{SUFFIX}")):
        if path.name < first:  # lines are in the file of their hour
            continue
        with path.open("rb") as file:
            for text in file:
                head = read_head(text) or _slow_head(text)
                if head is not None and head.at >= since:
                    yield head, text


def _slow_head(text: bytes) -> LogHead | None:
    """Read a line with NaN, which rows of Python may have; None if it was cut off."""
    line = _decode(text)
    if line is None or not {"at", "id"} <= line.keys():
        return None
    known = {name: line[name] for name in ("at", "id", "row", "outcome", "shadow") if name in line}
    return LogHead(**known, rows=line.get("rows"), context=line.get("context"))


def read_outcomes(folder: str | Path, since: float = 0.0, until: float = float("inf")) -> dict[tuple[str, int], float]:
    """The outcome of each row, by request id and number: the latest of a time, whichever worker took it."""
    found: dict[tuple[str, int], tuple[float, float]] = {}
    for head, _ in _read_heads(folder, since):
        if head.outcome is not None and head.at < until:
            key = head.id, head.row
            if key not in found or head.at >= found[key][0]:
                found[key] = head.at, head.outcome
    return {key: outcome for key, (_, outcome) in found.items()}


def training_rows(
    log: str | Path,
    target: str = "outcome",
    *,
    no_outcome: Literal["zero", "skip"] = "skip",
    arm: str | None = None,
    item: str = "item",
    since: float = 0.0,
    until: float | None = None,
    outcomes_since: float | None = None,
    outcomes_until: float | None = None,
    details: bool = False,
) -> pa.Table:
    """Join the rows of a log with their outcomes: a table to train on.

    Outcomes may come at any time after their rows, and the last one of a row counts. Rows of shadow arms are left out,
    since others answered them.

    Parameters
    ----------
    log : path
        The folder that `splinefm serve --log FOLDER --log-rows` writes.
    target : str
        The column of the outcomes.
    no_outcome : {"zero", "skip"}
        What a row without feedback means: that nothing happened, such as no click, or that it is not known yet.
    arm : str, optional
        The arm whose rows are taken; by default all.
    item : str
        The column of item ids, for rankings: their rows have the context, the item, and its `position` from 0.
    since, until : float
        When rows were answered, in seconds since 1970. With `no_outcome="zero"`, end early enough for late outcomes.
    outcomes_since, outcomes_until : float
        When outcomes came, in seconds since 1970, whenever their rows were answered: what is new for an update. A late
        outcome is in the interval in which it came; the last one of an interval counts. Workers write predictions a
        few times a second, so end an interval a second ago.
    details : bool
        Whether to add the columns `_at`, `_id`, `_row`, `_arm`, `_version` and `_prediction`.

    Returns
    -------
    pyarrow.Table
        The columns of the rows, and the target.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = FeedbackLog(folder, 0)
    ...     log.scored("r1", ["a"], np.array([0.25, 0.5]), None, [{"x": 1.0}, {"x": 2.0}])
    ...     for click in (0.0, 1.0):  # the last word counts
    ...         log.outcome("r1", 1, click)
    ...     log.close()
    ...     training_rows(folder, "click").to_pylist(), training_rows(folder, "click", no_outcome="zero").num_rows
    ([{'x': 2.0, 'click': 1.0}], 2)
    """
    if not Path(log).is_dir():
        raise FileNotFoundError(f"no folder {str(log)!r}; splinefm serve --log writes it")
    has_interval = outcomes_since is not None or outcomes_until is not None
    if has_interval and no_outcome == "zero":
        raise ValueError('a row without an outcome is in no interval of outcomes; write no_outcome="skip"')
    end = float("inf")
    outcomes = read_outcomes(log, outcomes_since or 0.0, end if outcomes_until is None else outcomes_until)
    known = {name for name, _ in outcomes}
    found: list[dict[str, Any]] = []
    for head, text in _read_heads(log, since):
        if head.outcome is not None or head.shadow or head.at >= (end if until is None else until):
            continue
        if head.rows is None and head.context is None:
            raise ValueError("the log has no rows; start the server with --log-rows")
        if no_outcome == "skip" and head.id not in known:
            continue
        line = _decode(text)
        assert line is not None  # it has a head
        for i, row in enumerate(_logged_rows(line, item)):
            of_row = line["arms"][i] if len(line["arms"]) > 1 else line["arms"][0]
            outcome = outcomes.get((line["id"], i), 0.0 if no_outcome == "zero" else None)
            if outcome is None or arm not in (None, of_row):
                continue
            more = {"_at": line["at"], "_id": line["id"], "_row": i, "_arm": of_row}
            more |= {"_version": line.get("versions", {}).get(of_row), "_prediction": line["predictions"][i]}
            found.append({**row, target: outcome, **(more if details else {})})
    names = dict.fromkeys(name for row in found for name in row)  # rankings have other columns than rows
    return pa.table({name: [row.get(name) for row in found] for name in names})


def _logged_rows(line: dict[str, Any], item: str) -> list[dict[str, Any]]:
    """The rows of a line; a ranking has a row for each item."""
    if "items" in line and "context" in line:
        return [{**line["context"], item: name, "position": i} for i, name in enumerate(line["items"])]
    return list(line["rows"])
