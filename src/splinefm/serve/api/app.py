"""The application: which endpoint answers a request, who may ask, and what is counted."""

from __future__ import annotations

import re
import secrets
import traceback
from collections.abc import Callable
from email.utils import formatdate
from functools import partial
from itertools import count
from time import perf_counter
from typing import Any, NamedTuple

from splinefm.serve.api import admin, explain, explore, health, inference, rank
from splinefm.serve.api.openapi import describe
from splinefm.serve.api.score import score
from splinefm.serve.api.state import State
from splinefm.serve.arms.faults import FaultyRows
from splinefm.serve.catalog import STATUSES
from splinefm.serve.http.codec import UnreadableBody
from splinefm.serve.http.messages import Answer, Later, Problem, Request, Response, problem
from splinefm.serve.http.protocol import Connection
from splinefm.serve.http.queue import Respond, WorkQueue
from splinefm.serve.logs import log_event

_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_LOOPBACK = ("127.", "::1", "::ffff:127.")
_CLIENT_ERRORS = 400


class Endpoint(NamedTuple):
    """A function for a path and a method, and who may use it."""

    name: str
    answer: Callable[[State, Request], Answer]
    is_open: bool = False
    """Answered at once, and to everybody: what orchestrators ask."""
    is_admin: bool = False


ENDPOINTS: dict[tuple[str, str], Endpoint] = {
    ("POST", "/v1/score"): Endpoint("score", score),
    ("POST", "/v1/rank"): Endpoint("rank", rank.rank),
    ("POST", "/v1/explain"): Endpoint("explain", explain.explain),
    ("GET", "/v1/segment"): Endpoint("segment", explain.segment),
    ("GET", "/explore"): Endpoint("explore", explore.explore),
    ("GET", "/v1/models"): Endpoint("models", admin.models),
    ("POST", "/v1/feedback"): Endpoint("feedback", admin.feedback),
    ("POST", "/v1/reload"): Endpoint("reload", admin.reload, is_admin=True),
    ("GET", "/v1/arms"): Endpoint("arms", admin.arms),
    ("POST", "/v1/arms"): Endpoint("arms", admin.change_arms, is_admin=True),
    ("GET", "/openapi.json"): Endpoint("openapi", lambda state, request: describe(state)),
    ("GET", "/healthz"): Endpoint("health", health.live, is_open=True),
    ("GET", "/readyz"): Endpoint("health", health.ready, is_open=True),
    ("GET", "/metrics"): Endpoint("metrics", health.metrics),
    ("GET", "/v2"): Endpoint("inference", inference.server),
    ("GET", "/v2/health/live"): Endpoint("health", health.live, is_open=True),
    ("GET", "/v2/health/ready"): Endpoint("health", health.ready, is_open=True),
}
_PATHS = {path for _, path in ENDPOINTS}


def find(method: str, path: str) -> Endpoint | None:
    """The endpoint of a request; raises a problem if the method is wrong, None if there is no such path."""
    method = "GET" if method == "HEAD" else method
    found = ENDPOINTS.get((method, path))
    if found is not None:
        return found
    if path.startswith("/v2/models/"):
        allowed = inference.methods(path)
        if method in allowed:
            return Endpoint("infer" if method == "POST" else "inference", inference.answer)
        if not allowed:
            return None
    elif path not in _PATHS:
        return None
    else:
        allowed = {known for known, other in ENDPOINTS if other == path}
    text = ", ".join(sorted(allowed))
    raise Problem(405, f"{path} takes {text}, not {method}", ((b"allow", text.encode()),))


