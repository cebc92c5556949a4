"""The run on all rows beside the run that chooses its epochs: the same bits, and nothing left behind."""

import threading
import time

import numpy as np
import pytest

import splinefm as sf
from splinefm.learn import runs
from splinefm.learn.loop import passes
from splinefm.learn.loop.divergence import Diverged
from splinefm.learn.loop.passes import Lesson
from splinefm.learn.loop.twin import Twin

RNG = np.random.default_rng(3)
N = 1500


def make_table(n=N):
    x, c = RNG.uniform(size=n), RNG.integers(0, 4, n)
    return {"x": x, "c": c.astype(str), "y": np.sin(6 * x) * (c - 1.5) + 0.3 * RNG.normal(size=n)}


@pytest.fixture(scope="module")
def table():
    return make_table()


def fit(table, threads=2, callbacks=(), **settings):
    training = sf.Training(threads=threads, **{"epochs": 6, **settings})
    return sf.fit_model(table, "y", loss="squared", model=sf.FwFM(k=4, third=4), training=training, callbacks=callbacks)


def count_twins(monkeypatch):
    made, begin = [], Twin.__init__

    def count(self, trainee):
        made.append(trainee)
        begin(self, trainee)

    monkeypatch.setattr(Twin, "__init__", count)
    return made


@pytest.mark.parametrize("settings", [{}, {"members": 2}, {"average": False}, {"patience": None}])
def test_it_gives_the_parameters_of_one_run_after_the_other(table, monkeypatch, settings):
    made = count_twins(monkeypatch)
    together = fit(table, threads=2, **settings)
    assert len(made) == settings.get("members", 1)
    for apart in (fit(table, threads=1, **settings), fit(table, threads=2, callbacks=[lambda epoch: None], **settings)):
        assert len(made) == settings.get("members", 1)
        assert together.params.keys() == apart.params.keys()
        for name, values in together.params.items():
            np.testing.assert_array_equal(values, apart.params[name])
        keep = [epoch._replace(rows_per_second=0.0, seconds=0.0) for epoch in together.history]
        assert keep == [epoch._replace(rows_per_second=0.0, seconds=0.0) for epoch in apart.history]


@pytest.mark.parametrize(
    "settings", [{"refit_on_all": False}, {"batch_size": 2 * runs.MOST_OF_TWIN}, {"crosses": None}, {"threads": 1}]
)
def test_there_is_none_where_it_does_not_pay(table, monkeypatch, settings):
    made = count_twins(monkeypatch)
    fit(table, **settings)
    assert not made


def test_its_thread_ends_with_the_fit(table):
    fit(table)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("all-rows")]


def test_ctrl_c_stops_it_as_well(table, monkeypatch):
    learn = passes.Trainee.learn

    def interrupt(self, epoch, progress):
        if threading.current_thread() is threading.main_thread() and epoch == 2 and self.n_rows > N // 2:
            raise KeyboardInterrupt
        return learn(self, epoch, progress)

    monkeypatch.setattr(passes.Trainee, "learn", interrupt)
    with pytest.warns(UserWarning, match=r"best epoch so far is kept \(\d of 6\)"):
        fitted = fit(table)
    assert len(fitted.history) == 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("all-rows")]


class Slow:
    """A trainee that reports progress until it is told to end."""

    training = sf.Training()

    def learn(self, epoch, progress):
        while True:
            progress.advance(1)
            time.sleep(0.001)


def test_a_pass_that_nobody_needs_ends():
    with Twin(Slow()) as twin:
        twin.begin(0)
    assert twin._learning.exception() is not None


class Scripted:
    """A trainee with given losses."""

    training = sf.Training()

    def __init__(self, losses):
        self.losses = losses

    def learn(self, epoch, progress):
        finite = np.isfinite(self.losses[epoch])
        return Lesson({"bias": np.array(epoch)} if finite else {}, self.losses[epoch], 1, 0.1)


def test_the_last_epoch_to_be_kept_is_kept():
    with Twin(Scripted([1.0, 0.5, 0.4])) as twin:
        for epoch, keep in enumerate([True, True, False]):
            twin.begin(epoch)
            twin.end(epoch, keep)
    assert twin.params["bias"] == 1


def test_it_may_diverge_after_the_epoch_that_is_kept():
    with Twin(Scripted([1.0, np.nan, 0.4])) as twin:
        for epoch, keep in enumerate([True, False, False]):
            twin.begin(epoch)
            twin.end(epoch, keep)
    assert twin.params["bias"] == 0


def test_an_epoch_after_divergence_cannot_be_kept():
    with Twin(Scripted([1.0, np.inf, 0.4])) as twin:
        twin.begin(0)
        twin.end(0, keep=True)
        twin.begin(1)
        twin.end(1, keep=False)
        twin.begin(2)
        with pytest.raises(Diverged, match="epoch 2"):
            twin.end(2, keep=True)


def test_a_fit_takes_the_crosses_away_if_the_run_on_all_rows_diverges(monkeypatch):
    n = 1500
    month, day = RNG.integers(0, 6, n), RNG.integers(0, 6, n)
    effect = RNG.normal(size=(6, 6))
    table = {"month": month.astype(str), "day": day.astype(str), "y": effect[month, day] + 0.1 * RNG.normal(size=n)}
    assert fit(table).encoder.schema.crosses

    def diverge(self, epoch, keep):
        raise Diverged("training diverged")

    monkeypatch.setattr(Twin, "end", diverge)
    assert not fit(table).encoder.schema.crosses
