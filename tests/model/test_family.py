"""The formulas of the models: definitions, special cases, and what scores look like along spline fields."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
import support
from splinefm import BSpline
from splinefm.encode.slots import FieldLayout, SlotLayout, Slots
from splinefm.model.family.formula import formula_scores, unit_sums
from splinefm.model.family.parameters import init_params, param_shapes
from support import examples

LAYOUT = SlotLayout(
    (
        FieldLayout("a", 6, (3,), (0,)),
        FieldLayout("b", 9, (2, 3), (0, 0)),
        FieldLayout("c", 4, (1,), (0,)),
        FieldLayout("d", 5, (1, 1, 1), (0, 1, 2)),
    )
)
seeds = st.integers(0, 2**32 - 1)


def models(n_fields):
    k = st.integers(1, 5)
    return st.one_of(
        st.builds(sf.FM, k),
        st.builds(sf.FwFM, k, st.integers(0, 3)),
        st.builds(sf.LowRankFwFM, k, st.integers(1, 3)),
        st.builds(sf.FmFM, st.one_of(k, st.tuples(*[k] * n_fields))),
        st.builds(sf.FFM, k),
        st.builds(sf.HigherOrderFM, k, st.integers(2, 5)),
    )


def random_params(model, layout, rng):
    """In float64, so that identities hold to the last digits."""
    return support.random_params(model, layout, rng, scale=2.0, spread=1.0, dtype=np.float64)


def random_slots(layout, n, rng):
    """Any windows with any weights. Weights are float64, so that identities hold to the last digits."""
    window_field = layout.unit_field[layout.window_unit]
    last = layout.feature_ptr[window_field + 1] - np.diff(layout.weight_ptr)
    start = rng.integers(layout.feature_ptr[window_field], last + 1, (n, layout.n_windows)).astype(np.int32)
    return Slots(start, rng.normal(size=(n, layout.n_weights)), layout)


def random_units(n_fields, rng):
    """Unit vectors of several units per field, and the field of each."""
    return np.repeat(np.arange(n_fields, dtype=np.int32), rng.integers(1, 4, n_fields))


# Spanning properties


def spline_segment(model, bases, points, rng, identity=False):
    """Scores where the first fields follow splines at `points` and the others (a category, a list) are fixed.

    Returns the scores and, for each spline field, the matrix of its basis.
    """
    splines = [FieldLayout(f"x{i}", *spline_layout(basis, identity)) for i, basis in enumerate(bases)]
    layout = SlotLayout((*splines, FieldLayout("c", 5, (1,), (0,)), FieldLayout("list", 4, (1, 1), (0, 1))))
    n = len(points[0])
    fixed = random_slots(layout, 1, rng)
    start, weight = np.repeat(fixed.start, n, axis=0), np.repeat(fixed.weight, n, axis=0)
    designs = []
    for f, (basis, u) in enumerate(zip(bases, points, strict=True)):
        first, values = basis(u)
        rows = first + np.arange(basis.degree + 1)  # one window: neighboring functions
        designs.append(np.zeros((n, sum(basis.sizes))))
        np.put_along_axis(designs[-1], rows, values, axis=1)
        own = slice(layout.window_ptr[f], layout.window_ptr[f + 1])
        start[:, own] = layout.feature_ptr[f] + (rows if identity else first)
        weight[:, layout.weight_ptr[own.start] : layout.weight_ptr[own.stop]] = values
    return formula_scores(model, random_params(model, layout, rng), Slots(start, weight, layout)), designs


def spline_layout(basis, identity):
    width = basis.degree + 1
    return sum(basis.sizes), *(((1,) * width, tuple(range(width))) if identity else ((width,), (0,)))


def residual(columns, scores):
    """How far the scores are from the span of the columns, relative to their size."""
    assert len(scores) > columns.shape[1]
    solution, *_ = np.linalg.lstsq(columns, scores, rcond=None)
    return np.abs(columns @ solution - scores).max() / max(1.0, np.abs(scores).max())


splines = st.builds(BSpline, st.integers(1, 8), st.integers(0, 3))


def grid(basis):
    """More points than functions, in every segment."""
    return np.linspace(0, 1, (basis.degree + 3) * basis.segments + 1)


@examples(60)
@given(model=models(3), basis=splines, seed=seeds)
def test_along_one_spline_field_a_score_is_a_spline(model, basis, seed):
    u = grid(basis)
    scores, (design,) = spline_segment(model, [basis], [u], np.random.default_rng(seed))
    assert residual(np.column_stack([np.ones(len(u)), design]), scores) < 1e-9


@examples(50)
@given(model=models(4), bases=st.tuples(splines, splines), seed=seeds)
def test_along_two_spline_fields_a_score_is_a_tensor_product_spline(model, bases, seed):
    u, v = (axis.ravel() for axis in np.meshgrid(grid(bases[0]), grid(bases[1])))
    scores, designs = spline_segment(model, bases, [u, v], np.random.default_rng(seed))
    B, C = (np.column_stack([np.ones(len(u)), design]) for design in designs)
    products = (B[:, :, None] * C[:, None, :]).reshape(len(u), -1)
    assert residual(products, scores) < 1e-9


@pytest.mark.parametrize("model", [sf.FM(3), sf.FwFM(3), sf.FmFM(3), sf.FFM(3), sf.HigherOrderFM(3, 3)])
def test_without_the_sum_reduction_a_score_is_no_spline(model):
    basis = BSpline(4, 3)
    u = grid(basis)
    scores, (design,) = spline_segment(model, [basis], [u], np.random.default_rng(0), identity=True)
    assert residual(np.column_stack([np.ones(len(u)), design]), scores) > 1e-4


# Definitions


def matrix(model, params, f, e, width):
    """M_fe of the definition."""
    if isinstance(model, sf.FwFM):
        return params["field_weights"][f, e] * np.diag(np.arange(width) < model.k)
    if isinstance(model, sf.LowRankFwFM):
        U, d = params["field_factors"], params["field_scales"]
        return (f != e) * sum(d[r] * U[r, f] * U[r, e] for r in range(len(d))) * np.eye(width)
    if isinstance(model, sf.FmFM):
        return params["field_matrices"][f, e]
    if isinstance(model, sf.FFM):  # picks the part of p_u for field e, and of p_v for field f
        M = np.zeros((width, width))
        for c in range(model.k):
            M[e * model.k + c, f * model.k + c] = 1.0
        return M
    return np.eye(width)


@examples(60)
@given(model=models(4), seed=seeds)
def test_interactions_are_the_sums_over_pairs_of_their_definition(model, seed):
    rng = np.random.default_rng(seed)
    unit_field, width = random_units(4, rng), model.width(4)
    params = random_params(model, LAYOUT, rng)
    P = rng.normal(size=(3, len(unit_field), width))
    expected = np.zeros(3)
    for i in range(3):
        for u, v in combinations(range(len(unit_field)), 2):
            expected[i] += P[i, u] @ matrix(model, params, unit_field[u], unit_field[v], width) @ P[i, v]
        for t in range(3, model.order + 1):
            for units in combinations(range(len(unit_field)), t):
                expected[i] += P[i, list(units), model.product_columns].prod(axis=0).sum()
    actual = model.interaction(P, params, unit_field)
    np.testing.assert_allclose(actual, expected, rtol=1e-9, atol=1e-9)


@examples(60)
@given(model=models(4), seed=seeds)
def test_a_score_is_bias_plus_linear_plus_interaction_of_the_unit_vectors(model, seed):
    rng = np.random.default_rng(seed)
    params, slots = random_params(model, LAYOUT, rng), random_slots(LAYOUT, 4, rng)
    expected = np.zeros(4)
    for i in range(4):
        P = np.zeros((1, LAYOUT.n_units, params["factors"].shape[1]))
        expected[i] = params["bias"][0]
        for w in range(LAYOUT.n_windows):
            for j in range(LAYOUT.weight_ptr[w + 1] - LAYOUT.weight_ptr[w]):
                x, row = slots.weight[i, LAYOUT.weight_ptr[w] + j], slots.start[i, w] + j
                expected[i] += x * params["linear"][row]
                P[0, LAYOUT.window_unit[w]] += x * params["factors"][row]
        expected[i] += model.interaction(P, params, LAYOUT.unit_field)[0]
    np.testing.assert_allclose(formula_scores(model, params, slots), expected, rtol=1e-9, atol=1e-9)


# What stands between two fields


def weighted_product(x, M, y):
    """x' M y, where M is a weight or a matrix."""
    return M * (x @ y) if np.ndim(M) == 0 else x @ M @ y


