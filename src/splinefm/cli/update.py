"""`splinefm update`: train a model on new rows and replace its file."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splinefm.cli import options as opt
from splinefm.cli.failures import REFUSED
from splinefm.cli.output import print_facts, print_json, say
from splinefm.cli.processes import ProcessOptions, refuse_process_options, run_job, start_processes

if TYPE_CHECKING:
    from splinefm.distribute.processes import Processes
    from splinefm.encode.tables.table import Table
    from splinefm.train.fitted import Fitted
    from splinefm.update.files import UpdateReport
    from splinefm.update.guard import Guard, UpdateRefused

_guard = partial(opt.option, panel="Guard")


@dataclass(frozen=True, kw_only=True)
class UpdateOptions:
    """The options of `update`."""

    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL",
            help="A model file written by 'splinefm fit'; with --processes, also the folder of a sharded model.",
            show_default=False,
        ),
    ]
    data: Annotated[
        list[str], typer.Argument(metavar="DATA...", help=f"The new rows. Each a {opt.FILES}.", show_default=False)
    ]
    target: Annotated[
        str | None,
        opt.column_option("Column with the true values. Optional if all other columns are fields of the model."),
    ] = None
    out: Path | None = opt.option("Model file to write. By default, MODEL is replaced.", metavar="FILE")
    weight: opt.Weight = None
    validation: str = _guard(
        "Rows that judge the update: a share of the new rows, which are learned last (0: all of them, after they were "
        "learned), or a file, such as the rows of earlier hours.",
        default="0.1",
        metavar="SHARE|FILE",
    )
    max_loss_increase: float = _guard(
        "Refuse an update that raises the loss of those rows by more than this share.", default=0.02, **opt.AMOUNT
    )
    max_calibration_error: float = _guard(
        "Refuse an update if predicted / measured of the new rows before it, or of those rows after it, is beyond 1 + "
        "this, or below 1 / (1 + this).",
        default=0.5,
        **opt.AMOUNT,
    )
    max_change: float | None = _guard(
        "Refuse an update that may move the score of any segment by more than this, also of ones that no row has. "
        "Default: no bound.",
        **opt.AMOUNT,
    )
    no_guard: bool = _guard("Accept every update.", "--no-guard", default=False)
    sep: opt.Sep = None
    threads: opt.Threads = None

    def guard(self) -> Guard | None:
        """The bounds on the update."""
        from splinefm.update.guard import Guard

        judging_rows = opt.share_or_file(self.validation)
        if self.no_guard:
            return None
        return Guard(judging_rows, self.max_loss_increase, self.max_calibration_error, self.max_change)


@opt.with_option_groups
def update(
    ctx: typer.Context,
    options: UpdateOptions,
    job_options: ProcessOptions,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Train a model for one pass over new rows, such as the rows of the last hour, and replace its file.

    New categories get features. The state of the optimizer is kept beside the model (MODEL.state), so that a series of
    updates equals one long run. An update that makes the model worse, or whose rows are far from what the model
    predicts, is refused with exit code 4: the model stays, and the refused one is kept as MODEL.rejected.sfm.

    Example: splinefm update model.sfm new/*.parquet --target click
    """
    from splinefm.update.guard import UpdateRefused

    if "-" in options.data:
        raise typer.BadParameter(
            "an update reads its rows several times; write standard input to a file first", param_hint="DATA"
        )
    guard = options.guard()
    if job_options.processes is not None and not job_options.as_process:
        return start_processes(ctx, job_options)
    if job_options.as_process:
        report = update_in_process(options, guard, job_options, quiet, as_json)
    else:
        refuse_process_options(ctx)
        try:
            report = update_file(options, guard, quiet)
        except UpdateRefused as refused:
            _print_refusal(refused, as_json)
            raise typer.Exit(REFUSED) from refused
    if report is not None:
        about = report.to_dict()
        print_json({"accepted": True, **about}) if as_json else print_update(about)
    return None


def update_file(options: UpdateOptions, guard: Guard | None, quiet: bool) -> UpdateReport:
    """Update a model file; say which column is the target if it was found."""
    from splinefm.encode.tables.open import open_table, refuse_overwriting
    from splinefm.store.model_file import load
    from splinefm.update.files import refuse_sharded, update_model

    refuse_sharded(options.model)
    if options.out is not None:
        refuse_overwriting(options.out, *options.data)
    if guard is not None and isinstance(guard.validation, str):
        guard = replace(guard, validation=open_table(guard.validation, sep=options.sep))
    table = open_table(options.data, sep=options.sep)
    target = options.target or _find_target(options, table, load(options.model, mmap=True), quiet)
    if table.n_rows is not None:  # known before they are read, as in Parquet files
        opt.remarks(quiet)(f"learning from {table.n_rows:,} rows")
    return update_model(
        options.model,
        table,
        target,
        out=options.out,
        sample_weight=options.weight,
        guard=guard,
        threads=options.threads,
    )


