"""How many requests per second does a server answer, compared with FastAPI and LightGBM?

`splinefm serve` (FwFM, k = 16, 39 columns: 13 cubic splines, 26 categories) against what many teams run today, FastAPI
on uvicorn with `Booster.predict` (300 trees of 63 leaves, one thread); both have two workers and get the same JSON.
wrk, a process of its own, or clients in Python if it is not installed, keep 16 connections busy. Requests have 1 row,
100 rows, or, on 2 connections, ask for the best 100 of 100,000 items. The peer is measured twice: with a DataFrame, as
LightGBM is used from pandas, and with an array that is filled by hand. The run checks that our answers are the scores
of the library. Contenders alternate; the best of several rounds counts. wrk and the servers share the processor, so
that the processor time of a request (`cpu_ms`) says more than the rate on small machines.

`throughput_vs_lightgbm` and `p99_vs_lightgbm` are of 1 row and the faster peer; the goals are 3 and 1, and 10 for 100
rows.

Clients in Python send at most about 8,000 requests per second on two cores, which is less than our server can do:
without wrk, `throughput_vs_lightgbm` of 1 row is too low, and `cpu_vs_lightgbm` is what counts. `clients` in the result
says which were used.

The peer runs on `--peer-python`, such as that of a venv with fastapi, uvicorn[standard], lightgbm and pandas; where
they are not installed, our server is measured without it, and there are no ratios.

    python benchmarks/serve.py [--quick] [--json] [--save] [--peer-python PYTHON]
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from _shared import finish, make_parser, say
from peers.servers import Served, Server, free_port, load, running, write_requests

CONNECTIONS, WORKERS, ITEMS, K = 16, 2, 100_000, 100
PEER_PACKAGES = ("fastapi", "uvicorn", "uvloop", "httptools", "lightgbm", "pandas")
PEERS = {"rows_1": ("lightgbm_pandas", "lightgbm_arrays"), "rows_100": ("lightgbm_pandas", "lightgbm_arrays")}


def has_peer(python: str) -> bool:
    """Whether the packages of the peer are installed, with what makes uvicorn fast.

    On the event loop of the standard library, workers of uvicorn answer without TCP_NODELAY, and short requests wait
    40 ms for an acknowledgment: a peer without uvloop would be ten times slower than it has to be.
    """
    code = "import " + ", ".join(PEER_PACKAGES)
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0


def start(folder: Path, peer_python: str | None) -> list[Server]:
    """Ours, and theirs if it can be run."""
    ports = free_port(), free_port()
    options = ["--port", str(ports[0]), "--workers", str(WORKERS), "--index", str(folder / "items.sfi")]
    options += ["--max-wait", "30"]  # the other server refuses no request either
    ours = [sys.executable, "-m", "splinefm", "serve", str(folder / "model.sfm"), *options]
    mine = Server("splinefm", ours, ports[0])
    if peer_python is None:
        return [mine]
    theirs = [peer_python, "-m", "uvicorn", "peers.fastapi_lightgbm:app", "--port", str(ports[1])]
    theirs += ["--workers", str(WORKERS), "--log-level", "error", "--no-access-log"]
    theirs += ["--loop", "uvloop", "--http", "httptools"]
    env = {"SERVED": str(folder), "OMP_NUM_THREADS": "1"}
    here = Path(__file__).resolve().parent
    return [mine, Server("lightgbm", [*theirs, "--app-dir", str(here)], ports[1], env)]


def check(served: Served, server: Server) -> None:
    """Our answers are those of the library, to the bit."""
    for path, body in (("score", served.bodies(100)[0]), ("rank", served.contexts(K)[0])):
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.port}/v1/{path}", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as response:
            answer = json.load(response)
        if path == "score":
            expected = np.asarray(served.fitted.scorer().many(json.loads(body)["rows"]), np.float32).tolist()
        else:
            ids, scores = served.index.top_k(json.loads(body)["context"], K)
            expected = scores.tolist()
            if answer["ids"] != ids.tolist():
                raise RuntimeError("the server ranks other items than the library")
        if answer["scores"] != expected:
            raise RuntimeError("the server gives other scores than the library")


def one_by_one(server: Server, bodies: list[bytes]) -> dict[str, float]:
    """Requests that take seconds, one after the other; the rate is what as many workers could do at best."""
    times, before = [], server.cpu_seconds()
    for body in bodies:
        begin = time.perf_counter()
        request = urllib.request.Request(
            f"http://127.0.0.1:{server.port}/v1/rank", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as response:
            response.read()
        times.append(time.perf_counter() - begin)
    cpu = (server.cpu_seconds() - before) / len(bodies)
    each = sum(times) / len(times)
    return {
        "requests_per_s": WORKERS / each,
        "p50_ms": 1e3 * each,
        "p99_ms": 1e3 * max(times),
        "cpu_ms": 1e3 * cpu,
    }


def measure(seconds: float, rounds: int, peer_python: str | None) -> dict[str, Any]:
    """All contenders, in turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say("models")
        served = Served(folder, ITEMS, peer=peer_python is not None)
        say("servers")
        servers = start(folder, peer_python)
        ours, theirs = servers[0], servers[-1]
        with running(servers):
            check(served, ours)
            contests = {}
            for case, bodies, path in (
                ("rows_1", served.bodies(1), "/v1/score"),
                ("rows_100", served.bodies(100), "/v1/score"),
                ("rank_100", served.contexts(K), "/v1/rank"),
            ):
                contests[case, "splinefm"] = ours, write_requests(folder / f"{case}.lua", path, bodies)
                if peer_python is None:
                    continue
                if case == "rank_100":
                    contests[case, "lightgbm_arrays"] = theirs, folder / f"{case}.lua"
                    continue
                contests[case, "lightgbm_pandas"] = theirs, folder / f"{case}.lua"
                script = write_requests(folder / f"{case}_arrays.lua", "/v1/arrays", bodies)
                contests[case, "lightgbm_arrays"] = theirs, script
            figures: dict[str, Any] = {}
            for number in range(rounds):
                for (case, contender), (server, script) in contests.items():
                    say(f"round {number + 1}: {case} {contender}")
                    ranks = case == "rank_100"
                    if ranks and server is not ours:  # takes seconds: wrk would have none to count
                        found = one_by_one(server, served.contexts(K)[:2])
                    else:
                        found = load(server, script, seconds, WORKERS if ranks else CONNECTIONS)
                    best = figures.setdefault(f"{case} {contender}", found)
                    figures[f"{case} {contender}"] = {
                        "requests_per_s": max(best["requests_per_s"], found["requests_per_s"]),
                        **{key: min(best[key], found[key]) for key in ("p50_ms", "p99_ms", "cpu_ms")},
                    }
    clients = "peers.load" if shutil.which("wrk") is None else "wrk"
    return {"clients": clients, "figures": figures, "ratios": {} if peer_python is None else ratios(figures)}


