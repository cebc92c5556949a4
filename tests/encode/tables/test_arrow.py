"""The way between NumPy and Arrow by buffers does what pyarrow does by itself."""

import decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_numpy

import splinefm as sf
from splinefm.encode.tables import arrow
from splinefm.encode.tables.arrow import from_strings, scalar, to_arrow, to_numpy
from splinefm.encode.tables.columns import text_buffers

NUMBERS = ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]
text = st.text(st.characters(codec="utf-8"), max_size=9)


def assert_same(found, expected):
    found.validate(full=True)
    assert found.type == expected.type
    assert found.null_count == expected.null_count
    assert repr(found.to_pylist()) == repr(expected.to_pylist())  # NaN is not equal to itself, its name is


def numbers(dtype):
    kind = np.dtype(dtype)
    elements = st_numpy.from_dtype(kind)
    return st_numpy.arrays(
        kind, st.integers(0, 40), elements=elements | st.just(np.nan) if kind.kind == "f" else elements
    )


@given(st.sampled_from(NUMBERS).flatmap(numbers), st.booleans(), st.sampled_from([1, 2, -1, -3]))
def test_numbers_become_what_pyarrow_makes_of_them(values, from_pandas, step):
    for array in (values, values[::step], np.stack([values, values], axis=1)[:, 1]):
        assert_same(to_arrow(array, from_pandas=from_pandas), pa.array(array, from_pandas=from_pandas))


@given(st.lists(text, max_size=12), st.sampled_from([1, 2, -1]))
def test_text_becomes_what_pyarrow_makes_of_it(names, step):
    values = np.array(names, dtype=str)[::step]
    assert_same(to_arrow(values), pa.array(values))


@pytest.mark.parametrize("most", [0, 23, 24])
def test_much_text_is_left_to_pyarrow(monkeypatch, most):
    values = np.array(["ab", "é", ""])
    monkeypatch.setattr(arrow, "_MAX_TEXT", most)
    monkeypatch.setattr(arrow, "_utf_8", lambda values: "converted")
    if most < values.nbytes:
        assert_same(to_arrow(values), pa.array(values))
    else:
        assert to_arrow(values) == "converted"


def test_what_has_more_than_numbers_and_text_is_left_to_pyarrow():
    for values in (
        np.array([1, None], object),
        np.array(["a", None, np.nan], object),
        np.array(["2020-01-01", "NaT"], "M8[s]"),
        np.array([b"ab"]),
        np.ma.array([1.0, 2.0], mask=[False, True]),
        np.array(["a\0b", "c"]),
    ):
        assert_same(to_arrow(values, from_pandas=True), pa.array(values, from_pandas=True))
    for values in (np.arange(3, dtype=">i4"), np.array([1], np.longdouble)):
        with pytest.raises(pa.ArrowNotImplementedError):
            to_arrow(values)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array(["\ud800"]), "column 'x' holds text that is not valid Unicode"),
        (np.array([1, "a"], object), "column 'x' holds values of several types"),
    ],
)
def test_a_column_that_cannot_be_converted_is_named(values, message):
    with pytest.raises(ValueError, match=message):
        sf.open_table({"x": values})


def test_numbers_are_not_copied():
    x = np.arange(5.0)
    x[2] = np.nan
    column = to_arrow(x, from_pandas=True)
    assert column.buffers()[1].address == x.ctypes.data
    assert np.shares_memory(to_numpy(to_arrow(x)), x)
    assert not to_numpy(to_arrow(x)).flags.writeable


@given(st.sampled_from(NUMBERS).flatmap(numbers), st.integers(0, 20), st.integers(0, 20))
def test_there_and_back_through_a_slice(values, first, length):
    column = pa.array(values).slice(first, length)
    found = to_numpy(column)
    assert found.dtype == values.dtype
    np.testing.assert_array_equal(found, values[first : first + length])


def test_other_columns_are_left_to_pyarrow():
    column = pa.array([decimal.Decimal("1.50")])
    assert to_numpy(column).tolist() == [decimal.Decimal("1.50")]


@given(st.lists(text, max_size=12))
def test_strings_become_an_array(names):
    assert_same(from_strings(names), pa.array(names, pa.large_string()))


def test_a_scalar_is_that_of_pyarrow():
    assert scalar(-1, np.int32).equals(pa.scalar(-1, pa.int32()))
    assert scalar(2.5, np.float64).equals(pa.scalar(2.5))
    assert scalar(False, np.bool_).equals(pa.scalar(False))


def test_buffers_of_text_cannot_be_written_to():
    # Otherwise kernels would be compiled for each mixture of buffers that can and that cannot.
    fixed = pa.py_buffer(np.array([0, 1, 2]).tobytes()), pa.py_buffer(b"ab")
    for names in (
        pa.array(["a", "b"], pa.large_string()),
        pa.Array.from_buffers(pa.large_string(), 2, [None, *fixed]),
        from_strings(["a", "b"]),
        from_strings([]),
    ):
        assert [part.flags.writeable for part in text_buffers(names)] == [False, False]
