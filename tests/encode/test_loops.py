"""Compiled loops of the encoder against plain Python."""

import copy
import pickle
from collections import Counter
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm._core import Interpolation, StringTable, probe_hash, summarize
from splinefm.encode.fields.vocabulary import Vocabulary, _count
from splinefm.encode.plans import RowFields, compile_columns
from splinefm.encode.tables.columns import text_buffers

words = st.lists(st.text(max_size=12), max_size=30)


@given(words.map(lambda names: sorted(set(names))), words)
def test_look_up_is_a_dictionary(known, asked):
    place = {name: i for i, name in enumerate(known)}
    found = Vocabulary(pa.array(known, pa.large_string())).find(pa.array(asked, pa.large_string()))
    assert found.tolist() == [place.get(name, -1) for name in asked]


@given(words, st.integers(0, 5), st.integers(0, 20))
def test_look_up_in_a_slice_of_an_array(asked, begin, length):
    asked = pa.array(asked, pa.large_string()).slice(begin, length)
    found = Vocabulary(pa.array(["", "a", "é"], pa.large_string())).find(asked)
    assert found.tolist() == [{"": 0, "a": 1, "é": 2}.get(name, -1) for name in asked.to_pylist()]


@given(st.lists(st.none() | st.sampled_from(["", "a", "b", "12345678", "123456789", "é"]) | st.text(max_size=3)))
def test_counting_is_that_of_a_counter(names):
    counted, count = _count(pa.array(names, pa.large_string()))
    found = dict(zip(counted.to_pylist(), count.to_pylist(), strict=True))
    assert found == dict(Counter(name for name in names if name is not None))


def test_short_names_with_the_same_hash_are_told_apart_by_their_size():
    names = pa.array(["a", "b\0", "a", "b"], pa.large_string())
    hashes = probe_hash(*text_buffers(names))
    assert hashes[0] == hashes[1]
    counted, count = _count(names)
    assert counted.to_pylist() == ["a", "b\0", "b"] and count.to_pylist() == [2, 1, 1]
    assert Vocabulary(names).find(names).tolist() == [0, 1, 0, 3]


@pytest.mark.parametrize("form", ["%d", "name-%d", "%08x", "a%dz", "a long name with a number %d in it"])
def test_names_that_are_alike_are_spread_over_the_table(form):
    """Few steps to a free slot: by a hash whose low bits depend on some of the letters alone it would be dozens."""
    offsets, text = text_buffers(pa.array([form % i for i in range(0, 8000, 2)], pa.large_string()))
    taken = np.zeros(8192, bool)  # as in a StringTable of that many names
    for slot in (probe_hash(offsets, text) % 8192).tolist():
        while taken[slot]:
            slot = (slot + 1) % 8192
        taken[slot] = True
    free = np.flatnonzero(~taken)
    assert len(free) == 8192 - 4000
    runs = np.diff(free, append=free[0] + len(taken)) - 1
    assert (runs**2).sum() / len(taken) < 5.0


def test_of_equal_strings_the_first_is_found():
    offsets, text = text_buffers(pa.array(["a", "b", "a", ""], pa.large_string()))
    assert StringTable(offsets, text).find(offsets, text).tolist() == [0, 1, 0, 3]


def interpolate(x, knots, values):
    return Interpolation(knots, values)(x)


@given(
    st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=40, unique=True).map(sorted),
    st.lists(st.floats(-2e6, 2e6), max_size=20),
    st.sampled_from([1.0, 1e-9, 1e250]),
    st.booleans(),
)
def test_interpolation_is_that_of_numpy(knots, x, scale, skewed):
    knots = np.array(knots) / 7.0
    knots = (np.sinh(knots / 1e4) if skewed else knots) * scale
    values = np.linspace(0.0, 1.0, len(knots))
    x = np.concatenate([np.array(x) * scale, knots, (knots[1:] + knots[:-1]) / 2])
    np.testing.assert_allclose(interpolate(x, knots, values), np.interp(x, knots, values), atol=1e-12)


def test_nan_stays_nan_and_infinity_is_beyond_the_ends():
    found = interpolate(np.array([np.nan, 0.5, np.inf, -np.inf]), np.array([0.0, 1.0]), np.array([0.25, 0.75]))
    np.testing.assert_array_equal(found, [np.nan, 0.5, 0.75, 0.25])


