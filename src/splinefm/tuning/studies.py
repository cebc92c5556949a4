"""Optuna studies. No other module imports Optuna: `pip install "splinefm[tune]"`."""

from __future__ import annotations

import datetime
import math
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

# Which process works on a trial, whether it is still alive, and which one writes to a journal.

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

from splinefm.train.loop import Diverged
from splinefm.train.progress import Progress
from splinefm.train.results import Epoch, StudySummary, TrialSummary, Value, limited, show_storage
from splinefm.tuning.space import Range
from splinefm.tuning.trials import Experiment

with suppress(ImportError):  # Windows, where Optuna's own lock is used
    import fcntl

PROCESS = "process"
"""The attribute of a trial that has the host and the process number."""
# Whether a process on another machine is alive cannot be checked: it counts as alive for this many seconds. So does a
# trial that has just begun and does not name its process yet.
_ALIVE_ELSEWHERE, _ALIVE_UNKNOWN = 3600.0, 20.0
_BLOCK = 1 << 16


def this_process() -> list[str | int]:
    """Return the host and the number of this process."""
    return [socket.gethostname(), os.getpid()]


def is_alive(attributes: Mapping[str, Any], begun: datetime.datetime | None) -> bool:
    """Return whether a process works on a trial, as far as can be known: a killed process leaves its trial behind."""
    age = math.inf if begun is None else abs((datetime.datetime.now() - begun).total_seconds())
    host, pid = attributes.get(PROCESS, (None, None))
    if host is None:
        return age < _ALIVE_UNKNOWN
    if host != socket.gethostname() or os.name != "posix":  # elsewhere, os.kill would end the process
        return age < _ALIVE_ELSEWHERE
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class JournalLock:
    """The lock of a journal, in the form that Optuna asks for; the system releases it when a process is killed.

    Optuna's own locks are files, which a killed process leaves behind: others wait for half a minute then.

    Parameters
    ----------
    path : Path
        The journal.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "study.journal")
    ...     _ = path.write_bytes(b'{"a": 1}\\n{"b"')  # the process was killed, or the disk full
    ...     lock = JournalLock(path)
    ...     _ = lock.acquire()
    ...     lock.release()
    ...     path.read_bytes()
    b'{"a": 1}\\n'
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._threads = Lock()
        self._descriptor = -1

    def acquire(self) -> bool:
        """Wait for the lock, and remove half a line at the end, after which Optuna could not read the journal."""
        self._threads.acquire()
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            _cut(self._descriptor)
        except BaseException:
            self.release()
            raise
        return True

    def release(self) -> None:
        """Release the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
        self._threads.release()


def _cut(descriptor: int) -> None:
    """Remove what follows the last end of a line."""
    size = at = os.lseek(descriptor, 0, os.SEEK_END)
    while at:
        begin = max(0, at - _BLOCK)
        found = os.pread(descriptor, at - begin, begin).rfind(b"\n")
        at = begin + found + 1 if found >= 0 else begin
        if found >= 0:
            break
    if at < size:
        os.ftruncate(descriptor, at)


# Optuna studies. No other module imports Optuna: `pip install "splinefm[tune]"`.

Study = optuna.Study
FINGERPRINT, REASON, DIVERGED = "splinefm", "reason", "diverged"
_SQLITE, _JOURNAL = (".db", ".sqlite", ".sqlite3"), (".journal", ".log")
_POLL = 0.2
_ATTEMPTS = 5
_BUSY = 120.0  # seconds to wait for a SQLite file that another process is writing
# Trials are not pruned before this share of their epochs: until then, mostly the learning rate matters.
_PRUNING_WARMUP = 0.2
_DONE = (TrialState.COMPLETE, TrialState.PRUNED)


class OutOfTime(Exception):
    """The search ran out of time."""


# Opening


def make_distributions(space: Mapping[str, Any]) -> dict[str, BaseDistribution]:
    """Return the entries of a search space as Optuna distributions."""
    return {name: _distribution(name, entry) for name, entry in space.items()}


