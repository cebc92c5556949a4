"""Fits with several members: one model that predicts their mean."""

import numpy as np
import pytest

import splinefm as sf
from splinefm.model.family import formula_scores

N = 400


def make_table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    x, z, c = rng.random(n), rng.normal(size=n), rng.choice(["a", "b", "c"], n)
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

    curve = sf.segment(together, {"z": 0.3, "c": "a"}, along="x")
    means = np.mean([sf.segment(one, {"z": 0.3, "c": "a"}, along="x")(NEW["x"]) for one in singles], axis=0)
    np.testing.assert_allclose(curve(NEW["x"]), means, rtol=1e-4, atol=1e-5)

    together.save(tmp_path / "m.sfm")
    loaded = sf.load(tmp_path / "m.sfm")
    np.testing.assert_array_equal(loaded.scores(NEW), together.scores(NEW))
    assert loaded.model == together.model and loaded.training.members == 3


@pytest.mark.parametrize("model", [model for model in MODELS if model.pairwise], ids=str)
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


def test_products_with_shared_vectors_are_refused_before_anything_is_read():
    with pytest.raises(ValueError, match=r"members=2: the mean of several HigherOrderFM"):
        fit(sf.HigherOrderFM(k=3), members=2)


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


@pytest.mark.parametrize("model", [sf.FM(k=3), sf.FwFM(k=4)], ids=str)
def test_updates_are_refused(model):
    with pytest.raises(ValueError, match=r"members=2 is the mean of several fits and has no updates; fit it again"):
        sf.Learner(fit(model, members=2))


def test_estimators_take_members(tmp_path):
    X, y = {name: TABLE[name] for name in "xzc"}, TABLE["y"]
    regressor = sf.SplineFMRegressor(sf.FwFM(k=4), epochs=2, members=2, n_jobs=1).fit(X, y)
    assert regressor.fitted_.model == sf.FwFM(k=8, members=2)
    with pytest.raises(ValueError, match="no updates"):
        regressor.partial_fit(X, y)
    regressor.save(tmp_path / "m.sfm")
    loaded = sf.SplineFMRegressor.load(tmp_path / "m.sfm")
    assert loaded.model == sf.FwFM(k=4) and loaded.members == 2
    np.testing.assert_array_equal(loaded.predict(X), regressor.predict(X))


@pytest.mark.parametrize("members", [0, 2.5, None, "3"])
def test_members_must_be_a_number_of_fits(members):
    with pytest.raises(ValueError, match=f"members must be an integer of at least 1, got '?{members}"):
        sf.Training(members=members)
