"""The ASGI application: which endpoint answers a request, who may ask, admission, and what is counted."""

from __future__ import annotations

import asyncio
import re
import secrets
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

from splinefm.serve.admission import WorkQueue
from splinefm.serve.bodies import UnreadableBody
from splinefm.serve.endpoints import admin, explain, inference, rank
from splinefm.serve.endpoints.openapi import describe
from splinefm.serve.endpoints.score import score
from splinefm.serve.logs import log_event
from splinefm.serve.messages import Answer, Later, Problem, Request, Response, problem, retry_after
from splinefm.serve.rows import FaultyRows, NotServed
from splinefm.serve.service import ScoringService
from splinefm.serve.settings import ServiceSettings
from splinefm.serve.tokens import Tokens

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_ID = re.compile(rb"[A-Za-z0-9._:-]{1,64}")
_LOOPBACK = ("127.", "::1", "::ffff:127.")
_FORWARDED = (b"x-forwarded-for", b"forwarded", b"via", b"x-real-ip")  # of proxies
_CLIENT_ERRORS = 400
_LOOK = 0.2  # seconds between two looks for slow clients
_LINGER = 1.0  # seconds in which a client can read why its body is not read


class Endpoint(NamedTuple):
    """A function for a path and a method, and who may use it."""

    name: str
    answer: Callable[[ScoringService, Request], Answer]
    is_open: bool = False
    """Answered without a token: what orchestrators ask."""
    is_admin: bool = False
    is_urgent: bool = False
    """Answered at once, even by a server that is too busy for others."""


_LIVE = Endpoint("health", admin.live, is_open=True, is_urgent=True)
_READY = Endpoint("health", admin.ready, is_open=True, is_urgent=True)
ENDPOINTS: dict[tuple[str, str], Endpoint] = {
    ("POST", "/v1/score"): Endpoint("score", score),
    ("POST", "/v1/rank"): Endpoint("rank", rank.rank),
    ("POST", "/v1/explain"): Endpoint("explain", explain.explain),
    ("GET", "/v1/segment"): Endpoint("segment", explain.segment),
    ("GET", "/explore"): Endpoint("explore", admin.explore),
    ("GET", "/v1/models"): Endpoint("models", admin.models),
    ("POST", "/v1/feedback"): Endpoint("feedback", admin.feedback),
    ("POST", "/v1/reload"): Endpoint("reload", admin.reload, is_admin=True),
    ("GET", "/v1/arms"): Endpoint("arms", admin.arms),
    ("POST", "/v1/arms"): Endpoint("arms", admin.change_arms, is_admin=True),
    ("POST", "/v1/items"): Endpoint("items", admin.change_items, is_admin=True),
    ("GET", "/openapi.json"): Endpoint("openapi", describe),
    ("GET", "/healthz"): _LIVE,
    ("GET", "/readyz"): _READY,
    ("GET", "/metrics"): Endpoint("metrics", admin.metrics, is_urgent=True),
    ("GET", "/v2"): Endpoint("inference", inference.server),
    ("GET", "/v2/health/live"): _LIVE,
    ("GET", "/v2/health/ready"): _READY,
}


def find(method: str, path: str) -> Endpoint:
    """The endpoint of a request; raises a problem if there is no such path, or it takes another method."""
    method = "GET" if method == "HEAD" else method
    found = ENDPOINTS.get((method, path))
    if found is not None:
        return found
    if path.startswith("/v2/models/"):
        allowed = inference.methods(path)
        if method in allowed:
            return Endpoint("infer" if method == "POST" else "inference", inference.answer)
    else:
        allowed = {known for known, other in ENDPOINTS if other == path}
    if allowed:
        text = ", ".join(sorted(allowed))
        raise Problem(405, f"{path} takes {text}, not {method}", ((b"allow", text.encode()),))
    if "\ufffd" in path:
        raise Problem(400, "the path is not valid; write it in ASCII, and other characters as %XX of UTF-8")
    raise Problem(404, f"no path {path[:200]!r}; /openapi.json lists all")


