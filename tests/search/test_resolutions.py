"""Resolutions by column: what a model with several of them suggests, and when a search takes it."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.search import resolutions
from splinefm.search.resolutions import (
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
from splinefm.train.rows import Chunk
from support import examples

ROWS = 3000
# One member, and penalties that are given, make a search short.
TRAINING = sf.Training(epochs=8, learning_rate=0.02, threads=1, members=1, l2=1e-4, smoothness=1e-2)
PLAIN = replace(TRAINING, effort="fast")


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
    plain, refined = fit(PLAIN), fit()
    assert segments(plain) == {"fast": (8, 32, 128), "slow": (8, 32, 128)} and not plain.search
    found = segments(refined)
    assert found["slow"] == (8,) and found["fast"][-1] >= 128
    assert best(refined) < 0.998 * best(plain)
    assert {epoch.run for epoch in refined.history} == {"first"}


def test_the_estimator_tells_the_resolutions_in_use():
    settings = {"epochs": 8, "learning_rate": 0.02, "n_jobs": 1, "members": 1, "l2": 1e-4, "smoothness": 1e-2}
    estimator = sf.SplineFMRegressor(sf.FM(k=2), **settings).fit(TABLE, target="y")
    assert {item.name: item.basis.segments for item in estimator.schema_} == segments(estimator.fitted_)
    assert segments(estimator.fitted_) == segments(fit())


def test_a_schema_of_the_user_stays_as_it_is():
    inferred = sf.infer_schema(TABLE, target="y")
    assert free_columns(inferred) == ["fast", "slow"]
    own = sf.Schema(tuple(inferred))
    assert free_columns(own) == []
    fitted = fit(schema=own)
    assert segments(fitted) == {"fast": (8, 32, 128), "slow": (8, 32, 128)}
    assert {entry.basis for entry in fitted.search} == {"8+32+128 segments"}


def test_nothing_is_refined_without_validation():
    fitted = fit(validation=0)
    assert segments(fitted) == {"fast": (8, 32, 128), "slow": (8, 32, 128)} and not fitted.search


def test_large_tables_get_no_resolutions_by_column(monkeypatch):
    monkeypatch.setattr(resolutions, "MAX_ROWS", 100)
    assert len(set(segments(fit()).values())) == 1


def test_resolutions_that_are_worse_are_not_taken(monkeypatch):
    """Resolutions that cannot follow the waves."""
    monkeypatch.setattr(resolutions, "choose_resolutions", lambda *_: {"fast": (8,), "slow": (8,)})
    assert segments(fit()) == {"fast": (8, 32, 128), "slow": (8, 32, 128)}


def test_finer_resolutions_are_taken_where_they_help(monkeypatch):
    monkeypatch.setattr(resolutions, "choose_resolutions", lambda *_: {"fast": (8, 32, 128, 512), "slow": (8, 32, 128)})
    assert segments(fit())["fast"] == (8, 32, 128, 512)


def test_all_doors_know_a_basis_of_the_search(tmp_path):
    fitted = fit()
    fitted.save(tmp_path / "m.sfm")
    loaded = sf.load(tmp_path / "m.sfm")
    np.testing.assert_array_equal(loaded.scores(TABLE), fitted.scores(TABLE))
    assert loaded.search == fitted.search and segments(loaded) == segments(fitted)


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
    fitted = fit(replace(PLAIN, epochs=1))
    levels = levels_of(fitted.encoder, ["fast", "slow"])
    zeros = {name: np.zeros_like(values) for name, values in fitted.params.items()}
    y = fitted.loss.standardize(TABLE["y"])
    chunk = Chunk(fitted.encoder.encode(TABLE), y, np.ones(ROWS))
    assert choose_resolutions(levels, fitted.model, zeros, chunk, fitted.loss, 0.0) == {}


def test_other_fields_are_left_alone():
    schema = sf.Schema([sf.Numerical("x", basis=sf.BSpline(9)), sf.Categorical("c")])
    assert with_resolutions(schema, {"x": (8,), "c": (8,)}) == schema


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
