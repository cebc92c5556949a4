"""A race of settings: folds, results that do not depend on threads, and comparisons."""

import numpy as np
import pytest

import splinefm as sf
from splinefm._parallel import Cancelled
from splinefm.search.race import Fold, Race, draw_sample, have_weight, make_folds
from splinefm.search.setting import Setting
from splinefm.train.chunks import prepare_chunks
from splinefm.train.progress import SILENT
from splinefm.train.rows import LabeledTable

SCHEMA = sf.Schema([sf.Numerical("x", basis=sf.BSpline(8)), sf.Categorical("c")])
TRAINING = sf.Training(epochs=2, threads=2, effort="fast", l2=1e-4, smoothness=1e-3)


def make_table(n=600, seed=0):
    rng = np.random.default_rng(seed)
    x, c = rng.random(n), rng.integers(3, size=n)
    return {"x": x, "c": np.array(list("abc"))[c], "y": np.sin(6 * x) * (c - 1) + 0.1 * rng.normal(size=n)}


def make_race(table=None, threads=2, n_folds=4, validation=0.1, weight=None):
    table = sf.open_table(make_table() if table is None else table)
    training = sf.Training(seed=3, threads=threads)
    chunks = prepare_chunks(LabeledTable(SCHEMA, "y", weight, table), sf.Loss("squared"), validation, training)
    race = Race(chunks, training, SILENT)
    race.folds = make_folds(chunks, n_folds, training.seed)
    return race


def setting(k=3, **changes):
    return Setting(SCHEMA, sf.FM(k=k), sf.Training(**{"epochs": 2, "l2": 1e-4, "smoothness": 1e-3, **changes}))


class TestFolds:
    def test_every_row_is_learned_or_judged_and_judged_once(self):
        folds = make_race().folds
        for learned, judged in folds:
            assert sorted([*learned, *judged]) == list(range(600))
        judged = np.concatenate([fold.judged for fold in folds])
        assert len(np.unique(judged)) == len(judged)
        sizes = [len(fold.judged) for fold in folds]
        assert min(sizes) > 0.6 * max(sizes)

    def test_the_validation_rows_are_judged_first(self):
        race = make_race()
        n_kept = len(race.chunks.kept.y)
        assert race.folds[0].judged.tolist() == list(range(n_kept, 600))

    def test_copies_of_a_row_are_judged_together(self):
        table = make_table(300)
        doubled = {name: np.concatenate([values, values]) for name, values in table.items()}
        race = make_race(doubled)
        y = np.concatenate([race.chunks.kept.y, race.chunks.validation.y])
        for learned, judged in race.folds:
            assert not set(y[learned]) & set(y[judged])

    def test_folds_begin_again_when_all_rows_were_judged(self):
        folds = make_race(n_folds=4, validation=0.4).folds
        assert len(folds) == 4
        assert folds[2] is folds[0] or len({tuple(fold.judged) for fold in folds}) < 4

    def test_rows_of_another_table_are_judged_in_all_folds(self):
        race = make_race(validation=make_table(50, seed=1))
        n = len(race.chunks.kept.y)
        assert all(fold.judged.tolist() == list(range(n, n + 50)) for fold in race.folds)

    def test_folds_without_weight_bear_no_race(self):
        table = make_table()
        race = make_race(table | {"w": np.ones(600)}, weight="w")
        assert have_weight(race.chunks, race.folds)
        judged = race.folds[1].judged
        race.chunks.kept.sample_weight[judged[judged < len(race.chunks.kept.y)]] = 0.0
        assert not have_weight(race.chunks, race.folds)

    def test_a_sample_has_rows_of_its_fold(self):
        fold = Fold(np.arange(0, 200, 2), np.arange(1, 200, 2))
        some = draw_sample(fold, 30, 10, seed=1)
        assert len(some.learned) == 30 and set(some.learned) <= set(fold.learned)
        assert len(some.judged) == 10 and set(some.judged) <= set(fold.judged)
        assert some.learned.tolist() != draw_sample(fold, 30, 10, seed=2).learned.tolist()


