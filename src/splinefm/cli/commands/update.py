"""`splinefm update`: train a model on new rows and replace its file."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from splinefm.cli import options as opt
from splinefm.cli import rank_options as rank_opt
from splinefm.cli.failures import REFUSED
from splinefm.cli.fit_options import share_or_file
from splinefm.cli.output import print_facts, print_json, say

if TYPE_CHECKING:
    from splinefm.update.files import UpdateReport
    from splinefm.update.guard import UpdateRefused

_GUARD = "Guard"

Model = Annotated[
    Path,
    typer.Argument(
        metavar="MODEL",
        help="A model file written by 'splinefm fit'; with --ranks, also the folder of a sharded model.",
        show_default=False,
    ),
]
NewRows = Annotated[
    list[str], typer.Argument(metavar="DATA...", help=f"The new rows. Each a {opt.FILES}.", show_default=False)
]
Target = Annotated[
    str | None,
    opt.column_option("Column with the true values. Optional if all other columns are fields of the model."),
]
Out = Annotated[Path | None, typer.Option(metavar="FILE", help="Model file to write. By default, MODEL is replaced.")]
Validation = Annotated[
    str,
    typer.Option(
        metavar="SHARE|FILE",
        help="Rows that judge the update: a share of the new rows, which are learned last (0: all of them, after they "
        "were learned), or a file, such as the rows of earlier hours.",
        rich_help_panel=_GUARD,
    ),
]
MaxLossIncrease = Annotated[
    float,
    opt.amount_option("Refuse an update that raises the loss of those rows by more than this share.", _GUARD),
]
MaxCalibrationError = Annotated[
    float,
    opt.amount_option(
        "Refuse an update if predicted / measured of the new rows before it, or of those rows after it, is beyond 1 + "
        "this, or below 1 / (1 + this).",
        _GUARD,
    ),
]
NoGuard = Annotated[bool, typer.Option("--no-guard", help="Accept every update.", rich_help_panel=_GUARD)]


def update(
    ctx: typer.Context,
    model: Model,
    data: NewRows,
    target: Target = None,
    out: Out = None,
    weight: opt.Weight = None,
    validation: Validation = "0.1",
    max_loss_increase: MaxLossIncrease = 0.02,
    max_calibration_error: MaxCalibrationError = 0.5,
    no_guard: NoGuard = False,
    sep: opt.Sep = None,
    threads: opt.Threads = None,
    ranks: rank_opt.Ranks = None,
    max_restarts: rank_opt.MaxRestarts = 0,
    checkpoints: rank_opt.Checkpoints = None,
    checkpoint_minutes: rank_opt.Minutes = rank_opt.DEFAULT_MINUTES,
    resume: rank_opt.Resume = False,
    sharded_out: rank_opt.ShardedOut = False,
    table_optimizer: rank_opt.Fused = rank_opt.FusedName.ADAGRAD,
    timeout: rank_opt.Timeout = rank_opt.DEFAULT_TIMEOUT,
    on_rank: rank_opt.OnRank = False,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Train a model for one pass over new rows, such as those of the last hour, and replace its file.

    New categories get features. The state of the optimizer is kept beside the model (MODEL.state), so that a series of
    updates equals one long run. An update that makes the model worse, or whose rows are far from what the model
    predicts, is refused with exit code 4: the model stays, and the refused one is kept as MODEL.rejected.sfm.

    Example: splinefm update model.sfm new/*.parquet --target click
    """
    from splinefm.cli.actions.ranks import make_settings, start_ranks, update_on_rank
    from splinefm.cli.actions.update import UpdateRequest, update_file
    from splinefm.store.sharded import is_sharded
    from splinefm.update.guard import Guard, UpdateRefused

    if "-" in data:
        raise typer.BadParameter(
            "an update reads its rows several times; write standard input to a file first", param_hint="DATA"
        )
    judges = share_or_file(validation)
    guard = None if no_guard else Guard(judges, max_loss_increase, max_calibration_error)

    def tell_refusal(refused: UpdateRefused) -> None:
        if as_json:
            print_json({"accepted": False, "rejected": str(refused.kept), "verdict": refused.verdict.to_dict()})
        say(f"splinefm: {refused}")

    request = UpdateRequest(model, data, target, out, weight, guard, sep, threads)
    if ranks is not None and not on_rank:
        return start_ranks(rank_opt.given_arguments(ctx, ("ranks", "max_restarts")), ranks, max_restarts)
    if on_rank:
        sharded = sharded_out or (out is None and is_sharded(model))
        optimizer = table_optimizer.value
        settings = make_settings(out or model, sharded, optimizer, checkpoints, checkpoint_minutes, resume)
        found = update_on_rank(request, settings, timeout, quiet, tell_refusal)
        return None if found is None else _print(found, as_json)
    rank_opt.refuse_without_ranks(ctx)
    try:
        report = update_file(request, opt.remarks(quiet))
    except UpdateRefused as refused:
        tell_refusal(refused)
        raise typer.Exit(REFUSED) from refused
    return _print(report, as_json)


def _print(report: UpdateReport, as_json: bool) -> None:
    about = report.to_dict()
    return print_json({"accepted": True, **about}) if as_json else print_update(about)


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
    state = "continued" if about["continued"] else "begun"
    facts.append(("optimizer", f"{state}, {about['steps']:,} steps so far"))
    facts.append(("time", f"{about['seconds']:.1f} seconds"))
    facts.append(("file", about["file"]))
    print_facts(facts)


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
