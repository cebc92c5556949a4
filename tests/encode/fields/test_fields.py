"""Fields: tokens, transforms and bases, vocabularies, lists; with degenerate and bad columns."""

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.fields.contract import TokenKind

STEP = sf.BSpline(segments=2, degree=1)  # three hat functions at u = 0, 1/2, 1


def encode(field, train, table=None):
    """Slots of one field."""
    encoder = sf.fit_encoder(sf.Schema([field]), {field.name: train})
    return encoder.encode({field.name: train if table is None else table})


def dense(slots):
    return slots.matrix().toarray()


@pytest.mark.parametrize(
    ("field", "kinds", "names"),
    [
        (
            sf.Numerical("x", special=[0, "negative"]),
            [TokenKind.SPECIAL, TokenKind.SPECIAL, TokenKind.MISSING],
            ["= 0", "negative", "missing"],
        ),
        (sf.Numerical("x", missing="error"), [], []),
        (sf.Categorical("c"), [TokenKind.MISSING, TokenKind.RARE], ["missing", "rare"]),
        (sf.Categorical("c", unseen="neutral"), [TokenKind.MISSING], ["missing"]),
        (
            sf.MultiValued("c", unseen="hash", buckets=2),
            [TokenKind.MISSING, TokenKind.BUCKET, TokenKind.BUCKET],
            ["missing", "bucket 0", "bucket 1"],
        ),
    ],
)
def test_tokens_know_their_kind(field, kinds, names):
    assert [token.kind for token in field.tokens()] == kinds
    assert [token.name for token in field.tokens()] == names
    for kind in TokenKind:
        assert field.token_names(kind) == [name for name, own in zip(names, kinds, strict=True) if own is kind]


