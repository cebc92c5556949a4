"""The command line, as a user runs it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import splinefm as sf

SPLINEFM = Path(sys.executable).with_name("splinefm")


def run(*arguments, code=0, cwd=None):
    done = subprocess.run([SPLINEFM, *map(str, arguments)], capture_output=True, text=True, cwd=cwd)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(params=["csv", "parquet"])
def data(request, tmp_path):
    rng = np.random.default_rng(0)
    table = pa.table({"price": rng.lognormal(size=200), "city": ["Rome", "Oslo"] * 100, "click": [0, 1] * 100})
    path = tmp_path / f"data.{request.param}"
    (pyarrow.csv.write_csv if request.param == "csv" else pq.write_table)(table, path)
    return path


def test_help_names_the_commands():
    text = run("--help")
    assert "schema" in text and "demo" in text


def test_demo_shows_schema_and_starvation():
    text = run("demo")
    assert "Numerical('recency', basis=MultiResolution" in text and "spread over [0, 1]" in text


def test_schema_is_printed_and_written(data, tmp_path):
    out = tmp_path / "schema.toml"
    text = run("schema", data, "--target", "click", "--out", out)
    assert "Numerical('price', basis=" in text and "distinct values" in text
    assert sf.Schema.load(out) == sf.Schema([sf.Numerical("price", basis=sf.MultiResolution()), sf.Categorical("city")])


def test_schema_as_json(data):
    described = json.loads(run("schema", data, "--json"))
    assert [field["name"] for field in described["field"]] == ["price", "city", "click"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["schema", "nothing.csv"], "no file or folder 'nothing.csv'"),
        (["schema", "data.txt"], "unknown file format"),
        (["schema", "empty.csv"], "cannot read 'empty.csv'"),
        (["schema", "good.csv", "--target", "clik"], "nearest: 'click'"),
        (["schema", "good.csv", "--out", "schema.yaml"], "ends in .toml or .json"),
    ],
)
def test_bad_input_is_a_message(arguments, message, tmp_path):
    (tmp_path / "data.txt").write_text("a\n1\n")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "good.csv").write_text("a,click\n1,0\n")
    assert message in run(*arguments, code=1, cwd=tmp_path)


def test_wrong_usage_exits_with_2():
    run("schema", code=2)
    run("nonsense", code=2)
