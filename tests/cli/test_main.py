"""The command line as a whole: help, versions, exit codes, pipes; and `splinefm schema`."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import splinefm as sf

COMMANDS = (
    "schema",
    "fit",
    "evaluate",
    "predict",
    "update",
    "compare",
    "info",
    "view",
    "explain",
    "explore",
    "discretize",
    "export",
    "rank",
    "index",
    "demo",
)


def test_help_names_the_commands_and_loads_nothing_heavy():
    code = """
import sys
from splinefm.cli.main import main
sys.argv = ["splinefm", "--help"]
try:
    main()
finally:
    heavy = [name for name in ("numpy", "pyarrow", "scipy", "matplotlib") if name in sys.modules]
    assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for command in COMMANDS:
        assert f" {command} " in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(run, command):
    assert "--json" in run(command, "--help").stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_paragraphs_of_the_help_fill_their_lines(run, command):
    about = run(command, "--help").stdout.split("╭")[0]
    for paragraph in re.split(r"\n\s*\n", about):
        for line, following in pairwise(paragraph.splitlines()):
            if line.strip() and following.strip():
                assert len(line.rstrip()) + len(following.split()[0]) >= 78, line


def test_the_help_of_fit_names_the_extra_for_several_processes(run):
    assert "(splinefm[distributed])" in run("fit", "--help").stdout


def test_version(run):
    assert run("--version").stdout == f"splinefm {sf.__version__}\n"


def test_the_package_runs_as_a_module():
    done = subprocess.run([sys.executable, "-m", "splinefm", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"splinefm {sf.__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["schema"],
        ["schema", "data.csv", "--nonsense"],
        ["fit", "data.csv", "--target", "click"],
        ["fit", "data.csv", "--target", "click", "--out", "m.sfm", "--epochs", "0"],
        ["fit", "data.csv", "--target", "click", "--out", "m.sfm", "--model", "tree"],
        ["fit", "data.csv", "--target", "click", "--out", "m.sfm", "--loss", "hinge"],
        ["fit", "data.csv", "--target", "click", "--out", "m.sfm", "--validation", "1.5"],
        ["fit", "data.csv", "--target", "click", "--out", "m.sfm", "--rank", "2"],
        ["fit", "data.csv", "--target", "click", "--out", "m.sfm", "--model", "fm", "--order", "3"],
        ["fit", "data.csv", "--target", "click", "--out", "m.sfm", "--model", "fm", "--third", "3"],
        ["fit", "-", "--target", "click", "--out", "m.sfm"],
        ["predict", "m.sfm"],
        ["predict", "m.sfm", "data.csv", "--json"],
        ["predict", "m.sfm", "data.csv", "--format", "xml"],
        ["info"],
    ],
)
def test_wrong_usage_exits_with_2(run, arguments):
    assert "Usage" in run(*arguments, code=2).output


def test_schema_is_printed_and_written(run, data, tmp_path):
    arguments = ("schema", data, "--target", "click", "--ignore", "id", "--ignore", "amount")
    text = run(*arguments, "--out", "schema.toml").stdout
    assert "Numerical('price', basis=" in text and "distinct values" in text and "schema.toml" in text
    assert sf.Schema.load(tmp_path / "schema.toml").names == ("price", "city", "views")


def test_schema_as_json(run, data):
    described = json.loads(run("schema", data, "--json", "--ignore", "views").stdout)
    assert [field["name"] for field in described["field"]] == ["id", "price", "city", "click", "amount"]


