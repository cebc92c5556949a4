"""How many requests per second does a server answer, compared with FastAPI in front of other models?

`splinefm serve` (FwFM, k = 16, 39 columns: 13 cubic splines, 26 categories), which runs on uvicorn, and the same
application on granian, against what many teams run today, FastAPI on uvicorn: with `Booster.predict` of LightGBM (300
trees of 63 leaves, one thread), the same trees compiled by lleaves, and our FwFM as a graph in ONNX Runtime. All have
two workers and get the same JSON. wrk, a process of its own, or clients in Python if it is not installed, keep 16
connections busy. Requests have 1 row, 100 rows, or, on 2 connections, ask for the best 100 of 100,000 items. LightGBM
is measured twice: with a DataFrame, as it is used from pandas, and with an array that is filled by hand. The run checks
that our answers are the scores of the library. Contenders alternate; the best of several rounds counts. Clients and
servers share the processor, so that the processor time of a request (`cpu_ms`) says more than the rate on small
machines.

`throughput_vs_lightgbm` and `p99_vs_lightgbm` are of 1 row and the faster way to use LightGBM; the goals are 3 and 1,
and 10 for 100 rows.

Clients in Python send at most about 8,000 requests per second on two cores, which is less than our server can do:
without wrk, `throughput_vs_lightgbm` of 1 row is too low, and `cpu_vs_lightgbm` is what counts. `clients` in the result
says which were used.

Peers run on `--peer-python`, such as that of a venv with fastapi, uvicorn[standard], lightgbm, pandas, lleaves (with
llvmlite below 0.45), onnxruntime, granian, and what splinefm needs; those that are not installed there are left out.

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
from _shared import describe_run, finish, make_parser, say
from peers.servers import Served, Server, free_port, load, running, write_requests

import splinefm as sf

CONNECTIONS, WORKERS, ITEMS, K = 16, 2, 100_000, 100
FASTAPI = ("fastapi", "uvicorn", "uvloop", "httptools", "pandas")
# On the event loop of the standard library, workers of uvicorn answer without TCP_NODELAY, and short requests wait
# 40 ms for an acknowledgment: a peer without uvloop would be ten times slower than it has to be.
PACKAGES = {
    "lightgbm": (*FASTAPI, "lightgbm"),
    "lleaves": (*FASTAPI, "lleaves"),
    "onnxruntime": (*FASTAPI, "onnxruntime"),
    "granian": ("granian", "msgspec", "prometheus_client", "pyarrow", "scipy", "sklearn"),
}
COMPILE = "import lleaves, sys; lleaves.Model(model_file=sys.argv[1]).compile(cache=sys.argv[2])"
VERSIONS = (
    "import json, sys; from importlib.metadata import version; print(json.dumps({p: version(p) for p in sys.argv[1:]}))"
)
Contest = tuple[str, str]  # the case, the contender
HERE = Path(__file__).resolve().parent


def can_run(peer: str, python: str) -> bool:
    """Whether the packages of a peer are installed."""
    code = "import " + ", ".join(PACKAGES[peer])
    return subprocess.run([python, "-c", code], capture_output=True).returncode == 0


def start(folder: Path, peers: list[str], python: str) -> dict[str, Server]:
    """Ours, and those of the peers."""
    options = ["--workers", str(WORKERS), "--index", str(folder / "items.sfi")]
    options += ["--max-wait", "30"]  # the other servers refuse no request either
    port = free_port()
    ours = [sys.executable, "-m", "splinefm", "serve", str(folder / "model.sfm"), "--port", str(port), *options]
    return {"splinefm": Server("splinefm", ours, port)} | {peer: start_peer(peer, folder, python) for peer in peers}


def start_peer(peer: str, folder: Path, python: str) -> Server:
    """A peer."""
    env, port = {"SERVED": str(folder), "PEER": peer, "OMP_NUM_THREADS": "1"}, free_port()
    if peer == "granian":
        shared = folder / "shared"
        (shared / "metrics").mkdir(parents=True)
        source = str(Path(sf.__file__).parents[1])
        env |= {"SHARED": str(shared), "PROMETHEUS_MULTIPROC_DIR": str(shared / "metrics"), "PYTHONPATH": source}
        command = [python, "-m", "granian", "--interface", "asgi", "--port", str(port), "--workers", str(WORKERS)]
        command += ["--loop", "uvloop", "--no-ws", "--working-dir", str(HERE), "peers.granian_app:app"]
    else:
        if peer == "lleaves":
            say("lleaves compiles, which takes minutes")
            paths = [str(folder / "lightgbm.txt"), str(folder / "lleaves.o")]
            subprocess.run([python, "-c", COMPILE, *paths], check=True)
        command = [python, "-m", "uvicorn", "peers.fastapi_models:app", "--port", str(port), "--app-dir", str(HERE)]
        command += ["--workers", str(WORKERS), "--log-level", "error", "--no-access-log"]
        command += ["--loop", "uvloop", "--http", "httptools"]
    return Server(peer, command, port, env)


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


def contests(served: Served, servers: dict[str, Server]) -> dict[Contest, tuple[Server, Path]]:
    """Who answers what: the server, and the file with its requests."""
    found: dict[Contest, tuple[Server, Path]] = {}
    for case, bodies in (("rows_1", served.bodies(1)), ("rows_100", served.bodies(100))):
        for name, server in servers.items():
            paths = {name: "/v1/score"} if name in ("splinefm", "granian") else {name: "/v1/arrays"}
            if name == "lightgbm":
                paths = {"lightgbm_pandas": "/v1/score", "lightgbm_arrays": "/v1/arrays"}
            for contender, path in paths.items():
                found[case, contender] = server, write_requests(served.folder / f"{case}_{contender}.lua", path, bodies)
    script = write_requests(served.folder / "rank_100.lua", "/v1/rank", served.contexts(K))
    found |= {
        ("rank_100", name): (server, script) for name, server in servers.items() if name in ("splinefm", "granian")
    }
    if "lightgbm" in servers:
        found["rank_100", "lightgbm_arrays"] = servers["lightgbm"], script
    return found


def measure(seconds: float, rounds: int, peers: list[str], python: str) -> dict[str, Any]:
    """All contenders, in turns."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        say("models")
        served = Served(folder, ITEMS, peer=bool(peers))
        say("servers")
        servers = start(folder, peers, python)
        figures: dict[str, Any] = {}
        with running(list(servers.values())):
            for ours in ("splinefm", "granian"):
                if ours in servers:
                    check(served, servers[ours])
            for number in range(rounds):
                for (case, contender), (server, script) in contests(served, servers).items():
                    say(f"round {number + 1}: {case} {contender}")
                    ranks = case == "rank_100"
                    if ranks and server.name == "lightgbm":  # takes seconds: wrk would have none to count
                        found = one_by_one(server, served.contexts(K)[:2])
                    else:
                        found = load(server, script, seconds, WORKERS if ranks else CONNECTIONS)
                    best = figures.setdefault(f"{case} {contender}", found)
                    figures[f"{case} {contender}"] = {
                        "requests_per_s": max(best["requests_per_s"], found["requests_per_s"]),
                        **{key: min(best[key], found[key]) for key in ("p50_ms", "p99_ms", "cpu_ms")},
                    }
    clients = "peers.load" if shutil.which("wrk") is None else "wrk"
    versions = describe_run()["versions"] | peer_versions(peers, python)
    return {"clients": clients, "versions": versions, "figures": figures, "ratios": ratios(figures)}


