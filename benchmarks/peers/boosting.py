"""LightGBM, CatBoost and EBM on the tables of `tables.py`, with what each of them needs to do well.

Text becomes categories. A time becomes its hour, weekday, month, day of the year and seconds since 1970. A column of
lists becomes a 0/1 column for each value and one with the number of values. A
tenth of the training rows stops LightGBM and CatBoost; each bag of EBM draws its own. There is no refit on all rows.
Seconds are those of the fit alone, without the conversion of the table.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
from sklearn.model_selection import train_test_split

VALIDATION, ROUNDS, PATIENCE, RATE = 0.1, 2_000, 50, 0.05
BAGS = 4  # of EBM, 14 by default: with those, several tables would take more than two minutes


class Fit(NamedTuple):
    """Predictions of the test rows, seconds of the fit, and what a reader should know about it."""

    predictions: Any
    seconds: float
    note: str


@dataclass(frozen=True)
class Setting:
    """What every peer gets: loss, seed, threads, the most seconds that a fit may take, and the outer bags of EBM."""

    loss: str
    seed: int = 0
    threads: int = 2
    limit: float = 600.0
    bags: int = BAGS


@dataclass
class Clock:
    """Seconds since it was made, and whether the limit was reached."""

    limit: float
    begin: float = field(default_factory=time.monotonic)
    late: bool = False

    def seconds(self) -> float:
        """Return the seconds so far."""
        return time.monotonic() - self.begin

    def is_late(self) -> bool:
        """Return whether the fit has to end, and remember it."""
        self.late = self.late or self.seconds() > self.limit
        return self.late

    def note(self, text: str) -> str:
        """Return a note that says if the limit ended the fit."""
        return f"{text}, stopped by the limit of {self.limit:.0f} s" if self.late else text


# Columns


def make_frames(train: pa.Table, test: pa.Table, target: str) -> tuple[pd.DataFrame, pd.DataFrame, list[str]]:
    """Return the columns of both tables without the target, and the names of those with categories."""
    train, test = train.drop_columns([target]), test.drop_columns([target])
    columns: dict[str, tuple[Any, Any]] = {}
    categories = []
    for name in train.column_names:
        kind = train.schema.field(name).type
        if pa.types.is_list(kind):
            columns |= _indicators(name, train[name].to_pylist(), test[name].to_pylist())
        elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            columns |= _times(name, train[name], test[name])
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            categories.append(name)
            columns[name] = (_text(train[name]), _text(test[name]))
        else:
            columns[name] = (_numbers(train[name]), _numbers(test[name]))
    first, second = (pd.DataFrame({name: pair[i] for name, pair in columns.items()}) for i in (0, 1))
    return first, second, categories


def _times(name: str, train: Any, test: Any) -> dict[str, tuple[Any, Any]]:
    times = [pd.to_datetime(pd.Series(column.to_pylist())) for column in (train, test)]
    parts = ("hour", "weekday", "month", "dayofyear")
    found = {f"{name} {part}": tuple(getattr(time.dt, part).to_numpy(float) for time in times) for part in parts}
    epoch = tuple((time - pd.Timestamp(0)).dt.total_seconds().to_numpy() for time in times)
    return {**found, f"{name} epoch": epoch}  # type: ignore[dict-item]


def _numbers(column: Any) -> Any:
    return column.cast(pa.float64()).to_numpy()


def _text(column: Any) -> Any:
    return np.array(["missing" if value is None else value for value in column.to_pylist()], dtype=object)


def _indicators(name: str, train: list[list[str]], test: list[list[str]]) -> dict[str, tuple[Any, Any]]:
    values = sorted({value for row in train for value in row})
    found = {
        f"{name} {i}": tuple(np.array([float(value in row) for row in rows]) for rows in (train, test))
        for i, value in enumerate(values)
    }
    return {**found, f"{name} count": tuple(np.array([float(len(row)) for row in rows]) for rows in (train, test))}  # type: ignore[dict-item]


def as_categories(train: pd.DataFrame, test: pd.DataFrame, names: list[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return frames with pandas categories, those of the training rows; others become missing."""
    kinds = {name: pd.CategoricalDtype(sorted(set(train[name]))) for name in names}
    known = {name: test[name].where(test[name].isin(kinds[name].categories)) for name in names}
    return train.astype(kinds), test.assign(**known).astype(kinds)


# Peers


def fit_lightgbm(train: pa.Table, test: pa.Table, target: str, setting: Setting) -> Fit:
    """Fit LightGBM with its own defaults, a learning rate of 0.05 and early stopping."""
    import lightgbm as lgb

    X, X_test, names = make_frames(train, test, target)
    X, X_test = as_categories(X, X_test, names)
    y, rows, held_out = _targets(train, target, setting)
    objective = {"squared": "regression", "logistic": "binary", "poisson": "poisson", "softmax": "multiclass"}[
        setting.loss
    ]
    parameters = {
        "objective": objective,
        "learning_rate": RATE,
        "num_threads": setting.threads,
        "seed": setting.seed,
        "verbosity": -1,
        **({"num_class": len(np.unique(y))} if setting.loss == "softmax" else {}),
    }
    clock = Clock(setting.limit)

    def stop_if_late(env: Any) -> None:
        if clock.is_late():
            raise lgb.callback.EarlyStopException(env.iteration, env.evaluation_result_list)

    data = lgb.Dataset(X.iloc[rows], y[rows])
    booster = lgb.train(
        parameters,
        data,
        ROUNDS,
        valid_sets=[lgb.Dataset(X.iloc[held_out], y[held_out], reference=data)],
        callbacks=[lgb.early_stopping(PATIENCE, verbose=False), stop_if_late],
    )
    seconds = clock.seconds()
    return Fit(booster.predict(X_test), seconds, clock.note(f"{booster.best_iteration} rounds"))


