"""`python -m splinefm.distribute`: the commands of one rank, which torchrun starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from splinefm.cli import fit_options as fit_opt
from splinefm.cli import options as opt
from splinefm.cli import rank_options as rank_opt
from splinefm.cli.commands.fit import fit
from splinefm.cli.main import Commands

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A model file, or the folder of a sharded model.", show_default=False)
]

app = typer.Typer(
    cls=Commands,
    help="Training on several processes and machines, under torchrun: one rank of a fit or an update.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def update(
    model: Model,
    data: opt.Data,
    target: fit_opt.Target,
    out: fit_opt.Out,
    weight: opt.Weight = None,
    checkpoints: rank_opt.Checkpoints = None,
    checkpoint_minutes: rank_opt.Minutes = rank_opt.DEFAULT_MINUTES,
    resume: rank_opt.Resume = False,
    sharded_out: rank_opt.ShardedOut = False,
    table_optimizer: rank_opt.Fused = rank_opt.FusedName.ADAGRAD,
    timeout: rank_opt.Timeout = rank_opt.DEFAULT_TIMEOUT,
    quiet: opt.Quiet = False,
) -> None:
    """Train a model for one pass over new rows, with features for new categories."""
    from splinefm.cli.actions.ranks import make_settings, update_on_rank

    settings = make_settings(out, sharded_out, table_optimizer.value, checkpoints, checkpoint_minutes, resume)
    update_on_rank(model, data, target, weight, settings, timeout, quiet)


app.command()(fit)


def main() -> None:
    """Run a command on this rank; a failure ends the process at once, because others wait for it."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # else torch warns of sockets when a rank is gone
    arguments = sys.argv[1:]
    if arguments[:1] == ["fit"] and "--help" not in arguments:
        arguments = [*arguments, "--on-rank"]
    try:
        app(args=arguments, prog_name="python -m splinefm.distribute")
    except SystemExit as stop:
        sys.stdout.flush()
        sys.stderr.flush()
        if stop.code and "RANK" in os.environ:
            os._exit(stop.code if isinstance(stop.code, int) else 1)
        raise
