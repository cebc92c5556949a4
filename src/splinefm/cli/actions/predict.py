"""Write predictions for a table, chunk by chunk and in order."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from splinefm._files import check_destination, replacing
from splinefm._wording import visible
from splinefm.encode.drift import Watch
from splinefm.encode.tables.open import STANDARD, open_data, refuse_overwriting, require_columns
from splinefm.encode.tables.table import Table
from splinefm.store.sharded_model import TableScorer, open_model
from splinefm.train.fitted import Fitted
from splinefm.train.progress import make_progress

ROWS = 65_536
"""Rows in memory at a time."""

_FORMATS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
_GZIP = ".gz"


def predict_file(
    model: Path,
    data: str,
    out: str,
    ids: Sequence[str] = (),
    format_name: str | None = None,
    threads: int | None = None,
    verbose: bool = False,
    sep: str | None = None,
) -> tuple[Fitted, int]:
    """Write the predictions of a model for a table; return the model and the number of rows."""
    format_name, ids = format_name or output_format(out), list(dict.fromkeys(ids))
    if format_name == "parquet" and _is_gzip(out):
        raise ValueError(f"--out {out!r}: Parquet is compressed already; choose a name without {_GZIP}")
    refuse_overwriting(out, data, model)
    fitted, table_scorer = open_model(model)
    schema = fitted.encoder.schema
    # Identifiers are copied as they are in a text file: "007" must not become 7.
    table = open_data(data, {**dict.fromkeys(ids, pa.large_string()), **schema.column_types()}, sep)
    require_columns(table, [*schema.columns, *ids])
    columns = _output_schema(table, ids, prediction_names(fitted), format_name)
    rows = 0
    with make_progress(verbose) as progress:
        progress.begin("predicting", table.n_rows)
        watch = Watch(fitted.encoder)
        score = table_scorer(threads=threads, watch=watch)
        batches = _predictions(fitted, score, table, ids, columns)
        # Most errors in a table show in the first rows: then nothing is written, not even a header.
        first = list(islice(batches, 1))
        with _destination(out) as file, _writer(file, columns, format_name) as writer:
            for batch in chain(first, batches):
                writer.write_batch(batch)
                rows += batch.num_rows
                progress.advance(batch.num_rows)
        watch.warn()
    return fitted, rows


def _predictions(
    fitted: Fitted, score: TableScorer, table: Table, ids: Sequence[str], columns: pa.Schema
) -> Iterator[pa.RecordBatch]:
    for batch in table.chunks([*fitted.encoder.schema.columns, *ids], ROWS):
        predictions = fitted.loss.predict(score(batch).astype(float)).reshape(batch.num_rows, -1)
        kept = [_decoded(batch.column(name)) for name in ids]
        yield pa.RecordBatch.from_arrays([*kept, *map(pa.array, predictions.T)], schema=columns)


def prediction_names(fitted: Fitted) -> list[str]:
    """The names of the columns of predictions: one, or one per class if there are more than two.

    A model of one of several classes has scores, which are no predictions without the other classes.
    """
    if fitted.n_outputs > 1:
        return [f"probability_{label}" for label in fitted.classes or ()]
    if fitted.loss.of_class is not None:
        return ["score"]
    return ["probability" if fitted.loss.name == "logistic" else "prediction"]


def output_format(out: str) -> str:
    """The format by the file name, csv or parquet; csv for standard output."""
    name = "csv" if out == STANDARD or out.lower().endswith(".csv.gz") else _FORMATS.get(Path(out).suffix.lower())
    if name is None:
        endings = ", ".join([*_FORMATS, f".csv{_GZIP}"])
        raise ValueError(f"--out {out!r} must end in {endings}; or add --format csv or --format parquet")
    return name


def _output_schema(table: Table, ids: Sequence[str], predictions: Sequence[str], format_name: str) -> pa.Schema:
    for name in predictions:
        if name in ids:
            raise ValueError(f"--id {name}: this is the name of the column of predictions; rename yours")
    columns = [(name, _plain(table.schema.field(name).type)) for name in ids]
    for name, kind in columns:
        if format_name == "csv" and pa.types.is_nested(kind):
            raise ValueError(f"--id {name}: {kind} cannot be written to CSV; use --format parquet")
    return pa.schema([*columns, *((name, pa.float64()) for name in predictions)])


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _decoded(column: pa.Array) -> pa.Array:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


@contextmanager
def _destination(out: str) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears once it is complete."""
    if out == STANDARD:
        yield _Terminal() if sys.stdout.isatty() else sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(out)
    if path.is_dir():
        raise IsADirectoryError(f"--out {out!r} is a folder; add a file name, such as predictions.csv")
    if path.exists() and not path.is_file():  # a device or a named pipe
        with path.open("wb") as file:
            yield file
        return
    with replacing(check_destination(path)) as file:
        if not _is_gzip(out):
            yield file
            return
        # Without a name and a time, the same predictions are the same file.
        with gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed:
            yield packed  # type: ignore[misc]  # it has all that a writer needs


def _is_gzip(out: str) -> bool:
    return out.lower().endswith(_GZIP)


class _Terminal(io.BytesIO):
    """Standard output as a terminal, which must not interpret control characters in values of a table."""

    def write(self, data: Any) -> int:
        """Print text with control characters written out."""
        text = bytes(data).decode(errors="replace")
        sys.stdout.write("\n".join(visible(line.removesuffix("\r")) for line in text.split("\n")))
        return len(data)


def _writer(file: BinaryIO, columns: pa.Schema, format_name: str) -> Any:
    if format_name == "csv":
        from pyarrow.csv import CSVWriter

        return CSVWriter(file, columns)
    from pyarrow.parquet import ParquetWriter

    return ParquetWriter(file, columns)
