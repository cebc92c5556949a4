"""The estimators keep scikit-learn's rules, take every kind of table, and say what is wrong with the rest."""

import inspect
import pickle
import re
from dataclasses import fields

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset
import pyarrow.parquet
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import splinefm as sf
from splinefm.encode.tables import files
from splinefm.fit.parameters import EstimatorSettings
from splinefm.train import fitted as fitted_module
from support import THOROUGH

QUICK = {"epochs": 4, "learning_rate": 0.02, "n_jobs": 1, "validation": 0}


def classifier(**settings):
    return sf.SplineFMClassifier(sf.FM(k=2), **{**QUICK, **settings})


def regressor(**settings):
    return sf.SplineFMRegressor(sf.FM(k=2), **{**QUICK, **settings})


def clicks(rows=600, seed=0, names="abc"):
    """A table of a number, a category and a number with gaps, and what to predict."""
    rng = np.random.default_rng(seed)
    x, code = rng.uniform(-1, 1, rows), rng.integers(0, len(names), rows)
    gaps = np.where(rng.random(rows) < 0.2, np.nan, rng.random(rows))
    table = pd.DataFrame({"x": x, "c": [names[i] for i in code], "gaps": gaps})
    p = 1 / (1 + np.exp(-(6 * np.abs(x) - 3 + code)))
    return table, rng.random(rows) < p


TABLE, CLICK = clicks()
NUMBERS = TABLE[["x", "gaps"]].to_numpy()
FITTED = classifier().fit(TABLE, CLICK)
WEIGHTS = "rows are weighed in the loss, but transforms, batches and the number of steps do not know of weights"


# Rules whose checks fit targets of some kind, or weigh rows.
OF_LOSSES = (
    "check_regressors_train",
    "check_regressors_int",
    "check_regressor_multioutput",
    "check_regressors_no_decision_function",
    "check_sample_weights_invariance",
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weights_not_overwritten",
    "check_estimators_fit_returns_self",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_estimators_pickle",
    "check_methods_subset_invariance",
)


@parametrize_with_checks(
    [
        classifier(batch_size=16, validation=0.1),
        regressor(batch_size=16),
        regressor(batch_size=16, epochs=12, loss="poisson"),
        regressor(batch_size=16, epochs=12, loss="gamma"),
        regressor(batch_size=16, epochs=12, loss="quantile", quantile=0.6),
    ],
    expected_failed_checks=lambda estimator: {"check_sample_weight_equivalence_on_dense_data": WEIGHTS},
)
def test_the_rules_of_scikit_learn(estimator, check):
    name = getattr(check, "func", check).__name__
    if estimator.get_params().get("loss", "squared") != "squared" and name not in OF_LOSSES and not THOROUGH:
        pytest.skip("runs with make test THOROUGH=1: the rule does not depend on the loss")
    check(estimator)


@pytest.mark.parametrize("kind", [sf.SplineFMClassifier, sf.SplineFMRegressor])
def test_defaults_are_those_of_training(kind):
    defaults = {name: item.default for name, item in inspect.signature(kind).parameters.items()}
    renamed = {"seed": "random_state"}
    for item in fields(sf.Training):
        if item.name not in ("warmup", "threads"):
            assert defaults[renamed.get(item.name, item.name)] == item.default, item.name
    assert defaults["n_jobs"] == -1
    assert defaults["validation"] == inspect.signature(sf.fit_model).parameters["validation"].default
    assert [p.name for p in inspect.signature(kind).parameters.values() if p.kind is not p.KEYWORD_ONLY] == ["model"]


def test_settings_reach_the_training():
    settings = {"epochs": 3, "batch_size": 50, "learning_rate": 0.03, "l2": 0.1, "smoothness": 0.2}
    more = {"smoothness_order": 1, "optimizer": "adagrad", "average": False, "patience": 2, "refit_on_all": False}
    more |= {"schedule": "constant", "effort": "fast"}
    training = classifier(**settings, **more, random_state=7).fit(TABLE, CLICK).fitted_.training
    assert {name: getattr(training, name) for name in (settings | more)} == settings | more
    assert training.threads == 1 and training.seed == 7


def test_progress_is_told_where_it_is_wanted(capsys):
    classifier(epochs=1).fit(TABLE, CLICK)
    assert capsys.readouterr() == ("", "")
    classifier(epochs=1, verbose=True).fit(TABLE, CLICK)
    assert "epoch 1" in capsys.readouterr().err


# Tables


