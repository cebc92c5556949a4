"""`splinefm rank`: find the best items of a catalog for a context."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from splinefm.cli import options as opt
from splinefm.cli.output import print_json, print_table

Items = Annotated[str, typer.Argument(metavar="ITEMS", help=f"Catalog: a {opt.FILES}.", show_default=False)]
Context = Annotated[
    str,
    typer.Option(
        metavar="JSON|FILE",
        help="Values of the other fields: a JSON object or a list of objects, a file with JSON, or - for standard "
        "input.",
        show_default=False,
    ),
]
TopK = Annotated[int, typer.Option("--k", metavar="N", min=1, help="Number of items.")]
Ids = Annotated[str | None, opt.column_option("Column of item ids. By default rows are numbered from 0.")]
Excluded = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="ID", help="Item to exclude. Repeat for several."),
]


def rank(
    model: opt.ModelFile,
    items: Items,
    context: Context,
    k: TopK = 20,
    ids: Ids = None,
    exclude: Excluded = None,
    sep: opt.Sep = None,
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Find the best items of a catalog for a context, best first.

    Example: splinefm rank model.sfm ads.parquet --ids ad_id --context '{"country": "US"}' --k 20
    """
    from splinefm.cli.actions.rank import RankRequest, rank_file

    found = rank_file(RankRequest(model, items, context, k, ids, exclude or [], threads, sep), not quiet)
    return print_json({"contexts": found}) if as_json else print_ranking(found)


def print_ranking(found: list[list[dict[str, Any]]]) -> None:
    """Print a table for each context."""
    for number, best in enumerate(found):
        rows = [
            [str(i), str(item["id"]), f"{item['score']:.4f}", f"{item['prediction']:.4g}"]
            for i, item in enumerate(best, start=1)
        ]
        title = f"context {number}" if len(found) > 1 else None
        print_table([">rank", "id", ">score", ">prediction"], rows, title=title)
