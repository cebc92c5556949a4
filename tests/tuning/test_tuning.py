"""sf.tune: trials on one validation part, the best of them fitted, what goes wrong told."""

import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import optuna
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from optuna.distributions import FloatDistribution, IntDistribution

import splinefm as sf
from splinefm import metrics
from splinefm.fit import fitting
from splinefm.search import race
from splinefm.search import search as of_fit
from splinefm.train import chunks as chunks_module
from splinefm.train.results import StopReason
from splinefm.tuning import trials, tune
from splinefm.tuning.tune import open_task

# Kernels are compiled for each model and k: one is enough here.
KEEP_K = {"k": None}
RATES = dict.fromkeys(("k", "batch_size", "l2", "smoothness", "segments", "degree", "transform"))


def clicks_table(rows=300, seed=0):
    rng = np.random.default_rng(seed)
    x, c = rng.normal(size=rows), rng.choice(["a", "b"], rows)
    y = np.sin(2 * x) + (c == "a") + 0.1 * rng.normal(size=rows)
    return {"x": x, "c": c, "y": y, "label": np.where(y + rng.logistic(size=rows) > 0.5, "yes", "no")}


TABLE = clicks_table()
NUMBERS = {name: TABLE[name] for name in ("x", "c", "y")}
LABELS = {name: TABLE[name] for name in ("x", "c", "label")}


def regressor(**settings):
    return sf.SplineFMRegressor(sf.FM(k=2), **{"epochs": 3, "n_jobs": 1, **settings})


def classifier(**settings):
    return sf.SplineFMClassifier(sf.FM(k=2), **{"epochs": 3, "n_jobs": 1, **settings})


def rmse_of(estimator):
    """The validation loss of the best epoch, in the unit of the target."""
    best = min(epoch.validation_loss for epoch in estimator.history_)
    return estimator.fitted_.loss.scale * np.sqrt(2.0 * best)


class TestResult:
    def test_the_first_trial_is_the_estimator_as_it_is(self):
        own = regressor(learning_rate=0.011, l2=3e-5, random_state=4)
        tuned = sf.tune(own, NUMBERS, "y", trials=1, space=KEEP_K)
        assert tuned.value == rmse_of(own.fit(NUMBERS, target="y"))
        assert (tuned.params["learning_rate"], tuned.params["l2"]) == (0.011, 3e-5)
        assert np.array_equal(tuned.estimator.predict(NUMBERS), own.predict(NUMBERS))

    def test_the_estimator_is_what_fit_makes_of_the_best_settings(self):
        own = regressor(validation=0.25, learning_rate=1e-4)
        tuned = sf.tune(own, NUMBERS, "y", trials=8, space=KEEP_K, seed=1)
        assert tuned.value == min(tuned.history["value"]) < tuned.history["value"][0]
        assert tuned.value == rmse_of(tuned.estimator)
        again = sf.SplineFMRegressor(**tuned.estimator.get_params(deep=False)).fit(NUMBERS, target="y")
        assert np.array_equal(tuned.estimator.predict(NUMBERS), again.predict(NUMBERS))
        assert tuned.estimator.learning_rate == tuned.params["learning_rate"] != own.learning_rate
        assert not hasattr(own, "fitted_") and own.schema is None

    def test_every_setting_of_the_best_trial_reaches_the_model(self):
        space = {"segments": ["5+7"], "degree": [2], "transform": ["minmax"], "k": [2], "average": [False]}
        numbers = {"learning_rate": [0.02], "batch_size": [64], "l2": [2e-5], "smoothness": [0.3], "patience": [2]}
        fitted = sf.tune(regressor(), NUMBERS, "y", trials=1, space={**space, **numbers}).estimator.fitted_
        field = fitted.encoder.fields[0]
        assert (type(field.transform), field.basis) == (sf.MinMax, sf.MultiResolution((5, 7), 2))
        training = fitted.training
        assert (training.learning_rate, training.batch_size, training.average) == (0.02, 64, False)
        assert (training.l2, training.smoothness, training.patience) == (2e-5, 0.3, 2)

    def test_the_kind_of_model_may_be_searched(self):
        space = {**RATES, "k": [2], "learning_rate": None, "model": ["FM", "FwFM"]}
        tuned = sf.tune(regressor(), NUMBERS, "y", trials=4, seed=1, space=space)
        assert {"FM", "FwFM"} == set(tuned.history["model"]) and tuned.history["model"][0] == "FM"
        assert type(tuned.estimator.model).__name__ == tuned.params["model"]
        assert tuned.estimator.fitted_.model == tuned.estimator.model

    def test_the_history_is_a_table(self):
        tuned = sf.tune(regressor(), NUMBERS, "y", trials=3, space=KEEP_K)
        frame = pd.DataFrame(tuned.history)
        assert len(frame) == 3 and frame["number"].tolist() == [0, 1, 2]
        assert {"learning_rate", "segments", "value", "state", "epochs", "seconds"} <= set(frame.columns)
        assert frame.loc[frame["value"].idxmin(), "learning_rate"] == tuned.params["learning_rate"]
        assert isinstance(tuned.study, optuna.Study) and tuned.study.best_value == tuned.value

    def test_the_same_seed_searches_the_same_and_another_one_does_not(self):
        first, same, other = (
            sf.tune(regressor(), NUMBERS, "y", trials=3, space=KEEP_K, seed=seed).history for seed in (1, 1, 2)
        )
        assert first["learning_rate"] == same["learning_rate"] and first["value"] == same["value"]
        assert first["learning_rate"][1:] != other["learning_rate"][1:] and first["value"][0] == other["value"][0]


