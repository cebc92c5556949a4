"""Studies that are kept: going on, sharing between processes, not mixing tasks."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import replace

import numpy as np
import optuna
import pytest
from optuna.trial import TrialState

import splinefm as sf
from splinefm.encode.schema import Provenance
from splinefm.search.crosses import with_cross, with_names
from splinefm.search.setting import Setting
from splinefm.tuning import studies, trials
from splinefm.tuning import studies as processes
from splinefm.tuning.trials import StartingPoint

KEEP_K = {"k": None}
ROWS = np.random.default_rng(0).normal(size=200)
TABLE = {"x": ROWS, "y": np.sin(2 * ROWS)}


def tune(storage, number, estimator=None, table=TABLE, **settings):
    estimator = estimator or sf.SplineFMRegressor(sf.FM(k=2), epochs=2, n_jobs=1)
    return sf.tune(estimator, table, "y", trials=number, storage=storage, **{"space": KEEP_K, **settings})


def without_times(tuned):
    return {name: column for name, column in tuned.history.items() if name != "seconds"}


def open_study(storage, name="y-FM"):
    with studies.quiet():
        return optuna.load_study(study_name=name, storage=studies.open_storage(storage))


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["study.db", "study.journal"])
def test_a_study_goes_on_as_if_it_had_not_been_interrupted(tmp_path, name):
    storage = tmp_path / name
    tune(storage, 2)
    assert storage.stat().st_size > 0
    tuned = tune(storage, 4)
    assert without_times(tuned) == without_times(tune(None, 4))
    again = tune(str(storage), 3)  # there are more already
    assert without_times(again) == without_times(tuned) and again.value == tuned.value
    assert np.array_equal(again.estimator.predict(TABLE), tuned.estimator.predict(TABLE))


def test_twelve_trials_in_two_goes_are_those_of_one(tmp_path):
    """The sampler learns from the trials before, from the eleventh on."""
    tune(tmp_path / "study.journal", 11)
    whole = without_times(tune(None, 12))
    assert without_times(tune(tmp_path / "study.journal", 12)) == whole
    assert len(set(whole["learning_rate"])) == 12


@pytest.mark.thorough  # SQLAlchemy makes its tables in a second; journals are the default
def test_addresses_of_databases(tmp_path):
    first = tune(f"sqlite:///{tmp_path}/study.db", 1)
    assert without_times(tune(tmp_path / "study.db", 1)) == without_times(first)


class TestConnections:
    """Python 3.13 warns of connections to SQLite that were not closed."""

    @pytest.fixture
    def opened(self, monkeypatch):
        connect, opened = sqlite3.dbapi2.connect, []
        monkeypatch.setattr(sqlite3.dbapi2, "connect", lambda *a, **b: opened.append(connect(*a, **b)) or opened[-1])
        return opened

    def assert_closed(self, opened):
        assert opened
        for connection in opened:
            with pytest.raises(sqlite3.ProgrammingError, match="closed database"):
                connection.total_changes  # noqa: B018

    def test_are_closed_if_the_file_is_something_else(self, tmp_path, opened):
        (tmp_path / "study.db").write_text("price,country\n1.5,US\n" * 100)
        with pytest.raises(ValueError, match="cannot open the storage"):
            tune(tmp_path / "study.db", 1)
        self.assert_closed(opened)

    @pytest.mark.thorough  # SQLAlchemy makes its tables in a second
    def test_are_closed_after_the_search(self, tmp_path, opened):
        tuned = tune(tmp_path / "study.db", 1)
        self.assert_closed(opened)
        assert len(tuned.study.trials) == 1
        self.assert_closed(opened)

    @pytest.mark.thorough
    def test_to_memory_stay_open(self):
        assert tune("sqlite://", 2).history["state"] == ["complete", "complete"]


def test_storages_of_optuna():
    memory = optuna.storages.InMemoryStorage()
    tune(memory, 1)
    assert len(tune(memory, 2).history["number"]) == 2


def test_a_storage_holds_several_studies(tmp_path):
    storage = tmp_path / "study.log"
    tune(storage, 1)
    tune(storage, 1, study_name="other", metric="mae")
    with studies.quiet():
        assert set(optuna.get_all_study_names(studies.open_storage(storage))) == {"y-FM", "other"}


def test_ctrl_c_keeps_the_storage_sound(tmp_path, monkeypatch):
    run, calls = trials.Experiment.run, []

    def pressed(self, *args):
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return run(self, *args)

    monkeypatch.setattr(trials.Experiment, "run", pressed)
    assert tune(tmp_path / "study.journal", 3).history["state"] == ["complete", "failed"]
    assert tune(tmp_path / "study.journal", 3).history["state"] == ["complete", "failed", "complete", "complete"]


class TestOtherTasks:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            ({"estimator": sf.SplineFMRegressor(sf.FM(k=2), epochs=3, n_jobs=1)}, "epochs was 2, now it is 3"),
            ({"estimator": sf.SplineFMRegressor(sf.FM(k=2), epochs=2, random_state=1)}, "validation rows was|seed was"),
            ({"estimator": sf.SplineFMRegressor(sf.FM(k=2), epochs=2, effort="fast")}, "effort was default, now it is"),
            ({"estimator": sf.SplineFMRegressor(sf.FM(k=2), epochs=2, l2=1e-5)}, "l2 was .*, now it is 1e-05"),
            ({"table": {"x": ROWS[:150], "y": TABLE["y"][:150]}}, "rows was 200, now it is 150"),
            ({"table": {"x": ROWS, "y": 1.0 + TABLE["y"]}}, "targets? .*was"),
            ({"table": {**TABLE, "z": ROWS}}, "field 'z' is new"),
            ({"metric": "mae"}, "metric was RMSE, now it is mae"),
            ({"validation": 0.3}, "validation rows was"),
            ({"space": {**KEEP_K, "degree": [1, 2]}}, "space of degree was"),
            ({"space": {**KEEP_K, "degree": None}}, "space of degree is gone"),
        ],
    )
    def test_are_refused_by_what_differs(self, tmp_path, change, message):
        tune(tmp_path / "study.journal", 1)
        with pytest.raises(ValueError, match=message) as caught:
            tune(tmp_path / "study.journal", 2, **change)
        assert "the study 'y-FM' belongs to another task" in str(caught.value) and "study_name" in str(caught.value)
        assert len(open_study(tmp_path / "study.journal").trials) == 1

    def test_a_study_of_something_else_is_refused(self, tmp_path):
        with studies.quiet():
            study = optuna.create_study(study_name="y-FM", storage=studies.open_storage(tmp_path / "s.journal"))
            study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=1)
        with pytest.raises(ValueError, match=r"sf\.tune did not create it"):
            tune(tmp_path / "s.journal", 2)

    def test_a_study_of_an_earlier_version_is_refused(self, tmp_path):
        tune(tmp_path / "s.journal", 1)
        study = open_study(tmp_path / "s.journal")
        study.set_user_attr("splinefm", study.user_attrs["splinefm"]["task"])  # all that it had
        with pytest.raises(ValueError, match=r"earlier version of splinefm.*choose another study_name or storage"):
            tune(tmp_path / "s.journal", 2)


class TestStartingPoint:
    """A study keeps the setting that its trials start from."""

    SCHEMA = sf.Schema(
        [sf.Numerical("x"), sf.Numerical("z"), sf.Categorical("c"), sf.Numerical("w", basis=sf.Bins(edges=[0.0, 1.0]))],
        dict.fromkeys("xzc", Provenance("inferred")),
    )
    GIVEN = Setting(SCHEMA, sf.FM(k=4), sf.Training(threads=3))

    def again(self, base):
        return StartingPoint.restore(json.loads(json.dumps(base.describe(self.SCHEMA))), self.GIVEN)

    def test_comes_back_as_it_was(self):
        found = self.GIVEN.with_basis(sf.MultiResolution((4, 64), 2)).with_model(sf.HigherOrderFM(48, 4))
        schema = with_names(with_cross(found.schema, sf.Cross("x", "z"), 0.1), "c", 0.2)
        names = sf.Cross(sf.Categorical("x"), "c", name="x × c (values)", min_count=2)
        training = sf.Training(l2={"x": 1e-3, "c": 0.5}, smoothness=0.0, epochs=60, seed=3, threads=3)
        setting = Setting(with_cross(schema, names, 0.3), found.model, training)
        base = self.again(StartingPoint(setting, 4))
        assert base == StartingPoint(setting, 4) and base.setting.schema["c"].min_count == 2
        assert base.setting.schema.reasons["x × z"].startswith("found: explains 10.0%")
        for kept in (self.GIVEN, self.GIVEN.with_columns(["c", "w"])):
            assert self.again(StartingPoint(kept)) == StartingPoint(kept, 1)

    def test_runs_on_this_machine(self):
        other = replace(self.GIVEN, training=sf.Training(threads=64, engine="torch", device="cuda", time_limit=9.0))
        assert self.again(StartingPoint(other)).setting.training == self.GIVEN.training

    def test_is_not_searched_again(self, tmp_path, monkeypatch):
        tune(tmp_path / "s.journal", 1)
        monkeypatch.setattr(trials.Experiment, "find_base", lambda *args: 1 / 0)
        assert len(tune(tmp_path / "s.journal", 3).history["number"]) == 3

    def test_of_a_faster_process_is_taken(self, tmp_path, monkeypatch):
        """What a search finds within a limit of time differs between machines."""
        find = trials.Experiment.find_base

        def late(experiment, deadline):
            with monkeypatch.context() as patch:
                patch.setattr(trials.Experiment, "find_base", lambda self, deadline: theirs(find(self, deadline)))
                tune(tmp_path / "s.journal", 1)
            return find(experiment, deadline)

        def theirs(base):
            return base._replace(setting=base.setting.with_penalties(3e-3, None))

        monkeypatch.setattr(trials.Experiment, "find_base", late)
        tuned = tune(tmp_path / "s.journal", 2)
        assert tuned.history["l2"][0] == 3e-3 and len(tuned.history["l2"]) == 2


class TestOthersAtWork:
    def begin_trial(self, storage, **process):
        """A running trial of another process."""
        study = open_study(storage)
        trial = study.ask()
        if process:
            trial.set_user_attr("process", [process["host"], process["pid"]])
        return trial

    @pytest.mark.skipif(os.name != "posix", reason="other systems cannot be asked")
    def test_what_a_killed_process_left_behind_blocks_nothing(self, tmp_path):
        storage = tmp_path / "study.journal"
        tune(storage, 1)
        dead = subprocess.Popen([sys.executable, "-c", ""])
        dead.wait()
        self.begin_trial(storage, host=socket.gethostname(), pid=dead.pid)
        assert tune(storage, 2).history["state"] == ["complete", "complete"]

    def test_a_trial_that_another_process_runs_counts(self, tmp_path):
        storage = tmp_path / "study.journal"
        tune(storage, 1)
        for process in ({"host": socket.gethostname(), "pid": os.getpid()}, {"host": "elsewhere", "pid": 1}):
            self.begin_trial(storage, **process)
        assert tune(storage, 3).history["state"] == ["complete"]
        assert tune(storage, 4).history["state"] == ["complete", "complete"]

    def test_a_trial_that_does_not_say_whose_it_is_counts_for_a_moment(self, tmp_path, monkeypatch):
        storage = tmp_path / "study.journal"
        tune(storage, 1)
        self.begin_trial(storage)
        assert studies.count_trials(open_study(storage)) == 2
        monkeypatch.setattr(processes, "_ALIVE_UNKNOWN", 0.0)  # the moment is over
        assert tune(storage, 2).history["state"] == ["complete", "complete"]

    def test_who_has_nothing_left_to_do_waits_for_a_value(self, tmp_path, monkeypatch):
        storage = tmp_path / "study.journal"
        tune(storage, 1)
        known, name = open_study(storage).user_attrs["splinefm"], "later"
        with studies.quiet():
            later = studies.open_study(studies.open_storage(storage), name, False)
        studies.claim_study(later, known["base"], known["task"])
        trial = later.ask()
        trial.set_user_attr("process", [socket.gethostname(), os.getpid()])
        slept = []

        def finish(seconds):
            slept.append(seconds)
            later.tell(trial, 0.25)

        monkeypatch.setattr(studies.time, "sleep", finish)
        tuned = tune(storage, 1, study_name=name)
        assert len(slept) == 1 and tuned.value == 0.25 and tuned.params == {}

    def test_after_a_while_other_machines_count_no_more(self, tmp_path, monkeypatch):
        storage = tmp_path / "study.journal"
        tune(storage, 1)
        self.begin_trial(storage, host="elsewhere", pid=1)
        monkeypatch.setattr(processes, "_ALIVE_ELSEWHERE", 0.0)
        assert tune(storage, 2).history["state"] == ["complete", "complete"]

    def test_the_settings_of_the_estimator_are_tried_even_if_the_first_trial_died(self, tmp_path, monkeypatch):
        run = trials.Experiment.run
        monkeypatch.setattr(trials.Experiment, "run", lambda self, *args: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            tune(tmp_path / "study.journal", 2)
        monkeypatch.setattr(trials.Experiment, "run", run)
        tuned = tune(tmp_path / "study.journal", 2)
        assert tuned.history["state"] == ["failed", "complete", "complete"]
        assert tuned.history["value"][1] == tune(None, 1).value

    def test_a_trial_too_many_is_given_back(self, tmp_path, monkeypatch):
        """Two processes that both saw one trial missing, at the same time."""
        storage = tmp_path / "study.journal"
        tune(storage, 1)
        count, seen = studies.count_trials, []

        def late(study, before=None):
            if before is None and not seen:
                seen.append(1)
                number = count(study)
                self.begin_trial(storage, host=socket.gethostname(), pid=os.getpid())
                return number
            return count(study, before)

        monkeypatch.setattr(studies, "count_trials", late)
        tuned = tune(storage, 2)
        assert tuned.history["state"] == ["complete", "failed"]
        assert tuned.study.trials[2].user_attrs["reason"] == "another process was faster"

    @pytest.mark.thorough  # a process that imports optuna; the tests around it have studies with two writers in one
    def test_two_processes_share_a_study(self, tmp_path, monkeypatch, capsys):
        code = """
            import numpy as np
            import splinefm as sf
            x = np.random.default_rng(0).normal(size=200)
            estimator = sf.SplineFMRegressor(sf.FM(k=2), epochs=2, n_jobs=1)
            table = {"x": x, "y": np.sin(2 * x)}
            for name in ("study.journal", "study.db"):
                print(sf.tune(estimator, table, "y", trials=4, storage=name, space={"k": None}).value)
        """
        monkeypatch.chdir(tmp_path)
        command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as other:
            # The second process is this one, which has loaded everything already: it waits until the other begins.
            while not (tmp_path / "study.journal").exists() and other.poll() is None:
                time.sleep(0.01)
            exec(textwrap.dedent(code), {})
            results = [other.communicate(timeout=120), tuple(capsys.readouterr())]
        assert other.returncode == 0 and all(not errors for _, errors in results), results
        for name, *values in zip(("study.journal", "study.db"), *(out.split() for out, _ in results), strict=True):
            done = [trial for trial in open_study(tmp_path / name).trials if trial.state != TrialState.FAIL]
            assert len(done) == 4 and {trial.state for trial in done} <= {TrialState.COMPLETE, TrialState.PRUNED}
            assert len({trial.params["learning_rate"] for trial in done}) == 4
            # Who is done first may not know the last trial of the other.
            assert min(map(float, values)) == min(t.value for t in done if t.state == TrialState.COMPLETE)


class TestRefusals:
    @pytest.mark.parametrize(
        ("storage", "kind", "message"),
        [
            ("study.txt", ValueError, r"'study.txt' must end in .db, .sqlite, .sqlite3 \(SQLite\) or .journal, .log"),
            ("study", ValueError, "must end in"),
            ("nowhere/study.db", FileNotFoundError, "no folder 'nowhere'; create it first"),
            ("nowhere/study.journal", FileNotFoundError, "no folder 'nowhere'"),
            ("nosuchdb://me:secret@host/name", ValueError, r"cannot open the storage 'nosuchdb://me:\*\*\*@host/name'"),
            (3, ValueError, "storage must be a path, a URL or an Optuna storage, got int"),
        ],
    )
    def test_storages_that_cannot_be(self, storage, kind, message, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(kind, match=message):
            tune(storage, 1)

    @pytest.mark.parametrize("name", ["study.db", "study.journal"])
    def test_a_file_that_is_something_else(self, name, tmp_path):
        path = tmp_path / name
        path.write_text("price,country\n1.5,US\n" * 100)
        with pytest.raises(ValueError, match="cannot open the storage"):
            tune(path, 1)
        assert path.read_text().startswith("price,country")


class TestJournal:
    """A process that is killed while it writes must not stop the others."""

    def test_a_lock_ends_with_its_process(self, tmp_path):
        code = f"""
            import os, signal
            from pathlib import Path
            from splinefm.tuning.studies import JournalLock
            JournalLock(Path({str(tmp_path / "study.journal")!r})).acquire()
            os.kill(os.getpid(), signal.SIGKILL)
        """
        assert subprocess.run([sys.executable, "-c", textwrap.dedent(code)]).returncode == -9
        assert [path.name for path in tmp_path.iterdir()] == ["study.journal"]
        lock = processes.JournalLock(tmp_path / "study.journal")
        assert lock.acquire()
        lock.release()

    @pytest.mark.parametrize("half", [b'{"op_code": 4', b"x" * 200_000], ids=["short", "long"])
    def test_half_a_line_is_removed(self, tmp_path, half):
        path = tmp_path / "study.journal"
        tune(path, 1)
        before = path.read_bytes()
        with path.open("ab") as file:
            file.write(half)
        tuned = tune(path, 2)
        assert tuned.history["state"] == ["complete", "complete"] and path.read_bytes().startswith(before)

    def test_threads_wait_for_each_other(self, tmp_path):
        lock, order = processes.JournalLock(tmp_path / "study.journal"), []

        def work():
            lock.acquire()
            order.append("in")
            time.sleep(0.01)
            order.append("out")
            lock.release()

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert order == ["in", "out"] * 4

    def test_a_full_disk_is_told_with_the_name_of_the_study(self, tmp_path, monkeypatch):
        tune(tmp_path / "study.journal", 1)

        def fail(descriptor):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match=r"cannot write the study to '.*study\.journal': No space left on device"):
            tune(tmp_path / "study.journal", 2)
        monkeypatch.undo()
        assert open_study(tmp_path / "study.journal").trials[0].state == TrialState.COMPLETE
