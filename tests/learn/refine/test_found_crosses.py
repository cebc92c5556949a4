"""Crosses that a fit finds: what is found, what is left alone, and what it says."""

from dataclasses import replace

import numpy as np
import pytest

import splinefm as sf
from splinefm.learn import fitting
from splinefm.learn.loop.divergence import Diverged
from splinefm.learn.losses import Loss
from splinefm.learn.refine import halves, search
from splinefm.learn.refine.halves import loss_fall
from splinefm.learn.refine.screening import screen
from splinefm.learn.rows.held_out import ValidationSample, row_randoms
from splinefm.learn.training import Chunk

TRAINING = {"epochs": 8, "threads": 1, "select_resolutions": False}


def holidays(n=8000, effect=3.0, seed=0):
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


def rmse(fitted, table):
    return float(np.sqrt(np.mean((fitted.predict(table) - table["y"]) ** 2)))


def test_a_fit_finds_the_columns_that_act_together(found):
    assert [cross.name for cross in found.encoder.schema.crosses] == ["month × day"]
    assert "found: explains" in found.encoder.notes["month × day"]
    assert {epoch.run for epoch in found.history} == {"crosses"}


def test_what_another_fit_has_found_is_not_the_finding_of_this_one(table):
    few = {name: values[:200] for name, values in table.items()}
    schema = sf.Schema.infer(few, target="y")
    old = {**schema.reasons, "month × day": "found: explains 8.0% of the residuals"}
    given = sf.Schema([*schema, sf.Cross("month", "day", min_count=1)], old)
    assert "found" not in fit(few, given, epochs=1).encoder.notes["month × day"]


def test_the_cross_helps_on_new_rows(found, table):
    new = holidays(4000, seed=1)
    assert rmse(found, new) < 0.8 * rmse(fit(table, crosses=None), new)


def test_the_note_of_a_cross_survives_the_choice_of_resolutions():
    table = holidays()
    fitted = fit({**table, "noise": table["noise"] + np.sin(9 * table["noise"])}, select_resolutions=True)
    assert "found: explains" in fitted.encoder.notes["month × day"]


def test_the_result_does_not_depend_on_threads(found, table):
    again = fit(table, threads=2)
    assert all(np.array_equal(again.params[name], found.params[name]) for name in found.params)


def test_no_cross_is_added_where_columns_do_not_act_together():
    assert not fit(holidays(effect=0.0)).encoder.schema.crosses


def test_a_given_schema_stays_as_it_is_unless_a_number_asks_for_more(table):
    schema = sf.Schema.infer(table, target="y")
    given = sf.Schema(schema.fields)
    assert not fit(table, given).encoder.schema.crosses
    assert [cross.name for cross in fit(table, given, crosses=1).encoder.schema.crosses] == ["month × day"]
    assert not fit(table, given, crosses=0).encoder.schema.crosses


def test_a_schema_with_crosses_gets_no_more(table):
    schema = sf.Schema.infer(table, target="y")
    fitted = fit(table, sf.Schema([*schema.fields, sf.Cross("month", "weekday")], schema.reasons), crosses=3)
    assert [cross.name for cross in fitted.encoder.schema.crosses] == ["month × weekday"]


@pytest.mark.parametrize("settings", [{"crosses": None}, {"crosses": 0}])
def test_crosses_can_be_switched_off(table, settings):
    assert not fit(table, **settings).encoder.schema.crosses


def test_small_tables_and_tables_without_validation_rows_are_left_alone(table):
    few = {name: values[:900] for name, values in table.items()}
    assert not fit(few).encoder.schema.crosses
    fitted = sf.fit_model(table, "y", loss="squared", validation=0.0, training=sf.Training(epochs=1, threads=1))
    assert not fitted.encoder.schema.crosses


def test_rows_that_take_much_memory_are_left_alone(table, monkeypatch):
    monkeypatch.setattr(search, "MOST_BYTES", 100_000)
    assert not fit(table).encoder.schema.crosses


def test_rows_without_weight_judge_nothing():
    chunk = Chunk(None, np.ones(5), np.zeros(5))
    assert loss_fall(Loss("squared"), [chunk], [np.zeros(5)], [np.ones(5)]) == 0.0


@pytest.mark.parametrize("crosses", ["all", -1, 1.5, True, ["month"]])
def test_anything_else_is_an_error(crosses):
    with pytest.raises(ValueError, match="crosses must be"):
        sf.Training(crosses=crosses)


