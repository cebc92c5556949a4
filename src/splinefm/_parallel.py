"""Threads: how many to use, work done by several of them in order, prefetching, and cancellation."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def count_threads(threads: int | None) -> int:
    """The number of threads to use: as given, or the cores of this process, which a container may limit.

    Examples
    --------
    >>> count_threads(3)
    3
    """
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    return threads


def in_order(function: Callable[[_Item], _Result], items: Iterable[_Item], threads: int | None) -> Iterator[_Result]:
    """Call a function on every item with several threads, and yield the results in order.

    The threads do not run far ahead of the consumer. `ThreadPoolExecutor.map` would first read all items, such as the
    chunks of a table larger than memory.

    Examples
    --------
    >>> list(in_order(abs, [-2, 1, -3], threads=2))
    [2, 1, 3]
    """
    n_threads = count_threads(threads)
    if n_threads > 1:
        items = iter(items)
        first = list(islice(items, 2))
        items = chain(first, items)
        if len(first) < 2:  # starting a thread takes longer than a short table, and one item gains nothing by it
            n_threads = 1
    if n_threads == 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(n_threads)
    try:
        waiting: deque[Future[_Result]] = deque()
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * n_threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


def prefetch(items: Iterable[_Item], depth: int = 1) -> Generator[_Item, None, None]:
    """Yield the items, with the next ones prepared in a thread; closing the generator ends the thread.

    Examples
    --------
    >>> list(prefetch(range(3)))
    [0, 1, 2]
    """
    iterator, end = iter(items), object()
    with ThreadPoolExecutor(1, "prefetch") as pool:
        try:
            upcoming = deque(pool.submit(next, iterator, end) for _ in range(depth))
            while (item := upcoming.popleft().result()) is not end:
                upcoming.append(pool.submit(next, iterator, end))
                yield item  # type: ignore[misc]  # not the end
                del item  # while the consumer waits for the next one, only it may keep this one
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class Cancelled(Exception):
    """Work was cancelled because its result is no longer needed, or its time is up."""


class Cancellation:
    """Asks work in other threads to end: it calls `check` between its steps.

    Parameters
    ----------
    deadline : float, optional
        When the work is to end, on the clock of `time.monotonic`.

    Examples
    --------
    >>> cancellation = Cancellation()
    >>> cancellation.check()
    >>> cancellation.cancel()
    >>> cancellation.check()
    Traceback (most recent call last):
    splinefm._parallel.Cancelled
    """

    def __init__(self, deadline: float | None = None) -> None:
        self._event, self._deadline = threading.Event(), deadline

    def cancel(self) -> None:
        """Make the next `check` raise `Cancelled`."""
        self._event.set()

    def check(self) -> None:
        """Raise `Cancelled` if the work was cancelled, or its time is up."""
        if self._event.is_set() or (self._deadline is not None and time.monotonic() >= self._deadline):
            raise Cancelled
