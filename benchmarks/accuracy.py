"""How accurate are the defaults, without tuning per data set?

California housing and Adult are split as the paper's authors do (scikit-learn's `train_test_split(test_size=0.2,
random_state=42)`), Higgs by its `origin` column. `sf.fit_model` gets the training part and holds back a tenth of it for
early stopping. The test part is scored once per seed, with the default model and with FFM(k=8). Figures are
standardized RMSE (housing) and cross-entropy.

    python benchmarks/accuracy.py --data DIR [--quick] [--json] [--save]
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _shared import Result, california_housing, finish, make_parser, say
from sklearn.model_selection import train_test_split

import splinefm as sf
from splinefm.learn.metrics import logloss, rmse
from splinefm.model.family import AnyModel

# Results of the paper's tuned splines and of LightGBM, tuned by hand; lower is better.
MODELS: dict[str, AnyModel | None] = {"defaults": None, "FFM(k=8)": sf.FFM(k=8)}
REFERENCES = {"california": (0.4294, 0.374), "adult": (0.2861, 0.2690), "higgs": (0.5448, 0.5411)}


def read(name: str, folder: Path) -> tuple[pa.Table, pa.Table, str, Any]:
    """Training part, test part, target and loss."""
    if name == "california":
        return *california_housing(folder), "squared"
    if name == "adult":
        table = pq.read_table(folder / "adult.parquet").drop_columns(["split"])
        train, test = train_test_split(np.arange(table.num_rows), test_size=0.2, random_state=42)
        rich = pa.array([float(str(value).strip().startswith(">50K")) for value in table["income"].to_pylist()])
        table = table.set_column(table.column_names.index("income"), "income", rich)
        return table.take(train), table.take(test), "income", "logistic"
    table = pq.read_table(folder / "higgs.parquet")
    held_out = np.array(table["origin"].to_pylist()) == "hs_test"
    table = table.drop_columns(["origin"])
    return table.filter(pa.array(~held_out)), table.filter(pa.array(held_out)), "label", "logistic"


def measure(folder: Path, seeds: int) -> dict[str, Any]:
    """Test metric of every data set and model; the ratios are of the defaults."""
    figures: dict[str, dict[str, dict[str, float]]] = {}
    ratios: dict[str, float] = {}
    for name, (paper, lightgbm) in REFERENCES.items():
        data = read(name, folder)
        figures[name] = {label: score(f"{name} {label}", data, model, seeds) for label, model in MODELS.items()}
        mean = figures[name]["defaults"]["mean"]
        ratios |= {f"{name}_vs_paper": paper / mean, f"{name}_vs_lightgbm": lightgbm / mean}
    return {"figures": figures, "ratios": ratios}


def score(what: str, data: tuple[pa.Table, pa.Table, str, Any], model: AnyModel | None, seeds: int) -> dict[str, float]:
    """Mean and standard deviation over the seeds, and the seconds of the quickest fit."""
    train, test, target, loss = data
    metric, y = rmse if loss == "squared" else logloss, test[target].to_numpy().astype(float)
    values, seconds = [], []
    for seed in range(seeds):
        begin = time.perf_counter()
        fitted = sf.fit_model(train, target, loss=loss, model=model, training=sf.Training(seed=seed))
        seconds.append(time.perf_counter() - begin)
        values.append(metric(y, fitted.predict(test)))
        say(f"{what} seed {seed}: {values[-1]:.4f} in {seconds[-1]:.1f} s")
    return {"mean": float(np.mean(values)), "sd": float(np.std(values)), "seconds": min(seconds)}


def main() -> None:
    """Measure, print and save."""
    parser = make_parser(__doc__, "one seed")
    parser.add_argument("--data", type=Path, required=True, help="folder with the Parquet files")
    options = parser.parse_args()
    finish(__file__, measure(options.data, 1 if options.quick else 3), options, show)


def show(result: Result) -> None:
    """Print a line for each data set and model."""
    print(f"{'':24}{'mean':>8}{'sd':>8}{'paper':>8}{'LightGBM':>10}{'seconds':>9}")
    for name, (paper, lightgbm) in REFERENCES.items():
        for label, row in result["figures"][name].items():
            found = f"{row['mean']:8.4f}{row['sd']:8.4f}{paper:8.4f}{lightgbm:10.4f}{row['seconds']:9.1f}"
            print(f"{name:12}{label:12}{found}")


if __name__ == "__main__":
    main()
