"""What endpoints know: the models, the metrics, the logs, and how to ask the supervisor."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from splinefm.serve.arms.drift import DriftSample
from splinefm.serve.arms.serving import Serving
from splinefm.serve.feedback import FeedbackLog
from splinefm.serve.http.messages import Problem, Request, content_type
from splinefm.serve.http.tokens import Tokens
from splinefm.serve.metrics import Metrics
from splinefm.serve.settings import Limits, ServerSettings

Ask = Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], None]
"""Sends a question to the supervisor, and calls back with its answer."""


@dataclass
class State:
    """Everything that a worker serves with; `serving` is replaced as a whole."""

    settings: ServerSettings
    serving: Serving
    metrics: Metrics
    ask: Ask
    worker: int = 0
    log: FeedbackLog | None = None
    tokens: Tokens | None = None
    drift: DriftSample | None = None
    refused: dict[str, str] = field(default_factory=dict)
    """Why the newest file of an arm was refused."""
    after: BackgroundQueue = field(default_factory=lambda: BackgroundQueue())
    """What to do when there is time: shadow arms."""

    @property
    def limits(self) -> Limits:
        """What clients can ask for."""
        return self.settings.limits

    def known_arm(self, name: str | None) -> str | None:
        """The name of an arm that a client asks for."""
        if name is None or name in self.serving.split.weights:
            return name
        known = ", ".join(map(repr, self.serving.split.weights))
        raise Problem(404, f"no arm {name!r}; the arms are {known}")

    def asked_arm(self, request: Request) -> str | None:
        """The arm that the query of a request names."""
        if not request.query_text:
            return None
        query = request.query()
        unknown = sorted(set(query) - {"arm"})
        if unknown:
            raise Problem(400, f"unknown parameter {unknown[0][:60]!r}; the query has arm alone")
        return self.known_arm(query.get("arm"))


class BackgroundQueue:
    """Work that nobody waits for; it is dropped if too much comes together."""

    MOST = 20_000
    """Rows that may wait."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._rows = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, rows: int, work: Callable[[], None]) -> bool:
        """Add work on so many rows; False if there is no room for it."""
        if self._rows + rows > self.MOST:
            return False
        self._rows += rows
        self._waiting.append((rows, work))
        return True

    def do_one(self) -> None:
        """Do what has waited longest."""
        rows, work = self._waiting.popleft()
        self._rows -= rows
        work()


def need_json(request: Request) -> None:
    """Raise where a body does not say that it is JSON.

    Browsers send other types to any server without asking it: pages of strangers must not change models.
    """
    kind = content_type(request.headers)
    if kind != b"application/json":
        given = kind.decode("latin-1") or "nothing"
        raise Problem(415, f"the header Content-Type must be application/json, got {given!r}")
