"""The bias after the last run: slopes that add up to zero."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.fit.fitting import LARGEST_SHIFT, find_shift
from support import examples


def draw(name, rng, n):
    """Targets for a loss."""
    if name == "logistic":
        return rng.integers(0, 2, n).astype(float)
    return np.round(rng.gamma(1.0, 2.0, n), 1) + (0.1 if name == "gamma" else 0.0)


@examples(30)
@given(
    seed=st.integers(0, 2**32),
    name=st.sampled_from(["logistic", "squared", "poisson", "gamma", "tweedie", "huber"]),
)
def test_slopes_add_up_to_zero_or_nothing_changes(seed, name):
    rng = np.random.default_rng(seed)
    loss, y = sf.Loss(name, **({"delta": 1.0} if name == "huber" else {})), draw(name, rng, 20)
    score, weight = rng.normal(size=20), rng.uniform(0.1, 3.0, 20)
    shift = float(find_shift(loss, y, score, weight))
    if loss.link == "log":
        assert weight @ np.exp(score + shift) == pytest.approx(weight @ y, rel=1e-3)
        return
    ends = [float(weight @ loss.slope(y, score + by)) for by in (-LARGEST_SHIFT, LARGEST_SHIFT)]
    if ends[0] < 0.0 < ends[1]:
        assert abs(weight @ loss.slope(y, score + shift)) < 1e-3 * weight.sum()
    else:
        assert shift == 0.0


def test_classes_get_their_shares():
    rng = np.random.default_rng(0)
    y, score = rng.integers(0, 3, 300).astype(float), rng.normal(size=(300, 3))
    loss = sf.Loss("softmax", classes=("a", "b", "c"))
    moved = score + find_shift(loss, y, score, np.ones(300))
    shares = np.exp(moved) / np.exp(moved).sum(axis=1, keepdims=True)
    assert shares.mean(axis=0) == pytest.approx(np.bincount(y.astype(int)) / 300, abs=1e-4)


def test_a_quantile_has_its_share_of_rows_below():
    rng = np.random.default_rng(0)
    y, score = rng.normal(size=1001), 0.1 * rng.normal(size=1001)
    shift = find_shift(sf.Loss("quantile", quantile=0.8), y, score, np.ones(1001))
    assert np.mean(y <= score + shift) == pytest.approx(0.8, abs=0.002)


def test_targets_of_one_class_and_scores_without_numbers_move_nothing():
    assert find_shift(sf.Loss("logistic"), np.ones(5), np.zeros(5), np.ones(5)) == 0.0
    assert find_shift(sf.Loss("squared"), np.ones(5), np.full(5, np.nan), np.ones(5)) == 0.0


def test_a_fit_predicts_the_mean_of_its_rows():
    rng = np.random.default_rng(0)
    n = 3000
    table = {"x": rng.normal(size=n), "c": rng.choice(list("abcdefgh"), n)}
    table["click"] = (rng.random(n) < 1 / (1 + np.exp(-table["x"]))).astype(float)
    training = {"epochs": 3, "threads": 1, "effort": "fast"}
    centered = sf.fit_model(table, "click", training=sf.Training(**training))
    assert centered.predict(table).mean() == pytest.approx(table["click"].mean(), abs=1e-4)
    first = sf.fit_model(table, "click", training=sf.Training(**training, refit_on_all=False))
    assert first.predict(table).mean() != pytest.approx(table["click"].mean(), abs=1e-4)


@pytest.mark.parametrize("loss", ["gamma", "tweedie"])
def test_predicted_amounts_have_the_total_of_the_targets(loss):
    rng = np.random.default_rng(0)
    table = {"x": rng.normal(size=2000), "c": rng.choice(list("abcd"), 2000)}
    table["y"] = np.exp(table["x"]) * rng.gamma(0.3, 3.0, 2000) + 1e-3
    training = sf.Training(epochs=3, threads=1, effort="fast")
    fitted = sf.fit_model(table, "y", loss=loss, training=training)
    assert fitted.predict(table).sum() == pytest.approx(table["y"].sum(), rel=1e-4)


def test_tiny_weights_are_weights():
    y, score, weight = np.array([0.0, 1.0, 1.0]), np.zeros(3), np.array([1.0, 1.0, 0.5])
    loss = sf.Loss("logistic")
    assert find_shift(loss, y, score, 1e-200 * weight) == find_shift(loss, y, score, weight) != 0.0
