"""`python -m splinefm.distribute`: the commands of one process, which torchrun starts."""

from __future__ import annotations

import os
import sys

import typer

from splinefm.cli.fit import fit
from splinefm.cli.main import Commands
from splinefm.cli.update import update

app = typer.Typer(
    cls=Commands,
    help="Training on several processes and machines, under torchrun: one process of a fit or an update.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


app.command()(fit)
app.command()(update)


# What torch and its OpenMP read when they are loaded; what the user has set stays.
ENVIRONMENT = {
    "TORCH_CPP_LOG_LEVEL": "ERROR",  # else torch warns of sockets when a process is gone
    # Threads of torch that wait for each other must not spin: they would take the cores that others wait for. On two
    # busy cores, a process with two threads was 30 times slower than one with one thread.
    "OMP_WAIT_POLICY": "PASSIVE",
    "OMP_NUM_THREADS": "1",  # --threads sets another number
}


def main() -> None:
    """Run a command in this process; a failure ends the process at once, because others wait for it."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    arguments = sys.argv[1:]
    if arguments[:1] in (["fit"], ["update"]) and "--help" not in arguments:
        arguments = [*arguments, "--as-process"]
    try:
        app(args=arguments, prog_name="python -m splinefm.distribute")
    except SystemExit as stop:
        sys.stdout.flush()
        sys.stderr.flush()
        if stop.code and "RANK" in os.environ:
            os._exit(stop.code if isinstance(stop.code, int) else 1)
        raise
