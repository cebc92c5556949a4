"""A server over time: new files, refused files, workers that die, the end; arms, shadows, tokens, drift."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing
from http.client import HTTPConnection
from logging.config import dictConfig
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import splinefm as sf
from live import ADMIN, PATIENCE, TOKEN, Answer, LiveServer, make_service, visits_model, visits_rows
from splinefm._files import release
from splinefm.serve import publishing, server
from splinefm.serve.drift import DRIFT, DriftSample
from splinefm.serve.feedback import read_log
from splinefm.serve.logs import LOG_CONFIG

ROWS = visits_rows(5)
USERS = [{**row, "user": f"u{i}"} for i, row in enumerate(visits_rows(200))]


def expected(model, rows=ROWS):
    return np.asarray(model.scorer().many(rows), np.float32).tolist()


class Clients:
    """Threads that ask for the same rows all the time, and keep what they get."""

    def __init__(self, server, rows=ROWS, n=3):
        self.server, self.body = server, json.dumps({"rows": rows}).encode()
        self.found, self.errors = Counter(), []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(n)]

    def _ask(self):
        connection = self.server.connect()
        while not self._stop.is_set():
            try:
                connection.request("POST", "/v1/score", self.body, {"Content-Type": "application/json"})
                answer = Answer(connection.getresponse())
                (version,) = answer.json["versions"].values()
                self.found[answer.status, version, tuple(answer.json["scores"])] += 1
            except Exception as error:
                self.errors.append(error)
                connection.close()
                connection = self.server.connect()
        connection.close()

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join()


@pytest.fixture(scope="module")
def models():
    return [visits_model(seed) for seed in (1, 2)]


@pytest.fixture(scope="module")
def watched(tmp_path_factory, models):
    path = tmp_path_factory.mktemp("watched") / "model.sfm"
    models[0].save(path)
    live = LiveServer(path, "--workers", 2, "--watch", "--admin-from-loopback")
    live.path = path
    yield live
    assert live.stop() == 0
    assert not [event for event in live.events if event["event"] in ("bug", "worker failed")]


class TestReload:
    """One server, whose file changes from test to test, and is replaced at the end of each."""

    def reload(self, server, status=200):
        answer = server.ask("POST", "/v1/reload", {})
        assert answer.status == status, answer.body
        return answer.json

    def test_a_new_file_is_switched_to_without_a_failed_or_mixed_answer(self, watched, models):
        versions = {}
        with Clients(watched) as clients:
            for i in range(6):
                models[i % 2].save(watched.path)
                versions[i % 2] = self.reload(watched)["versions"]["default"]
        assert not clients.errors
        allowed = {(200, versions[i], tuple(expected(models[i]))) for i in (0, 1)}
        assert {*clients.found} <= allowed and len({version for _, version, _ in clients.found}) == 2
        assert watched.score({"rows": ROWS}).json["versions"]["default"] == versions[1]
        assert watched.metric("splinefm_reloads_total", arm="default", result="refused") == 0

    def test_a_file_that_changes_is_loaded_by_itself(self, watched, models):
        models[0].save(watched.path)
        watched.eventually(lambda: watched.score({"rows": ROWS}).json["scores"] == expected(models[0]))
        assert self.reload(watched)["arms"] == {"default": "unchanged"}

    @pytest.mark.parametrize("harm", ["cut", "flip", "empty", "gone", "columns"])
    def test_a_bad_file_is_refused_and_the_old_one_stays(self, watched, models, harm):
        whole = watched.path.read_bytes()
        before = watched.score({"rows": ROWS}).json
        if harm == "gone":
            watched.path.unlink()
        elif harm == "columns":
            sf.fit_model(
                {"recency": [1.0, 2.0] * 50, "y": [0, 1] * 50}, "y", training=sf.Training(epochs=1, threads=1)
            ).save(watched.path)
        else:  # in place, as a careless copy does
            middle = len(whole) - 1000
            flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
            watched.path.write_bytes({"cut": whole[:-9], "flip": flipped, "empty": b""}[harm])
        problem = self.reload(watched, 409)
        assert watched.path.name in problem["detail"], problem
        assert watched.score({"rows": ROWS}).json["scores"] == before["scores"]
        for _ in range(4):  # whichever worker answers
            ready = watched.ask("GET", "/readyz")
            assert ready.status == 200 and ready.json["reload"] == "refused"
            assert b"/" not in ready.body  # no path
        assert watched.metric("splinefm_reload_refused", arm="default") == 1
        watched.path.write_bytes(whole)
        self.reload(watched)
        assert "reload" not in watched.ask("GET", "/readyz").json
        assert watched.metric("splinefm_reload_refused", arm="default") == 0

    @pytest.mark.thorough
    def test_a_worker_that_is_killed_is_replaced_while_the_other_serves(self, watched, models):
        before = watched.metric("splinefm_worker_restarts_total")
        first = watched.workers()
        requests = watched.metric("splinefm_requests_total", endpoint="score", status="200")
        with Clients(watched) as clients:
            os.kill(first[0], signal.SIGKILL)
            watched.eventually(lambda: watched.metric("splinefm_worker_restarts_total") == before + 1)
            watched.eventually(lambda: watched.metric("splinefm_workers") == 2)
        assert len({scores for _, _, scores in clients.found}) == 1 and len(clients.errors) <= 3
        assert {*watched.workers()} != {*first} and len(watched.workers()) == 2
        # What the old worker has counted stays, up to the last twentieth of a second.
        counted = watched.metric("splinefm_requests_total", endpoint="score", status="200")
        assert requests < counted <= requests + 3 + sum(clients.found.values()) <= counted + 500


@pytest.mark.thorough
def test_a_server_that_stops_answers_what_it_has_begun(tmp_path):
    visits_model().save(tmp_path / "model.sfm")
    server = LiveServer(tmp_path / "model.sfm", "--deadline", 60)
    body = json.dumps({"rows": ROWS}).encode()
    with closing(server.connect()) as connection:
        connection.putrequest("POST", "/v1/score")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:10])
        server.eventually(lambda: server.metric("splinefm_requests_in_progress") >= 1)
        server.process.send_signal(signal.SIGTERM)
        server.eventually(lambda: not _accepts(server))
        connection.send(body[10:])
        answer = Answer(connection.getresponse())
    assert answer.status == 200, answer.body
    assert answer.json["scores"] == expected(visits_model()) and answer.headers["Connection"] == "close"
    assert server.stop() == 0


def _accepts(server):
    try:
        return server.ask("GET", "/healthz").status == 200
    except OSError:
        return False


def test_the_folder_of_a_server_that_was_killed_is_removed_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(publishing.tempfile, "tempdir", str(tmp_path))
    (tmp_path / "splinefm-serve-mine").mkdir()  # no name that a server chooses
    code = "import os, signal; from splinefm.serve import publishing as p; p.make_folder(); os.kill(os.getpid(), 9)"
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)})
        assert len(list(tmp_path.iterdir())) == 2
    first, held = publishing.make_folder()
    second, other = publishing.make_folder()
    assert {*tmp_path.iterdir()} == {first, second, tmp_path / "splinefm-serve-mine"}  # the first one is in use
    release(held)
    release(other)


class FakeWorker:
    """A worker process of uvicorn's, without a process."""

    def __init__(self, *, starts=True, answers=True, alive=True):
        self.starts, self.answers, self.killed = starts, answers, False
        self.process, self.pid, self.exitcode = self, 2**22 + 1, 9
        self.is_alive = lambda: alive and not self.killed
        self.parent_conn = self.child_conn = SimpleNamespace(close=lambda: None)

    def start(self):
        if not self.starts:
            raise BlockingIOError("no more processes")

    def ping(self, timeout):
        return self.answers

    def kill(self):
        self.killed = True

    def join(self):
        pass


