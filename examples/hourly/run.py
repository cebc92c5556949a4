"""The online system of the paper in one command: serve, click, log, update every hour, reload, report.

The simulated auctions of paper/ab are live traffic for a running `splinefm serve` with two arms, which differ in one
field: coarse bins of recency (control) or splines. Users keep their arm. After every simulated hour, each arm learns
from the impressions that the server has logged for it, and the server loads the new models while it runs. In the end,
`splinefm ab report` compares the arms.

    python examples/hourly/run.py --days 2 --quick
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the simulation is in paper/ab of the repository

import splinefm as sf
from examples.hourly.server import Server
from examples.hourly.traffic import KEY, NewRows, in_simulated_time, serve_hour, value_of
from paper.ab.arms import make_rankers
from paper.ab.simulation import make_log
from paper.ab.world import World
from paper.harness import read_settings
from splinefm.serve.ab import ab_report, as_rows

ARMS = {"control": "A", "splines": "B"}
"""Arms of the server, and what they are called in paper/ab."""
WEIGHTS = {"control": 60, "splines": 40}
USERS = 20_000


@dataclass
class Options:
    """What to simulate."""

    folder: Path
    hours: int = 48
    quick: bool = False
    auctions: int | None = None
    world: str = "smooth"
    seed: int = 0
    workers: int = 1
    bad_hours: tuple[int, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    def read_settings(self) -> dict[str, Any]:
        """Return the settings of paper/ab, with as many days as there are hours."""
        settings = read_settings("ab", quick=True) | {"test_days": -(-self.hours // 24)}
        size = {"auctions_per_hour": 1500, "log_auctions_per_hour": 1000, "epochs": 5} if self.quick else {}
        given = {} if self.auctions is None else {"auctions_per_hour": self.auctions}
        return settings | size | given | self.settings


def fit_arms(options: Options, world: World, settings: dict[str, Any]) -> dict[str, Path]:
    """Fit both arms to a log of ads that were shown at random, and write them to files."""
    log, rankers = make_log(world, settings), make_rankers(settings, options.seed)
    paths = {}
    for arm, name in ARMS.items():
        paths[arm] = options.folder / f"{arm}.sfm"
        rankers[name].estimator.fit(log, target="click").save(paths[arm])
        shutil.copy(paths[arm], options.folder / f"{arm}.start.sfm")
    return paths


def update_arm(model: Path, rows: pa.Table, file: Path) -> str:
    """Write the rows of an hour to a file, and update a model with them; return a word on it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, file)
    try:
        report = sf.update_model(model, file, "click", threads=1)
    except sf.UpdateRefused as refused:
        return f"refused ({refused.verdict.reasons[0]})"
    return f"{report.rows} rows, loss {report.loss:.4f}"


def simulate(options: Options) -> dict[str, Any]:
    """Run the loop; return the value per auction and predicted / true - 1 by hour of each arm, and the report."""
    settings = options.read_settings()
    world = World(settings, options.world, options.seed)
    print(f"fitting {' and '.join(ARMS)} to {settings['log_days']} days of random ads", flush=True)
    models = fit_arms(options, world, settings)
    arguments = [f"--arm={arm}={path}:{WEIGHTS[arm]}" for arm, path in models.items()]
    arguments += ["--key", KEY, "--log", str(options.folder / "log"), "--log-rows"]
    arguments += ["--workers", str(options.workers), "--drift-rows", "0"]
    totals = {arm: np.zeros(2) for arm in ARMS}  # auctions, value
    errors: dict[str, list[float]] = {arm: [] for arm in ARMS}
    with Server(*arguments, events=options.folder / "server.log") as server:
        new, began = NewRows(options.folder / "log"), time.monotonic()
        for number in range(options.hours):
            hour = 24 * settings["log_days"] + number
            auctions = world.auctions(hour, settings["auctions_per_hour"])
            users = np.random.default_rng([options.seed, 2, hour]).integers(USERS, size=len(auctions.bid))
            if number in options.bad_hours:  # the clicks of this hour are lost on their way
                auctions = auctions._replace(luck=np.ones_like(auctions.luck))
            served = serve_hour(server, hour, auctions, users)
            words = []
            for arm, rows in new.by_arm(served.impressions).items():
                word = update_arm(models[arm], rows, options.folder / "new" / arm / f"{hour:05}.parquet")
                if not word.startswith("refused"):
                    server.ask("/v1/reload", {"arm": arm})
                words.append(f"{arm}: {word}")
                brought = value_of(auctions, served, arm)
                totals[arm] += (served.arms == arm).sum(), brought.value
                errors[arm].append(brought.predicted.sum() / brought.ctr.sum() - 1.0)
            print(
                f"hour {number + 1:3} ({time.monotonic() - began:5.1f} s): {served.impressions:,} impressions, "
                f"{served.clicks:,} clicks; {'; '.join(words)}",
                flush=True,
            )
    log = in_simulated_time(options.folder / "log", options.folder / "log-in-simulated-time")
    value = {arm: total[1] / total[0] for arm, total in totals.items()}
    return {"value": value, "true": errors, "report": report(log)}


def report(log: Path) -> list[dict[str, Any]]:
    """Print `splinefm ab report`, and return its rows; ads that were not shown have no outcome, and do not count."""
    command = [sys.executable, "-m", "splinefm", "ab", "report", str(log), "--no-outcome", "skip"]
    print(f"\n$ splinefm {' '.join(command[3:])}", flush=True)
    subprocess.run(command, check=True)
    return as_rows(ab_report(log, no_outcome="skip").figures)


def print_summary(found: dict[str, Any]) -> None:
    """Print the figure of the paper, the same without the noise of clicks, and what the auctions were worth."""
    print(
        "\nmean over hours of |predicted / measured - 1| and of |predicted / true click probability - 1|, which has no"
    )
    print("noise of clicks, and value of an auction (bid × true click probability):")
    for arm, value in found["value"].items():
        hourly = [row["ratio"] for row in found["report"] if row["arm"] == arm and row["hour"] != "all"]
        known = np.abs([ratio for ratio in hourly if np.isfinite(ratio)])
        print(f"  {arm:8} {known.mean():7.2%} {np.abs(found['true'][arm]).mean():7.2%}   {value:.5f}")


def read_options(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=2.0, help="simulated days (default: 2)")
    parser.add_argument("--quick", action="store_true", help="few auctions: about a minute per day on one core")
    parser.add_argument("--auctions", type=int, help="auctions per hour (default: 4000, or 1500 with --quick)")
    parser.add_argument("--world", default="smooth", help="world of paper/ab: smooth, bursts, calm or steps")
    parser.add_argument("--seed", type=int, default=0, help="draws everything (default: 0)")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of the server (default: 1)")
    parser.add_argument("--bad-hour", type=int, action="append", default=[], help="hour whose clicks are lost")
    parser.add_argument("--folder", type=Path, help="folder for models, logs and rows (default: a temporary one)")
    given = parser.parse_args(arguments)
    if not given.days > 0:
        parser.error("--days must be above 0")
    return given


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Run the simulation with the options of the command line."""
    given = read_options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends, too
    with tempfile.TemporaryDirectory(prefix="splinefm-hourly-") as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise SystemExit(f"{folder} is not empty; choose another --folder")
        options = Options(
            folder.resolve(),
            max(1, round(24 * given.days)),
            given.quick,
            given.auctions,
            given.world,
            given.seed,
            given.workers,
            tuple(given.bad_hour),
        )
        found = simulate(options)
        print_summary(found)
    return found


if __name__ == "__main__":
    main()