def test_results_do_not_depend_on_the_number_of_threads():
    settings = [setting(k) for k in (2, 3, 4)]
    races = [make_race(threads=threads) for threads in (1, 3)]
    for race in races:
        race.run(settings, (0, 1))
    one, several = (race.results for race in races)
    assert one.keys() == several.keys() and len(one) == 6
    for key, result in one.items():
        np.testing.assert_array_equal(result.losses, several[key].losses)
        np.testing.assert_array_equal(result.trained.params["factors"], several[key].trained.params["factors"])


def test_a_fit_to_a_fold_is_that_of_its_rows_alone():
    race, one = make_race(), setting()
    race.run([one], (2,))
    learned, judged = race.folds[2]
    table = make_table()
    kept = ~race.chunks.held_out.has(np.arange(600))
    order = np.concatenate([np.flatnonzero(kept), np.flatnonzero(~kept)])  # of the positions of a fold
    train, held_out = ({k: v[order[rows]] for k, v in table.items()} for rows in (learned, judged))
    assert len(train["y"]) + len(held_out["y"]) == 600
    own = race.results[one, 2]
    scores = race.chunks.encoder.encode(held_out)
    fitted = sf.Fitted(race.chunks.encoder, one.model, own.trained.params, race.chunks.loss)
    np.testing.assert_allclose(own.scores, fitted.scores(held_out), atol=1e-6)
    assert len(scores) == len(own.losses)


def test_losses_are_weighted():
    table = make_table()
    race = make_race(table | {"w": np.where(table["x"] < 0.5, 1.0, 3.0)}, weight="w")
    one = setting()
    race.run([one], (0,))
    result, weight = race.results[one, 0], race.chunks.validation.sample_weight
    assert race.loss(one, (0,)) == pytest.approx(np.average(result.losses, weights=weight))
    assert race.loss(one, (0,)) != pytest.approx(result.losses.mean())


def test_the_loss_of_a_mean_is_that_of_mean_scores():
    race, settings = make_race(), [setting(2), setting(4)]
    race.run(settings, (0, 1))
    losses = [
        race.chunks.loss.value(
            np.concatenate([race.chunks.kept.y, race.chunks.validation.y])[race.folds[fold].judged],
            np.mean([race.results[each, fold].scores for each in settings], axis=0),
        )
        for fold in (0, 1)
    ]
    assert race.loss_of_mean_score(settings, (0, 1)) == pytest.approx(np.concatenate(losses).mean())
    assert race.loss_of_mean_score(settings[:1], (0, 1)) == pytest.approx(race.loss(settings[0], (0, 1)))


def test_a_fit_that_diverges_comes_last():
    race, good = make_race(), setting()
    wild = setting(learning_rate=1e30)
    race.run([wild, good], (0,))
    assert race.results[wild, 0].trained is None
    assert race.ranked([wild, good], (0,)) == [good, wild]


def test_a_race_ends_at_its_deadline():
    race = make_race()
    race.deadline = 0.0
    with pytest.raises(Cancelled):
        race.run([setting()], (0,))
    assert not race.results


def test_dropped_parameters_come_back_when_they_are_needed():
    race, one, other = make_race(), setting(2), setting(4)
    race.run([one, other], (0,))
    before = race.results[one, 0]
    race.drop_params([other])
    assert race.results[one, 0].trained.params == {} and race.results[other, 0].trained.params
    assert not race.has(one, 0) and race.has(other, 0)
    assert race.loss(one, (0,)) == before.losses.mean()
    race.run([one], (0,))
    np.testing.assert_array_equal(race.results[one, 0].trained.params["factors"], before.trained.params["factors"])


def test_work_counts_the_epochs_that_were_taken():
    race, endless = make_race(), setting(epochs=200, patience=1)
    before = race.seconds(endless, 1)
    race.run([endless], [0])
    taken = len(race.results[endless, 0].trained.history)
    assert taken < 100 and race.work(endless, 0) == taken * race.seconds_of_epoch(endless, 0)
    assert race.seconds(endless, 1) < before
