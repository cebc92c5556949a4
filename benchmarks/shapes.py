"""What does a monotone column cost, and does the model keep it?

Four tables, each with one column along which the prediction should never fall: California (median income), diamonds
(carat), Adult (years of education) and French motor liability (bonus-malus, claims per year, weighted by exposure;
100,000 of its policies). Our defaults, LightGBM and XGBoost (`pip install lightgbm xgboost`) are fitted with and
without the constraint, all to the same rows; LightGBM with its first method and with the one that costs least loss.
The test part is fixed, seeds vary the fits.

Violations are counted by one probe for all: rows whose other columns are drawn independently of each other from the
training rows, each with two values of the column between its smallest and its largest. A pair counts where the
prediction for the larger value is lower by more than a millionth of the range of all predictions. The certificate of
our constrained model is asked for too, with its seconds.

    python benchmarks/shapes.py --data DIR [--tables NAME ...] [--seeds N] [--quick]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from _shared import Result, finish, make_parser, say
from peers.boosting import PATIENCE, RATE, ROUNDS, VALIDATION, as_categories, make_frames
from sklearn.model_selection import train_test_split
from tables import METRIC_NAMES, SEED, SHARE, LossName, load

import splinefm as sf

WEIGHT = "Exposure"
POLICIES = 100_000
QUICK = ("california",)
PAIRS, QUICK_PAIRS = 100_000, 10_000
Predict = Callable[[pa.Table], Any]


class Problem(NamedTuple):
    """Rows, and the column along which the prediction may not fall."""

    train: pa.Table
    test: pa.Table
    target: str
    loss: LossName
    column: str
    weight: str | None = None


class Fit(NamedTuple):
    """A fitted model: what it predicts, and what else is known."""

    predict: Predict
    note: str
    fitted: sf.Fitted | None = None


def load_motor(folder: Path) -> Problem:
    """Return claims per year of the French policies; the claims' amounts and the number of the policy are left out."""
    table = pq.read_table(folder / "freMTPL2.parquet")
    rows = np.sort(np.random.default_rng(0).choice(table.num_rows, POLICIES, replace=False))
    table = table.take(rows).drop_columns(["IDpol", "ClaimAmount", "ClaimNbSev"])
    rate = table["ClaimNb"].to_numpy() / table[WEIGHT].to_numpy()
    table = table.drop_columns(["ClaimNb"]).append_column("rate", pa.array(rate))
    train, test = train_test_split(np.arange(table.num_rows), test_size=SHARE, random_state=SEED)
    return Problem(table.take(train), table.take(test), "rate", "poisson", "BonusMalus", WEIGHT)


def _load(name: str, column: str) -> Callable[[Path], Problem]:
    return lambda folder: Problem(*load(name, folder, 0, "test"), column)


PROBLEMS: dict[str, Callable[[Path], Problem]] = {
    "california": _load("california", "MedInc"),
    "diamonds": _load("diamonds", "carat"),
    "adult": _load("adult", "education-num"),
    "motor": load_motor,
}


# Contenders


@dataclass(frozen=True)
class Setting:
    """What every fit gets."""

    seed: int
    threads: int


def fit_ours(problem: Problem, setting: Setting, shape: str | None) -> Fit:
    """Fit our defaults; the column is a spline either way."""
    train = problem.train
    schema = sf.Schema.infer(
        train.drop_columns([problem.weight]) if problem.weight else train, target=problem.target
    ).with_shapes({problem.column: "increasing"})
    if shape is None:
        fields = [sf.Numerical(item.name) if item.name == problem.column else item for item in schema]
        schema = sf.Schema(fields, schema.provenance)
    fitted = sf.fit_model(
        train,
        problem.target,
        loss=problem.loss,
        schema=schema,
        sample_weight=problem.weight,
        training=sf.Training(seed=setting.seed, threads=setting.threads),
    )
    return Fit(lambda table: fitted.predict(table, watch=False), str(fitted.model), fitted)


