"""What those who come from scikit-learn, LightGBM or EBM reach for."""

import pickle

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.class_weight import compute_sample_weight

import splinefm as sf
from splinefm.train import loop as passes

QUICK = {"epochs": 3, "learning_rate": 0.02, "n_jobs": 1, "validation": 0}


def classifier(model=None, **settings):
    return sf.SplineFMClassifier(model or sf.FM(k=2), **{**QUICK, **settings})


def regressor(model=None, **settings):
    return sf.SplineFMRegressor(model or sf.FM(k=2), **{**QUICK, **settings})


def clicks(rows=400, seed=0):
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"x": rng.uniform(-1, 1, rows), "c": rng.choice(["a", "b"], rows), "noise": rng.random(rows)})
    return table, rng.random(rows) < 1 / (1 + np.exp(-(6 * np.abs(table["x"]) - 4)))


TABLE, CLICK = clicks()


class TestLabelsThatAreNoText:
    """pandas allows numbers, tuples and dates as names of columns."""

    @pytest.mark.parametrize(
        "labels", [[3, 7, 5], [0, 1, 2], pd.MultiIndex.from_tuples([("a", 1), ("a", 2), ("b", 1)])], ids=str
    )
    def test_columns_are_matched_by_label(self, labels):
        table = TABLE.set_axis(labels, axis=1)
        model = classifier().fit(table, CLICK)
        expected = model.predict_proba(table)
        np.testing.assert_array_equal(model.predict_proba(table[list(table.columns[::-1])]), expected)
        np.testing.assert_array_equal(model.predict_proba(table.to_numpy()), expected)
        other = classifier(validation=0.1).fit(table, CLICK, eval_set=(table[list(table.columns[::-1])], CLICK))
        assert other.history_[-1].validation_loss == pytest.approx(
            classifier().fit(table, CLICK, eval_set=(table, CLICK)).history_[-1].validation_loss
        )

    def test_other_labels_are_refused(self):
        model = classifier().fit(TABLE.set_axis([3, 7, 5], axis=1), CLICK)
        for labels in ([3, 7, 4], [0, 1, 2]):
            with pytest.raises(ValueError, match=r"labeled .* but in the fit 3, 7, 5; select these columns"):
                model.predict(TABLE.set_axis(labels, axis=1))

    def test_without_labels_columns_are_matched_by_position(self):
        model = classifier().fit(TABLE.set_axis([0, 1, 2], axis=1), CLICK)
        expected = model.predict_proba(TABLE.set_axis([0, 1, 2], axis=1))
        np.testing.assert_array_equal(model.predict_proba(TABLE.set_axis([3, 7, 5], axis=1)), expected)
        arrays = classifier().fit(TABLE.to_numpy(), CLICK)
        np.testing.assert_array_equal(
            arrays.predict_proba(TABLE.set_axis([3, 7, 5], axis=1)), arrays.predict_proba(TABLE.to_numpy())
        )


class TestRandomState:
    def test_a_number_is_the_seed_and_the_default_is_zero(self):
        assert classifier().fit(TABLE, CLICK).fitted_.training.seed == 0
        one, two, other = (classifier(random_state=seed).fit(TABLE, CLICK) for seed in (7, np.int64(7), 8))
        assert one.fitted_.training.seed == two.fitted_.training.seed == 7
        np.testing.assert_array_equal(one.decision_function(TABLE), two.decision_function(TABLE))
        assert (one.decision_function(TABLE) != other.decision_function(TABLE)).any()

    @pytest.mark.parametrize("kind", [np.random.RandomState, np.random.default_rng])
    def test_a_generator_is_drawn_from(self, kind):
        state = kind(3)
        model = classifier(random_state=state).fit(TABLE, CLICK)
        first = model.fitted_.training.seed
        second = model.fit(TABLE, CLICK).fitted_.training.seed
        assert first != second
        assert classifier(random_state=kind(3)).fit(TABLE, CLICK).fitted_.training.seed == first

    def test_none_draws_another_one_in_every_fit(self):
        seeds = {classifier(random_state=None, epochs=1).fit(TABLE, CLICK).fitted_.training.seed for _ in range(3)}
        assert len(seeds) == 3

    @pytest.mark.parametrize("value", [-1, 1.5, "one", True])
    def test_others_are_refused(self, value):
        with pytest.raises(ValueError, match=f"random_state must be an integer of at least 0, got {value!r}"):
            classifier(random_state=value).fit(TABLE, CLICK)

    def test_a_search_uses_one_number_for_all_trials(self):
        pytest.importorskip("optuna")
        own = regressor(random_state=None, validation=0.2)
        tuned = sf.tune(own, {"x": TABLE["x"], "y": TABLE["x"] ** 2}, "y", trials=2, space={"k": None})
        assert isinstance(tuned.estimator.random_state, int)
        assert tuned.estimator.fitted_.training.seed == tuned.estimator.random_state
        assert own.random_state is None


