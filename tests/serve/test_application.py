"""The application and the service without a server: ASGI, changes in several processes, what must not fail, traces."""

import asyncio
import errno
import http.client
import json
import shutil
import signal
import socket
import subprocess
import threading
import time
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

import splinefm as sf
from live import ADMIN, JSON, TOKEN, Answer, LiveServer, make_service, run_coroutine, spoil, visits_model, visits_rows
from splinefm.serve import App, Arm, ChangeRefused, FaultyRows, Limits, NotServed, ScoringService, ServiceSettings
from splinefm.serve import feedback as feedback_module
from splinefm.serve.feedback import read_log
from support import examples

ROW = {"recency": 3.5, "price": 2.0, "country": "US", "tags": ["t1"], "device": "phone"}
CONTEXT = {"recency": 3.5, "price": None, "tags": ["t1", "t2"]}


class Response:
    def __init__(self):
        self.status, self.headers, self.body = None, {}, b""

    @property
    def json(self):
        return json.loads(self.body)


async def ask_asgi(app, method, path, content=None, *, client=("127.0.0.1", 9), scope=(), **headers):
    """Send a request to an application, as a server does."""
    found = Response()
    body = content if isinstance(content, bytes) else b"" if content is None else json.dumps(content).encode()
    names = {"host": "here", "content-length": str(len(body)), "content-type": "application/json"} | headers
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        return messages.pop(0) if messages else {"type": "http.disconnect"}

    async def send(message):
        if message["type"] == "http.response.start":
            found.status, found.headers = message["status"], dict(message["headers"])
        else:
            found.body += message["body"]

    path, _, query = path.partition("?")
    whole = {"type": "http", "http_version": "1.1", "method": method, "path": path, "query_string": query.encode()}
    whole |= {"client": client, "headers": [(n.replace("_", "-").encode(), v.encode()) for n, v in names.items()]}
    await app(whole | dict(scope), receive, send)
    return found


def ask(app, *arguments, **options):
    return run_coroutine(ask_asgi(app, *arguments, **options))


@pytest.fixture
def path(visits, tmp_path):
    visits.save(tmp_path / "m.sfm")
    return tmp_path / "m.sfm"


def make_app(path, **options):
    return App(ScoringService(path, registry=CollectorRegistry(), **options))


class TestAsgi:
    def test_it_answers_under_the_path_of_a_mount(self, path, visits):
        app = make_app(path)
        found = ask(app, "POST", "/inner/v1/score", {"rows": [ROW]}, scope={"root_path": "/inner"})
        assert found.status == 200 and found.json["scores"] == [np.float32(visits.scorer()(ROW))]
        assert ask(app, "GET", "/elsewhere").status == 404
        app.close()

    def test_the_lifespan_ends_with_the_log_on_the_disk(self, path, tmp_path):
        app = make_app(path, log=str(tmp_path / "log"))
        incoming, sent = asyncio.Queue(), []

        async def send(message):
            sent.append(message["type"])

        async def live():
            incoming.put_nowait({"type": "lifespan.startup"})
            task = asyncio.create_task(app({"type": "lifespan"}, incoming.get, send))
            await ask_asgi(app, "POST", "/v1/score", {"rows": [ROW]})
            incoming.put_nowait({"type": "lifespan.shutdown"})
            await task

        run_coroutine(live())
        assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
        (line,) = read_log(tmp_path / "log")
        assert line["versions"] == app.service.serving.versions and line["arms"] == ["default"]

    def test_requests_of_several_event_loops_are_answered(self, path):
        app = make_app(path)
        assert [ask(app, "POST", "/v1/score", {"rows": [ROW] * n}).status for n in (1, 2, 1500)] == [200] * 3
        app.close()

    def test_a_burst_waits_in_the_queue_and_is_answered_in_full(self, path):
        app = make_app(path)

        async def burst():
            body = {"rows": visits_rows(50)}
            return await asyncio.gather(*[ask_asgi(app, "POST", "/v1/score", body) for _ in range(200)])

        assert {found.status for found in run_coroutine(burst())} <= {200, 503}
        app.limits = app._queue._limits = Limits(wait=60.0)
        assert {found.status for found in run_coroutine(burst())} <= {200, 503}
        app.close()


