"""What does training on many hosts take? Bytes, memory and seconds per step, predicted.

The prediction follows `splinefm.distribute` step by step. A step of a process reads its rows, sends the features of
large tables to the processes that keep them, gets unit vectors back, computes scores and gradients, sends gradients the
same way, and adds up the gradients of small tables with all other processes. A simulation draws how long each process
computes; all wait for the slowest. `distribute.py` compares these predictions with runs on 1, 2 and 4 processes.

    python benchmarks/scale.py [--json]
"""

from __future__ import annotations

import argparse
import json
import math
from typing import Literal, NamedTuple

import numpy as np

INDEX, WEIGHT, LENGTH, NUMBER = 8, 4, 4, 4  # bytes
# Messages of a step, one after the other: sizes, lengths, features, weights, vectors, gradients, small tables.
MESSAGES = 7
Sharding = Literal["by table", "by rows", "by lookup"]


class Tables(NamedTuple):
    """The parameters, as the processes see them.

    Parameters
    ----------
    features : float
        Features of large tables, which are divided among processes.
    dim : int
        Numbers in the vector of a feature: factors, linear weight, and padding to a multiple of 4.
    units : float
        Unit vectors of large tables in a row: one per field, with sum reduction.
    active : float
        Active features of a unit: 1 for a categorical field.
    replicated : float
        Numbers in small tables and between fields, which all processes have.
    """

    features: float
    dim: int
    units: float
    active: float = 1.0
    replicated: float = 0.0


class Host(NamedTuple):
    """What runs a process.

    Parameters
    ----------
    rows_per_second : float
        Rows that a process trains on if it does not have to wait for others.
    bytes_per_second : float
        What it sends while it receives as much.
    latency : float
        Seconds that a message takes however short it is.
    spread : float
        Standard deviation of the logarithm of the time that a process computes.
    """

    rows_per_second: float
    bytes_per_second: float
    latency: float = 50e-6
    spread: float = 0.05


class Traffic(NamedTuple):
    """Bytes that leave a process for each of its rows."""

    features: float
    vectors: float
    gradients: float
    replicated: float

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self)


def traffic(
    tables: Tables, n_processes: int, rows: int, sharding: Sharding = "by table", number: int = NUMBER
) -> Traffic:
    """Predict the bytes that a process sends for each of its rows.

    Parameters
    ----------
    tables : Tables
        The parameters.
    n_processes : int
        Number of processes.
    rows : int
        Rows of a process in a step.
    sharding : {"by table", "by rows", "by lookup"}
        Whether a large table is on one process, or its rows are on all of them. By rows, a process returns a unit
        vector for every row of every process, most of them parts of sums that are zero. By lookup, it returns the
        vectors of the features that it has, and the sum is taken by the process that asked.
    number : int
        Bytes of a number on the wire: 4, or 2 for bfloat16.
    """
    others = (n_processes - 1) / n_processes
    lookups = tables.units * tables.active
    lengths = tables.units * LENGTH * (1 if sharding == "by table" else n_processes)
    features = others * (lookups * (INDEX + WEIGHT) + lengths)
    # A process takes part in the sums of all processes by rows, and sends its part of each to the process of the row.
    copies = {
        "by table": others * tables.units,
        "by rows": (n_processes - 1) * tables.units,
        "by lookup": others * lookups,
    }
    vectors = copies[sharding] * tables.dim * number
    replicated = 2 * others * tables.replicated * number / rows
    return Traffic(features, vectors, vectors, replicated)


def memory(tables: Tables, n_processes: int, state: float) -> float:
    """Return the bytes of parameters and optimizer state on a process, with `state` numbers of state per feature."""
    large = tables.features * (tables.dim + state) / n_processes
    return NUMBER * (large + 3 * tables.replicated)  # AdamW has two more numbers for each


def step_seconds(
    tables: Tables,
    host: Host,
    n_processes: int,
    rows: int,
    sharding: Sharding = "by table",
    number: int = NUMBER,
    overlap: float = 0.0,
    steps: int = 200,
) -> float:
    """Simulate steps, and return their mean time.

    `overlap` is the share of the communication that happens while processes compute.
    """
    rng = np.random.default_rng([n_processes, rows])
    alone = rows / host.rows_per_second
    slowest = (alone * rng.lognormal(0.0, host.spread, (steps, n_processes))).max(1)
    # With fewer tables than processes, some processes answer for all, and the others wait for them.
    busiest = max(1.0, n_processes / tables.units) if sharding == "by table" else 1.0
    sent = busiest * traffic(tables, n_processes, rows, sharding, number).total * rows
    wire = sent / host.bytes_per_second + (
        MESSAGES * host.latency * math.ceil(math.log2(n_processes)) if n_processes > 1 else 0.0
    )
    hidden = np.minimum(slowest, overlap * wire)
    return float((slowest + wire - hidden).mean())


# 26 categorical fields with a billion features, 13 columns with splines on 20 segments, an FwFM with k = 16.
BILLION = Tables(features=1e9, dim=20, units=26, replicated=13 * 24 * 20 + 39 * 38 / 2)
# Hosts with 32 cores and a network of 25 Gbit/s. See docs/scale.md for the speed.
HOST = Host(rows_per_second=400_000, bytes_per_second=3.1e9)
ROWS, EPOCH = 4096, 1e10
FEW_BYTES = 2  # bfloat16


def predict() -> list[dict[str, float | str]]:
    """Return a line per number of hosts and kind of sharding."""
    lines: list[dict[str, float | str]] = []
    kinds: list[tuple[str, Sharding, int]] = [
        ("by rows", "by rows", NUMBER),
        ("by table", "by table", NUMBER),
        ("by lookup", "by lookup", NUMBER),
        ("by lookup, bfloat16", "by lookup", FEW_BYTES),
    ]
    for n_processes in (8, 32, 128, 256):
        for name, sharding, number in kinds:
            seconds = step_seconds(BILLION, HOST, n_processes, ROWS, sharding, number, overlap=0.3)
            lines.append(
                {
                    "hosts": n_processes,
                    "tables": name,
                    "bytes per row": traffic(BILLION, n_processes, ROWS, sharding, number).total,
                    "GB per host": memory(BILLION, n_processes, BILLION.dim) / 1e9,
                    "GB per host, row-wise": memory(BILLION, n_processes, 1) / 1e9,
                    "ms per step": 1e3 * seconds,
                    "million rows/s": n_processes * ROWS / seconds / 1e6,
                    "hours per epoch": EPOCH / (n_processes * ROWS / seconds) / 3600,
                    "efficiency": ROWS / HOST.rows_per_second / seconds,
                }
            )
    return lines


def main() -> None:
    """Print the predictions."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args()
    lines = predict()
    if options.json:
        print(json.dumps({"figures": lines, "ratios": {}}))
        return
    names = list(lines[0])
    print("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    for line in lines:
        cells = [value if isinstance(value, str) else f"{value:,.3g}" for value in line.values()]
        print("| " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
