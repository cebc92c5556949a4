"""How much memory does training on a large Parquet folder take?

The folder has 20,000,000 rows with the shape of the Criteo data: 13 numerical columns and 26 categorical ones
(1,000,000 distinct values in all, Zipf, exponent 1.2). Files have 1,000,000 rows in one row group, which is the hardest
case for reading in small pieces. The folder (about 1.2 GB) is temporary. A new process infers the schema, fits the
encoder and trains an FwFM (k = 8) for one epoch. Its peak resident memory counts, against a limit of 2 GB.

    python benchmarks/memory.py [--quick] [--json] [--save] [--folder DIR]
"""

from __future__ import annotations

import math
import multiprocessing
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _shared import N_CATEGORICAL, N_NUMERICAL, finish, hex_names, make_parser, peak_bytes, say

ROWS, QUICK_ROWS, ROWS_PER_FILE, BLOCK = 20_000_000, 1_000_000, 1_000_000, 100_000
FEATURES = 1_000_000
LIMIT = 2_000_000_000
BYTES_PER_ROW = 150  # upper bound, on disk


class Generator:
    """Rows whose click depends on a number, a category and both together."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(0)
        each = FEATURES // N_CATEGORICAL
        self.names = [pa.array(hex_names(self.rng, each)) for _ in range(N_CATEGORICAL)]
        self.share = np.cumsum(np.arange(1, each + 1) ** -1.2)

    def block(self, rows: int) -> pa.Table:
        """The next rows."""
        rng = self.rng
        numbers = [rng.lognormal(0.0, 1.5, rows).round(2) for _ in range(N_NUMERICAL)]
        codes = [np.searchsorted(self.share, rng.random(rows) * self.share[-1]) for _ in range(N_CATEGORICAL)]
        wave = np.sin(np.log1p(numbers[0]) * np.where(codes[0] % 2, 3.0, -3.0))
        click = rng.random(rows) < 1.0 / (1.0 + np.exp(1.5 - wave - 0.5 * (codes[1] % 3)))
        columns: dict[str, Any] = {f"I{i + 1}": numbers[i] for i in range(N_NUMERICAL)}
        columns |= {f"C{i + 1}": self.names[i].take(pa.array(codes[i])) for i in range(N_CATEGORICAL)}
        return pa.table({**columns, "click": click.astype(np.int8)})


def write_folder(folder: Path, rows: int) -> float:
    """Write Parquet files, made block by block; returns the share of clicks."""
    generator, clicks = Generator(), 0
    for at in range(0, rows, ROWS_PER_FILE):
        say(f"writing rows {at:,} to {at + ROWS_PER_FILE:,}")
        table = pa.concat_tables(generator.block(BLOCK) for _ in range(ROWS_PER_FILE // BLOCK))
        clicks += int(table["click"].to_numpy().sum())
        path = folder / f"{at // ROWS_PER_FILE:03}.parquet"
        pq.write_table(table, path, compression="zstd", row_group_size=ROWS_PER_FILE)
    return clicks / rows


def train(folder: str, quick: bool) -> dict[str, float]:
    """Fit in this process; figures of the run."""
    import splinefm as sf
    from splinefm.train import chunks

    if quick:
        chunks.MEMORY_BYTES = 0  # or the rows would stay in memory
    begin = time.perf_counter()
    fitted = sf.fit_model(folder, "click", model=sf.FwFM(k=8), training=sf.Training(epochs=1), verbose=True)
    (epoch,) = fitted.history
    return {
        "peak_mb": peak_bytes() / 1e6,
        "seconds": time.perf_counter() - begin,
        "rows_per_second": epoch.rows_per_second,
        "validation_logloss": epoch.validation_loss,
    }


def measure(rows: int, parent: str | None) -> dict[str, Any]:
    """Write, train, delete."""
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        free = shutil.disk_usage(folder).free
        if free < 2 * rows * BYTES_PER_ROW:
            raise SystemExit(f"{free / 1e9:.1f} GB are free in {folder}; pass --folder with space for twice the data")
        share = write_folder(Path(folder), rows)
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            figures = pool.apply(train, (folder, rows == QUICK_ROWS))
    entropy = -share * math.log(share) - (1 - share) * math.log(1 - share)
    if figures["validation_logloss"] >= entropy:
        raise RuntimeError(f"the model learned nothing: {figures['validation_logloss']:.4f}, a constant {entropy:.4f}")
    return {
        "figures": {"rows": rows, "disk_mb": size / 1e6, **figures, "entropy": entropy},
        "ratios": {"limit_vs_peak": LIMIT / 1e6 / figures["peak_mb"]},
    }


def main() -> None:
    """Measure, print and save."""
    parser = make_parser(__doc__, f"{QUICK_ROWS:,} rows")
    parser.add_argument("--folder", help="where to write the data; by default the folder for temporary files")
    options = parser.parse_args()
    finish(__file__, measure(QUICK_ROWS if options.quick else ROWS, options.folder), options)


if __name__ == "__main__":
    main()
