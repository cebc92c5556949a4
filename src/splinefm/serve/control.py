"""What supervisor and workers tell each other: lines of JSON over a pair of sockets."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable
from contextlib import suppress
from time import monotonic
from typing import Any

Message = dict[str, Any]
# How long a message may wait for room before the other process counts as gone.
SEND_SECONDS = 5.0


class Channel:
    """One end of a pair of sockets, on an event loop.

    Parameters
    ----------
    end : socket
        The end of this process.
    loop : event loop
        Reads and writes.
    received : callable
        Called with every message.
    closed : callable
        Called once the other process is gone.

    Attributes
    ----------
    is_open : bool
        Whether the other process can still be there.
    """

    def __init__(
        self, end: socket.socket, loop: Any, received: Callable[[Message], None], closed: Callable[[], None]
    ) -> None:
        self._end, self._loop, self._received, self._closed = end, loop, received, closed
        self._buffer = b""
        self.is_open = True
        end.setblocking(False)
        loop.add_reader(end.fileno(), self._read)

    def send(self, message: Message) -> None:
        """Send a message; one that the other process cannot take any more is dropped."""
        if not self.is_open:
            return
        self._end.settimeout(SEND_SECONDS)  # messages are short, and the other end reads unless it was stopped
        try:
            self._end.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            self.close()
        finally:
            if self.is_open:
                self._end.setblocking(False)

    def close(self) -> None:
        """Stop reading and writing."""
        if self.is_open:
            self.is_open = False
            self._loop.remove_reader(self._end.fileno())
            self._end.close()
            self._closed()

    def _read(self) -> None:
        try:
            data = self._end.recv(1 << 16)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            self._received(json.loads(line))


class WorkerHandle:
    """What the supervisor knows of a worker."""

    def __init__(self, number: int, process: asyncio.subprocess.Process) -> None:
        self.number, self.process = number, process
        self.channel: Channel | None = None
        self.is_ready = False
        self.began = monotonic()
        self.generations: dict[str, int] = {}
        self.waiting: asyncio.Future[Message] | None = None
        self.answered = asyncio.Event()

    async def kill(self) -> None:
        """Kill the process, and wait for its end."""
        with suppress(ProcessLookupError):  # it has just ended by itself
            self.process.kill()
        await self.process.wait()

    def tell(self, message: Message) -> None:
        """Send a message."""
        if self.channel is not None:
            self.channel.send(message)
