"""`splinefm info`: what is inside a model file."""

import json
from dataclasses import replace

import pytest

import splinefm as sf


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


def test_a_model_of_half_of_the_rows_says_so(run, fitted, tmp_path):
    """A fit that is interrupted during its search leaves such a model."""
    half = replace(fitted, history=tuple(epoch._replace(run="half") for epoch in fitted.history))
    assert "half of " in repr(half) and "half of " not in repr(fitted)
    half.save(tmp_path / "half.sfm")
    assert "rows, but only half of them were learned from: the fit was interrupted" in run("info", "half.sfm").stdout