def supervise(monkeypatch, worker, successors):
    """A supervisor of one worker; its successors in turn."""
    monkeypatch.setattr(server, "Process", lambda *_: successors.pop(0))
    monkeypatch.setattr(server, "forget_process", lambda pid: None)
    dictConfig(LOG_CONFIG)
    boss = server.Supervisor.__new__(server.Supervisor)
    boss.config, boss.sockets, boss.should_exit = None, [], threading.Event()
    boss.processes, boss._began, boss._was_ready, boss._failures, boss._next_start = [worker], {0: 0.0}, True, 0, 0.0
    return boss


def test_a_worker_is_replaced_as_soon_as_the_system_allows(monkeypatch, capsys):
    """A start that fails for the moment is tried again, the later the more often it failed."""
    last = FakeWorker()
    died = FakeWorker(alive=False)
    boss = supervise(monkeypatch, died, [*[FakeWorker(starts=False) for _ in range(3)], last])
    for _ in range(4):
        assert boss.processes == [died]
        boss.keep_subprocess_alive()
        boss._next_start = 0.0
    assert boss.processes == [last] and boss._failures == 3
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [event["event"] for event in events] == ["worker died", *["worker not started"] * 3]
    assert events[1]["error"] == "no more processes"


def test_a_worker_that_does_not_answer_is_killed_and_replaced(monkeypatch, capsys):
    """Its successor starts with the file that is current."""
    silent, last = FakeWorker(answers=False), FakeWorker()
    boss = supervise(monkeypatch, silent, [last])
    boss.keep_subprocess_alive()
    assert silent.killed and boss.processes == [last]
    assert "no answer" in json.loads(capsys.readouterr().err.splitlines()[0])["reason"]


