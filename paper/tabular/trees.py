"""LightGBM, tuned with the same number of trials."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import lightgbm as lgb
import numpy as np
import optuna
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.model_selection import train_test_split

from paper.harness import Json
from paper.search import search
from paper.tabular.arms import FloatArray, is_category, targets
from paper.tabular.data import About

MAX_ROUNDS, PATIENCE = 3000, 50


@dataclass(frozen=True)
class LightGBM:
    """Boosted trees; early stopping sets the number of rounds.

    A trial stops early on the rows that compare the trials. The models that are reported stop early on a tenth of the
    training rows, drawn by their seed, and are fitted again on all of them for as many rounds, as ours are.
    """

    def tune(self, about: About, train: pa.Table, held_out: pa.Table, settings: Json) -> Json:
        encode = Encoder(about, train)
        rows, stopping = encode(train), encode(held_out)

        # No pruning: a low learning rate begins slowly, and would be stopped for it.
        def objective(trial: optuna.Trial) -> float:
            booster = _boost(about, _suggest(trial), rows, stopping, 0, 1)
            trial.set_user_attr("params", trial.params)
            loss = next(iter(booster.best_score["valid_0"].values()))
            return float(loss / rows.y.std()) if about.task == "regression" else float(loss)

        return search(objective, settings["trials"])

    def predict(
        self, about: About, params: Json, train: pa.Table, rows: pa.Table, seed: int, threads: int
    ) -> FloatArray:
        encode = Encoder(about, train)
        kept, stopping = train_test_split(np.arange(train.num_rows), test_size=0.1, random_state=seed)
        first = _boost(about, params, encode(train.take(kept)), encode(train.take(stopping)), seed, threads)
        booster = _boost(about, params, encode(train), None, seed, threads, first.best_iteration)
        return np.asarray(booster.predict(encode(rows).X, num_threads=threads), np.float64)


@dataclass(frozen=True)
class Rows:
    """Numbers, with integer codes for the columns in `categorical`."""

    X: FloatArray
    y: FloatArray
    categorical: list[int]


class Encoder:
    """Encodes categories as integers in order of appearance; new ones are missing."""

    def __init__(self, about: About, train: pa.Table) -> None:
        self.about = about
        self.columns = [column for column in train.schema if column.name != about.target]
        self.categories = {c.name: pc.unique(train[c.name]).drop_null() for c in self.columns if is_category(c)}

    def __call__(self, table: pa.Table) -> Rows:
        X = np.column_stack([self._numbers(table, column.name) for column in self.columns])
        categorical = [i for i, column in enumerate(self.columns) if column.name in self.categories]
        return Rows(X, targets(self.about, table), categorical)

    def _numbers(self, table: pa.Table, name: str) -> FloatArray:
        column = table[name]
        if name in self.categories:
            column = pc.index_in(column, self.categories[name])
        return np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)


def _suggest(trial: optuna.Trial) -> Json:
    return {
        "learning_rate": trial.suggest_float("learning_rate", 0.02, 0.2, log=True),
        "num_leaves": trial.suggest_int("num_leaves", 8, 256, log=True),
        "min_data_in_leaf": trial.suggest_int("min_data_in_leaf", 5, 200, log=True),
        "feature_fraction": trial.suggest_float("feature_fraction", 0.4, 1.0),
        "bagging_fraction": trial.suggest_float("bagging_fraction", 0.5, 1.0),
        "lambda_l1": trial.suggest_float("lambda_l1", 1e-8, 10.0, log=True),
        "lambda_l2": trial.suggest_float("lambda_l2", 1e-8, 10.0, log=True),
    }


def _boost(
    about: About, params: Json, rows: Rows, stopping: Rows | None, seed: int, threads: int, rounds: int = MAX_ROUNDS
) -> lgb.Booster:
    regression = about.task == "regression"
    fixed: dict[str, Any] = {
        "objective": "regression" if regression else "binary",
        "metric": "rmse" if regression else "binary_logloss",
        "bagging_freq": 1,
        "seed": seed,
        "num_threads": threads,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
    }
    data = lgb.Dataset(rows.X, rows.y, categorical_feature=rows.categorical)
    if stopping is None:
        return lgb.train(fixed | params, data, rounds)
    stop = lgb.early_stopping(PATIENCE, verbose=False)
    return lgb.train(fixed | params, data, rounds, [data.create_valid(stopping.X, stopping.y)], callbacks=[stop])
