"""Outcomes that were acknowledged are on the disk."""

import errno
import os
import signal
import threading
import time
from contextlib import closing

import numpy as np
import pytest

from live import JSON, Answer, LiveServer, visits_model
from splinefm.serve import feedback
from splinefm.serve.feedback import FeedbackLog, read_log, training_rows


def test_acknowledged_outcomes_survive_a_kill(tmp_path):
    visits_model().save(tmp_path / "m.sfm")
    server = LiveServer(tmp_path / "m.sfm", "--log", tmp_path / "log")
    (worker,) = server.workers()
    with closing(server.connect()) as client:
        for i in range(40):
            body = b'{"outcomes": [{"id": "r%d", "row": 0, "outcome": 1}]}' % i
            client.request("POST", "/v1/feedback", body, JSON)
            assert Answer(client.getresponse()).status == 202
        os.kill(worker, signal.SIGKILL)
    server.process.kill()
    server.stop()
    assert {line["id"] for line in read_log(tmp_path / "log")} == {f"r{i}" for i in range(40)}


def test_rows_and_outcomes_of_a_log_are_joined(tmp_path):
    first, second = FeedbackLog(tmp_path, 0), FeedbackLog(tmp_path, 1)
    rows = [{"x": 1.0, "c": "u"}, {"x": None, "c": "v"}]
    second.outcome("r", 1, 0.0)  # before the row, as the files are read
    first.scored("r", ["a", "b"], np.array([0.1, 0.2]), None, rows, versions={"a": "1", "b": "2"})
    first.scored("r", ["s"], np.array([0.9, 0.9]), None, rows, shadow=True)
    first.outcome("r", 1, 1.0)
    second.scored("k", ["a"], np.array([0.3, 0.4]), None, None, items=[7, 9], context={"c": "u"}, versions={"a": "1"})
    second.outcome("k", 1, 1.0)
    second.outcome("gone", 0, 1.0)
    for log in (first, second):
        log.close()
    found = training_rows(tmp_path, "click", item="ad", details=True).to_pylist()
    assert [row["click"] for row in found] == [1.0, 1.0]
    assert (found[0]["c"], found[0]["_arm"], found[0]["_version"], found[0]["_prediction"]) == ("v", "b", "2", 0.2)
    assert (found[1]["c"], found[1]["ad"], found[1]["position"], found[1]["_row"]) == ("u", 9, 1, 1)
    every = training_rows(tmp_path, "click", no_outcome="zero")
    assert every.num_rows == 4 and sum(every["click"].to_pylist()) == 2.0
    assert training_rows(tmp_path, arm="b").num_rows == 1 and training_rows(tmp_path, until=1.0).num_rows == 0
    plain = FeedbackLog(tmp_path / "plain", 0)
    plain.scored("r", ["a"], np.array([0.1]), None, None)
    plain.close()
    with pytest.raises(ValueError, match="--log-rows"):
        training_rows(tmp_path / "plain")


