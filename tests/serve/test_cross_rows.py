"""Crosses in single rows: the encoder and the formula in float64 are the oracle."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.plans import RowFields
from splinefm.model.family.formula import formula_scores
from support import CROSSES, cross_schema, cross_table, examples, one_of_each, random_fitted

N_FIELDS = len(cross_schema().fields)


def rows_of(table):
    return [dict(zip(table, values, strict=True)) for values in zip(*table.values(), strict=True)]


def made(kinds, model=0, seed=1):
    models = one_of_each(N_FIELDS + len(kinds))
    return random_fitted(models[model], cross_schema(*kinds), cross_table(200), seed=seed, scale=0.4)


@pytest.mark.parametrize("kind", CROSSES)
class TestEveryKind:
    def test_scores_are_those_of_the_formula(self, kind):
        fitted = made([kind])
        table = cross_table(150, 3, strange=True)
        scorer = fitted.scorer()
        assert scorer.slow_fields == ()
        slots = fitted.encoder.encode(table)
        expected = formula_scores(fitted.model, fitted.params, slots)
        np.testing.assert_allclose(scorer.many(rows_of(table)), expected, atol=1e-5)
        np.testing.assert_allclose(fitted.scores(table), expected, atol=1e-5)

    def test_features_and_weights_are_those_of_the_encoder(self, kind):
        fitted = made([kind])
        cross, first = fitted.encoder.fields[-1], int(fitted.encoder.layout.feature_ptr[-2])
        fields = RowFields([cross], [first])
        table = cross_table(100, 5, strange=True)
        slots = fitted.encoder.encode(table)
        weights = np.zeros((100, fitted.encoder.layout.n_features))
        at, last = fitted.encoder.layout.weight_ptr, fitted.encoder.layout.window_ptr
        for w in range(last[-2], last[-1]):
            for j in range(at[w + 1] - at[w]):
                np.add.at(weights, (np.arange(100), slots.start[:, w] + j), slots.weight[:, at[w] + j])
        some = 0
        for row, expected in zip(rows_of(table), weights, strict=True):
            features, found, ends, owners = fields.encoder.encode(row, fields.columns, fields.readers)
            actual = np.zeros_like(expected)
            np.add.at(actual, features, found)
            np.testing.assert_allclose(actual, expected, atol=1e-6)
            assert owners.tolist() == [0] * (len(ends) - 1)
            some += len(features) > 0
        assert 20 < some <= 100


@examples(40)
@given(st.lists(st.sampled_from(sorted(CROSSES)), unique=True, max_size=3), st.integers(0, 6), st.integers(0, 9))
def test_any_model_with_any_crosses(kinds, model, seed):
    fitted = made(kinds, model, seed)
    table = cross_table(30, seed, strange=True)
    np.testing.assert_allclose(fitted.scorer().many(rows_of(table)), fitted.scores(table), atol=1e-5, rtol=1e-5)


def test_a_part_may_be_no_field_of_the_model():
    schema = sf.Schema([sf.Categorical("kind"), sf.Cross(sf.Categorical("user"), sf.Numerical("z"), min_count=1)])
    table = cross_table(60)
    fitted = random_fitted(sf.FM(k=4), schema, table)
    scorer = fitted.scorer()
    np.testing.assert_allclose(scorer.many(rows_of(table)), fitted.scores(table), atol=1e-5)
    with pytest.raises(ValueError, match=r"no column 'user'|'user'"):
        scorer({"kind": "u", "z": 1.0})


def test_more_features_in_a_part_than_in_the_model():
    n = 60
    table = {"user": [f"u{i}" for i in range(n)], "kind": ["a"] * n, "x": [0.0, 1.0] * (n // 2)}
    table["user"][-20:] = ["often"] * 20
    cross = sf.Cross(sf.Categorical("user", values="numbers"), sf.Categorical("kind"), min_count=10)
    fitted = random_fitted(sf.FM(k=4), sf.Schema([cross]), table)
    assert fitted.encoder.layout.n_features == 1
    np.testing.assert_allclose(fitted.scorer().many(rows_of(table)), fitted.scores(table), atol=1e-6)


def test_no_combination_is_frequent():
    cross = sf.Cross(sf.Categorical("user"), sf.Categorical("kind"), min_count=1000)
    fitted = random_fitted(sf.FM(k=4), sf.Schema([cross]), cross_table(50))
    np.testing.assert_allclose(fitted.scorer()({"user": "1", "kind": "u"}), fitted.params["bias"][0], atol=1e-6)


def test_a_custom_basis_is_read_by_python():
    part = sf.Numerical("z", sf.MinMax(), sf.CustomBasis((np.ones_like, np.sin)))
    fitted = random_fitted(sf.FM(k=4), sf.Schema([sf.Cross(sf.Categorical("kind"), part)]), cross_table(80))
    table = cross_table(40, 2, strange=True)
    scorer = fitted.scorer()
    assert scorer.slow_fields == ("kind × z",)
    np.testing.assert_allclose(scorer.many(rows_of(table)), fitted.scores(table), atol=1e-5)


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        (sf.Numerical("z", missing="error"), None, "'z' has missing values"),
        (sf.Numerical("z"), float("inf"), "'z' holds inf"),
        (sf.Numerical("z"), "much", "'z'"),
        (sf.Categorical("z", unseen="error"), "never", "unseen category 'never'"),
        (sf.Categorical("z", unseen="error", values="text"), "never", "unseen category 'never'"),
        (sf.Categorical("z", missing="error"), None, "'z' has missing values"),
    ],
)
def test_what_a_part_refuses(part, value, message):
    table = {"z": [1.0, 2.0, 3.0] * 10, "kind": ["u", "v"] * 15}
    fitted = random_fitted(sf.FM(k=4), sf.Schema([sf.Cross(part, sf.Categorical("kind"), min_count=1)]), table)
    scorer = fitted.scorer()
    for kind in ("u", "never"):
        with pytest.raises(ValueError, match=message):
            scorer({"z": value, "kind": kind})
    with pytest.raises(ValueError, match=message):
        scorer.many([{"z": 1.0, "kind": "u"}, {"z": value, "kind": "u"}])
