"""Files: damaged and crafted files of every kind are refused with a clear error, or load and can be used.

Damaged: what a disk or a network spoils. Every byte of our files is under a checksum, so that a damaged one is refused,
or has the scores of the whole one (a scorer file has zeros between its sections, which are not read). Schemas are
texts that people write, without checksums.
Crafted: checksums are right and contents are hostile. Such a file is refused, or is another good file: then it is used
(scored, ranked, explained, saved), and that gives results or clear errors.

    python tests/campaigns/files.py --long --sanitize
"""

from __future__ import annotations

import sys
import time
import warnings
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from _campaign import Campaign, Wrong, check_clear, main, run_cases, supervise

PARTS = ("sfm", "sfi", "sfs", "schema", "state", "sharded", "checkpoint")
_SLOWEST = 10.0


def case(campaign: Campaign, part: str, number: int, folder: Path) -> str:
    """Try a file, and return what came of it."""
    name, how = part.split(" ")
    rng = campaign.rng(part, number)
    _made(name, folder)
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = _tried(name, how, rng, folder)
    if time.process_time() - begin > _SLOWEST:
        raise Wrong(f"it took {time.process_time() - begin:.0f} s")
    return outcome


def _tried(name: str, how: str, rng: np.random.Generator, folder: Path) -> str:
    import _kinds

    kind = _made(name, folder)
    try:
        loaded, exact = kind.load(how, rng)
    except _kinds.Refused as refused:
        check_clear(refused.error, kind.refusals, *refused.needed)
        return "refused"
    if how == "damaged" and kind.has_checksums:
        kind.check_same(loaded, exact)
        return kind.unharmed
    try:
        kind.use(loaded, rng)
    except (ValueError, TypeError) as error:
        check_clear(error, (ValueError, TypeError))
        return "loaded, refused in use"
    return "loaded and used"


@cache
def _made(name: str, folder: Path) -> Any:
    import _folders

    return _folders.KINDS[name](folder)


def run(campaign: Campaign) -> None:
    """Try all parts."""
    for name in PARTS:
        for how in ("damaged", "crafted"):
            if not (campaign.wants(name) or campaign.wants(f"{name} {how}")):
                continue
            missing = _missing(name)
            if missing:
                campaign.saw(f"{name} {how}", f"skipped, {missing}")
            else:
                supervise(campaign, f"{name} {how}", _count(campaign, name))
    tried = sum(number for name, number in campaign.counts.items() if "sanitizer" not in name)
    campaign.counts["all files"] = tried


def _missing(name: str) -> str | None:
    from c_library import LIBRARY

    if name == "sfs" and not LIBRARY.exists():
        return f"{LIBRARY.name} is not built"
    if name == "checkpoint" and not (find_spec("torch") and find_spec("torchrec")):
        return "torch or TorchRec is not installed"
    return None


def _count(campaign: Campaign, name: str) -> int:
    """Checkpoints are folders of torch, which takes longer than everything else to read a small one."""
    return campaign.count // 5 if name == "checkpoint" and campaign.depth == "short" else campaign.count


if __name__ == "__main__":
    if "--cases" in sys.argv[1:2]:
        sys.exit(run_cases(case, sys.argv[2:]))
    sys.exit(main("files", run, short=200, long=10_000))