def product_table(rows=1200, seed=0):
    """Two columns that act together and have no effects of their own: an FM with k = 2 does not see all of it."""
    rng = np.random.default_rng(seed)
    x, z, w = rng.uniform(-1, 1, (3, rows))
    return {"x": x, "z": z, "w": w, "y": np.sin(9 * x * z) + 0.3 * w + 0.1 * rng.normal(size=rows)}


PRODUCT = product_table()
# Trials with and without the crosses that were found, and with other learning rates.
CROSSES = {**RATES, "learning_rate": [0.01, 0.02]}


@pytest.fixture(scope="module")
def searched():
    """An estimator, its fit to a table in which a cross matters, and its study."""
    own = regressor()
    tuned = sf.tune(own, PRODUCT, "y", trials=6, space=CROSSES)
    return own, regressor().fit(PRODUCT, target="y"), tuned


def single_run(tuned, **settings):
    """An estimator that takes the first run of the model only."""
    parameters = {**tuned.estimator.get_params(deep=False), "members": 1, "refit_on_all": False}
    return type(tuned.estimator)(**{**parameters, **settings})


class TestSearchOfAFit:
    """A study starts from what a fit finds."""

    def test_the_first_trial_is_what_a_fit_finds_crosses_included(self, searched):
        own, fit, tuned = searched
        assert fit.schema_.names == ("x", "z", "w", "x × z") and len(fit.fitted_.search) > 3
        first = sf.tune(own, PRODUCT, "y", trials=1, space=CROSSES)
        assert first.params == {"learning_rate": 0.01, "crosses": True}
        assert first.value == tuned.history["value"][0] == rmse_of(fit)
        assert np.array_equal(first.estimator.predict(PRODUCT), fit.predict(PRODUCT))
        tried = [[(str(entry), entry.loss) for entry in each.fitted_.search] for each in (first.estimator, fit)]
        assert tried[0] == tried[1]
        assert first.estimator.fitted_.encoder.notes == fit.fitted_.encoder.notes

    def test_crosses_are_switched_off_in_some_trials(self, searched):
        _, _, tuned = searched
        values = {has: [] for has in (True, False)}
        for has_crosses, value, state in zip(
            *(tuned.history[name] for name in ("crosses", "value", "state")), strict=True
        ):
            values[has_crosses] += [value] if state == "complete" else []
        assert min(values[False]) > 1.2 * max(values[True])
        assert tuned.params["crosses"] and "x × z" in tuned.estimator.schema_.names
        assert "x × z" in tuned.estimator.schema.names and tuned.estimator.effort == "fast"

    def test_without_crosses_there_is_none_in_the_model(self):
        tuned = sf.tune(regressor(), PRODUCT, "y", trials=1, space={**CROSSES, "crosses": [False]})
        assert tuned.params["crosses"] is False and not tuned.estimator.schema_.crosses
        assert tuned.value == rmse_of(tuned.estimator)

    def test_none_are_searched_if_there_are_none(self):
        tuned = sf.tune(regressor(crosses=None), PRODUCT, "y", trials=1, space=KEEP_K)
        assert "crosses" not in tuned.params and not tuned.estimator.schema_.crosses

    @pytest.mark.parametrize("crosses", [True, False])
    @pytest.mark.parametrize("metric", ["loss", "mae"])
    def test_the_value_is_that_of_the_first_run_of_the_model(self, crosses, metric):
        held_out = product_table(400, seed=1)
        space = {**CROSSES, "learning_rate": [0.02], "crosses": [crosses]}
        tuned = sf.tune(regressor(), PRODUCT, "y", trials=1, space=space, eval_set=held_out, metric=metric)
        if metric == "loss":
            assert tuned.value == rmse_of(tuned.estimator)
        again = single_run(tuned).fit(PRODUCT, target="y", eval_set=held_out)
        function = metrics.rmse if metric == "loss" else metrics.mae
        assert tuned.value == pytest.approx(function(held_out["y"], again.predict(held_out)), rel=1e-5)

    def test_the_result_is_never_worse_than_a_fit(self, searched):
        _, fit, tuned = searched
        assert tuned.value == rmse_of(tuned.estimator) == min(v for v in tuned.history["value"] if v) <= rmse_of(fit)
        worse = sf.tune(regressor(), PRODUCT, "y", trials=4, space={**RATES, "learning_rate": [0.01, 1e-5]})
        assert worse.value == rmse_of(worse.estimator) == rmse_of(fit) and worse.params["learning_rate"] == 0.01
        assert np.array_equal(worse.estimator.predict(PRODUCT), fit.predict(PRODUCT))

    def test_another_setting_gets_as_many_members_as_the_fit(self):
        own = regressor(members=2)
        fit = regressor(members=2).fit(PRODUCT, target="y")
        tuned = sf.tune(own, PRODUCT, "y", trials=1, space={**CROSSES, "learning_rate": [0.02]})
        assert fit.fitted_.training.members == tuned.estimator.fitted_.training.members == 2
        assert tuned.estimator.members == 2 and tuned.estimator.fitted_.model == fit.fitted_.model
        alone = single_run(tuned).fit(PRODUCT, target="y")
        assert rmse_of(alone) == tuned.value == rmse_of(tuned.estimator)
        assert not np.array_equal(alone.predict(PRODUCT), tuned.estimator.predict(PRODUCT))

    def test_a_mixture_of_settings_is_that_of_the_fit(self, monkeypatch):
        """Its first member is the best setting alone, which the first trial is."""
        monkeypatch.setattr(of_fit, "MIN_GAIN_OF_MIXTURE", -1.0)
        monkeypatch.setattr(of_fit, "MAX_MIXED", 10_000)
        monkeypatch.setattr(of_fit, "MAX_NUMBERS_OF_MIXTURE", 1 << 30)
        own, space = sf.SplineFMRegressor(epochs=2, n_jobs=1), {**CROSSES, "third": None}
        fit = sf.SplineFMRegressor(epochs=2, n_jobs=1).fit(PRODUCT, target="y")
        one, other = (
            sf.tune(own, PRODUCT, "y", trials=1, space={**space, "learning_rate": [rate]}) for rate in (0.01, 0.02)
        )
        assert np.array_equal(one.estimator.predict(PRODUCT), fit.predict(PRODUCT))
        assert one.value == rmse_of(fit) == rmse_of(one.estimator) and other.value == rmse_of(other.estimator)
        n = fit.fitted_.training.members
        assert n > other.estimator.members > 1 and n % other.estimator.members == 0

    def test_a_mixture_stays_small(self, monkeypatch):
        monkeypatch.setattr(of_fit, "MIN_GAIN_OF_MIXTURE", -1.0)
        monkeypatch.setattr(of_fit, "MAX_MIXED", 10_000)
        monkeypatch.setattr(of_fit, "MAX_NUMBERS_OF_MIXTURE", 1 << 30)
        fit = sf.SplineFMRegressor(epochs=2, n_jobs=1).fit(PRODUCT, target="y")
        monkeypatch.setattr(of_fit, "MAX_NUMBERS_OF_MIXTURE", 100)
        small = sf.SplineFMRegressor(epochs=2, n_jobs=1).fit(PRODUCT, target="y")
        assert small.fitted_.training.members < fit.fitted_.training.members
        assert small.fitted_.encoder.layout.n_features <= fit.fitted_.encoder.layout.n_features

    def test_a_fit_chooses_the_model_that_is_tuned(self):
        own = sf.SplineFMRegressor(epochs=2, n_jobs=1)
        fit = sf.SplineFMRegressor(epochs=2, n_jobs=1).fit(PRODUCT, target="y")
        tuned = sf.tune(own, PRODUCT, "y", trials=1, space={**RATES, "learning_rate": [0.01], "third": None})
        assert np.array_equal(tuned.estimator.predict(PRODUCT), fit.predict(PRODUCT))
        assert own.model is None and tuned.estimator.model is not None and tuned.value == rmse_of(fit)

    def test_a_resumed_study_gives_the_same_model(self, searched, tmp_path):
        own, fit, _ = searched
        space = {**RATES, "learning_rate": [0.01, 1e-5]}
        for trials_in_all in (1, 2):
            tuned = sf.tune(own, PRODUCT, "y", trials=trials_in_all, space=space, storage=tmp_path / "s.journal")
            assert np.array_equal(tuned.estimator.predict(PRODUCT), fit.predict(PRODUCT))

    @pytest.mark.parametrize("limits", [{"timeout": 1e-9}, {}], ids=["timeout", "time_limit"])
    def test_the_search_takes_a_part_of_the_time(self, limits):
        own = regressor() if limits else regressor(time_limit=1e-9)
        tuned = sf.tune(own, PRODUCT, "y", trials=1, space=CROSSES, **limits)
        assert not tuned.estimator.schema_.crosses and tuned.history["epochs"] == [3]
        assert tuned.value == rmse_of(tuned.estimator)

    def test_ctrl_c_in_the_search_is_raised(self, monkeypatch):
        found = trials.find_setting

        def pressed(*args):
            return replace(found(*args), is_interrupted=True)

        monkeypatch.setattr(trials, "find_setting", pressed)
        with pytest.raises(KeyboardInterrupt):
            sf.tune(regressor(), PRODUCT, "y", trials=1, space=CROSSES)

    def test_ctrl_c_while_other_members_are_fitted_keeps_the_first(self, monkeypatch):
        def pressed(self, settings, folds):
            raise KeyboardInterrupt

        base = trials.Experiment.find_base

        def then_pressed(self, deadline):
            found = base(self, deadline)
            monkeypatch.setattr(race.Race, "run", pressed)
            return found

        monkeypatch.setattr(trials.Experiment, "find_base", then_pressed)
        with pytest.warns(UserWarning, match=r"^interrupted: the best setting of the search so far is kept"):
            own = regressor(members=2)
            tuned = sf.tune(own, PRODUCT, "y", trials=1, space={**CROSSES, "learning_rate": [0.02]})
        assert tuned.estimator.fitted_.training.members == 1 and tuned.value == rmse_of(tuned.estimator)

    def test_mistakes_are_told_before_the_search(self, monkeypatch):
        monkeypatch.setattr(trials.Experiment, "find_base", lambda *args: 1 / 0)
        for wrong in ({"space": {"crosses": [3]}}, {"prune": "median"}, {"space": {"segments": ["by column"]}}):
            with pytest.raises(ValueError, match=r"(crosses|prune|segments) must be"):
                sf.tune(regressor(), PRODUCT, "y", trials=1, **wrong)

    def test_the_search_is_told(self, capsys):
        sf.tune(regressor(), PRODUCT, "y", trials=1, space=CROSSES, verbose=True)
        lines = capsys.readouterr().err.splitlines()
        # A slow search shows what it is doing, too.
        search, cross, trial = (line for line in lines if not line.startswith("search, "))
        assert search.startswith("search: tried ") and cross.startswith("'x × z' found: ")
        assert trial.startswith("trial 0 (1 of 1)  RMSE 0.")