def test_a_model_of_a_dataframe():
    model = FITTED
    assert model.score(TABLE, CLICK) > 0.7
    assert model.fitted_.model == sf.FM(k=2)
    assert model.schema_.names == ("x", "c", "gaps")
    assert "text with 3 distinct values" in str(model.schema_)
    assert [epoch.epoch for epoch in model.history_] == [1, 2, 3, 4]
    assert model.n_features_in_ == 3
    assert model.feature_names_in_.tolist() == ["x", "c", "gaps"]
    p = model.predict_proba(TABLE)
    np.testing.assert_array_equal(p[:, 1], model.fitted_.predict(TABLE))
    np.testing.assert_allclose(p.sum(axis=1), 1.0)
    np.testing.assert_array_equal(model.predict(TABLE), p[:, 1] > 0.5)
    np.testing.assert_array_equal(model.decision_function(TABLE), model.fitted_.scores(TABLE))


ARROW = pa.Table.from_pandas(TABLE, preserve_index=False)
SAME = {
    "polars": pl.from_arrow(ARROW),
    "arrow": ARROW,
    "dict": {name: TABLE[name].to_list() for name in TABLE},
    "opened": sf.open_table(ARROW),
    "batch": ARROW.combine_chunks().to_batches()[0],
}


@pytest.mark.parametrize("name", SAME)
def test_every_table_gives_the_same_model(name):
    model = classifier().fit(SAME[name], CLICK)
    np.testing.assert_array_equal(model.decision_function(TABLE), FITTED.decision_function(TABLE))
    np.testing.assert_array_equal(FITTED.decision_function(SAME[name]), FITTED.decision_function(TABLE))
    assert model.feature_names_in_.tolist() == ["x", "c", "gaps"]


def write(kind, tmp_path, labels):
    table = ARROW.append_column("label", pa.array(labels))
    if kind == "csv":
        pa.csv.write_csv(table, tmp_path / "t.csv")
        return tmp_path / "t.csv"
    (tmp_path / "folder").mkdir()
    for part in range(3):
        pa.parquet.write_table(table.slice(200 * part, 200), tmp_path / "folder" / f"{part}.parquet")
    return str(tmp_path / "folder" / "*.parquet") if kind == "glob" else pa.dataset.dataset(tmp_path / "folder")


@pytest.mark.parametrize("kind", ["csv", "glob", "dataset"])
def test_files_are_trained_on_and_scored_as_the_table_that_they_hold(kind, tmp_path):
    source = write(kind, tmp_path, np.where(CLICK, "yes", "no"))
    model = classifier().fit(source, target="label")
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.feature_names_in_.tolist() == ["x", "c", "gaps"]
    np.testing.assert_allclose(model.decision_function(TABLE), FITTED.decision_function(TABLE), atol=1e-6)
    np.testing.assert_array_equal(model.predict_proba(source), model.predict_proba(TABLE))


def test_a_table_may_hold_its_target_and_its_weights():
    weight = np.linspace(0.1, 2.0, len(TABLE))
    whole = TABLE.assign(label=np.where(CLICK, 1, 0), w=weight)
    model = classifier().fit(whole, target="label", sample_weight="w")
    apart = classifier().fit(TABLE, CLICK.astype(int), sample_weight=weight)
    assert model.classes_.tolist() == apart.classes_.tolist() == [0, 1]
    assert model.schema_ == apart.schema_
    assert model.n_features_in_ == 3
    np.testing.assert_array_equal(model.decision_function(whole), apart.decision_function(TABLE))


def test_shares_are_a_target():
    whole = TABLE.assign(share=np.where(CLICK, 0.9, 0.2), shown=10)
    model = classifier().fit(whole, target="share", sample_weight="shown")
    assert model.classes_.tolist() == [0, 1]
    assert 0.2 < model.predict_proba(TABLE)[:, 1].mean() < 0.9


def test_the_names_of_columns_may_be_those_that_y_would_have():
    renamed = TABLE.rename(columns={"x": "y", "c": "sample_weight"})
    model = classifier().fit(renamed, CLICK, sample_weight=np.ones(len(TABLE)))
    assert model.schema_.names == ("y", "sample_weight", "gaps")
    np.testing.assert_array_equal(model.decision_function(renamed), FITTED.decision_function(TABLE))
    schema = sf.Schema([sf.Numerical("y")])
    with pytest.raises(ValueError, match="no column 'y' in the table"):
        classifier(schema=schema).fit(TABLE, CLICK)


def test_a_given_schema_is_used_and_the_other_columns_are_not_needed():
    schema = sf.Schema([sf.Numerical("x", basis=sf.BSpline(segments=7))])
    model = classifier(schema=schema).fit(TABLE, CLICK)
    assert model.schema_ == schema
    assert model.fitted_.encoder.layout.names == ("x",)
    assert model.n_features_in_ == 3
    np.testing.assert_array_equal(model.predict_proba(TABLE[["x"]]), model.predict_proba(TABLE))


def test_columns_are_found_by_name_in_any_order_and_rows_keep_theirs():
    mixed = TABLE.assign(more=1)[["more", "gaps", "c", "x"]]
    np.testing.assert_array_equal(FITTED.decision_function(mixed), FITTED.decision_function(TABLE))
    order = np.random.default_rng(0).permutation(len(TABLE))
    np.testing.assert_array_equal(FITTED.decision_function(TABLE.iloc[order]), FITTED.decision_function(TABLE)[order])


