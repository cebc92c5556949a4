"""Steps taken ahead of their turn: the results of one after the other, and no thread left behind."""

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.learn.progress import SILENT, Stopped, UntilStopped
from splinefm.learn.refine import search
from splinefm.learn.refine.ahead import Ahead
from splinefm.learn.refine.search import Standing


def steps_that_help_at(helpful):
    """Steps that append their number to the best, if told to for the best that they get."""

    def step(number):
        return lambda best, progress: (*best, number) if (number, len(best)) in helpful else None

    return [step(number) for number in range(6)]


@given(st.sets(st.tuples(st.integers(0, 5), st.integers(0, 6))))
def test_results_are_those_of_one_step_after_the_other(helpful):
    steps = steps_that_help_at(helpful)
    found = []
    for beside in (False, True):
        with Ahead(beside) as ahead:
            found.append(list(ahead.take(steps, (), SILENT)))
    assert found[0] == found[1]
    best = ()
    for step in steps:
        best = step(best, SILENT) or best
    assert (found[0][-1] if found[0] else ()) == best


def test_the_next_step_is_taken_at_the_same_time():
    both = threading.Barrier(2, timeout=10)

    def wait(best, progress):
        both.wait()

    with Ahead(beside=True) as ahead:
        assert list(ahead.take([wait, wait], 0, SILENT)) == []


def test_a_step_ahead_that_is_not_needed_is_stopped():
    stopped, begun = threading.Event(), threading.Event()

    def endless(best, progress):
        begun.set()
        try:
            while best == 0:
                progress.advance(1)
                time.sleep(0.001)
        except Stopped:
            stopped.set()
            raise
        return best + 10

    def help_once(best, progress):
        begun.wait(10)
        return 1

    with Ahead(beside=True) as ahead:
        assert list(ahead.take([help_once, endless], 0, SILENT)) == [1, 11]
    assert stopped.is_set()


def test_an_error_ends_the_thread():
    def endless(best, progress):
        while True:
            progress.advance(1)
            time.sleep(0.001)

    def fail(best, progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Ahead(beside=True) as ahead:
        list(ahead.take([fail, endless], 0, SILENT))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("ahead")]


def test_an_error_ahead_is_raised_in_its_turn():
    def fail(best, progress):
        raise MemoryError

    with pytest.raises(MemoryError), Ahead(beside=True) as ahead:
        list(ahead.take([lambda best, progress: None, fail], 0, SILENT))


def test_a_search_finds_the_same_with_any_number_of_threads(monkeypatch):
    monkeypatch.setattr(search, "MOST_RECURRING", 1)
    rng = np.random.default_rng(5)
    a, b, c = (rng.integers(0, 5, 3000) for _ in range(3))
    x = rng.uniform(size=3000)
    effect, other = rng.normal(size=(5, 5)), rng.normal(size=(5, 5))
    y = effect[a, b] + other[b, c] + np.sin(9 * x) + 0.3 * rng.normal(size=3000)
    table = {"a": a.astype(str), "b": b.astype(str), "c": c.astype(str), "x": x, "y": y}
    fits = [
        sf.fit_model(table, "y", loss="squared", model=sf.FwFM(k=4), training=sf.Training(epochs=4, threads=threads))
        for threads in (1, 2)
    ]
    assert len(fits[0].encoder.schema.crosses) == 2
    assert fits[0].encoder == fits[1].encoder
    for name, values in fits[0].params.items():
        np.testing.assert_array_equal(values, fits[1].params[name])


def test_work_that_counts_no_rows_is_stopped_as_well():
    progress = UntilStopped()
    progress.tick()
    progress.begin("a stage")
    progress.stop()
    for report in (progress.tick, lambda: progress.begin("next"), lambda: progress.begin_epoch(1, 2, 3)):
        with pytest.raises(Stopped):
            report()


@pytest.mark.parametrize("name", ["find_recurring", "suggest_resolutions"])
def test_long_steps_of_a_search_can_be_stopped(name, monkeypatch):
    """Nobody waits for them when the user has pressed Ctrl-C."""
    stopped, found = UntilStopped(), getattr(search, name)
    stopped.stop()

    def stop(*args, **options):
        if name == "find_recurring":
            options["progress"] = stopped
        else:
            args = (*args[:4], stopped)
        return found(*args, **options)

    monkeypatch.setattr(search, name, stop)
    rng = np.random.default_rng(5)
    table = {name: rng.integers(0, 300, 3000) / 7 for name in "abc"}
    table["y"] = np.sin(table["a"]) * table["b"] + rng.normal(size=3000)
    with pytest.raises(Stopped):
        sf.fit_model(table, "y", loss="squared", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))


def test_ctrl_c_keeps_what_a_step_has_found_so_far(monkeypatch):
    steps, before = [], Standing(None, sf.Training())

    def found_then_stop(self, best, progress):
        steps.append(best)
        if len(steps) == 2:
            raise KeyboardInterrupt
        return best._replace(n_added=1)

    monkeypatch.setattr(search.Search, "_try_recurring", found_then_stop)
    own = search.Search(sf.FM(k=2), [], before)
    with pytest.raises(KeyboardInterrupt):
        own.try_recurring(before, SILENT)
    assert own.best.n_added == 1
