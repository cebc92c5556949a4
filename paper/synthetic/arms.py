"""How the arms of the synthetic experiment are trained: as the authors do, and as the library does."""

from __future__ import annotations

from typing import Any

import numpy as np

import splinefm as sf
from paper.harness import Json
from paper.synthetic.data import CATEGORIES, Clicks
from splinefm.model.cpu import CpuEngine
from splinefm.model.optimizers import Group, Optimizer


def make_schema(basis: Any) -> sf.Schema:
    """Return three categories, and recency divided by 40."""
    recency = sf.Numerical("recency", transform=sf.MinMax(low=0.0, high=40.0), basis=basis, missing="error")
    return sf.Schema((*(sf.Categorical(name) for name in CATEGORIES), recency))


def bins(knots: int) -> sf.Bins:
    """Return bins between `knots` breakpoints."""
    return sf.Bins(knots - 1)


def splines(knots: int) -> sf.BSpline:
    """Return cubic splines with `knots` breakpoints."""
    return sf.BSpline(segments=knots - 1, degree=3)


def fit_as_authors(train: Clicks, basis: Any, settings: Json, seed: int) -> sf.Fitted:
    """Train with Adagrad at a constant rate, L2, no shuffling, last epoch: the engine without our training loop.

    The authors multiply all feature values x by ½. With v' = v / 2 this is the same as values of x, start values
    in ±¼ instead of ±½, half of the learning rate (Adagrad does not see the scale of a gradient) and four times the
    decay.
    """
    encoder = sf.fit_encoder(make_schema(basis), train.table, threads=1)
    slots, layout, model = encoder.encode(train.table, threads=1), encoder.layout, sf.FFM(k=settings["k"])
    shape = (layout.n_features, model.width(len(layout.fields)))
    start = 0.5 / np.sqrt(settings["k"])
    params = {
        "bias": np.zeros(1, np.float32),
        "linear": np.zeros(layout.n_features, np.float32),
        "factors": np.random.default_rng(seed).uniform(-start, start, shape).astype(np.float32),
    }
    optimizer = Optimizer("adagrad", 0.5 * settings["learning_rate"], eps=1e-10)
    decay = 4.0 * settings["weight_decay"]
    # DIFFERS: decay applies to the active features of a batch, not to the bias, which learns at half the rate.
    groups = [[Group(field.n_features, decay, decay)] for field in layout.fields]
    engine = CpuEngine(model, layout, params, "logistic", optimizer, groups, settings["batch_size"], threads=1)
    click, weight = train.click, np.ones(len(train.table))
    batches = np.split(np.arange(len(click)), range(settings["batch_size"], len(click), settings["batch_size"]))
    for _ in range(settings["epochs"]):
        for rows in batches:
            engine.step(slots, click, weight, rows)
    return sf.Fitted(encoder, model, engine.params(), sf.Loss("logistic"))


def fit_by_library(train: Clicks, basis: Any, settings: Json, seed: int, smoothness: float) -> sf.Fitted:
    """Train by `fit_model`: a share of the training rows chooses the epoch, then the model is refit on all."""
    return sf.fit_model(
        train.table,
        "click",
        schema=make_schema(basis),
        model=sf.FFM(k=settings["k"]),
        validation=settings["validation"],
        training=sf.Training(smoothness=smoothness, effort="fast", seed=seed, threads=1),
    )


def validation_loss(fitted: sf.Fitted) -> float:
    """Return the validation loss of the best epoch."""
    return min(epoch.validation_loss for epoch in fitted.history)
