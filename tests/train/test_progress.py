"""Progress: a line that moves on a terminal, plain lines elsewhere, silence by default."""

import io
import math
import re
import time
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from rich.console import Console

import splinefm as sf
from splinefm.train import progress as module
from splinefm.train.progress import Progress

TRAINING = sf.Training(effort="fast", epochs=3, batch_size=64, threads=1, l2=1e-4, smoothness=3e-4)


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = 100.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def stream():
    return io.StringIO()


def waves(rows=500):
    rng = np.random.default_rng(0)
    x = rng.random(rows)
    return pa.table({"x": x, "y": np.sin(6 * x)})


def plain(stream):
    return Progress(Console(file=stream, force_terminal=False, width=40))


def terminal(stream):
    return Progress(Console(file=stream, force_terminal=True, width=100))


def epoch(number=1, validation=0.5):
    return sf.Epoch(number, 0.25, validation, 0.01, 2000.0, 65.0)


def test_silence_is_the_default(capsys):
    sf.fit_model(waves(), "y", loss="squared", training=TRAINING)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""


def test_verbose_writes_plain_lines_to_a_stream_that_is_no_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    fitted = sf.fit_model(waves(), "y", loss="squared", training=TRAINING, verbose=True)
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == "" and "\x1b" not in captured.err and "\r" not in captured.err
    assert len(lines) == 3
    for number, (line, entry) in enumerate(zip(lines, fitted.history, strict=True), 1):
        rmse = fitted.loss.scale * math.sqrt(2 * entry.validation_loss)
        assert line.startswith(f"epoch {number}/3  loss {entry.train_loss:.5g}  validation rmse {rmse:.5g}  ")
        assert re.search(r"  [\d,]+ rows/s(  (at most 0:00 left|0:00 in all))?$", line)


def test_callbacks_and_verbose_go_together(capsys):
    seen = []
    sf.fit_model(waves(), "y", loss="squared", training=TRAINING, verbose=True, callbacks=[seen.append])
    assert [epoch.run for epoch in seen] == ["first"] * 3 + ["all rows"] * 3
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_a_stop_is_explained(capsys):
    noise = waves().set_column(1, "y", pa.array(np.random.default_rng(1).normal(size=500)))
    training = sf.Training(epochs=40, patience=2, threads=1, l2=0.0, smoothness=0.0, effort="fast")
    fitted = sf.fit_model(noise, "y", loss="squared", training=training, verbose=True)
    best = min(fitted.history, key=lambda entry: entry.validation_loss).epoch
    told = capsys.readouterr().err.splitlines()[-1]
    assert told == f"first run stopped: no better validation loss since epoch {best}"


def test_a_stop_says_of_which_run(capsys):
    rng = np.random.default_rng(0)
    x = rng.random(2000)
    table = {"x": x, "y": np.sin(40 * x) + rng.normal(size=2000)}
    training = sf.Training(epochs=40, patience=1, learning_rate=0.05, threads=1, l2=0.0, smoothness=0.0, members=2)

    def stops(effort):
        own = replace(training, effort=effort)
        sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=own, verbose=True)
        return [line.split(":")[0] for line in capsys.readouterr().err.splitlines() if "stopped" in line]

    assert stops("fast") == ["first run stopped", "first run stopped"]
    assert stops("default") == []  # the search fits many settings


def test_a_callback_that_stops_is_told(capsys):
    sf.fit_model(waves(), "y", loss="squared", training=TRAINING, verbose=True, callbacks=[lambda epoch: True])
    assert capsys.readouterr().err.splitlines()[-1] == "first run stopped by a callback; keeping the best epoch"


