"""Columns of text as categories."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from splinefm.encode.tables.columns import as_categories, text_buffers


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
@given(
    names=st.lists(st.none() | st.text(max_size=10), max_size=40),
    begin=st.integers(0, 40),
    length=st.integers(0, 40),
)
def test_names_of_a_slice_are_its_text(kind, names, begin, length):
    column = pa.array(names, kind).slice(begin, length)
    found, codes = as_categories(column, "c")
    found.validate(full=True)
    assert codes is None and found.type == pa.large_string()
    assert found.to_pylist() == column.to_pylist() and found.null_count == column.null_count
    offsets, text = text_buffers(found)
    read = [bytes(text[offsets[i] : offsets[i + 1]]).decode() for i in range(len(found))]
    assert [name for name, known in zip(read, column.to_pylist(), strict=True) if known is not None] == [
        name for name in column.to_pylist() if name is not None
    ]


@pytest.mark.parametrize("kind", [pa.timestamp("s"), pa.timestamp("us"), pa.date32()], ids=str)
def test_dates_that_no_calendar_has_are_refused(kind):
    most = 2**31 - 1 if pa.types.is_date32(kind) else 2**63 - 1
    column = pa.array([0, most], pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(kind)
    with pytest.raises(
        ValueError, match=r"column 'c' has a date that no calendar has, <value out of range: [0-9]+>; correct"
    ):
        as_categories(column, "c")
