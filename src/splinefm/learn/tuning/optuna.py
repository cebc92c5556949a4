"""Studies of Optuna, which no other module imports: `pip install "splinefm[tune]"`."""

from __future__ import annotations

import datetime
import math
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

try:
    import optuna
except ModuleNotFoundError as error:
    if error.name != "optuna":
        raise
    raise ModuleNotFoundError(
        'tuning needs optuna, which is not installed: pip install "splinefm[tune]"', name=error.name
    ) from error

from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, TPESampler
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import FrozenTrial, Trial, TrialState

from splinefm.learn.progress import Progress
from splinefm.learn.training import Diverged, Epoch
from splinefm.learn.tuning.space import Range
from splinefm.learn.tuning.study import StudySummary, TrialSummary, Value, limited
from splinefm.learn.tuning.trials import Experiment

Study = optuna.Study
FINGERPRINT, REASON, PROCESS = "splinefm", "reason", "process"
_SQLITE, _JOURNAL = (".db", ".sqlite", ".sqlite3"), (".journal", ".log")
# A trial of another machine cannot be asked whether it is still alive: it counts as alive for so long. So does one that
# has just begun and does not say yet whose it is.
_ALIVE_ELSEWHERE, _ALIVE_UNKNOWN = 3600.0, 20.0
_POLL = 0.2
_ATTEMPTS = 5
_BUSY = 120.0  # seconds to wait for a SQLite file that another process writes
# A trial is not pruned before this part of its epochs: until then it tells little but the learning rate.
_WARM = 0.2
_DONE = (TrialState.COMPLETE, TrialState.PRUNED)


class OutOfTime(Exception):
    """The time of the search is over."""


# Opening


