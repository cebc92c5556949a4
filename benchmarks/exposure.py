"""How well are counts with an exposure predicted, and how long does it take?

French motor insurance (freMTPL2, 678,013 policies): the number of claims, capped at 4, of nine rating columns, with the
policy's exposure in years, capped at 1. A fifth of the rows, drawn at random, is the test. All contenders have the same
rows and report the mean Poisson deviance per policy of the expected claims, rate × exposure:

- splinefm, with `exposure="Exposure"`, by default and with `effort="fast"`;
- LightGBM, objective poisson, with `init_score` = log exposure and early stopping;
- PoissonRegressor of scikit-learn, as the industry uses it: rates, weighted by exposure, on one-hot categories and
  binned or logarithmic numbers;
- the overall rate.

    python benchmarks/exposure.py --data FOLDER [--quick] [--json] [--save]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from _shared import finish, make_parser, say

CATEGORIES = ["Area", "VehBrand", "VehGas", "Region"]
NUMBERS = ["VehPower", "VehAge", "DrivAge", "BonusMalus", "Density"]
COLUMNS = [*CATEGORIES, *NUMBERS]
QUICK_ROWS = 40_000


def read_rows(folder: Path, quick: bool) -> tuple[Any, Any]:
    """The rows to learn from, and those of the test."""
    import pandas as pd

    rows = pd.read_parquet(folder / "freMTPL2.parquet")
    rows = rows.astype({**dict.fromkeys(CATEGORIES, str), **dict.fromkeys(NUMBERS, float)})
    rows["Exposure"], rows["ClaimNb"] = rows["Exposure"].clip(upper=1.0), rows["ClaimNb"].clip(upper=4)
    order = np.random.default_rng(0).permutation(len(rows))[: QUICK_ROWS if quick else None]
    n_test = len(order) // 5
    return rows.iloc[order[n_test:]], rows.iloc[order[:n_test]]


def deviance(y: Any, expected: Any) -> float:
    """Mean Poisson deviance."""
    y, expected = np.asarray(y, float), np.asarray(expected, float)
    logarithm = np.where(y > 0, y * np.log(np.where(y > 0, y, 1.0) / expected), 0.0)
    return float(2.0 * np.mean(logarithm - y + expected))


def splinefm(effort: Literal["fast", "default"]) -> Callable[[Any, Any], Any]:
    """A fit of splinefm."""

    def predict(train: Any, test: Any) -> Any:
        import splinefm as sf

        columns = [*COLUMNS, "Exposure"]
        training = sf.Training(effort=effort)
        rows = train[[*columns, "ClaimNb"]]
        fitted = sf.fit_model(rows, "ClaimNb", loss="poisson", exposure="Exposure", training=training)
        say(str(fitted))
        return fitted.predict(test[columns])

    return predict


def lightgbm(train: Any, test: Any) -> Any:
    """LightGBM with early stopping on a tenth of the rows."""
    import lightgbm as lgb

    def features(rows: Any) -> Any:
        return rows[COLUMNS].astype(dict.fromkeys(CATEGORIES, "category"))

    X, held_out = features(train), np.random.default_rng(1).random(len(train)) < 0.1
    y, log = train["ClaimNb"].to_numpy(), np.log(train["Exposure"].to_numpy())
    start = np.log(y.sum() / train["Exposure"].sum())
    learned = lgb.Dataset(X[~held_out], y[~held_out], init_score=start + log[~held_out])
    judged = lgb.Dataset(X[held_out], y[held_out], init_score=start + log[held_out], reference=learned)
    settings = {"objective": "poisson", "learning_rate": 0.05, "num_leaves": 31, "seed": 0, "verbose": -1}
    model = lgb.train(settings, learned, 3000, [judged], callbacks=[lgb.early_stopping(50, verbose=False)])
    say(f"lightgbm: {model.best_iteration} trees")
    return np.exp(model.predict(features(test), raw_score=True) + start) * test["Exposure"]


def linear(train: Any, test: Any) -> Any:
    """The generalized linear model that actuaries begin with."""
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import PoissonRegressor
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, OneHotEncoder, StandardScaler

    parts = ColumnTransformer(
        [
            (
                "bins",
                KBinsDiscretizer(10, quantile_method="averaged_inverted_cdf", subsample=200_000, random_state=0),
                ["VehAge", "DrivAge"],
            ),
            ("categories", OneHotEncoder(handle_unknown="ignore"), [*CATEGORIES, "VehPower"]),
            ("bonus", StandardScaler(), ["BonusMalus"]),
            ("density", make_pipeline(FunctionTransformer(np.log), StandardScaler()), ["Density"]),
        ]
    )
    model = make_pipeline(parts, PoissonRegressor(alpha=1e-4, solver="newton-cholesky"))
    rate = train["ClaimNb"] / train["Exposure"]
    model.fit(train[COLUMNS], rate, poissonregressor__sample_weight=train["Exposure"])
    return model.predict(test[COLUMNS]) * test["Exposure"]


def overall_rate(train: Any, test: Any) -> Any:
    """The same rate for all."""
    return test["Exposure"] * (train["ClaimNb"].sum() / train["Exposure"].sum())


CONTENDERS = {
    "splinefm": splinefm("default"),
    "splinefm_fast": splinefm("fast"),
    "lightgbm": lightgbm,
    "poisson_regressor": linear,
    "overall_rate": overall_rate,
}


def measure(folder: Path, quick: bool) -> dict[str, Any]:
    """Deviance and seconds of all contenders."""
    train, test = read_rows(folder, quick)
    figures: dict[str, Any] = {"rows": len(train), "test_rows": len(test)}
    for name, contender in CONTENDERS.items():
        begin, used = time.perf_counter(), time.process_time()
        expected = contender(train, test)
        figures[name] = {
            "deviance": deviance(test["ClaimNb"], expected),
            "claims_over_expected": float(test["ClaimNb"].sum() / np.sum(expected)),
            "seconds": time.perf_counter() - begin,
            "cpu_seconds": time.process_time() - used,
        }
        say(f"{name}: {figures[name]}")
    ours = figures["splinefm"]["deviance"]
    ratios = {f"{name}_vs_splinefm": figures[name]["deviance"] / ours for name in CONTENDERS if name != "splinefm"}
    return {"figures": figures, "ratios": ratios}


def main() -> None:
    """Measure, print and save."""
    parser = make_parser(__doc__, f"{QUICK_ROWS:,} rows")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="where freMTPL2.parquet is")
    options = parser.parse_args()
    finish(__file__, measure(options.data, options.quick), options)


if __name__ == "__main__":
    main()
