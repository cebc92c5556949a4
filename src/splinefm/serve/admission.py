"""Admission: which requests may wait for a worker, and which are told to come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter

from splinefm.serve.messages import Answer, Later, Pending, Request, Response, problem, retry_after
from splinefm.serve.settings import Limits

Respond = Callable[[Response], None]
# Seconds of work between two looks at the sockets: reading must not starve, nor starve the work.
_SLICE = 0.001
# Weight of the last request in the mean of the time that a request takes.
_LAST = 0.05
_MAX_LONG = 8


class WorkQueue:
    """A bounded queue of requests, worked off on the thread of the event loop; long ones by a thread of their own.

    A request is refused if too many wait, or if those that wait probably take longer than `limits.wait`: a late
    answer is worth nothing, and refusing is cheap.

    Parameters
    ----------
    loop : event loop
        Whose thread works.
    limits : Limits
        How many may wait, and how long.
    answer : callable
        Request -> answer; does not raise.
    refused : callable
        Called with the reason of every refusal, for the metrics.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        answer: Callable[[Request], Answer],
        refused: Callable[[str], None],
    ) -> None:
        self._loop, self._limits, self._answer, self._refused = loop, limits, answer, refused
        self._waiting: deque[tuple[Request, Respond]] = deque()
        self._is_scheduled = False
        self._mean = 0.0  # seconds per request
        self._long = 0
        self._spent = 0.0  # seconds since the event loop looked at its sockets
        self._thread = ThreadPoolExecutor(1, "long")

    def __len__(self) -> int:
        """Requests that wait or are worked on."""
        return len(self._waiting) + self._long

    def submit(self, request: Request, respond: Respond) -> None:
        """Answer a request as soon as it is its turn, or refuse it at once."""
        waiting = len(self._waiting)
        expected = waiting * self._mean
        if waiting >= self._limits.queue or expected > self._limits.wait:
            respond(self._refusal(request, "queue", "the server is busy", expected))
            return
        self._waiting.append((request, respond))
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._work)

    @property
    def is_free(self) -> bool:
        """Whether a request may be worked on at once: none waits, and the event loop has had a look at its sockets."""
        return not self._waiting and self._spent < _SLICE

    def run(self, request: Request, respond: Respond) -> None:
        """Answer a request at once, if `is_free`."""
        begin = perf_counter()
        self._serve(request, respond, begin)
        if not self._spent:
            self._loop.call_soon(self._begin_slice)
        self._spent += perf_counter() - begin

    def _begin_slice(self) -> None:
        self._spent = 0.0

    def close(self) -> None:
        """Let the thread of long requests end."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _refusal(self, request: Request, reason: str, text: str, seconds: float) -> Response:
        self._refused(reason)
        found = problem(503, f"{text}; try again after the time that Retry-After says", request.id)
        return found._replace(headers=retry_after(seconds))

    def _work(self) -> None:
        begin = now = perf_counter()
        while self._waiting and now - begin < _SLICE:
            now = self._serve(*self._waiting.popleft(), now)
        self._is_scheduled = bool(self._waiting)
        if self._waiting:
            self._loop.call_soon(self._work)

    def _serve(self, request: Request, respond: Respond, now: float) -> float:
        """Answer a request; returns when it was done."""
        if now > request.deadline:
            respond(self._refusal(request, "deadline", "the request waited longer than its deadline", 0.0))
            return now
        answer = self._answer(request)
        if isinstance(answer, Later):
            self._hand_over(request, answer, respond)
        elif isinstance(answer, Pending):
            answer.start(lambda response: self._call_back(respond, response))
        else:
            respond(answer)
        end = perf_counter()
        self._mean += _LAST * (end - now - self._mean)
        return end

    def _call_back(self, respond: Respond, response: Response) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(respond, response)

    def _hand_over(self, request: Request, answer: Later, respond: Respond) -> None:
        if self._long >= _MAX_LONG:
            respond(self._refusal(request, "queue", "too many long requests are waiting", 1.0))
            return
        self._long += 1

        def compute() -> Response | None:
            return answer.compute() if perf_counter() <= request.deadline else None

        def done(future: asyncio.Future[Response | None]) -> None:
            self._long -= 1
            if future.cancelled():
                return
            found = future.result()
            late = "the request waited longer than its deadline"
            respond(self._refusal(request, "deadline", late, 1.0) if found is None else found)

        self._loop.run_in_executor(self._thread, compute).add_done_callback(done)