def test_the_time_left_does_not_count_the_start(stream, clock):
    """The first steps of all compile: what they take says nothing of the others."""
    with plain(stream) as progress:
        progress.begin_epoch(1, 4, 1000)
        clock.now += 40
        progress.advance(500, 0.5)
        clock.now += 5
        progress.advance(500, 0.25)
        progress.end_epoch(epoch(), sf.Loss("logistic"))
        progress.begin_epoch(2, 4, 1000)
        clock.now += 10
        progress.advance(1000, 0.25)
        progress.end_epoch(epoch(2), sf.Loss("logistic"))
    lines = stream.getvalue().splitlines()
    assert lines[0] == "epoch 1/4  500 of 1,000 rows  loss 0.5  12 rows/s"  # nothing is known yet
    assert lines[1].endswith("  at most 0:30 left") and lines[2].endswith("  at most 0:20 left")


@pytest.mark.parametrize("verbose", [False, True])
def test_ctrl_c_is_confirmed(capsys, verbose):
    def stop(entry):
        if entry.epoch == 2:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="interrupted: the best epoch so far is kept"):
        sf.fit_model(waves(), "y", loss="squared", training=TRAINING, verbose=verbose, callbacks=[stop])
    assert "Ctrl-C" not in capsys.readouterr().err  # once is enough


def test_an_epoch_leaves_a_line_with_the_time_that_is_left(stream, clock):
    with plain(stream) as progress:
        progress.begin_epoch(1, 4, 1000)
        progress.advance(500, 0.25)
        clock.now += 10
        progress.advance(500, 0.25)
        progress.end_epoch(epoch(), sf.Loss("logistic"))
        progress.begin_epoch(4, 4, 1000)
        progress.advance(1000, 0.25)
        progress.end_epoch(epoch(4, math.nan), sf.Loss("poisson"))
    assert stream.getvalue().splitlines() == [
        "epoch 1/4  loss 0.25  validation logloss 0.5  2,000 rows/s  at most 1:00 left",
        "epoch 4/4  loss 0.25  2,000 rows/s  1:05 in all",
    ]


def test_a_log_hears_of_long_epochs_now_and_then(stream, clock):
    with plain(stream) as progress:
        progress.begin_epoch(1, 2, 100_000)
        for _ in range(100):
            clock.now += 1
            progress.advance(1000, 0.5)
    assert stream.getvalue().splitlines() == [
        "epoch 1/2  30,000 of 100,000 rows  loss 0.5  1,000 rows/s  at most 2:50 left",
        "epoch 1/2  60,000 of 100,000 rows  loss 0.5  1,000 rows/s  at most 2:20 left",
        "epoch 1/2  90,000 of 100,000 rows  loss 0.5  1,000 rows/s  at most 1:50 left",
    ]


def test_what_takes_more_than_a_second_is_told(stream, clock):
    with plain(stream) as progress:
        for what in ("reading the table", "encoding"):
            progress.begin(what)
            for _ in range(20):
                clock.now += 0.125
                progress.advance(1000)
        progress.begin("something quick")
        clock.now += 0.5
        progress.advance(1000)
    assert stream.getvalue().splitlines() == [
        "reading the table  8,000 rows  8,000 rows/s",
        "encoding  8,000 rows  8,000 rows/s",
    ]


def test_parts_of_a_stage_share_its_line_and_leave_none(stream, clock):
    with plain(stream) as progress:
        with progress.within("choosing"):
            for run in (1, 2, 3):
                with progress.within(f"run {run}/3"):
                    for number in (1, 2):
                        progress.begin_epoch(number, 2, 1000)
                        clock.now += 0.375
                        progress.advance(1000, 0.5)
                        progress.end_epoch(epoch(number), sf.Loss("logistic"))
        progress.begin_epoch(1, 1, 1000)
        progress.advance(1000, 0.25)
        progress.end_epoch(epoch(), sf.Loss("logistic"))
    lines = stream.getvalue().splitlines()
    assert [line.split("  ")[0] for line in lines] == ["choosing, run 2/3, epoch 1/2", "epoch 1/1"]


def drawn(stream, text, seconds=5.0):
    """Wait until the line is drawn."""
    deadline = time.monotonic() + seconds
    while text not in stream.getvalue() and time.monotonic() < deadline:
        time.sleep(0.01)
    return text in stream.getvalue()


