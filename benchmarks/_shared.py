"""What the benchmarks share: options, timing, data, models with random parameters, and results as JSON files."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

RESULTS = Path(__file__).resolve().parent / "results"
PACKAGES = (
    "splinefm",
    "numpy",
    "pyarrow",
    "scikit-learn",
    "torch",
    "lightgbm",
    "lleaves",
    "onnxruntime",
    "onnxmltools",
    "granian",
    "xgboost-cpu",
    "catboost",
    "interpret-core",
    "pylibffm",
    "fastapi",
    "uvicorn",
    "msgspec",
    "httptools",
    "uvloop",
    "prometheus_client",
    "playwright",
)
Result = dict[str, Any]


# Options and results


def make_parser(about: str | None, quick: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark; `quick` says what a quick run leaves out."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--save", action="store_true", help="also write benchmarks/results/NAME.json")
    return parser


def finish(
    script: str, result: Result, options: argparse.Namespace, show: Callable[[Result], None] | None = None
) -> None:
    """Save the result if asked to, and print it as JSON or as tables."""
    if options.save:
        print(f"written: {save(Path(script).stem, result, options.quick)}", file=sys.stderr)
    if options.json:
        print(json.dumps({"figures": result["figures"], "ratios": result["ratios"]}))
        return
    (show or show_figures)(result)
    for name, ratio in result["ratios"].items():
        print(f"{name:46}{ratio:10.2f}")


def save(name: str, result: Result, quick: bool, folder: Path = RESULTS) -> Path:
    """Write figures and ratios with the machine, versions and commit that they belong to."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    content = {"benchmark": name, "quick": quick, **describe_run(), **result}
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def describe_run() -> Result:
    """Return what a reader needs to judge a result."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "commit": _commit(),
        "machine": {"processor": _processor(), "cores": os.cpu_count(), "load": round(os.getloadavg()[0], 1)},
        "versions": {"python": platform.python_version(), **_versions()},
    }


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def _commit() -> str:
    command = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=Path(__file__).parent)
    return done.stdout.strip() or "unknown"


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def show_figures(result: Result) -> None:
    """Print figures, nested ones indented."""
    for name, value in result["figures"].items():
        if not isinstance(value, dict):
            print(f"{name:32}{value:14,.3f}")
            continue
        print(name)
        for key, figure in value.items():
            print(f"    {key:40}{figure:14,.4g}" if isinstance(figure, int | float) else f"    {key:40}{figure!s:>14}")


# Timing and memory


def say(text: str) -> None:
    """Print a line of progress on standard error."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def seconds(job: Callable[[], object]) -> float:
    """Return the wall time of one run."""
    begin = time.perf_counter()
    job()
    return time.perf_counter() - begin


def peak_bytes() -> int:
    """Return the peak resident memory of this process (Linux; `ru_maxrss` would start at that of the parent)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


# Data with the shape of Criteo's: lognormal numbers and Zipf-distributed categories


N_NUMERICAL, N_CATEGORICAL, DISTINCT, SEGMENTS = 13, 26, 100_000, 20


def zipf_codes(rng: np.random.Generator, rows: int, distinct: int) -> npt.NDArray[np.int64]:
    """Draw categories as integers from 0; the last one gets what lies beyond."""
    return np.minimum(rng.zipf(1.2, rows), distinct) - 1


def zipf_ranks(rng: np.random.Generator, rows: int, distinct: int) -> npt.NDArray[np.int64]:
    """Draw categories as integers from 0, from the truncated distribution."""
    share = np.cumsum(np.arange(1, distinct + 1) ** -1.2)
    return np.asarray(np.minimum(np.searchsorted(share, rng.random(rows) * share[-1]), distinct - 1))


def hex_names(rng: np.random.Generator, distinct: int) -> list[str]:
    """Draw names of eight hexadecimal digits."""
    return [f"{value:08x}" for value in rng.choice(2**32, distinct, replace=False)]


def criteo_columns(rows: int, *, text: bool) -> dict[str, Any]:
    """Return columns I1 to I13 and C1 to C26; categories are names or integers."""
    rng = np.random.default_rng(0)
    columns: dict[str, Any] = {f"I{i + 1}": rng.lognormal(0.0, 1.5, rows) for i in range(N_NUMERICAL)}
    each = DISTINCT // N_CATEGORICAL
    for i in range(N_CATEGORICAL):
        names = np.array(hex_names(rng, each)) if text else np.arange(1, each + 1)
        columns[f"C{i + 1}"] = names[zipf_codes(rng, rows, each)]
    return columns


def spline_schema(numerical: Iterable[str], categorical: Iterable[str]) -> Any:
    """Return cubic splines on quantiles for numbers, and categories."""
    import splinefm as sf

    numbers = [sf.Numerical(name, sf.Quantile(), sf.BSpline(SEGMENTS, 3)) for name in numerical]
    return sf.Schema((*numbers, *(sf.Categorical(name) for name in categorical)))


def criteo_schema(names: Iterable[str]) -> Any:
    """Return the schema of `criteo_columns`."""
    names = list(names)
    return spline_schema([n for n in names if n.startswith("I")], [n for n in names if n.startswith("C")])


# Models


def random_model(encoder: Any, model: Any) -> Any:
    """Return a `Fitted` with random parameters: training would make no difference to the time."""
    import splinefm as sf
    from splinefm.model.family.parameters import init_params

    rng = np.random.default_rng(1)
    params = init_params(model, encoder.layout, rng, scale=0.3)
    params["linear"][:] = rng.normal(0.0, 0.1, len(params["linear"]))
    return sf.Fitted(encoder, model, params, sf.Loss())
