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
TABLE = _core.StringTable(OFFSETS, TEXT)
START, WEIGHT = np.zeros(3, np.int32), np.zeros((3, 4))

FACTORS, BLOCKS = np.ones((5, 4), np.float32), np.array([[0, 0, 4, 0, 0], [1, 4, 2, 3, 1]])
QUERIES = np.ones((3, 8), np.float32)
# Two columns of three rows in two levels.
CELLS = np.array([[[0, 0, 1], [0, 1, 2]], [[0, 0, 0], [1, 0, 1]]], np.int32)
CELL_SIZES, CELL_PAIRS = np.array([[2, 3], [1, 2]]), np.array([[0, 1], [1, -1]])


def context_side(
    weight_ptr, window_unit, unit_field, linear, between, weights, factors=FACTORS, blocks=BLOCKS, **other
):
    """Two fields of three; the second has two windows."""
    sizes = {"n_fields": 3, "products": 1, "length": 4, "k": 4, "members": 1, "order": 2, "model": "fwfm", **other}

    def chosen(*names):
        return {name: sizes[name] for name in names}

    arrays = {"weight_ptr": weight_ptr, "window_unit": window_unit, "unit_field": unit_field}
    params = {"factors": factors, "linear": linear, "between": between, "bias": np.array([0.5], np.float32)}
    return _core.ContextSide(
        slots=_core.ContextSlots(**arrays, **chosen("n_fields"), n_features=len(factors)),
        params=_core.RowParams(**params, **chosen("model", "k", "members", "order")),
        map=_core.QueryMap(blocks=blocks, weights=weights, **chosen("products", "length")),
    )


OF_CONTEXT = [
    np.array([0, 1, 3, 4], np.int32),
    np.array([0, 1, 1], np.int32),
    np.array([0, 2], np.int32),
    np.ones(5, np.float32),
    np.ones(9, np.float32),
    np.ones(7),
]

# Every function with arguments that are right; a new one joins by an entry.
CALLS = {
    "StringTable": (_core.StringTable, [OFFSETS, TEXT]),
    "StringTable.find": (TABLE.find, [OFFSETS, TEXT]),
    "StringTable.find_into": (lambda *asked: TABLE.find_into(*asked, 0, -1, START), [OFFSETS, TEXT]),
    "count_strings": (_core.count_strings, [OFFSETS, TEXT]),
    "probe_hash": (_core.probe_hash, [OFFSETS, TEXT]),
    "Interpolation": (_core.Interpolation, [KNOTS, VALUES]),
    "Interpolation.__call__": (_core.Interpolation(KNOTS, VALUES), [KNOTS]),
    "elementary": (lambda x: _core.elementary("log", x), [VALUES]),
    "power": (lambda x: _core.power(x, 0.5), [VALUES]),
    "uniform_splines": (lambda u: _core.uniform_splines(u, 5, 3, 0, START, WEIGHT), [KNOTS]),
    "summarize": (_core.summarize, [KNOTS, 8]),
    "cell_gains": (
        lambda residual, fold: _core.cell_gains(
            *(CELLS, CELL_SIZES, CELL_PAIRS, residual, fold), n_folds=2, shrinkage=60.0, threads=1
        ),
        [KNOTS, np.array([0, 1, 1], np.int32)],
    ),
    "probe_vec": (_core.probe_vec, [FLOATS, FLOATS]),
    "ContextSide": (context_side, OF_CONTEXT),
    "map_queries": (
        lambda weights: _core.map_queries(BLOCKS, weights, QUERIES, np.zeros((3, 4), np.float32)),
        [OF_CONTEXT[-1]],
    ),
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

    def find_into(offsets, text):
        return TABLE.find_into(offsets, text, 0, -1, np.zeros(max(0, len(offsets) - 1), np.int32))

    for function in (_core.StringTable, TABLE.find, find_into, _core.count_strings, _core.probe_hash):
        if sound:
            function(given, letters)
        else:
            with pytest.raises(ValueError, match="offsets must"):
                function(given, letters)


@pytest.mark.parametrize(
    ("knots", "values", "message"),
    [
        ([], [], "at least two"),
        ([1.0], [1.0], "at least two"),
        ([0.0, 1.0], [0.0, 0.5, 1.0], "equal length"),
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
    [([1.0, np.nan], 8, "NaN"), ([-np.nan], 8, "NaN"), ([1.0], 1, "capacity"), ([1.0], -(2**62), "capacity")],
)
def test_what_cannot_be_summarized_is_refused(x, capacity, message):
    with pytest.raises(ValueError, match=message):
        _core.summarize(np.array(x), capacity)


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "start",
    [
        START[:2],
        np.zeros(4, np.int32),
        START.astype(np.int64),
        START[::-1],
        np.lib.stride_tricks.as_strided(START, (3,), (0,)),
        misaligned(START),
        read_only(START),
        START[:, None],
    ],
)
def test_columns_that_cannot_be_written_to_are_refused(start):
    with pytest.raises((TypeError, ValueError)):
        _core.uniform_splines(KNOTS, 5, 3, 0, start, WEIGHT)
    with pytest.raises((TypeError, ValueError)):
        TABLE.find_into(OFFSETS, TEXT, 0, -1, start)


@pytest.mark.parametrize(
    "weight",
    [
        WEIGHT[:2],
        WEIGHT[:, :3],
        np.zeros((3, 5)),
        np.asfortranarray(WEIGHT),
        WEIGHT[::-1],
        WEIGHT[:, ::-1],
        np.lib.stride_tricks.as_strided(WEIGHT, (3, 4), (8, 8)),
        WEIGHT.astype(np.float16),
        read_only(WEIGHT),
        WEIGHT.ravel(),
    ],
)
def test_rows_that_cannot_be_written_to_are_refused(weight):
    with pytest.raises((TypeError, ValueError)):
        _core.uniform_splines(KNOTS, 5, 3, 0, START, weight)


@pytest.mark.parametrize(
    ("segments", "degree", "first"),
    [(0, 3, 0), (-1, 3, 0), (5, 0, 0), (5, 6, 0), (5, 3, -1), (2**31 - 3, 3, 0), (5, 3, 2**31 - 6), (2**62, 3, 2**62)],
)
def test_numbers_that_give_no_splines_are_refused(segments, degree, first):
    with pytest.raises(ValueError, match="must"):
        _core.uniform_splines(KNOTS, segments, degree, first, START, WEIGHT)


@pytest.mark.parametrize("first", [-1, 2**31 - 3])
def test_features_beyond_all_integers_are_refused(first):
    with pytest.raises(ValueError, match="first must"):
        TABLE.find_into(OFFSETS, TEXT, first, -1, START)


def test_results_outlive_what_they_were_made_of():
    table = _core.StringTable(OFFSETS.copy(), TEXT.copy())
    found = table.find(OFFSETS, TEXT)
    del table
    assert found.tolist() == [0, 1, 2] and found.flags.writeable


def asked(n=2, **other):
    """What the queries of a context side are computed from, and where they go."""
    arrays = {
        "start": np.zeros((n, 3), np.int32),
        "weight": np.ones((n, 4), np.float32),
        "queries": np.zeros((n, 4), np.float32),
        "constants": np.zeros(n, np.float32),
    }
    return {**arrays, **other}


def test_queries_of_contexts():
    found = asked()
    assert context_side(*OF_CONTEXT).queries(**found)
    # The first field has one feature, the second four: s_0 = 1, s_2 = 3; the matrix takes three numbers of s_2.
    assert found["queries"].tolist() == [[1.0, 1.0 + 9.0, 1.0 + 9.0, 1.0]] * 2
    assert found["constants"].tolist() == [0.5 + 4.0 + 4 * 3.0] * 2


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": np.zeros((2, 2), np.int32)},
        {"start": np.zeros((3, 3), np.int32)},
        {"start": np.full((2, 3), 5, np.int32)},
        {"start": np.full((2, 3), -1, np.int32)},
        {"start": np.full((2, 3), 4, np.int32)},  # a window of two begins at the last feature
        {"start": np.zeros((2, 3), np.int64)},
        {"weight": np.ones((2, 3), np.float32)},
        {"queries": np.zeros((2, 5), np.float32)},
        {"queries": read_only(np.zeros((2, 4), np.float32))},
        {"constants": np.zeros(3, np.float32)},
    ],
)
def test_slots_of_another_layout_are_refused(wrong):
    with pytest.raises((TypeError, ValueError)):
        context_side(*OF_CONTEXT).queries(**asked(**wrong))


