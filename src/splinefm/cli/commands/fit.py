"""`splinefm fit`: fit a model to a table and write it to a file."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import typer

from splinefm._wording import in_bytes, number
from splinefm.cli import fit_options as fit_opt
from splinefm.cli import options as opt
from splinefm.cli import rank_options as rank_opt
from splinefm.cli.output import loss_text, print_facts, print_json, print_lines, print_remarks, print_search

SHOWN_SETTINGS = 5


def fit(
    ctx: typer.Context,
    data: opt.Data,
    target: fit_opt.Target,
    out: fit_opt.Out,
    schema: fit_opt.SchemaFile = None,
    ignore: opt.Ignore = None,
    weight: opt.Weight = None,
    balanced: fit_opt.Balanced = False,
    validation: fit_opt.Validation = None,
    cross: fit_opt.Cross = None,
    crosses: fit_opt.CrossesFound = None,
    sep: opt.Sep = None,
    model: fit_opt.Model = None,
    k: fit_opt.K = None,
    rank: fit_opt.Rank = None,
    order: fit_opt.Order = None,
    third: fit_opt.Third = None,
    loss: fit_opt.LossOption = fit_opt.LossName.AUTO,
    quantile: fit_opt.Quantile = None,
    power: fit_opt.Power = None,
    delta: fit_opt.Delta = None,
    epochs: fit_opt.Epochs = None,
    patience: fit_opt.Patience = None,
    batch_size: fit_opt.BatchSize = None,
    learning_rate: fit_opt.LearningRate = None,
    schedule: fit_opt.Schedule = None,
    l2: fit_opt.L2 = None,
    smoothness: fit_opt.Smoothness = None,
    effort: fit_opt.Effort = fit_opt.EffortName.DEFAULT,
    time_limit: fit_opt.TimeLimit = None,
    average: fit_opt.Average = None,
    members: fit_opt.Members = None,
    seed: fit_opt.Seed = None,
    threads: opt.Threads = None,
    engine: fit_opt.Engine = None,
    device: fit_opt.Device = None,
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
    """Fit a model to a table and write it to a file.

    The defaults suit most data. Press Ctrl-C to stop training and keep the best epoch so far.
    """
    from splinefm.cli.actions.fit import fit_file
    from splinefm.cli.actions.ranks import fit_on_rank, make_settings, start_ranks

    fit_opt.check_fit_options("fit", data, model, rank, order, third)
    training = fit_opt.given(
        epochs=epochs,
        patience=patience,
        batch_size=batch_size,
        learning_rate=learning_rate,
        schedule=None if schedule is None else schedule.value,
        l2=l2,
        smoothness=smoothness,
        effort=effort.value,
        time_limit=time_limit,
        average=average,
        members=members,
        seed=seed,
        threads=threads,
        engine=None if engine is None else engine.value,
        device=device,
    ) | fit_opt.parse_crosses(crosses)
    sizes = fit_opt.given(k=k, rank=rank, order=order, third=third)
    chosen = fit_opt.given_loss(loss, quantile=quantile, power=power, delta=delta)
    request = fit_opt.make_fit_request(
        data, target, out, schema, ignore, weight, validation, model, sizes, chosen, training, sep
    )
    request = replace(request, crosses=cross or [], class_weight="balanced" if balanced else None)
    if ranks is not None and not on_rank:
        return start_ranks(rank_opt.given_arguments(ctx, ("ranks", "max_restarts")), ranks, max_restarts)
    if on_rank:
        settings = make_settings(out, sharded_out, table_optimizer.value, checkpoints, checkpoint_minutes, resume)
        found = fit_on_rank(request, settings, timeout, quiet)
        if found is None:
            return None
        summary = found
    else:
        rank_opt.refuse_without_ranks(ctx)
        summary = fit_file(request, opt.remarks(quiet), not quiet)
    return print_json(summary) if as_json else print_fit(summary)


def print_fit(summary: dict[str, Any]) -> None:
    """Print the result of a fit, and what to type next."""
    best = f"best of {summary['epochs']} epochs: {summary['best_epoch']}"
    value = summary["validation_loss"]
    measured = (
        f"{summary['validation_metric']} {number(value)}; {best}"
        if value is not None
        else "none; the last epoch is kept"
    )
    print_facts(
        [
            ("validation", measured),
            ("model", f"{summary['model']}, {loss_text(summary)}"),
            ("data", f"{summary['rows']:,} rows, {summary['fields']} fields"),
            ("time", f"{summary['seconds']:.1f} seconds"),
            ("file", f"{summary['file']}, {in_bytes(summary['bytes'])}"),
        ]
    )
    print_search(summary["search"], SHOWN_SETTINGS)
    print_remarks(summary["remarks"])
    file, target = shlex.quote(summary["file"]), shlex.quote(summary["target"])
    print_lines("\nNext, with rows that the model has not seen:")
    print_lines(f"  splinefm evaluate {file} NEW.csv --target {target}")
    print_lines(f"  splinefm predict {file} NEW.csv --out predictions.csv")