class TestNumerical:
    def test_rows_are_special_values_then_missing_then_functions(self):
        field = sf.Numerical("x", sf.MinMax(0, 10), STEP, special=[-1.0, "negative", ">= 999"])
        slots = encode(field, [0.0, 10.0], [-1.0, -7.0, 999.0, 1e9, None, 0.0, 5.0, 10.0, 7.5])
        expected = np.zeros((9, 7))
        expected[range(8), [0, 1, 2, 2, 3, 4, 5, 6]] = 1.0
        expected[8, 5:7] = 0.5
        np.testing.assert_allclose(dense(slots), expected)
        assert slots.start.dtype == np.int32 and slots.weight.dtype == np.float32

    def test_special_values_do_not_take_part_in_the_fit(self):
        encoder = sf.fit_encoder(
            sf.Schema([sf.Numerical("x", sf.MinMax(), STEP, special=["negative", 999])]),
            {"x": [-5.0, 2.0, 4.0, 999.0, None]},
        )
        assert encoder.fields[0].transform == sf.MinMax(2.0, 4.0)
        assert encoder.feature_counts[0][:3].tolist() == [1, 1, 1]

    def test_nan_and_null_are_the_same(self):
        field = sf.Numerical("x", sf.MinMax(0, 1), STEP)
        with_nan = encode(field, [0.0, 1.0], np.array([np.nan, 0.5]))
        with_null = encode(field, [0.0, 1.0], pa.array([None, 0.5]))
        np.testing.assert_array_equal(dense(with_nan), dense(with_null))
        np.testing.assert_array_equal(dense(with_nan)[0], [1, 0, 0, 0])

    def test_identity_reduction_has_a_unit_per_active_function(self):
        rows = [0.0, 0.3, 1.0, None]
        summed = encode(sf.Numerical("x", sf.MinMax(0, 1)), rows)
        split = encode(sf.Numerical("x", sf.MinMax(0, 1), reduction="identity"), rows)
        assert summed.layout.n_units == 1 and split.layout.n_units == 4
        np.testing.assert_array_equal(dense(summed), dense(split))

    @pytest.mark.parametrize("reduction", ["sum", "identity"])
    def test_a_token_silences_every_resolution(self, reduction):
        field = sf.Numerical("x", sf.MinMax(0, 1), sf.MultiResolution((2, 4)), special=[0.5], reduction=reduction)
        matrix = dense(encode(field, [0.0, 1.0], [0.5, None, 0.25]))
        np.testing.assert_array_equal(matrix[:2], np.eye(2, matrix.shape[1]))
        assert matrix[2].sum() == pytest.approx(2.0)

    @pytest.mark.parametrize(
        "column",
        [
            pa.array([1, 2, None], pa.int8()),
            pa.array([1, 2, None], pa.uint64()),
            pa.array([1, 2, None], pa.float32()),
            pa.array([1.0, 2.0, None], pa.float16()),
            pa.array([1, 2, None], pa.decimal128(5, 2)),
            pa.array([False, True, None]),
            pa.array([1, 2, None]).dictionary_encode(),
            pa.array([datetime.date(2020, 1, 1), datetime.date(2020, 1, 2), None]),
            pa.array([datetime.datetime(2020, 1, 1), datetime.datetime(2020, 1, 2), None]),
            pa.array([datetime.timedelta(1), datetime.timedelta(2), None]),
        ],
        ids=lambda column: str(column.type),
    )
    def test_every_type_of_number_and_time(self, column):
        matrix = dense(encode(sf.Numerical("x", sf.MinMax(), STEP), column))
        np.testing.assert_array_equal(matrix, [[0, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]])

    def test_times_are_seconds(self):
        column = pa.array([datetime.datetime(1970, 1, 1), datetime.datetime(1970, 1, 2)])
        encoder = sf.fit_encoder(sf.Schema([sf.Numerical("t", sf.MinMax())]), {"t": column})
        assert encoder.fields[0].transform == sf.MinMax(0.0, 86400.0)

    @pytest.mark.parametrize(
        "transform", ["auto", sf.MinMax(), sf.Quantile(), sf.BestFitCDF(), sf.ArcsinhSquare(), sf.Log()]
    )
    @pytest.mark.parametrize(
        "values",
        [
            [3.0] * 5,
            [1.0, 2.0] * 5,
            [-(2**63), 2**63 - 1, 0, 5],
            [0.0] * 99 + [1e300],
            [5e-324, 1e-300],
            [-1e308, 1e308],
        ],
        ids=["constant", "two values", "huge int64", "one outlier", "subnormal", "both ends"],
    )
    def test_degenerate_columns_just_work(self, transform, values):
        slots = encode(sf.Numerical("x", transform), values)
        assert np.isfinite(slots.weight).all()
        np.testing.assert_allclose(slots.weight.sum(axis=1), 1.0, atol=1e-6)

    def test_a_column_of_special_and_missing_values_only(self):
        matrix = dense(encode(sf.Numerical("x", special=[0.0]), [0.0, None, 0.0]))
        np.testing.assert_array_equal(matrix[:, :2], [[1, 0], [0, 1], [1, 0]])
        assert not matrix[:, 2:].any()

    def test_values_beyond_the_range_are_those_at_its_ends(self):
        matrix = dense(encode(sf.Numerical("x", sf.MinMax()), [0.0, 1.0], [-5.0, 0.0, 7.0, 1.0]))
        np.testing.assert_array_equal(matrix[0], matrix[1])
        np.testing.assert_array_equal(matrix[2], matrix[3])

    def test_raw_bin_edges_need_no_transform(self):
        matrix = dense(
            encode(sf.Numerical("x", basis=sf.Bins(edges=(0, 10, 100))), [1.0, 2.0], [-1.0, 9.0, 10.0, 500.0])
        )
        np.testing.assert_array_equal(matrix[:, 1:], [[1, 0], [1, 0], [0, 1], [0, 1]])

    def test_infinity_can_be_special(self):
        field = sf.Numerical("x", sf.MinMax(0, 1), STEP, special=[float("inf")])
        np.testing.assert_array_equal(dense(encode(field, [0.0, 1.0], [np.inf]))[0], [1, 0, 0, 0, 0])

    @pytest.mark.parametrize(
        ("column", "message"),
        [
            ([1.0, np.inf], r"column 'x' holds inf; .*special=\[float\(\"inf\"\)\]"),
            ([1.0, -np.inf], "column 'x' holds -inf"),
            ([None, None], "column 'x' has no values: all 2 rows are missing; leave it out"),
            ([np.nan], "all 1 rows are missing"),
            (["low", "high"], r"column 'x' should hold numbers, but has 'low'; .*sf.Categorical\('x'\)"),
            ([[1], [2]], r"column 'x' holds lists; use sf.MultiValued\('x'\)"),
            ([{"a": 1}], "column 'x' is of the nested type struct.*split its parts into columns"),
            ([b"x"], "column 'x' should hold numbers but is of type binary"),
            ([datetime.time(1)], "column 'x' should hold numbers but is of type time"),
        ],
        ids=str,
    )
    def test_bad_columns_are_named(self, column, message):
        with pytest.raises(ValueError, match=message):
            encode(sf.Numerical("x"), column)

    def test_missing_can_be_an_error(self):
        field = sf.Numerical("x", sf.MinMax(), STEP, missing="error")
        assert dense(encode(field, [0.0, 1.0])).shape == (2, 3)
        with pytest.raises(ValueError, match="column 'x' has missing values"):
            encode(field, [0.0, 1.0], [None])

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: sf.Numerical(""), "name of a field must be a non-empty string"),
            (lambda: sf.Numerical("x", special=["positive"]), "special takes numbers.*got 'positive'"),
            (lambda: sf.Numerical("x", special=["> much"]), "got '> much'"),
            (lambda: sf.Numerical("x", special=[np.nan]), "missing values have a feature already"),
            (lambda: sf.Numerical("x", special=[1, 1.0]), "special names a value twice"),
            (lambda: sf.Numerical("x", special=[None]), "special takes numbers"),
            (lambda: sf.Numerical("x", missing="drop"), "missing must be one of 'token', 'error'"),
            (lambda: sf.Numerical("x", reduction="mean"), "reduction must be one of"),
            (lambda: sf.Numerical("x", transform="log"), "transform of field 'x' must be an object with fit"),
            (lambda: sf.Numerical("x", basis=sf.BSpline), "an instance, not the class"),
            (lambda: sf.Numerical("x", basis=3), "basis of field 'x'"),
            (
                lambda: sf.Numerical("x", basis=sf.BSpline(periodic=True)),
                r"period in raw units.*MinMax\(low=0",
            ),
            (lambda: sf.Numerical("x").encode(pa.array([1.0])), "field 'x' is not fitted"),
        ],
    )
    def test_bad_settings_are_refused(self, make, message):
        with pytest.raises(ValueError, match=message):
            make()

    def test_any_object_with_the_members_is_a_transform_or_a_basis(self):
        class Half:
            def fit(self, x, weight=None):
                return self

            def __call__(self, x):
                return np.full(len(x), 0.5)

            def inverse(self, u):
                return np.asarray(u)

        class One:
            widths, sizes = (1,), (1,)

            def __call__(self, u):
                return np.zeros((len(u), 1), np.int32), u[:, None]

        matrix = dense(encode(sf.Numerical("x", Half(), One()), [3.0, None]))
        np.testing.assert_array_equal(matrix, [[0, 0.5], [1, 0]])


