"""A simulation of the paper's A/B test: coarse bins against splines that are served through fine bins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paper.ab.report import report as report
from paper.ab.simulation import simulate
from paper.harness import Json, Options, Results, read_options, read_settings, run_units, write_report


def units(settings: Json) -> dict[str, tuple[Any, ...]]:
    """Return every world with every seed."""
    return {
        f"{world}, seed {seed}": (settings, world, seed) for seed in settings["seeds"] for world in settings["worlds"]
    }


def run(options: Options, settings: Json) -> Path:
    """Run the units without results, write the report and return its path."""
    results = Results.open(options, settings)
    run_units(results, units(settings), simulate, options)
    return write_report(options.out, report(results, options.out))


def main() -> None:
    """Run the experiment with the options of the command line."""
    options = read_options("ab", __doc__)
    print(run(options, read_settings("ab", options.quick)))


if __name__ == "__main__":
    main()