class TestJobs:
    @pytest.mark.parametrize(("n_jobs", "threads"), [(-1, None), (None, 1), (1, 1), (2, 2), (np.int64(2), 2)])
    def test_threads_of_the_training(self, n_jobs, threads):
        assert regressor(n_jobs=n_jobs, epochs=1).fit(TABLE, TABLE["x"].to_numpy()).fitted_.training.threads == threads

    def test_fewer_than_all(self):
        cores = joblib.cpu_count()
        assert regressor(n_jobs=-2)._threads() == max(1, cores - 1)

    def test_a_context_of_joblib_is_heard(self):
        with joblib.parallel_config(backend="threading", n_jobs=3):
            assert regressor(n_jobs=None)._threads() == 3

    @pytest.mark.parametrize("value", [0, 1.5, "all", True])
    def test_others_are_refused(self, value):
        with pytest.raises(ValueError, match="n_jobs must be None, -1 for all cores, or a number of threads"):
            regressor(n_jobs=value).fit(TABLE, TABLE["x"].to_numpy())


class TestModelSettings:
    def test_models_have_params(self):
        model = sf.LowRankFwFM(k=4)
        assert model.get_params() == model.get_params(deep=False) == {"k": 4, "rank": 3}
        assert model.set_params(rank=2) == sf.LowRankFwFM(k=4, rank=2) and model == sf.LowRankFwFM(k=4)
        assert model.set_params() == model
        with pytest.raises(ValueError, match="FM has no setting 'rank'; it has k"):
            sf.FM().set_params(rank=2)
        with pytest.raises(ValueError, match="k must be an integer of at least 1, got 0"):
            sf.FM().set_params(k=0)

    def test_estimators_have_those_of_their_model(self):
        own = sf.FmFM(k=(2, 3))
        model = classifier(own)
        assert model.get_params()["model__k"] == (2, 3) and "model__k" not in model.get_params(deep=False)
        assert model.set_params(model__k=5, epochs=2) is model
        assert model.model == sf.FmFM(k=5) and model.epochs == 2 and own.k == (2, 3)
        assert model.set_params(**model.get_params()).get_params() == model.get_params()

    def test_no_model_is_the_default_one(self):
        model = sf.SplineFMClassifier().set_params(model__k=4)
        assert model.model == sf.FwFM(k=4, third=16)
        assert "model__k" not in sf.SplineFMClassifier().get_params()

    def test_another_model_and_its_settings_at_once(self):
        assert classifier().set_params(model__rank=2, model=sf.LowRankFwFM(k=4)).model == sf.LowRankFwFM(k=4, rank=2)

    def test_clones_share_nothing_that_changes(self):
        model = classifier(sf.FmFM(k=[2, 3]))
        again = clone(model)
        again.set_params(model__k=4)
        assert model.model == sf.FmFM(k=(2, 3)) and again.model == sf.FmFM(k=4)
        assert clone(sf.FM(k=3)) == sf.FM(k=3)

    def test_grids_and_pipelines(self):
        pipeline = make_pipeline(FunctionTransformer(), classifier())
        grid = {"splinefmclassifier__model__k": [1, 2], "splinefmclassifier__model": [sf.FM(), sf.FwFM()]}
        search = GridSearchCV(pipeline, grid, cv=2, scoring="neg_log_loss").fit(TABLE, CLICK)
        fitted = search.best_estimator_[-1].fitted_
        assert fitted.model.k == search.best_params_["splinefmclassifier__model__k"]
        assert {params["splinefmclassifier__model__k"] for params in search.cv_results_["params"]} == {1, 2}

    def test_names_that_do_not_exist_are_refused(self):
        with pytest.raises(ValueError, match="FM has no setting 'depth'"):
            classifier().set_params(model__depth=3)
        with pytest.raises(ValueError, match="Invalid parameter 'depth'"):
            classifier().set_params(depth=3)


