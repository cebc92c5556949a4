"""`splinefm serve`: answer requests over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splinefm.cli import options as opt
from splinefm.cli.output import say

if TYPE_CHECKING:
    from splinefm.serve.settings import ArmSetting, ServerSettings

_PACKAGES = ("msgspec", "httptools", "uvloop")
_ARMS, _LIMITS, _FILES = "A/B splits", "Limits", "Files"


def _text(text: str, metavar: str, panel: str | None = None) -> Any:
    return typer.Option(metavar=metavar, help=text, rich_help_panel=panel)


ModelPath = Annotated[
    str | None, typer.Argument(metavar="[MODEL]", help="A model file; or use --arm for several.", show_default=False)
]
Arms = Annotated[list[str] | None, _text("An arm of a split. Repeat for each.", "NAME=MODEL:WEIGHT", _ARMS)]
Shadows = Annotated[
    list[str] | None, _text("A model that scores what others answer, without being shown.", "NAME=MODEL", _ARMS)
]
Key = Annotated[str | None, _text("Column that decides the arm of a row, such as user_id.", "COLUMN", _ARMS)]
Indices = Annotated[
    list[str] | None, _text("Item index of the model, for /v1/rank; with arms NAME=FILE.", "FILE", _FILES)
]
Background = Annotated[str | None, _text("Table that /v1/explain compares with.", "TABLE", _FILES)]
Tokens = Annotated[str | None, _text("File of bearer tokens, one per line.", "FILE", _FILES)]
Log = Annotated[str | None, _text("Folder for predictions and outcomes.", "FOLDER", _FILES)]


def serve(
    model: ModelPath = None,
    arm: Arms = None,
    shadow: Shadows = None,
    key: Key = None,
    index: Indices = None,
    background: Background = None,
    tokens: Tokens = None,
    log: Log = None,
    log_rows: Annotated[bool, typer.Option("--log-rows", help="Log the rows, too.", rich_help_panel=_FILES)] = False,
    host: Annotated[str, _text("Address to listen on.", "ADDRESS")] = "127.0.0.1",
    port: Annotated[int, typer.Option(metavar="PORT", min=0, max=65535, help="Port; 0 takes a free one.")] = 8080,
    workers: Annotated[int, opt.count_option("Worker processes.")] = 1,
    watch: Annotated[bool, typer.Option("--watch", help="Load files again when they change.")] = False,
    extra: Annotated[
        bool, typer.Option("--ignore-extra", help="Ignore columns that no model has, instead of refusing them.")
    ] = False,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="Log all requests, not only errors.")] = False,
    drift_rows: Annotated[
        int,
        opt.count_option("Rows per second and worker that are compared with the training rows; 0 for none.", least=0),
    ] = 500,
    explore: Annotated[
        bool,
        typer.Option("--explore", help="Offer the page of splinefm explore at /explore, with rows of --background."),
    ] = False,
    max_body: Annotated[int, opt.count_option("Bytes of a body.", _LIMITS)] = 16 << 20,
    max_rows: Annotated[int, opt.count_option("Rows of a JSON request.", _LIMITS)] = 10_000,
    max_bulk_rows: Annotated[int, opt.count_option("Rows of an Arrow stream.", _LIMITS)] = 1_000_000,
    queue: Annotated[int, opt.count_option("Requests that may wait in a worker.", _LIMITS)] = 1024,
    max_wait: Annotated[float, opt.amount_option("Seconds of work that may wait in a worker.", _LIMITS)] = 0.25,
    deadline: Annotated[float, opt.amount_option("Seconds after which a waiting request is given up.", _LIMITS)] = 5.0,
    read_seconds: Annotated[float, opt.amount_option("Seconds that a client has to send a request.", _LIMITS)] = 10.0,
    drain_seconds: Annotated[float, opt.amount_option("Seconds to finish requests at shutdown.", _LIMITS)] = 30.0,
) -> None:
    """Answer requests over HTTP: scores, rankings, explanations, metrics.

    Example: splinefm serve model.sfm --index items.sfi --port 8080 --workers 2 --watch
    """
    from splinefm.serve.settings import Limits, ServerSettings

    limits = Limits(
        body=max_body,
        rows=max_rows,
        bulk_rows=max_bulk_rows,
        queue=queue,
        wait=max_wait,
        deadline=deadline,
        read=read_seconds,
        drain=drain_seconds,
    )
    settings = ServerSettings(
        make_arms(model, arm or [], shadow or []),
        host=host,
        port=port,
        workers=workers,
        watch=watch,
        key=key,
        allow_extra=extra,
        background=background,
        tokens=tokens,
        log=log,
        log_rows=log_rows,
        log_requests=log_requests,
        drift_rows=drift_rows,
        explore=explore,
        limits=limits,
    )
    run_server(settings.with_index(index or []))


def make_arms(model: str | None, arms: Sequence[str], shadows: Sequence[str]) -> tuple[ArmSetting, ...]:
    """The arms of a command: one model, or those of a split, and shadows.

    Examples
    --------
    >>> [arm.name for arm in make_arms("m.sfm", [], ["new=n.sfm"])]
    ['default', 'new']
    """
    from splinefm.serve.settings import DEFAULT_ARM, ArmSetting, parse_arm

    if (model is None) == (not arms):
        raise ValueError("name one model file, or the arms of a split with --arm; not both")
    shown = [ArmSetting(DEFAULT_ARM, model)] if model is not None else [parse_arm(text) for text in arms]
    return (*shown, *(parse_arm(text, shadow=True) for text in shadows))


def run_server(settings: ServerSettings) -> None:
    """Run until SIGTERM or SIGINT."""
    from splinefm.explore.page import d3_script
    from splinefm.serve.http.tokens import Tokens

    if sys.platform == "win32":
        raise OSError("splinefm serve runs on Linux and macOS; on Windows use WSL, or a container")
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"splinefm serve needs {', '.join(missing)}: pip install 'splinefm[serve]'", name=missing[0]
        )
    if settings.explore:
        d3_script()  # raises where its package is missing
    from splinefm.serve.supervisor import serve

    if settings.tokens is not None:
        Tokens(settings.tokens)  # raises where the file is missing or wrong
    if settings.background is not None and not Path(settings.background).exists():
        raise FileNotFoundError(f"--background: no file {settings.background!r}")
    if settings.tokens is None and settings.host not in ("127.0.0.1", "::1", "localhost"):
        say(f"splinefm: warning: everybody who can reach {settings.host} can ask this server; use --tokens FILE")
    code = serve(settings)
    if code:
        raise typer.Exit(code)