def _distribution(name: str, entry: object) -> BaseDistribution:
    if isinstance(entry, BaseDistribution):
        return entry
    if isinstance(entry, Range):
        return FloatDistribution(entry.low, entry.high, log=True)
    if not isinstance(entry, tuple):
        raise ValueError(
            f"space[{name!r}] must be a list of values, an Optuna distribution such as "
            f"optuna.distributions.FloatDistribution(1e-4, 1e-2, log=True), or None; got {entry!r}"
        )
    for value in entry:
        if not isinstance(value, Value):
            raise ValueError(f"space[{name!r}] has {value!r}; a value must be text, a number, a boolean or None")
    return CategoricalDistribution(entry)


def values_to_check(distribution: BaseDistribution | None) -> Sequence[Any]:
    """Return all choices, or both ends of a range; nothing for what is not searched."""
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
    """Return the storage for an argument: None for memory, the path of a SQLite or journal file, or a database URL."""
    if storage is None or isinstance(storage, BaseStorage):
        return storage
    if not isinstance(storage, str | os.PathLike):
        raise ValueError(f"storage must be a path, a URL or an Optuna storage, got {type(storage).__name__}")
    text = os.fspath(storage)
    if "://" not in text:
        _check_file(Path(text))
    try:
        return _open_address(text) if "://" in text else _open_file(Path(text))
    except OSError:
        raise
    except Exception as error:  # database drivers raise anything
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"cannot open the storage {show_storage(text)}: {cause}; check it, or choose another"
        ) from error


def _check_file(path: Path) -> None:
    if path.suffix not in (*_SQLITE, *_JOURNAL):
        raise ValueError(
            f"storage {str(path)!r} must end in {', '.join(_SQLITE)} (SQLite) or {', '.join(_JOURNAL)} (a journal), "
            "or be a URL such as postgresql://user@host/name"
        )
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"storage {str(path)!r}: there is no folder {str(path.parent)!r}; create it first")


def _open_file(path: Path) -> BaseStorage:
    if path.suffix in _SQLITE:
        return _open_address(f"sqlite:///{path}")
    lock: Any = JournalFileOpenLock(str(path)) if os.name == "nt" else JournalLock(path)
    return JournalStorage(JournalFileBackend(str(path), lock))


def _open_address(address: str) -> BaseStorage:
    """Open a database; try again if another process creates its tables at the same time."""
    options = _sqlite_options(address) if address.startswith("sqlite:") else {}
    for attempt in range(_ATTEMPTS):
        try:
            return RDBStorage(address, engine_kwargs=options)
        except Exception as error:
            words = str(error).lower()
            if not any(word in words for word in ("already exists", "unique", "duplicate")):
                raise
            time.sleep(0.1 * (attempt + 1))
    return RDBStorage(address, engine_kwargs=options)


def _sqlite_options(address: str) -> dict[str, Any]:
    """Wait for other processes, and close connections to a file when they are not in use.

    Optuna never closes them, not even after a storage could not be opened. A database in memory lives as long as its
    connection.
    """
    from sqlalchemy.engine import create_engine  # journals do without it, as does Optuna until then
    from sqlalchemy.pool import NullPool, QueuePool

    is_file = isinstance(create_engine(address).pool, QueuePool)  # connects to nothing yet
    return {"connect_args": {"timeout": _BUSY}, **({"poolclass": NullPool} if is_file else {})}


@contextmanager
def quiet() -> Iterator[None]:
    """Silence Optuna except for warnings."""
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(max(before, optuna.logging.WARNING))
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)


def open_study(storage: BaseStorage | None, name: str, maximize: bool) -> Study:
    """Return a new study, or the one of this name in the storage; raise an error if it is of something else."""
    study = optuna.create_study(
        storage=storage, study_name=name, direction="maximize" if maximize else "minimize", load_if_exists=True
    )
    known = study.user_attrs.get(FINGERPRINT)
    if known is None:
        if study.get_trials(deepcopy=False):
            raise _refused(name, "belongs to another task: sf.tune did not create it")
    elif not (isinstance(known, dict) and known.keys() == {"base", "task"}):
        raise _refused(name, "is one of an earlier version of splinefm, whose trials are not comparable")
    return study


def base_of(study: Study) -> dict[str, Any] | None:
    """Return the description of the setting that the trials of a study start from, if it is known already."""
    known = study.user_attrs.get(FINGERPRINT)
    return None if known is None else known["base"]


