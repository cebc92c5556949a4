"""Clients of a server under load, in a process of their own: they keep the time of every answer, and check its scores.

    python -m peers.clients PORT SECONDS CONNECTIONS RATE EXPECTED < BODIES

Each connection sends a request, waits for the answer and, if RATE (requests per second of all connections) is not 0,
for its turn. Clients do not heed Retry-After: they are as rude as they can be. EXPECTED is a file with a list of lists:
the scores of each body for each version that may answer. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httptools
import numpy as np


class Client(asyncio.Protocol):
    """One connection."""

    def __init__(self, run: Run, number: int) -> None:
        self._run, self._number = run, number
        self._transport: Any = None
        self._next = time.perf_counter()
        self._begin = 0.0
        self._body: list[bytes] = []
        self._which = 0
        self._is_waiting = False

    def connection_made(self, transport: Any) -> None:
        """Send the first request."""
        self._transport = transport
        self._send()

    def _send(self) -> None:
        run = self._run
        if run.is_over():
            self._transport.close()
            return
        self._parser = httptools.HttpResponseParser(self)
        self._body = []
        self._which = run.take()
        self._begin = time.perf_counter()
        self._is_waiting = True
        self._transport.write(run.requests[self._which])

    def data_received(self, data: bytes) -> None:
        """Read an answer."""
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        """Keep a part of an answer."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """Keep the time of an answer, check it, and send the next request when it is its turn."""
        now = time.perf_counter()
        self._is_waiting = False
        run = self._run
        status = self._parser.get_status_code()
        run.add(status, now - self._begin, self._which, self._body)
        if run.interval:
            self._next = max(self._next + run.interval, now - 1.0)  # what is missed by more is not made up for
            asyncio.get_running_loop().call_later(max(0.0, self._next - now), self._send)
        else:
            asyncio.get_running_loop().call_soon(self._send)

    def connection_lost(self, error: Exception | None) -> None:
        """Come back after an error."""
        if self._is_waiting:
            self._run.statuses["lost"] += 1
        if not self._run.is_over():
            asyncio.get_running_loop().call_later(0.05, self._run.connect, self._number)


class Run:
    """All connections, and what came of them."""

    def __init__(self, port: int, seconds: float, connections: int, rate: float, expected: Any, bodies: Any) -> None:
        self.port, self.end, self.expected = port, time.perf_counter() + seconds, expected
        self.interval = connections / rate if rate else 0.0
        head = "POST {} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
        self.requests = [head.format(path, len(body.encode())).encode() + body.encode() for path, body in bodies]
        self.statuses: Counter[str] = Counter()
        self.versions: Counter[str] = Counter()
        self.times: dict[int, list[float]] = {}
        self.wrong = 0
        self._at = 0
        self._tasks: set[Any] = set()

    def is_over(self) -> bool:
        """Whether the time is up."""
        return time.perf_counter() > self.end

    def stop(self) -> None:
        """End early."""
        self.end = time.perf_counter()

    def take(self) -> int:
        """The number of the next body."""
        self._at = (self._at + 1) % len(self.requests)
        return self._at

    def add(self, status: int, seconds: float, which: int, body: list[bytes]) -> None:
        """Keep and check an answer."""
        self.statuses[str(status)] += 1
        self.times.setdefault(status, []).append(seconds)
        if status == 200:
            answer = json.loads(b"".join(body))
            versions = answer.get("versions") or {"": answer["version"]}
            (version,) = versions.values()
            self.versions[version] += 1
            if answer["scores"] != self.expected.get(version, [None] * len(self.requests))[which]:
                self.wrong += 1

    def connect(self, number: int) -> None:
        """Open a connection."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._connect(number))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: Client(self, number), "127.0.0.1", self.port)
        except OSError:
            self.statuses["refused"] += 1
            if not self.is_over():
                loop.call_later(0.05, self.connect, number)

    def result(self, seconds: float) -> dict[str, Any]:
        """What came of all requests; times in ms."""
        accepted = np.array(self.times.get(200, [0.0])) * 1e3
        refused = np.array(self.times.get(503, [0.0])) * 1e3
        return {
            "statuses": dict(self.statuses),
            "versions": dict(self.versions),
            "wrong": self.wrong,
            "accepted_per_s": self.statuses["200"] / seconds,
            "offered_per_s": sum(self.statuses.values()) / seconds,
            "p50_ms": float(np.percentile(accepted, 50)),
            "p99_ms": float(np.percentile(accepted, 99)),
            "refused_p99_ms": float(np.percentile(refused, 99)),
        }


async def main() -> None:
    """Run all connections, and print what came of them."""
    port, seconds, connections, rate, expected = sys.argv[1:6]
    known = json.loads(Path(expected).read_text())
    run = Run(int(port), float(seconds), int(connections), float(rate), known, json.load(sys.stdin))
    for number in range(int(connections)):
        run.connect(number)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, run.stop)
    begin = time.perf_counter()
    while not run.is_over():
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)  # the last answers
    print(json.dumps(run.result(time.perf_counter() - begin - 1.0)))


if __name__ == "__main__":
    asyncio.run(main())
