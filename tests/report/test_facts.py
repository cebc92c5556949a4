"""`splinefm explain`: the facts are those of the library, for every kind of model and table."""

import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import splinefm as sf
from commands import with_positive_amounts
from pages import FORMULA, QUOTES, SCHEMA, SCRIPT, Reader, fit_part
from splinefm.metrics import auc, logloss
from splinefm.report import explanation as module
from splinefm.report.effects import Effects
from splinefm.report.explanation import ExplainRequest
from splinefm.train.losses import Loss
from splinefm.train.progress import SILENT


def test_facts_are_those_of_the_library(made, hostile, hostile_table):
    _, facts = made
    assert facts["data"]["rows"] == 500 and facts["data"]["sample_rows"] == 300
    assert facts["data"]["other_columns"] == ["<i>click", "n"] and facts["model"]["classes"] == (
        "<b>no</b>",
        "<b>yes</b>",
    )
    y = np.array(hostile_table["<i>click"].to_pylist()) == "<b>yes</b>"
    assert facts["metrics"]["auc"] == pytest.approx(auc(y, hostile.predict(hostile_table)))
    sample = hostile_table.take(pa.array(_numbers(made)))
    expected = sf.importance(hostile, sample, sample)
    ranked = [(one["name"], pytest.approx(one["shapley"])) for one in facts["importance"]["fields"]]
    assert ranked == expected.ranked_fields()
    one, other, effect = expected.ranked_pairs()[0]
    assert facts["importance"]["pairs"][0] == {"fields": [one, other], "effect": pytest.approx(effect)}
    json.dumps(facts, allow_nan=False)


def _numbers(made):
    """The rows of the sample."""
    folder, _ = made
    sample = module.make_explanation(
        ExplainRequest(folder / "m.sfm", str(folder / "data.parquet"), target="<i>click", sample=300), SILENT
    ).survey
    return sample.numbers


def test_curves_and_surfaces_are_partial_dependences(made, hostile, hostile_table):
    _, facts = made
    sample = hostile_table.take(pa.array(_numbers(made)))
    for curve in facts["curves"]:
        name = curve["along"][0]
        places = curve.get("x", curve.get("categories"))
        grid = [[place] for place in places] if name == "tags" else places
        assert np.allclose(curve["scores"], sf.partial_dependence(hostile, name, grid, sample), atol=1e-5)
    surface = facts["surfaces"][0]
    x, y = surface["along"]
    i, j = len(surface["x"]) - 1, len(surface["y"]) // 2
    columns = {name: sample[name] for name in SCHEMA.names}
    for name, value in ((x, surface["x"][i]), (y, surface["y"][j])):
        columns[name] = [[value] if name == "tags" else value] * 300
    assert surface["scores"][i][j] == pytest.approx(hostile.scores(columns).mean(), abs=1e-5)


def test_examples_add_up(made, hostile, hostile_table):
    _, facts = made
    titles = [example["title"] for example in facts["examples"]]
    assert titles[:2] == ["the lowest prediction", "the median prediction"] and any(
        "the largest overestimate" in title for title in titles
    )
    p = hostile.predict(hostile_table)
    for example in facts["examples"]:
        score = facts["base"] + sum(example["shapley"].values())
        assert example["prediction"] == pytest.approx(p[example["row"]], abs=1e-6)
        assert hostile.loss.predict(np.array(score)) == pytest.approx(p[example["row"]], abs=1e-5)
        assert example["values"][QUOTES] == hostile_table[QUOTES][example["row"]].as_py()


