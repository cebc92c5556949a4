"""`splinefm explain` of models with crosses and with products of three fields."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

import splinefm as sf
from pages import Reader, fit_part
from splinefm.report import survey as survey_module
from splinefm.report.explanation import ExplainRequest, explain_file
from splinefm.train.progress import SILENT


@pytest.mark.thorough
@pytest.mark.usefixtures("empty_plots")
@pytest.mark.parametrize("model", [sf.FwFM(k=2), sf.HigherOrderFM(k=2, order=4)], ids=str)
def test_a_model_with_crosses(model, tmp_path):
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
    request = ExplainRequest(tmp_path / "m.sfm", str(tmp_path / "data.parquet"), tmp_path / "report", "y", sample=120)
    facts = explain_file(request)
    assert [field["name"] for field in facts["fields"]] == ["lat", "long", "kind", "lat × long", "kind × zone"]
    assert facts["fields"][3]["functions"] == [[7, 7], [15, 15]] and facts["fields"][3]["missing"] == 0.0
    curves = {curve["along"][0]: curve for curve in facts["curves"]}
    assert {"lat", "long", "kind"} <= set(curves) <= {"lat", "long", "kind", "zone"}
    # Partial dependence: the mean score of the sample with one column set to a value.
    sample = pa.table(rows).take(pa.array(survey_rows(request, fitted)))
    for name in curves:
        key = "x" if "x" in curves[name] else "categories"
        value, score = curves[name][key][2 % len(curves[name][key])], curves[name]["scores"][2 % len(curves[name][key])]
        changed = sample.set_column(sample.column_names.index(name), name, pa.array([value] * len(sample)))
        assert score == pytest.approx(fitted.scores(changed).mean(), abs=1e-4), name
    page = (tmp_path / "report" / "index.html").read_text()
    assert "7 by 7 + 15 by 15 functions" in page
    assert "lat × long" not in {column["column"] for column in facts["calibration"]["by_column"]}


def survey_rows(request, fitted):
    found = survey_module.survey(fitted, request.data, request.target, None, request.sample, 1, SILENT)
    return found.numbers


@pytest.mark.usefixtures("empty_plots")
def test_products_of_three_fields_have_effects_of_their_own(run, table, tmp_path):
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
    text = (tmp_path / "r" / "index.html").read_text()
    assert "Strongest triples" in text and "not available" not in text
    Reader(text)


@pytest.mark.usefixtures("empty_plots")
def test_a_model_with_crosses_is_explained_by_column(run, table, tmp_path):
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
    Reader((tmp_path / "r" / "index.html").read_text())
