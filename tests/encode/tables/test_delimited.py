"""Text files: separators, lines in messages, and files as they come."""

import bz2
import csv
import gzip
import io

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import splinefm as sf
from splinefm.encode.tables import delimited
from splinefm.encode.tables.delimited import cut, find_separator, from_csv_stream, read_records


def content(table) -> dict[str, list]:
    batches = list(sf.open_table(table).chunks())
    return pa.Table.from_batches(batches, sf.open_table(table).schema).to_pydict()


def write(folder, text, name="x.csv"):
    path = folder / name
    data = text if isinstance(text, bytes) else text.encode()
    packed = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, lambda data: data)(data)
    path.write_bytes(packed)
    return path


# Separators


HEADS = {
    "comma": ("a,b\n1,2\n", ","),
    "semicolon": ("a;b\n1;2\n", ";"),
    "tab": ("a\tb\n1\t2\n", "\t"),
    "bar": ("a|b\n1|2\n", "|"),
    "decimal commas": ("a;b\n1,5;2,5\n3,5;4,5\n", ";"),
    "lists in cells": ("tags,b\nx|y,2\nz|w,3\n", ","),
    "a name with a comma": ('"a, in kg";b;c\n1;2;3\n', ";"),
    "a name with a bare comma": ("a, in kg;b;c\n1,5;2;3\n1;2;3\n", ";"),
    "commas in quotes": ('a;b\n"x,y";"1,2"\n"z,w";"3,4"\n', ";"),
    "line breaks in quotes": ('a;b\n"x\n,,,\ny";2\n', ";"),
    "more rows agree": ("a,b;c\n1;2\n3;4\n5,6;7\n", ";"),
    "the header decides": ("a,b,c;d\n1,2,3;4\n", ","),
    "one column": ("a\n1\n2\n", ","),
    "one column of text": ("text\none; two\nthree, four\n", ","),
    "header alone": ("a;b", ";"),
    "empty": ("", ","),
    "mark": ("\ufeffa;b\n1;2\n", ";"),
}


@pytest.mark.parametrize("name", HEADS)
def test_the_separator_is_found(name):
    text, separator = HEADS[name]
    for end in ("\n", "\r\n", "\r"):
        assert find_separator(text.replace("\n", end).encode(), True) == separator


def test_a_head_that_is_cut_has_its_separator():
    assert find_separator(b"a,b;c\n" + b"1,2;3\n" * 5 + b"1,2", False) == ","
    assert find_separator(b'a;b\n1;2\n1;"x,\n' + b",\n" * 50, False) == ";"


@pytest.mark.parametrize("separator", [";", "\t", "|"])
@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz"])
def test_files_are_read_with_the_separator_that_they_have(separator, name, tmp_path):
    path = write(tmp_path, f"a{separator}b\n1{separator}x\n2{separator}y\n", name)
    assert content(path) == content(sf.open_table(path, sep=separator)) == {"a": [1, 2], "b": ["x", "y"]}
    assert sf.open_table(path, sep="!").names == (f"a{separator}b",)


def test_files_of_a_folder_may_differ_in_their_separators(tmp_path):
    write(tmp_path, "a;b\n1;2\n"), write(tmp_path, "b,a\n3,4\n", "y.csv")
    assert content(tmp_path) == {"a": [1, 4], "b": [2, 3]}


def test_tsv_has_tabs_unless_told_otherwise(tmp_path):
    path = write(tmp_path, "a,b\n1,2\n", "x.tsv")
    assert sf.open_table(path).names == ("a,b",)
    assert sf.open_table(path, sep=",").names == ("a", "b")


@pytest.mark.parametrize("sep", ["", ";;", "\n", '"', "§", 3])
def test_a_separator_is_one_character(sep, tmp_path):
    with pytest.raises(ValueError, match=r"sep must be one character, such as .*, got"):
        sf.open_table(write(tmp_path, "a;b\n"), sep=sep)


