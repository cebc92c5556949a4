"""`splinefm discretize`, `export` and `rank`: what the library does, through files."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import splinefm as sf
from c_library import CScorer


def test_discretize_writes_a_model_that_scores_like_the_library_says(run, model, fitted, table):
    result = run("discretize", model, "--bins", "price=50", "--out", "binned.sfm", "-q", "--json")
    told = json.loads(result.stdout)
    binned = sf.load("binned.sfm")
    expected = sf.discretize(fitted, {"price": 50})
    np.testing.assert_array_equal(binned.scores(table), expected.scores(table))
    assert told["fields"] == [{"name": "price", "bins": 50, "bound": pytest.approx(told["bound"])}]
    assert np.abs(binned.scores(table) - fitted.scores(table)).max() <= told["bound"]


def test_discretize_with_an_error_and_data_measures(run, model, fitted, table, write, tmp_path):
    write(table, tmp_path / "data.csv")
    told = json.loads(
        run("discretize", model, "--max-error", 0.01, "--data", "data.csv", "--out", "b.sfm", "--json", "-q").stdout
    )
    change = np.abs(sf.load("b.sfm").scores(table) - fitted.scores(table))
    assert told["n_rows"] == len(table) and told["max_error"] == pytest.approx(change.max(), abs=1e-6)
    assert told["max_error"] <= told["bound"] <= 0.01
    shown = run(
        "discretize", model, "--bins", "20", "--spacing", "quantile", "--data", "data.csv", "--out", "c.sfm"
    ).stdout
    assert "price" in shown and "300 rows" in shown and "c.sfm" in shown


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 2, "--bins or --max-error"),
        (["--bins", "price=5", "--max-error", "0.1"], 2, "--bins or --max-error"),
        (["--bins", "price=5", "--field", "price"], 2, "--field"),
        (["--bins", "price=many"], 1, "price=200"),
        (["--bins", "5", "--bins", "price=7"], 1, "give either one number for all fields or FIELD=N for each"),
        (["--bins", "city=5"], 1, "city"),
        (["--bins", "prize=5"], 1, "price"),
        (["--max-error", "-1"], 2, "--max-error"),
    ],
)
def test_discretize_refuses(run, model, tmp_path, options, code, message):
    assert message in run("discretize", model, *options, "--out", "b.sfm", code=code).output.replace("\n", " ")
    assert not (tmp_path / "b.sfm").exists()


def test_a_model_is_not_replaced_by_its_bins(run, model):
    before = model.read_bytes()
    assert "would replace" in run("discretize", model, "--bins", "5", "--out", model, code=1).output
    assert model.read_bytes() == before


def test_export_to_onnx_runs_elsewhere(run, model, fitted, table):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    assert "m.onnx" in run("export", model, "--to", "onnx", "--out", "m.onnx").stdout
    rows = {"price": table["price"].to_numpy(), "city": np.array(table["city"].to_pylist(), object)}
    score = onnxruntime.InferenceSession("m.onnx").run(["score"], rows)[0]
    np.testing.assert_allclose(score, fitted.scores(table), atol=1e-5)


def test_export_to_libffm_writes_model_map_and_rows(run, model, table, write, tmp_path):
    write(table, tmp_path / "data.csv")
    options = ["--rows", "data.csv", "--rows-out", "rows.txt"]
    told = json.loads(run("export", model, "--to", "libffm", "--out", "m.ffm", *options, "--json").stdout)
    assert told == {"libffm": "m.ffm", "features": "m.ffm.json", "rows": "rows.txt"}
    assert (tmp_path / "m.ffm").read_text().startswith("n ")
    assert len((tmp_path / "rows.txt").read_text().splitlines()) == len(table)
    json.loads((tmp_path / "m.ffm.json").read_text())


def test_export_to_tables_needs_bins(run, model, tmp_path):
    assert "discretize" in run("export", model, "--to", "tables", "--out", "tables", code=1).output
    run("discretize", model, "--bins", "10", "--out", "b.sfm", "-q")
    run("export", "b.sfm", "--to", "tables", "--out", "tables", "--csv")
    assert (tmp_path / "tables" / "manifest.json").is_file() and list((tmp_path / "tables").glob("*.csv"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--to", "onnx", "--csv"], "--csv"),
        (["--to", "onnx", "--index", "i.sfi"], "--index"),
        (["--to", "tables", "--rows", "x.csv", "--rows-out", "y"], "--rows"),
        (["--to", "libffm", "--rows", "x.csv"], "--rows-out"),
        (["--to", "pmml"], "libffm"),
    ],
)
def test_export_refuses(run, model, options, message):
    assert message in run("export", model, *options, "--out", "out", code=2).output


@pytest.fixture
def items(write, tmp_path):
    table = pa.table({"ad": ["a", "b", "c", "d"], "price": [0.5, 1.0, 2.0, None]})
    return write(table, tmp_path / "items.parquet")


def test_export_to_a_scorer_with_an_index(run, model, fitted, items, tmp_path):
    run("index", model, items, "--ids", "ad", "--out", "items.sfi", "-q")
    options = ["--to", "scorer", "--index", "items.sfi", "--out", "m.sfs"]
    assert json.loads(run("export", model, *options, "--json").stdout) == {"scorer": "m.sfs", "items": 4}
    assert "items   4" in run("export", model, *options).stdout
    index = sf.ItemIndex.load("items.sfi", fitted)
    with CScorer(tmp_path / "m.sfs") as scorer:
        assert scorer.top_k({"city": "Rome"}, 3)[0] == index.top_k({"city": "Rome"}, 3)[0].tolist()
    assert "would replace" in run("export", model, *options[:-1], "items.sfi", code=1).output


def test_rank_finds_what_prediction_says(run, model, fitted, items):
    told = json.loads(run("rank", model, items, "--ids", "ad", "--context", '{"city": "Rome"}', "--json", "-q").stdout)
    rows = {"price": [0.5, 1.0, 2.0, None], "city": ["Rome"] * 4}
    scores = fitted.scores(rows)
    (best,) = told["contexts"]
    order = np.argsort(-scores, kind="stable")
    assert [item["id"] for item in best] == [["a", "b", "c", "d"][i] for i in order]
    np.testing.assert_allclose([item["score"] for item in best], scores[order], atol=1e-5)
    np.testing.assert_allclose([item["prediction"] for item in best], fitted.predict(rows)[order], atol=1e-5)


def test_rank_takes_files_lists_and_the_standard_input(run, model, items, tmp_path):
    contexts = [{"city": "Rome"}, {"city": None}]
    (tmp_path / "contexts.json").write_text(json.dumps(contexts))
    from_file = run("rank", model, items, "--context", "contexts.json", "--k", 2, "--json", "-q").stdout
    from_input = run(
        "rank", model, items, "--context", "-", "--k", 2, "--json", "-q", stdin=json.dumps(contexts)
    ).stdout
    assert from_file == from_input
    first, second = json.loads(from_file)["contexts"]
    assert len(first) == len(second) == 2 and {item["id"] for item in first} <= {0, 1, 2, 3}
    shown = run("rank", model, items, "--context", "contexts.json", "--k", 2).stdout
    assert "context 1" in shown and "prediction" in shown
    left = json.loads(
        run("rank", model, items, "--context", '{"city": "Rome"}', "--exclude", first[0]["id"], "--json").stdout
    )
    assert first[0]["id"] not in [item["id"] for item in left["contexts"][0]]


@pytest.mark.parametrize(
    ("context", "options", "message"),
    [
        ("{}", [], "has no 'city'"),
        ('[{"city": "Rome"}, {}]', [], "context 1 has no 'city'"),
        ('{"city": "Rome", "price": 1}', [], "the context has 'price', which is a column of the items"),
        ("[]", [], "must be an object"),
        ("[1]", [], "must be an object"),
        ('{"city": ', [], "not JSON"),
        ("missing.json", [], "--context 'missing.json' is neither a file nor JSON"),
        ("city=Rome", [], """neither a file nor JSON such as '{"country": "US"}'"""),
        ('{"city": "Rome"}', ["--ids", "name"], "--ids"),
        ('{"city": "Rome"}', ["--exclude", "x"], "--exclude 'x': the ids of the items are integers"),
        ('{"city": "Rome"}', ["--allow", "x"], "--allow 'x': the ids of the items are integers"),
        ('{"city": "Rome"}', ["--group", "x"], "the index has no groups; build it with --groups COLUMN"),
        ('{"city": "Rome"}', ["--groups", "shelf"], "--groups"),
    ],
)
def test_rank_refuses(run, model, items, context, options, message):
    assert message in run("rank", model, items, "--context", context, *options, code=1).output


@pytest.fixture
def shelves(write, tmp_path):
    table = pa.table({"ad": ["a", "b", "c", "d"], "price": [0.5, 1.0, 2.0, None], "shelf": ["toys", "books"] * 2})
    return write(table, tmp_path / "shelves.parquet")


@pytest.mark.parametrize("filters", [[], ["--exclude", "a"], ["--allow", "a", "--allow", "d"], ["--group", "books"]])
def test_an_index_file_ranks_like_its_table(run, model, shelves, filters):
    columns = ["--ids", "ad", "--groups", "shelf"]
    about = json.loads(run("index", model, shelves, *columns, "--out", "ads.sfi", "--json", "-q").stdout)
    assert about["items"] == 4 and about["groups"] == 2 and about["context_columns"] == ["city"]
    assert about["bytes"] == Path("ads.sfi").stat().st_size
    asked = ["--context", '{"city": "Rome"}', *filters, "--json", "-q"]
    of_table = json.loads(run("rank", model, shelves, *columns, *asked).stdout)["contexts"][0]
    assert json.loads(run("rank", model, "ads.sfi", *asked).stdout)["contexts"][0] == of_table
    kept = {"--exclude": {"b", "c", "d"}, "--allow": {"a", "d"}, "--group": {"b", "d"}, "": {"a", "b", "c", "d"}}
    assert {item["id"] for item in of_table} == kept[filters[0] if filters else ""]


def test_ids_of_a_text_file_stay_as_they_are_written(run, model, tmp_path):
    (tmp_path / "items.csv").write_text("ad,price\n007,0.5\n7,1\n03134,2\n")
    run("index", model, "items.csv", "--ids", "ad", "--out", "ads.sfi", "-q")
    for items in (["items.csv", "--ids", "ad"], ["ads.sfi"]):
        asked = ["--context", '{"city": "Rome"}', "--exclude", "7", "--json", "-q"]
        (best,) = json.loads(run("rank", model, *items, *asked).stdout)["contexts"]
        assert {item["id"] for item in best} == {"007", "03134"}


def test_index_tells_what_it_wrote(run, model, items):
    shown = run("index", model, items, "--ids", "ad", "--dtype", "int8", "--out", "ads.sfi").stdout
    assert "4, as vectors of int8" in shown and "city" in shown and "ads.sfi" in shown


def test_index_refuses(run, model, items, shelves):
    asked = ["--ids", "ad", "--out", "ads.sfi"]
    assert "--groups" in run("index", model, items, *asked, "--groups", "shelf", code=1).output
    assert "would replace the input" in run("index", model, items, "--out", items, code=1).output
    run("index", model, items, *asked)
    assert "'ads.sfi': it is an item index" in run("info", "ads.sfi", code=1).output
    for option in ("--ids", "--groups"):
        told = run("rank", model, "ads.sfi", option, "ad", "--context", '{"city": "Rome"}', code=1).output
        assert "is an index" in told
