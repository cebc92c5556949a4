"""What a fit chooses by itself, and what it leaves as it is given."""

import numpy as np
import pytest

import splinefm as sf
from splinefm.search import search as module
from splinefm.search.search import BUDGETS, find_open_choices
from splinefm.search.setting import Setting, seconds_of_epoch


@pytest.fixture(autouse=True)
def small_budget(monkeypatch):
    """Settings of a search are tried with two epochs, and few of them."""
    monkeypatch.setitem(BUDGETS, "default", BUDGETS["default"]._replace(search=0.5, final=0.3))


def make_table(n=1500, seed=0, noise=0.2, columns=3):
    rng = np.random.default_rng(seed)
    table = {f"x{i}": rng.random(n) for i in range(columns)}
    y = np.sin(6 * table["x0"]) * (table["x1"] - 0.5) + noise * rng.normal(size=n)
    return table | {"y": y}


TABLE = make_table()


def fit(table=TABLE, model=None, schema=None, **settings):
    training = sf.Training(**{"epochs": 6, "threads": 2, **settings})
    return sf.fit_model(table, "y", loss="squared", model=model, schema=schema, training=training)


class TestOpen:
    def test_everything_is_open_by_default(self):
        found = find_open_choices(sf.Schema.infer(TABLE, target="y"), None, sf.Training())
        assert found.model and found.l2 and found.smoothness and found.epochs and found.bases and found.columns
        assert list(found.crosses) == ["x0", "x1", "x2"]

    def test_what_is_given_is_closed(self):
        schema = sf.Schema([sf.Numerical("x0"), sf.Numerical("x1")])
        given = sf.Training(l2=1e-3, smoothness={"x0": 1.0}, epochs=4, crosses=None)
        found = find_open_choices(schema, sf.FM(k=4), given)
        assert not any(found._replace(crosses=())) and not found.crosses

    def test_a_fit_keeps_what_is_given(self):
        schema = sf.Schema([sf.Numerical("x0", basis=sf.BSpline(7)), sf.Numerical("x1", basis=sf.BSpline(5))])
        fitted = fit(model=sf.FM(k=3), schema=schema, l2=2e-4, smoothness=3e-3, crosses=None)
        assert fitted.model == sf.FM(k=3)
        assert [item.basis for item in fitted.encoder.schema] == [sf.BSpline(7), sf.BSpline(5)]
        assert (fitted.training.l2, fitted.training.smoothness, fitted.training.epochs) == (2e-4, 3e-3, 6)
        assert fitted.training.members == 1

    def test_a_penalty_that_is_given_closes_itself_only(self):
        fitted = fit(l2=2e-4, crosses=None)
        assert {entry.l2 for entry in fitted.search} == {2e-4}
        assert len({entry.smoothness for entry in fitted.search}) > 1


class TestEffort:
    def test_fast_searches_nothing(self):
        fitted = fit(effort="fast")
        assert fitted.search == () and fitted.training.members == 1

    def test_a_small_table_is_not_searched(self):
        assert fit(make_table(300)).search == ()

    def test_best_tries_more(self, monkeypatch):
        monkeypatch.setitem(BUDGETS, "best", BUDGETS["best"]._replace(search=3.0, final=1.0))
        assert len(fit(effort="best").search) > len(fit().search)

    def test_an_unknown_effort_is_refused(self):
        with pytest.raises(ValueError, match="effort must be one of fast, default, best, got 'lots'"):
            sf.Training(effort="lots")

    @pytest.mark.parametrize("seconds", [0.0, -1.0])
    def test_a_time_limit_is_positive(self, seconds):
        with pytest.raises(ValueError, match="time_limit must be"):
            sf.Training(time_limit=seconds)

    def test_a_fit_that_runs_out_of_time_has_a_model(self):
        fitted = fit(time_limit=1e-3)
        assert np.isfinite(fitted.predict(TABLE)).all()

    def test_a_fit_that_runs_out_of_time_later_has_what_was_tried(self):
        fitted = fit(make_table(4000), time_limit=1.0, epochs=20)
        assert np.isfinite(fitted.predict(TABLE)).all()


