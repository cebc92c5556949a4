"""Offsets and exposures of the estimators: arrays or columns, in fits, updates and predictions."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sklearn
from sklearn.model_selection import cross_validate

import splinefm as sf

SETTINGS = {"epochs": 6, "n_jobs": 1, "effort": "fast", "random_state": 0}


def make_rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": rng.random(n), "c": rng.choice(["a", "b"], n)})
    exposure = rng.uniform(0.1, 3.0, n)
    return frame, exposure, rng.poisson(np.exp(frame["x"]) * exposure).astype(float)


def regressor(**options):
    return sf.SplineFMRegressor(sf.FM(k=2), loss="poisson", **SETTINGS, **options)


def test_an_array_and_a_column_are_the_same():
    X, exposure, y = make_rows()
    by_array = regressor().fit(X, y, exposure=exposure)
    by_column = regressor().fit(X.assign(e=exposure), y, exposure="e")
    by_target = regressor().fit(X.assign(e=exposure, y=y), target="y", exposure="e")
    expected = by_array.predict(X, exposure=exposure)
    np.testing.assert_array_equal(by_column.predict(X.assign(e=exposure)), expected)
    np.testing.assert_array_equal(by_target.predict(X.assign(e=exposure)), expected)
    np.testing.assert_allclose(by_array.predict(X, exposure=1.0) * exposure, expected, rtol=1e-5)
    assert by_array.n_features_in_ == 2 and list(by_array.feature_names_in_) == ["x", "c"]
    assert by_column.n_features_in_ == 3 and by_column.fitted_.columns == ["x", "c", "e"]
    assert len(by_array.feature_importances_) == 2 and len(by_column.feature_importances_) == 3
    assert by_column.feature_importances_[2] == 0.0


def test_arrays_without_names():
    X, exposure, y = make_rows()
    rows = X[["x"]].to_numpy()
    model = regressor().fit(rows, y, exposure=exposure)
    doubled = model.predict(rows, exposure=2 * exposure)
    np.testing.assert_allclose(doubled, 2 * model.predict(rows, exposure=exposure), rtol=1e-5)


def test_an_offset_of_a_classifier():
    rng = np.random.default_rng(0)
    x, offset = rng.random(400), 2 * rng.normal(size=400)
    y = np.where(rng.random(400) < 1 / (1 + np.exp(-x - offset)), "yes", "no")
    X = pd.DataFrame({"x": x})
    model = sf.SplineFMClassifier(sf.FM(k=2), **SETTINGS).fit(X, y, offset=offset)
    scores = model.decision_function(X, offset=offset)
    np.testing.assert_allclose(scores - model.decision_function(X, offset=0.0), offset, atol=1e-5)
    np.testing.assert_allclose(model.predict_proba(X, offset=offset)[:, 1], 1 / (1 + np.exp(-scores)), rtol=1e-5)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X, offset=offset)), model.predict_proba(X, offset=offset))
    assert (model.predict(X, offset=offset) == np.where(scores > 0, "yes", "no")).all()
    with pytest.raises(ValueError, match="exposure 'exposure' is for the losses poisson"):
        sf.SplineFMClassifier(**SETTINGS).fit(X, y, exposure=np.ones(400))
    with pytest.raises(ValueError, match="changes no probability"):
        sf.SplineFMClassifier(**SETTINGS).fit(X, np.resize(["a", "b", "c"], 400), offset=offset)


def test_validation_rows_have_their_own():
    X, exposure, y = make_rows()
    other, other_exposure, other_y = make_rows(100, seed=1)
    model = regressor().fit(X, y, exposure=exposure, eval_set=(other, other_y, None, other_exposure))
    rate = model.predict(other, exposure=other_exposure)
    loss = np.mean(rate - other_y * np.log(rate))
    assert min(epoch.validation_loss for epoch in model.history_) == pytest.approx(loss, rel=1e-4)
    with pytest.raises(ValueError, match=r"eval_set must be \(X, y, sample_weight, exposure\)"):
        regressor().fit(X, y, exposure=exposure, eval_set=(other, other_y))
    named = regressor().fit(X.assign(e=exposure), y, exposure="e", eval_set=(other.assign(e=other_exposure), other_y))
    assert named.history_[-1].validation_loss == pytest.approx(model.history_[-1].validation_loss)


def test_an_update_takes_it(tmp_path):
    X, exposure, y = make_rows()
    more = make_rows(300, seed=2)
    first = regressor().partial_fit(X, y, exposure=exposure)
    first.partial_fit(more[0], more[2], exposure=more[1])
    assert first.history_[-1].run == "update" and first.fitted_.offset.kind == "exposure"
    with pytest.raises(ValueError, match=r"pass exposure=\.\.\., an array with a number per row"):
        first.partial_fit(more[0], more[2])
    again = pickle.loads(pickle.dumps(first))
    first.save(tmp_path / "model.sfm")
    loaded = sf.SplineFMRegressor.load(tmp_path / "model.sfm")
    for model in (again, loaded):
        np.testing.assert_array_equal(model.predict(X, exposure=exposure), first.predict(X, exposure=exposure))


def test_bad_arguments():
    X, exposure, y = make_rows(100)
    with pytest.raises(ValueError, match=r"exposure must be the name of a column of X or have one number per row"):
        regressor().fit(X, y, exposure=exposure[:-1])
    with pytest.raises(ValueError, match="offset and exposure are both given"):
        regressor().fit(X, y, exposure=exposure, offset=exposure)
    with pytest.raises(ValueError, match="no column 'years' in the table"):
        regressor().fit(X, y, exposure="years")
    with pytest.raises(ValueError, match="the exposure 'exposure' must be a finite number, got nan in row 3"):
        regressor().fit(X, y, exposure=np.where(np.arange(100) == 3, np.nan, exposure))
    model = regressor().fit(X, y, exposure=exposure)
    with pytest.raises(ValueError, match=r"X has no column 'exposure': pass exposure="):
        model.predict(X)
    with pytest.raises(ValueError, match="offset is given, and the model was fitted with the exposure 'exposure'"):
        model.predict(X, offset=exposure)
    with pytest.raises(ValueError, match="exposure is given, and the model was fitted without an offset"):
        regressor().fit(X, y).predict(X, exposure=exposure)


def test_paths_need_the_name_of_a_column(tmp_path):
    X, exposure, y = make_rows(200)
    pq.write_table(pa.Table.from_pandas(X.assign(e=exposure, y=y)), tmp_path / "rows.parquet")
    path = str(tmp_path / "rows.parquet")
    model = regressor().fit(path, target="y", exposure="e")
    np.testing.assert_allclose(model.predict(path), model.predict(X.assign(e=exposure)))
    with pytest.raises(ValueError, match=r"exposure as an array requires a table in memory"):
        regressor().fit(path, target="y", exposure=exposure)


def test_the_name_of_an_attached_column_is_free():
    X, exposure, y = make_rows(200)
    X = X.assign(exposure=np.arange(200.0))
    model = regressor().fit(X, y, exposure=exposure)
    assert model.fitted_.offset.column == "exposure_" and "exposure" in model.fitted_.encoder.schema.names
    model.predict(X, exposure=exposure)


def test_metadata_routing_hands_it_to_folds():
    X, exposure, y = make_rows()
    with sklearn.config_context(enable_metadata_routing=True):
        model = regressor().set_fit_request(exposure=True).set_predict_request(exposure=True)
        assert model.get_metadata_routing().predict.requests["exposure"] is True
        model.fit(X, y, exposure=exposure)
    found = cross_validate(regressor(), X.assign(e=exposure), y, params={"exposure": "e"}, cv=2)
    assert np.isfinite(found["test_score"]).all()


def test_tuning_takes_it():
    pytest.importorskip("optuna")
    X, exposure, y = make_rows()
    table = X.assign(e=exposure, y=y)
    tuned = sf.tune(regressor(), table, "y", exposure="e", trials=2, validation=0.3)
    assert tuned.estimator.fitted_.offset.column == "e"
    tuned = sf.tune(regressor(), X, y, exposure=exposure, trials=2, validation=0.3)
    assert tuned.estimator.predict(X, exposure=exposure).shape == (400,)
