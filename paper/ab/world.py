"""The world of the simulated A/B test: users, ads, and how the click probability truly depends on recency.

Everything is drawn from a seed. No arm sees more of it than a real one would: the columns of the ads that compete, and
the clicks on those that it has shown.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paper.harness import Json

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

FIELDS = ("campaign", "category", "device", "region", "hour", "recency")
# Click probability by recency, for four categories of products: the logit falls by `fall` log(1 + r / `after`), and has
# a bump of height `bump` around r = `center`, when people decide.
FALL = np.array([0.45, 0.35, 0.30, 0.50])
AFTER = np.array([0.5, 2.0, 6.0, 1.0])
BUMP = np.array([0.3, 0.5, 0.6, 0.4])
CENTER = np.array([24.0, 72.0, 168.0, 12.0])
BUMP_WIDTH = 0.4  # in log(r)
# Phones: people forget sooner. The fall is multiplied by this, for phone, computer and tablet.
FALL_BY_DEVICE = np.array([1.25, 0.85, 1.0])
DEVICE = np.array([0.1, -0.1, 0.0])
DEVICE_SHARE = np.array([0.6, 0.3, 0.1])
REGION = np.array([0.2, 0.0, -0.1, -0.2])
LEVEL = -2.2
KINDS = ("smooth", "bursts", "calm", "steps")
N_CELLS = 600  # of recency, geometric: draws are uniform inside them


class Ads(NamedTuple):
    """Columns of ads; arrays of one shape."""

    campaign: IntArray
    category: IntArray
    device: IntArray
    region: IntArray
    hour: IntArray
    recency: FloatArray

    def table(self) -> pa.Table:
        """Return one row per ad."""
        return pa.table({name: getattr(self, name).ravel() for name in FIELDS})

    def take(self, at: Any) -> Ads:
        """Return some of the ads."""
        return Ads(*(column[at] for column in self))


class Auctions(NamedTuple):
    """The auctions of an hour: our candidates (auctions × candidates), and what the other rankers offer."""

    ads: Ads
    bid: FloatArray
    ctr: FloatArray
    rival: FloatArray
    luck: FloatArray  # there is a click where the click probability of the ad that is shown is above it


class World:
    """A market with its campaigns, sales and drift.

    Parameters
    ----------
    settings : dict
        Of the experiment.
    kind : {"smooth", "bursts", "calm", "steps"}
        "smooth": the click probability is smooth in recency, and each category has sales of its own. "bursts": the
        sales are greater, and those of all categories at the same time. "calm": there are neither sales nor day and
        night, so that recencies are distributed alike in all hours. "steps": as "smooth", but the click probability is
        constant inside the coarse bins, which are then the truth.
    seed : int
        Draws everything.
    """

    def __init__(self, settings: Json, kind: str, seed: int) -> None:
        if kind not in KINDS:
            raise ValueError(f"the world must be one of {', '.join(KINDS)}; got {kind!r}")
        self.settings, self.kind, self.seed = settings, kind, seed
        rng = np.random.default_rng([seed, 0])
        n_campaigns, n_categories = int(settings["campaigns"]), len(FALL)
        self.category = np.arange(n_campaigns) % n_categories
        self.popularity = rng.dirichlet(np.full(n_campaigns, 3.0))
        self.effect = rng.normal(0.0, 0.3, n_campaigns)
        self.base_bid = np.exp(rng.normal(0.0, settings["bid_spread"], n_campaigns))
        self.n_hours = 24 * (settings["log_days"] + settings["test_days"])
        self.sales = self._draw_sales(rng, n_categories)
        self.drift = self._draw_drift(rng, n_categories)
        edges = np.geomspace(settings["recency_low"], settings["recency_high"], N_CELLS + 1)
        self.edges, self.middle = edges, np.sqrt(edges[:-1] * edges[1:])
        returns = (1.0 + self.middle / settings["return_scale"]) ** -settings["return_exponent"]
        self.returns = np.diff(edges) * returns

    def _draw_sales(self, rng: np.random.Generator, n_categories: int) -> list[FloatArray]:
        """Draw the times of each category's sales, in hours; views go back 30 days before the log."""
        begin, end = -self.settings["recency_high"], float(self.n_hours)
        mean = self.settings["sales_per_day"] * (end - begin) / 24.0
        times = [rng.uniform(begin, end, rng.poisson(mean)) for _ in range(n_categories)]
        return times[:1] * n_categories if self.kind == "bursts" else times

    def _draw_drift(self, rng: np.random.Generator, n_categories: int) -> FloatArray:
        """Draw the random walk of each category, hours × categories."""
        steps = rng.normal(0.0, self.settings["drift_step"], (self.n_hours, n_categories))
        drift = np.zeros((self.n_hours, n_categories))
        for hour in range(1, self.n_hours):
            drift[hour] = self.settings["drift_memory"] * drift[hour - 1] + steps[hour]
        return drift

    def views(self, time: FloatArray, category: int) -> FloatArray:
        """Return the rate of product views of a category, relative to its mean over a day without sales."""
        if self.kind == "calm":
            return np.ones_like(time)
        sales = self.sales[category]
        near = np.exp(-0.5 * ((time[:, None] - sales) / self.settings["sale_hours"]) ** 2).sum(axis=1)
        evening = np.exp(self.settings["day_night"] * np.cos(2.0 * np.pi * (time - 20.0) / 24.0))
        boost = self.settings["burst_boost" if self.kind == "bursts" else "sale_boost"]
        return np.asarray(evening * (1.0 + boost * near))

    def auctions(self, hour: int, mean_number: float) -> Auctions:
        """Return the auctions of an hour: about `mean_number`, more in the evening."""
        rng = np.random.default_rng([self.seed, 1, hour])
        number = int(rng.poisson(mean_number * np.exp(0.5 * np.cos(2.0 * np.pi * (hour - 20.0) / 24.0))))
        shape = (number, self.settings["candidates"])
        ads = self._draw_ads(hour, shape, rng)
        ctr = self.click_probability(ads, hour)
        bid = self.base_bid[ads.campaign] * np.exp(rng.normal(0.0, self.settings["bid_noise"], shape))
        worth = (bid * ctr).max(axis=1)
        known = self.settings["rival_knowledge"]
        rival = worth**known * np.exp((1.0 - known) * np.log(worth).mean()) * self.settings["rival_level"]
        rival *= np.exp(rng.normal(0.0, self.settings["rival_noise"], number))
        return Auctions(ads, bid, ctr, rival, rng.random(number))

    def _draw_ads(self, hour: int, shape: tuple[int, int], rng: np.random.Generator) -> Ads:
        campaign = rng.choice(len(self.popularity), shape, p=self.popularity)
        device = np.broadcast_to(rng.choice(len(DEVICE), (shape[0], 1), p=DEVICE_SHARE), shape)
        region = np.broadcast_to(rng.integers(len(REGION), size=(shape[0], 1)), shape)
        draw = rng.random(shape)
        cell = np.empty(shape, np.int64)
        category = self.category[campaign]
        for number in range(len(FALL)):
            weight = self.returns * self.views(hour + 0.5 - self.middle, number)
            mine = category == number
            share = np.cumsum(weight) / weight.sum()
            cell[mine] = np.minimum(np.searchsorted(share, draw[mine]), N_CELLS - 1)
        inside = rng.random(shape)
        recency = self.edges[cell] ** (1.0 - inside) * self.edges[cell + 1] ** inside
        return Ads(campaign, category, device, region, np.full(shape, hour % 24), recency)

    def click_probability(self, ads: Ads, hour: int) -> FloatArray:
        """Return the true click probabilities."""
        category, recency = ads.category, ads.recency
        if self.kind == "steps":
            recency = self._coarse(recency)
        fall = FALL[category] * FALL_BY_DEVICE[ads.device] * np.log1p(recency / AFTER[category])
        bump = BUMP[category] * np.exp(-0.5 * (np.log(recency / CENTER[category]) / BUMP_WIDTH) ** 2)
        level = LEVEL + self.effect[ads.campaign] + DEVICE[ads.device] + REGION[ads.region]
        level = level + self.settings["hour_effect"] * np.cos(2.0 * np.pi * (hour - 21.0) / 24.0)
        return np.asarray(1.0 / (1.0 + np.exp(-(level + self.drift[hour][category] - fall + bump))))

    def _coarse(self, recency: FloatArray) -> FloatArray:
        """Return the middle of each value's coarse bin, in log(r)."""
        edges = np.maximum(self.settings["coarse_edges"], self.settings["recency_low"])
        middle = np.sqrt(edges[:-1] * edges[1:])
        return np.asarray(middle[np.clip(np.searchsorted(edges, recency, side="right") - 1, 0, len(middle) - 1)])
