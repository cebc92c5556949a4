"""The log of predictions and outcomes: lines of JSON, one file for each hour and worker; and what it says about arms.

A line is one of two kinds. `at` is the time in seconds since 1970, `id` the request:

    {"at": ..., "id": "...", "arms": ["control"], "predictions": [0.1, 0.2], "keys": ["u1", "u2"]}
    {"at": ..., "id": "...", "row": 0, "outcome": 1.0}

`arms` has an entry for each row, or one for all. `keys` is there if the server has a key, `rows` (a list of objects) if
it logs rows, and `"shadow": true` if the arm was not shown. Lines of a file are in the order of time; the last one of a
worker that was killed may be cut off, and readers skip it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import Any, TextIO

import numpy.typing as npt

SUFFIX = ".jsonl"


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

    def scored(
        self,
        request_id: str,
        arms: Sequence[str],
        predictions: npt.NDArray[Any],
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

    def flush(self) -> None:
        """Hand the lines to the operating system."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Write what is left."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, separators=(",", ":")) + "\n"
        hour = time.strftime("%Y-%m-%dT%H", time.gmtime(line["at"]))
        with self._lock:
            if self._file is None or hour != self._hour:
                self.close()
                self._hour = hour
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