def count_encodings(monkeypatch):
    """Return a list that grows with every table that trials encode; the final fit does not count."""
    made, make, fit = [], chunks_module.Chunks.__init__, tune.fit_from_study
    monkeypatch.setattr(chunks_module.Chunks, "__init__", lambda *args: made.append(1) or make(*args))

    def fit_uncounted(*args):
        n_made = len(made)
        fit(*args)
        del made[n_made:]

    monkeypatch.setattr(tune, "fit_from_study", fit_uncounted)
    return made


class TestTables:
    def test_y_apart_from_the_table_gives_the_same_trials(self):
        named = sf.tune(regressor(), NUMBERS, "y", trials=3, space=KEEP_K)
        apart = sf.tune(
            regressor(), pd.DataFrame({"x": TABLE["x"], "c": TABLE["c"]}), TABLE["y"], trials=3, space=KEEP_K
        )
        assert named.history["value"] == apart.history["value"]
        rows = pd.DataFrame({"x": [0.1], "c": ["a"]})
        assert apart.estimator.predict(rows) == named.estimator.predict(rows)

    def test_labels_from_a_file(self, tmp_path):
        pq.write_table(pa.table(LABELS), tmp_path / "t.parquet")
        tuned = sf.tune(classifier(), str(tmp_path / "t.parquet"), "label", trials=2, space=KEEP_K)
        best = min(epoch.validation_loss for epoch in tuned.estimator.history_)
        assert tuned.value == best and tuned.summary.metric == "logloss"
        assert tuned.estimator.classes_.tolist() == ["no", "yes"]
        labels = sf.tune(classifier(), {"x": TABLE["x"], "c": TABLE["c"]}, TABLE["label"], trials=2, space=KEEP_K)
        assert labels.history["value"] == tuned.history["value"]

    def test_validation_is_a_table_of_ones_own(self):
        other = clicks_table(200, seed=1)
        own = {name: other[name] for name in ("x", "c", "y")}
        tuned = sf.tune(regressor(), NUMBERS, "y", trials=2, space=KEEP_K, eval_set=own)
        error = tuned.estimator.predict(own) - own["y"]
        assert tuned.value == pytest.approx(np.sqrt(np.mean(error**2)), rel=1e-5)
        assert tuned.estimator.fitted_.encoder.n_rows == 300

    def test_weights_of_rows_count(self):
        heavy = {**NUMBERS, "w": np.where(TABLE["c"] == "a", 1.0, 0.0)}
        even = sf.tune(regressor(), NUMBERS, "y", trials=1, space=KEEP_K)
        tuned = sf.tune(regressor(), heavy, "y", sample_weight="w", trials=1, space=KEEP_K)
        apart = {name: NUMBERS[name] for name in ("x", "c")}
        arrays = sf.tune(regressor(), apart, TABLE["y"], sample_weight=heavy["w"], trials=1, space=KEEP_K)
        assert tuned.value == arrays.value != even.value
        assert "w" not in tuned.estimator.fitted_.encoder.schema.names

    def test_a_schema_is_encoded_once(self, monkeypatch):
        made = count_encodings(monkeypatch)
        tuned = sf.tune(
            regressor(), NUMBERS, "y", trials=8, space={**KEEP_K, "degree": [3], "segments": ["schema", "8"]}
        )
        kinds = {(s, t) for s, t in zip(tuned.history["segments"], tuned.history["transform"], strict=True)}
        assert len(made) == len(kinds) < 8

    def test_all_trials_are_judged_on_the_same_rows(self, monkeypatch):
        table = {name: np.tile(column, 2) for name, column in NUMBERS.items()}  # every row has a copy
        estimator = regressor(random_state=0)
        task, _ = open_task(estimator, table, None, None, "y", None)
        experiment = trials.Experiment(task, estimator.model, "loss")
        assert experiment.chunks.held_out.copies is not None
        monkeypatch.setattr(chunks_module, "MEMORY_BYTES", 0)  # too wide to be kept, and to look for copies
        wide = experiment._chunks(sf.Schema([sf.Numerical("x", basis=sf.BSpline(segments=50)), sf.Categorical("c")]))
        np.testing.assert_array_equal(wide.validation.y, experiment.chunks.validation.y)

    def test_what_does_not_fit_in_memory_is_encoded_again(self, monkeypatch):
        made = count_encodings(monkeypatch)
        monkeypatch.setattr(trials, "MEMORY_BYTES", 1)
        space = {**RATES, "learning_rate": None, "segments": ["schema", "8"]}
        segments = sf.tune(regressor(effort="fast"), NUMBERS, "y", trials=6, space=space).history["segments"]
        changes = sum(one != other for one, other in pairwise(segments))
        assert len(made) == 1 + changes > 2


