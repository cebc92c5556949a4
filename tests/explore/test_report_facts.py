"""`splinefm explain`: the facts equal the library's, for every kind of model and table."""

import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from reports import FORMULA, QUOTES, SCHEMA, SCRIPT, fit_part

import splinefm as sf
from commands import with_positive_amounts
from splinefm.explore.report import explain_file
from splinefm.inspect.explanation import Effects, explain_table
from splinefm.metrics import auc, logloss


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
    options = {"target": "<i>click", "sample": 300}
    return explain_table(folder / "m.sfm", str(folder / "data.parquet"), **options).survey.numbers


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


def test_the_page_shows_numbers_in_order_and_only_what_training_met(run, tmp_path, read_report):
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
    assert curves["x"]["tokens"] == {}
    text, _ = read_report(tmp_path / "r")
    (named,) = re.findall(r"Highest \S+ for (\d+), lowest \S+ for (\d+)\.", text)
    assert min(map(int, named)) >= 10, "only of the 20 that are drawn"
    assert "missing: " not in text


def test_without_a_target(run, made):
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


def test_a_regression_is_told_in_the_unit_of_its_target(run, table, tmp_path, read_report):
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
    assert "RMSE" in read_report(tmp_path / "r")[0]


def test_a_higher_order_model_says_what_it_lacks(run, table, tmp_path, read_report):
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
    text, n_plots = read_report(tmp_path / "r")
    assert text.count("not available") == 3 and n_plots == 4  # history, two curves, calibration


@pytest.mark.parametrize("which", ["price", "tags"])
def test_fields_with_several_vectors_have_curves_on_a_grid(run, tmp_path, which, read_report):
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
    text, n_plots = read_report(tmp_path / "r")
    assert "no pair of fields to plot" in text and n_plots == 4  # history, pairs, two curves


def test_one_field_and_one_row(run, tmp_path, read_report):
    x = np.linspace(0, 1, 50)
    fit_part({"x": x, "y": x}, "y", sf.Schema([sf.Numerical("x", basis=sf.BSpline(4))]), loss="squared").save(
        tmp_path / "m.sfm"
    )
    (tmp_path / "one.csv").write_text("x,y\n0.5,0.4\n")
    run("explain", "m.sfm", "one.csv", "--target", "y", "--out", "report")
    assert "Highest" in read_report(tmp_path / "report")[0]


def test_effects_of_nothing_are_nothing():
    nothing = Effects("log-odds", None, 0, None, [], [], [], "because")
    assert replace(nothing, reason="").to_dict()["not_available"] is None


def test_the_report_of_a_quantile_compares_shares(run, table, tmp_path, read_report):
    schema = sf.Schema([sf.Numerical("price", basis=sf.BSpline(segments=4)), sf.Categorical("city")])
    part = table.select(["price", "city", "amount"])
    fitted = fit_part(part, "amount", schema, loss=sf.Loss("quantile", quantile=0.8))
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
    text, _ = read_report(tmp_path / "r")
    assert "share of targets at or below the prediction" in text and "pinball loss" in text and "80\u00a0%" in text
    assert "mean target over mean prediction" not in text.lower()


def test_a_gamma_model_is_told_in_logs_of_its_prediction(run, table, tmp_path, read_report):
    schema = sf.Schema([sf.Numerical("price", basis=sf.BSpline(segments=4)), sf.Categorical("city")])
    part = with_positive_amounts(table.select(["price", "city", "amount"]))
    fitted = fit_part(part, "amount", schema, loss="gamma")
    fitted.save(tmp_path / "m.sfm")
    pa.parquet.write_table(part, tmp_path / "d.parquet")
    facts = json.loads(run("explain", "m.sfm", "d.parquet", "--target", "amount", "--out", "r", "--json").stdout)
    example = facts["examples"][0]
    whole = facts["base"] + sum(example["shapley"].values())
    assert whole == pytest.approx(np.log(example["prediction"]), rel=1e-4) and facts["unit"] == "log of the prediction"
    assert "gamma deviance" in read_report(tmp_path / "r")[0]


# Models with crosses and with products of three fields


