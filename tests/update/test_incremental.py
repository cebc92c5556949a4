"""Updates: new categories, kept state, nothing half-done."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import splinefm as sf
from splinefm.train.penalties import make_groups

TRAINING = sf.Training(epochs=5, threads=1, l2=1e-4, smoothness=3e-4)
# The lengths of tests/model/test_engine.py: every length is compiled anew.
MODELS = [sf.FM(k=4), sf.FwFM(k=4), sf.LowRankFwFM(k=4), sf.FmFM(k=3), sf.FFM(k=3), sf.HigherOrderFM(k=3)]
MODELS.append(sf.FwFM(k=4, third=2))
ONE_AND_MEANS = [*((model, 1) for model in MODELS), (sf.FwFM(k=4), 2), (sf.FwFM(k=4, third=2), 2)]


def clicks(rows, names="abc", shift=0.0, seed=0):
    rng = np.random.default_rng(seed)
    code, x = rng.integers(0, len(names), rows), rng.random(rows)
    tags = [[names[i], "t"] for i in code]
    p = 1 / (1 + np.exp(-(2 * x - 1 + code - 1 + shift)))
    return pa.table({"x": x, "c": [names[i] for i in code], "tags": tags, "click": rng.random(rows) < p})


def as_numbers(table):
    return table.set_column(3, "click", table["click"].cast(pa.int8()))


@pytest.mark.parametrize(("model", "members"), ONE_AND_MEANS, ids=str)
def test_new_categories_get_rows_and_old_rows_stay(model, members):
    old, new = as_numbers(clicks(500)), as_numbers(clicks(500, "cde", seed=1))
    fitted = sf.fit_model(old, "click", model=model, training=replace(TRAINING, members=members))
    learner = sf.Learner(fitted, TRAINING)
    before = fitted.scores(old)
    extended = fitted.encoder.extend(new)
    learner.engine.grow(extended.layout, make_groups(extended, TRAINING), np.random.default_rng(0))
    learner.encoder = extended
    np.testing.assert_allclose(learner.fitted().scores(old), before, atol=1e-6)
    grown = [
        b.n_features - a.n_features for a, b in zip(fitted.encoder.layout.fields, extended.layout.fields, strict=True)
    ]
    assert grown == [0, 2, 2]


def test_updates_follow_a_drift():
    fitted = sf.fit_model(as_numbers(clicks(3000)), "click", training=TRAINING)
    learner = sf.Learner(fitted, TRAINING)
    losses = [learner.update(as_numbers(clicks(3000, shift=3.0, seed=hour)), "click") for hour in range(8)]
    assert losses[-1] < losses[0] - 0.05
    test = as_numbers(clicks(3000, shift=3.0, seed=99))
    gap = lambda model: abs(model.predict(test).mean() - np.mean(test["click"].to_numpy()))  # noqa: E731
    assert gap(learner.fitted()) < 0.5 * gap(fitted)


def test_the_optimizer_remembers():
    fitted = sf.fit_model(as_numbers(clicks(500)), "click", training=TRAINING)
    first, second = as_numbers(clicks(300, seed=1)), as_numbers(clicks(300, "ab", seed=2))
    learner = sf.Learner(fitted, TRAINING)
    learner.update(first, "click")
    forgetful = sf.Learner(learner.fitted(), TRAINING)
    forgetful.rng = np.random.default_rng(5)
    learner.rng = np.random.default_rng(5)
    assert learner.update(second, "click") != forgetful.update(second, "click")
    assert not np.array_equal(learner.fitted().params["factors"], forgetful.fitted().params["factors"])


def test_penalties_by_field_are_those_of_updates():
    fitted = sf.fit_model(as_numbers(clicks(500)), "click", training=TRAINING)
    new = as_numbers(clicks(500, seed=1))
    strong = sf.Learner(fitted, sf.Training(threads=1, l2={"c": 100.0}))
    weak = sf.Learner(fitted, sf.Training(threads=1, l2={"c": 0.0}))
    for learner in (strong, weak):
        learner.update(new, "click")
    first, last = fitted.encoder.layout.feature_ptr[1:3]
    sizes = [np.abs(learner.fitted().params["factors"][first:last]).sum() for learner in (strong, weak)]
    assert sizes[0] < 0.95 * sizes[1]
    with pytest.raises(ValueError, match=r"l2 is given for 'd', which is not a field\. Fields: 'x', 'c', 'tags'"):
        sf.Learner(fitted, sf.Training(l2={"d": 1.0}))


def test_the_start_is_not_changed_and_updates_repeat_exactly():
    fitted = sf.fit_model(as_numbers(clicks(500)), "click", training=TRAINING)
    params = {name: values.copy() for name, values in fitted.params.items()}
    results = []
    for _ in range(2):
        learner = sf.Learner(fitted, TRAINING)
        learner.update(as_numbers(clicks(500, "bcd", seed=1)), "click")
        results.append(learner.fitted().params)
    for name, values in params.items():
        np.testing.assert_array_equal(fitted.params[name], values)
        np.testing.assert_array_equal(results[0][name], results[1][name])


def test_rare_new_categories_stay_rare():
    schema = sf.Schema([sf.Categorical("c", min_count=5)])
    old = {"c": ["a", "b"] * 50, "click": [0, 1] * 50}
    learner = sf.Learner(sf.fit_model(old, "click", schema=schema, training=TRAINING), TRAINING)
    learner.update({"c": ["new"] * 6 + ["once"], "click": [1] * 7}, "click")
    assert learner.encoder.fields[0].vocabulary.names.to_pylist() == ["a", "b", "new"]
    assert learner.encoder.n_rows == 107


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"c": ["a"], "click": [2]}, "a logistic target must lie between 0 and 1"),
        ({"c": ["a"]}, "no column 'click'"),
        ({"click": [1]}, "no column 'c'"),
        ({"c": ["a", "b"], "click": [1, 1], "w": [1.0, -1.0]}, "weights in column 'w' must be"),
    ],
)
def test_bad_updates_change_nothing(table, message):
    fitted = sf.fit_model({"c": ["a", "b"] * 50, "click": [0, 1] * 50}, "click", training=TRAINING)
    learner = sf.Learner(fitted, TRAINING)
    with pytest.raises(ValueError, match=message):
        learner.update(table, "click", sample_weight="w" if "w" in table else None)
    np.testing.assert_array_equal(learner.fitted().params["factors"], fitted.params["factors"])
    assert learner.encoder is fitted.encoder
