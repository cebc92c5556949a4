"""Values that recur: the variance between groups, crosses of values that a fit finds, and their penalties."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.search.recurring import Recurring, compare_groups, find_recurring, recurring_l2
from splinefm.search.screening import read_names
from splinefm.train.chunks import prepare_chunks
from splinefm.train.rows import LabeledTable
from support import examples


@examples(40)
@given(seed=st.integers(0, 2**32), n=st.integers(2, 40), n_groups=st.integers(1, 10))
def test_groups_are_compared_by_the_products_of_their_residuals(seed, n, n_groups):
    rng = np.random.default_rng(seed)
    code, r = rng.integers(0, n_groups, n), rng.normal(size=n)
    same = (code[:, None] == code) & ~np.eye(n, dtype=bool)
    products, squares = np.outer(r, r)[same].sum(), np.outer(r**2, r**2)[same].sum()
    found = compare_groups(code, r)
    if products <= 1e-12:
        assert found.gain == pytest.approx(0.0, abs=1e-9)
        return
    variance = products / same.sum()
    counts = np.bincount(code)
    shrunk = counts * variance / (counts * variance + np.mean(r**2))
    assert found.shrinkage == pytest.approx(np.mean(r**2) / variance)
    assert found.errors == pytest.approx(products / np.sqrt(2 * squares))
    assert found.gain == pytest.approx((counts * variance * shrunk).sum() / (r**2).sum())


def test_the_variance_between_groups_is_found():
    rng = np.random.default_rng(0)
    code = rng.integers(0, 2000, 10_000)
    residual = 0.5 * rng.normal(size=2000)[code] + rng.normal(size=10_000)
    found = compare_groups(code, residual)
    assert found.errors > 10.0
    assert found.shrinkage == pytest.approx(1.25 / 0.25, rel=0.2)
    assert compare_groups(code, rng.normal(size=10_000)).errors < 4.0
    assert compare_groups(np.arange(10_000), residual).gain == 0.0  # nothing recurs


def families(n=6000, effect=1.0, seed=0):
    """Persons with the income of their family, which has an effect of its own, and with an age."""
    known = np.random.default_rng(7)
    incomes, own = np.round(known.lognormal(9.0, 0.8, 700), 2), effect * known.normal(size=700)
    rng = np.random.default_rng(seed)
    family, age = rng.integers(0, 700, n), rng.uniform(0.0, 80.0, n)
    y = own[family] + 0.01 * age + rng.normal(size=n)
    return {"income": incomes[family], "age": age, "sex": rng.choice(["f", "m"], n), "y": y}


def fit(table, **settings):
    training = sf.Training(**{"epochs": 6, "threads": 1, "members": 1, "smoothness": 1e-2, "l2": 1e-4, **settings})
    return sf.fit_model(table, "y", loss="squared", model=sf.FwFM(k=4), training=training)


@pytest.fixture(scope="module")
def fitted():
    return fit(families())


def rmse(fitted, table):
    return float(np.sqrt(np.mean((fitted.predict(table) - table["y"]) ** 2)))


def test_a_fit_finds_values_that_stand_for_something(fitted):
    cross = fitted.encoder.schema.crosses[0]  # another one may take up what shrinkage leaves
    assert cross.name == "income (values)"
    assert cross.columns == ("income",)
    assert "found: explains" in fitted.encoder.notes["income (values)"]


def test_values_help_on_new_rows_as_much_as_shrunken_means(fitted):
    new = families(4000, seed=1)
    assert rmse(fitted, new) < 0.9 * rmse(fit(families(), crosses=None), new)
    assert rmse(fitted, new) < 1.15  # the noise is 1; the best estimates of the effects leave 1.06


def test_values_without_effects_are_left_alone():
    assert not fit(families(effect=0.0)).encoder.schema.crosses


def test_a_penalty_for_all_fields_is_that_of_the_columns():
    assert dict(fit(families(), l2=None).training.l2)["income (values)"] > 1e-3
    given = dict(fit(families(), l2=2e-4).training.l2)
    assert given["income (values)"] > 1e-3 and given["income"] == given["age"] == given["sex"] == 2e-4


def test_all_doors_know_a_cross_of_one_column(fitted, tmp_path):
    table = {**families(50, seed=2)}
    table["income"][:3] = [1.0, np.nan, table["income"][5]]  # unseen, missing, known
    expected = fitted.scores(table)
    fitted.save(tmp_path / "m.sfm")
    assert np.array_equal(sf.load(tmp_path / "m.sfm").scores(table), expected)
    score = fitted.scorer()
    rows = [{name: values[i] for name, values in table.items()} for i in range(50)]
    assert np.array_equal([score(row) for row in rows], expected)
    fitted.encoder.schema.save(tmp_path / "schema.json")
    assert sf.Schema.load(tmp_path / "schema.json") == fitted.encoder.schema
    values = sf.shapley_values(fitted, table, background=families(30, seed=3))
    assert np.allclose(values.scores, expected, atol=1e-5)
    assert set(values.fields) == {"income", "age", "sex"}


def test_a_view_along_the_column_follows_its_values(fitted):
    curve = fitted.segment({"age": 30.0, "sex": "f"}, along="income")
    incomes = families(20, seed=4)["income"]
    expected = fitted.scores({"income": incomes, "age": np.full(20, 30.0), "sex": ["f"] * 20})
    assert np.allclose(curve(incomes), expected, atol=1e-5)


def panel(n=5000, effect=1.0, seed=0, names=1800):
    """Rows of persons, each with a few, and with an effect that no column tells."""
    own = effect * np.random.default_rng(8).normal(size=names)
    rng = np.random.default_rng(seed)
    person, age = rng.integers(0, names, n), rng.uniform(0.0, 80.0, n)
    y = own[person] + 0.01 * age + 0.7 * rng.normal(size=n)
    return {"person": [f"p{i}" for i in person], "age": age, "sex": rng.choice(["f", "m"], n), "y": y}


@pytest.fixture(scope="module")
def of_panel():
    return fit(panel())


class TestNamesWithFewRows:
    def test_they_get_features_if_they_have_effects(self, of_panel):
        assert of_panel.encoder.schema["person"].min_count == 2 and not of_panel.encoder.schema.crosses
        assert "found: explains" in of_panel.encoder.notes["person"]
        assert dict(of_panel.training.l2)["person"] > 1e-3
        new = panel(4000, seed=1)
        assert rmse(of_panel, new) < 0.85 * rmse(fit(panel(), crosses=None), new)

    def test_they_share_one_otherwise(self):
        assert fit(panel(effect=0.0)).encoder.schema["person"].min_count == 10

    def test_a_number_of_rows_that_is_given_stays(self):
        schema = sf.Schema([sf.Categorical("person", min_count=10), sf.Numerical("age"), sf.Categorical("sex")])
        training = sf.Training(epochs=2, threads=1, crosses=2)
        fitted = sf.fit_model(panel(), "y", loss="squared", schema=schema, model=sf.FM(k=2), training=training)
        assert fitted.encoder.schema["person"].min_count == 10

    def test_all_doors_know_them(self, of_panel, tmp_path):
        table = panel(60, seed=2)
        table["person"][:2] = ["a stranger", None]
        expected = of_panel.scores(table)
        of_panel.save(tmp_path / "m.sfm")
        assert np.array_equal(sf.load(tmp_path / "m.sfm").scores(table), expected)
        score = of_panel.scorer()
        rows = [{name: values[i] for name, values in table.items()} for i in range(60)]
        assert np.array_equal([score(row) for row in rows], expected)
        values = sf.shapley_values(of_panel, table, background=panel(30, seed=3))
        assert np.allclose(values.scores, expected, atol=1e-5) and set(values.fields) == {"person", "age", "sex"}
        curve = of_panel.segment({"person": table["person"][5], "sex": table["sex"][5]}, along="age")
        assert curve(table["age"][5]) == pytest.approx(expected[5], abs=1e-5)
        bars = of_panel.segment({"age": 30.0, "sex": "f"}, along="person")
        assert table["person"][5] in bars.names and len(bars.names) > 1000
        learner = sf.Learner(of_panel)
        learner.update(panel(200, seed=4), "y")
        assert np.isfinite(learner.fitted().scores(table)).all()

    def test_an_onnx_graph_knows_them(self, of_panel, tmp_path):
        onnxruntime = pytest.importorskip("onnxruntime")
        table = panel(60, seed=2)
        sf.export_onnx(of_panel, tmp_path / "m.onnx")
        session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
        found = session.run(["score"], sf.onnx_inputs(of_panel, table))[0]
        np.testing.assert_allclose(np.ravel(found), of_panel.scores(table), atol=1e-4)

    def test_spellings_of_a_number_are_one_name(self):
        table = panel()
        numbers = np.array([int(name[1:]) for name in table["person"]])
        spelled = [f"{i}.0" if even else str(i) for i, even in zip(numbers, np.arange(5000) % 2, strict=True)]
        schema = sf.Schema([sf.Categorical("person", min_count=10, values="numbers"), sf.Numerical("age")])
        source = LabeledTable(schema, "y", None, {**table, "person": spelled})
        chunks = prepare_chunks(source, sf.Loss("squared"), 0.1, sf.Training(threads=1))
        rows = np.arange(0, chunks.n_rows, 3)
        codes = read_names(chunks, ["person", "age"], rows, 2)["person"]
        trained = numbers[~chunks.held_out.has(np.arange(5000))][rows]
        assert len(np.unique(codes)) == len(np.unique(trained)) == len(np.unique(np.stack([codes, trained]), axis=1).T)


def test_one_column_must_be_taken_as_names():
    for part in ("income", sf.Numerical("income")):
        with pytest.raises(ValueError, match=r"or one sf\.Categorical"):
            sf.Cross(part)
    assert sf.Cross(sf.Categorical("income")).name == "income (values)"


def test_wide_tables_compare_their_strongest_columns(monkeypatch):
    table = families()
    y = table.pop("y")
    encoder = sf.fit_encoder(sf.Schema.infer(table), table)
    values = {name: table[name] for name in ("income", "age")} | {
        "sex": np.unique(table["sex"], return_inverse=True)[1]
    }
    monkeypatch.setattr("splinefm.search.screening.MAX_COLUMNS", 2)
    assert find_recurring(encoder, values, y - y.mean())[0].field.name.startswith("income")


def test_the_penalty_shrinks_as_the_best_estimate_does():
    residual = np.full(100, 2.0)
    found = Recurring(sf.Cross(sf.Categorical("a")), 0.1, shrinkage=6.0, rows_per_value=3.0)
    # Squared loss: σ² = φ. Per active value, a step has n / B of the data and φ l2 / 10 of the penalty.
    l2 = recurring_l2(found, 200, residual, 4.0, 50)
    assert 50 * 0.1 * l2 * 4.0 == pytest.approx(0.2 * 6.0 / (2 * 3.0))


@pytest.mark.parametrize("spelling", ["${:.2f}", "{:,.2f}"])
def test_numbers_in_texts_are_not_taken_as_names(spelling):
    """Their own field reads "$1,200" as 1200; a name would be the whole text."""
    table = families()
    fitted = fit({**table, "income": [spelling.format(income) for income in table["income"]]})
    assert not fitted.encoder.schema.crosses
    assert np.array_equal(
        fitted.scores(table), fitted.scores({**table, "income": [spelling.format(x) for x in table["income"]]})
    )


@pytest.mark.parametrize("crosses", ["auto", 1])
def test_a_column_with_the_name_of_a_cross_of_values_stays(crosses):
    table = families()
    fitted = fit({**table, "income (values)": np.random.default_rng(5).normal(size=6000)}, crosses=crosses)
    assert "income (values)" in fitted.encoder.schema.columns
    assert "income (values)" not in [cross.name for cross in fitted.encoder.schema.crosses]


@pytest.mark.parametrize("factor", [2.0**20, 2.0**-20])
def test_only_the_proportions_of_weights_matter(factor):
    table = families(3000)
    weight = np.random.default_rng(2).integers(1, 5, 3000).astype(float)

    def fit_with(weight):
        training = sf.Training(epochs=2, threads=1, members=1, l2=1e-4, smoothness=1e-2)
        rows = {**table, "w": weight}
        return sf.fit_model(
            rows, "y", loss="squared", model=sf.FwFM(k=2), sample_weight="w", training=training, validation=0.2
        )

    one, other = fit_with(weight), fit_with(factor * weight)
    assert one.encoder.schema.crosses and one.training == other.training
    np.testing.assert_array_equal(one.scores(table), other.scores(table))


def test_settings_of_a_fit_that_found_crosses_fit_the_same_model_again(fitted):
    again = sf.fit_model(families(), "y", loss="squared", model=fitted.model, training=fitted.training)
    assert again.training == fitted.training
    np.testing.assert_array_equal(again.scores(families()), fitted.scores(families()))
    with pytest.raises(ValueError, match=r"'income \(values\)', which is not a field"):
        sf.fit_model(families(), "y", loss="squared", training=sf.Training(l2={"income (values)": 1.0}, crosses=None))
    with pytest.raises(ValueError, match="'age × height', which is not a field"):
        sf.fit_model(families(), "y", loss="squared", training=sf.Training(l2={"age × height": 1.0}))
