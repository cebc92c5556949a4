"""Losses against scikit-learn and the identities that define them."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import huber
from sklearn.metrics import (
    log_loss,
    mean_gamma_deviance,
    mean_pinball_loss,
    mean_poisson_deviance,
    mean_squared_error,
    mean_tweedie_deviance,
)

import splinefm as sf
from splinefm import _core
from splinefm.fit.evaluation import measure
from splinefm.train.losses import FORMULAS, as_loss, weighted_quantile
from splinefm.train.losses import LOSSES as ALL
from splinefm.train.target_summary import TargetSummary
from support import examples

LOSSES = [name for name in ALL if name != "softmax"]  # which has a score per class: see test_classes.py
names = st.sampled_from(LOSSES)
# Not so large that exp(score) hides the target.
scores = st.floats(-8, 8)
weights = st.floats(0.125, 4)
few = examples(50)


def targets(name):
    """Targets that a loss allows."""
    positive = {"logistic": st.floats(0, 1), "poisson": st.floats(0, 5), "gamma": st.floats(0.0625, 5)}
    return {**positive, "tweedie": st.one_of(st.just(0.0), st.floats(0.0625, 5))}.get(name, st.floats(-5, 5))


def parameters(name):
    """Settings that a loss has."""
    own = {"quantile": st.floats(0.05, 0.95), "tweedie": st.floats(1.05, 1.95), "huber": st.floats(0.25, 4)}
    called = {"quantile": "quantile", "tweedie": "power", "huber": "delta"}
    return st.fixed_dictionaries({called[name]: own[name]} if name in own else {})


@st.composite
def problems(draw, among=LOSSES):
    """A loss, and a target, score and sample weight per row."""
    name = draw(st.sampled_from(among))
    rows = draw(st.lists(st.tuples(targets(name), scores, weights), min_size=1, max_size=12))
    return sf.Loss(name, **draw(parameters(name))), *(np.array(column) for column in zip(*rows, strict=True))


def test_logistic_loss_is_the_log_loss_of_its_prediction():
    rng = np.random.default_rng(0)
    y, score, weight = rng.integers(0, 2, 50), rng.normal(0, 3, 50), rng.random(50)
    loss = sf.Loss("logistic")
    for w in (None, weight):
        ours = np.average(loss.value(y.astype(float), score), weights=w)
        np.testing.assert_allclose(ours, log_loss(y, loss.predict(score), sample_weight=w), rtol=1e-12)


def test_squared_loss_is_half_the_squared_error():
    rng = np.random.default_rng(0)
    y, score, weight = rng.normal(size=50), rng.normal(size=50), rng.random(50)
    for w in (None, weight):
        ours = np.average(sf.Loss("squared").value(y, score), weights=w)
        np.testing.assert_allclose(2 * ours, mean_squared_error(y, score, sample_weight=w), rtol=1e-12)


def test_poisson_loss_differs_from_half_the_deviance_by_what_the_score_does_not_change():
    rng = np.random.default_rng(0)
    y, score, weight = rng.integers(1, 6, 50).astype(float), rng.normal(size=50), rng.random(50)
    loss = sf.Loss("poisson")
    for w in (None, weight):
        above_best = np.average(loss.value(y, score) - loss.value(y, np.log(y)), weights=w)
        deviance = mean_poisson_deviance(y, loss.predict(score), sample_weight=w)
        np.testing.assert_allclose(2 * above_best, deviance, rtol=1e-10)


def rows_of(name):
    """Positive targets, scores and sample weights."""
    rng = np.random.default_rng(0)
    zeros = rng.random(50) < 0.3 if name == "tweedie" else np.zeros(50, bool)
    return rng.lognormal(0, 1, 50) * ~zeros, rng.normal(size=50), rng.random(50)


@pytest.mark.parametrize("scale", [1.0, 300.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_metrics_of_the_losses_are_those_of_scikit_learn(scale, weighted):
    oracles = {
        sf.Loss("gamma"): mean_gamma_deviance,
        sf.Loss("tweedie"): lambda y, p, sample_weight: mean_tweedie_deviance(
            y, p, sample_weight=sample_weight, power=1.5
        ),
        sf.Loss("tweedie", power=1.2): lambda y, p, sample_weight: mean_tweedie_deviance(
            y, p, sample_weight=sample_weight, power=1.2
        ),
        sf.Loss("quantile", quantile=0.9): lambda y, p, sample_weight: mean_pinball_loss(
            y, p, sample_weight=sample_weight, alpha=0.9
        ),
        sf.Loss("huber", delta=0.7): lambda y, p, sample_weight: np.average(huber(0.7, y - p), weights=sample_weight),
    }
    for loss, oracle in oracles.items():
        y, score, weight = rows_of(loss.name)
        w = weight if weighted else None
        loss = replace(loss, scale=scale, center=0.0 if loss.link == "log" else 2.0)
        ours = loss.metric(float(np.average(loss.value(loss.standardize(y), score), weights=w)))
        np.testing.assert_allclose(ours, oracle(y, loss.predict(score), sample_weight=w), rtol=1e-9, err_msg=str(loss))


@pytest.mark.parametrize("name", ["gamma", "tweedie", "quantile", "huber", "squared"])
def test_perfect_predictions_have_no_loss(name):
    y = np.array([0.5, 1.0, 3.0])
    score = np.log(y) if sf.Loss(name).link == "log" else y
    np.testing.assert_allclose(sf.Loss(name).value(y, score), 0.0, atol=1e-12)
    np.testing.assert_allclose(sf.Loss(name).slope(y, score), 0.0, atol=1e-12)
    assert not sf.Loss(name).has_floor


@few
@given(problems())
def test_the_slope_is_the_derivative_of_the_value(problem):
    loss, y, score, _ = problem
    h = 1e-5
    assume(loss.name != "quantile" or (np.abs(y - score) > 2 * h).all())  # there is no derivative at the kink
    numerical = (loss.value(y, score + h) - loss.value(y, score - h)) / (2 * h)
    # A difference of large values has few digits.
    digits = 1e-10 * np.abs(loss.value(y, score)).max()
    np.testing.assert_allclose(loss.slope(y, score), numerical, rtol=1e-5, atol=1e-5 + digits)


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
    prediction = sf.Loss(name).predict(score)
    assert prediction.shape == score.shape and np.isfinite(prediction).all()
    assert (np.diff(prediction) >= 0).all()
    if name == "logistic":
        assert ((prediction >= 0) & (prediction <= 1)).all()
        np.testing.assert_allclose(prediction + sf.Loss(name).predict(-score), 1.0, rtol=1e-15)
    elif sf.Loss(name).link == "log":
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
    cut = 2e-6 if loss.name != "tweedie" else 1e-6 ** (2 - loss.power) / (2 - loss.power)
    assert mean(loss.start(y, weight)) <= mean(other) + cut + 1e-9


@few
@given(problems([name for name in LOSSES if sf.Loss(name).predicts_mean]))
def test_the_start_predicts_the_weighted_mean(problem):
    loss, y, _, weight = problem
    prediction = loss.predict(np.array([loss.start(y, weight)]))
    np.testing.assert_allclose(prediction, np.average(y, weights=weight), rtol=1e-9, atol=1.1e-6)


@few
@given(problems())
def test_a_fitted_squared_loss_is_in_units_of_the_spread(problem):
    _, y, score, weight = problem
    assume(not 0.0 < np.abs(y).max() < 1e-100)  # which is refused
    loss = sf.Loss("squared").fit(y, weight)
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
    first, other = sf.Loss("squared").fit(y, weight), sf.Loss("squared").fit(factor * y + shift, weight)
    np.testing.assert_allclose(other.standardize(factor * y + shift), first.standardize(y), atol=1e-8)


def test_the_compiled_loops_and_the_formulas_have_the_same_losses_and_parameters():
    assert tuple(_core.losses) == ALL == tuple(FORMULAS)
    for name, (low, high) in _core.losses.items():
        assert (FORMULAS[name].named is not None) == (low < high), name


@pytest.mark.parametrize("name", LOSSES)
def test_a_fit_to_one_value_changes_no_scale(name):
    y = np.ones(4)
    loss = sf.Loss(name).fit(y, np.ones(4))
    assert loss.scale == 1.0
    np.testing.assert_array_equal(loss.standardize(y), 0.0 if loss.link == "identity" else 1.0)


def test_a_fit_to_one_value_whose_mean_is_rounded_changes_no_scale():
    assert sf.Loss("squared").fit(np.full(3, 0.1), np.ones(3)).scale == 1.0


@pytest.mark.parametrize("name", LOSSES)
def test_a_fit_checks_the_target(name):
    with pytest.raises(ValueError, match="missing or infinite"):
        sf.Loss(name).fit(np.array([0.5, np.nan]), np.ones(2))


@pytest.mark.parametrize(
    ("name", "y", "prediction"),
    [("logistic", 0.0, 1e-6), ("logistic", 1.0, 1 - 1e-6), ("poisson", 0.0, 1e-6), ("squared", 0.0, 0.0)],
)
def test_targets_that_are_all_the_same_have_a_finite_start(name, y, prediction):
    start = sf.Loss(name).start(np.full(4, y), np.ones(4))
    np.testing.assert_allclose(sf.Loss(name).predict(np.array([start])), prediction, rtol=1e-9)


@few
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), scores), min_size=1, max_size=12))
def test_a_share_with_a_weight_equals_expanded_rows(rows):
    rows = [(clicks, others, score) for clicks, others, score in rows if clicks + others] or [(1, 1, 0.0)]
    clicks, others, score = (np.array(column, float) for column in zip(*rows, strict=True))
    shown = clicks + others
    y = np.concatenate([np.repeat([1.0, 0.0], [c, o]) for c, o, _ in rows])
    expanded = np.repeat(score, shown.astype(int))
    loss = sf.Loss("logistic")
    for function in (loss.value, loss.slope):
        np.testing.assert_allclose(
            (shown * function(clicks / shown, score)).sum(), function(y, expanded).sum(), rtol=1e-9, atol=1e-9
        )
    np.testing.assert_allclose(loss.start(clicks / shown, shown), loss.start(y, np.ones(len(y))), atol=1e-9)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("score", [-1000.0, 1000.0])
def test_extreme_scores_neither_overflow_nor_warn(name, score):
    y = np.array([0.0 if name != "gamma" else 0.1, 0.5, 1.0])
    for function in (sf.Loss(name).value, sf.Loss(name).slope):
        assert np.isfinite(function(y, np.full(3, score))).all()


def test_the_logistic_loss_keeps_its_digits_at_extreme_scores():
    loss, one, zero = sf.Loss("logistic"), np.array([1.0]), np.array([0.0])
    np.testing.assert_array_equal(loss.value(zero, np.array([1000.0])), 1000.0)
    np.testing.assert_array_equal(loss.value(one, np.array([-1000.0])), 1000.0)
    np.testing.assert_array_equal(loss.value(one, np.array([1000.0])), 0.0)
    np.testing.assert_allclose(loss.predict(np.array([-700.0])), np.exp(-700.0), rtol=1e-12)
    np.testing.assert_allclose(loss.value(zero, np.array([-40.0])), np.exp(-40.0), rtol=1e-12)


@pytest.mark.parametrize("name", ["hinge", "", None, "Logistic"])
def test_an_unknown_loss_is_named_with_those_that_exist(name):
    with pytest.raises(ValueError, match="logistic, squared, poisson, gamma, tweedie, quantile, huber, softmax"):
        sf.Loss(name)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_targets_must_be_finite(name, bad):
    with pytest.raises(ValueError, match="missing or infinite"):
        sf.Loss(name).check(np.array([0.0, bad]))


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        *(("logistic", -0.5), ("logistic", 1.5), ("logistic", 2.0), ("poisson", -0.5), ("poisson", -1e-9)),
        *(("gamma", 0.0), ("gamma", -2.0), ("tweedie", -0.5)),
    ],
)
def test_targets_out_of_range_are_named(name, bad):
    with pytest.raises(ValueError, match=f"got {bad:g}"):
        sf.Loss(name).check(np.array([0.5, 1.0, bad]))


@few
@given(problems())
def test_targets_in_range_are_accepted(problem):
    loss, y, _, _ = problem
    loss.check(y)


@pytest.mark.parametrize("name", LOSSES)
def test_lengths_that_differ_are_refused(name):
    loss = sf.Loss(name)
    for function in (loss.value, loss.slope):
        with pytest.raises(ValueError, match="broadcast"):
            function(np.ones(3), np.zeros(4))
    with pytest.raises((ValueError, TypeError)):
        loss.start(np.ones(3), np.ones(4))


@pytest.mark.parametrize("name", LOSSES)
def test_a_start_without_rows_is_refused(name):
    with pytest.raises(ZeroDivisionError, match="sum to zero"):
        sf.Loss(name).start(np.zeros(0), np.zeros(0))


# The losses with a parameter


@pytest.mark.parametrize(
    ("name", "setting", "values"),
    [
        ("quantile", "quantile", (0, 1, -0.5, 90, np.nan, "0.9", True)),
        ("tweedie", "power", (1, 2, 0, 3, np.inf)),
        ("huber", "delta", (0, -1.0, np.inf, np.nan)),
    ],
)
def test_parameters_out_of_range_are_named(name, setting, values):
    for value in values:
        with pytest.raises(ValueError, match=f"{setting} must .*, got"):
            sf.Loss(name, **{setting: value})


@pytest.mark.parametrize("name", LOSSES)
def test_a_parameter_belongs_to_one_loss(name):
    for setting, owner in (("quantile", "quantile"), ("power", "tweedie"), ("delta", "huber")):
        if name != owner:
            with pytest.raises(
                ValueError, match=f"{setting} belongs to the {owner} loss, got 1.25 with the {name} loss"
            ):
                sf.Loss(name, **{setting: 1.25})


def test_a_loss_by_name_or_as_an_object():
    given = sf.Loss("quantile", quantile=0.9)
    assert as_loss(given) is given and as_loss("quantile", quantile=0.9, delta=None) == given
    assert sf.Loss("quantile").quantile == 0.5 and sf.Loss("tweedie").power == 1.5 and sf.Loss("huber").delta is None
    with pytest.raises(ValueError, match=r"quantile=0\.5 conflicts with Loss\("):
        as_loss(given, quantile=0.5)
    with pytest.raises(ValueError, match="loss must be one of"):
        as_loss("mse")


@few
@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(0, 4)), min_size=1, max_size=20), st.floats(0.01, 0.99))
def test_a_weighted_quantile_is_that_of_repeated_rows(rows, level):
    y, count = (np.array(column) for column in zip(*rows, strict=True))
    assume(count.any())
    found = weighted_quantile(y.astype(float), count.astype(float), level)
    assert found == np.quantile(np.repeat(y, count), level, method="inverted_cdf")


@few
@given(problems(["quantile"]))
def test_the_start_of_a_quantile_leaves_its_share_below(problem):
    loss, y, _, weight = problem
    constant = loss.predict(np.array([loss.start(y, weight)]))[0]
    share = weight / weight.sum()
    assert share[y <= constant].sum() >= loss.quantile - 1e-9 and share[y < constant].sum() <= loss.quantile + 1e-9


@pytest.mark.parametrize("name", ["gamma", "tweedie", "quantile", "huber"])
def test_a_fitted_loss_does_not_see_the_unit(name):
    y, _, weight = rows_of(name)
    first, other = sf.Loss(name).fit(y, weight), sf.Loss(name).fit(1024.0 * y, weight)
    np.testing.assert_array_equal(other.standardize(1024.0 * y), first.standardize(y))
    assert other.parameter == first.parameter
    np.testing.assert_allclose(other.predict(first.standardize(y)), 1024.0 * first.predict(first.standardize(y)))


def test_a_fitted_huber_loss_has_a_threshold_that_outliers_do_not_move():
    rng = np.random.default_rng(0)
    y = rng.normal(5.0, 2.0, 4001)
    dirty = np.where(np.arange(4001) % 20 == 0, 1e9, y)
    clean, moved = (sf.Loss("huber").fit(values, np.ones(4001)) for values in (y, dirty))
    assert clean.delta == pytest.approx(1.345 * 2.0, rel=0.05) and moved.delta == pytest.approx(clean.delta, rel=0.1)
    assert moved.center == pytest.approx(clean.center, abs=0.2)
    assert sf.Loss("huber", delta=3.0).fit(y, np.ones(4001)).delta == 3.0  # in the unit of the target
    assert clean.fit(y, np.ones(4001)) == clean


def test_a_robust_scale_of_mostly_equal_targets_is_not_zero():
    loss = sf.Loss("huber").fit(np.array([0.0] * 9 + [10.0]), np.ones(10))
    assert loss.center == 0.0 and loss.scale == pytest.approx(1.0)


@pytest.mark.parametrize("level", [0.1, 0.5, 0.9, 0.98])
def test_the_noise_of_a_quantile_is_variance_over_curvature(level):
    normal, sigma = NormalDist(), 0.3
    residual = sigma * np.array([normal.inv_cdf(p) for p in (np.arange(20_000) + 0.5) / 20_000])
    loss = sf.Loss("quantile", quantile=level)
    excess = loss.value(residual, np.full(20_000, sigma * normal.inv_cdf(level))).mean()
    density = normal.pdf(normal.inv_cdf(level)) / sigma
    assert loss.dispersion(float(excess)) == pytest.approx(level * (1 - level) / density, rel=1e-3)


def test_outliers_do_not_raise_the_noise_of_the_huber_loss_beyond_that_of_the_targets():
    loss = sf.Loss("huber")
    assert loss.dispersion(0.01) == pytest.approx(0.02) and loss.dispersion(50.0) == 1.0


def test_what_is_compared_for_calibration():
    y, p = np.array([1.0, 3.0, np.nan]), np.array([2.0, 2.0, 2.0])
    expected, measured = sf.Loss("quantile", quantile=0.75).compared(y, p)
    np.testing.assert_array_equal(expected, 0.75)
    np.testing.assert_array_equal(measured, [1.0, 0.0, np.nan])
    assert sf.Loss("gamma").compared(y, p)[0] is p


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "logistic"])
def test_targets_whose_squares_overflow_or_vanish_are_refused(name):
    with pytest.raises(ValueError, match=r"the target 'y' must lie between -1e\+100 and 1e\+100, got 2e\+150; divide"):
        sf.Loss(name).check(np.array([1.0, 2e150]), "y")
    summary = TargetSummary(sf.Loss(name))
    summary.add(np.array([1e-300, 3e-300]), np.ones(2))
    with pytest.raises(ValueError, match=r"all targets are below 1e-100, such as .*; multiply them by a constant"):
        summary.fit_loss()
    summary = TargetSummary(sf.Loss(name))
    summary.add(np.array([1e-90, 3e-90]), np.ones(2))
    assert np.isfinite(summary.fit_loss()[1])


def test_a_huber_loss_without_a_threshold_is_reported():
    (first, *_) = measure(sf.Loss("huber", scale=2.0), np.ones(3), np.zeros(3), np.ones(3))
    assert "delta 2.69" in first.meaning


class TestTargetSummary:
    def summary(self, loss, y, weight, parts=7):
        summary = TargetSummary(loss)
        for rows in np.array_split(np.arange(len(y)), parts):
            summary.add(y[rows], weight[rows])
        return summary.fit_loss()

    @few
    @given(problems(), st.integers(1, 4))
    def test_parts_give_what_the_whole_gives(self, problem, parts):
        loss, y, _, weight = problem
        assume(not 0.0 < np.abs(y).max() < 1e-90)  # targets that are all below 1e-100 are refused
        whole = loss.fit(y, weight)
        found, start = self.summary(loss, y, weight, parts)
        np.testing.assert_allclose([found.center, found.scale], [whole.center, whole.scale], rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(start, whole.start(whole.standardize(y), weight), rtol=1e-6, atol=1e-5)

    def test_a_large_table_is_sampled(self, monkeypatch):
        monkeypatch.setattr("splinefm.train.target_summary._MAX_TARGETS", 2000)
        rng = np.random.default_rng(0)
        hour = np.arange(24_000) % 24  # a period must not hide some of the values
        y = hour + rng.normal(size=24_000)
        loss = sf.Loss("quantile", quantile=0.9)
        found, start = self.summary(loss, y, np.ones(24_000))
        assert start == 0.0 and np.mean(y <= found.center) == pytest.approx(0.9, abs=0.02)
        for rows in (np.arange(24_000.0), -np.arange(24_000.0)):  # sorted: each part of the table counts the same
            center = self.summary(loss, rows, np.ones(24_000), 50)[0].center
            assert np.mean(rows <= center) == pytest.approx(0.9, abs=0.005)

    def test_weights_that_are_all_zero_are_refused(self):
        for name in LOSSES:
            with pytest.raises(ValueError, match="all sample weights are 0"):
                self.summary(sf.Loss(name), np.ones(3), np.zeros(3))
