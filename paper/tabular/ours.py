"""Ours: the defaults, the defaults with another model, and what `sf.tune` finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

import splinefm as sf
from paper.harness import Json
from paper.search import SAMPLER_SEED
from paper.tabular.arms import FloatArray, targets
from paper.tabular.data import About

Estimator = sf.SplineFMClassifier | sf.SplineFMRegressor


@dataclass(frozen=True)
class Defaults:
    """An inferred schema and default settings."""

    def tune(self, about: About, train: pa.Table, held_out: pa.Table, settings: Json) -> Json:
        return {"params": {}}

    def predict(
        self, about: About, params: Json, train: pa.Table, rows: pa.Table, seed: int, threads: int
    ) -> FloatArray:
        return fit_predict(about, make_estimator(about, params, seed, threads), train, rows)


@dataclass(frozen=True)
class Variant(Defaults):
    """The defaults with another model."""

    model: str

    def predict(
        self, about: About, params: Json, train: pa.Table, rows: pa.Table, seed: int, threads: int
    ) -> FloatArray:
        return super().predict(about, {"model": {"kind": self.model}}, train, rows, seed, threads)


@dataclass(frozen=True)
class Tuned(Defaults):
    """The best of `sf.tune` with its default search space.

    Given names of models, the search also chooses among them, in as many trials.
    """

    models: tuple[str, ...] = ()

    def tune(self, about: About, train: pa.Table, held_out: pa.Table, settings: Json) -> Json:
        tuned = sf.tune(
            make_estimator(about, {}, seed=0, threads=1),
            train,
            about.target,
            trials=settings["trials"],
            eval_set=held_out,
            seed=SAMPLER_SEED,
            space=settings.get("tune_space", {}) | ({"model": list(self.models)} if self.models else {}),
        )
        scale = float(targets(about, train).std()) if about.task == "regression" else 1.0
        return {
            "params": describe_estimator(tuned.estimator),
            "value": tuned.value / scale,
            "trials": settings["trials"],
            "finished": tuned.history["state"].count("complete"),
            "found": tuned.params,
        }


def make_estimator(about: About, params: Json, seed: int, threads: int) -> Estimator:
    """Return an estimator with the parameters of the results file."""
    kind = sf.SplineFMRegressor if about.task == "regression" else sf.SplineFMClassifier
    settings: dict[str, Any] = dict(params)
    if "select_resolutions" in settings:  # results of version 0.1, which has no search to switch off
        del settings["select_resolutions"]
        settings["effort"] = "fast"
    if "model" in settings:
        model = dict(settings["model"])
        settings["model"] = getattr(sf, model.pop("kind"))(**model)
    if "schema" in settings:
        settings["schema"] = sf.Schema.from_dict(settings["schema"])
    return kind(**settings, random_state=seed, n_jobs=threads)


def describe_estimator(estimator: Estimator) -> Json:
    """Return its parameters as numbers and text, without those that every run sets."""
    others = ("random_state", "n_jobs", "verbose", "validation")
    params = {name: value for name, value in estimator.get_params(deep=False).items() if name not in others}
    if params["model"] is not None:
        params["model"] = {"kind": type(params["model"]).__name__, **asdict(params["model"])}
    if params["schema"] is not None:
        params["schema"] = params["schema"].to_dict()
    return {name: value for name, value in params.items() if value is not None}


def fit_predict(about: About, estimator: Estimator, train: pa.Table, rows: pa.Table) -> FloatArray:
    """Fit and return predictions: values, or probabilities of a 1."""
    estimator.fit(train, target=about.target)
    return estimator.fitted_.predict(rows, threads=estimator.n_jobs)
