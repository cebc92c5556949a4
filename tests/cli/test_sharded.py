"""`splinefm info`, `evaluate` and `predict` of a sharded model: the same as for a model file."""

import json

import pytest

import splinefm as sf


@pytest.fixture
def folder(fitted, tmp_path):
    sf.ShardedModel.write(fitted, tmp_path / "sharded", parts=4)
    return tmp_path / "sharded"


def test_predictions_and_metrics_are_those_of_the_file(run, folder, model, data):
    outputs = []
    for path in (folder, model):
        predicted = run("predict", path, data, "--id", "id", "--quiet").stdout
        evaluated = run("evaluate", path, data, "--target", "click", "--by", "city", "--json", "--quiet").stdout
        outputs.append((predicted, json.loads(evaluated)))
    assert outputs[0] == outputs[1] and len(outputs[0][0].splitlines()) == 301


def test_info(run, folder, model):
    about, of_file = (json.loads(run("info", path, "--json").stdout) for path in (folder, model))
    assert [len(part["ranges"]) for part in about.pop("parts")] == [1] * 4 and of_file.pop("parts") == []
    assert about.pop("format") == 1 and of_file.pop("format") >= 3
    assert about.pop("file") == str(folder) and of_file.pop("file") == str(model)
    files = [path for path in folder.iterdir() if path.name != "manifest.json"]
    assert about.pop("bytes") == sum(path.stat().st_size for path in files) and of_file.pop("bytes")
    assert about == of_file
    assert "4, with 3 features each" in run("info", folder).stdout


@pytest.mark.parametrize("command", ["info", "evaluate", "predict"])
def test_a_damaged_folder(run, folder, data, command):
    next(folder.glob("*-00001.part")).unlink()
    result = run(command, folder, *([] if command == "info" else [data]), code=1)
    assert "00001.part' is missing; copy the folder again" in result.stderr.replace("\n", " ")


def test_other_commands_need_a_file(run, folder, data):
    result = run("view", folder, "--along", "price", code=1)
    assert "is a sharded model" in result.stderr
