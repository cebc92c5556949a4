"""`splinefm export`: write a model in a format that other systems read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from splinefm.cli import options as opt
from splinefm.cli.output import print_facts, print_json

if TYPE_CHECKING:
    from splinefm.train.fitted import Fitted

ExportName = Literal["libffm", "onnx", "scorer", "tables"]
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
    from splinefm.encode.tables.open import refuse_overwriting
    from splinefm.store.description import one_class
    from splinefm.store.model_file import load

    for name, given, needed in (
        ("--csv", csv, "tables"),
        ("--raw", raw, "libffm"),
        ("--index", index, "scorer"),
        ("--rows", rows, "libffm"),
    ):
        if given and to != needed:
            raise typer.BadParameter(f"needs --to {needed}", param_hint=name)
    if (rows is None) != (rows_out is None):
        raise typer.BadParameter("give both --rows and --rows-out, or neither", param_hint="--rows")
    refuse_overwriting(out, model)
    fitted = load(model)
    if class_name is not None or index is not None or to not in ("onnx", "scorer"):  # these hold several scores
        fitted = one_class(fitted, class_name, f"--to {to}" if index is None else "--index")
    written: dict[str, Any] = {to: str(out)}
    if to == "onnx":
        from splinefm.export.onnx.model import export_onnx

        export_onnx(fitted, out)
    elif to == "scorer":
        written |= _export_scorer(fitted, out, index)
    elif to == "tables":
        from splinefm.export.tables import export_tables

        folder = export_tables(fitted, out, format="csv" if csv else "parquet")
        written = {"tables": str(folder), "files": sorted(path.name for path in folder.iterdir())}
    else:
        from splinefm.export.libffm import export_libffm

        export_libffm(fitted, out, raw=raw)
        written["features"] = f"{out}.json"
        if rows is not None and rows_out is not None:
            refuse_overwriting(rows_out, model, rows)
            _export_rows(fitted, rows, rows_out, target, sep)
            written["rows"] = str(rows_out)
    if as_json:
        return print_json(written)
    print_facts((kind, ", ".join(what) if isinstance(what, list) else str(what)) for kind, what in written.items())


def _export_scorer(fitted: Fitted, out: Path, index_file: Path | None) -> dict[str, Any]:
    from splinefm.encode.tables.open import refuse_overwriting
    from splinefm.export.scorer import export_scorer
    from splinefm.rank.index import ItemIndex

    if index_file is None:
        export_scorer(fitted, out)
        return {}
    refuse_overwriting(out, index_file)
    index = ItemIndex.load(index_file, fitted, mmap=False)
    export_scorer(fitted, out, index=index)
    return {"items": len(index)}


def _export_rows(fitted: Fitted, rows: str, out: Path, target: str | None, sep: str | None) -> None:
    from splinefm.encode.tables.open import open_table
    from splinefm.export.libffm import export_libffm_rows

    export_libffm_rows(fitted, open_table(rows, sep=sep), out, target=target)
