"""Numbers in text, and what the inferred schema says of them."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.tables.arrow import from_strings
from splinefm.encode.tables.columns import find_decimal, parse_numbers


@given(st.lists(st.floats(-1e12, 1e12), min_size=1), st.sampled_from(["", "$", "€"]), st.sampled_from(["", "%", " "]))
def test_decorated_numbers_are_read(numbers, before, after):
    text = [f"{before}{number:,.4f}{after}".replace(f"{before}-", f"-{before}") for number in numbers]
    values, stray = parse_numbers(from_strings([*text, "x"]))
    np.testing.assert_allclose(values[:-1], numbers, atol=1e-4)
    assert np.flatnonzero(stray).tolist() == [len(numbers)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1,234", 1234.0),
        ("-1,234,567.5", -1234567.5),
        ("5%", 5.0),
        ("$5", 5.0),
        ("-$5.50", -5.5),
        ("5 €", 5.0),
        ("(1,234)", -1234.0),
        (" 7 ", 7.0),
        ("1e3", 1000.0),
        ("+2", 2.0),
        (".5", 0.5),
    ],
)
def test_common_ways_to_write_a_number(text, value):
    assert parse_numbers(from_strings([text, "x"]))[0][0] == value


@pytest.mark.parametrize("text", ["12,34", "1,2345", "", "-", "$", "%", "1.2.3", "0x10", "1 2", "1,", "--1", "()"])
def test_what_is_no_number(text):
    values, stray = parse_numbers(from_strings([text]))
    assert np.isnan(values[0]) and stray[0]


def test_each_row_gets_the_number_of_its_spelling():
    cells = ["$5", None, "foo", " 7 ", "$5", "foo", None, "(2)"]
    for decimal in (".", ","):
        values, stray = parse_numbers(pa.array(cells, pa.large_string()), decimal)
        np.testing.assert_array_equal(values, [5.0, np.nan, np.nan, 7.0, 5.0, np.nan, np.nan, -2.0])
        assert stray.tolist() == [cell == "foo" for cell in cells]
    values, stray = parse_numbers(pa.array([None, None], pa.large_string()), ",")
    assert np.isnan(values).all() and stray is None


def test_points_between_groups_tell_of_decimal_commas():
    assert find_decimal(from_strings(["1.234.567", "12"])) == ","
    assert find_decimal(from_strings(["1.234", "12", "foo"])) == "."


def test_decimal_commas():
    assert parse_numbers(from_strings(["1.234,5", "3,14", "7"]), ",")[0].tolist() == [1234.5, 3.14, 7.0]
    assert find_decimal(from_strings(["1,234", "2,345"])) == "."  # both will do


class TestInference:
    def column(self, rng, n=2000):
        return [f"{value:.3f}" for value in rng.normal(size=n)]

    @pytest.mark.parametrize("where", ["csv", "pandas", "dict"])
    def test_a_stray_cell_is_told_and_missing(self, where, tmp_path):
        column = self.column(np.random.default_rng(0))
        column[1234] = "foo"
        table = pd.DataFrame({"x": column, "y": 0})
        if where == "csv":
            table.to_csv(tmp_path / "t.csv", index=False)
        source = {"csv": tmp_path / "t.csv", "pandas": table, "dict": {"x": column}}[where]
        schema = sf.infer_schema(source)
        assert isinstance(schema["x"], sf.Numerical)
        assert "1 of 2,000 rows hold no number ('foo')" in schema.reasons["x"]
        encoder = sf.fit_encoder(sf.Schema([schema["x"]]), source)
        assert encoder.fields[0].text == "missing"
        assert encoder.feature_counts[0][0] == 1 and "'foo'" in encoder.notes["x"]

    def test_a_stray_cell_far_down_does_not_stop_a_fit(self, tmp_path, monkeypatch):
        monkeypatch.setattr("splinefm.encode.inference.LOOK_AT", 100)
        column = self.column(np.random.default_rng(1))
        column[-1] = "foo"
        pd.DataFrame({"x": column, "y": np.arange(2000) % 2}).to_csv(tmp_path / "t.csv", index=False)
        training = sf.Training(epochs=1, threads=1)
        fitted = sf.fit_model(tmp_path / "t.csv", "y", model=sf.FM(k=2), training=training)
        assert "1 rows such as 'foo'" in fitted.encoder.notes["x"]

    @pytest.mark.parametrize("cells", [["1.5", "2.5"], ["2024-01-01", "2024-03-01"]])
    def test_text_that_training_had_none_of_is_an_error_whatever_the_table_was(self, cells, tmp_path):
        pd.DataFrame({"x": cells * 200}).to_csv(tmp_path / "t.csv", index=False)
        encoder = sf.fit_encoder(sf.infer_schema(tmp_path / "t.csv"), tmp_path / "t.csv")
        assert {item.text for item in encoder.fields} == {"error"}
        (tmp_path / "new.csv").write_text("x\nabc\n")
        with pytest.raises(ValueError, match=r"column 'x' should hold .*, but has 'abc'"):
            encoder.encode(tmp_path / "new.csv")

    @pytest.mark.parametrize("stray", ["foo", "nan"])
    def test_text_in_dictionaries(self, stray):
        cells = pd.Series([*map(str, np.linspace(0.5, 9.5, 1999)), stray], dtype="category")
        schema = sf.infer_schema({"x": cells})
        encoder = sf.fit_encoder(schema, {"x": cells})
        assert encoder.fields[0].text == ("missing" if stray == "foo" else "error")
        assert encoder.encode({"x": cells}).start[-1, 0] == 0  # the feature of missing values

    def test_a_number_written_in_another_way_far_down_a_file(self, tmp_path, monkeypatch):
        cells = np.linspace(0.5, 999.5, 4000)
        pd.DataFrame({"x": [f"{x:,.2f}" for x in cells]}).to_csv(tmp_path / "t.csv", index=False)
        schema = sf.infer_schema(tmp_path / "t.csv")
        encoder = sf.fit_encoder(schema, tmp_path / "t.csv")
        assert encoder.fields[0].text == "error"
        monkeypatch.setattr("splinefm.encode.tables.delimited.BLOCK", 4096)
        pd.DataFrame({"x": [f"{x:,.2f}" for x in [*cells, 1234.0]]}).to_csv(tmp_path / "t.csv", index=False)
        expected = encoder.encode({"x": np.round([*cells, 1234.0], 2)})
        np.testing.assert_array_equal(encoder.encode(tmp_path / "t.csv").weight, expected.weight)

    def test_a_mark_for_missing_values(self):
        rng = np.random.default_rng(2)
        column = np.where(rng.random(2000) < 0.1, "?", self.column(rng)).tolist()
        assert isinstance(sf.infer_schema({"x": column})["x"], sf.Numerical)

    @pytest.mark.parametrize("form", ["{:,.2f}", "{:.1f}%", "${:.2f}", "{:.2f} €"])
    def test_decorated_numbers(self, form):
        values = np.random.default_rng(3).uniform(0, 5000, 500)
        schema = sf.infer_schema({"x": [form.format(value) for value in values]})
        assert isinstance(schema["x"], sf.Numerical)
        np.testing.assert_allclose(schema["x"].read(pa.array([form.format(values[0])])), values[0], atol=0.1)

    def test_decimal_commas(self):
        values = np.random.default_rng(4).normal(size=500)
        schema = sf.infer_schema({"x": [f"{value:.3f}".replace(".", ",") for value in values]})
        assert schema["x"].decimal == "," and schema["x"].read(pa.array(["3,5"])).tolist() == [3.5]

    def test_a_mixture_is_text_and_says_so(self):
        codes = [str(i) for i in range(250, 350)] * 3 + [f"V{i}" for i in range(80)]
        schema = sf.infer_schema({"x": codes})
        assert isinstance(schema["x"], sf.Categorical)
        assert "79% of them numbers, others such as 'V0'" in schema.reasons["x"]
        assert "sf.Numerical('x', text=\"missing\")" in schema.reasons["x"]

    def test_whole_numbers_that_a_typed_table_has_as_text_are_names(self, tmp_path):
        table = pd.DataFrame({"x": [str(i) for i in range(500)]})
        assert isinstance(sf.infer_schema(table)["x"], sf.Categorical)
        table.to_csv(tmp_path / "t.csv", index=False)
        assert isinstance(sf.infer_schema(tmp_path / "t.csv")["x"], sf.Numerical)

    def test_row_numbers_get_the_remark_of_identifiers(self):
        schema = sf.infer_schema({"id": np.arange(5000), "x": np.random.default_rng(0).normal(size=5000)})
        assert "nearly one per row" in schema.reasons["id"] and "per row" not in schema.reasons["x"]

    def test_a_column_without_any_number_is_refused(self):
        with pytest.raises(ValueError, match=r"column 'x' should hold numbers, but has 'a'.*sf.Categorical\('x'\)"):
            sf.fit_encoder(sf.Schema([sf.Numerical("x")]), {"x": ["a", "b"]})
        with pytest.raises(
            ValueError, match=r"column 'x' has no values: .* not numbers, hence missing: 2 rows such as 'a'"
        ):
            sf.fit_encoder(sf.Schema([sf.Numerical("x", text="missing")]), {"x": ["a", "b"]})

    def test_the_kind_of_amounts_does_not_depend_on_the_size_of_the_sample(self):
        rng = np.random.default_rng(0)
        tariffs = np.sort(rng.choice(100_000, 110, replace=False)) + 0.5
        share = rng.dirichlet(np.full(110, 1.0))
        gain = np.where(rng.random(30_000) < 0.9, 0.0, rng.choice(tariffs, 30_000, p=share))
        kinds = {type(sf.infer_schema({"x": gain[:n]})["x"]) for n in (6_000, 15_000, 30_000)}
        assert kinds == {sf.Categorical}
        assert "for a quantity use sf.Numerical('x')" in sf.infer_schema({"x": gain}).reasons["x"]
