"""Files: damaged and crafted files of every kind are refused with a clear error, or load and can be used.

Damaged: what a disk or a network spoils. Every byte of our files is under a checksum, so that a damaged one is refused,
or has the scores of the whole one (a scorer file has zeros between its sections, which nobody reads). Schemas are
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
from pathlib import Path

import numpy as np
from _shared import Campaign, Wrong, check_clear, main, run_cases, supervise

PARTS = ("sfm", "sfi", "sfs", "schema", "state", "sharded", "checkpoint")
_SLOWEST = 10.0


def case(campaign: Campaign, part: str, number: int, folder: Path) -> str:
    """Try a file, and return what came of it."""
    name, how = part.split(" ")
    rng = campaign.rng(part, number)
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcome = _tried(name, how, rng, folder)
    if time.perf_counter() - begin > _SLOWEST:
        raise Wrong(f"it took {time.perf_counter() - begin:.0f} s")
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
        return "loaded, the same"
    try:
        kind.use(loaded, rng)
    except (ValueError, TypeError) as error:
        check_clear(error, (ValueError, TypeError))
        return "loaded, refused in use"
    return "loaded and used"


@cache
def _made(name: str, folder: Path):
    import _kinds

    return _kinds.KINDS[name](folder)


def run(campaign: Campaign) -> None:
    """Try all parts."""
    for name in PARTS:
        for how in ("damaged", "crafted"):
            if campaign.wants(name) or campaign.wants(f"{name} {how}"):
                supervise(campaign, f"{name} {how}", _count(campaign, name))
    campaign.counts.update({"all files": sum(campaign.counts.values())})


def _count(campaign: Campaign, name: str) -> int:
    """Checkpoints are folders of torch, which takes longer than everything else to read a small one."""
    return campaign.count // 5 if name == "checkpoint" else campaign.count


if __name__ == "__main__":
    if "--cases" in sys.argv[1:2]:
        sys.exit(run_cases(case, sys.argv[2:]))
    sys.exit(main("files", run, short=200, long=10_000))
