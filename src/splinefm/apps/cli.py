"""The command line: `splinefm --help`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    help="Factorization machines for tables with numerical columns: splines instead of bins.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _version_free() -> None:
    """Factorization machines for tables with numerical columns: splines instead of bins."""


@app.command()
def schema(
    data: Annotated[
        str, typer.Argument(help="A CSV or Parquet file, a folder, or a pattern such as 'logs/*.parquet'.")
    ],
    target: Annotated[str | None, typer.Option(help="The column to be predicted, to leave it out.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the schema to this .toml or .json file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Look at a table and propose a schema, with the reason for every choice."""
    from splinefm.encode.inference import infer_schema

    inferred = infer_schema(data, target=target)
    if out is not None:
        inferred.save(out)
    print(json.dumps(inferred.to_dict()) if as_json else inferred)
    if out is not None and not as_json:
        print(f"\nWritten to {out}; edit it as you like.")


@app.command()
def demo() -> None:
    """Encode built-in click data: the schema that is inferred, and how well each column spreads."""
    from splinefm.apps.demo import click_data
    from splinefm.encode.encoder import fit_encoder
    from splinefm.encode.inference import infer_schema

    table, _ = click_data()
    inferred = infer_schema(table, target="click")
    encoder = fit_encoder(inferred, table, target="click")
    slots = encoder.encode(table)
    print(f"{table.num_rows:,} rows of synthetic clicks. The schema that splinefm proposes:\n\n{inferred}\n")
    print("How the columns came out:\n")
    print("\n".join(f"  {name}: {note}" for name, note in encoder.notes.items()))
    print(f"\nShare of the rows that each basis function sees:\n\n{encoder.starvation()}\n")
    print(f"Encoded: {slots.start.shape[1]} windows, {slots.weight.shape[1]} weights per row.")
    print("For a table of your own: splinefm schema my.csv --target click --out schema.toml")


def main() -> None:
    """Run a command; what the user can mend is a message, not a traceback."""
    try:
        app()
    except (ValueError, OSError, TypeError) as error:
        print(f"splinefm: {error}", file=sys.stderr)
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
