"""Fields and bases that write into slots: what they write is what they compute, and nothing beside it."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm._core import StringTable, uniform_splines
from splinefm.encode.bases import write_windows
from splinefm.encode.tables.columns import text_buffers

units = st.lists(st.floats(0, 1), max_size=40).map(lambda values: np.array([*values, 0.0, 1.0]))
BASES = [
    sf.BSpline(7, 1),
    sf.BSpline(5, 0),
    sf.BSpline(5, 2, periodic=True),
    sf.BSpline(knots=(0, 0.1, 0.5, 1)),
    sf.MultiResolution((3, 9, 4), degree=2),
    sf.MultiResolution((3, 9), degree=0),
    sf.Bins(7),
    sf.Polynomial(4),
    sf.CustomBasis((np.ones_like, np.sqrt)),
]


def recurrence(u, segments, degree):
    """The formula in NumPy: of the weight of function j, the part (t + d - 1 - j) / d moves on to function j + 1."""
    scaled = u * segments
    start = np.minimum(scaled.astype(np.int32), segments - 1)
    t = scaled - start
    weight = np.zeros((degree + 1, len(u)))
    weight[0] = 1.0
    for d in range(1, degree + 1):
        for j in range(d - 1, -1, -1):
            rising = (t + (d - 1 - j)) * (weight[j] / d)
            weight[j + 1] += rising
            weight[j] -= rising
    return start, weight.T


def columns_of_a_wider_array(n, widths, dtype):
    """Arrays of NaN or -1 with room on both sides, and the columns to write to."""
    whole = np.full((n, widths + 3), -1 if dtype == np.int32 else np.nan, dtype)
    return whole, whole[:, 2:-1]


def assert_nothing_beside(whole):
    beside = whole[:, [0, 1, -1]]
    assert (np.isnan(beside) if whole.dtype.kind == "f" else beside == -1).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@given(u=units, segments=st.integers(1, 200), degree=st.integers(1, 5), first=st.integers(0, 2**31 - 300))
def test_uniform_splines_are_those_of_numpy_to_the_last_bit(dtype, u, segments, degree, first):
    starts, start = columns_of_a_wider_array(len(u), 1, np.int32)
    weights, weight = columns_of_a_wider_array(len(u), degree + 1, dtype)
    uniform_splines(u, segments, degree, first, start[:, 0], weight)
    expected = recurrence(u, segments, degree)
    np.testing.assert_array_equal(start[:, 0], expected[0] + first)
    np.testing.assert_array_equal(weight, expected[1].astype(dtype))
    assert_nothing_beside(starts)
    assert_nothing_beside(weights)


def test_beyond_the_ends_features_stay_inside_and_nan_is_visible():
    start, weight = np.empty(4, np.int32), np.empty((4, 4))
    uniform_splines(np.array([-3.0, 5.0, np.nan, np.inf]), 10, 3, 2, start, weight)
    assert start.tolist() == [2, 11, 2, 11]
    assert np.isnan(weight[2]).all() and not np.isfinite(weight[3]).any() and np.isfinite(weight[:2]).all()


@pytest.mark.parametrize("basis", BASES, ids=lambda basis: type(basis).__name__)
@given(u=units)
def test_a_basis_writes_what_it_returns(basis, u):
    start, weight = basis(u)
    starts, start_into = columns_of_a_wider_array(len(u), start.shape[1], np.int32)
    weights, weight_into = columns_of_a_wider_array(len(u), weight.shape[1], np.float32)
    write_windows(basis, u, 1000, start_into, weight_into)
    np.testing.assert_array_equal(start_into, start + 1000)
    np.testing.assert_array_equal(weight_into, weight.astype(np.float32))
    assert_nothing_beside(starts)
    assert_nothing_beside(weights)


def test_a_subclass_of_a_spline_is_asked_itself():
    class Doubled(sf.BSpline):
        def __call__(self, u):
            start, weight = super().__call__(u)
            return start, 2.0 * weight

    start, weight = np.empty((3, 1), np.int32), np.empty((3, 4), np.float32)
    write_windows(Doubled(), np.array([0.0, 0.5, 1.0]), 0, start, weight)
    np.testing.assert_allclose(weight.sum(axis=1), 2.0)


NUMBERS = pa.array([0.0, 1.5, -2.0, None, 9.0, 1000.0, 3.25])
NAMES = pa.array(["a", "b", "new", None, "", "a", "other"])
FIELDS = [
    (sf.Numerical("x", sf.Quantile(), basis, special=[0.0, ">= 999"], reduction=reduction), NUMBERS)
    for basis in (sf.BSpline(6), sf.MultiResolution((2, 5)), sf.Bins(3), sf.BSpline(5, periodic=True))
    for reduction in ("sum", "identity")
]
FIELDS += [
    (sf.Categorical("c", min_count=2, unseen=unseen), column)
    for unseen in ("rare", "neutral", "hash")
    for column in (NAMES, NAMES.dictionary_encode(), NAMES.drop_null())
]
FIELDS += [
    (sf.Categorical("c", min_count=2), pa.array(["1", "1.0", "2", "02", "3"])),
    (sf.Categorical("c", min_count=2), pa.array([1, 1, 2, None])),
    (sf.MultiValued("c", min_count=2, reduction="mean"), pa.array([["a", "b"], ["a"], None, [], ["z"]])),
]


@pytest.mark.parametrize(("item", "column"), FIELDS)
def test_a_field_writes_what_it_returns(item, column):
    statistics = item.collect()
    statistics.update(column)
    fitted, _ = item.fit(statistics)
    start, weight = fitted.encode(column)
    starts, start_into = columns_of_a_wider_array(len(column), start.shape[1], np.int32)
    weights, weight_into = columns_of_a_wider_array(len(column), weight.shape[1], np.float32)
    weight_into[...] = 1.0
    fitted.encode_into(fitted.read(column), 50, start_into, weight_into)
    np.testing.assert_array_equal(start_into, start + 50)
    np.testing.assert_array_equal(weight_into, weight.astype(np.float32))
    assert_nothing_beside(starts)
    assert_nothing_beside(weights)


@pytest.mark.parametrize("dictionary", [["b", "a"], ["b", None, "a"], ["unused", "", "b", None, "other", "a", "new"]])
def test_codes_of_a_dictionary_are_written_as_their_names_are(dictionary):
    for unseen in ("rare", "neutral", "hash"):
        fitted = sf.Categorical("c", unseen=unseen, buckets=5, vocabulary=["b", "a"])
        names = [*dictionary[::-1], None, *dictionary]
        plain = pa.array(names, pa.string())
        codes = [None if name is None and None not in dictionary else dictionary.index(name) for name in names]
        for column in (plain, pa.DictionaryArray.from_arrays(pa.array(codes, pa.int8()), pa.array(dictionary))):
            start, weight = np.zeros((len(names), 1), np.int32), np.ones((len(names), 1), np.float32)
            fitted.encode_into(fitted.read(column), 50, start, weight)
            expected = fitted.encode(plain)
            np.testing.assert_array_equal(start, expected[0] + 50)
            np.testing.assert_array_equal(weight, expected[1])


def test_a_code_of_a_missing_value_may_be_an_error():
    fitted = sf.Categorical("c", missing="error", vocabulary=["a"])
    column = pa.array(["a", None]).dictionary_encode()
    with pytest.raises(ValueError, match="missing values"):
        fitted.encode_into(fitted.read(column), 0, np.zeros((2, 1), np.int32), np.ones((2, 1), np.float32))


@given(st.lists(st.sampled_from(["", "a", "bb", "é", "longer than a word"])), st.integers(0, 100), st.integers(-9, 9))
def test_positions_are_written_from_the_first_feature_on(asked, first, unknown):
    known = ["a", "longer than a word", ""]
    table = StringTable(*text_buffers(pa.array(known, pa.large_string())))
    whole, out = columns_of_a_wider_array(len(asked), 1, np.int32)
    count = table.find_into(*text_buffers(pa.array(asked, pa.large_string())), first, unknown, out[:, 0])
    assert out[:, 0].tolist() == [first + known.index(name) if name in known else unknown for name in asked]
    assert count == sum(name not in known for name in asked)
    assert_nothing_beside(whole)
