"""Termination: SIGTERM, upon which all ranks write a checkpoint and end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

EXIT_CODE = 128 + signal.SIGTERM


class Terminated(Exception):
    """SIGTERM ended a run; the message says what is kept."""


class Termination:
    """Whether this process got SIGTERM.

    While steps are taken, the signal is noted, and the ranks agree on the step after which they end. Before and after
    that, it raises `Terminated` at once.

    Attributes
    ----------
    requested : bool
        Whether the signal came while steps were taken.
    """

    def __init__(self) -> None:
        self.requested = False
        self._taking_steps = False

    @contextmanager
    def handled(self) -> Iterator[None]:
        """Handle the signal in this context; threads other than the main one cannot."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(signal.SIGTERM, self._handle)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    @contextmanager
    def while_taking_steps(self) -> Iterator[None]:
        """Note the signal instead of raising an error."""
        self._taking_steps = True
        try:
            yield
        finally:
            self._taking_steps = False

    def _handle(self, *_: object) -> None:
        if not self._taking_steps:
            raise Terminated("stopped by SIGTERM while no steps were taken; no checkpoint is written")
        self.requested = True
