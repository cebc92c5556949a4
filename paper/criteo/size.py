"""Throughput and peak memory of the pipeline on a generated file of Criteo's shape."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

import splinefm as sf
from paper.criteo.arms import logloss, make_schema
from paper.criteo.data import CATEGORIES, COLUMNS, INTEGERS, LABEL, convert, parts_of
from paper.harness import Json

BLOCK = 100_000
BYTES_PER_ROW = 400  # upper bound for text and Parquet together
# About a million values in all, as many as the real file has with ten rows or more. Five columns are as wide as the
# largest of the real one, and these get the values that do not recur.
WIDE = ("C3", "C12", "C16", "C21", "C24")
DISTINCT = {name: 180_000 if name in WIDE else 5_000 for name in CATEGORIES}
MISSING = 0.2


class Generator:
    """Rows whose click depends smoothly on two integers, on a category, and on an integer and a category together.

    Parameters
    ----------
    one_offs : float
        Share of the rows of each wide column whose value occurs nowhere else. Counting them takes memory.
    """

    def __init__(self, one_offs: float, seed: int = 0) -> None:
        self.one_offs, self.rng = one_offs, np.random.default_rng(seed)
        self.names = {name: self._hex(count) for name, count in DISTINCT.items()}
        # Popularity falls as by Zipf's law.
        self.shares = {count: np.cumsum(np.arange(1, count + 1) ** -1.1) for count in set(DISTINCT.values())}

    def block(self, rows: int) -> pa.Table:
        """The next rows."""
        integers = {name: self._integers(rows, scale) for scale, name in enumerate(INTEGERS)}
        codes = {name: self._codes(rows, self.shares[DISTINCT[name]]) for name in CATEGORIES}
        columns = {name: self._with_gaps(values) for name, values in integers.items()}
        columns |= {name: self._text(name, codes[name]) for name in CATEGORIES}
        wave = np.sin(np.log1p(integers["I1"]) * np.where(codes["C1"] % 2, 2.0, -2.0))
        score = 0.8 * wave - 0.3 * np.log1p(integers["I2"].clip(0)) + 0.5 * (codes["C2"] % 3) - 1.0
        click = self.rng.random(rows) < 1.0 / (1.0 + np.exp(-score))
        return pa.table({LABEL: click.astype(np.int64), **columns}).select(COLUMNS)

    def _integers(self, rows: int, scale: int) -> npt.NDArray[np.int64]:
        numbers = np.floor(self.rng.lognormal(0.5 * scale, 1.5, rows)).astype(np.int64)
        return numbers - 2 if scale == 1 else numbers  # I2 has negative codes, as in the real file

    def _codes(self, rows: int, share: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        return np.asarray(np.searchsorted(share, self.rng.random(rows) * share[-1]))

    def _with_gaps(self, values: npt.NDArray[np.int64]) -> pa.Array:
        return pa.array(values, mask=self.rng.random(len(values)) < MISSING)

    def _text(self, name: str, codes: npt.NDArray[np.int64]) -> pa.Array:
        text = self.names[name].take(pa.array(codes))
        once = self.rng.random(len(codes)) < (self.one_offs if name in WIDE else 0.0)
        if once.any():
            fresh = self._hex(len(codes))
            text = pc.if_else(pa.array(once), fresh, text)
        return text

    def _hex(self, count: int) -> pa.Array:
        """Values of eight hexadecimal digits, as in the real file."""
        digits, ends = self.rng.bytes(4 * count).hex().encode(), 8 * np.arange(count + 1, dtype=np.int32)
        return pa.StringArray.from_buffers(count, pa.py_buffer(ends), pa.py_buffer(digits))


def write_file(path: Path, rows: int, one_offs: float) -> None:
    """Rows as text with tabs, made block by block."""
    generator = Generator(one_offs)
    options = csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    with path.open("wb") as file:
        for at in range(0, rows, BLOCK):
            csv.write_csv(generator.block(min(BLOCK, rows - at)), file, options)


def run_size(rows: int, one_offs: float, settings: Json) -> Json:
    """Write a file, convert it in a new process; in another one train for an epoch and score the test part."""
    with tempfile.TemporaryDirectory() as folder:
        free = shutil.disk_usage(folder).free
        if free < rows * BYTES_PER_ROW:
            raise OSError(f"{free / 1e9:.1f} GB are free in {folder}; set TMPDIR to a folder with more")
        path, parts = Path(folder) / "train.txt", Path(folder) / "parts"
        write_file(path, rows, one_offs)
        figures: Json = {"rows": rows, "one_offs": one_offs, "text_mb": path.stat().st_size / 1e6}
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            figures["convert"] = pool.apply(_convert, (path, parts))
        path.unlink()
        with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            figures["fit"] = pool.apply(fit_parts, (parts, settings))
    return figures


def _convert(path: Path, folder: Path) -> Json:
    started = time.perf_counter()
    counts = convert(path, folder)
    return counts | {"seconds": time.perf_counter() - started, "peak_mb": _peak()}


def fit_parts(folder: Path, settings: Json) -> Json:
    parts, started = parts_of(folder), time.perf_counter()
    fitted = sf.fit_model(
        parts.train,
        LABEL,
        schema=make_schema("cubic", parts, settings),
        model=sf.FwFM(k=settings["size"]["k"]),
        validation=parts.validation,
        training=sf.Training(epochs=1, batch_size=1024, effort="fast", threads=2),
    )
    trained = time.perf_counter()
    loss = logloss(fitted, parts.test, threads=2)
    return {
        "seconds": trained - started,
        "epoch_rows_per_second": fitted.history[0].rows_per_second,
        "score_seconds": time.perf_counter() - trained,
        "table_rows": fitted.encoder.layout.n_features,
        "logloss": loss,
        "peak_mb": _peak(),
    }


def _peak() -> float:
    """Peak of resident memory so far in MB (Linux; `ru_maxrss` would start at that of the parent process)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6
