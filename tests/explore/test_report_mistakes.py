"""Bad input for `splinefm explain`."""

import json

import numpy as np
import pyarrow as pa
import pytest

from splinefm.explore.page import d3_script


@pytest.mark.parametrize(
    "arguments",
    [
        ["--out", "report"],
        ["data.csv"],
        ["data.csv", "--out", "report", "--sample", "0"],
        ["data.csv", "--out", "report", "--threads", "0"],
        ["data.csv", "--out", "report", "--weight", "views"],
        ["data.csv", "--out", "report", "--nonsense"],
    ],
)
def test_wrong_usage_exits_with_2(run, model, arguments):
    assert "Error" in run("explain", model, *arguments, code=2).output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.csv"], "no file or folder 'none.csv'"),
        (["other.csv"], "no column 'price'"),
        (["empty.csv"], "has no rows to explain"),
        (["text.csv"], "price"),
        (["data.csv", "--target", "clik"], "nearest: 'click'"),
        (["holes.csv", "--target", "click"], "2 of the first 3 rows, beginning with row 1 (counted from 0)"),
        (["data.csv", "--target", "price"], "is a field of the model"),
        (["data.csv", "--target", "city"], "is a field of the model"),
        (["data.csv", "--target", "amount"], "amount"),
        (["data.csv", "--target", "click", "--weight", "wait"], "no column 'wait'"),
        (["data.csv", "--target", "click", "--weight", "amount"], "at least 0"),
        (["data.csv", "--target", "click", "--weight", "zero"], "'zero' is 0 throughout"),
        (["data.csv", "--out", "data.csv"], "is a file; give a folder"),
        (["data.csv", "--out", "report.html"], "must be a folder; the page in it will be index.html"),
        (["data.csv", "--out", "no/where"], "no folder"),
        (["data.csv", "--out", "blocked"], "is a folder"),
    ],
)
def test_bad_input_is_a_message(run, model, table, write, tmp_path, arguments, message):
    write(table.append_column("zero", pa.array(np.zeros(300))), tmp_path / "data.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty.csv").write_text("price,city\n")
    (tmp_path / "holes.csv").write_text("price,city,click\n1,Rome,yes\n1,Rome,\n2,Oslo,\n")
    (tmp_path / "text.csv").write_text("price,city\ncheap,Rome\n")
    (tmp_path / "blocked" / "index.html").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    arguments = arguments if "--out" in arguments else [*arguments, "--out", "report"]
    result = run("explain", model, *arguments, code=1)
    assert message in result.stderr and result.stderr.startswith("splinefm: ") and not result.stdout
    assert sorted(tmp_path.rglob("*")) == before


def test_without_d3_there_are_facts_but_no_page(run, model, data, tmp_path, monkeypatch):
    monkeypatch.setattr("splinefm.explore.page.D3_PACKAGE", "no-such-package-here")
    d3_script.cache_clear()
    try:
        assert "pip install 'splinefm[explore]'" in run("explain", model, data, "--out", "report", code=1).stderr
        assert not (tmp_path / "report").exists()
        assert json.loads(run("explain", model, data, "--json").stdout)["importance"]
    finally:
        d3_script.cache_clear()