def fit_lightgbm(problem: Problem, setting: Setting, shape: str | None) -> Fit:
    """Fit LightGBM with early stopping; `shape` is the method of its constraints."""
    import lightgbm as lgb

    X, y, weight, rows, held_out, frame = _prepare(problem, setting)
    parameters = {
        "objective": {"squared": "regression", "logistic": "binary", "poisson": "poisson"}[problem.loss],
        "learning_rate": RATE,
        "num_threads": setting.threads,
        "seed": setting.seed,
        "verbosity": -1,
    }
    if shape is not None:
        parameters |= {
            "monotone_constraints": [int(name == problem.column) for name in X],
            "monotone_constraints_method": shape,
        }
    data = lgb.Dataset(X.iloc[rows], y[rows], weight=weight[rows])
    valid = lgb.Dataset(X.iloc[held_out], y[held_out], weight=weight[held_out], reference=data)
    stop = lgb.early_stopping(PATIENCE, verbose=False)
    booster = lgb.train(parameters, data, ROUNDS, valid_sets=[valid], callbacks=[stop])
    return Fit(lambda table: booster.predict(frame(table)), f"{booster.best_iteration} rounds")


def fit_xgboost(problem: Problem, setting: Setting, shape: str | None) -> Fit:
    """Fit XGBoost with early stopping."""
    import xgboost as xgb  # type: ignore[import-not-found]

    X, y, weight, rows, held_out, frame = _prepare(problem, setting)
    objectives = {"squared": "reg:squarederror", "logistic": "binary:logistic", "poisson": "count:poisson"}
    parameters = {
        "objective": objectives[problem.loss],
        "eta": RATE,
        "nthread": setting.threads,
        "seed": setting.seed,
        "tree_method": "hist",
    }
    if shape is not None:
        parameters["monotone_constraints"] = {problem.column: 1}
    data, valid = (
        xgb.DMatrix(X.iloc[part], y[part], weight=weight[part], enable_categorical=True) for part in (rows, held_out)
    )
    settings: Any = {"evals": [(valid, "valid")], "early_stopping_rounds": PATIENCE, "verbose_eval": False}
    booster = xgb.train(parameters, data, ROUNDS, **settings)
    best = (0, booster.best_iteration + 1)

    def predict(table: pa.Table) -> Any:
        return booster.predict(xgb.DMatrix(frame(table), enable_categorical=True), iteration_range=best)

    return Fit(predict, f"{booster.best_iteration + 1} rounds")


def _prepare(problem: Problem, setting: Setting) -> tuple[pd.DataFrame, Any, Any, Any, Any, Callable[[pa.Table], Any]]:
    """Return the columns, targets, weights, the rows that train and those that stop, and how to read other rows."""
    train, weight = problem.train, np.ones(problem.train.num_rows)
    if problem.weight is not None:
        weight = train[problem.weight].to_numpy()
        train = train.drop_columns([problem.weight])
    base = train

    def frame(table: pa.Table) -> pd.DataFrame:
        first, second, names = make_frames(base, table.select(base.column_names), problem.target)
        return as_categories(first, second, names)[1]

    rows, held_out = train_test_split(np.arange(train.num_rows), test_size=VALIDATION, random_state=setting.seed)
    return frame(train), train[problem.target].to_numpy().astype(float), weight, rows, held_out, frame


CONTENDERS: dict[str, tuple[Callable[[Problem, Setting, str | None], Fit], str | None]] = {
    "splinefm": (fit_ours, None),
    "splinefm, increasing": (fit_ours, "increasing"),
    "LightGBM": (fit_lightgbm, None),
    "LightGBM, basic": (fit_lightgbm, "basic"),
    "LightGBM, advanced": (fit_lightgbm, "advanced"),
    "XGBoost": (fit_xgboost, None),
    "XGBoost, constrained": (fit_xgboost, "increasing"),
}
MODULES = {"LightGBM": "lightgbm", "XGBoost": "xgboost"}


# Figures


def make_probe(problem: Problem, pairs: int) -> tuple[pa.Table, pa.Table]:
    """Return rows with smaller and with larger values of the column, everything else drawn column by column."""
    rng = np.random.default_rng(1)
    rows = problem.train.num_rows
    columns = {name: problem.train[name].take(rng.integers(0, rows, pairs)) for name in problem.train.column_names}
    values = problem.train[problem.column].to_numpy().astype(float)
    both = np.sort(rng.uniform(values.min(), values.max(), (pairs, 2)), axis=1)
    kind = pa.float64()
    if np.all(values == np.round(values)):
        both, kind = np.round(both), problem.train.schema.field(problem.column).type
    low, high = (pa.table({**columns, problem.column: pa.array(both[:, i]).cast(kind)}) for i in (0, 1))
    return low, high


