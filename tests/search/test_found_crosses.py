"""Crosses that a fit finds: what is found, what is left alone, and what it says."""

import numpy as np
import pytest

import splinefm as sf
from splinefm.encode.schema import Provenance
from splinefm.search import search
from splinefm.search.screening import screen
from splinefm.train.rows import ValidationSample

# One member, and penalties that are given, make a search short.
TRAINING = {"epochs": 8, "threads": 1, "members": 1, "l2": 1e-4, "smoothness": 1e-2}


def holidays(n=4000, effect=3.0, seed=0):
    """A target with weekly and yearly effects, and a few days of the year that stand out."""
    rng = np.random.default_rng(seed)
    month, day, weekday = rng.integers(1, 13, n), rng.integers(1, 29, n), rng.integers(0, 7, n)
    special = (month * 31 + day) % 17 == 0
    y = np.sin(month / 2) + 0.3 * (weekday == 6) + effect * special + 0.5 * rng.normal(size=n)
    return {"month": month, "day": day, "weekday": weekday, "noise": rng.normal(size=n), "y": y}


def fit(table, schema=None, **settings):
    training = sf.Training(**{**TRAINING, **settings})
    return sf.fit_model(table, "y", loss="squared", schema=schema, model=sf.FwFM(k=4), training=training)


@pytest.fixture(scope="module")
def table():
    return holidays()


@pytest.fixture(scope="module")
def found(table):
    return fit(table)


def crosses(fitted):
    return [cross.name for cross in fitted.encoder.schema.crosses]


def rmse(fitted, table):
    return float(np.sqrt(np.mean((fitted.predict(table) - table["y"]) ** 2)))


def test_a_fit_finds_the_columns_that_act_together(found):
    assert crosses(found) and {cross.columns for cross in found.encoder.schema.crosses} == {("month", "day")}
    assert all("found: explains" in found.encoder.notes[name] for name in crosses(found))
    assert found.search[0].is_chosen and set(found.search[0].crosses) == set(crosses(found))


def test_what_another_fit_has_found_is_not_the_finding_of_this_one(table):
    few = {name: values[:900] for name, values in table.items()}
    schema = sf.Schema.infer(few, target="y")
    old = {**schema.provenance, "month × day": Provenance("searched", gain=0.08)}
    given = sf.Schema([*schema, sf.Cross("month", "day", min_count=1)], old)
    assert "found" not in fit(few, given, epochs=1).encoder.notes["month × day"]


def test_the_cross_helps_on_new_rows(found, table):
    new = holidays(seed=1)
    assert rmse(found, new) < 0.8 * rmse(fit(table, crosses=None), new)


def test_the_result_does_not_depend_on_threads(found, table):
    again = fit(table, threads=2)
    assert again.encoder == found.encoder
    assert all(np.array_equal(again.params[name], found.params[name]) for name in found.params)


def test_no_cross_is_added_where_columns_do_not_act_together():
    assert not fit(holidays(effect=0.0)).encoder.schema.crosses


def test_a_given_schema_stays_as_it_is_unless_a_number_asks_for_more(table):
    schema = sf.Schema.infer(table, target="y")
    given = sf.Schema(schema.fields)
    assert not fit(table, given).encoder.schema.crosses
    found = crosses(fit(table, given, crosses=1))
    assert found[0] == "month × day" and len(found) <= 2  # one of columns, and one of values that recur
    assert not fit(table, given, crosses=0).encoder.schema.crosses


def test_a_schema_with_crosses_gets_no_more(table):
    schema = sf.Schema.infer(table, target="y")
    fitted = fit(table, sf.Schema([*schema.fields, sf.Cross("month", "weekday")], schema.provenance), crosses=3)
    assert crosses(fitted) == ["month × weekday"]
    assert all(entry.crosses == ("month × weekday",) for entry in fitted.search)


@pytest.mark.parametrize("settings", [{"crosses": None}, {"crosses": 0}])
def test_crosses_can_be_switched_off(table, settings):
    assert not fit(table, **settings).encoder.schema.crosses


def test_small_tables_and_tables_without_validation_rows_are_left_alone(table):
    few = {name: values[:900] for name, values in table.items()}
    assert not fit(few).encoder.schema.crosses
    fitted = sf.fit_model(table, "y", loss="squared", validation=0.0, training=sf.Training(epochs=1, threads=1))
    assert not fitted.encoder.schema.crosses


def test_rows_that_take_much_memory_are_left_alone(table, monkeypatch):
    monkeypatch.setattr(search, "MAX_BYTES", 100_000)
    fitted = fit(table)
    assert not fitted.encoder.schema.crosses and not fitted.search