def test_an_open_table_takes_the_types_of_its_reader(tmp_path):
    table = sf.open_table(write(tmp_path, "zip;n;m\n007;1;1\n"), types={"m": pa.large_string()}, sep=";")
    again = sf.open_table(table, types={"zip": pa.large_string(), "n": pa.float64(), "m": pa.float64()})
    assert content(again) == {"zip": ["007"], "n": [1.0], "m": ["1"]}
    assert again.schema.field("n").type == pa.float64()
    assert content(table)["zip"] == [7]


def test_a_stream_takes_the_types_of_its_reader_and_is_read_once():
    table = from_csv_stream(io.BytesIO(b"zip;n;m\n007;1;x\n"), "it", None, None)
    assert table.schema.types == [pa.int64(), pa.int64(), pa.string()]
    again = sf.open_table(table, types={"zip": pa.large_string(), "n": pa.float64(), "m": pa.float64()})
    assert content(again) == {"zip": ["007"], "n": [1.0], "m": ["x"]}
    with pytest.raises(ValueError, match="can be read once"):
        list(table.chunks())


def test_a_stream_longer_than_a_block_is_read_whole(monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK", 64)
    rows = "".join(f"{i},x{i}\n" for i in range(100))
    table = from_csv_stream(io.BytesIO(f"a,b\n{rows}".encode()), "it", None, None)
    assert content(table) == {"a": list(range(100)), "b": [f"x{i}" for i in range(100)]}
    with pytest.raises(ValueError, match=r"cannot read it: column 'a' is read as int64 but has 'x'"):
        content(from_csv_stream(io.BytesIO(f"a,b\n{rows}x,1\n".encode()), "it", None, None))


@pytest.fixture(params=[1, 2])
def cores(request):
    before = pa.cpu_count()
    pa.set_cpu_count(request.param)
    yield
    pa.set_cpu_count(before)


def test_messages_do_not_depend_on_the_number_of_cores(cores, monkeypatch):
    """On one core, Arrow names the row as well."""
    monkeypatch.setattr(delimited, "BLOCK", 64)
    with pytest.raises(ValueError, match=r"cannot read it: column 'a' is read as int64 but has 'x'"):
        content(from_csv_stream(io.BytesIO(b"a,b\n" + b"1,2\n" * 100 + b"x,1\n"), "it", None, None))


# Records

CELLS = st.text(st.sampled_from('ab",;\n '), max_size=6)


@given(st.lists(st.lists(CELLS, min_size=2, max_size=2), min_size=1, max_size=6), st.sampled_from(["\n", "\r\n"]))
def test_records_are_what_was_written(rows, end):
    text = io.StringIO()
    csv.writer(text, lineterminator=end).writerows(rows)
    data = text.getvalue().encode()
    records = list(read_records(io.BytesIO(data), ",", 1000))
    assert [cut(record.text, ",") for record in records] == rows
    firsts = [io.TextIOWrapper(io.BytesIO(data), newline="").readlines()[record.line - 1] for record in records]
    assert all(record.text.startswith(first.rstrip("\r\n")) for record, first in zip(records, firsts, strict=True))


# Messages

BEFORE = '\ufeffa,b\r\n\r\n1,2\r\n"x\r\n\r\ny, ""z""",3\r\n' + "1,2\r\n" * 20  # 26 lines


@pytest.mark.parametrize("name", ["x.csv", "x.csv.gz", "x.csv.bz2"])
@pytest.mark.parametrize("block", [8 << 20, 80])
@pytest.mark.parametrize(("row", "n"), [("1,2,3", "3 columns"), ("1", "1 column"), ('"1,2"', "1 column")])
def test_a_ragged_row_is_reported_with_its_line(name, block, row, n, tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK", block)
    path = write(tmp_path, f"{BEFORE}{row}\r\n1,2\r\n", name)
    assert path.suffix != ".csv" or path.read_bytes().split(b"\r\n")[26] == row.encode()
    message = rf"cannot read '.*{name}': line 27 has {n} instead of 2, separated by ',': '{row}'; .*--sep"
    with pytest.raises(ValueError, match=message):
        list(sf.open_table(path).chunks())


def test_a_long_ragged_row_is_shown_in_part(tmp_path):
    with pytest.raises(ValueError, match=r"line 2 has 3 columns .*: '1,2,x{76}\.\.\.'; "):
        sf.open_table(write(tmp_path, "a,b\n1,2," + "x" * 1000 + "\n"))


def test_a_cell_of_many_megabytes_is_reported_in_plain_words(tmp_path):
    path = write(tmp_path, "a,b\n1,2\n" + f"1,{'x' * (30 << 20)}\n1,2\n")
    with pytest.raises(ValueError, match=r"x\.csv': the row that begins in line 3 has more than 8 MB: a cell of it is"):
        list(sf.open_table(path).chunks())


def test_quotes_that_are_not_closed_are_reported(tmp_path, monkeypatch):
    text = "a,b\n" + "1,y\n" * 10 + '1,"x\n' + "1,2\n" * 100
    with pytest.raises(ValueError, match=r"x\.csv': quotes in the row that begins in line 12 are not closed"):
        sf.open_table(write(tmp_path, text))
    monkeypatch.setattr(delimited, "BLOCK", 300)
    with pytest.raises(ValueError, match=r"x\.csv': quotes in the row that begins in line 12 are not closed"):
        list(sf.open_table(write(tmp_path, text)).chunks())
    with pytest.raises(ValueError, match=r"that begins in line 12 has more than 0 MB: quotes are opened there"):
        list(sf.open_table(write(tmp_path, text + "1,2\n" * 1000)).chunks())


def test_a_last_row_with_line_breaks_is_read(tmp_path):
    assert content(write(tmp_path, 'a,b\n1,"x\ny"')) == {"a": [1], "b": ["x\ny"]}


def test_rows_longer_than_a_small_block_can_be_shuffled(tmp_path, monkeypatch):
    import numpy as np

    monkeypatch.setattr(delimited, "SMALL_BLOCK", 256)
    rows = [str(i) * (400 if i == 150 else 1) for i in range(300)]
    path = write(tmp_path, "a\n" + "\n".join(rows))
    table = sf.open_table(path, types={"a": pa.string()})
    ((numbers, batch),) = table.shuffled(rng=np.random.default_rng(0))
    assert batch["a"].to_pylist() == rows and numbers.tolist() == list(range(300))


# Files as they come

ODD = {
    "mark": ("\ufeffa,b\n1,2\n", {"a": [1], "b": [2]}),
    "mark before quotes": ('\ufeff"a",b\n1,2\n', {"a": [1], "b": [2]}),
    "line ends of Windows": ("a,b\r\n1,x\r\n", {"a": [1], "b": ["x"]}),
    "line ends of old": ("a,b\r1,x\r", {"a": [1], "b": ["x"]}),
    "header alone": ("a,b\n", {"a": [], "b": []}),
    "header without an end": ("a,ü", {"a": [], "ü": []}),
    "header with a mark, without an end": ('\ufeff"a";b', {"a": [], "b": []}),
    "no last line end": ("a,b\n1,2", {"a": [1], "b": [2]}),
    "blank lines": ("\n\na,b\n\n1,2\n\r\n\n", {"a": [1], "b": [2]}),
    "one column": ("a\n1\n2\n", {"a": [1, 2]}),
    "one column with gaps": ("a\n1\nNA\n2\n", {"a": [1, None, 2]}),
    "columns of a spreadsheet": ("a;b;;\n1;2;;\n3;4;;\n", {"a": [1, 3], "b": [2, 4]}),
    "a column without values": ("a,b\n1,\n2,\n", {"a": [1, 2], "b": [None, None]}),
}


@pytest.mark.parametrize("name", ODD)
def test_files_as_they_come_are_read(name, tmp_path):
    text, expected = ODD[name]
    assert content(write(tmp_path, text)) == expected
    assert content(from_csv_stream(io.BytesIO(text.encode()), "it", None, None)) == expected


@pytest.mark.parametrize("text", ["", "\n\n", "\r\n", "\ufeff"])
def test_an_empty_file_is_refused(text, tmp_path):
    with pytest.raises(ValueError, match=r"cannot read '.*x\.csv': it is empty; the first line must name the columns"):
        sf.open_table(write(tmp_path, text))


def test_utf_16_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"x\.csv': it is UTF-16; convert the file to UTF-8"):
        sf.open_table(write(tmp_path, "a,b\n1,2\n".encode("utf-16")))
