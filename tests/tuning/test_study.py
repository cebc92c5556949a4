"""The study that stays with a model: in its file, in its pictures."""

from dataclasses import replace

import numpy as np
import pytest

import splinefm as sf
from splinefm.plots.training import find_study
from splinefm.store import model_file as describe
from splinefm.store import model_file as restore
from splinefm.train import results as module
from splinefm.train.results import StudySummary, TrialSummary

ROWS = np.random.default_rng(0).normal(size=200)
TABLE = {"x": ROWS, "y": np.sin(2 * ROWS)}


@pytest.fixture(scope="module")
def tuned():
    estimator = sf.SplineFMRegressor(sf.FM(k=2), epochs=2, n_jobs=1)
    return sf.tune(estimator, TABLE, "y", trials=7, space={"k": None})


def make_study(values, maximize=False, **params):
    rows = [
        TrialSummary(i, "complete", value, 3, 0.1, tuple((name, column[i]) for name, column in params.items()))
        for i, value in enumerate(values)
    ]
    best = int(np.argmax(values) if maximize else np.argmin(values))
    return StudySummary("s", "RMSE", maximize, best, tuple(rows))


class TestFile:
    def test_a_model_keeps_its_study(self, tuned, tmp_path):
        tuned.estimator.fitted_.save(tmp_path / "m.sfm")
        again = sf.load(tmp_path / "m.sfm")
        assert again.study == tuned.summary == tuned.estimator.fitted_.study
        assert dict(again.study.best_trial.params) == tuned.params
        assert again.study.table == tuned.history

    def test_values_of_every_kind_come_back(self, tuned, tmp_path):
        study = make_study([0.5, 0.4], a=[True, None], b=["ä", "8+32"], c=[1, 2], d=[1e-5, 0.25])
        pruned = TrialSummary(2, "pruned", None, 0, 0.0, ())
        study = replace(study, trials=(*study.trials, pruned))
        replace(tuned.estimator.fitted_, study=study).save(tmp_path / "m.sfm")
        again = sf.load(tmp_path / "m.sfm").study
        assert again == study and again.table["a"] == [True, None, None]

    def test_a_model_without_one_has_none(self, tuned, tmp_path):
        replace(tuned.estimator.fitted_, study=None).save(tmp_path / "m.sfm")
        assert sf.load(tmp_path / "m.sfm").study is None

    def test_what_is_no_study_is_not_written(self, tuned, tmp_path):
        for wrong in (tuned.summary.trials[0], "study", {"best": 1}):
            with pytest.raises(sf.ModelFileError, match="study"):
                replace(tuned.estimator.fitted_, study=wrong).save(tmp_path / "m.sfm")
        assert not (tmp_path / "m.sfm").exists()

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"trials": ["x"]}, "trials of StudySummary is"),
            ({"best": 99}, "the best trial, 99"),
            ({"name": None}, "name of StudySummary is"),
            ({"surprise": 1}, "no setting 'surprise'"),
        ],
    )
    def test_a_damaged_one_is_told(self, tuned, change, message):
        described = {**describe.describe(tuned.summary, "study", "the study", {}), **change}
        with pytest.raises(ValueError, match=message):
            restore.restore(described, {}, "study")

    def test_more_rows_do_not_take_it_away(self, tuned):
        estimator = sf.SplineFMRegressor(**tuned.estimator.get_params(deep=False))
        estimator.__dict__.update(tuned.estimator.__dict__)
        assert estimator.partial_fit(TABLE, target="y").fitted_.study == tuned.summary


def test_of_a_very_long_study_the_best_stay(monkeypatch):
    monkeypatch.setattr(module, "MAX_TRIALS", 3)
    rows = list(make_study([0.5, 0.1, 0.9, 0.2, 0.4]).trials)
    rows.append(TrialSummary(5, "pruned", 0.01, 1, 0.1, ()))
    assert [trial.number for trial in module.limited(rows, maximize=False)] == [1, 3, 4]
    assert [trial.number for trial in module.limited(rows, maximize=True)] == [0, 2, 4]


