"""What does a fit with the defaults take on ten million rows from disk, and what does it gain?

A Parquet folder (about 0.5 GB, temporary) has 10,000,000 rows with the shape of the Criteo data: 13 numbers, some of
them missing, and 26 categories with 10 to 1,000,000 distinct values each, Zipf. Clicks follow a factorization machine
whose vectors are drawn for every category, so that the lowest possible log-loss is known. New processes fit the default
model with the default settings, and an FwFM (k = 8) for one epoch. A day of 1,000,000 later rows, of which some have
other rare categories, judges both.

With `--parts`, the run measures what an epoch of the FwFM over rows on the disk is made of instead: reading and
decoding Parquet, encoding, and steps, one after the other. `cpu` is processor time in seconds per million rows and
epoch. In a fit, the next chunk is read and encoded while the current one is trained on.

    python benchmarks/disk.py [--quick] [--json] [--save] [--folder DIR] [--parts] [--rows N]
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from _shared import N_CATEGORICAL, N_NUMERICAL, finish, hex_names, make_parser, peak_bytes, say, show_figures

ROWS, QUICK_ROWS, ROWS_PER_FILE, BLOCK = 10_000_000, 1_000_000, 1_000_000, 50_000
K, SHARE_OF_PAIRS, NEW_TAIL = 4, 0.15, 0.1
LIMIT = 2_000_000_000
FloatArray = npt.NDArray[np.float64]


class Log:
    """Days of rows whose clicks follow a factorization machine with a weight for some of the pairs of columns."""

    def __init__(self) -> None:
        rng, n = np.random.default_rng(7), N_CATEGORICAL + N_NUMERICAL
        self.sizes = rng.permutation(np.round(10 ** np.linspace(1, 6, N_CATEGORICAL)).astype(int)).tolist()
        exponents = rng.uniform(1.05, 1.4, N_CATEGORICAL)
        self.vectors = [rng.normal(0.0, 0.35, (size, K)) for size in self.sizes]
        self.linear = [rng.normal(0.0, 0.25, size) for size in self.sizes]
        self.shares = [np.cumsum(np.arange(1, s + 1) ** -e) for s, e in zip(self.sizes, exponents, strict=True)]
        self.names = [pa.array(hex_names(rng, size)) for size in self.sizes]
        self.speed, self.phase = rng.uniform(0.5, 3.0, (N_NUMERICAL, K + 1)), rng.uniform(0, 6.28, (N_NUMERICAL, K + 1))
        upper = np.triu(rng.normal(0.0, 0.4, (n, n)), 1) * (rng.random((n, n)) < SHARE_OF_PAIRS)
        self.pairs = upper + upper.T

    def day(self, day: int, rows: int = ROWS_PER_FILE) -> tuple[pa.Table, float]:
        """Return the rows of a day, and the mean entropy of their clicks."""
        rng = np.random.default_rng([1, day])
        blocks, entropies = zip(*(self._block(rng, day) for _ in range(rows // BLOCK)), strict=True)
        return pa.concat_tables(blocks), float(np.mean(entropies))

    def _block(self, rng: np.random.Generator, day: int) -> tuple[pa.Table, float]:
        z = rng.lognormal(0.0, 1.5, (BLOCK, N_NUMERICAL)).round(2)
        codes = [self._codes(rng, day, i) for i in range(N_CATEGORICAL)]
        p = 1.0 / (1.0 + np.exp(-self._scores(np.log1p(z), codes)))
        click = (rng.random(BLOCK) < p).astype(np.int8)
        columns: dict[str, Any] = {
            f"I{i + 1}": pa.array(z[:, i], mask=rng.random(BLOCK) < 0.05 * (i % 4)) for i in range(N_NUMERICAL)
        }
        columns |= {f"C{i + 1}": self.names[i].take(pa.array(code)) for i, code in enumerate(codes)}
        return pa.table({**columns, "click": click}), float(-(p * np.log(p) + (1 - p) * np.log(1 - p)).mean())

    def _codes(self, rng: np.random.Generator, day: int, i: int) -> npt.NDArray[np.int64]:
        share, size = self.shares[i], self.sizes[i]
        code = np.asarray(np.searchsorted(share, rng.random(BLOCK) * share[-1]), np.int64)
        if size > 10_000:
            code = np.where(rng.random(BLOCK) < NEW_TAIL, (code + 997 * day) % size, code)
        return code

    def _scores(self, t: FloatArray, codes: list[npt.NDArray[np.int64]]) -> FloatArray:
        score = sum((linear[code] for linear, code in zip(self.linear, codes, strict=True)), np.zeros(BLOCK))
        waves = np.sin(t[:, :, None] * self.speed + self.phase)
        score += 0.25 * waves[:, :, K].sum(axis=1)
        vectors = [vector[code] for vector, code in zip(self.vectors, codes, strict=True)]
        p = np.stack([*vectors, *(0.35 * waves[:, i, :K] for i in range(N_NUMERICAL))], axis=1)
        return np.asarray(0.8 * score + 0.5 * np.einsum("nfk,nfk->n", p, np.einsum("nfk,fe->nek", p, self.pairs)) - 1.7)


def write_days(folder: Path, days: int) -> tuple[Path, Path, float]:
    """Write the days to learn from and a later one; return their paths, and the lowest possible loss of the latter."""
    log, past = Log(), folder / "past"
    past.mkdir()
    for day in range(days):
        say(f"writing day {day + 1} of {days}")
        pq.write_table(log.day(day)[0], past / f"{day:03}.parquet", compression="zstd", row_group_size=ROWS_PER_FILE)
    table, entropy = log.day(days)
    pq.write_table(table, folder / "later.parquet", compression="zstd", row_group_size=ROWS_PER_FILE)
    return past, folder / "later.parquet", entropy


def fit(past: str, later: str, small: bool, quick: bool) -> dict[str, float]:
    """Fit in this process; figures of the run."""
    import splinefm as sf
    from splinefm.train import chunks

    if quick:
        chunks.MEMORY_BYTES = 0  # or the rows would stay in memory
    begin, one = time.perf_counter(), sf.Training(epochs=1)
    fitted = sf.fit_model(
        past, "click", model=sf.FwFM(k=8) if small else None, training=one if small or quick else None, verbose=True
    )
    seconds, used = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_SELF)
    figures = {
        "epochs": len(fitted.history),
        "seconds": seconds,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "peak_mb": peak_bytes() / 1e6,
        "rows_per_second": fitted.history[-1].rows_per_second,
    }
    table = pq.read_table(later)
    y, p = table["click"].to_numpy().astype(np.float64), fitted.predict(later)
    return figures | {"later_logloss": sf.metrics.logloss(y, p), "later_auc": sf.metrics.auc(y, p)}


class Stopwatch:
    """Processor time and time of calls, or of the items of generators."""

    def __init__(self) -> None:
        self.cpu = self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Add the time until the end of a block."""
        cpu, begin = time.process_time(), time.perf_counter()
        yield
        self.cpu, self.seconds = self.cpu + time.process_time() - cpu, self.seconds + time.perf_counter() - begin

    def calls(self, function: Any) -> Any:
        """A function whose calls take part."""

        def timed(*arguments: Any, **options: Any) -> Any:
            with self.running():
                return function(*arguments, **options)

        return timed

    def items(self, function: Any) -> Any:
        """A function whose generators take part."""

        def timed(*arguments: Any, **options: Any) -> Any:
            items = iter(function(*arguments, **options))
            while True:
                with self.running():
                    item = next(items, None)
                if item is None:
                    return
                yield item

        return timed


