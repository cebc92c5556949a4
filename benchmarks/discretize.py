"""How many simulated bins keep the score error within a bound, and do they beat trained bins?

Data sets are the synthetic clicks of `splinefm demo` (one numerical column) and, with `--data`, California housing
(eight columns, `california_housing.parquet`). Two questions per data set:

- How many bins keep every score within 1e-2 and 1e-3, all columns together? Adaptive bins
  (`sf.discretize(fitted, max_error=...)`) are compared with equal widths in u, the same number for each column.
  `uniform_vs_adaptive` is the ratio of their numbers.
- What is the held-out loss of a model trained with splines and served through 200 bins per column, compared with a
  model trained with 200 bins per column? Transforms, penalties and seeds are equal. `trained_vs_simulated` is the ratio
  of the losses. For the clicks it is the ratio of the distances to the loss of the true probabilities, since no model
  can be below that.

    python benchmarks/discretize.py [--data DIR] [--quick] [--json] [--save]
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from _shared import Result, finish, make_parser, say
from tables import load

import splinefm as sf
from splinefm.cli.click_data import click_data
from splinefm.metrics import logloss, rmse

BINS = 200
ERRORS = (1e-2, 1e-3)


class Task(NamedTuple):
    """A data set, and how models are fitted to it and judged."""

    train: pa.Table
    test: pa.Table
    target: str
    schema: sf.Schema
    options: dict[str, Any]
    loss: Callable[[sf.Fitted], float]
    floor: float


def clicks(rows: int) -> Task:
    """The synthetic clicks: as many rows to test as to train."""
    table, probability = click_data(2 * rows)
    train, test = table.slice(0, rows), table.slice(rows)
    recency = sf.Numerical("recency", sf.MinMax(), sf.BSpline(segments=20))
    schema = sf.Schema((sf.Categorical("age"), sf.Categorical("gender"), sf.Categorical("ad"), recency))
    y = test["click"].to_numpy()
    floor = logloss(y, probability[rows:])
    return Task(train, test, "click", schema, {"model": sf.FFM(k=4)}, lambda it: logloss(y, it.predict(test)), floor)


def california(folder: Path) -> Task:
    """California housing, split as in benchmarks/accuracy.py; the schema is inferred."""
    train, held_out, target, _ = load("california", folder, part="test")
    schema = sf.infer_schema(train, target=target)
    truth = held_out[target].to_numpy()
    return Task(
        train,
        held_out,
        target,
        schema,
        {"loss": "squared"},
        lambda it: rmse(truth, it.predict(held_out)),
        0.0,
    )


def with_bins(schema: sf.Schema) -> sf.Schema:
    """Return the schema with trained bins instead of splines."""
    items = (replace(item, basis=sf.Bins(BINS)) if isinstance(item, sf.Numerical) else item for item in schema)
    return sf.Schema(tuple(items))


def uniform_bins(fitted: sf.Fitted, max_error: float) -> int:
    """Equal bins in u, the same number for each column, that keep the bound; to a hundredth."""

    def bound(count: int) -> float:
        return sf.discretization_error(fitted, sf.discretize(fitted, count)).bound

    # The bound falls with the width of the bins, but not evenly.
    count = BINS
    for _ in range(3):
        count = max(1, int(np.ceil(count * bound(count) / max_error)))
    while bound(count) > max_error:
        count = int(np.ceil(1.01 * count))
    return count


def count_bins(fitted: sf.Fitted, test: pa.Table) -> dict[str, dict[str, float]]:
    """Bins of both kinds for each bound, and what the bins really do."""
    columns = sum(isinstance(item, sf.Numerical) for item in fitted.encoder.fields)
    found = {}
    for max_error in ERRORS:
        begin = time.perf_counter()
        binned = sf.discretize(fitted, max_error=max_error)
        seconds = time.perf_counter() - begin
        report = sf.discretization_error(fitted, binned, test)
        found[f"{max_error:.0e}"] = {
            "adaptive": sum(item.bins for item in report.fields),
            "uniform": columns * uniform_bins(fitted, max_error),
            "bound": report.bound,
            "largest_change": report.max_error,
            "mean_change": report.mean_error,
            "seconds": seconds,
        }
    return found


def fit(task: Task, schema: sf.Schema, seed: int) -> sf.Fitted:
    """A model of one arm; without a search, in which arms would differ by more than the basis."""
    training = sf.Training(effort="fast", seed=seed)
    return sf.fit_model(task.train, task.target, schema=schema, training=training, **task.options)


def measure(task: Task, seeds: int) -> tuple[dict[str, Any], dict[str, float]]:
    """Figures and ratios of one data set."""
    losses: dict[str, list[float]] = {"splines": [], "simulated": [], "trained": []}
    counts: dict[str, dict[str, float]] = {}
    changes = {}
    for seed in range(seeds):
        fitted = fit(task, task.schema, seed)
        binned = sf.discretize(fitted, BINS)
        arms = {"splines": fitted, "simulated": binned, "trained": fit(task, with_bins(task.schema), seed)}
        for name, model in arms.items():
            losses[name].append(task.loss(model))
        say(f"seed {seed}: " + ", ".join(f"{name} {values[-1]:.5f}" for name, values in losses.items()))
        if seed == 0:
            counts = count_bins(fitted, task.test)
            report = sf.discretization_error(fitted, binned, task.test)
            changes = {"bound": report.bound, "largest_change": report.max_error, "mean_change": report.mean_error}
    means = {name: float(np.mean(values)) for name, values in losses.items()}
    figures = {"loss": losses, "floor": task.floor, f"{BINS}_bins": changes, "bins_for": counts}
    ratios = {f"uniform_vs_adaptive_{error}": row["uniform"] / row["adaptive"] for error, row in counts.items()}
    ratios["trained_vs_simulated"] = (means["trained"] - task.floor) / (means["simulated"] - task.floor)
    return figures, ratios


def show_task(name: str, figures: dict[str, Any]) -> None:
    """Print the tables of one data set."""
    seeds = len(figures["loss"]["splines"])
    print(f"\n{name}, loss on held-out rows (mean of {seeds} seeds; floor {figures['floor']:.5f})")
    for arm, values in figures["loss"].items():
        print(f"    {arm:12}{np.mean(values):10.5f}")
    print(f"    {BINS} bins per column move scores by at most {figures[f'{BINS}_bins']['largest_change']:.1e}")
    print(f"    {'bound':8}{'adaptive':>10}{'uniform':>10}{'largest change':>16}{'seconds':>9}")
    for error, row in figures["bins_for"].items():
        print(
            f"    {error:8}{row['adaptive']:10,}{row['uniform']:10,}{row['largest_change']:16.1e}{row['seconds']:9.2f}"
        )


def main() -> None:
    """Measure, print and save."""
    parser = make_parser(__doc__, "one seed, 50,000 clicks instead of 200,000")
    parser.add_argument("--data", type=Path, help="folder with california_housing.parquet")
    options = parser.parse_args()
    tasks = {"clicks": clicks(50_000 if options.quick else 200_000)}
    if options.data is not None:
        tasks["california"] = california(options.data)
    figures: dict[str, Any] = {}
    ratios: dict[str, float] = {}
    for name, task in tasks.items():
        say(name)
        figures[name], found = measure(task, 1 if options.quick else 3)
        ratios |= {f"{name}_{key}": value for key, value in found.items()}
    finish(__file__, {"figures": figures, "ratios": ratios}, options, show)


def show(result: Result) -> None:
    """Print the tables of all data sets."""
    for name, found in result["figures"].items():
        show_task(name, found)
    print()


if __name__ == "__main__":
    main()
