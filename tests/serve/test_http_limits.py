"""HTTP as clients and strangers speak it: syntax, limits on size and time, order of answers."""

import asyncio
import json
import re
import socket
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
import uvicorn
from hypothesis import given
from hypothesis import strategies as st
from uvicorn.server import ServerState

from live import make_service, run_coroutine
from splinefm.serve import App, Limits
from splinefm.serve.server import StrictProtocol
from support import examples

ROW = {"recency": 3.5, "price": 2.0, "country": "US", "tags": ["t1"], "device": "phone"}
BODY = json.dumps({"rows": [ROW]}).encode()


def request(body=BODY, *, method="POST", path="/v1/score", close=True, **headers):
    names = {"Host": "here", "Content-Type": "application/json", "Content-Length": len(body)}
    names |= {name.replace("_", "-"): value for name, value in headers.items()}
    if close:
        names["Connection"] = "close"
    head = "".join(f"{name}: {value}\r\n" for name, value in names.items() if value is not None)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body


def status_of(answer):
    return int(answer.split(b" ", 2)[1])


class TestSyntax:
    @pytest.mark.parametrize(
        ("data", "status"),
        [
            (b"nonsense\r\n\r\n", 400),
            (b"GET / HTTP/9.9\r\n\r\n", 400),
            (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100), 400),  # TLS
            (b"GET /healthz HTTP/1.1\r\n\r\n", 400),  # without Host
            (b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
            (request(Content_Encoding="gzip"), 415),
            (request(Transfer_Encoding="chunked"), 400),  # as well as a length
            (request(Content_Length="5, 6"), 400),
            (request(Content_Length="-1"), 400),
            (b"GET /healthz HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n", 400),
            (b"CONNECT here:80 HTTP/1.1\r\nHost: x\r\n\r\n", 400),
            (b"GET http://[/ HTTP/1.1\r\nHost: x\r\n\r\n", 400),
            (b"GET /%ff HTTP/1.1\r\nHost: x\r\n\r\n", 400),
            (request(path="/nothing"), 404),
            (request(path="/v1/score/"), 404),
            (request(method="GET", body=b""), 405),
            (request(path="/v1/score?arm=x"), 404),
            (request(path="/v1/score?a"), 400),
            (request(path="/v1/score?amr=x"), 400),
            (request(path="/v1/score?arm=a&arm=b"), 400),
            (request(X_Deadline_Ms="soon"), 400),
            (request(X_Long="x" * 20_000), 431),
            (b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 431),
            (request(Content_Length=1 << 30), 413),
        ],
        ids=range(24),
    )
    def test_what_cannot_be_answered_is_a_problem(self, server, data, status):
        answer = server.raw(data)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert status_of(answer) == status, answer
        assert b"connection: close" in head and b"application/problem+json" in head
        assert json.loads(body)["status"] == status and json.loads(body)["detail"]

    def test_pieces_chunks_and_expectations_are_put_together(self, server):
        whole = request()
        with closing(socket.create_connection(("127.0.0.1", server.port), 30)) as client:
            for at in range(0, len(whole), 40):
                client.sendall(whole[at : at + 40])
                time.sleep(0.001)
            assert status_of(client.recv(1 << 16)) == 200
        pieces = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (BODY[:9], BODY[9:])) + b"0\r\n\r\n"
        chunked = request(b"", Content_Length=None, Transfer_Encoding="chunked") + pieces
        assert status_of(server.raw(chunked)) == 200
        answer = server.raw(request(Expect="100-continue"))
        assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
        too_long = b"%x\r\n" % (2 << 20) + b"x" * (2 << 20)
        assert status_of(server.raw(request(b"", Content_Length=None, Transfer_Encoding="chunked") + too_long)) == 413

    def test_pipelined_requests_are_answered_in_order(self, server):
        many = b"".join(request(close=False, X_Request_Id=f"r{i}") for i in range(60))
        answer = server.raw(many + request(X_Request_Id="last"))
        ids = [json.loads(part.partition(b"\r\n\r\n")[2])["id"] for part in answer.split(b"HTTP/1.1 200 OK")[1:]]
        assert ids == [*(f"r{i}" for i in range(60)), "last"]
        # What is wrong with a later one does not take the answers of those before.
        answer = server.raw(request(close=False) + request(close=False) + b"nonsense\r\n\r\n")
        assert answer.count(b"HTTP/1.1 200 OK") == 2 and answer.count(b"HTTP/1.1 400") == 1

    def test_head_old_versions_and_open_connections(self, server):
        answer = server.raw(request(b"", method="HEAD", path="/healthz"))
        assert status_of(answer) == 200 and answer.endswith(b"\r\n\r\n") and b"content-length: 17" in answer
        old = b"GET /healthz HTTP/1.0\r\n\r\n"
        assert b"connection: close" in server.raw(old)
        asked = b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        assert b"connection: close" in server.raw(asked)
        with closing(server.connect()) as connection:
            for _ in range(3):
                connection.request("POST", "/v1/score", BODY, {"Content-Type": "application/json"})
                assert connection.getresponse().read()

    def test_request_ids_are_those_of_clients_if_they_are_plain(self, server):
        assert server.score({"rows": [ROW]}, **{"X-Request-Id": "abc.1"}).json["id"] == "abc.1"
        answer = server.score({"rows": [ROW]}, **{"X-Request-Id": "a b<c>"})
        assert answer.json["id"] == answer.headers["X-Request-Id"] and "<" not in answer.json["id"]