def test_columns_without_names_are_taken_by_position():
    named, plain = TABLE[["x", "gaps"]], classifier().fit(NUMBERS, CLICK)
    assert not hasattr(plain, "feature_names_in_")
    assert plain.schema_.names == ("x0", "x1")
    expected = plain.decision_function(NUMBERS)
    numbered = pd.DataFrame(NUMBERS)
    np.testing.assert_array_equal(classifier().fit(numbered, CLICK).decision_function(NUMBERS), expected)
    np.testing.assert_array_equal(plain.decision_function(numbered), expected)
    np.testing.assert_array_equal(plain.decision_function(NUMBERS.tolist()), expected)
    np.testing.assert_array_equal(plain.decision_function({"x1": NUMBERS[:, 1], "x0": NUMBERS[:, 0]}), expected)
    with pytest.warns(UserWarning, match="X has feature names, but SplineFMClassifier was fitted without"):
        np.testing.assert_array_equal(plain.decision_function(named), expected)
    with pytest.warns(UserWarning, match="X does not have valid feature names, but SplineFMClassifier was fitted with"):
        np.testing.assert_array_equal(classifier().fit(named, CLICK).decision_function(NUMBERS), expected)


def test_names_are_those_of_the_last_fit():
    model = classifier().fit(TABLE, CLICK).fit(NUMBERS, CLICK)
    assert not hasattr(model, "feature_names_in_")
    assert model.n_features_in_ == 2


def test_the_target_may_be_a_column_of_an_array():
    whole = np.column_stack([NUMBERS[:, 0], CLICK, NUMBERS[:, 1]])
    model = classifier().fit(whole, target="x1")
    expected = classifier().fit(NUMBERS, CLICK).decision_function(NUMBERS)
    assert model.feature_names_in_.tolist() == ["x0", "x2"]
    np.testing.assert_array_equal(model.decision_function({"x0": NUMBERS[:, 0], "x2": NUMBERS[:, 1]}), expected)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        np.testing.assert_array_equal(model.decision_function(NUMBERS), expected)


def test_rows_of_numbers_and_text():
    rows = TABLE.to_numpy()
    model = classifier().fit(rows, CLICK)
    assert [type(item).__name__ for item in model.schema_] == ["Numerical", "Categorical", "Numerical"]
    np.testing.assert_array_equal(model.decision_function(rows), FITTED.decision_function(TABLE))
    np.testing.assert_array_equal(model.decision_function(rows.tolist()), FITTED.decision_function(TABLE))


def test_slots_and_no_rows_can_be_scored():
    slots = FITTED.fitted_.encoder.encode(TABLE)
    np.testing.assert_array_equal(FITTED.decision_function(slots), FITTED.decision_function(TABLE))
    assert FITTED.predict(TABLE[:0]).shape == (0,)
    assert FITTED.predict_proba(TABLE[:0]).shape == (0, 2)
    assert regressor().fit(NUMBERS, CLICK).predict(NUMBERS[:0]).shape == (0,)


# Labels


@pytest.mark.parametrize(
    "labels",
    [("no", "yes"), (False, True), (0, 1), (1, 2), (-1, 1), (0.0, 1.0), (2.5e6, 2.6e6)],
    ids=str,
)
@pytest.mark.parametrize("kind", [np.array, list, pd.Series, pl.Series, pa.array])
def test_labels_are_any_two_values(labels, kind):
    y = kind([labels[int(value)] for value in CLICK])
    model = classifier().fit(TABLE, y)
    assert model.classes_.tolist() == list(labels)
    np.testing.assert_array_equal(model.decision_function(TABLE), FITTED.decision_function(TABLE))
    assert set(model.predict(TABLE).tolist()) == set(labels)
    assert model.score(TABLE, y) == FITTED.score(TABLE, CLICK)
    assert model.fitted_.classes == (None if labels == (0, 1) and not isinstance(labels[0], bool) else labels)


@pytest.mark.parametrize(("dtype", "kind"), [("boolean", "b"), ("category", "b"), ("Int64", "i"), ("str", "O")])
def test_labels_of_extension_types_stay_what_they_are(dtype, kind):
    y = pd.Series(CLICK).astype(dtype)
    model = classifier().fit(TABLE, y)
    assert model.classes_.tolist() == sorted(y.unique().tolist())
    assert model.classes_.dtype.kind == kind


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (["a"] * 600, "y has only one class, 'a'"),
        (np.linspace(0, 1, 600), "Unknown label type: continuous"),
        ([None, *["a", "b"] * 300][:600], "1 of 600 labels are missing"),
        (pd.array([pd.NA, *[True, False] * 300][:600], dtype="boolean"), "1 of 600 labels are missing"),
        (np.array([1, "a"] * 300, dtype=object), "must have one type, got int, str"),
        ([0.0, np.inf] * 300, "infinite value, inf"),
        (CLICK[:-1], "X has 600 rows, but y has 599"),
        (np.column_stack([CLICK, CLICK]), "1d array"),
    ],
)
def test_other_labels_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        classifier().fit(TABLE, y)


