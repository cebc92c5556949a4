"""Losses against scikit-learn and the identities that define them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import log_loss, mean_poisson_deviance, mean_squared_error

from splinefm.learn.losses import LOSSES, Loss
from support import examples

names = st.sampled_from(LOSSES)
# Not so large that exp(score) hides the target.
scores = st.floats(-8, 8)
weights = st.floats(0.125, 4)
few = examples(50)


def targets(name):
    """Targets that a loss allows."""
    return {"logistic": st.floats(0, 1), "squared": st.floats(-5, 5), "poisson": st.floats(0, 5)}[name]


@st.composite
def problems(draw):
    """A loss, and a target, score and sample weight per row."""
    name = draw(names)
    rows = draw(st.lists(st.tuples(targets(name), scores, weights), min_size=1, max_size=12))
    return Loss(name), *(np.array(column) for column in zip(*rows, strict=True))


def test_logistic_loss_is_the_log_loss_of_its_prediction():
    rng = np.random.default_rng(0)
    y, score, weight = rng.integers(0, 2, 50), rng.normal(0, 3, 50), rng.random(50)
    loss = Loss("logistic")
    for w in (None, weight):
        ours = np.average(loss.value(y.astype(float), score), weights=w)
        np.testing.assert_allclose(ours, log_loss(y, loss.predict(score), sample_weight=w), rtol=1e-12)


def test_squared_loss_is_half_the_squared_error():
    rng = np.random.default_rng(0)
    y, score, weight = rng.normal(size=50), rng.normal(size=50), rng.random(50)
    for w in (None, weight):
        ours = np.average(Loss("squared").value(y, score), weights=w)
        np.testing.assert_allclose(2 * ours, mean_squared_error(y, score, sample_weight=w), rtol=1e-12)


def test_poisson_loss_differs_from_half_the_deviance_by_what_the_score_does_not_change():
    rng = np.random.default_rng(0)
    y, score, weight = rng.integers(1, 6, 50).astype(float), rng.normal(size=50), rng.random(50)
    loss = Loss("poisson")
    for w in (None, weight):
        above_best = np.average(loss.value(y, score) - loss.value(y, np.log(y)), weights=w)
        deviance = mean_poisson_deviance(y, loss.predict(score), sample_weight=w)
        np.testing.assert_allclose(2 * above_best, deviance, rtol=1e-10)


@few
@given(problems())
def test_the_slope_is_the_derivative_of_the_value(problem):
    loss, y, score, _ = problem
    h = 1e-5
    numerical = (loss.value(y, score + h) - loss.value(y, score - h)) / (2 * h)
    np.testing.assert_allclose(loss.slope(y, score), numerical, rtol=1e-6, atol=1e-6)


@few
@given(problems())
def test_losses_are_convex_in_the_score(problem):
    loss, y, score, _ = problem
    middle = loss.value(y, score + 0.5)
    ends = (loss.value(y, score) + loss.value(y, score + 1)) / 2
    assert (ends >= middle - 1e-9 * np.abs(middle) - 1e-12).all()


@few
@given(names, st.lists(st.floats(-1000, 1000), min_size=2, max_size=20))
def test_predictions_are_in_range_and_do_not_fall(name, values):
    score = np.sort(np.array(values))
    prediction = Loss(name).predict(score)
    assert prediction.shape == score.shape and np.isfinite(prediction).all()
    assert (np.diff(prediction) >= 0).all()
    if name == "logistic":
        assert ((prediction >= 0) & (prediction <= 1)).all()
        np.testing.assert_allclose(prediction + Loss(name).predict(-score), 1.0, rtol=1e-15)
    elif name == "poisson":
        assert (prediction >= 0).all()
    else:
        np.testing.assert_array_equal(prediction, score)


@few
@given(problems(), st.floats(-4, 4))
def test_no_constant_is_better_than_the_start(problem, other):
    loss, y, _, weight = problem

    def mean(score):
        return np.average(loss.value(y, np.full(len(y), score)), weights=weight)

    # Targets that are all 0 or all 1 have their best constant at infinity; it is cut at a probability or rate of 1e-6.
    assert mean(loss.start(y, weight)) <= mean(other) + 2e-6


@few
@given(problems())
def test_the_start_predicts_the_weighted_mean(problem):
    loss, y, _, weight = problem
    prediction = loss.predict(np.array([loss.start(y, weight)]))
    np.testing.assert_allclose(prediction, np.average(y, weights=weight), rtol=1e-9, atol=1.1e-6)


@few
@given(problems())
def test_a_fitted_squared_loss_is_in_units_of_the_spread(problem):
    _, y, score, weight = problem
    loss = Loss("squared").fit(y, weight)
    t = loss.standardize(y)
    np.testing.assert_allclose(np.average(t, weights=weight), 0.0, atol=1e-6 / loss.scale)
    if np.ptp(y) > 1e-3:
        np.testing.assert_allclose(np.average(t**2, weights=weight), 1.0, rtol=1e-6)
    np.testing.assert_allclose(loss.predict(t), y, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(loss.predict(np.zeros(1)), np.average(y, weights=weight), rtol=1e-12, atol=1e-12)
    in_units = loss.scale**2 * loss.value(t, score)
    np.testing.assert_allclose(in_units, 0.5 * (loss.predict(score) - y) ** 2, rtol=1e-6, atol=1e-6)


@few
@given(problems(), st.sampled_from([1e-3, 1024.0]), st.integers(-8, 8))
def test_a_fitted_squared_loss_does_not_see_the_unit(problem, factor, shift):
    _, _, score, weight = problem
    y = np.append(np.round(score), [0.0, 1.0])
    weight = np.append(weight, [1.0, 1.0])
    first, other = Loss("squared").fit(y, weight), Loss("squared").fit(factor * y + shift, weight)
    np.testing.assert_allclose(other.standardize(factor * y + shift), first.standardize(y), atol=1e-8)


@pytest.mark.parametrize("name", LOSSES)
def test_a_fit_to_one_value_changes_no_scale(name):
    y = np.ones(4)
    loss = Loss(name).fit(y, np.ones(4))
    assert loss.scale == 1.0
    np.testing.assert_array_equal(loss.standardize(y), 0.0 if name == "squared" else 1.0)


def test_a_fit_to_one_value_whose_mean_is_rounded_changes_no_scale():
    assert Loss("squared").fit(np.full(3, 0.1), np.ones(3)).scale == 1.0


@pytest.mark.parametrize("name", LOSSES)
def test_a_fit_checks_the_target(name):
    with pytest.raises(ValueError, match="missing or infinite"):
        Loss(name).fit(np.array([0.5, np.nan]), np.ones(2))


@pytest.mark.parametrize(
    ("name", "y", "prediction"),
    [("logistic", 0.0, 1e-6), ("logistic", 1.0, 1 - 1e-6), ("poisson", 0.0, 1e-6), ("squared", 0.0, 0.0)],
)
def test_targets_that_are_all_the_same_have_a_finite_start(name, y, prediction):
    start = Loss(name).start(np.full(4, y), np.ones(4))
    np.testing.assert_allclose(Loss(name).predict(np.array([start])), prediction, rtol=1e-9)


@few
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), scores), min_size=1, max_size=12))
def test_a_share_with_a_weight_equals_expanded_rows(rows):
    rows = [(clicks, others, score) for clicks, others, score in rows if clicks + others] or [(1, 1, 0.0)]
    clicks, others, score = (np.array(column, float) for column in zip(*rows, strict=True))
    shown = clicks + others
    y = np.concatenate([np.repeat([1.0, 0.0], [c, o]) for c, o, _ in rows])
    expanded = np.repeat(score, shown.astype(int))
    loss = Loss("logistic")
    for function in (loss.value, loss.slope):
        np.testing.assert_allclose(
            (shown * function(clicks / shown, score)).sum(), function(y, expanded).sum(), rtol=1e-9, atol=1e-9
        )
    np.testing.assert_allclose(loss.start(clicks / shown, shown), loss.start(y, np.ones(len(y))), atol=1e-9)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("score", [-1000.0, 1000.0])
def test_extreme_scores_neither_overflow_nor_warn(name, score):
    y = np.array([0.0, 0.5, 1.0])
    for function in (Loss(name).value, Loss(name).slope):
        assert np.isfinite(function(y, np.full(3, score))).all()


def test_the_logistic_loss_keeps_its_digits_at_extreme_scores():
    loss, one, zero = Loss("logistic"), np.array([1.0]), np.array([0.0])
    np.testing.assert_array_equal(loss.value(zero, np.array([1000.0])), 1000.0)
    np.testing.assert_array_equal(loss.value(one, np.array([-1000.0])), 1000.0)
    np.testing.assert_array_equal(loss.value(one, np.array([1000.0])), 0.0)
    np.testing.assert_allclose(loss.predict(np.array([-700.0])), np.exp(-700.0), rtol=1e-12)
    np.testing.assert_allclose(loss.value(zero, np.array([-40.0])), np.exp(-40.0), rtol=1e-12)


@pytest.mark.parametrize("name", ["hinge", "", None, "Logistic"])
def test_an_unknown_loss_is_named_with_those_that_exist(name):
    with pytest.raises(ValueError, match="logistic, squared, poisson"):
        Loss(name)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_targets_must_be_finite(name, bad):
    with pytest.raises(ValueError, match="missing or infinite"):
        Loss(name).check(np.array([0.0, bad]))


@pytest.mark.parametrize(
    ("name", "bad"), [("logistic", -0.5), ("logistic", 1.5), ("logistic", 2.0), ("poisson", -0.5), ("poisson", -1e-9)]
)
def test_targets_out_of_range_are_named(name, bad):
    with pytest.raises(ValueError, match=f"got {bad:g}"):
        Loss(name).check(np.array([0.0, 1.0, bad]))


@few
@given(problems())
def test_targets_in_range_are_accepted(problem):
    loss, y, _, _ = problem
    loss.check(y)


@pytest.mark.parametrize("name", LOSSES)
def test_lengths_that_differ_are_refused(name):
    loss = Loss(name)
    for function in (loss.value, loss.slope):
        with pytest.raises(ValueError, match="broadcast"):
            function(np.zeros(3), np.zeros(4))
    with pytest.raises((ValueError, TypeError)):
        loss.start(np.zeros(3), np.ones(4))


@pytest.mark.parametrize("name", LOSSES)
def test_a_start_without_rows_is_refused(name):
    with pytest.raises(ZeroDivisionError, match="sum to zero"):
        Loss(name).start(np.zeros(0), np.zeros(0))