def screen(stream):
    """What a terminal shows after all that was written."""
    lines, row = [""], 0
    for token in re.findall(r"\x1b\[[?\d]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", stream.getvalue()):
        if token == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif token == "\x1b[1A":
            row -= 1
        elif token == "\x1b[2K":
            lines[row] = ""
        elif not token.startswith(("\x1b", "\r")):
            lines[row] = token
    return [line for line in lines if line]


def test_the_line_of_a_terminal_moves_inside_an_epoch(stream, clock):
    with terminal(stream) as progress:
        progress.begin_epoch(2, 3, 100_000)
        progress.advance(10_000, 0.5)
        clock.now += 10
        assert drawn(stream, "epoch 2/3  10,000 of 100,000 rows  loss 0.5  1,000 rows/s  at most 3:10 left")
        progress.advance(10_000, 0.25)
        clock.now += 10
        assert drawn(stream, "epoch 2/3  20,000 of 100,000 rows  loss 0.25  1,000 rows/s  at most 3:00 left")
        progress.end_epoch(epoch(2), sf.Loss("logistic"))
        assert screen(stream) == ["epoch 2/3  loss 0.25  validation logloss 0.5  2,000 rows/s  at most 3:00 left"]
    assert screen(stream) == ["epoch 2/3  loss 0.25  validation logloss 0.5  2,000 rows/s  at most 3:00 left"]


def test_a_terminal_shows_stages_without_rows_after_a_second(stream, clock):
    with terminal(stream) as progress:
        progress.begin("fitting the encoder")
        time.sleep(0.6)
        assert "fitting" not in stream.getvalue()
        clock.now += 1.5
        assert drawn(stream, "fitting the encoder  0:02")


def test_a_terminal_shows_the_search(stream, clock):
    with terminal(stream) as progress, progress.within("choosing penalties, run 1/3"):
        progress.begin_epoch(1, 4, 1000)
        clock.now += 2
        progress.advance(500, 0.5)
        assert drawn(stream, "choosing penalties, run 1/3, epoch 1/4  500 of 1,000 rows")


def test_a_fit_on_a_terminal(stream, monkeypatch):
    monkeypatch.setattr("splinefm.fit.fitting.make_progress", lambda verbose: terminal(stream))
    sf.fit_model(waves(), "y", loss="squared", training=sf.Training(epochs=3, threads=1), verbose=True)
    assert [line.split("  ")[0] for line in screen(stream)] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert "\x1b[?25h" in stream.getvalue()  # the cursor is shown again


def test_an_error_leaves_the_terminal_in_order(stream):
    with pytest.raises(KeyboardInterrupt), terminal(stream) as progress:
        progress.begin("reading")
        raise KeyboardInterrupt
    assert "\x1b[?25h" in stream.getvalue() and progress._live is None


def test_a_dumb_terminal_gets_plain_lines(stream, monkeypatch, clock):
    monkeypatch.setenv("TERM", "dumb")
    with terminal(stream) as progress:
        progress.begin("reading")
        clock.now += 2
        progress.advance(10)
        progress.begin_epoch(1, 1, 10)
        progress.advance(10, 0.25)
        progress.end_epoch(epoch(), sf.Loss("logistic"))
    reading, rest = stream.getvalue().split("\n", 1)
    assert reading == "reading  10 rows  5 rows/s"
    assert rest == "epoch 1/1  loss 0.25  validation logloss 0.5  2,000 rows/s  1:05 in all\n"


@pytest.mark.parametrize(("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3661, "1:01:01")])
def test_times(seconds, text):
    assert module._clock(seconds) == text


def test_short_stages_without_rows_are_named_twice_a_minute(clock, stream):
    with plain(stream) as progress:
        for i in range(7):
            progress.begin(f"drawing {i}")
            clock.now += 11.0
    assert stream.getvalue().splitlines() == ["drawing 3", "drawing 6"]
