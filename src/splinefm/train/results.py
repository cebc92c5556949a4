"""Results of a fit: its epochs, the evidence of held-out rows, remarks, and what searches tried."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum
from shlex import quote
from typing import Literal, NamedTuple

from splinefm._wording import for_reader
from splinefm.model.family.contract import Params
from splinefm.train.settings import L2, Training, penalties_by_field

# The history, and the result of a run.

Run = Literal["first", "search", "all rows", "update"]
RUNS: dict[Run, str] = {
    "first": "first run",
    "search": "search",
    "all rows": "run on all rows",
    "update": "update",
}
# Runs on a part of the training rows, of which there is a model if the user stopped the fit. Files of versions before
# 0.2 have "half".
SAMPLED = ("search", "half")


class Epoch(NamedTuple):
    """The measurements of one epoch: an entry of the history, and the argument of callbacks.

    Parameters
    ----------
    epoch : int
        Number of the epoch, counted from 1 in every run; updates continue the numbers of the fit.
    train_loss : float
        Mean loss of the training rows, each measured before the model learned from it.
    validation_loss : float
        Mean loss of the validation rows after the epoch; NaN without validation rows.
    learning_rate : float
        Learning rate of the last step.
    rows_per_second : float
        Training speed of this run; another one may take place at the same time.
    seconds : float
        Time since the run began; with updates, the time of all of them is added.
    run : {"first", "search", "all rows", "update"}
        The run of the fit: the first one on all training rows, whose validation rows choose the best epoch, or the last
        one on all rows; "search" if the user stopped the search, and the model was fitted to a sample of the rows;
        "update" for a `partial_fit`.

    Examples
    --------
    >>> import splinefm as sf
    >>> table = {"x": [0.0, 1.0, 2.0, 3.0] * 50, "click": [0, 0, 1, 1] * 50}
    >>> fitted = sf.fit_model(table, "click", model=sf.FM(k=2), training=sf.Training(epochs=2, threads=1))
    >>> [(epoch.epoch, epoch.run) for epoch in fitted.history]
    [(1, 'first'), (2, 'first')]
    """

    epoch: int
    train_loss: float
    validation_loss: float
    learning_rate: float
    rows_per_second: float
    seconds: float
    run: Run = "first"


Callback = Callable[[Epoch], object]


def best_epoch(history: tuple[Epoch, ...]) -> Epoch | None:
    """Return the epoch whose parameters were kept: the best by validation loss, or the last.

    Updates are judged by other rows, and do not count.
    """
    measured = [epoch for epoch in history if epoch.run != "update" and not math.isnan(epoch.validation_loss)]
    if measured:
        return min(measured, key=lambda epoch: epoch.validation_loss)
    return history[-1] if history else None


class StopReason(Enum):
    """Why a fit ended early: a callback asked for it, such as a time limit, or the user."""

    CALLBACK = "callback"
    INTERRUPT = "Ctrl-C"


class TrainingResult(NamedTuple):
    """The result of one run: the best parameters, and the history.

    `last_tied_epoch` is the last epoch whose validation loss cannot be told from the best one. `stop` is the reason if
    the run, or the one after it, was stopped; `kept` then says which model there is. `refit_params` are the parameters
    after the last tied epoch of a run on all rows, if there was one at the same time. `evidence` is what the validation
    rows tell of the best epoch, if there are any.
    """

    params: Params
    history: list[Epoch]
    last_tied_epoch: int
    stop: StopReason | None = None
    kept: str = ""
    refit_params: Params | None = None
    evidence: Evidence | None = None

    def stopped_in_refit(self, stop: StopReason) -> TrainingResult:
        """Return this result, marked as a fit whose run on all rows was stopped."""
        return self._replace(stop=stop, kept=f"the model of the {RUNS[self.history[-1].run]} is kept")


# Evidence: what the held-out rows show about the best epoch, besides its loss.


@dataclass(frozen=True)
class Evidence:
    """What was measured at the best epoch; all losses are means per row.

    Parameters
    ----------
    rows : int
        Number of held-out rows.
    training_loss : float
        Loss of the training rows, each measured before the model learned from it.
    loss, error : float
        Loss of the held-out rows, and its standard error.
    constant, gain_error : float
        Their loss with the best constant score, and the standard error of what the model gains on it.
    floor : float
        Their loss with perfect predictions.
    column, column_share : str and float
        The column that explains most by itself, and its share of what the constant leaves. It is looked for only if
        the model explains nearly everything; otherwise the name is empty.
    """

    rows: int
    training_loss: float
    loss: float
    error: float
    constant: float
    gain_error: float
    floor: float = 0.0
    column: str = ""
    column_share: float = 0.0

    @property
    def gain(self) -> float:
        """How much lower the loss of the held-out rows is than with the best constant score."""
        return self.constant - self.loss

    @property
    def share(self) -> float:
        """The share of what the constant leaves that the model explains in the held-out rows."""
        return self._share(self.loss)

    @property
    def training_share(self) -> float:
        """The same for the loss of the training rows."""
        return self._share(self.training_loss)

    def _share(self, loss: float) -> float:
        left = self.constant - self.floor
        return (self.constant - loss) / left if left > 0.0 else 0.0


# Remarks: what the evidence says to a user who did not expect it, with a way out.

# A model is no better than a constant if its gain is below this number of standard errors, and it explains less than
# this share or, with few rows, less than chance explains where the best of several epochs is kept.
NO_GAIN_ERRORS, NO_GAIN_SHARE, CHANCE_ROWS = 2.0, 0.01, 10.0
# A column knows the target if the model explains this share, and the column by itself nearly as much: in a model that
# shrinks all weights, columns that know a part of the target take a little of its effect.
LEAK_SHARE, LEAK_COLUMN_SHARE = 0.99, 0.95
# A model overfits if less than this share of what it explains in training rows holds for held-out rows, and the losses
# differ by this number of standard errors.
OVERFIT_SHARE, OVERFIT_ERRORS = 0.7, 3.0
# The factor of the L2 penalty that is suggested then.
L2_FACTOR = 10.0
# With fewer held-out rows, standard errors mean little.
MIN_HELD_OUT = 20


class RemarkKind(StrEnum):
    """What a remark is about."""

    NO_GAIN = "no gain"
    LEAK = "leak"
    OVERFIT = "overfit"


@dataclass(frozen=True)
class Remark:
    """Something about a fit that its user may not expect; `str` says it in words.

    Parameters
    ----------
    kind : RemarkKind
        What it is about.
    columns : tuple of str
        The columns it is about, if any.
    share : float
        Of what the best constant leaves, the share that is explained in held-out rows: by the model, or by the column.
    training_share : float
        The share that the model explains in the training rows.
    l2 : float
        The L2 penalty to try.

    Examples
    --------
    >>> print(Remark(RemarkKind.LEAK, ("paid",), share=0.998))
    'paid' alone explains 99.8% of the target: is it known before the target is? If not, leave the column out
    """

    kind: RemarkKind
    columns: tuple[str, ...] = ()
    share: float = 0.0
    training_share: float = 0.0
    l2: float = 0.0

    def __str__(self) -> str:
        return _WORDS[self.kind](self)


def _no_gain(_: Remark) -> str:
    return (
        "the model is hardly better on held-out rows than one constant prediction for all of them. Check that the "
        "target is the right column, that its rows match the rows of the other columns, and that these could know "
        "something about it; with few rows, more of them may help"
    )


def _leak(remark: Remark) -> str:
    column, *_ = remark.columns
    way_out = for_reader("", f" with --ignore {quote(column)}")
    return (
        f"{column!r} alone explains {math.floor(1000 * remark.share) / 10:.1f}% of the target: is it known "
        f"before the target is? If not, leave the column out{way_out}"
    )


def _overfit(remark: Remark) -> str:
    l2 = for_reader(f"l2={remark.l2:g}", f"--l2 {remark.l2:g}")
    return (
        f"the model explains {remark.training_share:.0%} of the target in the rows it learns from, but "
        f"{max(0.0, remark.share):.0%} in held-out rows: it learns some of them by heart. Try more rows, a larger l2 "
        f"(such as {l2}), or fewer columns"
    )


_WORDS = {RemarkKind.NO_GAIN: _no_gain, RemarkKind.LEAK: _leak, RemarkKind.OVERFIT: _overfit}


def find_remarks(evidence: Evidence | None, training: Training) -> tuple[Remark, ...]:
    """Return the remarks on a fit; without evidence, there are none."""
    if evidence is None or evidence.rows < MIN_HELD_OUT:
        return ()
    found = []
    min_share = max(NO_GAIN_SHARE, CHANCE_ROWS / evidence.rows)
    if evidence.share < min_share and evidence.gain < NO_GAIN_ERRORS * evidence.gain_error:
        found.append(Remark(RemarkKind.NO_GAIN, share=evidence.share))
    if evidence.column and evidence.share >= LEAK_SHARE and evidence.column_share >= LEAK_COLUMN_SHARE:
        found.append(Remark(RemarkKind.LEAK, (evidence.column,), evidence.column_share))
    gap = evidence.loss - evidence.training_loss
    if gap > OVERFIT_ERRORS * evidence.error and evidence.share < OVERFIT_SHARE * evidence.training_share:
        l2 = L2_FACTOR * _largest_l2(training)
        found.append(Remark(RemarkKind.OVERFIT, share=evidence.share, training_share=evidence.training_share, l2=l2))
    return tuple(found)


def _largest_l2(training: Training) -> float:
    given = training.l2 if isinstance(training.l2, float) else max(penalties_by_field(training.l2).values(), default=L2)
    return given or L2


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
        On how many parts of the rows it was judged; a sample counts as one.
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
