"""Write the page of a model, or serve it."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Any

from splinefm._files import check_destination, check_writable, replacing
from splinefm.cli.output import print_json, say
from splinefm.encode.tables.open import refuse_overwriting
from splinefm.explore.making import ExploreRequest, make_explorer
from splinefm.explore.server import ExploreServer
from splinefm.train.progress import make_progress


def write_explorer(request: ExploreRequest, out: Path, verbose: bool = False) -> dict[str, Any]:
    """Write the page as one file; returns its path and size."""
    refuse_overwriting(out, request.model, request.data)
    check_writable(check_destination(out))
    with make_progress(verbose) as progress:
        explorer = make_explorer(request, progress)
        progress.begin("writing the page")
        content = explorer.page().encode()
        with replacing(out) as file:
            file.write(content)
    return {"page": str(out), "page_bytes": len(content), "rows": explorer.origin.n_sampled}


def serve_explorer(
    request: ExploreRequest, port: int, *, browser: bool = True, quiet: bool = False, as_json: bool = False
) -> None:
    """Serve the page until Ctrl+C."""
    with make_progress(not quiet) as progress:
        explorer = make_explorer(request, progress)
    with ExploreServer(explorer, port) as server:
        if as_json:
            print_json({"url": server.url})
        else:
            print(server.url, flush=True)
        if not quiet:
            say("serving on this machine alone; Ctrl+C ends it")
        if browser and not webbrowser.open(server.url):
            say("no browser was found: open the address above")
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            say("")