@examples(60)
@given(model=models(4), seed=seeds)
def test_a_score_is_a_sum_over_pairs_of_what_is_between_their_fields(model, seed):
    rng = np.random.default_rng(seed)
    params, slots = random_params(model, LAYOUT, rng), random_slots(LAYOUT, 3, rng)
    P, fields = unit_sums(params["factors"], slots), LAYOUT.unit_field
    expected = params["bias"][0] + unit_sums(params["linear"], slots).sum(axis=1)
    for u, v in combinations(range(LAYOUT.n_units), 2):
        f, e = fields[u], fields[v]
        M = model.between(params, f, e)
        pairs = zip(P[:, u, model.columns(e)], P[:, v, model.columns(f)], strict=True)
        expected += [weighted_product(x, M, y) for x, y in pairs]
    for t in range(3, model.order + 1):
        for units in combinations(range(LAYOUT.n_units), t):
            expected += P[:, list(units), model.product_columns].prod(axis=1).sum(axis=1)
    np.testing.assert_allclose(formula_scores(model, params, slots), expected, rtol=1e-9, atol=1e-9)


@examples(60)
@given(model=models(4), seed=seeds)
def test_what_is_between_many_fields_is_what_is_between_each_two(model, seed):
    params = random_params(model, LAYOUT, np.random.default_rng(seed))
    part, fields = model.part_size(4), np.arange(4)
    every = model.between_all(params, 4)
    assert every.shape in ((4, 4), (4, 4, part, part)) and every.dtype == np.float64
    np.testing.assert_allclose(model.between(params, fields[:, None], fields), every, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(model.between_all(params, 4, np.float32), every, rtol=1e-4, atol=1e-4)
    for f in range(4):
        np.testing.assert_allclose(model.between(params, f, fields), every[f], rtol=1e-12, atol=1e-12)
        for e in range(4):
            M = model.between(params, f, e)
            np.testing.assert_allclose(M, every[f, e], rtol=1e-12, atol=1e-12)
            if f != e:
                np.testing.assert_array_equal(model.between(params, e, f), M.T)


@examples(60)
@given(model=models(4), seed=seeds)
def test_what_is_between_two_fields_is_the_matrix_of_the_definition(model, seed):
    params = random_params(model, LAYOUT, np.random.default_rng(seed))
    width = model.width(4)
    for f in range(4):
        for e in range(f, 4):
            M, whole = model.between(params, f, e), np.zeros((width, width))
            whole[model.columns(e), model.columns(f)] = M if M.ndim else M * np.eye(model.part_size(4))
            np.testing.assert_allclose(whole, matrix(model, params, f, e, width), rtol=1e-12, atol=1e-12)


@examples(60)
@given(model=models(4), seed=seeds, f=st.integers(0, 2))
def test_the_slope_of_a_field_is_what_its_vector_is_multiplied_with(model, seed, f):
    rng = np.random.default_rng(seed)
    params, unit_field = random_params(model, LAYOUT, rng), LAYOUT.unit_field  # fields 0 to 2 have one unit each
    P = rng.normal(size=(3, LAYOUT.n_units, model.width(4)))
    slope, x = model.slope(P, params, unit_field, f), P[:, f].copy()
    with_field = model.interaction(P, params, unit_field)
    P[:, f] = 0.0
    np.testing.assert_allclose(
        (slope * x).sum(axis=1), with_field - model.interaction(P, params, unit_field), rtol=1e-9, atol=1e-9
    )
    others = unit_field != f
    np.testing.assert_allclose(model.slope(P[:, others], params, unit_field[others], f), slope, rtol=1e-12, atol=1e-12)


@examples(30)
@given(model=models(4), seed=seeds)
def test_shapes_are_those_of_the_start_values(model, seed):
    params = init_params(model, LAYOUT, np.random.default_rng(seed))
    assert param_shapes(model, LAYOUT) == {name: values.shape for name, values in params.items()}
    sizes, part = model.vector_sizes(4), model.part_size(4)
    assert len(sizes) == 4 and max(sizes) == model.width(4) and (model.width(4) - model.third) % part == 0
    assert all(len(range(model.width(4))[model.columns(e)]) == part for e in range(4))


# Special cases


def assert_same_scores(model, params, other, other_params, slots):
    np.testing.assert_allclose(
        formula_scores(model, params, slots), formula_scores(other, other_params, slots), rtol=1e-9, atol=1e-9
    )


@examples(50)
@given(k=st.integers(1, 5), seed=seeds)
def test_models_with_neutral_field_parameters_are_factorization_machines(k, seed):
    rng = np.random.default_rng(seed)
    params, slots = random_params(sf.FM(k), LAYOUT, rng), random_slots(LAYOUT, 5, rng)
    assert_same_scores(sf.FM(k), params, sf.FwFM(k), params | {"field_weights": np.ones((4, 4))}, slots)
    assert_same_scores(
        sf.FM(k), params, sf.FmFM(k), params | {"field_matrices": np.tile(np.eye(k), (4, 4, 1, 1))}, slots
    )
    assert_same_scores(sf.FM(k), params, sf.FFM(k), params | {"factors": np.tile(params["factors"], 4)}, slots)
    assert_same_scores(sf.FM(k), params, sf.HigherOrderFM(k, order=2), params, slots)


@pytest.mark.parametrize("model", [sf.FwFM(3), sf.FmFM(3)])
def test_training_starts_from_a_factorization_machine(model):
    rng = np.random.default_rng(0)
    params, slots = init_params(model, LAYOUT, rng, scale=3.0), random_slots(LAYOUT, 20, rng)
    assert_same_scores(model, params, sf.FM(3), params, slots)


@examples(50)
@given(k=st.integers(1, 4), seed=seeds)
def test_field_weights_are_matrices_that_are_multiples_of_the_identity(k, seed):
    rng = np.random.default_rng(seed)
    params, slots = random_params(sf.FwFM(k), LAYOUT, rng), random_slots(LAYOUT, 5, rng)
    matrices = params["field_weights"][:, :, None, None] * np.eye(k)
    assert_same_scores(sf.FwFM(k), params, sf.FmFM(k), params | {"field_matrices": matrices}, slots)


@examples(50)
@given(k=st.integers(1, 4), rank=st.integers(1, 5), seed=seeds)
def test_low_rank_field_weights_are_the_field_weights_of_their_matrix(k, rank, seed):
    rng = np.random.default_rng(seed)
    params, slots = random_params(sf.LowRankFwFM(k, rank), LAYOUT, rng), random_slots(LAYOUT, 5, rng)
    U, d = params["field_factors"], params["field_scales"]
    weights = U.T @ np.diag(d) @ U
    np.fill_diagonal(weights, 0.0)
    assert_same_scores(sf.LowRankFwFM(k, rank), params, sf.FwFM(k), params | {"field_weights": weights}, slots)


@examples(50)
@given(k=st.integers(1, 4), seed=seeds)
def test_only_field_weights_above_the_diagonal_are_used_with_one_unit_per_field(k, seed):
    rng = np.random.default_rng(seed)
    layout = SlotLayout(LAYOUT.fields[:3])
    slots = random_slots(layout, 5, rng)
    for model, name in ((sf.FwFM(k), "field_weights"), (sf.FmFM(k), "field_matrices")):
        params = random_params(model, layout, rng)
        other = params[name].copy()
        other[np.tril_indices(3)] = 99.0
        assert_same_scores(model, params, model, params | {name: other}, slots)


@examples(60)
@given(
    model=st.one_of(
        st.builds(sf.FM, st.integers(1, 4)), st.builds(sf.HigherOrderFM, st.integers(1, 4), st.integers(2, 4))
    ),
    order=st.permutations(range(4)),
    seed=seeds,
)
def test_the_order_of_fields_does_not_matter(model, order, seed):
    rng = np.random.default_rng(seed)
    params, slots = random_params(model, LAYOUT, rng), random_slots(LAYOUT, 5, rng)
    permuted = SlotLayout(tuple(LAYOUT.fields[f] for f in order))
    rows = np.concatenate([np.arange(LAYOUT.feature_ptr[f], LAYOUT.feature_ptr[f + 1]) for f in order])
    windows = np.concatenate([np.arange(LAYOUT.window_ptr[f], LAYOUT.window_ptr[f + 1]) for f in order])
    weights = np.concatenate([np.arange(LAYOUT.weight_ptr[w], LAYOUT.weight_ptr[w + 1]) for w in windows])
    moved = Slots(np.argsort(rows)[slots.start[:, windows]].astype(np.int32), slots.weight[:, weights], permuted)
    moved_params = params | {name: params[name][rows] for name in ("linear", "factors")}
    np.testing.assert_allclose(
        formula_scores(model, params, slots), formula_scores(model, moved_params, moved), rtol=1e-9, atol=1e-9
    )


def test_units_of_order_beyond_their_number_add_nothing():
    rng = np.random.default_rng(0)
    P, fields = rng.normal(size=(4, 3, 2)), np.arange(3, dtype=np.int32)
    three = sf.HigherOrderFM(2, order=3).interaction(P, {}, fields)
    np.testing.assert_allclose(sf.HigherOrderFM(2, order=7).interaction(P, {}, fields), three, rtol=1e-12)


@examples(30)
@given(third=st.integers(1, 4), seed=seeds)
def test_products_of_three_are_those_of_a_higher_order_without_its_pairs(third, seed):
    rng = np.random.default_rng(seed)
    P, fields = rng.normal(size=(4, 5, 1 + third)), np.array([0, 1, 1, 2, 3], np.int32)
    three, two = (sf.HigherOrderFM(third, order).interaction(P[:, :, 1:], {}, fields) for order in (3, 2))
    found = sf.FwFM(1, third).interaction(P, {"field_weights": np.zeros((4, 4))}, fields)
    np.testing.assert_allclose(found, three - two, rtol=1e-9, atol=1e-9)


# Start values and settings


@examples(30)
@given(model=models(4), seed=seeds)
def test_start_values_have_the_right_shapes_and_repeat_with_the_seed(model, seed):
    params = init_params(model, LAYOUT, np.random.default_rng(seed))
    assert params["bias"].shape == (1,) and params["linear"].shape == (LAYOUT.n_features,)
    assert params["factors"].shape == (LAYOUT.n_features, model.width(4))
    shapes = {"field_weights": (4, 4), "field_factors": (getattr(model, "rank", 0), 4)}
    shapes |= {"field_scales": (getattr(model, "rank", 0),), "field_matrices": (4, 4, *[model.width(4)] * 2)}
    for name, values in params.items():
        assert values.dtype == np.float32
        assert not name.startswith("field_") or values.shape == shapes[name]
    assert not params["bias"].any() and not params["linear"].any() and params["factors"].any()
    again = init_params(model, LAYOUT, np.random.default_rng(seed))
    other = init_params(model, LAYOUT, np.random.default_rng(seed + 1))
    assert all((params[name] == again[name]).all() for name in params)
    assert (params["factors"] != other["factors"]).any()


@pytest.mark.parametrize(
    ("model", "k"),
    [
        (sf.FM(16), 16),
        (sf.FwFM(9), 9),
        (sf.LowRankFwFM(4), 4),
        (sf.FmFM(4), 4),
        (sf.FFM(4), 4),
        (sf.HigherOrderFM(2), 2),
    ],
)
def test_start_vectors_are_small_with_mean_zero(model, k):
    layout = SlotLayout((FieldLayout("a", 5_000, (1,), (0,)), FieldLayout("b", 5_000, (1,), (0,))))
    factors = init_params(model, layout, np.random.default_rng(0), scale=0.2)["factors"]
    deviation = 0.2 / np.sqrt(k)
    assert abs(factors.mean()) < 4 * deviation / np.sqrt(factors.size)
    assert factors.std() == pytest.approx(deviation, rel=0.03)


def test_start_vectors_for_products_of_three_are_small_whatever_their_length():
    layout = SlotLayout((FieldLayout("a", 5_000, (1,), (0,)), FieldLayout("b", 5_000, (1,), (0,))))
    factors = init_params(sf.FwFM(9, third=4), layout, np.random.default_rng(0), scale=0.2)["factors"]
    assert factors[:, :9].std() == pytest.approx(0.2 / 3, rel=0.03)
    assert factors[:, 9:].std() == pytest.approx(0.2 / 2, rel=0.03)


def test_shorter_vectors_of_a_field_are_padded_with_zeros():
    sizes = (2, 4, 1, 3)
    model = sf.FmFM(k=sizes)
    params = init_params(model, LAYOUT, np.random.default_rng(0))
    assert model.width(4) == 4
    for f, k in enumerate(sizes):
        own = params["factors"][LAYOUT.feature_ptr[f] : LAYOUT.feature_ptr[f + 1]]
        assert own[:, :k].all() and not own[:, k:].any()
        for e, other in enumerate(sizes):
            M = params["field_matrices"][f, e]
            np.testing.assert_array_equal(M[:k, :other], np.eye(k, other))
            assert not M[k:].any() and not M[:, other:].any()


@pytest.mark.parametrize("kind", [sf.FM, sf.FwFM, sf.LowRankFwFM, sf.FmFM, sf.FFM, sf.HigherOrderFM])
@pytest.mark.parametrize("k", [0, -3, 1.5, True, "8", None])
def test_a_length_that_is_no_positive_whole_number_is_refused(kind, k):
    with pytest.raises(ValueError, match="k must be an integer of at least 1, got"):
        kind(k=k)


@pytest.mark.parametrize("kind", [sf.FM, sf.FwFM, sf.LowRankFwFM, sf.FmFM, sf.FFM, sf.HigherOrderFM])
def test_a_length_may_be_a_whole_number_of_numpy(kind):
    assert kind(k=np.int64(3)).width(1) == 3


def test_other_bad_settings_are_refused():
    with pytest.raises(ValueError, match="order must be an integer of at least 2, got 1"):
        sf.HigherOrderFM(order=1)
    with pytest.raises(ValueError, match=r"order must be an integer of at least 2, got 2\.5"):
        sf.HigherOrderFM(order=2.5)
    with pytest.raises(ValueError, match="rank must be an integer of at least 1, got 0"):
        sf.LowRankFwFM(rank=0)
    for third in (-1, 2.5, True, None):
        with pytest.raises(ValueError, match=f"third must be an integer of at least 0, got {third}"):
            sf.FwFM(third=third)
    with pytest.raises(ValueError, match="k must be an integer of at least 1, got 0"):
        sf.FmFM(k=(2, 0, 3))
    with pytest.raises(ValueError, match="k has 3 entries, the schema has 4 fields"):
        init_params(sf.FmFM(k=(2, 3, 4)), LAYOUT, np.random.default_rng(0))


def test_lengths_may_be_a_list():
    assert sf.FmFM(k=[2, 3]) == sf.FmFM(k=(2, 3)) and hash(sf.FmFM(k=[2, 3])) == hash(sf.FmFM(k=(2, 3)))
