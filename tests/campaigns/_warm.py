"""Servers forked from a process that has imported everything: a campaign that kills many of them need not start Python.

They are what `splinefm serve` runs, with one difference: the supervisor forks its workers instead of starting them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from typing import TextIO

import uvicorn._subprocess

import live
from splinefm.cli.main import app
from splinefm.serve import server  # imported here: forked processes have it

assert server


class WarmServer(live.LiveServer):
    """A server without the time that three processes need to start."""

    def start(self, arguments: Sequence[object]) -> Forked:
        """Fork the supervisor."""
        read, write = os.pipe()

        def supervise() -> None:
            os.dup2(write, 2)
            uvicorn._subprocess.spawn = multiprocessing.get_context("fork")  # type: ignore[assignment]
            app(["serve", "--port", "0", *map(str, arguments)], standalone_mode=False)

        process = Forked(supervise, os.fdopen(read))
        os.close(write)
        return process


class Forked:
    """A process that runs a function, with what `subprocess.Popen` and asyncio's `Process` have in common."""

    def __init__(self, run: Callable[[], None], stderr: TextIO | None = None) -> None:
        self.returncode: int | None = None
        self.stderr, self._waiting = stderr, threading.Lock()
        self.pid = os.fork()
        if not self.pid:
            code = 1
            try:
                run()
                code = 0
            except SystemExit as end:
                code = int(end.code or 0)
            finally:
                os._exit(code)

    def poll(self) -> int | None:
        """Return the exit code, or None as long as the process runs."""
        with self._waiting:
            if self.returncode is None:
                done, status = os.waitpid(self.pid, os.WNOHANG)
                self.returncode = os.waitstatus_to_exitcode(status) if done else None
            return self.returncode

    def wait(self, timeout: float = 60.0) -> int:
        """Wait for the end of the process, and return its exit code."""
        end = time.monotonic() + timeout
        while self.poll() is None:
            assert time.monotonic() < end, f"process {self.pid} does not end"
            time.sleep(0.01)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Kill it."""
        self.send_signal(signal.SIGKILL)