class TestCategorical:
    TRAIN = ("a", "b", "b", "c", "c", "c")

    def rows(self, field, values, train=TRAIN):
        slots = encode(field, list(train), values)
        return slots.start.ravel().tolist(), slots.weight.ravel().tolist()

    def test_rows_are_missing_rare_then_by_frequency(self):
        assert self.rows(sf.Categorical("x"), ["c", "b", "a", "zzz", None]) == ([2, 3, 4, 1, 0], [1.0] * 5)

    def test_rare_categories_share_a_row(self):
        assert self.rows(sf.Categorical("x", min_count=2), ["c", "b", "a", "new"])[0] == [2, 3, 1, 1]

    def test_unseen_can_be_neutral(self):
        assert self.rows(sf.Categorical("x", unseen="neutral"), ["c", "new", None]) == ([1, 0, 0], [1, 0, 1])

    def test_unseen_can_be_an_error(self):
        field = sf.Categorical("x", unseen="error", missing="error")
        assert self.rows(field, ["c", "a"])[0] == [0, 2]
        with pytest.raises(ValueError, match="column 'x' holds the unseen category 'new'"):
            self.rows(field, ["c", "new"])

    def test_unseen_can_be_hashed_the_same_way_everywhere(self):
        field = sf.Categorical("x", unseen="hash", buckets=1000)
        rows, _ = self.rows(field, ["new", "c", "other", "new", None])
        # Known values: the hash must not change between releases, or saved models would change.
        assert rows == [1 + 847, 1001, 1 + 78, 1 + 847, 0]

    def test_ties_are_broken_by_name(self):
        assert self.rows(sf.Categorical("x"), ["a", "b"], train=["b", "a"])[0] == [2, 3]

    @pytest.mark.parametrize(
        ("train", "table"),
        [
            ([1, 2, 2], [2.0, 1.0, np.nan]),
            ([1, 2, 2], ["2", "1", None]),
            ([1.0, 2.0, 2.0], pa.array([2, 1, None], pa.uint8())),
            ([0.5, 0.25, 0.25], ["0.25", "0.5", None]),
            ([True, False, False], ["false", "true", None]),
            (["b", "a", "a"], pa.array(["a", "b", None], pa.string_view())),
            (["b", "a", "a"], pa.array(["a", "b", None]).dictionary_encode()),
            (
                [datetime.date(2020, 1, 1)] + 2 * [datetime.date(2020, 1, 2)],
                ["2020-01-02", "2020-01-01", None],
            ),
            ([1e300, 2.0, 2.0], [2, 1e300, None]),
        ],
        ids=str,
    )
    def test_the_same_value_in_another_type_is_the_same_category(self, train, table):
        assert self.rows(sf.Categorical("x"), table, train)[0] == [2, 3, 0]

    def test_the_vocabulary_can_be_given(self):
        field = sf.Categorical("x", vocabulary=["z", "c"])
        assert self.rows(field, ["z", "c", "a"])[0] == [2, 3, 1]

    @pytest.mark.parametrize("values", [["only"] * 3, [None, "x"], [""], ["é", "日本", "a\0b"]], ids=str)
    def test_degenerate_columns_just_work(self, values):
        rows, _ = self.rows(sf.Categorical("x"), values, train=values)
        assert all((row == 0) == (value is None) for row, value in zip(rows, values, strict=True))

    def test_all_categories_rare(self):
        assert self.rows(sf.Categorical("x", min_count=99), ["a", None])[0] == [1, 0]
        neutral = sf.Categorical("x", min_count=99, unseen="neutral", missing="error")
        assert self.rows(neutral, ["a"]) == ([0], [0.0])

    def test_many_distinct_values_with_min_count(self):
        # 10 million take half a minute; the mechanism is the same.
        n = 60_000
        ids = np.concatenate([np.arange(n), np.arange(0, n, 3)])
        encoder = sf.fit_encoder(sf.Schema([sf.Categorical("x", min_count=2)]), {"x": ids})
        assert encoder.layout.n_features == 2 + n // 3
        assert encoder.feature_counts[0][1] == n - n // 3

    @pytest.mark.parametrize(
        ("column", "message"),
        [
            ([None, None], "column 'x' has no values: all 2 rows are missing"),
            ([["a"]], r"column 'x' holds lists; use sf.MultiValued\('x'\)"),
            ([{"a": 1}], "nested type"),
            ([b"\xff\xfe"], "column 'x' of type binary cannot be read as categories"),
        ],
        ids=str,
    )
    def test_bad_columns_are_named(self, column, message):
        with pytest.raises(ValueError, match=message):
            encode(sf.Categorical("x"), column)

    def test_missing_can_be_an_error(self):
        with pytest.raises(ValueError, match="column 'x' has missing values"):
            encode(sf.Categorical("x", missing="error"), ["a", None])
        with pytest.raises(ValueError, match="column 'x' has missing values"):
            encode(sf.Categorical("x", missing="error"), ["a"], [None])

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: sf.Categorical("x", min_count=0), "min_count must be at least 1, got 0"),
            (lambda: sf.Categorical("x", buckets=1.5), "buckets must be"),
            (lambda: sf.Categorical("x", unseen="new"), "unseen must be one of"),
            (lambda: sf.Categorical("x", missing="new"), "missing must be one of"),
            (lambda: sf.Categorical("x", reduction="mean"), "reduction must be one of"),
            (lambda: sf.Categorical("x", unseen="error", min_count=2), "needs min_count=1"),
            (lambda: sf.Categorical("x", vocabulary=["a", "a"]), "names a category twice"),
            (lambda: sf.Categorical("x").encode(pa.array(["a"])), "field 'x' is not fitted"),
            (lambda: sf.Categorical(3), "name of a field"),
        ],
    )
    def test_bad_settings_are_refused(self, make, message):
        with pytest.raises(ValueError, match=message):
            make()