def peer_versions(peers: list[str], python: str) -> dict[str, str]:
    """The versions of what the peers run on."""
    names = [*peers, "fastapi", "uvicorn"] if peers else []
    found = subprocess.run([python, "-c", VERSIONS, *names], capture_output=True, text=True, check=True).stdout
    versions: dict[str, str] = json.loads(found)
    return versions


def ratios(figures: dict[str, Any]) -> dict[str, float]:
    """Ours against each contender, and against the faster way to use LightGBM."""
    found: dict[str, float] = {}
    for key, theirs in figures.items():
        case, contender = key.split()
        if contender == "splinefm":
            continue
        ours = figures[f"{case} splinefm"]
        values = {
            "throughput": ours["requests_per_s"] / theirs["requests_per_s"],
            "p99": theirs["p99_ms"] / ours["p99_ms"],
            "cpu": theirs["cpu_ms"] / ours["cpu_ms"],
        }
        for name, value in values.items():
            found[f"{case}_{name}_vs_{contender}"] = value
            if contender.startswith("lightgbm"):
                prefix = {"rows_1": "", "rows_100": "rows_100_", "rank_100": "rank_"}[case]
                general = f"{prefix}{name}_vs_lightgbm"
                found[general] = min(value, found.get(general, value))
    return dict(sorted(found.items(), key=lambda item: "_vs_lightgbm" not in item[0][-12:]))


def main() -> None:
    """Measure, print and save."""
    parser = make_parser(__doc__, "one round of 3 s each")
    parser.add_argument("--peer-python", default=sys.executable, help="Python of the peers")
    options = parser.parse_args()
    peers = [peer for peer in PACKAGES if can_run(peer, options.peer_python)]
    for peer in PACKAGES:
        if peer not in peers:
            say(f"no {peer}: {options.peer_python} lacks one of {', '.join(PACKAGES[peer])}")
    seconds, rounds = (3.0, 1) if options.quick else (10.0, 3)
    finish(__file__, measure(seconds, rounds, peers, options.peer_python), options)


if __name__ == "__main__":
    main()
