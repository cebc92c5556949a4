"""tune: searches for the settings of an estimator with Optuna."""

from __future__ import annotations

import inspect
import math
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from splinefm._checks import check_size
from splinefm.learn.arguments import explain_unknown
from splinefm.learn.estimators.classifier import SplineFMClassifier
from splinefm.learn.estimators.parameters import draw_seed
from splinefm.learn.estimators.regressor import SplineFMRegressor
from splinefm.learn.estimators.studies import fit_from_study, open_task
from splinefm.learn.fitting import Task
from splinefm.learn.progress import make_progress
from splinefm.learn.tuning.space import merge_spaces
from splinefm.learn.tuning.study import StudySummary, Value, show_storage
from splinefm.learn.tuning.trials import Experiment, changed_settings

if TYPE_CHECKING:
    from splinefm.learn.tuning.optuna import Study

Estimator = SplineFMClassifier | SplineFMRegressor
_SETTINGS = inspect.signature(SplineFMClassifier).parameters
_ELSEWHERE = {name: f"it into the estimator: sf.SplineFMClassifier({name}={{}})" for name in _SETTINGS}


@dataclass(frozen=True)
class Tuned:
    """The result of `tune`.

    Attributes
    ----------
    estimator : SplineFMClassifier or SplineFMRegressor
        Fitted with the best settings. `estimator.fitted_.study` has the summary, which a model file keeps.
    params : dict
        The best point in the search space.
    value : float
        The metric of the best trial on the validation rows.
    summary : StudySummary
        All trials, without Optuna.
    study : optuna.Study
        The study itself.
    """

    estimator: Estimator
    params: dict[str, Any]
    value: float
    summary: StudySummary = field(repr=False)
    study: Study = field(repr=False)

    @property
    def history(self) -> dict[str, list[Value]]:
        """The trials as columns, for `pandas.DataFrame` or `polars.DataFrame`."""
        return self.summary.table


@explain_unknown(_ELSEWHERE)
def tune(
    estimator: Estimator,
    table: object,
    target: object,
    *,
    sample_weight: object = None,
    trials: int = 50,
    timeout: float | None = None,
    storage: str | os.PathLike[str] | object | None = None,
    study_name: str | None = None,
    space: Mapping[str, Any] | None = None,
    validation: float | None = None,
    eval_set: object = None,
    metric: str = "loss",
    prune: object = True,
    seed: int | None = None,
    verbose: bool = False,
) -> Tuned:
    """Find the settings of an estimator that work best on validation rows, and fit it with them.

    The first trial has the settings of the estimator, so the result is no worse on the validation rows. All trials
    train on the same rows and are compared on the same validation rows; trials that lag behind are pruned. Finally,
    the estimator is fitted with the best settings, as `estimator.fit` does: with the same validation rows, and by
    default a last time on all rows.

    Parameters
    ----------
    estimator : SplineFMClassifier or SplineFMRegressor
        The estimator to tune; it is not modified. Its type of model, fields with a transform or basis that you chose,
        epochs and patience stay the same unless `space` names them.
    table : table, path or dataset
        As in `fit`.
    target : str or array of shape (n_rows,)
        The column to predict, or y.
    sample_weight : str or array, optional
        As in `fit`.
    trials : int
        Total number of trials in the study, including those of earlier calls and other processes.
    timeout : float, optional
        Seconds for the trials, without the final fit. The first trial always finishes.
    storage : path or str, optional
        Where to keep trials, to continue later or to share them between processes: a SQLite file (.db, .sqlite), a
        journal file (.journal, .log), or the URL of a database such as "postgresql://..."; in memory by default.
    study_name : str, optional
        The study in the storage, which can hold several. The default name consists of the target and the model.
    space : mapping, optional
        Changes to the default search space: maps a name to a list of values, to an Optuna distribution, or to None to
        leave this setting unchanged.
    validation : float, optional
        The share of rows to compare trials on; that of the estimator by default.
    eval_set : tuple or table, optional
        The rows to compare trials on, instead of a share of the table; as in `fit`.
    metric : str
        The metric to compare: "loss" (reported as the root mean squared error for the squared loss); "auc", "logloss"
        or "normalized_entropy" for two classes; "auc", "logloss" or "accuracy" for more; "rmse", "mae" or "r2" for a
        regressor.
    prune : bool or optuna.pruners.BasePruner
        Whether to stop trials that are worse than the median of the others at the same epoch.
    seed : int, optional
        Seed of the search; that of the estimator by default, which also draws validation rows and initial values.
    verbose : bool
        Report every trial on standard error.

    Returns
    -------
    Tuned
        The fitted estimator, the best parameters, the study and its trials.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.1 * i for i in range(200)], "y": [0.01 * i * i for i in range(200)]}
    >>> estimator = sf.SplineFMRegressor(sf.FM(k=2), epochs=3, n_jobs=1)
    >>> tuned = sf.tune(estimator, table, "y", trials=2, space={"k": None, "batch_size": None})
    >>> tuned.history["state"]
    ['complete', 'complete']
    """
    chosen = _checked(estimator, validation)
    deadline = _deadline(timeout)
    check_size("trials", trials)
    seed = draw_seed(chosen.random_state) if seed is None else seed
    check_size("seed", seed, 0)
    from splinefm.learn.tuning import optuna as studies

    opened = studies.open_storage(storage)
    with make_progress(verbose) as progress, studies.quiet(), _storing(storage):
        progress.begin("reading the table")
        named = isinstance(target, str)
        data = _FitArguments(table, sample_weight, str(target) if named else None, None if named else target, eval_set)
        experiment = Experiment(data.open(chosen), chosen.model, metric)
        base = experiment.base
        distributions = studies.make_distributions(merge_spaces(base.space(), space))
        for name in {**distributions, **(space or {})}:
            base.check(name, studies.values_to_check(distributions.get(name)))
        study = studies.open_study(
            opened,
            study_name or f"{experiment.task.target}-{type(base.settings.model).__name__}",
            experiment.metric.maximize,
            experiment.fingerprint(distributions),
        )
        study.pruner = studies.make_pruner(prune, int(base.start["epochs"]))
        study.sampler = studies.Sampler(distributions, base.start, seed)
        studies.Search(study, experiment, distributions, trials, deadline, progress).run()
        summary = studies.summarize_study(study, experiment.metric)
    best = summary.best_trial
    params, value = dict(best.params), float(best.value or 0.0)
    chosen.set_params(**changed_settings(base, params))
    with make_progress(verbose and not chosen.verbose) as progress:
        progress.begin("fitting with the best settings")
        data.fit(chosen, summary)
    return Tuned(chosen, params, value, summary, study)


