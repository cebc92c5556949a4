"""Ordinary mistakes in the arguments of functions that fit: each is told with a way out, before any work."""

import inspect
import re

import numpy as np
import pandas as pd
import pytest

import splinefm as sf

TABLE = pd.DataFrame({"x": np.linspace(0.0, 1.0, 40), "click": [0, 1] * 20})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"schema": "x.toml"}, "got 'x.toml'; to read a file, use sf.Schema.load('x.toml')"),
        ({"schema": [sf.Numerical("x")]}, "write sf.Schema([...]) around the fields"),
        ({"schema": {"fields": []}}, "use sf.Schema.from_dict(...)"),
        ({"schema": 3}, "schema must be a sf.Schema, got 3; use sf.Schema.infer(table) to make one"),
        ({"model": "FM"}, "model must be None or an object such as sf.FM(k=8), got 'FM'"),
        ({"model": sf.FM}, "such as sf.FM(k=8), got the class FM"),
        ({"model": sf.SplineFMClassifier()}, "such as sf.FM(k=8), got SplineFMClassifier()"),
        (
            {"training": {"epochs": 2}},
            "training must be None or an object such as sf.Training(epochs=2), got {",
        ),
        ({"training": sf.Training}, "such as sf.Training(epochs=2), got the class Training"),
        (
            {"sample_weight": np.ones(40)},
            "sample_weight must be the name of a column, got a value of type ndarray",
        ),
        ({"epochs": 2}, "fit_model has no parameter 'epochs'; write training=sf.Training(epochs=2)"),
        ({"crosses": 3}, "fit_model has no parameter 'crosses'; write training=sf.Training(crosses=3)"),
        ({"random_state": 3}, "write training=sf.Training(seed=3)"),
        ({"k": 8}, "write model=sf.FwFM(k=8)"),
        ({"wait": 8}, "fit_model has no parameter 'wait'. Parameters: table, target, schema"),
        ({"schemes": None}, "fit_model has no parameter 'schemes'; nearest: 'schema'"),
    ],
)
def test_a_fit_tells_what_an_argument_must_be(arguments, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        sf.fit_model(TABLE, "click", **arguments)


@pytest.mark.parametrize(
    "call",
    [
        lambda y: sf.fit_model(TABLE, y),
        lambda y: sf.infer_schema(TABLE, target=y),
        lambda y: sf.fit_encoder(sf.Schema([sf.Numerical("x")]), TABLE, target=y),
    ],
)
def test_a_target_is_the_name_of_a_column(call):
    with pytest.raises(TypeError, match="target must be the name of a column, got a value of type Series; add the val"):
        call(TABLE["click"])
    with pytest.raises(TypeError, match="target must be the name of a column, got 1; write '1'"):
        call(1)


def test_a_learner_tells_what_its_arguments_must_be():
    fitted = sf.fit_model(TABLE, "click", model=sf.FM(k=2), training=sf.Training(epochs=1, threads=1))
    with pytest.raises(TypeError, match=r"training must be None or an object such as sf\.Training\(epochs=2\)"):
        sf.Learner(fitted, {"epochs": 2})
    with pytest.raises(TypeError, match="target must be the name of a column"):
        sf.Learner(fitted).update(TABLE, TABLE["click"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"epochs": 2}, "tune has no parameter 'epochs'; write it into the estimator: sf.SplineFMClassifier(epochs=2)"),
        ({"n_trials": 2}, "tune has no parameter 'n_trials'; nearest: 'trials'"),
    ],
)
def test_a_search_tells_where_a_setting_belongs(arguments, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        sf.tune(sf.SplineFMClassifier(), TABLE, "click", **arguments)


def test_settings_of_training_are_told_by_their_nearest_name():
    with pytest.raises(TypeError, match="Training has no parameter 'epoch'; nearest: 'epochs'"):
        sf.Training(epoch=3)
    with pytest.raises(TypeError, match=r"write model=sf\.FwFM\(k=3\)"):
        sf.Training(k=3)
    with pytest.raises(TypeError, match="write seed=3"):
        sf.Training(random_state=3)


def test_signatures_stay_as_they_are_written():
    assert not {"args", "named", "self"} & {*inspect.signature(sf.fit_model).parameters}
    assert [*inspect.signature(sf.Training).parameters][:2] == ["epochs", "batch_size"]
    assert sf.fit_model.__name__ == "fit_model"
    assert "sample_weight" in inspect.signature(sf.tune).parameters
