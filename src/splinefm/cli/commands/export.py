"""`splinefm export`: write a model in a format that other systems read."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from splinefm.cli import options as opt
from splinefm.cli.output import print_facts, print_json


class ExportName(StrEnum):
    """Export formats."""

    LIBFFM = "libffm"
    ONNX = "onnx"
    SCORER = "scorer"
    TABLES = "tables"


To = Annotated[ExportName, typer.Option(help="Export format.", show_default=False)]
Out = Annotated[Path, opt.out_option("File to write, or folder for tables.", metavar="PATH")]
Csv = Annotated[bool, typer.Option("--csv", help="For tables: write CSV instead of Parquet.")]
Raw = Annotated[
    bool,
    typer.Option("--raw", help="For libffm: allow a model without logistic loss; use its raw scores."),
]
Index = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="For scorer: index of items, from splinefm index, to be part of the file."),
]
Rows = Annotated[
    str | None, typer.Option("--rows", metavar="DATA", help="For libffm: table to convert, written to --rows-out.")
]
RowsOut = Annotated[Path | None, typer.Option(metavar="FILE", help="File to write the converted --rows to.")]
ClassName = Annotated[
    str | None,
    opt.class_option("Class whose score is exported, if the model has more than two. libffm and tables need one."),
]
Target = Annotated[str | None, opt.column_option("Column of labels in --rows.")]


def export(
    model: opt.ModelFile,
    to: To,
    out: Out,
    csv: Csv = False,
    raw: Raw = False,
    index: Index = None,
    rows: Rows = None,
    rows_out: RowsOut = None,
    target: Target = None,
    class_name: ClassName = None,
    sep: opt.Sep = None,
    as_json: opt.Json = False,
) -> None:
    """Write a model in a format that other systems read: a libffm model, an ONNX graph, a scorer file
    for the C library, or plain tables."""
    from splinefm.cli.actions.export import ExportRequest, export_file

    needs = {
        "--csv": (csv, "tables"),
        "--raw": (raw, "libffm"),
        "--index": (index, "scorer"),
        "--rows": (rows, "libffm"),
    }
    for name, (given, kind) in needs.items():
        if given and to != kind:
            raise typer.BadParameter(f"needs --to {kind}", param_hint=name)
    if (rows is None) != (rows_out is None):
        raise typer.BadParameter("give both --rows and --rows-out, or neither", param_hint="--rows")
    request = ExportRequest(model, out, to.value, csv, raw, index, rows, rows_out, target, sep, class_name)
    written = export_file(request)
    if as_json:
        return print_json(written)
    print_facts((kind, ", ".join(what) if isinstance(what, list) else str(what)) for kind, what in written.items())
