"""`splinefm info`: what is inside a model file."""

import json
import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import splinefm as sf
from splinefm.train.results import SearchEntry


def test_everything_is_told(run, model, fitted):
    text = run("info", model).stdout
    for part in (
        "FM(k=2)",
        "probability of 'yes'",
        "300 rows",
        "BSpline of 7 functions",
        "2 values",
        "format",
        "epoch",
    ):
        assert part in text


def test_json(run, model, fitted):
    about = json.loads(run("info", model, "--json").stdout)
    assert about["bytes"] == model.stat().st_size and about["version"] == sf.__version__ and about["format"] >= 1
    assert about["model"] == {"kind": "FM", "k": 2} and about["classes"] == ["no", "yes"]
    assert about["parameters"] == sum(values.size for values in fitted.params.values())
    price, city = about["fields"]
    assert (price["name"], price["kind"], price["functions"], price["rows"]) == ("price", "Numerical", 7, 8)
    assert (city["name"], city["vocabulary"], city["unseen"]) == ("city", 2, "rare")
    assert about["training"]["epochs"] == 2 and len(about["history"]) == 2
    best = min(fitted.history, key=lambda epoch: epoch.validation_loss)
    assert about["validation"]["best_epoch"] == best.epoch and about["validation"]["value"] == best.validation_loss


def test_penalties_by_field_and_no_validation(run, table, tmp_path):
    training = sf.Training(epochs=1, threads=1, l2={"price": 0.5})
    part = table.select(["price", "city", "amount"])
    schema = sf.Schema([sf.Numerical("price", special=[0.0]), sf.Categorical("city", unseen="hash")])
    options = {"loss": "squared", "model": sf.FM(k=2), "validation": 0, "schema": schema}
    sf.fit_model(part, "amount", training=training, **options).save(tmp_path / "m.sfm")
    text = run("info", "m.sfm").stdout
    assert "l2 by field" in text and "1 special value" in text and "mean of the target" in text
    assert "1 special values" not in text
    about = json.loads(run("info", "m.sfm", "--json").stdout)
    assert about["validation"]["metric"] is None and about["history"][0]["validation_loss"] is None
    assert about["training"]["l2"]["price"] == 0.5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("none.sfm", "no file 'none.sfm'"),
        (".", "is a folder"),
        ("short.sfm", "truncated"),
        ("foreign.sfm", "not a model file"),
        ("flipped.sfm", "damaged"),
    ],
)
def test_a_file_that_is_no_model_is_a_message(run, model, tmp_path, name, message):
    content = bytearray(model.read_bytes())
    (tmp_path / "short.sfm").write_bytes(content[:-9])
    (tmp_path / "foreign.sfm").write_text("id,price\n1,2\n")
    content[100] ^= 1
    (tmp_path / "flipped.sfm").write_bytes(content)
    assert message in run("info", name, code=1).stderr


def test_crosses(run, table, tmp_path):
    fields = [
        sf.Numerical("price"),
        sf.Categorical("city"),
        sf.Numerical("views"),
        sf.Categorical("id", unseen="neutral"),
    ]
    crosses = [
        sf.Cross("price", "city", segments=(2, 4)),
        sf.Cross("price", "views", segments=3),
        sf.Cross("city", "id", buckets=50),
    ]
    options = {"model": sf.FM(k=2), "training": sf.Training(epochs=1, threads=1)}
    sf.fit_model(table, "click", schema=sf.Schema(fields + crosses), **options).save(tmp_path / "m.sfm")
    text = run("info", "m.sfm").stdout
    for part in ("2 combinations × 5 + 7 functions", "6 by 6 functions", "50 buckets", "tensor product", "Cross"):
        assert part in text
    described = {field["name"]: field for field in json.loads(run("info", "m.sfm", "--json").stdout)["fields"]}
    assert described["price × city"]["columns"] == ["price", "city"]
    assert described["price × city"]["combinations"] == 2 and described["price × city"]["functions"] == [[5], [7]]
    assert described["price × views"]["functions"] == [[6, 6]] and described["price × views"]["combinations"] is None
    assert described["city × id"]["buckets"] == 50 and described["city × id"]["rows"] == 50


@pytest.mark.parametrize("name", ["search", "half"])
def test_a_model_of_a_sample_of_the_rows_says_so(run, fitted, name, tmp_path):
    """A fit that is interrupted during its search leaves such a model; version 0.1 called the run "half"."""
    sample = replace(fitted, history=tuple(epoch._replace(run=name) for epoch in fitted.history))
    assert "a sample of " in repr(sample) and "a sample of " not in repr(fitted)
    sample.save(tmp_path / "sample.sfm")
    assert {epoch.run for epoch in sf.load(tmp_path / "sample.sfm").history} == {name}
    assert "rows, but only some of them were learned from: the fit was interrupted" in run("info", "sample.sfm").stdout


def searched(fitted):
    entry = SearchEntry("FM(k=2)", "8 segments", 1e-4, 0.01, 2, (), 30, 0.5, 0.01, 4, 1.25, is_chosen=True)
    others = [replace(entry, l2=10.0**-i, loss=0.6 + i, error=0.02, folds=1, is_chosen=False) for i in range(6)]
    return replace(fitted, search=(entry, *others, replace(others[0], loss=math.inf, error=math.inf)))


def test_what_the_fit_tried_is_shown(run, model, fitted, tmp_path):
    assert "what the fit tried" not in run("info", model).stdout
    assert json.loads(run("info", model, "--json").stdout)["search"] == []
    searched(fitted).save(tmp_path / "s.sfm")
    shown = run("info", "s.sfm").stdout
    assert "what the fit tried, judged by parts of the rows that were held out: the best 5 of 8 settings" in shown
    (line,) = (line for line in shown.splitlines() if line.endswith("chosen"))
    assert line.split("   ")[0] == "FM(k=2), 8 segments, l2 0.0001, smoothness 0.01, 30 epochs"
    assert line.split()[-6:] == ["0.5", "±", "0.01", "4", "1.2", "chosen"]
    entries = json.loads(run("info", "s.sfm", "--json").stdout)["search"]
    assert len(entries) == 8 and entries[0]["is_chosen"] and entries[0]["text"] == line.split("   ")[0]
    assert entries[0]["metric"] == "logloss" and entries[0]["value"] == 0.5
    assert entries[0]["value_error"] == pytest.approx(0.01)
    assert entries[-1]["value"] is None and entries[-1]["value_error"] is None


def test_remarks_are_told_after_the_fit_and_of_its_file(run, write, tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.random(1500), rng.normal(size=1500)
    file, out = write(pa.table({"x": x, "refund": 3 * y, "y": y}), tmp_path / "t.csv"), tmp_path / "m.sfm"
    told = run("fit", file, "--target", "y", "--out", out, "--epochs", "12", "--effort", "fast").stdout
    for text in (told, run("info", out).stdout):
        assert "remark: 'refund' alone explains" in text and "--ignore refund" in text
    (remark,) = json.loads(run("info", out, "--json").stdout)["remarks"]
    assert (remark["kind"], remark["columns"]) == ("leak", ["refund"])


def test_there_are_no_remarks_on_a_usual_fit(run, model):
    assert "remark:" not in run("info", model).stdout and not json.loads(run("info", model, "--json").stdout)["remarks"]