class TestWhoMayChangeModels:
    def test_without_tokens_only_those_that_the_operator_names(self, path):
        app = make_app(path)
        for client in (("127.0.0.1", 9), ("10.0.0.1", 9), None):
            assert ask(app, "POST", "/v1/reload", {}, client=client).status == 403
        app.close()
        app = make_app(path, admin_from_loopback=True)
        assert ask(app, "POST", "/v1/reload", {}).status == 200
        for client, headers in ((("10.0.0.1", 9), {}), (("127.0.0.1", 9), {"x_forwarded_for": "10.0.0.1"}), (None, {})):
            found = ask(app, "POST", "/v1/arms", {"weights": {"default": 2}}, client=client, **headers)
            assert found.status == 403 and "with a token" in found.json["detail"]
        app.close()

    def test_with_tokens_the_address_is_no_matter(self, path, tmp_path):
        (tmp_path / "tokens").write_text(f"{TOKEN}\nadmin {ADMIN}\n")
        app = make_app(path, tokens=str(tmp_path / "tokens"), admin_from_loopback=True)
        for token, status in ((TOKEN, 403), (ADMIN, 200)):
            found = ask(app, "POST", "/v1/reload", {}, client=("10.0.0.1", 9), authorization=f"Bearer {token}")
            assert found.status == status
        app.close()


class TestService:
    def test_answers_are_those_of_the_library(self, path, visits, index, tmp_path):
        index.save(tmp_path / "i.sfi")
        service = make_service(default=path, index=str(tmp_path / "i.sfi"))
        rows = visits_rows(20)
        assert (service.score(rows).scores == np.asarray(visits.scorer().many(rows), np.float32)).all()
        ids, scores = index.top_k(CONTEXT, 3)
        found = service.rank(CONTEXT, 3)
        assert found.ids.tolist() == ids.tolist() and found.scores.tolist() == scores.tolist()
        assert found.version == service.serving.versions["default"]
        with pytest.raises(FaultyRows, match="row 1"):
            service.score([ROW, {**ROW, "recency": "soon"}])
        for refused in (
            lambda: service.score(rows, arm="x"),
            lambda: service.explain(rows),
            lambda: service.reload("x"),
        ):
            with pytest.raises(NotServed):
                refused()
        service.close()
        service.close()

    def test_rankings_are_logged_with_items_and_positions(self, path, index, tmp_path):
        index.save(tmp_path / "i.sfi")
        settings = ServiceSettings(
            (Arm("a", str(path), index=str(tmp_path / "i.sfi")),), log=str(tmp_path / "log"), log_rows=True
        )
        with ScoringService(settings, registry=CollectorRegistry()) as service:
            found = service.rank(CONTEXT, 3, request_id="r")
        (line,) = read_log(tmp_path / "log")
        assert line["items"] == found.ids.tolist() and line["scores"] == found.scores.tolist()
        assert line["context"] == CONTEXT and line["predictions"] == found.predictions.tolist()
        assert line["versions"] == {"a": found.version} and line["id"] == "r"


class TestSharedFolder:
    """Processes of one service, here two in one process: one publishes, the other follows."""

    def test_both_switch_and_the_second_takes_over(self, path, tmp_path):
        later = visits_model(2)
        shared = tmp_path / "shared"
        first = ScoringService(path, folder=shared, registry=CollectorRegistry())
        second = ScoringService(path, folder=shared, registry=CollectorRegistry())
        assert first._publisher is not None and second._publisher is None
        later.save(path)
        found = second.reload()
        assert found["arms"] == {"default": "loaded"}
        assert first.serving.versions == second.serving.versions == found["versions"]
        assert second.score([ROW]).scores[0] == np.float32(later.scorer()(ROW))
        path.write_bytes(path.read_bytes()[:-9])
        with pytest.raises(ChangeRefused, match="/m"):
            second.reload()
        assert list(first.manifest.refused) == list(second.manifest.refused) == ["default"]
        first.close()
        end = time.monotonic() + 60
        while second._publisher is None:
            assert time.monotonic() < end
            time.sleep(0.02)
        visits_model(3).save(path)
        assert second.reload()["arms"] == {"default": "loaded"}
        assert second.serving.loaded["default"].published.generation == 3
        second.close()

    def test_a_file_that_one_process_cannot_load_is_served_by_none(self, path, tmp_path, monkeypatch):
        shared = tmp_path / "shared"
        services = [ScoringService(path, folder=shared, registry=CollectorRegistry()) for _ in range(2)]
        before = services[0].serving.versions
        monkeypatch.setattr(services[1], "_load", lambda *_: 1 / 0)
        visits_model(2).save(path)
        with pytest.raises(ChangeRefused, match="could not load it: division by zero"):
            services[0].reload()
        monkeypatch.undo()
        assert [service.serving.versions for service in services] == [before] * 2
        assert services[0].reload()["arms"] == {"default": "loaded"}
        assert services[0].serving.versions == services[1].serving.versions != before
        for service in services:
            service.close()


