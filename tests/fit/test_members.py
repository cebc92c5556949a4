"""Fits with several members: one model that predicts their mean."""

from dataclasses import replace

import numpy as np
import pytest

import splinefm as sf
from splinefm.model.family.formula import formula_scores
from splinefm.model.family.parameters import mean_model

N = 400


def make_table(n=N, seed=0, names="abc"):
    rng = np.random.default_rng(seed)
    x, z, c = rng.random(n), rng.normal(size=n), rng.choice(list(names), n)
    y = np.sin(6 * x) * (c == "a") + z * x + rng.normal(0, 0.1, n)
    return {"x": x, "z": z, "c": c, "y": y}


TABLE, OTHER, NEW = make_table(), make_table(100, 1), make_table(50, 2)
SCHEMA = sf.Schema([sf.Numerical("x"), sf.Numerical("z", basis=sf.MultiResolution((4, 8))), sf.Categorical("c")])
MODELS = [
    sf.FM(k=3),
    sf.FwFM(k=4),
    sf.FwFM(k=4, third=2),
    sf.LowRankFwFM(k=4, rank=2),
    sf.FmFM(k=3),
    sf.FFM(k=2),
    sf.HigherOrderFM(k=3, order=3),
    sf.HigherOrderFM(k=4, order=4),
]


def fit(model, seed=0, members=1, **options):
    training = {"epochs": 2, "seed": seed, "members": members, "refit_on_all": False, "threads": 1}
    training = sf.Training(**{**training, **options.pop("training", {})})
    given = {"schema": SCHEMA, "loss": "squared", "validation": OTHER}
    return sf.fit_model(TABLE, "y", model=model, training=training, **{**given, **options})


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_scores_are_the_mean_of_those_of_single_fits(model, tmp_path):
    together = fit(model, seed=5, members=3)
    singles = [fit(model, seed) for seed in (5, 6, 7)]
    expected = np.mean([one.scores(NEW) for one in singles], axis=0)
    assert np.ptp([one.scores(NEW) for one in singles], axis=0).max() > 1e-3
    np.testing.assert_allclose(together.scores(NEW), expected, rtol=1e-4, atol=1e-5)
    slots = together.encoder.encode(NEW)
    np.testing.assert_allclose(formula_scores(together.model, together.params, slots), expected, rtol=1e-4, atol=1e-5)

    scorer = together.scorer()
    rows = [{name: NEW[name][i] for name in "xzc"} for i in range(9)]
    np.testing.assert_allclose([scorer(row) for row in rows], expected[:9], rtol=1e-4, atol=1e-5)

    curve = together.segment({"z": 0.3, "c": "a"}, along="x")
    means = np.mean([one.segment({"z": 0.3, "c": "a"}, along="x")(NEW["x"]) for one in singles], axis=0)
    np.testing.assert_allclose(curve(NEW["x"]), means, rtol=1e-4, atol=1e-5)

    together.save(tmp_path / "m.sfm")
    loaded = sf.load(tmp_path / "m.sfm")
    np.testing.assert_array_equal(loaded.scores(NEW), together.scores(NEW))
    assert loaded.model == together.model and loaded.training.members == 3


