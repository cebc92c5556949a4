"""`--offset` and `--exposure`: written once, and part of the model in all commands after that."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import splinefm as sf

SMALL = ("--model", "fm", "--k", "2", "--epochs", "3", "--threads", "1", "--quiet")


@pytest.fixture
def claims(tmp_path):
    rng = np.random.default_rng(0)
    x, years = rng.random(500), rng.uniform(0.1, 2.0, 500)
    table = pa.table({"x": x, "years": years, "claims": rng.poisson(np.exp(x) * years), "log": np.log(years)})
    pyarrow.csv.write_csv(table, tmp_path / "claims.csv")
    return table


def fit(run, *options):
    run("fit", "claims.csv", "--target", "claims", "--loss", "poisson", "--out", "model.sfm", *SMALL, *options)
    return sf.load("model.sfm")


def test_the_model_knows_its_exposure(run, claims):
    fitted = fit(run, "--exposure", "years", "--ignore", "log")
    assert (fitted.offset.column, fitted.offset.kind) == ("years", "exposure")
    assert fitted.encoder.schema.names == ("x",)
    assert "the logarithm of 'years', an exposure, is added to the score" in run("info", "model.sfm").stdout
    assert json.loads(run("info", "model.sfm", "--json").stdout)["offset"] == {"column": "years", "kind": "exposure"}
    evaluated = json.loads(run("evaluate", "model.sfm", "claims.csv", "--target", "claims", "--json").stdout)
    expected = fitted.predict(claims)
    assert evaluated["mean_prediction"] == pytest.approx(expected.mean(), rel=1e-6)
    run("predict", "model.sfm", "claims.csv", "--out", "predictions.csv", "--id", "years")
    found = pyarrow.csv.read_csv("predictions.csv")
    np.testing.assert_allclose(found["prediction"].to_numpy(), expected, rtol=1e-12)
    run("update", "model.sfm", "claims.csv", "--target", "claims", "--quiet")
    assert sf.load("model.sfm").offset == fitted.offset


def test_an_offset_is_added_as_it_is(run, claims):
    fitted = fit(run, "--offset", "log", "--ignore", "years")
    assert "'log' is added to the score" in run("info", "model.sfm").stdout
    same = fit(run, "--exposure", "years", "--ignore", "log")
    np.testing.assert_allclose(fitted.scores(claims), same.scores(claims), atol=1e-5)


def test_errors_name_the_option_or_the_row(run, claims, tmp_path):
    fit(run, "--exposure", "years", "--ignore", "log")
    refused = run(
        "fit", "claims.csv", "--target", "claims", "--out", "m.sfm", "--loss", "squared", "--exposure", "years", code=1
    )
    assert "--exposure 'years' is for the losses poisson, gamma and tweedie" in refused.stderr
    both = run(
        "fit",
        "claims.csv",
        "--target",
        "claims",
        "--out",
        "m.sfm",
        "--exposure",
        "years",
        "--offset",
        "log",
        "--loss",
        "poisson",
        code=1,
    )
    assert "--offset and --exposure are both given" in both.stderr
    years = claims["years"].to_numpy().copy()
    years[123] = 0.0
    pyarrow.csv.write_csv(claims.set_column(1, "years", pa.array(years)), tmp_path / "bad.csv")
    for command in (["evaluate", "model.sfm", "bad.csv", "--target", "claims"], ["predict", "model.sfm", "bad.csv"]):
        assert "must be above 0, got 0 in row 123" in run(*command, code=1).stderr
    pyarrow.csv.write_csv(claims.drop_columns(["years"]), tmp_path / "without.csv")
    assert "'years'" in run("predict", "model.sfm", "without.csv", code=1).stderr


def test_explanations_are_of_the_score_without_it(run, claims):
    fitted = fit(run, "--exposure", "years", "--ignore", "log")
    facts = json.loads(run("explain", "model.sfm", "claims.csv", "--target", "claims", "--json", "--quiet").stdout)
    mean = fitted.without_offset().scores(claims).mean()
    assert facts["base"] == pytest.approx(float(mean), rel=1e-3)
    assert facts["metrics"]["mean_prediction"] == pytest.approx(fitted.predict(claims).mean(), rel=1e-5)
    assert any(
        example["prediction"] == pytest.approx(fitted.predict(claims)[example["row"]], rel=1e-5)
        for example in facts["examples"]
    )


def test_the_page_shows_scores_without_it(run, claims):
    fit(run, "--exposure", "years", "--ignore", "log")
    run("explore", "model.sfm", "claims.csv", "--out", "page.html")
    refused = run("explore", "model.sfm", "claims.csv", "--target", "claims", "--out", "page.html", code=1)
    assert "the page shows scores without the exposure 'years'" in refused.stderr


def test_tuning_takes_it(run, claims):
    pytest.importorskip("optuna")
    options = ("--loss", "poisson", "--exposure", "years", "--ignore", "log", "--trials", "2", *SMALL)
    run("tune", "claims.csv", "--target", "claims", "--out", "tuned.sfm", *options)
    assert sf.load("tuned.sfm").offset.column == "years"
