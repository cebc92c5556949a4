"""Several processes for `fit` and `update`: their options, how they are started, and how each runs its part."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from splinefm.cli.failures import USER_ERROR, user_message
from splinefm.cli.options import AMOUNT, COUNT, option
from splinefm.cli.output import say

if TYPE_CHECKING:
    from splinefm.distribute.fit import JobSettings
    from splinefm.distribute.processes import Processes

_PANEL = r"Several processes and machines (splinefm\[distributed])"  # or Rich takes it for a style
_PACKAGES = ("torch", "torchrec", "fbgemm_gpu", "tensordict")


_option = partial(option, panel=_PANEL)


@dataclass(frozen=True, kw_only=True)
class ProcessOptions:
    """Options for several processes."""

    processes: int | None = _option(
        "Number of processes to train on, which share the tables. Parquet files only.", **COUNT
    )
    max_restarts: int = _option(
        "With --processes: how often to start again from the last checkpoint if a process dies.",
        default=0,
        metavar="N",
        min=0,
    )
    checkpoints: Path | None = _option(
        "With --processes: where to write checkpoints, on a disk that all machines share. It is kept. By default, OUT "
        "with .checkpoints, removed at the end.",
        metavar="FOLDER",
    )
    checkpoint_minutes: float = _option("With --processes: minutes between two checkpoints.", default=10.0, **AMOUNT)
    resume: bool = _option(
        "With --processes: continue from the last checkpoint, if there is one, with any number of processes.",
        "--resume",
        default=False,
    )
    sharded_out: bool = _option(
        "With --processes: write a folder of parts, for tables that no machine holds as a whole.",
        "--sharded-out",
        default=False,
    )
    table_optimizer: Literal["adagrad", "rowwise-adagrad", "adam"] = _option(
        "With --processes: optimizer of large tables. rowwise-adagrad takes half the memory; adam is for GPUs.",
        default="adagrad",
    )
    timeout: float = _option(
        "With --processes: seconds to wait for another process before giving up.", default=1800.0, **AMOUNT
    )
    as_process: bool = _option("", "--as-process", default=False, hidden=True)

    def settings(self, out: Path, sharded: bool | None = None) -> JobSettings:
        """The settings of this process; one that is started again continues by itself."""
        require_torchrec()
        from splinefm.distribute.fit import JobSettings

        is_restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
        return JobSettings(
            out,
            self.sharded_out if sharded is None else sharded,
            self.table_optimizer,
            self.checkpoints,
            self.checkpoint_minutes,
            self.resume or is_restart,
        )


def refuse_process_options(ctx: typer.Context) -> None:
    """Raise if an option for several processes is given for one."""
    names = {field.name for field in fields(ProcessOptions)}
    for parameter in ctx.command.params:
        if parameter.name in names and _is_given(ctx, parameter.name):
            raise typer.BadParameter("is for several processes; add --processes", param_hint=parameter.opts[0])


def start_processes(ctx: typer.Context, options: ProcessOptions) -> None:
    """Start the processes with what the user typed, and exit with their code if they fail."""
    require_torchrec()
    from splinefm.distribute.processes import launch

    assert options.processes is not None
    code = launch(given_arguments(ctx), options.processes, options.max_restarts)
    if code:
        raise typer.Exit(code if code > 0 else 1)


def require_torchrec() -> None:
    """Raise if the packages for several processes are missing."""
    for name in _PACKAGES:
        if find_spec(name) is None:
            raise ModuleNotFoundError(
                f"training on several processes needs {name}, which is not installed: pip install "
                "'splinefm[distributed]', then pip install --no-deps torchrec==1.8.0 fbgemm-gpu-cpu==1.8.0",
                name=name,
            )


def given_arguments(ctx: typer.Context) -> list[str]:
    """The command and the arguments that the user typed, without the options of the process that starts the others."""
    words = [ctx.command.name or ""]
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name not in ("processes", "max_restarts") and _is_given(ctx, name):
            value = ctx.params.get(name)
            for item in value if isinstance(value, list | tuple) else [value]:
                words.append(_as_typed(parameter, item))
    return words


def _is_given(ctx: typer.Context, name: str) -> bool:
    source: Any = ctx.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def _as_typed(parameter: Any, value: Any) -> str:
    if parameter.param_type_name == "argument":
        return str(value)
    if isinstance(value, bool):
        return str(parameter.opts[0] if value else parameter.secondary_opts[0])
    return f"{parameter.opts[0]}={value}"


def run_job(job: Callable[[Processes], None], settings: JobSettings, timeout: float, device: str | None = None) -> None:
    """Run a job; a process whose peers say what is wrong is silent."""
    from splinefm.distribute import processes as distributed

    rank = os.environ.get("RANK", "0")
    try:
        with settings.termination.handled():
            distributed.run_together(job, timeout, device)
    except distributed.PeerFailed:
        distributed.wait_until_reported()
        raise typer.Exit(USER_ERROR) from None
    except distributed.Terminated as error:
        if rank == "0":
            say(f"splinefm: {error}")
        raise typer.Exit(distributed.EXIT_CODE) from None
    except Exception as error:
        message = str(error) if isinstance(error, distributed.PeerLost) else user_message(error)
        if message is None:
            raise
        say(f"splinefm: process {rank}: {message}")
        distributed.announce_reported()
        raise typer.Exit(USER_ERROR) from error