class Transport:
    """A connection to a client that is not there."""

    def __init__(self):
        self.written, self.unsent, self.cut, self.closing = [], 0, 0, False

    def get_extra_info(self, name, default=None):
        return default

    def write(self, data):
        self.written.append(data)

    def is_closing(self):
        return self.closing

    def close(self):
        self.closing = True

    def abort(self):
        self.cut += 1

    def get_write_buffer_size(self):
        return self.unsent

    def pause_reading(self):
        pass

    resume_reading = pause_reading


async def answer_at_once(scope, receive, send):
    """An application that keeps its requests."""
    body, message = b"", {"more_body": True}
    while message.get("more_body"):
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
    answer_at_once.seen.append((dict(scope["headers"]), body))
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
    await send({"type": "http.response.body", "body": b""})


def speak(*pieces, turns=4):
    """Send pieces to a connection; returns it, its transport, and what the application has seen."""

    async def work():
        config = uvicorn.Config(answer_at_once, http=StrictProtocol, lifespan="off", ws="none", log_config=None)
        config.load()
        loop = asyncio.get_running_loop()
        connection = StrictProtocol(config, ServerState(), {}, _loop=loop)
        connection.connection_made(transport)
        for piece in pieces:
            connection.data_received(piece)
            for _ in range(turns):
                await asyncio.sleep(0)
        return connection

    answer_at_once.seen, transport = [], Transport()
    return run_coroutine(work()), transport, answer_at_once.seen


def statuses(transport):
    return [int(status) for status in re.findall(rb"HTTP/1.1 (\d{3}) ", b"".join(transport.written))]


class TestTrailers:
    """Headers behind a body of chunks, which mean nothing here."""

    CHUNKED = request(b"", Content_Length=None, Transfer_Encoding="chunked", X_Deadline_Ms=50) + b"2\r\nxx\r\n0\r\n"

    def test_they_do_not_replace_what_was_checked(self):
        _, transport, seen = speak(self.CHUNKED + b"X-Deadline-Ms: 9\r\nAuthorization: x\r\n\r\n")
        ((headers, body),) = seen
        assert headers[b"x-deadline-ms"] == b"50" and b"authorization" not in headers
        assert body == b"xx" and statuses(transport) == [200]

    @pytest.mark.parametrize("pieces", [[b"X: y\r\n" * 4000], [b"X: ", *[b"y" * 1000] * 20]], ids=["many", "endless"])
    def test_their_bytes_count(self, pieces):
        _, transport, seen = speak(self.CHUNKED, *pieces)
        assert statuses(transport) == [431] and transport.closing and not seen

    def test_sizes_of_chunks_do_not_count(self):
        pieces = [b"2\r\n", b"xx", b"\r\n"] * 9000
        head = request(b"", Content_Length=None, Transfer_Encoding="chunked")
        _, transport, seen = speak(head, *pieces, b"0\r\n\r\n", turns=1)
        assert statuses(transport) == [200] and len(seen[0][1]) == 18_000


class Client:
    """A request to an application without a server, whose body comes piece by piece."""

    def __init__(self, app, path="/v1/score", **headers):
        names = [(b"host", b"here"), (b"content-type", b"application/json"), (b"transfer-encoding", b"chunked")]
        names += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "http_version": "1.1", "method": "POST", "path": path, "query_string": b""}
        self._pieces, self.status, self.body, self.headers = asyncio.Queue(), None, b"", {}
        self.task = asyncio.create_task(app({**scope, "headers": names}, self._pieces.get, self._take))

    async def _take(self, message):
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], dict(message["headers"])
        else:
            self.body += message["body"]

    async def send(self, body, *, more=True):
        await self._put({"type": "http.request", "body": body, "more_body": more})

    async def leave(self):
        await self._put({"type": "http.disconnect"})

    async def _put(self, message):
        self._pieces.put_nowait(message)
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
def app(visits, tmp_path):
    visits.save(tmp_path / "m.sfm")
    found = App(make_service(default=tmp_path / "m.sfm"))
    yield found
    found.close()


