"""`splinefm predict`: the predictions of the library, in order, from and to files and streams."""

import gzip
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import splinefm as sf
from splinefm.cli import predict as module


def read(path):
    return pyarrow.csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)


@pytest.mark.parametrize("out", ["out.csv", "out.parquet"])
def test_predictions_are_those_of_the_library_in_order(run, model, data, table, fitted, out, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROWS", 64)  # several chunks
    result = run("predict", model, data, "--out", out, "--id", "id", "--id", "city", "--id", "id")
    written = read(tmp_path / out)
    assert written.column_names == ["id", "city", "probability"]
    assert np.array_equal(written["probability"].to_numpy(), fitted.predict(table))
    assert written["city"].to_pylist() == table["city"].to_pylist()
    assert not result.stdout and "300 rows; probability: probability of 'yes'" in result.stderr


def test_identifiers_are_copied_as_they_stand(run, model, data):
    first = run("predict", model, data, "--id", "id").stdout.splitlines()[:2]
    assert first[0] == '"id","probability"' and first[1].startswith('"00000",0.')


def test_standard_input_and_output(run, model, table, fitted, write, tmp_path):
    # Columns in another order, a column that is not needed, a byte order mark and an empty line.
    csv = write(table.select(["click", "city", "id", "price"]), tmp_path / "data.csv").read_bytes()
    out = run("predict", model, "-", "--out", "-", "--quiet", stdin=b"\xef\xbb\xbf\n" + csv)
    assert not out.stderr
    written = pyarrow.csv.read_csv(io.BytesIO(out.stdout_bytes))
    assert np.array_equal(written["probability"].to_numpy(), fitted.predict(table))


def test_types_of_the_standard_input_are_those_of_the_model(run, model):
    # City is a category of the model even if it looks like a number, and price a number even if all of it is missing.
    lines = run("predict", model, "-", "--quiet", stdin='price,city,"new\nline"\nNA,7,x\n,08,y\n').stdout.splitlines()
    assert len(lines) == 3 and lines[1] == lines[2]


def test_parquet_on_the_standard_output(run, model, data, table, fitted):
    out = run("predict", model, data, "--format", "parquet", "--id", "views").stdout_bytes
    written = pq.read_table(pa.BufferReader(out))
    assert np.array_equal(written["probability"].to_numpy(), fitted.predict(table))


def test_format_goes_before_the_name(run, model, data, tmp_path):
    run("predict", model, data, "--format", "parquet", "--out", "out.dat")
    assert pq.read_table(tmp_path / "out.dat").num_rows == 300


def test_json_tells_about_the_run(run, model, data):
    about = json.loads(run("predict", model, data, "--out", "p.csv", "--json").stdout)
    assert about == {"file": "p.csv", "rows": 300, "column": "probability", "meaning": "probability of 'yes'"}


def test_numbers_are_called_predictions(run, data, table):
    fitted = sf.fit_model(
        table.select(["price", "amount"]),
        "amount",
        loss="squared",
        model=sf.FM(k=2),
        training=sf.Training(epochs=1, threads=1),
    )
    fitted.save("amount.sfm")
    assert run("predict", "amount.sfm", data).stdout.startswith('"prediction"\n')


def test_a_table_without_rows_gives_one_without_rows(run, model, tmp_path):
    (tmp_path / "none.csv").write_text("price,city\n")
    assert run("predict", model, "none.csv").stdout == '"probability"\n'


def test_parquet_columns_of_any_type_are_copied(run, model, table, write, tmp_path):
    lists = pa.array([[1, 2]] * 300)
    coded = table["city"].combine_chunks().dictionary_encode()
    write(table.append_column("lists", lists).append_column("coded", coded), tmp_path / "more.parquet")
    run("predict", model, "more.parquet", "--id", "lists", "--id", "coded", "--out", "out.parquet")
    written = pq.read_table("out.parquet")
    assert written["lists"].to_pylist() == lists.to_pylist()
    assert written["coded"].to_pylist() == table["city"].to_pylist()
    assert "use --format parquet" in run("predict", model, "more.parquet", "--id", "lists", code=1).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.sfm", "data.csv"], "no file 'none.sfm'"),
        (["model.sfm", "none.csv"], "no file or folder 'none.csv'"),
        (["model.sfm", "empty.csv"], "cannot read 'empty.csv'"),
        (["model.sfm", "lacking.csv"], "no column 'price' in the table; nearest: 'prices'"),
        (["model.sfm", "data.csv", "--id", "user"], "no column 'user'"),
        (["model.sfm", "text.csv"], "column 'price'"),
        (["broken.sfm", "data.csv"], "cannot load 'broken.sfm'"),
        (["data.csv", "data.csv"], "not a model file"),
        (["model.sfm", "data.csv", "--out", "out.txt"], "--format"),
        (["model.sfm", "data.csv", "--out", "."], "must end in"),
        (["model.sfm", "data.csv", "--out", ".", "--format", "csv"], "is a folder"),
        (["model.sfm", "data.csv", "--out", "nowhere/out.csv"], "there is no folder"),
        (["model.sfm", "data.csv", "--out", "data.csv"], "would replace the input 'data.csv'"),
        (["model.sfm", "data.csv", "--out", "model.sfm", "--format", "csv"], "would replace the input"),
        (["model.sfm", "named.csv", "--id", "probability"], "rename yours"),
    ],
)
def test_bad_input_is_a_message(run, model, table, write, tmp_path, arguments, message):
    write(table, tmp_path / "data.csv")
    write(table.rename_columns({"price": "prices"}), tmp_path / "lacking.csv")
    write(table.rename_columns({"views": "probability"}), tmp_path / "named.csv")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "text.csv").write_text("price,city\n1,Rome\ncheap,Oslo\n")
    (tmp_path / "broken.sfm").write_bytes(model.read_bytes()[:-9])
    before = (tmp_path / "data.csv").read_bytes()
    result = run("predict", *arguments, code=1)
    assert message in result.stderr and not result.stdout
    assert (tmp_path / "data.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("stdin", "message"),
    [
        ("", "standard input: it is empty"),
        ("price\n1\n", "no column 'city'"),
        ("price,city\n1,Rome\ncheap,Oslo\n", "column 'price'"),
        ("price,city\n1\n", "line 2 has 1 column instead of 2"),
        (b"price,city\n1,\xff\xfe\n", "column 'city'"),
        ("price,price,city\n1,1,Rome\n", "duplicate column names: 'price'"),
    ],
)
def test_bad_standard_input_is_a_message(run, model, stdin, message):
    result = run("predict", model, "-", code=1, stdin=stdin)
    assert message in result.stderr


