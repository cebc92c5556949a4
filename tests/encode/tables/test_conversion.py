"""Columns in memory that Arrow does not take as they are."""

import datetime
import decimal
import fractions
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import splinefm as sf

pd = pytest.importorskip("pandas")


def source(kind, values):
    """A column in a table of Python or pandas."""
    return {
        "dict": lambda: {"c": values},
        "series": lambda: {"c": pd.Series(values)},
        "pandas": lambda: pd.DataFrame({"c": values, "other": 1}),
        "objects": lambda: pd.DataFrame({"c": pd.Series(list(values), dtype=object), "other": 1}),
    }[kind]()


def column(data) -> pa.ChunkedArray:
    table = sf.open_table(data)
    return pa.Table.from_batches(list(table.chunks(["c"])), pa.schema([table.schema.field("c")]))["c"]


KINDS = ["dict", "series", "pandas", "objects"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("freq", ["M", "D", "Q", "W", "h"])
def test_a_period_is_the_time_when_it_begins(kind, freq):
    periods = pd.PeriodIndex([*pd.period_range("2024-01-15", periods=3, freq=freq), pd.NaT])
    got = column(source(kind, periods))
    assert got.type == pa.timestamp("us")
    assert got.to_pylist() == [*(time.to_pydatetime() for time in periods[:3].to_timestamp()), None]


def test_periods_are_dates_to_a_schema_and_a_model():
    periods = pd.period_range("2000-01", periods=300, freq="M")
    frame = pd.DataFrame({"month": periods, "y": np.linspace(0, 1, 300)})
    schema = sf.Schema([sf.Numerical("month")])
    times = pd.DataFrame({"month": periods.to_timestamp()})
    encoder = sf.fit_encoder(schema, frame)
    assert encoder == sf.fit_encoder(schema, times)
    assert "dates" in sf.Schema.infer(frame, target="y").reasons["month.trend"]


@pytest.mark.parametrize("kind", KINDS)
def test_an_interval_is_its_text(kind):
    assert column(source(kind, pd.cut([1, 7, 2], [0, 5, 10]))).to_pylist() == ["(0, 5]", "(5, 10]", "(0, 5]"]
    values = pd.arrays.IntervalArray(pd.cut([1.0, 7.0, np.nan, 2.0], [0, 5, 10]))
    assert column(source(kind, values)).to_pylist() == [None if pd.isna(value) else str(value) for value in values]


@pytest.mark.parametrize("kind", KINDS)
def test_columns_of_other_layouts_are_numbers_and_times(kind):
    numbers = [0.0, 1.5, 0.0]
    for values in (pd.arrays.SparseArray(numbers), np.array(numbers, ">f8"), np.array(numbers, np.float16)):
        assert column(source(kind, values)).to_pylist() == numbers
    assert column({"c": np.array(numbers, np.longdouble)}).type == pa.float64()
    assert column({"c": np.array(["2024-01", "NaT"], "M8[M]")}).to_pylist() == [datetime.datetime(2024, 1, 1), None]
    assert column({"c": np.array([1, 2], "m8[h]")}).to_pylist() == [datetime.timedelta(hours=i) for i in (1, 2)]


@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers_up_to_64_bits_without_a_sign_are_kept(kind):
    assert column(source(kind, [2**64 - 1, 2**63, 1])).to_pylist() == [2**64 - 1, 2**63, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_identifiers_are_text_and_decimals_numbers(kind):
    if int(pa.__version__.split(".")[0]) < 24:
        pytest.skip("pyarrow 24 is the first that knows objects of uuid; with older ones they are refused")
    assert column(source(kind, [uuid.UUID(int=7), None])).to_pylist() == [str(uuid.UUID(int=7)), None]
    assert pa.types.is_decimal(column(source(kind, [decimal.Decimal("1.5"), decimal.Decimal("12.25")])).type)


def test_periods_of_a_file_are_times(tmp_path):
    frame = pd.DataFrame({"c": pd.period_range("2024-01", periods=2, freq="M")})
    pq.write_table(pa.Table.from_pandas(frame), tmp_path / "x.parquet")
    for data in (tmp_path / "x.parquet", pa.Table.from_pandas(frame)):
        assert column(data).to_pylist() == [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 2, 1)]


PROBLEMS = {
    "big": ([1, 10**30], r"integers of more than 64 bits, such as 10{30}; make them floats .* or text"),
    "negative": ([-(10**30), 1], r"integers of more than 64 bits, such as -10{30}; "),
    "big and missing": ([None, 10**30], r"integers of more than 64 bits, such as 10{30}; "),
    "mixed": ([1, "x"], r"several types, such as 1 \(int\) and 'x' \(str\); give it one type"),
    "missing and mixed": ([None, float("nan"), "x", 2.5], r"several types, such as 'x' \(str\) and 2.5 \(float\); "),
    "truth": ([True, 3], r"several types, such as True \(bool\) and 3 \(int\); "),
    "dates": ([datetime.date(2024, 1, 1), "x"], r"several types, such as datetime.date\(2024, 1, 1\) \(date\) and 'x'"),
    "lists": ([[1], ["a"]], r"lists with values of several types, such as 1 \(int\) and 'a' \(str\); "),
    "lists and numbers": ([[1], 2], r"several types, such as \[1\] \(list\) and 2 \(int\); "),
    "complex": ([1 + 2j, 2j], r"complex numbers, such as \(1\+2j\); make columns of their real"),
    "fractions": (
        [fractions.Fraction(1, 3)] * 2,
        r"type Fraction, such as Fraction\(1, 3\); convert them to",
    ),
    "objects": ([object()] * 2, r"type object, such as <object object at .*>; convert them to numbers"),
    "text": (["\ud800", "a"], r"text that is not valid Unicode; "),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_what_cannot_be_converted_is_named_with_an_example_and_the_way_out(kind, name):
    values, message = PROBLEMS[name]
    if name == "text" and kind in ("series", "pandas"):
        return  # pandas itself does not take it
    if name == "big and missing" and kind in ("series", "pandas") and pd.Series(values).dtype == float:
        return  # pandas 2 makes it a float
    with pytest.raises(ValueError, match=rf"^column 'c' holds (values of )?{message}"):
        sf.open_table(source(kind, values))


def test_a_long_example_is_cut():
    with pytest.raises(ValueError, match=r"such as 'x{59}\.\.\. \(str\) and 1 \(int\)"):
        sf.open_table({"c": ["x" * 1000, 1]})


def test_types_that_polars_alone_has_are_refused():
    pl = pytest.importorskip("polars")
    with pytest.raises(ValueError, match=r"column 'c' is of type Object, such as Fraction\(1, 3\); convert it to"):
        sf.open_table(pl.DataFrame({"c": pl.Series([fractions.Fraction(1, 3)], dtype=pl.Object)}))
    if not hasattr(pl, "Int128"):
        return  # older versions have no such integers
    with pytest.raises(ValueError, match=r"column 'c' is of type Int128, such as 10{30}; cast it to pl.Float64 .*code"):
        sf.open_table(pl.DataFrame({"c": [10**30]}))


class TestOddTypes:
    """What `tests/campaigns/tables.py` has found."""

    def test_a_number_that_a_chunk_names_twice_is_one_category(self):
        """0 and -0 are two values to Arrow."""
        table = {"e": [0.0, -0.0, float("-inf"), 2.0] * 20}
        encoder = sf.fit_encoder(sf.Schema([sf.Categorical("e")]), table)
        assert encoder.fields[0].vocabulary.names.to_pylist() == ["0", "-inf", "2"]

    def test_names_that_a_dictionary_has_twice_are_one_category(self):
        codes, names = pa.array([0, 1, 2, 0] * 20, pa.int32()), pa.array(["u", "u", "v"])
        encoder = sf.fit_encoder(sf.Schema([sf.Categorical("e")]), {"e": pa.DictionaryArray.from_arrays(codes, names)})
        assert encoder.fields[0].vocabulary.names.to_pylist() == ["u", "v"]

    @pytest.mark.parametrize("kind", [pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")], ids=str)
    def test_times_of_day_have_one_name_in_all_units(self, kind):
        times = [datetime.time(0, 0), datetime.time(10, 30), datetime.time(23, 59, 50)]
        encoder = sf.fit_encoder(sf.Schema([sf.Categorical("t")]), pa.table({"t": pa.array(times * 3, kind)}))
        assert sorted(encoder.fields[0].vocabulary.names.to_pylist()) == ["00:00:00", "10:30:00", "23:59:50"]
        for other in (times, pa.array(times, pa.time32("s")), ["00:00:00", "10:30:00", "23:59:50"]):
            assert (
                encoder.encode({"t": other}).start.tolist()
                == encoder.encode({"t": pa.array(times, kind)}).start.tolist()
            )

    def test_parts_of_seconds_stay(self):
        times = pa.array([datetime.time(1, 2, 3, 500_000), datetime.time(1, 2, 3, 120)])
        encoder = sf.fit_encoder(sf.Schema([sf.Categorical("t")]), pa.table({"t": times}))
        assert sorted(encoder.fields[0].vocabulary.names.to_pylist()) == ["01:02:03.00012", "01:02:03.5"]

    @pytest.mark.parametrize(
        ("kind", "plain"),
        [
            (pa.binary_view(), pa.binary()),
            (pa.list_(pa.string_view()), pa.list_(pa.string())),
            (pa.large_list(pa.string_view()), pa.list_(pa.string())),
        ],
        ids=str,
    )
    def test_views_are_read_as_what_they_show(self, kind, plain):
        values = [b"a", b"b", None] * 10 if kind == pa.binary_view() else [["a", "b"], ["b"], None] * 10
        tables = [pa.table({"c": pa.array(values, each), "y": [0, 1, 1] * 10}) for each in (kind, plain)]
        training = sf.Training(epochs=1, threads=1)
        fitted = sf.fit_model(tables[0], "y", model=sf.FM(k=2), training=training)
        assert fitted.scores(tables[0]).tolist() == fitted.scores(tables[1]).tolist()

    def test_structured_arrays_have_named_columns(self):
        array = np.array([(1.5, "a", 0), (2.5, "b", 1)] * 10, [("x", "f8"), ("c", "U1"), ("y", "i4")])
        assert sf.open_table(array).names == ("x", "c", "y")
        columns = {name: array[name] for name in array.dtype.names}
        training = sf.Training(epochs=1, threads=1)
        fitted = sf.fit_model(array, "y", model=sf.FM(k=2), training=training)
        assert fitted.scores(array).tolist() == fitted.scores(columns).tolist()

    @pytest.mark.parametrize("field", [None, sf.Categorical("c"), sf.MultiValued("c"), sf.Numerical("c")], ids=str)
    @pytest.mark.parametrize(
        ("values", "kind", "advice"),
        [
            ([{"a": 1}], None, "split its parts into columns"),
            ([[("k", 1)]], pa.map_(pa.string(), pa.int64()), "split its parts into columns"),
            ([["a"]], pa.list_view(pa.string()), "cast it to a list"),
        ],
        ids=["struct", "map", "view"],
    )
    def test_nested_columns_are_refused_with_advice_that_helps(self, values, kind, advice, field):
        table = pa.table({"c": pa.array(values * 20, kind), "y": [0, 1] * 10})
        with pytest.raises(ValueError, match=f"column 'c' is of the nested type .*; {advice}"):
            sf.fit_encoder(sf.infer_schema(table, target="y") if field is None else sf.Schema([field]), table)

    def test_lists_of_lists_are_refused(self):
        table = pa.table({"c": [[["a"]]] * 20, "y": [0, 1] * 10})
        with pytest.raises(ValueError, match=r"column 'c' holds lists of list<.*make them lists of text or numbers"):
            sf.infer_schema(table, target="y")