class TestClassWeight:
    def test_numbers_by_label_are_weights_of_rows(self):
        y = np.where(CLICK, "yes", "no")
        weighted = classifier(class_weight={"yes": 5.0}).fit(TABLE, y)
        by_row = classifier().fit(TABLE, y, sample_weight=np.where(CLICK, 5.0, 1.0))
        np.testing.assert_array_equal(weighted.decision_function(TABLE), by_row.decision_function(TABLE))
        both = classifier(class_weight={"yes": 5.0}).fit(TABLE, y, sample_weight=TABLE["noise"])
        by_row = classifier().fit(TABLE, y, sample_weight=TABLE["noise"] * np.where(CLICK, 5.0, 1.0))
        np.testing.assert_allclose(both.decision_function(TABLE), by_row.decision_function(TABLE), atol=1e-5)
        assert weighted.fitted_.loss.class_weights == (1.0, 5.0)

    @pytest.mark.parametrize("labels", [("no", "yes"), (0, 1), (False, True), (1, 2)], ids=str)
    def test_a_column_of_a_file_as_well(self, tmp_path, labels):
        y = np.array(labels)[CLICK.astype(int)]
        TABLE.assign(label=y).to_parquet(tmp_path / "t.parquet")
        weight = {labels[1]: 3.0, labels[0]: 0.5}
        streamed = classifier(class_weight=weight).fit(tmp_path / "t.parquet", target="label")
        plain = classifier(class_weight=weight).fit(TABLE, y)
        np.testing.assert_array_equal(streamed.decision_function(TABLE), plain.decision_function(TABLE))
        for model in (streamed, plain):
            assert model.fitted_.loss.class_weights == (0.5, 3.0)

    def test_balanced_is_that_of_scikit_learn(self, tmp_path):
        rare = TABLE["x"] > 0.7
        expected = classifier().fit(TABLE, rare, sample_weight=compute_sample_weight("balanced", rare))
        model = classifier(class_weight="balanced").fit(TABLE, rare)
        np.testing.assert_allclose(model.decision_function(TABLE), expected.decision_function(TABLE), atol=1e-5)
        streamed = classifier(class_weight="balanced").fit(TABLE.assign(y=rare), target="y")
        np.testing.assert_array_equal(streamed.decision_function(TABLE), model.decision_function(TABLE))
        assert abs(model.predict_proba(TABLE)[:, 1].mean() - rare.mean()) > 0.1

    def test_balanced_counts_weights(self):
        weight = np.where(CLICK, 3.0, 1.0)
        model = classifier(class_weight="balanced").fit(TABLE, CLICK, sample_weight=weight)
        first, second = model.fitted_.loss.class_weights
        assert first * (~CLICK).sum() == pytest.approx(second * 3.0 * CLICK.sum())

    def test_a_share_counts_for_both_classes(self):
        share = pd.concat([TABLE.assign(y=1.0, w=0.25), TABLE.assign(y=0.0, w=0.75)])
        expected = classifier(class_weight={1: 4.0}, batch_size=800).fit(share, target="y", sample_weight="w")
        model = classifier(class_weight={1: 4.0}, batch_size=400).fit(TABLE.assign(y=0.25), target="y")
        # In the mean: 4 * 0.25 of the second class against 0.75 of the first.
        for each in (model, expected):
            assert each.predict_proba(TABLE)[:, 1].mean() == pytest.approx(4 / 7, abs=0.02)

    def test_an_update_weighs_as_the_fit(self):
        model = classifier(class_weight="balanced").fit(TABLE, CLICK)
        learner = sf.Learner(model.fitted_)
        model.partial_fit(TABLE, CLICK)
        learner.update(TABLE.assign(y=CLICK), "y")
        np.testing.assert_array_equal(model.decision_function(TABLE), learner.fitted().scores(TABLE))
        first, second = model.fitted_.loss.class_weights
        plain = sf.Learner(classifier(class_weight="balanced").fit(TABLE, CLICK).fitted_)
        weight = np.where(CLICK, second, first)
        plain.loss = sf.Loss("logistic", classes=(False, True))
        plain.update(TABLE.assign(y=CLICK, w=weight), "y", sample_weight="w")
        np.testing.assert_allclose(model.decision_function(TABLE), plain.fitted().scores(TABLE), atol=1e-6)

    @pytest.mark.parametrize(
        ("weight", "message"),
        [
            ("equal", "class_weight must be None, \"balanced\" or a mapping from labels to numbers, got 'equal'"),
            ({"yes": 2.0}, "class_weight has the label 'yes'; the classes are False and True"),
            ({True: -1.0}, "class_weight of True must be a number of at least 0, got -1.0"),
            ({True: "2"}, "class_weight of True must be a number"),
            ({True: 0.0, False: 0}, "0 for both classes"),
            ([1.0, 2.0], "class_weight must be"),
        ],
    )
    def test_others_are_refused(self, weight, message):
        with pytest.raises(ValueError, match=message):
            classifier(class_weight=weight).fit(TABLE, CLICK)
        with pytest.raises(ValueError, match=message):
            classifier(class_weight=weight).fit(TABLE.assign(y=CLICK), target="y")

    def test_it_is_for_labels(self):
        with pytest.raises(ValueError, match="class_weight requires the logistic loss or softmax, got squared"):
            sf.fit_model({"x": [1.0, 2.0] * 9, "y": [1.0, 2.0] * 9}, "y", loss="squared", class_weight="balanced")
        one = classifier(class_weight="balanced")
        with pytest.raises(ValueError, match='class_weight="balanced" needs rows of both classes'):
            one.partial_fit(TABLE, np.ones(len(TABLE), bool), classes=[False, True])