def test_streamed_labels_of_one_class_are_refused():
    with pytest.raises(ValueError, match="'one' has only one class"):
        classifier().fit(TABLE.assign(one="a"), target="one")


def test_several_classes_by_one_against_the_rest():
    y = np.select([TABLE["x"] < -0.4, TABLE["x"] < 0.3], ["low", "middle"], "high")
    model = OneVsRestClassifier(classifier(epochs=10)).fit(TABLE, y)
    assert model.classes_.tolist() == ["high", "low", "middle"]
    assert model.score(TABLE, y) > 0.9


# Weights and validation


def test_a_weight_does_what_repeated_rows_do():
    table, y = clicks(4000, seed=1)
    test, y_test = clicks(4000, seed=2)
    times = np.where(y, 3, 1)
    repeated = classifier().fit(table.loc[table.index.repeat(times)], y.repeat(times))
    weighted = classifier(batch_size=64).fit(table, y, sample_weight=times)
    plain = classifier().fit(table, y)
    p = [model.predict_proba(test)[:, 1] for model in (repeated, weighted, plain)]
    times_test = np.where(y_test, 3, 1)
    losses = [log_loss(y_test, values, sample_weight=times_test) for values in p]
    assert abs(losses[0] - losses[1]) < 0.01
    assert losses[2] > max(losses[:2]) + 0.03
    assert abs(p[0].mean() - p[1].mean()) < 0.01 < p[0].mean() - p[2].mean()


def test_only_ratios_of_weights_count_and_rows_of_weight_zero_are_not_learned():
    wrong = np.arange(len(TABLE)) % 2 == 0
    y = np.where(wrong, ~CLICK, CLICK)
    model = classifier().fit(TABLE, y, sample_weight=np.where(wrong, 0.0, 1.0))
    again = classifier().fit(TABLE, y, sample_weight=np.where(wrong, 0.0, 4.0).tolist())
    np.testing.assert_array_equal(model.decision_function(TABLE), again.decision_function(TABLE))
    assert model.score(TABLE, CLICK) > 0.65
    np.testing.assert_array_equal(
        classifier().fit(TABLE, CLICK, sample_weight=2).decision_function(TABLE), FITTED.decision_function(TABLE)
    )


@pytest.mark.parametrize(
    ("weight", "message"),
    [
        (np.ones(3), r"one number per row, shape \(600,\); got shape \(3,\)"),
        (np.ones((600, 2)), "one number per row"),
        (-np.ones(600), "at least 0"),
        (np.full(600, np.nan), "sample_weight contains NaN"),
        (np.zeros(600), "all sample weights are zero"),
        ("x", r"sample_weight='x' names a column, which requires target"),
    ],
)
def test_other_weights_are_refused(weight, message):
    with pytest.raises(ValueError, match=message):
        classifier().fit(TABLE, CLICK, sample_weight=weight)


def test_validation_rows_may_be_given():
    held_out, y = clicks(200, seed=3)
    eval_set = (held_out, np.where(y, "yes", "no"))
    model = classifier().fit(TABLE, np.where(CLICK, "yes", "no"), eval_set=eval_set)
    expected = log_loss(y, model.predict_proba(held_out)[:, 1])
    assert min(epoch.validation_loss for epoch in model.history_) == pytest.approx(expected, rel=1e-5)
    streamed = classifier().fit(TABLE.assign(label=CLICK), target="label", eval_set=held_out.assign(label=y))
    assert [epoch.validation_loss for epoch in streamed.history_] == [epoch.validation_loss for epoch in model.history_]
    weight = np.where(y, 5.0, 1.0)
    weighted = classifier().fit(TABLE, CLICK, sample_weight=np.ones(len(TABLE)), eval_set=(held_out, y, weight))
    expected = log_loss(y, weighted.predict_proba(held_out)[:, 1], sample_weight=weight)
    assert min(epoch.validation_loss for epoch in weighted.history_) == pytest.approx(expected, rel=1e-5)


def test_validation_rows_of_a_regressor_and_of_a_file(tmp_path):
    held_out, _ = clicks(200, seed=3)
    given = regressor(validation=0.5).fit(TABLE, TABLE["x"].to_numpy(), eval_set=(held_out, held_out["x"]))
    held_out.assign(t=held_out["x"]).to_parquet(tmp_path / "later.parquet")
    streamed = regressor().fit(TABLE.assign(t=TABLE["x"]), target="t", eval_set=tmp_path / "later.parquet")
    assert [epoch.validation_loss for epoch in given.history_] == [epoch.validation_loss for epoch in streamed.history_]


