"""How many rows per second does an FFM train on, compared with libffm?

Rows have 39 categorical fields with 100,000 features in all (Zipf, exponent 1.2). There are no splines, because libffm
treats a number only as the factor of one feature. libffm (`pip install pylibffm`, with binaries for Linux on x86-64 and
Python up to 3.11) updates after every row, in threads without locks; ours updates after every 4096 rows. Both use
Adagrad. The time of a pass of libffm is the difference between five passes and one, which excludes reading its file.
The best of three runs counts for both.

`k4_vs_libffm` and `k8_vs_libffm` have two threads; the goal is 1.5.

    python benchmarks/libffm.py [--quick] [--json] [--save]
"""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
from _shared import Result, finish, make_parser, say, zipf_ranks

import splinefm as sf
from splinefm.encode.slots import FieldLayout, SlotLayout, Slots, empty_slots
from splinefm.model.family.parameters import init_params

FIELDS, FEATURES, BATCH, THREADS = 39, 100_000, 4096, 2


def make_data(rows: int) -> tuple[Slots, npt.NDArray[np.float64]]:
    """One feature per field, and random targets."""
    rng = np.random.default_rng(0)
    each = FEATURES // FIELDS
    layout = SlotLayout(tuple(FieldLayout(f"C{i + 1}", each, (1,), (0,)) for i in range(FIELDS)))
    slots = empty_slots(rows, layout)
    for field in range(FIELDS):
        slots.start[:, field] = layout.feature_ptr[field] + rng.permutation(each)[zipf_ranks(rng, rows, each)]
    slots.weight[:] = 1.0
    return slots, (rng.random(rows) < 0.25).astype(np.float64)


def our_speed(k: int, rows: int, rounds: int, threads: int) -> float:
    """Rows per second, the best of several passes."""
    from splinefm.model.cpu import CpuEngine
    from splinefm.model.optimizers import Optimizer

    slots, y = make_data(rows)
    params = init_params(sf.FFM(k), slots.layout, np.random.default_rng(1))
    engine = CpuEngine(
        sf.FFM(k), slots.layout, params, optimizer=Optimizer("adagrad", 0.1), batch_size=BATCH, threads=threads
    )
    weight, best = np.ones(rows), 0.0
    for _ in range(rounds + 1):  # the first pass warms up
        begin = time.perf_counter()
        for at in range(0, rows, BATCH):
            engine.step(slots, y, weight, np.arange(at, min(rows, at + BATCH)))
        best = max(best, rows / (time.perf_counter() - begin))
    return best


def their_seconds(k: int, rows: int, passes: int) -> float:
    """Seconds of a training run of libffm."""
    import pylibffm  # type: ignore[import-not-found, import-untyped, unused-ignore]
    from scipy import sparse

    slots, y = make_data(rows)
    row_ptr = np.arange(0, rows * FIELDS + 1, FIELDS)
    matrix = sparse.csr_matrix(
        (np.ones(rows * FIELDS, np.float32), slots.start.ravel(), row_ptr), (rows, slots.layout.n_features)
    )
    fields = np.repeat(np.arange(FIELDS), [field.n_features for field in slots.layout.fields])
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        path, _ = pylibffm.make_bin(folder, matrix, y.astype(np.float32), fields)
        begin = time.perf_counter()
        pylibffm.train_with_bin(path, {"k": k, "nr_iters": passes, "normalization": False})
        return time.perf_counter() - begin


def in_child(function: str, *arguments: object, threads: int) -> float:
    """Call a function in a new process: the environment sets the threads of libffm."""
    code = f"import {Path(__file__).stem} as b; print('=', b.{function}{tuple(arguments)!r})"
    paths = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads), "PYTHONPATH": paths}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    if out.returncode != 0:
        raise SystemExit(f"{function}{tuple(arguments)!r} ended with {out.returncode}:\n{out.stderr}")
    return float(out.stdout.rsplit("=", 1)[1])


def measure(rows: int, rounds: int) -> Result:
    """Measure rows per second of both, alternating."""
    figures: dict[str, float] = {}
    for k in (4, 8):
        for threads in range(1, THREADS + 1):
            say(f"k = {k}, {threads} threads")
            seconds: dict[int, float] = {}
            for _ in range(3):
                for passes in (1, 5):
                    taken = in_child("their_seconds", k, rows, passes, threads=threads)
                    seconds[passes] = min(seconds.get(passes, taken), taken)
                ours = in_child("our_speed", k, rows, rounds, threads, threads=threads)
                key = f"splinefm k={k}, {threads} threads"
                figures[key] = max(figures.get(key, 0.0), ours)
            figures[f"libffm k={k}, {threads} threads"] = 4 * rows / (seconds[5] - seconds[1])
    ratios = {
        f"k{k}_vs_libffm{'' if threads == THREADS else '_1_thread'}": figures[f"splinefm k={k}, {threads} threads"]
        / figures[f"libffm k={k}, {threads} threads"]
        for k in (4, 8)
        for threads in range(1, THREADS + 1)
    }
    return {"figures": figures, "ratios": ratios}


def main() -> None:
    """Measure, print and save."""
    options = make_parser(__doc__, "fewer rows").parse_args()
    if find_spec("pylibffm") is None:
        raise SystemExit(
            "nothing measured: libffm is not installed; pip install pylibffm (Linux on x86-64, Python < 3.12)"
        )
    finish(__file__, measure(*((40_960, 2) if options.quick else (204_800, 4))), options)


if __name__ == "__main__":
    main()
