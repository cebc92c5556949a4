"""The tabular experiment: what each arm is given, and that reports say what the results say."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sklearn.metrics import log_loss, root_mean_squared_error

import splinefm as sf
from paper.harness import Results
from paper.tabular import report as tabular_report
from paper.tabular import run as tabular
from paper.tabular.arms import PaperArm, metric, targets
from paper.tabular.data import SETS, DataSet
from paper.tabular.ours import Defaults, Tuned, describe_estimator, make_estimator
from paper.tabular.trees import Encoder, LightGBM

SETTINGS: dict[str, Any] = {
    "sets": ["adult", "song"],
    "set": "adult",
    "trials": 3,
    "paper_seeds": 2,
    "seeds": 3,
    "variant_seeds": 1,
    "rows": 0,
    "space": {"k": [3, 3], "learning_rate": [0.05, 0.1], "epochs": [3, 4], "knots": [4, 6], "bins": [4, 8]},
    "batches": {"adult": [16, 32]},
}
ADULT = SETS["adult"]


def people(rows: int, seed: int = 0) -> pa.Table:
    """Columns as in Adult; who is older or has gains is richer."""
    rng = np.random.default_rng(seed)
    age, gain = rng.uniform(20, 80, rows), np.where(rng.random(rows) < 0.8, 0.0, rng.uniform(1e3, 1e4, rows))
    score = (age - 50) / 10 + 2.0 * (gain > 0)
    return pa.table(
        {
            "age": age,
            "capital-gain": gain,
            "capital-loss": np.zeros(rows) + (rng.random(rows) < 0.1) * 1000.0,
            "sex": rng.choice(["f", "m"], rows),
            "income": (rng.random(rows) < 1 / (1 + np.exp(-score))).astype(float),
        }
    )


TRAIN, TEST = people(600), people(300, seed=1)


def base_loss() -> float:
    """The loss of the best constant."""
    y = targets(ADULT, TEST)
    return metric(ADULT, y, np.full(len(y), targets(ADULT, TRAIN).mean()), 1.0)


def test_metrics_are_those_of_scikit_learn() -> None:
    y, p = np.array([0.0, 1.0, 1.0]), np.array([0.2, 0.7, 1.0])
    assert metric(ADULT, y, p, 1.0) == pytest.approx(log_loss(y, p))
    assert metric(SETS["california"], y, p, 2.0) == pytest.approx(root_mean_squared_error(y, p) / 2.0)


@pytest.mark.parametrize("encoding", ["uniform", "quantile", "splines"])
class TestPaperArm:
    def test_is_tuned_within_the_space_and_learns(self, encoding: Any) -> None:
        arm = PaperArm(encoding)
        found = arm.tune(ADULT, TRAIN, TEST, SETTINGS)
        params = found["params"]
        assert params["k"] == 3 and 3 <= params["epochs"] <= 4 and 16 <= params["batch_size"] <= 32
        assert found["finished"] >= 1
        prediction = arm.predict(ADULT, params, TRAIN, TEST, seed=0, threads=1)
        assert metric(ADULT, targets(ADULT, TEST), prediction, 1.0) < base_loss() - 0.05

    def test_the_value_of_a_trial_is_the_loss_of_its_last_epoch(self, encoding: Any) -> None:
        arm = PaperArm(encoding)
        found = arm.tune(ADULT, TRAIN, TEST, SETTINGS | {"trials": 1})
        prediction = arm.predict(ADULT, found["params"], TRAIN, TEST, seed=0, threads=1)
        assert found["value"] == pytest.approx(metric(ADULT, targets(ADULT, TEST), prediction, 1.0), rel=1e-5)

    def test_zeros_that_mean_none_have_a_parameter(self, encoding: Any) -> None:
        fields = {item.name: item for item in PaperArm(encoding)._fields(ADULT, {"bins": 5, "knots": 5}, TRAIN.schema)}
        assert list(fields) == ["age", "capital-gain", "capital-loss", "sex"]
        assert fields["capital-gain"].special == fields["capital-loss"].special == (0.0,)  # type: ignore[union-attr]
        assert fields["age"].special == ()  # type: ignore[union-attr]
        assert isinstance(fields["sex"], sf.Categorical)


def test_the_paper_has_an_ffm_for_few_columns_and_an_fm_for_many() -> None:
    arm = PaperArm("splines")
    wide = pa.table({f"x{i}": [0.0] for i in range(29)})
    assert isinstance(arm._model(TRAIN, 3), sf.FFM) and isinstance(arm._model(wide, 3), sf.FM)


class TestLightGBM:
    def test_codes_categories_of_the_training_rows(self) -> None:
        encode = Encoder(ADULT, TRAIN)
        rows = encode(TEST.slice(0, 2).set_column(3, "sex", pa.array(["m", "x"])))
        assert rows.categorical == [3] and rows.X.shape == (2, 4)
        names = TRAIN["sex"].unique().to_pylist()
        assert rows.X[0, 3] == names.index("m") and np.isnan(rows.X[1, 3])

    def test_is_tuned_and_learns(self) -> None:
        arm = LightGBM()
        found = arm.tune(ADULT, TRAIN, TEST, SETTINGS | {"trials": 2})
        assert found["finished"] == 2
        prediction = arm.predict(ADULT, found["params"], TRAIN, TEST, seed=0, threads=1)
        assert metric(ADULT, targets(ADULT, TEST), prediction, 1.0) < base_loss() - 0.05


class TestOurs:
    def test_parameters_survive_the_results_file(self) -> None:
        schema = sf.Schema([sf.Numerical("age", basis=sf.BSpline(8, 1)), sf.Categorical("sex")])
        given = sf.SplineFMClassifier(
            sf.FM(k=2), schema=schema, l2={"age": 1e-3}, epochs=3, random_state=7, validation=0.2
        )
        again = make_estimator(ADULT, describe_estimator(given), seed=1, threads=1)
        assert again.schema == schema and again.model == sf.FM(k=2) and again.epochs == 3
        assert again._training().l2 == given._training().l2
        assert again.random_state == 1 and again.validation == sf.SplineFMClassifier().validation

    def test_regression_has_a_regressor(self) -> None:
        assert isinstance(make_estimator(SETS["california"], {}, 0, 1), sf.SplineFMRegressor)

    def test_defaults_learn(self) -> None:
        params = {"model": {"kind": "FM", "k": 2}}
        prediction = Defaults().predict(ADULT, params, TRAIN, TEST, seed=0, threads=1)
        assert metric(ADULT, targets(ADULT, TEST), prediction, 1.0) < base_loss() - 0.05

    def test_tuning_finds_parameters_that_can_be_used(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: dict[str, Any] = {}
        tune = sf.tune

        def spy(estimator: Any, table: Any, target: str, **options: Any) -> Any:
            seen.update(options)
            space = {"k": [2, 3], "batch_size": None, "segments": None, "degree": None, "transform": None}
            options |= {"space": space}
            return tune(estimator.set_params(model=sf.FM(k=2), epochs=2), table, target, **options)

        monkeypatch.setattr(sf, "tune", spy)
        found = Tuned().tune(ADULT, TRAIN, TEST, SETTINGS)
        assert seen["trials"] == 3 and seen["eval_set"] is TEST
        assert found["params"]["model"]["kind"] == "FM" and 0.0 < found["value"] < 1.0
        assert len(Tuned().predict(ADULT, found["params"], TRAIN, TEST, 0, 1)) == TEST.num_rows
        assert seen["space"] == {}
        Tuned(("FM", "FFM")).tune(ADULT, TRAIN, TEST, SETTINGS | {"tune_space": {"k": [2]}})
        assert seen["space"] == {"k": [2], "model": ["FM", "FFM"]}


@dataclass
class Spy:
    """An arm that remembers what it was shown."""

    shown: list[tuple[pa.Table, pa.Table]] = field(default_factory=list)

    def tune(self, about: Any, train: pa.Table, held_out: pa.Table, settings: Any) -> dict[str, Any]:
        self.shown.append((train, held_out))
        return {"params": {}}

    def predict(self, about: Any, params: Any, train: pa.Table, rows: pa.Table, seed: int, threads: int) -> Any:
        self.shown.append((train, rows))
        return np.full(rows.num_rows, 0.5)


class TestProtocols:
    @pytest.fixture
    def spy(self, monkeypatch: pytest.MonkeyPatch) -> Spy:
        spy = Spy()
        monkeypatch.setattr(tabular, "load", lambda name, folder, rows: DataSet(name, TRAIN, TEST))
        monkeypatch.setitem(tabular.ARMS, "uniform", spy)
        return spy

    def test_honest_tuning_never_sees_a_test_row(self, spy: Spy) -> None:
        tabular.tune("adult", "honest", "uniform", SETTINGS, None)
        ((train, held_out),) = spy.shown
        ages = {*train["age"].to_pylist(), *held_out["age"].to_pylist()}
        assert ages == set(TRAIN["age"].to_pylist())
        assert (train.num_rows, held_out.num_rows) == (480, 120)

    def test_the_paper_tunes_on_the_rows_that_it_reports(self, spy: Spy) -> None:
        tabular.tune("adult", "paper", "uniform", SETTINGS, None)
        ((train, held_out),) = spy.shown
        assert train is TRAIN and held_out is TEST

    def test_scores_are_of_the_test_part(self, spy: Spy) -> None:
        unit = tabular.score("adult", "uniform", {}, 0, SETTINGS, None)
        assert unit["loss"] == pytest.approx(np.log(2.0))
        ((train, rows),) = spy.shown
        assert train is TRAIN and rows is TEST

    def test_every_arm_and_seed_has_a_unit_with_the_parameters_that_were_found(self) -> None:
        results = Results(Path("unused"), SETTINGS, {"adult/honest/tuned/tune": {"params": {"epochs": 7}}})
        units = tabular.units("adult", SETTINGS, None, results)
        assert len(units) == 6 * 2 + 7 * 3
        assert units["adult/honest/tuned/seed 1"][:4] == ("adult", "tuned", {"epochs": 7}, 1)
        assert not any(name.startswith("adult/paper/defaults") for name in units)


def test_without_any_data_set_the_script_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tabular.py", "--quick", "--data", str(tmp_path), "--out", str(tmp_path)])
    with pytest.raises(SystemExit, match="pass --data DIR"):
        tabular.main()
    assert "no california_housing.parquet" in capsys.readouterr().err
    assert list(Results.read(tmp_path).units) == ["adult/absent", "california/absent"]


class TestReport:
    def results(self) -> Results:
        units: dict[str, Any] = {"adult/about": {"train_rows": 30_000, "test_rows": 100}}
        for arm in tabular_report.TITLES:
            units |= {f"adult/honest/{arm}/seed {i}": {"loss": 0.25 + 0.01 * i} for i in range(3)}
            units[f"adult/seconds/{arm}"] = {"seconds": 1.23}
        units |= {f"adult/variants/{model}/seed 0": {"loss": 0.3} for model in tabular_report.MODELS}
        return Results(Path("unused"), SETTINGS, units)

    def test_has_means_spreads_and_the_papers_numbers(self, tmp_path: Path) -> None:
        text = tabular_report.report(self.results(), tmp_path)
        assert "| ours, `sf.tune` | – | – | 0.2600 ± 0.0100 | – | 1.2 |" in text
        assert "0.2861 ± 0.0008" in text
        assert "100 test and 30,000 training rows of the paper's 39,073: the others are not available" in text
        assert (tmp_path / "losses.png").stat().st_size < 200_000

    def test_names_the_sets_that_are_not_available(self, tmp_path: Path) -> None:
        results = self.results()
        assert "| Song year (not run yet) |" in tabular_report.report(results, tmp_path)
        results.units["song/absent"] = {}
        text = tabular_report.report(results, tmp_path)
        assert "| Song year (not available) | 0.9186 ± 0.0037 | (1.164) | 0.8803 ± 0.0018 |" in text
        assert "Higgs (not" not in text

    def test_of_no_results_is_no_error(self, tmp_path: Path) -> None:
        text = tabular_report.report(Results(Path("unused"), SETTINGS), tmp_path)
        assert "Adult (not run yet)" in text and not list(tmp_path.iterdir())