def test_workers_that_die_before_they_are_ready_end_the_server(monkeypatch, capsys):
    boss = supervise(monkeypatch, FakeWorker(alive=False), [FakeWorker(alive=False) for _ in range(9)])
    boss._was_ready = False
    for _ in range(9):
        boss.keep_subprocess_alive()
        boss._next_start = 0.0
        if boss.should_exit.is_set():
            break
    assert boss.should_exit.is_set() and boss.code == 1 and boss._failures == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["no.sfm"], "no file 'no.sfm'"),
        ([], "name one model file"),
        (["m.sfm", "--arm", "a=m.sfm:1"], "not both"),
        (["--arm", "a=m.sfm"], "NAME=MODEL:WEIGHT"),
        (["--arm", "a=m.sfm:1", "--arm", "a=m.sfm:2"], "two arms are called 'a'"),
        (["--arm", "a=m.sfm:0"], "no arm has a weight"),
        (["m.sfm", "--tokens", "none"], "none"),
        (["m.sfm", "--index", "none.sfi"], "none.sfi"),
        (["m.sfm", "--host", "256.0.0.1"], "cannot listen"),
        (["m.sfm", "--background", "none.csv"], "none.csv"),
    ],
    ids=range(10),
)
def test_settings_that_cannot_be_served_end_in_a_message(run, options, words):
    visits_model().save("m.sfm")
    found = run("serve", *options, "--port", "0", code=1)
    assert words in found.stderr, found.stderr


# Arms


def with_token(token=TOKEN):
    return {"Authorization": f"Bearer {token}"}


