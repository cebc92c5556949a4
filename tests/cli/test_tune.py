"""`splinefm tune`: from a file to a model file with its study, and a plot of it."""

import json
import sys
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow as pa
import pytest

import splinefm as sf
from splinefm.cli.tune import MetricName
from splinefm.tuning.trials import _OF_CLASSES, _OF_MANY_CLASSES, _OF_NUMBERS, LOSS

# Kernels are compiled for each model and k: one is enough here.
SMALL = ("--model", "fm", "--k", "2", "--epochs", "2", "--threads", "1", "--ignore", "id")


@pytest.fixture
def data(table, write, tmp_path):
    return write(table, tmp_path / "data.parquet")


def tune(run, data, *options, **settings):
    common = ("tune", data, "--target", "click", "--out", "new.sfm", "--ignore", "amount", *SMALL)
    return run(*common, *options, **settings)


def test_a_model_with_its_study_is_written(run, data, table):
    options = ("--trials", "3", "--seed", "5", "--plot", "study.png", "--json")
    result = tune(run, data, *options)
    summary, fitted = json.loads(result.stdout), sf.load("new.sfm")
    rows = table.select(["price", "city", "views", "click"])
    estimator = sf.SplineFMClassifier(sf.FM(k=2), epochs=2, n_jobs=1, random_state=5)
    same = sf.tune(estimator, rows, "click", trials=3, space={"k": None})
    assert np.array_equal(fitted.scores(table), same.estimator.fitted_.scores(table))
    study = summary["study"]
    assert (study["value"], study["params"], study["trials"]) == (same.value, same.params, 3)
    assert fitted.study.table["value"] == same.history["value"] == study["table"]["value"]
    assert Path("study.png").read_bytes()[:4] == b"\x89PNG" and summary["plot"] == "study.png"
    assert "two values: 'no', 'yes'" in result.stderr and "trial 2 (3 of 3)  logloss 0." in result.stderr


def test_the_result_for_people_and_info(run, data):
    result = tune(run, data, "--trials", "2", "--quiet")
    assert not result.stderr and "2 complete" in result.stdout and "FM(k=2), logistic loss" in result.stdout
    told = run("info", "new.sfm").stdout
    assert "study " in told and "of 2 with logloss 0." in told and "learning_rate=0.0" in told
    about = json.loads(run("info", "new.sfm", "--json").stdout)
    assert about["study"]["trials"] == 2 and len(about["study"]["table"]["number"]) == 2


def test_a_model_that_was_not_tuned_has_no_study(run, model):
    assert "study" not in run("info", model).stdout
    assert json.loads(run("info", model, "--json").stdout)["study"] is None


def test_what_is_given_is_not_searched(run, data):
    given = ("--learning-rate", "0.02", "--l2", "1e-5", "--batch-size", "32", "--smoothness", "0.1", "--patience", "2")
    tune(run, data, "--trials", "2", "--quiet", *given)
    fitted = sf.load("new.sfm")
    assert set(fitted.study.param_names) == {"segments", "degree", "transform"}
    training = fitted.training
    assert (training.learning_rate, training.l2, training.batch_size, training.patience) == (0.02, 1e-5, 32, 2)


def test_trials_start_from_what_a_fit_finds(run, tmp_path, write):
    rng = np.random.default_rng(0)
    x, z, w = rng.uniform(-1, 1, (3, 1200))
    y = np.sin(9 * x * z) + 0.3 * w + 0.1 * rng.normal(size=1200)
    data = write(pa.table({"x": x, "z": z, "w": w, "y": y}), tmp_path / "t.parquet")
    settings = ("--model", "fm", "--k", "2", "--epochs", "3", "--threads", "1")
    command = ("tune", data, "--target", "y", "--out", "new.sfm", "--trials", "1", *settings)
    told = run(*command).stderr
    assert "search: tried " in told and "'x × z' found: explains" in told
    fit = sf.SplineFMRegressor(sf.FM(k=2), epochs=3, n_jobs=1).fit(sf.open_table(data), target="y")
    assert np.array_equal(sf.load("new.sfm").scores(data), fit.fitted_.scores(data))
    for options in (("--crosses", "none"), ("--effort", "fast"), ("--time-limit", "1e-9")):
        run(*command, *options, "--quiet")
        fitted = sf.load("new.sfm")
        assert not fitted.encoder.schema.crosses and "crosses" not in fitted.study.param_names


def test_the_same_command_goes_on(run, data):
    tune(run, data, "--trials", "1", "--quiet", "--storage", "study.journal")
    tune(run, data, "--trials", "2", "--quiet", "--storage", "study.journal")
    assert [trial.number for trial in sf.load("new.sfm").study.trials] == [0, 1]
    refused = tune(run, data, "--trials", "2", "--storage", "study.journal", "--validation", "0.3", code=1)
    assert "the study 'click-FM' belongs to another task: validation rows was" in refused.stderr


def test_the_command_has_all_metrics_of_the_library():
    known = {LOSS, *_OF_NUMBERS, *_OF_CLASSES, *_OF_MANY_CLASSES}
    assert set(get_args(MetricName)) == known


def test_numbers_weights_metric_and_no_pruning(run, data, make_table, write, tmp_path):
    other = write(make_table(100, seed=1), tmp_path / f"other{data.suffix}")
    options = ("--weight", "views", "--validation", other, "--metric", "mae", "--no-prune", "--study-name", "mine")
    common = ("tune", data, "--target", "amount", "--out", "new.sfm", "--ignore", "click", *SMALL, "--trials", "2")
    study = json.loads(run(*common, *options, "--timeout", "60", "--json").stdout)["study"]
    assert (study["name"], study["metric"], study["states"]) == ("mine", "mae", {"complete": 2})
    assert sf.load("new.sfm").encoder.schema.names == ("price", "city")


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (("--trials", "0"), 2, "--trials"),
        (("--timeout", "-1"), 2, "--timeout"),
        (("--metric", "mae"), 1, "metric must be one of loss, auc"),
        (("--metric", "speed"), 2, "--metric"),
        (("--storage", "study.txt"), 1, "'study.txt' must end in"),
        (("--plot", "study.txt"), 1, "--plot 'study.txt' must end in .png, .svg, .pdf"),
        (("--plot", "nowhere/study.png"), 1, "no folder"),
        (("--rank", "2"), 2, "only low-rank-fwfm has a rank"),
        (("--model", "ffm", "--third", "2"), 2, "only fwfm has vectors for products of three"),
        (("--validation", "0"), 1, "validation"),
    ],
)
def test_what_cannot_be_is_told_in_one_line(run, data, options, code, message):
    result = tune(run, data, *options, code=code)
    assert message in " ".join(result.stderr.split()) and "Traceback" not in result.stderr


def test_without_optuna_the_message_says_how_to_get_it(run, data, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    monkeypatch.delitem(sys.modules, "splinefm.tuning.studies", raising=False)
    monkeypatch.delattr("splinefm.tuning.studies", raising=False)
    assert 'pip install "splinefm[tune]"' in tune(run, data, code=1).stderr


def test_standard_input_is_refused(run):
    assert "tune reads the data several times" in " ".join(tune(run, "-", code=2).stderr.split())
