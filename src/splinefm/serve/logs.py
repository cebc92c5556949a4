"""Structured logs: events with values, as lines of JSON if `splinefm serve` runs. No headers, no bodies, no tokens."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

_LOGGER = logging.getLogger("splinefm.serve")


def log_event(event: str, level: str = "info", **values: Any) -> None:
    """Log an event.

    Parameters
    ----------
    event : str
        What happened, such as "listening" or "request".
    level : {"info", "warning", "error"}
        How bad it is.
    **values
        More about it: attribute `values` of the record.
    """
    number = getattr(logging, level.upper())
    if _LOGGER.isEnabledFor(number):
        _LOGGER.log(number, event, extra={"values": values})


class JsonLines(logging.Handler):
    """Writes records as lines of JSON to standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, in one piece, so that lines of several processes do not mix."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        values = getattr(record, "values", None)
        content: dict[str, Any] = {"time": stamp, "level": record.levelname.lower()}
        if values is None:  # of the server
            content |= {"event": "server", "detail": record.getMessage()}
            if record.exc_info:
                content["traceback"] = logging.Formatter().formatException(record.exc_info)
        else:
            content |= {"event": record.getMessage(), **values}
        try:
            sys.stderr.write(json.dumps(content, default=str) + "\n")
            sys.stderr.flush()
        except OSError:
            pass  # the log has no reader any more: that is no reason to stop serving


LOG_CONFIG: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"json": {"class": "splinefm.serve.logs.JsonLines"}},
    "loggers": {
        "splinefm.serve": {"handlers": ["json"], "level": "INFO", "propagate": False},
        "py.warnings": {"handlers": ["json"], "level": "WARNING", "propagate": False},
        "uvicorn": {"handlers": ["json"], "level": "ERROR", "propagate": False},
    },
}
"""For `logging.config.dictConfig`: events and errors of the server as lines of JSON."""
