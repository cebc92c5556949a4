"""`splinefm predict`: write the predictions of a model for a table."""

from __future__ import annotations

import gzip
import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

import typer

from splinefm._wording import visible
from splinefm.cli import options as opt
from splinefm.cli.output import print_json

if TYPE_CHECKING:
    import pyarrow as pa

    from splinefm.encode.tables.table import Table
    from splinefm.store.sharded_model import TableScorer
    from splinefm.train.fitted import Fitted

ROWS = 65_536
"""Rows in memory at a time."""
_FORMATS = {".csv": "csv", ".parquet": "parquet", ".pq": "parquet"}
_GZIP = ".gz"

Out = Annotated[
    str, typer.Option(metavar="FILE", help="Output: a .csv, .csv.gz or .parquet file, or - for standard output.")
]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="COLUMN", help="Column to copy to the output. Repeat for several."),
]
Format = Annotated[
    Literal["csv", "parquet"] | None,
    typer.Option(help="Output format. By default taken from the file name; csv for standard output."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object about the run. Needs --out FILE.")]


def predict(
    model: opt.ModelFile,
    data: opt.DataOrStandard,
    out: Out = "-",
    ids: Ids = None,
    sep: opt.Sep = None,
    format: Format = None,
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
    as_json: Json = False,
) -> None:
    """Write the predictions of a model, one row per row of the data, in the same order.

    The column is called "probability" if the target has two values (the probability of 1, or of the second label in
    sorted order), and "prediction" otherwise. With more than two classes, there is a column per class, such as
    "probability_red".
    """
    from splinefm.store.description import predicted_thing, prediction_names

    if as_json and out == "-":
        raise typer.BadParameter("the predictions go to standard output; add --out FILE", param_hint="--json")
    if out == "-" and format == "parquet" and sys.stdout.isatty():
        raise typer.BadParameter("cannot print Parquet to a terminal; add --out FILE", param_hint="--format")
    fitted, rows = predict_file(model, data, out, ids or [], format, threads, not quiet, sep)
    names, meaning = prediction_names(fitted), predicted_thing(fitted)
    if as_json:
        column = {"column": names[0]} if len(names) == 1 else {"columns": names}
        return print_json({"file": out, "rows": rows, **column, "meaning": meaning})
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    opt.remarks(quiet)(f"{rows:,} rows; {shown}: {meaning}")


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
    import pyarrow as pa

    from splinefm.encode.drift import Watch
    from splinefm.encode.tables.open import open_data, refuse_overwriting, require_columns
    from splinefm.store.description import prediction_names
    from splinefm.store.sharded_model import open_model
    from splinefm.train.progress import make_progress

    format_name, ids = format_name or _output_format(out), list(dict.fromkeys(ids))
    if format_name == "parquet" and _is_gzip(out):
        raise ValueError(f"--out {out!r}: Parquet is compressed already; choose a name without {_GZIP}")
    refuse_overwriting(out, data, model)
    fitted, table_scorer = open_model(model)
    # Identifiers are copied as they are in a text file: "007" must not become 7.
    table = open_data(data, {**dict.fromkeys(ids, pa.large_string()), **fitted.column_types()}, sep)
    require_columns(table, [*fitted.columns, *ids])
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
    import pyarrow as pa

    first = 0
    for batch in table.chunks(list(dict.fromkeys([*fitted.columns, *ids])), ROWS):
        fitted.check_offset(batch, first)
        first += batch.num_rows
        predictions = fitted.loss.predict(score(batch).astype(float)).reshape(batch.num_rows, -1)
        copied = [batch.column(name).cast(columns.field(name).type) for name in ids]
        yield pa.RecordBatch.from_arrays([*copied, *map(pa.array, predictions.T)], schema=columns)


def _output_format(out: str) -> str:
    """The format by the file name; csv for standard output."""
    name = "csv" if out == "-" or out.lower().endswith(".csv.gz") else _FORMATS.get(Path(out).suffix.lower())
    if name is None:
        endings = ", ".join([*_FORMATS, f".csv{_GZIP}"])
        raise ValueError(f"--out {out!r} must end in {endings}; or add --format csv or --format parquet")
    return name


def _output_schema(table: Table, ids: Sequence[str], predictions: Sequence[str], format_name: str) -> pa.Schema:
    import pyarrow as pa

    for name in predictions:
        if name in ids:
            raise ValueError(f"--id {name}: this is the name of the column of predictions; rename yours")
    columns = []
    for name in ids:
        kind = table.schema.field(name).type
        kind = kind.value_type if pa.types.is_dictionary(kind) else kind
        columns.append((name, kind))
        if format_name == "csv" and pa.types.is_nested(kind):
            raise ValueError(f"--id {name}: {kind} cannot be written to CSV; use --format parquet")
    return pa.schema([*columns, *((name, pa.float64()) for name in predictions)])


@contextmanager
def _destination(out: str) -> Iterator[BinaryIO]:
    """Standard output, or a file that appears once it is complete."""
    from splinefm._files import check_destination, replacing

    if out == "-":
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
