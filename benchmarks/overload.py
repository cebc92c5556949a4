"""What happens to a server that is asked for ten times what it can do, gets new models, and loses a worker?

`splinefm serve` with two workers. Clients in a process of their own check the scores of every answer and ignore
Retry-After.

- *normal*: 8 connections ask for the best 100 of 100,000 items as fast as they are answered: the sustainable rate.
- *overload*: 160 connections ask at ten times that rate, for 60 s, a server whose `--max-wait` is the normal p50. The
  answers are 200 or 503; the p99 of those that were accepted is to stay within 3 times the normal one.
- *reloads*: two models take turns, 100 times, while rows are scored: no answer fails, and each has the scores of the
  version that it names.
- *kill*: kill -9 of a worker under load: only requests that it had begun are lost, and it is replaced.
- *memory*: the resident memory of all processes in the first and in the last minute of ten under load.

The run fails if a score is wrong, or an answer is neither 200 nor 503. `goal_p99_vs_overload` is 3 × the normal p99 /
the p99 under overload, `goal_memory` 1.05 × the memory at the beginning / that at the end.

    python benchmarks/overload.py [--quick] [--json] [--save]
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from _shared import finish, make_parser, random_model, say
from peers.servers import Served, Server, free_port, running

WORKERS, ITEMS, K = 2, 100_000, 100
NORMAL, CROWD, TIMES = 8, 160, 10
HERE = Path(__file__).resolve().parent


class Clients:
    """Clients in a process of their own."""

    def __init__(
        self, server: Server, bodies: Any, expected: dict[str, Any], folder: Path, seconds: float, connections: int,
        rate: float = 0.0,
    ) -> None:  # fmt: skip
        path = folder / "expected.json"
        path.write_text(json.dumps(expected))
        values = map(str, (server.port, seconds, connections, rate, path))
        command = [sys.executable, "-m", "peers.clients", *values]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE, env=dict(os.environ)
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(bodies))
        self._process.stdin.close()

    def is_running(self) -> bool:
        """Whether they still ask."""
        return self._process.poll() is None

    def stop(self) -> None:
        """Have them ask no more."""
        self._process.terminate()

    def result(self) -> dict[str, Any]:
        """What came of all requests; raises where a score was wrong."""
        assert self._process.stdout is not None
        found: dict[str, Any] = json.loads(self._process.stdout.read())
        if self._process.wait() or found["wrong"]:
            raise RuntimeError(f"wrong scores: {found}")
        strange = {
            status: n for status, n in found["statuses"].items() if status not in ("200", "503", "lost", "refused")
        }
        if strange or not found["statuses"].get("200"):
            raise RuntimeError(f"unexpected answers: {found}")
        return found


def ask(server: Server, path: str, content: Any = None) -> Any:
    """One request."""
    body = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}{path}", body, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=300) as response:
        return json.loads(response.read()) if path != "/metrics" else response.read().decode()


def start(folder: Path, *options: str) -> Server:
    """Start a server of the model in a folder."""
    port = free_port()
    command = [sys.executable, "-m", "splinefm", "serve", str(folder / "model.sfm"), "--port", str(port)]
    server = Server("splinefm", [*command, "--workers", str(WORKERS), "--admin-from-loopback", *options], port)
    ask(server, "/readyz")
    return server


def overload(served: Served, folder: Path, seconds: float, normal_seconds: float) -> dict[str, Any]:
    """Normal load, then ten times as much."""
    contexts = served.contexts(K)
    bodies = [("/v1/rank", body.decode()) for body in contexts]
    scores = [served.index.top_k(json.loads(body)["context"], K)[1].tolist() for body in contexts]
    options = ("--index", str(folder / "items.sfi"), "--max-wait")
    server = start(folder, *options, "30")
    with running([server]):
        expected = {ask(server, "/v1/models")["models"][0]["version"]: scores}
        say("normal load")
        normal = Clients(server, bodies, expected, folder, normal_seconds, NORMAL).result()
    rate, wait = TIMES * normal["accepted_per_s"], normal["p50_ms"] / 1e3
    server = start(folder, *options, f"{wait:.4f}")
    with running([server]):
        say(f"{normal['accepted_per_s']:.0f} requests/s; now {rate:.0f}")
        much = Clients(server, bodies, expected, folder, seconds, CROWD, rate).result()
        restarts = [
            line for line in ask(server, "/metrics").splitlines() if line.startswith("splinefm_worker_restarts")
        ]
        if restarts != ["splinefm_worker_restarts_total 0.0"]:
            raise RuntimeError(f"a worker died: {restarts}")
    return {"normal": _figures(normal), "overload": _figures(much)}


def _figures(found: dict[str, Any]) -> dict[str, float]:
    share = found["statuses"].get("503", 0) / max(1, sum(found["statuses"].values()))
    names = ("offered_per_s", "accepted_per_s", "p50_ms", "p99_ms", "refused_p99_ms")
    return {**{name: found[name] for name in names}, "refused_share": share}


def reloads(served: Served, folder: Path, times: int) -> dict[str, Any]:
    """Two models take turns under load; then a worker is killed."""
    other = random_model(served.fitted.encoder, served.fitted.model)
    other.params["linear"][:] *= -1.0
    models = [served.fitted, other]
    contents = served.bodies(5)
    bodies = [("/v1/score", body.decode()) for body in contents]
    rows = [json.loads(body)["rows"] for body in contents]
    scores = [[np.asarray(model.scorer().many(each), np.float32).tolist() for each in rows] for model in models]
    server = start(folder)
    with running([server]):
        expected = {}
        for i in (1, 0):
            models[i].save(folder / "model.sfm")
            expected[ask(server, "/v1/reload", {})["versions"]["default"]] = scores[i]
        say(f"{times} reloads")
        clients = Clients(server, bodies, expected, folder, 3600.0, NORMAL)
        time.sleep(1.0)
        begin = time.perf_counter()
        for i in range(times):
            models[(i + 1) % 2].save(folder / "model.sfm")
            if ask(server, "/v1/reload", {})["arms"] != {"default": "loaded"}:
                raise RuntimeError("a model was not loaded")
        each = (time.perf_counter() - begin) / times
        clients.stop()
        found = clients.result()
        if {*found["statuses"]} - {"200"} or len(found["versions"]) != 2:
            raise RuntimeError(f"answers failed: {found}")
        say("kill -9")
        clients = Clients(server, bodies, expected, folder, 8.0, NORMAL)
        time.sleep(2.0)
        os.kill(next(pid for pid in server.pids()[1:] if is_worker(pid)), signal.SIGKILL)
        killed = clients.result()
        if "splinefm_worker_restarts_total 1.0" not in ask(server, "/metrics"):
            raise RuntimeError("the worker was not replaced")
    lost = killed["statuses"].get("lost", 0) + killed["statuses"].get("refused", 0)
    return {
        "reloads": {"times": times, "seconds_each": each, "answers": found["statuses"]["200"], "failed": 0, "mixed": 0},
        "kill": {"answers": killed["statuses"]["200"], "failed": lost, "p99_ms": killed["p99_ms"]},
    }


def is_worker(pid: int) -> bool:
    """Whether a process is a worker, and not what Python starts beside it."""
    return b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()


def memory(served: Served, folder: Path, seconds: float) -> dict[str, Any]:
    """Resident memory under load."""
    contents = served.bodies(5)
    bodies = [("/v1/score", body.decode()) for body in contents]
    rows = [json.loads(body)["rows"] for body in contents]
    served.fitted.save(folder / "model.sfm")
    server = start(folder, "--log", str(folder / "log"))
    with running([server]):
        version = ask(server, "/v1/models")["models"][0]["version"]
        scores = [np.asarray(served.fitted.scorer().many(each), np.float32).tolist() for each in rows]
        clients = Clients(server, bodies, {version: scores}, folder, seconds, NORMAL)
        sizes = []
        say(f"memory over {seconds:.0f} s")
        while clients.is_running():
            time.sleep(max(0.2, seconds / 200.0))
            sizes.append(server.resident_mib())
        answers = clients.result()["statuses"]["200"]
    tenth = max(1, len(sizes) // 10)
    first, last = statistics.median(sizes[tenth : 2 * tenth + 1]), statistics.median(sizes[-tenth:])
    return {"memory": {"first_mib": first, "last_mib": last, "answers": answers, "seconds": seconds}}


def measure(seconds: float, normal_seconds: float, times: int, memory_seconds: float) -> dict[str, Any]:
    """All parts."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say("models")
        served = Served(folder, ITEMS, peer=False)
        figures = overload(served, folder, seconds, normal_seconds)
        figures |= reloads(served, folder, times)
        figures |= memory(served, folder, memory_seconds)
    return {
        "figures": figures,
        "ratios": {
            "goal_p99_vs_overload": 3.0 * figures["normal"]["p99_ms"] / figures["overload"]["p99_ms"],
            "overload_vs_normal_accepted": figures["overload"]["accepted_per_s"] / figures["normal"]["accepted_per_s"],
            "offered_vs_sustainable": figures["overload"]["offered_per_s"] / figures["normal"]["accepted_per_s"],
            "goal_memory": 1.05 * figures["memory"]["first_mib"] / figures["memory"]["last_mib"],
        },
    }


def main() -> None:
    """Measure, print and save."""
    options = make_parser(__doc__, "10 s of overload, 10 reloads, 10 s of memory").parse_args()
    found = measure(10.0, 4.0, 10, 10.0) if options.quick else measure(60.0, 15.0, 100, 600.0)
    finish(__file__, found, options)


if __name__ == "__main__":
    main()
