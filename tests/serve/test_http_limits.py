"""HTTP as clients and strangers speak it: syntax, limits on size and time, order of answers."""

import json
import socket
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splinefm.serve.http.messages import Response
from splinefm.serve.http.protocol import Connection
from splinefm.serve.settings import Limits
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
        ids=range(22),
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
        kept = b"GET /healthz HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"
        assert b"connection: keep-alive" in server.raw(kept + old)
        with closing(server.connect()) as connection:
            for _ in range(3):
                connection.request("POST", "/v1/score", BODY, {"Content-Type": "application/json"})
                assert connection.getresponse().read()

    def test_request_ids_are_those_of_clients_if_they_are_plain(self, server):
        assert server.score({"rows": [ROW]}, **{"X-Request-Id": "abc.1"}).json["id"] == "abc.1"
        answer = server.score({"rows": [ROW]}, **{"X-Request-Id": "a b<c>"})
        assert answer.json["id"] == answer.headers["X-Request-Id"] and "<" not in answer.json["id"]


class FakeApp:
    """What a connection needs of an application; answers at once."""

    def __init__(self, limits=None):
        self.limits, self.date, self.is_draining, self.held, self.slow, self.unsent = (
            limits or Limits(),
            b"",
            False,
            0,
            0,
            0,
        )

    def admit(self, request):
        return None

    def take(self, request, respond):
        respond(Response(200, b""))

    def too_slow(self):
        self.slow += 1

    def opened(self, connection):
        pass

    closed = opened

    def finished(self, request, status, seconds):
        pass


def connect(app, written):
    """A connection whose answers are put into a list."""
    connection = Connection(app, SimpleNamespace(call_soon=lambda work: work()))
    connection.connection_made(
        SimpleNamespace(
            get_extra_info=lambda name: None,
            write=written.append,
            is_closing=lambda: False,
            can_write_eof=lambda: False,
            close=lambda: None,
        )
    )
    return connection


class TestTrailers:
    """Headers behind a body of chunks, which nobody needs."""

    CHUNKED = request(b"", Content_Length=None, Transfer_Encoding="chunked", X_Deadline_Ms=50) + b"2\r\nxx\r\n0\r\n"

    def test_they_do_not_replace_what_was_checked(self):
        app, taken = FakeApp(), []
        app.take = lambda request, respond: taken.append(request)
        connect(app, []).data_received(self.CHUNKED + b"X-Deadline-Ms: 9\r\nAuthorization: x\r\n\r\n")
        assert taken[0].headers[b"x-deadline-ms"] == b"50" and b"authorization" not in taken[0].headers
        assert taken[0].body == b"xx"

    @pytest.mark.parametrize("pieces", [[b"X: y\r\n" * 4000], [b"X: ", *[b"y" * 1000] * 20]], ids=["many", "endless"])
    def test_their_bytes_count(self, pieces):
        written = []
        connection = connect(FakeApp(), written)
        for piece in (self.CHUNKED, *pieces):
            connection.data_received(piece)
        assert [status_of(answer) for answer in written] == [431]

    def test_sizes_of_chunks_do_not_count(self):
        written = []
        connection = connect(FakeApp(), written)
        connection.data_received(request(b"", Content_Length=None, Transfer_Encoding="chunked"))
        for _ in range(9000):
            for piece in (b"2\r\n", b"xx", b"\r\n"):
                connection.data_received(piece)
        connection.data_received(b"0\r\n\r\n")
        assert [status_of(answer) for answer in written] == [200]


class TestTime:
    def test_slow_clients_are_cut_off(self, server):
        before = server.metric("splinefm_slow_clients_total")
        with ThreadPoolExecutor(3) as clients:  # at once: each waits for a second
            answers = [*clients.map(server.raw, (request()[:30], request()[:-5], b"GET /" + b"a" * 10))]
        assert [status_of(answer) for answer in answers] == [408] * 3
        assert server.metric("splinefm_slow_clients_total") == before + 3

    def test_a_client_that_does_not_read_is_cut_off_and_one_that_reads_slowly_is_not(self):
        """With a connection by itself: filling the buffers of a system takes long."""
        app, cut = FakeApp(), []
        connection = Connection(app, None)
        transport = SimpleNamespace(
            get_extra_info=lambda name: ("127.0.0.1", 1),
            get_write_buffer_size=lambda: app.unsent,
            abort=lambda: cut.append(1),
        )
        connection.connection_made(transport)
        app.unsent = 1000
        connection.pause_writing()
        now = time.perf_counter()
        for passed, unsent in ((1.0, 1000), (11.0, 500), (12.0, 500)):
            app.unsent = unsent
            connection.check_time(now + passed)
            assert not cut
        connection.check_time(now + 22.0)
        assert cut and app.slow == 1

    def test_bodies_in_memory_are_bounded_and_let_go(self):
        app, written = FakeApp(Limits(bodies=1000)), []
        connections = [connect(app, written) for _ in range(3)]
        for connection in connections:
            connection.data_received(request(b"x" * 400, Content_Length=500))
        assert app.held == 800 and [status_of(answer) for answer in written] == [503]
        assert b"retry-after: 1" in written[0]
        connections[0].data_received(b"x" * 100)  # complete, and answered
        assert [status_of(answer) for answer in written] == [503, 200] and app.held == 400
        connections[1].connection_lost(None)
        assert app.held == 0

    def test_a_body_is_let_go_with_its_answer_though_the_next_has_begun(self):
        app, answers = FakeApp(), []
        app.take = lambda request, respond: answers.append(respond)
        connection = connect(app, [])
        connection.data_received(request(b"x" * 400, close=False) + request(b"x" * 100)[:-70])
        assert app.held == 430
        answers.pop()(Response(200, b""))
        assert app.held == 30
        connection.data_received(b"x" * 70)
        connection.connection_lost(None)
        assert app.held == 0
        answers.pop()(Response(200, b""))  # of a client that is gone
        assert app.held == 0

    def test_tiny_chunks_take_no_more_memory_than_large_ones(self):
        connection = connect(FakeApp(), [])
        connection.data_received(request(b"", Content_Length=None, Transfer_Encoding="chunked"))
        tracemalloc.start()
        try:
            connection.data_received(b"2\r\nxx\r\n" * 50_000)
            assert tracemalloc.get_traced_memory()[0] < 200_000
        finally:
            tracemalloc.stop()

    def test_a_client_that_goes_away_leaves_nothing_behind(self, server):
        for part in (request()[:30], request(), b""):
            with closing(socket.create_connection(("127.0.0.1", server.port), 30)) as client:
                client.sendall(part)
        server.eventually(lambda: server.metric("splinefm_connections") <= 1)

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