def test_logarithms_of_probabilities():
    model = classifier().fit(TABLE, CLICK)
    np.testing.assert_allclose(model.predict_log_proba(TABLE), np.log(model.predict_proba(TABLE)), atol=1e-12)
    model.fitted_.params["bias"][:] = 1000.0
    assert model.predict_proba(TABLE)[0, 0] == 0.0
    assert np.isfinite(model.predict_log_proba(TABLE)).all() and model.predict_log_proba(TABLE)[0, 0] < -900


class TestImportance:
    def test_shares_in_the_order_of_the_columns(self):
        table = TABLE.assign(id=[f"row {i}" for i in range(len(TABLE))])[["noise", "id", "x", "c"]]
        model = classifier().fit(table, CLICK)
        shares = model.feature_importances_
        assert shares.shape == (model.n_features_in_,) == model.feature_names_in_.shape
        assert shares.sum() == pytest.approx(1.0)
        found = dict(zip(model.feature_names_in_, shares, strict=True))
        exact = sf.importance(model.fitted_, table)
        expected = dict(zip(exact.fields, exact.shapley / exact.shapley.sum(), strict=True))
        assert found == pytest.approx({"id": 0.0, **expected}) and max(found, key=found.get) == "x"

    def test_a_column_that_several_fields_read_counts_once(self):
        rng = np.random.default_rng(0)
        at = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 20 * 86_400, 400), unit="s")
        schema = sf.Schema([sf.Timestamp("at", parts=["hour", "weekday"]), sf.Numerical("x")])
        table = pd.DataFrame({"x": TABLE["x"], "at": at})
        model = regressor(schema=schema).fit(table, TABLE["x"] + np.sin(at.hour / 4))
        assert model.feature_importances_.shape == (2,) and model.feature_importances_.sum() == pytest.approx(1.0)

    def test_columns_without_names_and_numbers(self):
        model = regressor().fit(TABLE[["x", "noise"]].to_numpy(), TABLE["x"])
        shares = model.feature_importances_
        assert shares.shape == (2,) and shares[0] > 0.8
        shares[:] = 0.0
        assert model.feature_importances_.sum() == pytest.approx(1.0)

    def test_rows_are_a_few_and_survive_pickle_and_new_categories(self):
        table, y = clicks(5000)
        model = classifier(epochs=1).fit(table, y)
        assert 500 <= len(model._rows) <= 1000 and model._rows.start.base is None
        again = pickle.loads(pickle.dumps(model))
        np.testing.assert_array_equal(again.feature_importances_, model.feature_importances_)
        before = model.feature_importances_
        model.partial_fit(table.assign(c="new"), y)
        after = model.feature_importances_
        expected = sf.shapley_values(model.fitted_, table[::5], table[::5]).values
        np.testing.assert_allclose(
            after, np.abs(expected).mean(axis=0) / np.abs(expected).mean(axis=0).sum(), rtol=1e-4
        )
        assert (after != before).any()

    def test_a_stream(self, tmp_path, monkeypatch):
        monkeypatch.setattr("splinefm.train.chunks.MEMORY_BYTES", 0)
        TABLE.assign(y=CLICK).to_parquet(tmp_path / "t.parquet")
        for validation in (0, 0.3):
            model = classifier(validation=validation).fit(tmp_path / "t.parquet", target="y")
            assert model.feature_importances_.argmax() == 0

    @pytest.mark.parametrize("in_memory", [True, False])
    def test_crosses_count_for_their_columns(self, tmp_path, monkeypatch, in_memory):
        if not in_memory:
            monkeypatch.setattr("splinefm.train.chunks.MEMORY_BYTES", 0)
        TABLE.assign(y=CLICK).to_parquet(tmp_path / "t.parquet")
        names = list(TABLE.columns)
        schema = sf.Schema.infer(TABLE)
        crossed = sf.Schema([*schema, sf.Cross(schema.names[0], schema.names[1], min_count=1)])
        model = classifier(schema=crossed).fit(tmp_path / "t.parquet", target="y")
        shares = model.feature_importances_
        found = sf.importance(model.fitted_, TABLE)
        assert shares.shape == (len(names),) and shares.argmax() == 0 and list(found.fields) == names
        np.testing.assert_allclose(shares, found.shapley / found.shapley.sum(), rtol=0.3, atol=0.05)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).feature_importances_, shares)

    def test_where_there_is_none(self):
        with pytest.raises(NotFittedError):
            _ = classifier().feature_importances_
        with pytest.raises(AttributeError, match=r"order=4.*sf\.partial_dependence"):
            _ = classifier(sf.HigherOrderFM(k=2, order=4)).fit(TABLE, CLICK).feature_importances_
        assert not hasattr(classifier(), "feature_importances_")