@pytest.mark.parametrize("model", [model for model in MODELS if model.order < 4], ids=str)
def test_explanations_are_the_means_of_those_of_single_fits(model):
    together = fit(model, members=2)
    singles = [fit(model, seed) for seed in (0, 1)]
    found = sf.shapley_values(together, NEW, TABLE).values
    expected = np.mean([sf.shapley_values(one, NEW, TABLE).values for one in singles], axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_one_member_is_a_plain_fit():
    one, plain = fit(sf.FwFM(k=4), members=1), fit(sf.FwFM(k=4))
    assert one.model == plain.model == sf.FwFM(k=4)
    np.testing.assert_array_equal(one.scores(NEW), plain.scores(NEW))


def test_members_share_resolutions_and_are_trained_on_all_rows():
    inferred = {"schema": None, "validation": 0.2, "training": {"refit_on_all": True}}
    together, first = (fit(sf.FwFM(k=4), members=n, **inferred) for n in (2, 1))
    assert together.encoder.schema == first.encoder.schema and together.model == sf.FwFM(k=8, members=2)
    np.testing.assert_array_equal(together.params["factors"][:, :4], first.params["factors"])
    assert together.history == together.history and len(together.history) == len(first.history)


def test_a_fit_that_is_stopped_has_the_members_so_far():
    epochs = []

    def stop(epoch):
        epochs.append(epoch)
        return len(epochs) == 5  # in the third member

    stopped = fit(sf.FwFM(k=4), members=4, callbacks=[stop])
    assert len(epochs) == 5 and stopped.model == sf.FwFM(k=8, members=2) and stopped.training.members == 2
    np.testing.assert_array_equal(stopped.scores(NEW), fit(sf.FwFM(k=4), members=2).scores(NEW))

    stopped = fit(sf.FwFM(k=4), members=4, callbacks=[lambda epoch: True])
    assert stopped.model == sf.FwFM(k=4) and stopped.training.members == 1


def test_ctrl_c_keeps_the_members_so_far():
    epochs = []

    def stop(epoch):
        epochs.append(epoch)
        if len(epochs) == 5:
            raise KeyboardInterrupt

    with pytest.warns(UserWarning, match="^interrupted: members kept: 2 of 4$"):
        stopped = fit(sf.FwFM(k=4), members=4, callbacks=[stop])
    assert stopped.training.members == 2


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_updates_train_the_mean_as_one_model(model, tmp_path):
    """As any model: they repeat exactly on any number of threads, learn new categories, and continue from files."""
    start = fit(model, members=3)
    hours = [make_table(300, seed, "abcd"[: seed - 2]) for seed in (5, 6)]
    learner, path = sf.Learner(start, sf.Training(threads=1, learning_rate=0.5)), tmp_path / "m.sfm"
    replayed = sf.Learner(start, sf.Training(threads=2, learning_rate=0.5))
    for table in hours:
        learner.update(table, "y")
        replayed.update(table, "y")
        replayed.save(path)
        replayed = sf.Learner.load(path, sf.Training(threads=2, learning_rate=0.5))
    found = learner.fitted()
    assert found.model == start.model and found.training.members == 3
    assert found.encoder.layout.n_features == start.encoder.layout.n_features + 1
    for name, values in found.params.items():
        np.testing.assert_array_equal(sf.load(path).params[name], values)
    slots = found.encoder.encode(NEW)
    np.testing.assert_allclose(found.scores(NEW), formula_scores(found.model, found.params, slots), atol=1e-4)
    assert rms(found) < 0.95 * rms(start)

    curve = found.segment({"z": 0.3, "c": "d"}, along="x")
    points = {"x": NEW["x"], "z": np.full(len(NEW["x"]), 0.3), "c": ["d"] * len(NEW["x"])}
    np.testing.assert_allclose(curve(NEW["x"]), found.scores(points), atol=1e-4)


def rms(fitted):
    return np.sqrt(np.mean((fitted.predict(NEW) - NEW["y"]) ** 2))


def test_updates_move_the_vectors_and_the_field_weights_of_all_members():
    start = fit(sf.FwFM(k=4, third=2), members=2)
    learner = sf.Learner(start)
    learner.update(make_table(300, 5), "y")
    moved = {name: values != start.params[name] for name, values in learner.fitted().params.items()}
    assert moved["factors"].any(axis=0).all() and moved["linear"].any() and moved["bias"].all()
    assert [np.argwhere(own).tolist() for own in moved["field_weights"]] == [[[0, 1], [0, 2], [1, 2]]] * 2


def test_the_penalties_of_a_mean_are_the_means_of_those_of_its_members():
    one = fit(sf.FwFM(k=4))
    model, params = mean_model(one.model, [one.params] * 4, one.encoder.layout)
    mean = sf.Fitted(one.encoder, model, params, one.loss, one.history, replace(one.training, members=4))
    single, several = (sf.Learner(fitted).engine.penalty for fitted in (one, mean))
    np.testing.assert_allclose(4 * several.l2, single.l2, rtol=1e-5)
    np.testing.assert_allclose(4 * several.smoothness, single.smoothness, rtol=1e-5)
    np.testing.assert_array_equal(several.l2_linear, single.l2_linear)
    assert single.smoothness.any() and single.l2.all()


def test_a_guard_judges_updates_of_a_mean(tmp_path):
    path = tmp_path / "m.sfm"
    fit(sf.FwFM(k=4), members=2).save(path)
    report = sf.update_model(path, make_table(300, 5), "y")
    assert report.verdict.accepted and sf.load(path).model == sf.FwFM(k=8, members=2)
    wrong = make_table(300, 6) | {"y": np.full(300, 40.0)}
    with pytest.raises(sf.UpdateRefused):
        sf.update_model(path, wrong, "y")


def test_the_settings_of_a_learner_do_not_change_what_a_model_is_the_mean_of():
    for members in (1, 2):
        learner = sf.Learner(fit(sf.FwFM(k=4), members=members), sf.Training(threads=1, members=3))
        assert learner.fitted().training.members == members


def test_estimators_take_members(tmp_path):
    X, y = {name: TABLE[name] for name in "xzc"}, TABLE["y"]
    regressor = sf.SplineFMRegressor(sf.FwFM(k=4), epochs=2, members=2, n_jobs=1).fit(X, y)
    assert regressor.fitted_.model == sf.FwFM(k=8, members=2)
    before = regressor.predict(X)
    regressor.partial_fit(X, y)
    assert (regressor.predict(X) != before).any()
    assert regressor.fitted_.model == sf.FwFM(k=8, members=2)
    regressor.save(tmp_path / "m.sfm")
    loaded = sf.SplineFMRegressor.load(tmp_path / "m.sfm")
    assert loaded.model == sf.FwFM(k=4) and loaded.members == 2
    np.testing.assert_array_equal(loaded.predict(X), regressor.predict(X))


@pytest.mark.parametrize("members", [0, 2.5, "3"])
def test_members_must_be_a_number_of_fits(members):
    with pytest.raises(ValueError, match=f"members must be an integer of at least 1, got '?{members}"):
        sf.Training(members=members)