def test_groups_are_complete_and_their_means_right(made, hostile, hostile_table):
    _, facts = made
    p, y = hostile.predict(hostile_table), np.array(hostile_table["<i>click"].to_pylist()) == "<b>yes</b>"
    by_column = {one["column"]: one["groups"] for one in facts["calibration"]["by_column"]}
    kinds = np.array(hostile_table[QUOTES].to_pylist())
    for group in by_column[QUOTES]:
        rows = kinds == group["group"]
        assert group["rows"] == rows.sum() and group["predicted"] == pytest.approx(p[rows].mean())
        assert group["measured"] == pytest.approx(y[rows].mean())
        sigma = np.sqrt((p[rows] * (1 - p[rows])).sum())
        assert group["deviation"] == pytest.approx((p[rows] - y[rows]).sum() / sigma)
    for name in (SCRIPT, FORMULA):
        assert sum(group["rows"] for group in by_column[name]) == 500
        assert 8 <= len(by_column[name]) <= 13
    zero = next(group for group in by_column[SCRIPT] if group["group"] == "= 0")
    assert zero["rows"] == (hostile_table[SCRIPT].to_numpy() == 0).sum()
    deviating = [abs(group["deviation"]) for group in facts["calibration"]["deviating"]]
    assert deviating == sorted(deviating, reverse=True)
    predicted, measured = (np.array(facts["calibration"]["bins"][name]) for name in ("predicted", "measured"))
    assert (np.diff(predicted) > 0).all() and measured.mean() == pytest.approx(y.mean(), abs=0.02)


def test_fields_tell_what_is_missing_special_and_starved(made, hostile, hostile_table):
    fields = {field["name"]: field for field in made[1]["fields"]}
    missing = np.isnan(hostile_table[FORMULA].to_numpy(zero_copy_only=False)).mean()
    assert fields[FORMULA]["missing"] == pytest.approx(missing) == fields[FORMULA]["missing_in_training"]
    assert fields[SCRIPT]["special_values"] == {"= 0": pytest.approx((hostile_table[SCRIPT].to_numpy() == 0).mean())}
    empty = np.mean([not tags for tags in hostile_table["tags"].to_pylist()])
    assert fields["tags"]["without_category"] == pytest.approx(empty) and fields["tags"]["rare_or_unseen"] == 0
    starved = hostile.encoder.starvation().functions
    assert fields[SCRIPT]["starved"] == sum(one.starved for one in starved if one.field == SCRIPT)


@pytest.mark.usefixtures("empty_plots")
def test_the_page_shows_numbers_in_order_and_only_what_training_met(run, tmp_path):
    rng = np.random.default_rng(0)
    code = rng.permutation([str(n) for n in range(30) for _ in range(n + 1)])  # the larger, the more frequent
    part = pa.table({"code": code, "x": rng.random(len(code)), "y": rng.normal(size=len(code))})
    schema = sf.Schema([sf.Categorical("code"), sf.Numerical("x", basis=sf.BSpline(segments=4))])
    fitted = fit_part(part, "y", schema, loss="squared")
    fitted.save(tmp_path / "m.sfm")
    pa.parquet.write_table(part, tmp_path / "d.parquet")
    facts = json.loads(run("explain", "m.sfm", "d.parquet", "--target", "y", "--out", "r", "--json").stdout)
    curves = {curve["along"][0]: curve for curve in facts["curves"]}
    assert curves["code"]["categories"] == [str(n) for n in range(30)] and curves["code"]["tokens"] == {}
    by_column = {
        one["column"]: [group["group"] for group in one["groups"]] for one in facts["calibration"]["by_column"]
    }
    assert by_column["code"] == [str(n) for n in range(30)]
    text = (tmp_path / "r" / "index.html").read_text()
    (named,) = re.findall(r"Highest \S+ for (\d+), lowest \S+ for (\d+)\.", text)
    assert min(map(int, named)) >= 10, "only of the 20 that are drawn"
    assert curves["x"]["tokens"] == {} and "missing: " not in text


def test_without_a_target(run, made, page):
    folder, _ = made
    facts = json.loads(run("explain", folder / "m.sfm", folder / "data.parquet", "--json", "--sample", 50).stdout)
    assert facts["metrics"] == {} and facts["calibration"] is None and "page" not in facts
    assert [example["target"] for example in facts["examples"]] == [None] * 3


