"""Fit an encoder and encode a table on several processes, with statistics that can be merged.

    python examples/encode_on_processes.py 'logs/*.parquet' --processes 4 --out slots

Each process reads a share of the row groups and sends its statistics as bytes. One process merges them into the
encoder, which is the same to the bit for any number of processes. Then each process encodes a share. Spark, Ray or Dask
would run `collect` and `encode` on their workers in the same way: Arrow goes in, bytes and slots come out.
"""

from __future__ import annotations

import argparse
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

import splinefm as sf
from splinefm.distribute.rows import open_rows, plan_shares
from splinefm.distribute.statistics import Scan, collect_statistics, merge_statistics
from splinefm.distribute.wire import from_bytes, to_bytes


def collect(data: str, scan: Scan, processes: int, process: int) -> bytes:
    """Return the statistics of the rows of one process."""
    return to_bytes(collect_statistics(open_rows(data), scan, process, processes, threads=1))


def encode(data: str, encoder: sf.Encoder, processes: int, out: Path, process: int) -> int:
    """Write the encoded rows of one process, shuffled as for training; return how many there are."""
    share = plan_shares(open_rows(data), processes, seed=0, epoch=0)[process]
    for number, buffer in enumerate(share.buffers(encoder.schema.columns)):
        slots = encoder.encode(buffer.batch, threads=1)
        np.savez(out / f"{process}-{number}.npz", start=slots.start, weight=slots.weight, row=buffer.numbers)
    return share.n_rows


def main() -> None:
    """Read the arguments, and start the processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="Parquet files: a path, a folder or a pattern")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, help="folder for the encoded rows")
    parser.add_argument("--target", help="a column that is not a field")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)

    scan = Scan(sf.infer_schema(options.data, target=options.target))
    processes = range(options.processes)
    # New processes instead of copies of this one, which has threads.
    with ProcessPoolExecutor(options.processes, multiprocessing.get_context("spawn")) as pool:
        parts = pool.map(partial(collect, options.data, scan, options.processes), processes)
        statistics = merge_statistics([from_bytes(part, scan) for part in parts], open_rows(options.data).n_rows)
        encoder = statistics.encoder()
        print(f"{encoder.n_rows:,} rows, {encoder.layout.n_features:,} features")
        rows = pool.map(partial(encode, options.data, encoder, options.processes, options.out), processes)
        print("encoded rows by process:", ", ".join(f"{count:,}" for count in rows))


if __name__ == "__main__":
    main()
