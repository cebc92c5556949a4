"""What a search over settings leaves behind: its trials, which a model file keeps with the model."""

from __future__ import annotations

from dataclasses import dataclass

Value = bool | int | float | str | None
MOST_TRIALS = 5_000
"""More are not kept with a model; the storage of a study has all of them."""


@dataclass(frozen=True)
class TrialSummary:
    """One trial of a study.

    Parameters
    ----------
    number : int
        Trials are counted from 0, the settings of the estimator itself.
    state : str
        "complete", "pruned", "diverged" or "failed" (stopped or interrupted).
    value : float, optional
        The metric on the validation rows; of a pruned trial that of its best epoch, where the metric is the loss.
    epochs : int
        Epochs that were trained.
    seconds : float
        How long it took.
    params : tuple of pairs
        Names and values of what was searched.
    """

    number: int
    state: str
    value: float | None
    epochs: int
    seconds: float
    params: tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class StudySummary:
    """The trials of a study that made a model; `fitted.study`.

    Parameters
    ----------
    name : str
        Name of the study in its storage.
    metric : str
        What was compared, such as "RMSE" or "auc".
    maximize : bool
        Whether more of it is better.
    best : int
        Number of the best trial.
    trials : tuple of TrialSummary
        In the order of their numbers; of a very long study the best 5,000.

    Examples
    --------
    >>> trials = [TrialSummary(i, "complete", 1.0 - i, 20, 0.5, (("k", 4 * i),)) for i in range(2)]
    >>> study = StudySummary("y", "RMSE", False, 1, tuple(trials))
    >>> study.best_trial.value
    0.0
    >>> study.table["k"]
    [0, 4]
    """

    name: str
    metric: str
    maximize: bool
    best: int
    trials: tuple[TrialSummary, ...]

    def __post_init__(self) -> None:
        if not any(trial.number == self.best and trial.value is not None for trial in self.trials):
            raise ValueError(f"the best trial, {self.best}, is not one of the trials that have a value")

    @property
    def best_trial(self) -> TrialSummary:
        """The trial whose settings the model has."""
        return next(trial for trial in self.trials if trial.number == self.best)

    @property
    def param_names(self) -> list[str]:
        """Names of what was searched."""
        return list(dict.fromkeys(name for trial in self.trials for name, _ in trial.params))

    @property
    def table(self) -> dict[str, list[Value]]:
        """A list per column, one entry per trial, as `pandas.DataFrame` and `polars.DataFrame` take it."""
        names = ("number", "state", "value", "epochs", "seconds")
        columns: dict[str, list[Value]] = {name: [getattr(trial, name) for trial in self.trials] for name in names}
        for name in self.param_names:
            columns[name] = [dict(trial.params).get(name) for trial in self.trials]
        return columns


def limited(trials: list[TrialSummary], maximize: bool) -> tuple[TrialSummary, ...]:
    """At most `MOST_TRIALS` of them, the best, in the order of their numbers."""
    if len(trials) <= MOST_TRIALS:
        return tuple(trials)
    sign = -1.0 if maximize else 1.0
    ranked = sorted(trials, key=lambda trial: (trial.state != "complete", sign * (trial.value or 0.0)))
    return tuple(sorted(ranked[:MOST_TRIALS], key=lambda trial: trial.number))