class TestFiles:
    @pytest.mark.parametrize("labels", [("no", "yes"), (0, 1), (False, True)], ids=str)
    def test_a_classifier_comes_back(self, tmp_path, labels):
        y = np.array(labels)[CLICK.astype(int)]
        settings = {"l2": {"x": 1e-3}, "class_weight": {labels[1]: 2.0}, "random_state": 5, "schedule": "constant"}
        model = classifier(sf.FwFM(k=2), **settings, patience=None).fit(TABLE, y)
        model.save(tmp_path / "m.sfm")
        again = sf.SplineFMClassifier.load(tmp_path / "m.sfm")
        np.testing.assert_array_equal(again.predict(TABLE), model.predict(TABLE))
        np.testing.assert_array_equal(again.predict_proba(TABLE), model.predict_proba(TABLE))
        assert again.classes_.tolist() == list(labels) and again.score(TABLE, y) == model.score(TABLE, y)
        assert again.feature_names_in_.tolist() == ["x", "c", "noise"] and again.n_features_in_ == 3
        assert again.schema_.names == model.schema_.names and repr(again.history_) == repr(model.history_)
        params = again.get_params(deep=False)
        assert params["model"] == sf.FwFM(k=2) and params["random_state"] == 5 and params["n_jobs"] == 1
        assert params["class_weight"] == {labels[0]: 1.0, labels[1]: 2.0} and params["l2"]["x"] == 1e-3
        assert (params["schedule"], params["patience"], params["epochs"]) == ("constant", None, 3)
        again.partial_fit(TABLE, y)
        model.partial_fit(TABLE, y)
        np.testing.assert_array_equal(again.decision_function(TABLE), model.decision_function(TABLE))
        assert again.fit(TABLE, y).feature_importances_.shape == (3,)

    @pytest.mark.parametrize(
        ("loss", "own"),
        [
            *(("squared", {}), ("poisson", {}), ("gamma", {}), ("tweedie", {"power": 1.2})),
            *(("quantile", {"quantile": 0.8}), ("huber", {"delta": 0.5}), ("huber", {})),
        ],
    )
    def test_a_regressor_comes_back(self, tmp_path, loss, own):
        model = regressor(loss=loss, n_jobs=-1, **own).fit(TABLE, TABLE["x"] + 1.5)
        model.save(tmp_path / "m.sfm")
        again = sf.SplineFMRegressor.load(str(tmp_path / "m.sfm"), mmap=True)
        np.testing.assert_array_equal(again.predict(TABLE), model.predict(TABLE))
        assert again.loss == loss and again.n_jobs == -1
        assert {name: again.get_params()[name] for name in own} == own
        assert again.fitted_.loss == model.fitted_.loss and (loss != "huber" or again.delta > 0)
        with pytest.raises(AttributeError, match=r"a model file contains none; use sf\.importance"):
            _ = again.feature_importances_

    def test_columns_of_an_array(self, tmp_path):
        numbers = TABLE[["x", "noise"]].to_numpy()
        model = classifier().fit(numbers, CLICK)
        model.save(tmp_path / "m.sfm")
        again = sf.SplineFMClassifier.load(tmp_path / "m.sfm")
        np.testing.assert_array_equal(again.predict_proba(numbers), model.predict_proba(numbers))
        assert again.n_features_in_ == 2 and not hasattr(again, "feature_names_in_")
        with pytest.raises(ValueError, match="expecting 2 features"):
            model.predict(numbers[:, [0, 1, 1]])

    def test_an_array_whose_last_column_is_left_out(self, tmp_path):
        numbers = np.column_stack([TABLE[["x", "noise"]].to_numpy(), np.full(len(TABLE), np.nan)])
        model = classifier().fit(numbers, CLICK)
        model.save(tmp_path / "m.sfm")
        again = sf.SplineFMClassifier.load(tmp_path / "m.sfm")
        with pytest.warns(UserWarning, match="X has 3 columns, and the loaded .* reads none after the first 2"):
            found = again.predict_proba(numbers)
        np.testing.assert_array_equal(found, model.predict_proba(numbers))
        with pytest.raises(ValueError, match="expecting 2 features"):
            again.predict(numbers[:, :1])

    def test_files_of_others(self, tmp_path):
        fitted = sf.fit_model(TABLE.assign(y=np.where(CLICK, "b", "a")), "y", training=sf.Training(epochs=1, threads=1))
        fitted.save(tmp_path / "m.sfm")
        model = sf.SplineFMClassifier.load(tmp_path / "m.sfm")
        np.testing.assert_array_equal(model.predict_proba(TABLE)[:, 1], fitted.predict(TABLE))
        assert set(model.predict(TABLE)) <= {"a", "b"}

    def test_the_other_kind_is_refused(self, tmp_path):
        classifier().fit(TABLE, CLICK).save(tmp_path / "c.sfm")
        regressor().fit(TABLE, TABLE["x"].to_numpy()).save(tmp_path / "r.sfm")
        with pytest.raises(ValueError, match=r"c\.sfm' holds a model with the logistic loss.*SplineFMClassifier\.load"):
            sf.SplineFMRegressor.load(tmp_path / "c.sfm")
        with pytest.raises(ValueError, match=r"r\.sfm' holds a model with the squared loss.*SplineFMRegressor\.load"):
            sf.SplineFMClassifier.load(tmp_path / "r.sfm")
        with pytest.raises(NotFittedError):
            classifier().save(tmp_path / "n.sfm")
        with pytest.raises(FileNotFoundError):
            sf.SplineFMClassifier.load(tmp_path / "n.sfm")


