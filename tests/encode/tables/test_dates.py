"""Dates and times: reading them, and their parts."""

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import splinefm as sf
from splinefm._wording import on_command_line
from splinefm.encode.plans import read_number
from splinefm.encode.tables.arrow import from_strings
from splinefm.encode.tables.columns import as_seconds
from splinefm.encode.tables.dates import find_format, parse_times, seconds_of, take_part, to_seconds, to_times
from support import examples

TIMES = st.datetimes(dt.datetime(1600, 1, 1), dt.datetime(2400, 12, 31))


@given(TIMES)
def test_parts_are_those_of_the_calendar(time):
    seconds = np.array([seconds_of(time)])
    hour, weekday, yearday = (take_part(seconds, part)[0] for part in ("hour", "weekday", "yearday"))
    midnight = dt.datetime(time.year, time.month, time.day)
    assert abs(hour - (time - midnight).total_seconds() / 3600) < 1e-5
    assert weekday == time.weekday()
    assert yearday == dt.date(2000, time.month, time.day).timetuple().tm_yday
    assert take_part(seconds, "trend")[0] == seconds[0]


@given(TIMES, st.integers(-12, 12))
def test_text_and_types_mean_the_same(time, offset):
    time = time.replace(microsecond=0)
    zoned = time.replace(tzinfo=dt.timezone(dt.timedelta(hours=offset)))
    expected = seconds_of(time) - 3600 * offset
    columns = [pa.array([zoned.isoformat()]), pa.array([zoned], pa.timestamp("us", "UTC"))]
    assert [as_seconds(column, "t")[0] for column in columns] == [expected, expected]
    plain = [
        pa.array([str(time)]),
        pa.array([time]),
        pa.array([time], pa.timestamp("ms")),
        pa.array([expected + 3600 * offset]),
    ]
    assert [as_seconds(column, "t")[0] for column in plain] == [seconds_of(time)] * 4


def test_a_zone_tells_whose_clock_counts():
    text = pa.array(["2024-07-01T10:00:00Z", "2024-01-01T10:00:00+00:00", "2024-07-01 12:00"])
    typed = pd.Series(pd.to_datetime(["2024-07-01T10:00Z", "2024-01-01T10:00Z"])).dt.tz_convert("America/New_York")
    for column, hours in ((text, [12, 11, 12]), (pa.array(typed), [12, 11])):
        field = sf.Numerical("h", column="t", part="hour", zone="Europe/Paris")
        assert field.read(column).tolist() == hours
    with pytest.raises(ValueError, match='zone must be a name such as "Europe/Paris"'):
        sf.Numerical("h", part="hour", zone="Mars/Olympus")


def test_seconds_are_the_same_in_every_unit():
    """A count of nanoseconds has more digits than a float: rounded before the division, it was another time."""
    rng = np.random.default_rng(0)
    times = [dt.datetime(1980, 1, 1) + dt.timedelta(microseconds=int(n)) for n in rng.integers(0, 3 * 10**15, 500)]
    late = [time.replace(year=year) for year, time in zip([1, 1500, 2500, 9999] * 10, times, strict=False)]
    expected = [seconds_of(time) for time in times]
    for unit in ("us", "ns"):
        np.testing.assert_array_equal(to_seconds(pa.array(times, pa.timestamp(unit))), expected)
    np.testing.assert_array_equal(to_seconds(pa.array(late, pa.timestamp("us"))), [seconds_of(time) for time in late])
    odd = 1_700_000_000_123_456_789
    assert to_seconds(pa.array([odd, None], pa.timestamp("ns")))[0] == odd / 10**9


