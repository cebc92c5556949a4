"""Wrong arrays at the border of the compiled module: exceptions, never a crash."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays, scalar_dtypes

from splinefm import _core

OFFSETS, TEXT = np.array([0, 1, 1, 3]), np.frombuffer(b"abc", np.uint8)
KNOTS, VALUES = np.array([0.0, 1.0, 3.0]), np.array([0.0, 0.5, 1.0])
FLOATS = np.arange(8, dtype=np.float32)

# Every function with arguments that are right; a new one joins by an entry.
CALLS = {
    "StringTable": (_core.StringTable, [OFFSETS, TEXT]),
    "StringTable.find": (_core.StringTable(OFFSETS, TEXT).find, [OFFSETS, TEXT]),
    "count_strings": (_core.count_strings, [OFFSETS, TEXT]),
    "probe_hash": (_core.probe_hash, [OFFSETS, TEXT]),
    "Interpolation": (_core.Interpolation, [KNOTS, VALUES]),
    "Interpolation.__call__": (_core.Interpolation(KNOTS, VALUES), [KNOTS]),
    "summarize_sorted": (_core.summarize_sorted, [KNOTS, 8]),
    "probe_vec": (_core.probe_vec, [FLOATS, FLOATS]),
}
PLACES = [
    (name, i) for name, (_, right) in CALLS.items() for i, value in enumerate(right) if isinstance(value, np.ndarray)
]
everything = pytest.mark.parametrize(("name", "i"), PLACES)


def call(name, i, value):
    function, right = CALLS[name]
    return function(*right[:i], value, *right[i + 1 :])


def misaligned(right):
    memory = np.zeros(right.nbytes + 1, np.uint8)
    memory[1:] = np.frombuffer(right.tobytes(), np.uint8)
    return memory[1:].view(right.dtype)


WRONG = {
    "narrower": lambda right: right.astype(np.int16),
    "other kind": lambda right: right.astype(np.complex128),
    "other order of bytes": lambda right: right.astype(right.dtype.newbyteorder(">")) if right.itemsize > 1 else None,
    "strided": lambda right: np.repeat(right, 2)[::2],
    "backwards": lambda right: right[::-1],
    "two dimensions": lambda right: right[:, None],
    "no dimension": lambda right: right[0, ...],
    "misaligned": lambda right: misaligned(right) if right.itemsize > 1 else None,
    "objects": lambda right: right.astype(object),
    "a list": lambda right: right.tolist(),
    "nothing": lambda right: None,
}


@everything
@pytest.mark.parametrize("wrong", WRONG)
def test_another_kind_of_array_is_refused(name, i, wrong):
    value = WRONG[wrong](CALLS[name][1][i])
    if value is None and wrong != "nothing":
        pytest.skip("single bytes have no order")
    with pytest.raises((TypeError, ValueError)):
        call(name, i, value)


@everything
def test_arrays_that_cannot_be_written_to_are_read(name, i):
    value = CALLS[name][1][i].copy()
    value.flags.writeable = False
    call(name, i, value)


@everything
@given(data=st.data())
def test_any_array_gives_a_result_or_an_exception(name, i, data):
    right = CALLS[name][1][i]
    dtype = data.draw(st.one_of(st.just(right.dtype), st.just(right.dtype), scalar_dtypes()))
    shape = data.draw(st.one_of(st.integers(0, 12), array_shapes(min_dims=0)))
    value = data.draw(arrays(dtype, shape))
    try:
        call(name, i, value)
    except (TypeError, ValueError):
        pass
    else:
        assert value.dtype == right.dtype and value.ndim == 1


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 5), max_size=8), st.binary(max_size=4))
def test_offsets_outside_of_the_text_are_refused(offsets, text):
    given, letters = np.array(offsets, np.int64), np.frombuffer(text, np.uint8)
    sound = bool(offsets) and offsets == sorted(offsets) and offsets[0] >= 0 and offsets[-1] <= len(text)
    for function in (_core.StringTable, _core.StringTable(OFFSETS, TEXT).find, _core.count_strings, _core.probe_hash):
        if sound:
            function(given, letters)
        else:
            with pytest.raises(ValueError, match="offsets must"):
                function(given, letters)


@pytest.mark.parametrize(
    ("knots", "values", "message"),
    [
        ([], [], "two or more"),
        ([1.0], [1.0], "two or more"),
        ([0.0, 1.0], [0.0, 0.5, 1.0], "as many of each"),
        ([0.0, 0.0], [0.0, 1.0], "increase strictly"),
        ([0.0, np.nan], [0.0, 1.0], "increase strictly"),
        ([1.0, 0.0], [0.0, 1.0], "increase strictly"),
    ],
)
def test_knots_that_are_none_are_refused(knots, values, message):
    with pytest.raises(ValueError, match=message):
        _core.Interpolation(np.array(knots), np.array(values))


@given(st.lists(st.floats(allow_nan=False), min_size=2, max_size=20, unique=True).map(sorted), st.lists(st.floats()))
def test_any_knots_give_a_value_anywhere(knots, x):
    knots = np.array(knots) + 0.0
    values = np.linspace(0.0, 1.0, len(knots))
    try:
        found = _core.Interpolation(knots, values)(np.array(x, np.float64))
    except ValueError:
        assert not (np.diff(knots) > 0).all()
    else:
        assert len(found) == len(x)


@pytest.mark.parametrize(
    ("x", "capacity", "message"),
    [([2.0, 1.0], 8, "sorted"), ([1.0, np.nan], 8, "sorted"), ([1.0], 1, "capacity"), ([1.0], -(2**62), "capacity")],
)
def test_what_cannot_be_summarized_is_refused(x, capacity, message):
    with pytest.raises(ValueError, match=message):
        _core.summarize_sorted(np.array(x), capacity)


def test_results_outlive_what_they_were_made_of():
    table = _core.StringTable(OFFSETS.copy(), TEXT.copy())
    found = table.find(OFFSETS, TEXT)
    del table
    assert found.tolist() == [0, 1, 2] and found.flags.writeable
