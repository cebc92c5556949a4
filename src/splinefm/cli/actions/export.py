"""Write a model file in the formats that other systems read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, NamedTuple

from splinefm.encode.tables.open import open_table, refuse_overwriting
from splinefm.store.description import one_class
from splinefm.store.model_file import load
from splinefm.train.fitted import Fitted


class ExportRequest(NamedTuple):
    """What the user asked for; `rows` is a table to convert to libffm's format."""

    model: Path
    out: Path
    to: Literal["libffm", "onnx", "scorer", "tables"]
    csv: bool = False
    raw: bool = False
    index_file: Path | None = None
    rows: str | None = None
    rows_out: Path | None = None
    target: str | None = None
    sep: str | None = None
    class_name: str | None = None


def export_file(request: ExportRequest) -> dict[str, Any]:
    """Write the export, and return the written files by kind."""
    refuse_overwriting(request.out, request.model)
    fitted = _load_scores(request)
    if request.to == "onnx":
        from splinefm.export.onnx.model import export_onnx

        export_onnx(fitted, request.out)
        return {"onnx": str(request.out)}
    if request.to == "scorer":
        from splinefm.export.scorer import export_scorer

        if request.index_file is None:
            export_scorer(fitted, request.out)
            return {"scorer": str(request.out)}
        from splinefm.rank.index import ItemIndex

        refuse_overwriting(request.out, request.index_file)
        index = ItemIndex.load(request.index_file, fitted, mmap=False)
        export_scorer(fitted, request.out, index=index)
        return {"scorer": str(request.out), "items": len(index)}
    if request.to == "tables":
        from splinefm.export.tables import export_tables

        folder = export_tables(fitted, request.out, format="csv" if request.csv else "parquet")
        return {"tables": str(folder), "files": sorted(path.name for path in folder.iterdir())}
    from splinefm.export.libffm import export_libffm, export_libffm_rows

    export_libffm(fitted, request.out, raw=request.raw)
    written = {"libffm": str(request.out), "features": f"{request.out}.json"}
    if request.rows is not None and request.rows_out is not None:
        refuse_overwriting(request.rows_out, request.model, request.rows)
        export_libffm_rows(fitted, open_table(request.rows, sep=request.sep), request.rows_out, target=request.target)
        written["rows"] = str(request.rows_out)
    return written


def _load_scores(request: ExportRequest) -> Fitted:
    """The model, or that of the chosen class; formats that hold several scores take all without a choice."""
    fitted = load(request.model)
    what = f"--to {request.to}" if request.index_file is None else "--index"
    holds_several = request.to in ("onnx", "scorer") and request.index_file is None
    return fitted if holds_several and request.class_name is None else one_class(fitted, request.class_name, what)