@pytest.mark.parametrize(
    ("eval_set", "message"),
    [
        (TABLE, r"eval_set must be \(X, y\) or \(X, y, sample_weight\), got DataFrame"),
        ((TABLE,), r"\(X, y\)"),
        ([(TABLE, CLICK)], r"eval_set must be \(X, y\) or \(X, y, sample_weight\), got list"),
        ((TABLE, CLICK, CLICK), "pass sample_weight to fit as well"),
        ((TABLE, CLICK[:-1]), "X has 600 rows, but y has 599"),
        ((TABLE, ["a"] * 600), "label 'a'; the classes are False, True"),
        (("t.csv", CLICK), "requires a table in memory"),
        ((TABLE[["x"]], CLICK), "no column 'c' in the table"),
    ],
)
def test_other_validation_rows_are_refused(eval_set, message):
    with pytest.raises(ValueError, match=message):
        classifier().fit(TABLE, CLICK, eval_set=eval_set)


def test_validation_is_a_share():
    with pytest.raises(ValueError, match="share of at least 0 and below 1"):
        classifier(validation=1.0).fit(TABLE, CLICK)
    for validation in ((TABLE, CLICK), "later.parquet", None):
        with pytest.raises(ValueError, match=r"validation must be a share of the rows.*eval_set="):
            classifier(validation=validation).fit(TABLE, CLICK)


# Regression


def test_a_regressor_finds_a_curve():
    y = 1000 + 300 * TABLE["x"] ** 2 + 50 * (TABLE["c"] == "a")
    model = regressor(epochs=20).fit(TABLE, y)
    assert model.score(TABLE, y) > 0.95
    np.testing.assert_array_equal(model.predict(TABLE), model.fitted_.predict(TABLE))
    streamed = regressor(epochs=20).fit(TABLE.assign(t=y), target="t")
    np.testing.assert_array_equal(streamed.predict(TABLE), model.predict(TABLE))


def test_counts_have_positive_rates():
    rate = np.exp(2 * TABLE["x"])
    y = np.random.default_rng(0).poisson(rate)
    p = regressor(loss="poisson", epochs=20).fit(TABLE, y).predict(TABLE)
    assert p.min() > 0
    assert np.corrcoef(p, rate)[0, 1] > 0.9


def test_other_targets_are_refused():
    y = TABLE["x"].to_numpy()
    with pytest.raises(ValueError, match=r"quantile, huber, got 'softmax'; for labels, use SplineFMClassifier"):
        sf.SplineFMRegressor(loss="softmax").fit(TABLE, y)
    with pytest.raises(ValueError, match="got 'logistic'; for labels, use SplineFMClassifier"):
        regressor(loss="logistic").fit(TABLE, y)
    with pytest.raises(ValueError, match="y holds text, such as 'a'"):
        regressor().fit(TABLE, ["a"] * 600)
    missing = int(TABLE["gaps"].isna().sum())
    for y_with_gaps in (TABLE["gaps"], TABLE["gaps"].astype(object), TABLE["gaps"].astype("Float64")):
        with pytest.raises(ValueError, match=f"y contains NaN: {missing} of 600 targets are missing; drop those rows"):
            regressor().fit(TABLE, y_with_gaps)
    with pytest.raises(ValueError, match="a Poisson target must be at least 0"):
        regressor(loss="poisson").fit(TABLE, y)
    with pytest.raises(ValueError, match=r'a gamma target must be above 0, got 0; with zeros, use loss="tweedie"'):
        regressor(loss="gamma").fit(TABLE, np.arange(600))
    with pytest.raises(ValueError, match="a Tweedie target must be at least 0, got -"):
        regressor(loss="tweedie").fit(TABLE, y)
    for wrong in ({"quantile": 0.9}, {"loss": "quantile", "quantile": 1.5}, {"loss": "huber", "power": 1.5}):
        with pytest.raises(ValueError, match=r"quantile|power"):
            regressor(**wrong).fit(TABLE, y)
    with pytest.raises(ValueError, match="a gamma target must be above 0"):
        regressor(loss="gamma").fit(TABLE, y + 10).partial_fit(TABLE, y)


# The rest of scikit-learn


def test_clone_pipeline_grid_search_and_cross_validation():
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    columns = ColumnTransformer([("numbers", numbers, ["x", "gaps"])], remainder="passthrough")
    pipeline = make_pipeline(columns.set_output(transform="pandas"), classifier())
    scores = cross_val_score(pipeline, TABLE, CLICK, cv=3, scoring="roc_auc")
    assert scores.min() > 0.75
    fitted = pipeline.fit(TABLE, CLICK)[-1]
    assert fitted.feature_names_in_.tolist() == ["numbers__x", "numbers__gaps", "remainder__c"]
    assert [type(item).__name__ for item in fitted.schema_] == ["Numerical", "Numerical", "Categorical"]
    grid = {"model": [sf.FM(k=2)], "epochs": [1, 4], "smoothness": [1e-2, 1e4]}
    search = GridSearchCV(classifier(), grid, cv=2, scoring="neg_log_loss").fit(TABLE, CLICK)
    assert search.best_params_ == {"model": sf.FM(k=2), "epochs": 4, "smoothness": 1e-2}
    assert search.best_estimator_.fitted_.training.smoothness == 1e-2
    again = clone(search.best_estimator_)
    assert not hasattr(again, "fitted_")
    np.testing.assert_array_equal(again.fit(TABLE, CLICK).predict_proba(TABLE), search.predict_proba(TABLE))


def test_transformers_that_give_polars_or_arrays():
    scaler = StandardScaler()
    for output in ("polars", "default"):
        pipeline = make_pipeline(scaler.set_output(transform=output), classifier()).fit(TABLE[["x", "gaps"]], CLICK)
        assert pipeline.score(TABLE[["x", "gaps"]], CLICK) > 0.65


def test_pickle_keeps_every_bit():
    model = classifier(n_jobs=2).fit(TABLE, np.where(CLICK, "yes", "no"))
    model.partial_fit(TABLE, np.where(CLICK, "yes", "no"))
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.decision_function(TABLE), model.decision_function(TABLE))
    assert again.classes_.tolist() == ["no", "yes"]
    assert again.schema_ == model.schema_
    np.testing.assert_array_equal(again.history_, model.history_)
    again.partial_fit(TABLE, np.where(CLICK, "yes", "no"))
    assert len(again.history_) == 6


# Updates


def test_the_first_partial_fit_is_a_fit():
    model = classifier().partial_fit(TABLE, CLICK)
    np.testing.assert_array_equal(model.decision_function(TABLE), FITTED.decision_function(TABLE))


@pytest.mark.parametrize("labels", [(0, 1), ("no", "yes"), (False, True)], ids=str)
def test_partial_fit_is_an_update_of_the_learner(labels):
    named = np.array(labels)
    model = classifier().fit(TABLE, named[CLICK.astype(int)])
    learner = sf.Learner(FITTED.fitted_)
    for seed in (1, 2):
        new, y = clicks(300, seed)
        model.partial_fit(new, named[y.astype(int)])
        loss = learner.update(new.assign(label=y), "label")
        assert model.history_[-1].train_loss == loss
        assert model.history_[-1].epoch == 4 + seed
        np.testing.assert_array_equal(model.decision_function(new), learner.fitted().scores(new))
    assert model.fitted_.history == tuple(model.history_)
    assert model.classes_.tolist() == list(labels)
    source = new.assign(label=named[y.astype(int)], w=np.linspace(0.1, 2.0, 300))
    streamed = model.partial_fit(source, target="label", sample_weight="w")
    learner.update(source.assign(label=y), "label", sample_weight="w")
    np.testing.assert_array_equal(streamed.decision_function(new), learner.fitted().scores(new))


def test_partial_fit_learns_new_categories():
    model = classifier().fit(TABLE, CLICK)
    before = model.fitted_.encoder.layout.n_features
    new, _ = clicks(300, seed=1, names="xyz")
    first = model.predict_proba(new)[:, 1]
    for _ in range(30):
        model.partial_fit(new, new["c"] == "z", classes=[False, True])
    assert model.fitted_.encoder.layout.n_features == before + 3
    p = model.predict_proba(new)[:, 1]
    gap = lambda values: values[new["c"] == "z"].mean() - values[new["c"] != "z"].mean()  # noqa: E731
    assert gap(p) > gap(first) + 0.2
    fresh = model.fit(TABLE, CLICK)
    np.testing.assert_array_equal(fresh.decision_function(TABLE), FITTED.decision_function(TABLE))
    fresh.partial_fit(TABLE, CLICK)
    assert fresh.fitted_.encoder.layout.n_features == before


def test_a_first_batch_of_one_class():
    model = classifier().partial_fit(TABLE, ["no"] * 600, classes=["yes", "no"])
    assert model.classes_.tolist() == ["no", "yes"]
    assert model.fitted_.classes == ("no", "yes")
    before = model.predict_proba(TABLE)[:, 1].mean()
    model.partial_fit(TABLE, ["yes"] * 600)
    assert model.predict_proba(TABLE)[:, 1].mean() > before
    with pytest.raises(ValueError, match="y has only one class, 'no'"):
        classifier().partial_fit(TABLE, ["no"] * 600)


def test_a_regressor_goes_on_learning():
    y = TABLE["x"].to_numpy()
    model = regressor().partial_fit(TABLE, y)
    before = model.predict(TABLE).mean()
    for _ in range(5):
        model.partial_fit(TABLE, y + 1)
    assert before < model.predict(TABLE).mean() < before + 1
    assert len(model.history_) == 9


