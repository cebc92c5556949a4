"""Write the tables of benchmarks/README.md from the results in benchmarks/results.

A section `<!-- NAME -->` ... `<!-- end NAME -->` of the README gets the ratios and figures of results/NAME.json, which
`python benchmarks/NAME.py --save` writes; without such a file the section says so.

    python benchmarks/readme.py [--check]
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SECTION = re.compile(r"<!-- (\w+) -->\n.*?<!-- end \1 -->", re.DOTALL)
# Ratios above these are what the project aims at.
GOALS: dict[str, dict[str, float]] = {
    "encode": {"fit_vs_sklearn": 15, "encode_vs_sklearn": 25},
    "train": {"fm_k16_vs_torch": 25, "fwfm_k16_vs_torch": 14, "ffm_k8_vs_torch": 12, "fmfm_k8_vs_torch": 7},
    "libffm": {"k4_vs_libffm": 1.5, "k8_vs_libffm": 1.5},
    "startup": {f"goal_{name}": 1 for name in ("import", "first_fit", "first_scorer", "first_topk")},
    "rank": {"matvec_vs_topk": 0.67, "topk_vs_lightgbm": 300},
    "single_row": {"p50_vs_lightgbm": 5},
    "explain": {"predict_vs_shapley": 0.2},
    "explore": {"updates_vs_60": 0.9},
    "serve": {"throughput_vs_lightgbm": 3, "p99_vs_lightgbm": 1, "rows_100_throughput_vs_lightgbm": 10},
    "overload": {"goal_p99_vs_overload": 1, "goal_memory": 1},
    "accuracy_more": {"lightgbm_seconds_vs_splinefm": 0.5},
    "shapes": {
        f"{table}_{ratio}": goal
        for table in ("california", "diamonds", "adult", "motor")
        for ratio, goal in (("unconstrained_vs_constrained", 1 / 1.003), ("best_constrained_tree_vs_ours", 1))
    },
    "frappe": {"goal_auc_error": 1, "goal_logloss": 1},
    "accuracy": {"best_tree_vs_splinefm": 1 / 0.99, "ebm_vs_splinefm": 1 / 0.97, "lightgbm_seconds_vs_splinefm": 1},
}
# Significant digits, where three hide what matters.
DIGITS = {"shapes": 4, "exposure": 4, "accuracy": 4, "accuracy_more": 4, "accuracy_r": 4, "frappe": 4}


def render(text: str, results: Path = HERE / "results") -> str:
    """Return the README with every section filled from the results."""
    return SECTION.sub(
        lambda found: f"<!-- {found[1]} -->\n{section(found[1], results)}\n<!-- end {found[1]} -->", text
    )


def section(name: str, results: Path) -> str:
    """Return ratios, figures and what they were measured on."""
    path = results / f"{name}.json"
    if not path.exists():
        return f"No run is saved yet: see results/{name}.json."
    result = json.loads(path.read_text())
    tables = [ratios_table(name, result["ratios"]), *figures_table(result["figures"], DIGITS.get(name, 3))]
    return "\n\n".join([*tables, provenance(result)])


def ratios_table(name: str, ratios: dict[str, float]) -> str:
    """Return a line for each ratio, with its goal."""
    goals, digits = GOALS.get(name, {}), DIGITS.get(name, 3)
    lines = [
        f"| `{key}` | {_number(value, digits)} | {_number(goals[key], digits) if key in goals else ''} |"
        for key, value in ratios.items()
    ]
    return "\n".join(["| ratio (above 1: ours is better) | measured | goal |", "|---|---|---|", *lines])


def figures_table(figures: dict[str, Any], digits: int = 3) -> list[str]:
    """Return a table of the contenders that have figures of the same names, if there are any."""
    rows = {name: value for name, value in figures.items() if isinstance(value, dict)}
    flat = {name: value for name, value in figures.items() if isinstance(value, int | float)}
    tables = []
    if flat:
        lines = [f"| {key} | {_number(value, digits)} |" for key, value in flat.items()]
        tables.append("\n".join(["| figure | |", "|---|---|", *lines]))
    if rows:
        columns = list(dict.fromkeys(key for row in rows.values() for key, cell in row.items() if _is_cell(cell)))
        header = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
        lines = [
            f"| {name} | {' | '.join(_cell(row.get(key), digits) for key in columns)} |" for name, row in rows.items()
        ]
        tables.append("\n".join([*header, *lines]))
    return tables


def provenance(result: dict[str, Any]) -> str:
    """Return date, commit, machine and versions of a run."""
    machine = result["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
    kind = "`--quick`" if result["quick"] else "full run"
    return (
        f"*{result['date']}, commit {result['commit']}, {kind}, {machine['processor']}, {machine['cores']} cores, "
        f"load {machine['load']}; {versions}*"
    )


def _is_cell(value: object) -> bool:
    return isinstance(value, int | float | str)


def _cell(value: object, digits: int) -> str:
    return _number(value, digits) if isinstance(value, int | float) else str(value or "")


def _number(value: float, digits: int) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.{digits}g}"


def main() -> None:
    """Write the README, or say whether it is up to date."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="exit with 1 if the README is not up to date")
    options = parser.parse_args()
    path = HERE / "README.md"
    text = path.read_text()
    if options.check:
        raise SystemExit(int(render(text) != text))
    path.write_text(render(text))


if __name__ == "__main__":
    main()
