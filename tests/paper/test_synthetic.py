"""The synthetic experiment: its curves and rows, the authors' training, and a small run from end to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import splinefm as sf
from paper.harness import Options, Results, read_settings
from paper.synthetic import arms as synthetic_arms
from paper.synthetic import run as synthetic
from paper.synthetic.data import SEGMENTS, make_clicks, split

FULL = read_settings("synthetic", quick=False)
SMALL: dict[str, Any] = FULL | {
    "rows": 1200,
    "train_rows": 400,
    "knots": [5, 8],
    "repetitions": 2,
    "smoothness": [0.0, 1e-2],
    "panel_points": 11,
}


# Click probability at recency 0, 10, 20, 30 and 39.6.
@pytest.mark.parametrize(
    ("segment", "expected"),
    [
        (("young", "male", "ad 1"), (0.2025, 0.2566, 0.1088, 0.0549, 0.0394)),
        (("young", "female", "ad 1"), (0.1484, 0.1984, 0.0957, 0.0485, 0.0352)),
        (("old", "male", "ad 1"), (0.2031, 0.2392, 0.1151, 0.0425, 0.0262)),
        (("old", "female", "ad 1"), (0.1283, 0.1552, 0.0915, 0.0357, 0.0228)),
        (("young", "male", "ad 2"), (0.1606, 0.1014, 0.1013, 0.2059, 0.0940)),
        (("young", "female", "ad 2"), (0.1221, 0.0820, 0.0785, 0.1556, 0.0853)),
        (("old", "male", "ad 2"), (0.1726, 0.0835, 0.0737, 0.1783, 0.1106)),
        (("old", "female", "ad 2"), (0.1121, 0.0627, 0.0531, 0.1119, 0.0877)),
    ],
)
def test_curves_are_those_of_the_paper(segment: tuple[str, ...], expected: tuple[float, ...]) -> None:
    (found,) = [one for one in SEGMENTS if (one.age, one.gender, one.ad) == segment]
    np.testing.assert_allclose(found.probability(np.array([0, 10, 20, 30, 39.6])), expected, atol=5e-5)


def test_rows_are_those_of_the_authors() -> None:
    clicks = make_clicks(FULL)
    recency = clicks.table["recency"].to_numpy()
    assert len(recency) == 100_000
    assert (recency.min(), recency.max()) == (0.0, 39.6)
    assert np.round([recency.mean(), np.median(recency)], 2).tolist() == [17.02, 15.94]
    assert clicks.probability.mean() == pytest.approx(0.11765, abs=1e-5)
    # Labels follow the probabilities: within four standard errors.
    error = np.sqrt((clicks.probability * (1.0 - clicks.probability)).sum())
    assert abs(clicks.click.sum() - clicks.probability.sum()) < 4.0 * error


def test_probabilities_belong_to_their_rows() -> None:
    clicks = make_clicks(SMALL)
    for segment in SEGMENTS:
        mine = np.all([clicks.table[name].to_numpy() == getattr(segment, name) for name in ("age", "gender", "ad")], 0)
        expected = segment.probability(clicks.table["recency"].to_numpy()[mine])
        np.testing.assert_allclose(clicks.probability[mine], expected)


def test_splits_are_parts_of_the_rows_and_differ_by_repetition() -> None:
    train, test = split(SMALL, 0)
    assert (len(train.table), len(test.table)) == (400, 800)
    both = np.concatenate([train.probability, test.probability])
    np.testing.assert_array_equal(np.sort(both), np.sort(make_clicks(SMALL).probability))
    assert split(SMALL, 0)[0].table.equals(train.table)
    assert not split(SMALL, 1)[0].table.equals(train.table)


def test_authors_training_is_adagrad_on_halved_feature_values() -> None:
    """The reformulation by start values, rate and decay, against the authors' one: all feature values are ½."""
    settings = SMALL | {"epochs": 2, "batch_size": 16, "weight_decay": 1e-3}
    train, test = split(settings | {"train_rows": 60}, 0)
    fitted = synthetic_arms.fit_as_authors(train, synthetic_arms.bins(3), settings, seed=5)
    slots = fitted.encoder.encode(train.table)
    # By hand, one feature per field. The authors' start values are twice ours.
    rng, shape = np.random.default_rng(5), (slots.layout.n_features, 4, 4)
    values = {"v": 2.0 * rng.uniform(-0.25, 0.25, (shape[0], 16)).reshape(shape), "w": np.zeros(shape[0])}
    values["b"] = np.zeros(())
    squares = {name: np.zeros_like(value) for name, value in values.items()}
    rows = slots.start
    for _ in range(2):
        for begin in range(0, 60, 16):
            gradient = {name: np.zeros_like(value) for name, value in values.items()}
            batch = range(begin, min(begin + 16, 60))
            for i in batch:
                slope = (1.0 / (1.0 + np.exp(-_score(values, rows[i]))) - train.click[i]) / len(batch)
                gradient["b"] += slope
                for f, row in enumerate(rows[i]):
                    gradient["w"][row] += 0.5 * slope
                    for e, other in enumerate(rows[i]):
                        gradient["v"][row, e] += 0.25 * slope * values["v"][other, f] * (e != f)
            touched = np.unique(rows[list(batch)])
            for name in ("v", "w"):
                gradient[name][touched] += 1e-3 * values[name][touched]
            for name, rate in (("v", 0.08), ("w", 0.08), ("b", 0.04)):
                squares[name] += gradient[name] ** 2
                values[name] = values[name] - rate * gradient[name] / (np.sqrt(squares[name]) + 1e-10)
    by_hand = [_score(values, row) for row in fitted.encoder.encode(test.table).start[:50]]
    np.testing.assert_allclose(fitted.scores(test.table)[:50], by_hand, atol=2e-4)


