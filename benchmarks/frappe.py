"""How good is a fit on Frappe, a table of ids with a public leaderboard?

Frappe has the usage of apps: a user, an app and its context are ten columns of names, and each use stands beside two
pairs of user and app that did not happen. The BARS leaderboard (frappe_x1) compares models on one split by AUC and
log-loss. The file has the leaderboard's validation and test rows, byte for byte. Of the training rows it has the uses;
those that did not happen have their real contexts, but apps that were drawn again: read all results as "training
negatives redrawn".

The validation rows stop the fits and choose settings. `--effort best` searches wider; `--tuned` fits the setting that
was found by hand on the validation rows.

    python benchmarks/frappe.py --data DIR [--effort fast|default|best] [--tuned] [--seeds N] [--quick] [--json]
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from _shared import Result, finish, make_parser, say
from sklearn.metrics import log_loss, roc_auc_score

import splinefm as sf

# AUC and log-loss of the leaderboard's best models, of several kinds: https://openbenchmark.github.io/BARS
PUBLISHED = {
    "FM": (0.9671, 0.2065),
    "FwFM": (0.9776, 0.2030),
    "DeepFM": (0.9842, 0.1482),
    "FinalNet": (0.9857, 0.1311),
    "FinalMLP": (0.9861, 0.1484),
}
GOAL_AUC, GOAL_LOGLOSS = 0.983, 0.145
GOAL_AUC_BEST, GOAL_LOGLOSS_BEST = 0.9861, 0.128
QUICK_ROWS = 20_000
Parts = tuple[pa.Table, pa.Table, pa.Table]


def load(folder: Path) -> Parts:
    """Return the rows for training, validation and test; ids are names."""
    table = pq.read_table(folder / "frappe.parquet")
    ids = [name for name in table.column_names if name not in ("label", "split", "origin")]
    for name in ids:
        table = table.set_column(table.column_names.index(name), name, table[name].cast(pa.string()))
    label = table["label"].cast(pa.float64())
    columns = table.select(ids).append_column("label", label)
    train, valid, test = (columns.filter(pc.equal(table["split"], part)) for part in ("train", "valid", "test"))
    return train, valid, test


def fit(parts: Parts, effort: str, tuned: bool, seed: int, threads: int) -> tuple[dict[str, float], str]:
    """Fit once, and score the test rows."""
    train, valid, test = parts
    begin = time.monotonic()
    options: dict[str, Any] = {"seed": seed, "threads": threads}
    model = None
    if tuned:
        model = sf.FwFM(k=96, third=96)
        options |= {"l2": 3e-5, "learning_rate": 0.03, "members": 8, "effort": "fast", "epochs": 20}
    else:
        options["effort"] = effort
    fitted = sf.fit_model(train, "label", model=model, validation=valid, training=sf.Training(**options))
    seconds = time.monotonic() - begin
    y, p = test["label"].to_numpy(), fitted.predict(test)
    found = {"auc": roc_auc_score(y, p), "logloss": log_loss(y, p), "seconds": seconds}
    return found, str(fitted.model)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print and save."""
    parser = make_parser(__doc__, f"the first {QUICK_ROWS:,} training rows")
    parser.add_argument("--data", type=Path, required=True, help="folder with frappe.parquet")
    parser.add_argument("--effort", choices=("fast", "default", "best"), default="default", help="of the fit")
    parser.add_argument("--tuned", action="store_true", help="fit the setting that was chosen by hand")
    parser.add_argument("--seeds", type=int, default=1, help="how many fits (default: 1)")
    parser.add_argument("--threads", type=int, default=2, help="of each fit (default: 2)")
    options = parser.parse_args(arguments)
    finish(__file__, measure(options), options)


def measure(options: argparse.Namespace) -> Result:
    """Fit with several seeds; return means, and ratios to the goals."""
    train, valid, test = load(options.data)
    parts = (train.slice(0, QUICK_ROWS), valid, test) if options.quick else (train, valid, test)
    runs = []
    for seed in range(options.seeds):
        found, model = fit(parts, options.effort, options.tuned, seed, options.threads)
        say(f"seed {seed}: AUC {found['auc']:.4f}, log-loss {found['logloss']:.4f}, {found['seconds']:.0f} s, {model}")
        runs.append(found)
    mean = {name: float(np.mean([run[name] for run in runs])) for name in runs[0]}
    spread = {name: float(np.std([run[name] for run in runs])) for name in ("auc", "logloss")}
    best = options.tuned or options.effort == "best"
    goals = (GOAL_AUC_BEST, GOAL_LOGLOSS_BEST) if best else (GOAL_AUC, GOAL_LOGLOSS)
    figures: Result = {
        "training negatives redrawn": {**mean, "model": model},
        "sd over seeds": spread,
        **{f"published: {name}": {"auc": auc, "logloss": loss} for name, (auc, loss) in PUBLISHED.items()},
    }
    ratios = {"goal_auc_error": (1.0 - goals[0]) / (1.0 - mean["auc"]), "goal_logloss": goals[1] / mean["logloss"]}
    return {"figures": figures, "ratios": ratios}


if __name__ == "__main__":
    main()
