"""The arms of the tabular experiment: how each is tuned, and how it learns from one set of rows and predicts others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import optuna
import pyarrow as pa

import splinefm as sf
from paper.harness import Json
from paper.search import search
from paper.tabular.data import About
from splinefm.train.losses import LossName

FloatArray = npt.NDArray[np.float64]


class Arm(Protocol):
    """Contract of a compared method."""

    def tune(self, about: About, train: pa.Table, held_out: pa.Table, settings: Json) -> Json:
        """Return {"params": the best on `held_out`, "value": their loss, ... facts about the search}."""

    def predict(
        self, about: About, params: Json, train: pa.Table, rows: pa.Table, seed: int, threads: int
    ) -> FloatArray:
        """Fit to `train` and return predictions for `rows`."""


def loss_name(about: About) -> LossName:
    """Return the name of the training loss."""
    return "squared" if about.task == "regression" else "logistic"


def targets(about: About, table: pa.Table) -> FloatArray:
    """Return the target as numbers."""
    return np.asarray(table[about.target].to_numpy(), np.float64)


def metric(about: About, y: FloatArray, prediction: FloatArray, scale: float) -> float:
    """Return RMSE in units of `scale`, the standard deviation of the training targets, or cross-entropy."""
    if about.task == "regression":
        return float(np.sqrt(np.mean((y - prediction) ** 2)) / scale)
    p = np.clip(prediction, 1e-15, 1.0 - 1e-15)
    return float(-np.mean(y * np.log(p) + (1.0 - y) * np.log1p(-p)))


@dataclass(frozen=True)
class PaperArm:
    """Bins or splines as in the paper: one number of them for all columns, Adagrad, no penalties, no early stopping.

    Parameters
    ----------
    encoding : {"uniform", "quantile", "splines"}
        Bins of equal width or of equal numbers of rows, or cubic splines of the quantile transform.
    """

    encoding: Literal["uniform", "quantile", "splines"]

    def tune(self, about: About, train: pa.Table, held_out: pa.Table, settings: Json) -> Json:
        def objective(trial: optuna.Trial) -> float:
            params = self._suggest(trial, settings["space"], settings["batches"][settings["set"]])

            def report(epoch: sf.Epoch) -> None:
                trial.report(_value(about, epoch), epoch.epoch)
                if trial.should_prune():
                    raise optuna.TrialPruned

            try:
                fitted = self._fit(about, params, train, held_out, 0, 1, report)
            except sf.Diverged as error:
                raise optuna.TrialPruned from error
            return _value(about, fitted.history[-1])

        return search(objective, settings["trials"])

    def predict(
        self, about: About, params: Json, train: pa.Table, rows: pa.Table, seed: int, threads: int
    ) -> FloatArray:
        return self._fit(about, params, train, 0.0, seed, threads).predict(rows, threads=threads)

    def _suggest(self, trial: optuna.Trial, space: Json, batches: list[int]) -> Json:
        pieces = "knots" if self.encoding == "splines" else "bins"
        return {
            "k": trial.suggest_int("k", *space["k"]),
            "learning_rate": trial.suggest_float("learning_rate", *space["learning_rate"], log=True),
            "batch_size": trial.suggest_int("batch_size", *batches),
            "epochs": trial.suggest_int("epochs", *space["epochs"]),
            pieces: trial.suggest_int(pieces, *space[pieces]),
        }

    def _fit(
        self,
        about: About,
        params: Json,
        train: pa.Table,
        validation: float | pa.Table,
        seed: int,
        threads: int,
        report: Callable[[sf.Epoch], None] = lambda epoch: None,
    ) -> sf.Fitted:
        return sf.fit_model(
            train,
            about.target,
            schema=sf.Schema(tuple(self._fields(about, params, train.schema))),
            model=self._model(train, params["k"]),
            loss=loss_name(about),
            validation=validation,
            training=sf.Training(
                schedule="constant",
                optimizer="adagrad",
                epochs=params["epochs"],
                batch_size=params["batch_size"],
                learning_rate=params["learning_rate"],
                l2=0.0,
                smoothness=0.0,
                average=False,
                patience=None,
                refit_on_all=False,
                effort="fast",
                seed=seed,
                threads=threads,
            ),
            callbacks=[report],
        )

    def _fields(self, about: About, params: Json, columns: pa.Schema) -> Iterator[sf.Numerical | sf.Categorical]:
        for column in columns:
            special = (0.0,) if column.name in about.zeros else ()
            if is_category(column):
                yield sf.Categorical(column.name)
            elif column.name != about.target:
                yield sf.Numerical(column.name, special=special, **self._encoding(params))

    def _encoding(self, params: Json) -> dict[str, Any]:
        if self.encoding == "splines":  # break-points count the ends of [0, 1]
            return {"transform": sf.Quantile(knots=4096), "basis": sf.BSpline(params["knots"] - 1, degree=3)}
        return {"transform": sf.MinMax(), "basis": sf.Bins(params["bins"], self.encoding)}

    def _model(self, train: pa.Table, k: int) -> sf.FFM | sf.FM:
        """FFM for California housing and Adult, FM for the sets with more columns, as in the paper."""
        return sf.FFM(k=k) if train.num_columns <= 20 else sf.FM(k=k)


def is_category(column: pa.Field) -> bool:
    """Return whether a column of the four sets is categorical, which means text."""
    return bool(pa.types.is_string(column.type) or pa.types.is_large_string(column.type))


def _value(about: About, epoch: sf.Epoch) -> float:
    """Return the reported metric of an epoch, whose loss is half the squared error or cross-entropy."""
    loss = epoch.validation_loss
    return float(np.sqrt(2.0 * loss)) if about.task == "regression" else loss
