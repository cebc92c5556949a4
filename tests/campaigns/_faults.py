"""A file system that fails: `faults.c`, loaded before the C library, and armed in the process whose files it harms."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("faults.c")
COUNT, FAIL_ONCE, FAIL_FROM, REFUSE_FROM, DIE = range(5)
"""Count operations; one fails; all fail from one on; names cannot be changed from then on; the process is killed."""


def preload() -> bool:
    """Start this script again with the library loaded, unless it is; return False where there is no compiler."""
    if "SPLINEFM_FAULTS" in os.environ:
        return True
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or sys.platform != "linux":
        return False
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    library = Path(tempfile.gettempdir()) / f"splinefm-faults-{os.getuid()}-{digest}.so"
    if not library.is_file():
        part = library.with_suffix(f".{os.getpid()}")
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", part, SOURCE, "-ldl"], check=True)
        part.replace(library)
    before = os.environ.get("LD_PRELOAD")
    loaded = f"{before} {library}" if before else str(library)
    environment = {**os.environ, "LD_PRELOAD": loaded, "SPLINEFM_FAULTS": str(library)}
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def arm(folder: Path | str, how: int = COUNT, at: int = 0, error: int = 0) -> None:
    """Count what changes files below a folder, and fail or die at one of these operations; "" disarms."""
    _library().faults_arm(os.fsencode(folder), how, ctypes.c_long(at), error)


def count() -> int:
    """Return the number of operations since `arm`."""
    function = _library().faults_seen
    function.restype = ctypes.c_long
    return int(function())


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(os.environ["SPLINEFM_FAULTS"])