@pytest.mark.parametrize("crosses", ["all", -1, 1.5, True, ["month"]])
def test_anything_else_is_an_error(crosses):
    with pytest.raises(ValueError, match="crosses must be"):
        sf.Training(crosses=crosses)


def test_an_estimator_has_the_parameter(table):
    X = {name: values for name, values in table.items() if name != "y"}
    model = sf.SplineFMRegressor(sf.FwFM(k=4), epochs=8, n_jobs=1, l2=1e-4, smoothness=1e-2, members=1)
    model.fit(X, table["y"])
    assert {cross.columns for cross in model.schema_.crosses} == {("month", "day")}
    model = sf.SplineFMRegressor(sf.FM(k=2), epochs=2, n_jobs=1, crosses=None).fit(X, table["y"])
    assert not model.schema_.crosses


def test_positions_that_act_together_become_a_tensor_product():
    rng = np.random.default_rng(0)
    n = 6000
    x, y = rng.uniform(size=n), rng.uniform(size=n)
    cells = rng.normal(size=(12, 12))
    target = cells[(12 * x).astype(int), (12 * y).astype(int)] + 0.3 * rng.normal(size=n)
    fitted = fit({"east": x, "north": y, "noise": rng.normal(size=n), "y": target})
    (cross,) = (each for each in fitted.encoder.schema.crosses if each.name == "east × north")
    assert len(cross.levels) == 3
    assert "noise" not in {name for each in fitted.encoder.schema.crosses for name in each.columns}


def test_screening_names_the_pair_and_how_much_it_explains():
    rng = np.random.default_rng(0)
    n = 8000
    table = {"a": rng.choice(list("abcd"), n), "b": rng.choice(list("xyz"), n), "u": rng.uniform(size=n)}
    encoder = sf.fit_encoder(sf.Schema([sf.Categorical("a"), sf.Categorical("b"), sf.Numerical("u")]), table)
    values = {name: encoder.schema[name].encode(np_to_arrow(table[name]))[0][:, 0] for name in "ab"}
    values["u"] = table["u"]
    effect = np.where((table["a"] == "a") == (table["b"] == "x"), 1.0, -1.0)
    residual = 0.5 * effect + rng.normal(size=n)
    (candidate,) = screen(encoder, values, residual, rng.normal(size=n), seed=0)
    assert candidate.cross.name == "a × b"
    assert 0.08 < candidate.gain < 0.2  # the columns alone explain a part of 0.25 / 1.25
    assert not screen(encoder, values, rng.normal(size=n), rng.normal(size=n), seed=0)
    assert not screen(encoder, values, np.zeros(n), np.zeros(n), seed=0)


def np_to_arrow(values):
    import pyarrow as pa

    return pa.array(values.tolist())


def test_longer_rows_that_leave_room_for_fewer_are_not_compared(table, monkeypatch):
    """Validation rows are limited in bytes: with a cross there would be half as many, which have other losses."""
    given = sf.Schema(sf.Schema.infer(table, target="y").fields)  # whose bases stay as they are
    layout = sf.fit_encoder(given, table).layout
    n_held_out = int(ValidationSample(0.1, 0, 1 << 20).has(np.arange(len(table["y"]))).sum())
    row = 4 * (layout.n_windows + layout.n_weights) + 16
    monkeypatch.setattr("splinefm.train.chunks.VALIDATION_BYTES", row * n_held_out)
    assert not fit(table, given, crosses=1).encoder.schema.crosses
    monkeypatch.setattr("splinefm.train.chunks.VALIDATION_BYTES", 3 * row * n_held_out)
    assert fit(table, given, crosses=1).encoder.schema.crosses


def test_a_column_with_the_name_of_a_cross_stays(table):
    fitted = fit({**table, "month × day": table["noise"]})
    assert "month × day" not in crosses(fitted)
    assert "month × day" in fitted.encoder.schema.columns


def test_a_verbose_fit_says_what_it_found(table, capsys):
    training = sf.Training(**TRAINING)
    sf.fit_model(table, "y", loss="squared", model=sf.FwFM(k=4), training=training, verbose=True)
    said = capsys.readouterr().err
    assert "found: explains" in said and "'month × day" in said
    assert "search: tried " in said and "chosen: FwFM(k=4)" in said


@pytest.mark.parametrize("where", ["find_unexplained", "find_candidates"])
def test_a_search_for_crosses_that_diverges_leaves_the_best_setting_without(table, where, monkeypatch):
    def diverge(*args, **options):
        raise sf.Diverged("training diverged")

    monkeypatch.setattr(f"splinefm.search.crosses.{where}", diverge)
    fitted = fit(table)
    assert fitted.search and not fitted.encoder.schema.crosses
    assert {epoch.run for epoch in fitted.history} == {"first"}