def make_distributions(space: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """The entries of a space as Optuna takes them."""
    return {name: _distribution(name, entry) for name, entry in space.items()}


def _distribution(name: str, entry: object) -> BaseDistribution:
    if isinstance(entry, BaseDistribution):
        return entry
    if isinstance(entry, Range):
        return FloatDistribution(entry.low, entry.high, log=True)
    if not isinstance(entry, tuple):
        raise ValueError(
            f"space[{name!r}] must be a list of values, a distribution of Optuna such as "
            f"optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True), or None; got {entry!r}"
        )
    for value in entry:
        if not isinstance(value, Value):
            raise ValueError(f"space[{name!r}] has {value!r}; a value is text, a number, a truth value or None")
    return CategoricalDistribution(entry)


def values_to_check(distribution: BaseDistribution | None) -> Sequence[Any]:
    """All choices, or both ends; none of what is not searched."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices
    if isinstance(distribution, FloatDistribution | IntDistribution):
        return distribution.low, distribution.high
    return ()


def _contains(distribution: BaseDistribution, value: Any) -> bool:
    if isinstance(distribution, CategoricalDistribution):
        return value in distribution.choices
    if not isinstance(distribution, FloatDistribution | IntDistribution):
        return False
    return isinstance(value, int | float) and distribution.low <= value <= distribution.high


def open_storage(storage: object) -> BaseStorage | None:
    """The storage behind an argument: None is memory, a path a SQLite or journal file, an address any database."""
    if storage is None or isinstance(storage, BaseStorage):
        return storage
    if not isinstance(storage, str | os.PathLike):
        raise ValueError(f"storage must be a path, an address or a storage of Optuna, got {type(storage).__name__}")
    text = os.fspath(storage)
    if "://" not in text:
        _check_file(Path(text))
    try:
        return _open_address(text) if "://" in text else _open_file(Path(text))
    except OSError:
        raise
    except Exception as error:  # there is no end to what database drivers raise
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        shown = re.sub(r"(://[^:/@]*):[^@/]*@", r"\1:***@", text)  # without the password
        raise ValueError(f"cannot open the storage {shown!r}: {cause}; check it, or give another one") from error


def _check_file(path: Path) -> None:
    if path.suffix not in (*_SQLITE, *_JOURNAL):
        raise ValueError(
            f"storage {str(path)!r} must end in {', '.join(_SQLITE)} (SQLite) or {', '.join(_JOURNAL)} (a journal), "
            "or be an address such as postgresql://user@host/name"
        )
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"storage {str(path)!r}: there is no folder {str(path.parent)!r}; make it first")


def _open_file(path: Path) -> BaseStorage:
    if path.suffix in _SQLITE:
        return _open_address(f"sqlite:///{path}")
    lock = JournalFileOpenLock(str(path)) if os.name == "nt" else None  # links need rights there
    return JournalStorage(JournalFileBackend(str(path), lock))


def _open_address(address: str) -> BaseStorage:
    """A database; processes that make its tables at the same time get in each other's way, and find them made then."""
    options = {"connect_args": {"timeout": _BUSY}} if address.startswith("sqlite:") else {}
    for attempt in range(_ATTEMPTS):
        try:
            return RDBStorage(address, engine_kwargs=options)
        except Exception as error:
            words = str(error).lower()
            if not any(word in words for word in ("already exists", "unique", "duplicate")):
                raise
            time.sleep(0.1 * (attempt + 1))
    return RDBStorage(address, engine_kwargs=options)


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing but warnings from Optuna."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def open_study(storage: BaseStorage | None, name: str, maximize: bool, fingerprint: Mapping[str, str]) -> Study:
    """A new study, or the one of this name in the storage if it is of the same task."""
    study = optuna.create_study(
        storage=storage, study_name=name, direction="maximize" if maximize else "minimize", load_if_exists=True
    )
    known = study.user_attrs.get(FINGERPRINT)
    if known is None and not study.get_trials(deepcopy=False):
        study.set_user_attr(FINGERPRINT, dict(fingerprint))
        return study
    differs = _difference(known, fingerprint)
    if differs:
        raise ValueError(f"the study {name!r} is of another task: {differs}; give another study_name or storage")
    return study


def _difference(known: Any, now: Mapping[str, str]) -> str:
    if not isinstance(known, dict):
        return "sf.tune has not made it"
    for name in sorted({*known, *now}, key=lambda name: (name not in now, list(now).index(name) if name in now else 0)):
        if name not in known or name not in now:
            return f"{name} is {'new' if name not in known else 'gone'}"
        if known[name] != now[name]:
            return f"{name} was {known[name]}, now it is {now[name]}"
    return ""


def make_pruner(prune: object, epochs: int) -> BasePruner:
    """The median of other trials at the same epoch, none, or a pruner of the user."""
    if isinstance(prune, BasePruner):
        return prune
    if not isinstance(prune, bool):
        raise ValueError(f"prune must be True, False or a pruner of Optuna, got {prune!r}")
    return MedianPruner(n_startup_trials=5, n_warmup_steps=math.ceil(_WARM * epochs)) if prune else NopPruner()


class Sampler(BaseSampler):
    """TPE that draws a trial's numbers by the seed and the trial's own number; the first trial is `start`.

    So a study that was interrupted goes on as it would have, and processes that share a study draw different numbers.
    """

    def __init__(self, space: Mapping[str, BaseDistribution], start: Mapping[str, Any], seed: int) -> None:
        self.seed = seed
        self.start = {name: start[name] for name, entry in space.items() if _contains(entry, start[name])}
        self.start_space = {name: space[name] for name in self.start}
        self.inner = TPESampler(seed=seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The names that are drawn together."""
        self.inner = TPESampler(seed=int(np.random.SeedSequence([self.seed, trial.number]).generate_state(1)[0]))
        if not count_trials(study, before=trial.number):
            return self.start_space
        return self.inner.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Their values."""
        if search_space is self.start_space:
            return dict(self.start)
        return self.inner.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """The value of a single name."""
        return self.inner.sample_independent(study, trial, param_name, param_distribution)


# Running


def count_trials(study: Study, before: int | None = None) -> int:
    """Trials that are finished, or being worked on by a process that lives; `before` this number, if given."""
    trials = study.get_trials(deepcopy=False, states=(*_DONE, TrialState.RUNNING))
    return sum(
        (before is None or trial.number < before) and (trial.state in _DONE or _lives(trial)) for trial in trials
    )


def _lives(trial: FrozenTrial) -> bool:
    """Whether somebody works on a trial, as far as can be known: a process that was killed has left it behind."""
    begun = trial.datetime_start
    age = math.inf if begun is None else abs((datetime.datetime.now() - begun).total_seconds())
    host, pid = trial.user_attrs.get(PROCESS, (None, None))
    if host is None:
        return age < _ALIVE_UNKNOWN
    if host != socket.gethostname() or os.name != "posix":  # elsewhere asking would end the process
        return age < _ALIVE_ELSEWHERE
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class Search:
    """Runs trials until there are enough, or the time is over.

    Parameters
    ----------
    study : optuna.Study
        Holds the trials.
    experiment : Experiment
        Runs them.
    space : mapping of str to distribution
        What to search.
    trials : int
        Trials that the study shall have in all.
    deadline : float
        Of `time.perf_counter`.
    progress : Progress
        Gets a line for every trial.
    """

    def __init__(
        self,
        study: Study,
        experiment: Experiment,
        space: Mapping[str, BaseDistribution],
        trials: int,
        deadline: float,
        progress: Progress,
    ) -> None:
        self.study, self.experiment, self.space = study, experiment, dict(space)
        self.trials, self.deadline, self.progress = trials, deadline, progress
        self.begun, self.done = time.perf_counter(), 0

    def run(self) -> None:
        """Run trials; Ctrl-C ends it, and raises only where no trial is complete."""
        try:
            while self._goes_on():
                trial = self.study.ask(self.space)
                if count_trials(self.study, before=trial.number) < self.trials:
                    self._run_trial(trial)
                else:
                    self._give_up(trial, "another process was faster")
        except OutOfTime:
            self.progress.say("stopped: the time is over")
        except KeyboardInterrupt:
            if not self._has_value():
                raise
            self.progress.say("stopped by Ctrl-C; the trials that are done are kept")

    def _goes_on(self) -> bool:
        """Whether there is a trial to run.

        Where others run all that are missing, wait until one is complete. A trial whose process is not known yet, or
        was killed before it said so, is waited for as well.
        """
        while count_trials(self.study) >= self.trials:
            at_work = [trial for trial in self._trials(TrialState.RUNNING) if _lives(trial)]
            known = all(PROCESS in trial.user_attrs for trial in at_work)
            if known and (self._has_value() or not at_work):
                return False
            time.sleep(_POLL)
        return self._in_time() or not (self.done or self._has_value())

    def _run_trial(self, trial: Trial) -> None:
        try:
            trial.set_user_attr(PROCESS, [socket.gethostname(), os.getpid()])
            result = self.experiment.run(trial.params, lambda epoch: self._report(trial, epoch))
            trial.set_user_attr("best_epoch", result.best_epoch)
            self.study.tell(trial, result.value)
        except optuna.TrialPruned:
            self.study.tell(trial, state=TrialState.PRUNED)
        except Diverged as error:
            # Not as a failure, of which the sampler learns nothing.
            trial.set_user_attr(REASON, f"diverged: {error}")
            self.study.tell(trial, state=TrialState.PRUNED)
        except BaseException as error:
            error.add_note(f"in trial {trial.number} with {trial.params}")
            self._give_up(trial, type(error).__name__)
            raise
        self.done += 1
        self._tell(trial)

    def _report(self, trial: Trial, epoch: Epoch) -> None:
        epochs = int(trial.params.get("epochs", self.experiment.base.start["epochs"]))
        self.progress.begin(f"trial {trial.number}, epoch {min(epoch.epoch + 1, epochs)}/{epochs}")
        value = self.experiment.metric.of_epoch(epoch, self.experiment.chunks.loss)
        if math.isfinite(value):
            trial.report(value, epoch.epoch)
            if epoch.epoch < epochs and trial.should_prune():
                raise optuna.TrialPruned
        if epoch.epoch < epochs and not self._in_time() and self._has_value():
            raise OutOfTime

    def _give_up(self, trial: Trial, reason: str) -> None:
        trial.set_user_attr(REASON, reason)
        self.study.tell(trial, state=TrialState.FAIL)

    def _in_time(self) -> bool:
        return time.perf_counter() < self.deadline

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=states)

    def _has_value(self) -> bool:
        return bool(self._trials(TrialState.COMPLETE))

    def _tell(self, trial: Trial) -> None:
        """A line about a trial that is over."""
        summary = summarize_trial(self.study.get_trials(deepcopy=False)[trial.number], self.experiment.metric)
        value = "" if summary.value is None else f"{self.experiment.metric.label} {summary.value:.5g}"
        state = "" if summary.state == "complete" else f"{summary.state} after {summary.epochs} epochs"
        done = count_trials(self.study)
        parts = [f"trial {trial.number} ({done} of {self.trials})", state, value]
        if self._has_value():
            best = self.study.best_trial
            parts.append(f"best {best.value:.5g} (trial {best.number})")
        left = max(0, self.trials - done) * (time.perf_counter() - self.begun) / self.done
        seconds = round(max(0.0, min(left, self.deadline - time.perf_counter())))
        parts += [f"{summary.seconds:.1f} s", f"{datetime.timedelta(seconds=seconds)} left"]
        self.progress.say("  ".join(part for part in parts if part))


# What is left of it


def summarize_trial(trial: FrozenTrial, metric: Any) -> TrialSummary:
    """The trial in a form that needs no Optuna."""
    reason = str(trial.user_attrs.get(REASON, ""))
    state = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned"}.get(trial.state, "failed")
    state = "diverged" if reason.startswith("diverged") else state
    reported = list(trial.intermediate_values.values())
    value = trial.value if trial.state == TrialState.COMPLETE else None
    if state == "pruned" and metric.is_loss and reported:
        value = min(reported)
    seconds = 0.0 if trial.duration is None else trial.duration.total_seconds()
    params = tuple(sorted(trial.params.items()))
    return TrialSummary(trial.number, state, value, len(reported), round(seconds, 3), params)


def summarize_study(study: Study, metric: Any) -> StudySummary:
    """All trials that are over; raise where none is complete."""
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
    if not any(trial.state == TrialState.COMPLETE for trial in trials):
        why = {str(trial.user_attrs.get(REASON, "pruned")) for trial in trials}
        raise ValueError(
            f"none of {len(trials)} trials is complete ({'; '.join(sorted(why)) or 'none was run'}); "
            "give more trials, or a space with lower learning rates"
        )
    summaries = [summarize_trial(trial, metric) for trial in trials]
    best = study.best_trial.number
    return StudySummary(study.study_name, metric.label, metric.maximize, best, limited(summaries, metric.maximize))