def test_a_study_has_a_best_trial():
    with pytest.raises(ValueError, match="the best trial, 5, is not one"):
        replace(make_study([0.5, 0.4]), best=5)


class TestPictures:
    pytest.importorskip("matplotlib")
    plots = sf.plots

    @pytest.mark.thorough
    def test_trials_and_what_was_searched(self, tuned):
        axes = self.plots.study(tuned)
        names = [ax.get_xlabel() for ax in axes]
        assert names[0] == "trial" and {"learning_rate", "segments", "degree"} <= set(names) and "k" not in names
        labels = [text.get_text() for text in axes[0].get_legend().get_texts()]
        assert f"best: trial {tuned.summary.best}, {tuned.value:.4g}" in labels and axes[0].get_ylabel() == "RMSE"
        axes[0].figure.savefig("/dev/null", format="png")

    @pytest.mark.parametrize("maximize", [False, True])
    def test_the_best_so_far_only_gets_better(self, maximize):
        (ax,) = self.plots.study(make_study([0.5, 0.9, 0.2, 0.7, 0.1], maximize, k=[4] * 5))
        line = next(line for line in ax.get_lines() if line.get_label() == "best so far")
        assert line.get_ydata().tolist() == ([0.5, 0.9, 0.9, 0.9, 0.9] if maximize else [0.5, 0.5, 0.2, 0.2, 0.1])

    def test_sources(self, tuned):
        for source in (tuned, tuned.estimator, tuned.estimator.fitted_, tuned.summary):
            assert find_study(source) is tuned.summary

    def test_numbers_are_on_a_scale_and_choices_side_by_side(self):
        values = np.linspace(1.0, 0.5, 12).tolist()
        study = make_study(values, l2=np.geomspace(1e-6, 1e-2, 12).tolist(), k=[4, 8, 16] * 4)
        _, l2, k = self.plots.study(study)
        assert l2.get_xscale() == "log" and [text.get_text() for text in k.get_xticklabels()] == ["4", "8", "16"]

    def test_few_continuous_numbers_are_on_a_scale_too_and_choices_at_their_values(self):
        study = make_study([1.0, 0.9, 0.8], l2=[1e-4, 1.9e-4, 7e-4], zero=[0.0, 0.5, 0.2])
        _, l2, zero = self.plots.study(study)
        assert (l2.get_xscale(), zero.get_xscale()) == ("log", "linear")
        np.testing.assert_allclose(l2.get_lines()[0].get_xdata(), [1e-4, 1.9e-4, 7e-4])
        _, k = self.plots.study(make_study(np.linspace(1.0, 0.5, 9).tolist(), k=[8] * 8 + [16]))
        drawn = np.concatenate([line.get_xdata() for line in k.get_lines()])
        assert (np.abs(drawn - drawn.round()) <= 0.1).all()

    @pytest.mark.parametrize("maximize", [False, True])
    def test_outliers_are_in_the_legend(self, maximize):
        for values, there in (([0.5] * 5 + [9.0, -9.0], True), ([0.5, 0.4, 0.3], False)):
            (ax,) = self.plots.study(make_study(values, maximize))
            labels = [text.get_text() for text in ax.get_legend().get_texts()]
            assert ("outlier" in labels) is there

    def test_one_axes_gets_the_trials(self, tuned):
        from matplotlib.figure import Figure

        ax = Figure().subplots()
        assert self.plots.study(tuned, [ax]) == [ax] and ax.get_xlabel() == "trial"
        with pytest.raises(ValueError, match=r"axes must have 1 or .* elements, one per panel, got 2"):
            self.plots.study(tuned, [ax, ax])

    def test_refusals(self, tuned):
        with pytest.raises(ValueError, match="this model has no study"):
            self.plots.study(replace(tuned.estimator.fitted_, study=None))
        with pytest.raises(TypeError, match=r"study must be a result of sf\.tune, .* got dict"):
            self.plots.study({})