@pytest.mark.parametrize("options", [["--out", "out.csv.gz"], ["--out", "out.gz", "--format", "csv"]])
def test_gzip_is_written_for_names_that_say_so(run, model, tmp_path, options):
    (tmp_path / "new.csv").write_text("price,city\n1,Rome\n2,Oslo\n")
    run("predict", model, "new.csv", *options)
    packed = (tmp_path / options[1]).read_bytes()
    assert gzip.decompress(packed).decode() == run("predict", model, "new.csv", "-q").stdout
    run("predict", model, "new.csv", *options)
    assert (tmp_path / options[1]).read_bytes() == packed


def test_parquet_is_not_compressed_twice(run, model, tmp_path):
    (tmp_path / "new.csv").write_text("price,city\n1,Rome\n")
    told = run("predict", model, "new.csv", "--out", "out.gz", "--format", "parquet", code=1).stderr
    assert "choose a name without .gz" in told
    assert (
        "must end in .csv, .parquet, .pq, .csv.gz" in run("predict", model, "new.csv", "--out", "x.gz", code=1).stderr
    )


def test_an_error_leaves_the_old_file_and_no_other(run, model, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "ROWS", 1)
    (tmp_path / "text.csv").write_text("price,city\n1,Rome\ncheap,Oslo\n")
    (tmp_path / "out.csv").write_text("old")
    run("predict", model, "text.csv", "--out", "out.csv", code=1)
    assert (tmp_path / "out.csv").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"model.sfm", "text.csv", "out.csv"}


@pytest.mark.thorough  # test_main.py has a pipe whose reader leaves at once
def test_in_a_pipe_whose_reader_leaves_early(shell, model, make_table, write, tmp_path):
    write(make_table(70_000), tmp_path / "data.csv")
    out, error = shell("cat data.csv | splinefm predict model.sfm - --id id | head -n 2", code=1)
    assert out.splitlines()[0] == b'"id","probability"' and len(out.splitlines()) == 2
    assert "splinefm:" not in error
