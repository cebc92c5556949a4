"""Progress: one line with the current stage of a fit and the remaining time."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from splinefm._wording import number, visible
from splinefm.train.losses import Loss

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from splinefm.train.results import Epoch

# Seconds until a stage is shown, and seconds between two lines of a log.
SHOW_AFTER, LOG_INTERVAL = 1.0, 30.0


@dataclass
class _Stage:
    """A stage: rows done out of `rows`, if known, and `later` more rows after this stage.

    A cold stage begins with one-time work, so its speed is measured after the first rows.
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
        """Return the remaining time of this and later stages at the current speed, if known."""
        since, before = (self.warm_since, self.warm_from) if self.cold else (self.begun, 0)
        if self.rows is None or self.done <= before:
            return []
        rest = max(0, self.rows - self.done) + self.later
        most = "at most " if self.later else ""  # a run may stop before its last epoch
        return [f"{most}{_clock(rest * (now - since) / (self.done - before))} left"]


class Progress:
    """Shows on one line what a fit is doing.

    A terminal shows a live line, updated four times a second, and one permanent line per epoch. Other streams get plain
    lines: one per epoch, and one every 30 seconds during long stages or many short ones. Without a console, nothing is
    shown.

    Parameters
    ----------
    console : rich.console.Console, optional
        The console to write to.

    Examples
    --------
    >>> from rich.console import Console
    >>> with Progress(Console()) as progress:
    ...     progress.begin_epoch(1, 2, rows=100)
    ...     progress.advance(50)
    ...     progress.say("halfway there")
    halfway there
    """

    def __init__(self, console: Console | None = None) -> None:
        self.console = console
        self.stage = _Stage("", None, 0, 0.0)
        self._outer = ""
        self._due = math.inf
        self._said = time.perf_counter()
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
        """Begin a stage, with its number of rows if known."""
        self._begin(_Stage(what, rows, 0, time.perf_counter()), SHOW_AFTER)

    def begin_epoch(self, number: int, epochs: int, rows: int) -> None:
        """Begin an epoch, counted from 1."""
        # The first steps load code and fill caches.
        cold = number == 1
        stage = _Stage(f"epoch {number}/{epochs}", rows, (epochs - number) * rows, time.perf_counter(), cold)
        self._begin(stage, SHOW_AFTER if self._live is not None else LOG_INTERVAL)

    def advance(self, rows: int, loss: float = math.nan) -> None:
        """Add rows that are done; `loss` is the mean loss of the stage so far."""
        now = time.perf_counter()
        self.stage.advance(rows, loss, now)
        if self.console is not None and self._live is None and now >= self._due:
            self.say(self.stage.line(now))

    def end_epoch(self, epoch: Epoch, loss: Loss) -> None:
        """End an epoch with its measurements."""
        if self.console is None or self._outer:
            return
        now, self._due = time.perf_counter(), math.inf  # until the next stage begins
        parts = [self.stage.what, f"loss {epoch.train_loss:.5g}"]
        parts += [] if math.isnan(epoch.validation_loss) else [_validation(loss, epoch.validation_loss)]
        parts += [f"{epoch.rows_per_second:,.0f} rows/s"]
        parts += self.stage.left(now) if self.stage.later else [f"{_clock(epoch.seconds)} in all"]
        self.say("  ".join(parts))

    def say(self, text: str) -> None:
        """Print a permanent line."""
        if self.console is not None:
            self.console.print(visible(text, lines=True), markup=False, highlight=False, soft_wrap=True)
        if self._live is not None:
            self._live.refresh()  # printing repeats the old live line
        else:
            self._said = time.perf_counter()
            self._due = self._said + LOG_INTERVAL

    @contextmanager
    def within(self, what: str) -> Iterator[None]:
        """Make the stages inside parts of a larger one, without permanent lines for their epochs."""
        outer = self._outer
        if not outer:
            self._due = time.perf_counter() + SHOW_AFTER
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
        if self.console is not None and self._live is None and stage.begun - self._said >= LOG_INTERVAL:
            self.say(stage.what)  # a stage that counts no rows has no later line

    def _render(self) -> Text:
        from rich.text import Text

        now = time.perf_counter()
        shown = self.stage.what and now >= self._due
        return Text(visible(self.stage.line(now)) if shown else "", no_wrap=True, overflow="ellipsis")


SILENT = Progress()


def make_progress(verbose: bool) -> Progress:
    """Return progress on standard error, or silent progress."""
    if not verbose:
        return Progress()
    from rich.console import Console

    # Decide here: rich treats some environment variables as a terminal.
    return Progress(Console(stderr=True, force_terminal=sys.stderr.isatty()))


def _validation(loss: Loss, value: float) -> str:
    return f"validation {loss.metric_name.lower()} {number(loss.metric(value))}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
