"""`splinefm tune`: search for the best settings and write the best model to a file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from splinefm._wording import in_bytes
from splinefm.cli import fit_options as fit_opt
from splinefm.cli import options as opt
from splinefm.cli.output import loss_text, print_facts, print_json, study_line


class MetricName(StrEnum):
    """Metrics that compare trials."""

    LOSS = "loss"
    AUC = "auc"
    LOGLOSS = "logloss"
    NORMALIZED_ENTROPY = "normalized_entropy"
    ACCURACY = "accuracy"
    RMSE = "rmse"
    MAE = "mae"
    R2 = "r2"


_SEARCH = "Search"

Trials = Annotated[
    int, opt.count_option("Total number of trials, including those in the storage and of other processes.", _SEARCH)
]
Timeout = Annotated[
    float | None,
    opt.amount_option("Seconds for the search of a fit and the trials. The final fit comes on top.", _SEARCH),
]
Storage = Annotated[
    str | None,
    typer.Option(
        metavar="FILE|URL",
        help="Keep the trials, to resume later or to share them between processes: a SQLite file (.db, .sqlite), a "
        "journal (.journal, .log), or a database URL.",
        rich_help_panel=_SEARCH,
    ),
]
StudyName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Name of the study in the storage. Default: target and model.", rich_help_panel=_SEARCH
    ),
]
Metric = Annotated[
    MetricName,
    typer.Option(
        help="Metric to optimize. normalized_entropy is for two classes, accuracy for more, auc and logloss for both; "
        "rmse, mae and r2 for numbers.",
        rich_help_panel=_SEARCH,
    ),
]
Prune = Annotated[
    bool,
    typer.Option("--prune/--no-prune", help="Stop trials that are worse than the median.", rich_help_panel=_SEARCH),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Plot the trials and the settings to a .png, .svg or .pdf file.", rich_help_panel=_SEARCH
    ),
]


def tune(
    data: opt.Data,
    target: fit_opt.Target,
    out: fit_opt.Out,
    trials: Trials = 50,
    timeout: Timeout = None,
    storage: Storage = None,
    study_name: StudyName = None,
    metric: Metric = MetricName.LOSS,
    prune: Prune = True,
    plot: Plot = None,
    schema: fit_opt.SchemaFile = None,
    ignore: opt.Ignore = None,
    weight: opt.Weight = None,
    validation: fit_opt.Validation = None,
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
    members: fit_opt.Members = None,
    seed: fit_opt.Seed = None,
    threads: opt.Threads = None,
    engine: fit_opt.Engine = None,
    device: fit_opt.Device = None,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Search for the settings that do best on validation rows, and write a model fitted with them.

    Starts from what fit finds, crosses included, and searches k, learning rate, batch size, penalties, segments, degree
    and transform around it; settings that you give are fixed. Press Ctrl-C to stop and keep the best so far; with
    --storage, the same command resumes the search.
    """
    from splinefm.cli.actions.tune import TuneRequest, tune_file

    fit_opt.check_fit_options("tune", data, model, rank, order, third)
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
        members=members,
        seed=seed,
        threads=threads,
        engine=None if engine is None else engine.value,
        device=device,
    ) | fit_opt.parse_crosses(crosses)
    sizes = fit_opt.given(k=k, rank=rank, order=order, third=third)
    chosen = fit_opt.given_loss(loss, quantile=quantile, power=power, delta=delta)
    fit_request = fit_opt.make_fit_request(
        data, target, out, schema, ignore, weight, validation, model, sizes, chosen, training, sep
    )
    request = TuneRequest(fit_request, trials, timeout, storage, study_name, metric.value, prune, plot)
    summary = tune_file(request, opt.remarks(quiet), not quiet)
    return print_json(summary) if as_json else print_tuning(summary)


def print_tuning(summary: dict[str, Any]) -> None:
    """Print the result of a search."""
    study = summary["study"]
    states = ", ".join(f"{count} {state}" for state, count in study["states"].items())
    facts = [
        ("best", study_line(study)),
        ("trials", states),
        ("model", f"{summary['model']}, {loss_text(summary)}"),
        ("data", f"{summary['rows']:,} rows, {summary['fields']} fields"),
        ("time", f"{summary['seconds']:.1f} seconds"),
        ("file", f"{summary['file']}, {in_bytes(summary['bytes'])}"),
    ]
    print_facts([*facts, *([("plot", summary["plot"])] if summary["plot"] else [])])