class TestMetrics:
    def test_more_of_some_metrics_is_better(self):
        rows = clicks_table(200, seed=1)
        held_out = ({name: rows[name] for name in ("x", "c")}, rows["label"])
        X, y = {name: TABLE[name] for name in ("x", "c")}, TABLE["label"]
        tuned = sf.tune(classifier(), X, y, trials=4, space=KEEP_K, metric="auc", eval_set=held_out)
        assert tuned.value == max(tuned.history["value"]) and tuned.summary.maximize
        predicted = tuned.estimator.predict_proba(held_out[0])[:, 1]
        assert tuned.value == pytest.approx(metrics.auc(held_out[1] == "yes", predicted), rel=1e-5)

    @pytest.mark.parametrize("metric", ["mae", "r2", "rmse"])
    def test_metrics_are_in_the_unit_of_the_target(self, metric):
        shifted = {**NUMBERS, "y": 100.0 + 10.0 * TABLE["y"]}
        own = clicks_table(200, seed=1)
        held_out = {"x": own["x"], "c": own["c"], "y": 100.0 + 10.0 * own["y"]}
        tuned = sf.tune(regressor(), shifted, "y", trials=1, space=KEEP_K, metric=metric, eval_set=held_out)
        expected = getattr(metrics, metric)(held_out["y"], tuned.estimator.predict(held_out))
        assert tuned.value == pytest.approx(expected, rel=1e-4)

    def test_counts(self):
        counts = {**NUMBERS, "y": np.random.default_rng(0).poisson(np.exp(TABLE["y"]))}
        tuned = sf.tune(regressor(loss="poisson"), counts, "y", trials=2, space=KEEP_K)
        assert tuned.value == min(epoch.validation_loss for epoch in tuned.estimator.history_)

    def test_a_quantile_is_compared_by_its_pinball_loss(self):
        table = {**NUMBERS, "y": 100.0 + 10.0 * TABLE["y"]}
        own = clicks_table(200, seed=1)
        held_out = {"x": own["x"], "c": own["c"], "y": 100.0 + 10.0 * own["y"]}
        estimator = regressor(loss="quantile", quantile=0.8)
        tuned = sf.tune(estimator, table, "y", trials=1, space=KEEP_K, eval_set=held_out)
        assert tuned.summary.metric == "pinball loss" and tuned.estimator.quantile == 0.8
        expected = metrics.pinball_loss(held_out["y"], tuned.estimator.predict(held_out), quantile=0.8)
        assert tuned.value == pytest.approx(expected, rel=1e-4)


