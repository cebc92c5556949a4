"""The run on all rows beside the run that chooses its epochs: the same bits, and nothing left behind."""

import threading
import time

import numpy as np
import pytest

import splinefm as sf
from splinefm.train import loop as passes
from splinefm.train import loop as runs
from splinefm.train.loop import ConcurrentRefit, EpochResult, EpochSelector

RNG = np.random.default_rng(3)
N = 1500


def make_table(n=N):
    x, c = RNG.uniform(size=n), RNG.integers(0, 4, n)
    return {"x": x, "c": c.astype(str), "y": np.sin(6 * x) * (c - 1.5) + 0.3 * RNG.normal(size=n)}


@pytest.fixture(scope="module")
def table():
    return make_table()


def fit(table, threads=2, callbacks=(), **settings):
    training = sf.Training(threads=threads, effort="fast", **{"epochs": 6, **settings})
    return sf.fit_model(table, "y", loss="squared", model=sf.FwFM(k=4, third=4), training=training, callbacks=callbacks)


def count_refits(monkeypatch):
    made, begin = [], ConcurrentRefit.__init__

    def count(self, run):
        made.append(run)
        begin(self, run)

    monkeypatch.setattr(ConcurrentRefit, "__init__", count)
    return made


@pytest.mark.parametrize(
    "settings",
    [{}, {"members": 2}, {"average": False}, {"patience": None}],
)
def test_it_gives_the_parameters_of_one_run_after_the_other(table, monkeypatch, settings):
    made = count_refits(monkeypatch)
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
    "settings", [{"refit_on_all": False}, {"batch_size": 2 * runs.MAX_CONCURRENT_BATCH}, {"threads": 1}]
)
def test_there_is_none_where_it_does_not_pay(table, monkeypatch, settings):
    made = count_refits(monkeypatch)
    fit(table, **settings)
    assert not made


def test_its_thread_ends_with_the_fit(table):
    fit(table)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("all-rows")]


def test_ctrl_c_stops_it_as_well(table, monkeypatch):
    learn = passes.TrainingRun.learn

    def interrupt(self, epoch, *args):
        if threading.current_thread() is threading.main_thread() and epoch == 2 and self.n_rows > N // 2:
            raise KeyboardInterrupt
        return learn(self, epoch, *args)

    monkeypatch.setattr(passes.TrainingRun, "learn", interrupt)
    with pytest.warns(UserWarning, match=r"best epoch so far is kept \(\d of 6\)"):
        fitted = fit(table)
    assert len(fitted.history) == 2
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("all-rows")]


class Slow:
    """A run that goes on until it is cancelled."""

    training = sf.Training()

    def learn(self, epoch, progress, cancellation):
        while True:
            cancellation.check()
            time.sleep(0.001)


def test_a_pass_that_is_not_needed_ends():
    with ConcurrentRefit(Slow()) as refit:
        refit.begin(0)
    assert refit._learning.exception() is not None


class Scripted:
    """A run with given losses."""

    training = sf.Training()

    def __init__(self, losses):
        self.losses = losses

    def learn(self, epoch, *args):
        finite = np.isfinite(self.losses[epoch])
        return EpochResult({"bias": np.array(epoch)} if finite else {}, self.losses[epoch], 1, 0.1)


def take_epochs(losses, kept):
    with ConcurrentRefit(Scripted(losses)) as refit:
        for epoch, keep in enumerate(kept):
            refit.begin(epoch)
            refit.end(keep)
    return refit.params


def test_the_last_epoch_to_be_kept_is_kept():
    assert take_epochs([1.0, 0.5, 0.4], [True, True, False])["bias"] == 1


def test_it_may_diverge_after_the_epoch_that_is_kept():
    assert take_epochs([1.0, np.nan, 0.4], [True, False, False])["bias"] == 0


@pytest.mark.parametrize("kept", [[True, True, False], [True, False, True]])
def test_there_is_no_epoch_after_a_divergence(kept):
    assert take_epochs([1.0, np.inf, 0.4], kept) is None


@pytest.mark.parametrize("options", [{"threads": 1}, {"threads": 2}, {"callbacks": [lambda epoch: None]}])
def test_a_run_on_all_rows_that_diverges_is_told_in_the_same_way(table, monkeypatch, options):
    learn = passes.TrainingRun.learn

    def diverge(self, epoch, *args):
        result = learn(self, epoch, *args)
        return EpochResult({}, np.nan, result.n_rows, result.rate) if self.n_rows == N else result

    monkeypatch.setattr(passes.TrainingRun, "learn", diverge)
    with pytest.raises(sf.Diverged, match=r"epoch 1.*learning_rate \(now 0.01"):
        fit(table, **options)


def test_ctrl_c_while_it_is_waited_for_keeps_the_epoch_of_the_message(table, monkeypatch):
    """The epoch is in the history, so its parameters are those that count."""
    params, end = [], ConcurrentRefit.end
    update = EpochSelector.update

    def note(self, engine, given, loss):
        params.append(given)
        return update(self, engine, given, loss)

    def interrupt(self, keep):
        end(self, keep)
        if len(ended := [*getattr(self, "ended", []), 1]) == 2:
            raise KeyboardInterrupt
        self.ended = ended

    monkeypatch.setattr(EpochSelector, "update", note)
    monkeypatch.setattr(ConcurrentRefit, "end", interrupt)
    with pytest.warns(UserWarning, match=r"best epoch so far is kept \(2 of 6\)"):
        fitted = fit(table)
    assert len(fitted.history) == 2
    np.testing.assert_array_equal(fitted.params["factors"], params[-1]["factors"])


@pytest.mark.parametrize("limit", ["MAX_CONCURRENT_BATCH", "MAX_CONCURRENT_NUMBERS", "MAX_CONCURRENT_BYTES"])
def test_large_models_and_tables_have_none(table, monkeypatch, limit):
    made = count_refits(monkeypatch)
    monkeypatch.setattr(runs, limit, 10)
    fit(table)
    assert not made