def create_app(
    model: str | Path | ServiceSettings, *, folder: str | Path | None = None, may_publish: bool = True, **options: Any
) -> App:
    """An ASGI application that serves models: on uvicorn, granian or hypercorn, or mounted into another application.

    Parameters
    ----------
    model : path or ServiceSettings
        A model file, or settings with several arms.
    folder : path, optional
        A folder that all worker processes of a server share, so that they switch to new models together; make one
        for each start of the server. A single process does not need it.
    may_publish : bool
        Whether this process may verify new files and publish them to the others, if no other one does.
    **options
        Settings for a single model file, such as `index="items.sfi"`; see `ServiceSettings`.

    Returns
    -------
    App
        The application; its `service` can be called directly, and closed at the end.

    Examples
    --------
    >>> import asyncio, tempfile
    >>> import splinefm as sf
    >>> from splinefm.serve import create_app
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "c": ["a", "b"] * 100, "y": [0.0, 1.0, 0.0, 1.0] * 50}
    >>> fitted = sf.fit_model(table, "y", model=sf.FM(k=4), training=sf.Training(epochs=2, threads=1))
    >>> folder = tempfile.TemporaryDirectory()
    >>> _ = fitted.save(f"{folder.name}/model.sfm")
    >>> app = create_app(f"{folder.name}/model.sfm", drift_rows=100)

    A file `serving.py` with this line runs with `uvicorn serving:app`, and `api.mount("/model", app)` adds it to an
    application of FastAPI or Starlette.

    >>> app.close(); folder.cleanup()
    """
    return App(ScoringService(model, folder=folder, may_publish=may_publish, **options))