class TestMultiValued:
    TRAIN = (["a", "b"], ["b"], ["b", "c", "c"])

    def test_elements_are_summed_into_one_unit(self):
        slots = encode(sf.MultiValued("x"), list(self.TRAIN), [["b", "c"], [], None, ["new"]])
        assert slots.layout.n_units == 1 and slots.start.shape == (4, 3)
        # rows: missing, rare, b, c, a
        np.testing.assert_array_equal(
            dense(slots), [[0, 0, 1, 1, 0], [0, 0, 0, 0, 0], [1, 0, 0, 0, 0], [0, 1, 0, 0, 0]]
        )

    def test_mean_divides_by_the_length(self):
        matrix = dense(encode(sf.MultiValued("x", reduction="mean"), list(self.TRAIN), [["b", "c"], [], None]))
        np.testing.assert_allclose(matrix, [[0, 0, 0.5, 0.5, 0], [0] * 5, [1, 0, 0, 0, 0]])

    def test_identity_has_a_unit_per_element(self):
        slots = encode(sf.MultiValued("x", reduction="identity"), list(self.TRAIN))
        assert slots.layout.n_units == 3
        assert slots.layout.unit_field.tolist() == [0, 0, 0]

    def test_elements_beyond_the_length_are_left_out(self):
        field = sf.MultiValued("x", max_length=2, reduction="mean")
        matrix = dense(encode(field, list(self.TRAIN), [["a", "b", "c"]]))
        np.testing.assert_allclose(matrix, [[0, 0, 0.5, 0, 0.5]])

    def test_the_default_length_is_bounded(self):
        slots = encode(sf.MultiValued("x"), [[str(i) for i in range(1000)]])
        assert slots.start.shape == (1, 64)

    def test_text_is_cut_at_the_separator(self):
        text = encode(sf.MultiValued("x", separator="|"), ["a| b", "b", "b|c|c", "", None])
        lists = encode(sf.MultiValued("x"), [*self.TRAIN, [], None])
        np.testing.assert_array_equal(dense(text), dense(lists))

    @pytest.mark.parametrize(
        "column",
        [
            pa.array([[1, 2], [2], None], pa.list_(pa.int64())),
            pa.array([[1, 2], [2], None], pa.large_list(pa.float64())),
            pa.array([["1", "2"], ["2"], None], pa.list_(pa.string_view())),
        ],
        ids=lambda column: str(column.type),
    )
    def test_every_type_of_list(self, column):
        np.testing.assert_array_equal(
            dense(encode(sf.MultiValued("x"), column)), [[0, 0, 1, 1], [0, 0, 1, 0], [1, 0, 0, 0]]
        )

    def test_fixed_size_lists_and_missing_elements(self):
        column = pa.array([["a", "b"], ["b", None]], pa.list_(pa.string(), 2))
        np.testing.assert_array_equal(dense(encode(sf.MultiValued("x"), column)), [[0, 0, 1, 1], [0, 0, 1, 0]])

    def test_neutral_elements_weigh_nothing(self):
        matrix = dense(encode(sf.MultiValued("x", unseen="neutral"), list(self.TRAIN), [["new", "b"]]))
        np.testing.assert_array_equal(matrix, [[0, 1, 0, 0]])

    def test_lists_that_are_all_empty(self):
        assert not dense(encode(sf.MultiValued("x"), [[], []])).any()

    @pytest.mark.parametrize(
        ("field", "column", "message"),
        [
            (sf.MultiValued("x"), ["a|b"], r"column 'x' holds text.*separator=\"\|\""),
            (sf.MultiValued("x"), [1.0], "column 'x' should hold lists but is of type double"),
            (sf.MultiValued("x"), [[["a"]]], "column 'x' holds lists"),
            (sf.MultiValued("x"), [None], "column 'x' has no values"),
            (sf.MultiValued("x", missing="error"), [["a"], None], "column 'x' has missing values"),
        ],
        ids=str,
    )
    def test_bad_columns_are_named(self, field, column, message):
        with pytest.raises(ValueError, match=message):
            encode(field, pa.array(column))

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: sf.MultiValued("x", max_length=0), "max_length must be"),
            (lambda: sf.MultiValued("x", reduction="max"), "reduction must be one of"),
            (lambda: sf.MultiValued("x", separator=""), "separator must be a non-empty string"),
            (lambda: sf.MultiValued("x", unseen="x"), "unseen must be one of"),
            (lambda: sf.MultiValued("x").encode(pa.array([["a"]])), "field 'x' is not fitted"),
        ],
    )
    def test_bad_settings_are_refused(self, make, message):
        with pytest.raises(ValueError, match=message):
            make()

    @given(st.lists(st.none() | st.lists(st.sampled_from("abcde"), max_size=5), min_size=1, max_size=20))
    def test_every_element_is_counted(self, lists):
        if all(item is None for item in lists):
            return
        matrix = dense(encode(sf.MultiValued("x"), pa.array(lists, pa.list_(pa.string()))))
        assert matrix.sum() == sum(1 if item is None else len(item) for item in lists)