def count_violations(predict: Predict, probe: tuple[pa.Table, pa.Table]) -> tuple[float, float]:
    """Return the share of pairs whose prediction falls, and the largest fall, as a share of the range."""
    low, high = (np.asarray(predict(table), float) for table in probe)
    spread = max(low.max(), high.max()) - min(low.min(), high.min())
    falls = (low - high) / max(spread, 1e-300)
    return float((falls > 1e-6).mean()), float(max(falls.max(), 0.0))


def test_loss(problem: Problem, predictions: Any) -> float:
    """Return RMSE, log-loss or Poisson deviance on the test rows, weighted where rows have weights."""
    y, p = problem.test[problem.target].to_numpy().astype(float), np.asarray(predictions, float)
    weight = np.ones(len(y)) if problem.weight is None else problem.test[problem.weight].to_numpy()
    if problem.loss == "squared":
        return float(np.sqrt(np.average((y - p) ** 2, weights=weight)))
    if problem.loss == "logistic":
        p = np.clip(p, 1e-15, 1 - 1e-15)
        return float(np.average(-y * np.log(p) - (1 - y) * np.log1p(-p), weights=weight))
    p = np.maximum(p, 1e-9)
    return float(
        np.average(2 * (np.where(y > 0, y * np.log(np.where(y > 0, y, 1.0) / p), 0.0) - y + p), weights=weight)
    )


def measure(problem: Problem, setting: Setting, name: str, pairs: int) -> Result:
    """Fit one contender; return loss, violations and processor seconds."""
    fit, shape = CONTENDERS[name]
    begin = time.process_time()
    found = fit(problem, setting, shape)
    seconds = time.process_time() - begin
    share, largest = count_violations(found.predict, make_probe(problem, pairs))
    row: Result = {
        "loss": test_loss(problem, found.predict(problem.test)),
        "violations, %": 100.0 * share,
        "largest fall, %": 100.0 * largest,
        "s": seconds,
    }
    if found.fitted is not None:
        begin = time.process_time()
        row |= {"certified": float(found.fitted.certify(problem.column).increasing is True)}
        row |= {"certificate s": time.process_time() - begin}
    return row


def run(folder: Path, tables: list[str], seeds: int, pairs: int, threads: int) -> Result:
    """Fit everyone to every table."""
    names = [name for name in CONTENDERS if find_spec(MODULES.get(name.split(",")[0], "splinefm"))]
    figures: Result = {}
    ratios: dict[str, float] = {}
    for table in tables:
        problem = PROBLEMS[table](folder)
        losses: dict[str, float] = {}
        for name in names:
            rows = []
            for seed in range(seeds):
                rows.append(measure(problem, Setting(seed, threads), name, pairs))
                say(f"{table} seed {seed} {name}: {rows[-1]}")
            mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
            losses[name] = mean["loss"]
            figures[f"{table} ({METRIC_NAMES[problem.loss]}, {problem.column}): {name}"] = mean
        ours = losses["splinefm, increasing"]
        ratios[f"{table}_unconstrained_vs_constrained"] = losses["splinefm"] / ours
        rivals = [
            losses[name] for name in ("LightGBM, basic", "LightGBM, advanced", "XGBoost, constrained") if name in losses
        ]
        if rivals:
            ratios[f"{table}_best_constrained_tree_vs_ours"] = min(rivals) / ours
    return {"figures": figures, "ratios": ratios}


def show(result: Result) -> None:
    """Print a line for each contender."""
    width = 2 + max(map(len, result["figures"]))
    columns = list(next(iter(result["figures"].values())))
    print(" " * width + "".join(f"{column:>17}" for column in columns))
    for name, row in result["figures"].items():
        print(f"{name:{width}}" + "".join(f"{row[column]:17.4f}" for column in columns if column in row))


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = make_parser(__doc__, "one seed of California, a tenth of the pairs")
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    parser.add_argument("--tables", nargs="+", choices=list(PROBLEMS), help="some tables (default: all)")
    parser.add_argument("--seeds", type=int, default=2, help="how many fits of each contender (default: 2)")
    parser.add_argument("--threads", type=int, default=2, help="of each fit (default: 2)")
    options: argparse.Namespace = parser.parse_args(arguments)
    tables = options.tables or list(QUICK if options.quick else PROBLEMS)
    pairs, seeds = (QUICK_PAIRS, 1) if options.quick else (PAIRS, options.seeds)
    finish("shapes.py", run(options.data, tables, seeds, pairs, options.threads), options, show)


if __name__ == "__main__":
    main()