class TestTime:
    def test_slow_clients_are_cut_off(self, server):
        before = server.metric("splinefm_slow_clients_total")
        with ThreadPoolExecutor(3) as clients:  # at once: each waits for a second
            answers = [*clients.map(server.raw, (request()[:30], request()[:-5], b"GET /" + b"a" * 10))]
        assert [status_of(answer) for answer in answers] == [408] * 3
        assert server.metric("splinefm_slow_clients_total") == before + 3

    def test_a_client_that_does_not_read_is_cut_off_and_one_that_reads_slowly_is_not(self):
        """With a connection by itself: filling the buffers of a system takes long."""
        connection, transport, _ = speak(request(close=False))
        transport.unsent = 1000
        connection.pause_writing()
        now = time.perf_counter()
        for passed, unsent in ((1.0, 1000), (11.0, 500), (12.0, 500)):
            transport.unsent = unsent
            connection.check_time(now + passed)
            assert not transport.cut
        connection.check_time(now + 22.0)
        assert transport.cut == 1

    def test_bodies_in_memory_are_bounded_and_let_go(self, app):
        """Limits over all connections of a worker."""
        app.limits = Limits(bodies=1000)

        async def work():
            clients = [Client(app) for _ in range(3)]
            for client in clients:
                await client.send(b"x" * 400)
            held, refused = app._held, [client.status for client in clients]
            await clients[0].send(b"", more=False)
            await clients[1].leave()
            return held, refused, [client.status for client in clients], clients[2].headers

        held, refused, statuses, headers = run_coroutine(work())
        assert held == 800 and refused == [None, None, 503] and headers[b"retry-after"] == b"1"
        assert statuses == [400, None, 503] and app._held == 0

    def test_tiny_pieces_take_no_more_memory_than_large_ones(self, app):
        app.limits = Limits(read=600.0)

        async def work():
            client = Client(app)
            await client.send(b"xx")
            tracemalloc.start()
            try:
                for _ in range(20_000):
                    await client.send(b"xx")
                return tracemalloc.get_traced_memory()[0]
            finally:
                tracemalloc.stop()
                await client.leave()

        assert run_coroutine(work()) < 300_000

    def test_a_body_that_does_not_arrive_is_given_up(self, app):
        app.limits = Limits(read=0.1)

        async def work():
            client = Client(app)
            await client.send(b"x")
            await asyncio.wait_for(client.task, 30)
            return client.status

        assert run_coroutine(work()) == 408 and app.service.metrics.value("splinefm_slow_clients_total") == 1

    def test_a_client_that_goes_away_leaves_nothing_behind(self, server):
        for part in (request()[:30], request(), b""):
            with closing(socket.create_connection(("127.0.0.1", server.port), 30)) as client:
                client.sendall(part)
        server.eventually(lambda: server.metric("splinefm_requests_in_progress") <= 1)

    def test_a_request_whose_time_is_over_is_given_up(self, server):
        answer = server.score({"rows": [ROW]}, **{"X-Deadline-Ms": "0"})
        assert answer.status == 503 and int(answer.headers["Retry-After"]) >= 1
        assert "deadline" in answer.json["detail"]
        assert server.metric("splinefm_refused_total", reason="deadline") >= 1


VALID = [
    request(),
    request(b"", method="GET", path="/v1/models"),
    request(b"", method="GET", path="/v1/segment?along=recency&rest=mean&points=5"),
    request(json.dumps({"context": {"recency": 1.0, "price": None, "tags": []}, "k": 2}).encode(), path="/v1/rank"),
    request(json.dumps({"rows": [ROW]}).encode(), path="/v1/explain"),
    request(b'{"outcomes": [{"id": "a", "outcome": 1}]}', path="/v1/feedback"),
    request(
        b'{"inputs": [{"name": "recency", "shape": [1], "datatype": "FP64", "data": [1]}]}',
        path="/v2/models/default/infer",
    ),
]
BITS = [
    b"\x00",
    b"\xff",
    b"\r\n",
    b"\n",
    b" ",
    b":",
    b"{",
    b"}",
    b"[",
    b'"',
    b"null",
    b"1e999",
    b"-",
    b"\\ud800",
    b"%",
    b"?",
]


@st.composite
def spoiled(draw):
    """A valid request with bytes removed, replaced or put in."""
    data = bytearray(draw(st.sampled_from(VALID)))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        bits = draw(st.sampled_from(BITS) | st.binary(max_size=4))
        data[at : at + draw(st.integers(0, 3))] = bits
    return bytes(data)


class TestFuzz:
    @examples(400)
    @given(st.lists(spoiled(), min_size=1, max_size=20))
    def test_spoiled_requests_never_make_a_server_error(self, server, requests):
        """Each on a connection of its own; the client ends its side, so that nothing waits for more."""
        for data in requests:
            with closing(socket.create_connection(("127.0.0.1", server.port), 30)) as client:
                try:
                    client.sendall(data)
                    client.shutdown(socket.SHUT_WR)
                    answer = client.recv(1 << 16)
                except OSError:
                    continue
                assert not answer or status_of(answer) < 500, (data, answer)

    def test_the_server_survived(self, server):
        assert server.score({"rows": [ROW]}).status == 200
        assert server.metric("splinefm_worker_restarts_total") == 0
        assert server.metric("splinefm_requests_total", endpoint="score", status="500") == 0
