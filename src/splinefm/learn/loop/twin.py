"""The run on all rows beside the run that chooses its number of epochs."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from splinefm.learn.loop.passes import Lesson, Trainee
from splinefm.learn.progress import UntilStopped
from splinefm.model.family import Params


class Twin:
    """Takes the epochs of a run on all rows in a thread of its own, while another run takes the same epochs.

    The other run holds rows out and decides which epoch is to be kept. Steps on few rows hardly gain by a second
    thread, and two runs do: both together take little longer than one, as opposed to one after the other. Parameters
    are the same to the bit.

    Parameters
    ----------
    trainee : Trainee
        The model that learns from all rows.
    """

    def __init__(self, trainee: Trainee) -> None:
        self.trainee = trainee
        self.params: Params | None = None
        self._diverged = False
        self._progress = UntilStopped()
        self._pool = ThreadPoolExecutor(1, "all-rows")
        self._learning: Future[Lesson] | None = None

    def __enter__(self) -> Twin:
        return self

    def __exit__(self, *_: object) -> None:
        """End the thread, whatever it is doing."""
        self._progress.stop()
        self._pool.shutdown(cancel_futures=True)

    def begin(self, epoch: int) -> None:
        """Begin an epoch, counted from 0, and return at once."""
        self._learning = None if self._diverged else self._pool.submit(self.trainee.learn, epoch, self._progress)

    def end(self, keep: bool) -> None:
        """Wait for the end of the epoch, and keep its parameters if the other run says so.

        There are none of a run that has diverged before: `params` is None, and a run of its own will tell why.
        """
        lesson = None if self._learning is None else self._learning.result()
        self._diverged = lesson is None or not lesson.is_finite
        if keep:
            self.params = None if lesson is None or self._diverged else lesson.params
