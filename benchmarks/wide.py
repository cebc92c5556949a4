"""How long do the defaults take on wide tables, and how much memory?

`sf.SplineFMClassifier().fit(X, y)` runs on DataFrames with normal, lognormal, integer and categorical columns in turn:
1,000 rows × 5,000 columns and 100,000 rows × 500 columns. Each runs in a new process that imports the package and fits;
generating the table does not count. There is no peer: ratios are goal / measured, with goals of 20 s and 1.5 GB of peak
resident memory for the first table and 60 s for the second.

    python benchmarks/wide.py [--quick] [--json] [--save]
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from _shared import finish, make_parser, peak_bytes, say

TABLES = {"1000x5000": (1_000, 5_000, 20.0), "100000x500": (100_000, 500, 60.0)}  # rows, columns, seconds
MEMORY_GOAL = 1_500_000_000


def make_table(n_rows: int, n_columns: int) -> tuple[Any, np.ndarray]:
    """Columns of four kinds, of which the first six matter."""
    import pandas as pd

    rng = np.random.default_rng(0)
    letters = np.array(list("abcdefgh"))
    kinds: tuple[Callable[[], Any], ...] = (
        lambda: rng.normal(size=n_rows),
        lambda: rng.lognormal(size=n_rows),
        lambda: rng.integers(0, 1000, n_rows),
        lambda: letters[rng.integers(0, 8, n_rows)],
    )
    x = {f"x{i}": kinds[i % 4]() for i in range(n_columns)}
    sign = np.where(x["x3"] < "e", 2.0, -2.0)
    score = 1.5 * np.sin(2.0 * x["x0"]) + (0.7 + 0.8 * x["x4"]) * np.log(x["x1"]) + sign * (x["x2"] / 1000 - 0.5)
    return pd.DataFrame(x), (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-score))).astype(int)


def fit(n_rows: int, n_columns: int) -> dict[str, Any]:
    """Fit in this process; figures of the run."""
    table = make_table(n_rows, n_columns)
    begin, used = time.perf_counter(), time.process_time()
    import splinefm as sf

    model = sf.SplineFMClassifier().fit(*table)
    return {
        "seconds": time.perf_counter() - begin,
        "cpu_seconds": time.process_time() - used,
        "peak_mb": peak_bytes() / 1e6,
        "model": str(model.fitted_.model),
        "epochs": len(model.history_),
        "validation_logloss": min(epoch.validation_loss for epoch in model.history_),
    }


def in_process(n_rows: int, n_columns: int) -> dict[str, Any]:
    """Fit in a new process."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(fit, (n_rows, n_columns))


def measure(repeats: int, shrink: int) -> dict[str, Any]:
    """The fastest of several repeats of each table."""
    figures: dict[str, Any] = {}
    for name, (n_rows, n_columns, _) in TABLES.items():
        for _ in range(repeats):
            run = in_process(n_rows // shrink_of(name, shrink), n_columns)
            say(f"{name}: {run}")
            if name not in figures or run["seconds"] < figures[name]["seconds"]:
                figures[name] = run
    goals = {name: TABLES[name][2] / shrink_of(name, shrink) for name in TABLES}
    ratios = {f"goal_{name}": goals[name] / run["seconds"] for name, run in figures.items()}
    ratios["goal_memory"] = MEMORY_GOAL / 1e6 / figures["1000x5000"]["peak_mb"]
    return {"figures": figures, "ratios": ratios}


def shrink_of(name: str, shrink: int) -> int:
    """How many times fewer rows a table has than its name says; the goal shrinks with them."""
    return shrink if TABLES[name][0] > 1_000 else 1


def main() -> None:
    """Measure, print and save."""
    options = make_parser(__doc__, "once, with a tenth of the 100,000 rows").parse_args()
    finish(__file__, measure(1, 10) if options.quick else measure(2, 1), options)


if __name__ == "__main__":
    main()
