"""`splinefm explore`: the model in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from splinefm.cli import options as opt
from splinefm.cli.output import print_json

Out = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write one HTML file that works offline, instead of serving the page.", show_default=False
    ),
]
Target = Annotated[
    str | None,
    opt.column_option("Column with the true values. By default the only column that is not a field."),
]
Weight = Annotated[str | None, opt.column_option("Column of sample weights, for the quality view.")]
Sample = Annotated[int, typer.Option("--sample", metavar="N", min=1, max=20_000, help="Maximum number of rows in it.")]
Port = Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="Port; 0 takes a free one.")]
Open = Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")]
Index = Annotated[str | None, typer.Option(metavar="FILE", help="Item index of the model, for the ranking view.")]
Items = Annotated[
    str | None,
    typer.Option(metavar="TABLE", help="A small catalog, for the ranking view of a page that works offline."),
]
Ids = Annotated[str | None, opt.column_option("Column of item ids of --items. By default rows are numbered from 0.")]


def explore(
    model: opt.ModelFile,
    data: opt.DataOrStandard,
    out: Out = None,
    target: Target = None,
    weight: Weight = None,
    sample: Sample = 5000,
    index: Index = None,
    items: Items = None,
    ids: Ids = None,
    port: Port = 0,
    browser: Open = True,
    sep: opt.Sep = None,
    threads: opt.Threads = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Explore a model in the browser: move a slider, and all curves follow.

    The model runs in the page, which loads nothing from elsewhere. The server listens on this machine alone, at an
    address with a random token, until Ctrl+C. With --out, the page is a file to send around.
    """
    from splinefm.cli.actions.explore import serve_explorer, write_explorer
    from splinefm.explore.making import ExploreRequest

    if index is not None and items is not None:
        raise typer.BadParameter("give an index or the items themselves, not both", param_hint="--items")
    if ids is not None and items is None:
        raise typer.BadParameter("ids are a column of --items TABLE", param_hint="--ids")
    request = ExploreRequest(model, data, target, weight, sample, index, items, ids, sep, threads)
    if out is None:
        return serve_explorer(request, port, browser=browser, quiet=quiet, as_json=as_json)
    facts = write_explorer(request, out, verbose=not quiet)
    return print_json(facts) if as_json else print(f"{facts['page']}: open it in a browser")
