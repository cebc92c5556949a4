"""Metrics against scikit-learn and the identities that define them."""

from datetime import datetime

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.special import huber
from sklearn.metrics import (
    log_loss,
    mean_absolute_error,
    mean_gamma_deviance,
    mean_pinball_loss,
    mean_squared_error,
    mean_tweedie_deviance,
    r2_score,
    roc_auc_score,
)

from splinefm.metrics import (
    GroupCalibration,
    auc,
    calibration_by,
    calibration_error,
    class_auc,
    coverage,
    gamma_deviance,
    huber_loss,
    logloss,
    mae,
    normalized_entropy,
    pinball_loss,
    r2,
    rmse,
    tweedie_deviance,
)
from support import examples

ALL = [logloss, normalized_entropy, auc, rmse, mae, r2, calibration_error]
# Multiples of 1/64 tie often, and their sums are exact.
few = examples(30)  # there are many tests, and scikit-learn checks its arguments at length
grid = st.integers(0, 64).map(lambda value: value / 64)


@st.composite
def rated(draw, binary=True):
    """Targets, predictions and weights."""
    target = st.integers(0, 1).map(float) if binary else st.integers(-640, 640).map(lambda value: value / 64)
    prediction = grid if binary else st.integers(-640, 640).map(lambda value: value / 64)
    row = st.tuples(target, prediction, st.integers(1, 32).map(lambda value: value / 8))
    rows = draw(st.lists(row, min_size=2, max_size=20))
    return tuple(np.array(column) for column in zip(*rows, strict=True))


@few
@given(rated(), st.booleans())
def test_logloss_agrees_with_sklearn(problem, weighted):
    y, p, w = problem
    w = w if weighted else None
    inside = np.clip(p, 1e-3, 1 - 1e-3)
    np.testing.assert_allclose(
        logloss(y, inside, w), log_loss(y, inside, sample_weight=w, labels=[0, 1]), rtol=1e-9, atol=1e-12
    )


@few
@given(rated(), st.booleans())
def test_auc_agrees_with_sklearn(problem, weighted):
    y, p, w = problem
    assume(len(set(y)) == 2)
    w = w if weighted else None
    np.testing.assert_allclose(auc(y, p, w), roc_auc_score(y, p, sample_weight=w), rtol=1e-12, atol=1e-12)


@few
@given(rated(binary=False), st.booleans())
def test_errors_of_numbers_agree_with_sklearn(problem, weighted):
    y, p, w = problem
    w = w if weighted else None
    np.testing.assert_allclose(rmse(y, p, w) ** 2, mean_squared_error(y, p, sample_weight=w), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mae(y, p, w), mean_absolute_error(y, p, sample_weight=w), rtol=1e-9, atol=1e-12)
    assume(len(set(y)) > 1)
    np.testing.assert_allclose(r2(y, p, w), r2_score(y, p, sample_weight=w), rtol=1e-7, atol=1e-9)