@pytest.mark.parametrize(("factor", "unit"), [(1e3, "milliseconds"), (1e6, "microseconds"), (1e9, "nanoseconds")])
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_times_in_smaller_units_than_seconds_are_refused_by_a_fit(factor, unit, dtype):
    seconds = 1_600_000_000 + 3600 * np.arange(200)
    table = {"t": (seconds * int(factor)).astype(dtype)}
    for parts in (["trend"], ["hour", "weekday"]):
        schema = sf.Schema([sf.Timestamp("t", parts=parts)])
        with pytest.raises(ValueError, match=f"column 't' holds numbers such as .*, which are {unit} and not seconds"):
            sf.fit_encoder(schema, table)


@pytest.mark.parametrize(
    "t", [[1e9, np.nan, 2e9], [-1e10, 9.2e18, 1e9], [None, None, 253_402_300_799], [1e9, 1e9, 1e15]]
)
def test_seconds_with_a_few_other_numbers_are_read(t):
    sf.fit_encoder(sf.Schema([sf.Timestamp("t")]), {"t": t})


SPLINE = sf.BSpline(4, degree=1)  # five hat functions


@pytest.mark.parametrize(
    ("field", "column", "blocks"),
    [
        (sf.Numerical("x", sf.MinMax(0, 1), SPLINE, special=[0.0]), [0.5, 1.0], [(2, False), (5, True)]),
        (sf.Numerical("x", sf.MinMax(0, 1), sf.Bins(4), missing="error"), [0.5, 1.0], [(4, False)]),
        (sf.Categorical("x"), ["a", "b"], [(4, False)]),
        (sf.MultiValued("x"), [["a"], ["b", "c"]], [(5, False)]),
    ],
)
def test_penalty_blocks_cover_the_features(field, column, blocks):
    (fitted,) = sf.fit_encoder(sf.Schema([field]), {"x": column}).fields
    found = fitted.penalty_blocks(order=2)
    assert [(block.size, block.smoothness > 0.0) for block in found] == blocks
    assert sum(block.size for block in found) == fitted.layout.n_features


