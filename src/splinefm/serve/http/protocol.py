"""Connections: HTTP/1.1 as httptools parses it, with limits on size and time.

A connection has one request in work; those that follow in the same stream wait for its answer. Whatever is wrong with a
request before it is complete (its syntax, length, path or token) is answered at once, and the connection is closed
after the client had a moment to read the answer.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from http import HTTPStatus
from time import perf_counter
from typing import Any, Protocol
from urllib.parse import unquote

import httptools

from splinefm.serve.http.messages import Request, Response, problem, retry_after
from splinefm.serve.settings import Limits

_MAX_PIPELINED = 16
_LINGER = 1.0  # seconds in which a client can read why it is cut off
_FIXED = b"x-content-type-options: nosniff\r\ncache-control: no-store\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NEVER = math.inf
_TITLES = {status.value: status.phrase.encode() for status in HTTPStatus}


def _parse_url(url: bytes) -> tuple[str, str]:
    """The path, with escapes resolved, and the query as it is."""
    if url.startswith(b"/") and b"%" not in url and b"#" not in url:  # the usual case, in a tenth of the time
        path, _, query = url.partition(b"?")
        return path.decode("ascii"), query.decode("ascii")
    parsed = httptools.parse_url(url)
    return unquote((parsed.path or b"/").decode("ascii"), errors="strict"), (parsed.query or b"").decode("ascii")


class Application(Protocol):
    """What connections need to know of the application."""

    limits: Limits
    date: bytes
    is_draining: bool
    held: int
    """Bytes of all bodies that are in memory."""

    def admit(self, request: Request) -> Response | None:
        """Look at a request's line and headers: None, or the response that refuses it."""

    def take(self, request: Request, respond: Any) -> None:
        """Answer a request, now or later."""

    def finished(self, request: Request, status: int, seconds: float) -> None:
        """Count a request that was answered."""

    def too_slow(self) -> None:
        """Count a client that was cut off."""

    def opened(self, connection: Connection) -> None:
        """Keep a connection."""

    def closed(self, connection: Connection) -> None:
        """Forget a connection."""