def fit_parts(past: str, rows: int) -> dict[str, Any]:
    """Fit in this process, without threads that prepare the next chunk; figures of an epoch by part."""
    import splinefm as sf
    from splinefm.encode.encoder import Encoder
    from splinefm.encode.tables.table import Table
    from splinefm.model.cpu import CpuEngine
    from splinefm.train import chunks

    read, encode, step = Stopwatch(), Stopwatch(), Stopwatch()
    changes: list[tuple[Any, str, Any]] = [
        (chunks, "MEMORY_BYTES", 0),  # or the rows would stay in memory
        (chunks, "prefetch", iter),
        (Table, "shuffled", read.items(Table.shuffled)),
        (Encoder, "encode_batch", encode.calls(Encoder.encode_batch)),
        (CpuEngine, "steps", step.calls(CpuEngine.steps)),
    ]
    for where, name, value in changes:
        setattr(where, name, value)
    fitted = sf.fit_model(past, "click", model=sf.FwFM(k=8), training=sf.Training(epochs=2))
    million = rows * len(fitted.history) / 1e6
    parts = {"read and decode": read, "encode": encode, "steps": step}
    total = sum(part.cpu for part in parts.values())
    return {
        name: {"cpu": part.cpu / million, "seconds": part.seconds / million, "share_of_cpu": part.cpu / total}
        for name, part in parts.items()
    }


def measure_parts(rows: int, parent: str | None) -> dict[str, Any]:
    """Write, fit once, delete."""
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        past, _, _ = write_days(Path(folder), rows // ROWS_PER_FILE)
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            return {"figures": pool.apply(fit_parts, (os.fspath(past), rows)), "ratios": {}}


def measure(rows: int, parent: str | None) -> dict[str, Any]:
    """Write, fit twice, delete."""
    quick = rows == QUICK_ROWS
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        past, later, entropy = write_days(Path(folder), rows // ROWS_PER_FILE)
        disk = sum(path.stat().st_size for path in past.iterdir())
        found = {}
        for name, small in (("default", False), ("FwFM(k=8), one epoch", True)):
            say(name)
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                found[name] = pool.apply(fit, (os.fspath(past), os.fspath(later), small, quick))
    default, other = found.values()
    return {
        "figures": {**found, "rows": rows, "disk_mb": disk / 1e6, "lowest_logloss": entropy},
        "ratios": {
            "limit_vs_peak": LIMIT / 1e6 / default["peak_mb"],
            "k8_loss_vs_default": other["later_logloss"] / default["later_logloss"],
        },
    }


def main() -> None:
    """Measure, print and save."""
    parser = make_parser(__doc__, f"{QUICK_ROWS:,} rows, one epoch")
    parser.add_argument("--folder", help="where to write the data; by default the folder for temporary files")
    parser.add_argument("--parts", action="store_true", help="measure the parts of an epoch instead")
    parser.add_argument("--rows", type=int, default=ROWS, help=f"a multiple of {ROWS_PER_FILE:,}")
    options = parser.parse_args()
    rows = QUICK_ROWS if options.quick else options.rows
    if options.parts:
        show_figures(measure_parts(rows, options.folder))
    else:
        finish(__file__, measure(rows, options.folder), options)


if __name__ == "__main__":
    main()
