"""`splinefm serve` in a process of its own, and requests to it."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

PATIENCE = 60.0


class Server:
    """A server on a free port of the loopback interface; leaving the block ends it.

    Parameters
    ----------
    arguments : str
        Arguments of `splinefm serve`.
    events : path
        The file that gets the server's log of events.
    """

    def __init__(self, *arguments: str, events: Path) -> None:
        command = [sys.executable, "-m", "splinefm", "serve", "--port", "0", "--admin-from-loopback", *arguments]
        self._events = events.open("w")
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._port: int | None = None
        self._listening = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._listening.wait(PATIENCE) or self._port is None:
            self.stop()
            raise RuntimeError(f"the server did not start: {events.read_text()[-2000:]}")
        self.connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)

    def _read(self) -> None:
        for line in self.process.stderr or ():
            self._events.write(line)
            found = re.search(r'"event": "listening".*:(\d+)"', line)
            if found:
                self._port = int(found[1])
                self._listening.set()
        self._listening.set()

    def ask(self, path: str, content: Any, request_id: str | None = None) -> Any:
        """Send an object as JSON and return the answer; a busy server is asked again."""
        headers = {"Content-Type": "application/json"} | ({"X-Request-Id": request_id} if request_id else {})
        for _ in range(20):
            self.connection.request("POST", path, json.dumps(content), headers)
            response = self.connection.getresponse()
            body = response.read()
            if response.status != 503:
                break
            threading.Event().wait(float(response.headers.get("Retry-After", 1)))
        if response.status >= 300:
            raise RuntimeError(f"POST {path}: {response.status} {body.decode()[:1000]}")
        return json.loads(body)

    def stop(self) -> None:
        """End the server; it answers what it has begun."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join(PATIENCE)
        self._events.close()
        if self.process.stderr is not None:
            self.process.stderr.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()
        self.stop()
