"""Kill -9 at random moments of everything that writes files: afterwards the old or the new state, never a third.

A child process is forked for each kill. Half of the kills come at a random time of its whole run, half at a random one
of the operations that change files, where a write gets only half of its bytes to the file. Afterwards the files are
read as a user would. The next run must remove what a killed one has left.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _faults
from _campaign import Campaign, main

SHARES = {"tune": 0.05, "reload": 0.02, "checkpoint": 0.02}
"""Of all kills; the others are shared by the targets of `_targets.py`."""


def run(campaign: Campaign) -> None:
    """Kill `campaign.count` processes."""
    from _targets import targets

    exact = "SPLINEFM_FAULTS" in os.environ
    campaign.figures["exact_moments"] = exact
    with tempfile.TemporaryDirectory(prefix="splinefm-crashes-") as name:
        folder = Path(name)
        chosen = [target for target in targets() if campaign.wants(target.name)]
        shares = {part: share for part, share in SHARES.items() if campaign.wants(part)}
        whole = 1.0 if chosen else sum(shares.values())  # all kills are for parts that are asked for alone
        shares = {part: max(1, round(campaign.count * share / whole)) for part, share in shares.items()}
        left = campaign.count - sum(shares.values())
        for i, target in enumerate(chosen):
            number = left // len(chosen) + (i < left % len(chosen))
            _kill_target(campaign, target, folder / target.name.replace(" ", "-"), number, exact)
        for part, kill_some in (("reload", kill_server), ("checkpoint", kill_ranks), ("tune", kill_tune)):
            if part in shares and not campaign.is_over:
                try:
                    kill_some(campaign, folder / part, shares[part], exact)
                except Exception as error:
                    campaign.find(f"{part}: the campaign could not go on", error)
    killed = [value for name, value in campaign.counts.items() if not name.endswith("finished")]
    campaign.figures["kills"] = sum(killed)


def _kill_target(campaign: Campaign, target: object, folder: Path, number: int, exact: bool) -> None:
    from _targets import Target, fresh

    assert isinstance(target, Target)
    target.prepare(fresh(folder))
    old = target.state(folder)
    seconds, operations = _measure(lambda: target.act(folder), folder, exact)
    new = target.state(folder)
    assert old != new, "a campaign that cannot tell old from new finds nothing"
    if not isinstance(old, int):
        target.prepare(fresh(folder))
    for i in range(number):
        if campaign.is_over:
            return
        rng = campaign.rng(target.name, i)
        what = f"{target.name}, kill {i} of seed {campaign.seed}"
        before = target.state(folder)
        moment = (rng.integers(operations + 1), None) if exact and rng.random() < 0.5 else (None, rng.random())
        code = kill_child(lambda: target.act(folder), folder, moment, seconds)
        if code > 0:
            campaign.find(f"{what}: the process failed with {code}")
        try:
            after = target.state(folder)
        except Exception as error:
            campaign.find(f"{what}: its files cannot be read", error)
            target.prepare(fresh(folder))
            continue
        if after not in target.may_become(before, new):
            campaign.find(f"{what}: neither the old nor the new state")
        outcome = "finished" if code == 0 else "old" if after == before else "new"
        campaign.saw(target.name, "told apart" if isinstance(after, tuple) and "told apart" in after else outcome)
        litter = target.litter(folder)
        if len(litter) > target.most_litter:
            campaign.find(f"{what}: left {sorted(litter)}")
        if rng.random() < 0.4:
            target.act(folder)
            if target.litter(folder):
                campaign.find(f"{what}: the next run has not removed {sorted(target.litter(folder))}")
        if not isinstance(old, int) and target.state(folder) != old:
            target.prepare(folder)


def _measure(act: Callable[[], None], folder: Path, exact: bool) -> tuple[float, int]:
    """Return the time and the number of operations of a run without harm."""
    if exact:
        _faults.arm(folder)
    begin = time.monotonic()
    act()
    seconds = time.monotonic() - begin
    operations = _faults.count() if exact else 0
    if exact:
        _faults.arm("")
    return seconds, operations


def kill_child(
    act: Callable[[], None], folder: Path, moment: tuple[int | None, float | None], seconds: float, patience: float = 60
) -> int:
    """Run a function in a child process, and kill it; return its exit code, or -9.

    `moment` is the number of an operation, or a share of the time that the function takes.
    """
    operation, share = moment
    begin = time.monotonic()
    child = os.fork()
    if not child:
        code = 1
        try:
            if operation is not None:
                _faults.arm(folder, _faults.DIE, int(operation))
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            warnings.simplefilter("ignore")
            act()
            code = 0
        finally:
            os._exit(code)
    end = begin + (patience if share is None else 1.2 * share * seconds + 0.002)
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(min(0.002, max(0.0, end - time.monotonic())))
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# Studies: every trial that was finished stays as it was, and the study can go on


def kill_tune(campaign: Campaign, folder: Path, number: int, exact: bool) -> None:
    """Kill processes that tune."""
    try:
        import optuna
    except ModuleNotFoundError:
        campaign.saw("tune", "skipped: no optuna")
        return
    from _targets import fresh, rows

    import splinefm as sf
    from splinefm.tuning import studies

    table, trials = rows(60), 4
    estimator = sf.SplineFMClassifier(sf.FM(k=2), epochs=1, n_jobs=1)

    def tune(path: Path) -> object:
        return sf.tune(estimator, table, "click", trials=trials, storage=path, space={"k": None})

    def finished(path: Path) -> dict[int, object]:
        if not path.exists():
            return {}
        with studies.quiet():
            storage = studies.open_storage(path)
            names = [study.study_name for study in storage.get_all_studies()] if storage is not None else []
            found = [trial for name in names for trial in optuna.load_study(study_name=name, storage=storage).trials]
        return {trial.number: (trial.state, trial.value, trial.params) for trial in found if trial.state.is_finished()}

    lengths: dict[Path, tuple[float, int]] = {}
    fresh(folder)
    for i in range(number):
        if campaign.is_over:
            return
        rng = campaign.rng("tune", i)
        path = folder / ("study.journal" if i % 2 else "study.db")
        if path not in lengths:
            lengths[path] = _measure(lambda: tune(path), folder, exact)  # noqa: B023
            path.unlink()
            found = {"seconds": round(lengths[path][0], 2), "operations": lengths[path][1]}
            campaign.figures[f"tune_{path.suffix[1:]}"] = found
        seconds, operations = lengths[path]
        what = f"tune, kill {i} of seed {campaign.seed}"
        try:
            before = finished(path)
            if sum(1 for state, *_ in before.values() if state.name in ("COMPLETE", "PRUNED")) >= trials:
                fresh(folder)
                before = {}
            moment = (rng.integers(operations + 1), None) if exact and rng.random() < 0.5 else (None, rng.random())
            code = kill_child(lambda: tune(path), folder, moment, seconds)  # noqa: B023
            after = finished(path)
        except Exception as error:
            campaign.find(f"{what}: the study cannot be read", error)
            fresh(folder)
            continue
        if code > 0:
            campaign.find(f"{what}: the process failed with {code}")
        if any(after.get(key) != value for key, value in before.items()):
            campaign.find(f"{what}: a finished trial has changed")
        campaign.saw("tune", "finished" if code == 0 else "new trials" if len(after) > len(before) else "old")
        if i % 5 == 4:
            tuned = tune(path)
            done = [state for state in tuned.history["state"] if state in ("complete", "pruned")]  # type: ignore[attr-defined]
            if len(done) < trials:
                campaign.find(f"{what}: the study cannot go on")
            others = {entry.name for entry in folder.iterdir() if entry.name.startswith(path.name)} - {path.name}
            if others:
                campaign.find(f"{what}: the next run has not removed {sorted(others)}")


# Servers: the workers end, and the next server removes the folder of the one that was killed


def kill_server(campaign: Campaign, folder: Path, number: int, exact: bool) -> None:
    """Kill servers while they load a new file."""
    try:
        import uvicorn  # noqa: F401
    except ModuleNotFoundError:
        campaign.saw("reload", "skipped: no uvicorn")
        return
    import numpy as np
    from _targets import NEW, OLD, fresh
    from _warm import WarmServer

    import live

    live.PATIENCE = 900.0  # campaigns give way to everything else
    fresh(folder / "tmp")
    rows = [{"price": 0.3, "city": "Rome", "item": "i1"}]
    expected = [np.asarray(model.scorer().many(rows), np.float32).tolist() for model in (OLD, NEW)]
    seconds: float | None = None
    before, tempfile.tempdir = tempfile.tempdir, str(folder / "tmp")
    os.environ["TMPDIR"] = str(folder / "tmp")
    try:
        OLD.save(folder / "m.sfm")
        for i in range(number):
            if campaign.is_over:
                return
            what = f"reload, kill {i} of seed {campaign.seed}"
            # Every tenth is the real thing; the others need no time to start.
            start = live.LiveServer if i % 10 == 0 else WarmServer
            server = start(folder / "m.sfm", "--workers", 2, "--admin-from-loopback")
            workers = server.workers()
            left = {path.name for path in (folder / "tmp").iterdir()}
            if len(left) != 1:
                campaign.find(f"{what}: temporary folders of servers that are gone: {sorted(left)}")
            found = server.score({"rows": rows}).json["scores"]
            if found != expected[i % 2]:
                campaign.find(f"{what}: {found} instead of {expected[i % 2]} after a new start")
            (NEW, OLD)[i % 2].save(folder / "m.sfm")
            if seconds is None:
                begin = time.monotonic()
                server.ask("POST", "/v1/reload", {})
                seconds = time.monotonic() - begin
                OLD.save(folder / "m.sfm")
                server.ask("POST", "/v1/reload", {})
                NEW.save(folder / "m.sfm")
            loaded = _kill_in_reload(server, 1.2 * seconds * campaign.rng("reload", i).random())
            end = time.monotonic() + 30
            while any(map(_is_alive, workers)) and time.monotonic() < end:
                time.sleep(0.05)
            if any(map(_is_alive, workers)):
                campaign.find(f"{what}: workers outlive the supervisor")
            campaign.saw("reload", f"{'after' if loaded else 'before'} the answer, new start serves the file")
        campaign.figures["reload_seconds"] = seconds
    finally:
        tempfile.tempdir = before
        del os.environ["TMPDIR"]


def _kill_in_reload(server: Any, seconds: float) -> bool:
    """Have a server load a new file and kill it after some time; return whether it had answered before."""
    answers: list[object] = []
    asking = threading.Thread(target=_ask_quietly, args=(server, answers))
    asking.start()
    time.sleep(seconds)
    loaded = bool(answers)
    server.process.kill()
    server.process.wait()
    asking.join()
    server.stop()
    return loaded


def _ask_quietly(server: Any, answers: list[object]) -> None:
    try:
        answers.append(server.ask("POST", "/v1/reload", {}))
    except OSError:
        pass  # it is being killed
    except Exception as error:  # http.client has errors of its own
        if "Disconnected" not in type(error).__name__ and "Incomplete" not in type(error).__name__:
            raise


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# Checkpoints: a run that is killed and continued again and again ends with the model of one that was not


def kill_ranks(campaign: Campaign, folder: Path, number: int, exact: bool) -> None:
    """Kill runs that write a checkpoint after every step."""
    try:
        import torchrec  # noqa: F401
    except ModuleNotFoundError:
        campaign.saw("checkpoint", "skipped: no torchrec")
        return
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq
    import torch
    from _targets import SCHEMA, TABLE, fresh, rows

    import splinefm as sf
    from splinefm.distribute.fit import DistributedFit, JobSettings, fit_on_processes
    from splinefm.distribute.processes import run_together

    fresh(folder)
    pq.write_table(pa.table(rows(400)), folder / "rows.parquet")
    training = sf.Training(epochs=2, batch_size=64, learning_rate=0.03, seed=3, threads=1)
    request = DistributedFit(str(folder / "rows.parquet"), "click", SCHEMA, sf.FM(k=2), sf.Loss(), training=training)

    def fit(out: str) -> None:
        torch.set_num_threads(1)
        settings = JobSettings(folder / out, checkpoints=folder / "steps", minutes=0.0, resume=True)
        run_together(lambda processes: fit_on_processes(request, settings, processes) and None, 60.0)

    begin = time.monotonic()
    code = kill_child(lambda: fit("whole.sfm"), folder, (None, 1e6), 1.0)
    seconds = time.monotonic() - begin
    if code:
        campaign.find(f"checkpoint: a run without harm ended with {code}")
        return
    whole = np.asarray(sf.load(folder / "whole.sfm").scores(TABLE))
    fresh(folder / "steps")
    for i in range(number):
        if campaign.is_over:
            return
        rng = campaign.rng("checkpoint", i)
        what = f"checkpoint, kill {i} of seed {campaign.seed}"
        moment = (rng.integers(1, 200), None) if exact and rng.random() < 0.6 else (None, rng.random())
        code = kill_child(lambda: fit("m.sfm"), folder / "steps", moment, seconds)
        if code > 0:
            campaign.find(f"{what}: the process failed with {code}")
            fresh(folder / "steps")
        campaign.saw("checkpoint", "finished" if code == 0 else "killed")
        if code == 0 or i % 4 == 3 or i == number - 1:
            if kill_child(lambda: fit("m.sfm"), folder, (None, 1e6), 1.0):
                campaign.find(f"{what}: the run cannot be continued")
            elif not np.array_equal(np.asarray(sf.load(folder / "m.sfm").scores(TABLE)), whole):
                campaign.find(f"{what}: the continued run has another model")
            litter = [path.name for path in (folder / "steps").glob(".part-*")]
            if litter:
                campaign.find(f"{what}: left {litter}")
            fresh(folder / "steps")


if __name__ == "__main__":
    _faults.preload()
    sys.exit(main("crashes", run, short=40, long=1000))
