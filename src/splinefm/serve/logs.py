"""Structured logs: one line of JSON per event, on standard error. No headers, no bodies, no tokens."""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def log_event(event: str, level: str = "info", **values: Any) -> None:
    """Write an event.

    Parameters
    ----------
    event : str
        What happened, such as "listening" or "request".
    level : {"info", "warning", "error"}
        How bad it is.
    **values
        More about it.
    """
    now = time.time()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
    line = json.dumps({"time": stamp, "level": level, "event": event, **values}, default=str)
    try:
        # One write, so that lines of several processes do not mix.
        sys.stderr.write(line + "\n")
        sys.stderr.flush()
    except OSError:
        pass  # nobody reads the log any more: that is no reason to stop serving
