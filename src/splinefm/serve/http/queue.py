"""Admission: which requests may wait for a worker, and which are told to come back."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

from splinefm.serve.http.messages import Answer, Later, Pending, Request, Response, problem, retry_after
from splinefm.serve.settings import Limits

Respond = Callable[[Response], None]
# Seconds of work between two looks at the sockets: reading must not starve, nor starve the work.
_SLICE = 0.001
# Weight of the last request in the mean of the time that a request takes.
_LAST = 0.05
_MAX_LONG = 8


class WorkQueue:
    """A bounded queue of requests, worked off on the thread of the event loop; long ones by a thread of their own.

    A request is refused if too many wait, or if those that wait probably take longer than `limits.wait`: an answer that
    nobody waits for any more is worth nothing, and refusing is cheap.

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

    def run_long(self, compute: Callable[[], None]) -> None:
        """Run something on the thread of long requests that nobody waits for."""
        self._loop.run_in_executor(self._thread, compute)

    def close(self) -> None:
        """Let the thread of long requests end."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _refusal(self, request: Request, reason: str, text: str, seconds: float) -> Response:
        self._refused(reason)
        found = problem(503, f"{text}; try again after the time that Retry-After says", request.id)
        return found._replace(headers=retry_after(seconds))

    def _work(self) -> None:
        begin = perf_counter()
        now = begin
        while self._waiting and now - begin < _SLICE:
            request, respond = self._waiting.popleft()
            if now > request.deadline:
                respond(self._refusal(request, "deadline", "the request waited longer than its deadline", 0.0))
                continue
            answer = self._answer(request)
            if isinstance(answer, Later):
                self._hand_over(request, answer, respond)
            elif isinstance(answer, Pending):
                answer.start(respond)
            else:
                respond(answer)
            last, now = now, perf_counter()
            self._mean += _LAST * (now - last - self._mean)
        self._is_scheduled = bool(self._waiting)
        if self._waiting:
            self._loop.call_soon(self._work)

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
