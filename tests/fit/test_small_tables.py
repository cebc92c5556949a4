"""Tables of few rows: stronger penalties and smaller batches by default, and only by default."""

from dataclasses import replace

import numpy as np
import pytest

import splinefm as sf
from splinefm.train.settings import EPOCHS, L2, SMOOTHNESS, penalty_strength, small_batch

QUICK = sf.Training(epochs=2, threads=1, effort="fast")
UNTOUCHED = {"l2": 3e-5, "smoothness": 2e-3, "batch_size": 20}


def numbers(n, seed=0):
    rng = np.random.default_rng(seed)
    x, c = rng.normal(size=n), rng.choice(["a", "b"], n)
    return {"x": x, "c": c, "y": x * (c == "a") + 0.1 * rng.normal(size=n)}


def fit(n, training=QUICK, **options):
    return sf.fit_model(numbers(n), "y", loss="squared", model=sf.FM(k=2), training=training, **options)


def used(training):
    return training.l2, training.smoothness, training.batch_size


@pytest.mark.parametrize(
    ("n", "l2", "smoothness", "batch_size"),
    [
        (10, 6e-4, 6e-2, 4),
        (150, 6e-4, 6e-2, 4),
        (300, 6e-4, 6e-2, 8),
        (500, 6e-4, 6e-2, 16),
        (900, 3.33e-4, 3.33e-2, None),
        (1_500, 2e-4, 2e-2, None),
    ],
)
def test_the_defaults_of_a_small_table_are_visible_in_the_model(n, l2, smoothness, batch_size):
    assert used(fit(n).training) == (l2, smoothness, batch_size)


@pytest.mark.parametrize("n", [3_000, 3_001, 5_000, 30_000, 10**6])
def test_other_tables_have_the_defaults_of_all_tables(n):
    assert penalty_strength(n) == 1.0 and small_batch(n) is None
    filled = sf.Training().for_table(["x", "c"], n, ["c"])
    assert filled == sf.Training(epochs=EPOCHS).with_penalties(["x", "c"], unsmoothed=["c"])


def test_a_fit_to_3000_rows_has_the_settings_of_all_tables():
    assert fit(3_000).training == replace(QUICK, l2=L2, smoothness=SMOOTHNESS, members=1)
    # Fewer rows train, and fewer still in its halves: the rows of the table count.
    assert [sf.Training().rows_per_step(n) for n in (10, 1_350, 2_700, 5_000)] == [32, 32, 32, 32]


def test_fewer_rows_never_mean_weaker_penalties_or_larger_batches():
    sizes = range(1, 4_000)
    strengths, batches = [penalty_strength(n) for n in sizes], [small_batch(n) or 32 for n in sizes]
    assert strengths == sorted(strengths, reverse=True) and (strengths[0], strengths[-1]) == (6.0, 1.0)
    assert batches == sorted(batches) and set(batches) == {4, 8, 16, 32}


@pytest.mark.parametrize("name", sorted(UNTOUCHED))
def test_a_given_setting_is_used_as_it_is(name):
    kept = fit(150, replace(QUICK, **{name: UNTOUCHED[name]})).training
    defaults = {"l2": 6e-4, "smoothness": 6e-2, "batch_size": 4}
    assert used(kept) == tuple((defaults | {name: UNTOUCHED[name]}).values())


def test_zero_penalties_stay_zero_and_fields_that_are_not_named_get_the_default():
    assert used(fit(150, replace(QUICK, l2=0.0, smoothness=0.0)).training) == (0.0, 0.0, 4)
    assert dict(fit(150, replace(QUICK, l2={"x": 1e-5})).training.l2) == {"x": 1e-5, "c": 6e-4}


def test_another_fit_with_the_settings_of_a_model_gives_the_same_model():
    first = fit(150)
    again = fit(150, first.training)
    assert again.training == first.training
    assert all((again.params[name] == first.params[name]).all() for name in first.params)
    assert used(fit(4_000, first.training).training) == used(first.training)


def test_the_steps_of_a_fit_are_those_of_its_settings():
    """A fit with the resolved numbers, written out, is the same fit; with the numbers of large tables it is not."""
    first, same = fit(150), fit(150, replace(QUICK, l2=6e-4, smoothness=6e-2, batch_size=4))
    other = fit(150, replace(QUICK, l2=L2, smoothness=SMOOTHNESS, batch_size=32))
    assert (same.params["factors"] == first.params["factors"]).all()
    assert (other.params["factors"] != first.params["factors"]).any()


