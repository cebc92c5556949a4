"""Write all results into paper/README.md: tables and figures are rebuilt from each experiment's results.json.

python -m paper.report
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from paper.ab.report import report as report_ab
from paper.criteo.report import report as report_criteo
from paper.harness import HERE, RESULTS_FILE, Results, results_folder, write_report, write_section
from paper.synthetic.report import report as report_synthetic
from paper.tabular.report import report as report_tabular

EXPERIMENTS: dict[str, Callable[[Results, Path], str]] = {
    "synthetic": report_synthetic,
    "tabular": report_tabular,
    "criteo": report_criteo,
    "ab": report_ab,
}


def section(name: str) -> str:
    """Return the report of an experiment and what it ran on, with links that hold in paper/README.md."""
    folder = results_folder(name)
    results = Results.read(folder)
    text = EXPERIMENTS[name](results, folder)
    write_report(folder, text)
    linked = re.sub(r"(!\[[^\]]*\]\()", rf"\1{name}/results/", text.strip())
    machine = ", ".join(f"{key} {value}" for key, value in results.machine.items())
    return f"{linked}\n\n*{machine}*"


def main() -> None:
    """Write every section that has results."""
    for name in EXPERIMENTS:
        if (results_folder(name) / RESULTS_FILE).exists():
            write_section(HERE / "README.md", name, section(name))
            print(f"{name}: written")
        else:
            print(f"{name}: no results yet, run python -m paper.{name}.run")


if __name__ == "__main__":
    main()
