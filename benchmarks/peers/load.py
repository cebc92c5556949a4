"""Keeps the connections to a server busy where wrk is not installed; prints how many answers came, and how fast.

    python -m peers.load PORT SECONDS CONNECTIONS REQUESTS

REQUESTS is a JSON file with the path and the bodies. One process of Python takes a part of the processor that wrk does
not need, so rates of short requests are lower than with wrk; the processor time of the servers is the same.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path

import httptools
import numpy as np


class Connection:
    """Sends one request after the other, and keeps the times of the answers."""

    def __init__(self, requests: list[bytes], first: int, end: float) -> None:
        self._requests, self._at, self._end = requests, first, end
        self._is_complete = False
        self.seconds: list[float] = []
        self.failed = 0

    def on_message_complete(self) -> None:
        """Note the end of an answer."""
        self._is_complete = True

    async def run(self, port: int) -> None:
        """Ask until the time is up."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < self._end:
            begin = time.perf_counter()
            writer.write(self._requests[self._at % len(self._requests)])
            self._at += 1
            self._is_complete, parser = False, httptools.HttpResponseParser(self)
            while not self._is_complete:
                parser.feed_data(await reader.read(1 << 16))
            self.seconds.append(time.perf_counter() - begin)
            self.failed += parser.get_status_code() != 200
        writer.close()


async def main() -> None:
    """Run all connections."""
    port, seconds, connections, path = sys.argv[1:5]
    content = json.loads(Path(path).read_text())
    head = f"POST {content['path']} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: "
    requests = [f"{head}{len(body.encode())}\r\n\r\n{body}".encode() for body in content["bodies"]]
    begin = time.perf_counter()
    every = [Connection(requests, number, begin + float(seconds)) for number in range(int(connections))]
    await asyncio.gather(*(each.run(int(port)) for each in every))
    elapsed = time.perf_counter() - begin
    times = np.concatenate([each.seconds for each in every]) * 1e3
    p50, p99 = np.percentile(times, (50, 99)).tolist()
    failed = sum(each.failed for each in every)
    print(json.dumps({"n": len(times), "failed": failed, "elapsed": elapsed, "p50_ms": p50, "p99_ms": p99}))


if __name__ == "__main__":
    asyncio.run(main())
