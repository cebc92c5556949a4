"""`--sep`: every command that reads a table takes it, and finds the usual separators by itself."""

import re

import pytest
from pyarrow import csv

FIT = ["--schema", "schema.toml", "--model", "fm", "--k", "2", "--epochs", "1", "--threads", "1", "--quiet"]
TIME = r"time .* seconds|\"seconds\": [\d.]+"
COMMANDS = {
    "schema": ["schema", "DATA"],
    "schema of the standard input": ["schema", "-"],
    "fit": ["fit", "DATA", "--target", "click", "--out", "out.sfm", "--validation", "DATA", *FIT],
    "evaluate": ["evaluate", "model.sfm", "DATA", "--target", "click"],
    "predict": ["predict", "model.sfm", "DATA", "--id", "id"],
    "predict the standard input": ["predict", "model.sfm", "-", "--id", "id"],
    "view": ["view", "model.sfm", "--along", "price", "--data", "DATA"],
    "explain": ["explain", "model.sfm", "DATA", "--json"],
    "explore": ["explore", "model.sfm", "DATA", "--out", "page.html", "--json", "-q"],
    "discretize": ["discretize", "model.sfm", "--bins", "9", "--data", "DATA", "--out", "out.sfm"],
    "export": ["export", "model.sfm", "--to", "libffm", "--out", "out.ffm", "--rows", "DATA", "--rows-out", "rows.ffm"],
    "index": ["index", "model.sfm", "ITEMS", "--ids", "id", "--out", "out.sfi"],
    "rank": ["rank", "model.sfm", "ITEMS", "--ids", "id", "--context", '{"city": "Rome"}'],
}


@pytest.fixture
def data(table, fitted, tmp_path):
    def write(separator):
        options = csv.WriteOptions(delimiter=separator)
        csv.write_csv(table, tmp_path / "data.csv", options)
        csv.write_csv(table.select(["id", "price"]), tmp_path / "items.csv", options)
        return (tmp_path / "data.csv").read_bytes()

    fitted.encoder.schema.save(tmp_path / "schema.toml")
    return write


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_takes_a_separator(name, run, model, data):
    arguments = [{"DATA": "data.csv", "ITEMS": "items.csv"}.get(word, word) for word in COMMANDS[name]]
    plain = run(*arguments, stdin=data(",")).stdout
    strange = data("!")
    said = run(*arguments, "--sep", "!", stdin=strange).stdout
    assert re.sub(TIME, "", said) == re.sub(TIME, "", plain)
    missing = run(*arguments, stdin=strange, code=0 if name.startswith("schema") else 1)
    assert "id!" in missing.output


def test_tune_takes_a_separator(run, data):
    pytest.importorskip("optuna")
    data("!")
    options = ["--target", "click", "--out", "out.sfm", "--validation", "data.csv", "--trials", "1", *FIT]
    run("tune", "data.csv", *options, "--sep", "!")


@pytest.mark.parametrize("separator", [";", "\t", "|"])
@pytest.mark.parametrize("source", ["data.csv", "-"])
def test_usual_separators_are_found(separator, source, run, model, data):
    expected = run("predict", model, source, "--id", "id", stdin=data(",")).stdout
    assert run("predict", model, source, "--id", "id", stdin=data(separator)).stdout == expected


def test_a_tab_can_be_written(run, model, data):
    expected = run("predict", model, "data.csv", stdin=data(",")).stdout
    data("\t")
    assert run("predict", model, "data.csv", "--sep", r"\t").stdout == expected


@pytest.mark.parametrize("sep", ["", ";;", "tab", '"'])
def test_other_separators_are_refused(sep, run, model, data):
    data(",")
    assert "--sep" in run("predict", model, "data.csv", "--sep", sep, code=2).stderr


def test_problems_of_the_standard_input_are_told_with_their_line(run, model):
    bad = 'price,city\n1,"Ro\nme"\n\n1,Oslo,3\n'
    assert "line 5 has 3 columns instead of 2" in run("predict", model, "-", code=1, stdin=bad).stderr
    long = f"price,city\n1,{'x' * (20 << 20)}\n"
    assert "more than 8 MB" in run("predict", model, "-", code=1, stdin=long).stderr


def test_quotes_of_the_standard_input_that_are_not_closed_are_told(run, model):
    bad = 'price,city\n1,"Rome\n2,Oslo\n'
    assert "line 2 are not closed" in run("predict", model, "-", code=1, stdin=bad).stderr