class TestEndings:
    def test_trials_that_lag_behind_are_pruned(self):
        space = {**RATES, "learning_rate": [0.02, 1e-6]}
        tuned = sf.tune(regressor(epochs=5), NUMBERS, "y", trials=14, space=space)
        rates = {state: set() for state in ("complete", "pruned")}
        for state, rate in zip(tuned.history["state"], tuned.history["learning_rate"], strict=True):
            rates[state].add(rate)
        assert rates["pruned"] == {1e-6}
        pruned = [i for i, state in enumerate(tuned.history["state"]) if state == "pruned"]
        assert all(tuned.history["epochs"][i] < 5 and tuned.history["value"][i] > tuned.value for i in pruned)
        plain = sf.tune(regressor(epochs=5), NUMBERS, "y", trials=14, space=space, prune=False)
        assert set(plain.history["state"]) == {"complete"}

    def test_a_pruner_of_ones_own(self):
        pruner = optuna.pruners.ThresholdPruner(upper=1e9, n_warmup_steps=1)
        assert sf.tune(regressor(), NUMBERS, "y", trials=1, space=KEEP_K, prune=pruner).value > 0
        with pytest.raises(ValueError, match=r"none of 2 trials is complete \(pruned\)"):
            sf.tune(regressor(), NUMBERS, "y", trials=2, space=KEEP_K, prune=optuna.pruners.ThresholdPruner(upper=1e-9))

    @pytest.mark.filterwarnings("ignore:overflow")
    def test_a_trial_that_diverges_does_not_end_the_study(self):
        tuned = sf.tune(regressor(), NUMBERS, "y", trials=8, space={**RATES, "learning_rate": [0.005, 1e30]})
        states = dict(zip(tuned.history["learning_rate"], tuned.history["state"], strict=True))
        assert states == {0.005: "complete", 1e30: "diverged"}
        (diverged, *_) = (trial for trial in tuned.study.trials if trial.params["learning_rate"] > 1)
        assert "lower learning_rate" in diverged.user_attrs["reason"]
        with pytest.raises(ValueError, match=r"none of 2 trials is complete .*lower learning_rate"):
            sf.tune(regressor(learning_rate=1e30), NUMBERS, "y", trials=2, space={**RATES, "learning_rate": [1e30]})

    def test_ctrl_c_keeps_what_is_done(self, monkeypatch):
        keyboard(monkeypatch, 3)
        tuned = sf.tune(regressor(), NUMBERS, "y", trials=9, space=KEEP_K)
        assert tuned.history["state"] == ["complete", "complete", "failed"]
        assert tuned.estimator.fitted_.study == tuned.summary

    def test_ctrl_c_inside_of_training_ends_the_search_too(self, monkeypatch):
        train = trials.train
        calls = []

        def interrupted(*args, **options):
            calls.append(1)
            return train(*args, **options)._replace(stop=StopReason.INTERRUPT if len(calls) == 2 else None)

        monkeypatch.setattr(trials, "train", interrupted)
        tuned = sf.tune(regressor(effort="fast"), NUMBERS, "y", trials=9, space=KEEP_K)
        assert tuned.history["state"] == ["complete", "failed"]

    def test_ctrl_c_in_the_final_fit_keeps_its_best_epoch(self, monkeypatch):
        train = fitting.train

        def interrupted(*args, **options):
            kept = "the best epoch so far is kept (2 of 3)"
            return train(*args, **options)._replace(stop=StopReason.INTERRUPT, kept=kept)

        monkeypatch.setattr(fitting, "train", interrupted)
        with pytest.warns(UserWarning, match=r"^interrupted: the best epoch so far is kept \(2 of 3\)"):
            tuned = sf.tune(regressor(effort="fast"), NUMBERS, "y", trials=1, space=KEEP_K)
        assert tuned.estimator.predict(NUMBERS).shape == (300,)

    def test_ctrl_c_before_anything_is_done_is_raised(self, monkeypatch):
        keyboard(monkeypatch, 1)
        with pytest.raises(KeyboardInterrupt):
            sf.tune(regressor(), NUMBERS, "y", trials=9, space=KEEP_K)

    def test_the_time_is_limited_but_for_the_first_trial(self):
        tuned = sf.tune(regressor(), NUMBERS, "y", trials=500, timeout=1e-9, space=KEEP_K)
        assert tuned.history["state"] == ["complete"] and tuned.history["epochs"] == [3]

    def test_a_trial_ends_where_the_time_does(self, monkeypatch):
        from splinefm.tuning.studies import StudyRunner

        left = iter([True] * 3 + [True, False])  # the first trial needs no time; the second begins, and is late then
        monkeypatch.setattr(StudyRunner, "_in_time", lambda self: next(left, False))
        tuned = sf.tune(regressor(), NUMBERS, "y", trials=9, space=KEEP_K)
        assert tuned.history["state"] == ["complete", "failed"] and tuned.history["epochs"][1] < 3
        assert tuned.study.trials[1].user_attrs["reason"] == "OutOfTime"

    def test_an_error_in_a_trial_says_where(self, monkeypatch):
        def broken(*args, **options):
            raise ZeroDivisionError("no")

        monkeypatch.setattr(trials, "train", broken)
        with pytest.raises(ZeroDivisionError) as caught:
            sf.tune(regressor(), NUMBERS, "y", trials=2, space=KEEP_K)
        assert "in trial 0 with" in caught.value.__notes__[0]