def test_an_estimator_has_the_parameter(table):
    X = {name: values for name, values in table.items() if name != "y"}
    model = sf.SplineFMRegressor(sf.FwFM(k=4), epochs=8, n_jobs=1, select_resolutions=False).fit(X, table["y"])
    assert "month × day" in model.schema_.names
    model = sf.SplineFMRegressor(sf.FM(k=2), epochs=2, n_jobs=1, crosses=None).fit(X, table["y"])
    assert not model.schema_.crosses


def test_positions_that_act_together_become_a_tensor_product():
    rng = np.random.default_rng(0)
    n = 6000
    x, y = rng.uniform(size=n), rng.uniform(size=n)
    cells = rng.normal(size=(12, 12))
    target = cells[(12 * x).astype(int), (12 * y).astype(int)] + 0.3 * rng.normal(size=n)
    fitted = fit({"east": x, "north": y, "noise": rng.normal(size=n), "y": target})
    (cross,) = fitted.encoder.schema.crosses
    assert cross.name == "east × north"
    assert len(cross.levels) == 3


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


def test_a_fall_that_may_be_chance_does_not_count():
    rng = np.random.default_rng(0)
    y = rng.normal(size=400)
    chunk = Chunk(None, y, rng.uniform(0.5, 2.0, 400))
    noise = rng.normal(size=400)
    assert loss_fall(Loss("squared"), [chunk], [np.zeros(400)], [0.5 * y]) == pytest.approx(0.75)
    assert loss_fall(Loss("squared"), [chunk], [0.1 * noise], [0.1 * rng.normal(size=400)]) == 0.0
    assert loss_fall(Loss("squared"), [chunk], [0.5 * y], [np.zeros(400)]) == 0.0


def test_a_large_fall_needs_fewer_standard_errors():
    # Four rows have all of the loss: two gain, one loses, which is 1.2 standard errors.
    y = np.zeros(400)
    y[:4] = 10.0
    after = np.zeros(400)
    after[:3] = (5.0, 5.0, -1.0)
    chunk = Chunk(None, y, np.ones(400))
    gain = 0.5 * (y**2 - (y - after) ** 2)
    assert 1.0 < gain.mean() / (gain.std() / 20.0) < 2.0
    assert loss_fall(Loss("squared"), [chunk], [np.zeros(400)], [after]) == pytest.approx(gain.sum() / 200.0)
    # The same is about a percent of the loss if other rows have some, too.
    chunk = Chunk(None, np.concatenate([y, np.full(400, 5.0)]), np.ones(800))
    assert loss_fall(Loss("squared"), [chunk], [np.zeros(800)], [np.concatenate([after, np.zeros(400)])]) == 0.0


def test_longer_rows_that_leave_room_for_fewer_are_not_compared(table, monkeypatch):
    """Validation rows are limited in bytes: with a cross there would be half as many, which have other losses."""
    layout = sf.fit_encoder(sf.Schema.infer(table, target="y"), table).layout
    n_held_out = int(ValidationSample(0.1, 0, 1 << 20).has(np.arange(len(table["y"]))).sum())
    row = 4 * (layout.n_windows + layout.n_weights) + 16
    monkeypatch.setattr("splinefm.learn.rows.chunks.VALIDATION_BYTES", row * n_held_out)
    assert not fit(table).encoder.schema.crosses
    monkeypatch.setattr("splinefm.learn.rows.chunks.VALIDATION_BYTES", 2 * row * n_held_out)
    assert fit(table).encoder.schema.crosses


@pytest.mark.parametrize(("patience", "expected"), [(9, 2), (1, 1), (None, None)])
def test_runs_on_half_of_the_rows_are_short(table, patience, expected, monkeypatch):
    seen, train = [], halves.run_training

    def spy(model, chunks, training, *rest, **options):
        seen.append((options["run"], training.patience, training.epochs))
        return train(model, chunks, replace(training, epochs=1), *rest, **options)

    monkeypatch.setattr(halves, "run_training", spy)
    fit({name: values[:2000] for name, values in table.items()}, patience=patience, epochs=12)
    assert seen and set(seen) == {("half", expected, halves.HALF_EPOCHS)}


OF_HALF = "interrupted: the model of the run on half of the rows is kept"


