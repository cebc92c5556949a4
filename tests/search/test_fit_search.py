"""The search of a fit: what it tries, what it keeps, what is given, and how it ends."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest

import splinefm as sf
from splinefm._parallel import Cancelled
from splinefm.fit import fitting
from splinefm.search import race, search
from splinefm.search.race import Race

N = 1500
QUICK = sf.Training(epochs=4, threads=2, members=1)


def make_table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    x, z, c = rng.random(n), rng.random(n), rng.choice(list("abc"), n)
    return {"x": x, "z": z, "c": c, "y": 10.0 * np.sin(6 * x * z) * (c != "a") + rng.normal(size=n)}


TABLE = make_table()


def fit(table=TABLE, training=QUICK, model=None, **options):
    return sf.fit_model(table, "y", **{"loss": "squared", "model": model, "training": training, **options})


@pytest.fixture(scope="module")
def found():
    return fit()


def same(one, other):
    assert one.encoder == other.encoder and one.model == other.model
    return all(np.array_equal(values, other.params[name]) for name, values in one.params.items())


def without_time(fitted):
    return [replace(entry, seconds=0.0) for entry in fitted.search]


def stop_after(monkeypatch, n, error=KeyboardInterrupt):
    """Raise an error in the n-th round of a race."""
    rounds, run = [], Race.run

    def raising(self, settings, folds):
        rounds.append(settings)
        if len(rounds) == n:
            raise error
        return run(self, settings, folds)

    monkeypatch.setattr(Race, "run", raising)
    return rounds


def test_several_models_and_bases_are_tried(found):
    assert len({entry.model for entry in found.search}) >= 4
    assert {"4 segments", "8 segments", "20 segments"} <= {entry.basis for entry in found.search}
    assert found.search[0].is_chosen and found.training.effort == "default"
    assert all(entry.loss >= 0 and entry.error > 0 and entry.seconds >= 0 for entry in found.search)
    assert all(entry.folds >= 1 and entry.n_columns == 3 and entry.epochs in (4, 8) for entry in found.search)


def test_the_chosen_setting_is_better_than_the_first_one(found):
    new = make_table(4000, seed=1)

    def error(fitted):
        return float(np.sqrt(np.mean((fitted.predict(new) - new["y"]) ** 2)))

    assert error(found) < error(fit(training=replace(QUICK, effort="fast")))


def test_the_result_does_not_depend_on_threads(found):
    again = fit(training=replace(QUICK, threads=1))
    assert same(found, again) and without_time(found) == without_time(again)


def test_its_threads_end_with_the_fit(found):
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("race")]


def test_a_model_that_is_given_stays():
    fitted = fit(model=sf.FM(k=3))
    assert fitted.model == sf.FM(k=3) and {entry.model for entry in fitted.search} == {"FM(k=3)"}


def test_settings_that_are_given_stay():
    fitted = fit(model=sf.FM(k=2), training=replace(QUICK, l2=3e-3, smoothness={"x": 0.5}))
    assert {entry.l2 for entry in fitted.search} == {3e-3} and {entry.epochs for entry in fitted.search} == {4}
    assert dict(fitted.training.smoothness)["x"] == 0.5


def test_a_schema_that_is_given_keeps_its_bases():
    schema = sf.Schema([sf.Numerical("x", basis=sf.BSpline(7)), sf.Numerical("z", basis=sf.Bins(9))])
    fitted = fit(schema=schema)
    assert fitted.search and {(entry.basis, entry.crosses) for entry in fitted.search} == {("7 segments, Bins", ())}
    assert fitted.encoder.schema["x"].basis == sf.BSpline(7)


@pytest.mark.parametrize(
    "options",
    [
        {"training": replace(QUICK, effort="fast")},
        {"validation": 0.0},
        {"table": {name: values[:900] for name, values in TABLE.items()}},
    ],
    ids=["fast", "no validation rows", "small"],
)
def test_nothing_is_searched(options):
    fitted = fit(**options)
    assert fitted.search == () and fitted.model == sf.FwFM(k=16, third=16)


def test_large_tables_are_not_searched(monkeypatch):
    monkeypatch.setattr(search, "MAX_ROWS", 1000)
    assert not fit().search


def test_members_have_other_rows_held_out():
    fitted = fit(model=sf.FM(k=2), training=replace(QUICK, members=3))
    assert fitted.model == sf.FM(k=6) and fitted.training.members == 3
    assert fitted.search[0].folds == 3


def test_callbacks_see_the_epochs_of_the_chosen_setting_alone():
    seen = []
    fitted = fit(model=sf.FM(k=2), callbacks=[lambda epoch: seen.append(epoch.run)])
    assert set(seen) == {"first", "all rows"} and fitted.search


def test_validation_rows_of_another_table_judge():
    fitted = fit(validation=make_table(400, seed=5))
    assert fitted.search and fitted.encoder.n_rows == N


def test_weights_count_and_only_their_proportions():
    weight = np.random.default_rng(2).integers(0, 4, N).astype(float)
    options = {"model": sf.FM(k=2), "sample_weight": "w"}
    one, other = (fit({**TABLE, "w": scale * weight}, **options) for scale in (1.0, 8.0))
    assert same(one, other)
    losses = [[entry.loss for entry in fitted.search] for fitted in (one, other)]
    np.testing.assert_allclose(*losses, rtol=1e-6)


@pytest.mark.parametrize("loss", ["logistic", "poisson", "softmax"])
def test_other_losses(loss):
    y = {"logistic": TABLE["y"] > 2, "softmax": np.digitize(TABLE["y"], [0, 5])}.get(loss, np.abs(TABLE["y"]).round())
    fitted = fit({**TABLE, "y": y}, loss=loss, model=sf.FM(k=2))
    assert fitted.search and np.isfinite(fitted.predict(TABLE)).all()


# Ends


def test_ctrl_c_keeps_the_best_setting_so_far(monkeypatch):
    rounds = stop_after(monkeypatch, 4)
    with pytest.warns(UserWarning, match="interrupted: the best setting of the search so far is kept"):
        fitted = fit()
    assert len(rounds) == 4 and len(fitted.search) >= 2
    chosen = fitted.search[0]
    assert chosen.is_chosen and chosen.loss == min(entry.loss for entry in fitted.search if entry.folds == chosen.folds)
    assert np.isfinite(fitted.predict(TABLE)).all()


def test_ctrl_c_before_there_is_a_setting_ends_the_fit(monkeypatch):
    stop_after(monkeypatch, 1)
    with pytest.raises(KeyboardInterrupt):
        fit()


def test_ctrl_c_in_the_run_after_the_search_is_told(monkeypatch):
    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "train", stop)
    with pytest.warns(UserWarning, match="interrupted: the model of the first run is kept"):
        fitted = fit(model=sf.FM(k=2))
    assert {epoch.run for epoch in fitted.history} == {"first"} and fitted.search


def test_a_sample_that_was_interrupted_says_so(monkeypatch):
    monkeypatch.setattr(search, "MIN_SAMPLE", 500)
    monkeypatch.setattr(search, "BUDGETS", {"default": search.Budget(1e-4, 8.0, 1, 0.0)})
    rounds = stop_after(monkeypatch, 3)
    with pytest.warns(UserWarning, match="the best setting of the search so far is kept"):
        fitted = fit(model=sf.FM(k=2))
    assert len(rounds) == 3 and fitted.has_sample and "a sample of 1,500 rows" in repr(fitted)
    assert {epoch.run for epoch in fitted.history} == {"search"}


def test_all_rows_choose_between_the_models_of_a_sample(monkeypatch):
    monkeypatch.setattr(search, "MIN_SAMPLE", 500)
    monkeypatch.setattr(search, "BUDGETS", {"default": search.Budget(1e-4, 8.0, 1, 0.0)})
    runs, run = [], Race.run

    def recorded(self, settings, folds):
        runs.append((list(settings), tuple(folds)))
        return run(self, settings, folds)

    monkeypatch.setattr(Race, "run", recorded)
    fitted = fit()
    of_sample = {setting for settings, folds in runs if folds != (0,) for setting in settings}
    final = next(settings for settings, folds in runs if folds == (0,))
    models = [setting.model for setting in final]
    assert len({setting.model for setting in of_sample}) >= 3  # models were tried
    assert len(set(models)) == len(models) - 1 >= 2  # the last setting is the first one with a smaller penalty
    assert final[-1] == final[0].with_l2(0.1)
    assert fitted.search[0].epochs == 4


def test_a_time_limit_ends_the_search():
    endless = sf.Training(epochs=10**6, patience=None, threads=2, time_limit=1.0)
    begin = time.monotonic()
    fitted = fit(training=endless)
    assert time.monotonic() - begin < 10.0
    assert np.isfinite(fitted.predict(TABLE)).all()


@pytest.mark.parametrize(("n_fits", "n_tried"), [(1, 0), (3, 2)])
def test_what_was_fitted_before_the_deadline_is_kept(monkeypatch, n_fits, n_tried):
    fits, train = [], race.train

    def late(model, *args, **options):
        fits.append(model)
        if len(fits) >= n_fits:
            raise Cancelled
        return train(model, *args, **options)

    monkeypatch.setattr(race, "train", late)
    fitted = fit(training=replace(QUICK, threads=1))
    assert len(fitted.search) == n_tried and np.isfinite(fitted.predict(TABLE)).all()


@pytest.mark.parametrize("limit", [0, -1.0, float("nan"), float("inf"), "long"])
def test_a_time_limit_is_a_number_of_seconds(limit):
    with pytest.raises((ValueError, TypeError), match="time_limit"):
        sf.Training(time_limit=limit)


def test_settings_that_diverge_lose(monkeypatch):
    train = race.train

    def diverge(model, *args, **options):
        if isinstance(model, sf.FFM):
            raise sf.Diverged("training diverged")
        return train(model, *args, **options)

    monkeypatch.setattr(race, "train", diverge)
    fitted = fit()
    lost = [entry for entry in fitted.search if entry.model.startswith("FFM")]
    assert lost and all(entry.loss == np.inf and not entry.is_chosen for entry in lost)
    assert not np.isinf(fitted.search[0].loss)


def test_a_verbose_fit_says_what_was_tried(capsys):
    fitted = fit(model=sf.FM(k=2), verbose=True)
    told = capsys.readouterr().err
    assert f"search: tried {len(fitted.search)} settings; chosen: {fitted.search[0]}" in told
