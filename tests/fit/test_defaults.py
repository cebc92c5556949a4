"""Defaults mean what they say: a number that equals the default is the same fit, and more epochs are no worse."""

import numpy as np
import pytest

import splinefm as sf
from splinefm.train.settings import L2, SMOOTHNESS
from tests.search.test_found_crosses import holidays

TRAINING = {"epochs": 3, "threads": 1, "effort": "fast", "refit_on_all": False}


def product(n, seed=0, noise=0.2):
    rng = np.random.default_rng(seed)
    a, b = rng.random(n), rng.random(n)
    return {"a": a, "b": b, "y": np.sin(6 * a * b) + noise * rng.normal(size=n)}


def fit(table, schema=None, model=None, **settings):
    training = sf.Training(**{**TRAINING, **settings})
    return sf.fit_model(table, "y", loss="squared", schema=schema, model=model or sf.FwFM(k=2), training=training)


def same(first, second):
    return all(np.array_equal(first.params[name], second.params[name]) for name in first.params)


@pytest.fixture(scope="module")
def table():
    return product(3_000)


@pytest.fixture(scope="module")
def crossed():
    return sf.Schema([sf.Numerical("a"), sf.Numerical("b"), sf.Cross("a", "b")])


@pytest.mark.parametrize("given", [{"smoothness": SMOOTHNESS}, {"l2": L2}, {"patience": 4}])
def test_a_number_that_equals_the_default_is_the_same_fit(table, crossed, given):
    default, same_number = fit(table, crossed), fit(table, crossed, **given)
    assert same(default, same_number)
    assert default.training.smoothness == same_number.training.smoothness


@pytest.mark.parametrize("given", [{"smoothness": SMOOTHNESS}, {"l2": L2}])
@pytest.mark.parametrize("kind", ["days", "recurring"])
def test_a_search_keeps_penalties_that_are_given(kind, given):
    """Crosses of recurring values have an L2 penalty of their own."""
    table = holidays() if kind == "days" else recurring(4000)
    fitted = fit(table, epochs=8, effort="default", members=1, **given)
    crosses = fitted.encoder.schema.crosses
    assert crosses and fitted.search
    ((name, value),) = given.items()
    used = getattr(fitted.training, name)
    own = {} if isinstance(used, float) else dict(used)
    columns = {own.get(column, used) for column in fitted.encoder.schema.columns}
    assert columns == {value} and {getattr(entry, name) for entry in fitted.search} == {value}


def recurring(n, seed=0):
    """Exact pairs of numbers that come again, and have effects of their own, which single numbers do not have."""
    rng = np.random.default_rng(seed)
    places = rng.choice(rng.random(12).round(3), (200, 2))
    effect, of_row = rng.normal(size=200), rng.integers(0, 200, n)
    a, b = places[of_row].T
    return {"a": a, "b": b, "c": rng.random(n), "y": effect[of_row] + 0.3 * rng.normal(size=n)}


def test_a_cross_of_two_numbers_is_smoothed_only_if_it_is_named(table, crossed):
    plain, named = (
        fit(table, crossed, epochs=1, smoothness=value).training.smoothness for value in (0.5, {"a × b": 0.25})
    )
    assert dict(plain) == {"a": 0.5, "b": 0.5, "a × b": 0.0}
    assert dict(named) == {"a": SMOOTHNESS, "b": SMOOTHNESS, "a × b": 0.25}


def test_sixty_epochs_are_no_worse_than_twenty():
    """With the patience of 20 epochs, the fit ends while the learning rate is high."""
    rng = np.random.default_rng(0)
    x = rng.random((1000, 4))
    y = np.sin(6 * x[:, 0] * x[:, 1]) + x[:, 2] + 0.02 * rng.normal(size=1000)
    table = {**{f"x{i}": x[:, i] for i in range(4)}, "y": y}

    def best(**settings):
        fitted = fit(table, model=sf.FwFM(k=16, third=16), crosses=None, **settings)
        return min(epoch.validation_loss for epoch in fitted.history)

    few, many, impatient = best(epochs=20), best(epochs=60), best(epochs=60, patience=4)
    assert many < 0.7 * few < 0.7 * impatient


@pytest.mark.parametrize("wrong", [0, -1, 2.5, "never"])
def test_patience_is_a_number_of_epochs_none_or_auto(wrong):
    with pytest.raises(ValueError, match="patience must be"):
        sf.Training(patience=wrong)
