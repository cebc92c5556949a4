"""California housing, Adult, Higgs and Song year: bins, splines as in the paper, our defaults, ours tuned, LightGBM.

Two protocols on the same split, four fifths and one fifth:

- *paper*: parameters are chosen on the fifth that is reported, as in the authors' code. Marked as such: it flatters.
- *honest*: parameters are chosen on a fifth of the four fifths; the models are then fitted to all four fifths with
  several seeds, and each is scored once on the last fifth.

    python -m paper.tabular.run [--quick] [--data DIR] [--jobs N]
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from sklearn.model_selection import train_test_split

from paper.harness import Json, Options, Results, read_options, read_settings, run_units, write_report
from paper.tabular.arms import Arm, PaperArm, metric, targets
from paper.tabular.data import NotAvailable, load
from paper.tabular.ours import Defaults, Tuned, Variant
from paper.tabular.report import MODELS
from paper.tabular.report import report as report
from paper.tabular.trees import LightGBM

Unit = tuple[object, ...]
ARMS: dict[str, Arm] = {
    "uniform": PaperArm("uniform"),
    "quantile": PaperArm("quantile"),
    "splines": PaperArm("splines"),
    "defaults": Defaults(),
    "tuned": Tuned(),
    "kinds": Tuned(("FwFM", "FFM")),
    "lightgbm": LightGBM(),
}
VARIANTS: dict[str, Arm] = {name: Variant(name) for name in MODELS}
PROTOCOLS = ("paper", "honest")


def describe(name: str, settings: Json, folder: Path | None) -> Json:
    """Return how much of a data set is available."""
    data = load(name, folder, settings["rows"])
    return {"train_rows": data.train.num_rows, "test_rows": data.test.num_rows}


def tune(name: str, protocol: str, arm: str, settings: Json, folder: Path | None) -> Json:
    """Choose the parameters of an arm, with one thread."""
    data = load(name, folder, settings["rows"])
    train, held_out = (data.train, data.test) if protocol == "paper" else inner_split(data.train)
    return ARMS[arm].tune(data.about, train, held_out, settings | {"set": name})


def inner_split(train: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Split the four fifths again: four fifths to train on and one to choose by."""
    kept, held_out = train_test_split(range(train.num_rows), test_size=0.2, random_state=42)
    return train.take(kept), train.take(held_out)


def score(name: str, arm: str, params: Json, seed: int, settings: Json, folder: Path | None) -> Json:
    """Fit to the four fifths, score the last."""
    data = load(name, folder, settings["rows"])
    prediction = (ARMS | VARIANTS)[arm].predict(data.about, params, data.train, data.test, seed, 1)
    scale = float(targets(data.about, data.train).std())
    return {"loss": metric(data.about, targets(data.about, data.test), prediction, scale)}


def measure(name: str, arm: str, params: Json, settings: Json, folder: Path | None) -> Json:
    """Return the seconds of a fit on two cores, the better of two."""
    data = load(name, folder, settings["rows"])
    seconds = []
    for _ in range(2):
        started = time.perf_counter()
        (ARMS | VARIANTS)[arm].predict(data.about, params, data.train, data.test.slice(0, 1), 0, 2)
        seconds.append(time.perf_counter() - started)
    return {"seconds": round(min(seconds), 3)}


def tuning_units(name: str, settings: Json, folder: Path | None) -> dict[str, Unit]:
    """Return a search for each arm except our defaults, in both protocols."""
    arms = [arm for arm in ARMS if arm != "defaults"]
    return {
        f"{name}/{protocol}/{arm}/tune": (name, protocol, arm, settings, folder)
        for protocol in PROTOCOLS
        for arm in arms
    }


def units(name: str, settings: Json, folder: Path | None, results: Results) -> dict[str, Unit]:
    """Return a fit for every arm and seed; the defaults choose nothing, so both protocols are the same."""
    seeds = {"paper": settings["paper_seeds"], "honest": settings["seeds"]}
    found: dict[str, Unit] = {}
    for protocol in PROTOCOLS:
        for arm in ARMS:
            if arm == "defaults" and protocol == "paper":
                continue
            params = chosen(results, name, protocol, arm)
            for seed in range(seeds[protocol]):
                found[f"{name}/{protocol}/{arm}/seed {seed}"] = (name, arm, params, seed, settings, folder)
    return found


def variant_units(name: str, settings: Json, folder: Path | None) -> dict[str, Unit]:
    """The other models with our defaults."""
    return {
        f"{name}/variants/{arm}/seed {seed}": (name, arm, {}, seed, settings, folder)
        for arm in VARIANTS
        for seed in range(settings["variant_seeds"])
    }


def timing_units(name: str, settings: Json, folder: Path | None, results: Results) -> dict[str, Unit]:
    """Return every arm with two threads, to run one after another."""
    return {
        f"{name}/seconds/{arm}": (name, arm, chosen(results, name, "honest", arm), settings, folder)
        for arm in (*ARMS, *VARIANTS)
    }


def chosen(results: Results, name: str, protocol: str, arm: str) -> Json:
    """Return the parameters that a search found, none for arms without a search."""
    params: Json = results.units.get(f"{name}/{protocol}/{arm}/tune", {}).get("params", {})
    return params


def run(results: Results, name: str, settings: Json, options: Options) -> None:
    """Run the arms on one data set."""
    run_units(results, {f"{name}/about": (name, settings, options.data)}, describe, replace(options, only=""))
    tuning = tuning_units(name, settings, options.data)
    run_units(results, tuning, tune, options)
    if tuning.keys() <= results.units.keys():
        run_units(results, units(name, settings, options.data, results), score, options)


def is_available(name: str, folder: Path | None, results: Results) -> bool:
    """Return whether a data set can be read; the report names those that cannot."""
    try:
        load(name, folder)
    except NotAvailable as error:
        print(f"left out: {error}", file=sys.stderr)
        results.keep(f"{name}/absent", {"seconds": 0.0})
        return False
    return True


def main() -> None:
    """Run the units without results and write the tables."""
    options = read_options("tabular", __doc__)
    settings = read_settings("tabular", options.quick)
    results = Results.open(options, settings)
    names = [name for name in settings["sets"] if is_available(name, options.data, results)]
    if not names:
        raise SystemExit("none of the data sets is available; pass --data DIR")
    for name in names:
        run(results, name, settings, options)
    for name in names:
        run_units(results, variant_units(name, settings, options.data), score, options)
    for name in names:
        run_units(results, timing_units(name, settings, options.data, results), measure, replace(options, jobs=1))
    print(write_report(options.out, report(results, options.out)))


if __name__ == "__main__":
    main()