def claim_study(study: Study, base: Mapping[str, Any], fingerprint: Mapping[str, str]) -> None:
    """Record the task and the base in a new study; raise an error if a study belongs to another task."""
    known = study.user_attrs.get(FINGERPRINT)
    if known is None:
        study.set_user_attr(FINGERPRINT, {"base": dict(base), "task": dict(fingerprint)})
    elif differs := _difference(known["task"], fingerprint):
        raise _refused(study.study_name, f"belongs to another task: {differs}")


def _refused(name: str, reason: str) -> ValueError:
    return ValueError(f"the study {name!r} {reason}; choose another study_name or storage")


def _difference(known: Mapping[str, str], now: Mapping[str, str]) -> str:
    for name in sorted({*known, *now}, key=lambda name: (name not in now, list(now).index(name) if name in now else 0)):
        if name not in known or name not in now:
            return f"{name} is {'new' if name not in known else 'gone'}"
        if known[name] != now[name]:
            return f"{name} was {known[name]}, now it is {now[name]}"
    return ""


def make_pruner(prune: object, epochs: int) -> BasePruner:
    """Return a median pruner, no pruner, or the pruner of the user."""
    if isinstance(prune, BasePruner):
        return prune
    if not isinstance(prune, bool):
        raise ValueError(f"prune must be True, False or an Optuna pruner, got {prune!r}")
    return (
        MedianPruner(n_startup_trials=5, n_warmup_steps=math.ceil(_PRUNING_WARMUP * epochs)) if prune else NopPruner()
    )


class Sampler(BaseSampler):
    """A TPE sampler that seeds every trial by the seed and the trial number; the first trial is `start`.

    An interrupted study therefore continues as if it had not been, and processes that share a study draw different
    numbers.
    """

    def __init__(self, space: Mapping[str, BaseDistribution], start: Mapping[str, Any], seed: int) -> None:
        self.seed = seed
        self.start = {name: start[name] for name, entry in space.items() if _contains(entry, start.get(name))}
        self.start_space = {name: space[name] for name in self.start}
        self.inner = TPESampler(seed=seed)

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return the parameters that are drawn together."""
        self.inner = TPESampler(seed=int(np.random.SeedSequence([self.seed, trial.number]).generate_state(1)[0]))
        if not count_trials(study, before=trial.number):
            return self.start_space
        return self.inner.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return their values."""
        if search_space is self.start_space:
            return dict(self.start)
        return self.inner.sample_relative(study, trial, search_space)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Return the value of a single parameter."""
        return self.inner.sample_independent(study, trial, param_name, param_distribution)


# Running


def count_trials(study: Study, before: int | None = None) -> int:
    """Count the trials that are finished or running in a live process; `before` this number, if given."""
    trials = study.get_trials(deepcopy=False, states=(*_DONE, TrialState.RUNNING))
    return sum(
        (before is None or trial.number < before) and (trial.state in _DONE or _is_alive(trial)) for trial in trials
    )


def _is_alive(trial: FrozenTrial) -> bool:
    return is_alive(trial.user_attrs, trial.datetime_start)


class StudyRunner:
    """Runs trials of an experiment until the study has enough of them, or until the deadline (`time.monotonic`)."""

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
        self.begun, self.done = time.monotonic(), 0

    def run(self) -> None:
        """Run trials; Ctrl-C ends the search, and propagates only if no trial is complete."""
        try:
            while self._has_trial_left():
                trial = self.study.ask(self.space)
                if count_trials(self.study, before=trial.number) < self.trials:
                    self._run_trial(trial)
                else:
                    self._fail_trial(trial, "another process was faster")
        except OutOfTime:
            self.progress.say("stopped: out of time")
        except KeyboardInterrupt:
            if not self._has_value():
                raise
            self.progress.say("stopped by Ctrl-C; keeping the finished trials")

    def _has_trial_left(self) -> bool:
        """Return whether there is a trial to run.

        If other processes run all missing trials, wait until one is complete. A trial without a known process, or whose
        process was killed before it named itself, is waited for as well.
        """
        while count_trials(self.study) >= self.trials:
            running = [trial for trial in self._trials(TrialState.RUNNING) if _is_alive(trial)]
            known = all(PROCESS in trial.user_attrs for trial in running)
            if known and (self._has_value() or not running):
                return False
            time.sleep(_POLL)
        return self._in_time() or not (self.done or self._has_value())

    def _run_trial(self, trial: Trial) -> None:
        try:
            trial.set_user_attr(PROCESS, this_process())
            result = self.experiment.run(trial.params, lambda epoch: self._report(trial, epoch))
            trial.set_user_attr("best_epoch", result.best_epoch)
            self.study.tell(trial, result.value)
        except optuna.TrialPruned:
            self.study.tell(trial, state=TrialState.PRUNED)
        except Diverged as error:
            # Not a failure: the sampler ignores those.
            trial.set_user_attr(DIVERGED, True)
            trial.set_user_attr(REASON, f"diverged: {error}")
            self.study.tell(trial, state=TrialState.PRUNED)
        except BaseException as error:
            error.add_note(f"in trial {trial.number} with {trial.params}")
            self._fail_trial(trial, type(error).__name__)
            raise
        self.done += 1
        self._report_trial(trial)

    def _report(self, trial: Trial, epoch: Epoch) -> None:
        epochs = int(trial.params.get("epochs", self.experiment.space.start["epochs"]))
        self.progress.begin(f"trial {trial.number}, epoch {min(epoch.epoch + 1, epochs)}/{epochs}")
        value = self.experiment.metric.of_epoch(epoch, self.experiment.chunks.loss)
        if math.isfinite(value):
            trial.report(value, epoch.epoch)
            if epoch.epoch < epochs and trial.should_prune():
                raise optuna.TrialPruned
        if epoch.epoch < epochs and not self._in_time() and self._has_value():
            raise OutOfTime

    def _fail_trial(self, trial: Trial, reason: str) -> None:
        trial.set_user_attr(REASON, reason)
        self.study.tell(trial, state=TrialState.FAIL)

    def _in_time(self) -> bool:
        return time.monotonic() < self.deadline

    def _trials(self, *states: TrialState) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=states)

    def _has_value(self) -> bool:
        return bool(self._trials(TrialState.COMPLETE))

    def _report_trial(self, trial: Trial) -> None:
        """Report a finished trial."""
        summary = summarize_trial(self.study.get_trials(deepcopy=False)[trial.number], self.experiment.metric)
        value = "" if summary.value is None else f"{self.experiment.metric.label} {summary.value:.5g}"
        state = "" if summary.state == "complete" else f"{summary.state} after {summary.epochs} epochs"
        done = count_trials(self.study)
        parts = [f"trial {trial.number} ({done} of {self.trials})", state, value]
        if self._has_value():
            best = self.study.best_trial
            parts.append(f"best {best.value:.5g} (trial {best.number})")
        left = max(0, self.trials - done) * (time.monotonic() - self.begun) / self.done
        seconds = round(max(0.0, min(left, self.deadline - time.monotonic())))
        parts += [f"{summary.seconds:.1f} s", f"{datetime.timedelta(seconds=seconds)} left"]
        self.progress.say("  ".join(part for part in parts if part))


# Summaries


def summarize_trial(trial: FrozenTrial, metric: Any) -> TrialSummary:
    """Return a trial in a form that does not need Optuna."""
    state = {TrialState.COMPLETE: "complete", TrialState.PRUNED: "pruned"}.get(trial.state, "failed")
    state = "diverged" if trial.user_attrs.get(DIVERGED) else state
    reported = list(trial.intermediate_values.values())
    value = trial.value if trial.state == TrialState.COMPLETE else None
    if state == "pruned" and metric.is_loss and reported:
        value = min(reported)
    seconds = 0.0 if trial.duration is None else trial.duration.total_seconds()
    params = tuple(sorted(trial.params.items()))
    return TrialSummary(trial.number, state, value, len(reported), round(seconds, 3), params)


def summarize_study(study: Study, metric: Any) -> StudySummary:
    """Return all finished trials; raise an error if none is complete."""
    trials = [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
    if not any(trial.state == TrialState.COMPLETE for trial in trials):
        why = {str(trial.user_attrs.get(REASON, "pruned")) for trial in trials}
        raise ValueError(
            f"none of {len(trials)} trials is complete ({'; '.join(sorted(why)) or 'none was run'}); "
            "run more trials, or search lower learning rates"
        )
    summaries = [summarize_trial(trial, metric) for trial in trials]
    best = study.best_trial.number
    return StudySummary(study.study_name, metric.label, metric.maximize, best, limited(summaries, metric.maximize))