def fit_catboost(train: pa.Table, test: pa.Table, target: str, setting: Setting) -> Fit:
    """Fit CatBoost with its own defaults and early stopping."""
    import catboost

    X, X_test, names = make_frames(train, test, target)
    y, rows, held_out = _targets(train, target, setting)
    loss = {"squared": "RMSE", "logistic": "Logloss", "poisson": "Poisson", "softmax": "MultiClass"}[setting.loss]
    clock = Clock(setting.limit)

    class StopIfLate:
        def after_iteration(self, info: Any) -> bool:
            return not clock.is_late()

    model = catboost.CatBoost(
        {
            "loss_function": loss,
            "iterations": ROUNDS,
            "od_type": "Iter",
            "od_wait": PATIENCE,
            "thread_count": setting.threads,
            "random_seed": setting.seed,
            "allow_writing_files": False,
            "logging_level": "Silent",
            # Chosen by CatBoost for the other losses.
            **({"learning_rate": RATE} if setting.loss == "poisson" else {}),
        }
    )
    model.fit(
        catboost.Pool(X.iloc[rows], y[rows], cat_features=names),
        eval_set=catboost.Pool(X.iloc[held_out], y[held_out], cat_features=names),
        callbacks=[StopIfLate()],
    )
    seconds = clock.seconds()
    kinds = {"squared": "RawFormulaVal", "poisson": "Exponent"}
    kind = kinds.get(setting.loss, "Probability")
    found = model.predict(catboost.Pool(X_test, cat_features=names), prediction_type=kind)
    predictions = found[:, 1] if setting.loss == "logistic" else found
    return Fit(predictions, seconds, clock.note(f"{model.tree_count_} rounds"))


def fit_ebm(train: pa.Table, test: pa.Table, target: str, setting: Setting) -> Fit:
    """Fit an explainable boosting machine with its own defaults but for the number of outer bags."""
    from interpret.glassbox import ExplainableBoostingClassifier, ExplainableBoostingRegressor

    X, X_test, names = make_frames(train, test, target)
    y = train[target].to_numpy().astype(float)
    with tempfile.TemporaryDirectory() as folder:
        stop = BagLimit(setting.limit * setting.threads / (2 * setting.bags), Path(folder) / "late")
        common = {
            "outer_bags": setting.bags,
            "n_jobs": setting.threads,
            "random_state": setting.seed,
            "feature_types": ["nominal" if name in names else "continuous" for name in X],
            "callback": stop,
        }
        begin = time.monotonic()
        if setting.loss == "logistic":
            model = ExplainableBoostingClassifier(**common).fit(X, y.astype(int))
        else:
            objective = {"squared": "rmse", "poisson": "poisson_deviance"}[setting.loss]
            model = ExplainableBoostingRegressor(objective=objective, **common).fit(X, y)
        clock = Clock(setting.limit, begin, late=stop.mark.exists())
        seconds = clock.seconds()
    predictions = model.predict_proba(X_test)[:, 1] if setting.loss == "logistic" else model.predict(X_test)
    return Fit(predictions, seconds, clock.note(f"{setting.bags} bags"))


@dataclass
class BagLimit:
    """Ends a bag of EBM after some seconds, and then leaves a file, because bags run in other processes.

    Every bag is boosted twice, for single columns and for pairs, and gets the same time for both: one limit for all
    would leave the last bags untrained.
    """

    limit: float
    mark: Path
    begins: dict[int, tuple[float, int]] = field(default_factory=dict)

    def __call__(self, bag: int, step: int, *progress: object) -> bool:
        """Return whether the bag has to end."""
        begin, before = self.begins.get(bag, (time.monotonic(), step))
        if step < before:  # pairs begin
            begin = time.monotonic()
        self.begins[bag] = begin, step
        if time.monotonic() - begin < self.limit:
            return False
        self.mark.touch()
        return True


def _targets(train: pa.Table, target: str, setting: Setting) -> tuple[Any, Any, Any]:
    y = np.array(train[target].to_pylist())
    y = np.unique(y, return_inverse=True)[1] if setting.loss == "softmax" else y.astype(float)
    rows, held_out = train_test_split(np.arange(len(y)), test_size=VALIDATION, random_state=setting.seed)
    return y, rows, held_out


Peer = Callable[[pa.Table, pa.Table, str, Setting], Fit]
PEERS: dict[str, Peer] = {"LightGBM": fit_lightgbm, "CatBoost": fit_catboost, "EBM": fit_ebm}