class TestSplit:
    def test_tokens_decide_who_may_ask(self, split_server):
        server, body = split_server, {"rows": USERS[:1]}
        for header in ({}, {"Authorization": "Basic abc"}, with_token("x" * 32), with_token(TOKEN[:-1])):
            answer = server.ask("POST", "/v1/score", body, header)
            assert answer.status == 401 and "Bearer" in answer.headers["WWW-Authenticate"]
        assert server.ask("POST", "/v1/score", body, with_token()).status == 200
        assert server.ask("GET", "/healthz").status == server.ask("GET", "/readyz").status == 200
        assert server.ask("GET", "/metrics").status == 401
        assert server.ask("POST", "/v1/reload", {}, with_token()).status == 403
        assert server.ask("POST", "/v1/reload", {}, with_token(ADMIN)).status == 200

    def test_a_user_stays_in_its_arm(self, split_server):
        server = split_server
        found = server.ask("POST", "/v1/score", {"rows": USERS}, with_token()).json
        share = found["arms"].count("splines") / len(USERS)
        assert 0.02 < share < 0.25 and {*found["arms"]} == {"control", "splines"}
        for i in (0, 7, 150):
            alone = server.ask("POST", "/v1/score", {"rows": [USERS[i]]}, with_token()).json
            assert (alone["arms"], alone["scores"]) == ([found["arms"][i]], [found["scores"][i]])
            assert alone["scores"] == expected(server.models[found["arms"][i]], [USERS[i]])
        forced = server.ask("POST", "/v1/score?arm=splines", {"rows": USERS}, with_token()).json
        assert forced["scores"] == expected(server.models["splines"], USERS)
        assert server.ask("POST", "/v1/score?arm=later", {"rows": USERS}, with_token()).status == 404

    def test_weights_change_without_a_restart(self, split_server):
        server = split_server

        def arms():
            return server.ask("POST", "/v1/score", {"rows": USERS}, with_token()).json["arms"]

        before = arms()
        answer = server.ask("POST", "/v1/arms", {"weights": {"control": 60, "splines": 40}}, with_token(ADMIN))
        assert answer.json["weights"] == {"control": 60.0, "splines": 40.0}
        after = arms()
        assert after.count("splines") > before.count("splines")
        # Only users between the old and the new border moved.
        assert all(new == "splines" for old, new in zip(before, after, strict=True) if old == "splines")
        for bad in ({"control": -1}, {"control": 0, "splines": 0}, {"other": 1}):
            assert server.ask("POST", "/v1/arms", {"weights": bad}, with_token(ADMIN)).status in (404, 422)
        assert server.ask("GET", "/v1/arms", None, with_token()).json["weights"]["splines"] == 40.0
        server.ask("POST", "/v1/arms", {"weights": {"control": 90, "splines": 10}}, with_token(ADMIN))
        assert arms() == before

    def test_a_shadow_scores_without_being_shown(self, split_server):
        server = split_server
        answer = server.ask("POST", "/v1/score", {"rows": USERS[:20]}, with_token()).json
        assert "later" not in answer["arms"] and "later" not in answer["versions"]
        lines = []

        def is_logged():
            lines[:] = [line for line in read_log(server.folder / "log") if line["id"] == answer["id"]]
            return len(lines) == 2

        server.eventually(is_logged)
        shown, shadow = sorted(lines, key=lambda line: "shadow" in line)
        model = server.models["later"]
        scores = np.array(expected(model, USERS[:20]), np.float32).astype(np.float64)
        assert shadow["predictions"] == model.loss.predict(scores).tolist() and shadow["arms"] == ["later"]
        assert shadow["keys"] == shown["keys"]  # a report needs to know which rows belong together
        assert shown["keys"] == [row["user"] for row in USERS[:20]] and shown["rows"] == USERS[:20]
        assert shown["arms"] == answer["arms"]

    def test_logs_have_request_ids_and_no_secrets(self, split_server):
        server = split_server
        server.ask("POST", "/v1/score", {"rows": USERS[:1]}, {**with_token(), "X-Request-Id": "in-the-log"})
        server.eventually(lambda: any(event.get("id") == "in-the-log" for event in server.events))
        event = next(event for event in server.events if event.get("id") == "in-the-log")
        assert (event["event"], event["status"], event["rows"], event["path"]) == ("request", 200, 1, "/v1/score")
        assert not any(TOKEN in json.dumps(event) or ADMIN in json.dumps(event) for event in server.events)

    def test_metrics_of_arms(self, split_server):
        server = split_server
        before = server.metrics(with_token())
        found = server.ask("POST", "/v1/score", {"rows": USERS}, with_token()).json

        def more(name, arm):
            key = (name, ("arm", arm))
            return server.metrics(with_token())[key] - before[key]

        server.eventually(lambda: more("splinefm_arm_rows_total", "later") == len(USERS))
        for arm in ("control", "splines"):
            own = [i for i, name in enumerate(found["arms"]) if name == arm]
            assert more("splinefm_arm_rows_total", arm) == len(own)
            total = sum(found["predictions"][i] for i in own)
            np.testing.assert_allclose(more("splinefm_arm_predictions_total", arm), total, rtol=1e-9)
        assert more("splinefm_arm_seconds_count", "control") == 1
        assert more("splinefm_shadow_difference_total", "later") > 0.0


def test_drift_is_counted_by_column(tmp_path):
    visits_model().save(tmp_path / "m.sfm")
    serving = make_service(default=tmp_path / "m.sfm").serving
    sample = DriftSample(serving.metrics, 300)
    rows = visits_rows(200, hostile=False)
    for i in range(0, 200, 10):
        sample.take(serving, ["default"], [{**row, "country": "XX", "price": None} for row in rows[i : i + 10]])
    sample.take(serving, ["default"], [{**row, "recency": 1e9} for row in rows])  # half of them fit
    sample.compare()

    def count(column, kind, what="values"):
        return drift_value(serving, what, column, kind)

    assert count("country", "odd") == 200 and count("country", "odd", "seen") == 300
    assert count("price", "missing") == 200 + sum(row["price"] is None for row in rows[:100])
    assert count("device", "missing") == 0
    sample.take(serving, ["default"], [{**rows[0], "country": 3}, {**rows[0], "country": "three"}])
    sample.compare()
    assert serving.metrics.value("splinefm_drift_skipped_total", arm="default") == 2


def drift_value(serving, what, column, kind):
    return serving.metrics.value(f"splinefm_drift_{what}_total", arm="default", column=column, kind=kind)


