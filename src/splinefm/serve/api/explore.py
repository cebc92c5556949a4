"""GET /explore: the page of `splinefm explore` for a model that is served."""

from __future__ import annotations

from splinefm.serve.api.state import State
from splinefm.serve.http.messages import Later, Problem, Request, Response

HTML = b"text/html; charset=utf-8"
# The page itself says which scripts may run.
_HEADERS = (
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


def explore(state: State, request: Request) -> Later:
    """The page of an arm, by default of the first one; it has rows of the background."""
    if not state.settings.explore:
        raise Problem(404, "start the server with --explore to have this page")
    arm = state.asked_arm(request)
    model = state.serving.loaded[arm or state.serving.split.names[0]]
    return Later(lambda: Response(200, model.explorer_page, HTML, _HEADERS))
