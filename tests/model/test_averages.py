"""The mean of several models is one model of the family."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.slots import FieldLayout, SlotLayout, Slots
from splinefm.model.family.formula import formula_scores
from splinefm.model.family.parameters import init_params, mean_model, member_model
from splinefm.model.scores import predict_scores
from support import examples, random_params

LAYOUT = SlotLayout(
    (
        FieldLayout("a", 6, (3,), (0,)),
        FieldLayout("b", 9, (2, 3), (0, 0)),
        FieldLayout("c", 4, (1,), (0,)),
        FieldLayout("d", 5, (1, 1, 1), (0, 1, 2)),
    )
)
MODELS = [
    sf.FM(k=3),
    sf.FwFM(k=3),
    sf.FwFM(k=9, third=2),
    sf.LowRankFwFM(k=3, rank=2),
    sf.FmFM(k=3),
    sf.FmFM(k=(2, 3, 1, 4)),
    sf.FFM(k=2),
    sf.HigherOrderFM(k=3, order=2),
    sf.HigherOrderFM(k=3, order=3),
    sf.HigherOrderFM(k=8, order=4),
]


def random_slots(n, rng):
    window_field = LAYOUT.unit_field[LAYOUT.window_unit]
    last = LAYOUT.feature_ptr[window_field + 1] - np.diff(LAYOUT.weight_ptr)
    start = rng.integers(LAYOUT.feature_ptr[window_field], last + 1, (n, LAYOUT.n_windows)).astype(np.int32)
    return Slots(start, rng.normal(size=(n, LAYOUT.n_weights)).astype(np.float32), LAYOUT)


@pytest.mark.parametrize("model", MODELS, ids=str)
@examples(16)
@given(n=st.integers(1, 4), seed=st.integers(0, 2**32 - 1))
def test_its_score_is_the_mean_of_their_scores(model, n, seed):
    rng = np.random.default_rng(seed)
    members = [random_params(model, LAYOUT, rng) for _ in range(n)]
    slots = random_slots(7, rng)
    expected = np.mean([formula_scores(model, params, slots) for params in members], axis=0)
    whole, params = mean_model(model, members, LAYOUT)
    np.testing.assert_allclose(formula_scores(whole, params, slots), expected, rtol=1e-5, atol=1e-5)
    size = np.abs(expected).max()
    np.testing.assert_allclose(predict_scores(whole, params, slots), expected, rtol=1e-4, atol=1e-4 * max(1.0, size))
    assert {name: values.dtype for name, values in params.items()} == dict.fromkeys(params, np.dtype(np.float32))
    if not isinstance(model, sf.LowRankFwFM):
        assert member_model(whole, n) == model


@pytest.mark.parametrize("order", [2, 3, 4])
def test_products_of_all_orders_have_the_share_of_a_member(order):
    """Vectors are not scaled: the mean of a model with itself has its coordinates, side by side."""
    model = sf.HigherOrderFM(k=3, order=order)
    params = random_params(model, LAYOUT, 3)
    whole, joined = mean_model(model, [params] * 4, LAYOUT)
    assert whole == sf.HigherOrderFM(k=12, order=order, members=4)
    np.testing.assert_array_equal(joined["factors"], np.tile(params["factors"], 4))
    assert str(whole) == f"HigherOrderFM(k=12, order={order}, members=4)"
    assert str(model) == f"HigherOrderFM(k=3, order={order})"
    one, mean = (m.between_all({}, 2) for m in (model, whole))
    np.testing.assert_array_equal(mean, one / 4)
    assert whole.product_weight == 1 / 4 and model.product_weight == 1


def test_a_fit_makes_means_of_its_members_alone():
    model = sf.FwFM(k=4, members=2)
    with pytest.raises(ValueError, match=r"FwFM\(k=4, members=2\) is the mean of 2 models.*Training\(members=2\)"):
        sf.fit_model({"x": [1.0, 2.0] * 20, "y": [0, 1] * 20}, "y", model=model)


@pytest.mark.parametrize("members", [0, -1, 1.5, True])
def test_members_are_a_positive_integer(members):
    for kind in (sf.FwFM, sf.HigherOrderFM):
        with pytest.raises(ValueError, match=f"members must be an integer of at least 1, got {members}"):
            kind(k=4, members=members)


def test_members_have_the_same_length():
    for kind in (sf.FwFM, sf.HigherOrderFM):
        with pytest.raises(ValueError, match="members must divide k = 4, got 3"):
            kind(k=4, members=3)


def test_the_mean_of_the_same_model_has_its_scores_with_products_of_three():
    model, generator = sf.FwFM(k=3, third=2), np.random.default_rng(4)
    params, slots = random_params(model, LAYOUT, generator), random_slots(20, generator)
    mean, averaged = mean_model(model, [params] * 3, LAYOUT)
    assert np.allclose(predict_scores(mean, averaged, slots), predict_scores(model, params, slots), atol=1e-4)


def test_coordinates_for_products_of_three_begin_smaller_with_many_fields():
    """All fields move the score at once: the cube root of the pace makes up for it."""
    many = SlotLayout(tuple(FieldLayout(f"f{f}", 20, (1,), (0,)) for f in range(400)))
    factors = init_params(sf.FwFM(k=4, third=4), many, np.random.default_rng(0), scale=1.0)["factors"]
    pace = 25.0 / 400.0
    assert np.std(factors[:, :4]) == pytest.approx(np.sqrt(pace / 4.0), rel=0.02)
    assert np.std(factors[:, 4:]) == pytest.approx(np.cbrt(pace) / np.sqrt(4.0), rel=0.02)
