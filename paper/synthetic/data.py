"""The synthetic clicks: eight segments of users and ads, each with a known curve of click probability in recency."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from paper.harness import Json

# The paper's eight curves; `splinefm demo` shows the same ones.
from splinefm.cli.click_data import SEGMENTS as SEGMENTS

FloatArray = npt.NDArray[np.float64]
CATEGORIES = ("age", "gender", "ad")


class Clicks(NamedTuple):
    """Rows with the columns age, gender, ad, recency and click, and their true probabilities."""

    table: pa.Table
    probability: FloatArray

    def take(self, rows: npt.NDArray[np.int64]) -> Clicks:
        """Return some of the rows."""
        return Clicks(self.table.take(rows), self.probability[rows])

    @property
    def click(self) -> FloatArray:
        """Return 1 for a click, 0 for none."""
        return np.asarray(self.table["click"].to_numpy(), float)


def make_clicks(settings: Json) -> Clicks:
    """Return all rows of the experiment."""
    return _make_clicks(settings["rows"], settings["data_seed"], settings["label_seed"])


@lru_cache(maxsize=1)
def _make_clicks(n_rows: int, data_seed: int, label_seed: int) -> Clicks:
    # Segments first, then shares, then recencies: the authors' order, and so their columns.
    rng = np.random.default_rng(data_seed)
    segment = rng.choice(len(SEGMENTS), n_rows)
    share = rng.beta(0.9, 1.2, n_rows)
    recency = rng.binomial(3960, share) / 100.0
    probability = np.choose(segment, [one.probability(recency) for one in SEGMENTS])
    # DIFFERS: the authors draw labels with torch; the same seed gives other ones here.
    click = np.random.default_rng(label_seed).random(n_rows) < probability
    columns = {name: np.array([getattr(one, name) for one in SEGMENTS])[segment] for name in CATEGORIES}
    return Clicks(pa.table({**columns, "recency": recency, "click": click.astype(np.float64)}), probability)


def split(settings: Json, repetition: int) -> tuple[Clicks, Clicks]:
    """Return training and test rows of a repetition, the same for every arm and number of knots."""
    clicks = make_clicks(settings)
    order = np.random.default_rng([settings["data_seed"], repetition]).permutation(settings["rows"])
    return clicks.take(order[: settings["train_rows"]]), clicks.take(order[settings["train_rows"] :])
