"""Which process works on a trial, and whether it is still alive."""

from __future__ import annotations

import datetime
import math
import os
import socket
from collections.abc import Mapping
from typing import Any

PROCESS = "process"
"""The attribute of a trial that has the host and the process number."""
# Whether a process on another machine is alive cannot be checked: it counts as alive for this many seconds. So does a
# trial that has just begun and does not name its process yet.
_ALIVE_ELSEWHERE, _ALIVE_UNKNOWN = 3600.0, 20.0


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
