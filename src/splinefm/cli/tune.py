"""`splinefm tune`: search for the best settings and write the best model to a file."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from splinefm._wording import in_bytes
from splinefm.cli import options as opt
from splinefm.cli.failures import save_model
from splinefm.cli.fit import TrainingOptions, check_output, find_schema, make_model, summarize
from splinefm.cli.output import loss_text, print_facts, print_json, study_line

if TYPE_CHECKING:
    from splinefm.encode.schema import Schema
    from splinefm.encode.tables.table import Table
    from splinefm.model.family import AnyModel
    from splinefm.train.losses import Loss

_search = partial(opt.option, panel="Search")
_SEARCHED = ("k", "third", "batch_size", "learning_rate", "l2", "smoothness")

MetricName = Literal["loss", "auc", "logloss", "normalized_entropy", "accuracy", "rmse", "mae", "r2"]


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """The options of the search of `tune`."""

    trials: int = _search(
        "Total number of trials, including those in the storage and of other processes.", default=50, **opt.COUNT
    )
    timeout: float | None = _search(
        "Seconds for the search of a fit and the trials. The final fit comes on top.", **opt.AMOUNT
    )
    storage: str | None = _search(
        "Keep the trials, to resume later or to share them between processes: a SQLite file (.db, .sqlite), a journal "
        "(.journal, .log), or a database URL.",
        metavar="FILE|URL",
    )
    study_name: str | None = _search("Name of the study in the storage. Default: target and model.", metavar="NAME")
    metric: MetricName = _search(
        "Metric to optimize. normalized_entropy is for two classes, accuracy for more, auc and logloss for both; rmse, "
        "mae and r2 for numbers.",
        default="loss",
    )
    prune: bool = _search("Stop trials that are worse than the median.", "--prune/--no-prune", default=True)
    plot: Path | None = _search("Plot the trials and the settings to a .png, .svg or .pdf file.", metavar="FILE")


@opt.with_option_groups
def tune(
    search: SearchOptions,
    options: TrainingOptions,
    quiet: opt.Quiet = False,
    as_json: opt.Json = False,
) -> None:
    """Search for the settings that do best on validation rows, and write a model fitted with them.

    Starts from what fit finds, crosses included, and searches k, learning rate, batch size, penalties, segments, degree
    and transform around it; settings that you give are fixed. Press Ctrl-C to stop and keep the best so far; with
    --storage, the same command resumes the search.
    """
    from splinefm.cli.targets import choose_loss
    from splinefm.encode.tables.table import Table
    from splinefm.plots.files import import_plots, write_plot
    from splinefm.store.description import describe_study
    from splinefm.tuning.tune import tune as run_search

    options.check("tune")
    begin, say, given_loss = time.perf_counter(), opt.remarks(quiet), options.given_loss()
    settings = {**options.model_settings(), **options.training_settings()}
    check_output(options, options.data, *([] if search.storage is None else [search.storage]))
    _check_plot(search.plot)
    table, validation = options.open_table(), options.open_validation()
    choice = choose_loss(table, options.target, given_loss, say)
    schema = find_schema(options, table, say, not quiet)
    is_given = options.model is not None or bool(options.model_settings())
    model = make_model(options, schema, say) if is_given else None
    tuned = run_search(
        _estimator(options, model, schema, validation, choice.loss),
        table,
        options.target,
        sample_weight=options.weight,
        offset=options.offset,
        exposure=options.exposure,
        eval_set=validation if isinstance(validation, Table) else None,
        trials=search.trials,
        timeout=search.timeout,
        storage=search.storage,
        study_name=search.study_name,
        space={name: None for name in _SEARCHED if name in settings},
        metric=search.metric,
        prune=search.prune,
        verbose=not quiet,
    )
    fitted = tuned.estimator.fitted_
    save_model(fitted, options.out)
    if search.plot is not None:
        write_plot(import_plots().study(tuned.summary)[0], search.plot)
    summary = {
        **summarize(fitted, options, choice, time.perf_counter() - begin),
        "study": describe_study(tuned.summary),
        "plot": None if search.plot is None else str(search.plot),
    }
    return print_json(summary) if as_json else print_tuning(summary)


def _check_plot(path: Path | None) -> None:
    """Raise if the plot cannot be written: before an hour of training, not after it."""
    from splinefm._files import check_writable
    from splinefm.plots.files import FORMATS, import_plots

    if path is not None:
        if path.suffix.lower() not in FORMATS:
            raise ValueError(f"--plot {str(path)!r} must end in {', '.join(FORMATS)}")
        check_writable(path)
        import_plots()


def _estimator(
    options: TrainingOptions, model: AnyModel | None, schema: Schema, validation: float | Table | None, loss: Loss
) -> Any:
    from splinefm.fit.estimators import SplineFMClassifier, SplineFMRegressor

    renamed = {"seed": "random_state", "threads": "n_jobs"}
    settings = {renamed.get(name, name): value for name, value in options.training_settings().items()}
    if isinstance(validation, float):
        settings["validation"] = validation
    if loss.max_classes:
        return SplineFMClassifier(model, schema=schema, **settings)
    return SplineFMRegressor(model, loss=loss, schema=schema, **settings)


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
