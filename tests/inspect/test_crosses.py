"""Explanations of models with crosses, by column: against the worth of all coalitions of columns."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from coalitions import brute_force, scores, worths
from splinefm.inspect import cross_terms as crosses
from splinefm.inspect import importance, shapley
from support import examples, random_fitted, take_rows

COLUMNS = ("a", "b", "x", "y", "c")
SINGLES = (
    sf.Categorical("a"),
    sf.Categorical("b"),
    sf.Numerical("x", sf.MinMax(), sf.BSpline(4), special=[0.5]),
    sf.Numerical("y", sf.MinMax(), sf.BSpline(3), reduction="identity"),
    sf.Categorical("c"),
)
CROSSES = {
    "category and category": sf.Cross("a", "b", min_count=3),
    "category and number": sf.Cross("a", "x", segments=2, min_count=1),
    "number and number": sf.Cross("x", "y", segments=(1, 3)),
    "two categories and a number": sf.Cross("a", "b", "y", segments=2, degree=1, min_count=1),
    "three numbers, one of its own": sf.Cross("x", "y", sf.Numerical("w", sf.MinMax(), sf.BSpline(2), column="x")),
    "buckets": sf.Cross("b", "c", buckets=3),
    "three categories": sf.Cross("a", "b", "c", min_count=2),
    "values of a number": sf.Cross(sf.Categorical("x"), min_count=2),
}
MODELS = (
    sf.FM(k=3),
    sf.FwFM(k=4),
    sf.LowRankFwFM(k=3, rank=2),
    sf.FmFM(k=2),
    sf.FFM(k=2),
    sf.HigherOrderFM(k=2, order=2),
    sf.HigherOrderFM(k=3, order=3),
    sf.HigherOrderFM(k=4, order=3, members=2),
    sf.FwFM(k=2, third=3),
)


def make_table(n, seed=0):
    """Return rows with correlated columns, missing values, a special value, and categories that are rare."""
    rng = np.random.default_rng(seed)
    x = rng.random(n).round(2)
    return {
        "a": [["u", "v", "w", None][int(i)] for i in rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1])],
        "b": ["p" if value + rng.random() > 0.9 else "q" for value in x],
        "x": [None if rng.random() < 0.1 else [0.5, float(value)][int(rng.random() < 0.9)] for value in x],
        "y": [float(value + rng.normal()) for value in x],
        "c": [str(i) for i in rng.integers(0, 3, n)],
    }


def make_fitted(model, chosen, table, seed=0):
    schema = sf.Schema([*SINGLES, *(CROSSES[name] for name in chosen)])
    return random_fitted(model, schema, table, seed=seed, scale=1.5)


@given(data=st.data())
@examples(40)
def test_explanations_by_column_equal_brute_force(data):
    chosen = data.draw(st.lists(st.sampled_from(sorted(CROSSES)), min_size=1, max_size=3, unique=True))
    table = make_table(40, data.draw(st.integers(0, 99)))
    fitted = make_fitted(data.draw(st.sampled_from(MODELS)), chosen, table, data.draw(st.integers(0, 99)))
    others, rows = take_rows(table, range(data.draw(st.integers(1, 6)))), take_rows(table, [30, 31])
    found = sf.shapley_values(fitted, rows, others)
    assert found.fields == COLUMNS
    expected = [brute_force(fitted, take_rows(rows, [i]), others) for i in range(2)]
    np.testing.assert_allclose(found.values, expected, rtol=1e-4, atol=1e-5)
    assert found.base == pytest.approx(scores(fitted, others).mean(), rel=1e-5, abs=1e-5)
    np.testing.assert_allclose(found.scores, scores(fitted, rows), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(sf.decompose(fitted, rows, others).scores, found.scores, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_effects_are_those_of_all_coalitions_where_columns_are_independent(model):
    """What a coalition is worth is the sum of the effects of its subsets."""
    table = make_table(40)
    fitted = make_fitted(model, ["category and category", "number and number"], table)
    values, row = take_rows(table, [3, 7]), take_rows(table, [20])
    every = np.array(list(itertools.product(range(2), repeat=len(COLUMNS))))
    product = {name: [values[name][i] for i in every[:, f]] for f, name in enumerate(COLUMNS)}
    parts, worth = sf.decompose(fitted, row, product), worths(fitted, row, product)

    def effect(*names):
        subsets = (subset for size in range(len(names) + 1) for subset in itertools.combinations(names, size))
        return sum((-1) ** (len(names) - len(subset)) * worth[subset] for subset in subsets)

    assert parts.intercept == pytest.approx(worth[()], rel=1e-4, abs=1e-5)
    np.testing.assert_allclose(parts.main[0], [effect(name) for name in COLUMNS], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(parts.pairs[0], [effect(*pair) for pair in parts.pair_fields], rtol=1e-4, atol=1e-4)
    triples = list(itertools.combinations(COLUMNS, 3))
    found = [parts.triple(*names)[0] for names in triples]
    np.testing.assert_allclose(found, [effect(*names) for names in triples], rtol=1e-4, atol=1e-4)
    beyond = sum(effect(*names) for size in (4, 5) for names in itertools.combinations(COLUMNS, size))
    assert parts.beyond[0] == pytest.approx(beyond, rel=1e-4, abs=1e-4)
    assert abs(beyond) > 1e-3
    shapley = sf.shapley_values(fitted, row, product)
    np.testing.assert_allclose(shapley.values[0], brute_force(fitted, row, product), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("model", [*MODELS[:1], *MODELS[-1:], sf.HigherOrderFM(k=2, order=4)], ids=str)
@pytest.mark.parametrize(
    ("name", "grid"), [("a", ["u", None, "new"]), ("x", [0.5, None, 0.31, 7.0]), ("y", [0.0, -1.0]), ("c", ["1"])]
)
def test_curves_are_scores_with_one_column_set(model, name, grid):
    table = make_table(40)
    fitted = make_fitted(model, ["category and number", "number and number", "three categories"], table)
    expected = np.array([scores(fitted, {**table, name: [value] * 40}) for value in grid]).T
    np.testing.assert_allclose(sf.ice_curves(fitted, table, name, grid), expected, rtol=1e-4, atol=1e-5)
    dependence = sf.partial_dependence(fitted, name, grid, table)
    np.testing.assert_allclose(dependence, expected.mean(axis=0), rtol=1e-4, atol=1e-5)
    assert sf.partial_dependence(fitted, name, [], table).shape == (0,)
    assert sf.ice_curves(fitted, table, name, []).shape == (40, 0)


def dated_table():
    """Return rows with a date."""
    rng = np.random.default_rng(1)
    dates = np.datetime64("2024-01-01T00:00") + rng.integers(0, 60 * 24 * 90, 30) * np.timedelta64(1, "m")
    return {
        "c": [str(i) for i in rng.integers(0, 3, 30)],
        "at": [str(date) for date in dates],
        "z": rng.random(30).tolist(),
    }


DATED = dated_table()


class TestColumnsOfSeveralFields:
    """The parts of a date are one column: one player, if the model has crosses."""

    def make(self, model, *parts):
        singles = [sf.Categorical("c"), sf.Timestamp("at", parts=["hour", "weekday"]), sf.Numerical("z", sf.MinMax())]
        return random_fitted(model, sf.Schema([*singles, sf.Cross(*parts, segments=3, min_count=1)]), DATED, scale=1.5)

    @pytest.mark.parametrize("model", [sf.FwFM(k=2), sf.HigherOrderFM(k=2, order=3), sf.FwFM(k=2, third=2)], ids=str)
    @pytest.mark.parametrize("parts", [("c", "at.hour"), ("at.hour", "at.weekday"), ("c", "at.hour", "at.weekday")])
    def test_they_are_one_player(self, model, parts):
        fitted = self.make(model, *parts)
        others, row = take_rows(DATED, range(5)), take_rows(DATED, [20])
        found = sf.shapley_values(fitted, row, others)
        assert found.fields == ("c", "at", "z")
        np.testing.assert_allclose(found.values[0], brute_force(fitted, row, others), rtol=1e-4, atol=1e-5)
        parts = sf.decompose(fitted, row, others)
        np.testing.assert_allclose(parts.scores, scores(fitted, row), rtol=1e-4, atol=1e-5)
        assert parts.pair_fields == (("c", "at"), ("c", "z"), ("at", "z"))

    @pytest.mark.parametrize("parts", [("c", "at.hour"), ("at.hour", "at.weekday")])
    def test_curves_follow_a_column_or_one_of_its_parts(self, parts):
        fitted = self.make(sf.FM(k=2), *parts)
        grid = ["2024-02-03T17:30", "2024-03-09T01:00"]
        expected = np.array([scores(fitted, {**DATED, "at": [value] * 30}) for value in grid]).T
        np.testing.assert_allclose(sf.ice_curves(fitted, DATED, "at", grid), expected, rtol=1e-4, atol=1e-5)
        by_hour = sf.ice_curves(fitted, DATED, "at.hour", [17.5])
        moved = {**DATED, "at": [value[:11] + "17:30" for value in DATED["at"]]}
        np.testing.assert_allclose(by_hour[:, 0], scores(fitted, moved), rtol=1e-4, atol=1e-5)

    def test_without_crosses_every_part_is_a_player(self):
        schema = sf.Schema([sf.Categorical("c"), sf.Timestamp("at", parts=["hour", "weekday"])])
        fitted = random_fitted(sf.FM(k=2), schema, DATED)
        assert sf.shapley_values(fitted, DATED, DATED).fields == ("c", "at.hour", "at.weekday")


@pytest.fixture(scope="module")
def table():
    return make_table(60)


@pytest.fixture(scope="module")
def fitted(table):
    return make_fitted(sf.FwFM(k=3), ["category and category", "number and number"], table)


def test_columns_that_only_a_cross_reads(table):
    own = sf.Cross(sf.Categorical("a"), sf.Numerical("x", sf.MinMax(), sf.BSpline(2)), min_count=1)
    fitted = random_fitted(sf.FFM(k=2), sf.Schema([sf.Categorical("c"), own]), table, scale=1.5)
    row, others = take_rows(table, [20], ("c", "a", "x")), take_rows(table, range(5))
    found = sf.shapley_values(fitted, row, others)
    assert found.fields == ("c", "a", "x")
    np.testing.assert_allclose(found.values[0], brute_force(fitted, row, others), rtol=1e-4, atol=1e-5)
    curve = [scores(fitted, {**table, "x": [value] * 60}).mean() for value in (0.1, None)]
    np.testing.assert_allclose(sf.partial_dependence(fitted, "x", [0.1, None], table), curve, rtol=1e-4, atol=1e-5)


def test_importance_is_made_of_shapley_values_and_effects(fitted, table):
    found, parts = sf.importance(fitted, table), sf.decompose(fitted, table, table)
    np.testing.assert_allclose(found.shapley, np.abs(sf.shapley_values(fitted, table, table).values).mean(axis=0))
    np.testing.assert_allclose(found.main, parts.main.std(axis=0), rtol=1e-6)
    np.testing.assert_allclose(found.pairs[0, 1], parts.pair("a", "b").std(), rtol=1e-6)
    assert set(found.triples) == set(parts.triple_fields)
    for names, value in found.triples.items():
        assert value == pytest.approx(parts.triple(*names).std(), rel=1e-6)
    assert "a × b × c" in str(found)


class TestBackgrounds:
    def test_a_sample_represents_a_large_one(self, fitted, table):
        few = sf.Background.of(fitted, table, rows=10)
        spaced = take_rows(table, np.linspace(0, 59, 10).astype(int))
        assert few.n_rows == 10
        assert few.base == pytest.approx(scores(fitted, spaced).mean(), rel=1e-5)
        expected = sf.shapley_values(fitted, table, spaced)
        np.testing.assert_allclose(sf.shapley_values(fitted, table, few).values, expected.values, rtol=1e-9)

    def test_it_is_spread_over_all_chunks(self, fitted, table, monkeypatch):
        monkeypatch.setattr("splinefm.inspect.rows.CHUNK", 7)
        many = {
            **take_rows(table, np.arange(200) % 60),
            "y": np.linspace(min(table["y"]), max(table["y"]), 200).tolist(),
        }
        found = sf.Background.of(fitted, many, rows=6)
        whole = sf.Background.of(fitted, {**many, "y": [0.5] * 200}, rows=200)
        assert (found.n_rows, whole.n_rows) == (6, 200)
        y = found.crosses.background.positions[6][1]  # u of y, from the first row to the last but a few
        assert y[0] == 0.0 and y[-1] > 0.8 and np.diff(y).max() < 2.1 * np.diff(y).min()

    def test_models_without_crosses_use_all_rows(self, table):
        plain = random_fitted(sf.FM(k=3), sf.Schema(SINGLES), table)
        assert sf.Background.of(plain, table, rows=10).n_rows == 60

    def test_importance_compares_with_a_sample_of_its_own_rows(self, fitted, table, monkeypatch):
        monkeypatch.setattr(importance, "MAX_ROWS", 10)
        found = sf.importance(fitted, table)
        expected = sf.importance(fitted, table, take_rows(table, np.linspace(0, 59, 10).astype(int)))
        np.testing.assert_allclose(found.shapley, expected.shapley)

    def test_neither_threads_nor_blocks_change_anything(self, fitted, table, monkeypatch):
        prepared = sf.Background.of(fitted, table)
        once = sf.shapley_values(fitted, table, prepared, threads=1).values
        np.testing.assert_array_equal(sf.shapley_values(fitted, table, prepared, threads=2).values, once)
        monkeypatch.setattr(crosses, "MAX_BLOCK_ROWS", 7)  # fewer rows than functions: other atoms
        found = sf.shapley_values(fitted, table, prepared, threads=2).values
        np.testing.assert_allclose(found, once, rtol=1e-5, atol=1e-6)

    def test_no_rows_give_empty_arrays(self, fitted, table):
        nothing = take_rows(table, [])
        assert sf.shapley_values(fitted, nothing, table).values.shape == (0, 5)
        parts = sf.decompose(fitted, nothing, table)
        assert parts.pairs.shape == (0, 10) and parts.scores.shape == (0,)

    def test_the_default_number_of_rows_is_bounded(self):
        assert shapley.MAX_ROWS <= 1000


class TestBadInput:
    def test_encoded_rows(self, fitted, table):
        slots = fitted.encoder.encode(table)
        for call in (
            lambda: sf.shapley_values(fitted, slots, table),
            lambda: sf.shapley_values(fitted, table, slots),
            lambda: sf.importance(fitted, slots),
            lambda: sf.ice_curves(fitted, slots, "a", ["u"]),
        ):
            with pytest.raises(ValueError, match=r"columns of a cross, and this model has 'a × b'.*pass the table"):
                call()

    def test_names(self, fitted, table):
        with pytest.raises(ValueError, match=r"'a × b' is a cross; take one of its columns, 'a', 'b'"):
            sf.partial_dependence(fitted, "a × b", ["u"], table)
        with pytest.raises(ValueError, match=r"no column 'aa' in the model; nearest: 'a'"):
            sf.ice_curves(fitted, table, "aa", ["u"])
        with pytest.raises(ValueError, match=r"no field 'a × b' in the model"):
            sf.decompose(fitted, table, table).pair("a × b", "c")

    def test_no_rows(self, fitted, table):
        for call in (sf.shapley_values, sf.decompose, sf.importance):
            with pytest.raises(ValueError, match="background has no rows"):
                call(fitted, table, take_rows(table, []))
        with pytest.raises(ValueError, match="the table has no rows"):
            sf.importance(fitted, take_rows(table, []), table)
        with pytest.raises(ValueError, match="rows must be at least 1"):
            sf.Background.of(fitted, table, rows=0)

    def test_a_table_without_a_column(self, fitted, table):
        with pytest.raises(ValueError, match="no column 'y' in the table"):
            sf.shapley_values(fitted, {name: table[name] for name in "abxc"}, table)

    def test_orders_above_3(self, table):
        higher = make_fitted(sf.HigherOrderFM(k=2, order=4), ["category and category"], table)
        with pytest.raises(ValueError, match=r"not available for HigherOrderFM\(k=2, order=4\)"):
            sf.shapley_values(higher, table, table)
        with pytest.raises(ValueError, match="background has no rows"):
            sf.partial_dependence(higher, "a", ["u"], take_rows(table, []))


def test_partial_dependence_averages_all_rows_of_a_table():
    """A background of 500 rows is for Shapley values, whose time is proportional to it."""
    rng = np.random.default_rng(3)
    table = {"a": rng.choice(["u", "v", "w"], 700), "b": rng.choice(["p", "q"], 700), "x": rng.random(700)}
    schema = sf.Schema([sf.Categorical("a"), sf.Categorical("b"), sf.Numerical("x"), sf.Cross("a", "x")])
    fitted = random_fitted(sf.FwFM(k=2, third=2), schema, table)
    expected = [fitted.scores({**table, "x": np.full(700, value)}).mean() for value in (0.2, 0.7)]
    np.testing.assert_allclose(sf.partial_dependence(fitted, "x", [0.2, 0.7], table), expected, rtol=1e-5)
    few = sf.Background.of(fitted, table, rows=50)
    assert len(few.crosses.background) == 50
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(sf.partial_dependence(fitted, "x", [0.2, 0.7], few), expected, rtol=1e-5)
