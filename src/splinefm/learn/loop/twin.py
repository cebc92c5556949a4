"""The run on all rows beside the run that chooses its number of epochs."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

from splinefm.learn.loop.divergence import Diverged, divergence_message
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
        self._diverged_in: int | None = None
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
        if self._diverged_in is None:
            self._learning = self._pool.submit(self.trainee.learn, epoch, self._progress)

    def end(self, epoch: int, keep: bool) -> None:
        """Wait for the end of the epoch, and keep its parameters if the other run says so."""
        if self._diverged_in is None and self._learning is not None:
            lesson = self._learning.result()
            if not lesson.is_finite:
                self._diverged_in = epoch
            elif keep:
                self.params = lesson.params
        if keep and self._diverged_in is not None:
            raise Diverged(divergence_message(self.trainee.training, self._diverged_in))
