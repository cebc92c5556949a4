"""Fit and update on several processes: start them, or be one of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from splinefm._files import check_writable
from splinefm.cli.actions.fit import FitRequest, choose_loss, find_schema, make_model, say_loss, summarize
from splinefm.cli.actions.update import UpdateRequest
from splinefm.cli.failures import REFUSED, USER_ERROR, user_message
from splinefm.cli.output import say
from splinefm.encode.tables.open import refuse_overwriting
from splinefm.fit.evaluation import find_target
from splinefm.store.sharded_model import open_model
from splinefm.train.progress import make_progress
from splinefm.train.settings import Training
from splinefm.update.files import UpdateReport
from splinefm.update.guard import UpdateRefused

if TYPE_CHECKING:
    from splinefm.distribute.fit import RankSettings
    from splinefm.distribute.processes import Ranks
    from splinefm.distribute.update import RankUpdate

_PACKAGES = ("torch", "torchrec", "fbgemm_gpu", "tensordict")


def require_torchrec() -> None:
    """Raise if the packages for several processes are missing."""
    for name in _PACKAGES:
        if find_spec(name) is None:
            raise ModuleNotFoundError(
                f"training on several processes needs {name}, which is not installed: pip install "
                "'splinefm[distributed]', then pip install --no-deps torchrec==1.8.0 fbgemm-gpu-cpu==1.8.0",
                name=name,
            )


def start_ranks(arguments: list[str], ranks: int, max_restarts: int) -> None:
    """Start the processes, and exit with their code if they fail."""
    require_torchrec()
    from splinefm.distribute.processes import launch

    code = launch(arguments, ranks, max_restarts)
    if code:
        raise typer.Exit(code if code > 0 else 1)


def make_settings(
    out: Path, sharded: bool, optimizer: str, checkpoints: Path | None, minutes: float, resume: bool
) -> RankSettings:
    """The settings of a rank; one that is started again continues by itself."""
    require_torchrec()
    from splinefm.distribute.fit import RankSettings

    again = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0
    return RankSettings(out, sharded, optimizer, checkpoints, minutes, resume or again)


def fit_on_rank(request: FitRequest, settings: RankSettings, timeout: float, quiet: bool) -> dict[str, Any] | None:
    """Fit on this rank together with the others; rank 0 returns a summary."""
    from splinefm.distribute.fit import RankFit, fit_on_ranks

    begin, options = time.perf_counter(), dict(request.training)
    result: list[dict[str, Any]] = []
    device, engine = options.pop("device", None), options.pop("engine", "torch")
    if engine != "torch":
        raise ValueError(f"several processes train on torch; leave out --engine {engine}")

    def job(ranks: Ranks) -> None:
        with ranks.together():
            told = _remarks(ranks, quiet)
            if ranks.first and not settings.sharded:
                check_writable(request.out)
            refuse_overwriting(request.out, request.data, *(path for path in (request.schema,) if path is not None))
            if options.get("effort") == "best" or options.get("time_limit") is not None:
                raise ValueError("--effort and --time-limit are for one machine; several processes search nothing")
            table = request.open()
            choice = choose_loss(table, request.target, request.loss)
            suggestion = say_loss(choice, table, request.target, told)
            schema = find_schema(request, table, told, ranks.first and not quiet)
            model = make_model(request, schema, told)
        rows = 0.1 if request.validation is None else request.validation
        training, columns = replace(Training(), **options), (request.target, schema, model, choice.loss, request.weight)
        fit = RankFit(request.data, *columns, rows, training, request.class_weight)
        with make_progress(ranks.first and not quiet) as progress:
            fitted = fit_on_ranks(fit, settings, ranks, progress)
        if ranks.first:
            seconds = time.perf_counter() - begin
            result.append({**summarize(fitted, request, choice, seconds), "loss_suggestion": suggestion})

    _run(job, settings, timeout, device)
    return result[0] if result else None


def update_on_rank(
    request: UpdateRequest,
    settings: RankSettings,
    timeout: float,
    quiet: bool,
    tell_refusal: Callable[[UpdateRefused], None],
) -> UpdateReport | None:
    """Update on this rank together with the others; rank 0 returns a report.

    If the guard refuses the update, rank 0 calls `tell_refusal`, and all ranks end with the exit code for that.
    """
    from splinefm.distribute.update import update_on_ranks

    reports: list[UpdateReport] = []
    refused: list[UpdateRefused] = []

    def job(ranks: Ranks) -> None:
        with ranks.together():
            update = _rank_update(request, settings, _remarks(ranks, quiet), ranks.first)
        with make_progress(ranks.first and not quiet) as progress:
            try:
                reports.append(update_on_ranks(update, settings, ranks, progress))
            except UpdateRefused as error:
                refused.append(error)
        if refused and ranks.first:
            tell_refusal(refused[0])
        ranks.barrier()  # torchrun ends all ranks as soon as one of them has ended with a code
        if not ranks.first:
            reports.clear()

    _run(job, settings, timeout)
    if refused:
        raise typer.Exit(REFUSED)
    return reports[0] if reports else None


def _rank_update(
    request: UpdateRequest, settings: RankSettings, told: Callable[[str], None], first: bool
) -> RankUpdate:
    """What all ranks update; raise for what one of them can find out alone."""
    from splinefm.distribute.update import RankUpdate

    if request.sep is not None:
        raise ValueError("--sep is for CSV files, and several processes read Parquet files only; leave it out")
    if first and not settings.sharded:
        check_writable(settings.out)
    refuse_overwriting(settings.out, *request.data)
    head, target = open_model(request.model)[0], request.target
    if target is None:
        target = find_target(request.data[0], request.open(), head, {request.weight})
        told(f"target: {target!r}, the only column that is not a field of the model")
    training = head.training if request.threads is None else replace(head.training, threads=request.threads)
    return RankUpdate(request.model, request.data, target, request.weight, request.guard, training)


def _remarks(ranks: Ranks, quiet: bool) -> Callable[[str], None]:
    return say if ranks.first and not quiet else lambda text: None


def _run(job: Callable[[Ranks], None], settings: RankSettings, timeout: float, device: str | None = None) -> None:
    """Run a job; a rank whose peers say what is wrong is silent."""
    from splinefm.distribute.processes import (
        EXIT_CODE,
        PeerFailed,
        PeerLost,
        Terminated,
        run_together,
        say_told,
        wait_until_told,
    )

    rank = os.environ.get("RANK", "0")
    try:
        with settings.termination.handled():
            run_together(job, timeout, device)
    except PeerFailed:
        wait_until_told()
        raise typer.Exit(USER_ERROR) from None
    except Terminated as error:
        if rank == "0":
            say(f"splinefm: {error}")
        raise typer.Exit(EXIT_CODE) from None
    except Exception as error:
        message = str(error) if isinstance(error, PeerLost) else user_message(error)
        if message is None:
            raise
        say(f"splinefm: rank {rank}: {message}")
        say_told()
        raise typer.Exit(USER_ERROR) from error