class TestCallbacks:
    def test_each_hears_of_every_epoch(self):
        heard, more = [], []
        model = classifier(validation=0.2).fit(TABLE, CLICK, callbacks=[heard.append, more.append])
        assert heard == more and all(isinstance(epoch, sf.Epoch) for epoch in heard)
        own = [epoch for epoch in heard if epoch.run == model.history_[0].run]
        assert own == model.history_
        last = [epoch for epoch in heard if epoch.run == "all rows"]
        best = min(model.history_, key=lambda epoch: epoch.validation_loss)
        assert len(last) == best.epoch and all(np.isnan(epoch.validation_loss) for epoch in last)
        assert [epoch.run for epoch in heard][:3] == ["first"] * 3

    def test_true_ends_the_fit_and_keeps_the_best_epoch(self):
        heard = []

        def stop(epoch):
            heard.append(epoch)
            return epoch.epoch == 2

        model = classifier(epochs=9, validation=0.2).fit(TABLE, CLICK, callbacks=[stop])
        assert len(heard) == len(model.history_) == 2
        np.testing.assert_array_equal(
            classifier(epochs=9, validation=0.2)
            .fit(TABLE, CLICK, callbacks=[lambda epoch: epoch.epoch == 2])
            .predict(TABLE),
            model.predict(TABLE),
        )

    def test_what_else_they_return_does_not(self):
        for answer in (1, "stop", [0], None, np.False_, False):
            model = regressor().fit(TABLE, TABLE["x"].to_numpy(), callbacks=[lambda _, answer=answer: answer])
            assert len(model.history_) == 3
        assert len(regressor().fit(TABLE, TABLE["x"].to_numpy(), callbacks=[lambda _: np.True_]).history_) == 1

    @pytest.mark.parametrize("callbacks", [print, [print, "x"], "print"])
    def test_others_are_refused(self, callbacks):
        with pytest.raises(ValueError, match="callbacks must be a list of functions that take an Epoch"):
            classifier().fit(TABLE, CLICK, callbacks=callbacks)

    def test_an_update_is_an_epoch_of_its_own_kind(self):
        model = classifier().fit(TABLE, CLICK).partial_fit(TABLE, CLICK)
        assert [epoch.run for epoch in model.history_] == ["first"] * 3 + ["update"]

    def test_a_file_keeps_the_runs(self, tmp_path):
        model = classifier().fit(TABLE, CLICK).partial_fit(TABLE, CLICK)
        model.save(tmp_path / "m.sfm")
        assert [epoch.run for epoch in sf.load(tmp_path / "m.sfm").history] == ["first"] * 3 + ["update"]