class Connection(asyncio.Protocol):
    """One client's connection."""

    __slots__ = (
        "_app",
        "_body",
        "_current",
        "_events",
        "_head_size",
        "_headers",
        "_held",
        "_is_reading",
        "_keep_alive",
        "_linger_until",
        "_loop",
        "_old_version",
        "_parser",
        "_pipeline",
        "_read_by",
        "_received",
        "_refusal",
        "_request",
        "_size",
        "_transport",
        "_unsent",
        "_url",
        "_write_by",
        "peer",
    )

    def __init__(self, app: Application, loop: asyncio.AbstractEventLoop) -> None:
        self._app, self._loop = app, loop
        self._parser = httptools.HttpRequestParser(self)
        self._transport: Any = None
        self._pipeline: deque[tuple[Request, bool, bool]] = deque()
        self._current: Request | None = None
        self._request: Request | None = None
        self._refusal: Response | None = None
        self._is_reading, self._keep_alive, self._old_version = False, True, False
        self._events = self._head_size = self._size = 0
        self._url, self._headers, self._body = b"", {}, bytearray()  # type: tuple[bytes, dict[bytes, bytes], bytearray]
        self._received = perf_counter()
        self._read_by, self._write_by, self._linger_until = self._received + app.limits.read, _NEVER, _NEVER
        self._unsent = self._held = 0
        self.peer = ""

    # What the event loop calls

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        name = transport.get_extra_info("peername")
        self.peer = name[0] if name else ""
        self._app.opened(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._app.closed(self)
        self._pipeline.clear()
        self._release(self._held)

    def data_received(self, data: bytes) -> None:
        if self._linger_until != _NEVER:
            return
        events = self._events
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # refused when its headers were complete
        except httptools.HttpParserError as error:
            self._refuse(400, f"the request is not valid HTTP/1.1: {error}")
        if self._is_reading and events == self._events:
            self._count_head(len(data))  # a header, a trailer or the size of a chunk without an end
        if self._refusal is not None:
            self._cut_off()

    def eof_received(self) -> bool:
        self._keep_alive = False
        return self._current is not None or bool(self._pipeline)  # the answer can still be sent

    def pause_writing(self) -> None:
        self._write_by = perf_counter() + self._app.limits.write
        self._unsent = self._transport.get_write_buffer_size()

    def resume_writing(self) -> None:
        self._write_by = _NEVER

    def check_time(self, now: float) -> None:
        """Cut off a client that is too slow, and one that has been silent for long; called every now and then."""
        if now > self._write_by and self._transport.get_write_buffer_size() < self._unsent:
            # It takes its time, but it takes the answer.
            self._write_by, self._unsent = now + self._app.limits.write, self._transport.get_write_buffer_size()
        elif now > self._linger_until or now > self._write_by:
            if now > self._write_by:
                self._app.too_slow()
            self._transport.abort()
        elif self._is_reading and now > self._read_by:
            self._refuse(408, f"the request took longer than {self._app.limits.read:g} s to arrive; send it faster")
            self._cut_off()
        elif self._current is None and not self._is_reading and now > self._read_by and self._write_by == _NEVER:
            self._transport.close()

    def drain(self) -> None:
        """Close the connection as soon as nothing is in work."""
        self._keep_alive = False
        if self._current is None and not self._is_reading and not self._pipeline:
            self._transport.close()

    # What the parser calls

    def on_message_begin(self) -> None:
        self._events += 1
        self._received = perf_counter()
        self._read_by = self._received + self._app.limits.read
        self._url, self._headers, self._body = b"", {}, bytearray()
        self._head_size = self._size = 0
        self._request, self._is_reading = None, True

    def on_url(self, url: bytes) -> None:
        self._events += 1
        self._url += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._events += 1
        if self._request is None:  # a trailer must not replace a header that was checked
            self._headers[name.lower()] = value
        self._count_head(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        self._events += 1
        if self._refusal is not None:
            return
        try:
            path, query = _parse_url(self._url)
        except (httptools.HttpParserInvalidURLError, ValueError):
            self._refuse(400, "the path is not valid; write it in ASCII, and other characters as %XX of UTF-8")
            return
        request = Request(self._parser.get_method().decode("ascii"), path, query, self._headers, self._received)
        request.peer = self.peer
        self._request = request
        self._refusal = self._app.admit(request)
        if self._refusal is None and b"host" not in self._headers and self._parser.get_http_version() == "1.1":
            self._refuse(400, "a request of HTTP/1.1 has the header Host; add it")
        if self._parser.should_upgrade():
            self._refuse(400, "the server speaks HTTP/1.1 and does not change the protocol")
        if int(self._headers.get(b"content-length", b"0")) > self._app.limits.body:
            self._refuse_size()
        if self._refusal is None and self._headers.get(b"expect", b"").lower() == b"100-continue":
            self._transport.write(_CONTINUE)

    def on_body(self, body: bytes) -> None:
        self._events += 1
        self._size += len(body)
        if self._size > self._app.limits.body:
            self._refuse_size()
        elif self._refusal is None:
            self._held += len(body)
            self._app.held += len(body)
            self._body += body  # an object for each piece would take far more memory than the bytes that are counted
            if self._app.held > self._app.limits.bodies:
                self._refuse(503, "the server holds too many bodies at a time; try again later", retry_after(1.0))

    def on_chunk_header(self) -> None:
        self._events += 1

    def on_chunk_complete(self) -> None:
        self._events += 1

    def on_message_complete(self) -> None:
        self._events += 1
        self._is_reading = False
        request = self._request
        if self._refusal is not None or request is None:
            return
        request.body = bytes(self._body)
        self._body = bytearray()
        version = self._parser.get_http_version()
        entry = request, bool(self._parser.should_keep_alive()), version == "1.0"
        if self._current is None and not self._pipeline:
            self._start(*entry)
            return
        self._pipeline.append(entry)
        if len(self._pipeline) >= _MAX_PIPELINED:
            self._transport.pause_reading()

    def _count_head(self, size: int) -> None:
        self._head_size += size
        if self._head_size > self._app.limits.header:
            self._refuse(431, f"the request line and headers have more than {self._app.limits.header:,} bytes")

    def _refuse_size(self) -> None:
        self._refuse(413, f"the body has more than {self._app.limits.body:,} bytes; send fewer rows at a time")

    # Answers

    def _start(self, request: Request, keep_alive: bool, old_version: bool) -> None:
        if self._transport.is_closing():
            return
        self._current, self._old_version = request, old_version
        self._keep_alive = self._keep_alive and keep_alive
        self._app.take(request, self._respond)

    def _respond(self, response: Response) -> None:
        request = self._current
        assert request is not None  # it is in work until it is answered
        self._current = None
        self._release(len(request.body))
        now = perf_counter()
        self._app.finished(request, response.status, now - request.received)
        if self._transport.is_closing():
            return
        keep_alive = self._keep_alive and not self._app.is_draining
        self._write(request, response, keep_alive)
        if not keep_alive and self._linger_until == _NEVER:
            self._transport.close()
        elif self._pipeline:
            self._loop.call_soon(self._next)
        elif self._refusal is not None:
            self._cut_off()
        elif not self._is_reading:
            self._read_by = now + self._app.limits.idle

    def _release(self, size: int) -> None:
        """So many bytes of bodies are no longer needed; those of a lost connection were released before its answers."""
        size = min(size, self._held)
        self._app.held -= size
        self._held -= size

    def _next(self) -> None:
        if self._pipeline and self._current is None:
            self._start(*self._pipeline.popleft())
            if not self._pipeline and not self._transport.is_closing():
                self._transport.resume_reading()

    def _write(self, request: Request | None, response: Response, keep_alive: bool) -> None:
        status, body, kind, headers = response
        more = b"".join([b"%b: %b\r\n" % header for header in headers])
        if not keep_alive:
            more += b"connection: close\r\n"
        elif self._old_version:
            more += b"connection: keep-alive\r\n"
        shown = b"" if request is not None and request.method == "HEAD" else body
        self._transport.write(
            b"HTTP/1.1 %d %b\r\ndate: %b\r\ncontent-type: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n%b%b\r\n%b"
            % (
                status,
                _TITLES[status],
                self._app.date,
                kind,
                len(body),
                (request.id if request is not None else "").encode(),
                _FIXED,
                more,
                shown,
            )
        )

    def _refuse(self, status: int, detail: str, headers: tuple[tuple[bytes, bytes], ...] = ()) -> None:
        if self._refusal is None:
            found = problem(status, detail, self._request.id if self._request is not None else "")
            self._refusal = found._replace(headers=headers)

    def _cut_off(self) -> None:
        """Send the refusal once everything before it is answered, and read no more."""
        if self._current is not None or self._pipeline or self._refusal is None:
            return
        request = self._request or Request("", "", "", {}, self._received)
        self._app.finished(request, self._refusal.status, perf_counter() - request.received)
        self._linger_until = perf_counter() + _LINGER
        self._is_reading = False
        self._body = bytearray()
        self._release(self._held)
        if not self._transport.is_closing():
            self._write(request, self._refusal, keep_alive=False)
            # Closing at once would reset the connection, and the client might never see the answer.
            if self._transport.can_write_eof():
                self._transport.write_eof()
