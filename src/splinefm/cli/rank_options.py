"""Options for several processes."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from splinefm.cli.options import amount_option, count_option

_PANEL = r"Several processes and machines (splinefm\[distributed])"  # or Rich takes it for a style


class FusedName(StrEnum):
    """The optimizers of large tables."""

    ADAGRAD = "adagrad"
    ROWWISE_ADAGRAD = "rowwise-adagrad"
    ADAM = "adam"


Ranks = Annotated[
    int | None, count_option("Train on so many processes, which share the tables. Parquet files only.", _PANEL)
]
MaxRestarts = Annotated[
    int,
    count_option("With --ranks: how often to start again from the last checkpoint if a process dies.", _PANEL, least=0),
]
Checkpoints = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="With --ranks: where to write checkpoints, on a disk that all machines share. It is kept. By default, OUT "
        "with .checkpoints, removed at the end.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
Minutes = Annotated[
    float, amount_option("With --ranks: minutes between two checkpoints.", _PANEL, "--checkpoint-minutes")
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="With --ranks: continue from the last checkpoint, if there is one, with any number of ranks.",
        rich_help_panel=_PANEL,
    ),
]
ShardedOut = Annotated[
    bool,
    typer.Option(
        "--sharded-out",
        help="With --ranks: write a folder of parts, for tables that no machine holds as a whole.",
        rich_help_panel=_PANEL,
    ),
]
Fused = Annotated[
    FusedName,
    typer.Option(
        "--table-optimizer",
        help="With --ranks: optimizer of large tables. rowwise-adagrad takes half the memory; adam is for GPUs.",
        rich_help_panel=_PANEL,
    ),
]
Timeout = Annotated[float, amount_option("With --ranks: seconds to wait for another process before giving up.", _PANEL)]
OnRank = Annotated[bool, typer.Option("--on-rank", hidden=True)]
DEFAULT_MINUTES, DEFAULT_TIMEOUT = 10.0, 1800.0


_ONLY = ("max_restarts", "checkpoints", "checkpoint_minutes", "resume", "sharded_out", "table_optimizer", "timeout")


def refuse_without_ranks(ctx: typer.Context) -> None:
    """Raise if an option for several processes is given for one."""
    for name in _ONLY:
        source: Any = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            option = next(item.opts[0] for item in ctx.command.params if item.name == name)
            raise typer.BadParameter("is for several processes; add --ranks", param_hint=option)


def given_arguments(ctx: typer.Context, without: tuple[str, ...]) -> list[str]:
    """The command and the arguments that the user typed, without some options."""
    words: list[str] = []
    for parameter in ctx.command.params:
        name, value = parameter.name or "", ctx.params.get(parameter.name or "")
        source: Any = ctx.get_parameter_source(name)
        if name in without or source is None or source.name != "COMMANDLINE":
            continue
        values = list(value) if isinstance(value, list | tuple) else [value]
        for item in values:
            words += _words(parameter, item)
    return [ctx.command.name or "", *words]


def _words(parameter: Any, value: Any) -> list[str]:
    text = str(getattr(value, "value", value))
    if parameter.param_type_name == "argument":
        return [text]
    if isinstance(value, bool):
        return [parameter.opts[0] if value else parameter.secondary_opts[0]]
    return [f"{parameter.opts[0]}={text}"]
