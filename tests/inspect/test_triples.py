"""Products of three units: explanations of models of order 3 against brute force, and the effects of triples."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from coalitions import brute_force, scores
from splinefm.inspect import importance, terms
from splinefm.model.towers import symmetric_sums
from support import all_models, averages, examples, mixed_schema, mixed_table, random_fitted, random_params, take_rows

NAMES = ("kind", "z", "words", "x")
GRIDS = {"kind": ["u", None], "z": [0.3, None], "words": [["a", "c"], []], "x": [0.0, 0.4]}


@pytest.mark.parametrize("model", [*all_models(4), *averages()], ids=str)
def test_a_model_of_order_3_is_its_pairs_and_its_triples(model):
    table = mixed_table(10, names=NAMES)
    layout = sf.fit_encoder(mixed_schema(NAMES), table).layout
    n_fields, params = len(layout.fields), random_params(model, layout, 3)
    P = np.random.default_rng(0).normal(size=(5, layout.n_units, model.width(n_fields)))
    pairs = model.pair_model
    expected = pairs.interaction(P[..., : pairs.width(n_fields)], params, layout.unit_field)
    if model.order > 2:
        expected = expected + model.product_weight * symmetric_sums(P[..., model.product_columns], 3)[3].sum(axis=1)
    if model.order <= 3:
        np.testing.assert_allclose(model.interaction(P, params, layout.unit_field), expected)


@given(data=st.data())
@examples(60)
def test_explanations_of_any_small_model_equal_brute_force(data):
    names = data.draw(st.permutations(NAMES))[: data.draw(st.integers(1, 4))]
    k, third = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 4))
    members = data.draw(st.integers(1, 3))
    higher = [sf.HigherOrderFM(members * k, order, members) for order in (2, 3)]
    model = data.draw(st.sampled_from([*higher, sf.FwFM(k, third)]))
    table = mixed_table(12, data.draw(st.integers(0, 99)), names=tuple(names))
    fitted = random_fitted(model, mixed_schema(names), table, seed=data.draw(st.integers(0, 99)))
    background = take_rows(table, range(data.draw(st.integers(1, 6))))
    rows = take_rows(table, [8, 9])
    found = sf.shapley_values(fitted, rows, background)
    expected = [brute_force(fitted, take_rows(rows, [i]), background) for i in range(2)]
    np.testing.assert_allclose(found.values, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.base, scores(fitted, background).mean(), rtol=1e-5, atol=1e-6)
    parts = sf.decompose(fitted, rows, background)
    np.testing.assert_allclose(parts.scores, scores(fitted, rows), rtol=1e-4, atol=1e-5)
    grid = GRIDS[names[0]]
    n = len(background[names[0]])
    curve = [scores(fitted, {**background, names[0]: [value] * n}).mean() for value in grid]
    np.testing.assert_allclose(sf.partial_dependence(fitted, names[0], grid, background), curve, rtol=1e-4, atol=1e-5)


@pytest.fixture(scope="module")
def table():
    return mixed_table(60, names=NAMES)


@pytest.fixture(scope="module")
def fitted(table):
    return random_fitted(sf.HigherOrderFM(k=3, order=3), mixed_schema(NAMES), table, seed=2, scale=2.0)


def test_effects_of_triples_have_mean_zero_over_each_of_their_fields(fitted, table):
    background = take_rows(table, range(5))
    rows = np.array(list(itertools.product(range(5), repeat=4)))
    product = {name: [background[name][i] for i in rows[:, f]] for f, name in enumerate(NAMES)}
    parts = sf.decompose(fitted, product, background)
    assert parts.triple_fields == tuple(itertools.combinations(NAMES, 3))
    for names in parts.triple_fields:
        effect = parts.triple(*names[::-1]).reshape(5, 5, 5, 5)
        assert np.abs(effect).max() > 0.01
        for axis in range(4):
            if NAMES[axis] in names:
                np.testing.assert_allclose(effect.mean(axis=axis), 0.0, atol=1e-5)
            else:
                np.testing.assert_allclose(np.ptp(effect, axis=axis), 0.0, atol=1e-5)
    for one, other in itertools.combinations(NAMES, 2):
        effect = parts.pair(one, other).reshape(5, 5, 5, 5)
        np.testing.assert_allclose(effect.mean(axis=NAMES.index(one)), 0.0, atol=1e-5)
        np.testing.assert_allclose(effect.mean(axis=NAMES.index(other)), 0.0, atol=1e-5)


def test_shapley_values_are_made_of_effects_where_fields_are_independent(fitted, table):
    """A field gets its main effect, half of its pairs and a third of its triples."""
    values = take_rows(table, range(4))
    rows = np.array(list(itertools.product(range(4), repeat=4)))
    product = {name: [values[name][i] for i in rows[:, f]] for f, name in enumerate(NAMES)}
    parts, found = sf.decompose(fitted, values, product), sf.shapley_values(fitted, values, product)
    for f, name in enumerate(NAMES):
        pairs = [parts.pair(*names) for names in parts.pair_fields if name in names]
        triples = [parts.triple(*names) for names in parts.triple_fields if name in names]
        expected = parts.main[:, f] + sum(pairs) / 2 + sum(triples) / 3
        np.testing.assert_allclose(found.values[:, f], expected, rtol=1e-4, atol=1e-4)


def test_importance_ranks_the_triples_of_the_strongest_fields(fitted, table, monkeypatch):
    found, parts = sf.importance(fitted, table), sf.decompose(fitted, table, table)
    assert set(found.triples) == set(parts.triple_fields)
    for names, value in found.triples.items():
        assert value == pytest.approx(parts.triple(*names).std(), rel=1e-6)
    ranked = found.ranked_triples()
    assert [value for *_, value in ranked] == sorted(found.triples.values(), reverse=True)
    assert "three fields" in str(found) and " × ".join(ranked[0][:3]) in str(found)
    monkeypatch.setattr(importance, "MAX_TRIPLE_FIELDS", 3)
    strongest = {name for name, _ in found.ranked_fields()[:3]}
    assert [set(names) for names in sf.importance(fitted, table).triples] == [strongest]


def test_neither_threads_nor_blocks_change_anything(fitted, table, monkeypatch):
    many = take_rows(table, np.arange(700) % 60)
    once, parts = sf.shapley_values(fitted, many, table, threads=1), sf.decompose(fitted, many, table, threads=1)
    monkeypatch.setattr(terms, "BLOCK_SIZE", 1 << 10)
    again, more = sf.shapley_values(fitted, many, table, threads=2), sf.decompose(fitted, many, table, threads=2)
    np.testing.assert_allclose(once.values, again.values, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(parts.triples, more.triples, rtol=1e-9, atol=1e-12)


def test_models_of_order_2_have_no_triples(table):
    fitted = random_fitted(sf.FM(k=3), mixed_schema(NAMES), table)
    parts = sf.decompose(fitted, table, table)
    assert parts.triples.shape == (60, 0) and parts.triple_fields == ()
    np.testing.assert_array_equal(parts.triple("x", "z", "kind"), np.zeros(60))
    assert sf.importance(fitted, table).triples == {}


def test_triples_of_unknown_or_equal_fields(fitted, table):
    parts = sf.decompose(fitted, table, table)
    with pytest.raises(ValueError, match="no field 'kinds' in the model; nearest: 'kind'"):
        parts.triple("x", "z", "kinds")
    with pytest.raises(ValueError, match="three different fields, got 'x', 'z' and 'x'"):
        parts.triple("x", "z", "x")


def test_effects_that_do_not_fit_into_memory(fitted, table, monkeypatch):
    slots = fitted.encoder.encode(table)
    background = sf.Background.of(fitted, slots)
    monkeypatch.setattr("splinefm._memory.SMALL", 0)
    monkeypatch.setattr("splinefm._memory.free_memory", lambda: 100)
    with pytest.raises(ValueError, match=r"the effects of 4 triples of fields on 60 rows.*decompose fewer rows"):
        sf.decompose(fitted, slots, background)
