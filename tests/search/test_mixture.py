"""Means of settings: one model whose scores are the means of theirs."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.model.family.parameters import init_params, mean_model
from splinefm.model.scores import predict_scores
from splinefm.search.mixture import feature_places, join_schemas, move_params

RNG = np.random.default_rng(0)
TABLE = {
    "x": np.where(RNG.random(400) < 0.1, np.nan, RNG.normal(size=400)),
    "z": RNG.random(400),
    "c": np.array(list("abcd"))[RNG.integers(4, size=400)],
}
MODELS = [sf.FM(k=4), sf.FwFM(k=4), sf.FwFM(k=3, third=2), sf.HigherOrderFM(k=3, order=4)]
BASES = [sf.BSpline(4), sf.BSpline(8), sf.BSpline(20), sf.MultiResolution((4, 16)), sf.MultiResolution((8, 32, 64))]


def schema(x=None, z=None, *more):
    fields = [
        sf.Numerical("x", sf.MinMax(-4, 4), x or sf.BSpline(8), special=[0.0]),
        sf.Numerical("z", sf.MinMax(0, 1), z or sf.BSpline(8)),
        sf.Categorical("c"),
    ]
    return sf.Schema([*fields, *more])


def random_params(model, layout, seed, n_outputs=1):
    rng = np.random.default_rng(seed)
    params = init_params(model, layout, rng, n_outputs=n_outputs)
    return {name: rng.normal(size=values.shape).astype(np.float32) for name, values in params.items()}


@pytest.mark.parametrize("model", MODELS, ids=str)
@given(bases=st.lists(st.tuples(st.sampled_from(BASES), st.sampled_from(BASES)), min_size=2, max_size=3))
def test_the_model_of_joined_fields_has_the_mean_scores(model, bases):
    schemas = [schema(*pair) for pair in bases]
    schemas[0] = schema(*bases[0], sf.Cross("z", "c"))  # the others do not have it
    joined = join_schemas(schemas)
    new = sf.fit_encoder(joined, TABLE)
    moved, scores = [], []
    for seed, each in enumerate(schemas):
        old = sf.fit_encoder(each, TABLE)
        params = random_params(model, old.layout, seed)
        scores.append(predict_scores(model, params, old.encode(TABLE)).astype(float))
        moved.append(move_params(model, params, old, new))
        np.testing.assert_allclose(
            predict_scores(model, moved[-1], new.encode(TABLE)), scores[-1], rtol=1e-4, atol=1e-4
        )
    mean, params = mean_model(model, moved, new.layout)
    found = predict_scores(mean, params, new.encode(TABLE))
    np.testing.assert_allclose(found, np.mean(scores, axis=0), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_the_scores_of_classes_stay(model):
    old, new = (sf.fit_encoder(schema(basis), TABLE) for basis in (sf.BSpline(8), sf.MultiResolution((8, 20))))
    params = random_params(model, old.layout, 0, n_outputs=3)
    moved = move_params(model, params, old, new)
    scores = [predict_scores(model, *pair) for pair in ((params, old.encode(TABLE)), (moved, new.encode(TABLE)))]
    assert scores[0].shape == (400, 3)
    np.testing.assert_allclose(*scores, rtol=1e-4, atol=1e-4)


def test_places_are_distinct_and_keep_tokens():
    old, new = (sf.fit_encoder(schema(basis), TABLE) for basis in (sf.BSpline(8), sf.MultiResolution((4, 8))))
    places = feature_places(old, new)
    assert len(np.unique(places)) == old.layout.n_features
    tokens = old.fields[0].n_tokens
    assert tokens == 2 and places[:tokens].tolist() == [0, 1]
    assert places[tokens] == tokens + 4 + 3  # behind the resolution of 4 segments


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (sf.Numerical("x", sf.MinMax(0, 1)), sf.Numerical("x", sf.MinMax(0, 2))),
        (sf.Numerical("x", basis=sf.BSpline(8, degree=1)), sf.Numerical("x", basis=sf.BSpline(8))),
        (
            sf.Numerical("x", sf.MinMax(0, 1), sf.BSpline(8, periodic=True)),
            sf.Numerical("x", sf.MinMax(0, 1), sf.BSpline(4)),
        ),
        (sf.Numerical("x", basis=sf.Bins()), sf.Numerical("x", basis=sf.BSpline(4))),
        (sf.Categorical("x"), sf.Numerical("x")),
        (sf.Categorical("x", min_count=2), sf.Categorical("x")),
    ],
)
def test_fields_without_a_common_field_are_not_joined(a, b):
    assert join_schemas([sf.Schema([a]), sf.Schema([b])]) is None


def test_columns_that_some_settings_left_out_are_kept():
    joined = join_schemas([schema(), sf.Schema([sf.Categorical("c")])])
    assert list(joined.names) == ["x", "z", "c"]