class TestResult:
    def test_the_chosen_setting_comes_first(self):
        fitted = fit()
        assert fitted.search[0].is_chosen and len(fitted.search) > 5
        assert all(np.isfinite(entry.loss) and entry.error >= 0.0 and entry.folds >= 1 for entry in fitted.search)

    def test_the_same_table_has_the_same_model_with_any_number_of_threads(self):
        one, two = fit(threads=1), fit(threads=2)
        assert str(one.model) == str(two.model)
        for name, values in one.params.items():
            np.testing.assert_array_equal(values, two.params[name])

    def test_scores_follow_the_formula(self):
        fitted = fit()
        curve = fitted.segment({"x1": 0.9, "x2": 0.5}, along="x0")
        z = np.linspace(0.1, 0.9, 20)
        rows = {"x0": z, "x1": np.full(20, 0.9), "x2": np.full(20, 0.5)}
        np.testing.assert_allclose(curve(z), fitted.scores(rows), atol=1e-4)

    def test_callbacks_hear_of_the_chosen_setting(self):
        heard = []
        training = sf.Training(epochs=4, threads=2)
        fitted = sf.fit_model(TABLE, "y", loss="squared", training=training, callbacks=[heard.append])
        assert fitted.search and {epoch.run for epoch in heard} <= {"first", "all rows"}
        assert [epoch for epoch in heard if epoch.run == "first"][: len(fitted.history)]

    def test_a_validation_table_judges_all_settings(self):
        training = sf.Training(epochs=4, threads=2)
        table = make_table(200, seed=1)
        fitted = sf.fit_model(TABLE, "y", loss="squared", validation=table, training=training)
        assert fitted.search and np.isfinite(fitted.predict(table)).all()

    def test_members_that_are_given_are_fitted(self):
        assert fit(members=3).training.members == 3
        assert fit(members=3, model=sf.FM(k=2)).model == sf.FM(k=6)

    def test_a_saved_model_scores_the_same(self, tmp_path):
        fitted = fit()
        fitted.save(tmp_path / "m.sfm")
        np.testing.assert_array_equal(sf.load(tmp_path / "m.sfm").scores(TABLE), fitted.scores(TABLE))


def test_columns_that_explain_nothing_are_left_out():
    table = make_table(1500, columns=40, noise=0.1)
    table["y"] = table["y"] + 2.0 * table["x2"]
    fitted = fit(table, crosses=None, epochs=10)
    names = [item.name for item in fitted.encoder.schema]
    assert len(names) < 40 and "x2" in names


def test_ctrl_c_keeps_the_best_setting_so_far(monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Search, "choose_model", interrupt)
    with pytest.warns(UserWarning, match="interrupted: the best setting of the search so far is kept"):
        fitted = fit()
    assert fitted.search and np.isfinite(fitted.predict(TABLE)).all()


def test_ctrl_c_before_a_fit_is_done_ends_the_fit(monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.Search, "choose_columns", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fit()


def test_the_estimate_of_work_grows_with_everything():
    layout = sf.fit_encoder(sf.Schema([sf.Numerical("x0"), sf.Numerical("x1")]), TABLE).layout

    def seconds(model, n_outputs=1, n_rows=1000, batch_size=32):
        return seconds_of_epoch(model, layout, n_outputs, n_rows, batch_size)

    usual = seconds(sf.FwFM(k=16))
    assert usual < seconds(sf.FwFM(k=16, third=16)) < seconds(sf.FwFM(k=64, third=64))
    assert usual < seconds(sf.FwFM(k=16), n_outputs=3) and usual < seconds(sf.FwFM(k=16), n_rows=3000)
    assert usual > seconds(sf.FwFM(k=16), batch_size=64)
    assert seconds(sf.HigherOrderFM(k=8, order=3)) < seconds(sf.HigherOrderFM(k=8, order=5))
    assert 0.0 < seconds(sf.FM(k=4)) < seconds(sf.FFM(k=16)) * 10


def test_settings_are_values():
    schema = sf.Schema.infer(TABLE, target="y")
    one = Setting(schema, sf.FM(k=4), sf.Training(l2=1e-4))
    assert one.with_l2(10.0).with_l2(0.1) == one and hash(one.with_l2(10.0)) != hash(one)
    eight = one.with_basis(sf.BSpline(8))
    assert [item.basis for item in eight.schema] == [sf.BSpline(8)] * 3 and eight.basis == "8 segments"
    assert one.with_penalties(None, 0.5).training.smoothness == 0.5
    assert [item.name for item in one.with_columns(["x2", "x0"]).schema] == ["x0", "x2"]
    named = Setting(schema, sf.FM(k=4), sf.Training(l2={"x0": 1e-3, "x1": 1e-4, "x2": 1e-4}))
    assert dict(named.with_l2(10.0).training.l2) == {"x0": 1e-2, "x1": 1e-3, "x2": 1e-3}
