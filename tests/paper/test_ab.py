"""The simulated A/B test: the market's rules on small examples, the worlds, and a small run from end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from paper.ab import arms as ab_arms
from paper.ab import run as ab
from paper.ab import simulation as ab_simulation
from paper.ab.arms import Direct, Ranker, Truth, make_rankers
from paper.ab.simulation import Record, Served, make_log, run_auctions, simulate
from paper.ab.world import KINDS, Ads, Auctions, World
from paper.harness import Options, Results, read_settings

SMALL: dict[str, Any] = read_settings("ab", quick=True) | {
    "seeds": [3],
    "worlds": ["smooth"],
    "k": 4,
    "epochs": 2,
    "log_days": 1,
    "test_days": 1,
    "burn_in_hours": 20,
    "auctions_per_hour": 150,
    "log_auctions_per_hour": 100,
    "fine_bins": 30,
}


def ads(recency: Any) -> Ads:
    """Ads that differ in recency alone."""
    recency = np.asarray(recency, float)
    return Ads(*(np.zeros(recency.shape, np.int64) for _ in range(5)), recency)


def two_auctions(rival: tuple[float, float], luck: float) -> Auctions:
    ctr = np.array([[0.1, 0.2], [0.3, 0.1]])
    bid = np.array([[4.0, 1.0], [1.0, 2.0]])
    return Auctions(ads([[1.0, 2.0], [3.0, 4.0]]), bid, ctr, np.array(rival), np.full(2, luck))


def test_the_best_offer_wins_and_pays_what_was_needed() -> None:
    # By truth: offers 0.4 and 0.2, 0.3 and 0.2. The second auction goes to the other rankers.
    auctions = two_auctions(rival=(0.1, 0.5), luck=0.05)
    served = run_auctions(auctions, auctions.ctr)
    assert served.ads.recency.tolist() == [1.0]
    assert served.click.tolist() == [1.0]
    assert served.revenue == pytest.approx(0.2 / 0.1 + 0.5)  # the second ad's offer, per click
    assert served.value == pytest.approx(4.0 * 0.1 + 0.5)
    assert run_auctions(auctions._replace(luck=np.full(2, 0.15)), auctions.ctr).click.tolist() == [0.0]


def test_the_other_rankers_offer_sets_the_price_where_it_is_the_second() -> None:
    auctions = two_auctions(rival=(0.3, 0.5), luck=0.05)
    assert run_auctions(auctions, auctions.ctr).revenue == pytest.approx(0.3 / 0.1 + 0.5)


def test_a_wrong_prediction_costs_value() -> None:
    auctions = two_auctions(rival=(0.1, 0.25), luck=0.5)
    right = run_auctions(auctions, auctions.ctr)
    wrong = run_auctions(auctions, np.array([[0.01, 0.2], [0.3, 0.9]]))
    assert wrong.ads.recency.tolist() == [2.0, 4.0]
    assert wrong.value == pytest.approx(1.0 * 0.2 + 2.0 * 0.1) and wrong.value < right.value


def test_one_candidate_has_no_second() -> None:
    auctions = two_auctions(rival=(0.1, 0.5), luck=0.05)
    single = Auctions(ads([[1.0], [3.0]]), auctions.bid[:, :1], auctions.ctr[:, :1], auctions.rival, auctions.luck)
    assert run_auctions(single, single.ctr).revenue == pytest.approx(0.1 / 0.1 + 0.5)


def test_errors_of_a_record() -> None:
    record = Record(np.linspace(1.0, 9.0, 9))
    recency, ones = np.array([0.5, 0.6, 20.0]), np.ones(3)
    record.add(Served(ads(recency), np.array([0.2, 0.4, 0.3]), 0.2 * ones, np.array([1.0, 0.0, 0.0]), 5.0, 6.0))
    record.add(Served(ads(recency), 0.1 * ones, 0.2 * ones, np.zeros(3), 1.0, 1.0))
    summary = record.summary()
    assert summary["error"] == pytest.approx([0.9 / 1.0 - 1.0, 0.0])  # an hour without clicks has none
    assert summary["true_error"] == pytest.approx([0.9 / 0.6 - 1.0, -0.5])
    assert (summary["group_error"][0], summary["group_error"][9]) == (0.0, 0.0)  # one hour too high, one too low
    assert summary["group_hourly_error"][0] == pytest.approx(0.5)
    assert (summary["impressions"], summary["clicks"], summary["revenue"], summary["value"]) == (6, 1, 6.0, 7.0)


def test_worlds_are_the_same_for_the_same_seed_and_hour() -> None:
    one, other = (World(SMALL, "smooth", 3).auctions(30, 50) for _ in range(2))
    np.testing.assert_array_equal(one.ads.recency, other.ads.recency)
    np.testing.assert_array_equal(one.ctr, other.ctr)
    assert not np.array_equal(World(SMALL, "smooth", 4).auctions(30, 50).luck[:5], one.luck[:5])


@pytest.mark.parametrize("kind", KINDS)
def test_recency_and_click_probability_stay_in_their_ranges(kind: str) -> None:
    auctions = World(SMALL, kind, 3).auctions(30, 500)
    assert SMALL["recency_low"] <= auctions.ads.recency.min()
    assert auctions.ads.recency.max() <= SMALL["recency_high"]
    assert auctions.ctr.min() > 0.0 and auctions.ctr.max() < 0.5
    assert (auctions.rival > 0.0).all()


def test_the_mix_of_recencies_changes_by_the_hour_unless_the_world_is_calm() -> None:
    def fresh(kind: str) -> list[float]:
        world = World(SMALL, kind, 3)
        return [float((world.auctions(hour, 2000).ads.recency < 6.0).mean()) for hour in (28, 34, 40, 46)]

    assert np.ptp(fresh("calm")) < 0.03 < 0.1 < np.ptp(fresh("smooth"))


def test_click_probability_is_constant_inside_coarse_bins_in_the_world_of_steps_alone() -> None:
    inside = ads([25.0, 60.0, 160.0])  # all in the second day to the end of the week
    assert np.ptp(World(SMALL, "steps", 3).click_probability(inside, 30)) == 0.0
    assert np.ptp(World(SMALL, "smooth", 3).click_probability(inside, 30)) > 0.001


def test_an_unknown_world_is_told() -> None:
    with pytest.raises(ValueError, match="one of smooth, bursts, calm, steps; got 'windy'"):
        World(SMALL, "windy", 0)


def test_rankers_differ_in_recency_alone_and_are_served_as_they_say() -> None:
    world = World(SMALL, "smooth", 3)
    log, auctions = make_log(world, SMALL), world.auctions(24, 200)
    rankers = make_rankers(SMALL, seed=3)
    for ranker in rankers.values():
        ranker.fit(log)
    sizes = {name: ranker.served.encoder.fields[-1].basis.sizes for name, ranker in rankers.items()}  # type: ignore[union-attr]
    assert sizes == {"A": (4,), "B": (30,), "B chosen": (30,), "A more": (8,), "A fine": (30,)}
    assert all(
        ranker.served.encoder.fields[:-1] == rankers["A"].served.encoder.fields[:-1] for ranker in rankers.values()
    )
    direct, binned = Direct(rankers["B"]).predict(auctions), rankers["B"].predict(auctions)
    assert not np.array_equal(direct, binned)
    np.testing.assert_allclose(direct, binned, atol=0.02)


def test_smoothness_is_chosen_by_the_validation_rows_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ab_arms, "_validation_loss", lambda estimator: -estimator.smoothness)
    ranker = make_rankers(SMALL | {"smoothness": [0.0, 5.0, 1e-2]}, seed=3)["B chosen"]
    ranker.fit(make_log(World(SMALL, "smooth", 3), SMALL))
    assert ranker.estimator.smoothness == 5.0
    assert ranker.estimator.fitted_.training.smoothness == 5.0


def test_a_refresh_changes_what_is_served() -> None:
    world = World(SMALL, "smooth", 3)
    ranker = make_rankers(SMALL, seed=3)["B"]
    ranker.fit(make_log(world, SMALL))
    auctions = world.auctions(24, 300)
    before = ranker.predict(auctions)
    shown = run_auctions(auctions, before).ads.table()
    ranker.learn(shown.append_column("click", pa.array(np.ones(len(shown), np.int8))))
    assert ranker.predict(auctions).mean() > before.mean()  # everything was clicked


def test_arms_learn_from_what_they_have_shown_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, float]] = []
    monkeypatch.setattr(Ranker, "fit", lambda self, log: None)
    monkeypatch.setattr(Ranker, "predict", lambda self, auctions: _favorite(self, auctions))
    monkeypatch.setattr(
        Ranker, "learn", lambda self, table: shown.append((_name(self), float(table["recency"].to_numpy().mean())))
    )
    monkeypatch.setattr(ab_simulation, "Direct", lambda ranker: Truth())
    unit = simulate(SMALL | {"rival_level": 0.01}, "smooth", 3)
    fresh = np.mean([recency for name, recency in shown if name == "A"])
    old = np.mean([recency for name, recency in shown if name != "A"])
    assert fresh < 0.5 * old
    assert unit["arms"]["truth"]["true_error"] == [0.0] * 4


def _name(ranker: Ranker) -> str:
    return "A" if getattr(ranker.estimator.schema["recency"].basis, "count", 0) == 4 else "other"  # type: ignore[index]


def _favorite(ranker: Ranker, auctions: Auctions) -> Any:
    """Arm A believes in fresh ads, the others in old ones."""
    recency = auctions.ads.recency / 1000.0
    return 1.0 - recency if _name(ranker) == "A" else recency


def test_a_small_run_reports_what_its_json_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = Options(quick=True, data=None, out=tmp_path, jobs=1)
    text = ab.run(options, SMALL).read_text()
    (unit,) = Results.read(tmp_path).units.values()
    arm = unit["arms"]["A"]
    assert len(arm["error"]) == 4
    assert f"| {100 * np.abs(arm['error']).mean():.1f} % |" in text
    assert f"{100 * (unit['arms']['B']['value'] / arm['value'] - 1.0):.2f} %" in text
    assert (tmp_path / "errors.png").stat().st_size < 200_000
    monkeypatch.setattr(ab, "simulate", lambda *arguments: pytest.fail("the unit was done"))
    assert ab.run(options, SMALL).read_text() == text
