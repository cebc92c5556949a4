"""What does training on many hosts take? Bytes, memory and seconds per step, predicted.

The prediction follows `splinefm.distribute` step by step. A step of a rank reads its rows, sends the features of large
tables to the ranks that keep them, gets unit vectors back, computes scores and gradients, sends gradients the same way,
and adds up the gradients of small tables with all other ranks. A simulation draws how long each rank computes; all wait
for the slowest. `distribute.py` compares these predictions with runs on 1, 2 and 4 processes.

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
    """The parameters, as the ranks see them.

    Parameters
    ----------
    features : float
        Features of large tables, which are divided among ranks.
    dim : int
        Numbers in the vector of a feature: factors, linear weight, and padding to a multiple of 4.
    units : float
        Unit vectors of large tables in a row: one per field, with sum reduction.
    active : float
        Active features of a unit: 1 for a categorical field.
    replicated : float
        Numbers in small tables and between fields, which all ranks have.
    """

    features: float
    dim: int
    units: float
    active: float = 1.0
    replicated: float = 0.0


class Host(NamedTuple):
    """What runs a rank.

    Parameters
    ----------
    rows_per_second : float
        Rows that a rank trains on if it does not have to wait for others.
    bytes_per_second : float
        What it sends while it receives as much.
    latency : float
        Seconds that a message takes however short it is.
    spread : float
        Standard deviation of the logarithm of the time that a rank computes.
    """

    rows_per_second: float
    bytes_per_second: float
    latency: float = 50e-6
    spread: float = 0.05


class Traffic(NamedTuple):
    """Bytes that leave a rank for each of its rows."""

    features: float
    vectors: float
    gradients: float
    replicated: float

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self)


def traffic(tables: Tables, ranks: int, rows: int, sharding: Sharding = "by table", number: int = NUMBER) -> Traffic:
    """Predict the bytes that a rank sends for each of its rows.

    Parameters
    ----------
    tables : Tables
        The parameters.
    ranks : int
        Number of ranks.
    rows : int
        Rows of a rank in a step.
    sharding : {"by table", "by rows", "by lookup"}
        Whether a large table is on one rank, or its rows are on all of them. By rows, a rank returns a unit vector for
        every row of every rank, most of them parts of sums that are zero. By lookup, it returns the vectors of the
        features that it has, and the sum is taken by the rank that asked.
    number : int
        Bytes of a number on the wire: 4, or 2 for bfloat16.
    """
    others = (ranks - 1) / ranks
    lookups = tables.units * tables.active
    lengths = tables.units * LENGTH * (1 if sharding == "by table" else ranks)
    features = others * (lookups * (INDEX + WEIGHT) + lengths)
    # A rank takes part in the sums of all ranks by rows, and sends its part of each to the rank of the row.
    copies = {"by table": others * tables.units, "by rows": (ranks - 1) * tables.units, "by lookup": others * lookups}
    vectors = copies[sharding] * tables.dim * number
    replicated = 2 * others * tables.replicated * number / rows
    return Traffic(features, vectors, vectors, replicated)


def memory(tables: Tables, ranks: int, state: float) -> float:
    """Return the bytes of parameters and optimizer state on a rank, with `state` numbers of state per feature."""
    large = tables.features * (tables.dim + state) / ranks
    return NUMBER * (large + 3 * tables.replicated)  # AdamW has two more numbers for each


def step_seconds(
    tables: Tables,
    host: Host,
    ranks: int,
    rows: int,
    sharding: Sharding = "by table",
    number: int = NUMBER,
    overlap: float = 0.0,
    steps: int = 200,
) -> float:
    """Simulate steps, and return their mean time.

    `overlap` is the share of the communication that happens while ranks compute.
    """
    rng = np.random.default_rng([ranks, rows])
    alone = rows / host.rows_per_second
    slowest = (alone * rng.lognormal(0.0, host.spread, (steps, ranks))).max(1)
    # With fewer tables than ranks, some ranks answer for all, and the others wait for them.
    busiest = max(1.0, ranks / tables.units) if sharding == "by table" else 1.0
    sent = busiest * traffic(tables, ranks, rows, sharding, number).total * rows
    wire = sent / host.bytes_per_second + (MESSAGES * host.latency * math.ceil(math.log2(ranks)) if ranks > 1 else 0.0)
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
    for ranks in (8, 32, 128, 256):
        for name, sharding, number in kinds:
            seconds = step_seconds(BILLION, HOST, ranks, ROWS, sharding, number, overlap=0.3)
            lines.append(
                {
                    "hosts": ranks,
                    "tables": name,
                    "bytes per row": traffic(BILLION, ranks, ROWS, sharding, number).total,
                    "GB per host": memory(BILLION, ranks, BILLION.dim) / 1e9,
                    "GB per host, row-wise": memory(BILLION, ranks, 1) / 1e9,
                    "ms per step": 1e3 * seconds,
                    "million rows/s": ranks * ROWS / seconds / 1e6,
                    "hours per epoch": EPOCH / (ranks * ROWS / seconds) / 3600,
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
