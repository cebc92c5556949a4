"""What is shown of a column, in which order and in which words: categories, tokens, shortened names, dates."""

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.figure import Figure

import splinefm as sf
from splinefm.inspect.axes import NUMBERS, RawAxis, Scale, axis_format
from splinefm.inspect.curves import Bars, Surface
from splinefm.inspect.importance import Importance
from splinefm.plots.captions import captions
from splinefm.plots.decorations import set_raw_axis


def labels(axis):
    return [text.get_text() for text in axis.get_majorticklabels()]


def bars_of(vocabulary, counts=None, **settings):
    item = sf.Categorical("c", vocabulary=vocabulary, **settings)
    rows = np.random.default_rng(0).normal(size=item.layout.n_features)
    return Bars(item, rows, 0.0, sf.Loss(), counts)


# The order of categories


AMOUNTS = ["0", "15024", "7688", "594", "99999"]


def test_bars_of_numbers_are_in_order_and_others_by_size():
    assert labels(sf.plots.bars(bars_of(AMOUNTS, missing="error", unseen="neutral")).yaxis) == [
        "0",
        "594",
        "7688",
        "15024",
        "99999",
    ]
    bars = bars_of(["b", "a", "c"], missing="error", unseen="neutral")
    by_size = [bars.names[i] for i in np.argsort(-bars.scores)]
    assert labels(sf.plots.bars(bars).yaxis) == by_size


def test_bars_are_chosen_by_frequency_and_then_ordered():
    ax = sf.plots.bars(bars_of(AMOUNTS), most=3)
    assert labels(ax.yaxis)[:3] == ["0", "7688", "15024"] and "2 rarer not shown" in ax.get_xlabel()
    grown = bars_of(AMOUNTS, np.array([0.0, 0.0, 9, 1, 2, 8, 7]))  # the last two were added later
    ax = sf.plots.bars(grown, most=3)
    assert labels(ax.yaxis) == ["0", "594", "99999"]
    ends = [bar.get_x() + bar.get_width() for bar in ax.patches]
    assert np.allclose(ends, grown(["0", "594", "99999"]))


def test_a_surface_has_its_categories_in_order():
    rng = np.random.default_rng(0)
    days, codes = ["Sun", "Mon", "Fri"], ["10", "9", "-1"]
    fields = sf.Categorical("day", vocabulary=days), sf.Categorical("code", vocabulary=codes)
    rows = rng.normal(size=5), rng.normal(size=5)
    surface = Surface(fields, rows, (rng.normal(size=(5, 2)), rng.normal(size=(5, 2))), np.ones(2), 0.0, sf.Loss())
    ax = sf.plots.surface(surface)
    assert labels(ax.xaxis) == ["Mon", "Fri", "Sun"] and labels(ax.yaxis) == ["-1", "9", "10"]
    expected = [surface(["Mon", "Fri", "Sun"], [code] * 3) for code in ("-1", "9", "10")]
    assert np.allclose(ax.collections[0].get_array(), expected)


# Tokens that training never met


def test_tokens_without_training_rows_are_not_drawn():
    table = {"x": [1.0, 2.0, 3.0, 0.0] * 5, "c": ["a", "b", "b", "c"] * 5, "y": [0.0, 1.0, 1.0, 0.0] * 5}
    schema = sf.Schema([sf.Numerical("x", special=[0.0, 99.0]), sf.Categorical("c", min_count=8)])
    training = sf.Training(epochs=1, threads=1)
    fitted = sf.fit_model(table, "y", schema=schema, model=sf.FM(k=2), training=training)
    curve = fitted.segment({"c": "b"}, along="x")
    assert list(curve.tokens) == ["= 0", "= 99", "missing"] and list(curve.met_tokens) == ["= 0"]
    assert curve([None])[0] == pytest.approx(fitted.scores({"x": [None], "c": ["b"]})[0], abs=1e-5)
    (strip,) = sf.plots.curve(curve).child_axes
    assert labels(strip.xaxis) == ["= 0"]
    bars = fitted.segment({"x": 1.0}, along="c")
    assert list(bars.tokens) == ["missing", "rare"] and list(bars.shown_tokens) == ["rare"]
    assert labels(sf.plots.bars(bars).yaxis)[-1] == "(rare)" and len(sf.plots.bars(bars).patches) == 2
    family = sf.segments(fitted, {"x": [1.0, 2.0]}, along="c")
    assert list(family.met_tokens) == list(family[0].met_tokens) == ["rare"]


# Names that are shortened


NAMES = ["Married-civ-spouse", "Married-AF-spouse", "Married-spouse-absent", "Never-married"]


def test_shortened_names_in_a_picture_differ():
    rng = np.random.default_rng(0)
    vocabulary = [f"a long name that differs in its middle {i} and ends as the others do" for i in range(6)]
    assert len(set(labels(sf.plots.bars(bars_of(vocabulary)).yaxis))) == 8
    fields = sf.Categorical("c", vocabulary=NAMES), sf.Categorical("d", vocabulary=vocabulary)
    sides = [rng.normal(size=(item.layout.n_features, 2)) for item in fields]
    surface = Surface(fields, (sides[0][:, 0], sides[1][:, 0]), tuple(sides), np.ones(2), 0.0, sf.Loss())
    ax = sf.plots.surface(surface)
    assert len(set(labels(ax.xaxis))) == 4 and len(set(labels(ax.yaxis))) == 6
    ones = np.ones(6)
    importance = Importance(tuple(vocabulary), ones, ones, np.ones((6, 6)) - np.eye(6))
    assert len(set(labels(sf.plots.importance(importance).yaxis))) == 6
    assert len(set(labels(sf.plots.pairs(importance).yaxis))) == 5