NEW = {"id": 50, "values": {"country": "FR", "device": "phone"}, "group": "b"}


class TestItems:
    @pytest.fixture
    def arm(self, path, index, tmp_path):
        index.save(tmp_path / "i.sfi")
        return ServiceSettings((Arm("a", str(path), index=str(tmp_path / "i.sfi")),), admin_from_loopback=True)

    def changed(self, visits):
        items = {"country": ["DE", "FR", "DE", "FR"], "device": ["desk", "desk", "phone", "phone"]}
        return sf.ItemIndex(visits, items, ids=[10, 20, 30, 50], groups=["b", "b", "a", "b"])

    def test_all_processes_switch_to_the_changed_items(self, arm, visits, index, tmp_path):
        services = [ScoringService(arm, folder=tmp_path / "s", registry=CollectorRegistry()) for _ in range(2)]
        before, models = services[0].serving, [*(tmp_path / "s" / "models").iterdir()]
        update = [{"id": 10, "values": {"country": "DE", "device": "desk"}, "group": "b"}]
        found = services[1].change_items(add=[NEW], update=update, remove=[40])  # it does not publish
        assert found["items"] == 4 and found["version"] != before.versions["a"]
        for service in services:
            ids, scores = self.changed(visits).top_k(CONTEXT, 4)
            ranked = service.rank(CONTEXT, 4)
            assert (ranked.ids.tolist(), ranked.scores.tolist()) == (ids.tolist(), scores.tolist())
            assert ranked.version == found["version"]
            ids, _ = self.changed(visits).top_k(CONTEXT, 4, group="b")
            assert service.rank(CONTEXT, 4, group="b").ids.tolist() == ids.tolist()
            old = service.rank(CONTEXT, 4, serving=before)  # a request that began before
            assert old.version == before.versions["a"]
            assert old.ids.tolist() == index.top_k(CONTEXT, 4)[0].tolist()
            assert service.serving.loaded["a"].fitted is not None
        assert len([*(tmp_path / "s" / "models").iterdir()]) == len(models)
        assert services[1].reload()["arms"] == {"a": "unchanged"}  # the file is the same
        services[0].close()
        wait_until(lambda: services[1]._publisher is not None)
        assert services[1].change_items(remove=[50])["items"] == 3
        self.changed(visits).save(tmp_path / "i.sfi")
        assert services[1].reload()["arms"] == {"a": "loaded"} and len(services[1].rank(CONTEXT, 9).ids) == 4
        services[1].close()

    def test_a_change_that_does_not_fit_changes_nothing(self, arm):
        with ScoringService(arm, registry=CollectorRegistry()) as service:
            before = service.serving.versions
            incomplete = {"id": 60, "values": {"country": "FR"}, "group": "a"}
            unknown = {"id": 60, "values": {**NEW["values"], "color": "red"}, "group": "a"}
            for text, change in (
                ("already has 10", {"add": [NEW | {"id": 10}], "remove": [20]}),
                ("40 is not in the index", {"remove": [40, 40], "update": [NEW | {"id": 40}]}),
                ("77 is not in the index", {"add": [NEW], "remove": [77]}),
                ("must have values of 'country', 'device'", {"add": [incomplete]}),
                ("must have values of 'country', 'device'", {"add": [NEW, unknown]}),
                ("occurs twice", {"add": [NEW, NEW]}),
            ):
                with pytest.raises(ChangeRefused, match=text):
                    service.change_items(**change)
            assert service.serving.versions == before and len(service.rank(CONTEXT, 9).ids) == 4
            with pytest.raises(NotServed, match="name an arm with an index, which are 'a'; got 'b'"):
                service.change_items(remove=[10], arm="b")

    def test_over_http(self, arm, path):
        app = App(ScoringService(arm, registry=CollectorRegistry()))
        answer = ask(app, "POST", "/v1/items", {"add": [NEW]})
        assert answer.status == 200 and answer.json["items"] == 5 and answer.json["arm"] == "a"
        ranked = ask(app, "POST", "/v1/rank", {"context": CONTEXT, "k": 9}).json
        assert 50 in ranked["ids"] and ranked["version"] == answer.json["version"]
        assert ask(app, "POST", "/v1/items", {"add": [NEW]}).status == 409
        for status, body in (
            (422, {}),
            (422, {"add": [{"id": 1.5, "values": {}}]}),
            (422, {"remove": [True]}),
            (413, {"remove": [*range(10_001)]}),
            (404, {"remove": [10], "arm": "b"}),
        ):
            assert ask(app, "POST", "/v1/items", body).status == status, body
        assert ask(app, "POST", "/v1/items", {"remove": [50]}, client=("10.0.0.1", 9)).status == 403
        example = ask(app, "GET", "/openapi.json").json["paths"]["/v1/items"]["post"]["requestBody"]
        body = example["content"]["application/json"]["examples"]["example"]["value"]
        assert ask(app, "POST", "/v1/items", body).status == 200

        @examples(100)
        @given(st.data())
        def spoiled_changes_are_refused_or_done(data):
            content = spoil(data.draw, {"arm": "a", **body})
            answer = ask(app, "POST", "/v1/items", content)
            assert answer.status < 500, (content, answer.body)
            assert answer.status < 400 or answer.json["detail"], (content, answer.body)

        spoiled_changes_are_refused_or_done()
        app.close()
        plain = make_app(path, admin_from_loopback=True)
        assert ask(plain, "POST", "/v1/items", {"remove": [50]}).status == 404
        plain.close()

    def test_rankings_during_changes_are_of_one_version(self, arm, tmp_path):
        with ScoringService(arm, registry=CollectorRegistry()) as service:
            items, stop = {service.serving.versions["a"]: {10, 20, 30, 40}}, threading.Event()
            seen = []

            def rank():
                while not stop.is_set():
                    found = service.rank(CONTEXT, 99)
                    seen.append((found.version, {*found.ids.tolist()}))

            thread = threading.Thread(target=rank)
            thread.start()
            for new in range(50, 58):
                version = service.change_items(add=[NEW | {"id": new}])["version"]
                items[version] = {10, 20, 30, 40, *range(50, new + 1)}
            stop.set()
            thread.join()
            wrong = [pair for pair in seen if items[pair[0]] != pair[1]]
            assert seen and not wrong and len({version for version, _ in seen}) > 1