def test_an_update_that_fails_changes_nothing():
    model = classifier().fit(TABLE, CLICK).partial_fit(TABLE, CLICK)
    scores = model.decision_function(TABLE)
    with pytest.raises(ValueError, match=r"y has the label 'maybe'; the classes are False, True"):
        model.partial_fit(TABLE, ["maybe"] * 600)
    with pytest.raises(ValueError, match="classes 1, 2 differ from the fit, which had False, True"):
        model.partial_fit(TABLE, CLICK, classes=[1, 2])
    with pytest.raises(ValueError, match="no column 'gaps' in the table"):
        model.partial_fit(TABLE[["x", "c"]], CLICK)
    with pytest.raises(ValueError, match="no column 'label' in the table"):
        model.partial_fit(TABLE, target="label")
    np.testing.assert_array_equal(model.decision_function(TABLE), scores)
    model.partial_fit(TABLE, CLICK)
    assert (model.decision_function(TABLE) != scores).any()


def test_an_update_that_diverges_leaves_the_model_as_it_was():
    y = TABLE["x"].to_numpy()
    model = regressor().fit(TABLE, y).partial_fit(TABLE, y)
    before = model.predict(TABLE)
    with pytest.raises(ValueError, match="the update diverged"):
        model.partial_fit(TABLE, np.full(len(TABLE), 1e99))
    np.testing.assert_array_equal(model.predict(TABLE), before)
    np.testing.assert_allclose(model.partial_fit(TABLE, y).predict(TABLE), before, atol=0.1)


# Errors


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"epochs": 0}, ValueError, "epochs must be an integer of at least 1"),
        ({"optimizer": "sgd"}, ValueError, 'optimizer must be "adamw" or "adagrad"'),
        ({"l2": {"country": 1.0}}, ValueError, "l2 is given for 'country', which is not a field"),
        ({"model": "FM"}, TypeError, r"model must be None or an object such as sf\.FM\(k=8\), got 'FM'"),
        ({"model": sf.FM}, TypeError, "model must be None or an object"),
        ({"schema": "schema.toml"}, TypeError, r"schema must be a sf\.Schema, got .schema\.toml.; .* sf\.Schema\.load"),
    ],
)
def test_bad_settings_are_told_by_fit(settings, kind, message):
    model = classifier().set_params(**settings)
    with pytest.raises(kind, match=message):
        model.fit(TABLE, CLICK)


def test_a_target_among_the_columns_is_remarked():
    named = pd.Series(np.asarray(CLICK), name="click")
    for y in (named, named == named[0], (named == named[0]).astype(float)):
        with pytest.warns(UserWarning, match=r"y is the column 'click' of X: .* target='click'"):
            classifier().fit(TABLE.assign(click=y), y)
    classifier().fit(TABLE.assign(click=np.roll(named, 1)), named)  # such as what happened the time before
    schema = sf.Schema.infer(TABLE)
    classifier().set_params(schema=schema).fit(TABLE.assign(click=named), named)  # which has no such field


def test_what_to_learn_is_given_once():
    with pytest.raises(ValueError, match=r"requires y to be passed.*or name a column"):
        classifier().fit(TABLE)
    with pytest.raises(ValueError, match="y and target='x' are both given"):
        regressor().fit(TABLE, CLICK, target="x")
    with pytest.raises(ValueError, match="y and target='x' are both given"):
        regressor().partial_fit(TABLE, CLICK, target="x")
    with pytest.raises(ValueError, match=r"y='click' is text and no array; .* write target='click'"):
        classifier().fit(TABLE, "click")
    with pytest.raises(ValueError, match="for files and datasets, name the target column"):
        classifier().fit("train.parquet", CLICK)
    with pytest.raises(ValueError, match="pass its name as sample_weight"):
        classifier().fit(TABLE.assign(y=CLICK), target="y", sample_weight=np.ones(600))
    with pytest.raises(ValueError, match="no column 'clik' in the table; nearest: 'click'"):
        classifier().fit(TABLE.assign(click=CLICK), target="clik")
    with pytest.raises(ValueError, match="X has 1 sample; fitting a model requires at least 2"):
        regressor().fit(TABLE[:1], [1.0])
    with pytest.raises(ValueError, match="can be read once"):
        classifier().fit(ARROW.append_column("y", pa.array(CLICK)).to_reader(), target="y")