def test_weights_change_metrics(run, model, data, fitted, table):
    arguments = ("explain", model, data, "--target", "click", "--json")
    weighted = json.loads(run(*arguments, "--weight", "views").stdout)
    y, w = np.array(table["click"].to_pylist()) == "yes", table["views"].to_numpy()
    assert weighted["metrics"]["logloss"] == pytest.approx(logloss(y, fitted.predict(table), w), abs=1e-6)
    assert weighted["metrics"]["logloss"] != json.loads(run(*arguments).stdout)["metrics"]["logloss"]


def test_csv_on_the_standard_input(run, model, table, write, tmp_path):
    csv = write(table, tmp_path / "data.csv").read_bytes()
    piped = json.loads(run("explain", model, "-", "--target", "click", "--json", stdin=csv).stdout)
    read = json.loads(run("explain", model, "data.csv", "--target", "click", "--json").stdout)
    for facts in (piped, read):
        facts["data"].pop("file"), facts.pop("seconds")
    assert piped == read


@pytest.mark.usefixtures("empty_plots")
def test_a_regression_is_told_in_the_unit_of_its_target(run, table, tmp_path):
    schema = sf.Schema([sf.Numerical("price", basis=sf.BSpline(segments=4)), sf.Categorical("city")])
    part = table.select(["price", "city", "amount"])
    fitted = fit_part(part, "amount", schema, loss="squared")
    fitted.save(tmp_path / "m.sfm")
    pa.parquet.write_table(part, tmp_path / "d.parquet")
    facts = json.loads(run("explain", "m.sfm", "d.parquet", "--target", "amount", "--out", "r", "--json").stdout)
    expected = sf.importance(fitted, part, part)
    assert facts["importance"]["fields"][0]["shapley"] == pytest.approx(expected.shapley.max() * fitted.loss.scale)
    example = facts["examples"][0]
    whole = facts["base"] + sum(example["shapley"].values())
    assert whole == pytest.approx(example["prediction"], rel=1e-4) and facts["unit"] == "units of the target"
    assert "RMSE" in (tmp_path / "r" / "index.html").read_text()


@pytest.mark.usefixtures("empty_plots")
def test_a_higher_order_model_says_what_it_lacks(run, table, tmp_path):
    schema = sf.Schema([sf.Numerical("price", basis=sf.BSpline(segments=4)), sf.Categorical("city")])
    part = table.select(["price", "city", "click"])
    fitted = fit_part(part, "click", schema, sf.HigherOrderFM(k=3, order=4))
    fitted.save(tmp_path / "m.sfm")
    pa.parquet.write_table(part, tmp_path / "d.parquet")
    facts = json.loads(run("explain", "m.sfm", "d.parquet", "--target", "click", "--out", "r", "--json").stdout)
    assert facts["importance"] is None and "HigherOrderFM" in facts["not_available"] and facts["surfaces"] == []
    expected = fitted.segment({}, "price", rest="mean", background=part)
    curve = next(curve for curve in facts["curves"] if curve["along"] == ["price"])
    assert np.allclose(curve["scores"], expected(curve["x"]))
    assert all(not example["shapley"] for example in facts["examples"]) and facts["calibration"]["deviating"]
    text = (tmp_path / "r" / "index.html").read_text()
    assert text.count("not available") == 3 and text.count("<svg") == 4  # history, two curves, calibration
    Reader(text)


@pytest.mark.usefixtures("empty_plots")
@pytest.mark.parametrize("which", ["price", "tags"])
def test_fields_with_several_vectors_have_curves_on_a_grid(run, tmp_path, which):
    rng = np.random.default_rng(0)
    tags = [["a", "b"][: n + 1] for n in rng.integers(0, 2, 200)]
    part = pa.table({"price": rng.random(200), "tags": tags, "y": rng.random(200)})
    reductions = dict.fromkeys(("price", "tags"), "sum") | {which: "identity"}
    schema = sf.Schema(
        [
            sf.Numerical("price", basis=sf.BSpline(segments=4), reduction=reductions["price"]),
            sf.MultiValued("tags", reduction=reductions["tags"]),
        ]
    )
    fitted = fit_part(part, "y", schema, loss="squared")
    fitted.save(tmp_path / "m.sfm")
    pa.parquet.write_table(part, tmp_path / "d.parquet")
    facts = json.loads(run("explain", "m.sfm", "d.parquet", "--out", "r", "--json").stdout)
    curves = {curve["along"][0]: curve for curve in facts["curves"]}
    assert np.allclose(
        curves["price"]["scores"], sf.partial_dependence(fitted, "price", curves["price"]["x"], part), atol=1e-6
    )
    assert curves["tags"]["categories"] == ["a", "b"] and facts["surfaces"] == []
    text = (tmp_path / "r" / "index.html").read_text()
    assert "no pair of fields to plot" in text and text.count("<svg") == 4  # history, pairs, two curves