def keyboard(monkeypatch, number):
    """Ctrl-C is pressed in the trial of this number, counted from 1."""
    run, calls = trials.Experiment.run, []

    def pressed(self, *args):
        calls.append(1)
        if len(calls) == number:
            raise KeyboardInterrupt
        return run(self, *args)

    monkeypatch.setattr(trials.Experiment, "run", pressed)


class TestWords:
    def test_a_line_for_every_trial_on_request(self, capsys):
        sf.tune(regressor(), NUMBERS, "y", trials=2, space=KEEP_K, verbose=True)
        out, err = capsys.readouterr()
        lines = err.splitlines()
        assert not out and len(lines) == 2
        assert lines[0].startswith("trial 0 (1 of 2)  RMSE 0.") and "best 0." in lines[1] and "0:00:00 left" in lines[1]

    def test_nothing_otherwise_and_the_words_of_optuna_come_back(self, capsys):
        before = optuna.logging.get_verbosity()
        sf.tune(regressor(), NUMBERS, "y", trials=1, space=KEEP_K)
        assert capsys.readouterr() == ("", "") and optuna.logging.get_verbosity() == before

    def test_without_optuna_the_message_says_how_to_get_it(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "optuna", None)
        monkeypatch.delitem(sys.modules, "splinefm.tuning.studies", raising=False)
        monkeypatch.delattr("splinefm.tuning.studies", raising=False)
        with pytest.raises(ModuleNotFoundError, match=r'pip install "splinefm\[tune\]"'):
            sf.tune(regressor(), NUMBERS, "y")