@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "+05:30"])
@pytest.mark.parametrize("unit", ["s", "us"])
def test_clocks_change_after_2037(zone, unit):
    """Arrow knows no changes of clocks after 2037; rows are read by Python, which does."""
    years = (1900, 2024, 2036, 2037, 2038, 2045, 2100, 9998)
    times = [dt.datetime(year, month, 15, 12, 30, tzinfo=dt.UTC) for year in years for month in range(1, 13)]
    found = to_seconds(pa.array([None, *times], pa.timestamp(unit, "UTC")), zone)
    np.testing.assert_array_equal(found, [np.nan, *(seconds_of(time, zone) for time in times)])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_times_that_python_does_not_have_are_read_in_a_zone(unit):
    """The calendar repeats after 400 years, and so do the changes of clocks."""
    era = {"s": 146_097 * 86_400, "ms": 146_097 * 86_400 * 1000}.get(unit, 0)
    late = int(dt.datetime(2400, 7, 1, tzinfo=dt.UTC).timestamp()) * (1000 if unit == "ms" else 1)
    times = pa.array([late, late + 20 * era] if era else [2**63 - 1, -(2**63) + 1], pa.timestamp(unit, "UTC"))
    hours = take_part(to_seconds(times, "Europe/Rome"), "hour")
    assert hours[0] == hours[1] == 2.0 if era else ((hours >= 0.0) & (hours < 24.0)).all()


def test_the_zone_of_a_column_is_inferred():
    times = pd.date_range("2024-01-01", periods=900, freq="5h", tz="America/New_York")
    schema = sf.infer_schema({"t": times})
    assert schema["t.hour"].zone == "America/New_York"
    assert sf.infer_schema({"t": times.tz_convert("UTC")})["t.hour"].zone is None


@pytest.mark.parametrize(
    ("text", "format"),
    [
        (["5/28/2011", "1/2/2011"], "%m/%d/%Y"),
        (["28/5/2011", "1/2/2011"], "%d/%m/%Y"),
        (["5/28/2011 13:30", "1/2/2011 08:00"], "%m/%d/%Y %H:%M"),
        (["5/28/2011 1:30:00 PM"], "%m/%d/%Y %I:%M:%S %p"),
        (["28.05.2011"], "%d.%m.%Y"),
        (["2011/05/28"], "%Y/%m/%d"),
        (["28 May 2011", "1 Jun 2011"], "%d %b %Y"),
        (["May 28, 2011"], "%b %d, %Y"),
        (["5/28/11"], "%m/%d/%y"),
        (["2011-05-28"], None),
        (["1.5", "28"], None),
        (["10/28"], None),
        (["1-2-3"], None),
    ],
    ids=str,
)
def test_other_formats_are_found(text, format):
    assert find_format(from_strings(text)) == (format, False)


def test_dates_that_have_two_meanings_are_not_guessed():
    schema = sf.infer_schema({"t": ["5/6/2011", "1/2/2011"] * 50})
    assert isinstance(schema["t"], sf.Categorical)
    assert "two ways" in schema.reasons["t"] and "sf.Timestamp('t', format=" in schema.reasons["t"]


def test_what_is_no_date_is_told_or_missing():
    column = pa.array(["2024-01-01", "soon", None, "2024-02-30"])
    with pytest.raises(ValueError, match=r"column 't' should hold dates .* but has 'soon'.*text=\"missing\""):
        as_seconds(column, "t")
    assert np.isnan(as_seconds(column, "t", text="missing")).tolist() == [False, True, True, True]
    times, stray = parse_times(column.cast(pa.large_string()))
    assert stray.tolist() == [False, True, False, True] and times.null_count == 3


def test_seconds_in_a_text_file_are_told_apart_from_dates(tmp_path):
    (tmp_path / "t.csv").write_text("t,y\n" + "".join(f"{10**9 + 5000 * i},{i % 2}\n" for i in range(40)))
    schema = sf.Schema([sf.Timestamp("t")])
    with pytest.raises(ValueError, match=r"'t' .* has '1000000000'; for seconds since 1970 .*types=\{'t'"):
        sf.fit_encoder(schema, tmp_path / "t.csv")
    typed = sf.open_table(tmp_path / "t.csv", types={"t": pa.int64()})
    assert sf.fit_encoder(schema, typed).n_rows == 40
    with on_command_line(), pytest.raises(ValueError, match="write the table as a Parquet file"):
        as_seconds(pa.array(["1000000000"]), "t")


def test_seconds_become_times_again():
    assert to_times(np.array([86400.0, np.nan])).astype(str).tolist() == ["1970-01-02T00:00:00.000", "NaT"]


