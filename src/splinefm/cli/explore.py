"""`splinefm explore`: the model in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splinefm.cli import options as opt
from splinefm.cli.output import print_json, say

if TYPE_CHECKING:
    from splinefm.explore.explorer import Explorer

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
    from splinefm._files import check_destination, check_writable
    from splinefm.encode.tables.open import refuse_overwriting
    from splinefm.explore.explorer import make_explorer
    from splinefm.train.progress import make_progress

    if index is not None and items is not None:
        raise typer.BadParameter("give an index or the items themselves, not both", param_hint="--items")
    if ids is not None and items is None:
        raise typer.BadParameter("ids are a column of --items TABLE", param_hint="--ids")
    if out is not None:
        refuse_overwriting(out, model, data)
        check_writable(check_destination(out))
    with make_progress(not quiet) as progress:
        explorer = make_explorer(
            model,
            data,
            target=target,
            weight=weight,
            sample=sample,
            index=index,
            items=items,
            ids=ids,
            sep=sep,
            threads=threads,
            progress=progress,
        )
        if out is not None:
            progress.begin("writing the page")
            facts = _write(explorer, out)
    if out is None:
        return _serve(explorer, port, browser, quiet, as_json)
    return print_json(facts) if as_json else print(f"{facts['page']}: open it in a browser")


def _write(explorer: Explorer, out: Path) -> dict[str, Any]:
    """Write the page as one file; returns its path and size."""
    from splinefm._files import replacing

    content = explorer.page().encode()
    with replacing(out) as file:
        file.write(content)
    return {"page": str(out), "page_bytes": len(content), "rows": explorer.origin.n_sampled}


def _serve(explorer: Explorer, port: int, browser: bool, quiet: bool, as_json: bool) -> None:
    """Serve the page until Ctrl+C."""
    import webbrowser

    from splinefm.explore.server import ExploreServer

    with ExploreServer(explorer, port) as server:
        print_json({"url": server.url}) if as_json else print(server.url, flush=True)
        if not quiet:
            say("serving on this machine alone; Ctrl+C ends it")
        if browser and not webbrowser.open(server.url):
            say("no browser was found: open the address above")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            say("")
