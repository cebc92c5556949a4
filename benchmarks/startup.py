"""How long does a newcomer wait for the import, the first fit, the first scorer and the first ranking?

Each step runs in a new process and shares only the model file with the others. The fit has 1,000 rows, five numerical
columns and a categorical one; it calls `sf.fit_model` with defaults. The scorer is built from the loaded model and
scores one row. The index has 1,000 items, and the time is that of its first `top_k` (building it is `first_index` in
the figures). Processes alternate, and the best repeat counts.

There is no peer: `goal_*` is goal / measured, with goals of 0.3 s for the import, 0.5 s for the fit and 50 ms each for
the scorer and `top_k`. `process_*` in the figures is the time of a whole process.

    python benchmarks/startup.py [--quick] [--json] [--save]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _shared import finish, make_parser

GOALS = {"import": 0.3, "first_fit": 0.5, "first_scorer": 0.05, "first_topk": 0.05}
TABLE = """
import sys, time
import numpy as np
import splinefm as sf
rng = np.random.default_rng(0)
table = {f"x{i}": rng.normal(size=1000) for i in range(5)} | {"c": rng.choice(list("abc"), 1000)}
"""
# Prints its times, by name; the model file is the first argument.
PROGRAMS = {
    "import": """
import time; begin = time.perf_counter()
import splinefm as sf; sf.fit_model
print("import", time.perf_counter() - begin)
""",
    "first_fit": TABLE
    + """
table["y"] = (rng.random(1000) < 0.5).astype(float)
begin = time.perf_counter()
fitted = sf.fit_model(table, "y")
print("first_fit", time.perf_counter() - begin)
fitted.save(sys.argv[1])
""",
    "first_scorer": TABLE
    + """
fitted, row = sf.load(sys.argv[1]), {name: column[0] for name, column in table.items()}
begin = time.perf_counter()
fitted.scorer()(row)
print("first_scorer", time.perf_counter() - begin)
""",
    "first_topk": TABLE
    + """
fitted, names = sf.load(sys.argv[1]), ("x3", "x4", "c")
context = {name: column[0] for name, column in table.items() if name not in names}
begin = time.perf_counter()
index = sf.ItemIndex(fitted, {name: table[name] for name in names}, ids=np.arange(1000))
print("first_index", time.perf_counter() - begin)
begin = time.perf_counter()
index.top_k(context, 10)
print("first_topk", time.perf_counter() - begin)
""",
}


def run(program: str, model: Path) -> dict[str, float]:
    """Return the times that a program prints, and the time of its process."""
    begin = time.perf_counter()
    command = [sys.executable, "-c", PROGRAMS[program], str(model)]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    whole = time.perf_counter() - begin
    # A fit may tell of its progress on other lines.
    lines = [line.split() for line in out.splitlines() if line.startswith(("import ", "first_"))]
    return {f"process_{program}": whole} | {name: float(seconds) for name, seconds in lines}


def measure(repeats: int) -> dict[str, dict[str, float]]:
    """The best of several repeats."""
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(repeats):
            for program in PROGRAMS:
                for name, seconds in run(program, Path(folder) / "model.sfm").items():
                    figures[name] = min(figures.get(name, seconds), seconds)
    return {"figures": figures, "ratios": {f"goal_{name}": GOALS[name] / figures[name] for name in GOALS}}


def main() -> None:
    """Measure, print and save."""
    options = make_parser(__doc__, "three repeats instead of seven").parse_args()
    finish(__file__, measure(3 if options.quick else 7), options)


if __name__ == "__main__":
    main()
