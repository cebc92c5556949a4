"""Classes without rows in a fit: an update that has some learns their share at once, and other classes stay."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.train.rows import Chunk
from splinefm.update.learner import may_lack_class, shift_for_new_classes
from support import examples


def hour(n, labels, seed=0, shares=None):
    rng = np.random.default_rng(seed)
    return {"x": rng.random(n), "c": rng.choice(["u", "v"], n)}, rng.choice(labels, n, p=shares)


@pytest.mark.parametrize(
    ("first", "classes"), [(["a"], ["a", "b"]), (["b"], ["a", "b"]), (["a", "b"], ["a", "b", "c"])], ids=str
)
def test_a_class_that_comes_later_is_learned(first, classes):
    model = sf.SplineFMClassifier(sf.FM(k=2), epochs=3, n_jobs=1)
    model.partial_fit(*hour(1000, first), classes=classes)
    before = model.predict_proba(hour(300, classes, 1)[0])
    assert before[:, [c not in first for c in classes]].max() < 1e-4
    model.partial_fit(*hour(600, classes, 2))
    after = model.predict_proba(hour(300, classes, 1)[0])
    np.testing.assert_allclose(after.mean(0), 1 / len(classes), atol=0.08)


def test_classes_that_never_come_stay_away():
    model = sf.SplineFMClassifier(sf.FM(k=2), epochs=3, n_jobs=1).partial_fit(
        *hour(1000, ["a", "b"]), classes=list("abc")
    )
    model.partial_fit(*hour(600, ["a", "b"], 2))
    assert model.predict_proba(hour(300, ["a"], 1)[0])[:, 2].max() < 1e-4


def test_a_rare_class_of_the_fit_is_not_taken_for_a_new_one():
    rows, labels = hour(3000, ["a", "b"], 0, [0.999, 0.001])
    assert 0 < (labels == "b").sum() < 10
    model = sf.SplineFMClassifier(sf.FM(k=2), epochs=3, n_jobs=1).fit(rows, labels)
    before = model.fitted_.params["bias"].copy()
    model.partial_fit(*hour(300, ["a", "b"], 2))
    assert abs(float(model.fitted_.params["bias"][0] - before[0])) < 0.5


@examples(40)
@given(
    bias=st.floats(-20, -14),
    share=st.floats(0.0, 1.0),
    second=st.booleans(),
    seed=st.integers(0, 99),
)
def test_two_classes_have_the_share_of_the_rows_and_one_more(bias, share, second, seed):
    rng = np.random.default_rng(seed)
    n, sign = 200, 1.0 if second else -1.0
    is_new = np.arange(n) < round(share * n)
    y, weight = np.where(is_new == second, 1.0, 0.0), rng.uniform(0.5, 2.0, n)
    score = sign * (bias + rng.normal(size=n))
    rows, loss = Chunk(None, y, weight), sf.Loss("logistic")
    shift = shift_for_new_classes(loss, np.array([sign * bias]), rows, score, 100)
    if not is_new.any():
        assert shift is None
        return
    predicted = np.average(loss.predict(sign * (score + shift)), weights=weight)
    assert predicted == pytest.approx(np.average(is_new, weights=weight) * n / (n + 1), rel=1e-6)


def test_several_new_classes_have_their_shares():
    rng = np.random.default_rng(0)
    bias = np.array([-0.7, -14.0, -0.7, -15.0])
    rows = Chunk(None, rng.integers(0, 4, 500).astype(float), rng.uniform(0.5, 2.0, 500))
    score, loss = bias + rng.normal(size=(500, 4)), sf.Loss("softmax", classes=(0, 1, 2, 3))
    shift = shift_for_new_classes(loss, bias, rows, score, 1000)
    assert shift[[0, 2]].tolist() == [0.0, 0.0]
    predicted = np.average(loss.predict(score + shift), axis=0, weights=rows.sample_weight)
    share = np.bincount(rows.y.astype(int), rows.sample_weight) / rows.sample_weight.sum()
    np.testing.assert_allclose(predicted[[1, 3]], share[[1, 3]] * 500 / 501, rtol=1e-3)


def test_a_low_bias_alone_is_not_enough():
    """The vectors of these rows make up for it: the model expects the class."""
    y, score = np.array([0.0, 1.0] * 50), np.full(100, 0.3)
    assert may_lack_class(np.array([-14.0]))
    assert (
        shift_for_new_classes(sf.Loss("logistic"), np.array([-14.0]), Chunk(None, y, np.ones(100)), score, 1000) is None
    )


@pytest.mark.parametrize("score", [np.full(4, np.nan), np.full(4, -14.0)])
def test_nothing_is_learned_from_rows_without_weight_or_scores(score):
    rows = Chunk(None, np.ones(4), np.zeros(4) if np.isfinite(score).all() else np.ones(4))
    assert shift_for_new_classes(sf.Loss("logistic"), np.array([-14.0]), rows, score, 10) is None
