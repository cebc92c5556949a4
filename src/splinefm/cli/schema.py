"""`splinefm schema`: propose a schema for a table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from splinefm.cli import options as opt
from splinefm.cli.output import print_json, print_lines

Target = Annotated[str | None, opt.column_option("Column to predict. It is left out of the schema.")]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the schema to this .toml or .json file.")]


def schema(
    data: opt.DataOrStandard,
    target: Target = None,
    ignore: opt.Ignore = None,
    sep: opt.Sep = None,
    out: Out = None,
    as_json: opt.Json = False,
) -> None:
    """Inspect a table and propose a schema, with the reason for every choice."""
    from splinefm._files import check_writable
    from splinefm.encode.inference import infer_schema
    from splinefm.encode.schema import schema_path
    from splinefm.encode.tables.open import open_data, refuse_overwriting, without

    table = open_data(data, sep=sep)
    if out is not None:
        refuse_overwriting(out, data)
        check_writable(schema_path(out))
    inferred = without(infer_schema(table, target=target), ignore or [], target)
    if out is not None:
        inferred.save(out)
    if as_json:
        return print_json(inferred.to_dict())
    print_lines(str(inferred))
    if out is not None:
        print_lines(f"\nWrote {out}. Edit it as needed and pass it to fit: --schema {out}")
