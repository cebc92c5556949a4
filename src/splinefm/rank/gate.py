"""Searches and changes of an index in several threads: many searches at a time, or one change."""

from __future__ import annotations

from threading import Condition
from typing import Any


class Gate:
    """Lets in any number of readers, or one writer; a writer that waits goes before readers that come later.

    Examples
    --------
    >>> gate = Gate()
    >>> with gate.reading, gate.reading:
    ...     pass
    >>> with gate.writing:
    ...     pass
    """

    def __init__(self) -> None:
        self.changed = Condition()
        self.n_readers = self.n_waiting = 0
        self.is_writing = False
        self.reading, self.writing = _Reading(self), _Writing(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return Gate, ()  # a copy of an index has a gate of its own


class _Reading:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        gate = self._gate
        with gate.changed:
            while gate.is_writing or gate.n_waiting:
                gate.changed.wait()
            gate.n_readers += 1

    def __exit__(self, *_: object) -> None:
        gate = self._gate
        with gate.changed:
            gate.n_readers -= 1
            if not gate.n_readers:
                gate.changed.notify_all()


class _Writing:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def __enter__(self) -> None:
        gate = self._gate
        with gate.changed:
            gate.n_waiting += 1
            try:
                while gate.is_writing or gate.n_readers:
                    gate.changed.wait()
                gate.is_writing = True
            finally:
                gate.n_waiting -= 1

    def __exit__(self, *_: object) -> None:
        gate = self._gate
        with gate.changed:
            gate.is_writing = False
            gate.changed.notify_all()
