"""Search for the best settings of a model, and write the best model to a file."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from splinefm._files import check_destination, check_writable, replacing
from splinefm.cli.actions.fit import FitRequest, choose_loss, find_schema, make_model, say_loss
from splinefm.cli.destinations import save_model
from splinefm.encode.schema import Schema
from splinefm.encode.tables.open import refuse_overwriting
from splinefm.encode.tables.table import Table
from splinefm.model.family import AnyModel
from splinefm.plots.files import FORMATS, import_plots, plot_bytes
from splinefm.store.description import describe_study
from splinefm.train.losses import Loss
from splinefm.train.trials import StudySummary


@dataclass(frozen=True)
class TuneRequest:
    """What the user asked for.

    Parameters
    ----------
    fit : FitRequest
        The table, the target, the model file and settings; given settings are not searched.
    trials, timeout, storage, study_name, metric, prune
        As in `sf.tune`.
    plot : Path, optional
        File of the plot of the study.
    """

    fit: FitRequest
    trials: int
    timeout: float | None = None
    storage: str | None = None
    study_name: str | None = None
    metric: str = "loss"
    prune: bool = True
    plot: Path | None = None


def tune_file(request: TuneRequest, say: Callable[[str], None], verbose: bool) -> dict[str, Any]:
    """Search, fit and save a model, and summarize the search."""
    begin = time.perf_counter()
    _check_files(request)
    fit = request.fit
    table, validation = fit.open(), fit.open_validation()
    choice = choose_loss(table, fit.target, fit.loss)
    say_loss(choice, table, fit.target, say)
    schema = find_schema(fit, table, say, verbose)
    is_given = fit.model is not None or bool(fit.sizes)
    model = make_model(fit, schema, say) if is_given else None
    estimator = _estimator(fit, model, schema, validation, choice.loss)
    given = {**fit.sizes, **fit.training}
    searched = ("k", "third", "batch_size", "learning_rate", "l2", "smoothness")
    from splinefm.tuning.search import tune

    tuned = tune(
        estimator,
        table,
        fit.target,
        sample_weight=fit.weight,
        eval_set=validation if isinstance(validation, Table) else None,
        trials=request.trials,
        timeout=request.timeout,
        storage=request.storage,
        study_name=request.study_name,
        space={name: None for name in searched if name in given},
        metric=request.metric,
        prune=request.prune,
        verbose=verbose,
    )
    save_model(tuned.estimator.fitted_, fit.out)
    if request.plot is not None:
        _write_plot(tuned.summary, request.plot)
    return _summary(request, tuned.estimator.fitted_, time.perf_counter() - begin)


def _check_files(request: TuneRequest) -> None:
    """Raise if an output cannot be written: before an hour of training, not after it."""
    fit, plot = request.fit, request.plot
    inputs = [path for path in (fit.data, fit.schema, request.storage) if path is not None]
    check_writable(fit.out)
    refuse_overwriting(fit.out, *inputs)
    if plot is not None:
        if plot.suffix.lower() not in FORMATS:
            raise ValueError(f"--plot {str(plot)!r} must end in {', '.join(FORMATS)}")
        check_writable(plot)
        import_plots()


def _estimator(
    fit: FitRequest, model: AnyModel | None, schema: Schema, validation: float | Table | None, loss: Loss
) -> Any:
    from splinefm.fit.estimators import SplineFMClassifier, SplineFMRegressor

    renamed = {"seed": "random_state", "threads": "n_jobs"}
    settings = {renamed.get(name, name): value for name, value in fit.training.items()}
    if isinstance(validation, float):
        settings["validation"] = validation
    if loss.most_classes:
        return SplineFMClassifier(model, schema=schema, **settings)
    return SplineFMRegressor(model, loss=loss, schema=schema, **settings)


def _write_plot(study: StudySummary, path: Path) -> None:
    content = plot_bytes(import_plots().study(study)[0], path)
    with replacing(check_destination(path)) as file:
        file.write(content)


def _summary(request: TuneRequest, fitted: Any, seconds: float) -> dict[str, Any]:
    return {
        "file": str(request.fit.out),
        "bytes": request.fit.out.stat().st_size,
        "model": str(fitted.model),
        "target": request.fit.target,
        "loss": fitted.loss.name,
        "loss_parameters": fitted.loss.parameters,
        "rows": fitted.encoder.n_rows,
        "fields": len(fitted.encoder.fields),
        "study": describe_study(fitted.study),
        "plot": None if request.plot is None else str(request.plot),
        "seconds": round(seconds, 3),
    }