class TestRefusals:
    @pytest.mark.parametrize(
        ("settings", "message"),
        [
            ({"trials": 0}, "trials must be"),
            ({"trials": 2.5}, "trials must be"),
            ({"timeout": 0}, "timeout must be a number of seconds above 0"),
            ({"timeout": "1h"}, "timeout must be"),
            ({"seed": -1}, "seed must be"),
            ({"metric": "auc"}, "metric must be one of loss, rmse, mae, r2 with the squared loss, got 'auc'"),
            ({"prune": "median"}, "prune must be True, False or an Optuna pruner"),
            ({"validation": 0}, "there are none; increase validation, for example to 0.2"),
            ({"validation": 1.5}, "validation must be a share"),
            ({"space": {"learningrate": [0.1]}}, "'learningrate', which cannot be tuned; nearest: 'learning_rate'"),
            ({"space": {"learningrate": None}}, "cannot be tuned"),
            ({"space": {"seed": [1, 2]}}, "cannot be tuned"),
            ({"space": {"k": []}}, "space\\['k'\\] is empty"),
            ({"space": {"k": [0]}}, "space\\['k'\\] has the value 0: k must be"),
            ({"space": {"k": 4}}, "must be a list of values, an Optuna distribution"),
            ({"space": {"segments": [(8, 32)]}}, "a value must be text, a number"),
            ({"space": {"segments": ["8-32"]}}, 'resolutions such as "8\\+32\\+128"'),
            ({"space": {"degree": [9]}}, "space\\['degree'\\] has the value 9: degree must be"),
            ({"space": {"transform": ["rank"]}}, "transform must be one of 'auto', 'quantile'"),
            ({"space": {"learning_rate": FloatDistribution(-1.0, 1.0)}}, "has the value -1.0: learning_rate must be"),
            ({"space": {"degree": IntDistribution(1, 7)}}, "has the value 7: degree must be"),
            ({"space": [("k", [4])]}, "space must be a mapping"),
            ({"space": {**RATES, "learning_rate": None}}, "there is nothing to tune"),
        ],
    )
    def test_what_cannot_be_is_refused_with_its_name(self, settings, message):
        with pytest.raises(ValueError, match=message):
            sf.tune(regressor(), NUMBERS, "y", **settings)

    def test_other_estimators_are_refused(self):
        for wrong in (sf.SplineFMRegressor, sf.FM(k=2), None):
            with pytest.raises(TypeError, match=r"estimator must be a sf\.SplineFMClassifier"):
                sf.tune(wrong, NUMBERS, "y")

    def test_a_target_that_is_not_there_is_told(self):
        with pytest.raises(ValueError, match="'z'"):
            sf.tune(regressor(), NUMBERS, "z")
        with pytest.raises(ValueError, match="requires y"):
            sf.tune(regressor(), NUMBERS, None)
