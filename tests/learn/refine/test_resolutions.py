"""Resolutions by column: what a first run suggests, and when it is taken."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.learn.loop.divergence import Diverged
from splinefm.learn.losses import Loss
from splinefm.learn.refine import halves, resolutions
from splinefm.learn.refine.resolutions import (
    KEEP,
    REFINE,
    _choose,
    _design,
    _projection,
    _some_rows,
    choose_resolutions,
    free_columns,
    levels_of,
    with_resolutions,
)
from splinefm.learn.training import Chunk
from support import examples

ROWS = 3000
TRAINING = sf.Training(epochs=8, learning_rate=0.02, threads=1)


def waves_and_a_line(seed=0):
    """A column with 30 waves and one that matters along a straight line."""
    rng = np.random.default_rng(seed)
    fast, slow = rng.random(ROWS), rng.random(ROWS)
    y = np.sin(60 * np.pi * fast) + 3.0 * slow + 0.3 * rng.normal(size=ROWS)
    return {"fast": fast, "slow": slow, "y": y}


TABLE = waves_and_a_line()


def fit(training=TRAINING, table=TABLE, **options):
    return sf.fit_model(table, "y", model=sf.FM(k=2), loss="squared", training=training, **options)


def segments(fitted):
    return {item.name: item.basis.segments for item in fitted.encoder.fields}


def best(fitted):
    return min(epoch.validation_loss for epoch in fitted.history)


def test_columns_get_the_resolutions_that_they_need():
    plain, refined = fit(replace(TRAINING, select_resolutions=False)), fit()
    assert segments(plain) == {"fast": (8, 32, 128), "slow": (8, 32, 128)}
    found = segments(refined)
    assert found["slow"] == (8,) and found["fast"][-1] >= 128
    assert best(refined) < 0.998 * best(plain)


def test_the_estimator_tells_the_resolutions_in_use():
    estimator = sf.SplineFMRegressor(sf.FM(k=2), epochs=8, learning_rate=0.02, n_jobs=1).fit(TABLE, target="y")
    assert {item.name: item.basis.segments for item in estimator.schema_} == segments(estimator.fitted_)
    assert segments(estimator.fitted_) == segments(fit())


def test_a_schema_of_the_user_stays_as_it_is():
    inferred = sf.infer_schema(TABLE, target="y")
    assert free_columns(inferred) == ["fast", "slow"]
    own = sf.Schema(tuple(inferred))
    assert free_columns(own) == []
    assert segments(fit(schema=own)) == {"fast": (8, 32, 128), "slow": (8, 32, 128)}


@pytest.mark.parametrize("why", ["no validation", "large"])
def test_nothing_is_refined_without_validation_and_for_large_tables(why, monkeypatch):
    if why == "large":
        monkeypatch.setattr(resolutions, "MOST_ROWS", 100)
    fitted = fit(validation=0 if why == "no validation" else 0.1)
    assert segments(fitted) == {"fast": (8, 32, 128), "slow": (8, 32, 128)}


def test_a_second_run_that_is_worse_is_not_taken(monkeypatch):
    """Resolutions that cannot follow the waves."""
    monkeypatch.setattr(resolutions, "choose_resolutions", lambda *_: {"fast": (8,), "slow": (8,)})
    assert segments(fit()) == {"fast": (8, 32, 128), "slow": (8, 32, 128)}


def test_more_functions_must_gain_more_than_a_little(monkeypatch):
    monkeypatch.setattr(resolutions, "choose_resolutions", lambda *_: {"fast": (8, 32, 128, 512), "slow": (8, 32, 128)})
    assert segments(fit())["fast"] == (8, 32, 128, 512)
    monkeypatch.setattr(resolutions, "MARGIN", 0.99)
    assert segments(fit())["fast"] == (8, 32, 128)


def told(error, kept):
    """Ctrl-C leaves a word about the model that is kept, a divergence does not."""
    is_interrupt = error is KeyboardInterrupt
    return pytest.warns(UserWarning, match=f"the model of the {kept} is kept") if is_interrupt else nullcontext()


@pytest.mark.parametrize("error", [KeyboardInterrupt, Diverged])
def test_a_second_run_that_fails_leaves_the_first(error, monkeypatch):
    calls = []

    def failing(*args):
        calls.append(1)
        raise error

    monkeypatch.setattr(resolutions, "train_part", failing)
    with told(error, "first run"):
        fitted = fit(replace(TRAINING, crosses=None))
    assert len(calls) == 1 and segments(fitted)["slow"] == (8, 32, 128)
    assert np.isfinite(fitted.predict(TABLE)).all()


@pytest.mark.parametrize(("error", "runs"), [(KeyboardInterrupt, {"half"}), (Diverged, {"first"})])
def test_a_second_run_on_half_of_the_rows_that_fails_leaves_the_first(error, runs, monkeypatch):
    calls, train = [], halves.run_training

    def failing(*args, **options):
        calls.append(1)
        if len(calls) == 2:
            raise error
        return train(*args, **options)

    monkeypatch.setattr(halves, "run_training", failing)
    with told(error, "run on half of the rows"):
        fitted = fit()
    assert len(calls) == 2 and segments(fitted)["slow"] == (8, 32, 128)
    assert {epoch.run for epoch in fitted.history} == runs


def test_resolutions_are_chosen_on_half_of_the_rows_or_else_by_a_second_run():
    assert {epoch.run for epoch in fit().history} == {"first"}
    again = fit(replace(TRAINING, crosses=None))
    assert segments(again)["slow"] == (8,)
    assert {epoch.run for epoch in again.history} == {"by column"}


def test_the_rows_that_judge_count_by_their_weight():
    """A model of half of the rows has the mean loss of the other half and of the validation rows."""
    chunk = Chunk(None, np.array([0.0, 2.0]), np.array([1.0, 3.0]))
    chunks = SimpleNamespace(validation=chunk, loss=Loss("squared"))
    learned = halves.Learned(chunks, TRAINING, SimpleNamespace(judged=chunk), None, [np.zeros(2), np.ones(2)])
    assert learned.loss() == pytest.approx((0.0 + 3 * 2.0 + 0.5 + 3 * 0.5) / 8)


def test_resolutions_that_do_little_are_dropped_from_the_finest_on():
    much, little, some = 2 * REFINE, KEEP / 2, 1.5 * KEEP
    assert some < REFINE
    assert _choose([8, 32, 128], [little, much]) == (8, 32)
    assert _choose([8, 32, 128], [little, -little]) == (8,)
    assert _choose([8, 32, 128], [much, -little]) == (8,)  # the finest one only makes up for the one before
    assert _choose([8, 32, 128], [some, much]) == (8, 32, 128)
    assert _choose([8, 32, 128], [much, much]) == (8, 32, 128, 512)
    assert _choose([8, 1024], [much]) == (8, 1024)  # there is an end to it


@examples(20)
@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3]))
def test_a_coarser_resolution_takes_over_all_that_it_can_express(seed, degree):
    """Weights of a fine spline that is a coarse one as well are turned into the coarse one's."""
    u = np.linspace(0, 1, 500)
    designs = [_design(sf.BSpline(segments, degree), u) for segments in (8, 32)]
    weights = np.random.default_rng(seed).normal(size=8 + degree)
    refined = np.linalg.lstsq(designs[1], designs[0] @ weights)[0]  # knots of the coarse one are knots of the fine one
    np.testing.assert_allclose(designs[1] @ refined, designs[0] @ weights, atol=1e-9)
    np.testing.assert_allclose(_projection(32, degree, 8, degree) @ refined, weights, atol=1e-6)


