"""tune: searches for the settings of an estimator with Optuna."""

from __future__ import annotations

import inspect
import math
import os
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from splinefm._checks import check_size
from splinefm.fit.estimators import SplineFMBase, SplineFMClassifier, SplineFMRegressor
from splinefm.fit.fitting import Task, fit_task
from splinefm.fit.inputs import GivenOffset, Labels, check_one_target
from splinefm.fit.parameters import draw_seed
from splinefm.search.search import SearchResult
from splinefm.train.progress import make_progress
from splinefm.train.results import StopReason, StudySummary, Value, show_storage
from splinefm.train.settings import explain_unknown
from splinefm.tuning.space import merge_spaces
from splinefm.tuning.trials import Experiment, StartingPoint, settings_of_estimator

if TYPE_CHECKING:
    from splinefm.tuning.studies import Study

# Fits of estimators on behalf of a study.


def open_task(
    estimator: SplineFMBase,
    X: object,
    y: object,
    sample_weight: object,
    target: str | None,
    eval_set: object,
    offset: GivenOffset | None = None,
) -> tuple[Task, Labels | None]:
    """Return what `estimator.fit` with these arguments would learn, and the classes of y.

    The estimator remembers the columns.
    """
    check_one_target(estimator, y, target)
    return estimator._task(X, y, sample_weight, target, eval_set, given=offset)


def fit_from_study(
    estimator: SplineFMBase, task: Task, classes: Labels | None, study: StudySummary, found: SearchResult
) -> None:
    """Fit an estimator with the setting that a study found; its model keeps the study.

    Ctrl-C is a warning here: the caller returns the estimator, which would be lost otherwise.
    """
    with make_progress(bool(estimator.verbose)) as progress:
        result = fit_task(task, estimator.model, (), progress, study, found)
    estimator._set_result(result, classes)
    if result.stop is StopReason.INTERRUPT:
        warnings.warn(f"interrupted: {result.kept}: the estimator is fitted", stacklevel=4)


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
        The metric of the best trial on the validation rows, and of the first run of the model: that on the training
        rows, before other members and before a run on all rows. With the default metric, it is the smallest validation
        loss in `estimator.history_`, in the unit of the target.
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
    offset: object = None,
    exposure: object = None,
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

    It begins with the search of `estimator.fit`. The first trial has the settings that it finds, crosses included, so
    the result is no worse on the validation rows. All trials train one model each on the same rows and are compared on
    the same validation rows; trials that lag behind are pruned. Finally, the model is fitted with the best settings, as
    `estimator.fit` does: with as many members, or a last time on all rows. If the first trial is the best one, it is
    the model of `estimator.fit`.

    Parameters
    ----------
    estimator : SplineFMClassifier or SplineFMRegressor
        The estimator to tune; it is not modified. What you chose stays the same unless `space` names it: its model
        (except k), epochs and patience, and fields with a transform or basis of your own. `effort`, `crosses` and
        `time_limit` apply to the search at the beginning; "fast" leaves it out.
    table : table, path or dataset
        As in `fit`.
    target : str or array of shape (n_rows,)
        The column to predict, or y.
    sample_weight : str or array, optional
        As in `fit`.
    offset, exposure : str or array, optional
        As in `fit`.
    trials : int
        Total number of trials in the study, including trials of earlier calls and other processes.
    timeout : float, optional
        Seconds for the search and the trials, without the final fit. The search takes at most 60 % of them, and the
        first trial always finishes.
    storage : path or str, optional
        Where to keep trials, to continue later or to share them between processes: a SQLite file (.db, .sqlite), a
        journal file (.journal, .log), or the URL of a database such as "postgresql://..."; in memory by default.
    study_name : str, optional
        The study in the storage, which can hold several. The default name consists of the target and the model of the
        estimator.
    space : mapping, optional
        Changes to the default search space: maps a name to a list of values, to an Optuna distribution, or to None to
        leave this setting unchanged.
    validation : float, optional
        The share of rows to compare trials on; by default, the share that the estimator holds out.
    eval_set : tuple or table, optional
        The rows to compare trials on, instead of a share of the table; as in `fit`.
    metric : str
        The metric to compare: "loss" (reported as the root mean squared error for the squared loss); "auc", "logloss"
        or "normalized_entropy" for two classes; "auc", "logloss" or "accuracy" for more; "rmse", "mae" or "r2" for a
        regressor.
    prune : bool or optuna.pruners.BasePruner
        Whether to stop trials that are worse than the median of the others at the same epoch.
    seed : int, optional
        Seed of the search; by default the seed of the estimator, which also draws validation rows and initial values.
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
    from splinefm.tuning import studies

    opened = studies.open_storage(storage)
    with make_progress(verbose) as progress, studies.quiet(), _storing(storage):
        named = isinstance(target, str)
        given_offset = GivenOffset.of(offset, exposure)
        y, column = (None, str(target)) if named else (target, None)
        task, classes = open_task(chosen, table, y, sample_weight, column, eval_set, given_offset)
        experiment = Experiment(task, chosen.model, metric, progress)
        # Mistakes are reported before the search.
        distributions = studies.make_distributions(merge_spaces(experiment.space.entries(), space))
        for name in {**distributions, **(space or {})}:
            experiment.space.check(name, studies.values_to_check(distributions.get(name)))
        studies.make_pruner(prune, 1)
        own_name = study_name or f"{task.rows.target}-{type(experiment.given.model).__name__}"
        study = studies.open_study(opened, own_name, experiment.metric.maximize)
        base = _find_base(experiment, study, deadline)
        experiment.start_from(base)
        distributions = studies.make_distributions(merge_spaces(experiment.space.entries(), space))
        studies.claim_study(study, base.describe(task.schema), experiment.fingerprint(distributions))
        start = experiment.space.start
        study.pruner = studies.make_pruner(prune, int(start["epochs"]))
        study.sampler = studies.Sampler(distributions, start, seed)
        studies.StudyRunner(study, experiment, distributions, trials, deadline, progress).run()
        summary = studies.summarize_study(study, experiment.metric)
    best = summary.best_trial
    params, value = dict(best.params), float(best.value or 0.0)
    n_members = chosen.members or (base.n_members if base.n_members > 1 else None)
    chosen.set_params(**settings_of_estimator(experiment.space.at(params), n_members))
    with make_progress(verbose and not chosen.verbose) as progress:
        progress.begin("fitting with the best settings")
        found = experiment.fit(params)
        members = task.training.members if found.members else n_members
        task = replace(task, training=replace(task.training, time_limit=None, members=members))
        fit_from_study(chosen, task, classes, summary, found)
    return Tuned(chosen, params, value, summary, study)


def _find_base(experiment: Experiment, study: Study, deadline: float) -> StartingPoint:
    """Return the setting that a study starts from: the one in its storage, or what a fit finds."""
    from splinefm.tuning import studies

    if (known := studies.base_of(study)) is not None:
        return StartingPoint.restore(known, experiment.given)
    found = experiment.find_base(deadline)
    known = studies.base_of(study)  # another process may have been faster
    return found if known is None else StartingPoint.restore(known, experiment.given)


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


def _deadline(timeout: float | None) -> float:
    if timeout is None:
        return math.inf
    if not (isinstance(timeout, int | float) and 0.0 < timeout < math.inf):
        raise ValueError(f"timeout must be a number of seconds above 0, or None, got {timeout!r}")
    return time.monotonic() + timeout


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
