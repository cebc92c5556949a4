"""Streams that Arrow reads in its own threads: none of them is used once reading has ended."""

import io
import threading
import weakref

import pyarrow as pa
import pytest
from pyarrow import csv

from splinefm.encode.tables import delimited
from splinefm.encode.tables.delimited import from_csv_stream, released

ROWS = b"a,b\n" + b"1,2\n" * 4000


@pytest.fixture
def opened(monkeypatch):
    """What Arrow was given to read, without keeping it alive."""
    found = []

    def open_csv(source, **options):
        found.append((isinstance(source, pa.NativeFile), weakref.ref(source)))
        return real(source, **options)

    real = csv.open_csv
    monkeypatch.setattr(csv, "open_csv", open_csv)
    monkeypatch.setattr(delimited, "BLOCK", 4096)
    return found


def test_the_beginning_of_a_stream_is_read_from_memory_that_needs_no_lock_of_python(opened):
    with pytest.raises(ValueError, match="line 3 has 1 column instead of 2"):
        from_csv_stream(io.BytesIO(b"a,b\n1,2\n1\n"), "a stream", None, None)
    assert [native for native, _ in opened] == [True]


def read_all(table):
    return sum(chunk.num_rows for chunk in table.chunks(["a"]))


def test_a_stream_is_released_after_the_last_row(opened):
    assert read_all(from_csv_stream(io.BytesIO(ROWS), "a stream", None, None)) == 4000
    assert opened[-1][1]() is None


def test_a_stream_is_released_where_a_row_is_wrong(opened):
    table = from_csv_stream(io.BytesIO(ROWS + b"1\n"), "a stream", None, None)
    with pytest.raises(ValueError, match="Expected 2 columns, got 1") as caught:
        read_all(table)
    assert opened[-1][1]() is None, caught  # whose frames are still there


def test_a_stream_is_released_where_reading_ends_early(opened):
    chunks = from_csv_stream(io.BytesIO(ROWS), "a stream", None, None).chunks(["a"])
    next(chunks)
    chunks.close()
    assert opened[-1][1]() is None


def test_the_end_waits_for_a_thread_that_holds_the_stream():
    box, go, order = [io.BytesIO(b"a")], threading.Event(), []

    def hold(stream):
        go.wait()
        order.append("released")

    with released(box):
        thread = threading.Thread(target=hold, args=(box.pop(),))
        thread.start()
        go.set()
    order.append("end")
    assert order == ["released", "end"]
    thread.join()
