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
import ctypes
import faulthandler
import gc
import json
import linecache
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
if str(FOLDER.parent) not in sys.path:  # support.py, c_library.py
    sys.path.append(str(FOLDER.parent))

_MAX_FINDINGS = 50
_MAX_CRASHES = 20
_LONGEST_CASE = 300.0  # by the clock, on a machine that may be busy with other things


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
            "findings": self.findings[:_MAX_FINDINGS],
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
    parser.add_argument(
        "--sanitize",
        action="store_true",
        help="with the sanitizers of build/address; `make sanitized-address` builds it",
    )
    given = parser.parse_args(arguments)
    if given.sanitize:
        os.environ.update(sanitized_environment())
    count = given.count if given.count is not None else long if given.depth == "long" else short
    campaign = Campaign(name, given.depth or "short", count, given.seed, given.seconds, given.only)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        run(campaign)
    except KeyboardInterrupt:  # a long run that is ended early tells what it has seen
        campaign.figures["interrupted"] = True
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


# Cases in processes of their own: a crash ends one of them, and the campaign goes on behind it.


class Wrong(AssertionError):
    """A finding."""


def check_clear(error: BaseException, kinds: tuple[type, ...], *needed: str) -> None:
    """Raise unless an error has one of these types, was raised on purpose, and its message has what is needed."""
    if not isinstance(error, kinds):
        raise Wrong(f"{type(error).__name__}: {str(error)[:300]}") from error
    text = str(error)
    if not text.strip() or any(word not in text for word in needed):
        raise Wrong(f"the message {text[:300]!r} does not say enough") from error
    # Errors of Python, NumPy and Arrow say nothing about the file or the table.
    frames = traceback.extract_tb(error.__traceback__)
    if frames and not _raises(frames[-1]):
        raise Wrong(f"{type(error).__name__} at {frames[-1].filename}:{frames[-1].lineno}: {text[:200]}") from error


def _raises(frame: traceback.FrameSummary) -> bool:
    """Whether a line raises an error on purpose, or calls our compiled module, which has no lines."""
    last = frame.end_lineno or frame.lineno or 0
    statement = "".join(linecache.getline(frame.filename, at) for at in range((frame.lineno or 0) - 3, last + 1))
    return "raise " in statement or "_core" in statement or "_scorer" in statement


def sanitized_environment() -> dict[str, str]:
    """Return the variables of a process that runs the module of build/address."""
    package = ROOT / "build" / "address" / "package"
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None or not package.is_dir():
        raise SystemExit(f"{package} is not built; run `make sanitized-address` (needs GCC and its sanitizers)")
    libraries = [
        subprocess.run(
            [compiler, f"-print-file-name={name}"], capture_output=True, text=True, check=True
        ).stdout.strip()
        for name in ("libasan.so", "libstdc++.so")
    ]
    return {
        "SPLINEFM_SANITIZED": "address",
        "PYTHONPATH": str(package),
        "LD_PRELOAD": " ".join(libraries),
        # Objects of Python in blocks of malloc, which is where the leak sanitizer looks for what refers to a block.
        "PYTHONMALLOC": "malloc",
        "OPENBLAS_NUM_THREADS": "1",
        "ASAN_OPTIONS": "detect_leaks=1:leak_check_at_exit=0:allocator_may_return_null=1:max_allocation_size_mb=4096",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }


def supervise(campaign: Campaign, part: str, count: int) -> None:
    """Try the cases 0 to count - 1 of a part in a process, and in another one behind a case that ends it."""
    first, crashes = 0, 0
    script = sys.modules["__main__"].__file__
    while first < count and not campaign.is_over:
        with tempfile.TemporaryDirectory(prefix="campaign-") as folder:
            trace = Path(folder) / "trace"
            seconds = [] if campaign.deadline is None else ["--seconds", str(campaign.deadline - time.monotonic())]
            numbers = [str(first), str(count), str(campaign.seed)]
            command = [sys.executable, str(script), "--cases", part, *numbers, folder, campaign.depth, *seconds]
            try:
                run = subprocess.run(command, capture_output=True, text=True, errors="replace")
            finally:  # also if the whole run is ended early
                seen = _merge(campaign, part, first, trace)
        campaign.findings += [f"{part}: {leak}" for leak in own_leaks(run.stderr)]
        if "figures" in seen:  # all cases were tried
            if run.returncode:  # the sanitizer stops all threads to look for leaks, and sometimes fails to
                campaign.saw(part, "processes in which the leak sanitizer failed")
                if "LeakSanitizer has encountered a fatal error" not in run.stderr:
                    campaign.find(f"{part}: its end: {run.stderr[-1500:]}")
            return
        crashes += 1
        campaign.saw(part, "crashed")
        campaign.find(f"{part} {seen['number']}: ended with {run.returncode}: {run.stdout[-200:]}{run.stderr[-1500:]}")
        if crashes == _MAX_CRASHES:
            return
        first = seen["number"] + 1


def _merge(campaign: Campaign, part: str, first: int, trace: Path) -> dict[str, Any]:
    """Add what a process has noted to a campaign, and return it."""
    seen: dict[str, Any] = {"number": first, "counts": {}, "findings": []}
    if trace.exists() and trace.stat().st_size:
        seen, _ = json.JSONDecoder().raw_decode(trace.read_text())
    campaign.counts.update(seen["counts"])
    campaign.findings += [f"{part}: {what}" for what in seen["findings"]]
    for name, value in seen.get("figures", {}).items():
        campaign.figures[name] = max(value, campaign.figures.get(name, 0))
    if campaign.depth == "long":
        print(json.dumps({"part": part, **seen}), file=sys.stderr, flush=True)
    return seen


def own_leaks(report: str) -> list[str]:
    """Return the leaks of a report whose blocks our code has allocated."""
    blocks = re.split(r"\n\s*\n", report)
    mine = re.compile(r"#[0-9] .*(_core\S*\.so|libsplinefm|/cpp/\S+\.[ch]pp)")  # near the allocation
    return [block.strip()[:1500] for block in blocks if " leak of " in block and mine.search(block)]


def run_cases(case: Callable[[Campaign, str, int, Path], str], arguments: Sequence[str]) -> int:
    """Try the cases that `supervise` asks for; `case` returns an outcome, and raises what is a finding."""
    part, first, stop, seed, folder, depth, *rest = arguments
    seconds = float(rest[1]) if rest else None
    campaign = Campaign("", depth, int(stop), int(seed), seconds, ())
    slowest = 0.0
    with (Path(folder) / "trace").open("w+b", buffering=0) as trace:

        def note(**more: object) -> None:
            state = {"number": number, "counts": campaign.counts, "findings": campaign.findings, **more}
            data = json.dumps(state).encode()
            os.pwrite(trace.fileno(), data, 0)
            os.ftruncate(trace.fileno(), len(data))

        for number in range(int(first), int(stop)):
            if campaign.is_over:
                break
            note()
            faulthandler.dump_traceback_later(_LONGEST_CASE, exit=True)
            begin = time.process_time()
            try:
                campaign.saw(part, case(campaign, part, number, Path(folder)))
            except Exception as error:
                campaign.find(f"{number}", error)
            if number > int(first):  # the first case imports and prepares
                slowest = max(slowest, time.process_time() - begin)
            faulthandler.cancel_dump_traceback_later()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        note(figures={"slowest_ms": round(1000 * slowest), "most_memory_mb": memory})
    gc.collect()
    if "address" in os.environ.get("SPLINEFM_SANITIZED", ""):
        ctypes.CDLL(None).__lsan_do_recoverable_leak_check()
    return 0
