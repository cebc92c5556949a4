"""/healthz, /readyz and /metrics: what orchestrators and dashboards ask."""

from __future__ import annotations

from splinefm.serve.api.state import State
from splinefm.serve.http.messages import TEXT, Request, Response, json_response


def live(state: State, request: Request) -> Response:
    """The process answers."""
    return json_response({"status": "live"})


def ready(state: State, request: Request) -> Response:
    """Whether to send traffic; and whether the newest file was refused, which is no reason to stop.

    A worker listens only while it is ready, so that an answer means yes.
    """
    content: dict[str, object] = {"status": "ready", "versions": state.serving.versions}
    if state.refused:
        content |= {"reload": "refused", "refused": state.refused}
    return json_response(content)


def metrics(state: State, request: Request) -> Response:
    """The metrics of all workers."""
    return Response(200, state.metrics.text().encode(), TEXT)