def update_in_process(
    options: UpdateOptions, guard: Guard | None, job_options: ProcessOptions, quiet: bool, as_json: bool
) -> UpdateReport | None:
    """Update on this process together with the others; process 0 returns a report.

    If the guard refuses the update, process 0 says so, and all processes end with the exit code for that.
    """
    from splinefm._files import check_writable
    from splinefm.distribute.update import DistributedUpdate, update_on_processes
    from splinefm.encode.tables.open import open_table, refuse_overwriting
    from splinefm.store.sharded import is_sharded
    from splinefm.store.sharded_model import open_model
    from splinefm.train.progress import make_progress
    from splinefm.update.guard import UpdateRefused

    sharded = job_options.sharded_out or (options.out is None and is_sharded(options.model))
    settings = job_options.settings(options.out or options.model, sharded)
    reports: list[UpdateReport] = []
    refusals: list[UpdateRefused] = []

    def job(processes: Processes) -> None:
        is_silent = quiet or not processes.first
        with processes.fail_together():
            if options.sep is not None:
                raise ValueError("--sep is for CSV files, and several processes read Parquet files only; leave it out")
            if processes.first and not sharded:
                check_writable(settings.out)
            refuse_overwriting(settings.out, *options.data)
            head = open_model(options.model)[0]
            target = options.target or _find_target(options, open_table(options.data), head, is_silent)
            threads = head.training.threads if options.threads is None else options.threads
            training = replace(head.training, threads=threads)
            update = DistributedUpdate(options.model, options.data, target, options.weight, guard, training)
        with make_progress(not is_silent) as progress:
            try:
                reports.append(update_on_processes(update, settings, processes, progress))
            except UpdateRefused as error:
                refusals.append(error)
        if refusals and processes.first:
            _print_refusal(refusals[0], as_json)
        processes.barrier()  # torchrun ends all processes as soon as one of them has ended with a code
        if not processes.first:
            reports.clear()

    run_job(job, settings, job_options.timeout)
    if refusals:
        raise typer.Exit(REFUSED)
    return reports[0] if reports else None


def _find_target(options: UpdateOptions, table: Table, fitted: Fitted, quiet: bool) -> str:
    from splinefm.fit.evaluation import find_target

    target = find_target(options.data[0], table, fitted, {options.weight})
    opt.remarks(quiet)(f"target: {target!r}, the only column that is not a field of the model")
    return target


def _print_refusal(refused: UpdateRefused, as_json: bool) -> None:
    if as_json:
        print_json({"accepted": False, "rejected": str(refused.kept), "verdict": refused.verdict.to_dict()})
    say(f"splinefm: {refused}")


def print_update(about: dict[str, Any]) -> None:
    """Print what an update did."""
    if not about["rows"]:
        return print_facts([("data", "no rows: nothing was learned"), ("file", about["file"])])
    facts = [("data", f"{_rows(about['rows'])}, {about['new_features']:,} new features")]
    verdict = about["verdict"]
    if verdict is None:
        facts.append(("loss", f"{about['loss']:.5g} of the new rows, each before it was learned"))
    else:
        facts.append(("loss", f"{verdict['new']['loss']:.5g} of the new rows, before they were learned"))
        facts += _judged(verdict["before"], verdict["after"])
        if verdict["change"] is not None:
            facts.append(("change", f"{_moved(verdict['change'])}"))
    state = "continued" if about["continued"] else "begun"
    facts.append(("optimizer", f"{state}, {about['steps']:,} steps so far"))
    facts.append(("time", f"{about['seconds']:.1f} seconds"))
    facts.append(("file", about["file"]))
    print_facts(facts)


def _moved(change: dict[str, Any]) -> str:
    return f"at most {change['bound']:.4g} in any segment; found: {change['change']:+.4g}"


def _judged(before: dict[str, Any], after: dict[str, Any]) -> list[tuple[str, str]]:
    """How the rows that judge the update see it."""
    facts = [("judged by", f"{_rows(after['rows'])}: loss {before['loss']:.5g} -> {after['loss']:.5g}")]
    errors = before["error"], after["error"]
    if after["rows"] < 2 or math.inf in errors:
        facts.append(("calibration", "not known: these rows are too few, or the outcome occurs in none of them"))
    elif not math.isnan(errors[1]):
        facts.append(("calibration", f"error {errors[0]:+.4f} -> {errors[1]:+.4f}; 0 is perfect"))
    return facts


def _rows(n: int) -> str:
    return f"{n:,} row" if n == 1 else f"{n:,} rows"
