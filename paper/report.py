"""Write all results into paper/README.md: tables and figures are made anew from the JSON files in paper/results.

python paper/report.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ab_report
import criteo_report
import synthetic_report
import tabular_report
from harness import HERE, RESULTS, Results, write_report, write_section

EXPERIMENTS: dict[str, Callable[[Results, Path], str]] = {
    "synthetic": synthetic_report.report,
    "tabular": tabular_report.report,
    "criteo": criteo_report.report,
    "ab": ab_report.report,
}


def section(name: str) -> str:
    """The report of an experiment, and what it ran on."""
    results = Results.read(RESULTS / f"{name}.json")
    text = EXPERIMENTS[name](results, RESULTS)
    write_report(RESULTS, name, text)
    machine = ", ".join(f"{key} {value}" for key, value in results.machine.items())
    return f"{text.strip()}\n\n*{machine}*"


def main() -> None:
    """Write every section that has results."""
    for name in EXPERIMENTS:
        if (RESULTS / f"{name}.json").exists():
            write_section(HERE / "README.md", name, section(name))
            print(f"{name}: written")
        else:
            print(f"{name}: no results yet, run python paper/{name}.py")


if __name__ == "__main__":
    main()
