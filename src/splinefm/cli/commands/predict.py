"""`splinefm predict`: write the predictions of a model for a table."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from splinefm.cli import options as opt
from splinefm.cli.output import print_json


class FormatName(StrEnum):
    """Formats of predictions."""

    CSV = "csv"
    PARQUET = "parquet"


Out = Annotated[
    str, typer.Option(metavar="FILE", help="Output: a .csv, .csv.gz or .parquet file, or - for standard output.")
]
Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="COLUMN", help="Column to copy to the output. Repeat for several."),
]
Format = Annotated[
    FormatName | None,
    typer.Option("--format", help="Output format. By default taken from the file name; csv for standard output."),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object about the run. Needs --out FILE.")]


def predict(
    model: opt.ModelFile,
    data: opt.DataOrStandard,
    out: Out = "-",
    ids: Ids = None,
    sep: opt.Sep = None,
    format_name: Format = None,
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
    as_json: Json = False,
) -> None:
    """Write the predictions of a model, one row per row of the data, in the same order.

    The column is called "probability" if the target has two values (the probability of 1, or of the second label in
    sorted order), and "prediction" otherwise. With more than two classes, there is a column per class, such as
    "probability_red".
    """
    from splinefm.cli.actions.predict import predict_file, prediction_names
    from splinefm.encode.tables.open import STANDARD
    from splinefm.store.description import predicted_thing

    if as_json and out == STANDARD:
        raise typer.BadParameter("the predictions go to standard output; add --out FILE", param_hint="--json")
    if out == STANDARD and format_name is FormatName.PARQUET and sys.stdout.isatty():
        raise typer.BadParameter("cannot print Parquet to a terminal; add --out FILE", param_hint="--format")
    chosen = None if format_name is None else format_name.value
    fitted, rows = predict_file(model, data, out, ids or [], chosen, threads, not quiet, sep)
    names, meaning = prediction_names(fitted), predicted_thing(fitted)
    if as_json:
        column = {"column": names[0]} if len(names) == 1 else {"columns": names}
        return print_json({"file": out, "rows": rows, **column, "meaning": meaning})
    shown = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
    opt.remarks(quiet)(f"{rows:,} rows; {shown}: {meaning}")
