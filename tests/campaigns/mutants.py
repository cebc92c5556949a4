"""Mutants: small changes of the package, each of which some test near it must notice.

Each mutant of `_mutants.py` is applied to a copy of the package, never to the source, and its tests run on that copy. A
mutant that survives is a finding: write a test that fails under it. So is one whose text is gone from its file: change
the list along with the code. The parts are the subpackages.

    python tests/campaigns/mutants.py --long
    python tests/campaigns/mutants.py --only serve export
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from _campaign import ROOT, Campaign, main
from _mutants import MUTANTS, Mutant

PACKAGE = ROOT / "src" / "splinefm"
_TIMEOUT = 600.0
# Exit codes of pytest.
_PASSED, _FAILED = 0, 1


def mutated(mutant: Mutant) -> str:
    """Return the text of the file with the change; raise ValueError if the old text does not occur exactly once."""
    text = (PACKAGE / mutant.file).read_text(encoding="utf-8")
    if (n := text.count(mutant.old)) != 1:
        raise ValueError(f"{mutant.file} has {mutant.old!r} {n} times, not once; change the list of mutants")
    return text.replace(mutant.old, mutant.new)


def run_tests(folder: Path, tests: str) -> tuple[int, str]:
    """Run tests at the quick depth on the package in a folder; return the exit code of pytest and its last lines."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("SPLINEFM_THOROUGH", None)
    check = [sys.executable, "-c", "import splinefm; print(splinefm.__file__)"]
    used = subprocess.run(check, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    if Path(used).parents[1] != folder:
        raise RuntimeError(f"tests would run {used}, not the copy in {folder}")
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests.split()]
    try:
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=_TIMEOUT)
    except subprocess.TimeoutExpired:
        return _FAILED, f"longer than {_TIMEOUT:g} s"
    return done.returncode, done.stdout[-500:]


def try_mutant(campaign: Campaign, mutant: Mutant, folder: Path) -> None:
    """Apply a mutant to the copy in a folder, run its tests, and restore the copy."""
    title = f"{mutant.file}: {mutant.old!r} -> {mutant.new!r}"
    try:
        text = mutated(mutant)
    except ValueError as error:
        campaign.saw(mutant.part, "not applicable")
        campaign.find(str(error))
        return
    path = folder / "splinefm" / mutant.file
    path.write_text(text, encoding="utf-8")
    try:
        code, said = run_tests(folder, mutant.tests)
    finally:
        shutil.copyfile(PACKAGE / mutant.file, path)
    if code == _FAILED:
        campaign.saw(mutant.part, "killed")
    elif code == _PASSED:
        campaign.saw(mutant.part, "survived")
        campaign.find(f"survived: {title}; tests: {mutant.tests}")
    else:
        campaign.saw(mutant.part, "not run")
        campaign.find(f"pytest ended with {code}: {title}; {said}")


def run(campaign: Campaign) -> None:
    """Try `count` mutants of each part, after their tests have passed without a change."""
    chosen = [mutant for mutant in MUTANTS if campaign.wants(mutant.part)]
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name).resolve()
        shutil.copytree(PACKAGE, folder / "splinefm", ignore=shutil.ignore_patterns("__pycache__"))
        for tests in dict.fromkeys(mutant.tests for mutant in chosen):
            code, said = run_tests(folder, tests)
            if code != _PASSED:
                campaign.find(f"without a mutant, pytest ended with {code}: {tests}; {said}")
                return
        for mutant in chosen:
            if campaign.is_over:
                break
            tried = sum(n for what, n in campaign.counts.items() if what.startswith(f"{mutant.part}: "))
            if tried < campaign.count:
                try_mutant(campaign, mutant, folder)


if __name__ == "__main__":
    sys.exit(main("mutants", run, short=1, long=1_000))