def test_members_files_and_updates_keep_the_settings(tmp_path):
    assert used(fit(150, replace(QUICK, members=2)).training) == (6e-4, 6e-2, 4)
    fitted = fit(150)
    fitted.save(tmp_path / "model.sfm")
    assert sf.load(tmp_path / "model.sfm").training == fitted.training
    learner = sf.Learner.load(tmp_path / "model.sfm")
    for n in (20, 5_000):
        learner.update(numbers(n, seed=1), "y")
    assert learner.fitted().training == fitted.training


def test_estimators_update_and_reload_with_the_settings_of_the_fit(tmp_path):
    table = numbers(150)
    estimator = sf.SplineFMRegressor(sf.FM(k=2), epochs=2, n_jobs=1)
    estimator.partial_fit(table, target="y").partial_fit(numbers(30, seed=1), target="y")
    assert used(estimator.fitted_.training) == (6e-4, 6e-2, 4)
    assert (estimator.l2, estimator.smoothness, estimator.batch_size) == (None, None, None)
    estimator.save(tmp_path / "model.sfm")
    again = sf.SplineFMRegressor.load(tmp_path / "model.sfm")
    assert (again.l2, again.smoothness, again.batch_size) == (6e-4, 6e-2, 4)


def test_a_search_starts_from_the_defaults_of_the_table_and_does_not_apply_them_twice():
    pytest.importorskip("optuna")
    estimator = sf.SplineFMRegressor(sf.FM(k=2), epochs=2, n_jobs=1, validation=0.2)
    none = dict.fromkeys(("k", "learning_rate", "segments", "degree", "transform"))
    tuned = sf.tune(estimator, numbers(150), "y", trials=1, space=none)
    assert tuned.params == {"l2": 6e-4, "smoothness": 6e-2, "batch_size": 4}
    assert used(tuned.estimator.fitted_.training) == (6e-4, 6e-2, 4)
    chosen = {"l2": [2e-4], "smoothness": [3e-2], "batch_size": [8]}
    tuned = sf.tune(estimator, numbers(150), "y", trials=2, space=none | chosen)
    assert used(tuned.estimator.fitted_.training) == (2e-4, 3e-2, 8)
    left = sf.tune(estimator, numbers(150), "y", trials=1, space={**none, "l2": None, "batch_size": None})
    assert set(left.params) == {"smoothness"} and used(left.estimator.fitted_.training) == (6e-4, 6e-2, 4)


@pytest.mark.parametrize("n", [2, 10, 30])
@pytest.mark.parametrize("loss", ["squared", "poisson", "logistic", "softmax"])
def test_tables_of_a_few_rows(n, loss):
    rng = np.random.default_rng(n)
    y = {"squared": rng.normal(size=n), "poisson": rng.poisson(3.0, n), "logistic": np.arange(n) % 2}
    y["softmax"] = np.array(["a", "b", "c"])[np.arange(n) % 3]
    table = {"x": rng.normal(size=n), "w": rng.random(n) + 0.1, "y": y[loss]}
    for validation in (0.0, 0.1, 0.5):
        try:
            fitted = sf.fit_model(table, "y", loss=loss, sample_weight="w", validation=validation, training=QUICK)
        except ValueError as error:  # a hash draws the validation rows, and can draw all of two
            assert n == 2 and "held out" in str(error)
        else:
            assert np.isfinite(fitted.predict(table)).all()


def test_a_small_table_is_learned():
    """Three classes along a line, 120 rows: with the defaults of large tables, the loss is much higher."""
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 3, 320)
    table = {"x": x, "z": x + rng.normal(size=320), "color": np.array(["red", "green", "blue"])[x.astype(int)]}
    train, test = ({name: values[rows] for name, values in table.items()} for rows in (slice(120), slice(120, None)))

    def loss(**settings):
        fitted = sf.fit_model(train, "color", loss="softmax", training=sf.Training(threads=1, **settings))
        labels = np.searchsorted(fitted.classes, test["color"])
        return sf.metrics.class_logloss(labels, fitted.predict(test, watch=False))

    assert loss() < 0.75 * loss(l2=L2, smoothness=SMOOTHNESS, batch_size=32)
