"""`splinefm evaluate`: the metrics of the library, chunk by chunk."""

import json

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import mean_gamma_deviance, mean_pinball_loss, mean_tweedie_deviance

import splinefm as sf
from commands import with_positive_amounts
from splinefm import metrics
from splinefm.fit import evaluation as module


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 64)


def test_metrics_of_two_classes(run, model, data, table, fitted):
    found = json.loads(run("evaluate", model, data, "--target", "click", "--json").stdout)
    y, p = (np.array(table["click"].to_pylist()) == "yes").astype(float), fitted.predict(table)
    assert (found.pop("target"), found.pop("rows")) == ("click", 300)
    expected = {
        "logloss": metrics.logloss(y, p),
        "normalized_entropy": metrics.normalized_entropy(y, p),
        "auc": metrics.auc(y, p),
        "calibration_error": metrics.calibration_error(y, p),
        "mean_prediction": p.mean(),
        "mean_target": y.mean(),
    }
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("loss", ["squared", "poisson"])
def test_metrics_of_numbers_with_weights(run, data, table, loss):
    target = "amount" if loss == "squared" else "views"
    part = table.select(["price", "city", target])
    fitted = sf.fit_model(part, target, loss=loss, model=sf.FM(k=2), training=sf.Training(epochs=1, threads=1))
    fitted.save("numbers.sfm")
    found = json.loads(run("evaluate", "numbers.sfm", data, "--target", target, "--weight", "views", "--json").stdout)
    y, p, weight = table[target].to_numpy(), fitted.predict(table), table["views"].to_numpy()
    for name in ("rmse", "mae", "r2", "calibration_error"):
        assert found[name] == pytest.approx(getattr(metrics, name)(y, p, weight), abs=1e-9)
    if loss == "poisson":
        assert found["loss"] == pytest.approx(np.average(p - y * np.log(p), weights=weight), abs=1e-6)


ORACLES = {
    "gamma": ({}, "gamma_deviance", lambda y, p, w: mean_gamma_deviance(y, p, sample_weight=w)),
    "tweedie": (
        {"power": 1.3},
        "tweedie_deviance",
        lambda y, p, w: mean_tweedie_deviance(y, p, sample_weight=w, power=1.3),
    ),
    "quantile": (
        {"quantile": 0.9},
        "pinball_loss",
        lambda y, p, w: mean_pinball_loss(y, p, sample_weight=w, alpha=0.9),
    ),
    "huber": ({"delta": 2.0}, "huber_loss", lambda y, p, w: metrics.huber_loss(y, p, w, delta=2.0)),
}


@pytest.mark.parametrize("name", ORACLES)
def test_metrics_of_other_losses(run, table, write, tmp_path, name):
    table = with_positive_amounts(table)
    data = write(table, tmp_path / "d.csv")
    own, metric, oracle = ORACLES[name]
    part = table.select(["price", "city", "amount"])
    training = sf.Training(epochs=1, threads=1)
    fitted = sf.fit_model(part, "amount", loss=sf.Loss(name, **own), model=sf.FM(k=2), training=training)
    fitted.save("numbers.sfm")
    command = ("evaluate", "numbers.sfm", data, "--target", "amount", "--weight", "views")
    found = json.loads(run(*command, "--json", "--by", "city").stdout)
    y, p, weight = table["amount"].to_numpy(), fitted.predict(table), table["views"].to_numpy()
    assert found[metric] == pytest.approx(oracle(y, p, weight), rel=1e-5)
    assert ("calibration_error" in found) == (name in ("gamma", "tweedie"))
    if name == "quantile":
        assert found["coverage"] == pytest.approx(metrics.coverage(y, p, weight))
        in_city = np.array(table["city"].to_pylist()) == found["groups"][0]["group"]
        assert found["groups"][0]["predicted"] == pytest.approx(0.9)
        assert found["groups"][0]["measured"] == pytest.approx(
            metrics.coverage(y[in_city], p[in_city], weight[in_city])
        )
        assert "0.9 is best" in run(*command).stdout
    about = json.loads(run("info", "numbers.sfm", "--json").stdout)
    assert about["loss"] == name and about["loss_parameters"] == own
    assert about["prediction"] == {"quantile": "quantile 0.9 of the target", "gamma": "mean of the target"}.get(
        name, about["prediction"]
    )


def test_calibration_by_a_column(run, model, data, table, fitted):
    text = run("evaluate", model, data, "--target", "click", "--by", "city").stdout
    assert "AUC" in text and "calibration by 'city'" in text and text.index("Oslo") < text.index("Rome")
    options = ("--target", "click", "--by", "city", "--weight", "views", "--json")
    found = json.loads(run("evaluate", model, data, *options).stdout)
    y, p = (np.array(table["click"].to_pylist()) == "yes").astype(float), fitted.predict(table)
    groups = metrics.calibration_by(table["city"].to_pylist(), y, p, table["views"].to_numpy())
    for group, expected in zip(found["groups"], groups, strict=True):
        assert group["group"] == expected.group and group["weight"] == expected.weight
        assert group["error"] == pytest.approx(expected.error, abs=1e-12)


