"""`splinefm rank` and `splinefm index`: find the best items of a catalog for a context, and keep the catalog ready."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from splinefm._wording import in_bytes, number
from splinefm.cli import options as opt
from splinefm.cli.output import print_facts, print_json, print_table

Items = Annotated[
    str,
    typer.Argument(
        metavar="ITEMS", help=f"Catalog: a {opt.FILES}; or an index (.sfi) of 'splinefm index'.", show_default=False
    ),
]
Catalog = Annotated[str, typer.Argument(metavar="ITEMS", help=f"Catalog: a {opt.FILES}.", show_default=False)]
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
Groups = Annotated[str | None, opt.column_option("Column of groups, such as a shelf, to search some of them only.")]
Excluded = Annotated[
    list[str] | None,
    typer.Option("--exclude", metavar="ID", help="Item to exclude. Repeat for several."),
]
Allowed = Annotated[
    list[str] | None,
    typer.Option("--allow", metavar="ID", help="Item to search; all others are left out. Repeat for several."),
]
Group = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="NAME", help="Search this group only. Repeat for several."),
]
ClassName = Annotated[
    str | None, opt.class_option("Class whose score ranks the items, if the model has more than two.")
]
Out = Annotated[Path, opt.out_option("Index file to write, such as items.sfi.")]


class DtypeName(StrEnum):
    """Storage types of an index."""

    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT8 = "int8"


Dtype = Annotated[DtypeName, typer.Option(help="Storage type: fewer bytes are faster and less exact.")]


def rank(
    model: opt.ModelFile,
    items: Items,
    context: Context,
    k: TopK = 20,
    ids: Ids = None,
    groups: Groups = None,
    exclude: Excluded = None,
    allow: Allowed = None,
    group: Group = None,
    class_name: ClassName = None,
    sep: opt.Sep = None,
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Find the best items of a catalog for a context, best first.

    Example: splinefm rank model.sfm ads.parquet --ids ad_id --context '{"country": "US"}' --k 20
    """
    from splinefm.cli.actions import rank as actions

    catalog = actions.ItemSource(items, ids, groups, sep, threads, class_name)
    request = actions.RankRequest(model, catalog, context, k, exclude or [], allow or [], group or [])
    found = actions.rank_file(request, not quiet)
    return print_json({"contexts": found}) if as_json else print_ranking(found)


def index(
    model: opt.ModelFile,
    items: Catalog,
    out: Out,
    ids: Ids = None,
    groups: Groups = None,
    dtype: Dtype = DtypeName.FLOAT32,
    class_name: ClassName = None,
    sep: opt.Sep = None,
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Write the index of a catalog to a file, for 'splinefm rank' and 'splinefm serve --index'.

    An index belongs to the model that it was built with: write it again after an update.

    Example: splinefm index model.sfm ads.parquet --ids ad_id --out ads.sfi
    """
    from splinefm.cli.actions import rank as actions

    catalog = actions.ItemSource(items, ids, groups, sep, threads, class_name)
    about = actions.write_index(model, catalog, out, dtype.value, not quiet)
    return print_json(about) if as_json else print_index(about)


def print_index(about: dict[str, Any]) -> None:
    """Print what an index holds."""
    groups = "" if about["groups"] is None else f" in {about['groups']:,} groups"
    print_facts(
        [
            ("items", f"{about['items']:,}{groups}, as {about['form']} of {about['dtype']}"),
            ("fields", ", ".join(about["item_fields"])),
            ("context", ", ".join(about["context_columns"]) or "none: all contexts have the same ranking"),
            ("file", f"{about['file']}, {in_bytes(about['bytes'])}"),
        ]
    )


def print_ranking(found: list[list[dict[str, Any]]]) -> None:
    """Print a table for each context."""
    for context, best in enumerate(found):
        has_predictions = any("prediction" in item for item in best)
        rows = [
            [str(i), str(item["id"]), f"{item['score']:.4f}"]
            + ([number(item["prediction"], ".4g")] if has_predictions else [])
            for i, item in enumerate(best, start=1)
        ]
        title = f"context {context}" if len(found) > 1 else None
        print_table([">rank", "id", ">score", *([">prediction"] if has_predictions else [])], rows, title=title)
