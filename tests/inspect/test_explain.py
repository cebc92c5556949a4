"""Explanations against brute force: all coalitions, all rows of the background, all values of a grid."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

import splinefm as sf
from coalitions import brute_force, scores
from splinefm.inspect import importance, terms
from support import averages, mixed_schema, mixed_table, one_of_each, random_classes, random_fitted, take_rows

MODELS = [*one_of_each(5), sf.HigherOrderFM(k=4, order=2), averages()[0], averages()[2]]
FIELDS = ("x", "kind", "tags", "z", "words")
SCHEMA = mixed_schema(FIELDS)


@pytest.fixture(scope="module")
def table():
    return mixed_table(60, names=FIELDS)


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: type(model).__name__)
def fitted(request, table):
    return random_fitted(request.param, SCHEMA, table, seed=2)


class TestEveryModel:
    def test_shapley_values_equal_the_sum_over_all_coalitions(self, fitted, table):
        background, rows = take_rows(table, range(7)), take_rows(table, range(20, 24))
        found = sf.shapley_values(fitted, rows, background)
        expected = [brute_force(fitted, take_rows(rows, [i]), background) for i in range(4)]
        np.testing.assert_allclose(found.values, expected, rtol=1e-4, atol=1e-5)
        assert found.fields == FIELDS

    def test_shapley_values_add_up_to_the_score(self, fitted, table):
        background = take_rows(table, range(25))
        found = sf.shapley_values(fitted, table, background)
        assert found.base == pytest.approx(scores(fitted, background).mean(), rel=1e-5)
        np.testing.assert_allclose(found.scores, scores(fitted, table), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.scores, fitted.scores(table), rtol=1e-4, atol=1e-5)

    def test_their_mean_over_the_background_is_zero(self, fitted, table):
        values = sf.shapley_values(fitted, table, table).values
        np.testing.assert_allclose(values.mean(axis=0), 0.0, atol=1e-6)

    def test_a_row_compared_with_itself_has_none(self, fitted, table):
        row = take_rows(table, [3])
        np.testing.assert_allclose(sf.shapley_values(fitted, row, row).values, 0.0, atol=1e-5)

    @pytest.mark.parametrize(
        ("name", "grid"),
        [
            ("x", [0.0, -3.0, None, 0.2, 0.9, 50.0]),
            ("kind", ["u", "w", None, "never seen"]),
            ("tags", [["a"], [], None, ["b", "d"]]),
            ("z", np.linspace(-2, 2, 5)),
            ("words", [["a"], ["c", "b"], []]),
        ],
    )
    def test_curves_are_scores_with_one_field_set(self, fitted, table, name, grid):
        expected = np.array([scores(fitted, {**table, name: [value] * 60}) for value in grid]).T
        curves = sf.ice_curves(fitted, table, name, grid)
        np.testing.assert_allclose(curves, expected, rtol=1e-4, atol=1e-5)
        dependence = sf.partial_dependence(fitted, name, grid, table)
        np.testing.assert_allclose(dependence, expected.mean(axis=0), rtol=1e-4, atol=1e-5)

    def test_effects_add_up_to_the_score(self, fitted, table):
        parts = sf.decompose(fitted, table, take_rows(table, range(25)))
        np.testing.assert_allclose(parts.scores, scores(fitted, table), rtol=1e-4, atol=1e-5)

    def test_effects_have_mean_zero_under_independent_fields(self, fitted, table):
        background = take_rows(table, range(12))
        parts = sf.decompose(fitted, background, background)
        np.testing.assert_allclose(parts.main.mean(axis=0), 0.0, atol=1e-5)
        for one, other in (("x", "z"), ("kind", "words"), ("z", "words")):
            # A pair effect, with one of its fields fixed, has mean zero over the other.
            pairs = np.array(list(itertools.product(range(12), range(12))))
            crossed = take_rows(background, pairs[:, 0])
            crossed[other] = take_rows(background, pairs[:, 1])[other]
            effect = sf.decompose(fitted, crossed, background).pair(one, other).reshape(12, 12)
            np.testing.assert_allclose(effect.mean(axis=0), 0.0, atol=1e-5)
            np.testing.assert_allclose(effect.mean(axis=1), 0.0, atol=1e-5)
            assert np.abs(effect).max() > 0.01

    def test_the_main_effect_is_the_centered_dependence_where_fields_are_independent(self, fitted, table):
        one = take_rows(table, range(4))
        rows = np.array(list(itertools.product(range(4), repeat=5)))
        product = {name: [one[name][i] for i in rows[:, f]] for f, name in enumerate(FIELDS)}
        parts = sf.decompose(fitted, one, product)
        for f, name in enumerate(FIELDS):
            curve = sf.partial_dependence(fitted, name, one[name], product)
            np.testing.assert_allclose(parts.main[:, f], curve - parts.intercept, rtol=1e-4, atol=1e-4)
        assert parts.intercept == pytest.approx(scores(fitted, product).mean(), rel=1e-4, abs=1e-5)

    def test_importance_is_made_of_the_effects(self, fitted, table):
        found, parts = sf.importance(fitted, table), sf.decompose(fitted, table, table)
        np.testing.assert_allclose(found.main, parts.main.std(axis=0), rtol=1e-6)
        np.testing.assert_allclose(found.shapley, np.abs(sf.shapley_values(fitted, table, table).values).mean(axis=0))
        np.testing.assert_allclose(found.pairs[1, 3], parts.pair("kind", "z").std(), rtol=1e-6)
        np.testing.assert_array_equal(found.pairs, found.pairs.T)
        assert not found.pairs.diagonal().any()

    def test_neither_threads_nor_blocks_change_anything(self, fitted, table, monkeypatch):
        many = take_rows(table, np.arange(1100) % 60)
        once = sf.shapley_values(fitted, many, table, threads=1).values
        np.testing.assert_array_equal(once, sf.shapley_values(fitted, many, table, threads=2).values)
        np.testing.assert_array_equal(
            sf.decompose(fitted, many, table, threads=1).pairs, sf.decompose(fitted, many, table, threads=2).pairs
        )
        curves = sf.ice_curves(fitted, many, "x", [0.1, None], threads=1)
        found = sf.importance(fitted, many, table)
        monkeypatch.setattr(terms, "BLOCK_BYTES", 1 << 12)
        monkeypatch.setattr(importance, "EFFECT_ROWS", 100)
        monkeypatch.setattr("splinefm.model.family.parameters._BLOCK_SIZE", 8)
        np.testing.assert_allclose(
            curves, sf.ice_curves(fitted, many, "x", [0.1, None], threads=2), rtol=1e-9, atol=1e-12
        )
        np.testing.assert_allclose(found.pairs, sf.importance(fitted, many, table).pairs, rtol=1e-6)

    def test_slots_and_a_prepared_background_do_the_same_as_tables(self, fitted, table):
        background = sf.Background.of(fitted, table)
        slots = fitted.encoder.encode(table)
        expected = sf.shapley_values(fitted, table, table)
        np.testing.assert_array_equal(sf.shapley_values(fitted, slots, background).values, expected.values)
        curve = sf.partial_dependence(fitted, "x", [0.1, 0.5], background)
        np.testing.assert_array_equal(curve, sf.partial_dependence(fitted, "x", [0.1, 0.5], slots))

    def test_no_rows_and_no_values_give_empty_arrays(self, fitted, table):
        assert sf.shapley_values(fitted, take_rows(table, []), table).values.shape == (0, 5)
        assert sf.decompose(fitted, take_rows(table, []), table).pairs.shape == (0, 10)
        assert sf.ice_curves(fitted, table, "z", []).shape == (60, 0)
        assert sf.partial_dependence(fitted, "z", [], table).shape == (0,)


@pytest.mark.thorough  # shap compiles functions of its own for ten seconds; test_..._all_coalitions is always run
def test_shapley_values_equal_those_of_the_shap_package():
    # One test for all models: what shap compiles takes several seconds in every process.
    shap = pytest.importorskip("shap")
    rng = np.random.default_rng(3)
    X = np.column_stack([rng.normal(size=(40, 3)), rng.integers(0, 4, 40), rng.random(40)])
    X[::7, 0] = np.nan
    schema = sf.Schema(
        [
            sf.Numerical("x0", sf.MinMax(), sf.BSpline(4)),
            sf.Numerical("x1", sf.MinMax(), sf.BSpline(4), reduction="identity"),
            sf.Numerical("x2", sf.Quantile()),
            sf.Categorical("c"),
            sf.Numerical("x3", sf.MinMax(), sf.Bins(3)),
        ]
    )

    def as_table(array):
        return dict(zip(schema.names, array.T, strict=True))

    masker = shap.maskers.Independent(X[:15], max_samples=15)
    for model in MODELS:
        fitted = random_fitted(model, schema, as_table(X))

        def score(array, fitted=fitted):
            return scores(fitted, as_table(array))

        theirs = shap.explainers.ExactExplainer(score, masker)(X[20:28], silent=True)
        ours = sf.shapley_values(fitted, as_table(X[20:28]), as_table(X[:15]))
        np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-4, atol=1e-5, err_msg=str(model))
        np.testing.assert_allclose(ours.base, theirs.base_values, rtol=1e-4, atol=1e-5, err_msg=str(model))


@pytest.mark.parametrize("model", [sf.FM(4), sf.FwFM(4), sf.FmFM(4), sf.FFM(4)], ids=lambda model: type(model).__name__)
def test_a_single_field(model):
    table = {"z": [0.1, 0.4, None, 2.0]}
    fitted = random_fitted(model, sf.Schema([sf.Numerical("z", sf.MinMax(), reduction="identity")]), table)
    found = sf.shapley_values(fitted, table, table)
    np.testing.assert_allclose(found.scores, scores(fitted, table), rtol=1e-5, atol=1e-6)
    parts = sf.decompose(fitted, table, table)
    assert parts.pairs.shape == (4, 0)
    np.testing.assert_allclose(parts.main, found.values, atol=1e-6)
    assert "pair" not in str(sf.importance(fitted, table))


def test_fields_that_do_nothing_are_told_from_those_that_do():
    rng = np.random.default_rng(5)
    rows = {name: list(rng.random(800)) for name in ("one", "two", "idle")}
    schema = sf.Schema([sf.Numerical(name, sf.MinMax(), sf.BSpline(4)) for name in rows])
    fitted = random_fitted(sf.FM(k=4), schema, rows)
    first = fitted.encoder.layout.feature_ptr[2]
    for name in ("factors", "linear"):
        fitted.params[name][first:] = 0.0
    found = sf.importance(fitted, rows)
    assert found.shapley[2] == found.main[2] == found.pairs[2].max() == 0.0
    assert found.ranked_fields()[-1] == ("idle", 0.0)
    assert found.ranked_pairs()[0][:2] == ("one", "two")
    text = str(found).splitlines()
    assert text[0].split() == ["field", "mean", "|Shapley|", "main", "effect"]
    assert text[3].split() == ["idle", "0", "0"]
    assert text[6].startswith("one × two")


@pytest.fixture(scope="module")
def higher(table):
    return random_fitted(sf.HigherOrderFM(k=4, order=4), SCHEMA, table)


class TestMoreThanThree:
    def test_curves_are_exact(self, higher, table):
        grid = [0.0, None, 0.3]
        expected = np.array([scores(higher, {**table, "x": [value] * 60}) for value in grid]).T
        np.testing.assert_allclose(sf.ice_curves(higher, table, "x", grid), expected, rtol=1e-4, atol=1e-5)
        dependence = sf.partial_dependence(higher, "x", grid, table)
        np.testing.assert_allclose(dependence, expected.mean(axis=0), rtol=1e-4, atol=1e-5)
        assert sf.ice_curves(higher, table, "x", []).shape == (60, 0)

    @pytest.mark.parametrize(
        "call",
        [
            lambda fitted, table: sf.shapley_values(fitted, table, table),
            lambda fitted, table: sf.decompose(fitted, table, table),
            lambda fitted, table: sf.importance(fitted, table),
            lambda fitted, table: sf.Background.of(fitted, table),
        ],
    )
    def test_what_is_not_available_says_so(self, higher, table, call):
        with pytest.raises(ValueError, match=r"not available for HigherOrderFM\(k=4, order=4\).*partial_dependence"):
            call(higher, table)


@pytest.fixture(scope="module")
def small(table):
    return random_fitted(sf.FM(k=4), SCHEMA, table)


class TestBadInput:
    def test_unknown_fields(self, small, table):
        with pytest.raises(ValueError, match=r"no field 'kinds' in the model; nearest: 'kind'"):
            sf.partial_dependence(small, "kinds", ["u"], table)
        with pytest.raises(ValueError, match=r"no field 'y' in the model"):
            sf.ice_curves(small, table, "y", [1.0])
        parts = sf.decompose(small, table, table)
        with pytest.raises(ValueError, match=r"no field 'w' in the model"):
            parts.pair("x", "w")
        with pytest.raises(ValueError, match=r"two different fields, got 'x' twice"):
            parts.pair("x", "x")

    def test_an_empty_background(self, small, higher, table):
        for call in (sf.shapley_values, sf.decompose, sf.importance):
            with pytest.raises(ValueError, match=r"background has no rows"):
                call(small, table, take_rows(table, []))
        with pytest.raises(ValueError, match=r"background has no rows"):
            sf.partial_dependence(small, "x", [0.5], take_rows(table, []))
        with pytest.raises(ValueError, match=r"background has no rows"):
            sf.partial_dependence(higher, "x", [0.5], take_rows(table, []))

    def test_importance_of_no_rows(self, small, table):
        with pytest.raises(ValueError, match=r"the table has no rows"):
            sf.importance(small, take_rows(table, []), table)

    def test_a_table_without_a_column(self, small, table):
        with pytest.raises(ValueError, match=r"no column 'z' in the table"):
            sf.shapley_values(small, {name: table[name] for name in FIELDS if name != "z"}, table)

    def test_a_grid_of_another_type(self, small, table):
        with pytest.raises(ValueError, match="'x'"):
            sf.partial_dependence(small, "x", ["a"], table)

    def test_slots_and_backgrounds_of_another_model(self, small, table):
        other = random_fitted(sf.FM(k=4), sf.Schema([sf.Numerical("z")]), table)
        with pytest.raises(ValueError, match="another encoder"):
            sf.shapley_values(small, other.encoder.encode(table), table)
        with pytest.raises(ValueError, match="another model"):
            sf.shapley_values(replace(small, params=dict(small.params)), table, sf.Background.of(small, table))

    def test_threads(self, small, table):
        with pytest.raises(ValueError, match="threads must be at least 1"):
            sf.shapley_values(small, table, table, threads=0)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_every_class_has_shapley_values_of_its_own_score(model, table):
    background, rows = take_rows(table, range(7)), take_rows(table, range(20, 22))
    several = random_classes(model, SCHEMA, table)
    for label in several.classes:
        one = several.for_class(label)
        found = sf.shapley_values(one, rows, background)
        expected = [brute_force(one, take_rows(rows, [i]), background) for i in range(2)]
        np.testing.assert_allclose(found.values, expected, rtol=1e-4, atol=1e-5)
        total = found.base + found.values.sum(axis=1)
        np.testing.assert_allclose(total, several.scores(rows)[:, several.classes.index(label)], rtol=1e-4, atol=1e-5)