@given(st.lists(st.integers(0, 60), min_size=1, max_size=300), st.integers(8, 40))
def test_a_summary_keeps_ends_and_heavy_values_with_exact_ranks(x, capacity):
    value, below, at = summarize(np.array(x, float), capacity)
    x = np.sort(np.array(x, float))
    kept = len(value)
    distinct, count = np.unique(x, return_counts=True)
    assert kept <= capacity
    if len(distinct) <= capacity:
        np.testing.assert_array_equal(value, distinct)
    assert set(distinct[count > len(x) / (capacity // 2)]) | {x[0], x[-1]} <= set(value)
    np.testing.assert_array_equal(below, np.searchsorted(x, value))
    np.testing.assert_array_equal(at, [(x == v).sum() for v in value])
    between = np.diff(below) - at[:-1]
    assert between.max(initial=0) <= 2 * len(x) / max(1, capacity // 2 - 3) + 1


# Numbers that differ in their highest bits, in their lowest, in both; and many that are equal.
COLUMNS = {
    "lognormal": lambda rng, n: rng.lognormal(0.0, 1.5, n),
    "both signs": lambda rng, n: rng.standard_cauchy(n),
    "close, and one far away": lambda rng, n: np.where(np.arange(n) == 7, 1e300, 1e9 + rng.integers(0, n, n) * 2e-7),
    "two close groups": lambda rng, n: rng.choice([-1.0, 1e-9], n) * (1.0 + rng.integers(0, n, n) * 2.0**-52),
    "whole numbers": lambda rng, n: rng.integers(-5, 400, n).astype(float),
    "zeros of both signs": lambda rng, n: np.where(rng.random(n) < 0.6, rng.choice([0.0, -0.0], n), rng.normal(size=n)),
    "below the normal numbers": lambda rng, n: rng.integers(-n, n, n) * 5e-324,
    "infinite": lambda rng, n: rng.choice([-np.inf, np.inf, 1.0, -1e308], n),
    "one value": lambda rng, n: np.full(n, 3.0),
}


@pytest.mark.parametrize("n", [0, 1, 1023, 1024, 20_000])
@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_all_kinds_are_sorted_as_numpy_does(kind, n):
    x = COLUMNS[kind](np.random.default_rng(0), n)
    value, below, at = summarize(x, max(2, n))
    expected, count = np.unique(x + 0.0, return_counts=True)
    assert value.tobytes() == expected.tobytes()
    assert at.tolist() == count.tolist() and below.tolist() == (np.cumsum(count) - count).tolist()


@pytest.mark.parametrize("made", [pickle.dumps, copy.deepcopy])
def test_what_is_made_of_a_vocabulary_or_of_knots_is_not_kept_with_them(made):
    names, t = Vocabulary(pa.array(["a", "b"], pa.large_string())), sf.Quantile().fit(np.arange(9.0))
    asked = pa.array(["b", "c"], pa.large_string())
    before = made(Vocabulary(names.names)), made(replace(t))
    assert names.find(asked).tolist() == [1, -1] and t(8.0) == 1.0
    after = made(names), made(t)
    if made is pickle.dumps:
        assert after == before
        after = tuple(map(pickle.loads, after))
    assert after[0].find(asked).tolist() == [1, -1] and after[1](8.0) == 1.0


@pytest.mark.parametrize(
    "basis", [sf.BSpline(5, degree=3), sf.BSpline(3, degree=1), sf.MultiResolution((2, 7), degree=2)], ids=str
)
@given(
    st.lists(st.integers(-40, 40), min_size=2, max_size=40, unique=True),
    st.lists(
        st.integers(-400, 400).map(lambda i: i / 7) | st.sampled_from([np.nan, 3.0, 1e300, -1e300, 5e-324]), max_size=40
    ),
    st.sampled_from([1, 7, 8, 255, 256, 257]),
)
def test_a_number_has_the_same_weights_in_a_column_and_alone(basis, knots, x, n):
    """Columns are encoded by blocks, eight numbers at a time; bit by bit as single rows are."""
    knots = np.sort(np.array(knots, float))
    x = np.resize([*x, *knots, 0.5], n).astype(float)
    item = sf.Numerical(
        "x", sf.Quantile(x=tuple(knots), u=tuple(np.linspace(0.0, 1.0, len(knots)))), basis, special=(3.0,)
    )
    start, weight = np.empty((n, len(item.layout.widths)), np.int32), np.empty((n, sum(item.layout.widths)), np.float32)
    compile_columns(item, 10).encode_into(x, start, weight)
    fields = RowFields([item], [10])
    assert not fields.slow
    width = np.array(item.layout.widths)
    inside = np.arange(width.sum()) - np.repeat(np.cumsum(width) - width, width)
    feature = np.repeat(start, width, axis=1) + inside
    for i in range(n):
        features, weights, _, _ = fields.encoder.encode({"x": x[i]}, fields.columns, fields.readers)
        assert feature[i, : len(features)].tolist() == features.tolist()
        assert weight[i, : len(features)].tobytes() == weights.tobytes()
        assert not weight[i, len(features) :].any()  # behind the feature of a special or missing value
