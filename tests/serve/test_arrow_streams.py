"""Arrow streams: how many bytes values take once every row has its own, and columns of rare types."""

import datetime
import decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from live import ARROW, as_columns, visits_rows
from splinefm.serve.arrow import LargeStream, expanded_bytes
from support import examples

TEXTS = st.lists(st.none() | st.text(max_size=8), min_size=1, max_size=12)


def total(values, max_bytes=1 << 20):
    return expanded_bytes(pa.record_batch({"c": values}), max_bytes)


@examples(60)
@given(TEXTS, st.data())
def test_shared_values_take_what_their_own_copies_would(texts, data):
    plain = pa.array(texts, pa.string())
    rows = pa.array(data.draw(st.lists(st.integers(0, len(texts) - 1), max_size=30)), pa.int32())
    own = plain.take(rows)
    shared = pa.DictionaryArray.from_arrays(rows, pa.array([text or "" for text in texts]))
    assert total(shared) == total(own) == sum(len((text or "").encode()) + 1 for text in own.to_pylist())
    assert total(own.cast(pa.string_view())) == total(own)
    assert total(own.cast(pa.large_string())) == total(own)
    if len(own):
        assert total(pc.run_end_encode(own)) == total(own)


@examples(60)
@given(st.lists(st.lists(st.text(max_size=4), max_size=5), min_size=1, max_size=12), st.data())
def test_lists_take_their_values_and_one_byte_each(lists, data):
    first = data.draw(st.integers(0, len(lists)))
    expected = sum(1 + sum(len(text.encode()) + 1 for text in values) for values in lists[first:])
    for kind in (pa.list_, pa.large_list, pa.list_view, pa.large_list_view):
        assert total(pa.array(lists, kind(pa.string())).slice(first)) == expected, kind
    names = pa.array([text for values in lists for text in values], pa.string())
    ends = pa.array(np.concatenate([[0], np.cumsum([len(values) for values in lists])]), pa.int32())
    assert total(pa.ListArray.from_arrays(ends, names.dictionary_encode()).slice(first)) == expected
    shared = pa.DictionaryArray.from_arrays(pa.array([0] * 3), pa.array(lists[:1], pa.list_(pa.string())))
    assert total(shared) == 3 * total(pa.array(lists[:1], pa.list_(pa.string())))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pa.array([1.0, None]), 16),
        (pa.array([True, False, None]), 3),
        (pa.array([1], pa.decimal128(9, 2)), 16),
        (pa.array([[1, 2], [3, 4]], pa.list_(pa.int32(), 2)).slice(1), 9),
        (pa.array([{"a": 1, "b": "xy"}]), 11),
        (pa.nulls(3), 3),
    ],
)
def test_other_types(values, expected):
    assert total(values) == expected


@pytest.mark.parametrize(
    "values",
    [
        pa.nulls(1000),
        pa.ListArray.from_arrays(pa.array([0, 1000]), pa.nulls(1000)),
        pa.RunEndEncodedArray.from_arrays(pa.array([1000], pa.int32()), pa.array(["x"])),
        pa.ListViewArray.from_arrays(pa.array([0] * 50), pa.array([20] * 50), pa.array(np.arange(20.0))),
        pa.DictionaryArray.from_arrays(pa.array([0] * 50), pa.array(["x" * 100])),
    ],
)
def test_arrays_without_bytes_of_their_own_are_bounded(values):
    with pytest.raises(LargeStream):
        total(values, 900)
    assert total(values, 10_000) <= 10_000


def stream(table):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


DAY = datetime.timedelta(1)
KINDS = {
    "run-end-encoded text": pc.run_end_encode(pa.array(["1", "2"])),
    "run-end-encoded numbers": pc.run_end_encode(pa.array([1.0, 2.0])),
    "text view": pa.array(["1", "2"], pa.string_view()),
    "binary view": pa.array([b"1", b"2"], pa.binary_view()),
    "binary": pa.array([b"1", b"\xff"]),
    "large list": pa.array([["1"], ["2"]], pa.large_list(pa.string())),
    "list view": pa.array([["1"], ["2"]], pa.list_view(pa.string())),
    "large list view": pa.array([["1"], ["2"]], pa.large_list_view(pa.string())),
    "list of views": pa.array([["1"], ["2"]], pa.list_(pa.string_view())),
    "decimal": pa.array([decimal.Decimal(1), decimal.Decimal(2)]),
    "decimal of 32 bits": pa.array([decimal.Decimal(1), decimal.Decimal(2)], pa.decimal32(5)),
    "decimal of 256 bits": pa.array([decimal.Decimal(1), decimal.Decimal(2)], pa.decimal256(50)),
    "duration": pa.array([DAY, DAY]),
    "months": pa.array([(1, 2, 3), (1, 2, 4)], pa.month_day_nano_interval()),
    "time": pa.array([datetime.time(1), datetime.time(2)]),
    "union": pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array(["1", "2"]), pa.array([1.0, 2.0])]),
    "null": pa.nulls(2),
    "struct": pa.array([{"a": 1}, {"a": 2}]),
    "map": pa.array([[("a", 1)], [("b", 1)]], pa.map_(pa.string(), pa.int64())),
    "half": pa.array([np.float16(1), np.float16(2)], pa.float16()),
    "dictionary of lists": pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int8()), pa.array([["1"], ["2"]])),
    "list of runs": pa.ListArray.from_arrays(pa.array([0, 1, 2], pa.int32()), pc.run_end_encode(pa.array(["1", "2"]))),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rare_types_are_read_or_refused_with_the_name_of_the_column(server, visits, kind):
    table = pa.table(as_columns(visits_rows(2, hostile=False)))
    for i, name in enumerate(table.column_names):
        rare = table.set_column(i, name, KINDS[kind])
        try:
            visits.scores(rare)
        except ValueError as error:
            assert repr(name) in str(error)
        try:
            body = stream(rare)
        except pa.ArrowNotImplementedError:
            continue  # Arrow does not write them
        answer = server.score(body, **{"Content-Type": ARROW})
        assert answer.status in (200, 400, 422), answer.body
        assert answer.status == 200 or repr(name) in answer.json["detail"]
