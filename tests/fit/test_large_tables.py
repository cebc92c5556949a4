"""Defaults of large tables: fewer epochs and a smaller L2 penalty, unless they are given."""

import numpy as np
import pytest

import splinefm as sf
from splinefm.train import settings as table_size
from splinefm.train.settings import EPOCHS, L2, LARGE_TABLE, MIN_EPOCHS, SMOOTHNESS, default_epochs, l2_strength


def table(n=600):
    rng = np.random.default_rng(0)
    x = rng.random(n)
    return {"x": x, "c": rng.choice(["a", "b"], n), "y": rng.random(n) < x}


@pytest.mark.parametrize("n", [1, 150, 10_000, LARGE_TABLE])
def test_tables_that_are_not_large_have_the_usual_number(n):
    assert default_epochs(n) == sf.Training().for_table(["x"], n).epochs == EPOCHS


def test_more_rows_never_get_more_epochs_or_a_larger_penalty():
    sizes = np.unique(np.geomspace(1, 1e10, 300).astype(int)).tolist()
    epochs, strengths = [default_epochs(n) for n in sizes], [l2_strength(n) for n in sizes]
    assert epochs == sorted(epochs, reverse=True) and epochs[-1] == MIN_EPOCHS
    assert strengths == sorted(strengths, reverse=True) and strengths[-1] == pytest.approx(LARGE_TABLE / 1e10)


def test_the_penalty_of_a_large_table_falls_with_its_rows_and_smoothness_does_not():
    filled = [sf.Training().for_table(["x"], n) for n in (LARGE_TABLE, 4 * LARGE_TABLE)]
    assert [training.l2 for training in filled] == [L2, L2 / 4]
    assert [training.smoothness for training in filled] == [SMOOTHNESS, SMOOTHNESS]
    assert sf.Training(l2=L2).for_table(["x"], 10**8).l2 == L2


@pytest.mark.parametrize("n", [100, 10**8])
def test_a_given_number_is_used_as_it_is(n):
    assert sf.Training(epochs=7).for_table(["x"], n).epochs == sf.Training(epochs=7).max_epochs(n) == 7


def test_the_learning_rate_ends_with_the_last_epoch():
    training, n = sf.Training(), 10 * LARGE_TABLE
    last = default_epochs(n) - 1
    assert training.rates(last, n)(n - 1) < 1e-6 < training.rates(last, n)(0)


def test_a_fit_keeps_the_number_that_it_used(monkeypatch, tmp_path):
    monkeypatch.setattr(table_size, "LARGE_TABLE", 50)
    options = {"threads": 1, "patience": None, "effort": "fast", "crosses": None, "refit_on_all": False}
    fitted = sf.fit_model(table(), "y", model=sf.FM(k=2), training=sf.Training(**options))
    assert len(fitted.history) == fitted.training.epochs == default_epochs(600) == MIN_EPOCHS
    monkeypatch.undo()
    fitted.save(tmp_path / "m.sfm")
    assert sf.load(tmp_path / "m.sfm").training.epochs == MIN_EPOCHS


def test_an_estimator_takes_none():
    assert sf.SplineFMClassifier().epochs is None
    fitted = sf.SplineFMClassifier(sf.FM(k=2), epochs=2, n_jobs=1).fit(table(), target="y").fitted_
    assert fitted.training.epochs == 2


@pytest.mark.parametrize("epochs", [0, -1, 1.5, "3"])
def test_other_numbers_are_refused(epochs):
    with pytest.raises((TypeError, ValueError), match="epochs"):
        sf.Training(epochs=epochs)