def _score(values: dict[str, Any], rows: Any) -> float:
    pairs = [(f, e) for f in range(4) for e in range(f)]
    products = sum(values["v"][rows[f], e] @ values["v"][rows[e], f] for f, e in pairs)
    return float(values["b"] + 0.5 * values["w"][rows].sum() + 0.25 * products)


def test_smoothness_is_chosen_by_validation_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the test part says: here the validation part is made to prefer the smoothest."""
    settings = SMALL | {"smoothness": [0.0, 1e-2, 10.0]}
    monkeypatch.setattr(synthetic, "validation_loss", lambda fitted: -_smoothness(fitted))
    unit = synthetic.compare_arms(settings, 6, 0)
    assert unit["chosen"] == 10.0
    assert unit["test_loss"]["chosen"] == unit["test_loss"]["smoothness 10"]
    assert unit["test_loss"]["smoothness 10"] != unit["test_loss"]["smoothness 0"]


def _smoothness(fitted: sf.Fitted) -> float:
    assert isinstance(fitted.training.smoothness, float)
    return fitted.training.smoothness


def test_a_small_run_continues_and_reports_what_its_json_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = Options(quick=True, data=None, out=tmp_path, jobs=1, only="repetition 0")
    synthetic.run(part, SMALL)
    assert "1 repetitions" in (tmp_path / "report.md").read_text()
    before = json.loads((tmp_path / "results.json").read_text())["units"]
    path = synthetic.run(Options(quick=True, data=None, out=tmp_path, jobs=1), SMALL)
    results = Results.read(tmp_path)
    assert set(results.units) == set(synthetic.units(SMALL))
    assert all(results.units[name] == unit for name, unit in before.items())
    text = path.read_text()
    losses = [results.units[f"sweep 8 knots, repetition {seed}"]["test_loss"]["splines"] for seed in (0, 1)]
    assert f"| {np.mean(losses):.5f} ({np.std(losses, ddof=1):.5f}) |" in text
    assert all((tmp_path / f"{name}.png").stat().st_size < 200_000 for name in ("curves", "sweep"))
    monkeypatch.setattr(synthetic, "work", lambda *arguments: pytest.fail("all units were done"))
    synthetic.run(Options(quick=True, data=None, out=tmp_path, jobs=1), SMALL)
    assert path.read_text() == text
