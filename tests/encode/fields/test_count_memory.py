"""Memory that counts of categories take at their peak."""

import subprocess
import sys
from pathlib import Path

import pytest

import splinefm as sf

NAMES = 500_000
JOB = f"""
import numpy as np, pyarrow as pa
from splinefm.encode.fields.vocabulary import CategoryCounts
from splinefm.encode.tables.columns import Categories

def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) * 1024

counts = CategoryCounts()
counts.update(Categories(pa.array(["a", "b"], pa.large_string()), None))
counts.frequent(1)
before = peak()
for begin in range(0, {NAMES}, 50_000):
    names = [f"user-{{i:07}}" for i in range(begin, begin + 50_000)]
    counts.update(Categories(pa.array(names, pa.large_string()), None))
assert len(counts.frequent(1)[0]) == {NAMES} + 2
print((peak() - before) / {NAMES})
"""


@pytest.mark.thorough  # starts a process, whose peak is its own
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the peak from /proc")
def test_a_name_takes_few_bytes_at_the_peak():
    """Neither a second copy of the names nor a dictionary of them is needed."""
    environment = {"PYTHONPATH": str(Path(sf.__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", JOB], capture_output=True, text=True, env=environment, check=True)
    assert float(done.stdout) < 225  # 188 measured, 269 with such copies