def test_groups_are_in_the_order_of_numbers_and_missing_ones_are_last(run, model, write, table, tmp_path):
    hours = pa.array(["10", "9", None] * 100)
    days = pa.array(["Sun", "Fri", "Mon"] * 100)
    part = table.append_column("hour", hours).append_column("x", pa.array([2.0, np.nan, None] * 100))
    write(part.append_column("day", days), tmp_path / "h.parquet")
    for by, order in (("hour", ["9", "10", None]), ("x", [2.0, None]), ("day", ["Mon", "Fri", "Sun"])):
        found = json.loads(run("evaluate", model, "h.parquet", "--target", "click", "--by", by, "--json").stdout)
        assert [group["group"] for group in found["groups"]] == order


def test_many_groups_are_cut_for_people_only(run, model, data):
    assert (
        "The 30 values with the most weight of 300"
        in run("evaluate", model, data, "--target", "click", "--by", "id").stdout
    )
    found = json.loads(run("evaluate", model, data, "--target", "click", "--by", "id", "--json").stdout)
    assert len(found["groups"]) == 300


def test_the_target_need_not_be_named_if_it_is_the_only_other_column(run, model, write, table, tmp_path):
    write(table.select(["price", "click", "city", "views"]), tmp_path / "d.csv")
    found = json.loads(run("evaluate", model, "d.csv", "--weight", "views", "--json").stdout)
    assert found["target"] == "click"


def test_standard_input(run, model, write, table, tmp_path):
    csv = write(table, tmp_path / "d.csv").read_bytes()
    options = ("--target", "click", "--by", "views", "--weight", "views", "--json")
    from_stream = json.loads(run("evaluate", model, "-", *options, stdin=csv).stdout)
    from_file = json.loads(run("evaluate", model, "d.csv", *options).stdout)
    for group in from_stream["groups"]:
        group["group"] = int(group["group"])  # a stream is text where the model does not say otherwise
    assert from_stream == from_file


def test_one_class_has_no_auc(run, model, table, write, tmp_path):
    write(table.set_column(4, "click", pa.array(["no"] * 300)), tmp_path / "d.csv")
    found = json.loads(run("evaluate", model, "d.csv", "--target", "click", "--json").stdout)
    assert found["auc"] is found["normalized_entropy"] is found["calibration_error"] is None and found["logloss"] > 0
    assert "AUC needs targets of both classes" in run("evaluate", model, "d.csv", "--target", "click").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.sfm", "data.csv"], "no file 'none.sfm'"),
        (["model.sfm", "none.csv"], "no file or folder 'none.csv'"),
        (["model.sfm", "data.csv"], "which column is the target?"),
        (["model.sfm", "fields.csv"], "the data have no target"),
        (["model.sfm", "-"], "add --target"),
        (["model.sfm", "data.csv", "--target", "clic"], "nearest: 'click'"),
        (["model.sfm", "data.csv", "--target", "click", "--by", "town"], "no column 'town'"),
        (["model.sfm", "data.csv", "--target", "click", "--weight", "wait"], "no column 'wait'"),
        (["model.sfm", "data.csv", "--target", "click", "--weight", "amount"], "must be finite and at least 0"),
        (["model.sfm", "data.csv", "--target", "city"], "'no' or 'yes'"),
        (["model.sfm", "holes.csv", "--target", "click"], "the target 'click' has missing or infinite values: 1 of"),
        (["model.sfm", "header.csv", "--target", "click"], "no rows"),
        (["model.sfm", "weightless.csv", "--target", "click", "--weight", "w"], "'w' is always 0"),
        (["model.sfm", "lists.parquet", "--target", "click", "--by", "lists"], "holds lists"),
    ],
)
def test_bad_input_is_a_message(run, model, table, write, tmp_path, arguments, message):
    write(table, tmp_path / "data.csv")
    write(table.select(["price", "city"]), tmp_path / "fields.csv")
    write(table.append_column("lists", pa.array([[1]] * 300)), tmp_path / "lists.parquet")
    (tmp_path / "holes.csv").write_text("price,city,click\n1,Rome,yes\n1,Rome,\n")
    (tmp_path / "header.csv").write_text("price,city,click\n")
    (tmp_path / "weightless.csv").write_text("price,city,click,w\n1,Rome,yes,0\n")
    result = run("evaluate", *arguments, code=1, stdin="price,city,click\n1,Rome,yes\n")
    assert message in result.stderr and not result.stdout
