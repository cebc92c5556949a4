"""A real server among spoiled requests, clients that waste its time, reloads, and ends with open connections.

    python tests/campaigns/hostile_http.py --long
    python tests/campaigns/hostile_http.py --only reloads --count 50 --seed 3

Only loopback is used. `--count` is the number of spoiled requests; a twentieth of it are reloads under eight clients, a
hundredth are servers that are stopped among clients.
"""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from pathlib import Path

import numpy as np
from _campaign import Campaign, main

N_CLIENTS, N_WASTERS = 8, 200


def run(campaign: Campaign) -> None:
    """Run each part on a server of its own."""
    try:
        import uvicorn  # noqa: F401
    except ModuleNotFoundError:
        campaign.saw("all", "skipped: no uvicorn")
        return
    import live

    live.PATIENCE = 900.0  # campaigns give way to everything else
    for name, part in {"spoiled": spoil_requests, "wasters": waste_time, "reloads": reload, "ends": end}.items():
        if campaign.wants(name):
            with tempfile.TemporaryDirectory(prefix="splinefm-http-") as folder:
                part(campaign, Path(folder))


def start(folder: Path, *options: object) -> object:
    """A server with two workers, of a model of some megabytes."""
    from live import LiveServer, visits_model

    visits_model(1).save(folder / "model.sfm")
    return LiveServer(folder / "model.sfm", "--workers", 2, "--admin-from-loopback", *options)


def check_alive(campaign: Campaign, server: object, part: str) -> None:
    """No worker died, nothing is a bug, and the server still scores and ends by itself."""
    from live import visits_rows

    if server.score({"rows": visits_rows(3)}).status != 200:
        campaign.find(f"{part}: the server does not score any more")
    restarts = server.metric("splinefm_worker_restarts_total")
    if restarts:
        campaign.find(f"{part}: {restarts:g} workers were started again")
    code = server.stop()
    bad = [event for event in server.events if event["event"] in ("bug", "worker died", "task failed", "text")]
    if bad or code:
        campaign.find(f"{part}: the server ended with {code}, its log has {bad[:3]}")


# Requests that are no requests


def valid_requests() -> list[bytes]:
    """One of each kind."""
    from live import visits_rows

    row = visits_rows(1)[0]
    tensor = {"name": "recency", "shape": [1], "datatype": "FP64", "data": [1]}
    bodies = {
        "/v1/score": {"rows": [row]},
        "/v1/rank": {"context": row, "k": 3},
        "/v1/explain": {"rows": [row]},
        "/v1/feedback": {"outcomes": [{"id": "a", "outcome": 1}]},
        "/v1/items": {"remove": [1]},
        "/v1/arms": {"weights": {"default": 1}},
        "/v2/models/default/infer": {"inputs": [tensor]},
    }
    found = [make_request(path, json.dumps(content).encode()) for path, content in bodies.items()]
    return found + [f"GET {path} HTTP/1.1\r\nHost: h\r\n\r\n".encode() for path in ("/v1/models", "/metrics", "/v2")]


def make_request(path: str, body: bytes) -> bytes:
    """A request with JSON."""
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def spoil_requests(campaign: Campaign, folder: Path) -> None:
    """Damage requests at random: every answer is below 500, or says that the server is busy."""
    from _hostile import damage

    server, valid = start(folder), valid_requests()
    for number in range(campaign.count):
        if campaign.is_over:
            break
        rng = campaign.rng("spoiled", number)
        data = damage(valid[rng.integers(len(valid))], rng, valid)
        with closing(socket.create_connection(("127.0.0.1", server.port), 60)) as client:
            try:
                client.sendall(data)
                client.shutdown(socket.SHUT_WR)
                answer = client.recv(1 << 16)
            except OSError:
                answer = b""
        status = answer.split(b" ", 2)[1].decode() if answer else "closed"
        campaign.saw("spoiled", status)
        if status.startswith("5") and status != "503":
            campaign.find(f"spoiled {number}: {data!r} had the answer {answer[:300]!r}")
    check_alive(campaign, server, "spoiled")


# Clients that waste time and memory


