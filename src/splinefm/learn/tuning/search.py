"""tune: search for the settings of an estimator, with Optuna."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from splinefm.learn.estimators.base import SplineFMClassifier, SplineFMRegressor, Task, draw_seed, open_task
from splinefm.learn.progress import make_progress
from splinefm.learn.tuning.space import merge_spaces
from splinefm.learn.tuning.study import StudySummary, Value
from splinefm.learn.tuning.trials import Experiment, changed_settings
from splinefm.model.family import check_size

if TYPE_CHECKING:
    from splinefm.learn.tuning.optuna import Study

Estimator = SplineFMClassifier | SplineFMRegressor


@dataclass(frozen=True)
class Tuned:
    """What `tune` found.

    Attributes
    ----------
    estimator : SplineFMClassifier or SplineFMRegressor
        Fitted with the best settings; `estimator.fitted_.study` is the summary, which a model file keeps.
    params : dict
        The best point of the search space.
    value : float
        The metric of the best trial, on the validation rows.
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
        """A list per column, one entry per trial, as `pandas.DataFrame` and `polars.DataFrame` take it."""
        return self.summary.table


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
    """Search for the settings of an estimator that are best on validation rows, and fit it with them.

    The first trial is the estimator as it is, so that the result is no worse on the validation rows. All trials train
    on the same rows and are compared on the same ones; those that lag behind the others are pruned. The best settings
    are then fitted as `estimator.fit` does it: with the same validation rows, and by default a last time on all rows.

    Parameters
    ----------
    estimator : SplineFMClassifier or SplineFMRegressor
        What to tune; it is not changed. Its kind of model, fields with a transform or basis of your choice, epochs and
        patience stay as they are, unless `space` names them.
    table : table, path or dataset
        As in `fit`.
    target : str or array of shape (n_rows,)
        The column to predict, or y.
    sample_weight : str or array, optional
        As in `fit`.
    trials : int
        Trials that the study shall have in all, those of earlier calls and of other processes included.
    timeout : float, optional
        Seconds for the trials; the last fit comes after them. The first trial is always finished.
    storage : path or str, optional
        Where trials are kept, to go on later or to share them between processes: a SQLite file (.db, .sqlite), a
        journal file (.journal, .log), or an address of a database such as "postgresql://..."; in memory by default.
    study_name : str, optional
        A storage holds several studies; by default the name says the target and the model.
    space : mapping, optional
        Changes to the default search space: a name and a list of values, a distribution of Optuna, or None to leave
        this setting as it is.
    validation : float, optional
        The share of the rows to compare trials on; by default that of the estimator.
    eval_set : tuple or table, optional
        The rows to compare trials on, instead of a share; as in `fit`.
    metric : str
        What is compared: "loss" (told as the root mean squared error for the squared loss), or "auc", "logloss",
        "normalized_entropy" for a classifier, "rmse", "mae", "r2" for a regressor.
    prune : bool or optuna.pruners.BasePruner
        Whether to end trials that are worse than the median of the others at the same epoch.
    seed : int, optional
        Of the search; by default that of the estimator, which stands for the rows to hold back and the start values.
    verbose : bool
        Tell every trial on the standard error stream.

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
    with make_progress(verbose) as progress, studies.quiet():
        progress.begin("reading the table")
        named = isinstance(target, str)
        rows = _Rows(table, sample_weight, str(target) if named else None, None if named else target, eval_set)
        experiment = Experiment(rows.open(chosen), chosen.model, metric)
        base = experiment.base
        distributions = studies.make_distributions(merge_spaces(base.space(), space))
        for name in {**distributions, **(space or {})}:
            base.check(name, studies.values_to_check(distributions.get(name)))
        study = studies.open_study(
            opened,
            study_name or f"{experiment.task.rows.target}-{type(base.settings.model).__name__}",
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
        progress.begin("fitting the best settings")
        rows.fit(chosen)
    chosen.fitted_ = replace(chosen.fitted_, study=summary)
    return Tuned(chosen, params, value, summary, study)


class _Rows(NamedTuple):
    """The table, as `fit` takes it."""

    table: object
    sample_weight: object
    target: str | None
    y: object
    eval_set: object

    def open(self, estimator: Estimator) -> Task:
        return open_task(estimator, self.table, self.y, self.sample_weight, self.target, self.eval_set)

    def fit(self, estimator: Estimator) -> None:
        estimator.fit(self.table, self.y, self.sample_weight, target=self.target, eval_set=self.eval_set)


def _deadline(timeout: float | None) -> float:
    if timeout is None:
        return math.inf
    if not (isinstance(timeout, int | float) and 0.0 < timeout < math.inf):
        raise ValueError(f"timeout must be a number of seconds above 0, or None, got {timeout!r}")
    return time.perf_counter() + timeout


def _checked(estimator: object, validation: object) -> Estimator:
    """A copy of the estimator; tables in its settings are not copied."""
    if not isinstance(estimator, Estimator):
        kind = estimator.__name__ if isinstance(estimator, type) else type(estimator).__name__
        raise TypeError(f"estimator must be such as sf.SplineFMClassifier(), got {kind}")
    settings = estimator.get_params(deep=False)
    # One number for all: trials hold back the same rows, and the last fit does as well.
    settings["random_state"] = draw_seed(estimator.random_state)
    if validation is not None:
        settings["validation"] = validation
    return type(estimator)(**settings)
