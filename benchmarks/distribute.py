"""What do sharded tables cost on one machine, and what do they save?

Rows have the shape of the Criteo data: 26 categorical fields (Zipf, exponent 1.2) and 13 numerical ones (cubic splines
on 20 segments). An FwFM (k = 16) takes the same steps of 4096 rows on 1, 2 and 4 processes that speak gloo over the
loopback interface, and in the CPU engine with as many threads. Encoding is not timed.

On a machine with two cores, more processes cannot be faster: `ranks2_vs_ranks1` is what they cost. What they
save is memory: the second part has 10,000,000 features, and reports the peak memory of a process. Bytes on the wire are
those of the loopback interface, so nothing else should use it meanwhile; `scale.py` predicts them, and the speed of 2
and 4 processes from that of one: cores are shared, and messages come on top.

    python benchmarks/distribute.py [--quick] [--json] [--save]
"""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scale
from _shared import N_CATEGORICAL, N_NUMERICAL, Result, finish, make_parser, peak_bytes, say

import splinefm as sf
from splinefm.model.family.parameters import init_params
from train import BATCH, LEARNING_RATE, make_data

MODEL = sf.FwFM(16)
COUNTS = (1, 2, 4)
CORES = 2
LOOPBACK = 1e9  # bytes per second that gloo moves over the loopback interface, all processes together


class Size(NamedTuple):
    """How much is measured."""

    features: int
    many_features: int
    steps: int
    rounds: int


QUICK, FULL = Size(100_000, 1_000_000, 6, 2), Size(1_000_000, 10_000_000, 20, 4)


class Measured(NamedTuple):
    """A run on some processes: of the best round the rows per second, and bytes per row on the wire and peak memory."""

    rows_per_second: float
    bytes_per_row: float
    peak: float
    plan: str


def loopback_bytes() -> int:
    """Return the bytes that were sent over the loopback interface (Linux)."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith("lo:"))


def run_process(
    process: int, n_processes: int, port: int, features: int, steps: int, rounds: int, results: Any
) -> None:
    """Train on one process."""
    os.environ |= {
        "RANK": str(process),
        "WORLD_SIZE": str(n_processes),
        "LOCAL_RANK": str(process),
        "LOCAL_WORLD_SIZE": str(n_processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    import torch

    from splinefm.distribute.processes import run_together

    torch.set_num_threads(max(1, CORES // n_processes))

    def job(own: Any) -> None:
        measured = _train(own, features, steps, rounds)
        if own.first:
            results.put(measured)

    run_together(job, 120.0, "cpu")


def _train(processes: Any, features: int, steps: int, rounds: int) -> Measured:
    from splinefm.distribute.model import ParallelModel, first_penalties
    from splinefm.model.optimizers import Group
    from splinefm.train.rows import Chunk

    slots, y = make_data(steps * BATCH, features)
    layout = slots.layout
    groups = [[Group(field.n_features)] for field in layout.fields]
    model = ParallelModel(MODEL, layout, sf.Loss(), groups, processes, BATCH)
    model.initialize(0, 0.0)
    first_penalties(model)
    maker = model.batch_maker(tuple(np.ones(field.n_features) for field in layout.fields), steps * BATCH)
    chunk = Chunk(slots, y, np.ones(len(y)))
    size = BATCH // processes.count
    batches = [maker(chunk, np.arange(at, at + size), size) for at in range(processes.index * size, len(y), BATCH)]
    for batch in batches:
        batch.total[:] = BATCH
    model.set_rate(LEARNING_RATE, LEARNING_RATE)
    model.step(batches[0])
    best, sent = np.inf, 0.0
    for _ in range(rounds):
        processes.barrier()
        begin, before = time.perf_counter(), loopback_bytes()
        for batch in batches:
            model.step(batch)
        processes.barrier()
        best = min(best, time.perf_counter() - begin)
        sent = (loopback_bytes() - before) / len(y)
    peak = float(processes.maxima([float(peak_bytes())])[0])
    return Measured(len(y) / best, sent, peak, model.describe())


def measure_processes(n_processes: int, features: int, steps: int, rounds: int) -> Measured:
    """Start the processes, and return what the first one measured."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = (n_processes, port, features, steps, rounds, results)
    processes = [context.Process(target=run_process, args=(index, *arguments)) for index in range(n_processes)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit(f"a run on {n_processes} processes failed")
    return results.get()  # type: ignore[no-any-return]


def measure_engine(features: int, steps: int, rounds: int) -> float:
    """Return the rows per second of the CPU engine."""
    from train import our_steps

    slots, y = make_data(steps * BATCH, features)
    params = init_params(MODEL, slots.layout, np.random.default_rng(0))
    calls = our_steps(MODEL, params, slots, y, "adagrad", CORES)
    best = np.inf
    for _ in range(rounds + 1):
        begin = time.perf_counter()
        for _, call in calls:
            call()
        best = min(best, time.perf_counter() - begin)
    return len(y) / best


def make_tables(features: int) -> scale.Tables:
    """Return the parameters of the model, for `scale.py`."""
    n_fields = N_CATEGORICAL + N_NUMERICAL
    return scale.Tables(features, 20, N_CATEGORICAL, replicated=20 * 24 * N_NUMERICAL + n_fields**2 + 1)


def predicted_bytes(n_processes: int, features: int) -> float:
    """Return the bytes per row that `scale.py` predicts."""
    return scale.traffic(make_tables(features), n_processes, BATCH // n_processes).total


def predicted_speed(n_processes: int, features: int, alone: float) -> float:
    """Return the rows per second that `scale.py` predicts, given those of one process on all cores."""
    host = scale.Host(alone / n_processes, LOOPBACK / n_processes)
    return BATCH / scale.step_seconds(make_tables(features), host, n_processes, BATCH // n_processes)


def measure(size: Size) -> Result:
    """Return figures and ratios."""
    figures: dict[str, Any] = {}
    speed: dict[int, float] = {}
    say("CPU engine")
    figures["CPU engine, rows/s"] = engine = measure_engine(size.features, size.steps, size.rounds)
    for n in COUNTS:
        say(f"{n} processes")
        run = measure_processes(n, size.features, size.steps, size.rounds)
        many = measure_processes(n, size.many_features, 2, 1)
        speed[n] = run.rows_per_second
        figures[f"{n} processes"] = {
            "rows/s": run.rows_per_second,
            "rows/s, predicted": predicted_speed(n, size.features, speed[1]),
            "bytes per row": run.bytes_per_row,
            "bytes per row, predicted": predicted_bytes(n, size.features),
            "peak MB per process": run.peak / 1e6,
            f"peak MB per process, {size.many_features:,} features": many.peak / 1e6,
        }
    predicted = predicted_bytes(2, size.features)
    return {
        "figures": figures,
        "ratios": {
            "ranks2_vs_ranks1": speed[2] / speed[1],
            "ranks4_vs_ranks1": speed[4] / speed[1],
            "ranks1_vs_engine": speed[1] / engine,
            "predicted_vs_measured_bytes": predicted / figures["2 processes"]["bytes per row"],
            "predicted_vs_measured_speed": predicted_speed(2, size.features, speed[1]) / speed[2],
        },
    }


def main() -> None:
    """Measure, print and save."""
    parser = make_parser(__doc__, f"{QUICK.features:,} and {QUICK.many_features:,} features, fewer steps")
    options = parser.parse_args()
    finish(__file__, measure(QUICK if options.quick else FULL), options)


if __name__ == "__main__":
    main()
