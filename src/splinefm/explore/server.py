"""A server for one person: it answers pages of its own origin on this machine, with a token in the address."""

from __future__ import annotations

import json
import secrets
import sys
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

from splinefm.explore.explorer import RANK, Explorer
from splinefm.rank.index import ItemIndex

HOST = "127.0.0.1"
_MAX_BYTES, _MAX_ITEMS = 1 << 20, 1000
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class RequestRefused(Exception):
    """A request that is not answered: the status, and why."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class ExploreServer(ThreadingHTTPServer):
    """Serves the page of one model at an address that cannot be guessed.

    Parameters
    ----------
    explorer : Explorer
        What is shown.
    port : int
        0 takes a free one.
    """

    daemon_threads = True

    def __init__(self, explorer: Explorer, port: int = 0) -> None:
        super().__init__((HOST, port), _Handler)
        self.token = secrets.token_urlsafe(24)
        self.index = explorer.index
        self.page = explorer.page(f"/{self.token}/{RANK}").encode()

    @property
    def hosts(self) -> set[str]:
        """What a browser on this machine calls the server; other names belong to pages that were rebound to it."""
        return {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that leave early."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: ExploreServer
    server_version, sys_version = "splinefm", ""
    protocol_version = "HTTP/1.1"
    timeout = 30.0

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_HEAD(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def _answer(self, make: Any) -> None:
        try:
            self._check()
            self._send(HTTPStatus.OK, *make())
        except RequestRefused as error:
            self.close_connection = True  # a body may be left unread
            self._send(error.status, json.dumps({"detail": error.detail}).encode(), "application/json")

    def _check(self) -> None:
        """Raise unless the request comes from a page of this server, or from its user."""
        if self.headers.get("Host") not in self.server.hosts:
            raise RequestRefused(HTTPStatus.MISDIRECTED_REQUEST, "this server answers its own address only")
        origin = self.headers.get("Origin")
        if origin is not None and origin not in {f"http://{host}" for host in self.server.hosts}:
            raise RequestRefused(HTTPStatus.FORBIDDEN, "this server answers its own pages only")
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            raise RequestRefused(HTTPStatus.FORBIDDEN, "this server answers its own pages only")
        given = (self.path.partition("?")[0] + "/").split("/")[1]
        if not secrets.compare_digest(given.encode(), self.server.token.encode()):
            raise RequestRefused(HTTPStatus.NOT_FOUND, "open the address that splinefm explore printed")

    @property
    def _route(self) -> str:
        return self.path.split("?")[0].removeprefix(f"/{self.server.token}")

    def _get(self) -> tuple[bytes, str]:
        if self._route != "/":
            raise RequestRefused(HTTPStatus.NOT_FOUND, "there is one page, whose address ends with a slash")
        return self.server.page, "text/html; charset=utf-8"

    def _post(self) -> tuple[bytes, str]:
        if self._route != f"/{RANK}" or self.server.index is None:
            raise RequestRefused(HTTPStatus.NOT_FOUND, "nothing takes a body here")
        if self.headers.get_content_type() != "application/json":
            raise RequestRefused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send JSON")
        found = _rank(self.server.index, self._body())
        return json.dumps(found).encode(), "application/json"

    def _body(self) -> Any:
        length = self.headers.get("Content-Length", "")
        if not length.isascii() or not length.isdigit() or int(length) > _MAX_BYTES:
            raise RequestRefused(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"send at most {_MAX_BYTES:,} bytes, and say how many"
            )
        try:
            return json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise RequestRefused(HTTPStatus.BAD_REQUEST, f"the body is not JSON: {error}") from None

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **_HEADERS}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the address has the token."""


def _rank(index: ItemIndex, body: Any) -> dict[str, Any]:
    """The best items for a context: {"context": {...}, "k": 20}."""
    if not isinstance(body, dict) or not isinstance(body.get("context"), dict):
        raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, "send a context, an object")
    k = body.get("k", 20)
    if not isinstance(k, int) or isinstance(k, bool) or not 1 <= k <= _MAX_ITEMS:
        raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, f"k must be between 1 and {_MAX_ITEMS:,}")
    context = {name: body["context"].get(name) for name in index.context_columns}
    try:
        index.check_context(context)
        ids, scores = index.top_k(context, k)
    except (ValueError, TypeError) as error:
        raise RequestRefused(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from None
    predictions = index.fitted.loss.predict(scores.astype(np.float64))
    return {"ids": ids.tolist(), "scores": scores.tolist(), "predictions": predictions.tolist()}
