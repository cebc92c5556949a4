"""What the experiments share: settings, resumable units of work, tables, sections of the report.

An experiment is a set of *units*, each a name and the arguments of one function. Results go to one JSON file after
every unit, so that an interrupted run continues where it stopped; tables, figures and the report are made from that
file alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import textwrap
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console

HERE = Path(__file__).resolve().parent
QUICK_RESULTS = HERE.parent / "build" / "paper-quick"
CACHE = HERE.parent / "build" / "paper-data"  # downloads and converted files

RESULTS_FILE = "results.json"
LINE_LENGTH = 100  # of Markdown

Json = dict[str, Any]


@dataclass(frozen=True)
class Options:
    """Options of an experiment's command line.

    Parameters
    ----------
    quick : bool
        Whether to use reduced settings and a separate results folder.
    data : Path or None
        Folder with the data sets; without it they are downloaded.
    out : Path
        Folder for the results.
    jobs : int
        Number of worker processes.
    only : str
        Run only the units whose name contains this text.
    """

    quick: bool
    data: Path | None
    out: Path
    jobs: int
    only: str = ""


def results_folder(experiment: str) -> Path:
    """Return the folder with the committed results of an experiment."""
    return HERE / experiment / "results"


def read_options(experiment: str, about: str | None) -> Options:
    """Read the options that every experiment has."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--quick", action="store_true", help="reduced settings: minutes instead of hours")
    parser.add_argument("--data", type=Path, help="folder with the data sets (default: download them)")
    parser.add_argument(
        "--out", type=Path, help="folder of results (default: paper/NAME/results, or build/paper-quick)"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (default: all cores)")
    parser.add_argument("--only", default="", help="run only the units whose name contains this text")
    given = parser.parse_args()
    if given.jobs < 1:
        parser.error("--jobs must be at least 1")
    if given.data is not None and not given.data.is_dir():
        parser.error(f"--data: there is no folder {given.data}")
    out = given.out or (QUICK_RESULTS / experiment if given.quick else results_folder(experiment))
    out.mkdir(parents=True, exist_ok=True)
    return Options(given.quick, given.data, out, given.jobs, given.only)


def read_settings(experiment: str, quick: bool) -> Json:
    """Read EXPERIMENT/config.toml: the table [full], updated by [quick] in a quick run."""
    with (HERE / experiment / "config.toml").open("rb") as file:
        config = tomllib.load(file)
    full: Json = config["full"]
    return full | (config.get("quick", {}) if quick else {})


@dataclass
class Results:
    """The results of an experiment, on disk after every unit.

    Parameters
    ----------
    path : Path
        The JSON file.
    settings : dict
        What the units depend on. Results of other settings are never mixed with new ones.
    """

    path: Path
    settings: Json
    units: dict[str, Json] = field(default_factory=dict)
    machine: Json = field(default_factory=dict)

    @classmethod
    def open(cls, options: Options, settings: Json) -> Results:
        """Open the results so far; the file is set aside if the settings have changed."""
        path = options.out / RESULTS_FILE
        results = cls(path, settings, machine=describe_machine())
        if path.exists():
            old = json.loads(path.read_text())
            if old["settings"] == json.loads(json.dumps(settings)):
                results.units = old["units"]
            else:
                aside = path.with_name(f"{path.stem}.{_digest(old['settings'])}.old.json")
                path.rename(aside)
                Console(stderr=True).print(f"settings have changed: earlier results are in {aside.name}")
        return results

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Read the finished results of a folder, to report them."""
        path = folder / RESULTS_FILE
        content = json.loads(path.read_text())
        return cls(path, content["settings"], content["units"], content["machine"])

    def keep(self, name: str, unit: Json) -> None:
        """Add a unit and write the file atomically."""
        self.units[name] = unit
        content = {"settings": self.settings, "machine": self.machine, "units": dict(sorted(self.units.items()))}
        partial = self.path.with_suffix(".partial")
        partial.write_text(_one_line_lists(json.dumps(content, indent=1)) + "\n")
        partial.replace(self.path)


def run_units(
    results: Results, units: Mapping[str, tuple[Any, ...]], work: Callable[..., Json], options: Options
) -> None:
    """Run every unit without a result as `work(*arguments)` in worker processes; the first error ends the run.

    `work` and its arguments must be picklable. The wall time of a unit is stored with it unless `work` returns one.
    """
    todo = [name for name in units if name not in results.units and options.only in name]
    console = Console(stderr=True)
    console.print(f"{len(todo)} of {len(units)} units to do, {options.jobs} at a time")
    started = time.perf_counter()
    for done, (name, unit) in enumerate(_finished(todo, units, work, options.jobs), 1):
        results.keep(name, unit)
        elapsed = time.perf_counter() - started
        left = elapsed / done * (len(todo) - done)
        console.print(f"  {done}/{len(todo)} {name}: {unit['seconds']:.1f} s, about {left / 60:.1f} min left")


def _finished(
    todo: Sequence[str], units: Mapping[str, tuple[Any, ...]], work: Callable[..., Json], jobs: int
) -> Iterator[tuple[str, Json]]:
    """Yield names and results as they finish, with at most `jobs` units running."""
    if jobs == 1:
        yield from ((name, _timed(work, units[name])) for name in todo)
        return
    waiting = iter(todo)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running: dict[Future[Json], str] = {}
        try:
            while True:
                while len(running) < jobs and (name := next(waiting, None)) is not None:
                    running[pool.submit(_timed, work, units[name])] = name
                if not running:
                    return
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    yield running.pop(future), future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _timed(work: Callable[..., Json], arguments: tuple[Any, ...]) -> Json:
    started = time.perf_counter()
    unit = work(*arguments)
    return {"seconds": round(time.perf_counter() - started, 3)} | unit


def describe_machine() -> Json:
    """Return what a reader needs to judge timings: cores and versions."""
    import splinefm

    return {"cores": os.cpu_count(), "python": platform.python_version(), "splinefm": splinefm.__version__}


def mean_sd(values: npt.ArrayLike) -> tuple[float, float]:
    """Return mean and sample standard deviation, which is 0 for a single run."""
    numbers = np.asarray(values, float)
    return float(numbers.mean()), float(numbers.std(ddof=1)) if len(numbers) > 1 else 0.0


def bootstrap_band(values: npt.ArrayLike, level: float = 0.9, draws: int = 10_000) -> tuple[float, float]:
    """Return a bootstrap percentile interval of the mean; it is deterministic."""
    numbers = np.asarray(values, float)
    means = np.random.default_rng(0).choice(numbers, (draws, len(numbers))).mean(1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Format a table with a left-aligned first column; the others are right-aligned."""
    lines = ["| " + " | ".join(header) + " |", "|" + "|".join([" :--- "] + [" ---: "] * (len(header) - 1)) + "|"]
    lines += ["| " + " | ".join("–" if cell is None else str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def write_report(folder: Path, text: str) -> Path:
    """Write the section of an experiment beside its figures, to which it links."""
    path = folder / "report.md"
    path.write_text(wrap(text.strip()) + "\n")
    return path


def write_section(readme: Path, name: str, text: str) -> None:
    """Replace the text between the markers `<!-- NAME -->` and `<!-- end NAME -->` of a report."""
    begin, end = f"<!-- {name} -->", f"<!-- end {name} -->"
    content = readme.read_text()
    before, found, rest = content.partition(begin)
    _, found_end, after = rest.partition(end)
    if not (found and found_end):
        raise ValueError(f"{readme.name} has no section {begin} ... {end}")
    readme.write_text(f"{before}{begin}\n{wrap(text.strip())}\n{end}{after}")


def wrap(text: str) -> str:
    """Wrap the paragraphs and list items of a Markdown text; tables and images stay on one line."""
    blocks = re.split(r"\n(?=- |\||!\[|\n)", text)
    return "\n".join(_wrap_block(block) for block in blocks)


def _wrap_block(block: str) -> str:
    body = block.lstrip("\n")
    if body.startswith(("|", "![")):
        return block
    indent = "  " if body.startswith("- ") else ""
    wrapped = textwrap.fill(
        " ".join(body.split()), LINE_LENGTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return block[: len(block) - len(body)] + wrapped


def _one_line_lists(text: str) -> str:
    """JSON with every list of numbers on one line."""
    return re.sub(r"\[\s([-+.\deE,\s]+)\]", lambda found: f"[{' '.join(found[1].split())}]", text)


def _digest(settings: Json) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]