@pytest.mark.parametrize("stop_in", [1, 2])
def test_a_search_that_is_stopped_leaves_what_it_has(table, stop_in, monkeypatch):
    """The first run on half of the rows has no cross yet, the second one tries it."""
    begun, train = [], halves.run_training

    def stop(*args, **options):
        begun.append(options["run"])
        return train(*args, **options)._replace(interrupted=len(begun) == stop_in)

    monkeypatch.setattr(halves, "run_training", stop)
    with pytest.warns(UserWarning, match=OF_HALF):
        fitted = fit(table)
    assert begun == ["half"] * stop_in
    assert {epoch.run for epoch in fitted.history} == {"half"}
    assert not fitted.encoder.schema.crosses


def test_callbacks_see_the_runs_on_all_training_rows(table):
    seen = []
    training = sf.Training(**TRAINING)
    sf.fit_model(
        table, "y", loss="squared", model=sf.FwFM(k=4), training=training, callbacks=[lambda e: seen.append(e.run)]
    )
    assert set(seen) == {"crosses", "all rows"}


def test_ctrl_c_in_the_first_epoch_after_the_search_leaves_a_model(table, monkeypatch):
    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(fitting, "train_part", stop)
    with pytest.warns(UserWarning, match=OF_HALF):
        fitted = fit(table)
    assert {epoch.run for epoch in fitted.history} == {"half"}
    assert fitted.has_half and "half of 8,000 rows" in repr(fitted)
    assert [cross.name for cross in fitted.encoder.schema.crosses] == ["month × day"]


def test_a_run_with_crosses_that_diverges_is_repeated_without(table, monkeypatch):
    train = fitting.train_part

    def diverge(model, chunks, training, callbacks, progress, run="first", whole=None):
        if run == "crosses":
            raise Diverged("training diverged")
        return train(model, chunks, training, callbacks, progress, run, whole)

    monkeypatch.setattr(fitting, "train_part", diverge)
    fitted = fit(table)
    assert not fitted.encoder.schema.crosses
    assert {epoch.run for epoch in fitted.history} == {"first"}


def test_a_cross_that_diverges_is_not_taken(table, monkeypatch):
    calls, train = [], halves.run_training

    def diverge(*args, **options):
        calls.append(1)
        if len(calls) == 2:
            raise Diverged("training diverged")
        return train(*args, **options)

    monkeypatch.setattr(halves, "run_training", diverge)
    fitted = fit(table)
    assert len(calls) >= 2 and "month × day" not in fitted.encoder.schema.names
    assert {epoch.run for epoch in fitted.history} <= {"first", "crosses"}


def test_a_half_without_weights_ends_the_search(table):
    first = row_randoms(1, np.arange(8000)) < 0.5
    given = {name: values[:500] for name, values in holidays(seed=3).items()} | {"w": np.ones(500)}
    training = sf.Training(**{**TRAINING, "epochs": 2})
    options = {"loss": "squared", "model": sf.FM(k=2), "training": training, "sample_weight": "w", "validation": given}
    fitted = sf.fit_model({**table, "w": first.astype(float)}, "y", **options)
    assert not fitted.encoder.schema.crosses


def test_a_column_with_the_name_of_a_cross_stays(table):
    fitted = fit({**table, "month × day": table["noise"]})
    assert not fitted.encoder.schema.crosses
    assert "month × day" in fitted.encoder.schema.columns


def test_ctrl_c_before_there_is_a_model_ends_the_fit(table, monkeypatch):
    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(halves, "run_training", stop)
    with pytest.raises(KeyboardInterrupt):
        fit(table)


def test_ctrl_c_between_runs_leaves_what_there_is(table, monkeypatch):
    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(search, "find_candidates", stop)
    with pytest.warns(UserWarning, match=OF_HALF):
        fitted = fit(table)
    assert {epoch.run for epoch in fitted.history} == {"half"}


def test_a_search_that_diverges_is_given_up(table, monkeypatch):
    def diverge(*args, **options):
        raise Diverged("training diverged")

    monkeypatch.setattr(halves, "run_training", diverge)
    fitted = fit(table)
    assert not fitted.encoder.schema.crosses
    assert {epoch.run for epoch in fitted.history} == {"first"}


def test_a_verbose_fit_says_what_it_found(table, capsys):
    training = sf.Training(**TRAINING)
    sf.fit_model(table, "y", loss="squared", model=sf.FwFM(k=4), training=training, verbose=True)
    said = capsys.readouterr().err
    assert "'month × day' found: explains" in said and "run on half of the rows" not in said