def test_schema_of_the_standard_input(run):
    text = run("schema", "-", "--target", "y", stdin="x,c,y\n" + "0.5,a,1\n1.5,b,0\n" * 9).stdout
    assert "Numerical('x'" in text and "Categorical('c')" in text and "'y'" not in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["schema", "nothing.csv"], "no file or folder 'nothing.csv'"),
        (["schema", "data.txt"], "unknown file format"),
        (["schema", "empty.csv"], "cannot read 'empty.csv'"),
        (["schema", "header.csv"], "has no rows"),
        (["schema", "good.csv", "--target", "clik"], "nearest: 'click'"),
        (["schema", "good.csv", "--ignore", "aa"], "no column 'aa'"),
        (["schema", "good.csv", "--target", "click", "--ignore", "click"], "--ignore click: this is the target"),
        (["schema", "good.csv", "--target", "click", "--ignore", "a"], "no column is left"),
        (["schema", "good.csv", "--out", "schema.yaml"], "ends in .toml or .json"),
        (["schema", "good.csv", "--out", "nowhere/schema.toml"], "nowhere"),
        (["schema", "good.json", "--out", "good.json"], "unknown file format"),
    ],
)
def test_bad_input_is_a_message(run, arguments, message, tmp_path):
    (tmp_path / "data.txt").write_text("a\n1\n")
    (tmp_path / "good.json").write_text("{}")
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "header.csv").write_text("a,click\n")
    (tmp_path / "good.csv").write_text("a,click\n1,0\n")
    result = run(*arguments, code=1)
    assert message in result.stderr and result.stderr.startswith("splinefm: ") and not result.stdout


def test_commands_one_after_the_other_some_as_processes(run, shell, table, fitted, write, tmp_path):
    # A process starts in half a second: one for each way to end, the others in this one.
    # Parquet, and CSV where the guide has none; the other lines with CSV come from the guide.
    for suffix in ("csv", "parquet"):
        write(table.select(["price", "city", "click"]), tmp_path / f"data.{suffix}")
    run("schema", "data.csv", "--target", "click", "--out", "schema.toml")
    run("schema", "data.parquet", "--target", "click", "--out", "again.toml")
    # Only a text file can have text among its numbers.
    shell("grep -v '^text = \"auto\"$' schema.toml | cmp - again.toml")
    small = "--schema schema.toml --model fm --k 2 --epochs 1 --json"
    out, error = shell(f"splinefm fit data.parquet --target click --out m.sfm {small}")
    assert json.loads(out)["rows"] == 300 and "epoch 1/1" in error
    assert json.loads(run("evaluate", "m.sfm", "data.parquet", "--json").stdout)["target"] == "click"
    run("predict", "m.sfm", "data.parquet", "--out", "p.parquet")
    assert np.array_equal(
        pq.read_table(tmp_path / "p.parquet")["probability"], sf.load(tmp_path / "m.sfm").predict(table)
    )
    assert "FM(k=2)" in run("info", "m.sfm").stdout
    assert "no column 'clic'" in shell("splinefm fit data.parquet --target clic --out m.sfm", code=1)[1]
    assert "No such option" in shell("splinefm fit data.parquet --tarket click", code=2)[1]


@pytest.mark.parametrize("line", ["schema --help", pytest.param("info model.sfm --json", marks=pytest.mark.thorough)])
def test_a_reader_that_leaves_early_is_no_cause_for_a_traceback(shell, model, line):
    shell(f"splinefm {line} | true", code=1)


def test_closed_streams_are_no_cause_for_a_traceback(shell, model):
    assert shell("splinefm info model.sfm >&- 2>&- <&-") == (b"", "")


@pytest.mark.parametrize("option", ["", pytest.param("--json", marks=pytest.mark.thorough)])
def test_a_full_disk_is_a_message(shell, model, option):
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    assert shell(f"splinefm info model.sfm {option} > /dev/full", code=1)[1].count("No space left") == 1


def test_characters_that_the_terminal_lacks_are_replaced(shell, fitted, tmp_path):
    named = replace(fitted.encoder, fields=(replace(fitted.encoder.fields[0], name="größe"), fitted.encoder.fields[1]))
    replace(fitted, encoder=named).save(tmp_path / "m.sfm")
    assert b"gr??e" in shell("PYTHONIOENCODING=ascii splinefm info m.sfm")[0]