class TestSchedule:
    def test_a_constant_rate_does_not_depend_on_the_number_of_epochs(self):
        long = sf.Training(schedule="constant", learning_rate=0.01, epochs=50)
        assert {long.rate_at(step, 100) for step in (0, 1, 50, 99)} == {0.01}
        rates = [
            epoch.learning_rate for epoch in regressor(schedule="constant").fit(TABLE, TABLE["x"].to_numpy()).history_
        ]
        assert rates == [0.02] * 3
        short, long = (regressor(schedule="constant", epochs=n).fit(TABLE, TABLE["x"].to_numpy()) for n in (2, 4))
        assert [epoch.train_loss for epoch in short.history_] == [epoch.train_loss for epoch in long.history_[:2]]

    def test_the_default_falls(self):
        rates = [epoch.learning_rate for epoch in regressor().fit(TABLE, TABLE["x"].to_numpy()).history_]
        assert rates[0] > rates[1] > rates[2] > 0.0

    def test_others_are_refused(self):
        with pytest.raises(ValueError, match='schedule must be "cosine" or "constant", got \'linear\''):
            regressor(schedule="linear").fit(TABLE, TABLE["x"].to_numpy())


def test_public_names():
    names = "auc calibration_by calibration_error logloss mae normalized_entropy r2 rmse"
    assert set(names.split()) <= set(sf.metrics.__all__) and {"Diverged", "Epoch", "Loss"} <= set(sf.__all__)
    assert sf.metrics.auc([0, 1], [0.1, 0.9]) == 1.0 and issubclass(sf.Diverged, ValueError)


def test_importances_are_found_where_others_have_them():
    """The same attributes as a forest, so that code written for one works for the other."""
    forest = RandomForestClassifier(3, random_state=0).fit(TABLE[["x", "noise"]], CLICK)
    model = classifier().fit(TABLE[["x", "noise"]], CLICK)
    for name in ("feature_importances_", "feature_names_in_", "classes_", "n_features_in_"):
        assert np.shape(getattr(model, name)) == np.shape(getattr(forest, name))


@pytest.mark.parametrize("weight", [None, np.ones(len(TABLE))], ids=["plain", "weighted"])
def test_a_missing_column_is_told_with_the_columns_of_the_user_alone(weight):
    schema = sf.Schema([sf.Numerical("x"), sf.Categorical("c")])
    few = TABLE[["x", "noise"]]
    model = classifier().fit(TABLE, CLICK)
    told = r"no column 'c' in the table\. Columns: 'x', 'noise'$"
    with pytest.raises(ValueError, match=told):
        model.partial_fit(few, CLICK, sample_weight=weight)
    with pytest.raises(ValueError, match=told):
        classifier(schema=schema).fit(few, CLICK, sample_weight=weight)
    with pytest.raises(ValueError, match=told):
        classifier().fit(TABLE, CLICK, sample_weight=weight, eval_set=(few, CLICK))