class App:
    """Answers the requests of all connections of a worker.

    Parameters
    ----------
    state : State
        What endpoints know.
    loop : event loop
        Whose thread works.
    """

    def __init__(self, state: State, loop: Any) -> None:
        self.state, self.limits = state, state.limits
        self.date = b""
        self.is_draining = self.is_ready = False
        self.connections: set[Connection] = set()
        self.held = 0
        self.queue = WorkQueue(loop, self.limits, self._answer, self._refused)
        self._loop = loop
        self._prefix, self._numbers = secrets.token_hex(5), count(1)
        self._seconds = {name: state.metrics.cell("splinefm_request_seconds", name) for name in _names()}
        self._counts = {
            (name, status): state.metrics.cell("splinefm_requests_total", name, str(status))
            for name in _names()
            for status in (*STATUSES, "other")
        }
        self._is_busy_after = False
        self.tick()

    # What connections call

    def opened(self, connection: Connection) -> None:
        """Keep a connection, to look after its time."""
        self.connections.add(connection)

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""
        self.connections.discard(connection)

    def admit(self, request: Request) -> Response | None:
        """Decide by the line and the headers of a request: None, or why not."""
        given = request.headers.get(b"x-request-id")
        is_plain = given is not None and _ID.fullmatch(given)
        request.id = given.decode() if given and is_plain else f"{self._prefix}-{next(self._numbers):x}"
        try:
            request.deadline = request.received + self._deadline(request.headers.get(b"x-deadline-ms"))
            endpoint = find(request.method, request.path)
            if endpoint is None:
                raise Problem(404, f"no path {request.path[:200]!r}; /openapi.json lists all")
            request.endpoint, request.handler = endpoint.name, endpoint.answer
            self._check_role(request, endpoint)
        except Problem as error:
            return self._as_response(error, request)
        return None

    def take(self, request: Request, respond: Respond) -> None:
        """Answer a request now, or when it is its turn."""
        if request.endpoint in ("health", "metrics"):  # even of a server that is too busy for others
            respond(self._now(request))
        else:
            self.queue.submit(request, partial(self._respond, respond))

    def finished(self, request: Request, status: int, seconds: float) -> None:
        """Count and log a request that was answered."""
        metrics = self.state.metrics
        known = (request.endpoint, status)
        metrics.increase(self._counts[known if known in self._counts else (request.endpoint, "other")])
        metrics.observe(self._seconds[request.endpoint], seconds)
        if status == 408:
            self.too_slow()
        if self.state.settings.log_requests or (status >= _CLIENT_ERRORS and status != 503):
            log_event(
                "request",
                "error" if status >= 500 else "info",
                id=request.id,
                method=request.method,
                path=request.path[:200],
                status=status,
                ms=round(1000.0 * seconds, 3),
                rows=request.n_rows,
                worker=self.state.worker,
            )

    def too_slow(self) -> None:
        """Count a client that was cut off."""
        self.state.metrics.add("splinefm_slow_clients_total")

    # Work

    def _respond(self, respond: Respond, response: Response) -> None:
        respond(response)
        if self.state.after and not self._is_busy_after:
            self._is_busy_after = True
            self._loop.call_soon(self._do_after)

    def _do_after(self) -> None:
        """Score shadow arms, one request at a time and only while nobody waits."""
        after = self.state.after
        if after and not len(self.queue):
            after.do_one()
        self._is_busy_after = bool(after)
        if after:
            self._loop.call_later(0.001 if len(self.queue) else 0.0, self._do_after)

    def _answer(self, request: Request) -> Answer:
        """The answer to a request; never raises."""
        answer: Answer = self._now(request)
        if isinstance(answer, Later):
            return Later(lambda: self._safe(request, answer.compute))
        return answer

    def _now(self, request: Request) -> Any:
        return self._safe(request, partial(request.handler, self.state, request))

    def _safe(self, request: Request, compute: Callable[[], Any]) -> Any:
        try:
            return compute()
        except Problem as error:
            return self._as_response(error, request)
        except FaultyRows as error:
            faults = [fault._asdict() for fault in error.faults]
            return self._as_response(Problem(422, str(error), errors=faults), request)
        except UnreadableBody as error:
            return self._as_response(Problem(400, str(error)), request)
        except ValueError as error:  # of bodies and values: the endpoints check nothing twice
            return self._as_response(Problem(422, str(error)), request)
        except MemoryError:
            return self._as_response(Problem(503, "not enough memory for this request; send fewer rows"), request)
        except Exception as error:
            where = "".join(traceback.format_exception(error))
            log_event("bug", "error", id=request.id, path=request.path[:200], traceback=where)
            return self._as_response(Problem(500, "this is a bug in the server; its log has more"), request)

    def _as_response(self, error: Problem, request: Request) -> Response:
        if request.path.startswith("/v2"):
            return inference.error_response(error)
        found = problem(error.status, error.detail, request.id, **error.members)
        return found._replace(headers=error.headers)

    def _refused(self, reason: str) -> None:
        self.state.metrics.add("splinefm_refused_total", reason)

    # Checks

    def _deadline(self, given: bytes | None) -> float:
        """Seconds that a request may wait: as the client says, at most as the server says."""
        if given is None:
            return self.limits.deadline
        if not re.fullmatch(rb"[0-9]{1,9}", given):
            raise Problem(400, f"X-Deadline-Ms must be an integer number of milliseconds, got {given[:40]!r}")
        return min(int(given) / 1000.0, self.limits.deadline)

    def _check_role(self, request: Request, endpoint: Endpoint) -> None:
        if endpoint.is_open:
            return
        tokens = self.state.tokens
        if tokens is None:
            if endpoint.is_admin and not request.peer.startswith(_LOOPBACK):
                raise Problem(403, "without --tokens, models and weights are changed from the server's machine alone")
            return
        request.role = tokens.role(request.headers.get(b"authorization"))
        if request.role is None:
            challenge = ((b"www-authenticate", b'Bearer realm="splinefm"'),)
            raise Problem(401, "send a known token in the header Authorization: Bearer TOKEN", challenge)
        if endpoint.is_admin and request.role != "admin":
            raise Problem(403, "this token does not allow changes; use one whose line begins with 'admin '")

    # Time

    def tick(self) -> None:
        """Look after time: the date, slow clients, gauges; called a few times a second."""
        self.date = formatdate(usegmt=True).encode()
        now = perf_counter()
        for connection in tuple(self.connections):
            connection.check_time(now)
        metrics = self.state.metrics
        metrics.set("splinefm_connections", value=float(len(self.connections)))
        metrics.set("splinefm_queue_length", value=float(len(self.queue)))
        metrics.set("splinefm_workers", value=float(self.is_ready and not self.is_draining))
        if self.state.log is not None:
            self.state.log.flush()

    def second(self) -> None:
        """What is done once a second."""
        self.state.metrics.set("splinefm_resident_bytes", value=float(_resident_bytes()))
        if self.state.tokens is not None:
            self.state.tokens.refresh()
        if self.state.drift is not None:
            self.queue.run_long(self.state.drift.compare)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is left to answer."""
        return not len(self.queue) and not self.connections


def _names() -> list[str]:
    from splinefm.serve.catalog import ENDPOINTS as NAMES

    return list(NAMES)


def _resident_bytes() -> int:
    """Memory of the process; 0 where the system does not tell."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123  # ten times a second is too often
            return int(file.read().split()[1]) * 4096
    except OSError:
        return 0