@few
@given(rated(binary=False), st.booleans(), st.floats(0.05, 0.95))
def test_errors_of_skewed_numbers_agree_with_sklearn(problem, weighted, level):
    y, p, w = problem
    w = w if weighted else None
    close = {"rtol": 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(
        pinball_loss(y, p, w, quantile=level), mean_pinball_loss(y, p, sample_weight=w, alpha=level), **close
    )
    np.testing.assert_allclose(huber_loss(y, p, w, delta=level), np.average(huber(level, y - p), weights=w), **close)
    np.testing.assert_allclose(coverage(y, p, w), np.average(y <= p, weights=w), **close)
    y, p = np.maximum(y, 0.0), np.abs(p) + 0.25
    power = 1.0 + level
    np.testing.assert_allclose(
        tweedie_deviance(y, p, w, power=power), mean_tweedie_deviance(y, p, sample_weight=w, power=power), **close
    )
    np.testing.assert_allclose(
        gamma_deviance(y + 0.125, p, w), mean_gamma_deviance(y + 0.125, p, sample_weight=w), rtol=1e-9, atol=1e-9
    )


def test_settings_and_numbers_out_of_range_are_named():
    for call, message in (
        (lambda: gamma_deviance([0.0, 1.0], [1.0, 1.0]), "targets must be above 0, got 0"),
        (lambda: gamma_deviance([1.0, 1.0], [1.0, -2.0]), "predictions must be above 0, got -2"),
        (lambda: tweedie_deviance([-1.0], [1.0]), "targets must be at least 0, got -1"),
        (lambda: tweedie_deviance([1.0], [0.0]), "predictions must be above 0, got 0"),
        (lambda: tweedie_deviance([1.0], [1.0], power=2.0), "power must lie between 1 and 2"),
        (lambda: pinball_loss([1.0], [1.0], quantile=1.0), "quantile must lie between 0 and 1"),
        (lambda: huber_loss([1.0], [1.0], delta=0.0), "delta must be above 0"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("metric", ALL)
def test_lists_and_integers_are_taken(metric):
    y, p, w = [1, 0, 1, 0], [0.75, 0.5, 0.25, 0.25], [1, 2, 3, 4]
    arrays = (np.array(values, float) for values in (y, p, w))
    assert metric(y, p, w) == metric(*arrays)


@pytest.mark.parametrize("metric", ALL)
@few
@given(problem=rated(), factor=st.sampled_from([0.25, 2.0, 1024.0]))
def test_only_the_proportions_of_weights_matter(metric, problem, factor):
    y, p, w = problem
    assume(len(set(y)) == 2)
    np.testing.assert_allclose(metric(y, p, factor * w), metric(y, p, w), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("metric", ALL)
@few
@given(problem=rated(), seed=st.integers(0, 100))
def test_a_weight_stands_for_so_many_rows_in_any_order(metric, problem, seed):
    y, p, w = problem
    assume(len(set(y)) == 2)
    times = (8 * w).astype(int)
    order = np.random.default_rng(seed).permutation(times.sum())
    expanded = metric(np.repeat(y, times)[order], np.repeat(p, times)[order])
    np.testing.assert_allclose(metric(y, p, times), expanded, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("metric", ALL)
@few
@given(problem=rated())
def test_a_row_of_weight_zero_does_not_count(metric, problem):
    y, p, w = problem
    assume(len(set(y)) == 2)
    more = [np.append(values, extra) for values, extra in ((y, 1.0), (p, 0.125), (w, 0.0))]
    np.testing.assert_allclose(metric(*more), metric(y, p, w), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("metric", [logloss, normalized_entropy, auc, calibration_error])
@few
@given(rows=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), grid), min_size=2, max_size=12))
def test_a_share_with_a_weight_equals_expanded_rows(metric, rows):
    rows = [row for row in rows if row[0] + row[1]]
    assume(any(row[0] for row in rows) and any(row[1] for row in rows))
    clicks, others, p = (np.array(column, float) for column in zip(*rows, strict=True))
    shown = clicks + others
    y = np.concatenate([np.repeat([1.0, 0.0], [c, o]) for c, o, _ in rows])
    expanded = metric(y, np.repeat(p, shown.astype(int)))
    np.testing.assert_allclose(metric(clicks / shown, p, shown), expanded, rtol=1e-9, atol=1e-9)


@few
@given(rated())
def test_auc_depends_on_the_order_only(problem):
    y, p, w = problem
    assume(len(set(y)) == 2)
    value = auc(y, p, w)
    for monotone in (lambda x: 3 * x - 7, np.exp, lambda x: x**3, lambda x: 1000 * np.sinh(x)):
        assert auc(y, monotone(p), w) == value
    np.testing.assert_allclose(auc(y, -p, w), 1 - value, atol=1e-12)
    np.testing.assert_allclose(auc(1 - y, p, w), 1 - value, atol=1e-12)


@few
@given(rated())
def test_auc_counts_pairs_and_ties_half(problem):
    y, p, w = problem
    assume(len(set(y)) == 2)
    above = (p[:, None] > p[None, :]) + 0.5 * (p[:, None] == p[None, :])
    pairs = (w * y)[:, None] * (w * (1 - y))[None, :]
    np.testing.assert_allclose(auc(y, p, w), (above * pairs).sum() / pairs.sum(), rtol=1e-12)


def test_auc_of_constant_perfect_and_reversed_predictions():
    y = np.array([0.0, 0.0, 1.0, 1.0])
    assert auc(y, np.full(4, 0.3)) == 0.5
    assert auc(y, y) == 1.0
    assert auc(y, -y) == 0.0


@few
@given(rated())
def test_normalized_entropy_of_the_mean_is_one_and_no_constant_is_below(problem):
    y, p, w = problem
    assume(len(set(y)) == 2)
    mean = np.average(y, weights=w)
    np.testing.assert_allclose(normalized_entropy(y, np.full(len(y), mean), w), 1.0, rtol=1e-12)
    assert normalized_entropy(y, np.full(len(y), p[0]), w) >= 1.0 - 1e-12
    np.testing.assert_allclose(
        normalized_entropy(y, p, w) * logloss(y, np.full(len(y), mean), w), logloss(y, p, w), rtol=1e-12
    )


def test_logloss_of_sure_predictions_is_finite():
    assert logloss([1, 0], [1.0, 0.0]) < 1e-12
    wrong = logloss([1, 0], [0.0, 1.0])
    assert 30 < wrong < 40


@few
@given(rated(binary=False))
def test_perfect_predictions(problem):
    y, _, w = problem
    assert rmse(y, y, w) == mae(y, y, w) == 0.0
    assume(len(set(y)) > 1)
    assert r2(y, y, w) == 1.0
    np.testing.assert_allclose(r2(y, np.full(len(y), np.average(y, weights=w)), w), 0.0, atol=1e-9)


@few
@given(rated(binary=False))
def test_mae_does_not_exceed_rmse(problem):
    assert mae(*problem) <= rmse(*problem) * (1 + 1e-12)


@few
@given(rated(), st.floats(0.125, 8))
def test_calibration_of_perfect_predictions_is_zero_and_follows_a_factor(problem, factor):
    y, _, w = problem
    assume(y.any())
    assert calibration_error(y, y, w) == 0.0
    np.testing.assert_allclose(calibration_error(y, factor * y, w), factor - 1, rtol=1e-9, atol=1e-12)


@few
@given(rated(), st.integers(1, 5))
def test_groups_merge_to_the_whole(problem, n_groups):
    y, p, w = problem
    assume(y.any())
    groups = np.arange(len(y)) % n_groups
    parts = calibration_by(groups, y, p, w)
    assert [part.group for part in parts] == sorted(set(groups.tolist()))
    weight = np.array([part.weight for part in parts])
    np.testing.assert_allclose(weight.sum(), w.sum(), rtol=1e-12)
    predicted = np.average([part.predicted for part in parts], weights=weight)
    measured = np.average([part.measured for part in parts], weights=weight)
    np.testing.assert_allclose(predicted / measured - 1, calibration_error(y, p, w), rtol=1e-9, atol=1e-9)


@few
@given(rated(), st.integers(1, 5))
def test_the_error_of_a_group_is_that_of_its_rows(problem, n_groups):
    y, p, w = problem
    groups = [f"group {i % n_groups}" for i in range(len(y))]
    for part in calibration_by(groups, y, p, w):
        mine = np.array([group == part.group for group in groups])
        if y[mine].any():
            np.testing.assert_allclose(part.error, calibration_error(y[mine], p[mine], w[mine]), atol=1e-9)
        else:
            assert np.isnan(part.error)


@pytest.mark.parametrize("dtype", ["string", "Int64", "float64", "object"])
def test_missing_groups_of_pandas_are_one_group(dtype):
    values = pd.Series(["1", None, "2", None] if dtype in ("string", "object") else [1, None, 2, None], dtype=dtype)
    parts = calibration_by(values, [1, 1, 1, 1], [1, 2, 3, 4])
    assert [part.group is None for part in parts] == [False, False, True]
    assert parts[-1] == GroupCalibration(None, 2.0, 3.0, 1.0)


def test_one_group_is_the_whole():
    (whole,) = calibration_by(["all"] * 3, [1, 0, 1], [0.5, 0.5, 0.5], [1, 2, 1])
    assert whole == GroupCalibration("all", 4.0, 0.5, 0.5)
    assert whole.error == 0.0


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize(
    ("y", "p", "w"),
    [
        ([1, 0, 1], [0.5, 0.5], None),
        ([1, 0], [0.5, 0.5, 0.5], None),
        ([1, 0], [0.5, 0.5], [1.0]),
        ([[1, 0]], [[0.5, 0.5]], None),
        (1.0, 0.5, None),
        ([1, 0], [[0.5, 0.5], [0.5, 0.5]], None),
    ],
)
def test_shapes_that_differ_are_refused(metric, y, p, w):
    with pytest.raises(ValueError, match="got shapes"):
        metric(y, p, w)
    with pytest.raises(ValueError, match="got shapes"):
        calibration_by([0, 1], y, p, w)


def test_groups_of_another_length_are_refused():
    with pytest.raises(ValueError, match="got 3 and 2"):
        calibration_by(["a", "b", "c"], [1, 0], [0.5, 0.5])


@pytest.mark.parametrize("metric", ALL)
def test_no_rows_are_refused(metric):
    with pytest.raises(ValueError, match="at least one row"):
        metric([], [])
    with pytest.raises(ValueError, match="at least one row"):
        calibration_by([], [], [])


@pytest.mark.parametrize("metric", [auc, normalized_entropy, r2])
@pytest.mark.parametrize("y", [0.0, 1.0])
def test_targets_of_one_kind_are_refused(metric, y):
    with pytest.raises(ValueError, match="all are the same"):
        metric([y, y, y], [0.1, 0.5, 0.9])
    with pytest.raises(ValueError, match="all are the same"):
        metric([y, y, 1 - y], [0.1, 0.5, 0.9], [1, 1, 0])


def test_calibration_of_targets_that_are_all_zero_is_refused():
    with pytest.raises(ValueError, match="mean is not zero"):
        calibration_error([0, 0], [0.1, 0.2])


def test_text_is_refused():
    with pytest.raises(ValueError, match="could not convert"):
        logloss(["yes", "no"], [0.5, 0.5])


NAN = float("nan")


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize(
    ("y", "p", "w"),
    [
        ([1, 0, NAN, 0], [0.5, 0.25, 0.5, 0.75], None),
        ([1, 0, 1, 0], [0.5, 0.25, NAN, 0.75], None),
        ([1, 0, 1, 0], [0.5, 0.25, 0.5, 0.75], [1, 1, NAN, 1]),
    ],
)
def test_missing_values_are_refused_as_such(metric, y, p, w):
    with pytest.raises(ValueError, match=r"(?i)missing|nan|finite"):
        metric(y, p, w)


@pytest.mark.parametrize("metric", ALL)
@pytest.mark.parametrize("w", [[-1, 2], [0, 0]])
def test_weights_that_are_negative_or_all_zero_are_refused(metric, w):
    with pytest.raises(ValueError, match="weight"):
        metric([1, 0], [0.5, 0.25], w)


@pytest.mark.parametrize("metric", [logloss, normalized_entropy])
@pytest.mark.parametrize(("y", "p"), [([1, 0], [2.0, -1.0]), ([2, 0], [0.5, 0.25]), ([-1, 1], [0.5, 0.25])])
def test_probabilities_and_targets_out_of_range_are_refused(metric, y, p):
    with pytest.raises(ValueError, match="between 0 and 1"):
        metric(y, p)


def test_equal_targets_are_refused_whatever_the_rounding_of_their_mean():
    with pytest.raises(ValueError, match="all are the same"):
        r2([0.1, 0.1, 0.1], [0.1, 0.2, 0.3])


def test_a_group_without_weight_has_no_error_and_no_warning():
    first, second = calibration_by(["a", "b"], [1, 0], [0.5, 0.25], [1, 0])
    assert first.error == -0.5 and np.isnan(second.error)


def test_a_missing_group_is_a_group():
    assert len(calibration_by(["a", None], [1, 1], [0.5, 0.5])) == 2


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1e30, 1e300])
@pytest.mark.parametrize("metric", [logloss, normalized_entropy, auc, rmse, mae, calibration_error])
def test_weights_of_any_size_neither_overflow_nor_vanish(metric, size):
    y, p, w = [0.0, 1.0, 1.0, 0.0], [0.2, 0.9, 0.4, 0.5], np.array([1.0, 2.0, 0.5, 3.0])
    assert metric(y, p, size * w) == pytest.approx(metric(y, p, w), rel=1e-12)


def test_errors_whose_squares_overflow():
    assert rmse([0.0, 0.0], [3e200, 4e200]) == pytest.approx(np.sqrt(12.5) * 1e200)
    assert rmse([0.0, 0.0], [0.0, 0.0]) == 0.0


def test_groups_are_values_of_python_and_missing_ones_one_group():
    y, p = [1.0] * 4, [0.5] * 4
    assert [c.group for c in calibration_by([2.0, np.nan, None, np.nan], y, p)] == [2.0, None]
    assert [c.group for c in calibration_by([1, "a", 1, "a"], y, p)] == [1, "a"]
    times = np.array(["2024-01-02", "2024-01-01", "NaT", "2024-01-02"], "datetime64[ns]")
    found = [c.group for c in calibration_by(times, y, p)]
    assert found == [datetime(2024, 1, 1), datetime(2024, 1, 2), None]


def test_many_groups():  # a minute, if each of them looks at all rows
    names = [str(i % 40_000) for i in range(80_000)]
    found = calibration_by(names, np.ones(80_000), np.ones(80_000))
    assert [c.group for c in found] == sorted(set(names)) and {c.weight for c in found} == {2.0}


def test_a_class_whose_rows_have_no_weight_does_not_count():
    y, p = (
        [0, 1, 0, 1, 2],
        np.array([[0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.3, 0.4, 0.3], [0.5, 0.4, 0.1], [0.9, 0.0, 0.1]]),
    )
    weight = [1.0, 1.0, 1.0, 1.0, 0.0]
    assert class_auc(y, p, weight) == class_auc(y[:4], p[:4], weight[:4])