def test_an_interval_of_outcomes_has_late_ones_and_the_last_of_repeated_ones(tmp_path, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(feedback.time, "time", lambda: clock[0])
    log = FeedbackLog(tmp_path, 0)

    def at(seconds, write, *arguments):
        clock[0] = seconds
        write(*arguments)

    def clicks(begin, end, **options):
        options |= {"outcomes_since": begin, "outcomes_until": end}
        found = training_rows(tmp_path, "click", **options)
        return [] if not found.num_rows else [*zip(found["x"].to_pylist(), found["click"].to_pylist(), strict=True)]

    at(100.0, log.scored, "r", ["a"], np.array([0.1, 0.2]), None, [{"x": 1.0}, {"x": float("nan")}])
    at(200.0, log.outcome, "r", 0, 0.0)
    at(300.0, log.outcome, "r", 0, 1.0)  # repeated
    at(4000.0, log.scored, "s", ["a"], np.array([0.3]), None, [{"x": 3.0}])
    at(4100.0, log.outcome, "s", 0, 1.0)
    at(4200.0, log.outcome, "r", 0, 0.5)  # an hour late, and again
    log.close()
    assert clicks(0.0, 250.0) == [(1.0, 0.0)] and clicks(0.0, 1000.0) == [(1.0, 1.0)]
    assert clicks(1000.0, 5000.0) == [(1.0, 0.5), (3.0, 1.0)] and clicks(1000.0, 5000.0, since=3700.0) == [(3.0, 1.0)]
    assert clicks(5000.0, None) == [] and clicks(None, 250.0) == [(1.0, 0.0)]
    assert training_rows(tmp_path, no_outcome="zero").num_rows == 3
    with pytest.raises(ValueError, match="no interval of outcomes"):
        clicks(0.0, 1.0, no_outcome="zero")


def test_ids_are_known_to_all_workers_and_after_a_restart(tmp_path, monkeypatch):
    first, second = FeedbackLog(tmp_path, 0), FeedbackLog(tmp_path, 1)
    names = [f"request-{i}" for i in range(2000)]
    for name in names:
        first.scored(name, ["a"], np.array([0.5]), None, None)
    first.close()
    assert second.n_unknown(names) == 0
    assert 990 <= second.n_unknown([f"other-{i}" for i in range(1000)]) <= 1000
    assert FeedbackLog(tmp_path, 0).n_unknown([*names, "x", "x"]) == 2
    later = time.time() + 8 * 86400
    monkeypatch.setattr(feedback.time, "time", lambda: later)
    assert second.n_unknown(names[:3]) == 3


def test_without_a_disk_no_id_is_called_unknown(tmp_path, monkeypatch):
    log = FeedbackLog(tmp_path, 0)

    def full(*_):
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    log.scored("r", ["a"], np.array([0.5]), None, None)
    assert log.n_unknown(["r", "s"]) is None
    log.close()


def test_requests_share_an_fsync(tmp_path):
    """Those that come while the disk works wait for the next turn, all together."""
    syncs, done = [], []
    begun, go_on, finished = threading.Event(), threading.Event(), threading.Event()

    def sync():
        syncs.append(len(done))
        begun.set()
        assert go_on.wait(60)

    commit = feedback.GroupCommit(sync, max_delay=0.0)
    commit.submit(done.append)
    assert begun.wait(60)
    for _ in range(50):
        commit.submit(done.append)
    commit.submit(lambda error: finished.set())
    assert not done
    go_on.set()
    assert finished.wait(60)
    commit.close()
    assert syncs == [0, 1] and done == [None] * 51


def test_an_error_of_the_disk_is_no_acknowledgment(tmp_path, monkeypatch):
    found = []
    log = FeedbackLog(tmp_path, 0)
    log.outcome("r", 0, 1.0)

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(feedback.os, "fsync", fail)
        with pytest.raises(OSError, match="No space"):
            log.sync()
        log.commit(found.append)
        log._group.close()
    assert [error.errno for error in found] == [28]
    log.sync()  # the lines are still there
    log.close()
    assert [line["id"] for line in read_log(tmp_path)] == ["r"]


def test_lines_of_the_hour_before_are_committed_too(tmp_path, monkeypatch):
    log, synced = FeedbackLog(tmp_path, 0), []
    fsync = os.fsync
    monkeypatch.setattr(feedback.os, "fsync", lambda file: synced.append(os.fstat(file).st_ino) or fsync(file))
    for hour in (1, 2):
        monkeypatch.setattr(feedback.time, "time", lambda hour=hour: 3600.0 * hour)
        log.outcome(f"r{hour}", 0, 1.0)
    log.sync()
    inodes = {path.stat().st_ino for path in tmp_path.iterdir()}
    assert len(inodes) == 2 and {*synced} == inodes | {tmp_path.stat().st_ino}
    log.close()
    assert [line["id"] for line in read_log(tmp_path)] == ["r1", "r2"]
