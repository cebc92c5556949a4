"""Auctions, hour by hour: who wins, what is clicked, what is paid, and what the arms learn from it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paper.ab.arms import Arm, Direct, Truth, make_rankers
from paper.ab.world import Ads, Auctions, World
from paper.harness import Json

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
N_GROUPS = 10  # of recency, each with a tenth of the impressions of the log


class Served(NamedTuple):
    """Impressions of an arm in an hour, one entry each, and the revenue and value of all its auctions."""

    ads: Ads
    predicted: FloatArray
    ctr: FloatArray
    click: FloatArray
    revenue: float
    value: float

    def table(self) -> pa.Table:
        """Return impressions and clicks as training rows."""
        return self.ads.table().append_column("click", pa.array(self.click.astype(np.int8)))


def find_shown(auctions: Auctions, predicted: FloatArray) -> tuple[tuple[IntArray, IntArray], BoolArray]:
    """Return the ads that are shown, as auctions and candidates, and which auctions they won."""
    offers = auctions.bid * predicted
    best = offers.argmax(axis=1)
    rows = np.arange(len(best))
    won = offers[rows, best] > auctions.rival
    return (rows[won], best[won]), won


def run_auctions(auctions: Auctions, predicted: FloatArray) -> Served:
    """Show our best ad by bid × predicted CTR where it beats the offer of the other rankers.

    The advertiser pays per click what was needed to win: the second best of our ads or the other rankers' offer,
    divided by the predicted CTR. Where the other rankers win, their offer is what the platform earns. `value` is
    bid × true CTR of the ads that are shown, and the offers otherwise: it is what mistakes of the ranking cost.
    """
    offers = auctions.bid * predicted
    at, won = find_shown(auctions, predicted)
    second = np.partition(offers, -2, axis=1)[won, -2] if offers.shape[1] > 1 else np.zeros(int(won.sum()))
    price = np.maximum(second, auctions.rival[won]) / predicted[at]
    click = (auctions.luck[won] < auctions.ctr[at]).astype(np.float64)
    lost = float(auctions.rival[~won].sum())
    value = float((auctions.bid[at] * auctions.ctr[at]).sum())
    revenue = float((price * click).sum())
    return Served(auctions.ads.take(at), predicted[at], auctions.ctr[at], click, revenue + lost, value + lost)


def make_log(world: World, settings: Json) -> pa.Table:
    """Return the impressions before the test: every auction shows a random candidate."""
    parts = []
    for hour in range(24 * settings["log_days"]):
        auctions = world.auctions(hour, settings["log_auctions_per_hour"])
        # The candidates are drawn independently: the first is as good as any.
        click = (auctions.luck < auctions.ctr[:, 0]).astype(np.int8)
        parts.append(auctions.ads.take((slice(None), 0)).table().append_column("click", pa.array(click)))
    return pa.concat_tables(parts)


class Record:
    """Measurements of an arm."""

    def __init__(self, groups: FloatArray) -> None:
        self.groups = groups
        self.sums: list[FloatArray] = []  # hour × (predicted, true CTR, clicks, impressions) × group of recency
        self.revenue = self.value = 0.0

    def add(self, served: Served) -> None:
        """Add an hour."""
        group = np.searchsorted(self.groups, served.ads.recency)
        columns = (served.predicted, served.ctr, served.click, np.ones(len(group)))
        self.sums.append(np.array([np.bincount(group, column, N_GROUPS) for column in columns]))
        self.revenue += served.revenue
        self.value += served.value

    def summary(self) -> Json:
        """Return hourly errors and errors by recency."""
        sums = np.array(self.sums)
        predicted, ctr, click, _ = sums.sum(axis=2).T
        by_group, total = sums.sum(axis=0), sums.sum(axis=(0, 2))
        off = sums[:, 3] * np.abs(_error(sums[:, 0], sums[:, 1]))
        return {
            # As the paper has it: average predicted CTR / measured CTR - 1.
            "error": _error(predicted, click).round(4).tolist(),
            # The same with the true CTR in place of the measured one: without the noise of clicks.
            "true_error": _error(predicted, ctr).round(4).tolist(),
            "group_error": _error(by_group[0], by_group[1]).round(4).tolist(),
            "group_hourly_error": (off.sum(axis=0) / np.maximum(by_group[3], 1.0)).round(4).tolist(),
            "group_share": (by_group[3] / total[3]).round(4).tolist(),
            "impressions": int(total[3]),
            "clicks": int(total[2]),
            "revenue": round(self.revenue, 2),
            "value": round(self.value, 2),
        }


def _error(predicted: FloatArray, measured: FloatArray) -> FloatArray:
    """Return relative errors, 0 where nothing was measured."""
    return np.divide(predicted, measured, out=np.ones_like(predicted), where=measured > 0.0) - 1.0


def simulate(settings: Json, kind: str, seed: int) -> Json:
    """Run all arms in one world: they meet the same auctions and learn from their own impressions."""
    world = World(settings, kind, seed)
    log = make_log(world, settings)
    rankers = make_rankers(settings, seed)
    for ranker in rankers.values():
        ranker.fit(log)
    # The order matters: B direct must predict before B learns.
    arms: dict[str, Arm] = {"B direct": Direct(rankers["B"]), **rankers, "truth": Truth()}
    groups = np.quantile(log["recency"].to_numpy(), np.arange(1, N_GROUPS) / N_GROUPS)
    records = {name: Record(groups) for name in arms}
    begin = 24 * settings["log_days"]
    for hour in range(begin, world.n_hours):
        auctions = world.auctions(hour, settings["auctions_per_hour"])
        for name, arm in arms.items():
            served = run_auctions(auctions, arm.predict(auctions))
            if hour >= begin + settings["burn_in_hours"]:
                records[name].add(served)
            arm.learn(served.table())
    return {
        "log_rows": len(log),
        "groups": groups.round(2).tolist(),
        "chosen_smoothness": rankers["B chosen"].estimator.smoothness,
        "arms": {
            name: records[name].summary() | {"seconds": _per_hour(arm, world.n_hours - begin)}
            for name, arm in arms.items()
        },
    }


def _per_hour(arm: Arm, n_hours: int) -> Json:
    """Return processor seconds of the first fit and of a refresh."""
    seconds = arm.seconds
    return {"fit": round(seconds["fit"], 2), "refresh": round(seconds["refresh"] / n_hours, 4)} if seconds else {}