def test_tables_that_do_not_fit_the_model_are_refused():
    with pytest.raises(NotFittedError):
        classifier().predict_proba(TABLE)
    with pytest.raises(NotFittedError):
        regressor().predict(TABLE)
    with pytest.raises(ValueError, match="no column 'c' in the table; nearest: 'cc'"):
        FITTED.predict(TABLE.rename(columns={"c": "cc"}))
    with pytest.raises(ValueError, match="column 'x' should hold numbers"):
        FITTED.predict(TABLE.assign(x="one"))
    with pytest.raises(ValueError, match="column 'x' holds inf"):
        FITTED.predict(TABLE.assign(x=np.inf))
    with pytest.raises(ValueError, match="X has 2 features, but SplineFMClassifier is expecting 3 features"):
        FITTED.predict(NUMBERS)
    with pytest.raises(ValueError, match="X has 4 features, but SplineFMClassifier is expecting 3 features"):
        FITTED.predict(np.ones((2, 4)))
    with pytest.raises(TypeError, match="a Series is not a table"):
        FITTED.predict(TABLE["x"])
    # As pandas had it before 3.0, with nothing of Arrow.
    of_old = type("Series", (), {"__array__": lambda self, *given, **named: np.zeros(3), "__len__": lambda self: 3})
    with pytest.raises(TypeError, match="a Series is not a table"):
        FITTED.predict(of_old())
    with pytest.raises(TypeError, match="cannot read a table from int"):
        FITTED.predict(3)
    with pytest.raises(TypeError, match=r"(?i)sparse"):
        classifier().fit(csr_array(np.nan_to_num(NUMBERS)), CLICK)
    with pytest.raises(FileNotFoundError, match=r"nothing\.parquet"):
        FITTED.predict("nothing.parquet")


# One home per rule


@pytest.mark.parametrize("kind", [sf.SplineFMClassifier, sf.SplineFMRegressor])
def test_every_parameter_is_documented_and_typed(kind):
    names = list(inspect.signature(kind).parameters)
    section = inspect.getdoc(kind).split("Parameters\n----------\n")[1].split("\n\n")[0]
    documented = [name for line in re.findall(r"^(\S.*) : ", section, re.MULTILINE) for name in line.split(", ")]
    assert documented == names and "{" not in re.sub(r"\{[\"\d].*\}", "", section)
    assert set(EstimatorSettings.__annotations__) == set(names) - {
        "model",
        "loss",
        "quantile",
        "power",
        "delta",
        "class_weight",
    }
    assert set(kind().get_params(deep=False)) == set(names)


def test_a_fit_opens_each_file_once(tmp_path, monkeypatch):
    source = write("csv", tmp_path, np.where(CLICK, "yes", "no"))
    (tmp_path / "other.csv").write_bytes(source.read_bytes())
    opened, real = [], files.open_files

    def counted(paths, *args):
        opened.extend(map(str, paths))
        return real(paths, *args)

    monkeypatch.setattr(files, "open_files", counted)
    # With resolutions by column, which encode both tables a second time.
    model = sf.SplineFMClassifier(sf.FM(k=2), epochs=2, n_jobs=1).fit(
        source, target="label", eval_set=tmp_path / "other.csv"
    )
    assert sorted(opened) == sorted([str(source), str(tmp_path / "other.csv")])
    assert model.classes_.tolist() == ["no", "yes"]


def test_a_model_is_built_once(monkeypatch):
    built, real = [], sf.Fitted.__init__

    def counted(self, *args, **settings):
        built.append(self)
        real(self, *args, **settings)

    monkeypatch.setattr(sf.Fitted, "__init__", counted)
    model = classifier().fit(TABLE, np.where(CLICK, "yes", "no"))
    assert built == [model.fitted_] and model.fitted_.classes == ("no", "yes")
    model.partial_fit(TABLE, np.where(CLICK, "yes", "no"))
    assert built[1:] == [model.fitted_] and model.fitted_.history[-1].run == "update"


def test_a_table_in_chunks_prepares_the_parameters_once(monkeypatch):
    built, real = [], fitted_module.BatchScorer

    def counted(*args):
        built.append(args)
        return real(*args)

    expected = FITTED.fitted_.scores(TABLE)
    monkeypatch.setattr(fitted_module, "BatchScorer", counted)
    monkeypatch.setitem(sf.Encoder.encode_chunks.__kwdefaults__, "rows", 100)
    np.testing.assert_array_equal(FITTED.fitted_.scores(TABLE), expected)
    assert len(built) == 1
    score = FITTED.fitted_.table_scorer(threads=1)
    parts = [score(chunk) for chunk in sf.open_table(TABLE).chunks(rows=70)]
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert len(built) == 2


def test_exports_on_a_model_are_those_of_the_package(tmp_path):
    fitted = sf.discretize(FITTED.fitted_, {"x": 20, "gaps": 20})
    fitted.export_onnx(tmp_path / "a.onnx")
    sf.export_onnx(fitted, tmp_path / "b.onnx")
    fitted.export_libffm(tmp_path / "a.ffm", format="binary")
    sf.export_libffm(fitted, tmp_path / "b.ffm", format="binary")
    for name in ("onnx", "ffm", "ffm.json"):
        assert (tmp_path / f"a.{name}").read_bytes() == (tmp_path / f"b.{name}").read_bytes()
    folders = [
        fitted.export_tables(tmp_path / "a", format="csv"),
        sf.export_tables(fitted, tmp_path / "b", format="csv"),
    ]
    first, second = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders)
    assert first == second and len(first) == 4
