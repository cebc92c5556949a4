"""More than two classes on the command line: fit, predict, evaluate, view, explain, info."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import splinefm as sf
from splinefm import metrics

QUICK = ("--epochs", 2, "--model", "fm", "--k", 2, "--threads", 1, "--quiet")


@pytest.fixture(scope="module")
def colors():
    rng = np.random.default_rng(0)
    x, city = rng.normal(size=400), rng.choice(["Rome", "Oslo"], 400)
    score = np.stack([2 * x, -2 * x, 2.0 * (city == "Rome")]) + rng.gumbel(size=(3, 400))
    code = score.argmax(axis=0)
    return pa.table(
        {"id": np.arange(400), "x": x, "city": city, "code": code, "color": np.array(["b", "g", "r"])[code]}
    )


@pytest.fixture
def model(run, write, colors, tmp_path):
    write(colors, tmp_path / "colors.csv")
    run("fit", "colors.csv", "--target", "color", "--ignore", "id", "--ignore", "code", "--out", "m.sfm", *QUICK)
    return "m.sfm"


def test_text_with_more_than_two_values_has_classes(model, run, colors):
    fitted = sf.load(model)
    assert fitted.loss.name == "softmax" and fitted.classes == ("b", "g", "r")
    about = json.loads(run("info", model, "--json").stdout)
    assert about["classes"] == ["b", "g", "r"] and about["prediction"] == "probabilities of 3 classes"
    assert "probabilities of 3 classes" in run("info", model).stdout


def test_numbers_are_classes_where_asked_for(run, write, colors, tmp_path):
    write(colors.select(["x", "city", "code"]), tmp_path / "codes.csv")
    facts = json.loads(run("fit", "codes.csv", "--target", "code", "--out", "n.sfm", *QUICK, "--json").stdout)
    assert facts["loss"] == "squared" and "softmax" in facts["loss_reason"]
    run("fit", "codes.csv", "--target", "code", "--loss", "softmax", "--out", "n.sfm", *QUICK)
    assert sf.load("n.sfm").classes == (0, 1, 2)
    assert "accuracy" in run("evaluate", "n.sfm", "codes.csv").stdout


def test_a_column_of_probabilities_per_class(model, run, colors):
    run("predict", model, "colors.csv", "--id", "id", "--out", "p.csv", "-q")
    found = pyarrow.csv.read_csv("p.csv")
    assert found.column_names == ["id", "probability_b", "probability_g", "probability_r"]
    values = np.column_stack([found[name] for name in found.column_names[1:]])
    np.testing.assert_allclose(values, sf.load(model).predict(colors), atol=1e-12)
    facts = json.loads(run("predict", model, "colors.csv", "--out", "p.parquet", "-q", "--json").stdout)
    assert facts["columns"] == found.column_names[1:]
    assert "probability_b, probability_g" in run("predict", model, "colors.csv", "--out", "p.csv").stderr


def test_metrics_of_classes(model, run, colors):
    found = json.loads(run("evaluate", model, "colors.csv", "--target", "color", "--json").stdout)
    y, p = colors["code"].to_numpy(), sf.load(model).predict(colors)
    expected = {
        "logloss": metrics.class_logloss(y, p),
        "accuracy": metrics.accuracy(y, p),
        "auc": metrics.class_auc(y, p),
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)
    text = run("evaluate", model, "colors.csv", "--target", "color", "--by", "city", code=1).output
    assert "score for each of 3 classes" in text


def test_one_class_against_the_rest(model, run, colors):
    line = ("evaluate", model, "colors.csv", "--target", "color", "--class", "g", "--by", "city", "--json")
    found = json.loads(run(*line).stdout)
    y, p = (colors["code"].to_numpy() == 1).astype(float), sf.load(model).predict(colors)[:, 1]
    for name in ("logloss", "auc", "calibration_error"):
        assert found[name] == pytest.approx(getattr(metrics, name)(y, p), abs=1e-6)
    oslo = colors["city"].to_numpy(zero_copy_only=False) == "Oslo"
    assert found["groups"][0]["predicted"] == pytest.approx(p[oslo].mean(), abs=1e-6)


def test_views_and_explanations_of_a_class(model, run, colors):
    seen = json.loads(run("view", model, "--along", "x", "--segment", "city=Rome", "--class", "r", "--json").stdout)
    one = sf.load(model).for_class("r")
    curve = one.segment({"city": "Rome"}, along="x")
    text = json.dumps(seen)
    assert "score of class 'r'" in text
    grid = np.linspace(-1, 1, 5)
    np.testing.assert_allclose(curve(grid), one.scores({"x": grid, "city": ["Rome"] * 5}), atol=1e-4)
    facts = json.loads(run("explain", model, "colors.csv", "--class", "r", "--json", "-q").stdout)
    assert facts["model"]["prediction"] == "score of class 'r'" and len(facts["importance"]["fields"]) == 2
    assert facts["calibration"] is None and not facts["metrics"]


def test_the_values_of_a_class_are_scores(model, run):
    printed = run("view", model, "--along", "x", "--class", "r").stdout
    assert "prediction" not in printed and "score of class 'r' along x" in printed
    assert ["x", "score"] in [line.split() for line in printed.splitlines()]


@pytest.mark.parametrize("along", [("x",), ("city",), ("x", "city")], ids=" and ".join)
def test_files_of_a_view_have_no_predictions_of_a_class(model, run, along):
    line = ("view", model, *(word for name in along for word in ("--along", name)), "--class", "r")
    run(*line, "--out", "v.csv", "-q")
    token = [] if len(along) == 2 else ["token"]
    assert pyarrow.csv.read_csv("v.csv").column_names == [*along, *token, "score"]
    seen = json.loads(run(*line, "--json").stdout)
    assert '"predictions"' not in json.dumps(seen) and '"prediction"' not in json.dumps(seen["views"])
    assert seen["prediction"] == "score of class 'r'" and seen["views"][0]["scores"]


def test_explanations_have_no_predictions_of_a_class(model, run):
    facts = json.loads(run("explain", model, "colors.csv", "--class", "r", "--json", "-q").stdout)
    assert '"predictions"' not in json.dumps(facts["curves"]) and facts["curves"][0]["scores"]


def test_a_file_of_one_class_predicts_scores(model, run, colors):
    one = sf.load(model).for_class("r")
    one.save("r.sfm")
    run("predict", "r.sfm", "colors.csv", "--out", "p.csv", "-q")
    found = pyarrow.csv.read_csv("p.csv")
    assert found.column_names == ["score"]
    np.testing.assert_allclose(found["score"], one.scores(colors), atol=1e-6)


def test_the_probability_of_the_explained_class_is_compared_with_targets(model, run, colors, tmp_path):
    line = ("--class", "r", "--target", "color", "--out", "page", "--json", "-q")
    facts = json.loads(run("explain", model, "colors.csv", *line).stdout)
    y, p = (colors["code"].to_numpy() == 2).astype(float), sf.load(model).predict(colors)[:, 2]
    for name in ("logloss", "auc", "calibration_error"):
        assert facts["metrics"][name] == pytest.approx(getattr(metrics, name)(y, p), abs=1e-6)
    bins = facts["calibration"]["bins"]  # ten of as many rows
    assert np.mean(bins["predicted"]) == pytest.approx(p.mean(), abs=1e-6)
    assert np.mean(bins["measured"]) == pytest.approx(y.mean(), abs=1e-6)
    one = sf.load(model).for_class("r")
    scores = one.scores(colors)
    for example in facts["examples"]:
        assert example["prediction"] == pytest.approx(scores[example["row"]], abs=1e-4)
        assert example["target"] == colors["code"].to_numpy()[example["row"]]
    text = (tmp_path / "page" / "index.html").read_text()
    labels = json.dumps([str(label) for label in sf.load(model).classes], separators=(",", ":"))
    assert '"name":"logloss"' in text and f'"classes":{labels}' in text


EXPORTS = {
    "libffm": ("--out", "m.ffm", "--raw"),
    "tables": ("--out", "tables"),
    "onnx": ("--out", "m.onnx"),
    "scorer": ("--out", "m.sfs"),
}


@pytest.mark.parametrize("to", EXPORTS)
def test_one_class_is_exported_as_its_own_model_would_be(model, run, to, tmp_path):
    if to == "onnx":
        pytest.importorskip("onnx")
    file = "binned.sfm" if to == "tables" else "m.sfm"
    if to == "tables":
        sf.discretize(sf.load(model).for_class("r"), {"x": 8}).save("r.sfm")
        run("discretize", model, "--class", "r", "--bins", "x=8", "--out", file, "-q")
        assert sf.load(file).loss.of_class == "r"
        run("export", file, "--to", to, *EXPORTS[to])
    else:
        sf.load(model).for_class("r").save("r.sfm")
        run("export", file, "--to", to, "--class", "r", *EXPORTS[to])
    written = {path.name: path.read_bytes() for path in find_files(tmp_path / EXPORTS[to][1])}
    run("export", "r.sfm", "--to", to, "--out", "again", *EXPORTS[to][2:])
    assert [*written.values()] == [path.read_bytes() for path in find_files(tmp_path / "again")]


def find_files(path):
    return sorted(path.iterdir()) if path.is_dir() else [path]


def test_a_class_ranks_items(model, run):
    items = pa.table({"city": ["Rome", "Oslo"], "name": ["r", "o"]})
    pyarrow.csv.write_csv(items, "items.csv")
    run("index", model, "items.csv", "--ids", "name", "--class", "r", "--out", "items.sfi", "-q")
    line = ("--context", '{"x": 0.5}', "--class", "r", "-q")
    found = json.loads(run("rank", model, "items.sfi", *line, "--json").stdout)["contexts"][0]
    scores = sf.load(model).for_class("r").scores({"x": [0.5, 0.5], "city": ["Rome", "Oslo"]})
    expected = dict(zip("ro", scores.tolist(), strict=True))
    assert [set(item) for item in found] == [{"id", "score"}] * 2
    assert {item["id"]: item["score"] for item in found} == pytest.approx(expected, abs=1e-5)
    assert json.loads(run("rank", model, "items.csv", "--ids", "name", *line, "--json").stdout)["contexts"][0] == found
    printed = run("rank", model, "items.sfi", *line).stdout
    assert ["rank", "id", "score"] in [text.split() for text in printed.splitlines()]
    assert "index" in run("rank", model, "items.sfi", "--context", '{"x": 0.5}', "--class", "b", code=1).output
    run("export", model, "--to", "scorer", "--index", "items.sfi", "--class", "r", "--out", "m.sfs")
    for command in (("serve", model), ("explore", model, "colors.csv", "--out", "page.html")):
        text = " ".join(run(*command, "--index", "items.sfi", code=1).output.split())
        assert "an item index needs one" in text and "sf.load(FILE).for_class('b').save('one.sfm')" in text


CHOOSE = "needs one: choose a class, such as --class b"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("view", "m.sfm", "--along", "x"), f"view {CHOOSE}"),
        (("view", "m.sfm", "--along", "x", "--class", "pink"), "classes of the model are 'b', 'g' or 'r'"),
        (("explain", "m.sfm", "colors.csv", "--json"), f"explain {CHOOSE}"),
        (("explain", "m.sfm", "colors.csv", "--json", "--class", "b", "--target", "x"), "field of the model"),
        (("evaluate", "m.sfm", "colors.csv", "--target", "color", "--by", "city"), f"--by {CHOOSE}"),
        (("export", "m.sfm", "--to", "libffm", "--out", "m.ffm", "--raw"), f"--to libffm {CHOOSE}"),
        (("export", "m.sfm", "--to", "tables", "--out", "tables"), f"--to tables {CHOOSE}"),
        (("export", "m.sfm", "--to", "tables", "--out", "tables", "--class", "b"), "splinefm discretize MODEL"),
        (("export", "m.sfm", "--to", "scorer", "--index", "i.sfi", "--out", "m.sfs"), f"--index {CHOOSE}"),
        (("discretize", "m.sfm", "--bins", "x=20", "--out", "b.sfm"), f"discretize {CHOOSE}"),
        (("index", "m.sfm", "colors.csv", "--out", "i.sfi"), f"index {CHOOSE}"),
        (("rank", "m.sfm", "colors.csv", "--context", "{}"), f"rank {CHOOSE}"),
    ],
)
def test_one_class_must_be_named_and_known(model, run, arguments, message):
    assert message in " ".join(run(*arguments, code=1).output.split())


def test_a_model_of_two_classes_has_no_class_to_choose(run, write, colors, tmp_path):
    two = colors.filter(pa.compute.less(colors["code"], 2)).select(["x", "color"])
    write(two, tmp_path / "two.csv")
    run("fit", "two.csv", "--target", "color", "--out", "two.sfm", *QUICK)
    assert "no class to choose" in run("view", "two.sfm", "--along", "x", "--class", "b", code=1).output