def test_the_total_of_drift_has_all_values_missing_or_not(tmp_path):
    model = visits_model()
    model.save(tmp_path / "m.sfm")
    serving = make_service(default=tmp_path / "m.sfm").serving
    sample = DriftSample(serving.metrics, 300)
    rows = visits_rows(40, hostile=False)
    empty = dict.fromkeys(model.encoder.schema.columns)
    sample.take(serving, ["default"], [*rows, *[empty] * 60])
    sample.compare()
    seen = {
        (item.name, kind): drift_value(serving, "seen", item.name, kind)
        for item in model.encoder.fields
        for kind in DRIFT
    }
    assert seen.pop(("tags", "odd")) == sum(len(row["tags"]) for row in rows)  # elements of lists
    assert seen == dict.fromkeys(seen, 100.0) and len(seen) >= 6
    missing = sum(row["price"] is None for row in rows)
    assert drift_value(serving, "values", "price", "missing") == 60 + missing


@pytest.mark.thorough  # waits for a worker that does not answer
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for the processes of workers in /proc")
def test_a_reload_answers_while_a_worker_is_stopped(tmp_path):
    visits_model().save(tmp_path / "m.sfm")
    server = LiveServer(tmp_path / "m.sfm", "--workers", 2, "--admin-from-loopback")
    try:
        os.kill(server.workers()[0], signal.SIGSTOP)
        visits_model(seed=5).save(tmp_path / "m.sfm")
        answer = server.ask("POST", "/v1/reload", {})
        assert answer.status == 200 and answer.json["arms"] == {"default": "loaded"}, answer.body
        assert "no answer" in server.wait_for("killed")["reason"]
        assert server.ask("POST", "/v1/reload", {}).json["arms"] == {"default": "unchanged"}
    finally:
        server.stop()


@pytest.mark.thorough
def test_a_worker_ends_with_its_supervisor(tmp_path):
    visits_model().save(tmp_path / "m.sfm")
    server = LiveServer(tmp_path / "m.sfm")
    (worker,) = server.workers()
    server.process.kill()
    server.process.wait()
    server.eventually(lambda: not _is_alive(worker))
    server.stop()


def test_who_waits_for_a_reload_is_answered_when_the_supervisor_is_killed(tmp_path):
    visits_model().save(tmp_path / "m.sfm")
    server = LiveServer(tmp_path / "m.sfm", "--admin-from-loopback")
    (worker,) = server.workers()
    with closing(server.connect()) as client:
        server.process.send_signal(signal.SIGSTOP)  # the question gets there, and no answer comes
        client.request("POST", "/v1/reload", b"{}", {"Content-Type": "application/json"})
        server.process.kill()
        server.process.wait()
        answer = Answer(client.getresponse())
    assert answer.status == 503 and "ask again once it is back" in answer.json["detail"]
    assert answer.headers["Retry-After"] == "5"
    server.eventually(lambda: not _is_alive(worker))
    server.stop()


def _own_address():
    """An address of this machine that is not loopback; nothing is sent."""
    with closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return probe.getsockname()[0]


def test_without_tokens_changes_come_from_the_same_machine_and_not_from_pages_of_strangers(server):
    address = _own_address()
    with closing(server.connect()) as near:
        near.request("POST", "/v1/reload", b"{}", {"Content-Type": "application/json"})
        assert Answer(near.getresponse()).status == 200
        near.request("POST", "/v1/reload", b"{}", {"Content-Type": "text/plain"})  # as a page of another site can
        assert Answer(near.getresponse()).status == 415
        near.request("OPTIONS", "/v1/reload", headers={"Origin": "http://example.com"})  # its browser asks first
        assert Answer(near.getresponse()).status == 405
    with closing(HTTPConnection(address, server.port, timeout=PATIENCE)) as far:
        body = json.dumps({"rows": ROWS}).encode()
        far.request("POST", "/v1/score", body, {"Content-Type": "application/json"})
        assert Answer(far.getresponse()).status == 200
        for path, content in (("/v1/reload", b"{}"), ("/v1/arms", b'{"weights": {"default": 2}}')):
            far.request("POST", path, content, {"Content-Type": "application/json"})
            answer = Answer(far.getresponse())
            assert answer.status == 403 and "with a token" in answer.json["detail"]


def _is_alive(pid):
    path = Path(f"/proc/{pid}/stat")
    return path.exists() and path.read_text().rpartition(") ")[2][0] not in "ZX"