@pytest.mark.parametrize(
    ("field", "column"),
    [
        (sf.Numerical("x", special=[0, "negative"]), [None, 0.0, -1.0, 3.0, 5.0, 8.0]),
        (sf.Categorical("x"), [None, "a", "b"]),
    ],
)
def test_a_value_of_each_feature_has_the_feature(field, column):
    (fitted,) = sf.fit_encoder(sf.Schema([field]), {"x": column}).fields
    for feature in range(fitted.layout.n_features):
        start, weight = fitted.encode(fitted.as_column([fitted.feature_value(feature)])[0])
        inside = (start[0] <= feature) & (feature < start[0] + np.array(fitted.layout.widths))
        assert inside.any() and weight.any()


def test_an_example_is_a_value_that_the_field_takes():
    table = {"x": [2.0, 3.0], "c": ["a", "b"], "t": [["p"], ["q"]], "d": ["2024-05-28", "2024-05-29"]}
    schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c"), sf.MultiValued("t"), sf.Numerical("d", part="hour")])
    fitted = sf.fit_encoder(schema, table)
    assert [item.example_value(2.0) for item in fitted.fields] == [2.0, "a", ["p"], "2024-05-28T12:00:00"]
    assert [item.example_rank for item in fitted.fields] == [0, 0, 0, 1]