class TestFaultsOfTheMachine:
    def test_a_full_disk_of_the_log_costs_no_answer(self, path, tmp_path, monkeypatch):
        app = make_app(path, log=str(tmp_path / "log"))
        service = app.service

        def full(file, data):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(feedback_module.os, "write", full)
            for _ in range(300):  # more than the buffer
                assert ask(app, "POST", "/v1/score", {"rows": visits_rows(40)}).status == 200
            wait_until(lambda: service.metrics.value("splinefm_log_failing") == 1)
            ready = ask(app, "GET", "/readyz")
            assert ready.status == 200 and ready.json["log"] == "failing"
            assert service.metrics.value("splinefm_log_errors_total") >= 1
            outcome = {"outcomes": [{"id": "r", "row": 0, "outcome": 1}]}
            refused = ask(app, "POST", "/v1/feedback", outcome)
            assert refused.status == 503 and "No space left" in refused.json["detail"]
            assert service._thread.is_alive()
        wait_until(lambda: service.metrics.value("splinefm_log_failing") == 0)
        assert "log" not in ask(app, "GET", "/readyz").json
        app.close()
        assert len([line for line in read_log(tmp_path / "log") if "predictions" in line]) == 300

    def test_a_task_that_fails_ends_no_other(self, path, capsys):
        service = make_service(default=path)
        service.every_look.insert(0, lambda: 1 / 0)
        wait_until(lambda: service.metrics.value("splinefm_internal_errors_total", task="<lambda>") >= 2)
        visits_model(2).save(path)
        assert service.reload()["arms"] == {"default": "loaded"}
        service.close()

    def test_unknown_names_without_number_are_told_by_a_few(self, path):
        app = make_app(path)
        row = ROW | {f"unknown {i}": i for i in range(400_000)}
        begin = time.process_time()
        found = ask(app, "POST", "/v1/score", {"rows": [row]})
        assert found.status == 422 and len(found.json["errors"]) == 10 and len(found.body) < 10_000
        assert time.process_time() - begin < 5.0  # most of it to write and to decode the body
        app.close()


