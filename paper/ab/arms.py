"""The arms of the simulated A/B test: how each is trained, refreshed and served."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.base import clone

import splinefm as sf
from paper.ab.world import FIELDS, Auctions
from paper.harness import Json

FloatArray = npt.NDArray[np.float64]

NAMES = {
    "A": "A: coarse bins",
    "B": "B: splines, served through fine bins",
    "B direct": "B, served without bins",
    "B chosen": "B, smoothness chosen on the log",
    "A more": "more bins",
    "A fine": "fine bins, trained and served",
    "truth": "true CTR",
}


class Truth:
    """Predicts the true click probabilities; its remaining errors are click noise."""

    def __init__(self) -> None:
        self.seconds = Json()

    def predict(self, auctions: Auctions) -> FloatArray:
        """Return the click probabilities of all candidates."""
        return auctions.ctr

    def learn(self, shown: pa.Table) -> None:
        """Learn nothing."""


class Direct:
    """Serves the model of another arm without bins: it has separate auctions but learns nothing from them."""

    def __init__(self, ranker: Ranker) -> None:
        self.ranker, self.seconds = ranker, Json()

    def predict(self, auctions: Auctions) -> FloatArray:
        """Return the click probabilities of all candidates."""
        return _predict(self.ranker.estimator.fitted_, auctions)

    def learn(self, shown: pa.Table) -> None:
        """Learn nothing."""


@dataclass
class Ranker:
    """A model fitted to the log and refreshed every hour by `partial_fit` with the impressions that it showed.

    Parameters
    ----------
    estimator : SplineFMClassifier
        How it is trained.
    fine_bins : int
        Number of simulated bins of recency to serve, in geometric progression; 0 serves the model as it is.
    grid : sequence of float
        Choose the smoothness from these, by the validation rows of the log; without any, it is the estimator's.
    """

    estimator: sf.SplineFMClassifier
    fine_bins: int = 0
    grid: Sequence[float] = ()
    seconds: Json = field(default_factory=lambda: {"fit": 0.0, "refresh": 0.0})

    def fit(self, log: pa.Table) -> None:
        """Fit to the log."""
        started = time.process_time()
        tried = [clone(self.estimator).set_params(smoothness=value) for value in self.grid] or [self.estimator]
        self.estimator = min((one.fit(log, target="click") for one in tried), key=_validation_loss)
        self._publish()
        self.seconds["fit"] = time.process_time() - started

    def learn(self, shown: pa.Table) -> None:
        """Make one pass over the impressions of an hour; the column `click` has their outcomes."""
        started = time.process_time()
        self.estimator.partial_fit(shown, target="click")
        self._publish()
        self.seconds["refresh"] += time.process_time() - started

    def predict(self, auctions: Auctions) -> FloatArray:
        """Return the click probabilities of all candidates."""
        return _predict(self.served, auctions)

    def _publish(self) -> None:
        self.served = self.estimator.fitted_
        if self.fine_bins:
            self.served = sf.discretize(self.served, {"recency": self.fine_bins}, spacing="geometric")


Arm = Ranker | Direct | Truth


def _predict(fitted: sf.Fitted, auctions: Auctions) -> FloatArray:
    return fitted.predict(auctions.ads.table(), threads=1).reshape(auctions.bid.shape)


def make_rankers(settings: Json, seed: int) -> dict[str, Ranker]:
    """Return the arms that learn; they differ only in the basis of recency."""
    n_bins = settings["fine_bins"]
    fine = np.geomspace(settings["recency_low"], settings["recency_high"], n_bins + 1).tolist()
    return {
        "A": Ranker(_estimator(_bins(settings["coarse_edges"]), settings, seed, smoothness=0.0)),
        "B": Ranker(_estimator(sf.BSpline(), settings, seed), n_bins),
        "B chosen": Ranker(_estimator(sf.BSpline(), settings, seed), n_bins, settings["smoothness"]),
        "A more": Ranker(_estimator(_bins(settings["more_edges"]), settings, seed, smoothness=0.0)),
        "A fine": Ranker(_estimator(_bins(fine), settings, seed, smoothness=0.0)),
    }


def _validation_loss(estimator: sf.SplineFMClassifier) -> float:
    return min(epoch.validation_loss for epoch in estimator.history_)


def _bins(edges: list[float]) -> sf.Bins:
    return sf.Bins(count=len(edges) - 1, edges=tuple(edges))


def _estimator(basis: Any, settings: Json, seed: int, **options: Any) -> sf.SplineFMClassifier:
    """Return an estimator with default settings; bins are not smoothed, as in conventional binning."""
    categories = [sf.Categorical(name) for name in FIELDS if name != "recency"]
    schema = sf.Schema((*categories, sf.Numerical("recency", basis=basis)))
    # No search, in which arms would differ by more than the basis, and no second training on all rows of the log.
    options |= {"effort": "fast", "epochs": settings["epochs"], "refit_on_all": False, "random_state": seed}
    options |= {"n_jobs": 1}
    return sf.SplineFMClassifier(sf.FwFM(k=settings["k"]), schema=schema, **options)
