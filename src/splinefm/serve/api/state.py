"""What endpoints know: the models, the metrics, the logs, and how to ask the supervisor."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from splinefm.serve.arms.drift import DriftSample
from splinefm.serve.arms.serving import Serving
from splinefm.serve.feedback import FeedbackLog
from splinefm.serve.http.messages import Problem, Request, content_type
from splinefm.serve.http.tokens import Tokens
from splinefm.serve.metrics import Metrics
from splinefm.serve.settings import Limits, Settings

Ask = Callable[[dict[str, Any], Callable[[dict[str, Any]], None]], None]
"""Sends a question to the supervisor, and calls back with its answer."""


@dataclass
class State:
    """Everything that a worker serves with; `serving` is replaced as a whole."""

    settings: Settings
    serving: Serving
    metrics: Metrics
    ask: Ask
    worker: int = 0
    log: FeedbackLog | None = None
    tokens: Tokens | None = None
    drift: DriftSample | None = None
    refused: dict[str, str] = field(default_factory=dict)
    """Why the newest file of an arm was refused."""
    after: list[Callable[[], None]] = field(default_factory=list)
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


def need_json(request: Request) -> None:
    """Raise where a body does not say that it is JSON.

    Browsers send other types to any server without asking it: pages of strangers must not change models.
    """
    kind = content_type(request.headers)
    if kind != b"application/json":
        given = kind.decode("latin-1") or "nothing"
        raise Problem(415, f"the header Content-Type must be application/json, got {given!r}")