words = st.text(st.sampled_from("ab -…($"), max_size=40)


@given(st.lists(st.one_of(words, words.map(lambda word: f"the same start{word}the same end"))), st.integers(12, 30))
def test_captions_differ_as_their_names_do_and_are_short(names, longest):
    texts = captions(names, longest)
    assert len(set(texts)) == len(set(names))
    assert [texts[names.index(name)] for name in names] == texts
    for text in texts:
        assert len(text.replace(r"\$", "$")) <= longest + longest // 4 and "\n" not in text


# Axes of dates and clocks


def field_of(part):
    return SimpleNamespace(part=part)


def seconds(*parts):
    return datetime(*parts, tzinfo=UTC).timestamp()


def test_plain_fields_are_written_as_numbers():
    assert axis_format(sf.Numerical("x")) is NUMBERS and axis_format(field_of(None)) is NUMBERS
    assert NUMBERS.texts([1.5, 2e9, 3.0]) == ["1.5", "2e+09", "3"] and NUMBERS.ticks(0.0, 1.0, 5) is None


@pytest.mark.parametrize(
    ("part", "value", "text"),
    [
        ("trend", seconds(2024, 2, 29), "2024-02-29"),
        ("trend", seconds(2024, 2, 29, 13, 5), "2024-02-29 13:05"),
        ("trend", seconds(2024, 2, 29, 13, 5, 59), "2024-02-29 13:05:59"),
        ("trend", seconds(2023, 12, 31, 23, 59, 59) + 0.9, "2024-01-01 00:00:00"),
        ("trend", -1.0, "1969-12-31 23:59:59"),
        ("trend", 1e15, "9999-12-31 23:59:59"),
        ("weekday", 0.0, "Mon"),
        ("weekday", 6.4, "Sun"),
        ("weekday", 7.0, "Sun"),
        ("yearday", 1.0, "Jan 1"),
        ("yearday", 60.0, "Feb 29"),
        ("yearday", 186.7, "Jul 4"),
        ("yearday", 367.0, "Dec 31"),
        ("hour", 0.0, "00:00"),
        ("hour", 13.5, "13:30"),
        ("hour", 24.0, "24:00"),
    ],
)
def test_parts_of_dates_are_written_as_people_do(part, value, text):
    assert axis_format(field_of(part)).text(value) == text


def test_dates_have_no_more_detail_than_tells_them_apart():
    dates = axis_format(field_of("trend"))
    assert dates.texts([seconds(2024, 1, 1, 5), seconds(2024, 6, 1, 7)]) == ["2024-01-01", "2024-06-01"]
    assert dates.texts([seconds(2024, 1, 1, 5), seconds(2024, 1, 1, 7)]) == ["2024-01-01 05:00", "2024-01-01 07:00"]
    assert dates.text(seconds(2024, 1, 1, 5, 6, 7), span=1e8) == "2024-01-01"
    assert dates.text(seconds(2024, 1, 1, 5, 6, 7), span=86400.0) == "2024-01-01 05:06"
    assert dates.texts([seconds(2024, 1, 1, 5)]) == ["2024-01-01 05:00"] and dates.texts([]) == []


@given(st.sampled_from(["trend", "hour", "weekday", "yearday"]), st.data(), st.integers(2, 9))
def test_ticks_are_in_the_range_and_not_too_many(part, data, most):
    ends = {"trend": (-6e10, 2e11), "hour": (0.0, 24.0), "weekday": (-0.5, 6.5), "yearday": (1.0, 367.0)}[part]
    low = data.draw(st.floats(*ends))
    high = min(low + data.draw(st.sampled_from([1.0, 1e2, 1e4, 1e6, 1e8, 1e10, ends[1] - ends[0]])), ends[1])
    places, names = axis_format(field_of(part)).ticks(low, high, most)
    assert len(places) == len(names) <= most + 1
    assert all(low - 1e-6 <= place <= high + 1e-6 for place in places) and (np.diff(places) > 0).all()


def test_a_small_axis_has_two_ticks_of_a_clock():
    assert axis_format(field_of("hour")).ticks(0.1, 23.9, 2)[1] == ["06:00", "18:00"]
    assert axis_format(field_of("hour")).ticks(9.0, 9.1, 4)[1] == ["09:00"]


@pytest.mark.parametrize(
    ("low", "high", "names"),
    [
        ((2010, 3, 1), (2020, 1, 1), ["2012", "2014", "2016", "2018", "2020"]),
        ((2023, 11, 20), (2024, 4, 10), ["Dec\n2023", "Jan\n2024", "Feb", "Mar", "Apr"]),
        ((2024, 4, 1), (2024, 4, 5), ["Apr 1\n2024", "Apr 2", "Apr 3", "Apr 4", "Apr 5"]),
        ((2024, 4, 1, 1), (2024, 4, 1, 5), ["01:00\n2024-04-01", "02:00", "03:00", "04:00", "05:00"]),
    ],
)
def test_ticks_of_dates_are_whole_units_of_the_calendar(low, high, names):
    assert axis_format(field_of("trend")).ticks(seconds(*low), seconds(*high), 5)[1] == names


def test_an_axis_takes_the_format_of_its_field():
    ax = Figure().subplots()
    axis = RawAxis(-0.5, 6.5, Scale(), axis_format(field_of("weekday")))
    set_raw_axis(ax, "x", axis, "seen_at.weekday")
    assert labels(ax.xaxis) == ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"] and ax.get_xlim() == (-0.5, 6.5)
    trend = RawAxis(seconds(2010, 3, 1), seconds(2020, 1, 1), Scale(), axis_format(field_of("trend")))
    set_raw_axis(ax, "y", replace(trend), "seen_at.trend")
    assert labels(ax.yaxis)[-1] == "2020"