def test_a_field_called_y_is_not_given_the_answer():
    table = TABLE.rename(columns={"x": "y"})
    model = classifier().fit(table, CLICK)
    with pytest.raises(ValueError, match="no column 'y' in the table"):
        model.partial_fit(table[["c", "noise"]], CLICK)


def test_text_is_no_number_whatever_it_says():
    model = classifier().fit(TABLE, CLICK.astype(int))
    with pytest.raises(ValueError, match="y has the label '0'; the classes are 0, 1"):
        model.partial_fit(TABLE, CLICK.astype(int).astype(str))
    model.partial_fit(TABLE, CLICK)  # True is 1


class TestWrongParameters:
    """What is not a parameter is named with the way out, not with an internal class."""

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"k": 8}, r"SplineFMClassifier has no parameter 'k'; it belongs to the model: model=sf.FwFM\(k=8\)"),
            ({"seed": 3}, "has no parameter 'seed'; estimators say random_state=3"),
            ({"threads": 2}, "has no parameter 'threads'; estimators say n_jobs=2"),
            ({"epoch": 3}, "has no parameter 'epoch'; nearest: 'epochs'"),
            ({"eval_set": None}, "has no parameter 'eval_set'; it is an argument of fit"),
            ({"zzz": 3}, r"has no parameter 'zzz'. Parameters: model, class_weight, .*verbose$"),
        ],
    )
    def test_the_message_says_where_it_belongs(self, given, message):
        with pytest.raises(TypeError, match=message):
            sf.SplineFMClassifier(**given)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"k": 3}, "Invalid parameter 'k' for SplineFMClassifier; it belongs to the model: model__k$"),
            ({"seed": 3}, "Invalid parameter 'seed' for SplineFMClassifier; estimators say random_state=3"),
            ({"epoch": 3}, "Invalid parameter 'epoch' for SplineFMClassifier; nearest: 'epochs'"),
            ({"steps__k": 3}, "Invalid parameter 'steps' for estimator"),
        ],
    )
    def test_a_name_that_is_set_is_told_where_it_belongs(self, given, message):
        with pytest.raises(ValueError, match=message):
            classifier().set_params(**given)
        with pytest.raises(ValueError, match=message):
            GridSearchCV(classifier(), {name: [value] for name, value in given.items()}, cv=2).fit(TABLE, CLICK)

    def test_subclasses_have_parameters_of_their_own(self):
        class Own(sf.SplineFMRegressor):
            def __init__(self, own=1, **more):
                super().__init__(**more)
                self.own = own

        assert Own(own=2, epochs=3).epochs == 3
        with pytest.raises(TypeError, match="'zzz'"):
            Own(zzz=1)


class TestCtrlC:
    """It stops whatever calls `fit`, and the estimator has the best epoch so far."""

    def test_the_estimator_is_fitted_before_the_interrupt_goes_on(self):
        estimator = classifier(epochs=8)
        with pytest.raises(KeyboardInterrupt, match=r"best epoch so far is kept \(2 of 8\): the estimator is fitted"):
            estimator.fit(TABLE, CLICK, callbacks=[interrupt_in(2)])
        assert len(estimator.history_) == 2 and estimator.predict(TABLE).shape == CLICK.shape
        assert estimator.feature_importances_.shape == (3,)

    def test_loops_of_fits_stop(self):
        fits = []

        class Interrupted(sf.SplineFMRegressor):
            def fit(self, X, y):
                fits.append(len(X))
                return super().fit(X, y, callbacks=[interrupt_in(1)])

        with pytest.raises(KeyboardInterrupt):
            cross_validate(Interrupted(sf.FM(k=2), **QUICK), TABLE[["x", "c"]], TABLE["noise"], cv=4)
        assert len(fits) == 1

    def test_before_there_is_an_epoch_there_is_no_model(self, monkeypatch):
        def interrupt(*args, **options):
            raise KeyboardInterrupt

        monkeypatch.setattr(passes, "_pass", interrupt)
        estimator = classifier()
        with pytest.raises(KeyboardInterrupt):
            estimator.fit(TABLE, CLICK)
        assert not hasattr(estimator, "fitted_")


def interrupt_in(number):
    def stop(epoch):
        if epoch.epoch == number:
            raise KeyboardInterrupt

    return stop
