"""What a search and a study tried: the records that a fitted model keeps."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

# What a search tried: the rows of `fitted.search`.


@dataclass(frozen=True)
class SearchEntry:
    """A setting that a fit has tried, and how good it was.

    Parameters
    ----------
    model : str
        The model.
    basis : str
        The bases of the numbers.
    l2, smoothness : float or None
        The penalties of the columns; crosses can have others.
    n_columns : int
        The number of columns that it uses.
    crosses : tuple of str
        The crosses that it has.
    epochs : int
        The most epochs.
    loss, error : float
        The mean loss of the rows that it was judged by, and its standard error.
    folds : int
        On how many parts of the rows it was judged; those of a sample count as one.
    seconds : float
        The time of its fits.
    is_chosen : bool
        Whether the fit has chosen it.
    """

    model: str
    basis: str
    l2: float | None
    smoothness: float | None
    n_columns: int
    crosses: tuple[str, ...]
    epochs: int
    loss: float
    error: float
    folds: int
    seconds: float
    is_chosen: bool = False

    def __str__(self) -> str:
        """Return the setting in a few words.

        Examples
        --------
        >>> print(SearchEntry("FM(k=4)", "8 segments", 1e-4, 0.01, 3, (), 30, 0.5, 0.01, 4, 1.0))
        FM(k=4), 8 segments, l2 0.0001, smoothness 0.01, 30 epochs
        """
        penalties = {"l2": self.l2, "smoothness": self.smoothness}
        words = [f"{name} {value:g}" for name, value in penalties.items() if value is not None]
        parts = [self.model, self.basis, *words, f"{self.epochs} epochs"]
        parts += [f"crosses {', '.join(self.crosses)}"] if self.crosses else []
        return ", ".join(part for part in parts if part)


# The trials of a search over settings, which a model file keeps with the model.

Value = bool | int | float | str | None
MAX_TRIALS = 5_000
"""A model keeps no more trials than this; the storage of a study has all of them."""


@dataclass(frozen=True)
class TrialSummary:
    """One trial of a study.

    Parameters
    ----------
    number : int
        Number of the trial; trial 0 has the settings that a fit of the estimator finds.
    state : str
        "complete", "pruned", "diverged" or "failed" (stopped or interrupted).
    value : float, optional
        The metric on the validation rows. For a pruned trial, the best epoch if the metric is the loss.
    epochs : int
        Number of epochs that were trained.
    seconds : float
        Duration of the trial.
    params : tuple of pairs
        Names and values of the parameters that were searched.
    """

    number: int
    state: str
    value: float | None
    epochs: int
    seconds: float
    params: tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class StudySummary:
    """The trials of the study that found the settings of a model: `fitted.study`.

    Parameters
    ----------
    name : str
        Name of the study in the storage.
    metric : str
        The metric that was compared, such as "RMSE" or "auc".
    maximize : bool
        Whether larger values are better.
    best : int
        Number of the best trial.
    trials : tuple of TrialSummary
        The trials by number; for a very long study, the best 5,000.

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

    def __repr__(self) -> str:
        best = f"best {self.metric} {self.best_trial.value:.5g} in trial {self.best}"
        return f"StudySummary({self.name!r}, {len(self.trials):,} trials, {best})"

    @property
    def best_trial(self) -> TrialSummary:
        """The trial whose settings the model has."""
        return next(trial for trial in self.trials if trial.number == self.best)

    @property
    def param_names(self) -> list[str]:
        """The names of the parameters that were searched."""
        return list(dict.fromkeys(name for trial in self.trials for name, _ in trial.params))

    @property
    def table(self) -> dict[str, list[Value]]:
        """The trials as columns, for `pandas.DataFrame` or `polars.DataFrame`."""
        names = ("number", "state", "value", "epochs", "seconds")
        columns: dict[str, list[Value]] = {name: [getattr(trial, name) for trial in self.trials] for name in names}
        for name in self.param_names:
            columns[name] = [dict(trial.params).get(name) for trial in self.trials]
        return columns


def limited(trials: list[TrialSummary], maximize: bool) -> tuple[TrialSummary, ...]:
    """Return the best trials, at most `MAX_TRIALS`, by number."""
    if len(trials) <= MAX_TRIALS:
        return tuple(trials)
    sign = -1.0 if maximize else 1.0
    ranked = sorted(trials, key=lambda trial: (trial.state != "complete", sign * (trial.value or 0.0)))
    return tuple(sorted(ranked[:MAX_TRIALS], key=lambda trial: trial.number))


def show_storage(storage: object) -> str:
    """Return the name of a storage for messages, without a password.

    Examples
    --------
    >>> show_storage("postgresql://ann:secret@host/name")
    "'postgresql://ann:***@host/name'"
    """
    if not isinstance(storage, str | os.PathLike):
        return type(storage).__name__
    return repr(re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", os.fspath(storage)))
