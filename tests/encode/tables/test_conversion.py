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
from splinefm.encode.tables.open import open_table

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
    table = open_table(data)
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
    with pytest.raises(ValueError, match=rf"^column 'c' holds (values of )?{message}"):
        open_table(source(kind, values))


def test_a_long_example_is_cut():
    with pytest.raises(ValueError, match=r"such as 'x{59}\.\.\. \(str\) and 1 \(int\)"):
        open_table({"c": ["x" * 1000, 1]})


def test_types_that_polars_alone_has_are_refused():
    pl = pytest.importorskip("polars")
    with pytest.raises(ValueError, match=r"column 'c' is of type Object, such as Fraction\(1, 3\); convert it to"):
        open_table(pl.DataFrame({"c": pl.Series([fractions.Fraction(1, 3)], dtype=pl.Object)}))
    with pytest.raises(ValueError, match=r"column 'c' is of type Int128, such as 10{30}; cast it to pl.Float64 .*code"):
        open_table(pl.DataFrame({"c": [10**30]}))
