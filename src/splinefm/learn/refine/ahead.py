"""Steps that are tried one after the other, and the next one ahead of its turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from splinefm.learn.progress import Progress, UntilStopped

_Best = TypeVar("_Best")


class Ahead:
    """Takes steps in turn, each from the best result so far; while one is taken, a thread takes the next.

    Most steps change nothing. The next one then was taken from what is still the best, and its result counts; otherwise
    it is stopped, and taken again in its turn. So the results are those of one step after the other.

    Parameters
    ----------
    beside : bool
        Whether to take steps ahead of their turn.

    Examples
    --------
    >>> from splinefm.learn.progress import SILENT
    >>> def double(best, progress):
    ...     return 2 * best if best < 4 else None
    >>> with Ahead(beside=True) as ahead:
    ...     list(ahead.take([double, double, double], 1, SILENT))
    [2, 4]
    """

    def __init__(self, beside: bool) -> None:
        self._pool = ThreadPoolExecutor(1, "ahead") if beside else None
        self._progress = UntilStopped()

    def __enter__(self) -> Ahead:
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread, whatever it is doing."""
        self._progress.stop()
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def take(
        self, steps: Sequence[Callable[[_Best, Progress], _Best | None]], best: _Best, progress: Progress
    ) -> Iterator[_Best]:
        """Yield every result that is better than the best before; a step returns None if it has none."""
        turn = 0
        while turn < len(steps):
            upcoming = None
            if self._pool is not None and turn + 1 < len(steps):
                self._progress = UntilStopped()
                upcoming = self._pool.submit(steps[turn + 1], best, self._progress)
            found, turn = steps[turn](best, progress), turn + 1
            if found is not None:
                self._progress.stop()
            elif upcoming is not None:
                found, turn = upcoming.result(), turn + 1
            if found is not None:
                best = found
                yield best