class App:
    """Answers the requests of a process.

    Parameters
    ----------
    service : ScoringService
        What answers.

    Attributes
    ----------
    service : ScoringService
        The same.
    """

    def __init__(self, service: ScoringService) -> None:
        self.service, self.settings, self.limits = service, service.settings, service.settings.limits
        self._tokens = None if self.settings.tokens is None else Tokens(self.settings.tokens)
        self._prefix, self._numbers = secrets.token_hex(5), count(1)
        self._counters: dict[tuple[str, int], Any] = {}
        names = {endpoint.name for endpoint in ENDPOINTS.values()} | {"infer", "other"}
        metrics = service.metrics
        self._seconds = {name: metrics.times(metrics.request_seconds.labels(name)) for name in names}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._queue: WorkQueue | None = None
        self._reading: dict[Any, float] = {}
        self._late: set[Any] = set()
        self._held = self._in_progress = 0
        self._is_looking = self._is_busy_after = False
        self._trace: Any = None
        if self.settings.traces:
            from splinefm.serve.traces import Tracer

            self._trace = Tracer()
        service.has_own_thread = False
        service.every_look.append(self._show)
        if self._tokens is not None:
            service.every_second.append(self._tokens.refresh)

    def close(self) -> None:
        """Close the service."""
        if self._queue is not None:
            self._queue.close()
        self.service.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as ASGI has it."""
        if scope["type"] == "http":
            await self._answer_http(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._live(receive, send)
        else:
            await send({"type": "websocket.close", "code": 1003})

    async def _live(self, receive: Receive, send: Send) -> None:
        while (message := await receive())["type"] != "lifespan.shutdown":
            await send({"type": message["type"] + ".complete"})
        await asyncio.to_thread(self.close)
        await send({"type": "lifespan.shutdown.complete"})

    # A request

    async def _answer_http(self, scope: Scope, receive: Receive, send: Send) -> None:
        received = perf_counter()
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._attach(loop)
        headers = dict(scope["headers"])
        path, root = scope["path"], scope.get("root_path")
        if root and path.startswith(root):
            path = path[len(root) :] or "/"
        request = Request(scope["method"], path, scope["query_string"].decode("latin-1"), headers, received)
        given = headers.get(b"x-request-id")
        is_plain = given is not None and _ID.fullmatch(given)
        request.id = given.decode() if given and is_plain else f"{self._prefix}-{next(self._numbers):x}"
        span = None if self._trace is None else self._trace.begin(request)
        self._in_progress += 1
        has_body = request.method == "POST" or b"content-length" in headers or b"transfer-encoding" in headers
        is_read = not has_body
        try:
            endpoint = self._admit(scope, request)
            if has_body:
                if not await self._read(request, receive, int(headers.get(b"content-length", b"0"))):
                    return  # the client is gone
                is_read = True
            response = self._now(request) if endpoint.is_urgent else await self._queued(request, loop)
        except Problem as error:
            response = self._as_response(error, request)
        finally:
            self._in_progress -= 1
            self._held -= len(request.body)
        request.body = b""
        self._finished(request, response.status, perf_counter() - received)
        if span is not None:
            self._trace.end(span, request, response.status)
        await self._send(request, response, receive, send, is_read)

    def _admit(self, scope: Scope, request: Request) -> Endpoint:
        """Decide by the request line and the headers who answers; raises a problem that refuses it."""
        headers = request.headers
        if (
            scope["http_version"] == "1.1"
            and (b"host" not in headers or len(headers) != len(scope["headers"]))
            and (sum(name == b"host" for name, _ in scope["headers"]) != 1)
        ):
            raise Problem(400, "a request of HTTP/1.1 has the header Host once")
        if b"upgrade" in headers:
            raise Problem(400, "the server does not change the protocol; send the request without Upgrade")
        endpoint = find(request.method, request.path)
        request.endpoint, request.handler = endpoint.name, endpoint.answer
        request.deadline = request.received + self._deadline(headers.get(b"x-deadline-ms"))
        if not endpoint.is_open:
            self._check_role(scope, request, endpoint)
        if b"content-encoding" in headers and headers[b"content-encoding"].lower() != b"identity":
            encoding = headers[b"content-encoding"][:40].decode("latin-1")
            header = ((b"accept-encoding", b"identity"),)
            raise Problem(415, f"the body has the encoding {encoding!r}; send it without Content-Encoding", header)
        return endpoint

    async def _read(self, request: Request, receive: Receive, length: int) -> bool:
        """Read the body; False if the client is gone."""
        if length > self.limits.body:
            raise self._too_large()
        task = asyncio.current_task()
        self._reading[task] = request.received + self.limits.read
        if not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_later(_LOOK, self._look_for_slow_clients)
        body: Any = b""
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return False
                part, more = message.get("body", b""), message.get("more_body", False)
                self._held += len(part)
                if more and isinstance(body, bytes):
                    body = bytearray(body)  # a list of parts would take more memory
                if body:
                    body += part
                else:
                    body = bytearray(part) if more else part
                if len(body) > self.limits.body:
                    raise self._too_large()
                if self._held > self.limits.bodies:
                    detail = "the server holds too many bodies at a time; try again later"
                    raise Problem(503, detail, retry_after(1.0))
                if not more:
                    return True
        except asyncio.CancelledError:
            if task not in self._late:
                raise
            self._late.discard(task)
            if task is not None:
                task.uncancel()
            self.service.metrics.slow_clients.inc()
            detail = f"the request took longer than {self.limits.read:g} s to arrive; send it faster"
            raise Problem(408, detail) from None
        finally:
            del self._reading[task]
            request.body = bytes(body)

    def _too_large(self) -> Problem:
        return Problem(413, f"the body has more than {self.limits.body:,} bytes; send fewer rows at a time")

    def _look_for_slow_clients(self) -> None:
        now = perf_counter()
        for task, end in tuple(self._reading.items()):
            if now > end and task not in self._late:
                self._late.add(task)
                task.cancel()
        self._is_looking = bool(self._reading)
        if self._is_looking and self._loop is not None:
            self._loop.call_later(_LOOK, self._look_for_slow_clients)

    async def _queued(self, request: Request, loop: asyncio.AbstractEventLoop) -> Response:
        """Answer when it is the request's turn, which is at once if nothing waits."""
        queue = self._queue
        assert queue is not None
        reply = _Reply()
        (queue.run if queue.is_free else queue.submit)(request, reply)
        if reply.response is None:
            reply.future = loop.create_future()
            await reply.future
        if self.service.background and not self._is_busy_after:
            self._is_busy_after = True
            loop.call_soon(self._do_after)
        assert reply.response is not None
        return reply.response

    async def _send(
        self, request: Request, response: Response, receive: Receive, send: Send, is_read: bool = True
    ) -> None:
        headers = [
            (b"content-type", response.content_type),
            (b"content-length", b"%d" % len(response.body)),
            (b"x-request-id", request.id.encode()),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", b"no-store"),
            *response.headers,
        ]
        if not is_read or request.endpoint == "other" or self.service.manifest.draining:
            headers.append((b"connection", b"close"))
        await send({"type": "http.response.start", "status": response.status, "headers": headers})
        body = b"" if request.method == "HEAD" else response.body
        if is_read:
            await send({"type": "http.response.body", "body": body})
            return
        # Closing at once would reset the connection, and the client might never see the answer.
        await send({"type": "http.response.body", "body": body, "more_body": True})
        try:
            async with asyncio.timeout(_LINGER):
                while (message := await receive())["type"] == "http.request" and message.get("more_body"):
                    pass
        except TimeoutError:
            pass
        await send({"type": "http.response.body", "body": b""})

    # Work

    def _attach(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue = WorkQueue(
            loop, self.limits, self._answer, lambda reason: self.service.metrics.refused.labels(reason).inc()
        )

    def _do_after(self) -> None:
        """Score shadow arms, one request at a time and only while none waits."""
        background, queue = self.service.background, self._queue
        assert queue is not None and self._loop is not None
        if background and not len(queue):
            self.service.attempt("shadow", background.do_one)
        self._is_busy_after = bool(background)
        if background:
            self._loop.call_later(0.001 if len(queue) else 0.0, self._do_after)

    def _answer(self, request: Request) -> Answer:
        """The answer to a request; never raises."""
        answer: Answer = self._now(request)
        if isinstance(answer, Later):
            return Later(lambda: self._safe(request, answer.compute))
        return answer

    def _now(self, request: Request) -> Any:
        return self._safe(request, partial(request.handler, self.service, request))

    def _safe(self, request: Request, compute: Callable[[], Any]) -> Any:
        try:
            return compute()
        except Problem as error:
            return self._as_response(error, request)
        except NotServed as error:
            return self._as_response(Problem(404, str(error.args[0])), request)
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

    # Checks

    def _deadline(self, given: bytes | None) -> float:
        """Seconds that a request may wait: as the client says, at most as the server says."""
        if given is None:
            return self.limits.deadline
        if not re.fullmatch(rb"[0-9]{1,9}", given):
            raise Problem(400, f"X-Deadline-Ms must be an integer number of milliseconds, got {given[:40]!r}")
        return min(int(given) / 1000.0, self.limits.deadline)

    def _check_role(self, scope: Scope, request: Request, endpoint: Endpoint) -> None:
        if self._tokens is None:
            if endpoint.is_admin and not self._is_local(scope, request):
                raise Problem(
                    403,
                    "models and weights are changed with a token: start the server with --tokens FILE; or, if no proxy "
                    "runs on its machine, with --admin-from-loopback, and ask from there",
                )
            return
        role = self._tokens.role(request.headers.get(b"authorization"))
        if role is None:
            challenge = ((b"www-authenticate", b'Bearer realm="splinefm"'),)
            raise Problem(401, "send a known token in the header Authorization: Bearer TOKEN", challenge)
        if endpoint.is_admin and role != "admin":
            raise Problem(403, "this token does not allow changes; use one whose line begins with 'admin '")

    def _is_local(self, scope: Scope, request: Request) -> bool:
        """Whether changes are allowed from the same machine, and the request comes from there without a proxy."""
        client = scope.get("client")
        if not (self.settings.admin_from_loopback and client and client[0].startswith(_LOOPBACK)):
            return False
        return not any(name in request.headers for name in _FORWARDED)

    # Figures

    def _finished(self, request: Request, status: int, seconds: float) -> None:
        """Count and log a request that was answered."""
        key = request.endpoint, status
        counter = self._counters.get(key)
        if counter is None:
            metrics = self.service.metrics
            counter = metrics.total(metrics.requests.labels(request.endpoint, str(status)))
            self._counters[key] = counter
        counter.value += 1
        self._seconds[request.endpoint].add(seconds)
        if self.settings.log_requests or (status >= _CLIENT_ERRORS and status != 503):
            log_event(
                "request",
                "error" if status >= 500 else "info",
                id=request.id,
                method=request.method,
                path=request.path[:200],
                status=status,
                ms=round(1000.0 * seconds, 3),
                rows=request.n_rows,
            )

    def _show(self) -> None:
        """Set the gauges; called a few times a second."""
        metrics = self.service.metrics
        metrics.in_progress.set(self._in_progress)
        metrics.queue_length.set(0 if self._queue is None else len(self._queue))


class _Reply:
    """Takes the response to a request, before or while it is waited for."""

    __slots__ = ("future", "response")

    def __init__(self) -> None:
        self.response: Response | None = None
        self.future: asyncio.Future[None] | None = None

    def __call__(self, response: Response) -> None:
        self.response = response
        if self.future is not None and not self.future.done():
            self.future.set_result(None)
