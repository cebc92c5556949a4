"""Requests, responses, and problems as RFC 9457 writes them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from splinefm.serve.bodies import to_json

JSON, PROBLEM = b"application/json", b"application/problem+json"
ARROW = b"application/vnd.apache.arrow.stream"


class Request:
    """A request, once all of it has arrived.

    Parameters
    ----------
    method, path, query : str
        The request line; the path without the prefix of a mount.
    headers : dict of bytes to bytes
        Headers with names in lower case.
    received : float
        When it came, by `perf_counter`.
    """

    __slots__ = (
        "body",
        "deadline",
        "endpoint",
        "handler",
        "headers",
        "id",
        "method",
        "n_rows",
        "path",
        "query_text",
        "received",
    )

    def __init__(self, method: str, path: str, query: str, headers: dict[bytes, bytes], received: float) -> None:
        self.method, self.path, self.query_text, self.headers, self.received = method, path, query, headers, received
        self.body = b""
        self.id = ""
        self.deadline = received
        self.endpoint = "other"
        self.handler: Any = None
        self.n_rows = 0

    def query(self) -> dict[str, str]:
        """The parameters behind the question mark; a repeated one is a problem."""
        try:
            pairs = parse_qsl(
                self.query_text, keep_blank_values=True, strict_parsing=bool(self.query_text), max_num_fields=100
            )
        except ValueError as error:
            raise Problem(400, f"the query cannot be read: {error}; write it name=value&name=value") from None
        found = dict(pairs)
        if len(found) != len(pairs):
            raise Problem(400, "a parameter of the query is given twice; give each once")
        return found

    def arm(self) -> str | None:
        """The arm that the query names, of which it may have nothing else."""
        if not self.query_text:
            return None
        query = self.query()
        unknown = sorted(set(query) - {"arm"})
        if unknown:
            raise Problem(400, f"unknown parameter {unknown[0][:60]!r}; the query may only have arm")
        return query.get("arm")

    def need_json(self) -> None:
        """Raise where a body does not say that it is JSON.

        Browsers send other types to any server without asking it: foreign pages must not change models.
        """
        kind = content_type(self.headers)
        if kind != JSON:
            given = kind.decode("latin-1") or "nothing"
            raise Problem(415, f"the header Content-Type must be application/json, got {given!r}")


class Response(NamedTuple):
    """Status, body, type of the body, and further headers."""

    status: int
    body: bytes
    content_type: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()


class Later(NamedTuple):
    """An answer that takes long: computed by another thread, so that short requests need not wait."""

    compute: Callable[[], Response]


class Pending(NamedTuple):
    """An answer that comes from another thread: `start` is called with what takes it, from any thread."""

    start: Callable[[Callable[[Response], None]], None]


Answer = Response | Later | Pending


class Problem(Exception):  # RFC 9457 calls it a problem
    """A request that cannot be answered: the status, what is wrong, and what to do."""

    def __init__(
        self, status: int, detail: str, headers: tuple[tuple[bytes, bytes], ...] = (), **members: object
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.headers, self.members = status, detail, headers, members


def problem(status: int, detail: str, request_id: str = "", **members: object) -> Response:
    """The response of a problem.

    Examples
    --------
    >>> problem(404, "no such path", "r1").body
    b'{"type":"about:blank","title":"Not Found","status":404,"detail":"no such path","id":"r1"}'
    """
    content: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "id": request_id,
        **members,
    }
    return Response(status, to_json(content), PROBLEM)


def json_response(value: object, status: int = 200) -> Response:
    """A response with JSON."""
    return Response(status, to_json(value))


def retry_after(seconds: float) -> tuple[tuple[bytes, bytes], ...]:
    """The header that says when to come back: whole seconds, at least one."""
    return ((b"retry-after", b"%d" % max(1, math.ceil(seconds))),)


def content_type(headers: Mapping[bytes, bytes]) -> bytes:
    """The media type of a body, without its parameters."""
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