def ratios(figures: dict[str, Any]) -> dict[str, float]:
    """Ours against the faster peer, and against each."""
    found: dict[str, float] = {}

    def compare(case: str, peer: str) -> tuple[float, float, float]:
        ours, theirs = figures[f"{case} splinefm"], figures[f"{case} {peer}"]
        return (
            ours["requests_per_s"] / theirs["requests_per_s"],
            theirs["p99_ms"] / ours["p99_ms"],
            theirs["cpu_ms"] / ours["cpu_ms"],
        )

    for case in ("rows_1", "rows_100"):
        each = [compare(case, peer) for peer in PEERS[case]]
        prefix = "" if case == "rows_1" else f"{case}_"
        for i, name in enumerate(("throughput", "p99", "cpu")):
            found[f"{prefix}{name}_vs_lightgbm"] = min(values[i] for values in each)
        for peer, values in zip(PEERS[case], each, strict=True):
            found[f"{case}_throughput_vs_{peer}"] = values[0]
    found["rank_throughput_vs_lightgbm"], found["rank_p99_vs_lightgbm"], _ = compare("rank_100", "lightgbm_arrays")
    return found


def main() -> None:
    """Measure, print and save."""
    parser = make_parser(__doc__, "one round of 3 s each")
    parser.add_argument("--peer-python", default=sys.executable, help=f"Python with {', '.join(PEER_PACKAGES)}")
    options = parser.parse_args()
    python = options.peer_python if has_peer(options.peer_python) else None
    if python is None:
        say(f"{options.peer_python} lacks one of {', '.join(PEER_PACKAGES)}: no peer, and no ratios")
    seconds, rounds = (3.0, 1) if options.quick else (10.0, 3)
    finish(__file__, measure(seconds, rounds, python), options)


if __name__ == "__main__":
    main()
