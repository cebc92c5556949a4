"""Fuzz: inputs that are chosen by the code they reach, for the readers, the CSV path and the row scorer.

Python targets need Atheris (`pip install atheris`), those in C++ Clang and its libFuzzer (`make fuzz-coverage` builds
them); what is missing is skipped and said so. Inputs begin with those in tests/campaigns/corpus/TARGET.

| target | what it runs | what must hold |
|---|---|---|
| sfm | model files with right checksums, loaded and scored | clear errors, or the scorer agrees with the table |
| sfi | index files with right checksums, read or mapped, and searched | clear errors, or scores in order |
| csv | bytes as a CSV file: schema, encoder, slots | clear errors, or the same slots in small and large chunks |
| rows | rows of any Python values, alone and as a table | clear errors, or the same score |
| file | scorer files with right checksums, in the C library, with sanitizers | errors of the file, or results |
| c-rows | rows of any values in the C library, with sanitizers | the same score alone, twice, and among others |
| json | bodies of JSON, as the server reads them, with sanitizers | nothing is read that is not there |

    python tests/campaigns/fuzz.py --seconds 1800 --only csv
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from _campaign import FOLDER, ROOT, Campaign, main

CORPUS = FOLDER / "corpus"
PYTHON = ("sfm", "sfi", "csv", "rows")
NATIVE = {"file": "fuzz_coverage_file", "c-rows": "fuzz_coverage_rows", "json": "fuzz_coverage_json"}
BUILD = ROOT / "build" / "coverage-fuzz"
DEFAULT_SECONDS = 10.0


def run(campaign: Campaign) -> None:
    """Fuzz all targets, each for the given time."""
    seconds = DEFAULT_SECONDS if campaign.deadline is None else campaign.deadline - campaign.begin
    for target in (*PYTHON, *NATIVE):
        if not campaign.wants(target):
            continue
        missing = _missing(target)
        if missing:
            campaign.saw(target, f"skipped, {missing}")
            continue
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            _fuzz(campaign, target, seconds, Path(folder))


def _missing(target: str) -> str | None:
    if target in PYTHON:
        return None if importlib.util.find_spec("atheris") else "Atheris is not installed"
    return None if (BUILD / NATIVE[target]).exists() else "`make fuzz-coverage` was not run"


def _fuzz(campaign: Campaign, target: str, seconds: float, folder: Path) -> None:
    (folder / "new").mkdir()
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    (folder / "work").mkdir()
    environment = {**os.environ, "SPLINEFM_FUZZ_FOLDER": str(folder / "work")}
    command = [sys.executable, __file__, "--target", target]
    if target in NATIVE:
        command = [str(BUILD / NATIVE[target])]
        environment["SPLINEFM_FUZZ_MODELS"] = ":".join(map(str, _scorers(folder)))
        environment.pop("LD_PRELOAD", None)
    options = [
        *("-print_final_stats=1", f"-max_total_time={max(1, round(seconds))}", f"-seed={campaign.seed + 1}"),
        *("-timeout=60", "-rss_limit_mb=4096", "-max_len=40000", f"-artifact_prefix={folder}/"),
    ]
    command += [*options, str(folder / "new"), str(CORPUS / target)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, errors="replace")
    executed = re.search(r"stat::number_of_executed_units:\s*(\d+)", run.stderr)
    coverage = re.findall(r"cov: (\d+)", run.stderr)
    campaign.counts[f"{target}: inputs"] += int(executed[1]) if executed else 0
    campaign.figures.setdefault("coverage", {})[target] = int(coverage[-1]) if coverage else None
    campaign.figures.setdefault("new_inputs", {})[target] = len(list((folder / "new").iterdir()))
    if run.returncode:
        kept = ROOT / "build" / "fuzz-findings" / target
        kept.mkdir(parents=True, exist_ok=True)
        names = []
        for path in sorted(folder.glob("*-*")):
            if path.is_file() and path.suffix != ".sfs":
                (kept / path.name).write_bytes(path.read_bytes())
                names.append(str(kept / path.name))
        campaign.find(f"{target}: {names}: {run.stdout[-1200:]}\n{run.stderr[-2500:]}"[:3500])
    elif os.environ.get("SPLINEFM_KEEP_CORPUS"):
        _merge(target, command[:-2], environment, folder)


def _merge(target: str, command: list[str], environment: dict[str, str], folder: Path) -> None:
    """Keep the smallest inputs that reach everything that was reached, as far as they are small."""
    least = folder / "least"
    least.mkdir()
    merge = [item for item in command if not item.startswith(("-max_total_time", "-print_final"))]
    subprocess.run([*merge, "-merge=1", str(least), str(CORPUS / target), str(folder / "new")], env=environment)
    room = 8_000
    for path in sorted(least.iterdir(), key=lambda path: path.stat().st_size):
        room -= path.stat().st_size
        if room > 0:
            (CORPUS / target / path.name[:16]).write_bytes(path.read_bytes())


def _scorers(folder: Path) -> list[Path]:
    """Write good scorer files."""
    from _uses import models

    from support import small_indices

    paths = []
    for i, fitted in enumerate(models()):
        paths.append(folder / f"{i}.sfs")
        fitted.export_scorer(paths[-1])
    for i, index in enumerate(small_indices()):
        paths.append(folder / f"index{i}.sfs")
        index.fitted.export_scorer(paths[-1], index=index)
    return paths


def seed_corpus() -> None:
    """Write good inputs to begin with: python tests/campaigns/fuzz.py --seeds."""
    import _fuzz_targets

    for target in PYTHON:
        _write(target, _fuzz_targets.seeds(target))
    with tempfile.TemporaryDirectory() as folder:
        found = sorted((path.read_bytes() for path in _scorers(Path(folder))), key=len)
        _write("file", found[:3])
    _write(
        "json",
        [
            b'{"rows": [{"x": 1.5, "c": "a", "\\u00fc": [1, null, "b"]}, {"c": -7, "x": null, "\xc3\xbc": true}]}',
            b'{"columns": {"x": [1e-3, 12345678901234567890], "c": ["\\ud83d\\ude00", "long"], "\xc3\xbc": [0, 1]}}',
        ],
    )
    _write("c-rows", [bytes([i, *range(7)]) * 12 for i in range(4)])


def _write(target: str, inputs: list[bytes]) -> None:
    (CORPUS / target).mkdir(parents=True, exist_ok=True)
    for i, data in enumerate(inputs):
        (CORPUS / target / f"seed-{i}").write_bytes(data)


if __name__ == "__main__":
    if "--target" in sys.argv[1:2]:
        import _fuzz_targets

        _fuzz_targets.fuzz(sys.argv[2], [sys.argv[0], *sys.argv[3:]])
        sys.exit(0)
    if "--seeds" in sys.argv[1:2]:
        sys.exit(seed_corpus())
    sys.exit(main("fuzz", run, short=1, long=1))
