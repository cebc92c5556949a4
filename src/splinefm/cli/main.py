"""The command line, put together from its commands: `splinefm --help`."""

from __future__ import annotations

import inspect
import io
import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from splinefm._files import record_replacements
from splinefm._wording import on_command_line
from splinefm.cli.ab import ab
from splinefm.cli.compare import compare
from splinefm.cli.demo import demo
from splinefm.cli.discretize import discretize
from splinefm.cli.evaluate import evaluate
from splinefm.cli.explain import explain
from splinefm.cli.explore import explore
from splinefm.cli.export import export
from splinefm.cli.failures import plain_warnings, report
from splinefm.cli.fit import fit
from splinefm.cli.info import info
from splinefm.cli.output import say
from splinefm.cli.predict import predict
from splinefm.cli.rank import index, rank
from splinefm.cli.schema import schema
from splinefm.cli.serve import serve
from splinefm.cli.tune import tune
from splinefm.cli.update import update
from splinefm.cli.view import view
from splinefm.encode.tables.names import quoted

# The base class of all usage errors, which typer itself reports but does not export.
_UsageError: type[Exception] = typer.BadParameter.__mro__[2]

# In the order of the help.
_COMMANDS = (
    schema,
    fit,
    tune,
    evaluate,
    predict,
    update,
    compare,
    info,
    view,
    explain,
    explore,
    discretize,
    export,
    rank,
    index,
    serve,
    demo,
)


class Commands(TyperGroup):
    """Errors that the user can fix become a message and exit code 1, not a traceback."""

    def invoke(self, ctx: Any) -> Any:
        with record_replacements() as written:
            try:
                with on_command_line(), plain_warnings():
                    result = super().invoke(ctx)
                    sys.stdout.flush()  # here, where a full disk can still be reported
                    return result
            except (BrokenPipeError, _UsageError, typer.Exit, typer.Abort):
                raise
            except KeyboardInterrupt:
                say(f"splinefm: {_interrupted(written())}")
                raise
            except Exception as error:
                raise typer.Exit(report(error)) from error


def _interrupted(written: list[Path]) -> str:
    if not written:
        return "interrupted before there was a result; files are as they were"
    names = quoted([os.path.relpath(path) for path in written])
    return f"interrupted before the command was done, but written: {names}"


app = typer.Typer(
    cls=Commands,
    help="Factorization machines for tables with numerical columns: splines instead of bins.",
    epilog="Start with: splinefm demo. With your own data: splinefm fit my.csv --target COLUMN --out model.sfm",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for _command in _COMMANDS:
    # Typer keeps the line breaks of all paragraphs but the first, which a narrower terminal breaks once more.
    app.command(help=re.sub(r"(?<!\n)\n(?!\n)", " ", inspect.getdoc(_command) or ""))(_command)
app.add_typer(ab, name="ab")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"splinefm {sys.modules['splinefm'].__version__}")  # not imported: that is for users of the library
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...


def main() -> None:
    """Run a command, even if a stream is closed, the reader leaves early, or the terminal lacks some characters."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115  # for as long as the process lives
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except OSError:
        # Nothing more can be written, and Python would complain about that when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(1) from None


if __name__ == "__main__":
    main()
