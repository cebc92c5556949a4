"""How long does a newcomer wait: import, first fit with no compiled kernels at hand, first fit with them?

1,000 rows, five numerical columns and a categorical one, `sf.fit_model` with defaults, each in a process of its own.
There is no peer; the ratios are goal / measured (0.5 s, 8 s and 1 s).

    python benchmarks/startup.py [--quick] [--json]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile

GOALS = {"import": 0.5, "first_fit": 8.0, "warm_fit": 1.0}
IMPORT = """
import time; begin = time.perf_counter()
import splinefm as sf; sf.fit_model
print("=", time.perf_counter() - begin)
"""
FIT = """
import time
import numpy as np
import splinefm as sf
rng = np.random.default_rng(0)
table = {f"x{i}": rng.normal(size=1000) for i in range(5)} | {"c": rng.choice(list("abc"), 1000)}
table["y"] = (rng.random(1000) < 0.5).astype(float)
begin = time.perf_counter()
sf.fit_model(table, "y")
print("=", time.perf_counter() - begin)
"""


def seconds(code: str, cache: str) -> float:
    """What a program prints of its time."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
    out = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)
    return float(out.stdout.rsplit("=", 1)[1])


def measure(repeats: int) -> dict[str, dict[str, float]]:
    """The best of several repeats."""
    figures = dict.fromkeys(GOALS, float("inf"))
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as cache:
            times = {
                "import": seconds(IMPORT, cache),
                "first_fit": seconds(FIT, cache),
                "warm_fit": seconds(FIT, cache),
            }
        figures = {name: min(figures[name], times[name]) for name in figures}
    return {"figures": figures, "ratios": {f"{name}_vs_goal": GOALS[name] / figures[name] for name in GOALS}}


def main() -> None:
    """Print a table, or one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="once")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    result = measure(1 if options.quick else 3)
    if options.json:
        print(json.dumps(result))
        return
    for name, figure in result["figures"].items():
        print(f"{name:10}{figure:8.2f} s   goal {GOALS[name]:.1f} s")


if __name__ == "__main__":
    main()