def test_a_model_that_explains_nothing_suggests_nothing():
    fitted = fit(replace(TRAINING, epochs=1, select_resolutions=False))
    levels = levels_of(fitted.encoder, ["fast", "slow"])
    zeros = {name: np.zeros_like(values) for name, values in fitted.params.items()}
    y = fitted.loss.standardize(TABLE["y"])
    chunk = Chunk(fitted.encoder.encode(TABLE), y, np.ones(ROWS))
    assert choose_resolutions(levels, fitted.model, zeros, chunk, fitted.loss, 0.0) == {}


def test_other_fields_are_left_alone():
    schema = sf.Schema([sf.Numerical("x", basis=sf.BSpline(9)), sf.Categorical("c")])
    assert with_resolutions(schema, {"x": (8,), "c": (8,)}) == schema


def test_tuning_starts_with_resolutions_by_column():
    estimator = sf.SplineFMRegressor(sf.FM(k=2), epochs=8, learning_rate=0.02, n_jobs=1)
    tuned = sf.tune(estimator, TABLE, "y", trials=1, space={"k": None, "batch_size": None})
    assert tuned.history["segments"] == ["by column"]
    assert segments(tuned.estimator.fitted_) == segments(fit()) and tuned.estimator.select_resolutions is False
    again = fit()
    np.testing.assert_array_equal(tuned.estimator.fitted_.params["factors"], again.params["factors"])


def test_of_a_wide_table_only_some_validation_rows_are_looked_at():
    def chunk(n_fields, n_rows=1000):
        table = {f"x{i}": np.arange(float(n_rows)) for i in range(n_fields)}
        slots = sf.fit_encoder(sf.Schema([sf.Numerical(name) for name in table]), table).encode(table)
        return Chunk(slots, np.arange(float(n_rows)), np.ones(n_rows))

    ordinary, wide = chunk(50), chunk(250)
    assert _some_rows(ordinary, 50) is ordinary
    assert _some_rows(wide, 20) is wide
    some = _some_rows(wide, 250)
    assert len(some.slots) == len(some.y) == len(some.sample_weight) == 50_000_000 // 250**2
    assert some.y[0] == 0.0 and some.y[-1] == 999.0
    np.testing.assert_array_equal(some.slots.start, wide.slots.start[some.y.astype(int)])