@pytest.mark.usefixtures("empty_plots")
def test_one_field_and_one_row(run, tmp_path):
    x = np.linspace(0, 1, 50)
    fit_part({"x": x, "y": x}, "y", sf.Schema([sf.Numerical("x", basis=sf.BSpline(4))]), loss="squared").save(
        tmp_path / "m.sfm"
    )
    (tmp_path / "one.csv").write_text("x,y\n0.5,0.4\n")
    run("explain", "m.sfm", "one.csv", "--target", "y", "--out", "report")
    Reader((tmp_path / "report" / "index.html").read_text())


def test_effects_of_nothing_are_nothing():
    nothing = Effects("log-odds", None, 0, None, [], [], [], "because")
    assert replace(nothing, reason="").to_dict()["not_available"] is None


@pytest.mark.usefixtures("empty_plots")
def test_the_report_of_a_quantile_compares_shares(run, table, tmp_path):
    schema = sf.Schema([sf.Numerical("price", basis=sf.BSpline(segments=4)), sf.Categorical("city")])
    part = table.select(["price", "city", "amount"])
    fitted = fit_part(part, "amount", schema, loss=Loss("quantile", quantile=0.8))
    fitted.save(tmp_path / "m.sfm")
    pa.parquet.write_table(part, tmp_path / "d.parquet")
    facts = json.loads(run("explain", "m.sfm", "d.parquet", "--target", "amount", "--out", "r", "--json").stdout)
    below = part["amount"].to_numpy() <= fitted.predict(part)
    groups = {group["group"]: group for group in facts["calibration"]["by_column"][1]["groups"]}
    for city, group in groups.items():
        share, n = below[np.array(part["city"].to_pylist()) == city].mean(), group["rows"]
        assert (group["predicted"], group["measured"]) == (pytest.approx(0.8), pytest.approx(share))
        assert group["deviation"] == pytest.approx((0.8 - share) * (n / 0.16) ** 0.5)
    bins = facts["calibration"]["bins"]
    assert np.mean(bins["measured"]) == pytest.approx(below.mean(), abs=0.02)
    text = (tmp_path / "r" / "index.html").read_text()
    assert "share of targets at or below the prediction" in text and "pinball loss" in text and "80\u00a0%" in text
    assert "mean target over mean prediction" not in text.lower()


@pytest.mark.usefixtures("empty_plots")
def test_a_gamma_model_is_told_in_logs_of_its_prediction(run, table, tmp_path):
    schema = sf.Schema([sf.Numerical("price", basis=sf.BSpline(segments=4)), sf.Categorical("city")])
    part = with_positive_amounts(table.select(["price", "city", "amount"]))
    fitted = fit_part(part, "amount", schema, loss="gamma")
    fitted.save(tmp_path / "m.sfm")
    pa.parquet.write_table(part, tmp_path / "d.parquet")
    facts = json.loads(run("explain", "m.sfm", "d.parquet", "--target", "amount", "--out", "r", "--json").stdout)
    example = facts["examples"][0]
    whole = facts["base"] + sum(example["shapley"].values())
    assert whole == pytest.approx(np.log(example["prediction"]), rel=1e-4) and facts["unit"] == "log of the prediction"
    assert "gamma deviance" in (tmp_path / "r" / "index.html").read_text()
