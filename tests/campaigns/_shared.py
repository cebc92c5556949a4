"""What the campaigns share: arguments, seeds, a budget of time, and one line of JSON as the result.

A campaign is a script, `tests/campaigns/NAME.py`, with a function `run(campaign)`:

    if __name__ == "__main__":
        sys.exit(main("files", run, short=200, long=10_000))

`--short` is what CI runs, through a test that calls `short_run`; `--long` is run by hand, and its line goes into
`docs/reliability.md`. Parts of a campaign can be chosen by name (`--only`), and everything random comes from
`campaign.rng(part, number)`, so that one case can be made again alone.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
if str(FOLDER.parent) not in sys.path:  # support.py, c_library.py
    sys.path.append(str(FOLDER.parent))

_MOST_FINDINGS = 50


class Campaign:
    """Options of a run, and what it has seen.

    Attributes
    ----------
    name : str
    depth : {"short", "long"}
    count : int
        How many cases of each kind to try.
    seed : int
    deadline : float or None
        Value of `time.monotonic` at which to stop.
    only : tuple of str
        Parts to run; all if empty.
    counts : Counter
        Cases by "part: outcome".
    findings : list of str
        What must not happen. A run without any has passed.
    figures : dict
        Whatever else belongs into the result.
    """

    def __init__(self, name: str, depth: str, count: int, seed: int, seconds: float | None, only: Sequence[str]):
        self.name, self.depth, self.count, self.seed, self.only = name, depth, count, seed, tuple(only)
        self.begin = time.monotonic()
        self.deadline = None if seconds is None else self.begin + seconds
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self.figures: dict[str, object] = {}

    def rng(self, part: str, number: int = 0) -> np.random.Generator:
        """Return the generator of one case, which depends on nothing but its name and number and the seed."""
        return np.random.default_rng([self.seed, number, *part.encode()])

    def wants(self, part: str) -> bool:
        """Return whether a part is to be run."""
        return not self.only or part in self.only

    @property
    def is_over(self) -> bool:
        """Whether the budget of time is used up."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def saw(self, part: str, outcome: str) -> None:
        """Count a case."""
        self.counts[f"{part}: {outcome}"] += 1

    def find(self, what: str, error: BaseException | None = None) -> None:
        """Record something that must not happen; `what` says how to repeat it."""
        reason = "" if error is None else "; " + "".join(traceback.format_exception(error)[-3:]).strip()
        self.findings.append((what + reason)[:2000])
        if sys.stderr.isatty() or self.depth == "long":
            print(self.findings[-1], file=sys.stderr, flush=True)

    def result(self) -> dict[str, object]:
        """Return what the run prints."""
        import splinefm

        return {
            "campaign": self.name,
            "depth": self.depth,
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"),
            "version": splinefm.__version__,
            "sanitizers": os.environ.get("SPLINEFM_SANITIZED"),
            "seed": self.seed,
            "seconds": round(time.monotonic() - self.begin, 1),
            "cpu_seconds": round(time.process_time(), 1),
            "counts": dict(sorted(self.counts.items())),
            **self.figures,
            "n_findings": len(self.findings),
            "findings": self.findings[:_MOST_FINDINGS],
        }


def main(
    name: str, run: Callable[[Campaign], None], *, short: int, long: int, arguments: Sequence[str] | None = None
) -> int:
    """Run a campaign by its arguments, print one line of JSON, and return 1 if something was found, else 0."""
    parser = argparse.ArgumentParser(description=sys.modules[run.__module__].__doc__)
    depth = parser.add_mutually_exclusive_group()
    depth.add_argument("--short", dest="depth", action="store_const", const="short", help="few cases, as in CI")
    depth.add_argument("--long", dest="depth", action="store_const", const="long", help="many cases, by hand")
    parser.add_argument("--count", type=int, help=f"cases of each kind (short: {short}, long: {long})")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=(), help="names of parts")
    given = parser.parse_args(arguments)
    count = given.count if given.count is not None else long if given.depth == "long" else short
    campaign = Campaign(name, given.depth or "short", count, given.seed, given.seconds, given.only)
    run(campaign)
    print(json.dumps(campaign.result()), flush=True)
    return int(bool(campaign.findings))


def short_run(name: str, *arguments: str, timeout: float = 600.0) -> dict[str, object]:
    """Run a campaign in a process of its own, as tests do, and return its line; a crash or a finding is an error."""
    command = [sys.executable, str(FOLDER / f"{name}.py"), "--short", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    lines = run.stdout.splitlines()
    assert lines, f"{name} ended with {run.returncode}:\n{run.stderr[-4000:]}"
    result: dict[str, object] = json.loads(lines[-1])
    assert run.returncode == 0, f"{name} found: {result['findings']}\n{run.stderr[-2000:]}"
    assert result["counts"], f"{name} tried nothing"
    return result
