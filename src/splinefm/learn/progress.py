"""Progress: one line that says what a fit is doing and how far it is."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from splinefm._wording import visible
from splinefm.learn.losses import Loss

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from splinefm.learn.training import Epoch

# What is over sooner is not worth a line; a log gets a line for what is still going on after a while.
WORTH_A_LINE, BETWEEN_LINES = 1.0, 30.0


@dataclass
class _Stage:
    """What is going on: rows done, of `rows` if known, with `later` more to come after this stage.

    A cold stage begins with what is done once, such as compiling: its pace is that of the rows after the first ones.
    """

    what: str
    rows: int | None
    later: int
    begun: float
    cold: bool = False
    done: int = 0
    loss: float = math.nan
    warm_since: float = math.nan
    warm_from: int = 0

    def advance(self, rows: int, loss: float, now: float) -> None:
        if not self.done:
            self.warm_since, self.warm_from = now, rows
        self.done += rows
        self.loss = loss

    def line(self, now: float) -> str:
        seconds = max(now - self.begun, 1e-9)
        if not self.done:
            return f"{self.what}  {_clock(seconds)}"
        of = f" of {self.rows:,}" if self.rows else ""
        parts = [self.what, f"{self.done:,}{of} rows"]
        parts += [] if math.isnan(self.loss) else [f"loss {self.loss:.5g}"]
        parts += [f"{self.done / seconds:,.0f} rows/s"]
        return "  ".join([*parts, *self.left(now)])

    def left(self, now: float) -> list[str]:
        """The time that the rest of this stage and what comes later will take at the present speed, if it is known."""
        since, before = (self.warm_since, self.warm_from) if self.cold else (self.begun, 0)
        if self.rows is None or self.done <= before:
            return []
        rest = max(0, self.rows - self.done) + self.later
        return [f"{_clock(rest * (now - since) / (self.done - before))} left"]


class Progress:
    """Tells on one line what a fit is doing.

    On a terminal the line is drawn four times a second and every epoch leaves a line behind. On other streams there are
    plain lines: one per epoch, and one now and then for what takes long. Without a console nothing is told.

    Parameters
    ----------
    console : rich.console.Console, optional
        Where to write.

    Examples
    --------
    >>> from rich.console import Console
    >>> with Progress(Console()) as progress:
    ...     progress.begin_epoch(1, 2, rows=100)
    ...     progress.advance(50)
    ...     progress.say("half of it is done")
    half of it is done
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console
        self.stage = _Stage("", None, 0, 0.0)
        self._outer = ""
        self._due = math.inf
        self._live: Live | None = None

    def __enter__(self) -> Progress:
        if self.console is not None and self.console.is_terminal and not self.console.is_dumb_terminal:
            from rich.live import Live

            self._live = Live(console=self.console, get_renderable=self._render, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def begin(self, what: str, rows: int | None = None) -> None:
        """A new stage begins, of so many rows if that is known."""
        self._begin(_Stage(what, rows, 0, time.perf_counter()), WORTH_A_LINE)

    def begin_epoch(self, number: int, epochs: int, rows: int) -> None:
        """An epoch begins, counted from 1, of so many rows."""
        # Kernels are compiled or loaded in the first steps.
        cold = number == 1
        stage = _Stage(f"epoch {number}/{epochs}", rows, (epochs - number) * rows, time.perf_counter(), cold)
        self._begin(stage, WORTH_A_LINE if self._live is not None else BETWEEN_LINES)

    def advance(self, rows: int, loss: float = math.nan) -> None:
        """So many more rows are done; `loss` is the mean loss of the stage so far."""
        now = time.perf_counter()
        self.stage.advance(rows, loss, now)
        if self.console is not None and self._live is None and now >= self._due:
            self.say(self.stage.line(now))

    def end_epoch(self, epoch: Epoch, loss: Loss) -> None:
        """The epoch is over, and this is what came out."""
        if self.console is None or self._outer:
            return
        now, self._due = time.perf_counter(), math.inf  # the line moves again when something begins
        parts = [self.stage.what, f"loss {epoch.train_loss:.5g}"]
        parts += [] if math.isnan(epoch.validation_loss) else [f"validation {_metric(loss, epoch.validation_loss)}"]
        parts += [f"{epoch.rows_per_second:,.0f} rows/s"]
        parts += self.stage.left(now) if self.stage.later else [f"{_clock(epoch.seconds)} in all"]
        self.say("  ".join(parts))

    def say(self, text: str) -> None:
        """A line that stays."""
        if self.console is not None:
            self.console.print(visible(text, lines=True), markup=False, highlight=False, soft_wrap=True)
        if self._live is not None:
            self._live.refresh()  # printing repeats the moving line as it was
        else:
            self._due = time.perf_counter() + BETWEEN_LINES

    @contextmanager
    def within(self, what: str) -> Iterator[None]:
        """The stages inside are parts of a larger one, and their epochs leave no lines."""
        outer = self._outer
        if not outer:
            self._due = time.perf_counter() + WORTH_A_LINE
        self._outer = f"{outer}{what}, "
        try:
            yield
        finally:
            self._outer = outer

    def _begin(self, stage: _Stage, wait: float) -> None:
        if not self._outer:
            self._due = stage.begun + wait
        stage.what = self._outer + stage.what
        self.stage = stage

    def _render(self) -> Text:
        from rich.text import Text

        now = time.perf_counter()
        shown = self.stage.what and now >= self._due
        return Text(visible(self.stage.line(now)) if shown else "", no_wrap=True, overflow="ellipsis")


SILENT = Progress()


def make_progress(verbose: bool) -> Progress:
    """Progress on the standard error stream, or none."""
    if not verbose:
        return Progress()
    from rich.console import Console

    # Decided here: rich takes some environment variables for a terminal.
    return Progress(Console(stderr=True, force_terminal=sys.stderr.isatty()))


def _metric(loss: Loss, value: float) -> str:
    """A validation loss as people know it: in the unit of the target where there is one."""
    if loss.name == "squared":
        return f"rmse {loss.scale * math.sqrt(2.0 * value):.5g}"
    return f"{'logloss' if loss.name == 'logistic' else 'loss'} {value:.5g}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
