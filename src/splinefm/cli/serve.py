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
    from splinefm.serve.settings import Arm, ServiceSettings

_PACKAGES = ("msgspec", "uvicorn", "httptools", "uvloop", "prometheus_client")
_ARMS, _LIMITS, _FILES, _NETWORK = "A/B splits", "Limits", "Files", "Network"


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
AdminFromLoopback = Annotated[
    bool,
    typer.Option(
        "--admin-from-loopback",
        help="Without tokens, allow changes of models and weights from this machine; not behind a proxy.",
    ),
]
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
    socket: Annotated[str | None, _text("Unix socket to listen on, instead of an address.", "PATH", _NETWORK)] = None,
    certificate: Annotated[str | None, _text("Certificate chain for TLS.", "FILE", _NETWORK)] = None,
    private_key: Annotated[str | None, _text("Private key for TLS.", "FILE", _NETWORK)] = None,
    trusted_proxies: Annotated[
        str | None, _text("Proxies whose X-Forwarded headers are believed.", "ADDRESSES", _NETWORK)
    ] = None,
    root_path: Annotated[str, _text("Path under which a proxy offers the server.", "PATH", _NETWORK)] = "",
    watch: Annotated[bool, typer.Option("--watch", help="Load files again when they change.")] = False,
    max_change: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            min=0.0,
            help="Refuse a new file that may move the score of any segment by more than this.",
        ),
    ] = None,
    extra: Annotated[
        bool, typer.Option("--ignore-extra", help="Ignore columns that no model has, instead of refusing them.")
    ] = False,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="Log all requests, not only errors.")] = False,
    admin_from_loopback: AdminFromLoopback = False,
    traces: Annotated[bool, typer.Option("--traces", help="Make OpenTelemetry spans.")] = False,
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
    drain_delay: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0.0, help="Seconds from failing readiness to the end.", rich_help_panel=_LIMITS
        ),
    ] = 0.5,
) -> None:
    """Answer requests over HTTP: scores, rankings, explanations, metrics.

    Example: splinefm serve model.sfm --index items.sfi --port 8080 --workers 2 --watch
    """
    from splinefm.serve.settings import Limits, ServiceSettings

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
    settings = ServiceSettings(
        make_arms(model, arm or [], shadow or []),
        key=key,
        watch=watch,
        max_change=max_change,
        allow_extra=extra,
        background=background,
        explore=explore,
        log=log,
        log_rows=log_rows,
        log_requests=log_requests,
        drift_rows=drift_rows,
        tokens=tokens,
        admin_from_loopback=admin_from_loopback,
        traces=traces,
        limits=limits,
    )
    run_server(
        settings.with_index(index or []),
        host=host,
        port=port,
        socket=socket,
        workers=workers,
        certificate=certificate,
        private_key=private_key,
        trusted_proxies=trusted_proxies,
        root_path=root_path,
        drain_delay=drain_delay,
    )


def make_arms(model: str | None, arms: Sequence[str], shadows: Sequence[str]) -> tuple[Arm, ...]:
    """The arms of a command: one model, or the arms of a split, and shadows.

    Examples
    --------
    >>> [arm.name for arm in make_arms("m.sfm", [], ["new=n.sfm"])]
    ['default', 'new']
    """
    from splinefm.serve.settings import DEFAULT_ARM, Arm, parse_arm

    if (model is None) == (not arms):
        raise ValueError("name one model file, or the arms of a split with --arm; not both")
    shown = [Arm(DEFAULT_ARM, model)] if model is not None else [parse_arm(text) for text in arms]
    return (*shown, *(parse_arm(text, shadow=True) for text in shadows))


def check_server(settings: ServiceSettings, host: str | None) -> None:
    """Raise where a package or a file is missing; warn if the server is open to the network."""
    from splinefm.explore.page import d3_script
    from splinefm.serve.tokens import Tokens

    if sys.platform == "win32":
        raise OSError("splinefm serve runs on Linux and macOS; on Windows use WSL, or a container")
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(
            f"splinefm serve needs {', '.join(missing)}: pip install 'splinefm[serve]'", name=missing[0]
        )
    if settings.traces and find_spec("opentelemetry") is None:
        raise ModuleNotFoundError("--traces needs opentelemetry-api: pip install 'splinefm[traces]'")
    if settings.explore:
        d3_script()  # raises where its package is missing
    if settings.tokens is not None:
        Tokens(settings.tokens)  # raises where the file is missing or wrong
    if settings.background is not None and not Path(settings.background).exists():
        raise FileNotFoundError(f"--background: no file {settings.background!r}")
    if settings.tokens is None and host not in (None, "127.0.0.1", "::1", "localhost"):
        say(f"splinefm: warning: without --tokens FILE, every client that can reach {host} is answered")


def run_server(settings: ServiceSettings, **options: object) -> None:
    """Run until SIGTERM or SIGINT; for the options see `ServerOptions`."""
    host = None if options["socket"] is not None else str(options["host"])
    check_server(settings, host)
    from splinefm.serve.server import ServerOptions, serve

    code = serve(settings, ServerOptions(**options))  # type: ignore[arg-type]
    if code:
        raise typer.Exit(code)