def wait_until(holds):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_spans_are_in_the_trace_that_the_request_names(path):
    trace = pytest.importorskip("opentelemetry.sdk.trace")
    export = pytest.importorskip("opentelemetry.sdk.trace.export")
    memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter").InMemorySpanExporter()
    provider = trace.TracerProvider()
    provider.add_span_processor(export.SimpleSpanProcessor(memory))
    app = make_app(path, traces=True)
    app._trace._tracer = provider.get_tracer("test")
    parent = f"00-{'ab' * 16}-{'cd' * 8}-01"
    assert ask(app, "POST", "/v1/score", {"rows": [ROW] * 3}, traceparent=parent).status == 200
    assert ask(app, "POST", "/v1/score", b"{", traceparent=parent).status == 400
    first, second = memory.get_finished_spans()
    assert first.name == "POST /v1/score" and f"{first.context.trace_id:032x}" == "ab" * 16
    assert first.attributes["splinefm.rows"] == 3 and second.attributes["http.response.status_code"] == 400
    app.close()


# Real servers


def test_readiness_fails_before_the_end_and_open_connections_are_told(path):
    server = LiveServer(path, "--drain-delay", 3)
    with closing(server.connect()) as idle:
        idle.request("POST", "/v1/score", json.dumps({"rows": [ROW]}), JSON)
        answer = Answer(idle.getresponse())
        assert answer.status == 200 and answer.headers["Connection"] is None
        server.process.send_signal(signal.SIGTERM)
        server.eventually(lambda: server.ask("GET", "/readyz").status == 503)
        assert server.ask("GET", "/readyz").json == {"status": "draining"}
        idle.request("POST", "/v1/score", json.dumps({"rows": [ROW]}), JSON)
        answer = Answer(idle.getresponse())
        assert answer.status == 200 and answer.headers["Connection"] == "close"
    assert server.stop() == 0


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self.path))


@pytest.mark.thorough
def test_a_unix_socket_and_a_second_signal(path, tmp_path):
    server = LiveServer.__new__(LiveServer)
    server.process = server.start((path, "--socket", tmp_path / "s", "--drain-delay", 60, "--workers", 2))
    wait_until(lambda: (tmp_path / "s").exists())
    with closing(UnixConnection(tmp_path / "s")) as connection:
        connection.request("POST", "/v1/score", json.dumps({"rows": [ROW]}), JSON)
        assert Answer(connection.getresponse()).status == 200
    server.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0 and not (tmp_path / "s").exists()
    server.process.stderr.close()


@pytest.mark.thorough
@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_tls(path, tmp_path):
    import ssl

    names = {"-keyout": tmp_path / "key.pem", "-out": tmp_path / "cert.pem", "-subj": "/CN=localhost"}
    options = [str(part) for pair in names.items() for part in pair]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *options]
    subprocess.run([*command, "-addext", "subjectAltName=DNS:localhost"], check=True, capture_output=True)
    server = LiveServer(path, "--certificate", tmp_path / "cert.pem", "--private-key", tmp_path / "key.pem")
    context = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    with closing(http.client.HTTPSConnection("localhost", server.port, timeout=60, context=context)) as connection:
        connection.request("GET", "/healthz")
        assert Answer(connection.getresponse()).status == 200
    assert server.stop() == 0