@pytest.mark.thorough
@pytest.mark.parametrize("model", [sf.FwFM(k=2), sf.HigherOrderFM(k=2, order=4)], ids=str)
def test_a_model_with_crosses(model, tmp_path, read_report):
    rng = np.random.default_rng(0)
    rows = {"lat": rng.random(400), "long": rng.normal(size=400), "kind": rng.choice(list("abc"), 400)}
    rows["zone"] = rng.choice(list("uv"), 400)
    rows["y"] = np.sin(5 * rows["lat"]) * rows["long"] + (rows["kind"] == "a") * (rows["zone"] == "u")
    schema = sf.Schema(
        [
            sf.Numerical("lat"),
            sf.Numerical("long"),
            sf.Categorical("kind"),
            sf.Cross("lat", "long", segments=(4, 12)),
            sf.Cross("kind", sf.Categorical("zone")),
        ]
    )
    fitted = fit_part(pa.table(rows), "y", schema, model, loss="squared")
    fitted.save(tmp_path / "m.sfm")
    pa.parquet.write_table(pa.table(rows), tmp_path / "data.parquet")
    given = (tmp_path / "m.sfm", str(tmp_path / "data.parquet"))
    facts = explain_file(*given, tmp_path / "report", target="y", sample=120)
    assert [field["name"] for field in facts["fields"]] == ["lat", "long", "kind", "lat × long", "kind × zone"]
    assert facts["fields"][3]["functions"] == [[7, 7], [15, 15]] and facts["fields"][3]["missing"] == 0.0
    curves = {curve["along"][0]: curve for curve in facts["curves"]}
    assert {"lat", "long", "kind"} <= set(curves) <= {"lat", "long", "kind", "zone"}
    # Partial dependence: the mean score of the sample with one column set to a value.
    sample = pa.table(rows).take(pa.array(explain_table(*given, target="y", sample=120).survey.numbers))
    for name in curves:
        key = "x" if "x" in curves[name] else "categories"
        value, score = curves[name][key][2 % len(curves[name][key])], curves[name]["scores"][2 % len(curves[name][key])]
        changed = sample.set_column(sample.column_names.index(name), name, pa.array([value] * len(sample)))
        assert score == pytest.approx(fitted.scores(changed).mean(), abs=1e-4), name
    assert "lat × long" not in {column["column"] for column in facts["calibration"]["by_column"]}
    assert "7 by 7 + 15 by 15 functions" in read_report(tmp_path / "report")[0]


def test_products_of_three_fields_have_effects_of_their_own(run, table, tmp_path, read_report):
    schema = sf.Schema(
        [sf.Numerical("price", basis=sf.BSpline(segments=4)), sf.Categorical("city"), sf.Numerical("amount")]
    )
    part = table.select(["price", "city", "amount", "click"])
    fitted = fit_part(part, "click", schema, sf.HigherOrderFM(k=3, order=3))
    fitted.save(tmp_path / "m.sfm")
    pa.parquet.write_table(part, tmp_path / "d.parquet")
    facts = json.loads(run("explain", "m.sfm", "d.parquet", "--out", "r", "--json").stdout)
    found = sf.importance(fitted, part)
    assert [one["fields"] for one in facts["importance"]["triples"]] == [["price", "city", "amount"]]
    assert facts["importance"]["triples"][0]["effect"] == pytest.approx(found.ranked_triples()[0][3], rel=1e-4)
    curve = next(curve for curve in facts["curves"] if curve["along"] == ["price"])
    few = part.take(np.linspace(0, len(part) - 1, min(500, len(part))).astype(int))
    assert np.allclose(curve["scores"], sf.partial_dependence(fitted, "price", curve["x"], few), atol=1e-4)
    text, _ = read_report(tmp_path / "r")
    assert "Strongest triples" in text and "not available" not in text


def test_a_model_with_crosses_is_explained_by_column(run, table, tmp_path, read_report):
    schema = sf.Schema(
        [
            sf.Numerical("price", basis=sf.BSpline(segments=4)),
            sf.Categorical("city"),
            sf.Numerical("amount"),
            sf.Cross("price", "city", min_count=1),
        ]
    )
    part = table.select(["price", "city", "amount", "click"])
    fitted = fit_part(part, "click", schema, sf.FwFM(k=3))
    fitted.save(tmp_path / "m.sfm")
    pa.parquet.write_table(part, tmp_path / "d.parquet")
    facts = json.loads(run("explain", "m.sfm", "d.parquet", "--out", "r", "--json").stdout)
    assert {one["name"] for one in facts["importance"]["fields"]} == {"price", "city", "amount"}
    assert {name for example in facts["examples"] for name in example["shapley"]} == {"price", "city", "amount"}
    example = facts["examples"][0]
    score = facts["base"] + sum(example["shapley"].values())
    assert 1.0 / (1.0 + np.exp(-score)) == pytest.approx(example["prediction"], rel=1e-4)
    assert [one["fields"] for one in facts["importance"]["triples"]] == [["price", "city", "amount"]]
    assert "Strongest triples" in read_report(tmp_path / "r")[0]