@contextmanager
def _storing(storage: object) -> Iterator[None]:
    """Shorten errors of Optuna and its drivers to the name of the storage and the reason."""
    try:
        yield
    except Exception as error:
        is_of_file = isinstance(error, OSError) and error.errno is not None and error.filename is None
        if not is_of_file and type(error).__module__.partition(".")[0] not in ("optuna", "sqlalchemy"):
            raise
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        reason = os.strerror(cause.errno) if isinstance(cause, OSError) and cause.errno else str(cause).strip()
        raise OSError(
            f"cannot write the study to {show_storage(storage)}: {reason}; finished trials are kept, and the same "
            "call continues the search once this is mended"
        ) from error


class _FitArguments(NamedTuple):
    """The arguments of `fit`."""

    table: object
    sample_weight: object
    target: str | None
    y: object
    eval_set: object

    def open(self, estimator: Estimator) -> Task:
        return open_task(estimator, self.table, self.y, self.sample_weight, self.target, self.eval_set)

    def fit(self, estimator: Estimator, study: StudySummary) -> None:
        fit_from_study(estimator, self.table, self.y, self.sample_weight, self.target, self.eval_set, study)


def _deadline(timeout: float | None) -> float:
    if timeout is None:
        return math.inf
    if not (isinstance(timeout, int | float) and 0.0 < timeout < math.inf):
        raise ValueError(f"timeout must be a number of seconds above 0, or None, got {timeout!r}")
    return time.perf_counter() + timeout


def _checked(estimator: object, validation: object) -> Estimator:
    """Return a copy of the estimator, with one seed for all trials."""
    if not isinstance(estimator, Estimator):
        kind = estimator.__name__ if isinstance(estimator, type) else type(estimator).__name__
        raise TypeError(f"estimator must be a sf.SplineFMClassifier() or sf.SplineFMRegressor(), got {kind}")
    settings = estimator.get_params(deep=False)
    # With one seed, all trials and the final fit hold out the same rows.
    settings["random_state"] = draw_seed(estimator.random_state)
    if validation is not None:
        settings["validation"] = validation
    return type(estimator)(**settings)
