"""Memory checks before large allocations: many systems kill a process that takes too much."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from splinefm._wording import in_bytes

# Smaller allocations are not checked.
SMALL = 1 << 28
_PROCESS, _GROUPS = Path("/proc"), Path("/sys/fs/cgroup")


def check_memory(needed: float, what: str, way_out: str) -> None:
    """Raise where something would take more memory than is free.

    Parameters
    ----------
    needed : number
        Bytes that it takes.
    what : str
        What needs the memory, as the beginning of a sentence.
    way_out : str
        A fix, as the end of the sentence.

    Examples
    --------
    >>> check_memory(10**18, "a table of 10 columns", "use fewer")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    ValueError: a table of 10 columns takes about 1.0 EB of memory, ... are free; use fewer
    """
    if needed <= SMALL:
        return
    free = free_memory()
    if needed > free:
        raise ValueError(f"{what} takes about {in_bytes(needed)} of memory, {in_bytes(free)} are free; {way_out}")


def free_memory(process: Path = _PROCESS, groups: Path = _GROUPS) -> int:
    """Bytes that this process can still allocate, by the machine, its container and its limit.

    Parameters
    ----------
    process, groups : Path
        Where Linux lists processes and control groups.

    Examples
    --------
    >>> free_memory() > 0
    True
    """
    limits = [_machine_limit(process), *_cgroup_limits(process, groups), *_process_limits(process)]
    return max(0, min(limits))


def _machine_limit(process: Path) -> int:
    """What programs can take, swap included."""
    entries = dict(line.split(":", 1) for line in _lines(process / "meminfo"))
    if "MemAvailable" in entries:
        return sum(int(entries.get(name, "0").split()[0]) << 10 for name in ("MemAvailable", "SwapFree"))
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):
        return sys.maxsize  # a system that does not say; it will refuse by itself


def _cgroup_limits(process: Path, groups: Path) -> Iterator[int]:
    """What is left in the control groups of this process, of version 2 and 1, and in those around them."""
    for line in _lines(process / "self" / "cgroup"):
        _, kinds, name = line.split(":", 2)
        if not kinds:
            root, files = groups, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in kinds.split(","):
            root, files = groups / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = root / name.lstrip("/")
        # A container may see its group at the root, under a name that only the host knows.
        for folder in (group, *group.parents):
            if folder != root and root not in folder.parents:
                break
            yield from _left_in(folder, *files)


def _left_in(folder: Path, limit: str, used: str, cache: str) -> Iterator[int]:
    most, now = ("".join(_lines(folder / name)) for name in (limit, used))
    if most.isdigit() and now.isdigit():
        stat = dict(line.split(" ", 1) for line in _lines(folder / "memory.stat"))
        yield int(most) - int(now) + int(stat.get(cache, 0))  # the page cache is freed when needed


def _process_limits(process: Path) -> Iterator[int]:
    try:
        from resource import RLIM_INFINITY, RLIMIT_AS, getrlimit
    except ImportError:  # Windows
        return
    most = getrlimit(RLIMIT_AS)[0]
    if most != RLIM_INFINITY:
        pages = "".join(_lines(process / "self" / "statm")).split()
        yield most - (int(pages[0]) * os.sysconf("SC_PAGE_SIZE") if pages else 0)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []
