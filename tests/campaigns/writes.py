"""Disk full, input/output errors and changed permissions at every operation of everything that writes files.

A library that is loaded before the C library lets one operation fail (`faults.c`): a write, a flush, a rename, a new
file or folder. Afterwards the old state must be there, or the new one if what failed came after it; the error must
name the file and the reason; and nothing may be left behind, except in a folder that cannot be changed any more.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import tempfile
import warnings
from pathlib import Path

import _faults
from _campaign import Campaign, main

HARMS = {
    "full once": (_faults.FAIL_ONCE, errno.ENOSPC),
    "full": (_faults.FAIL_FROM, errno.ENOSPC),
    "i/o error": (_faults.FAIL_ONCE, errno.EIO),
    "permissions": (_faults.REFUSE_FROM, errno.EACCES),
}

KINDS = ("OSError", "PermissionError", "FileNotFoundError")
SQLITE = ("disk I/O error", "database or disk is full", "unable to open database file", "readonly database")


def run(campaign: Campaign) -> None:
    """Let operations fail, at most `campaign.count` for each target and kind of error, else all of them."""
    if "SPLINEFM_FAULTS" not in os.environ:
        campaign.saw("all", "skipped: no C compiler, or not Linux")
        return
    from _targets import fresh, targets

    with tempfile.TemporaryDirectory(prefix="splinefm-writes-") as name:
        for target in (*targets(), *_studies()):
            if not campaign.wants(target.name):
                continue
            folder = fresh(Path(name) / target.name.replace(" ", "-"))
            rescue = fresh(Path(name) / "rescue")  # where `splinefm fit` saves a model that finds its disk full
            target.prepare(folder)
            operations = _count(target, folder)
            new = target.state(folder)
            campaign.figures[f"{target.name}_operations"] = operations
            for harm in HARMS:
                rng = campaign.rng(f"{target.name} {harm}")
                some = rng.permutation(operations)[: campaign.count]
                for at in sorted(some.tolist()):
                    if campaign.is_over:
                        return
                    target.prepare(fresh(folder))
                    _harm(campaign, target, folder, rescue, harm, at, new)


def _count(target, folder):
    _faults.arm(folder)
    target.act(folder)
    found = _faults.count()
    _faults.arm("")
    return found


def _harm(campaign, target, folder, rescue, harm, at, new):
    from _targets import fresh

    what = f"{target.name}, {harm} at operation {at}"
    how, code = HARMS[harm]
    before = target.state(folder)
    kind, message = _act(target, folder, rescue, how, at, code)
    try:
        after = target.state(folder)
    except Exception as error:
        campaign.find(f"{what}: its files cannot be read", error)
        return
    if after not in target.may_become(before, new):
        campaign.find(f"{what}: neither the old nor the new state")
    is_new = after == new
    if kind is None and not is_new:
        campaign.find(f"{what}: no error, but the old state")
    if kind is not None and not (kind in KINDS and _is_clear(folder, message, code)):
        campaign.find(f"{what}: the error is no clear one: {kind}: {message}")
    found = "new" if is_new else "old" if after == before else "told apart"
    outcome = f"{'no error' if kind is None else 'error'}, {found}"
    campaign.saw(f"{target.name}, {harm}", outcome)
    litter = target.litter(folder)
    if is_new:
        litter = set() if target.may_stay is None else litter - target.may_stay
    if litter and (harm != "permissions" or len(litter) > target.most_litter):
        campaign.find(f"{what}: left {sorted(litter)}")
    # The next trial of a study waits for one whose process could not say any more that it has failed.
    if target.litter(folder) or (harm == "permissions" and not target.name.startswith("tune")):
        target.act(folder)
        if target.litter(folder):
            campaign.find(f"{what}: the next run has not removed {sorted(target.litter(folder))}")
    fresh(rescue)


def _is_clear(folder, message, code):
    """The message names the file or its folder, and the reason, in the words of the system or of SQLite."""
    names = {path.name for path in folder.iterdir()} | {folder.name}
    reasons = (os.strerror(code), *SQLITE)
    return any(reason in message for reason in reasons) and any(name in message for name in names)


def _act(target, folder, rescue, how, at, code):
    """Run the target in a child process; return the kind and the message of its error."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.environ["TMPDIR"] = tempfile.tempdir = str(rescue)
            result = None, ""
            warnings.simplefilter("ignore")
            _faults.arm(folder, how, at, code)
            try:
                target.act(folder)
            except BaseException as error:
                result = type(error).__name__, str(error)
            _faults.arm("")
            os.write(writer, json.dumps(result).encode()[:4096])
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        data = file.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return tuple(json.loads(data)) if data else ("died", f"exit code {status}")


def _studies():
    """Yield studies in a journal, where the trials of a search are kept."""
    try:
        import optuna  # noqa: F401
    except ModuleNotFoundError:
        return
    from _targets import Target, rows

    import splinefm as sf
    from splinefm.tuning import studies

    class Study(Target):
        """One more trial; the trials that were finished stay."""

        most_litter = 1

        def __init__(self, suffix):
            self.name, self._file, self._content = f"tune {suffix}", f"study.{suffix}", None

        def _tune(self, folder, trials):
            estimator = sf.SplineFMClassifier(sf.FM(k=2), epochs=1, n_jobs=1)
            path = folder / self._file
            return sf.tune(estimator, rows(60), "click", trials=trials, storage=path, space={"k": None})

        def prepare(self, folder):
            if self._content is None:
                self._tune(folder, 1)
                self._content = (folder / self._file).read_bytes()
            (folder / self._file).write_bytes(self._content)

        def act(self, folder):
            self._tune(folder, 2)

        def state(self, folder):
            with studies.quiet():
                storage = studies.open_storage(folder / self._file)
                (study,) = storage.get_all_studies()
                trials = storage.get_all_trials(study._study_id)
            return [(trial.value, trial.params) for trial in trials if trial.state.name == "COMPLETE"]

    yield Study("journal")
    yield Study("db")


if __name__ == "__main__":
    _faults.preload()
    sys.exit(main("writes", run, short=2, long=10_000))
