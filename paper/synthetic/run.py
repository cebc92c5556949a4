"""The paper's synthetic experiment: curves learned with bins and with splines, and the test loss by number of knots."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import splinefm as sf
from paper.harness import Json, Options, Results, read_options, read_settings, run_units, write_report
from paper.synthetic.arms import bins, fit_as_authors, fit_by_library, splines, validation_loss
from paper.synthetic.data import SEGMENTS, Clicks, make_clicks, split
from paper.synthetic.report import report as report
from splinefm.metrics import logloss


def units(settings: Json) -> dict[str, tuple[Any, ...]]:
    """Return all panels of curves, every number of knots with every repetition, and the timing."""
    bases: dict[str, Any] = {f"curves {count} bins": sf.Bins(count) for count in settings["panel_bins"]}
    bases |= {f"curves {settings['panel_knots']} knots": splines(settings["panel_knots"])}
    panels = {name: (settings, "panel", basis) for name, basis in bases.items()}
    sweep = {
        f"sweep {knots} knots, repetition {repetition}": (settings, "sweep", knots, repetition)
        for repetition in range(settings["repetitions"])
        for knots in settings["knots"]
    }
    return panels | sweep | {"timing": (settings, "timing")}


def work(settings: Json, kind: str, *arguments: Any) -> Json:
    """Run one unit."""
    return KINDS[kind](settings, *arguments)


def learn_curves(settings: Json, basis: Any) -> Json:
    """Return the curves of all segments, trained as the authors do on the first split, and the test loss."""
    train, test = split(settings, 0)
    fitted = fit_as_authors(train, basis, settings, 0)
    recency = np.linspace(0.0, 40.0, settings["panel_points"])
    curves = [fitted.predict(one.table(recency), threads=1).round(4).tolist() for one in SEGMENTS]
    return {"test_loss": _test_loss(fitted, test), "optimal": logloss(test.click, test.probability), "curves": curves}


def compare_arms(settings: Json, knots: int, repetition: int) -> Json:
    """Return test losses of all arms on the same split with the same seed."""
    train, test = split(settings, repetition)
    unit: Json = {"optimal": logloss(test.click, test.probability), "test_loss": {}}

    def run(arm: str, fit: Callable[..., sf.Fitted], basis: Any, *smoothness: float) -> sf.Fitted:
        fitted = fit(train, basis, settings, repetition, *smoothness)
        unit["test_loss"][arm] = round(_test_loss(fitted, test), 7)
        return fitted

    run("bins", fit_as_authors, bins(knots))
    run("splines", fit_as_authors, splines(knots))
    run("library bins", fit_by_library, bins(knots), 0.0)
    grid = settings["smoothness"]
    fits = {value: run(f"smoothness {value:g}", fit_by_library, splines(knots), value) for value in grid}
    # Rows of the training part choose the smoothness; the test part is not looked at.
    chosen = min(fits, key=lambda value: validation_loss(fits[value]))
    unit["chosen"] = chosen
    unit["test_loss"]["chosen"] = unit["test_loss"][f"smoothness {chosen:g}"]
    return unit


def time_fits(settings: Json) -> Json:
    """Return the fastest of several fits with a medium number of knots."""
    train, _ = split(settings, 0)
    knots = settings["knots"][len(settings["knots"]) // 2]
    fits: dict[str, tuple[Any, ...]] = {
        "bins": (fit_as_authors, bins(knots)),
        "splines": (fit_as_authors, splines(knots)),
        "library bins": (fit_by_library, bins(knots), 0.0),
        "library splines": (fit_by_library, splines(knots), 1e-2),
    }
    seconds = {
        arm: [_seconds(fit, train, basis, settings, seed, *smoothness) for seed in range(5)]
        for arm, (fit, basis, *smoothness) in fits.items()
    }
    return {"knots": knots, "best": {arm: round(min(times), 3) for arm, times in seconds.items()}}


KINDS: dict[str, Callable[..., Json]] = {"panel": learn_curves, "sweep": compare_arms, "timing": time_fits}


def _seconds(fit: Callable[..., sf.Fitted], *arguments: Any) -> float:
    started = time.perf_counter()
    fit(*arguments)
    return time.perf_counter() - started


def _test_loss(fitted: sf.Fitted, test: Clicks) -> float:
    return logloss(test.click, fitted.predict(test.table, threads=1))


def run(options: Options, settings: Json) -> Path:
    """Run the units without results, write the report and return its path."""
    results = Results.open(options, settings)
    make_clicks(settings)
    run_units(results, units(settings), work, options)
    return write_report(options.out, report(results, options.out))


def main() -> None:
    """Run the experiment with the options of the command line."""
    options = read_options("synthetic", __doc__)
    print(run(options, read_settings("synthetic", options.quick)))


if __name__ == "__main__":
    main()
