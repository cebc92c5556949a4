"""The arms of the Criteo experiment: the same FwFM, with the integers encoded in different ways."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import optuna
import pyarrow as pa

import splinefm as sf
from paper.criteo.data import INTEGERS, LABEL, Parts, largest
from paper.harness import Json
from paper.search import search

# Values below zero are codes; the file has none below -3.
NEGATIVE = (-1.0, -2.0, -3.0, "negative")
Field = sf.Numerical | sf.Categorical


def merged_bins(name: str, parts: Parts, settings: Json) -> Field:
    """floor(ln² z), as in the authors' code: 0, 1 and 2 are one bin."""
    return sf.Numerical(name, basis=sf.Bins(edges=winner_edges(largest(parts.train, name), 0.0)), special=NEGATIVE)


def winner_bins(name: str, parts: Parts, settings: Json) -> Field:
    """floor(ln² z) for z > 2, as by the winners of the challenge: smaller values have a parameter each."""
    edges = winner_edges(largest(parts.train, name), 2.5)
    return sf.Numerical(name, basis=sf.Bins(edges=edges), special=(0.0, 1.0, 2.0, *NEGATIVE))


def winner_edges(most: float, first: float) -> tuple[float, ...]:
    """Edges of bins by the square of the logarithm, from `first` to beyond the largest value."""
    last = math.floor(math.log(max(most, 3.0)) ** 2) + 1
    return (first, *(math.exp(math.sqrt(i)) for i in range(1, last + 1)))


def steps(name: str, parts: Parts, settings: Json) -> Field:
    """Equal bins after arcsinh², which are splines of degree 0."""
    return _spline(name, settings, degree=0)


def cubic(name: str, parts: Parts, settings: Json) -> Field:
    """Cubic splines after arcsinh²."""
    return _spline(name, settings, degree=3)


def _spline(name: str, settings: Json, degree: int) -> Field:
    if name not in settings["columns"]:
        return sf.Categorical(name, min_count=settings["min_count"])
    # The authors scale by the 99 % quantile of the values from 0 on; what lies beyond goes to 1.
    transform = sf.ArcsinhSquare(clip=0.99, low=0.0)
    return sf.Numerical(name, transform, sf.BSpline(settings["knots"] - 1, degree), special=NEGATIVE)


ARMS: dict[str, Callable[[str, Parts, Json], Field]] = {
    "merged": merged_bins,
    "winner": winner_bins,
    "steps": steps,
    "cubic": cubic,
}


def make_schema(arm: str, parts: Parts, settings: Json) -> sf.Schema:
    """Integers as the arm says, and categories with at least `min_count` rows; a missing value has a parameter."""

    def fields() -> Iterator[Field]:
        for name in parts.names():
            yield (
                ARMS[arm](name, parts, settings)
                if name in INTEGERS
                else sf.Categorical(name, min_count=settings["min_count"])
            )

    return sf.Schema(tuple(fields()))


def tune_and_test(arm: str, k: int, seed: int, parts: Parts, settings: Json, how: Json) -> Json:
    """Choose learning rate and L2 by the best epoch on the validation part; the test loss is that of the same model."""
    schema, best = make_schema(arm, parts, settings), math.inf
    tested: list[float] = []

    def objective(trial: optuna.Trial) -> float:
        nonlocal best
        training = sf.Training(
            schedule="constant",
            epochs=how["epochs"],
            patience=how["patience"],
            batch_size=how["batch_size"],
            learning_rate=trial.suggest_float("learning_rate", *how["learning_rate"], log=True),
            l2=trial.suggest_float("l2", *how["l2"], log=True),
            smoothness=0.0,
            average=False,
            effort="fast",
            seed=seed,
            threads=how.get("threads", 1),
        )
        fitted = _fit(parts, schema, k, training, trial)
        value = min(epoch.validation_loss for epoch in fitted.history)
        if value < best:
            best = value
            tested.append(logloss(fitted, parts.test))
        return value

    found = search(objective, how["trials"])
    return {"validation": found["value"], "test": tested[-1], "params": found["params"]}


def _fit(parts: Parts, schema: sf.Schema, k: int, training: sf.Training, trial: optuna.Trial) -> sf.Fitted:
    def report(epoch: sf.Epoch) -> None:
        trial.report(epoch.validation_loss, epoch.epoch)
        if trial.should_prune():
            raise optuna.TrialPruned

    try:
        return sf.fit_model(
            parts.train,
            LABEL,
            schema=schema,
            model=sf.FwFM(k=k),
            validation=parts.validation,
            training=training,
            callbacks=[report],
        )
    except sf.Diverged as error:
        raise optuna.TrialPruned from error


def defaults(k: int, seed: int, parts: Parts) -> Json:
    """Our defaults: the schema is inferred, nothing is tuned."""
    training = sf.Training(seed=seed, threads=1)
    fitted = sf.fit_model(parts.train, LABEL, model=sf.FwFM(k=k), validation=parts.validation, training=training)
    value = min(epoch.validation_loss for epoch in fitted.history)
    return {"validation": value, "test": logloss(fitted, parts.test)}


def logloss(fitted: sf.Fitted, part: object, threads: int | None = 1) -> float:
    """Mean cross-entropy, block by block."""
    total, n_rows = 0.0, 0
    for batch in sf.open_table(part).chunks([*(item.name for item in fitted.encoder.fields), LABEL]):
        score = fitted.scores(pa.table(batch), threads=threads).astype(np.float64)
        y = batch.column(LABEL).to_numpy()
        total += float(np.sum(np.logaddexp(0.0, score) - y * score))
        n_rows += batch.num_rows
    return total / n_rows