class TestTimestamp:
    def test_a_schema_takes_it_apart(self):
        schema = sf.Schema([sf.Timestamp("seen_at", parts=["hour", "trend"], zone="Europe/Paris"), sf.Categorical("c")])
        assert schema.names == ("seen_at.hour", "seen_at.trend", "c") and schema.columns == ("seen_at", "c")
        assert {item.zone for item in schema.on_column("seen_at")} == {"Europe/Paris"}
        assert sf.Schema.from_dict(schema.to_dict()) == schema

    def test_a_schema_file_may_have_one(self, tmp_path):
        (tmp_path / "s.toml").write_text('[[field]]\nkind = "Timestamp"\nname = "t"\nparts = ["weekday"]\n')
        assert sf.Schema.load(tmp_path / "s.toml").names == ("t.weekday",)

    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: sf.Timestamp("t", parts=["minute"]), "part must be one of 'trend', 'hour'"),
            (lambda: sf.Timestamp("t", parts=[]), "parts takes a list of parts"),
            (lambda: sf.Timestamp("t", parts="hour"), "parts takes a list of parts"),
            (lambda: sf.Numerical("t", format="%Y"), "format and zone are for dates"),
            (lambda: sf.Schema([sf.Timestamp("t", parts=["hour", "hour"])]), "names a field twice: 't.hour'"),
        ],
    )
    def test_bad_ones(self, make, message):
        with pytest.raises(ValueError, match=message):
            make()

    @pytest.mark.parametrize(
        ("times", "parts"),
        [
            (pd.date_range("2020-01-01", periods=800, freq="D"), ["weekday", "yearday", "trend"]),
            (pd.date_range("2020-01-01", periods=800, freq="h"), ["hour", "weekday", "trend"]),
            (pd.date_range("2020-01-01", periods=40, freq="h"), ["trend"]),
            (pd.date_range("2020-01-01", periods=7, freq="D"), ["trend"]),
        ],
    )
    def test_parts_that_the_range_bears_are_inferred(self, times, parts):
        for column in (times, times.astype(str).to_numpy(object)):
            schema = sf.infer_schema({"t": column})
            assert schema.names == tuple(f"t.{part}" for part in parts)
            assert all(schema.reasons[name] for name in schema.names)

    def test_a_numerical_field_finds_out_that_it_reads_dates(self):
        times = pd.date_range("2020-01-01", periods=100, freq="D")
        for column in (times, times.astype(str).to_numpy(object)):
            field = sf.fit_encoder(sf.Schema([sf.Numerical("t")]), {"t": column}).fields[0]
            assert field.part == "trend" and field.read(pa.array(["2020-01-02"])).tolist() == [1577923200.0]


ZONES = ["Europe/Paris", "America/New_York", "Australia/Lord_Howe", "America/St_Johns", "Africa/Casablanca", "UTC"]
# Around these, some of the zones change their clocks.
CHANGES = [
    *(
        dt.datetime(2021, 3, 28, 1),
        dt.datetime(2021, 10, 31, 1),
        dt.datetime(2021, 3, 14, 7),
        dt.datetime(2021, 11, 7, 6),
    ),
    *(
        dt.datetime(2021, 4, 3, 15),
        dt.datetime(2021, 10, 2, 15, 30),
        dt.datetime(2021, 4, 11, 2),
        dt.datetime(2021, 5, 16, 2),
    ),
]


@given(
    st.sampled_from(CHANGES),
    st.integers(-6 * 60, 18 * 60),
    st.sampled_from(ZONES),
    st.sampled_from([None, "+02:00", *ZONES]),
    st.sampled_from([0, 1]),
)
@example(dt.datetime(2021, 3, 28, 2), 30, "Europe/Paris", "Europe/Paris", 0)
@example(dt.datetime(2021, 3, 28, 2), 30, "Europe/Paris", "Europe/Paris", 1)
@example(dt.datetime(2021, 10, 31, 2), 30, "Europe/Paris", "Europe/Paris", 1)
@examples(200)
def test_rows_and_tables_read_times_near_changes_of_the_clock_alike(change, minutes, of, zone, fold):
    """Clocks skip some times, and show others twice."""
    time = (change + dt.timedelta(minutes=minutes)).replace(tzinfo=ZoneInfo(of), fold=fold)
    column = pa.array([time])
    expected = as_seconds(column, "t", zone=zone)[0]
    assert seconds_of(time, zone) == expected
    assert as_seconds(pa.array([time.isoformat()]), "t", zone=zone)[0] == expected
    field = sf.Numerical("t", part="hour", zone=zone)
    assert read_number(field, time) == field.read(column)[0]
