"""The Criteo file (label, I1 to I13, C1 to C26, separated by tabs, oldest row first) as three Parquet files.

Nothing here holds more than a block of rows in memory.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import csv

from paper.harness import Json

LABEL = "Label"
INTEGERS = [f"I{i}" for i in range(1, 14)]
CATEGORIES = [f"C{i}" for i in range(1, 27)]
COLUMNS = [LABEL, *INTEGERS, *CATEGORIES]
# The first five of seven days to learn from, a day to choose by, a day to test on.
PARTS = {"train": (0, 5), "validation": (5, 6), "test": (6, 7)}
FILES = ("train.txt", "train.txt.gz")
SAMPLE = "criteo_45k.parquet"
_BLOCK = 16 << 20


@dataclass(frozen=True)
class Parts:
    """Training, validation and test rows: tables or Parquet files."""

    train: pa.Table | Path
    validation: pa.Table | Path
    test: pa.Table | Path

    def names(self) -> list[str]:
        """Return the columns without the label; a sample may lack some."""
        return [name for name in schema_of(self.train).names if name != LABEL]


def schema_of(part: pa.Table | Path) -> pa.Schema:
    """Columns of a part."""
    return pq.read_schema(part) if isinstance(part, Path) else part.schema


def largest(part: pa.Table | Path, name: str) -> float:
    """Return the largest value of a column; for a file, from its statistics."""
    if isinstance(part, pa.Table):
        return float(pc.max(part[name]).as_py())
    with pq.ParquetFile(part) as file:
        at = file.schema_arrow.names.index(name)
        groups = [file.metadata.row_group(i).column(at).statistics for i in range(file.metadata.num_row_groups)]
    return float(max(group.max for group in groups if group.has_min_max))


def find_whole(folder: Path | None) -> Path | None:
    """Return the original file if it exists; download it manually, because its terms must be accepted."""
    paths = [] if folder is None else [folder / name for name in FILES]
    return next((path for path in paths if path.exists()), None)


def split_sample(path: Path, seed: int) -> Parts:
    """Split a sample randomly in the same proportions, by seed."""
    table = pq.read_table(path)
    order = np.random.default_rng(seed).permutation(table.num_rows)
    cut = {name: slice(*(round(table.num_rows * day / 7) for day in days)) for name, days in PARTS.items()}
    return Parts(**{name: table.take(order[rows]) for name, rows in cut.items()})


def convert(source: Path, folder: Path) -> Json:
    """Split a text file by row order into three Parquet files; return the number of rows of each."""
    folder.mkdir(parents=True, exist_ok=True)
    n_rows = count_lines(source)
    if n_rows < 7:
        raise ValueError(f"{source} has {n_rows} rows; there is nothing to split")
    ends = {name: [round(n_rows * day / 7) for day in days] for name, days in PARTS.items()}
    with ExitStack() as stack:
        writers = {
            name: stack.enter_context(pq.ParquetWriter(folder / f"{name}.parquet", _schema(), compression="zstd"))
            for name in PARTS
        }
        at = 0
        for batch in read_lines(source):
            for name, (first, last) in ends.items():
                begin, end = max(first - at, 0), min(last - at, batch.num_rows)
                if begin < end:
                    writers[name].write_batch(batch.slice(begin, end - begin))
            at += batch.num_rows
    return {"rows": n_rows} | {name: last - first for name, (first, last) in ends.items()}


def parts_of(folder: Path) -> Parts:
    """Return the files that `convert` wrote."""
    return Parts(**{name: folder / f"{name}.parquet" for name in PARTS})


def count_lines(path: Path) -> int:
    """Count the lines of a text file, gzipped or not."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        return sum(block.count(b"\n") for block in iter(lambda: file.read(_BLOCK), b""))


def read_lines(path: Path) -> Iterator[pa.RecordBatch]:
    """Yield blocks of rows in file order; an empty cell is missing."""
    try:
        reader = csv.open_csv(
            path,
            csv.ReadOptions(column_names=COLUMNS, block_size=_BLOCK),
            csv.ParseOptions(delimiter="\t", quote_char=False),
            csv.ConvertOptions(
                column_types={field.name: field.type for field in _schema()},
                null_values=[""],
                strings_can_be_null=True,
            ),
        )
        yield from reader
    except pa.ArrowInvalid as error:
        raise ValueError(
            f"{path} is not the Criteo file: {error}; its lines have a label, 13 integers and 26 categories, with tabs"
        ) from error


def _schema() -> pa.Schema:
    kinds = {LABEL: pa.int64()} | dict.fromkeys(INTEGERS, pa.int64()) | dict.fromkeys(CATEGORIES, pa.string())
    return pa.schema(list(kinds.items()))
