"""Synthetic clicks whose true probabilities are known: the data of the demo and of the paper."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from splinefm._arrays import FloatArray


class Segment(NamedTuple):
    """Users of one age and gender who see one ad; a, b and c define the curve of their click probability."""

    age: str
    gender: str
    ad: str
    a: float
    b: float
    c: float

    def probability(self, recency: FloatArray) -> FloatArray:
        """Click probability by recency: the template p(x; a, b, c) of the paper's synthetic experiment."""
        bump = self.a / (self.a + self.b) ** 1.5 / np.cosh((recency - self.c) / 5.0)
        return np.asarray(self.a / (self.a + self.b + recency) ** 1.5 + bump)

    def table(self, recency: FloatArray) -> dict[str, Any]:
        """Rows of this segment with the given recencies."""
        return {name: [getattr(self, name)] * len(recency) for name in ("age", "gender", "ad")} | {"recency": recency}


# The eight segments of the paper's synthetic experiment.
SEGMENTS = (
    Segment("young", "male", "ad 1", 20, 5, 10),
    Segment("young", "female", "ad 1", 20, 10, 11),
    Segment("old", "male", "ad 1", 10, 5, 12),
    Segment("old", "female", "ad 1", 10, 10, 13),
    Segment("young", "male", "ad 2", 20, 5, 31),
    Segment("young", "female", "ad 2", 20, 10, 32),
    Segment("old", "male", "ad 2", 10, 5, 33),
    Segment("old", "female", "ad 2", 10, 10, 34),
)


def click_data(rows: int = 100_000, seed: int = 0) -> tuple[pa.Table, FloatArray]:
    """The paper's synthetic clicks (age, gender, ad, recency, click), and the true probability of each row.

    Examples
    --------
    >>> table, probability = click_data(1000)
    >>> table.column_names
    ['age', 'gender', 'ad', 'recency', 'click']
    """
    rng = np.random.default_rng(seed)
    which = rng.integers(len(SEGMENTS), size=rows)
    # DIFFERS: the paper says Beta-Binomial(40, 0.9, 1.2); this is the distribution in the authors' code.
    recency = rng.binomial(3960, rng.beta(0.9, 1.2, rows)) / 100.0
    probability = np.choose(which, [segment.probability(recency) for segment in SEGMENTS])
    columns = {
        name: np.array([getattr(segment, name) for segment in SEGMENTS])[which] for name in ("age", "gender", "ad")
    }
    click = (rng.random(rows) < probability).astype(np.int8)
    return pa.table({**columns, "recency": recency, "click": click}), probability