def waste_time(campaign: Campaign, folder: Path) -> None:
    """Hold connections with parts of requests, while a good client is answered."""
    from live import visits_rows

    server, rng = start(folder, "--read-seconds", 3), campaign.rng("wasters")
    body = json.dumps({"rows": visits_rows(1)}).encode()
    long_row = {f"{i:x}": 1 for i in range(1_400_000)}
    parts = {
        "silent": b"",
        "half a header": b"POST /v1/score HTTP/1.1\r\nHos",
        "no body": make_request("/v1/score", b"x" * 100)[:-100],
        "half a chunk": b"POST /v1/score HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nffff\r\nabc",
        "many requests": make_request("/v1/score", body) * 200,
        "many columns": make_request("/v1/score", json.dumps({"rows": [long_row]}).encode()[: 16 << 20]),
    }
    clients = []
    for name in rng.choice([*parts], N_WASTERS, p=[0.25, 0.25, 0.2, 0.2, 0.08, 0.02]).tolist():
        client = socket.create_connection(("127.0.0.1", server.port), 60)
        client.setblocking(False)
        with suppress(OSError):
            client.send(parts[name])  # what the socket takes; answers are not read
        clients.append((name, client))
    waited, begin = [], time.monotonic()
    while time.monotonic() - begin < 6.0:
        at = time.monotonic()
        status = server.ask("POST", "/v1/score", body, {"Content-Type": "application/json"}).status
        waited.append(time.monotonic() - at)
        campaign.saw("good client among wasters", str(status))
        if status != 200:
            campaign.find(f"wasters: a good client had {status}")
    campaign.figures["wasters"] = {"median_ms": 1e3 * float(np.median(waited)), "max_ms": 1e3 * max(waited)}
    for name, client in clients:
        client.settimeout(150)  # an idle connection is closed after 75 s
        try:
            while client.recv(1 << 20):
                pass
            campaign.saw("wasters", f"{name}: cut off")
        except ConnectionResetError:
            campaign.saw("wasters", f"{name}: cut off")
        except TimeoutError:
            campaign.find(f"wasters: {name} is still connected")
        client.close()
    check_alive(campaign, server, "wasters")


# Clients during reloads and at the end


class Clients:
    """Threads that ask one after the other, each on a connection that stays open; a closed one is opened again."""

    def __init__(self, server: object, n: int) -> None:
        from live import visits_rows

        self.server, self.seen, self.is_over = server, Counter[str](), threading.Event()
        self._body = json.dumps({"rows": visits_rows(5)}).encode()
        self._threads = [threading.Thread(target=self._ask) for _ in range(n)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        from http.client import RemoteDisconnected

        connection, mine, n = self.server.connect(), Counter[str](), 0
        while not self.is_over.is_set():
            try:
                connection.request("POST", "/v1/score", self._body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read()
                mine[str(answer.status)], n = mine[str(answer.status)] + 1, n + 1
                if answer.getheader("Connection") == "close":
                    connection.close()  # the next request opens another one
                    n = 0
            except ConnectionRefusedError:
                mine["refused"] += 1
                break
            except (RemoteDisconnected, OSError) as error:
                mine[f"{type(error).__name__} {'on an open connection' if n else 'at the first request'}"] += 1
                connection.close()
                n = 0
        connection.close()
        self.seen.update(mine)

    def join(self) -> None:
        """Wait for all."""
        for thread in self._threads:
            thread.join()


def reload(campaign: Campaign, folder: Path) -> None:
    """Replace the model again and again under eight clients: every request is answered with 200."""
    from live import visits_model

    server = start(folder)
    clients = Clients(server, N_CLIENTS)
    for number in range(max(2, campaign.count // 20)):
        if campaign.is_over:
            break
        visits_model(number + 2).save(folder / "model.sfm")
        answer = server.ask("POST", "/v1/reload", {})
        campaign.saw("reloads", f"reload {answer.status}")
        if answer.status != 200 or answer.json["arms"] != {"default": "loaded"}:
            campaign.find(f"reloads: reload {number} had {answer.status} {answer.body[:300]!r}")
    clients.is_over.set()
    clients.join()
    for outcome, n in clients.seen.items():
        campaign.counts[f"reloads: {outcome}"] += n
        if outcome != "200":
            campaign.find(f"reloads: {n} requests had {outcome}")
    check_alive(campaign, server, "reloads")


def end(campaign: Campaign, folder: Path) -> None:
    """Stop servers under clients and with idle connections: none is reset, and all requests that began are answered."""
    for _ in range(max(2, campaign.count // 100)):
        if campaign.is_over:
            break
        server = start(folder, "--drain-delay", 1)
        idle = [server.connect() for _ in range(20)]
        for connection in idle:
            connection.request("GET", "/healthz")
            connection.getresponse().read()
        clients = Clients(server, N_CLIENTS)
        time.sleep(0.5)
        code = server.stop()
        clients.join()
        for outcome, n in clients.seen.items():
            campaign.counts[f"ends: {outcome}"] += n
            if outcome not in ("200", "refused") and "first request" not in outcome:
                campaign.find(f"ends: {n} requests had {outcome}")
        for connection in idle:
            try:
                left = connection.sock.recv(1)
                campaign.saw("ends", "idle connections closed")
                if left:
                    campaign.find(f"ends: an idle connection got {left!r}")
            except ConnectionResetError:
                campaign.find("ends: an idle connection was reset")
            connection.close()
        if code:
            campaign.find(f"ends: the server ended with {code}")


if __name__ == "__main__":
    sys.exit(main("hostile_http", run, short=100, long=20_000))
