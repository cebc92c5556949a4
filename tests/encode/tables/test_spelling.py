"""One name per category, whatever its spelling."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.tables.arrow import from_strings
from splinefm.encode.tables.columns import as_categories
from splinefm.encode.tables.spelling import VALUES, canonical, find_values, other_spellings


def names_of(values, kind: str) -> list:
    """Canonical names of typed values."""
    names, codes = as_categories(values, "c")
    named = canonical(names, kind).to_pylist()
    return named if codes is None else [named[code] for code in codes]


class TestCanonical:
    @given(st.lists(st.text(max_size=12)), st.sampled_from(VALUES))
    def test_a_canonical_name_is_its_own(self, names, values):
        names = [name for name in names if name.isprintable()]
        once = canonical(from_strings(names), values)
        assert canonical(once, values).equals(once)

    @given(st.integers(-(2**62), 2**62), st.integers(0, 4), st.integers(0, 3))
    def test_whole_numbers_have_one_name(self, number, zeros, leading):
        sign, digits = ("-" if number < 0 else ""), str(abs(number))
        spelled = [f"{sign}{'0' * leading}{digits}", f"{number}.{'0' * zeros}", f" {number}", str(number)]
        assert set(canonical(from_strings(spelled), "numbers").to_pylist()) == {str(number)}

    # Whole floats from 2**53 on are written with an exponent; their text has all digits.
    @given(st.floats(-(2.0**53) + 1, 2.0**53 - 1) | st.floats(0.0, 1.0))
    def test_a_number_in_text_has_the_name_of_the_number(self, number):
        (typed,) = names_of(pa.array([number]), "numbers")
        assert canonical(from_strings([repr(number), f"{number:.17e}"]), "numbers").to_pylist() == [typed, typed]

    def test_numbers_of_32_bits_have_the_names_of_their_digits(self):
        assert names_of(pa.array(np.array([0.1, 2.0], np.float32)), "numbers") == ["0.1", "2"]

    @pytest.mark.parametrize("spelled", ["True", "TRUE", "true", "1", "1.0", " true"])
    def test_truth_has_one_name(self, spelled):
        assert canonical(from_strings([spelled]), "booleans").to_pylist() == ["true"]
        assert canonical(from_strings([spelled]), "numbers").to_pylist() == ["1"]

    def test_dates_have_one_name(self):
        spelled = ["2024-05-28", "2024-05-28T00:00", "2024-05-28 00:00:00.000", "2024-05-28T02:00+02:00"]
        assert set(canonical(from_strings(spelled), "dates").to_pylist()) == {"2024-05-28"}
        days = pa.array(["2024-05-28"]).cast(pa.date32())
        typed = [
            names_of(column, "dates") for column in (days, days.cast(pa.timestamp("ns")), days.cast(pa.timestamp("s")))
        ]
        assert typed == [["2024-05-28"]] * 3

    def test_what_is_no_such_value_stays(self):
        for values in VALUES:
            assert canonical(from_strings(["", "x", "1.2.3", "2024-13-45"]), values).to_pylist() == [
                "",
                "x",
                "1.2.3",
                "2024-13-45",
            ]

    def test_common_spellings_lead_to_the_name(self):
        for name, values in (("2", "numbers"), ("-3", "numbers"), ("false", "booleans"), ("2024-05-28", "dates")):
            others = other_spellings(name, values)
            assert others and set(canonical(from_strings(others), values).to_pylist()) == {name}


class TestWhatNamesSpell:
    @pytest.mark.parametrize(
        ("names", "values"),
        [
            (["1", "2.0", "3"], "numbers"),
            (["1", "1.0"], "numbers"),
            (["01", "02"], "numbers"),
            (["9.1", "9.10"], "text"),
            (["07", "7"], "text"),
            (["1", "x"], "text"),
            (["True", "false"], "booleans"),
            (["2024-01-01", "2024-01-02 10:00"], "dates"),
            ([], "text"),
        ],
        ids=str,
    )
    def test_is_found(self, names, values):
        assert find_values(from_strings(names)) == values

    def test_beyond_the_first_names(self):
        names = [str(i) for i in range(5000)]
        assert find_values(from_strings(names)) == "numbers"
        assert find_values(from_strings([*names, "x"])) == "text"


class TestField:
    def fit(self, column, **settings):
        return sf.fit_encoder(sf.Schema([sf.Categorical("c", **settings)]), {"c": column}).fields[0]

    def test_counts_of_one_category_are_added(self):
        field = self.fit(["1", "1.0", "2", "2.0", "2.00"], min_count=2)
        assert field.values == "numbers" and field.vocabulary.names.to_pylist() == ["2", "1"]

    @pytest.mark.parametrize("column", [[1, 0], [1.0, 0.0], [True, False], ["1.0", "0.0"], ["TRUE", "false"]], ids=str)
    @pytest.mark.parametrize("trained", [[1, 0], [True, False], ["1.0", "0"], ["True", "False"]], ids=str)
    def test_any_spelling_is_found_whatever_the_training(self, trained, column):
        field = self.fit(trained * 3)
        rows = [field.encode(pa.array(values))[0].ravel().tolist() for values in (trained, column)]
        assert rows[0] == rows[1]

    def test_text_can_be_told_to_stay_text(self):
        field = self.fit(["1", "1.0"], values="text")
        assert sorted(field.vocabulary.names.to_pylist()) == ["1", "1.0"]
        assert field.encode(pa.array(["1.00"]))[0][0, 0] == 1  # rare

    def test_hashed_categories_have_one_bucket(self):
        field = self.fit(["1", "2"] * 3, unseen="hash", buckets=1000)
        rows = [field.encode(pa.array([value]))[0][0, 0] for value in ("77", "77.0", 77, 77.0)]
        assert len(set(rows)) == 1

    def test_lists_have_the_same_names(self):
        schema = sf.Schema([sf.MultiValued("c", separator="|")])
        field = sf.fit_encoder(schema, {"c": ["1|2", "2.0", "3"]}).fields[0]
        assert field.vocabulary.names.to_pylist() == ["2", "1", "3"]
        assert (field.encode(pa.array([[2, 1]]))[0] == field.encode(pa.array(["2.0|1.0"]))[0]).all()

    def test_bad_values_are_named(self):
        with pytest.raises(ValueError, match="values must be one of 'text', 'numbers'"):
            sf.Categorical("c", values="numeric")

    @pytest.mark.parametrize("names", [["0.0", "-0.0", "1.5"], ["0", "-0", "1"], ["0", "-0.00", "2.0"]], ids=str)
    def test_zeros_with_a_sign_are_numbers(self, names):
        field = self.fit(names * 3)
        assert field.values == "numbers" and "0" in field.vocabulary.names.to_pylist()
        numbers = pa.array([float(name) for name in names])
        assert (field.encode(numbers)[0] == field.encode(pa.array(names))[0]).all()