@given(st.lists(st.tuples(*[st.integers(-2, 14) | st.integers(-(2**63), 2**63 - 1)] * 5), max_size=4))
def test_any_blocks_give_a_result_or_an_exception(blocks):
    blocks = np.array(blocks, np.int64).reshape(-1, 5)
    for use in (
        lambda: context_side(*OF_CONTEXT, blocks=blocks).queries(**asked()),
        lambda: _core.map_queries(blocks, OF_CONTEXT[-1], QUERIES, np.zeros((3, 4), np.float32)),
    ):
        try:
            use()
        except ValueError as error:
            assert "block" in str(error)


@pytest.mark.parametrize(
    "sizes", [{"n_fields": 2}, {"n_fields": 0}, {"products": -1}, {"products": 3}, {"length": -1}, {"k": 3}, {"k": 8}]
)
def test_sizes_of_another_model_are_refused(sizes):
    with pytest.raises(ValueError, match=r"must|beyond|do not match"):
        context_side(*OF_CONTEXT, **sizes)


def test_blocks_that_change_after_they_were_checked_are_not_read():
    blocks, before, after = BLOCKS.copy(), asked(), asked()
    side = context_side(*OF_CONTEXT, blocks=blocks)
    side.queries(**before)
    blocks[:, 2] = 0  # numbers that a block makes; others would lie beyond the arrays
    side.queries(**after)
    assert before["queries"].any() and (after["queries"] == before["queries"]).all()


def test_many_blocks_of_many_numbers_are_refused():
    """Or a file of a few megabytes could keep a search busy for hours."""
    n = 1 << 20
    queries = np.zeros((1, n), np.float32)
    blocks = np.tile(np.array([[0, 0, n, 0, 0]], np.int64), (257, 1))
    with pytest.raises(ValueError, match="too many numbers"):
        _core.map_queries(blocks, np.ones(1), queries, np.zeros_like(queries))
    _core.map_queries(blocks[:2], np.ones(1), queries, np.zeros_like(queries))
